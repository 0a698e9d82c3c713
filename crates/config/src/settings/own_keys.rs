//! The file that each key belongs to: `config.json`, which the Python program of the same name reads and writes too, or `nanobot.json`
//! beside it. The latter has the keys that the Python program would refuse or drop.

use super::config_file::KeyPath;
use super::key_node::KeyNode;
use super::key_spelling::{find_provider_name, format_path};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Keys, and objects of keys, that no release of the Python program knows. `*` is a name that the user chooses.
const OWN_KEYS: &[&str] = &[
    "agents.defaults.directory",
    "agents.defaults.profile",
    "agents.defaults.promptFiles",
    "agents.defaults.session",
    "agents.defaults.skillsBudgetTokens",
    "budget",
    "compaction",
    "cron",
    "hooks",
    "http",
    "locked",
    "log",
    "memory",
    "models",
    "notify",
    "providers.*.apiKeyCommand",
    "providers.*.apiKeyFile",
    "providers.*.maxConcurrent",
    "providers.*.requestsPerMinute",
    "providers.*.tokensPerMinute",
    "retention",
    "session",
    "skills",
    "speech",
    "telemetry",
    "terminal",
    "tools.allow",
    "tools.deny",
    "tools.exec.memory",
    "tools.imageGeneration.command",
    "tools.mcpBudgetTokens",
    "tools.web.fetch.reader",
    "tools.web.search.engineId",
    "tools.web.search.fallback",
    "tools.web.search.native",
    "tools.mcpServers.*.disabled",
    "tools.mcpServers.*.read",
    "tools.mcpServers.*.required",
    "tools.mcpServers.*.sampling",
    "tools.mcpServers.*.sandbox",
    "tools.mcpServers.*.startTimeout",
    "tools.mcpServers.*.trusted",
    "tools.mcpServers.*.write",
    "tools.net",
    "tools.permissions",
    "tools.programs",
    "tools.read",
    "tools.sandbox",
    "tools.write",
    "transcription.command",
];

/// Objects of keys that 0.1.4 refuses, and later releases know.
const LATER_SECTIONS: &[&str] = &["api", "modelPresets", "transcription"];

/// The file that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHome {
    /// `config.json`.
    Shared,
    /// `config.json` if it has the object of the key, and so belongs to a release that knows it, else `nanobot.json`.
    LaterRelease,
    /// `nanobot.json`.
    Own,
}

impl KeyHome {
    /// The file that the key at `path` belongs to.
    pub fn find(path: &[impl AsRef<str>]) -> Self {
        if is_within(path, OWN_KEYS) {
            return Self::Own;
        }
        if is_within(path, LATER_SECTIONS) { Self::LaterRelease } else { Self::Shared }
    }
}

/// True if `path` is that of a key or an object among `objects`, or of a key in one. `*` is any name.
fn is_within(path: &[impl AsRef<str>], objects: &[&str]) -> bool {
    objects.iter().any(|object| {
        let names: Vec<&str> = object.split('.').collect();
        let is_name = |(name, part): (&&str, &str)| *name == "*" || *name == part;
        names.len() <= path.len() && names.iter().zip(path.iter().map(AsRef::as_ref)).all(is_name)
    })
}

/// The path of the file with our own keys, beside the config file at `config`.
pub fn own_file_path(config: &Path) -> PathBuf {
    let name = config.file_name().unwrap_or_default().to_string_lossy();
    config.with_file_name(match name.strip_suffix(".json").unwrap_or(&name) {
        "config" => "nanobot.json".to_owned(),
        stem => format!("{stem}.nanobot.json"),
    })
}

/// Adds the paths of our own keys in `value`, the object at `path`, to `paths`.
pub(super) fn own_keys_in(value: &Value, path: &mut KeyPath, paths: &mut Vec<KeyPath>) {
    let is_own = KeyHome::find(path) == KeyHome::Own;
    let is_object_of_keys = KeyNode::at(path).is_some_and(|node| node.key().is_none());
    let members = value.as_object().filter(|members| is_object_of_keys && !members.is_empty());
    if is_own && members.is_none() {
        paths.push(path.clone());
        return;
    }
    for (name, member) in members.into_iter().flatten() {
        path.push(name.clone());
        own_keys_in(member, path, paths);
        path.pop();
    }
}

