//! The keys of the config as people type them: their values, the sources of the values, and changes.

use crate::ops::config_edit::report_moved_keys;
use crate::ops::context::Context;
use crate::ops::usable_config;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, HintPart, WithHint, fail, fail_with_parts};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::config_file::ConfigFile;
use nanobot_config::settings::expand::has_reference;
use nanobot_config::settings::key_node::KeyNode;
use nanobot_config::settings::key_spelling::{camel_case, format_path, join_names, parse_path};
use nanobot_config::settings::key_type::KeyType;
use nanobot_config::settings::keys::{ConfigKey, KEYS, KeySupport, nearest};
use nanobot_config::settings::layers::UnknownKey;
use nanobot_config::settings::secrets::{is_secret, secret_arguments};
use nanobot_config::settings::{Config, LayeredConfig, config_file, model_keys, validation};
use nanobot_model::provider::registry::{PROVIDERS, find_provider};
use nanobot_os::env::Env;
use nanobot_os::input::{self, read_stdin_value};
use nanobot_os::secret;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// Maximum size in bytes of a file whose keys are set.
const MAX_BYTES: usize = 4 << 20;

/// The text that is shown in place of a secret.
const MASKED: &str = "***";

/// A key with its value.
#[derive(Serialize)]
pub(crate) struct ConfigValue {
    /// The key, as it is typed.
    pub(crate) key: String,
    /// The value, without secrets.
    pub(crate) value: Value,
    /// The source of the value.
    pub(crate) origin: String,
}

impl ConfigValue {
    fn new(layers: &LayeredConfig<'_>, path: &[String], value: &Value) -> Self {
        Self {
            key: format_path(path),
            value: mask_secrets(value, &mut path.to_vec()),
            origin: layers.origin(path).to_string(),
        }
    }
}

/// The value of `key`, or an object of all values below it.
///
/// # Errors
/// Status 2 if there is no such key, 78 if its value cannot be parsed.
pub(crate) fn value_of(ctx: &Context, key: &str) -> Result<ConfigValue> {
    let config = ctx.load_config()?;
    let layers = LayeredConfig::new(&config, &ctx.env);
    let path = canonical_path(key)?;
    let value = match KeyNode::at(&path).and_then(KeyNode::key) {
        // A request for a single key reports its errors.
        Some(config_key) => match layers.read(&path)? {
            Some(value) => value,
            None if path.len() == config_key.path.split('.').count() => config_key.default_value(),
            None => Value::Null,
        },
        None => group(&layers, &path),
    };
    if value.is_null()
        && let Some(unknown) = validation::unknown_key(&path, &Value::Null)
    {
        return Err(unknown_key_error(Exit::Usage, key, &unknown, &unknown.description));
    }
    Ok(ConfigValue::new(&layers, &path, &value))
}

/// Every key in use, with its value.
///
/// # Errors
/// The config cannot be read.
pub(crate) fn all_values(ctx: &Context) -> Result<Vec<ConfigValue>> {
    let config = ctx.load_config()?;
    let layers = LayeredConfig::new(&config, &ctx.env);
    let values = effective_values(&layers, KEYS).into_iter();
    Ok(values.map(|(path, value)| ConfigValue::new(&layers, &path, &value)).collect())
}

/// The keys whose values differ from the defaults. A key that the file sets to its default is not among them: other programs write
/// every key.
///
/// # Errors
/// The config cannot be read.
pub(crate) fn changed_values(ctx: &Context) -> Result<Vec<ConfigValue>> {
    let config = ctx.load_config()?;
    let layers = LayeredConfig::new(&config, &ctx.env);
    let is_default = |path: &[String], value: &Value| {
        KeyNode::at(path).and_then(KeyNode::key).is_some_and(|key| {
            let default = key.default_value();
            // A number of the file was converted too: `2` to `2.0`.
            key.kind.accept(&default).unwrap_or(default) == *value
        })
    };
    let values = effective_values(&layers, KEYS).into_iter();
    let changed = values.filter(|(path, value)| !is_default(path, value));
    Ok(changed.map(|(path, value)| ConfigValue::new(&layers, &path, &value)).collect())
}

