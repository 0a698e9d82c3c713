//! `cron enable`, `disable` and `remove`, each for several jobs.

use crate::ops::context::{Context, report_error};
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::job_status;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use crate::ops::jobs::unseen_answers;
use crate::ops::jobs::workspace_jobs::{self, is_heartbeat};
use crate::ops::notices;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_config::settings::Settings;
use nanobot_cron::job::Job;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::JobDir;
use nanobot_cron::schedule::Schedule;
use nanobot_store::session as sessions;

/// The ids of all jobs to enable or disable together: those of this program, without the heartbeat. A one-time job whose
/// time has passed stays disabled.
pub(crate) fn ids_to_set_enabled(ctx: &Context, enabled: bool) -> Result<Vec<String>> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let now = ctx.clock.timestamp();
    let is_over = |job: &Job| matches!(job.schedule, Ok(Schedule::At(time)) if time <= now);
    let is_selected = |job: &Job| {
        store.is_managed(job)
            && job.enabled != enabled
            && !is_heartbeat(job)
            && !(enabled && is_over(job))
    };
    let jobs = store.jobs()?.into_iter();
    Ok(jobs.filter(is_selected).map(|job| job.id).collect())
}

/// Enables or disables jobs. `on_done` is called for each.
pub(crate) fn set_enabled(
    ctx: &Context,
    names: &[String],
    enabled: bool,
    on_done: &mut dyn FnMut(&Job) -> Result<()>,
) -> Result<Exit> {
    let saved_message = if enabled {
        "the jobs are enabled, but cron does not start them"
    } else {
        "the jobs are disabled: remaining crontab lines do nothing"
    };
    for_each_job(ctx, names, saved_message, &mut |_, store, job| {
        if is_heartbeat(job) {
            let verb = if enabled { "enable" } else { "disable" };
            return Err(fail(Exit::Usage, "the heartbeat is not a job in the job file")
                .with_hint(format!("`nanobot cron heartbeat {verb}`")));
        }
        let now = ctx.clock.timestamp();
        let is_stored = store.update(&job.id, now, |job| {
            job.enabled = enabled;
            let mut must_write_options = false;
            if enabled && let Some(options) = &mut job.options {
                // Slots missed while disabled are not caught up.
                options.since_ms = now.as_millisecond();
                must_write_options = true;
            }
            timing::update_next_run(ctx, job, now);
            must_write_options
        })?;
        if !is_stored {
            return Err(workspace_jobs::unknown_job_error(&[], &job.id));
        }
        if enabled
            && let Ok(Schedule::At(time)) = job.schedule
            && time <= now
        {
            ctx.notice(&format!(
                "the time of `{}` has passed; set another with `nanobot cron edit {} --at …`",
                job.name, job.id
            ));
        }
        on_done(job)
    })
}

/// Removes jobs with all their data. `on_done` is called for each.
pub(crate) fn remove(
    ctx: &Context,
    names: &[String],
    on_done: &mut dyn FnMut(&Job) -> Result<()>,
) -> Result<Exit> {
    for_each_job(
        ctx,
        names,
        "the jobs are removed: remaining crontab lines do nothing",
        &mut |settings, store, job| {
            let was_stored = store.remove(&job.id)?;
            if !was_stored && !store.job_dir(&job.id)?.is_dir() {
                return Err(workspace_jobs::unknown_job_error(&[], &job.id));
            }
            remove_data(ctx, settings, store, job)?;
            on_done(job)
        },
    )
}

/// Removes the data of a job that is no longer in the job file: its directory, and its own session.
pub(crate) fn remove_data(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
    job: &Job,
) -> Result<()> {
    // Another program has chosen the id. Without a valid directory name, the job has never run here and has no data.
    if !nanobot_cron::job_store::is_valid_id(&job.id) {
        return Ok(());
    }
    notices::forget(ctx, &notices::job_subject(&job.id))?;
    unseen_answers::forget(ctx, &job.id)?;
    let job_dir = store.job_dir(&job.id)?;
    if job_dir.exists() {
        match JobDir::new(job_dir).lock(&job.name, &ctx.clock.local_timestamp()) {
            Ok(lock) => {
                store.remove_job_dir(&job.id)?;
                drop(lock);
            }
            // At its end, the run in progress finds that the job was removed, and removes the data itself.
            Err(error) if exit_for(&error) == Exit::TryAgain => {
                ctx.notice(&format!(
                    "`{}` is running: the current run continues to its end",
                    job.name
                ));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    discard_session(ctx, settings, job)
}

/// Moves the session of a removed job to the trash, if the session belongs to the job alone.
pub(crate) fn discard_session(ctx: &Context, settings: &Settings, job: &Job) -> Result<()> {
    // The Python program uses the heartbeat's session under the same name.
    if !job.has_own_session() || is_heartbeat(job) {
        return Ok(());
    }
    let key = job.session_key();
    let name = time_format::to_one_line(&job.name);
    let session_store = ctx.session_store(settings)?;
    match sessions::move_to_trash(&session_store, &key) {
        Ok(()) => {
            ctx.notice(&format!(
                "moved the session of `{name}` to the trash; restore it with `nanobot session restore {key}`"
            ));
            sessions::remove_expired_trash(&session_store, settings.retention.trash)?;
        }
        // The job never ran, so it has no session.
        Err(error) if exit_for(&error) == Exit::NoInput => {}
        Err(error) if exit_for(&error) == Exit::TryAgain => {
            ctx.notice(&format!("the session `{key}` of `{name}` was not removed: {error:#}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The job that `name` selects in the job file, or else a removed one that has left data: the records of a one-time job,
/// or the rest of an interrupted `cron remove`.
fn find_job(ctx: &Context, store: &JobStore, name: &str) -> Result<Job> {
    workspace_jobs::find(store, name).or_else(|error| {
        let has_data = store.job_dir(name).is_ok_and(|path| path.is_dir());
        if has_data { Ok(Job::removed(name, ctx.clock.timestamp())) } else { Err(error) }
    })
}

/// Applies `action` to each of the jobs in `names`, and then updates the crontab. A missing job does not affect the
/// others.
fn for_each_job(
    ctx: &Context,
    names: &[String],
    saved_message: &str,
    action: &mut dyn FnMut(&Settings, &JobStore, &Job) -> Result<()>,
) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let mut exit = Exit::Answered;
    let mut changed_ids = Vec::new();
    for name in names {
        let result = match find_job(ctx, &store, name) {
            Ok(job) => {
                // Set even if `action` fails: it may have changed something before it failed.
                changed_ids.push(job.id.clone());
                action(&settings, &store, &job)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            let error_exit = report_error(&error, ctx.terminal);
            if exit == Exit::Answered {
                exit = error_exit;
            }
        }
    }
    if !changed_ids.is_empty() {
        let change = crontab_sync::write_crontab(ctx, &settings, &store, JobFilter::Managed);
        let crontab_exit = crontab_sync::report_change(ctx, change, saved_message);
        if exit == Exit::Answered {
            exit = crontab_exit;
        }
        let jobs = store.jobs()?;
        let followers = changed_ids.iter().flat_map(|id| workspace_jobs::followers(&jobs, id));
        followers.filter_map(job_status::predecessor_notice).for_each(|notice| ctx.notice(&notice));
    }
    Ok(exit)
}
