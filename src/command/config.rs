//! `nanobot config`: prints the location and the effective values, changes them, and reports problems.

use crate::cli::config::Config as Arguments;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::report::json;
use crate::settings::check::{Weight, findings};
use crate::settings::expand::refers;
use crate::settings::keys::{Branch, KEYS, Key, Stage, nearest};
use crate::settings::kind::Kind;
use crate::settings::secrets::is_secret;
use crate::settings::{Config, Layers, file, rules, schema};
use crate::sys::input::{self, Reading};
use anyhow::Result;
use serde_json::Value;

/// Runs `nanobot config`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let path = &ctx.paths.config;
    match arguments {
        Arguments::Path => ctx.terminal.print(&format!("{}\n", path.display()))?,
        Arguments::Get {
            key: Some(key),
            origin,
        } => get(ctx, key, *origin)?,
        Arguments::Get { key: None, origin } => get_all(ctx, *origin)?,
        Arguments::Set {
            key,
            value,
            unset: _,
        } => set(ctx, key, value.as_deref())?,
        Arguments::Check => return check(ctx),
        Arguments::Schema { events: true } => ctx.terminal.print(json::SCHEMA)?,
        Arguments::Schema { events: false } => {
            ctx.terminal.print(&format!("{:#}\n", schema::schema()))?;
        }
    }
    Ok(Exit::Answered)
}

/// Converts a key, as typed, to the spelling in the table of keys.
fn canonical(key: &str) -> Result<Vec<String>> {
    Branch::path_of(key).ok_or_else(|| {
        let cause = format!("there is no key `{key}`");
        match nearest(key, KEYS.iter().map(|known| known.path)) {
            Some(meant) => fail_hint(Exit::Config, cause, format!("`{meant}`")),
            None => fail_hint(Exit::Config, cause, "nanobot config schema"),
        }
    })
}

fn get(ctx: &Context, key: &str, origin: bool) -> Result<()> {
    let config = Config::load(&ctx.paths.config)?;
    let layers = Layers::new(&config, &ctx.env);
    let path = canonical(key)?;
    let value = match Branch::at(&path).and_then(Branch::key) {
        // A request for a single key reports its errors.
        Some(known) => match layers.read(&path)? {
            Some(value) => value,
            None if Branch::kind_at(&path) == Some(known.kind) => known.default_value(),
            None => Value::Null,
        },
        None => group(&layers, &path),
    };
    let text = match masked(&value, &mut path.clone()) {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let from = from(&layers, &path, origin);
    ctx.terminal.print(&format!("{text}{from}\n"))
}

/// Prints every key in use and its value.
fn get_all(ctx: &Context, origin: bool) -> Result<()> {
    let config = Config::load(&ctx.paths.config)?;
    let layers = Layers::new(&config, &ctx.env);
    let mut text = String::new();
    for (path, value) in in_force(&layers, KEYS) {
        let shown = masked(&value, &mut path.clone());
        let from = from(&layers, &path, origin);
        text.push_str(&format!("{} = {shown}{from}\n", path.join(".")));
    }
    ctx.terminal.print(&text)
}

/// Collects the values below `path` into one object.
fn group(layers: &Layers<'_>, path: &[String]) -> Value {
    let mut all = Value::Object(serde_json::Map::new());
    let rows = Branch::at(path).map(Branch::keys).unwrap_or_default();
    for (below, value) in in_force(layers, rows) {
        if let Some(rest) = below.strip_prefix(path) {
            file::place_in(&mut all, rest, value);
        }
    }
    all
}

/// The keys of `rows` that are set, or in use with a default. A value that cannot be parsed is returned as written, so
/// that an error in one key, or an unset variable, hides no other key; `config check` reports it.
fn in_force(layers: &Layers<'_>, rows: &'static [Key]) -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    for key in rows {
        for path in spelled(layers, key.path) {
            let written = file::find(layers.value(), &path).filter(|value| !value.is_null());
            let used = matches!(key.stage, Stage::Used | Stage::Written);
            let value = match written {
                Some(written) => layers
                    .typed(&path, written, key.kind)
                    .unwrap_or_else(|_| written.clone()),
                None if used => key.default_value(),
                None => continue,
            };
            found.push((path, value));
        }
    }
    found
}

fn from(layers: &Layers<'_>, path: &[String], origin: bool) -> String {
    match origin {
        true => format!("\t{}", layers.origin(path)),
        false => String::new(),
    }
}

