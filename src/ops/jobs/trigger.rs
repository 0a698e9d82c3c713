//! `nanobot cron run`: whether a job is due, and who runs it; what a run is, is in [`super::work`].

use crate::cli::cron::Run;
use crate::cron::job::{HEARTBEAT, Job};
use crate::cron::record::{Folder, Outcome, Stamps, Trigger};
use crate::cron::schedule::{Schedule, Verdict};
use crate::cron::store::{Store, is_plain};
use crate::error::{Exit, exit_of, fail, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::job_options::with_config;
use crate::ops::jobs::job_run::{Ran, Work};
use crate::ops::jobs::job_store;
use crate::ops::jobs::probe;
use crate::ops::jobs::timing;
use crate::settings::Settings;
use crate::sys::process;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Of a run that began so long ago at most, another start is no later look whether it is due, but the same one twice: cron
/// starts a line once a minute.
const AT_ONCE: Duration = Duration::from_secs(30);
/// How many jobs `--due` runs at once.
const AT_MOST: usize = 8;

pub(crate) fn run(ctx: &Context, arguments: &Run) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    if arguments.due {
        return due(ctx, &store);
    }
    let word = arguments.job.as_deref().unwrap_or_default();
    if arguments.probe {
        return probe::run(ctx, &settings, word);
    }
    if arguments.scheduled {
        let Some(job) = store.job(word)? else {
            let cause = format!("there is no job `{word}` any more");
            return Err(match withdraw(ctx, &settings, &store, word) {
                true => fail(
                    Exit::NoInput,
                    cause + "; its line is out of the crontab now",
                ),
                false => fail_hint(
                    Exit::NoInput,
                    cause,
                    "`nanobot cron sync`, which takes its line out of the crontab",
                ),
            });
        };
        return scheduled(ctx, settings, &store, job, None);
    }
    let job = job_store::find(&store, word)?;
    if arguments.as_cron {
        let (command, env) = crontab_sync::as_cron(ctx, &settings, &job)?;
        let error = process::become_shell(&command, &env, &ctx.paths.home);
        return Err(error).context("start a shell, as cron would");
    }
    let (ctx, settings) = of_job(ctx, settings, &job)?;
    by_hand(&ctx, &settings, &store, &job, true)
}

/// The world with the config that the job was made with, and the workspace that it was found in.
fn of_job(ctx: &Context, settings: Settings, job: &Job) -> Result<(Context, Settings)> {
    let Some(terms) = job.terms.as_ref().filter(|terms| terms.config.is_some()) else {
        return Ok((ctx.clone(), settings));
    };
    let mut ctx = with_config(ctx, terms);
    let workspace = &mut ctx.workspace;
    workspace.get_or_insert(settings.workspace);
    let settings = ctx.settings()?;
    Ok((ctx, settings))
}

/// Look at HEARTBEAT.md now, whether cron looks or not.
pub(crate) fn look(ctx: &Context) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let there = store.job(HEARTBEAT)?;
    let is_kept = there.is_some();
    let job = there.unwrap_or_else(|| Job::heartbeat(ctx.clock.timestamp()));
    by_hand(ctx, &settings, &store, &job, is_kept)
}

/// Run a job because somebody asks for it. `is_kept` where it is in the store.
fn by_hand(
    ctx: &Context,
    settings: &Settings,
    store: &Store,
    job: &Job,
    is_kept: bool,
) -> Result<Exit> {
    let folder = Folder::new(store.folder(&job.id)?);
    let lock = folder.lock(&job.name, &ctx.clock.stamp())?;
    let mut stamps = folder.stamps()?;
    let work = Work {
        ctx,
        settings,
        store,
        folder: &folder,
        is_kept,
        replay: None,
    };
    work.find_crash(job, &mut stamps)?;
    let exit = work.run(job, Trigger::Hand, None, stamps);
    drop(lock);
    exit
}

