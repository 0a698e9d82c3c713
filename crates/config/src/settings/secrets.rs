//! Determines which parts of a config are secret: hidden by `config get` and masked in tool results.

use super::config::Config;
use super::expand::{expand, expand_all, has_reference};
use super::key_node::KeyNode;
use super::key_type::KeyType;
use super::secret_form;
use nanobot_os::env::{CREDENTIALS_DIRECTORY, Env};
use nanobot_os::paths::Paths;
use nanobot_os::secret::{self, Secret};
use serde_json::Value;
use std::path::Path;

/// Words that mark the name of a secret.
const SECRET_WORDS: [&str; 18] = [
    "apikeys",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "cred",
    "credential",
    "credentials",
    "creds",
    "key",
    "keys",
    "pass",
    "passphrase",
    "passwords",
    "passwd",
    "pat",
    "secrets",
];

/// Variables of paths that have names of secrets. Messages name the file, also if there is none.
const PATH_VARIABLES: [&str; 2] = ["AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS"];

/// Ends of words that mark the name of a secret, as in `PGPASSWORD`.
const SECRET_ENDS: [&str; 7] =
    ["accesskey", "apikey", "password", "privatekey", "secret", "secretkey", "token"];

/// True if `name`, of a variable, a header, a flag or a key of the config, is the name of a secret: one of its whole words says so.
/// `GIT_AUTHOR_NAME` and `PROJECT_PATH` have no such word.
pub(crate) fn names_secret(name: &str) -> bool {
    split_name(name).iter().any(|word| {
        SECRET_WORDS.contains(&word.as_str()) || SECRET_ENDS.iter().any(|end| word.ends_with(end))
    })
}

/// The words of a name in any spelling, in lower case: `api`, `key` of `API_KEY`, `api-key`, `apiKey` and `APIKey`.
fn split_name(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut parts = Vec::new();
    let mut word = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let previous = index.checked_sub(1).map(|previous| letters[previous]);
        let next = letters.get(index + 1);
        let follows_lower =
            previous.is_some_and(|previous| previous.is_lowercase() || previous.is_ascii_digit());
        // The last letter of `API` in `APIKey` is not the first of a word, and `K` is.
        let ends_capitals = previous.is_some_and(char::is_uppercase)
            && next.is_some_and(|next| next.is_lowercase());
        let begins_word = letter.is_uppercase() && (follows_lower || ends_capitals);
        if begins_word || !letter.is_alphanumeric() {
            parts.push(std::mem::take(&mut word));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
    }
    parts.push(word);
    parts.retain(|word| !word.is_empty());
    parts
}

/// True if `text` is the path of an existing file. It is not a secret itself, and is in every message about the file.
fn is_existing_path(text: &str) -> bool {
    text.starts_with('/') && Path::new(text).symlink_metadata().is_ok()
}

/// True if text at `path` is a secret. Free-form values have no type in the table, so the key's name decides.
pub fn is_secret(path: &[impl AsRef<str>]) -> bool {
    match KeyNode::kind_at(path) {
        Some(KeyType::Any | KeyType::Verbatim) | None => {
            path.last().is_some_and(|name| names_secret(name.as_ref()))
        }
        Some(kind) => kind.is_secret(),
    }
}

/// Registers every secret that the config contains or refers to, the files of keys that are read only when a request is
/// searched for them, and every environment variable that looks like a secret.
pub(crate) fn register_secrets(config: &Config, env: &Env, paths: &Paths) {
    collect_secrets(config, env).iter().for_each(secret::register);
    for file in config.all_files() {
        register_files(file.value(), &mut Vec::new(), env, paths);
    }
    for (_, provider) in config.value()["providers"].as_object().into_iter().flatten() {
        let path = provider.get("apiKeyFile").or_else(|| provider.get("api_key_file"));
        if let Some(path) = path.and_then(Value::as_str)
            && let Ok(path) = expand(path, env)
        {
            secret::register_file(&paths.expand(&path));
        }
    }
    if let Some(directory) = env.get(CREDENTIALS_DIRECTORY) {
        secret::register_files_of(Path::new(directory));
    }
}

