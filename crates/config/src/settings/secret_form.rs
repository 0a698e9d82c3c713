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

/// The kinds of secrets that are stored outside of the config.
pub(super) const STORED_SECRET_KINDS: [&str; 3] = ["file", "command", "credential"];

/// True if `value` says where a secret is stored: an object with one member, which has the name of a kind, and whose value is not
/// blank.
pub(super) fn is_stored_secret(value: &Value) -> bool {
    parse_stored_secret(value).is_some()
}

/// The kind of a stored secret, and its path, command or name.
fn parse_stored_secret(value: &Value) -> Option<(&str, &str)> {
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let (kind, text) = members.iter().next()?;
    let text = text.as_str().filter(|text| !text.trim().is_empty())?;
    STORED_SECRET_KINDS.contains(&kind.as_str()).then_some((kind, text))
}

/// The file that `value` names, if it names one.
pub(super) fn file_of(value: &Value, env: &Env, paths: &Paths) -> Option<PathBuf> {
    match parse_stored_secret(value)? {
        ("file", path) => Some(paths.expand(path)),
        ("credential", name) => credential_path(name, env),
        _ => None,
    }
}

fn credential_path(name: &str, env: &Env) -> Option<PathBuf> {
    env.get(CREDENTIALS_DIRECTORY).map(|directory| Path::new(directory).join(name))
}

/// The secret that `value` gives for the key `key`; `None` if it is blank. It is read when it is first needed.
pub(super) fn secret_from(env: &Env, key: &str, value: &Value) -> Option<LazySecret> {
    if let Value::String(text) = value {
        let text = text.trim();
        return (!text.is_empty()).then(|| LazySecret::new(text));
    }
    let (kind, text) = parse_stored_secret(value)?;
    let identity = format!("{kind}:{text}");
    let kind = kind.to_owned();
    let text = text.to_owned();
    let label = format!("`{key}`");
    // The environment is copied only here, since few configs have such a secret.
    let env = env.clone();
    Some(LazySecret::stored(identity, move || {
        let secret_source = match kind.as_str() {
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
        let variables = match secret_source {
            SecretSource::Command(_) => variables.collect(),
            SecretSource::File(_) => Vec::new(),
        };
        stored_secret::read(&secret_source, &variables, &label)
            .with_context(|| format!("read {label}"))
    }))
}
