//! Paths of session files, chosen so that this program and every release of the Python program find each other's files.

use super::integrity::{is_newer, refuse_newer};
use super::line;
use super::tail_reader::{self, MessageWindow};
use anyhow::{Context, Result};
use base64::Engine;
use nanobot_base::error::{Exit, fail, fail_with_hint};
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

/// Storage settings for sessions: directories, sync mode and limits.
#[derive(Clone, Debug)]
pub struct SessionStore {
    /// `<workspace>/sessions`.
    pub(super) dir: PathBuf,
    /// The directory of releases up to 0.1.3.post7.
    legacy_dir: PathBuf,
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
    /// Fails if the record of a newer store exists but cannot be read.
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
            legacy_dir: paths.old_sessions(),
            newer_dir: find_newer_store(workspace, paths)?,
            sync,
            window,
            result_limit,
            clock: clock.clone(),
        })
    }

    /// Returns the file path of `key`, which need not exist.
    ///
    /// # Errors
    /// Status 2 if no file name can be made from the key.
    pub(super) fn find_path(&self, key: &str) -> Result<PathBuf> {
        Ok(self.locate(key)?.0)
    }

    /// The file path of `key`, and true if that file exists and belongs to `key`.
    fn locate(&self, key: &str) -> Result<(PathBuf, bool)> {
        let coded = encoded_name(key);
        if key.trim().is_empty() || coded.len() > MAX_NAME_BYTES {
            return Err(fail(
                Exit::Usage,
                format!("a session key has 1 to {} bytes", MAX_NAME_BYTES * 3 / 4 - 5),
            ));
        }
        let safe = (!key.contains(char::is_control)).then(|| format!("{}.jsonl", safe_name(key)));
        if let Some(newer) = &self.newer_dir {
            let path = newer.join(&coded);
            if path.exists() {
                return Ok((path, true));
            }
            let stray = self.find_unmigrated(key, &coded, safe.as_deref())?;
            let exists = stray.is_some();
            return Ok((stray.unwrap_or(path), exists));
        }
        let coded = self.dir.join(coded);
        let Some(safe) = safe else {
            return require_unclaimed(coded, key);
        };
        let path = self.dir.join(&safe);
        match is_owned_by(&path, key)? {
            Some(true) => return Ok((path, true)),
            Some(false) => return require_unclaimed(coded, key),
            None => {}
        }
        if is_owned_by(&coded, key)? == Some(true) {
            return Ok((coded, true));
        }
        let old = self.legacy_dir.join(&safe);
        Ok(match is_owned_by(&old, key)? {
            Some(true) => (old, true),
            _ => (path, false),
        })
    }

    /// Finds a file of `key` that belongs in the newer store: already there under its old name, or still in an old
    /// directory.
    fn find_unmigrated(
        &self,
        key: &str,
        coded: &str,
        safe: Option<&str>,
    ) -> Result<Option<PathBuf>> {
        let named = self
            .newer_dir
            .iter()
            .chain([&self.dir, &self.legacy_dir])
            .filter_map(|dir| Some(dir.join(safe?)));
        for path in named.chain([self.dir.join(coded)]) {
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

    /// Moves the file of `key` to `home`, its path in the newer store, where the newer release looks for it. The caller
    /// holds the lock of `home`.
    pub(super) fn migrate(&self, key: &str, home: &Path) -> Result<()> {
        if self.newer_dir.is_none() {
            return Ok(());
        }
        let found = self.find_path(key)?;
        if found == home || !found.exists() {
            return Ok(());
        }
        refuse_newer(is_newer(&found)?, &found)?;
        if durable_file::rename_noreplace(&found, home)? {
            return Ok(());
        }
        // A move across file systems. The old copy is ignored once the new one exists.
        let text = durable_file::read(&found)?.unwrap_or_default();
        durable_file::replace(home, &text)
    }

    /// The path to which a turn writes the session `key`, and true if that file exists and belongs to `key`.
    pub(super) fn path_for(&self, key: &str) -> Result<(PathBuf, bool)> {
        let (found, exists) = self.locate(key)?;
        let Some(newer) = &self.newer_dir else {
            return Ok((found, exists));
        };
        let home = newer.join(encoded_name(key));
        let exists = exists && home == found;
        Ok((home, exists))
    }

    /// The path of the session file `from` after a rename to `new`: in the same directory, in that directory's name
    /// form.
    ///
    /// # Errors
    /// Status 2 if the session `new` exists, or if no file name can be made from the key.
    pub(super) fn path_after_rename(&self, from: &Path, new: &str) -> Result<PathBuf> {
        let home = self.find_path(new)?;
        if home.exists() {
            return Err(already_exists_error(new));
        }
        let dir = from.parent().unwrap_or(Path::new("."));
        if dir != self.legacy_dir {
            return Ok(dir.join(home.file_name().unwrap_or_default()));
        }
        // In the old directory only names of the older form are found, and only if the workspace has no such file.
        let old = dir.join(format!("{}.jsonl", safe_name(new)));
        let is_found = match &self.newer_dir {
            Some(_) => !new.contains(char::is_control),
            None => home.file_name() == old.file_name(),
        };
        Ok(if is_found && !old.exists() { old } else { home })
    }

    /// The directory of new sessions.
    pub(super) fn new_session_dir(&self) -> &Path {
        self.newer_dir.as_deref().unwrap_or(&self.dir)
    }

    /// All files that hold the session `key`: the one in use, and those that would be used if it were removed.
    pub(super) fn find_copies(&self, key: &str) -> Result<Vec<PathBuf>> {
        let used = self.find_path(key)?;
        let safe = format!("{}.jsonl", safe_name(key));
        let mut copies = Vec::new();
        for path in self.directories().map(|dir| dir.join(&safe)) {
            if path != used && is_owned_by(&path, key)? == Some(true) {
                copies.push(path);
            }
        }
        copies.push(used);
        Ok(copies)
    }

    /// The directories that may hold sessions, in lookup order.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        [self.newer_dir.as_deref(), Some(self.dir.as_path()), Some(self.legacy_dir.as_path())]
            .into_iter()
            .flatten()
    }
}

