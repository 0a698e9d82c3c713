//! The system-wide config file: defaults below the config of each user, and limits above it.
//!
//! Its denials and budgets apply whatever a user sets, and a key that its `locked` lists has the file's value, or else its
//! default. It grants nothing, so that no package that writes it can widen what runs may do.

use super::config_file::{ConfigFile, KeyPath, get_in, set_in};
use super::expand::has_reference;
use super::key_node::KeyNode;
use super::key_spelling::{format_path, is_same_provider, parse_path};
use super::key_type::KeyType;
use super::keys::{KEYS, nearest};
use super::own_keys::{LimitReader, items, layer};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The key with the list of locked keys.
const LOCKED: &str = "locked";

/// Keys by which a user names other models than `agents.defaults.model`. They are locked with it.
const MODEL_CHOICES: &[&str] = &[
    "agents.defaults.fallbackModels",
    "agents.defaults.modelPreset",
    "memory.embeddings.model",
    "memory.model",
    "session.titleModel",
];

/// Keys of what runs, servers and senders of messages may do without asking. `*` is any name.
const GRANTS: &[&str] = &[
    "agents.defaults.profile",
    "channels.*.allowFrom",
    "channels.*.approvers",
    "channels.*.chats",
    "channels.*.dm.allowFrom",
    "channels.*.recipients",
    "channels.*.senders",
    "skills.directories",
    "tools.allow",
    "tools.exec.allowedEnvKeys",
    "tools.exec.sandboxRoBinds",
    "tools.exec.sandboxRwBinds",
    "tools.mcpServers.*.read",
    "tools.mcpServers.*.sampling",
    "tools.mcpServers.*.sandbox",
    "tools.mcpServers.*.trusted",
    "tools.mcpServers.*.write",
    "tools.net",
    "tools.permissions.*",
    "tools.programs",
    "tools.read",
    "tools.ssrfWhitelist",
    "tools.write",
];

/// The system-wide config file, if there is one.
#[derive(Clone, Debug)]
pub(super) struct SystemFile {
    pub(super) file: ConfigFile,
    /// Keys, and objects of keys, that users cannot set.
    locked: Vec<KeyPath>,
}

impl SystemFile {
    /// Reads the file; `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of [`ConfigFile::load`]; status 78 if another user than root can change the file, if it grants something, or if it locks
    /// a key that does not exist.
    pub(super) fn load(path: &Path) -> Result<Option<Self>> {
        let file = ConfigFile::load(path)?;
        if !file.exists() {
            return Ok(None);
        }
        path.parent().into_iter().chain([path]).try_for_each(check_owner)?;
        Self::new(file).map(Some)
    }

    fn new(file: ConfigFile) -> Result<Self> {
        let fail_at = |path: &[String], cause: String| {
            let position = file.offset(path).map(|offset| file.position(offset));
            Err(fail(Exit::Config, format!("{}: {cause}", position.unwrap_or_default())))
        };
        if let Some(path) = granting_key(file.value()) {
            let key = format_path(&path);
            return fail_at(&path, format!("`{key}`: a system-wide config cannot grant anything"));
        }
        let list_path = [LOCKED.to_owned()];
        let list = &file.value()[LOCKED];
        let Some(list) = KeyType::TextList
            .accept(list)
            .or_else(|| list.is_null().then(|| Value::Array(Vec::new())))
        else {
            return fail_at(&list_path, format!("`{LOCKED}` is not a list of keys"));
        };
        let mut locked = Vec::new();
        for key in list.as_array().into_iter().flatten().filter_map(Value::as_str) {
            let Some(path) = KeyNode::canonical_path(key) else {
                let nearest = nearest(key, KEYS.iter().map(|key| key.path));
                let suggestion = nearest.map(|key| format!("; did you mean `{key}`?"));
                let suggestion = suggestion.unwrap_or_default();
                return fail_at(
                    &list_path,
                    format!("`{LOCKED}`: there is no key `{key}`{suggestion}"),
                );
            };
            locked.push(path);
        }
        let mut system_file = Self { file, locked };
        if system_file.is_locked(&["agents", "defaults", "model"]) {
            let choices = MODEL_CHOICES.iter().map(|key| to_path(key));
            let choices = choices.filter(|path| !system_file.is_locked(path)).collect::<Vec<_>>();
            system_file.locked.extend(choices);
        }
        Ok(system_file)
    }

