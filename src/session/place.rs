//! Paths of session files, chosen so that this program and every release of the Python program find each other's files.

use super::integrity::{is_newer, refuse_newer};
use super::line::{self, Line};
use super::tail;
use crate::error::{Exit, fail, fail_hint};
use crate::sys::clock::Clock;
use crate::sys::paths::Paths;
use crate::sys::store;
use anyhow::{Context, Result};
use base64::Engine;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// When a turn is synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Once per turn, before the end of the answer is printed.
    #[default]
    Turn,
    /// Never explicitly; the operating system decides.
    None,
}

/// Longest file name in bytes, with room for the suffixes of side files.
const NAME_LIMIT: usize = 200;

/// Storage settings for sessions: directories, sync mode and limits.
#[derive(Clone, Debug)]
pub struct Place {
    /// `<workspace>/sessions`.
    pub(super) dir: PathBuf,
    /// The directory of releases up to 0.1.3.post7.
    old: PathBuf,
    /// The store of releases from 0.3.1 on, if this workspace has one.
    newer: Option<PathBuf>,
    pub(super) sync: Sync,
    /// Maximum number of messages that are sent again.
    pub(super) window: usize,
    /// Maximum characters of a stored tool result.
    pub(super) result_limit: usize,
    pub(super) clock: Clock,
}

