//! The times at which a job is to run, and what is noted of each: whether it was run, skipped, or cut off by a crash.

use crate::cron::job::{AfterCrash, Job};
use crate::cron::record::{Outcome, Record, Stamps, Trigger};
use crate::cron::schedule::{CatchUp, Verdict};
use crate::error::{Exit, exit_of};
use crate::ops::jobs::delivery;
use crate::ops::jobs::job_runner::{JobRunner, is_transient};
use crate::ops::jobs::timing;
use anyhow::{Result, anyhow};
use jiff::{SignedDuration, Timestamp};

/// The last records among which it is looked whether a time was skipped already.
const RECORDS_CHECKED: usize = 100;
/// How old a time may be that is run again after a crash.
const RERUN_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// Whether a time of a job has been run.
pub(crate) enum SlotState {
    NotRun,
    /// By us: a clock that was set back and forth comes by twice.
    RanHere,
    /// By another program, as the job file says.
    RanByOther,
}

impl JobRunner<'_> {
    /// Whether `slot` has been run.
    pub(crate) fn slot_state(&self, job: &Job, slot: Timestamp) -> Result<SlotState> {
        let records = self.folder.records(usize::MAX)?;
        let at = slot.to_string();
        let is_it = |record: &Record| {
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
        // What we have a record of was somebody who asked for it, and no run of this time.
        let last = last.to_string();
        let is_ours = records.iter().any(|record| record.start == last);
        Ok(if is_ours {
            SlotState::NotRun
        } else {
            SlotState::RanByOther
        })
    }

    /// What is left of a time once it was run. One that comes but once is tried again, where the cause may pass, for an hour. A
    /// time that fell due meanwhile is skipped, unless what is missed is caught up.
    pub(crate) fn finish_slot(
        &self,
        job: &Job,
        slot: Timestamp,
        exit: Exit,
        before: Option<i64>,
    ) -> Result<()> {
        let mut stamps = self.folder.stamps()?;
        if self.is_retried(job, slot, exit.code()) {
            stamps.handled_ms = before;
            return self.folder.stamp(&stamps);
        }
        if job.catch_up() == CatchUp::Once || stamps.handled_ms != Some(slot.as_millisecond()) {
            return Ok(());
        }
        if let Verdict::Due { slot } | Verdict::Missed { slot } =
            timing::due_state(self.ctx, job, &stamps)?
        {
            stamps.handled_ms = Some(slot.as_millisecond());
            self.folder.stamp(&stamps)?;
        }
        Ok(())
    }

    /// Look for a run that began and did not end. The time that it was for, where it is to be run again.
    pub(crate) fn find_crash(&self, job: &Job, stamps: &mut Stamps) -> Result<Option<Timestamp>> {
        let Some(started) = stamps.started.take() else {
            return Ok(None);
        };
        let time = |at: i64| Timestamp::from_millisecond(at).unwrap_or_default();
        let slot = started.slot_ms.map(time);
        let trigger = match slot {
            Some(_) => Trigger::Schedule,
            None => Trigger::Hand,
        };
        // Its record may be there: then only the stamp was not taken back.
        let start = time(started.at_ms).to_string();
        let records = self.folder.records(usize::MAX)?;
        if records
            .iter()
            .any(|record| record.start == start && record.outcome != Outcome::Busy)
        {
            self.folder.stamp(stamps)?;
            return Ok(None);
        }
        let mut record = self.record(job, trigger, slot, Outcome::Unknown, time(started.at_ms));
        let words = format!(
            "it began at {start} as process {} and nobody knows how it ended; it may have done its work, or a part",
            started.pid
        );
        record.error = Some(words.clone());
        (record.status, record.cause) = (Exit::Failed.code(), Exit::Failed.name().to_owned());
        self.folder.record(&record)?;
        self.folder.stamp(stamps)?;
        self.report_error(job, &anyhow!("the last run was cut off: {words}"));
        let terms = job.terms.clone().unwrap_or_default();
        // What dies each time is not begun for ever.
        let is_first = |slot: Timestamp| {
            let slot = Some(slot.to_string());
            let was_cut = |other: &Record| other.outcome == Outcome::Unknown && other.slot == slot;
            !records.iter().any(was_cut)
        };
        let is_fresh = |slot: &Timestamp| {
            self.ctx.clock.timestamp().duration_since(*slot) < RERUN_PERIOD && is_first(*slot)
        };
        let again = slot.filter(is_fresh);
        let again = again.filter(|_| terms.after_crash == AfterCrash::Again);
        if again.is_none() {
            delivery::tell_failure(self.ctx, self.settings, job, &terms, &record);
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.state.last_status = Some("error".into());
                job.state.last_error = Some(words.clone());
                false
            })?;
        }
        Ok(again)
    }

    /// Note that a time was not run.
    pub(crate) fn record_skipped_slot(
        &self,
        job: &Job,
        slot: Timestamp,
        outcome: Outcome,
        stamps: Stamps,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let record = self.record(job, Trigger::Schedule, Some(slot), outcome, now);
        self.folder.record(&record)?;
        self.folder.stamp(&stamps)?;
        if job.is_once() {
            self.retire(job, Some(outcome))?;
        }
        Ok(Exit::Answered)
    }

    /// The job is running already. That is told and noted once for each time that is skipped by it; what was started for no time
    /// of its own is told it each time.
    pub(crate) fn report_busy(
        &self,
        job: &Job,
        slot: Option<Timestamp>,
        error: anyhow::Error,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let mut record = self.record(job, Trigger::Schedule, slot, Outcome::Busy, now);
        if slot.is_some() {
            let is_told =
                |other: &Record| other.outcome == Outcome::Busy && other.slot == record.slot;
            if self.folder.records(RECORDS_CHECKED)?.iter().any(is_told) {
                return Ok(Exit::Answered);
            }
        }
        let exit = exit_of(&error);
        record.error = Some(format!("{error:#}"));
        (record.status, record.cause) = (exit.code(), exit.name().to_owned());
        Err(match self.folder.record(&record) {
            Ok(()) => error,
            Err(other) => error.context(format!("no record is left: {other:#}")),
        })
    }
}
