//! The slots of a job, which are the times at which it should run, and their state: run, skipped, or interrupted by a
//! crash.

use crate::cron::job::{CrashPolicy, Job};
use crate::cron::run_record::{RunOutcome, RunRecord, RunState, Trigger};
use crate::cron::schedule::{CatchUpPolicy, DueState};
use crate::error::{Exit, exit_for};
use crate::ops::jobs::delivery;
use crate::ops::jobs::job_runner::{JobRunner, is_transient};
use crate::ops::jobs::timing;
use anyhow::{Result, anyhow};
use jiff::{SignedDuration, Timestamp};

/// Recent records that are searched for a slot that was already skipped.
const RECORDS_CHECKED: usize = 100;
/// Maximum age of a slot that is run again after a crash.
const RERUN_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// The state of a slot.
pub(crate) enum SlotState {
    NotRun,
    /// Run by us. This happens when the clock was set back, so the same slot comes twice.
    RanHere,
    /// Run by another program, according to the job file.
    RanByOther,
}

impl JobRunner<'_> {
    /// The state of `slot`.
    pub(crate) fn slot_state(&self, job: &Job, slot: Timestamp) -> Result<SlotState> {
        let records = self.job_dir.last_records(usize::MAX)?;
        let at = slot.to_string();
        let is_it = |record: &RunRecord| {
            let is_again = job.is_once() && is_transient(record.status);
            record.outcome.is_run() && record.slot.as_deref() == Some(&at) && !is_again
        };
        if records.iter().any(is_it) {
            return Ok(SlotState::RanHere);
        }
        let now = self.ctx.clock.timestamp();
        let Some(last) = job
            .state
            .last_run
            .filter(|last| slot <= *last && *last <= now)
        else {
            return Ok(SlotState::NotRun);
        };
        // If we have a record of that run, it was started by hand and was not for this slot.
        let last = last.to_string();
        let is_ours = records.iter().any(|record| record.start == last);
        Ok(if is_ours {
            SlotState::NotRun
        } else {
            SlotState::RanByOther
        })
    }

    /// Finishes a slot after its run: retries transient failures of one-time jobs for an hour. A slot that fell due
    /// during the run is skipped, unless missed slots are caught up.
    pub(crate) fn finish_slot(
        &self,
        job: &Job,
        slot: Timestamp,
        exit: Exit,
        before: Option<i64>,
    ) -> Result<()> {
        let mut stamps = self.job_dir.read_state()?;
        if self.is_retried(job, slot, exit.code()) {
            stamps.last_slot_ms = before;
            return self.job_dir.write_state(&stamps);
        }
        if job.catch_up() == CatchUpPolicy::Once
            || stamps.last_slot_ms != Some(slot.as_millisecond())
        {
            return Ok(());
        }
        if let DueState::Due { slot } | DueState::Missed { slot } =
            timing::due_state(self.ctx, job, &stamps)?
        {
            stamps.last_slot_ms = Some(slot.as_millisecond());
            self.job_dir.write_state(&stamps)?;
        }
        Ok(())
    }

    /// Detects a run that began and did not end. Returns its slot if it is to be run again.
    pub(crate) fn find_crash(&self, job: &Job, stamps: &mut RunState) -> Result<Option<Timestamp>> {
        let Some(started) = stamps.started.take() else {
            return Ok(None);
        };
        let time = |at: i64| Timestamp::from_millisecond(at).unwrap_or_default();
        let slot = started.slot_ms.map(time);
        let trigger = match slot {
            Some(_) => Trigger::Schedule,
            None => Trigger::Manual,
        };
        // If its record exists, the run ended, and only the stamp was not removed.
        let start = time(started.at_ms).to_string();
        let records = self.job_dir.last_records(usize::MAX)?;
        if records
            .iter()
            .any(|record| record.start == start && record.outcome != RunOutcome::Busy)
        {
            self.job_dir.write_state(stamps)?;
            return Ok(None);
        }
        let mut record =
            self.new_record(job, trigger, slot, RunOutcome::Unknown, time(started.at_ms));
        let words = format!(
            "it began at {start} as process {} and left no result; its work may be complete or partial",
            started.pid
        );
        record.error = Some(words.clone());
        (record.status, record.cause) = (Exit::Failed.code(), Exit::Failed.name().to_owned());
        self.job_dir.append_record(&record)?;
        self.job_dir.write_state(stamps)?;
        self.report_error(job, &anyhow!("the last run was interrupted: {words}"));
        let terms = job.options.clone().unwrap_or_default();
        // A slot whose run crashed before is not run again, to avoid an endless loop.
        let is_first = |slot: Timestamp| {
            let slot = Some(slot.to_string());
            let was_cut =
                |other: &RunRecord| other.outcome == RunOutcome::Unknown && other.slot == slot;
            !records.iter().any(was_cut)
        };
        let is_fresh = |slot: &Timestamp| {
            self.ctx.clock.timestamp().duration_since(*slot) < RERUN_PERIOD && is_first(*slot)
        };
        let again = slot.filter(is_fresh);
        let again = again.filter(|_| terms.after_crash == CrashPolicy::Again);
        if again.is_none() {
            delivery::notify_failure(self.ctx, self.settings, job, &terms, &record);
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.state.last_status = Some("error".into());
                job.state.last_error = Some(words.clone());
                false
            })?;
        }
        Ok(again)
    }

    /// Records that a slot was skipped.
    pub(crate) fn record_skipped_slot(
        &self,
        job: &Job,
        slot: Timestamp,
        outcome: RunOutcome,
        stamps: RunState,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let record = self.new_record(job, Trigger::Schedule, Some(slot), outcome, now);
        self.job_dir.append_record(&record)?;
        self.job_dir.write_state(&stamps)?;
        if job.is_once() {
            self.retire(job, Some(outcome))?;
        }
        Ok(Exit::Answered)
    }

    /// Handles a job that is already running. This is recorded and reported once for each skipped slot; a start without
    /// a slot is always recorded and reported.
    pub(crate) fn report_busy(
        &self,
        job: &Job,
        slot: Option<Timestamp>,
        error: anyhow::Error,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let mut record = self.new_record(job, Trigger::Schedule, slot, RunOutcome::Busy, now);
        if slot.is_some() {
            let is_reported =
                |other: &RunRecord| other.outcome == RunOutcome::Busy && other.slot == record.slot;
            if self
                .job_dir
                .last_records(RECORDS_CHECKED)?
                .iter()
                .any(is_reported)
            {
                return Ok(Exit::Answered);
            }
        }
        let exit = exit_for(&error);
        record.error = Some(format!("{error:#}"));
        (record.status, record.cause) = (exit.code(), exit.name().to_owned());
        Err(match self.job_dir.append_record(&record) {
            Ok(()) => error,
            Err(other) => error.context(format!("cannot write the record: {other:#}")),
        })
    }
}
