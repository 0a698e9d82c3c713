//! A lock by which only one sandboxed command at a time may change a set of directories.
//!
//! A background command takes it to start, and then leaves its snapshot and its locks of directories to the run: other runs
//! wait until all background commands have ended, and other commands of this run do not. While background commands run, the
//! snapshots of all of them are kept and restored from the newest to the oldest. A newer one may record what an older command
//! had changed, and would bring that back; the oldest one was taken when none ran.

use crate::error::Stop;
use crate::sys::sandbox::{PathSnapshot, SandboxSpec, UndoneChange};
use crate::sys::signal::{self, Deadline};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// The interval at which a busy lock is retried: a blocking wait could not be interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A lock held by a command that may change files and after which changes to [`SandboxSpec::protected`] are undone. Two
/// such commands at once would mistake each other's changes for the state to keep.
#[derive(Debug)]
pub(super) struct WriteLock {
    background: MutexGuard<'static, Vec<BackgroundWriter>>,
    /// The writable directories and their ancestors, locked against other processes.
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
    /// Closing it releases the lock.
    _file: File,
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
            match try_lock_process() {
                Some(background) => break background,
                None => wait()?,
            }
        };
        let mut locks = Vec::new();
        for (id, (file, exclusive)) in directories_to_lock(sandbox) {
            let mut held = background.iter().flat_map(|it| &it.directory_locks);
            // The background commands do not release it while this one has their list.
            if held.any(|lock| lock.id == id && (lock.is_exclusive || !exclusive)) {
                continue;
            }
            let kind = match exclusive {
                true => FlockOperation::NonBlockingLockExclusive,
                false => FlockOperation::NonBlockingLockShared,
            };
            loop {
                match rustix::fs::flock(&file, kind) {
                    // That user could keep it forever. Our own runs are not that user's.
                    Err(Errno::WOULDBLOCK) if is_held_only_by_others(id.1) => break,
                    Err(Errno::WOULDBLOCK) => wait()?,
                    Err(Errno::INTR) => {}
                    // Not every file system can lock directories; then other processes are not excluded.
                    Ok(()) | Err(_) => break,
                }
            }
            locks.push(DirectoryLock { id, is_exclusive: exclusive, _file: file });
        }
        Ok(Self { background, directory_locks: locks })
    }

    /// Undoes what background commands have changed of protected paths.
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
    /// Undoes what background commands have changed of protected paths, unless another command is running that does it at
    /// its end.
    pub(super) fn restore(&self) -> Vec<UndoneChange> {
        restore_if_free()
    }

    /// As [`Self::restore`], after the end of the command.
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

fn try_lock_process() -> Option<MutexGuard<'static, Vec<BackgroundWriter>>> {
    match PROCESS_LOCK.try_lock() {
        Ok(background) => Some(background),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn restore_if_free() -> Vec<UndoneChange> {
    try_lock_process().map_or_else(Vec::new, |mut background| restore_all(&mut background))
}

/// Restores all snapshots, and releases them and the locks if no command is left.
fn restore_all(background: &mut Vec<BackgroundWriter>) -> Vec<UndoneChange> {
    // Asked first: a command that ends meanwhile is checked once more.
    let mut writers = background.iter();
    let is_last = !writers.any(|writer| writer.is_running.load(Ordering::SeqCst));
    let newest_first = background.iter().rev();
    let undone = newest_first.flat_map(|writer| writer.snapshot.restore());
    let undone = undone.collect();
    if is_last {
        background.clear();
    }
    undone
}

/// The reason that the lock was not acquired.
pub(super) enum LockError {
    Busy,
    Stopped(Stop),
}

/// True if the locks of the directory with this inode number belong to other users, as far as `/proc/locks` tells. What it
/// does not list may be our own, of another process namespace.
fn is_held_only_by_others(inode: u64) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut holders = locks.lines().filter_map(|line| {
        // Such as `1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF`; a waiting process has `->` after the number.
        let mut fields = line.split_ascii_whitespace().skip(1).filter(|field| *field != "->");
        let kind = fields.next()?;
        let holder = fields.nth(2)?;
        let (_, number) = fields.next()?.rsplit_once(':')?;
        (kind == "FLOCK" && number.parse() == Ok(inode)).then_some(holder)
    });
    let is_of_other = |holder: &str| {
        let process = std::fs::metadata(format!("/proc/{holder}"));
        // A holder that has ended passed the lock on to another process. Ours does not.
        process.map_or(true, |process| process.uid() != ours)
    };
    let first = holders.next();
    first.is_some_and(is_of_other) && holders.all(is_of_other)
}

/// The directories to lock: writable ones exclusively and their ancestors shared, so that a command that may write an
/// entire ancestor waits. The order is the same for all commands, which prevents deadlock.
fn directories_to_lock(sandbox: &SandboxSpec) -> BTreeMap<LockedDirectoryId, (File, bool)> {
    let mut places: BTreeMap<LockedDirectoryId, (File, bool)> = BTreeMap::new();
    // The last writable directory is the private one.
    let roots = sandbox.writable.iter().rev().skip(1);
    for (path, exclusive) in roots
        .flat_map(|root| root.ancestors().zip([true].into_iter().chain(std::iter::repeat(false))))
    {
        // The lock on a file is left to the programs that use it; its directory is locked instead.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
            continue;
        };
        let Ok(metadata) = file.metadata() else {
            continue;
        };
        // Another user's directory is not locked: that user could hold its lock forever.
        if !exclusive && metadata.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let place = places.entry((metadata.dev(), metadata.ino())).or_insert((file, exclusive));
        place.1 |= exclusive;
    }
    places
}
