//! Creates, changes and removes many jobs at once: everything is checked before the job file and the crontab are written
//! once.

use super::crontab_sync::{self, CrontabChange, JobFilter};
use super::job_edit::{self, JobChange, JobDraft, PlannedJob};
use super::{lifecycle, time_zone, workspace_jobs};
use crate::ops::context::{Context, report_error};
use anyhow::Result;
use jiff::Zoned;
use nanobot_base::error::{Exit, WithHint, fail, outside_turn};
use nanobot_cron::job::Job;
use nanobot_cron::job_chain::check_chain;

pub(crate) struct JobListItem<'a> {
    pub(crate) draft: JobDraft<'a>,
    /// The position in the list, for errors.
    pub(crate) position: String,
}

/// The result of applying a list.
pub(crate) struct AppliedList {
    /// The jobs of the list, in its order.
    pub(crate) jobs: Vec<PlannedJob>,
    /// Jobs of an earlier list that were removed.
    pub(crate) removed: Vec<Job>,
    /// The current time in the user's zone.
    pub(crate) now: Zoned,
    /// The crontab change. The jobs are saved even if this failed.
    pub(crate) crontab: Result<CrontabChange>,
    /// The status of a failure after the jobs were saved.
    pub(crate) exit: Exit,
}

/// Creates and changes jobs according to `list`. With `prune`, jobs of an earlier list that are not in it are removed.
///
/// # Errors
/// An item is invalid, or the job file cannot be written; then nothing is changed.
pub(crate) fn apply(ctx: &Context, list: &[JobListItem<'_>], prune: bool) -> Result<AppliedList> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let now = ctx.clock.timestamp();
    let mut jobs = store.jobs()?;
    let mut plans = Vec::new();
    for JobListItem { draft, position } in list {
        let plan = job_edit::plan(ctx, &settings, &store, &jobs, draft, true)
            .map_err(|error| outside_turn(error, position))?;
        match jobs.iter_mut().find(|job| job.id == plan.job.id) {
            Some(job) => job.clone_from(&plan.job),
            None => jobs.push(plan.job.clone()),
        }
        plans.push(plan);
    }
    let is_listed = |job: &&Job| plans.iter().any(|plan| plan.job.id == job.id);
    let is_applied = |job: &&Job| job.options.as_ref().is_some_and(|options| options.applied);
    let removed: Vec<Job> =
        jobs.iter().filter(|job| prune && is_applied(job) && !is_listed(job)).cloned().collect();
    for (PlannedJob { job, .. }, JobListItem { position, .. }) in plans.iter().zip(list) {
        check_chain(&jobs, job).map_err(|error| outside_turn(error, position))?;
        if let Some(removed) =
            removed.iter().find(|removed| job.follows() == Some(removed.id.as_str()))
        {
            let cause =
                format!("`{}` runs after `{}`, which would be removed", job.name, removed.name);
            let error = fail(Exit::BadInput, cause).with_hint("both jobs in the list");
            return Err(outside_turn(error, position));
        }
    }
    let saved_jobs: Vec<&Job> = plans
        .iter()
        .filter(|plan| plan.change != JobChange::Unchanged)
        .map(|plan| &plan.job)
        .collect();
    if !saved_jobs.is_empty() || !removed.is_empty() {
        job_edit::require_known_file(ctx, &settings, &store)?;
        let ids: Vec<&str> = removed.iter().map(|job| job.id.as_str()).collect();
        store.save(&saved_jobs, &ids, now)?;
    }
    let mut exit = Exit::Answered;
    for job in &removed {
        if let Err(error) = lifecycle::remove_data(ctx, &settings, &store, job) {
            exit = report_error(&error, ctx.terminal);
        }
    }
    let crontab = crontab_sync::write_crontab(ctx, &settings, &store, JobFilter::Managed);
    Ok(AppliedList { jobs: plans, removed, now: time_zone::now(ctx, &settings), crontab, exit })
}