    /// True if users cannot set the key at `path`.
    pub(super) fn is_locked(&self, path: &[impl AsRef<str>]) -> bool {
        self.locked.iter().any(|locked| locked.len() <= path.len() && is_along(locked, path))
    }

    /// True if users cannot set the object of keys at `path` as they like: it, or a key in it, is locked.
    pub(super) fn locks_within(&self, path: &[impl AsRef<str>]) -> bool {
        self.locked.iter().any(|locked| is_along(locked, path))
    }

    /// The keys and objects of keys that users cannot set.
    pub(super) fn locked(&self) -> &[KeyPath] {
        &self.locked
    }

    /// The position of the locked value at `path`, or of the list that locks it.
    pub(super) fn lock_position(&self, path: &[String]) -> String {
        let is_set = get_in(self.file.value(), path).is_some_and(|value| !value.is_null());
        let offset = if is_set { self.file.offset(path) } else { None };
        let offset = offset.or_else(|| self.file.offset(&[LOCKED.to_owned()]));
        self.file.position(offset.unwrap_or_default())
    }

    /// Applies the file to `value`, which the user set: its defaults below, its limits and locked keys above.
    pub(super) fn apply(&self, value: &Value, read_limit: LimitReader<'_>) -> Value {
        let mut applied = layer(self.file.value(), value, &mut KeyPath::new(), read_limit);
        for locked in &self.locked {
            for path in paths_along(&applied, locked) {
                match get_in(self.file.value(), &path) {
                    Some(value) => set_in(&mut applied, &path, value.clone()),
                    None => remove_in(&mut applied, &path),
                }
            }
            for path in paths_along(self.file.value(), locked) {
                let value = get_in(self.file.value(), &path).cloned().unwrap_or_default();
                set_in(&mut applied, &path, value);
            }
        }
        applied
    }
}

fn to_path(key: &str) -> KeyPath {
    key.split('.').map(str::to_owned).collect()
}

/// True if `locked`, in which `*` is any name, and `path` have the same names as far as both go.
fn is_along(locked: &[String], path: &[impl AsRef<str>]) -> bool {
    let is_provider = locked.first().is_some_and(|section| section == "providers");
    locked.iter().zip(path).enumerate().all(|(depth, (name, part))| {
        let part = part.as_ref();
        name == "*" || name == part || is_provider && depth == 1 && is_same_provider(name, part)
    })
}

/// The paths of `value` that `locked` names, as far as there are any.
pub(super) fn paths_along(value: &Value, locked: &[String]) -> Vec<KeyPath> {
    let mut paths = vec![KeyPath::new()];
    for depth in 1..=locked.len() {
        let mut longer = Vec::new();
        for path in &paths {
            let members = get_in(value, path).and_then(Value::as_object);
            for (name, _) in members.into_iter().flatten() {
                let path: KeyPath = path.iter().chain([name]).cloned().collect();
                if is_along(&locked[..depth], &path) {
                    longer.push(path);
                }
            }
        }
        paths = longer;
    }
    paths
}

/// The keys that users cannot set, for what sets them beside the config: flags, approvals and editors.
#[derive(Clone, Debug, Default)]
pub struct Locks(pub(super) Option<Arc<SystemFile>>);

impl Locks {
    /// Refuses to set `key`, or a key in it, by `flag`, if it is locked.
    ///
    /// # Errors
    /// Status 77 if it is.
    pub fn check_flag(&self, key: &str, flag: &str) -> Result<()> {
        let Some(position) = self.position(&parse_path(key).unwrap_or_default()) else {
            return Ok(());
        };
        let cause = format!("`{flag}`: `{key}` is locked by {position}");
        Err(fail(Exit::Refused, cause).with_hint(format!("no `{flag}`")))
    }

    /// The position in the system-wide file of what locks the key at `path`, or a key in it.
    pub fn position(&self, path: &[String]) -> Option<String> {
        let system_file = self.0.as_ref()?;
        system_file.locks_within(path).then(|| system_file.lock_position(path))
    }

