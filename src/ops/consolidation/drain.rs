//! Consolidates sessions until none of them is due.

use super::consolidator::{ConsolidatedChunk, Consolidator, Spent, StepResult, quiet_report};
use super::memory_edit;
use crate::error::{Exit, Stop};
use crate::memory::Held;
use crate::ops::context::report_error;
use crate::report::{Level, Report};
use crate::session;
use crate::session::consolidation::{self, Next};
use crate::sys::signal;
use crate::sys::terminal::harmless;
use anyhow::{Error, Result};
use std::time::Duration;

/// Receives the progress of a run.
pub(crate) trait Progress {
    /// Called once, with the total number of messages that are due.
    fn begin(&mut self, messages: usize);
    /// Called before the session `key` is consolidated.
    fn session(&mut self, key: &str);
    /// Called after a chunk of `key` was consolidated for `cost`.
    fn chunk(&mut self, key: &str, chunk: &ConsolidatedChunk, spent: &Spent) -> Result<()>;
}

/// A session with messages to consolidate.
pub(crate) struct DueSession {
    pub(crate) key: String,
    pub(crate) next: Next,
}

/// A run over one session or all of them. A session that fails does not prevent the others from being consolidated.
pub(crate) struct Drain<'a> {
    consolidator: Consolidator<'a>,
    /// Also consolidate sessions that are not due yet.
    all: bool,
    /// The status of the first failure.
    failure: Option<Exit>,
    /// Cost so far.
    pub(crate) spent: Spent,
    /// Chunks so far.
    pub(crate) chunks: usize,
}

impl<'a> Drain<'a> {
    /// Creates a run. With `include_not_due`, sessions that are not due are included.
    pub(crate) fn new(consolidator: Consolidator<'a>, all: bool) -> Self {
        Self {
            consolidator,
            all,
            failure: None,
            spent: Spent::default(),
            chunks: 0,
        }
    }

    /// The status of the run: that of the first failure.
    pub(crate) fn exit(&self) -> Exit {
        self.failure.unwrap_or(Exit::Answered)
    }

    /// The session `key`, or every session, that has something to consolidate.
    ///
    /// # Errors
    /// There is no session `key`; the sessions cannot be listed; the run was cancelled.
    pub(crate) fn due_sessions(&mut self, key: Option<&str>) -> Result<Vec<DueSession>> {
        let keys = match key {
            Some(key) => {
                session::look(&self.consolidator.place, key)?;
                vec![key.to_owned()]
            }
            None => self.all_keys()?,
        };
        let mut due = Vec::new();
        for key in keys {
            let Consolidator { place, terms, .. } = &self.consolidator;
            match consolidation::next(place, &key, terms, self.all) {
                Ok(next) => due.extend(next.map(|next| DueSession { key, next })),
                Err(error) => drop(self.record_failure(error)?),
            }
        }
        Ok(due)
    }

    /// Finishes an interrupted consolidation, if there is one.
    pub(crate) fn finish_interrupted(&self, wait: Duration) -> Result<()> {
        if self.consolidator.memory.is_unfinished() {
            drop(self.lock(wait)?);
        }
        Ok(())
    }

    /// Consolidates these sessions. Stops early if the next one would fail too.
    ///
    /// # Errors
    /// The memory cannot be locked; the run was cancelled.
    pub(crate) fn drain_all(
        &mut self,
        due: &[DueSession],
        wait: Duration,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let locked_memory = self.lock(wait)?;
        let ctx = self.consolidator.ctx;
        let level = if ctx.quiet {
            Level::Quiet
        } else {
            Level::Notices
        };
        let mut report = quiet_report(ctx, level);
        progress.begin(due.iter().map(|due| due.next.limit - due.next.from).sum());
        let mut outages = 0;
        for (number, DueSession { key, .. }) in due.iter().enumerate() {
            let Err(error) = self.drain(&locked_memory, key, &mut report, progress) else {
                outages = 0;
                continue;
            };
            let exit = self.record_failure(error)?;
            // A single session may make a server fail. Two failures in a row are an outage.
            outages = match exit {
                Exit::Unavailable | Exit::TryAgain => outages + 1,
                _ => 0,
            };
            let is_hopeless = matches!(exit, Exit::Budget | Exit::Refused | Exit::Config);
            let left = due.len() - number - 1;
            if left > 0 && (is_hopeless || outages > 1) {
                ctx.notice(&format!("sessions skipped after repeated failures: {left}"));
                break;
            }
        }
        Ok(())
    }

    /// Consolidates one session, chunk by chunk.
    fn drain(
        &mut self,
        locked_memory: &Held,
        key: &str,
        report: &mut Report,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        progress.session(key);
        loop {
            signal::check()?;
            let mut spent = Spent::default();
            let step = self
                .consolidator
                .step(locked_memory, key, self.all, &mut spent, report);
            self.spent.join(&spent);
            match step? {
                StepResult::Idle => return Ok(()),
                StepResult::Failed(cause) => {
                    let line = format!("{}: {cause}; retrying", harmless(key));
                    self.consolidator.ctx.notice(&line);
                }
                StepResult::Consolidated(chunk) => {
                    self.chunks += 1;
                    progress.chunk(key, &chunk, &spent)?;
                }
            }
        }
    }

    fn lock(&self, wait: Duration) -> Result<Held> {
        let Consolidator {
            ctx, memory, place, ..
        } = &self.consolidator;
        memory_edit::lock(ctx, memory, place, wait)
    }

    /// The keys of all sessions that this release may write to.
    fn all_keys(&mut self) -> Result<Vec<String>> {
        let listing = session::list(&self.consolidator.place)?;
        for error in listing.failures {
            self.record_failure(error)?;
        }
        let mut keys = Vec::new();
        for session in listing.sessions {
            match session.is_newer {
                true => self.consolidator.ctx.notice(&format!(
                    "skipping `{}`: it was written by a newer version of nanobot",
                    harmless(&session.key)
                )),
                false => keys.push(session.key),
            }
        }
        Ok(keys)
    }

    /// Reports the failure of a session.
    ///
    /// # Errors
    /// The run was cancelled.
    fn record_failure(&mut self, error: Error) -> Result<Exit> {
        if error.is::<Stop>() {
            return Err(error);
        }
        let exit = report_error(&error, self.consolidator.ctx.terminal);
        self.failure.get_or_insert(exit);
        Ok(exit)
    }
}