/// Returns every secret that the config contains or refers to, and every environment variable that looks like one.
fn collect_secrets(config: &Config, env: &Env) -> Vec<Secret> {
    let mut secrets = Vec::new();
    // An overridden secret is one too.
    for file in config.all_files() {
        collect_into(file.value(), &mut Vec::new(), env, &mut secrets);
    }
    let is_path = |name: &str, value: &str| {
        is_existing_path(value) || (PATH_VARIABLES.contains(&name) && value.starts_with(['/', '~']))
    };
    let variables = env.iter().filter(|(name, value)| names_secret(name) && !is_path(name, value));
    secrets.extend(variables.map(|(_, value)| Secret::new(value)));
    secrets
}

/// Registers the files that secrets of the config name.
fn register_files<'v>(value: &'v Value, path: &mut Vec<&'v str>, env: &Env, paths: &Paths) {
    let Value::Object(members) = value else {
        return;
    };
    if KeyNode::kind_at(path) == Some(KeyType::Secret) {
        // A reference to an unset variable names no file.
        if let Ok(value) = expand_all(value, env)
            && let Some(path) = secret_form::file_of(&value, env, paths)
        {
            secret::register_file(&path);
        }
        return;
    }
    for (name, member) in members {
        path.push(name);
        register_files(member, path, env, paths);
        path.pop();
    }
}

/// True if `text` at `path` is a variable or header of an MCP server that does not look like a secret. Masking such a
/// value would remove ordinary text, such as a time zone, from everything that is read.
fn is_plain_server_value(path: &[&str], text: &str) -> bool {
    matches!(path, ["tools", "mcpServers", _, "env" | "headers", _])
        && !has_reference(text)
        && path.last().is_some_and(|name| !looks_secret(name, text))
}

/// True if `text` at `path` is the URL of a proxy without a user and a password. Messages name such a proxy.
fn is_plain_proxy(path: &[&str], text: &str) -> bool {
    path.last() == Some(&"proxy") && !text.contains('@') && !has_reference(text)
}

/// True if `name` or `text` looks like the name or the text of a key.
pub fn looks_secret(name: &str, text: &str) -> bool {
    (names_secret(name) && !is_existing_path(text)) || secret::redact_all(text) != text
}

fn collect_into<'v>(
    value: &'v Value,
    path: &mut Vec<&'v str>,
    env: &Env,
    secrets: &mut Vec<Secret>,
) {
    match value {
        Value::String(text)
            if !text.is_empty()
                && is_secret(path)
                && !is_plain_server_value(path, text)
                && !is_plain_proxy(path, text) =>
        {
            // A secret that refers to an unset variable cannot be used, so it needs no masking.
            if let Ok(Value::String(text)) = expand_all(value, env) {
                secrets.extend(url_password(&text).map(Secret::new));
                secrets.extend(url_tokens(&text).map(Secret::new));
                secrets.push(Secret::new(text));
            }
        }
        // This says where a secret is stored, and is not one itself.
        Value::Object(_) if KeyNode::kind_at(path) == Some(KeyType::Secret) => {}
        Value::Object(members) => {
            for (name, member) in members {
                path.push(name);
                collect_into(member, path, env, secrets);
                path.pop();
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| collect_into(item, path, env, secrets));
            secrets.extend(secret_arguments(items).map(|(_, secret)| Secret::new(secret)));
        }
        _ => {}
    }
}

/// The secrets among `items`, the arguments of a program, each with its index: the value of a flag whose name is that of a
/// secret, as in `--api-key KEY` and `--api-key=KEY`. References to variables are not secrets themselves.
pub fn secret_arguments(items: &[Value]) -> impl Iterator<Item = (usize, &str)> {
    let is_secret_flag = |flag: &str| flag.starts_with('-') && names_secret(flag);
    items.iter().enumerate().filter_map(move |(index, item)| {
        let text = item.as_str()?;
        let previous = index.checked_sub(1).and_then(|previous| items[previous].as_str());
        let secret = match text.split_once('=') {
            Some((name, value)) if is_secret_flag(name) => value,
            _ if previous.is_some_and(|flag| is_secret_flag(flag) && !flag.contains('='))
                && !text.starts_with('-') =>
            {
                text
            }
            _ => return None,
        };
        let is_plain = secret.is_empty() || has_reference(secret) || is_existing_path(secret);
        (!is_plain).then_some((index, secret))
    })
}