/// Removes the value of `key`.
///
/// # Errors
/// Status 2 if there is no such key, 66 if it has no value, 78 if no run could use the config without it.
pub(crate) fn unset(ctx: &Context, key: &str) -> Result<()> {
    let path = canonical_path(key)?;
    Config::change(&ctx.paths, |config| {
        let old_config = config.clone();
        if !config.unset(&path)? {
            let cause = format!("`{key}` is not set in {}", config.path().display());
            return Err(match validation::unknown_key(&path, &Value::Null) {
                Some(unknown) => unknown_key_error(Exit::Usage, key, &unknown, &cause),
                None => {
                    let hint = format!("nanobot config get {} --origin", quote(key));
                    fail(Exit::NoInput, cause).with_hint(hint)
                }
            });
        }
        usable_config::check_change(ctx, &old_config, config)
            .with_context(|| format!("unset `{key}`"))
    })
}

/// Sets `key` to the value of `text`. `null` removes it, and `-` reads the text from standard input.
///
/// # Errors
/// Status 2 if there is no such key, 78 if it does not take the value, or no run could use the config with it.
pub(crate) fn set(ctx: &Context, key: &str, text: &str) -> Result<()> {
    if text == "null" {
        return unset(ctx, key);
    }
    let path = canonical_path(key)?;
    let key_type = KeyNode::kind_at(&path).ok_or_else(|| {
        let cause = format!("`{key}` holds other keys");
        fail(Exit::Usage, cause).with_hint("set them one by one")
    })?;
    if let Some(unknown) = validation::unknown_key(&path, &Value::Null) {
        return Err(unknown_key_error(Exit::Usage, key, &unknown, &unknown.description));
    }
    let stdin_text = if text == "-" { Some(read_stdin_value()?) } else { None };
    // An object names the file or the command that provides the key.
    let is_key_source = key_type == KeyType::Secret && key_type.parse(text).is_object();
    if stdin_text.is_none() && is_secret(&path) && !has_reference(text) && !is_key_source {
        ctx.terminal.eprint(&format!(
            "nanobot: every process can see a key on the command line; `nanobot config set {} -` reads it from standard input",
            quote(key)
        ));
    }
    let text = stdin_text.as_deref().unwrap_or(text);
    let value = parse_value(key, key_type, text)?;
    let config = Config::load(&ctx.paths)?;
    refuse_mask(&config, &path, &value)?;
    if !has_reference(text) {
        refuse_unusable(&config, &ctx.env, key, &path, &value)?;
    }
    if let Some(warning) = validation::warn(&format_path(&path), &value) {
        ctx.terminal.eprint(&format!("nanobot: {warning}"));
    }
    Config::change(&ctx.paths, |config| {
        let old_config = config.clone();
        config.set(&path, &value)?;
        if has_reference(text) {
            Ok(())
        } else {
            usable_config::check_change(ctx, &old_config, config)
        }
    })
}

/// A key that changes.
#[derive(Serialize)]
pub(crate) struct ChangedKey {
    /// The key, as it is typed.
    pub(crate) key: String,
    /// The value before, without secrets; `null` if there was none.
    pub(crate) old: Value,
    /// The value after, without secrets; `null` if there is none.
    pub(crate) new: Value,
}