/// Take the line of a job that is gone out of the crontab, where something left it there. Whether it could be done. Where
/// there is no job file, its folder may only be away for now.
fn withdraw(ctx: &Context, settings: &Settings, store: &Store, id: &str) -> bool {
    let is_there = || {
        crontab_sync::lines(ctx, settings).is_ok_and(|lines| {
            lines
                .iter()
                .any(|line| crontab_sync::id_of(line) == Some(id))
        })
    };
    store.file().exists()
        && is_there()
        && crontab_sync::project(ctx, settings, store, JobFilter::Known).is_ok()
}

/// Run a job if it is due; say nothing if it is not. `replay` stands for the model.
pub(super) fn scheduled(
    ctx: &Context,
    settings: Settings,
    store: &Store,
    job: Job,
    replay: Option<&Path>,
) -> Result<Exit> {
    if !job.enabled || !is_plain(&job.id) {
        return Ok(Exit::Answered);
    }
    let folder = Folder::new(store.folder(&job.id)?);
    let (mut job, mut stamps) = (job, folder.stamps()?);
    if stamps.started.is_none()
        && !is_left_over(&job, &stamps)
        && matches!(
            timing::due_state(ctx, &job, &stamps)?,
            Verdict::NotYet { .. }
        )
    {
        return Ok(Exit::Answered);
    }
    let (ctx, settings) = of_job(ctx, settings, &job)?;
    let work = Work {
        ctx: &ctx,
        settings: &settings,
        store,
        folder: &folder,
        is_kept: true,
        replay,
    };
    let lock = match folder.lock(&job.name, &ctx.clock.stamp()) {
        Ok(lock) => lock,
        Err(error) => {
            // Whoever has it has begun since.
            stamps = folder.stamps()?;
            if exit_of(&error) != Exit::TryAgain {
                return Err(error);
            }
            let is_begun = stamps.started.is_some();
            return match timing::due_state(&ctx, &job, &stamps)? {
                // A later time than the one that is run.
                Verdict::Due { slot } if is_begun => work.skipped(&job, Some(slot), error),
                Verdict::Due { .. } => work.skipped(&job, None, error),
                _ if is_just_begun(&stamps, ctx.clock.timestamp()) => {
                    work.skipped(&job, None, error)
                }
                // It runs, and is not due again meanwhile.
                _ => Ok(Exit::Answered),
            };
        }
    };
    // Whoever had the lock may have changed all of it.
    let Some(now) = store.job(&job.id)?.filter(|job| job.enabled) else {
        return Ok(Exit::Answered);
    };
    (job, stamps) = (now, folder.stamps()?);
    let again = work.find_crash(&job, &mut stamps)?;
    let mut verdict_now = timing::due_state(&ctx, &job, &stamps)?;
    if let Verdict::ClockWasWrong { handled } = verdict_now {
        stamps.handled_ms = Some(handled.as_millisecond());
        folder.stamp(&stamps)?;
        verdict_now = timing::due_state(&ctx, &job, &stamps)?;
    }
    let exit = match (verdict_now, again) {
        (Verdict::Due { slot }, _) => {
            let before = stamps.handled_ms.replace(slot.as_millisecond());
            match work.has_run(&job, slot)? {
                Ran::Here => {
                    folder.stamp(&stamps)?;
                    Exit::Answered
                }
                Ran::Elsewhere => work.passed_over(&job, slot, Outcome::Elsewhere, stamps)?,
                Ran::Not => {
                    let exit = work.run(&job, Trigger::Schedule, Some(slot), stamps)?;
                    work.leave(&job, slot, exit, before)?;
                    exit
                }
            }
        }
        (_, Some(slot)) => {
            let exit = work.run(&job, Trigger::Schedule, Some(slot), stamps)?;
            work.leave(&job, slot, exit, stamps.handled_ms)?;
            exit
        }
        (Verdict::Missed { slot }, None) => {
            stamps.handled_ms = Some(slot.as_millisecond());
            work.passed_over(&job, slot, Outcome::Missed, stamps)?
        }
        (Verdict::NotYet { .. } | Verdict::ClockWasWrong { .. }, None) => {
            if is_left_over(&job, &stamps) {
                let mut records = folder.records(usize::MAX)?.into_iter().rev();
                let last = records.find(|record| record.outcome.is_run());
                work.retire(&job, last.map(|last| last.outcome))?;
            }
            Exit::Answered
        }
    };
    drop(lock);
    Ok(exit)
}

