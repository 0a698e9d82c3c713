//! The lock file of a session, which a run holds for one turn.

use super::place::Place;
use crate::error::{Exit, Hinted, exit_of, fail_hint};
use crate::sys::store::Lock;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The path of the side file that a turn locks. It must not end in the extension of session files.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Takes the lock of the session `key`, whose file is or will be at `path`, without waiting.
///
/// # Errors
/// Status 75 if it is in use.
pub(super) fn try_lock(place: &Place, key: &str, path: &Path) -> Result<Lock> {
    let what = format!("session `{key}`");
    let lock = lock_path(path);
    Lock::take(
        &lock,
        &what,
        &place.clock.stamp(),
        Duration::ZERO,
        &mut |_| {},
    )
    .map_err(with_retry_hint)
}

/// Replaces the hint of a lock error for callers that offer no option to wait.
pub(super) fn with_retry_hint(error: anyhow::Error) -> anyhow::Error {
    if exit_of(&error) != Exit::TryAgain {
        return error;
    }
    match error.downcast::<Hinted>() {
        Ok(busy) => fail_hint(busy.exit, busy.cause, "again later"),
        Err(other) => other,
    }
}
