//! A lock by which only one sandboxed command at a time may change a set of directories. It is on files of our own that no
//! command can open, not on the directories: a command could lock a directory that it may read.
//!
//! A background command takes it to start, and then leaves its snapshot and its locks of directories to the run: other runs
//! wait until all background commands have ended, and other commands of this run do not. While background commands run, the
//! snapshots of all of them are kept and restored from the newest to the oldest. A newer snapshot may contain changes of an older command,
//! and would restore them; the oldest one was taken when no command ran.

use crate::{PathSnapshot, SandboxSpec, UndoneChange};
use nanobot_base::error::Stop;
use nanobot_os::signal::{self, Deadline};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The interval at which a busy lock is tried again: a blocking wait could not be interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A lock held by a command that may change files and after which changes to [`SandboxSpec::protected`] are undone. Two
/// such commands at once would mistake each other's changes for the state to keep.
#[derive(Debug)]
pub(super) struct WriteLock {
    background: MutexGuard<'static, Vec<BackgroundWriter>>,
    /// The locks of the writable directories and their ancestors, against other processes.
    directory_locks: Vec<DirectoryLock>,
}

/// The background commands of this run that may write, oldest first. Locked while another such command runs or starts, so
/// that only one snapshot at a time is taken or restored.
static PROCESS_LOCK: Mutex<Vec<BackgroundWriter>> = Mutex::new(Vec::new());

/// The part of the lock that remains with a background command after its start.
#[derive(Debug)]
struct BackgroundWriter {
    snapshot: PathSnapshot,
    directory_locks: Vec<DirectoryLock>,
    is_running: Arc<AtomicBool>,
}

#[derive(Debug)]
struct DirectoryLock {
    id: LockedDirectoryId,
    is_exclusive: bool,
    /// The file whose lock is used for the directory. `None` if no such file can be created; other processes are not excluded then.
    file: Option<File>,
    path: PathBuf,
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // No other process holds the lock. One that waits for it sees that the file was removed, and creates another.
        if self.is_exclusive && self.file.is_some() {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// The device and the inode number of a directory.
type LockedDirectoryId = (u64, u64);

impl WriteLock {
    /// Acquires the lock, waiting while `deadline` lasts.
    ///
    /// # Errors
    /// The run was cancelled, or `deadline` is over.
    pub(super) fn acquire(
        sandbox: &SandboxSpec,
        mut deadline: Deadline,
    ) -> Result<Self, LockError> {
        let mut wait = || {
            if deadline.is_expired() {
                return Err(LockError::Busy);
            }
            deadline.subtract(POLL_INTERVAL);
            signal::sleep(POLL_INTERVAL).map_err(LockError::Stopped)
        };
        let background = loop {
            match PROCESS_LOCK.try_lock() {
                Some(background) => break background,
                None => wait()?,
            }
        };
        let mut directory_locks = Vec::new();
        for (id, is_exclusive) in directories_to_lock(sandbox) {
            let mut own_locks = background.iter().flat_map(|writer| &writer.directory_locks);
            // The background commands do not release it while this one has their list.
            if own_locks.any(|lock| lock.id == id && (lock.is_exclusive || !is_exclusive)) {
                continue;
            }
            let Some(directory) = &sandbox.lock_directory else {
                continue;
            };
            let path = directory.join(format!("{:x}-{:x}", id.0, id.1));
            let file = loop {
                match try_lock_file(&path, is_exclusive) {
                    Ok(file) => break Some(file),
                    Err(TryLockError::WouldBlock) => wait()?,
                    Err(TryLockError::Error(error)) => {
                        log::warn!(target: "sandbox", "lock `{}`: {error}", path.display());
                        break None;
                    }
                }
            };
            directory_locks.push(DirectoryLock { id, is_exclusive, file, path });
        }
        Ok(Self { background, directory_locks })
    }

    /// Undoes the changes of background commands to protected paths.
    pub(super) fn restore_background(&mut self) -> Vec<UndoneChange> {
        restore_all(&mut self.background)
    }

    /// Leaves the lock to a background command that was started after `snapshot` was taken.
    pub(super) fn leave_to_background(mut self, snapshot: PathSnapshot) -> BackgroundLock {
        let is_running = Arc::new(AtomicBool::new(true));
        self.background.push(BackgroundWriter {
            snapshot,
            directory_locks: self.directory_locks,
            is_running: Arc::clone(&is_running),
        });
        BackgroundLock { is_running }
    }
}

/// The part of a background command in the lock. Dropping this means that no process of the command is left.
#[derive(Debug)]
pub(super) struct BackgroundLock {
    is_running: Arc<AtomicBool>,
}

impl BackgroundLock {
    /// Undoes the changes of background commands to protected paths, unless another command is running that does so at its end.
    pub(super) fn restore(&self) -> Vec<UndoneChange> {
        restore_if_free()
    }

    /// Like [`Self::restore`], after the end of the command.
    pub(super) fn finish(self) -> Vec<UndoneChange> {
        self.is_running.store(false, Ordering::SeqCst);
        restore_if_free()
    }
}

impl Drop for BackgroundLock {
    fn drop(&mut self) {
        if self.is_running.swap(false, Ordering::SeqCst) {
            drop(restore_if_free());
        }
    }
}

fn restore_if_free() -> Vec<UndoneChange> {
    PROCESS_LOCK.try_lock().map_or_else(Vec::new, |mut background| restore_all(&mut background))
}

/// Restores all snapshots, and releases them and the locks if no command is left.
fn restore_all(background: &mut Vec<BackgroundWriter>) -> Vec<UndoneChange> {
    // Read before the restoration: if a command ends meanwhile, its end restores once more.
    let is_running = background.iter().any(|writer| writer.is_running.load(Ordering::SeqCst));
    let mut undone = Vec::new();
    for writer in background.iter().rev() {
        undone.extend(writer.snapshot.restore());
    }
    if !is_running {
        background.clear();
    }
    undone
}

/// The reason that the lock was not acquired.
pub(super) enum LockError {
    Busy,
    Stopped(Stop),
}

impl From<LockError> for io::Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy => io::ErrorKind::ResourceBusy.into(),
            LockError::Stopped(_) => io::ErrorKind::Interrupted.into(),
        }
    }
}