/// Sets the keys of `file`, which has the form of the config, or of standard input if that is `-`. Returns those that change. With
/// `dry_run`, nothing is written.
///
/// # Errors
/// Status 78 if a key does not exist or does not take its value, or if no run could use the config; nothing is written then.
pub(crate) fn apply(ctx: &Context, file: &Path, dry_run: bool) -> Result<Vec<ChangedKey>> {
    let text = input::read_file_or_stdin(file, MAX_BYTES)?;
    if text.trim().is_empty() {
        return Err(fail(Exit::BadInput, format!("`{}` is empty", file.display())));
    }
    let file = ConfigFile::parse(file, &text)?;
    let mut values = Vec::new();
    collect_keys(file.value(), &mut Vec::new(), &mut values);
    let position = |path: &[String]| file.position(file.offset(path).unwrap_or_default());
    let change = |config: &mut Config| -> Result<Vec<ChangedKey>> {
        let old_config = config.clone();
        let mut changes = Vec::new();
        for (path, value) in &values {
            let key = format_path(path);
            let old = old_config.get_path(&key).cloned().unwrap_or_default();
            if old == *value {
                continue;
            }
            if value.is_null() {
                config.unset(path)?;
            } else {
                check_type(path, value)
                    .and_then(|()| refuse_mask(&old_config, path, value))
                    .and_then(|()| config.set(path, value))
                    .with_context(|| position(path))?;
            }
            let [old, new] = [&old, value].map(|value| mask_secrets(value, &mut path.clone()));
            changes.push(ChangedKey { key, old, new });
        }
        for (path, value) in values.iter().filter(|(_, value)| !value.is_null()) {
            refuse_unusable(config, &ctx.env, &format_path(path), path, value)
                .with_context(|| position(path))?;
        }
        usable_config::check_change(ctx, &old_config, config)?;
        Ok(changes)
    };
    if dry_run {
        change(&mut Config::load(&ctx.paths)?)
    } else {
        Config::change(&ctx.paths, change)
    }
}

/// Adds the keys of `value`, the object at `path`, with their values to `values`. Some users keep comments in keys of their own.
fn collect_keys(value: &Value, path: &mut Vec<String>, values: &mut Vec<(Vec<String>, Value)>) {
    let is_map = matches!(KeyNode::kind_at(path), Some(KeyType::Map | KeyType::SecretMap));
    let is_object_of_keys = is_map || KeyNode::at(path).is_some_and(|node| node.key().is_none());
    match value {
        Value::Object(members) if is_object_of_keys => {
            // The names of a map, such as variables, may begin with anything.
            let is_comment = |name: &str| !is_map && name.starts_with(['_', '$', '/']);
            for (name, member) in members.iter().filter(|(name, _)| !is_comment(name)) {
                path.push(name.clone());
                collect_keys(member, path, values);
                path.pop();
            }
        }
        value => values.push((path.clone(), value.clone())),
    }
}

/// Checks that there is a key at `path`, and that it takes a value of the type of `value`. A reference to a variable is checked when it
/// is used.
fn check_type(path: &[String], value: &Value) -> Result<()> {
    let Some(key_type) = KeyNode::kind_at(path) else {
        return Err(fail(Exit::Config, UnknownKey::new(path, value).description));
    };
    let is_reference = value.as_str().is_some_and(has_reference);
    if is_reference || key_type.accept(value).is_some() {
        return Ok(());
    }
    Err(type_error(&format_path(path), key_type, value))
}

fn type_error(key: &str, key_type: KeyType, value: &Value) -> anyhow::Error {
    let (actual, expected) = (key_type.describe_value(value), key_type.describe());
    fail(Exit::Config, format!("`{key}` is {actual}, expected {expected}"))
}

/// Converts a key, as typed, to the spelling in the table of keys.
pub(crate) fn canonical_path(key: &str) -> Result<Vec<String>> {
    KeyNode::canonical_path(key).ok_or_else(|| {
        let cause = format!("there is no key `{key}`");
        if let Some(hint) = quoting_hint(key) {
            return fail(Exit::Usage, cause).with_hint(hint);
        }
        let suggestions = keys_that_end_in(key);
        if !suggestions.is_empty() {
            return fail(Exit::Usage, cause).with_hint(suggestions.join(", "));
        }
        match nearest(key, KEYS.iter().map(|config_key| config_key.path)) {
            Some(nearest) => fail(Exit::Usage, cause).with_hint(format!("`{nearest}`")),
            None => fail(Exit::Usage, cause).with_hint("`nanobot config list --all` for the keys"),
        }
    })
}

