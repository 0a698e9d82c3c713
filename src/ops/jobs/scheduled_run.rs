//! A job started by a schedule: checks if it is due, and handles the due slot.

use crate::cron::job::Job;
use crate::cron::job_store::{JobStore, is_valid_id};
use crate::cron::run_record::{JobDir, RunOutcome, RunState, Trigger};
use crate::cron::schedule::{DueState, Schedule};
use crate::error::{Exit, exit_for};
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

/// Starts within 30 s of a running start are treated as duplicates: cron starts a line once a minute.
const DUPLICATE_START_WINDOW: Duration = Duration::from_secs(30);

/// Runs a job if it is due, and prints nothing otherwise. `replay` replaces the model.
pub(crate) fn run_if_due(
    ctx: &Context,
    settings: Settings,
    store: &JobStore,
    job: &Job,
    replay: Option<&Path>,
) -> Result<Exit> {
    if !job.enabled || !is_valid_id(&job.id) {
        return Ok(Exit::Answered);
    }
    let folder = JobDir::new(store.job_dir(&job.id)?);
    let stamps = folder.read_state()?;
    if stamps.started.is_none()
        && !is_handled_but_not_retired(job, &stamps)
        && matches!(
            timing::due_state(ctx, job, &stamps)?,
            DueState::NotYet { .. }
        )
    {
        return Ok(Exit::Answered);
    }
    let (ctx, settings) = job_context(ctx, settings, job)?;
    let runner = JobRunner {
        ctx: &ctx,
        settings: &settings,
        store,
        job_dir: &folder,
        is_stored: true,
        replay,
    };
    let lock = match folder.lock(&job.name, &ctx.clock.local_timestamp()) {
        Ok(lock) => lock,
        Err(error) => return report_locked(&runner, job, error),
    };
    // The process that held the lock before may have changed the job.
    let Some(job) = store.job(&job.id)?.filter(|job| job.enabled) else {
        return Ok(Exit::Answered);
    };
    let exit = run_slot(&runner, &job)?;
    drop(lock);
    Ok(exit)
}

/// Handles the case that another process holds the job's lock.
fn report_locked(runner: &JobRunner, job: &Job, error: anyhow::Error) -> Result<Exit> {
    let ctx = runner.ctx;
    let stamps = runner.job_dir.read_state()?;
    if exit_for(&error) != Exit::TryAgain {
        return Err(error);
    }
    let is_begun = stamps.started.is_some();
    match timing::due_state(ctx, job, &stamps)? {
        // This slot is later than the one that is running.
        DueState::Due { slot } if is_begun => runner.report_busy(job, Some(slot), error),
        DueState::Due { .. } => runner.report_busy(job, None, error),
        _ if is_just_begun(&stamps, ctx.clock.timestamp()) => runner.report_busy(job, None, error),
        // The job is running, and not due again.
        _ => Ok(Exit::Answered),
    }
}

/// Runs the slot at which `job` is due, or records why it is skipped. The lock is held.
fn run_slot(runner: &JobRunner, job: &Job) -> Result<Exit> {
    let (ctx, folder) = (runner.ctx, runner.job_dir);
    let mut stamps = folder.read_state()?;
    let rerun = runner.recover_interrupted_run(job, &mut stamps)?;
    let mut verdict = timing::due_state(ctx, job, &stamps)?;
    if let DueState::ClockWasWrong { last_slot: handled } = verdict {
        stamps.last_slot_ms = Some(handled.as_millisecond());
        folder.write_state(&stamps)?;
        verdict = timing::due_state(ctx, job, &stamps)?;
    }
    match (verdict, rerun) {
        (DueState::Due { slot }, _) => {
            let before = stamps.last_slot_ms.replace(slot.as_millisecond());
            match runner.slot_state(job, slot)? {
                SlotState::AlreadyRun => {
                    folder.write_state(&stamps)?;
                    Ok(Exit::Answered)
                }
                SlotState::RunByOtherProgram => {
                    runner.record_skipped_slot(job, slot, RunOutcome::Elsewhere, stamps)
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
            runner.finish_slot(job, slot, exit, stamps.last_slot_ms)?;
            Ok(exit)
        }
        (DueState::Missed { slot }, None) => {
            stamps.last_slot_ms = Some(slot.as_millisecond());
            runner.record_skipped_slot(job, slot, RunOutcome::Missed, stamps)
        }
        (DueState::NotYet { .. } | DueState::ClockWasWrong { .. }, None) => {
            if is_handled_but_not_retired(job, &stamps) {
                let mut records = folder.last_records(usize::MAX)?.into_iter().rev();
                let last = records.find(|record| record.outcome.is_run());
                runner.retire(job, last.map(|last| last.outcome))?;
            }
            Ok(Exit::Answered)
        }
    }
}

/// True if a run began so recently that another start is a duplicate, or is just beginning.
fn is_just_begun(stamps: &RunState, now: Timestamp) -> bool {
    let ago = stamps
        .started
        .map(|run| u128::from(now.as_millisecond().abs_diff(run.at_ms)));
    ago.is_none_or(|ago| ago <= DUPLICATE_START_WINDOW.as_millis())
}

/// True if the slot of a one-time job was handled but its run did not finish. Such a job would never be due again, yet
/// stay enabled, so it has to be retired.
fn is_handled_but_not_retired(job: &Job, stamps: &RunState) -> bool {
    let (Ok(Schedule::At(time)), Some(handled)) = (&job.schedule, stamps.last_slot()) else {
        return false;
    };
    *time <= handled && job.earliest_slot() <= handled
}
