//! Consolidates sessions until none of them is due.

use super::consolidator::{
    ConsolidatedChunk, ConsolidationCost, Consolidator, StepResult, progress_reporter,
};
use super::memory_edit;
use crate::ops::context::report_error;
use anyhow::{Error, Result};
use nanobot_agent::report::{ProgressLevel, Reporter};
use nanobot_base::error::{Exit, Stop};
use nanobot_os::signal;
use nanobot_os::terminal::sanitize;
use nanobot_store::memory::LockedMemory;
use nanobot_store::session::consolidation::{self, ConsolidationRange};
use nanobot_store::session::{self, REWOUND_PREFIX};
use std::time::Duration;

/// Receives the progress of a run.
pub(crate) trait ConsolidationProgress {
    /// Called once, with the total number of messages that are due.
    fn begin(&mut self, messages: usize);
    /// Called before the session `key` is consolidated.
    fn begin_session(&mut self, key: &str);
    /// Called after a chunk of `key` was consolidated for `cost`.
    fn end_chunk(
        &mut self,
        key: &str,
        chunk: &ConsolidatedChunk,
        cost: &ConsolidationCost,
    ) -> Result<()>;
}

/// A session with messages to consolidate.
pub(crate) struct DueSession {
    pub(crate) key: String,
    pub(crate) range: ConsolidationRange,
}

/// A run over one session or all of them. A session that fails does not prevent the others from being consolidated.
pub(crate) struct ConsolidationRun<'a> {
    consolidator: Consolidator<'a>,
    /// Also consolidate sessions that are not due yet.
    include_not_due: bool,
    /// The status of the first failure.
    first_failure: Option<Exit>,
    /// Cost so far.
    pub(crate) cost: ConsolidationCost,
    /// Chunks so far.
    pub(crate) chunk_count: usize,
}

impl<'a> ConsolidationRun<'a> {
    /// Creates a run. With `include_not_due`, sessions that are not due are included.
    pub(crate) fn new(consolidator: Consolidator<'a>, include_not_due: bool) -> Self {
        Self {
            consolidator,
            include_not_due,
            first_failure: None,
            cost: ConsolidationCost::default(),
            chunk_count: 0,
        }
    }

    /// The status of the run: the status of the first failure.
    pub(crate) fn exit(&self) -> Exit {
        self.first_failure.unwrap_or(Exit::Answered)
    }

    /// The session `key`, or every session, if it has messages to consolidate.
    ///
    /// # Errors
    /// There is no session `key`; the sessions cannot be listed; the run was cancelled.
    pub(crate) fn due_sessions(&mut self, key: Option<&str>) -> Result<Vec<DueSession>> {
        let keys = match key {
            Some(key) => {
                session::summarize(&self.consolidator.sessions, key)?;
                vec![key.to_owned()]
            }
            None => self.all_keys()?,
        };
        let mut due = Vec::new();
        for key in keys {
            let Consolidator { sessions, thresholds, .. } = &self.consolidator;
            match consolidation::next_range(sessions, &key, thresholds, self.include_not_due) {
                Ok(range) => due.extend(range.map(|range| DueSession { key, range })),
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

    /// Forgets why the last consolidation failed. Returns it.
    ///
    /// # Errors
    /// The record cannot be read or removed.
    pub(crate) fn forget_error(&self) -> Result<Option<String>> {
        self.consolidator.memory.forget_error()
    }

    /// Consolidates these sessions. Stops early if the next one would fail too.
    ///
    /// # Errors
    /// The memory cannot be locked; the run was cancelled.
    pub(crate) fn consolidate_all(
        &mut self,
        due: &[DueSession],
        wait: Duration,
        progress: &mut dyn ConsolidationProgress,
    ) -> Result<()> {
        let locked_memory = self.lock(wait)?;
        let ctx = self.consolidator.ctx;
        let level = if ctx.quiet { ProgressLevel::Quiet } else { ProgressLevel::Notices };
        let mut reporter = progress_reporter(ctx, level);
        progress.begin(due.iter().map(|due| due.range.end - due.range.from).sum());
        let mut outages = 0;
        for (index, DueSession { key, .. }) in due.iter().enumerate() {
            let Err(error) = self.consolidate_session(&locked_memory, key, &mut reporter, progress)
            else {
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
            let remaining = due.len() - index - 1;
            if remaining > 0 && (is_hopeless || outages > 1) {
                ctx.notice(&format!("sessions skipped after repeated failures: {remaining}"));
                break;
            }
        }
        Ok(())
    }

    /// Consolidates one session, chunk by chunk.
    fn consolidate_session(
        &mut self,
        locked_memory: &LockedMemory,
        key: &str,
        reporter: &mut Reporter,
        progress: &mut dyn ConsolidationProgress,
    ) -> Result<()> {
        progress.begin_session(key);
        loop {
            signal::check()?;
            let mut cost = ConsolidationCost::default();
            let result = self.consolidator.step(
                locked_memory,
                key,
                self.include_not_due,
                &mut cost,
                reporter,
            );
            self.cost.merge(&cost);
            match result? {
                StepResult::Idle => return Ok(()),
                StepResult::Failed(cause) => {
                    let line = format!("{}: {cause}; retrying", sanitize(key));
                    self.consolidator.ctx.notice(&line);
                }
                StepResult::Consolidated(chunk) => {
                    self.chunk_count += 1;
                    progress.end_chunk(key, &chunk, &cost)?;
                }
            }
        }
    }

    fn lock(&self, wait: Duration) -> Result<LockedMemory> {
        let Consolidator { ctx, memory, sessions, .. } = &self.consolidator;
        memory_edit::lock(ctx, memory, sessions, wait)
    }

    /// The keys of all sessions that this release may write to.
    fn all_keys(&mut self) -> Result<Vec<String>> {
        let listing = session::list(&self.consolidator.sessions)?;
        for error in listing.failures {
            self.record_failure(error)?;
        }
        let mut keys = Vec::new();
        for session in listing.sessions {
            if session.is_newer {
                self.consolidator.ctx.notice(&format!(
                    "skipping `{}`: it was written by a newer version of nanobot",
                    sanitize(&session.key)
                ));
            // Messages that the user has taken back are not remembered. The others are in the session that goes on.
            } else if !session.key.starts_with(REWOUND_PREFIX) {
                keys.push(session.key);
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
        self.first_failure.get_or_insert(exit);
        Ok(exit)
    }
}
