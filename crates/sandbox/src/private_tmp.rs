//! Private temporary directories: two for all commands of a run (their `$TMPDIR`, and their `/tmp`), one for
//! the outputs that the run stores, one for the copy in which a run works that proposes a patch, and two for each MCP server, so that
//! commands cannot change the files of a server. Only the owner can access them. They are removed when the run ends.
//!
//! A run holds a lock (`flock`) on each of its directories. A directory that is not locked and older than [`MIN_STALE_AGE`] was left by a killed
//! run; the next run removes it.

use nanobot_os::secret::random_hex;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The prefix of the names of all private directories.
const NAME_PREFIX: &str = "nanobot-run-";
/// The minimum age of an unlocked directory that is removed. A younger one may just have been created, and not be
/// locked yet.
const MIN_STALE_AGE: Duration = Duration::from_secs(60);

/// A private directory of this run.
struct PrivateDir {
    path: PathBuf,
    /// The open directory; closing it releases the lock.
    _lock: File,
}

/// The `$TMPDIR` of the commands of this run.
static RUN_DIR: Mutex<Option<PrivateDir>> = Mutex::new(None);
/// The directory that commands in namespaces of their own see at `/tmp`. It is not their `$TMPDIR`, which is at the same path
/// inside and outside, and contains no mounts.
static TMP_DIR: Mutex<Option<PrivateDir>> = Mutex::new(None);
/// The directory for the files of long outputs.
static OUTPUT_DIR: Mutex<Option<PrivateDir>> = Mutex::new(None);
/// The directory for the copy of the working directory.
static COPY_DIR: Mutex<Option<PrivateDir>> = Mutex::new(None);
/// The directories for MCP servers.
static SERVER_DIRS: Mutex<Vec<PrivateDir>> = Mutex::new(Vec::new());

/// Returns the directories in which a private directory may be created: `tmpdir`, which is the value of `TMPDIR`,
/// unless it is relative, and the world-writable directories.
pub fn candidate_parents(tmpdir: Option<&str>) -> Vec<PathBuf> {
    let paths = tmpdir.into_iter().chain(["/tmp", "/var/tmp"]);
    paths.map(PathBuf::from).filter(|path| path.is_absolute()).collect()
}

/// Returns the private directory for the commands of this run. The first call creates it, in the first of `parents` in
/// which that succeeds.
///
/// # Errors
/// The directory cannot be created in any of `parents`. The error is the one for the last of them.
pub fn run_directory(parents: &[PathBuf]) -> io::Result<PathBuf> {
    get_or_create(&RUN_DIR, parents)
}

/// Returns the private directory that commands of this run see at `/tmp`, like [`run_directory`].
///
/// # Errors
/// Like [`run_directory`].
pub fn tmp_directory(parents: &[PathBuf]) -> io::Result<PathBuf> {
    get_or_create(&TMP_DIR, parents)
}

/// Returns the private directory for the files of long outputs, like [`run_directory`]. Commands cannot access it.
///
/// # Errors
/// Like [`run_directory`].
pub(crate) fn output_directory(parents: &[PathBuf]) -> io::Result<PathBuf> {
    get_or_create(&OUTPUT_DIR, parents)
}

/// Returns the private directory for a copy of the working directory, like [`run_directory`]. Commands can access what a policy grants of
/// it.
///
/// # Errors
/// Like [`run_directory`].
pub fn copy_directory(parents: &[PathBuf]) -> io::Result<PathBuf> {
    get_or_create(&COPY_DIR, parents)
}

/// Returns the directory for the files of long outputs, if this run has any.
pub fn existing_output_directory() -> Option<PathBuf> {
    let dir = OUTPUT_DIR.lock();
    dir.as_ref().map(|dir| dir.path.clone())
}

/// Returns the private directories that this run has created so far.
pub fn existing_directories() -> Vec<PathBuf> {
    let server_dirs = SERVER_DIRS.lock();
    let mut paths: Vec<PathBuf> = server_dirs.iter().map(|dir| dir.path.clone()).collect();
    for slot in [&RUN_DIR, &TMP_DIR, &OUTPUT_DIR, &COPY_DIR] {
        paths.extend(slot.lock().as_ref().map(|dir| dir.path.clone()));
    }
    paths
}

/// True if the name of `path`, or of one of its parents, is that of a private directory of a run.
pub fn is_private(path: &Path) -> bool {
    path.iter().any(|part| part.as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes()))
}

fn get_or_create(slot: &Mutex<Option<PrivateDir>>, parents: &[PathBuf]) -> io::Result<PathBuf> {
    let mut slot = slot.lock();
    if let Some(dir) = &*slot {
        return Ok(dir.path.clone());
    }
    create_in_first(parents).map(|dir| slot.insert(dir).path.clone())
}

