//! A job that the clock starts: whether it is due, and what becomes of the time that it is due at.

use crate::cron::job::Job;
use crate::cron::record::{Folder, Outcome, Stamps, Trigger};
use crate::cron::schedule::{Schedule, Verdict};
use crate::cron::store::{Store, is_plain};
use crate::error::{Exit, exit_of};
use crate::ops::context::Context;
use crate::ops::jobs::job_runner::JobRunner;
use crate::ops::jobs::job_slot::SlotState;
use crate::ops::jobs::resolved_job::job_context;
use crate::ops::jobs::timing;
use crate::settings::Settings;
use anyhow::Result;
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Of a run that began so long ago at most, another start is no later look whether it is due, but the same one twice: cron
/// starts a line once a minute.
const SAME_START: Duration = Duration::from_secs(30);

/// Runs a job if it is due; says nothing if it is not. `replay` stands for the model.
pub(crate) fn run_if_due(
    ctx: &Context,
    settings: Settings,
    store: &Store,
    job: &Job,
    replay: Option<&Path>,
) -> Result<Exit> {
    if !job.enabled || !is_plain(&job.id) {
        return Ok(Exit::Answered);
    }
    let folder = Folder::new(store.folder(&job.id)?);
    let stamps = folder.stamps()?;
    if stamps.started.is_none()
        && !is_left_over(job, &stamps)
        && matches!(
            timing::due_state(ctx, job, &stamps)?,
            Verdict::NotYet { .. }
        )
    {
        return Ok(Exit::Answered);
    }
    let (ctx, settings) = job_context(ctx, settings, job)?;
    let runner = JobRunner {
        ctx: &ctx,
        settings: &settings,
        store,
        folder: &folder,
        is_stored: true,
        replay,
    };
    let lock = match folder.lock(&job.name, &ctx.clock.stamp()) {
        Ok(lock) => lock,
        Err(error) => return report_locked(&runner, job, error),
    };
    // Whoever had the lock may have changed all of it.
    let Some(job) = store.job(&job.id)?.filter(|job| job.enabled) else {
        return Ok(Exit::Answered);
    };
    let exit = run_slot(&runner, &job)?;
    drop(lock);
    Ok(exit)
}

/// Another process has the lock of the job, and has begun since.
fn report_locked(runner: &JobRunner, job: &Job, error: anyhow::Error) -> Result<Exit> {
    let ctx = runner.ctx;
    let stamps = runner.folder.stamps()?;
    if exit_of(&error) != Exit::TryAgain {
        return Err(error);
    }
    let is_begun = stamps.started.is_some();
    match timing::due_state(ctx, job, &stamps)? {
        // A later time than the one that is run.
        Verdict::Due { slot } if is_begun => runner.report_busy(job, Some(slot), error),
        Verdict::Due { .. } => runner.report_busy(job, None, error),
        _ if is_just_begun(&stamps, ctx.clock.timestamp()) => runner.report_busy(job, None, error),
        // It runs, and is not due again meanwhile.
        _ => Ok(Exit::Answered),
    }
}

/// Runs the time at which `job` is due, or notes why it is not run. The lock is held.
fn run_slot(runner: &JobRunner, job: &Job) -> Result<Exit> {
    let (ctx, folder) = (runner.ctx, runner.folder);
    let mut stamps = folder.stamps()?;
    let rerun = runner.find_crash(job, &mut stamps)?;
    let mut verdict = timing::due_state(ctx, job, &stamps)?;
    if let Verdict::ClockWasWrong { handled } = verdict {
        stamps.handled_ms = Some(handled.as_millisecond());
        folder.stamp(&stamps)?;
        verdict = timing::due_state(ctx, job, &stamps)?;
    }
    match (verdict, rerun) {
        (Verdict::Due { slot }, _) => {
            let before = stamps.handled_ms.replace(slot.as_millisecond());
            match runner.slot_state(job, slot)? {
                SlotState::RanHere => {
                    folder.stamp(&stamps)?;
                    Ok(Exit::Answered)
                }
                SlotState::RanByOther => {
                    runner.record_skipped_slot(job, slot, Outcome::Elsewhere, stamps)
                }
                SlotState::NotRun => {
                    let exit = runner.run(job, Trigger::Schedule, Some(slot), stamps)?;
                    runner.finish_slot(job, slot, exit, before)?;
                    Ok(exit)
                }
            }
        }
        (_, Some(slot)) => {
            let exit = runner.run(job, Trigger::Schedule, Some(slot), stamps)?;
            runner.finish_slot(job, slot, exit, stamps.handled_ms)?;
            Ok(exit)
        }
        (Verdict::Missed { slot }, None) => {
            stamps.handled_ms = Some(slot.as_millisecond());
            runner.record_skipped_slot(job, slot, Outcome::Missed, stamps)
        }
        (Verdict::NotYet { .. } | Verdict::ClockWasWrong { .. }, None) => {
            if is_left_over(job, &stamps) {
                let mut records = folder.records(usize::MAX)?.into_iter().rev();
                let last = records.find(|record| record.outcome.is_run());
                runner.retire(job, last.map(|last| last.outcome))?;
            }
            Ok(Exit::Answered)
        }
    }
}

/// Whether a run has begun so short a time ago that another start means the same.
fn is_just_begun(stamps: &Stamps, now: Timestamp) -> bool {
    let ago = stamps
        .started
        .map(|run| u128::from(now.as_millisecond().abs_diff(run.at_ms)));
    ago.is_none_or(|ago| ago <= SAME_START.as_millis())
}

/// Whether a job that runs once has had its time, and whatever ran it did not come to its end: it would never be due again,
/// and be asked for ever.
fn is_left_over(job: &Job, stamps: &Stamps) -> bool {
    let (Ok(Schedule::At(time)), Some(handled)) = (&job.schedule, stamps.handled()) else {
        return false;
    };
    *time <= handled && job.since() <= handled
}