/// The paths that a row of the table stands for: one, or one for each name that the user chose.
fn spelled(layers: &Layers<'_>, row: &str) -> Vec<Vec<String>> {
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    for part in row.split('.') {
        let mut next = Vec::new();
        for path in paths {
            let names = match part {
                "*" => layers.names(&path.iter().map(String::as_str).collect::<Vec<_>>()),
                name => vec![name.to_owned()],
            };
            next.extend(
                names
                    .into_iter()
                    .map(|name| path.iter().cloned().chain([name]).collect()),
            );
        }
        paths = next;
    }
    paths
}

/// The `value` at `path`, with secrets replaced by `***`.
fn masked(value: &Value, path: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) if !text.is_empty() && is_secret(path) => "***".into(),
        Value::Object(members) => {
            let mut shown = serde_json::Map::new();
            for (name, member) in members {
                path.push(name.clone());
                shown.insert(name.clone(), masked(member, path));
                path.pop();
            }
            Value::Object(shown)
        }
        Value::Array(items) => items.iter().map(|item| masked(item, path)).collect(),
        other => other.clone(),
    }
}

/// Sets the key; `null` or no value removes it.
fn set(ctx: &Context, key: &str, value: Option<&str>) -> Result<()> {
    let mut config = Config::load(&ctx.paths.config)?;
    let path = canonical(key)?;
    match value {
        None | Some("null") => {
            if !config.unset(&path)? {
                return Err(fail_hint(
                    Exit::Config,
                    format!("`{key}` is not set in {}", config.path().display()),
                    format!("nanobot config get {key} --origin"),
                ));
            }
        }
        Some(text) => {
            let kind = Branch::kind_at(&path).ok_or_else(|| {
                let cause = format!("`{key}` holds other keys");
                fail_hint(Exit::Config, cause, "set them one by one")
            })?;
            let from_input = match text {
                "-" => Some(piped()?),
                _ => None,
            };
            if from_input.is_none() && is_secret(&path) && !refers(text) {
                ctx.terminal.complain(&format!(
                    "nanobot: every process can see a key on the command line; `nanobot config set {key} -` reads it from standard input"
                ));
            }
            let text = from_input.as_deref().unwrap_or(text);
            let value = given(key, kind, text)?;
            if !refers(text)
                && let Some(words) = rules::objection(&path, &value)
            {
                return Err(fail(Exit::Config, words));
            }
            if let Some(words) = rules::doubt(&path.join("."), &value) {
                ctx.terminal.complain(&format!("nanobot: {words}"));
            }
            config.set(&path, &value)?;
        }
    }
    config.save()
}

/// Parses `text` as the value of a key of type `kind`. A reference to a variable is stored as it is, and checked when
/// it is used.
fn given(key: &str, kind: Kind, text: &str) -> Result<Value> {
    let read = kind.read(text);
    if refers(text) {
        return Ok(read);
    }
    kind.accept(&read).ok_or_else(|| {
        let cause = format!(
            "`{key}` is {}, expected {}",
            kind.found(&read),
            kind.expected()
        );
        fail(Exit::Config, cause)
    })
}

/// Reads a value from standard input, without the final newline.
pub(super) fn piped() -> Result<String> {
    let bytes =
        input::read(Reading::Always, input::GIVE_UP_AFTER, &mut |_| {})?.unwrap_or_default();
    let text = String::from_utf8(bytes)
        .map_err(|_| fail(Exit::BadInput, "standard input is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    match text.is_empty() {
        true => Err(fail(Exit::NoInput, "standard input is empty")),
        false => Ok(text.to_owned()),
    }
}

fn check(ctx: &Context) -> Result<Exit> {
    let config = Config::load(&ctx.paths.config)?;
    let found = findings(&config, &ctx.env, &ctx.paths);
    let mut text = String::new();
    for finding in &found {
        text.push_str(&format!("{finding}\n"));
    }
    if !config.exists() {
        text.push_str(&format!(
            "{}: no such file; the defaults apply\n",
            config.path().display()
        ));
    } else if found.is_empty() {
        text.push_str(&format!("{}: no problems found\n", config.path().display()));
    }
    ctx.terminal.print(&text)?;
    let wrong = found.iter().any(|finding| finding.weight == Weight::Error);
    Ok(if wrong { Exit::Config } else { Exit::Answered })
}
