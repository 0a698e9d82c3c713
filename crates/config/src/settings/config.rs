//! The config: the file that the Python program of the same name shares, and our own file beside it, layered over it. A system-wide
//! file may be below them, and lock keys.
//!
//! A change writes each key into the file of the user that it belongs to.

use super::config_file::{ConfigFile, KeyPath, get_in};
use super::expand::{expand_all, has_reference};
use super::key_spelling::{find_provider_name, format_path, parse_path};
use super::own_keys::{
    KeyHome, LimitReader, SMALLER_APPLIES, layer, own_file_path, own_keys_in, plain_limit,
    take_own_keys,
};
use super::system_file::{Locks, SystemFile};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::durable_file;
use nanobot_os::env::Env;
use nanobot_os::paths::Paths;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The config: both files of the user, and that of the system.
#[derive(Clone, Debug)]
pub struct Config {
    system_file: Option<SystemFile>,
    shared_file: ConfigFile,
    own_file: ConfigFile,
    /// The values of all files; `None` if there is only the shared one.
    layered: Option<Value>,
}

impl Config {
    fn new(system_file: Option<SystemFile>, shared_file: ConfigFile, own_file: ConfigFile) -> Self {
        let mut config = Self { system_file, shared_file, own_file, layered: None };
        config.layer(&plain_limit);
        config
    }

    /// Reads the config file of `paths`, ours beside it, and the system-wide one; a missing file is an empty config.
    ///
    /// # Errors
    /// The errors of [`ConfigFile::load`]; status 78 if the system-wide file cannot be used.
    pub fn load(paths: &Paths) -> Result<Self> {
        let path = &paths.config;
        let shared_file = ConfigFile::load(path)?;
        let own_path = own_file_path(path);
        let own_file = if ConfigFile::is_opened(path) {
            ConfigFile::missing(&own_path)
        } else {
            ConfigFile::load(&own_path)?
        };
        Ok(Self::new(SystemFile::load(&paths.system_config)?, shared_file, own_file))
    }

    /// Returns the empty config of a missing file.
    pub fn missing(path: &Path) -> Self {
        Self::new(None, ConfigFile::missing(path), ConfigFile::missing(&own_file_path(path)))
    }