/// Whether a run has begun so short a time ago that another start means the same.
fn is_just_begun(stamps: &Stamps, now: Timestamp) -> bool {
    let ago = stamps
        .started
        .map(|run| u128::from(now.as_millisecond().abs_diff(run.at_ms)));
    ago.is_none_or(|ago| ago <= AT_ONCE.as_millis())
}

/// Whether a job that runs once has had its time, and whatever ran it did not come to its end: it would never be due again,
/// and be asked for ever.
fn is_left_over(job: &Job, stamps: &Stamps) -> bool {
    let (Ok(Schedule::At(time)), Some(handled)) = (&job.schedule, stamps.handled()) else {
        return false;
    };
    *time <= handled && job.since() <= handled
}

/// Start every job that is due, some side by side, each as a process of its own, and wait for them. The status is the first
/// one that is none of success, in the order of the jobs.
///
/// Those of another program only where `cron sync` took them over: who writes the job file is not to have them run at once.
fn due(ctx: &Context, store: &Store) -> Result<Exit> {
    let (mut exits, mut starts) = (BTreeMap::new(), Vec::new());
    for (place, job) in store.jobs()?.into_iter().enumerate() {
        let is_ours = job.terms.is_some() || store.is_taken_over(&job.id);
        if !job.enabled || !is_ours || !is_plain(&job.id) || job.schedule.is_err() {
            continue;
        }
        match is_due(ctx, store, &job) {
            Ok(false) => {}
            Ok(true) => starts.push((place, job)),
            // The others are no worse for it.
            Err(error) => {
                exits.insert(
                    place,
                    crate::ops::context::report_error(&error, ctx.terminal),
                );
            }
        }
    }
    let count = starts.len();
    let (queue, exits) = (Mutex::new(starts.into_iter()), Mutex::new(exits));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((place, job)) = next() {
            let exit = started(ctx, &job).unwrap_or_else(|error| {
                let error = error.context(format!("the job `{}` ({})", job.name, job.id));
                crate::ops::context::report_error(&error, ctx.terminal)
            });
            let mut exits = exits.lock().unwrap_or_else(PoisonError::into_inner);
            exits.insert(place, exit);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..count.min(AT_MOST) {
            scope.spawn(work);
        }
    });
    let exits = exits.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut failed = exits.into_values().filter(|exit| *exit != Exit::Answered);
    Ok(failed.next().unwrap_or(Exit::Answered))
}

/// Whether there is anything to do for a job: it is due, or its last run did not end.
fn is_due(ctx: &Context, store: &Store, job: &Job) -> Result<bool> {
    let stamps = Folder::new(store.folder(&job.id)?).stamps();
    let stamps = stamps.with_context(|| format!("the job `{}` cannot run", job.name))?;
    Ok(stamps.started.is_some()
        || !matches!(
            timing::due_state(ctx, job, &stamps)?,
            Verdict::NotYet { .. }
        ))
}

/// Start a job as a line of the crontab does, and wait for its end.
fn started(ctx: &Context, job: &Job) -> Result<Exit> {
    let mut arguments: Vec<OsString> = Vec::new();
    for (flag, path) in [("--config", &ctx.config), ("--workspace", &ctx.workspace)] {
        arguments.extend(path.iter().flat_map(|path| [flag.into(), path.into()]));
    }
    if ctx.quiet {
        arguments.push("--quiet".into());
    }
    arguments.extend(["cron", "run", job.id.as_str(), "--scheduled"].map(OsString::from));
    let mut child = process::spawn_self(&arguments).context("start it")?;
    let status = child.wait().context("wait for it")?;
    Ok(status.code().map_or(Exit::Failed, Exit::of_code))
}
