//! `nanobot cron run`: starts a run by hand, from a crontab line, or for another scheduler.

use crate::cron::job::{HEARTBEAT, Job};
use crate::cron::record::{Folder, Trigger};
use crate::cron::schedule::Verdict;
use crate::cron::store::{Store, is_plain};
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::job_runner::JobRunner;
use crate::ops::jobs::job_store;
use crate::ops::jobs::resolved_job::job_context;
use crate::ops::jobs::scheduled_run::run_if_due;
use crate::ops::jobs::timing;
use crate::settings::Settings;
use crate::sys::process;
use crate::sys::sync::IgnorePoison;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Mutex;

/// Maximum number of jobs that [`run_due`] runs at once.
const MAX_PARALLEL_JOBS: usize = 8;

/// How one job is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartMode {
    /// Now.
    Now,
    /// If it is due, as from a crontab line.
    Scheduled,
    /// Now, but with the small environment of cron.
    AsCron,
}

/// Runs the job that `name_or_id` names.
pub(crate) fn run(ctx: &Context, word: &str, mode: StartMode) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    match mode {
        StartMode::Now => {
            let job = job_store::find(&store, word)?;
            let (ctx, settings) = job_context(ctx, settings, &job)?;
            by_hand(&ctx, &settings, &store, &job, true)
        }
        StartMode::AsCron => {
            let job = job_store::find(&store, word)?;
            let (command, env) = crontab_sync::as_cron(ctx, &settings, &job)?;
            let error = process::become_shell(&command, &env, &ctx.paths.home);
            Err(error).context("start a shell with cron's environment")
        }
        StartMode::Scheduled => match store.job(word)? {
            Some(job) => run_if_due(ctx, settings, &store, &job, None),
            None => Err(unknown_scheduled_job(ctx, &settings, &store, word)),
        },
    }
}

/// The error when a crontab line starts a job that no longer exists.
fn unknown_scheduled_job(
    ctx: &Context,
    settings: &Settings,
    store: &Store,
    id: &str,
) -> anyhow::Error {
    let cause = format!("job `{id}` no longer exists");
    match remove_line(ctx, settings, store, id) {
        true => fail(
            Exit::NoInput,
            cause + "; its line was removed from the crontab",
        ),
        false => fail_hint(
            Exit::NoInput,
            cause,
            "`nanobot cron sync` to remove its line from the crontab",
        ),
    }
}

/// Checks HEARTBEAT.md now, even if the heartbeat is not enabled.
pub(crate) fn run_heartbeat(ctx: &Context) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let stored = store.job(HEARTBEAT)?;
    let is_stored = stored.is_some();
    let job = stored.unwrap_or_else(|| Job::heartbeat(ctx.clock.timestamp()));
    by_hand(ctx, &settings, &store, &job, is_stored)
}

/// Runs a job by hand. `is_stored` is true if the job is in the store.
fn by_hand(
    ctx: &Context,
    settings: &Settings,
    store: &Store,
    job: &Job,
    is_stored: bool,
) -> Result<Exit> {
    let folder = Folder::new(store.folder(&job.id)?);
    let lock = folder.lock(&job.name, &ctx.clock.stamp())?;
    let mut stamps = folder.stamps()?;
    let runner = JobRunner {
        ctx,
        settings,
        store,
        folder: &folder,
        is_stored,
        replay: None,
    };
    runner.find_crash(job, &mut stamps)?;
    let exit = runner.run(job, Trigger::Hand, None, stamps);
    drop(lock);
    exit
}

/// Removes the obsolete crontab line of a job that no longer exists. Returns true on success. Without a job file
/// nothing is removed, since its folder may be unavailable only temporarily.
fn remove_line(ctx: &Context, settings: &Settings, store: &Store, id: &str) -> bool {
    let is_there = || {
        crontab_sync::lines(ctx, settings).is_ok_and(|lines| {
            lines
                .iter()
                .any(|line| crontab_sync::id_of(line) == Some(id))
        })
    };
    store.file().exists()
        && is_there()
        && crontab_sync::write_crontab(ctx, settings, store, JobFilter::Known).is_ok()
}

/// Starts every due job as a separate process, several in parallel, and waits for them. Returns the first status other
/// than success, in the order of the jobs.
///
/// Jobs of another program run only if `cron sync` took them over: write access to the job file alone must not be
/// enough to run a job.
pub(crate) fn run_due(ctx: &Context) -> Result<Exit> {
    let store = &job_store::open(ctx, &ctx.settings()?);
    let (mut exits, mut starts) = (BTreeMap::new(), Vec::new());
    for (place, job) in store.jobs()?.into_iter().enumerate() {
        let is_ours = job.terms.is_some() || store.is_taken_over(&job.id);
        if !job.enabled || !is_ours || !is_plain(&job.id) || job.schedule.is_err() {
            continue;
        }
        match is_due(ctx, store, &job) {
            Ok(false) => {}
            Ok(true) => starts.push((place, job)),
            // The other jobs still run.
            Err(error) => {
                exits.insert(place, report_error(&error, ctx.terminal));
            }
        }
    }
    let count = starts.len();
    let (queue, exits) = (Mutex::new(starts.into_iter()), Mutex::new(exits));
    let next = || queue.lock().ignore_poison().next();
    let work = || {
        while let Some((place, job)) = next() {
            let exit = start_process(ctx, &job).unwrap_or_else(|error| {
                let error = error.context(format!("job `{}` ({})", job.name, job.id));
                report_error(&error, ctx.terminal)
            });
            let mut exits = exits.lock().ignore_poison();
            exits.insert(place, exit);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..count.min(MAX_PARALLEL_JOBS) {
            scope.spawn(work);
        }
    });
    let exits = exits.into_inner().ignore_poison();
    let mut failed = exits.into_values().filter(|exit| *exit != Exit::Answered);
    Ok(failed.next().unwrap_or(Exit::Answered))
}

/// True if a job needs a start: it is due, or its last run did not end.
fn is_due(ctx: &Context, store: &Store, job: &Job) -> Result<bool> {
    let stamps = Folder::new(store.folder(&job.id)?).stamps();
    let stamps = stamps.with_context(|| format!("job `{}` cannot run", job.name))?;
    Ok(stamps.started.is_some()
        || !matches!(
            timing::due_state(ctx, job, &stamps)?,
            Verdict::NotYet { .. }
        ))
}

/// Starts a job like a crontab line does, and waits for its end.
fn start_process(ctx: &Context, job: &Job) -> Result<Exit> {
    let mut arguments: Vec<OsString> = Vec::new();
    for (flag, path) in [("--config", &ctx.config), ("--workspace", &ctx.workspace)] {
        arguments.extend(path.iter().flat_map(|path| [flag.into(), path.into()]));
    }
    if ctx.quiet {
        arguments.push("--quiet".into());
    }
    arguments.extend(["cron", "run", job.id.as_str(), "--scheduled"].map(OsString::from));
    let mut child = process::spawn_self(&arguments).context("start the process")?;
    let status = child.wait().context("wait for the process")?;
    Ok(status.code().map_or(Exit::Failed, Exit::of_code))
}
