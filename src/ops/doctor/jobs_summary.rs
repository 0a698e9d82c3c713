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
        let now = ctx.clock.timestamp();
        let next_run = |job: &Job| timing::upcoming_runs(ctx, job, now, 1).pop();
        let heartbeat = match &mut jobs {
            Ok(jobs) => jobs.pop_if(|job| job.id == HEARTBEAT_ID),
            Err(_) => None,
        };
        let all = jobs.as_deref().unwrap_or_default();
        let runs = all.iter().filter(|job| job.enabled);
        let runs = runs.filter_map(|job| Some((job, next_run(job)?)));
        let failed = all.iter().filter(|job| job.state.last_status.as_deref() == Some("error"));
        Self {
            next_run: runs.min_by_key(|(_, time)| *time).map(|(job, time)| (job.clone(), time)),
            last_failed: failed.max_by_key(|job| job.state.last_run).cloned(),
            heartbeat: heartbeat.map(|job| (job.clone(), next_run(&job))),
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