    /// True if `key` is locked to `value`.
    pub fn locks_to(&self, key: &str, value: &str) -> bool {
        let path = to_path(key);
        self.0.as_ref().is_some_and(|system_file| {
            let locked = get_in(system_file.file.value(), &path).and_then(Value::as_str);
            system_file.is_locked(&path) && locked == Some(value)
        })
    }
}

/// The first key of `value` that grants something.
fn granting_key(value: &Value) -> Option<KeyPath> {
    let paths = GRANTS.iter().flat_map(|key| paths_along(value, &to_path(key)));
    let mut paths = paths.filter(|path| {
        let value = get_in(value, path).unwrap_or(&Value::Null);
        match (path.last().map(String::as_str), path.first().map(String::as_str), value) {
            (_, _, Value::Null | Value::Bool(false)) => false,
            (Some("profile"), ..) => !["", "default", "plan"].map(Value::from).contains(value),
            // A variable is the user's.
            (_, Some("tools"), Value::String(text)) if path[1] == "permissions" => {
                text == "always" || has_reference(text)
            }
            (Some("sandbox"), _, Value::String(text)) => text == "off" || has_reference(text),
            (Some("sampling"), _, Value::String(text)) => text != "off",
            (_, _, value) => {
                let is_empty =
                    |items: Vec<Value>| items.iter().all(|item| item.as_str() == Some(""));
                !items(value).is_some_and(is_empty)
            }
        }
    });
    paths.next()
}

fn remove_in(value: &mut Value, path: &[String]) {
    let Some((name, parents)) = path.split_last() else {
        return;
    };
    let parent = parents.iter().try_fold(value, |inner, name| inner.get_mut(name));
    if let Some(members) = parent.and_then(Value::as_object_mut) {
        members.shift_remove(name);
    }
}

/// Checks that only root can change the file or directory at `path`: its locks and denials bind users.
fn check_owner(path: &Path) -> Result<()> {
    let metadata = path.metadata().with_context(|| format!("read `{}`", path.display()))?;
    if metadata.uid() == 0 && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(fail(
        Exit::Config,
        format!("`{path}` can be changed by other users than root, so it is not used"),
    )
    .with_hint(format!("`sudo chown root {path} && sudo chmod go-w {path}`")))
}

#[cfg(test)]
mod tests {
    use super::{GRANTS, SystemFile};
    use crate::settings::config_file::ConfigFile;
    use crate::settings::key_node::KeyNode;
    use crate::settings::own_keys::plain_limit;
    use serde_json::{Value, json};
    use std::path::Path;

    fn system_file(value: &Value) -> anyhow::Result<SystemFile> {
        SystemFile::new(ConfigFile::parse(Path::new("s.json"), &value.to_string())?)
    }

    #[test]
    fn defaults_are_below_and_limits_above() {
        let check = |system: Value, user: Value, expect: Value| {
            let mut applied = system_file(&system).unwrap().apply(&user, &plain_limit);
            applied.as_object_mut().unwrap().remove("locked");
            assert_eq!(applied, expect, "{system} {user}");
        };
        check(json!({"log": {"events": "a"}}), json!({}), json!({"log": {"events": "a"}}));
        check(
            json!({"log": {"events": "a"}}),
            json!({"log": {"events": "b"}}),
            json!({"log": {"events": "b"}}),
        );
        check(
            json!({"locked": ["log.events"], "log": {"events": "a"}}),
            json!({"log": {"events": "b"}}),
            json!({"log": {"events": "a"}}),
        );
        // A locked key without a value has its default, and so have all keys of a locked object.
        check(
            json!({"locked": ["tools.allow", "http"], "http": {"proxy": "p"}}),
            json!({"tools": {"allow": ["exec"]}, "http": {"proxy": "q", "noProxy": "r"}}),
            json!({"tools": {}, "http": {"proxy": "p"}}),
        );
        // A provider is the same in every spelling, and `*` is any name.
        check(
            json!({"locked": ["providers.openai"], "providers": {"openai": {"apiBase": "a"}}}),
            json!({"providers": {"OpenAI": {"apiBase": "b", "apiKey": "k"}, "x": {"apiBase": "c"}}}),
            json!({"providers": {"openai": {"apiBase": "a"}, "x": {"apiBase": "c"}}}),
        );
        check(
            json!({"locked": ["providers.Custom.api_base"]}),
            json!({"providers": {"custom": {"apiBase": "b", "apiKey": "k"}}}),
            json!({"providers": {"custom": {"apiKey": "k"}}}),
        );
        check(
            json!({"locked": ["providers.*.apiBase"], "providers": {"a": {"apiBase": "a"}}}),
            json!({"providers": {"a": {"apiBase": "b"}, "c": {"apiBase": "b"}}}),
            json!({"providers": {"a": {"apiBase": "a"}, "c": {}}}),
        );
        // Other ways to name a model are locked with it.
        check(
            json!({"locked": ["agents.defaults.model"], "session": {"titleModel": "t"}}),
            json!({"agents": {"defaults": {"model": "m", "modelPreset": "p"}}, "session": {"titleModel": "u"}, "memory": {"model": "m"}}),
            json!({"agents": {"defaults": {}}, "session": {"titleModel": "t"}, "memory": {}}),
        );
        check(
            json!({"tools": {"deny": ["exec"], "permissions": {"grep": "never"}}, "budget": {"daily": 2}}),
            json!({"tools": {"deny": [], "permissions": {"grep": "always"}}, "budget": {"daily": 9}}),
            json!({"tools": {"deny": ["exec"], "permissions": {"grep": "never"}}, "budget": {"daily": 2}}),
        );
    }