/// Takes our own keys out of `value`, which is to be written at `path`. Returns them in the same structure, if there are any.
pub(super) fn take_own_keys(value: &mut Value, path: &mut KeyPath) -> Option<Value> {
    if KeyHome::find(path) == KeyHome::Own {
        return Some(value.take());
    }
    let members = value.as_object_mut()?;
    let mut own = serde_json::Map::new();
    for (name, member) in members.iter_mut() {
        path.push(name.clone());
        own.extend(take_own_keys(member, path).map(|member| (name.clone(), member)));
        path.pop();
    }
    members.retain(|name, _| {
        path.push(name.clone());
        let is_own = KeyHome::find(path) == KeyHome::Own;
        path.pop();
        !is_own
    });
    (!own.is_empty()).then_some(Value::Object(own))
}

/// Budgets of which the smaller value applies, if several files set them. They are objects of numbers, or numbers.
pub(super) const SMALLER_APPLIES: &[&str] =
    &["budget", "channels.dailyBudget", "channels.senderDailyBudget"];

/// Reads the value of the limit at a path; `None` if it is no number.
pub(super) type LimitReader<'r> = &'r dyn Fn(&[String], &Value) -> Option<f64>;

/// The value of a limit that refers to no variable.
pub(super) fn plain_limit(path: &[String], value: &Value) -> Option<f64> {
    KeyNode::kind_at(path)?.accept(value)?.as_f64()
}

/// The values of `own`, layered over those of `shared`. Objects merge, and a provider is the same in every spelling. If both files set
/// another value, ours takes precedence, except that a denial in either file applies, and so does the smaller one of two budgets.
pub(super) fn layer(
    shared: &Value,
    own: &Value,
    path: &mut KeyPath,
    read_limit: LimitReader<'_>,
) -> Value {
    match (shared, own) {
        (shared, Value::Null) => shared.clone(),
        (Value::Object(_) | Value::Null, Value::Object(own)) => {
            let mut members = shared.as_object().cloned().unwrap_or_default();
            let holds_providers = matches!(&path[..], [section] if section == "providers");
            for (name, value) in own {
                let name = if holds_providers {
                    find_provider_name(members.keys(), name)
                } else {
                    name.clone()
                };
                path.push(name.clone());
                if shared[&name].is_null() && has_only_own_keys(value, path) {
                    path.pop();
                    continue;
                }
                let value = layer(&shared[&name], value, path, read_limit);
                path.pop();
                members.insert(name, value);
            }
            Value::Object(members)
        }
        (Value::Null, own) => own.clone(),
        (shared, own) => {
            let stricter = if is_within(path, SMALLER_APPLIES) {
                smaller(shared, own, &|value| read_limit(path, value))
            } else {
                stricter(shared, own, &format_path(path))
            };
            stricter.unwrap_or_else(|| own.clone())
        }
    }
}

/// True if `value` at `path` has only our own keys of an MCP server. If the config file has no such server, the other program has
/// removed it.
fn has_only_own_keys(value: &Value, path: &[String]) -> bool {
    let is_server =
        matches!(path, [tools, servers, _] if tools == "tools" && servers == "mcpServers");
    let mut names = value.as_object().into_iter().flatten().map(|(name, _)| name);
    is_server
        && names
            .all(|name| KeyHome::find(&[path, std::slice::from_ref(name)].concat()) == KeyHome::Own)
}

/// The stricter value of a key that limits a run and that both files set; `None` if the value of our file applies.
fn stricter(shared: &Value, own: &Value, key: &str) -> Option<Value> {
    match key {
        "tools.deny" | "tools.exec.denyPatterns" => {
            let own_items = items(own)?;
            let mut all = own_items.clone();
            all.extend(items(shared)?.into_iter().filter(|item| !own_items.contains(item)));
            Some(Value::Array(all))
        }
        key if key.starts_with("tools.permissions.") => {
            shared.as_str().is_some_and(|word| word == "never").then(|| shared.clone())
        }
        _ => None,
    }
}

/// The items of a list, which may be written as a text with commas.
pub(super) fn items(list: &Value) -> Option<Vec<Value>> {
    match list {
        Value::Array(items) => Some(items.clone()),
        Value::String(text) => Some(text.split(',').map(|item| item.trim().into()).collect()),
        _ => None,
    }
}

