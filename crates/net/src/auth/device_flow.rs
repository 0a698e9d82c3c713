//! The device flow (RFC 8628): the server issues a code, a person enters it in a browser on any machine, and we poll until
//! that is done.

use super::login_server::{LoginResponse, LoginServer};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_os::signal::Deadline;
use std::time::Duration;

/// The result of a poll: whether the person has entered the code.
pub enum PollResult<T> {
    Granted(T),
    Pending,
    /// Not yet, and polled too often: use this interval between polls, if the server names one.
    SlowDown(Option<Duration>),
}

/// Added to the poll interval when the server asks to slow down.
const SLOW_DOWN_DELAY: Duration = Duration::from_secs(5);

impl LoginServer<'_> {
    /// Polls every `interval` until the code is entered or its `lifetime` is over. Time is measured as the sum of the
    /// waits, which works with a fixed clock too.
    ///
    /// # Errors
    /// The errors of `poll_once`; status 75 when the code has expired. An unreachable server is polled again, at longer
    /// intervals.
    pub fn poll<T>(
        &self,
        mut interval: Duration,
        lifetime: Duration,
        poll_once: &mut dyn FnMut() -> Result<PollResult<T>>,
    ) -> Result<T> {
        let mut deadline = Deadline::after(lifetime);
        loop {
            self.clock.sleep(interval)?;
            deadline.subtract(interval);
            let slower = interval.saturating_add(SLOW_DOWN_DELAY);
            let (next_interval, failure) = match poll_once() {
                Ok(PollResult::Granted(grant)) => return Ok(grant),
                Ok(PollResult::Pending) => (interval, None),
                Ok(PollResult::SlowDown(requested)) => {
                    (requested.map_or(slower, |requested| requested.max(interval)), None)
                }
                Err(error) if exit_for(&error) == Exit::Unavailable => (slower, Some(error)),
                Err(error) => return Err(error),
            };
            interval = next_interval;
            if deadline.is_expired() {
                return Err(failure.unwrap_or_else(|| code_expired_error(&self.login_command)));
            }
        }
    }
}

impl LoginResponse<'_> {
    /// Interprets an error during polling (RFC 8628, section 3.5).
    ///
    /// # Errors
    /// Errors that end the flow.
    pub fn poll_result<T>(&self, action: &str) -> Result<PollResult<T>> {
        match self.error_code() {
            Some("authorization_pending") => Ok(PollResult::Pending),
            Some("slow_down") => Ok(PollResult::SlowDown(self.seconds("interval"))),
            Some("expired_token") => Err(code_expired_error(self.login_command)),
            Some("access_denied") => {
                let cause = format!("the login to {} was denied", self.label);
                Err(fail(Exit::Refused, cause).with_hint(self.login_command))
            }
            _ => Err(self.to_error(action)),
        }
    }
}

fn code_expired_error(login_command: &str) -> anyhow::Error {
    fail(Exit::TryAgain, "the code expired before it was entered").with_hint(login_command)
}