/// The hint for an unknown key that would be valid if a name with a dot in it were quoted.
fn quoting_hint(key: &str) -> Option<String> {
    let is_key = |path: &[String]| {
        KeyNode::canonical_path(&format_path(path)).is_some_and(|path| {
            KeyNode::kind_at(&path).is_some()
                && validation::unknown_key(&path, &Value::Null).is_none()
        })
    };
    let path = join_names(&parse_path(key)?, is_key)?;
    let quoted_key = quote(&format_path(&path));
    // The last name may as well be meant for a key of the model or the preset.
    let keys = if path.len() == 2 { model_keys::keys_at(&path) } else { None };
    let keys = keys.map_or_else(String::new, |keys| format!("one of {}, or ", keys.join(", ")));
    Some(format!("{keys}`{quoted_key}`: a name with a dot is quoted"))
}

/// The error `cause` about `key`, which contains an unknown name.
fn unknown_key_error(exit: Exit, key: &str, unknown: &UnknownKey, cause: &str) -> anyhow::Error {
    let hint = if unknown.is_misspelt { None } else { quoting_hint(key) };
    fail_with_parts(exit, cause, hint.map(HintPart::from))
}

/// Maximum number of keys that are suggested for one name.
const MAX_SUGGESTIONS: usize = 6;

/// The keys in use, in backticks, whose last name is `name`; none if there are too many. Keys of channels are left out if
/// there are too many with them.
fn keys_that_end_in(name: &str) -> Vec<String> {
    let name = format!(".{}", camel_case(name));
    let is_used = |key: &&ConfigKey| {
        matches!(key.support, KeySupport::Used | KeySupport::UsedAndWritten)
            && key.path.ends_with(&name)
    };
    let mut keys: Vec<&ConfigKey> = KEYS.iter().filter(is_used).collect();
    if keys.len() > MAX_SUGGESTIONS {
        keys.retain(|key| !key.path.starts_with("channels."));
    }
    if keys.len() <= MAX_SUGGESTIONS {
        keys.iter().map(|key| format!("`{}`", key.path.replace('*', "NAME"))).collect()
    } else {
        Vec::new()
    }
}

/// Collects the values below `path` into one object.
fn group(layers: &LayeredConfig<'_>, path: &[String]) -> Value {
    let mut object = Value::Object(serde_json::Map::new());
    let rows = KeyNode::at(path).map(KeyNode::keys).unwrap_or_default();
    for (value_path, value) in effective_values(layers, rows) {
        if let Some(rest) = value_path.strip_prefix(path) {
            config_file::set_in(&mut object, rest, value);
        }
    }
    object
}

/// The keys of `rows` that are set, or in use with a default. A value that cannot be parsed is returned as written, so
/// that an error in one key, or an unset variable, hides no other key. `config check` reports the error.
fn effective_values(
    layers: &LayeredConfig<'_>,
    rows: &'static [ConfigKey],
) -> Vec<(Vec<String>, Value)> {
    let mut values = Vec::new();
    for key in rows {
        for path in expand_wildcards(layers, key.path) {
            let configured =
                config_file::get_in(layers.value(), &path).filter(|value| !value.is_null());
            let is_used = matches!(key.support, KeySupport::Used | KeySupport::UsedAndWritten);
            let value = match configured {
                Some(configured) => layers
                    .to_typed(&path, configured, key.kind)
                    .unwrap_or_else(|_| configured.clone()),
                None if is_used => key.default_value(),
                None => continue,
            };
            values.push((path, value));
        }
    }
    values
}

/// The paths that match a row of the table: one path, or one for each name that the user chose for `*`.
fn expand_wildcards(layers: &LayeredConfig<'_>, row: &str) -> Vec<Vec<String>> {
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    for part in row.split('.') {
        let mut next = Vec::new();
        for path in paths {
            let names = match part {
                "*" => layers.names(&path.iter().map(String::as_str).collect::<Vec<_>>()),
                name => vec![name.to_owned()],
            };
            next.extend(names.into_iter().map(|name| path.iter().cloned().chain([name]).collect()));
        }
        paths = next;
    }
    paths
}

