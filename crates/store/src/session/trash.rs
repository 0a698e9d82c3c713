//! Deletion of sessions, by hand and by age. They are moved to a trash directory beside the sessions, under names that no release
//! reads as a session, and can be restored for a while. Temporary sessions are removed at once.

use super::files::{list_logs, not_found_error};
use super::integrity::{is_newer, list_side_files, side_files};
use super::layout::{SessionStore, encoded_name, key_from_name, read_key};
use super::list::{SessionSummary, summarize};
use super::lock::try_lock;
use crate::embedding_index;
use anyhow::{Context, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint as _, exit_for, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::age::{Age, is_older};
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use nanobot_os::signal;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The trash directory beside the sessions.
const TRASH_DIR: &str = ".trash";
/// The suffix of the files in it.
const TRASH_SUFFIX: &str = ".gone";

/// A session in the trash.
#[derive(Clone, Debug)]
pub struct TrashedSession {
    pub key: String,
    pub path: PathBuf,
    /// The time of deletion: the digits of a local time.
    pub deleted_at: String,
    /// Its original file name.
    original_name: String,
}

/// Moves a session and its side files to the trash.
///
/// # Errors
/// Status 66 if there is no such session, 75 if it is in use.
pub fn move_to_trash(store: &SessionStore, key: &str) -> Result<()> {
    let mut batch = TrashBatch::new(store);
    batch.add(key, &|_| true)?;
    batch.sync()
}

/// Moves a session whose file has more than `max_bytes` bytes to the trash. Returns true if it was moved.
///
/// # Errors
/// The errors of [`move_to_trash`].
pub fn move_to_trash_if_larger(store: &SessionStore, key: &str, max_bytes: u64) -> Result<bool> {
    let path = store.find_path(key)?;
    let size = path.symlink_metadata().map_or(0, |metadata| metadata.len());
    if size <= max_bytes {
        return Ok(false);
    }
    move_to_trash(store, key)?;
    Ok(true)
}

/// Moves many sessions to the trash: each directory is listed once, and synced once at the end.
pub struct TrashBatch<'s> {
    store: &'s SessionStore,
    /// The side files of each directory that was listed.
    side_files: BTreeMap<PathBuf, BTreeMap<String, Vec<PathBuf>>>,
}

impl<'s> TrashBatch<'s> {
    pub fn new(store: &'s SessionStore) -> Self {
        Self { store, side_files: BTreeMap::new() }
    }

    /// Moves a session, if `confirm` agrees once the lock is held. Returns true if it was moved.
    ///
    /// # Errors
    /// The errors of [`move_to_trash`].
    pub fn add(&mut self, key: &str, confirm: &dyn Fn(&SessionSummary) -> bool) -> Result<bool> {
        let store = self.store;
        let path = store.find_path(key)?;
        durable_file::open_existing(&path)?.ok_or_else(|| not_found_error(store, key))?;
        let lock = try_lock(store, key, &path)?;
        if !confirm(&summarize(store, key)?) {
            return Ok(false);
        }
        let deleted_at = digits(&store.clock.local_timestamp());
        // A copy in another release's directory would reappear as this session.
        for copy in store.find_copies(key)? {
            self.move_files(&copy, &deleted_at)?;
        }
        lock.remove()?;
        Ok(true)
    }

    /// Syncs the directories. Before that, a crash can undo the moves.
    ///
    /// # Errors
    /// A directory cannot be synced.
    pub fn sync(self) -> Result<()> {
        if !self.side_files.is_empty() {
            remove_index(self.store)?;
        }
        for dir in self.side_files.keys() {
            durable_file::sync_dir(&dir.join(TRASH_DIR))?;
            durable_file::sync_dir(dir)?;
        }
        Ok(())
    }

    /// Moves a session's file and side files to the trash beside it.
    fn move_files(&mut self, path: &Path, deleted_at: &str) -> Result<()> {
        let trash = path.with_file_name(TRASH_DIR);
        durable_file::create_dir(&trash)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let trash_path =
            |deleted_at: &str, name: &str| trash.join(format!("{deleted_at}-{name}{TRASH_SUFFIX}"));
        let mut deleted_at = deleted_at.to_owned();
        // The same name was deleted at the same moment. No race: this process holds the lock of that name.
        while trash_path(&deleted_at, &name).exists() {
            let next = deleted_at.parse::<u128>().unwrap_or_default() + 1;
            deleted_at = next.to_string();
        }
        for side_file in self.take_side_files(path)? {
            let name = side_file.file_name().unwrap_or_default().to_string_lossy();
            move_file(&side_file, &trash_path(&deleted_at, &name))?;
        }
        move_file(path, &trash_path(&deleted_at, &name))
    }

