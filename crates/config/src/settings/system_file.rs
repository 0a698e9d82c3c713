//! The system-wide config file: defaults below the config of each user, and limits above it.
//!
//! Its denials and budgets apply whatever a user sets, and a key that its `locked` lists has the file's value, or else its
//! default. It grants nothing, so that no package that writes it can widen what runs may do.

use super::config_file::{ConfigFile, KeyPath, get_in, set_in};
use super::key_node::KeyNode;
use super::key_spelling::format_path;
use super::key_type::KeyType;
use super::keys::{KEYS, nearest};
use super::own_keys::{items, layer};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, fail, fail_with_hint};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The key with the list of locked keys.
const LOCKED: &str = "locked";

/// Lists of what runs may do without asking.
const GRANTS: &[&str] = &[
    "tools.allow",
    "tools.exec.allowedEnvKeys",
    "tools.exec.sandboxRoBinds",
    "tools.exec.sandboxRwBinds",
    "tools.net",
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
        Ok(Self { file, locked })
    }

    /// True if users cannot set the key at `path`.
    pub(super) fn is_locked(&self, path: &[impl AsRef<str>]) -> bool {
        self.locked.iter().any(|locked| {
            locked.len() <= path.len()
                && locked.iter().zip(path).all(|(name, part)| name == part.as_ref())
        })
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
    pub(super) fn apply(&self, value: &Value) -> Value {
        let mut applied = layer(self.file.value(), value, &mut KeyPath::new());
        for path in &self.locked {
            match get_in(self.file.value(), path) {
                Some(value) => set_in(&mut applied, path, value.clone()),
                None => remove_in(&mut applied, path),
            }
        }
        applied
    }
}

/// The first key of `value` that grants something.
fn granting_key(value: &Value) -> Option<KeyPath> {
    let is_empty = |value: &Value| {
        items(value).is_some_and(|items| items.iter().all(|item| item.as_str() == Some("")))
    };
    let lists = GRANTS.iter().map(|key| key.split('.').map(str::to_owned).collect::<KeyPath>());
    let mut lists = lists.filter(|path| {
        get_in(value, path).is_some_and(|value| !value.is_null() && !is_empty(value))
    });
    lists.next().or_else(|| {
        let permissions = value["tools"]["permissions"].as_object()?;
        let (tool, _) = permissions.iter().find(|(_, word)| word.as_str() == Some("always"))?;
        Some(["tools", "permissions", tool].map(str::to_owned).to_vec())
    })
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
    Err(fail_with_hint(
        Exit::Config,
        format!("`{path}` can be changed by other users than root, so it is not used"),
        format!("`sudo chown root {path} && sudo chmod go-w {path}`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::{GRANTS, SystemFile};
    use crate::settings::config_file::ConfigFile;
    use crate::settings::key_node::KeyNode;
    use serde_json::{Value, json};
    use std::path::Path;

    fn system_file(value: &Value) -> anyhow::Result<SystemFile> {
        SystemFile::new(ConfigFile::parse(Path::new("s.json"), &value.to_string())?)
    }

    #[test]
    fn defaults_are_below_and_limits_above() {
        let check = |system: Value, user: Value, expect: Value| {
            let mut applied = system_file(&system).unwrap().apply(&user);
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
        let accepted =
            json!({"locked": ["providers.openai", "tools"], "tools": {"allow": [], "net": ""}});
        assert!(system_file(&accepted).unwrap().is_locked(&["tools", "net"]));
        for key in GRANTS {
            let path: Vec<&str> = key.split('.').collect();
            assert!(KeyNode::kind_at(&path).is_some(), "{key}");
        }
    }
}