    /// Parses `text` as the config file at `path`. Our own file beside it does not exist.
    ///
    /// # Errors
    /// The errors of [`ConfigFile::parse`].
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let own_file = ConfigFile::missing(&own_file_path(path));
        Ok(Self::new(None, ConfigFile::parse(path, text)?, own_file))
    }

    /// The same config with another `file` of the same path.
    #[must_use]
    pub fn with_file(&self, file: ConfigFile) -> Self {
        let system_file = self.system_file.clone();
        if file.path() == self.own_file.path() {
            Self::new(system_file, self.shared_file.clone(), file)
        } else {
            Self::new(system_file, file, self.own_file.clone())
        }
    }

    fn layer(&mut self, read_limit: LimitReader<'_>) {
        let has_own_file = self.own_file.exists();
        let layered = has_own_file.then(|| {
            let (shared, own) = (self.shared_file.value(), self.own_file.value());
            layer(shared, own, &mut Vec::new(), read_limit)
        });
        self.layered = match &self.system_file {
            Some(system_file) => {
                let value = layered.as_ref().unwrap_or(self.shared_file.value());
                Some(system_file.apply(value, read_limit))
            }
            None => layered,
        };
    }

    /// The same config, in which the smaller one of two budgets applies also if they refer to variables; `None` if it is the same
    /// without `env`.
    pub(super) fn with_compared_limits(&self, env: &Env) -> Option<Self> {
        let value = self.layered.as_ref()?;
        let limits = SMALLER_APPLIES.iter().map(|key| key.split('.').collect::<Vec<_>>());
        let limits = limits.filter_map(|path| get_in(value, &path));
        let mut values = limits.flat_map(|limit| match limit {
            Value::Object(members) => members.values().collect(),
            limit => vec![limit],
        });
        if !values.any(|value| value.as_str().is_some_and(has_reference)) {
            return None;
        }
        let mut config = self.clone();
        config.layer(&expanded_limit(env));
        Some(config)
    }

    /// Applies the system-wide file to `value`, the config with what `env` adds; `None` if there is no such file.
    pub(super) fn apply_system_file(&self, value: &Value, env: &Env) -> Option<Value> {
        self.system_file.as_ref().map(|system_file| system_file.apply(value, &expanded_limit(env)))
    }

    /// The keys that users cannot set.
    pub(super) fn locks(&self) -> Locks {
        Locks(self.system_file.clone().map(Arc::new))
    }

    /// The position in the system-wide file of what locks the key at `path`; `None` if it is not locked.
    pub fn lock_position(&self, path: &[String]) -> Option<String> {
        let system_file = self.system_file.as_ref()?;
        system_file.is_locked(path).then(|| system_file.lock_position(path))
    }

    /// The keys and objects of keys that users cannot set.
    pub(super) fn locked_keys(&self) -> &[KeyPath] {
        self.system_file.as_ref().map(SystemFile::locked).unwrap_or_default()
    }

    /// Refuses to set `key` by `flag`, if it is locked.
    ///
    /// # Errors
    /// Status 77 if it is.
    pub fn check_flag(&self, key: &str, flag: &str) -> Result<()> {
        self.locks().check_flag(key, flag)
    }

    fn check_unlocked(&self, path: &[String]) -> Result<()> {
        let Some(position) = self.lock_position(path) else {
            return Ok(());
        };
        let cause = format!("`{}` is locked by {position}", format_path(path));
        Err(fail(Exit::Refused, cause).with_hint("ask the administrator of this machine"))
    }

    /// Refuses a key in a list: an object would replace the list.
    fn check_in_no_list(&self, path: &[String]) -> Result<()> {
        let is_list =
            |length: &usize| get_in(self.value(), &path[..*length]).is_some_and(Value::is_array);
        let Some(length) = (1..path.len()).find(is_list) else {
            return Ok(());
        };
        let key = format_path(&path[..length]);
        let cause = format!("`{key}` is a list, which can only be set as a whole");
        Err(fail(Exit::Usage, cause)
            .with_hint(format!("`nanobot config set {} '[…]'`", quote(&key))))
    }

    /// `path`, with a provider in the spelling that the files have.
    fn spelled(&self, path: &[impl AsRef<str>]) -> KeyPath {
        let mut path: KeyPath = path.iter().map(|name| name.as_ref().to_owned()).collect();
        if let [section, name, ..] = &mut path[..]
            && section == "providers"
            && let Some(members) = self.value()["providers"].as_object()
        {
            *name = find_provider_name(members.keys(), name);
        }
        path
    }

    /// The path of the config file, which the Python program reads too.
    pub fn path(&self) -> &Path {
        self.shared_file.path()
    }

    /// The files of the user, in the order in which they are layered.
    pub fn files(&self) -> [&ConfigFile; 2] {
        [&self.shared_file, &self.own_file]
    }

    /// All files, in the order in which they are layered.
    pub(super) fn all_files(&self) -> impl Iterator<Item = &ConfigFile> {
        self.system_file.iter().map(|system_file| &system_file.file).chain(self.files())
    }

    /// The files of the user that exist.
    pub fn existing_files(&self) -> impl Iterator<Item = &ConfigFile> {
        self.files().into_iter().filter(|file| file.exists())
    }

    /// True if one of the files of the user exists.
    pub fn exists(&self) -> bool {
        self.existing_files().next().is_some()
    }

    /// A phrase about the first file that says which other users can change it, if any. The config decides what runs.
    pub fn exposure(&self) -> Option<String> {
        self.files().into_iter().find_map(|file| file.exposure().map(str::to_owned))
    }

    /// All values under their current key names.
    pub fn value(&self) -> &Value {
        self.layered.as_ref().unwrap_or_else(|| self.shared_file.value())
    }

    /// Returns the value at a path, as [`parse_path`] takes it. `null` means that the value is absent.
    pub fn get_path(&self, path: &str) -> Option<&Value> {
        get_in(self.value(), &parse_path(path)?).filter(|value| !value.is_null())
    }

    /// The files that the value at `path` comes from: the one that has the same value, or else all that contribute to it.
    fn sources(&self, path: &[String]) -> Vec<&ConfigFile> {
        let value = get_in(self.value(), path);
        let is_set =
            |file: &&ConfigFile| get_in(file.value(), path).is_some_and(|value| !value.is_null());
        let files: Vec<&ConfigFile> = self.all_files().filter(is_set).collect();
        match files.iter().rev().find(|file| get_in(file.value(), path) == value) {
            Some(file) => vec![*file],
            None => files,
        }
    }

    /// Formats the position of the value at `path` as `FILE:LINE:COLUMN`, or all positions if several files contribute to it;
    /// `None` if it is not set.
    pub fn position(&self, path: &[String]) -> Option<String> {
        let sources = self.sources(path);
        let positions = sources.iter().filter_map(|file| Some(file.position(file.offset(path)?)));
        let positions: Vec<String> = positions.collect();
        (!positions.is_empty()).then(|| positions.join(" and "))
    }

    /// The rank of the value at `path`, or of its nearest enclosing object, in the order of the files and of their text.
    pub fn rank(&self, path: &[String]) -> Option<(usize, usize)> {
        let source = self.sources(path).first().map(|source| source.path());
        let files = self.all_files().enumerate();
        let mut files = files.filter(|(_, file)| source.is_none_or(|source| file.path() == source));
        files.find_map(|(index, file)| Some((index, file.offset(path)?)))
    }

    /// The file that the key at `path` belongs to.
    pub fn file_of(&self, path: &[impl AsRef<str>]) -> &ConfigFile {
        if self.belongs_to_own_file(path) { &self.own_file } else { &self.shared_file }
    }

    fn belongs_to_own_file(&self, path: &[impl AsRef<str>]) -> bool {
        match KeyHome::find(path) {
            KeyHome::Own => true,
            KeyHome::Shared => false,
            KeyHome::LaterRelease => get_in(self.shared_file.value(), &path[..1]).is_none(),
        }
    }

    /// Writes `value` at `path` into the file that the key belongs to, in the spelling that the file already uses. An object
    /// is split between the files. Comments and all other text are preserved.
    ///
    /// # Errors
    /// The file cannot be parsed; status 77 if the key is locked, 2 if it is that of an item of a list.
    pub fn set(&mut self, path: &[impl AsRef<str>], value: &Value) -> Result<()> {
        let mut path = self.spelled(path);
        self.check_unlocked(&path)?;
        self.check_in_no_list(&path)?;
        if self.belongs_to_own_file(&path) {
            self.own_file.set(&path, value)?;
            self.shared_file.unset(&path)?;
        } else {
            let mut value = value.clone();
            let own_value = take_own_keys(&mut value, &mut path);
            self.shared_file.set(&path, &value)?;
            match own_value {
                Some(own_value) => self.own_file.set(&path, &own_value)?,
                // A value of the same key in our file would take precedence.
                None if get_in(self.own_file.value(), &path).is_some() => {
                    if value.is_object() {
                        self.own_file.unset(&path)?;
                    } else {
                        self.own_file.set(&path, &value)?;
                    }
                }
                None => {}
            }
        }
        self.layer(&plain_limit);
        Ok(())
    }

    /// Removes the value at `path` from both files, in every spelling, and the objects that this leaves empty. Returns false
    /// if there was none.
    ///
    /// # Errors
    /// A file cannot be parsed.
    pub fn unset(&mut self, path: &[impl AsRef<str>]) -> Result<bool> {
        let path = &self.spelled(path);
        let was_set = [self.own_file.unset(path)?, self.shared_file.unset(path)?];
        self.layer(&plain_limit);
        Ok(was_set.contains(&true))
    }

    /// The keys in the shared file that belong into our own.
    pub fn misplaced_keys(&self) -> Vec<KeyPath> {
        let mut paths = Vec::new();
        own_keys_in(self.shared_file.value(), &mut Vec::new(), &mut paths);
        paths
    }

    /// Moves `keys` into our file, with the values that apply. Returns those keys of which our file has another value
    /// already: the value of the shared file, which did not apply, is removed.
    ///
    /// # Errors
    /// A file cannot be parsed.
    pub fn move_keys(&mut self, keys: &[KeyPath]) -> Result<Vec<KeyPath>> {
        let mut overridden = Vec::new();
        for key in keys {
            if let Some(value) = get_in(self.value(), key).cloned() {
                let applies = match (get_in(self.shared_file.value(), key), &value) {
                    // Denials of both files apply.
                    (Some(Value::Array(shared)), Value::Array(items)) => {
                        shared.iter().all(|item| items.contains(item))
                    }
                    (shared, value) => shared.is_none_or(|shared| shared == value),
                };
                if !applies && get_in(self.own_file.value(), key) == Some(&value) {
                    overridden.push(key.clone());
                }
                self.set(key, &value)?;
            }
        }
        Ok(overridden)
    }

    /// Changes the config of `paths` under a lock, so that no change of another process is lost. A file is written only if
    /// `change` succeeds and changes its text, and is readable by its owner only.
    ///
    /// # Errors
    /// The errors of [`Self::load`]; status 74 if a file cannot be written.
    pub fn change<T>(paths: &Paths, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let path = &paths.config;
        ConfigFile::check_replaceable(path)?;
        let lock = durable_file::lock_for_change(path, "the config")?;
        let result = Self::change_locked(paths, change);
        let removal = lock.remove();
        let output = result?;
        removal?;
        Ok(output)
    }

    fn change_locked<T>(paths: &Paths, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = Self::load(paths)?;
        let mut config = before.clone();
        let output = change(&mut config)?;
        // Our file is written first: after a crash, a key that moves there is in both files instead of none.
        config.own_file.write(&before.own_file)?;
        config.shared_file.write(&before.shared_file)?;
        Ok(output)
    }
}