    fn take_side_files(&mut self, path: &Path) -> Result<Vec<PathBuf>> {
        let dir = path.parent().unwrap_or(Path::new("."));
        if !self.side_files.contains_key(dir) {
            self.side_files.insert(dir.to_owned(), list_side_files(dir)?);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let side_files = self.side_files.get_mut(dir);
        Ok(side_files.and_then(|side_files| side_files.remove(&*name)).unwrap_or_default())
    }
}

/// Moves the sessions that were not changed for longer than `age` to the trash, apart from temporary ones, those in use, and those that a
/// newer release wrote. Returns their number.
///
/// # Errors
/// The run is to end, or a session cannot be moved; the others are.
pub fn trash_old_sessions(store: &SessionStore, age: Age) -> Result<usize> {
    let Some(limit) = age.limit(store.clock.timestamp().into()) else {
        return Ok(0);
    };
    let mut batch = TrashBatch::new(store);
    let (mut count, mut failure) = (0, None);
    let paths: Vec<PathBuf> =
        store.directories().map(list_logs).collect::<Result<Vec<_>>>()?.concat();
    for path in paths.iter().filter(|path| is_old_file(path, limit)) {
        if let Err(stop) = signal::check() {
            failure = Some(stop.into());
            break;
        }
        match trash_old_session(&mut batch, path, limit) {
            Ok(is_moved) => count += usize::from(is_moved),
            Err(error) if [Exit::TryAgain, Exit::NoInput].contains(&exit_for(&error)) => {}
            Err(error) => drop(failure.get_or_insert(error)),
        }
    }
    // Sessions that were moved before an error are synced too.
    batch.sync()?;
    failure.map_or(Ok(count), Err)
}

/// Moves the session in the file `path` to the trash, if it is still as old once its lock is held.
fn trash_old_session(batch: &mut TrashBatch<'_>, path: &Path, limit: SystemTime) -> Result<bool> {
    let key = read_key(path)?.unwrap_or_else(|| key_from_name(path));
    // A copy in the directory of another release goes with the file in use.
    if is_temporary(&key) || batch.store.find_path(&key)? != path {
        return Ok(false);
    }
    batch.add(&key, &|session| {
        is_old_file(path, limit) && SystemTime::from(session.last_used) < limit && !session.is_newer
    })
}

/// True if `path` is a regular file that was last changed before `limit`.
fn is_old_file(path: &Path, limit: SystemTime) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) && is_older(path, limit)
}

/// Deletes a session permanently, including its copies in the trash.
///
/// # Errors
/// Status 66 if there is no such session, 75 if it is in use.
pub fn remove(store: &SessionStore, key: &str) -> Result<()> {
    begin_removal(store, key)?.finish()
}

/// Takes the lock of a session that is to be deleted permanently.
///
/// # Errors
/// The errors of [`remove`].
pub fn begin_removal<'s>(store: &'s SessionStore, key: &str) -> Result<SessionRemoval<'s>> {
    let path = store.find_path(key)?;
    let lock = if path.exists() {
        Some(try_lock(store, key, &path)?)
    } else if list_trash(store)?.iter().any(|trashed| trashed.key == key) {
        None
    } else {
        return Err(not_found_error(store, key));
    };
    Ok(SessionRemoval { store, key: key.to_owned(), lock })
}

/// A session that no turn can use, because it is about to be deleted.
#[derive(Debug)]
pub struct SessionRemoval<'s> {
    store: &'s SessionStore,
    key: String,
    /// `None` if it is in the trash only.
    lock: Option<FileLock>,
}