/// The `value` at `path`, with secrets replaced by `***`.
fn mask_secrets(value: &Value, path: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) if !text.is_empty() && is_secret(path) => MASKED.into(),
        Value::Object(members) => {
            let mut masked = serde_json::Map::new();
            for (name, member) in members {
                path.push(name.clone());
                masked.insert(name.clone(), mask_secrets(member, path));
                path.pop();
            }
            Value::Object(masked)
        }
        Value::Array(items) => {
            let mut masked: Vec<Value> =
                items.iter().map(|item| mask_secrets(item, path)).collect();
            for (index, secret) in secret_arguments(items) {
                masked[index] =
                    items[index].as_str().unwrap_or_default().replace(secret, MASKED).into();
            }
            masked.into()
        }
        // An address or an argument may contain a key.
        Value::String(text) => secret::redact_all(text).into(),
        other => other.clone(),
    }
}

/// Refuses `***` in place of a secret: it is what the output of this program has there, and the secret would be lost.
fn refuse_mask(config: &Config, path: &[String], value: &Value) -> Result<()> {
    let old = config.get_path(&format_path(path)).cloned().unwrap_or_default();
    let is_masked_value = old != *value && mask_secrets(&old, &mut path.to_vec()) == *value;
    if !is_masked_value && !has_mask(path, value) {
        return Ok(());
    }
    let key = format_path(path);
    Err(fail(Exit::Config, format!("`{key}` is `{MASKED}`, which stands for a secret")).with_hint(
        format!("give the secret itself, or leave `{key}` out, which keeps the present one"),
    ))
}

/// True if a secret in `value`, that of the key at `path`, is the mask.
fn has_mask(path: &[String], value: &Value) -> bool {
    match value {
        Value::String(text) => text == MASKED && is_secret(path),
        Value::Object(members) => members
            .iter()
            .any(|(name, member)| has_mask(&[path, std::slice::from_ref(name)].concat(), member)),
        _ => false,
    }
}

/// Refuses a value that would stop every run, or have no effect.
fn refuse_unusable(
    config: &Config,
    env: &Env,
    key: &str,
    path: &[String],
    value: &Value,
) -> Result<()> {
    if let Some(error) = validation::validate(path, value) {
        return Err(fail(Exit::Config, error));
    }
    if let Some(unknown) = validation::unknown_key(path, value) {
        return Err(unknown_key_error(Exit::Config, key, &unknown, &unknown.description));
    }
    let layers = LayeredConfig::new(config, env);
    let Some(error) = layers.name_error(path, value, |name| find_provider(name).is_some()) else {
        return Ok(());
    };
    let hint = match value.as_str().unwrap_or_default().trim() {
        "" => format!("nanobot config unset {}", format_path(path)),
        name => match nearest(name, PROVIDERS.iter().map(|provider| provider.name)) {
            Some(nearest) => format!("`{nearest}`"),
            None => format!(
                "`nanobot model provider list`; for a provider of your own, set `{}` first",
                quote(&format_path(&["providers", name, "apiBase"]))
            ),
        },
    };
    Err(fail(Exit::Config, error).with_hint(hint))
}

/// Parses `text` as the value of a key of type `key_type`. A reference to a variable is stored unchanged, and checked when it is used.
fn parse_value(key: &str, key_type: KeyType, text: &str) -> Result<Value> {
    let value = key_type.parse(text);
    if has_reference(text) {
        return Ok(value);
    }
    key_type.accept(&value).ok_or_else(|| type_error(key, key_type, &value))
}

/// Moves keys of the shared config file that only this program reads to `nanobot.json`, and reports them.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn move_misplaced_keys(ctx: &Context) -> Result<()> {
    let (keys, overridden_keys) = Config::change(&ctx.paths, |config| {
        let keys = config.misplaced_keys();
        let overridden_keys = config.move_keys(&keys)?;
        Ok((keys, overridden_keys))
    })?;
    report_moved_keys(ctx, &keys, &overridden_keys);
    Ok(())
}