impl Place {
    /// Locates the session directories of `workspace`.
    ///
    /// # Errors
    /// Fails if the record of a newer store exists but cannot be read.
    pub fn new(
        workspace: &Path,
        paths: &Paths,
        sync: Sync,
        window: usize,
        result_limit: usize,
        clock: &Clock,
    ) -> Result<Self> {
        Ok(Self {
            dir: workspace.join("sessions"),
            old: paths.old_sessions(),
            newer: newer_store(workspace, paths)?,
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
    pub(super) fn find(&self, key: &str) -> Result<PathBuf> {
        let coded = coded_name(key);
        if key.trim().is_empty() || coded.len() > NAME_LIMIT {
            return Err(fail(
                Exit::Usage,
                format!("a session key has 1 to {} bytes", NAME_LIMIT * 3 / 4 - 5),
            ));
        }
        let safe = (!key.contains(char::is_control)).then(|| format!("{}.jsonl", safe_name(key)));
        if let Some(newer) = &self.newer {
            let path = newer.join(&coded);
            let stray = match path.exists() {
                true => None,
                false => self.stray(key, &coded, safe.as_deref())?,
            };
            return Ok(stray.unwrap_or(path));
        }
        let coded = self.dir.join(coded);
        let Some(safe) = safe else {
            return free(coded, key);
        };
        let path = self.dir.join(&safe);
        if path.exists() {
            return match is_of(&path, key)? {
                true => Ok(path),
                false => free(coded, key),
            };
        }
        if coded.exists() && is_of(&coded, key)? {
            return Ok(coded);
        }
        let old = self.old.join(&safe);
        Ok(if old.exists() && is_of(&old, key)? {
            old
        } else {
            path
        })
    }

    /// Finds a file of `key` that belongs in the newer store: already there under its old name, or still in an old
    /// directory.
    fn stray(&self, key: &str, coded: &str, safe: Option<&str>) -> Result<Option<PathBuf>> {
        let named = self
            .newer
            .iter()
            .chain([&self.dir, &self.old])
            .filter_map(|dir| Some(dir.join(safe?)));
        for path in named.chain([self.dir.join(coded)]) {
            if path.exists() && is_of(&path, key)? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Moves the file of `key` to `home`, its path in the newer store, where the newer release looks for it. The caller
    /// holds the lock of `home`.
    pub(super) fn adopt(&self, key: &str, home: &Path) -> Result<()> {
        if self.newer.is_none() {
            return Ok(());
        }
        let found = self.find(key)?;
        if found == home || !found.exists() {
            return Ok(());
        }
        refuse_newer(is_newer(&found)?, &found)?;
        if store::rename_new(&found, home)? {
            return Ok(());
        }
        // A move across file systems. The old copy is ignored once the new one exists.
        let text = store::read(&found)?.unwrap_or_default();
        store::replace(home, &text)
    }

    /// The path to which a turn writes the session `key`, and true if that file exists and belongs to `key`.
    pub(super) fn home_of(&self, key: &str) -> Result<(PathBuf, bool)> {
        let found = self.find(key)?;
        let home = match &self.newer {
            Some(newer) => newer.join(coded_name(key)),
            None => found.clone(),
        };
        let exists = home == found && home.exists();
        Ok((home, exists))
    }

    /// The path of the session file `from` after a rename to `new`: in the same directory, in that directory's name
    /// form.
    ///
    /// # Errors
    /// Status 2 if the session `new` exists, or if no file name can be made from the key.
    pub(super) fn renamed(&self, from: &Path, new: &str) -> Result<PathBuf> {
        let home = self.find(new)?;
        if home.exists() {
            return Err(already_exists(new));
        }
        let dir = from.parent().unwrap_or(Path::new("."));
        if dir != self.old {
            return Ok(dir.join(home.file_name().unwrap_or_default()));
        }
        // In the old directory only names of the older form are found, and only if the workspace has no such file.
        let old = dir.join(format!("{}.jsonl", safe_name(new)));
        let is_found = match &self.newer {
            Some(_) => !new.contains(char::is_control),
            None => home.file_name() == old.file_name(),
        };
        Ok(if is_found && !old.exists() { old } else { home })
    }

    /// The directory of new sessions.
    pub(super) fn home(&self) -> &Path {
        self.newer.as_deref().unwrap_or(&self.dir)
    }

    /// All files that hold the session `key`: the one in use, and those that would be used if it were removed.
    pub(super) fn copies(&self, key: &str) -> Result<Vec<PathBuf>> {
        let used = self.find(key)?;
        let safe = format!("{}.jsonl", safe_name(key));
        let mut copies = Vec::new();
        for path in self.directories().map(|dir| dir.join(&safe)) {
            if path != used && path.exists() && is_of(&path, key)? {
                copies.push(path);
            }
        }
        copies.push(used);
        Ok(copies)
    }

    /// The directories that may hold sessions, in lookup order.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        [
            self.newer.as_deref(),
            Some(self.dir.as_path()),
            Some(self.old.as_path()),
        ]
        .into_iter()
        .flatten()
    }
}

/// The file name of `key` in release 0.1.4.
pub(super) fn safe_name(key: &str) -> String {
    key.replace([':', '<', '>', '"', '/', '\\', '|', '?', '*'], "_")
        .trim()
        .to_owned()
}

/// The file name of `key` in releases from 0.3.0 on.
pub(super) fn coded_name(key: &str) -> String {
    let coded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(key);
    format!("{coded}.jsonl")
}

/// Returns `path`, unless it belongs to another key whose plain name equals the coded name of this one.
fn free(path: PathBuf, key: &str) -> Result<PathBuf> {
    match key_in(&path)?.filter(|found| found != key) {
        None => Ok(path),
        Some(other) => Err(fail(
            Exit::Usage,
            format!("session `{key}` would use the file of session `{other}`; choose another key"),
        )),
    }
}

/// True if the file at `path` belongs to `key`: its first line names that key, or none.
fn is_of(path: &Path, key: &str) -> Result<bool> {
    Ok(key_in(path)?.is_none_or(|found| found == key))
}

/// The key in the first line of the file at `path`.
pub(super) fn key_in(path: &Path) -> Result<Option<String>> {
    let Some(file) = store::open_existing(path)? else {
        return Ok(None);
    };
    let mut first = Vec::new();
    tail::next_line(&mut BufReader::with_capacity(4096, file), &mut first)
        .with_context(|| format!("read `{}`", path.display()))?;
    Ok(match line::parse(&first) {
        Line::Metadata(metadata) => metadata.key,
        _ => None,
    })
}

/// The key of a file that names none, derived from its name as the Python program does.
pub(super) fn key_from_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.replacen('_', ":", 1)
}

/// Creates the error for a key that is already in use.
pub(super) fn already_exists(key: &str) -> anyhow::Error {
    let cause = format!("session `{key}` already exists");
    fail_hint(Exit::Usage, cause, "another key, or `nanobot session rm`")
}

/// The directory beside the config file in which newer releases store this workspace's sessions. Its `.workspace` file
/// must name this workspace.
///
/// # Errors
/// Fails if an existing record cannot be read: using another store instead would split the session in two.
fn newer_store(workspace: &Path, paths: &Paths) -> Result<Option<PathBuf>> {
    let text = |path: &Path| -> Result<Option<String>> {
        let bytes = store::read(path)?;
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
    use super::{Place, Sync, safe_name};
    use crate::sys::clock::Clock;
    use crate::sys::env::Env;
    use crate::sys::paths::Paths;
    use std::path::Path;

    fn place(home: &Path) -> Place {
        let env: Env = [("HOME", home.to_str().unwrap())].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        Place::new(
            &home.join(".nanobot/workspace"),
            &paths,
            Sync::None,
            100,
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
    fn names_as_the_python_program_makes_them() {
        let check = |key: &str, expect: &str| assert_eq!(safe_name(key), expect);
        check("cli:direct", "cli_direct");
        check("slack:C1:173.4", "slack_C1_173.4");
        check("a<b>c\"d/e\\f|g?h*i", "a_b_c_d_e_f_g_h_i");
        check(" x ", "x");
    }

    #[test]
    fn the_look_up_order() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join(".nanobot");
        let check = |key: &str, expect: &str| {
            assert_eq!(
                place(home.path()).find(key).unwrap(),
                root.join(expect),
                "{key}"
            );
        };
        check("a:b", "workspace/sessions/a_b.jsonl");
        write(
            &root.join("sessions/a_b.jsonl"),
            "{\"_type\": \"metadata\"}\n",
        );
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
        write(
            &store.join(".workspace"),
            root.join("workspace").to_str().unwrap(),
        );
        write(
            &store.join("a_b.jsonl"),
            "{\"_type\": \"metadata\", \"key\": \"a:b\"}\n",
        );
        check("a:b", &format!("sessions/{id}/a_b.jsonl"));
        let home_of = || place(home.path()).home_of("a:b").unwrap().0;
        let coded = store.join("YTpi.jsonl");
        assert_eq!(home_of(), coded);
        place(home.path()).adopt("a:b", &home_of()).unwrap();
        assert!(coded.exists() && !store.join("a_b.jsonl").exists());
        check("a:b", &format!("sessions/{id}/YTpi.jsonl"));
        // A file left in the workspace is also found, as long as there is no other.
        std::fs::remove_file(&coded).unwrap();
        check("a:b", "workspace/sessions/a_b.jsonl");
        place(home.path()).adopt("a:b", &home_of()).unwrap();
        assert!(coded.exists() && !root.join("workspace/sessions/a_b.jsonl").exists());
        for bad in ["", " ", &"x".repeat(200)] {
            assert!(place(home.path()).find(bad).is_err());
        }
    }
}