impl SessionRemoval<'_> {
    /// Deletes the session, including its copies in the trash.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn finish(self) -> Result<()> {
        let Self { store, key, lock } = self;
        remove_index(store)?;
        if let Some(lock) = lock {
            for copy in store.find_copies(&key)? {
                remove_files(&copy)?;
            }
            lock.remove()?;
        }
        for trashed in list_trash(store)?.iter().filter(|trashed| trashed.key == key) {
            for (path, _) in trashed.files()? {
                durable_file::remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Removes the index of a search by meaning: it has the texts of sessions, in whatever directory they are.
fn remove_index(store: &SessionStore) -> Result<()> {
    durable_file::remove(&store.directory().join(embedding_index::FILE_NAME)).map(drop)
}

/// Lists the trash, newest first.
pub fn list_trash(store: &SessionStore) -> Result<Vec<TrashedSession>> {
    let mut sessions = Vec::new();
    for dir in store.directories() {
        for TrashFile { path, deleted_at, original_name } in list_trash_files(&dir.join(TRASH_DIR))?
        {
            if original_name.ends_with(".jsonl") {
                let key = read_key(&path)?;
                let key = key.unwrap_or_else(|| key_from_name(Path::new(&original_name)));
                sessions.push(TrashedSession { key, path, deleted_at, original_name });
            }
        }
    }
    sessions.sort_by(|one, other| other.deleted_at.cmp(&one.deleted_at));
    Ok(sessions)
}

/// Restores the most recently deleted session `key`.
///
/// # Errors
/// Status 66 if the trash has none, 2 if another session has that key now.
pub fn restore(store: &SessionStore, key: &str) -> Result<()> {
    let Some(trashed) = list_trash(store)?.into_iter().find(|trashed| trashed.key == key) else {
        let cause = format!("there is no session `{key}` in the trash");
        return Err(fail(Exit::NoInput, cause).with_hint("nanobot session restore"));
    };
    let dir = trashed.path.parent().and_then(Path::parent);
    let dir = dir.context("the trash path has no parent directory")?;
    let mut path = dir.join(&trashed.original_name);
    if path.exists() {
        // Another key that maps to the same file name uses it now.
        path = dir.join(encoded_name(key));
    }
    let require_unused = || {
        if store.find_path(key)?.exists() {
            return Err(fail(Exit::Usage, format!("session `{key}` already exists"))
                .with_hint(format!("nanobot session rename {} NEW", quote(key))));
        }
        Ok(())
    };
    require_unused()?;
    let lock = try_lock(store, key, &path)?;
    // Check again under the lock: another process may have created the session meanwhile.
    require_unused()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for (trash_path, suffix) in trashed.files()? {
        move_file(&trash_path, &dir.join(format!("{name}{suffix}")))?;
    }
    durable_file::sync_dir(&dir.join(TRASH_DIR))?;
    durable_file::sync_dir(dir)?;
    // Its age counts from now on: it would be removed again.
    let now = store.clock.timestamp();
    File::open(&path)
        .and_then(|file| file.set_modified(now.into()))
        .with_context(|| format!("set the time of `{}`", path.display()))?;
    drop(lock);
    Ok(())
}

/// Removes files that have been in the trash for longer than `age`. Returns their number.
pub fn remove_expired_trash(store: &SessionStore, age: Age) -> Result<usize> {
    let now = store.clock.now();
    let limit = age.limit(now.timestamp().into()).and_then(|limit| Timestamp::try_from(limit).ok());
    let Some(limit) = limit else {
        return Ok(0);
    };
    let limit = limit.to_zoned(now.time_zone().clone()).strftime("%Y%m%d%H%M%S%6f").to_string();
    let mut count = 0;
    for dir in store.directories() {
        for TrashFile { path, deleted_at, .. } in list_trash_files(&dir.join(TRASH_DIR))? {
            if deleted_at < limit {
                count += usize::from(durable_file::remove(&path)?);
            }
        }
    }
    Ok(count)
}

/// Moves a file to the trash or back. The directories are not synced.
///
/// # Errors
/// Also if the trash is on another file system.
fn move_file(from: &Path, to: &Path) -> Result<()> {
    if !durable_file::rename_noreplace_unsynced(from, to)? {
        let error = std::io::Error::from(ErrorKind::CrossesDevices);
        return Err(error).with_context(|| format!("move `{}`", from.display()));
    }
    Ok(())
}

impl TrashedSession {
    /// The session's file and side files, each with the suffix that its name adds to the session's file name.
    fn files(&self) -> Result<Vec<(PathBuf, String)>> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let mut files = vec![(self.path.clone(), String::new())];
        for file in list_trash_files(dir)? {
            if let Some(suffix) = file.original_name.strip_prefix(&self.original_name)
                && file.deleted_at == self.deleted_at
                && !suffix.is_empty()
            {
                files.push((file.path, suffix.to_owned()));
            }
        }
        Ok(files)
    }
}

/// A file in a trash directory.
struct TrashFile {
    path: PathBuf,
    /// The digits of a local time.
    deleted_at: String,
    original_name: String,
}

fn list_trash_files(trash: &Path) -> Result<Vec<TrashFile>> {
    let entries = durable_file::list_dir(trash)?;
    let parse = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(TRASH_SUFFIX)?.to_owned();
        let (deleted_at, original_name) = name.split_once('-')?;
        let is_time = deleted_at.bytes().all(|byte| byte.is_ascii_digit());
        is_time.then(|| TrashFile {
            path: path.clone(),
            deleted_at: deleted_at.to_owned(),
            original_name: original_name.to_owned(),
        })
    };
    Ok(entries.iter().filter_map(|entry| parse(entry.path())).collect())
}

