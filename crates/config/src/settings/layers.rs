//! The config file with environment variables applied on top; each value is looked up, expanded and type-checked on
//! demand.
//!
//! A variable `NANOBOT_A__B` names a key in any case, in camelCase or snake_case; objects and lists are given as
//! JSON. Variables take precedence over the file. In the Python program the file takes precedence, and variables only
//! fill gaps.

use super::config::Config;
use super::config_file::{KeyPath, get_in, set_in};
use super::expand::{UnsetVariable, expand_all};
use super::hooks::has_events;
use super::key_node::KeyNode;
use super::key_spelling::{camel_case, find_provider_name, format_path};
use super::key_type::{KeyType, type_name};
use super::keys::{ConfigKey, KeySupport, RENAMED_KEYS, nearest};
use super::model_keys::{keys_at, unknown_model_keys};
use super::own_keys::items;
use super::secret_form::secret_from;
use super::system_file::Locks;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::env::Env;
use nanobot_os::secret::LazySecret;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Prefix of all our environment variables.
const VARIABLE_PREFIX: &str = "NANOBOT_";

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The flag as typed.
    Flag(&'static str),
    /// The name of the environment variable.
    Variable(String),
    /// The position as `FILE:LINE:COLUMN`.
    File(String),
    /// The position in the system-wide file of what locks the key.
    Lock(String),
    Default,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(position) => write!(f, "file {position}"),
            Self::Lock(position) => write!(f, "locked by {position}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The sections that select the provider, grant permissions or set limits.
const CHECKED_SECTIONS: [&str; 6] = ["agents", "budget", "channels", "hooks", "providers", "tools"];

/// Keys under `tools` whose values restrict what a run may do.
const LIMIT_NAMES: [&str; 9] = [
    "allowPatterns",
    "deny",
    "denyPatterns",
    "disabled",
    "enable",
    "enabledTools",
    "permissions",
    "restrictToWorkspace",
    "sandbox",
];

/// The file merged with the environment variables.
#[derive(Debug)]
pub struct LayeredConfig<'a> {
    config: Cow<'a, Config>,
    env: &'a Env,
    value: Cow<'a, Value>,
    /// The variable that set each value.
    variables: BTreeMap<KeyPath, String>,
    /// The variables that do not apply, since the system-wide file locks their keys.
    locked_variables: BTreeMap<KeyPath, String>,
    unknown_variables: Vec<UnknownVariable>,
}

/// An environment variable that looks like a config variable but matches no key.
#[derive(Debug)]
pub struct UnknownVariable {
    pub variable: String,
    /// The key that was probably intended.
    pub nearest: Option<String>,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: does not match any config key", self.variable)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// A key of the file that the table does not have.
#[derive(Debug)]
pub struct UnknownKey {
    /// The message for people, without a position.
    pub description: String,
    /// True if the table has a similar name, which the message then suggests.
    pub is_misspelt: bool,
    /// True if the name may be a misspelling of a limit. The limit would be ignored.
    pub(crate) may_be_limit: bool,
}

impl UnknownKey {
    /// Describes the unknown key at `path`, which has this `value`.
    pub fn new(path: &[String], value: &Value) -> Self {
        let (name, parents) =
            path.split_last().map_or(("", path), |(name, parents)| (name, parents));
        let nearest_name = match keys_at(parents) {
            Some(keys) => nearest(name, keys.iter().copied()),
            None => nearest(name, KeyNode::at(parents).map(KeyNode::names).unwrap_or_default()),
        };
        let may_be_limit = match parents {
            [] => nearest_name.is_some_and(|section| has_limits_of(section, value)),
            [section, ..] if section == "budget" => true,
            [section, ..] if section == "tools" => {
                nearest_name.is_some_and(|nearest| LIMIT_NAMES.contains(&nearest))
            }
            _ => false,
        };
        let is_misspelt = nearest_name.is_some();
        let suggestion = nearest_name.map(|nearest| format!("; did you mean `{nearest}`?"));
        let suggestion = suggestion.unwrap_or_default();
        Self {
            is_misspelt,
            description: format!("unknown key `{}`{suggestion}", format_path(path)),
            may_be_limit,
        }
    }
}

/// True if `value` has a member that resembles one of `section`. A key of another program may have a similar name, as "badge"
/// resembles "budget", but it has other contents.
fn has_limits_of(section: &str, value: &Value) -> bool {
    match section {
        "budget" | "tools" => {
            let names = || KeyNode::at(&[section]).map(KeyNode::names).unwrap_or_default();
            let members = value.as_object().into_iter().flatten();
            members.into_iter().any(|(name, _)| nearest(name, names()).is_some())
        }
        "hooks" => has_events(value),
        "locked" => {
            let keys = items(value).into_iter().flatten();
            keys.into_iter().any(|key| key.as_str().and_then(KeyNode::canonical_path).is_some())
        }
        _ => false,
    }
}

impl<'a> LayeredConfig<'a> {
    /// Applies the variables in `env` on top of `config`.
    pub fn new(config: &'a Config, env: &'a Env) -> Self {
        let config = config.with_compared_limits(env).map_or(Cow::Borrowed(config), Cow::Owned);
        let value = match &config {
            Cow::Borrowed(config) => Cow::Borrowed(config.value()),
            Cow::Owned(config) => Cow::Owned(config.value().clone()),
        };
        let mut layers = Self {
            config,
            env,
            value,
            variables: BTreeMap::new(),
            locked_variables: BTreeMap::new(),
            unknown_variables: Vec::new(),
        };
        let mut variables: Vec<(Vec<&str>, &str, &str)> = env
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .filter_map(|(name, text)| Some((name_parts(name)?, name, text)))
            .collect();
        // More specific variables take precedence, so they are applied last.
        variables.sort_by_key(|(path, _, _)| path.len());
        for (path, variable, text) in variables {
            layers.apply_variable(&path, variable, text);
        }
        layers.apply_system_file();
        layers
    }

    /// Applies the system-wide file to what the variables set.
    fn apply_system_file(&mut self) {
        if self.variables.is_empty() {
            return;
        }
        let Some(applied) = self.config.apply_system_file(&self.value, self.env) else {
            return;
        };
        let all = std::mem::take(&mut self.variables);
        (self.locked_variables, self.variables) =
            all.into_iter().partition(|(path, _)| self.config.lock_position(path).is_some());
        // A variable is the source of a limit only if the file's is not stricter. Lists of denials are joined.
        self.variables.retain(|path, _| {
            let value = get_in(&applied, path);
            value == get_in(&self.value, path) || value.is_some_and(Value::is_array)
        });
        self.value = Cow::Owned(applied);
    }

    /// All values, neither expanded nor checked.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The environment used to expand `${VARIABLE}`.
    pub fn env(&self) -> &'a Env {
        self.env
    }

    /// The secrets in the object `members`, the value of the key `key`.
    pub(super) fn secrets_in(
        &self,
        key: &str,
        members: &Map<String, Value>,
    ) -> Vec<(String, LazySecret)> {
        let secret = |(name, value): (&String, &Value)| {
            let secret = match value {
                // In a map, blank text is a value too.
                Value::String(text) => LazySecret::new(text),
                value => secret_from(self.env, &format!("{key}.{name}"), value)?,
            };
            Some((name.clone(), secret))
        };
        members.iter().filter_map(secret).collect()
    }

    /// The secrets in `value`, that of the key at `path`.
    pub(super) fn secrets_of(
        &self,
        path: &[String],
        key_type: KeyType,
        value: &Value,
    ) -> Vec<LazySecret> {
        let key = format_path(path);
        match (key_type, value) {
            (KeyType::Secret, value) => secret_from(self.env, &key, value).into_iter().collect(),
            (KeyType::SecretMap, Value::Object(members)) => {
                self.secrets_in(&key, members).into_iter().map(|(_, secret)| secret).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Variables that match no key.
    pub(crate) fn unknown_variables(&self) -> &[UnknownVariable] {
        &self.unknown_variables
    }

    /// Variables that do not apply, since their keys are locked.
    pub(super) fn locked_variables(&self) -> &BTreeMap<KeyPath, String> {
        &self.locked_variables
    }

    /// The keys that users cannot set.
    pub(super) fn locks(&self) -> Locks {
        self.config.locks()
    }

    /// Names of the variables that set values; a name may repeat.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.values().map(String::as_str)
    }

    /// Reads the value at `path`, expanded and type-checked; `None` if it is absent or null.
    ///
    /// # Errors
    /// Status 78 if a referenced variable is missing or the type does not match.
    pub fn read(&self, path: &[impl AsRef<str>]) -> Result<Option<Value>> {
        let path = path.iter().map(AsRef::as_ref);
        self.read_as(&path, |path| KeyNode::kind_at(path).unwrap_or(KeyType::Any))
    }

    /// Reads the value of `key`, which has no `*` in its path, as [`LayeredConfig::read`] does.
    ///
    /// # Errors
    /// The errors of [`LayeredConfig::read`].
    pub fn read_key(&self, key: &ConfigKey) -> Result<Option<Value>> {
        self.read_as(&key.path.split('.'), |_| key.kind)
    }

    fn read_as<'p>(
        &self,
        path: &(impl Iterator<Item = &'p str> + Clone),
        key_type: impl Fn(&[String]) -> KeyType,
    ) -> Result<Option<Value>> {
        let names = || path.clone().map(str::to_owned);
        let mut value = &*self.value;
        for (depth, name) in path.clone().enumerate() {
            value = match value {
                Value::Null => return Ok(None),
                Value::Object(members) => match member(members, name) {
                    Some(member) => member,
                    None => return Ok(None),
                },
                other => {
                    let parents: KeyPath = names().take(depth).collect();
                    return Err(self.type_error(&parents, type_name(other), "an object"));
                }
            };
        }
        if value.is_null() {
            return Ok(None);
        }
        let path: KeyPath = names().collect();
        self.to_typed(&path, value, key_type(&path)).map(Some)
    }

    /// Expands `value`, that of the key at `path`, and converts it to `key_type`.
    pub fn to_typed(&self, path: &[String], value: &Value, key_type: KeyType) -> Result<Value> {
        if key_type == KeyType::Verbatim {
            return Ok(value.clone());
        }
        let value = expand_all(value, self.env).map_err(|UnsetVariable(variable)| {
            fail(
                Exit::Config,
                format!(
                    "{}`{}` refers to `{variable}`, which is not set",
                    self.position_prefix(path),
                    format_path(path)
                ),
            )
            .with_hint(format!("export {variable}=…"))
        })?;
        key_type.accept(&value).ok_or_else(|| {
            self.type_error(path, &key_type.describe_value(&value), &key_type.describe())
        })
    }

    /// Checks the names of all keys, and the types of the values in the sections that select the provider, grant
    /// permissions or set limits: a section that cannot be read must not be treated as absent. A reference to an unset
    /// variable matters only where its value is used. Returns the unknown keys.
    ///
    /// # Errors
    /// Status 78 for the first value of a wrong type, for an unknown key that may be a misspelt limit, and for an unknown
    /// variable.
    pub fn check(&self) -> Result<Vec<String>> {
        if let Some(variable) = self.unknown_variables.first() {
            return Err(fail(Exit::Config, variable.to_string()));
        }
        let mut unknown_keys = Vec::new();
        for (section, value) in self.value.as_object().into_iter().flatten() {
            let node = KeyNode::root().child(section);
            let is_checked = CHECKED_SECTIONS.contains(&section.as_str());
            if node.is_none() || is_checked {
                self.check_node(&mut vec![section], node, value, &mut unknown_keys)?;
            }
            if section == "models" {
                let keys = unknown_model_keys(std::slice::from_ref(section), value);
                unknown_keys.extend(keys.iter().map(|path| format_path(path)));
            }
        }
        Ok(unknown_keys)
    }

    fn check_node<'v>(
        &self,
        path: &mut Vec<&'v str>,
        node: Option<KeyNode>,
        value: &'v Value,
        unknown_keys: &mut Vec<String>,
    ) -> Result<()> {
        let to_key_path =
            |path: &[&str]| -> KeyPath { path.iter().map(|&name| name.into()).collect() };
        let Some(node) = node else {
            let path = to_key_path(path);
            let key = UnknownKey::new(&path, value);
            if key.may_be_limit {
                let cause = format!("{}{}", self.position_prefix(&path), key.description);
                return Err(fail(Exit::Config, cause));
            }
            // Some users keep comments in keys of their own.
            if !path.last().is_some_and(|name| name.starts_with(['_', '$', '/'])) {
                unknown_keys.push(format_path(&path));
            }
            return Ok(());
        };
        match (node.key(), value) {
            (_, Value::Null) => Ok(()),
            (Some(key), value) => {
                if key.support == KeySupport::Ignored || key.kind.accept(value).is_some() {
                    return Ok(());
                }
                match expand_all(value, self.env) {
                    Ok(_) => self.to_typed(&to_key_path(path), value, key.kind).map(drop),
                    Err(UnsetVariable(_)) => Ok(()),
                }
            }
            (None, Value::Object(members)) => members.iter().try_for_each(|(name, member)| {
                path.push(name);
                self.check_node(path, node.child(name), member, unknown_keys)?;
                path.pop();
                Ok(())
            }),
            (None, other) => {
                Err(self.type_error(&to_key_path(path), type_name(other), "an object"))
            }
        }
    }

    /// Returns the names of the members at `path`.
    pub fn names(&self, path: &[&str]) -> Vec<String> {
        get_in(&self.value, path)
            .and_then(Value::as_object)
            .map(|members| members.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The error in `value` of the key at `path`, if it names a provider that does not exist or an empty model.
    pub fn name_error(
        &self,
        path: &[String],
        value: &Value,
        is_built_in: fn(&str) -> bool,
    ) -> Option<String> {
        let text = value.as_str()?;
        match format_path(path).as_str() {
            "agents.defaults.provider" => {
                let exists = is_same_name(text, "auto")
                    || text.trim().is_empty()
                    || is_built_in(text)
                    || self.names(&["providers"]).iter().any(|name| is_same_name(name, text));
                (!exists).then(|| format!("there is no provider `{text}`"))
            }
            "agents.defaults.model" if text.trim().is_empty() => {
                Some("`agents.defaults.model` is empty".to_owned())
            }
            _ => None,
        }
    }

    /// Returns the source of the value at `path`.
    pub fn origin(&self, path: &[String]) -> SettingOrigin {
        if let Some(position) = self.config.lock_position(path) {
            return SettingOrigin::Lock(position);
        }
        if let Some(variable) =
            (1..=path.len()).rev().find_map(|length| self.variables.get(&path[..length]))
        {
            return SettingOrigin::Variable(variable.clone());
        }
        let is_set = get_in(self.config.value(), path).is_some_and(|value| !value.is_null());
        match self.config.position(path) {
            Some(position) if is_set => SettingOrigin::File(position),
            _ => SettingOrigin::Default,
        }
    }

    /// Builds the error for a value at `path` that is `actual` instead of `expected`.
    pub(crate) fn type_error(
        &self,
        path: &[String],
        actual: &str,
        expected: &str,
    ) -> anyhow::Error {
        let cause = format!(
            "{}`{}` is {actual}, expected {expected}",
            self.position_prefix(path),
            format_path(path)
        );
        fail(Exit::Config, cause)
    }

    /// Returns the prefix of a message about `path`: its position in the file, or its variable.
    pub(super) fn position_prefix(&self, path: &[String]) -> String {
        match self.origin(path) {
            SettingOrigin::Variable(name) => format!("{name}: "),
            SettingOrigin::File(position) | SettingOrigin::Lock(position) => {
                format!("{position}: ")
            }
            SettingOrigin::Flag(_) | SettingOrigin::Default => String::new(),
        }
    }

    fn apply_variable(&mut self, name_parts: &[&str], variable: &str, text: &str) {
        match self.resolve_path(name_parts) {
            Ok(path) => {
                let value = KeyNode::kind_at(&path).unwrap_or(KeyType::Any).parse(text);
                // A one-part name with plain text, such as NANOBOT_SESSION=work, is not a config variable.
                if name_parts.len() > 1 || value.is_object() || text.trim_start().starts_with('{') {
                    self.store(path, value, variable);
                }
            }
            Err(nearest) if name_parts.len() > 1 => self
                .unknown_variables
                .push(UnknownVariable { variable: variable.to_owned(), nearest }),
            Err(_) => {}
        }
    }

    /// Stores a value and records its variable. An object is stored member by member, to keep its other members.
    fn store(&mut self, path: KeyPath, value: Value, variable: &str) {
        match (value, KeyNode::at(&path)) {
            (Value::Object(members), Some(node)) if node.key().is_none() => {
                for (spelling, member) in members {
                    let name = node.canonical(&spelling);
                    let name =
                        if path == ["providers"] { self.chosen_name(&path, &name) } else { name };
                    let path = path.iter().cloned().chain([name]).collect();
                    self.store(path, member, variable);
                }
            }
            (value, _) => {
                set_in(self.value.to_mut(), &path, value);
                self.variables.insert(path, variable.to_owned());
            }
        }
    }

    /// Resolves the parts of a variable's name to a path; the error is the key that was probably intended.
    fn resolve_path(&self, name_parts: &[&str]) -> Result<KeyPath, Option<String>> {
        if let Some((_, new)) =
            RENAMED_KEYS.iter().find(|(old, _)| is_same_name(old, &name_parts.join(".")))
        {
            return Ok(new.split('.').map(str::to_owned).collect());
        }
        let mut path = KeyPath::new();
        let mut node = KeyNode::root();
        for (depth, part) in name_parts.iter().enumerate() {
            if let Some(key) = node.key() {
                if !matches!(
                    key.kind,
                    KeyType::Map
                        | KeyType::SecretMap
                        | KeyType::Object
                        | KeyType::Any
                        | KeyType::Verbatim
                ) {
                    return Err(Some(key.path.to_owned()));
                }
                path.extend(name_parts[depth..].iter().map(|&part| part.to_owned()));
                return Ok(path);
            }
            let names = node.names();
            let name = match names.iter().find(|name| is_same_name(name, part)) {
                Some(name) => (*name).to_owned(),
                // Provider names are fixed keys; server names are matched exactly.
                None if path == ["providers"] => {
                    self.chosen_name(&path, &camel_case(&part.to_ascii_lowercase()))
                }
                None if names.contains(&"*") => self.chosen_name(&path, part),
                None => {
                    let nearest = nearest(&camel_case(&part.to_ascii_lowercase()), names);
                    return Err(nearest.map(|name| {
                        path.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(".")
                    }));
                }
            };
            let Some(child) = node.child(&name) else {
                return Err(None);
            };
            node = child;
            path.push(name);
        }
        Ok(path)
    }

    /// Returns a user-chosen name as spelled in the file, or else as spelled in the variable.
    fn chosen_name(&self, parents: &[String], part: &str) -> String {
        let members = get_in(&self.value, parents).and_then(Value::as_object);
        let mut names = members.into_iter().flat_map(Map::keys);
        if parents == ["providers"] {
            return find_provider_name(names, part);
        }
        names.find(|name| is_same_name(name, part)).map_or_else(|| part.to_owned(), Clone::clone)
    }
}

/// Returns the member of `members` called `name`. Most objects of a config have so few members that a comparison with
/// each is faster than a hash.
fn member<'v>(members: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    match members.len() {
        0..=8 => members.iter().find_map(|(member, value)| (member == name).then_some(value)),
        _ => members.get(name),
    }
}

/// Splits a variable's name into its parts, if it has our prefix.
fn name_parts(variable: &str) -> Option<Vec<&str>> {
    let (prefix, rest) = variable.split_at_checked(VARIABLE_PREFIX.len())?;
    let parts: Vec<&str> = rest.split("__").collect();
    (prefix.eq_ignore_ascii_case(VARIABLE_PREFIX) && parts.iter().all(|part| !part.is_empty()))
        .then_some(parts)
}

/// True if two names differ only in case and underscores.
fn is_same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        let bytes = name.bytes().filter(|byte| *byte != b'_');
        bytes.map(|byte| byte.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

#[cfg(test)]
mod tests {
    use super::{Config, LayeredConfig, SettingOrigin};
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_os::env::Env;
    use serde_json::{Value, json};
    use std::path::Path;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("c.json"), text).unwrap()
    }

    #[test]
    fn variables_name_keys_in_any_spelling() {
        let config = config(
            r#"{"agents": {"defaults": {"model": "file", "maxTokens": 5}},
                "tools": {"mcpServers": {"My_Server": {"command": "x"}}}}"#,
        );
        let check = |variables: &[(&str, &str)], path: &str, expect: Value| {
            let env: Env = variables.iter().copied().collect();
            let layers = LayeredConfig::new(&config, &env);
            let path: Vec<&str> = path.split('.').collect();
            let value = layers.read(&path).unwrap().unwrap_or(Value::Null);
            assert_eq!(value, expect, "{variables:?}");
        };
        let model = "agents.defaults.model";
        check(&[], model, json!("file"));
        check(&[("NANOBOT_AGENTS__DEFAULTS__MODEL", "v")], model, json!("v"));
        check(&[("nanobot_agents__defaults__model", "v")], model, json!("v"));
        check(&[("NANOBOT_AGENTS__DEFAULTS__MODEL", "")], model, json!("file"));
        check(&[("NANOBOT_AGENTS__DEFAULTS__MODEL", "5")], model, json!("5"));
        let tokens = "agents.defaults.maxTokens";
        check(&[("NANOBOT_AGENTS__DEFAULTS__MAX_TOKENS", "7")], tokens, json!(7));
        check(&[("NANOBOT_AGENTS__DEFAULTS__maxTokens", "7")], tokens, json!(7));
        let whole = ("NANOBOT_AGENTS", r#"{"defaults": {"max_tokens": 7}}"#);
        check(&[whole], tokens, json!(7));
        check(&[whole], model, json!("file"));
        check(&[whole, ("NANOBOT_AGENTS__DEFAULTS__MAX_TOKENS", "8")], tokens, json!(8));
        check(&[("NANOBOT_AGENTS", "plain")], tokens, json!(5));
        check(
            &[("NANOBOT_AGENTS__DEFAULTS__MAX_ITERATIONS", "3")],
            "agents.defaults.maxToolIterations",
            json!(3),
        );
        check(
            &[("NANOBOT_PROVIDERS__OPENAI_CODEX__API_KEY", "k")],
            "providers.openaiCodex.apiKey",
            json!("k"),
        );
        check(
            &[("NANOBOT_PROVIDERS__OPENAI__EXTRA_HEADERS__X-Team", "{}")],
            "providers.openai.extraHeaders.X-Team",
            json!("{}"),
        );
        check(
            &[("NANOBOT_MODEL_PRESETS__fast", r#"{"model": "m"}"#)],
            "modelPresets.fast",
            json!({"model": "m"}),
        );
        check(
            &[("NANOBOT_TOOLS__MCP_SERVERS__MY_SERVER__ARGS", r#"["a"]"#)],
            "tools.mcpServers.My_Server.args",
            json!(["a"]),
        );
        check(
            &[("NANOBOT_TOOLS__MCP_SERVERS__Other__COMMAND", "y")],
            "tools.mcpServers.Other.command",
            json!("y"),
        );
    }

    #[test]
    fn errors_name_position_key_and_expected_type() {
        let config = config(
            "{\"agents\": {\"defaults\": {\n  \"maxTokens\": \"many\", \"model\": \"${NO_SUCH}\"}},\n \"tools\": 5}",
        );
        let env: Env = [("NANOBOT_AGENTS__DEFAULTS__TEMPERATURE", "hot")].into_iter().collect();
        let layers = LayeredConfig::new(&config, &env);
        let check = |path: &str, expect: &str| {
            let path: Vec<&str> = path.split('.').collect();
            let error = layers.read(&path).unwrap_err();
            assert_eq!(error.to_string(), expect);
            assert_eq!(exit_for(&error), Exit::Config);
        };
        check(
            "agents.defaults.maxTokens",
            "c.json:2:16: `agents.defaults.maxTokens` is a string, expected an integer from 1 to 10000000",
        );
        check(
            "agents.defaults.model",
            "c.json:2:33: `agents.defaults.model` refers to `NO_SUCH`, which is not set",
        );
        check(
            "agents.defaults.temperature",
            "NANOBOT_AGENTS__DEFAULTS__TEMPERATURE: `agents.defaults.temperature` is a string, expected a number from 0 to 2",
        );
        check("tools.exec.timeout", "c.json:3:11: `tools` is a number, expected an object");
    }

    #[test]
    fn the_origin_is_reported() {
        let config =
            config("{\n\"agents\": {\"defaults\": {\"model\": \"m\", \"provider\": null}}}");
        let env: Env = [("NANOBOT_AGENTS__DEFAULTS__TEMPERATURE", "1")].into_iter().collect();
        let layers = LayeredConfig::new(&config, &env);
        let check = |name: &str, expect: SettingOrigin| {
            let path = ["agents", "defaults", name].map(str::to_owned);
            assert_eq!(layers.origin(&path), expect);
        };
        check("model", SettingOrigin::File("c.json:2:34".into()));
        check("provider", SettingOrigin::Default);
        check("maxTokens", SettingOrigin::Default);
        check(
            "temperature",
            SettingOrigin::Variable("NANOBOT_AGENTS__DEFAULTS__TEMPERATURE".into()),
        );
    }

    #[test]
    fn misspelled_variables_are_reported() {
        let check = |variable: &str, expect: Option<Option<&str>>| {
            let env: Env = [(variable, "x")].into_iter().collect();
            let empty = Config::missing(Path::new("c.json"));
            let layers = LayeredConfig::new(&empty, &env);
            let actual =
                layers.unknown_variables().first().map(|variable| variable.nearest.as_deref());
            assert_eq!(actual, expect, "{variable}");
        };
        check("NANOBOT_HOME", None);
        check("NANOBOT_LLM_TIMEOUT_S", None);
        check("NANOBOT_AGENTS__DEFAULTS__MODLE", Some(Some("agents.defaults.model")));
        check("NANOBOT_QQQ__X", Some(None));
        check("NANOBOT_", None);
        check("NANO", None);
    }
}
