//! One command at a time may change the files of a sandbox.

use crate::error::Stop;
use crate::sys::sandbox::Fence;
use crate::sys::signal::{self, Patience};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// How often a lock that another command holds is tried: a blocking wait could not be interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Held by a command that may change files, and after which changes of [`Fence::kept`] are undone: two at a time would take
/// each other's changes for what is to be kept.
#[derive(Debug)]
pub(super) struct WriteLock {
    _here: MutexGuard<'static, ()>,
    /// The writable directories and those above them, locked against other processes.
    _held: Vec<File>,
}

impl WriteLock {
    /// Wait for it, as long as `patience` lasts.
    ///
    /// # Errors
    /// The run is to end, or `patience` is over.
    pub(super) fn take(fence: &Fence, mut patience: Patience) -> Result<Self, LockError> {
        static HERE: Mutex<()> = Mutex::new(());
        let mut wait = || {
            if patience.is_over() {
                return Err(LockError::Busy);
            }
            patience.spend(POLL_INTERVAL);
            signal::pause(POLL_INTERVAL).map_err(LockError::Stopped)
        };
        let here = loop {
            match HERE.try_lock() {
                Ok(here) => break here,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => wait()?,
            }
        };
        let mut held = Vec::new();
        for (file, exclusive) in directories_to_lock(fence) {
            let kind = match exclusive {
                true => FlockOperation::NonBlockingLockExclusive,
                false => FlockOperation::NonBlockingLockShared,
            };
            loop {
                match rustix::fs::flock(&file, kind) {
                    Err(Errno::WOULDBLOCK) => wait()?,
                    Err(Errno::INTR) => {}
                    // Not every file system has locks for directories; then other processes are not waited for.
                    Ok(()) | Err(_) => break,
                }
            }
            held.push(file);
        }
        Ok(Self {
            _here: here,
            _held: held,
        })
    }
}

/// Why the lock was not taken.
pub(super) enum LockError {
    Busy,
    Stopped(Stop),
}

/// What is locked: exclusively the directories that may be written, and shared those above them, so that a command that may
/// write all of one of those waits. In the same order for all, so that no two wait for each other.
fn directories_to_lock(fence: &Fence) -> Vec<(File, bool)> {
    let mut places: BTreeMap<(u64, u64), (File, bool)> = BTreeMap::new();
    // The last is the private one.
    let roots = fence.writes.iter().rev().skip(1);
    for (path, exclusive) in roots.flat_map(|root| {
        root.ancestors()
            .zip([true].into_iter().chain(std::iter::repeat(false)))
    }) {
        // A file's lock is for the programs that use it; the directory it is in will do.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
            continue;
        };
        let Ok(about) = file.metadata() else { continue };
        // Others could keep theirs locked.
        if !exclusive && about.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let place = places
            .entry((about.dev(), about.ino()))
            .or_insert((file, exclusive));
        place.1 |= exclusive;
    }
    places.into_values().collect()
}
