//! Paths of session files, chosen so that this program and every release of the Python program find each other's files.

use super::integrity::{is_newer, refuse_newer};
use super::line;
use super::tail_reader::{self, MessageWindow};
use anyhow::{Context, Result};
use base64::Engine;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::paths::Paths;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// When a turn is synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Once per turn, before the end of the answer is printed.
    #[default]
    EachTurn,
    /// Never explicitly; the operating system decides.
    Never,
}

/// Longest file name in bytes, with room for the suffixes of side files.
const MAX_NAME_BYTES: usize = 200;
/// Longest key in bytes: base64 takes four bytes for three, and the name ends in `.jsonl`.
const MAX_KEY_BYTES: usize = MAX_NAME_BYTES * 3 / 4 - 5;

/// Hexadecimal digits of the id that newer releases give a workspace: a UUID without hyphens.
const WORKSPACE_ID_DIGITS: usize = 32;

/// Storage settings for sessions: directories, sync mode and limits.
#[derive(Clone, Debug)]
pub struct SessionStore {
    /// `<workspace>/sessions`.
    pub(super) dir: PathBuf,
    /// The directory of releases up to 0.1.3.post7.
    legacy_dir: Option<PathBuf>,
    /// The store of releases from 0.3.1 on, if this workspace has one.
    newer_dir: Option<PathBuf>,
    pub(super) sync: SyncMode,
    /// The messages that are sent again.
    pub(super) window: MessageWindow,
    /// Maximum characters of a stored tool result.
    pub(super) result_limit: usize,
    pub(super) clock: Clock,
}

impl SessionStore {
    /// Locates the session directories of `workspace`.
    ///
    /// # Errors
    /// The record of a newer store exists but cannot be read.
    pub fn new(
        workspace: &Path,
        paths: &Paths,
        sync: SyncMode,
        window: MessageWindow,
        result_limit: usize,
        clock: &Clock,
    ) -> Result<Self> {
        Ok(Self {
            dir: workspace.join("sessions"),
            legacy_dir: Some(paths.old_sessions()),
            newer_dir: find_newer_store(workspace, paths)?,
            sync,
            window,
            result_limit,
            clock: clock.clone(),
        })
    }

    /// The store without the sessions of releases up to 0.1.3.post7, which had one workspace: another workspace must not show them.
    #[must_use]
    pub fn without_old_sessions(self) -> Self {
        Self { legacy_dir: None, ..self }
    }

    /// The directory of the sessions of this release.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Returns the file path of `key`, which need not exist.
    ///
    /// # Errors
    /// Status 2 if no file name can be made from the key.
    pub(super) fn find_path(&self, key: &str) -> Result<PathBuf> {
        Ok(self.locate(key)?.path)
    }

    fn locate(&self, key: &str) -> Result<SessionPath> {
        let encoded_name = encoded_name(key);
        if key.trim().is_empty() || encoded_name.len() > MAX_NAME_BYTES {
            return Err(fail(Exit::Usage, format!("a session key has 1 to {MAX_KEY_BYTES} bytes")));
        }
        let safe_name = (!key.contains(char::is_control)).then(|| safe_name(key));
        if let Some(newer_dir) = &self.newer_dir {
            let path = newer_dir.join(&encoded_name);
            if path.exists() {
                return Ok(SessionPath::existing(path));
            }
            let unmigrated = self.find_unmigrated(key, &encoded_name, safe_name.as_deref())?;
            let exists = unmigrated.is_some();
            return Ok(SessionPath { path: unmigrated.unwrap_or(path), exists });
        }
        let encoded_path = self.dir.join(encoded_name);
        let Some(safe_name) = safe_name else {
            return require_unclaimed(encoded_path, key);
        };
        let path = self.dir.join(&safe_name);
        match is_owned_by(&path, key)? {
            Some(true) => return Ok(SessionPath::existing(path)),
            Some(false) => return require_unclaimed(encoded_path, key),
            None => {}
        }
        if is_owned_by(&encoded_path, key)? == Some(true) {
            return Ok(SessionPath::existing(encoded_path));
        }
        if let Some(legacy_path) = self.legacy_dir.as_ref().map(|dir| dir.join(&safe_name))
            && is_owned_by(&legacy_path, key)? == Some(true)
        {
            return Ok(SessionPath::existing(legacy_path));
        }
        Ok(SessionPath { path, exists: false })
    }

