//! `nanobot config`: where it is, what is in force, changing it, what is odd about it.

use crate::World;
use crate::cli::Config as Arguments;
use crate::error::{Exit, fail, fail_hint};
use crate::settings::check::{Weight, findings};
use crate::settings::keys::{Branch, KEYS, Stage, nearest};
use crate::settings::{Config, Layers, file, schema};
use anyhow::Result;
use serde_json::Value;

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    let path = &world.paths.config;
    match arguments {
        Arguments::Path => world.terminal.print(&format!("{}\n", path.display()))?,
        Arguments::Get {
            key: Some(key),
            origin,
        } => get(world, key, *origin)?,
        Arguments::Get { key: None, origin } => get_all(world, *origin)?,
        Arguments::Set {
            key,
            value,
            unset: _,
        } => set(world, key, value.as_deref())?,
        Arguments::Check => return check(world),
        Arguments::Schema => world.terminal.print(&format!("{:#}\n", schema::schema()))?,
    }
    Ok(Exit::Answered)
}

/// A key as typed, in the spelling of the table.
fn canonical(key: &str) -> Result<Vec<String>> {
    let mut here = Some(Branch::root());
    let mut path = Vec::new();
    for written in key.split('.') {
        let name = here.map_or_else(|| written.to_owned(), |branch| branch.canonical(written));
        let in_map = here.is_some_and(|branch| branch.key().is_some());
        here = if in_map {
            here
        } else {
            here.and_then(|branch| branch.child(&name))
        };
        path.push(name);
        if here.is_none() {
            return Err(unknown(key));
        }
    }
    Ok(path)
}

fn unknown(key: &str) -> anyhow::Error {
    let cause = format!("there is no key `{key}`");
    match nearest(key, KEYS.iter().map(|known| known.path)) {
        Some(meant) => fail_hint(Exit::Config, cause, format!("`{meant}`")),
        None => fail_hint(Exit::Config, cause, "nanobot config schema"),
    }
}

fn get(world: &World, key: &str, origin: bool) -> Result<()> {
    let config = Config::load(&world.paths.config)?;
    let layers = Layers::new(&config, &world.env);
    let path = canonical(key)?;
    let branch = Branch::at(&path);
    let known = branch.and_then(Branch::key);
    let value = match (layers.read(&path)?, known) {
        (Some(value), _) => value,
        (None, Some(known)) if known.path.split('.').count() == path.len() => known.default_value(),
        (None, _) => Value::Null,
    };
    let text = match masked(&value, &mut path.clone()) {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let from = if origin {
        format!("\t{}", layers.origin(&path))
    } else {
        String::new()
    };
    world.terminal.print(&format!("{text}{from}\n"))
}

/// Every key that is used, and what it is set to.
fn get_all(world: &World, origin: bool) -> Result<()> {
    let config = Config::load(&world.paths.config)?;
    let layers = Layers::new(&config, &world.env);
    let mut text = String::new();
    for key in KEYS
        .iter()
        .filter(|key| matches!(key.stage, Stage::Used | Stage::Written))
    {
        for path in spelled(&layers, key.path) {
            let value = layers.read(&path)?.unwrap_or_else(|| key.default_value());
            let shown = masked(&value, &mut path.clone());
            let from = if origin {
                format!("\t{}", layers.origin(&path))
            } else {
                String::new()
            };
            text.push_str(&format!("{} = {shown}{from}\n", path.join(".")));
        }
    }
    world.terminal.print(&text)
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

/// `value` at `path` with what is secret about it as `***`.
fn masked(value: &Value, path: &mut Vec<String>) -> Value {
    let secret = Branch::at(path)
        .and_then(Branch::key)
        .is_some_and(|key| key.kind.is_secret());
    match value {
        Value::String(text) if secret && !text.is_empty() => "***".into(),
        Value::Object(members) => {
            let mut shown = serde_json::Map::new();
            for (name, member) in members {
                path.push(name.clone());
                shown.insert(name.clone(), masked(member, path));
                path.pop();
            }
            Value::Object(shown)
        }
        other => other.clone(),
    }
}

fn set(world: &World, key: &str, value: Option<&str>) -> Result<()> {
    let mut config = Config::load(&world.paths.config)?;
    let path = canonical(key)?;
    match value {
        None => {
            if !config.unset(&path)? {
                return Err(fail(
                    Exit::Config,
                    format!("`{key}` is not set in {}", config.path().display()),
                ));
            }
        }
        Some(text) => {
            let known = Branch::at(&path)
                .and_then(Branch::key)
                .ok_or_else(|| unknown(key))?;
            let whole = known.path.split('.').count() == path.len();
            let kind = known.kind;
            let read = if whole {
                kind.read(text)
            } else {
                Value::String(text.to_owned())
            };
            let refers = crate::settings::expand::refers(text);
            let value = if !whole || refers {
                Some(read)
            } else {
                kind.accept(&read)
            };
            let value = value.ok_or_else(|| {
                let cause = format!(
                    "`{key}` is {}, expected {}",
                    kind.found(&kind.read(text)),
                    kind.expected()
                );
                fail(Exit::Config, cause)
            })?;
            config.set(&path, &value)?;
        }
    }
    config.save()
}

fn check(world: &World) -> Result<Exit> {
    let config = Config::load(&world.paths.config)?;
    let found = findings(&config, &world.env, &world.paths);
    let mut text = String::new();
    for finding in &found {
        text.push_str(&format!("{finding}\n"));
    }
    if !config.exists() {
        text.push_str(&format!(
            "{}: there is none; the defaults are in force\n",
            config.path().display()
        ));
    } else if found.is_empty() {
        text.push_str(&format!(
            "{}: nothing is odd about it\n",
            config.path().display()
        ));
    }
    world.terminal.print(&text)?;
    let wrong = found.iter().any(|finding| finding.weight == Weight::Error);
    Ok(if wrong { Exit::Config } else { Exit::Answered })
}

/// The value in the text of `config` itself, at a path of the table.
pub(super) fn written<'a>(config: &'a Config, path: &str) -> Option<&'a Value> {
    let path: Vec<&str> = path.split('.').collect();
    file::find(config.value(), &path).filter(|value| !value.is_null())
}
