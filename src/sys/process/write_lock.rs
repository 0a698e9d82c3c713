//! A lock by which only one sandboxed command at a time may change a set of directories.

use crate::error::Stop;
use crate::sys::sandbox::SandboxSpec;
use crate::sys::signal::{self, Deadline};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// The interval at which a busy lock is retried: a blocking wait could not be interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A lock held by a command that may change files and after which changes to [`SandboxSpec::protected`] are undone. Two
/// such commands at once would mistake each other's changes for the state to keep.
#[derive(Debug)]
pub(super) struct WriteLock {
    _process_lock: MutexGuard<'static, ()>,
    /// The writable directories and their ancestors, locked against other processes.
    _directory_locks: Vec<File>,
}

impl WriteLock {
    /// Acquires the lock, waiting while `deadline` lasts.
    ///
    /// # Errors
    /// The run was cancelled, or `deadline` is over.
    pub(super) fn acquire(
        sandbox: &SandboxSpec,
        mut deadline: Deadline,
    ) -> Result<Self, LockError> {
        static PROCESS_LOCK: Mutex<()> = Mutex::new(());
        let mut wait = || {
            if deadline.is_expired() {
                return Err(LockError::Busy);
            }
            deadline.subtract(POLL_INTERVAL);
            signal::sleep(POLL_INTERVAL).map_err(LockError::Stopped)
        };
        let here = loop {
            match PROCESS_LOCK.try_lock() {
                Ok(here) => break here,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => wait()?,
            }
        };
        let mut locks = Vec::new();
        for (file, exclusive) in directories_to_lock(sandbox) {
            let kind = match exclusive {
                true => FlockOperation::NonBlockingLockExclusive,
                false => FlockOperation::NonBlockingLockShared,
            };
            loop {
                match rustix::fs::flock(&file, kind) {
                    Err(Errno::WOULDBLOCK) => wait()?,
                    Err(Errno::INTR) => {}
                    // Not every file system can lock directories; then other processes are not excluded.
                    Ok(()) | Err(_) => break,
                }
            }
            locks.push(file);
        }
        Ok(Self {
            _process_lock: here,
            _directory_locks: locks,
        })
    }
}

/// The reason that the lock was not acquired.
pub(super) enum LockError {
    Busy,
    Stopped(Stop),
}

/// The directories to lock: writable ones exclusively and their ancestors shared, so that a command that may write an
/// entire ancestor waits. The order is the same for all commands, which prevents deadlock.
fn directories_to_lock(sandbox: &SandboxSpec) -> Vec<(File, bool)> {
    let mut places: BTreeMap<(u64, u64), (File, bool)> = BTreeMap::new();
    // The last writable directory is the private one.
    let roots = sandbox.writable.iter().rev().skip(1);
    for (path, exclusive) in roots.flat_map(|root| {
        root.ancestors()
            .zip([true].into_iter().chain(std::iter::repeat(false)))
    }) {
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
        let place = places
            .entry((metadata.dev(), metadata.ino()))
            .or_insert((file, exclusive));
        place.1 |= exclusive;
    }
    places.into_values().collect()
}
