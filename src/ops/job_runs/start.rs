//! `nanobot cron run` and `rerun`: starts a run by hand, from a crontab line, or for another scheduler.

use crate::ops::context::{Context, report_error};
use crate::ops::job_runs::job_process::{JobStart, start_followers, start_processes};
use crate::ops::job_runs::job_runner::JobRunner;
use crate::ops::job_runs::notification::report_start_error;
use crate::ops::job_runs::scheduled_run::{ScheduledStart, has_other_work, run_if_due};
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::heartbeat;
use crate::ops::jobs::job_context::{job_context, with_config};
use crate::ops::jobs::run_log;
use crate::ops::jobs::timing::{self, StartTime};
use crate::ops::jobs::workspace_jobs;
use crate::ops::notify;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::{JobStarter, Settings};
use nanobot_cron::job::{HEARTBEAT_ID, Job};
use nanobot_cron::job_store::{JobStore, is_valid_id};
use nanobot_cron::run_record::{JobDir, Trigger};
use nanobot_sandbox::process;
use std::collections::BTreeMap;

/// The way in which a job is started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StartMode<'a> {
    /// Starts the job now.
    Now,
    /// Starts the job only if it is due, like a crontab line.
    Scheduled(ScheduledStart<'a>),
    /// Starts the job now, with the small environment of cron.
    AsCron,
}

/// Runs the job that `name_or_id` names. Without `prints_answer`, the answer of a run that starts now is not printed.
pub(crate) fn run(
    ctx: &Context,
    name_or_id: &str,
    mode: StartMode<'_>,
    prints_answer: bool,
) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    match mode {
        StartMode::Now => {
            let job = workspace_jobs::find_usable(&store, name_or_id)?;
            let (ctx, settings) = job_context(ctx, settings, &job)?;
            let runner = JobRunner::new(&ctx, &settings, &store, &job)?;
            run_manually(&JobRunner { prints_answer, ..runner })
        }
        StartMode::AsCron => {
            let job = workspace_jobs::find_usable(&store, name_or_id)?;
            let (command, env) = crontab_sync::cron_command(ctx, &settings, &job)?;
            let error = process::become_shell(&command, &env, &ctx.paths.home);
            Err(error).context("start a shell with cron's environment")
        }
        StartMode::Scheduled(start) => {
            let job = match store.job(name_or_id)? {
                Some(job) => job,
                // Lines of cron have the id; other schedulers may be given the name.
                None => match workspace_jobs::find_named(&store, &store.jobs()?, name_or_id)? {
                    Some(job) => job,
                    None => {
                        return Err(unknown_scheduled_job(ctx, &settings, &store, name_or_id));
                    }
                },
            };
            run_if_due(ctx, settings, &store, &job, start)
                .or_else(|error| report_start_error(ctx, &job, error, !start.no_notify))
        }
    }
}

/// The error when a crontab line starts a job that no longer exists.
fn unknown_scheduled_job(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
    id: &str,
) -> anyhow::Error {
    let cause = format!("job `{id}` no longer exists");
    if settings.job_starter == JobStarter::Other {
        let hint =
            "remove it from the scheduler that starts it; `nanobot cron list --all` shows the jobs";
        return fail(Exit::NoInput, cause).with_hint(hint);
    }
    if remove_stale_line(ctx, settings, store, id) {
        fail(Exit::NoInput, cause + "; its line was removed from the crontab")
    } else {
        fail(Exit::NoInput, cause)
            .with_hint("`nanobot cron sync` to remove its line from the crontab")
    }
}

/// Checks HEARTBEAT.md now, even if the heartbeat is not enabled.
pub(crate) fn run_heartbeat(ctx: &Context, prints_answer: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    if prints_answer && heartbeat::read_tasks(&settings)?.is_none() {
        ctx.explain_empty("HEARTBEAT.md in the workspace has no tasks, so no request is sent");
    }
    let store = workspace_jobs::open(ctx, &settings);
    let stored_job = store.job(HEARTBEAT_ID)?;
    let is_stored = stored_job.is_some();
    let job = stored_job.unwrap_or_else(|| Job::heartbeat(ctx.clock.timestamp()));
    let runner = JobRunner::new(ctx, &settings, &store, &job)?;
    run_manually(&JobRunner { is_stored, prints_answer, ..runner })
}