/// The smaller one of two limits, if it is that of `shared`. One that is no number applies, so that it is reported.
fn smaller(shared: &Value, own: &Value, read: &dyn Fn(&Value) -> Option<f64>) -> Option<Value> {
    let applies = match (read(shared), read(own)) {
        (Some(shared), Some(own)) => shared < own,
        (shared, _) => shared.is_none(),
    };
    applies.then(|| shared.clone())
}

#[cfg(test)]
mod tests {
    use super::{KeyHome, layer, own_file_path, plain_limit, take_own_keys};
    use crate::settings::keys::KEYS;
    use serde_json::{Value, json};
    use std::path::Path;

    #[test]
    fn each_key_has_a_file() {
        let check = |key: &str, expect: KeyHome| {
            let path: Vec<&str> = key.split('.').collect();
            assert_eq!(KeyHome::find(&path), expect, "{key}");
        };
        check("budget.daily", KeyHome::Own);
        check("budget", KeyHome::Own);
        check("models.gpt.price", KeyHome::Own);
        check("tools.permissions.exec", KeyHome::Own);
        check("tools.mcpServers.a.read", KeyHome::Own);
        check("tools.mcpServers.a", KeyHome::Shared);
        check("tools.mcpServers.read.url", KeyHome::Shared);
        check("tools", KeyHome::Shared);
        check("transcription.command", KeyHome::Own);
        check("transcription.model", KeyHome::LaterRelease);
        check("agents.defaults.model", KeyHome::Shared);
        check("channels.xmpp.command", KeyHome::Shared);
        for object in super::OWN_KEYS.iter().chain(super::LATER_SECTIONS) {
            let is_in_table = |key: &str| {
                key.strip_prefix(object)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            assert!(KEYS.iter().any(|key| is_in_table(key.path)), "{object}");
        }
    }

    #[test]
    fn our_file_is_beside_the_config() {
        let check = |config: &str, expect: &str| {
            assert_eq!(own_file_path(Path::new(config)), Path::new(expect));
        };
        check("/h/.nanobot/config.json", "/h/.nanobot/nanobot.json");
        check("x.json", "x.nanobot.json");
        check("/a/b/x", "/a/b/x.nanobot.json");
        check("a/x.jsonc", "a/x.jsonc.nanobot.json");
    }

    #[test]
    fn limits_of_both_files_hold() {
        let check = |shared: Value, own: Value, expect: Value| {
            let actual = layer(&shared, &own, &mut Vec::new(), &plain_limit);
            assert_eq!(actual, expect, "{shared} {own}");
        };
        check(
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"b": 3}}),
            json!({"a": {"b": 3, "c": 2}}),
        );
        check(json!({"a": [1]}), json!({"a": [2]}), json!({"a": [2]}));
        check(json!({"a": 1}), json!({"a": null}), json!({"a": 1}));
        check(json!({"a": 1}), json!({"a": {"b": 2}}), json!({"a": {"b": 2}}));
        check(
            json!({"tools": {"mcpServers": {"a": {"url": "u"}}}}),
            json!({"tools": {"mcpServers": {"a": {"read": ["r"]}, "b": {"read": ["r"]}, "c": {"url": "v"}}}}),
            json!({"tools": {"mcpServers": {"a": {"url": "u", "read": ["r"]}, "c": {"url": "v"}}}}),
        );
        check(
            json!({"budget": {"daily": 3, "monthly": "5"}}),
            json!({"budget": {"daily": 5, "monthly": 4}}),
            json!({"budget": {"daily": 3, "monthly": 4}}),
        );
        check(
            json!({"tools": {"deny": "exec, grep", "permissions": {"exec": "never", "grep": "ask"}}}),
            json!({"tools": {"deny": ["glob", "grep"], "permissions": {"exec": "always", "grep": "always"}}}),
            json!({"tools": {"deny": ["glob", "grep", "exec"], "permissions": {"exec": "never", "grep": "always"}}}),
        );
    }

    #[test]
    fn an_object_is_split_between_the_files() {
        let mut value = json!({"command": "c", "read": ["a"], "env": {"read": "b"}});
        let mut path = ["tools", "mcpServers", "s"].map(str::to_owned).to_vec();
        assert_eq!(take_own_keys(&mut value, &mut path), Some(json!({"read": ["a"]})));
        assert_eq!(value, json!({"command": "c", "env": {"read": "b"}}));
        let mut path = vec!["agents".to_owned()];
        assert_eq!(take_own_keys(&mut json!({"defaults": {"model": "m"}}), &mut path), None);
    }
}