/// Creates a private directory for an MCP server.
///
/// # Errors
/// Like [`run_directory`].
pub fn create_server_directory(parents: &[PathBuf]) -> io::Result<PathBuf> {
    let dir = create_in_first(parents)?;
    let path = dir.path.clone();
    let mut server_dirs = SERVER_DIRS.lock();
    server_dirs.push(dir);
    Ok(path)
}

fn create_in_first(parents: &[PathBuf]) -> io::Result<PrivateDir> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for parent in parents {
        match create_in(parent) {
            Ok(dir) => return Ok(dir),
            Err(error) => {
                last_error =
                    io::Error::new(error.kind(), format!("`{}`: {error}", parent.display()));
            }
        }
    }
    Err(last_error)
}

fn create_in(parent: &Path) -> io::Result<PrivateDir> {
    let parent = std::fs::canonicalize(parent)?;
    remove_stale(&parent);
    let path = parent.join(format!("{NAME_PREFIX}{}", random_hex(8)));
    DirBuilder::new().mode(0o700).create(&path)?;
    let lock = open_dir(&path)?;
    // If the file system has no locks, a later run cannot lock the directory either, and does not remove it.
    let _: Result<_, _> = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
    Ok(PrivateDir { path, _lock: lock })
}

/// Removes the directories of this run. Called last in `main`.
pub fn remove_all() {
    let mut server_dirs = SERVER_DIRS.lock();
    let slots = [&RUN_DIR, &TMP_DIR, &OUTPUT_DIR, &COPY_DIR];
    let run_dirs = slots.map(|slot| slot.lock().take());
    for dir in run_dirs.into_iter().flatten().chain(server_dirs.drain(..)) {
        remove(&dir.path);
    }
}

/// Removes the directories in `parents` that killed runs of the same user left.
pub fn remove_left(parents: &[PathBuf]) {
    parents.iter().for_each(|parent| remove_stale(parent));
}

/// Removes the directories in `parent` that killed runs of the same user left.
fn remove_stale(parent: &Path) {
    let own_uid = rustix::process::getuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes()) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
        if !metadata.is_dir()
            || metadata.uid() != own_uid
            || age.is_none_or(|age| age < MIN_STALE_AGE)
        {
            continue;
        }
        let lock = open_dir(&entry.path());
        if lock.is_ok_and(|lock| {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        }) {
            remove(&entry.path());
        }
    }
}

/// Opens the directory `path`, which must not be a symbolic link.
fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Removes a directory with its contents, even if a command removed the write permission of a directory in it.
fn remove(path: &Path) {
    if std::fs::remove_dir_all(path).is_err() {
        make_removable(path);
        // Errors are ignored: the system cleans its temporary directories.
        drop(std::fs::remove_dir_all(path));
    }
}

/// Gives the owner all permissions for `path` and the directories in it. No other process uses them any more.
fn make_removable(path: &Path) {
    drop(std::fs::set_permissions(path, Permissions::from_mode(0o700)));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{create_server_directory, make_removable, remove, remove_stale};
    use std::fs::{File, FileTimes, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    #[test]
    fn stale_directories_are_removed_after_a_minute() {
        let temp = tempfile::tempdir().unwrap();
        let dir = |name: &str, seconds: u64| {
            let path = temp.path().join(name);
            std::fs::create_dir_all(path.join("inner")).unwrap();
            let time = SystemTime::now() - Duration::from_secs(seconds);
            let times = FileTimes::new().set_modified(time);
            File::open(&path).unwrap().set_times(times).unwrap();
            path
        };
        let (stale, new, unrelated) =
            (dir("nanobot-run-1", 90), dir("nanobot-run-2", 0), dir("unrelated", 90));
        let locked = dir("nanobot-run-3", 90);
        let lock = File::open(&locked).unwrap();
        lock.lock().unwrap();
        remove_stale(temp.path());
        assert!(!stale.exists());
        assert!(new.exists() && unrelated.exists() && locked.exists());
    }

    #[test]
    fn server_directories_are_distinct() {
        let temp = tempfile::tempdir().unwrap();
        let parents = [temp.path().join("missing"), temp.path().to_owned()];
        let (first, second) = (
            create_server_directory(&parents).unwrap(),
            create_server_directory(&parents).unwrap(),
        );
        assert!(first != second && first.is_dir() && second.is_dir());
        assert!(create_server_directory(&parents[..1]).is_err());
    }

    #[test]
    fn unwritable_directories_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("run");
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::set_permissions(path.join("a"), Permissions::from_mode(0o500)).unwrap();
        make_removable(&path);
        std::fs::set_permissions(path.join("a"), Permissions::from_mode(0o500)).unwrap();
        remove(&path);
        assert!(!path.exists());
    }
}