/// Runs the job of the run `run_id` again now, with the input of that run: the output of `--when`, and the answer of the job before.
///
/// # Errors
/// Status 66 if there is no such run or job; status 2 if that run asked no model.
pub(crate) fn rerun(ctx: &Context, run_id: &str, prints_answer: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let record = run_log::find_run(&store, run_id)?;
    let id = &record.job_id;
    let job = store.job(id)?.ok_or_else(|| workspace_jobs::unknown_job_error(&[], id))?;
    if !record.outcome.has_input() {
        let cause = format!("the run `{run_id}` had no input: {}", record.outcome.describe());
        return Err(fail(Exit::Usage, cause).with_hint(format!("`nanobot cron run {id}`")));
    }
    let changed_ms = job.options.as_ref().map_or(0, |options| options.changed_ms);
    if record.start.parse::<Timestamp>().is_ok_and(|start| start.as_millisecond() < changed_ms) {
        ctx.notice(&format!("`{}` was changed after that run: it runs as it is now", job.name));
    }
    let (ctx, settings) = job_context(ctx, settings, &job)?;
    let runner = JobRunner::new(&ctx, &settings, &store, &job)?;
    run_manually(&JobRunner { prints_answer, rerun: Some(&record), ..runner })
}

/// Runs a job by hand.
fn run_manually(runner: &JobRunner<'_>) -> Result<Exit> {
    let JobRunner { ctx, settings, job, job_dir, rerun, .. } = runner;
    let lock = job_dir.lock(&job.name, &ctx.clock.local_timestamp())?;
    let mut state = job_dir.read_state()?;
    runner.recover_interrupted_run(&mut state)?;
    let slot = rerun.and_then(|record| record.slot.as_deref()?.parse().ok());
    let exit = runner.run(Trigger::Manual, slot, state)?;
    drop(lock);
    start_followers(runner, exit);
    notify::send_waiting(ctx, settings);
    Ok(exit)
}

/// Removes the obsolete crontab line of a job that no longer exists. Returns true on success; after a failure, the caller
/// names the command that reports it. Without a job file nothing is removed, since its directory may be unavailable only
/// temporarily.
fn remove_stale_line(ctx: &Context, settings: &Settings, store: &JobStore, id: &str) -> bool {
    store.job_file().exists()
        && crontab_sync::has_line(ctx, settings, id).unwrap_or(false)
        && crontab_sync::write_crontab(ctx, settings, store, JobFilter::Managed).is_ok()
}

/// Starts every due job as a separate process, several in parallel, and waits for them. Returns the first status other
/// than success, in the order of the jobs.
///
/// Jobs of another program run only if `cron sync` took them over: write access to the job file alone must not be
/// enough to run a job.
pub(crate) fn run_due(ctx: &Context) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = &workspace_jobs::open(ctx, &settings);
    let mut exits = BTreeMap::new();
    let mut starts = Vec::new();
    for (index, job) in store.jobs()?.into_iter().enumerate() {
        let is_managed = store.has_options(&job.id)? || store.is_taken_over(&job.id);
        if !job.enabled || !is_managed || !is_valid_id(&job.id) {
            continue;
        }
        match needs_start(ctx, store, &job) {
            Ok(false) => {}
            Ok(true) => {
                let options = job.options.clone().unwrap_or_default();
                // The target of another config may be another one.
                let no_notify = with_config(ctx, &options).paths.config == ctx.paths.config;
                starts.push(JobStart { job, index, no_notify });
            }
            // The other jobs still run.
            Err(error) => {
                let exit = report_start_error(ctx, &job, error, false)
                    .unwrap_or_else(|error| report_error(&error, ctx.terminal));
                exits.insert(index, exit);
            }
        }
    }
    exits.extend(start_processes(ctx, starts, true));
    notify::send_waiting(ctx, &settings);
    let first_failure = exits.into_values().find(|exit| *exit != Exit::Answered);
    Ok(first_failure.unwrap_or(Exit::Answered))
}

/// True if a job needs a start: it is due, or a start has other work.
fn needs_start(ctx: &Context, store: &JobStore, job: &Job) -> Result<bool> {
    let state = JobDir::new(store.job_dir(&job.id)?)
        .read_state()
        .with_context(|| format!("job `{}` cannot run", job.name))?;
    let start_time = StartTime::new(ctx, job);
    Ok(has_other_work(job, &state, start_time.now)
        || timing::due_state(ctx, job, &state, start_time)?.needs_start())
}