/// Runs `work`, during which a long-running process such as a server may change files, and undoes the changes that `sandbox` does
/// not permit. Waits for the commands that may change the same files first.
///
/// # Errors
/// `work` was not run: the state before it cannot be recorded; [`io::ErrorKind::ResourceBusy`] if other commands do not
/// finish within `timeout`, [`io::ErrorKind::Interrupted`] if the run is cancelled.
pub fn guard_changes<T>(
    sandbox: &SandboxSpec,
    timeout: Duration,
    work: impl FnOnce() -> T,
) -> io::Result<(T, Vec<UndoneChange>)> {
    let mut lock = WriteLock::acquire(sandbox, Deadline::after(timeout))?;
    let mut snapshot = sandbox.take_snapshot()?;
    snapshot.ignore_mounts();
    let output = work();
    let mut undone = snapshot.restore();
    undone.extend(lock.restore_background());
    Ok((output, undone))
}

/// Opens and locks the file at `path`, which is created if it is missing.
fn try_lock_file(path: &Path, is_exclusive: bool) -> Result<File, TryLockError> {
    loop {
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(TryLockError::Error)?;
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(TryLockError::Error)?;
        if is_exclusive {
            file.try_lock()?;
        } else {
            file.try_lock_shared()?;
        }
        // The last holder may have removed it.
        if file.metadata().map_err(TryLockError::Error)?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// The directories to lock, with true for an exclusive lock: writable directories have one, and their ancestors a shared lock, so
/// that a command that may write an entire ancestor waits. The order is the same for all commands, which prevents deadlock.
fn directories_to_lock(sandbox: &SandboxSpec) -> BTreeMap<LockedDirectoryId, bool> {
    let mut are_exclusive: BTreeMap<LockedDirectoryId, bool> = BTreeMap::new();
    for root in sandbox.shared_writable() {
        for directory in root.ancestors() {
            let Ok(metadata) = directory.symlink_metadata() else {
                continue;
            };
            let id = (metadata.dev(), metadata.ino());
            *are_exclusive.entry(id).or_default() |= directory == root;
        }
    }
    are_exclusive
}
