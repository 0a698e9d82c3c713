//! The changes that a run makes in the job file and in the crontab.

use super::job_runner::JobRunner;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::timing;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_cron::job::Job;
use nanobot_cron::run_record::{RunOutcome, RunRecord, Trigger};

impl JobRunner<'_> {
    /// Updates the job file with the result, as the Python program does. Retires a job that is not started again.
    pub(super) fn update_job_file(
        &self,
        record: &RunRecord,
        start: Timestamp,
        is_retried: bool,
    ) -> Result<()> {
        let job = self.job;
        if !self.is_stored {
            return Ok(());
        }
        let now = self.ctx.clock.timestamp();
        // The job as it is now. It may have been edited or removed during the run.
        let mut current_job = None;
        self.store.update(&job.id, now, |stored| {
            stored.state.last_run = Some(timing::truncate_to_millis(start));
            stored.state.last_status = Some(match record.outcome {
                RunOutcome::Failed => "error".into(),
                _ => "ok".into(),
            });
            stored.state.last_error.clone_from(&record.error);
            timing::update_next_run(self.ctx, stored, now);
            current_job = Some(stored.clone());
            // The options did not change.
            false
        })?;
        let Some(current_job) = current_job else {
            // A job that our own command removed has no options any more; then its remaining data is removed. The data of
            // a job with options stays: another program may have written an older copy of the job file. A job that had no
            // options before the run belongs to another program.
            if job.options.is_none() || self.store.has_options(&job.id)? {
                return Ok(());
            }
            self.store.remove_job_dir(&job.id)?;
            return lifecycle::discard_session(self.ctx, self.settings, job);
        };
        let is_same_schedule = current_job.schedule == job.schedule;
        let is_scheduled = record.trigger == Trigger::Schedule;
        if is_same_schedule && current_job.is_over_after_run() && is_scheduled && !is_retried {
            self.retire(&current_job, Some(record.outcome))
        } else {
            Ok(())
        }
    }

    /// Updates the crontab after a retry was planned or is over.
    pub(super) fn update_retry_line(&self) -> Result<()> {
        if !self.is_stored {
            return Ok(());
        }
        self.update_lines().context("the crontab was not updated for the retry")
    }

    /// Retires a one-time job. A job that is deleted after its run is removed if the run succeeded; its record stays. Any
    /// other job is disabled.
    pub(super) fn retire(&self, job: &Job, outcome: Option<RunOutcome>) -> Result<()> {
        let is_done =
            matches!(outcome, Some(RunOutcome::Ok | RunOutcome::Nothing | RunOutcome::NotNeeded));
        if is_done && job.delete_after_run {
            self.store.remove(&job.id)?;
        } else {
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.enabled = false;
                job.state.next_run = None;
                // The options did not change.
                false
            })?;
        }
        self.update_lines().context("the job's line was not removed from the crontab")
    }

    /// Updates the crontab if it has a line of the job. A job without a line is started by another scheduler, and stays
    /// without one.
    fn update_lines(&self) -> Result<()> {
        if crontab_sync::has_line(self.ctx, self.settings, &self.job.id)? {
            crontab_sync::write_crontab(self.ctx, self.settings, self.store, JobFilter::Managed)?;
        }
        Ok(())
    }
}
