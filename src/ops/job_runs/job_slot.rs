//! Decides whether a job runs at a slot, which is an instant that its schedule names, and records slots that were
//! skipped or whose run was interrupted by a crash.

use crate::ops::job_runs::job_runner::JobRunner;
use crate::ops::jobs::retry;
use crate::ops::jobs::timing::{self, StartCondition};
use anyhow::{Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use nanobot_base::error::{Exit, exit_for};
use nanobot_cron::job::{CrashPolicy, Job};
use nanobot_cron::run_record::{RunOutcome, RunRecord, RunState, Trigger};
use nanobot_cron::schedule::{CatchUpPolicy, DueState};

/// Number of recent records that are searched for an earlier report that the job was busy at the same slot.
const MAX_RECORDS_SEARCHED: usize = 100;
/// Maximum age of a slot that is run again after a crash.
const RERUN_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// The state of a slot.
pub(crate) enum SlotState {
    /// The job has not run for this slot.
    NotRun,
    /// This program ran the job for this slot. The slot is due a second time if the clock was set back.
    AlreadyRun,
    /// Another program ran the job for this slot, according to the job file.
    RunByOtherProgram,
}

impl JobRunner<'_> {
    /// Determines the state of `slot` from the run records and the job file.
    pub(crate) fn slot_state(&self, job: &Job, slot: Timestamp) -> Result<SlotState> {
        let records = self.job_dir.last_records(usize::MAX)?;
        let slot_text = slot.to_string();
        let is_run_of_slot = |record: &RunRecord| {
            record.outcome.is_run() && record.slot.as_deref() == Some(&slot_text)
        };
        if records.iter().any(is_run_of_slot) {
            return Ok(SlotState::AlreadyRun);
        }
        let now = self.ctx.clock.timestamp();
        let Some(last_run) =
            job.state.last_run.filter(|last_run| slot <= *last_run && *last_run <= now)
        else {
            return Ok(SlotState::NotRun);
        };
        // A run that this program recorded was started by hand and was not for this slot.
        let last_run = last_run.to_string();
        let is_recorded = records.iter().any(|record| record.start == last_run);
        Ok(if is_recorded { SlotState::NotRun } else { SlotState::RunByOtherProgram })
    }

    /// Updates the run state after the run for `slot`. A slot that became due during the run is skipped, unless missed
    /// slots are caught up.
    pub(crate) fn finish_slot(
        &self,
        job: &Job,
        slot: Timestamp,
        condition: StartCondition,
    ) -> Result<()> {
        let mut state = self.job_dir.read_state()?;
        if job.catch_up() == CatchUpPolicy::Once
            || state.last_slot_ms != Some(slot.as_millisecond())
        {
            return Ok(());
        }
        if let DueState::Due { slot } | DueState::Missed { slot } =
            timing::due_state(self.ctx, job, &state, condition)?
        {
            state.last_slot_ms = Some(slot.as_millisecond());
            self.job_dir.write_state(&state)?;
        }
        Ok(())
    }

    /// Detects a run that began and did not end: records it, and reports it on standard error. Returns its slot if it
    /// is to be run again, and otherwise notifies the user of the failure.
    pub(crate) fn recover_interrupted_run(
        &self,
        job: &Job,
        state: &mut RunState,
    ) -> Result<Option<Timestamp>> {
        let Some(started) = state.started.take() else {
            return Ok(None);
        };
        let timestamp = |at: i64| Timestamp::from_millisecond(at).unwrap_or_default();
        let slot = started.slot_ms.map(timestamp);
        let trigger = match slot {
            Some(_) => Trigger::Schedule,
            None => Trigger::Manual,
        };
        // If its record exists, the run ended, and only the run state was not updated.
        let start = timestamp(started.at_ms).to_string();
        let records = self.job_dir.last_records(usize::MAX)?;
        let is_end =
            |record: &&RunRecord| record.start == start && record.outcome != RunOutcome::Busy;
        if let Some(record) = records.iter().find(is_end) {
            state.retry = retry::plan(self.ctx, job, record);
            self.job_dir.write_state(state)?;
            return Ok(None);
        }
        let mut record =
            self.new_record(job, trigger, slot, RunOutcome::Unknown, timestamp(started.at_ms));
        let message = format!(
            "it began at {start} as process {} and left no result; its work may be complete or partial",
            started.pid
        );
        record.error = Some(message.clone());
        (record.status, record.cause) = (Exit::Failed.code(), Exit::Failed.name().to_owned());
        self.job_dir.append_record(&record)?;
        self.job_dir.write_state(state)?;
        self.report_error(job, &anyhow!("the last run was interrupted: {message}"));
        let options = job.options.clone().unwrap_or_default();
        // A slot whose run crashed before is not run again, to avoid an endless loop.
        let is_first_crash = |slot: Timestamp| {
            let slot = Some(slot.to_string());
            let is_interrupted = |earlier: &RunRecord| {
                earlier.outcome == RunOutcome::Unknown && earlier.slot == slot
            };
            !records.iter().any(is_interrupted)
        };
        let may_run_again = |slot: &Timestamp| {
            self.ctx.clock.timestamp().duration_since(*slot) < RERUN_PERIOD && is_first_crash(*slot)
        };
        let rerun = slot.filter(may_run_again);
        let rerun = rerun.filter(|_| options.after_crash == CrashPolicy::Again);
        if rerun.is_none() {
            self.notify(job, &options, &record, "");
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.state.last_status = Some("error".into());
                job.state.last_error = Some(message.clone());
                false
            })?;
        }
        Ok(rerun)
    }

    /// Records that `slot` was skipped because of `outcome`. Retires a one-time job.
    pub(crate) fn record_skipped_slot(
        &self,
        job: &Job,
        slot: Timestamp,
        outcome: RunOutcome,
        state: RunState,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let record = self.new_record(job, Trigger::Schedule, Some(slot), outcome, now);
        self.job_dir.append_record(&record)?;
        self.job_dir.write_state(&state)?;
        if job.is_once() {
            self.retire(job, Some(outcome))?;
        }
        Ok(Exit::Answered)
    }

    /// Records that the job is still running and returns `error`, which says so: once for each run, which began at
    /// `running_since`, so that cron does not mail it every minute. Without that time, every start is reported.
    pub(crate) fn report_busy(
        &self,
        job: &Job,
        slot: Option<Timestamp>,
        running_since: Option<Timestamp>,
        error: anyhow::Error,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let mut record = self.new_record(job, Trigger::Schedule, slot, RunOutcome::Busy, now);
        if let Some(since) = running_since {
            let is_of_this_run = |other: &RunRecord| {
                let start = other.start.parse::<Timestamp>();
                other.outcome == RunOutcome::Busy && start.is_ok_and(|start| start >= since)
            };
            let last = self.job_dir.last_records(MAX_RECORDS_SEARCHED)?;
            if last.iter().any(is_of_this_run) {
                return Ok(Exit::Answered);
            }
        }
        let exit = exit_for(&error);
        record.error = Some(format!("{error:#}"));
        (record.status, record.cause) = (exit.code(), exit.name().to_owned());
        Err(match self.job_dir.append_record(&record) {
            Ok(()) => error,
            Err(write_error) => {
                error.context(format!("cannot write the run record: {write_error:#}"))
            }
        })
    }
}