    #[test]
    fn a_file_that_grants_or_locks_nothing_known_is_refused() {
        let check = |system: Value, expect: &str| {
            assert_eq!(system_file(&system).unwrap_err().to_string(), expect, "{system}");
        };
        check(
            json!({"tools": {"allow": ["exec"]}}),
            "s.json:1:19: `tools.allow`: a system-wide config cannot grant anything",
        );
        check(
            json!({"tools": {"permissions": {"exec": "always"}}}),
            "s.json:1:33: `tools.permissions.exec`: a system-wide config cannot grant anything",
        );
        check(
            json!({"locked": ["agents.defaults.modle"]}),
            "s.json:1:11: `locked`: there is no key `agents.defaults.modle`; did you mean `agents.defaults.model`?",
        );
        check(json!({"locked": 1}), "s.json:1:11: `locked` is not a list of keys");
        let grants = |system: Value, key: &str| {
            let error = system_file(&system).unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{key}`: a system-wide config cannot grant")),
                "{error}"
            );
        };
        grants(
            json!({"agents": {"defaults": {"profile": "accept-edits"}}}),
            "agents.defaults.profile",
        );
        grants(json!({"channels": {"irc": {"allowFrom": ["a"]}}}), "channels.irc.allowFrom");
        grants(json!({"channels": {"irc": {"approvers": ["a"]}}}), "channels.irc.approvers");
        grants(
            json!({"channels": {"slack": {"dm": {"policy": "allowlist", "allowFrom": ["a"]}}}}),
            "channels.slack.dm.allowFrom",
        );
        let server =
            |key: &str, value: Value| json!({"tools": {"mcpServers": {"s": {key: value}}}});
        grants(server("trusted", json!(true)), "tools.mcpServers.s.trusted");
        grants(server("sandbox", json!("off")), "tools.mcpServers.s.sandbox");
        grants(server("sampling", json!("on")), "tools.mcpServers.s.sampling");
        grants(json!({"tools": {"permissions": {"exec": "${X}"}}}), "tools.permissions.exec");
        for narrow in [
            json!({"agents": {"defaults": {"profile": "plan"}}}),
            json!({"tools": {"permissions": {"exec": "never"}}}),
            server("trusted", json!(false)),
            server("sandbox", json!("strict")),
        ] {
            system_file(&narrow).unwrap();
        }
        let accepted =
            json!({"locked": ["providers.openai", "tools"], "tools": {"allow": [], "net": ""}});
        assert!(system_file(&accepted).unwrap().is_locked(&["tools", "net"]));
        for key in GRANTS {
            let key = key.replace("channels.*", "channels.slack");
            let path: Vec<&str> = key.split('.').collect();
            assert!(KeyNode::kind_at(&path).is_some(), "{key}");
        }
    }
}
