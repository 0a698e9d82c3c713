//! Private temporary directories: one per run of the program for its commands, and one for each server, whose files
//! commands must not change. They are accessible to their owner only, and are removed when the run ends.
//!
//! A lock (`flock`) on a directory shows that its run is alive. A later run removes what a killed run left, at the
//! earliest 60 s afterwards.

use crate::sys::secret::random_hex;
use crate::sys::sync::IgnorePoison;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The prefix of the names, by which leftovers are recognised.
const PREFIX: &str = "nanobot-run-";
/// The minimum age at which an unlocked directory counts as a leftover. A younger one may have just been created and
/// not locked yet.
const MIN_STALE_AGE: Duration = Duration::from_secs(60);

struct PrivateDir {
    path: PathBuf,
    /// The open descriptor that holds the lock.
    _lock: File,
}

static RUN_DIR: Mutex<Option<PrivateDir>> = Mutex::new(None);
static EXTRA_DIRS: Mutex<Vec<PrivateDir>> = Mutex::new(Vec::new());

fn lock_run_dir() -> MutexGuard<'static, Option<PrivateDir>> {
    RUN_DIR.lock().ignore_poison()
}

/// Candidate parents of private directories: `TMPDIR`, and the world-writable directories. Relative paths are left out.
pub fn candidate_parents(tmpdir: Option<&str>) -> Vec<PathBuf> {
    let all = tmpdir.into_iter().chain(["/tmp", "/var/tmp"]);
    all.map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .collect()
}

/// Returns the private directory of this run, creating it on first use in the first of `parents` that allows it.
///
/// # Errors
/// No place allows it: the error for the last one.
pub fn run_directory(parents: &[PathBuf]) -> io::Result<PathBuf> {
    let mut made = lock_run_dir();
    if let Some(made) = &*made {
        return Ok(made.path.clone());
    }
    create_in_first(parents).map(|new| made.insert(new).path.clone())
}

/// Creates one more directory, as [`run_directory`] does.
pub fn create_another(parents: &[PathBuf]) -> io::Result<PathBuf> {
    let new = create_in_first(parents)?;
    let path = new.path.clone();
    let mut further = EXTRA_DIRS.lock().ignore_poison();
    further.push(new);
    Ok(path)
}

fn create_in_first(parents: &[PathBuf]) -> io::Result<PrivateDir> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for place in parents {
        match create_in(place) {
            Ok(new) => return Ok(new),
            Err(error) => {
                last = io::Error::new(error.kind(), format!("`{}`: {error}", place.display()));
            }
        }
    }
    Err(last)
}

fn create_in(parent: &Path) -> io::Result<PrivateDir> {
    let place = std::fs::canonicalize(parent)?;
    remove_stale(&place);
    let path = place.join(format!("{PREFIX}{}", random_hex(8)));
    DirBuilder::new().mode(0o700).create(&path)?;
    let lock = open_dir(&path)?;
    // On a file system without locks, a later run cannot lock the directory either, and leaves it alone.
    let _: Result<_, _> = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
    Ok(PrivateDir { path, _lock: lock })
}

/// Removes the directories of this run. Called last in `main`.
pub fn remove_all() {
    let mut further = EXTRA_DIRS.lock().ignore_poison();
    for made in lock_run_dir().take().into_iter().chain(further.drain(..)) {
        remove(&made.path);
    }
}

fn remove_stale(parent: &Path) {
    let us = rustix::process::getuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
        {
            continue;
        }
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let age = metadata
            .modified()
            .ok()
            .and_then(|time| time.elapsed().ok());
        if !metadata.is_dir() || metadata.uid() != us || age.is_none_or(|age| age < MIN_STALE_AGE) {
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

/// Opens the directory itself, without following a symbolic link.
fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Removes a directory and what commands created in it. Some tools remove write permission from their own directories.
fn remove(path: &Path) {
    if std::fs::remove_dir_all(path).is_err() {
        make_removable(path);
        // Anything that still remains is left to the system's own cleanup.
        drop(std::fs::remove_dir_all(path));
    }
}

/// Restores our permission to remove what is in `path`. No other process works there any more.
fn make_removable(path: &Path) {
    drop(std::fs::set_permissions(
        path,
        Permissions::from_mode(0o700),
    ));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{create_another, make_removable, remove, remove_stale};
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
        let (old, new, other) = (
            dir("nanobot-run-1", 90),
            dir("nanobot-run-2", 0),
            dir("else", 90),
        );
        let locked = dir("nanobot-run-3", 90);
        let lock = File::open(&locked).unwrap();
        lock.lock().unwrap();
        remove_stale(temp.path());
        assert!(!old.exists());
        assert!(new.exists() && other.exists() && locked.exists());
    }

    #[test]
    fn extra_directories_are_distinct() {
        let temp = tempfile::tempdir().unwrap();
        let places = [temp.path().join("missing"), temp.path().to_owned()];
        let (one, two) = (
            create_another(&places).unwrap(),
            create_another(&places).unwrap(),
        );
        assert!(one != two && one.is_dir() && two.is_dir());
        assert!(create_another(&places[..1]).is_err());
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
