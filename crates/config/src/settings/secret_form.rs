//! The forms in which the config gives a secret: a text, which may refer to variables, or an object with one of `file`,
//! `command` and `credential`.

use anyhow::Context;
use nanobot_base::error::{Exit, fail};
use nanobot_os::env::{CREDENTIALS_DIRECTORY, Env};
use nanobot_os::paths::Paths;
use nanobot_os::secret::LazySecret;
use nanobot_sandbox::stored_secret::{self, SecretSource};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The names of the places of a secret outside of the config.
pub(super) const PLACE_NAMES: [&str; 3] = ["file", "command", "credential"];

/// True if `value` names a place of a secret: an object with one member, of these names, whose value is not blank.
pub(super) fn is_place(value: &Value) -> bool {
    place_of(value).is_some()
}

fn place_of(value: &Value) -> Option<(&str, &str)> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let (name, text) = members.iter().next()?;
    let text = text.as_str().filter(|text| !text.trim().is_empty())?;
    PLACE_NAMES.contains(&name.as_str()).then_some((name, text))
}

/// The file that `value` names, if it names one.
pub(super) fn file_of(value: &Value, env: &Env, paths: &Paths) -> Option<PathBuf> {
    match place_of(value)? {
        ("file", path) => Some(paths.expand(path)),
        ("credential", name) => credential_path(name, env),
        _ => None,
    }
}

fn credential_path(name: &str, env: &Env) -> Option<PathBuf> {
    env.get(CREDENTIALS_DIRECTORY).map(|folder| Path::new(folder).join(name))
}

/// The secret that `value` gives for the key `key`; `None` if it is blank. It is read when it is first needed.
pub(super) fn secret_from(env: &Env, key: &str, value: &Value) -> Option<LazySecret> {
    if let Value::String(text) = value {
        let text = text.trim();
        return (!text.is_empty()).then(|| LazySecret::new(text));
    }
    let (name, text) = place_of(value)?;
    let identity = format!("{name}:{text}");
    let (name, text, label) = (name.to_owned(), text.to_owned(), format!("`{key}`"));
    // The environment is copied only here, since few configs have such a secret.
    let env = env.clone();
    Some(LazySecret::stored(identity, move || {
        let place = match name.as_str() {
            "command" => SecretSource::Command(text.clone()),
            "file" => SecretSource::File(Paths::resolve(&env, None)?.expand(&text)),
            _ => SecretSource::File(credential_path(&text, &env).ok_or_else(|| {
                let cause = format!(
                    "there is no credential `{text}`: `{CREDENTIALS_DIRECTORY}` is not set"
                );
                fail(Exit::Config, cause).context(format!("read {label}"))
            })?),
        };
        let variables = env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = match place {
            SecretSource::Command(_) => variables.collect(),
            SecretSource::File(_) => Vec::new(),
        };
        stored_secret::read(&place, &variables, &label).with_context(|| format!("read {label}"))
    }))
}