fn remove_files(path: &Path) -> Result<()> {
    for path in side_files(path)?.into_iter().chain([path.to_owned()]) {
        std::fs::remove_file(&path).with_context(|| format!("remove `{}`", path.display()))?;
    }
    Ok(())
}

/// The digits of a time.
fn digits(time: &str) -> String {
    time.chars().filter(char::is_ascii_digit).collect()
}

/// Begins the keys of sessions that only one run with piped input uses.
pub const FILTER_PREFIX: &str = "pipe:";
/// Begins the keys of conversations that the user has gone back in: all of it, as it was before.
pub const REWOUND_PREFIX: &str = "rewind:";

/// The ages at which temporary sessions are removed.
#[derive(Clone, Copy, Debug)]
pub struct TemporaryAges {
    /// Of those with [`FILTER_PREFIX`].
    pub filter: Age,
    /// Of those with [`REWOUND_PREFIX`].
    pub rewound: Age,
}

/// Maximum number of temporary sessions that a turn removes of each kind, so that it is not slowed down noticeably.
pub const MAX_PRUNED_SESSIONS: usize = 8;

/// True for a session that lists leave out, and that [`prune_temporary_sessions`] removes after a while.
pub fn is_temporary(key: &str) -> bool {
    [FILTER_PREFIX, REWOUND_PREFIX].iter().any(|prefix| key.starts_with(prefix))
}

/// Removes old sessions of piped input, and of conversations that were gone back in, at most `max_count` of each. A session that is in use or cannot be removed is
/// left alone.
///
/// # Errors
/// The directory of the sessions cannot be read.
pub fn prune_temporary_sessions(
    store: &SessionStore,
    ages: TemporaryAges,
    max_count: usize,
) -> Result<()> {
    let paths = list_logs(store.new_session_dir())?;
    let now = SystemTime::from(store.clock.timestamp());
    for (prefix, age) in [(FILTER_PREFIX, ages.filter), (REWOUND_PREFIX, ages.rewound)] {
        let Some(limit) = age.limit(now) else {
            continue;
        };
        let is_old = |path: &Path| is_old_file(path, limit);
        // The name is only a hint: a user's own key may look like it.
        let has_key = |path: &Path| {
            read_key(path).is_ok_and(|key| key.is_some_and(|key| key.starts_with(prefix)))
        };
        for path in paths
            .iter()
            .filter(|path| may_have_prefix(path, prefix))
            .filter(|path| is_old(path) && has_key(path))
            .filter(|path| is_newer(path).is_ok_and(|is_newer| !is_newer))
            .take(max_count)
        {
            if let Ok(lock) = try_lock(store, "", path)
                && is_old(path)
                && remove_files(path).is_ok()
            {
                drop(lock.remove());
            }
        }
    }
    Ok(())
}

/// True if a key with this prefix may have the file `path`, in the name form of any release.
fn may_have_prefix(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The last character of the base64 form depends on what follows.
    let encoded = encoded_name(prefix);
    name.starts_with(&prefix.replace(':', "_"))
        || name.starts_with(&encoded[..prefix.len() * 8 / 6])
}

#[cfg(test)]
mod tests {
    use super::{FILTER_PREFIX, REWOUND_PREFIX, may_have_prefix, move_file};
    use crate::session::layout::encoded_name;
    use nanobot_base::error::{Exit, exit_for};
    use std::path::Path;

    #[test]
    fn names_of_temporary_sessions_are_recognised() {
        for prefix in [FILTER_PREFIX, REWOUND_PREFIX] {
            for rest in ["a", "3fa2", "cli:direct-1", "ü"] {
                let name = encoded_name(&format!("{prefix}{rest}"));
                assert!(may_have_prefix(Path::new(&name), prefix), "{name}");
            }
            assert!(!may_have_prefix(Path::new(&encoded_name("cli:direct")), prefix));
        }
        assert!(may_have_prefix(Path::new("a/pipe_1.jsonl"), FILTER_PREFIX));
        assert!(!may_have_prefix(Path::new("pipe_1.jsonl"), REWOUND_PREFIX));
    }
    #[test]
    fn a_trash_on_another_file_system_is_an_error() {
        let (dir, trash) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let (path, trash_path) = (dir.path().join("a.jsonl"), trash.path().join("a.gone"));
        std::fs::write(&path, "a").unwrap();
        let error = move_file(&path, &trash_path).unwrap_err();
        assert_eq!(exit_for(&error), Exit::Io, "{error:#}");
        assert!(path.exists() && !trash_path.exists());
    }
}
