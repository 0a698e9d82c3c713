//! Work during which a process of long duration, such as a server, may change files: what it may not change is undone.

use super::write_lock::{LockError, WriteLock};
use crate::{SandboxSpec, UndoneChange};
use nanobot_os::signal::Deadline;
use std::io;
use std::time::Duration;

/// Runs `work`, after the commands that may change the same files, and undoes the changes that `sandbox` does not permit.
///
/// # Errors
/// `work` was not run: the state before it cannot be recorded, [`io::ErrorKind::ResourceBusy`] if other commands do not
/// finish within `timeout`, [`io::ErrorKind::Interrupted`] if the run is cancelled.
pub fn guard_changes<T>(
    sandbox: &SandboxSpec,
    timeout: Duration,
    work: impl FnOnce() -> T,
) -> io::Result<(T, Vec<UndoneChange>)> {
    let lock = WriteLock::acquire(sandbox, Deadline::after(timeout));
    let mut lock = lock.map_err(|error| match error {
        LockError::Busy => io::ErrorKind::ResourceBusy,
        LockError::Stopped(_) => io::ErrorKind::Interrupted,
    })?;
    let snapshot = sandbox.take_snapshot()?;
    let done = work();
    let mut undone = snapshot.restore();
    undone.extend(lock.restore_background());
    Ok((done, undone))
}
