//! A job started by a schedule: checks if it is due, and handles the due slot.

use crate::ops::context::Context;
use crate::ops::job_runs::job_runner::JobRunner;
use crate::ops::job_runs::job_slot::SlotState;
use crate::ops::jobs::resolved_job::job_context;
use crate::ops::jobs::retry;
use crate::ops::jobs::timing::{self, StartCondition};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, exit_for};
use nanobot_config::settings::Settings;
use nanobot_cron::job::Job;
use nanobot_cron::job_store::{JobStore, is_valid_id};
use nanobot_cron::run_record::{JobDir, RunOutcome, RunState, Trigger};
use nanobot_cron::schedule::{DueState, Schedule};
use nanobot_os::file_lock::FileLock;
use nanobot_os::signal::{self, Deadline};
use std::path::Path;
use std::time::Duration;

/// The longest wait for a start that holds the job's lock to say which slot it runs.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two looks at it.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A start by a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScheduledStart<'a> {
    /// A replay file used instead of the model.
    pub(crate) replay: Option<&'a Path>,
    /// The scheduler delays starts by itself.
    pub(crate) no_jitter: bool,
}

/// Runs a job if it is due, and prints nothing otherwise.
pub(crate) fn run_if_due(
    ctx: &Context,
    settings: Settings,
    store: &JobStore,
    job: &Job,
    start: ScheduledStart<'_>,
) -> Result<Exit> {
    if !job.enabled || !is_valid_id(&job.id) {
        return Ok(Exit::Answered);
    }
    let folder = JobDir::new(store.job_dir(&job.id)?);
    let stamps = folder.read_state()?;
    let mut condition = StartCondition::new(ctx, job);
    if start.no_jitter {
        condition.delay = Duration::ZERO;
    }
    let is_started = stamps.started.is_some()
        || is_handled_but_not_retired(job, &stamps)
        || retry::due(job, &stamps, condition.now).is_some();
    let due = timing::due_state(ctx, job, &stamps, condition)?;
    let delay_lock = match due {
        DueState::NotYet { next } if !is_started => {
            // The slot has come, and its delay is not over.
            let Some(slot) = next.filter(|slot| *slot <= condition.now) else {
                return Ok(Exit::Answered);
            };
            let Some(lock) = wait_for_start(ctx, &folder, job, slot, &mut condition)? else {
                return Ok(Exit::Answered);
            };
            Some(lock)
        }
        _ => None,
    };
    let (ctx, settings) = job_context(ctx, settings, job)?;
    let runner = JobRunner {
        ctx: &ctx,
        settings: &settings,
        store,
        job_dir: &folder,
        is_stored: true,
        prints_answer: true,
        replay: start.replay,
    };
    let lock = match folder.lock(&job.name, &ctx.clock.local_timestamp()) {
        Ok(lock) => lock,
        Err(error) => return report_locked(&runner, job, condition, error),
    };
    drop(delay_lock);
    // The process that held the lock before may have changed the job.
    let Some(job) = store.job(&job.id)?.filter(|job| job.enabled) else {
        return Ok(Exit::Answered);
    };
    let exit = run_slot(&runner, &job, condition)?;
    drop(lock);
    Ok(exit)
}

/// Waits until the start of `slot`, whose delay is not over, and sets `condition` to that time. Returns the lock of the
/// wait; `None` if another process waits already.
fn wait_for_start(
    ctx: &Context,
    folder: &JobDir,
    job: &Job,
    slot: Timestamp,
    condition: &mut StartCondition,
) -> Result<Option<FileLock>> {
    let lock = match folder.lock_start_delay(&job.name, &ctx.clock.local_timestamp()) {
        Ok(lock) => lock,
        Err(error) if exit_for(&error) == Exit::TryAgain => return Ok(None),
        Err(error) => return Err(error),
    };
    let start = slot.checked_add(condition.delay).context("add the delay")?;
    signal::install(None).context("wait for signals")?;
    ctx.clock.sleep(start.duration_since(condition.now).unsigned_abs())?;
    condition.now = ctx.clock.timestamp().max(start);
    Ok(Some(lock))
}

/// Handles the case that another process holds the job's lock. If it runs the slot that is due, as with two schedulers,
/// there is nothing to report.
fn report_locked(
    runner: &JobRunner,
    job: &Job,
    condition: StartCondition,
    error: anyhow::Error,
) -> Result<Exit> {
    let ctx = runner.ctx;
    if exit_for(&error) != Exit::TryAgain {
        return Err(error);
    }
    let mut wait = Deadline::after(START_TIMEOUT);
    loop {
        let stamps = runner.job_dir.read_state()?;
        let since = stamps.started.and_then(|run| run.started_at());
        match timing::due_state(ctx, job, &stamps, condition)? {
            // With a run in progress, this slot is later than that of the run.
            DueState::Due { slot } if since.is_some() => {
                return runner.report_busy(job, Some(slot), since, error);
            }
            // The run is about to begin, and has not written its slot yet.
            DueState::Due { .. } if !wait.is_expired() => {
                signal::sleep(POLL_INTERVAL)?;
                wait.subtract(POLL_INTERVAL);
            }
            DueState::Due { .. } => return runner.report_busy(job, None, None, error),
            // The job is running, and not due again.
            _ => return Ok(Exit::Answered),
        }
    }
}

/// Runs the slot or the retry that is due, or records why it is skipped. The lock is held.
fn run_slot(runner: &JobRunner, job: &Job, condition: StartCondition) -> Result<Exit> {
    let (ctx, folder) = (runner.ctx, runner.job_dir);
    let mut stamps = folder.read_state()?;
    let rerun = runner.recover_interrupted_run(job, &mut stamps)?;
    let rerun = rerun.or_else(|| {
        let retry = retry::due(job, &stamps, condition.now);
        retry.map(|retry| retry.slot())
    });
    let mut verdict = timing::due_state(ctx, job, &stamps, condition)?;
    if let DueState::ClockWasWrong { last_slot: handled } = verdict {
        stamps.last_slot_ms = Some(handled.as_millisecond());
        folder.write_state(&stamps)?;
        verdict = timing::due_state(ctx, job, &stamps, condition)?;
    }
    match (verdict, rerun) {
        (DueState::Due { slot }, _) => {
            stamps.last_slot_ms = Some(slot.as_millisecond());
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
                    finish(runner, job, slot, condition)?;
                    Ok(exit)
                }
            }
        }
        (_, Some(slot)) => {
            let exit = runner.run(job, Trigger::Schedule, Some(slot), stamps)?;
            finish(runner, job, slot, condition)?;
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

/// Updates the run state after a run, whose end is now.
fn finish(runner: &JobRunner, job: &Job, slot: Timestamp, condition: StartCondition) -> Result<()> {
    let now = runner.ctx.clock.timestamp().max(condition.now);
    runner.finish_slot(job, slot, StartCondition { now, ..condition })
}

/// True if the slot of a one-time job was handled but its run did not finish. Such a job would never be due again, yet
/// stay enabled, so it has to be retired.
fn is_handled_but_not_retired(job: &Job, stamps: &RunState) -> bool {
    let (Ok(Schedule::At(time)), Some(handled)) = (&job.schedule, stamps.last_slot()) else {
        return false;
    };
    *time <= handled && job.earliest_slot() <= handled && stamps.retry.is_none()
}