/// The minimum length of a part of an address that is a secret of its own.
const MIN_URL_TOKEN_BYTES: usize = 16;

/// The long parts of the path and the query of an address: the address of a webhook has its key there.
fn url_tokens(address: &str) -> impl Iterator<Item = &str> {
    let path = address.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    let parts = path.map_or("", |(_, path)| path).split(['/', '?', '&', '=', '#']);
    parts.filter(|part| part.len() >= MIN_URL_TOKEN_BYTES)
}

/// Returns the password in an address, such as a proxy's.
fn url_password(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let (user, _) = rest.split_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use super::{collect_secrets, looks_secret, names_secret, secret_arguments};
    use crate::settings::Config;
    use nanobot_os::env::Env;
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn whole_words_tell_of_a_secret() {
        for name in [
            "API_KEY",
            "api-key",
            "apiKey",
            "APIKey",
            "APIKEY",
            "X-Api-Key",
            "GITHUB_PAT",
            "githubPat",
            "SMTP_PASS",
            "PGPASSWORD",
            "DB_PASSWD",
            "accessToken",
            "GH_TOKEN",
            "AUTHTOKEN",
            "clientSecret",
            "Authorization",
            "COOKIE",
            "AUTH",
            "basicAuth",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "AWS_SECRET_ACCESS_KEY",
            "--token",
            "my_password",
            "KEY",
            "S3Key",
        ] {
            assert!(names_secret(name), "{name}");
        }
        for name in [
            "PROJECT_PATH",
            "MEMORY_FILE_PATH",
            "GIT_AUTHOR_NAME",
            "AUTHORITY",
            "PATH",
            "PATTERN",
            "COMPASS",
            "PASSENGERS",
            "KEYBOARD",
            "MONKEY_ISLAND",
            "maxTokens",
            "TOKENIZER",
            "SECRETARY",
            "COMPATIBLE",
            "UPDATE",
            "",
            "_",
            "HOME",
        ] {
            assert!(!names_secret(name), "{name}");
        }
    }

    #[test]
    fn paths_that_exist_are_no_secrets() {
        assert!(!looks_secret("SSL_KEY", "/etc/passwd"));
        assert!(looks_secret("SSL_KEY", "/etc/passwd-that-does-not-exist"));
        assert!(looks_secret("PLAIN", "sk-0123456789abcdefghijkl"));
        let items =
            ["--key", "/etc/passwd", "--key=/etc/passwd", "--api-key", "abc", "--author", "me"];
        let items = items.map(|item| json!(item));
        assert_eq!(secret_arguments(&items).collect::<Vec<_>>(), [(4, "abc")]);
    }

    #[test]
    fn secrets_are_found_anywhere() {
        let text = r#"{"providers": {"a": {"apiKey": "one", "extraHeaders": {"X": "two"}, "apiBase": "no",
            "proxy": "http://u:six@h:1"}, "b": {"proxy": "http://h:1"}},
            "channels": {"telegram": {"token": "${T}"}}, "own": {"my_password": "four", "name": "no"},
            "modelPresets": {"x": {"model": "no"}}}"#;
        let config = Config::parse(Path::new("c.json"), text).unwrap();
        let env: Env = [("T", "three"), ("GH_TOKEN", "five"), ("HOME", "no")].into_iter().collect();
        let mut actual: Vec<String> = collect_secrets(&config, &env)
            .iter()
            .map(|secret| secret.expose().to_owned())
            .collect();
        actual.sort();
        assert_eq!(actual, ["five", "four", "http://u:six@h:1", "one", "six", "three", "two"]);
    }
}