/// Reads the value of a limit, which may refer to variables of `env`.
fn expanded_limit(env: &Env) -> impl Fn(&[String], &Value) -> Option<f64> {
    |path, value| plain_limit(path, &expand_all(value, env).ok()?)
}

#[cfg(test)]
mod tests {
    use super::Config;
    use crate::settings::config_file::ConfigFile;
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use serde_json::json;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    fn paths(config: &Path) -> Paths {
        let env: Env = [("HOME", "/home/u")].into_iter().collect();
        Paths::resolve(&env, Some(config)).unwrap()
    }

    fn config(shared: &str, own: &str) -> Config {
        let path = Path::new("c.json");
        let config = Config::parse(path, shared).unwrap();
        match own {
            "" => config,
            own => config.with_file(ConfigFile::parse(Path::new("c.nanobot.json"), own).unwrap()),
        }
    }

    #[test]
    fn each_key_is_written_where_it_belongs() {
        let check =
            |files: (&str, &str), key: &str, value: serde_json::Value, expect: (&str, &str)| {
                let mut config = config(files.0, files.1);
                let path: Vec<&str> = key.split('.').collect();
                if value.is_null() {
                    config.unset(&path).unwrap();
                } else {
                    config.set(&path, &value).unwrap();
                }
                let texts =
                    config.files().map(|file| file.text().split_whitespace().collect::<String>());
                assert_eq!(texts, [expect.0, expect.1], "{key}");
                let actual = config.get_path(key).cloned().unwrap_or_default();
                assert_eq!(actual, value, "{key}");
            };
        check(("{}", ""), "budget.daily", json!(5), ("{}", r#"{"budget":{"daily":5}}"#));
        check(
            ("{}", ""),
            "agents.defaults.model",
            json!("m"),
            (r#"{"agents":{"defaults":{"model":"m"}}}"#, ""),
        );
        // A key that moves, even to a larger budget.
        check(
            (r#"{"budget":{"daily":3,"monthly":9}}"#, ""),
            "budget.daily",
            json!(5),
            (r#"{"budget":{"monthly":9}}"#, r#"{"budget":{"daily":5}}"#),
        );
        // A shared key in our file, where it wins.
        check(
            (
                r#"{"agents":{"defaults":{"model":"a"}}}"#,
                r#"{"agents":{"defaults":{"model":"b"}}}"#,
            ),
            "agents.defaults.model",
            json!("c"),
            (
                r#"{"agents":{"defaults":{"model":"c"}}}"#,
                r#"{"agents":{"defaults":{"model":"c"}}}"#,
            ),
        );
        check(
            (r#"{"tools":{"deny":["a"]}}"#, r#"{"tools":{"deny":["b"]}}"#),
            "tools.deny",
            json!(["c"]),
            ("{}", r#"{"tools":{"deny":["c"]}}"#),
        );
        check(
            (r#"{"tools":{"deny":["a"]}}"#, r#"{"tools":{"deny":["b"]}}"#),
            "tools.deny",
            json!(null),
            ("{}", "{}"),
        );
        // The file of a release that knows the object.
        check(
            ("{}", ""),
            "transcription.model",
            json!("m"),
            ("{}", r#"{"transcription":{"model":"m"}}"#),
        );
        check(
            (r#"{"transcription":{}}"#, ""),
            "transcription.model",
            json!("m"),
            (r#"{"transcription":{"model":"m"}}"#, ""),
        );
        check(
            ("{}", ""),
            "tools.mcpServers.s",
            json!({"url": "u", "trusted": true}),
            (
                r#"{"tools":{"mcpServers":{"s":{"url":"u"}}}}"#,
                r#"{"tools":{"mcpServers":{"s":{"trusted":true}}}}"#,
            ),
        );
        check(
            (
                r#"{"tools":{"mcpServers":{"s":{"url":"u"}}}}"#,
                r#"{"tools":{"mcpServers":{"s":{"trusted":true}}}}"#,
            ),
            "tools.mcpServers.s",
            json!({"url": "v"}),
            (r#"{"tools":{"mcpServers":{"s":{"url":"v"}}}}"#, "{}"),
        );
    }

    #[test]
    fn a_value_has_the_place_that_it_comes_from() {
        let config = config(
            r#"{"budget": {"daily": 3, "monthly": 9}, "tools": {"deny": ["a"]}, "log": {"events": "e"}}"#,
            r#"{"budget": {"daily": 5, "monthly": 7}, "tools": {"deny": ["b"]}}"#,
        );
        let check = |key: &str, expect: Option<&str>| {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            assert_eq!(config.position(&path).as_deref(), expect, "{key}");
        };
        check("budget.daily", Some("c.json:1:22"));
        check("budget.monthly", Some("c.nanobot.json:1:36"));
        check("tools.deny", Some("c.json:1:58 and c.nanobot.json:1:58"));
        check("log.events", Some("c.json:1:84"));
        check("log", Some("c.json:1:73"));
        check("http.proxy", None);
    }

    #[test]
    fn misplaced_keys_are_moved_with_what_holds() {
        let mut config = config(
            r#"{"budget": {"daily": 3}, "http": {"proxy": "b"}, "agents": {"defaults": {"model": "m", "session": "s"}}, "tools": {"deny": ["a"], "read": ["/a"]}}"#,
            r#"{"budget": {"daily": 5}, "http": {"proxy": "a"}, "tools": {"deny": ["b", "a"], "read": ["/b"]}}"#,
        );
        let before = config.value().clone();
        let keys = config.misplaced_keys();
        let overridden = config.move_keys(&keys).unwrap();
        assert_eq!(overridden, [["http", "proxy"], ["tools", "read"]]);
        assert_eq!(*config.value(), before);
        assert_eq!(config.misplaced_keys(), Vec::<Vec<String>>::new());
        assert_eq!(*config.files()[0].value(), json!({"agents": {"defaults": {"model": "m"}}}));
    }

    #[test]
    fn a_saved_config_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c.json");
        Config::change(&paths(&path), |config| config.set(&["a"], &json!(1))).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        Config::change(&paths(&path), |config| config.set(&["budget", "daily"], &json!(1)))
            .unwrap();
        assert_eq!(mode(&path.with_file_name("c.nanobot.json")), 0o600);
        assert!(
            Config::change(&paths(folder.path()), |config| config.set(&["a"], &json!(1))).is_err()
        );
    }

    #[test]
    fn our_file_in_a_directory_of_the_system_applies() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("config.json");
        let own_path = folder.path().join("nanobot.json");
        std::fs::write(&own_path, r#"{"tools": {"deny": ["exec"]}}"#).unwrap();
        for path in
            [path.clone(), Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap())]
        {
            let config = Config::load(&paths(&path)).unwrap();
            assert_eq!(config.get_path("tools.deny"), Some(&json!(["exec"])), "{}", path.display());
        }
        Config::change(&paths(&path), |config| config.set(&["budget", "daily"], &json!(5)))
            .unwrap();
        let config = Config::load(&paths(&path)).unwrap();
        assert_eq!(*config.value(), json!({"budget": {"daily": 5}, "tools": {"deny": ["exec"]}}));
        for path in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
            assert!(Config::change(&paths(Path::new(path)), |_| Ok(())).is_err(), "{path}");
        }
    }

    #[test]
    fn a_socket_or_device_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = Config::change(&paths(&path), |_| Ok(())).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Io);
        assert!(!path.metadata().unwrap().is_file());
    }
}