    /// Finds a file of `key` that belongs in the newer store: already there under its old name, or still in an old
    /// directory.
    fn find_unmigrated(
        &self,
        key: &str,
        encoded_name: &str,
        safe_name: Option<&str>,
    ) -> Result<Option<PathBuf>> {
        let safe_paths = self
            .newer_dir
            .iter()
            .chain([&self.dir])
            .chain(&self.legacy_dir)
            .filter_map(|dir| Some(dir.join(safe_name?)));
        for path in safe_paths.chain([self.dir.join(encoded_name)]) {
            if is_owned_by(&path, key)? == Some(true) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Opens the file to lock for an append to the log at `path`, if it is not the log itself: newer releases have one for
    /// all sessions of their store.
    pub(super) fn open_append_lock(&self, path: &Path) -> Option<File> {
        self.newer_dir.as_ref()?;
        File::open(path.with_file_name(".session-files.lock")).ok()
    }

    /// Moves the file of `key` to `new_path`, its path in the newer store, where the newer release looks for it. The
    /// caller holds the lock of `new_path`.
    pub(super) fn migrate(&self, key: &str, new_path: &Path) -> Result<()> {
        if self.newer_dir.is_none() {
            return Ok(());
        }
        let path = self.find_path(key)?;
        if path == new_path || !path.exists() {
            return Ok(());
        }
        refuse_newer(is_newer(&path)?, &path)?;
        if durable_file::rename_noreplace(&path, new_path)? {
            return Ok(());
        }
        // A move across file systems. The old copy is ignored once the new one exists.
        let text = durable_file::read(&path)?.unwrap_or_default();
        durable_file::replace(new_path, &text)
    }

    /// The path to which a turn writes the session `key`.
    pub(super) fn path_for(&self, key: &str) -> Result<SessionPath> {
        let SessionPath { path, exists } = self.locate(key)?;
        let Some(newer_dir) = &self.newer_dir else {
            return Ok(SessionPath { path, exists });
        };
        let new_path = newer_dir.join(encoded_name(key));
        Ok(SessionPath { exists: exists && new_path == path, path: new_path })
    }

    /// The path of the session file `from` after a rename to `new`: in the same directory, in that directory's name
    /// form.
    ///
    /// # Errors
    /// Status 2 if the session `new` exists, or if no file name can be made from the key.
    pub(super) fn path_after_rename(&self, from: &Path, new: &str) -> Result<PathBuf> {
        let new_path = self.find_path(new)?;
        if new_path.exists() {
            return Err(already_exists_error(new));
        }
        let dir = from.parent().unwrap_or(Path::new("."));
        if Some(dir) != self.legacy_dir.as_deref() {
            return Ok(dir.join(new_path.file_name().unwrap_or_default()));
        }
        // In the old directory only names of the older form are found, and only if the workspace has no such file.
        let legacy_path = dir.join(safe_name(new));
        let is_found = match &self.newer_dir {
            Some(_) => !new.contains(char::is_control),
            None => new_path.file_name() == legacy_path.file_name(),
        };
        Ok(if is_found && !legacy_path.exists() { legacy_path } else { new_path })
    }

    /// The directory of new sessions.
    pub(super) fn new_session_dir(&self) -> &Path {
        self.newer_dir.as_deref().unwrap_or(&self.dir)
    }

    /// All files that hold the session `key`: the one in use, and those that would be used if it were removed.
    pub(super) fn find_copies(&self, key: &str) -> Result<Vec<PathBuf>> {
        let current = self.find_path(key)?;
        let safe_name = safe_name(key);
        let mut copies = Vec::new();
        for path in self.directories().map(|dir| dir.join(&safe_name)) {
            if path != current && is_owned_by(&path, key)? == Some(true) {
                copies.push(path);
            }
        }
        copies.push(current);
        Ok(copies)
    }

    /// The directories that may hold sessions, in lookup order.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        [self.newer_dir.as_deref(), Some(self.dir.as_path()), self.legacy_dir.as_deref()]
            .into_iter()
            .flatten()
    }
}

/// The path of a session's file.
pub(super) struct SessionPath {
    pub(super) path: PathBuf,
    /// True if the file exists and belongs to the session.
    pub(super) exists: bool,
}

impl SessionPath {
    fn existing(path: PathBuf) -> Self {
        Self { path, exists: true }
    }
}

/// The file name of `key` in release 0.1.4.
fn safe_name(key: &str) -> String {
    let name = key.replace([':', '<', '>', '"', '/', '\\', '|', '?', '*'], "_");
    format!("{}.jsonl", name.trim())
}

/// The file name of `key` in releases from 0.3.0 on.
pub(super) fn encoded_name(key: &str) -> String {
    let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(key);
    format!("{encoded}.jsonl")
}

/// Returns `path` for the session `key`.
///
/// # Errors
/// Status 2 if it belongs to another key, whose safe name equals the encoded name of this one.
fn require_unclaimed(path: PathBuf, key: &str) -> Result<SessionPath> {
    match read_key(&path)?.filter(|stored_key| stored_key != key) {
        None => {
            let exists = path.exists();
            Ok(SessionPath { path, exists })
        }
        Some(other) => Err(fail(
            Exit::Usage,
            format!("session `{key}` would use the file of session `{other}`; choose another key"),
        )),
    }
}

/// True if the file at `path` belongs to `key`: its first line names that key, or none. `None` if there is no file.
fn is_owned_by(path: &Path, key: &str) -> Result<Option<bool>> {
    let first = read_first_line(path)?;
    Ok(first.map(|first| line::parse_key(&first).is_none_or(|stored_key| stored_key == key)))
}

/// The key in the first line of the file at `path`.
pub(super) fn read_key(path: &Path) -> Result<Option<String>> {
    Ok(read_first_line(path)?.and_then(|first| line::parse_key(&first)))
}

fn read_first_line(path: &Path) -> Result<Option<Vec<u8>>> {
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(None);
    };
    let mut first = Vec::new();
    tail_reader::next_line(&mut BufReader::with_capacity(4096, file), &mut first)
        .with_context(|| format!("read `{}`", path.display()))?;
    Ok(Some(first))
}

