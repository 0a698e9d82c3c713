//! The lock file of a session, which a run holds for one turn.

use super::layout::SessionStore;
use anyhow::Result;
use nanobot_base::error::{Exit, HintedError, WithHint, exit_for, fail};
use nanobot_os::file_lock::FileLock;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The path of the file that a turn locks. It must not end in the extension of session files.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Takes the lock of the session `key`, whose file is or will be at `path`, without waiting.
///
/// # Errors
/// Status 75 if it is in use.
pub(super) fn try_lock(store: &SessionStore, key: &str, path: &Path) -> Result<FileLock> {
    let what = format!("session `{key}`");
    let lock = lock_path(path);
    let now = store.clock.local_timestamp();
    FileLock::acquire(&lock, &what, Some(&now), Duration::ZERO, &mut |_| {})
        .map_err(with_retry_hint)
}

/// The path of the session `key`, which need not exist.
///
/// # Errors
/// Status 2 if no file name can be made from the key.
pub fn session_path(store: &SessionStore, key: &str) -> Result<PathBuf> {
    store.find_path(key)
}

/// The process whose turn holds the lock of the session `key`; `None` if there is none.
///
/// # Errors
/// The errors of [`FileLock::holder`]; status 2 for an invalid key.
pub fn lock_holder(store: &SessionStore, key: &str) -> Result<Option<u32>> {
    FileLock::holder(&lock_path(&store.find_path(key)?))
}

/// Replaces the hint of a lock error for callers that offer no option to wait.
pub(super) fn with_retry_hint(error: anyhow::Error) -> anyhow::Error {
    if exit_for(&error) != Exit::TryAgain {
        return error;
    }
    match error.downcast::<HintedError>() {
        Ok(busy) => fail(busy.exit, busy.cause).with_hint("again later"),
        Err(other) => other,
    }
}
