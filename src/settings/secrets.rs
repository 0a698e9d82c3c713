//! What of a config is secret: not shown by `config get`, and not by any tool's result.

use super::expand::{expand_all, refers};
use super::file::Config;
use super::keys::Branch;
use super::kind::Kind;
use crate::sys::env::Env;
use crate::sys::secret::{self, Secret};
use serde_json::Value;

/// Words in the names of keys.
const TELLING: [&str; 6] = ["key", "token", "secret", "password", "auth", "cookie"];

/// Whether text at `path` is a secret. In free-form values, whose keys no table knows, its name has to tell.
pub fn is_secret(path: &[String]) -> bool {
    match Branch::kind_at(path) {
        Some(Kind::Any) | None => path.last().is_some_and(|name| {
            let name = name.to_lowercase();
            TELLING.iter().any(|word| name.contains(word))
        }),
        Some(kind) => kind.is_secret(),
    }
}

/// Every secret that the config holds or refers to, and every variable that looks like one.
pub fn all(config: &Config, env: &Env) -> Vec<Secret> {
    let mut found = Vec::new();
    collect(config.value(), &mut Vec::new(), env, &mut found);
    let tells = |name: &str| {
        ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let variables = env.iter().filter(|(name, _)| tells(name));
    found.extend(variables.map(|(_, value)| Secret::new(value)));
    found
}

/// Whether `text` at `path` is a variable or a header of an MCP server that is no secret as far as anybody can tell: a time
/// zone that counted as a key would vanish from all that is read.
fn is_plain(path: &[String], text: &str) -> bool {
    let is_of_server = |path: &[String]| {
        matches!(path, [tools, servers, _, list, _]
            if tools == "tools" && servers == "mcpServers" && ["env", "headers"].contains(&list.as_str()))
    };
    is_of_server(path) && !refers(text) && path.last().is_some_and(|name| !tells(name, text))
}

/// Whether what is called `name`, or looks like `text`, is a key.
pub fn tells(name: &str, text: &str) -> bool {
    let name = name.to_lowercase();
    let telling = TELLING.iter().chain(&["pass", "credential", "pat"]);
    telling.into_iter().any(|word| name.contains(word)) || secret::hide(text) != text
}

fn collect(value: &Value, path: &mut Vec<String>, env: &Env, found: &mut Vec<Secret>) {
    match value {
        Value::String(text) if !text.is_empty() && is_secret(path) && !is_plain(path, text) => {
            // One that refers to a variable that is not set is of no use to anybody.
            if let Ok(Value::String(text)) = expand_all(value, env) {
                found.extend(password(&text).map(Secret::new));
                found.push(Secret::new(text));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                path.push(name.clone());
                collect(member, path, env, found);
                path.pop();
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect(item, path, env, found)),
        _ => {}
    }
}

/// The password within an address, such as a proxy's.
fn password(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let (user, _) = rest.split_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::settings::Config;
    use crate::sys::env::Env;
    use std::path::Path;

    #[test]
    fn secrets_are_found_wherever_they_stand() {
        let text = r#"{"providers": {"a": {"apiKey": "one", "extraHeaders": {"X": "two"}, "apiBase": "no",
            "proxy": "http://u:six@h:1"}},
            "channels": {"telegram": {"token": "${T}"}}, "own": {"my_password": "four", "name": "no"},
            "modelPresets": {"x": {"model": "no"}}}"#;
        let config = Config::parse(Path::new("c.json"), text).unwrap();
        let env: Env = [("T", "three"), ("GH_TOKEN", "five"), ("HOME", "no")]
            .into_iter()
            .collect();
        let mut found: Vec<String> = all(&config, &env)
            .iter()
            .map(|secret| secret.expose().to_owned())
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                "five",
                "four",
                "http://u:six@h:1",
                "one",
                "six",
                "three",
                "two"
            ]
        );
    }
}
