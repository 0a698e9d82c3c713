//! The lock file of a session, which a run holds for one turn.

use super::place::Place;
use crate::error::{Exit, Hinted, exit_of, fail_hint};
use crate::sys::store::Lock;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The side file whose lock a turn holds. Its name must not end as sessions do.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Take the lock of the session `key`, which is or will be at `path`, without waiting.
///
/// # Errors
/// Status 75 when it is in use.
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

/// An error of a lock, for those who cannot be told to wait.
pub(super) fn with_retry_hint(error: anyhow::Error) -> anyhow::Error {
    if exit_of(&error) != Exit::TryAgain {
        return error;
    }
    match error.downcast::<Hinted>() {
        Ok(busy) => fail_hint(busy.exit, busy.cause, "the same again later"),
        Err(other) => other,
    }
}
