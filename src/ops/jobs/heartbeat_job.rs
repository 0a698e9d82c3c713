//! Enables and disables the heartbeat's job.

use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, CrontabChange, JobFilter};
use crate::ops::jobs::heartbeat::FILE_NAME;
use crate::ops::jobs::job_edit::{JobChange, SavedJob};
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::jobs::job_notices::{consequence_notices, replaced_grants_notice};
use crate::ops::jobs::job_options::apply_flags;
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use crate::options::job::{JobSettings, ScheduleFlags};
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_cron::job::{HEARTBEAT_ID, HEARTBEAT_INTERVAL, Job};
use nanobot_cron::schedule;

/// Schedules the check of HEARTBEAT.md. Of the flags about the schedule, `--every` applies.
pub(crate) fn enable(ctx: &Context, job_settings: &JobSettings) -> Result<SavedJob> {
    let JobSettings { schedule: ScheduleFlags { every, .. }, grants, .. } = job_settings;
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let now = ctx.clock.timestamp();
    let period = every
        .as_deref()
        .map(schedule::parse_period)
        .transpose()
        .map_err(|error| fail(Exit::Usage, format!("`--every`: {error}")))?;
    let stored_job = store.job(HEARTBEAT_ID)?;
    let is_new = stored_job.is_none();
    let mut job = stored_job.unwrap_or_else(|| Job::heartbeat(now));
    if let Some(period) = period.or(is_new.then_some(HEARTBEAT_INTERVAL)) {
        timing::start_period(&mut job, period, now);
    }
    let old_grants = job.options.as_ref().map(stored_grants).transpose()?;
    let resolved = apply_flags(ctx, &mut job, job_settings, None)?;
    store.add(&job, now, None)?;
    let mut notices = consequence_notices(ctx, &job, grants, &resolved, is_new);
    if let Some(old_grants) = old_grants {
        notices.extend(replaced_grants_notice(&old_grants, grants, &resolved)?);
    }
    let path = settings.workspace.join(FILE_NAME);
    if !path.exists() {
        let path = ctx.paths.display(&path);
        notices.push(format!("the tasks belong in `{path}`, which does not exist yet"));
    }
    let change = if is_new { JobChange::Added } else { JobChange::Changed };
    Ok(SavedJob::new(ctx, &settings, &store, job, change, notices))
}

/// The removal of the heartbeat's job.
pub(crate) struct DisabledHeartbeat {
    /// The crontab change. The job is removed even if this failed.
    pub(crate) crontab: Result<CrontabChange>,
}

/// Removes the heartbeat's job. `None` if the heartbeat was not enabled.
pub(crate) fn disable(ctx: &Context) -> Result<Option<DisabledHeartbeat>> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let Some(job) = store.job(HEARTBEAT_ID)? else {
        return Ok(None);
    };
    store.remove(HEARTBEAT_ID)?;
    lifecycle::remove_data(ctx, &settings, &store, &job)?;
    let crontab = crontab_sync::write_crontab(ctx, &settings, &store, JobFilter::Managed);
    Ok(Some(DisabledHeartbeat { crontab }))
}