/// The file name of `key` in release 0.1.4.
pub(super) fn safe_name(key: &str) -> String {
    key.replace([':', '<', '>', '"', '/', '\\', '|', '?', '*'], "_").trim().to_owned()
}

/// The file name of `key` in releases from 0.3.0 on.
pub(super) fn encoded_name(key: &str) -> String {
    let coded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(key);
    format!("{coded}.jsonl")
}

/// Returns `path` and true if it exists, unless it belongs to another key whose plain name equals the coded name of
/// this one.
fn require_unclaimed(path: PathBuf, key: &str) -> Result<(PathBuf, bool)> {
    match read_key(&path)?.filter(|found| found != key) {
        None => {
            let exists = path.exists();
            Ok((path, exists))
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
    Ok(first.map(|first| line::parse_key(&first).is_none_or(|found| found == key)))
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

/// The key of a file that names none, derived from its name as the Python program does.
pub(super) fn key_from_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.replacen('_', ":", 1)
}

/// Creates the error for a key that is already in use.
pub(super) fn already_exists_error(key: &str) -> anyhow::Error {
    let cause = format!("session `{key}` already exists");
    fail_with_hint(Exit::Usage, cause, "another key, or `nanobot session remove`")
}

/// The directory beside the config file in which newer releases store this workspace's sessions. Its `.workspace` file
/// must name this workspace.
///
/// # Errors
/// Fails if an existing record cannot be read: using another store instead would split the session in two.
fn find_newer_store(workspace: &Path, paths: &Paths) -> Result<Option<PathBuf>> {
    let text = |path: &Path| -> Result<Option<String>> {
        let bytes = durable_file::read(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    };
    let valid = |id: &String| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = text(&workspace.join(".nanobot/workspace-id"))?.filter(valid);
    let (Some(id), Some(dir)) = (id, paths.config.parent()) else {
        return Ok(None);
    };
    let store = dir.join("sessions").join(id);
    let Some(named) = text(&store.join(".workspace"))? else {
        return Ok(None);
    };
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let same = real(Path::new(&named)).is_some_and(|named| Some(named) == real(workspace));
    Ok(same.then_some(store))
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
        let check = |key: &str, expect: &str| assert_eq!(safe_name(key), expect);
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
        let home_of = || test_store(home.path()).path_for("a:b").unwrap().0;
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