/// The key of a file that names no key, derived from the file's name as the Python program does.
pub(super) fn key_from_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.replacen('_', ":", 1)
}

/// Creates the error for a key that is already in use.
pub(super) fn already_exists_error(key: &str) -> anyhow::Error {
    let cause = format!("session `{key}` already exists");
    fail(Exit::Usage, cause).with_hint("another key, or `nanobot session remove`")
}

/// The directory beside the config file in which newer releases store this workspace's sessions. Its `.workspace` file
/// must name this workspace.
///
/// # Errors
/// An existing record cannot be read: using another store instead would split the session in two.
fn find_newer_store(workspace: &Path, paths: &Paths) -> Result<Option<PathBuf>> {
    let read_text = |path: &Path| -> Result<Option<String>> {
        let bytes = durable_file::read(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    };
    let is_valid = |id: &String| {
        id.len() == WORKSPACE_ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let id = read_text(&workspace.join(".nanobot/workspace-id"))?.filter(is_valid);
    let (Some(id), Some(dir)) = (id, paths.config.parent()) else {
        return Ok(None);
    };
    let store = dir.join("sessions").join(id);
    let Some(named) = read_text(&store.join(".workspace"))? else {
        return Ok(None);
    };
    let canonical = |path: &Path| std::fs::canonicalize(path).ok();
    let is_same =
        canonical(Path::new(&named)).is_some_and(|named| Some(named) == canonical(workspace));
    Ok(is_same.then_some(store))
}

#[cfg(test)]
mod tests {
    use super::{MessageWindow, SessionStore, SyncMode, safe_name};
    use nanobot_os::clock::Clock;
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use std::path::Path;

    fn test_store(home: &Path) -> SessionStore {
        let env: Env = [("HOME", home.to_str().unwrap())].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        SessionStore::new(
            &home.join(".nanobot/workspace"),
            &paths,
            SyncMode::Never,
            MessageWindow::of_size(100),
            16_000,
            &Clock::default(),
        )
        .unwrap()
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn file_names_equal_those_of_the_python_program() {
        let check = |key: &str, expect: &str| assert_eq!(safe_name(key), format!("{expect}.jsonl"));
        check("cli:direct", "cli_direct");
        check("slack:C1:173.4", "slack_C1_173.4");
        check("a<b>c\"d/e\\f|g?h*i", "a_b_c_d_e_f_g_h_i");
        check(" x ", "x");
    }

    #[test]
    fn lookup_order() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join(".nanobot");
        let check = |key: &str, expect: &str| {
            assert_eq!(test_store(home.path()).find_path(key).unwrap(), root.join(expect), "{key}");
        };
        check("a:b", "workspace/sessions/a_b.jsonl");
        write(&root.join("sessions/a_b.jsonl"), "{\"_type\": \"metadata\"}\n");
        check("a:b", "sessions/a_b.jsonl");
        write(&root.join("workspace/sessions/YTpi.jsonl"), "");
        check("a:b", "workspace/sessions/YTpi.jsonl");
        write(
            &root.join("workspace/sessions/a_b.jsonl"),
            "{\"_type\": \"metadata\", \"key\": \"a:b\"}\n",
        );
        check("a:b", "workspace/sessions/a_b.jsonl");
        check("a_b", "workspace/sessions/YV9i.jsonl");
        check("a\u{1}b", "workspace/sessions/YQFi.jsonl");
        let id = "0123456789abcdef0123456789abcdef";
        write(&root.join("workspace/.nanobot/workspace-id"), id);
        check("a:b", "workspace/sessions/a_b.jsonl");
        let store = root.join("sessions").join(id);
        write(&store.join(".workspace"), root.join("workspace").to_str().unwrap());
        write(&store.join("a_b.jsonl"), "{\"_type\": \"metadata\", \"key\": \"a:b\"}\n");
        check("a:b", &format!("sessions/{id}/a_b.jsonl"));
        let home_of = || test_store(home.path()).path_for("a:b").unwrap().path;
        let coded = store.join("YTpi.jsonl");
        assert_eq!(home_of(), coded);
        test_store(home.path()).migrate("a:b", &home_of()).unwrap();
        assert!(coded.exists() && !store.join("a_b.jsonl").exists());
        check("a:b", &format!("sessions/{id}/YTpi.jsonl"));
        // A file left in the workspace is also found, as long as there is no other.
        std::fs::remove_file(&coded).unwrap();
        check("a:b", "workspace/sessions/a_b.jsonl");
        test_store(home.path()).migrate("a:b", &home_of()).unwrap();
        assert!(coded.exists() && !root.join("workspace/sessions/a_b.jsonl").exists());
        for bad in ["", " ", &"x".repeat(200)] {
            assert!(test_store(home.path()).find_path(bad).is_err());
        }
    }
}
