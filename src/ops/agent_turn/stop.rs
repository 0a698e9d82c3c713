//! `/stop`: ends the run in progress in a session.

use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::signal::{self, Deadline};
use nanobot_sandbox::process;
use nanobot_store::session::{SessionStore, lock_holder};
use std::time::Duration;

/// Timeout for the end of the run, which first ends its commands and closes its log.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the lock is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interrupts the run that holds the lock of the session `key`, and waits for its end. Returns the result as a sentence.
///
/// # Errors
/// Status 75 if the process that holds the lock cannot be found, or does not end in time; an I/O error if it belongs to another
/// user.
pub(super) fn stop_run(store: &SessionStore, key: &str) -> Result<String> {
    let Some(pid) = lock_holder(store, key)? else {
        return Ok("No active task to stop.".into());
    };
    let is_holder = || lock_holder(store, key).is_ok_and(|holder| holder == Some(pid));
    let is_sent = process::interrupt(pid, is_holder)
        .with_context(|| format!("stop process {pid}, which runs session `{key}`"))?;
    if !is_sent {
        return Ok("No active task to stop.".into());
    }
    let mut deadline = Deadline::after(STOP_TIMEOUT);
    while is_holder() {
        if deadline.is_expired() {
            let cause = format!(
                "process {pid}, which runs session `{key}`, was asked to stop and still runs"
            );
            return Err(fail(Exit::TryAgain, cause).with_hint(format!("`kill -9 {pid}`")));
        }
        signal::sleep(POLL_INTERVAL)?;
        deadline.subtract(POLL_INTERVAL);
    }
    Ok("Stopped 1 task.".into())
}
