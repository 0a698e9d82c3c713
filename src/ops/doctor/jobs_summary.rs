//! A short summary of the jobs.

use crate::ops::context::Context;
use crate::ops::jobs::time_format::to_one_line;
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_config::settings::Settings;
use nanobot_cron::job::{HEARTBEAT_ID, Job};

/// A short summary of the jobs.
pub(crate) struct JobsSummary {
    /// All jobs except the heartbeat.
    pub(crate) jobs: Result<Vec<Job>>,
    /// The job that runs next, and its time.
    pub(crate) next_run: Option<(Job, Timestamp)>,
    /// The heartbeat's job, and the time of its next run.
    pub(crate) heartbeat: Option<(Job, Option<Timestamp>)>,
    /// The job that failed last.
    pub(crate) last_failed: Option<Job>,
}

impl JobsSummary {
    /// Reads the jobs and their next runs.
    pub(crate) fn new(ctx: &Context, settings: &Settings) -> Self {
        let mut jobs = workspace_jobs::open(ctx, settings).jobs();
        let mut all = jobs.as_deref().unwrap_or_default().to_vec();
        let now = ctx.clock.timestamp();
        let coming = |job: &Job| timing::upcoming_runs(ctx, job, now, 1).pop();
        let beats = all.pop_if(|job| job.id == HEARTBEAT_ID);
        if let Ok(jobs) = &mut jobs {
            jobs.clone_from(&all);
        }
        let next = all.iter().filter(|job| job.enabled);
        let next = next.filter_map(|job| Some((job.clone(), coming(job)?)));
        let failed = all.iter().filter(|job| job.state.last_status.as_deref() == Some("error"));
        Self {
            next_run: next.min_by_key(|(_, time)| *time),
            last_failed: failed.max_by_key(|job| job.state.last_run).cloned(),
            heartbeat: beats.map(|job| (job.clone(), coming(&job))),
            jobs,
        }
    }

    /// The number of enabled jobs.
    pub(crate) fn enabled(&self) -> usize {
        let jobs = self.jobs.as_deref().unwrap_or_default();
        jobs.iter().filter(|job| job.enabled).count()
    }

    /// The suggested next step for the job that failed last.
    pub(crate) fn next_step(&self) -> Option<String> {
        let failed = self.last_failed.as_ref()?;
        Some(format!("nanobot cron logs {}", to_one_line(&failed.id)))
    }
}
