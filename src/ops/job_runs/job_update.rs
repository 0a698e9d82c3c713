//! The changes that a run makes in the job file and in the crontab.

use super::job_runner::JobRunner;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::timing;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_config::settings::JobStarter;
use nanobot_cron::job::Job;
use nanobot_cron::run_record::{RunOutcome, RunRecord, Trigger};

impl JobRunner<'_> {
    /// Updates the job file with the result, as the Python program does. Retires a one-time job that is not retried.
    pub(super) fn update_job_file(
        &self,
        job: &Job,
        record: &RunRecord,
        start: Timestamp,
        is_retried: bool,
    ) -> Result<()> {
        let now = self.ctx.clock.timestamp();
        if !self.is_stored {
            return Ok(());
        }
        // The schedule may have been edited during the run.
        let mut is_same_schedule = false;
        let is_stored = self.store.update(&job.id, now, |stored| {
            is_same_schedule = stored.schedule == job.schedule;
            stored.state.last_run = Timestamp::from_millisecond(start.as_millisecond()).ok();
            stored.state.last_status = Some(match record.outcome {
                RunOutcome::Failed => "error".into(),
                _ => "ok".into(),
            });
            stored.state.last_error.clone_from(&record.error);
            timing::update_next_run(self.ctx, stored, now);
            false
        })?;
        if !is_stored {
            // A job that our own command removed has no options any more; then its remaining data is removed. The data of
            // a job with options stays: another program may have written an older copy of the job file.
            if job.options.is_none() || self.store.has_options(&job.id)? {
                return Ok(());
            }
            self.store.remove_job_dir(&job.id)?;
            return lifecycle::discard_session(self.ctx, self.settings, job);
        }
        let is_scheduled = record.trigger == Trigger::Schedule;
        if is_same_schedule && job.is_once() && is_scheduled && !is_retried {
            self.retire(job, Some(record.outcome))
        } else {
            Ok(())
        }
    }

    /// Updates the crontab after a retry was planned or is over. A job without a line is started by another scheduler, and
    /// stays without one.
    pub(super) fn update_retry_line(&self, job: &Job) -> Result<()> {
        let is_line = |line: &String| crontab_sync::job_id(line) == Some(job.id.as_str());
        let has_line = || {
            crontab_sync::read_lines(self.ctx, self.settings)
                .is_ok_and(|lines| lines.iter().any(is_line))
        };
        if self.settings.job_starter == JobStarter::Other || !self.is_stored || !has_line() {
            return Ok(());
        }
        crontab_sync::write_crontab(self.ctx, self.settings, self.store, JobFilter::Managed)
            .map(drop)
            .context("the crontab was not updated for the retry")
    }

    /// Retires a one-time job: removes it but keeps its record, or disables it.
    pub(crate) fn retire(&self, job: &Job, outcome: Option<RunOutcome>) -> Result<()> {
        let is_done =
            matches!(outcome, Some(RunOutcome::Ok | RunOutcome::Nothing | RunOutcome::NotNeeded));
        if is_done && job.delete_after_run {
            self.store.remove(&job.id)?;
        } else {
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.enabled = false;
                job.state.next_run = None;
                false
            })?;
        }
        crontab_sync::write_crontab(self.ctx, self.settings, self.store, JobFilter::Managed)
            .map(drop)
            .context("the job's line was not removed from the crontab")
    }
}
