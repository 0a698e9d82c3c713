//! A job started by a schedule: checks if it is due, runs the slot that is due, which is an instant that the schedule
//! names, and records slots that were skipped or whose run was interrupted by a crash.

use crate::ops::context::Context;
use crate::ops::job_runs::job_process::{start_followers, was_stopped};
use crate::ops::job_runs::job_runner::JobRunner;
use crate::ops::jobs::delivery::COMMAND_TIMEOUT;
use crate::ops::jobs::job_context::job_context;
use crate::ops::jobs::retry;
use crate::ops::jobs::timing::{self, StartTime};
use crate::ops::notices::FailedPart;
use crate::ops::notify;
use anyhow::{Context as _, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use nanobot_base::error::{Exit, exit_for};
use nanobot_config::settings::Settings;
use nanobot_cron::job::{CrashPolicy, Job};
use nanobot_cron::job_store::{JobStore, is_valid_id};
use nanobot_cron::run_record::{JobDir, RunOutcome, RunRecord, RunState, Trigger};
use nanobot_cron::schedule::{CatchUpPolicy, DueState, Schedule};
use nanobot_os::file_lock::FileLock;
use nanobot_os::signal::{self, Deadline};
use std::path::Path;
use std::time::Duration;

/// Maximum wait until the run that holds the job's lock has written its slot.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two reads of the run state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of recent records that are searched for an earlier report that the job was busy at the same slot.
const MAX_RECORDS_SEARCHED: usize = 100;
/// Maximum age of a slot that is run again after a crash.
const RERUN_PERIOD: SignedDuration = SignedDuration::from_hours(24);

/// A start by a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScheduledStart<'a> {
    /// A replay file used instead of the model.
    pub(crate) replay: Option<&'a Path>,
    /// The scheduler delays starts by itself.
    pub(crate) no_jitter: bool,
    /// The scheduler starts the jobs that run after this one by itself.
    pub(crate) no_after: bool,
    /// The process that started this one sends the notices to `notify.target` of the config.
    pub(crate) no_notify: bool,
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
    let state = JobDir::new(store.job_dir(&job.id)?).read_state()?;
    let mut start_time = StartTime::new(ctx, job);
    if start.no_jitter {
        start_time.delay = Duration::ZERO;
    }
    let due = timing::due_state(ctx, job, &state, start_time)?;
    let is_due = due.needs_start() || has_other_work(job, &state, start_time.now);
    if !is_due && !matches!(due, DueState::Delayed { .. }) {
        return Ok(Exit::Answered);
    }
    let (ctx, settings) = job_context(ctx, settings, job)?;
    let runner = JobRunner { replay: start.replay, ..JobRunner::new(&ctx, &settings, store, job)? };
    let mut exit = Exit::Answered;
    if is_due {
        exit = run_locked(&runner, start_time, None)?;
        start_followers_and_notify(&runner, start, exit);
        if was_stopped(exit) {
            return Ok(exit);
        }
        start_time.now = ctx.clock.timestamp().max(start_time.now);
    }
    // A slot whose delay is not over: that of this start, or one that came during the run above. No other crontab line starts it, so
    // this start waits for it.
    let Some(job) = store.job(&job.id)?.filter(|job| job.enabled) else {
        return Ok(exit);
    };
    let runner = JobRunner { job: &job, ..runner };
    let state = runner.job_dir.read_state()?;
    let DueState::Delayed { slot } = timing::due_state(&ctx, &job, &state, start_time)? else {
        return Ok(exit);
    };
    let Some(delay_lock) = wait_for_start(&runner, slot, &mut start_time)? else {
        return Ok(exit);
    };
    let delayed_exit = run_locked(&runner, start_time, Some(delay_lock))?;
    start_followers_and_notify(&runner, start, delayed_exit);
    Ok(if exit == Exit::Answered { delayed_exit } else { exit })
}

/// Starts the jobs that run after that of `runner`, whose run ended with `exit`, and sends the notices.
fn start_followers_and_notify(runner: &JobRunner, start: ScheduledStart<'_>, exit: Exit) {
    if !start.no_after {
        start_followers(runner, exit);
    }
    if !start.no_notify {
        if exit == Exit::Timeout {
            signal::grant_extra_time(COMMAND_TIMEOUT);
        }
        notify::send_waiting(runner.ctx, runner.settings);
    }
}

/// Runs what is due, with the lock of the job. `delay_lock` is released once it is held.
fn run_locked(
    runner: &JobRunner,
    start_time: StartTime,
    delay_lock: Option<FileLock>,
) -> Result<Exit> {
    let JobRunner { ctx, store, job, job_dir, .. } = runner;
    let lock = match job_dir.lock(&job.name, &ctx.clock.local_timestamp()) {
        Ok(lock) => lock,
        Err(error) => return report_locked(runner, start_time, error),
    };
    drop(delay_lock);
    // The process that held the lock before may have changed the job.
    let Some(job) = store.job(&job.id)?.filter(|job| job.enabled) else {
        return Ok(Exit::Answered);
    };
    let exit = run_slot(&JobRunner { job: &job, ..runner.clone() }, start_time)?;
    drop(lock);
    Ok(exit)
}

/// True if a start has something to do although no slot is due: a run that did not end, a one-time job that was not retired,
/// or a retry.
pub(super) fn has_other_work(job: &Job, state: &RunState, now: Timestamp) -> bool {
    state.started.is_some()
        || is_handled_but_not_retired(job, state)
        || retry::due(job, state, now).is_some()
}

/// Waits until the start of `slot`, whose delay is not over, and sets `start_time` to that time. Returns the lock of the
/// wait; `None` if another process waits already.
fn wait_for_start(
    runner: &JobRunner,
    slot: Timestamp,
    start_time: &mut StartTime,
) -> Result<Option<FileLock>> {
    let JobRunner { ctx, job, job_dir, .. } = runner;
    let lock = match job_dir.lock_start_delay(&job.name, &ctx.clock.local_timestamp()) {
        Ok(lock) => lock,
        Err(error) if exit_for(&error) == Exit::TryAgain => return Ok(None),
        Err(error) => return Err(error),
    };
    let start = slot.checked_add(start_time.delay).context("add the delay")?;
    signal::install(None).context("wait for signals")?;
    ctx.clock.sleep(start.duration_since(start_time.now).unsigned_abs())?;
    start_time.now = ctx.clock.timestamp().max(start);
    Ok(Some(lock))
}

/// Handles the case that another process holds the job's lock. If it runs the slot that is due, as with two schedulers,
/// there is nothing to report.
fn report_locked(runner: &JobRunner, start_time: StartTime, error: anyhow::Error) -> Result<Exit> {
    let job = runner.job;
    if exit_for(&error) != Exit::TryAgain {
        return Err(error);
    }
    let mut deadline = Deadline::after(START_TIMEOUT);
    loop {
        let state = runner.job_dir.read_state()?;
        let since = state.started.and_then(|run| run.started_at());
        match timing::due_state(runner.ctx, job, &state, start_time)? {
            // The answer of the job before stays due, and the next start runs it.
            DueState::Due { .. }
                if since.is_some()
                    && job.follows().is_some()
                    && job.catch_up() == CatchUpPolicy::Once =>
            {
                return Ok(Exit::Answered);
            }
            // A run is in progress, and this slot is later than its own.
            DueState::Due { slot } if since.is_some() => {
                return runner.report_busy(Some(slot), since, error);
            }
            // The run is about to begin, and has not written its slot yet.
            DueState::Due { .. } if !deadline.is_expired() => {
                signal::sleep(POLL_INTERVAL)?;
                deadline.subtract(POLL_INTERVAL);
            }
            DueState::Due { .. } => return runner.report_busy(None, None, error),
            // The job is running, and not due again.
            _ => return Ok(Exit::Answered),
        }
    }
}

/// Runs the slot or the retry that is due, or records why it is skipped. The lock is held.
fn run_slot(runner: &JobRunner, start_time: StartTime) -> Result<Exit> {
    let JobRunner { ctx, job, job_dir, .. } = runner;
    let mut state = job_dir.read_state()?;
    let rerun = runner.recover_interrupted_run(&mut state)?;
    let rerun = rerun.or_else(|| retry::due(job, &state, start_time.now).map(|retry| retry.slot()));
    let mut due_state = timing::due_state(ctx, job, &state, start_time)?;
    if let DueState::ClockWasWrong { last_slot } = due_state {
        state.last_slot_ms = Some(last_slot.as_millisecond());
        job_dir.write_state(&state)?;
        due_state = timing::due_state(ctx, job, &state, start_time)?;
    }
    match (due_state, rerun) {
        (DueState::Due { slot }, _) => {
            runner.record_passed_answers(state.last_slot(), slot)?;
            state.last_slot_ms = Some(slot.as_millisecond());
            match runner.slot_state(slot)? {
                SlotState::AlreadyRun => {
                    job_dir.write_state(&state)?;
                    Ok(Exit::Answered)
                }
                SlotState::RunByOtherProgram => {
                    runner.record_skipped_slot(slot, RunOutcome::Elsewhere, state)
                }
                SlotState::NotRun => {
                    let exit = runner.run(Trigger::Schedule, Some(slot), state)?;
                    finish_slot_now(runner, slot, start_time)?;
                    Ok(exit)
                }
            }
        }
        (_, Some(slot)) => {
            let exit = runner.run(Trigger::Schedule, Some(slot), state)?;
            finish_slot_now(runner, slot, start_time)?;
            Ok(exit)
        }
        (DueState::Missed { slot }, None) => {
            state.last_slot_ms = Some(slot.as_millisecond());
            runner.record_skipped_slot(slot, RunOutcome::Missed, state)
        }
        (
            DueState::NotYet { .. } | DueState::Delayed { .. } | DueState::ClockWasWrong { .. },
            None,
        ) => {
            if is_handled_but_not_retired(job, &state) {
                let records = job_dir.last_records(usize::MAX)?;
                let last_run = records.iter().rev().find(|record| record.outcome.was_attempted());
                runner.retire(job, last_run.map(|record| record.outcome))?;
            }
            Ok(Exit::Answered)
        }
    }
}

/// Updates the run state after a run, whose end is now.
fn finish_slot_now(runner: &JobRunner, slot: Timestamp, start_time: StartTime) -> Result<()> {
    let now = runner.ctx.clock.timestamp().max(start_time.now);
    runner.finish_slot(slot, StartTime { now, ..start_time })
}

/// True if the slot of a one-time job was handled but its run did not finish. Such a job would never be due again, yet
/// stay enabled, so it has to be retired.
fn is_handled_but_not_retired(job: &Job, state: &RunState) -> bool {
    let (Ok(Schedule::At(time)), Some(last_slot)) = (&job.schedule, state.last_slot()) else {
        return false;
    };
    *time <= last_slot && job.earliest_slot() <= last_slot && state.retry.is_none()
}

/// The state of a slot.
enum SlotState {
    /// The job has not run for this slot.
    NotRun,
    /// This program ran the job for this slot. The slot is due a second time if the clock was set back.
    AlreadyRun,
    /// Another program ran the job for this slot, according to the job file.
    RunByOtherProgram,
}

impl JobRunner<'_> {
    /// Determines the state of `slot` from the run records and the job file.
    fn slot_state(&self, slot: Timestamp) -> Result<SlotState> {
        let job = self.job;
        let records = self.job_dir.last_records(usize::MAX)?;
        let recorded_slot = Some(slot.to_string());
        let is_run_of_slot =
            |record: &RunRecord| record.outcome.was_attempted() && record.slot == recorded_slot;
        if records.iter().any(is_run_of_slot) {
            return Ok(SlotState::AlreadyRun);
        }
        let now = self.ctx.clock.timestamp();
        let Some(last_run) =
            job.state.last_run.filter(|last_run| slot <= *last_run && *last_run <= now)
        else {
            return Ok(SlotState::NotRun);
        };
        // A run that this program recorded was started by hand and was not for this slot.
        let last_run = last_run.to_string();
        let is_recorded = records.iter().any(|record| record.start == last_run);
        Ok(if is_recorded { SlotState::NotRun } else { SlotState::RunByOtherProgram })
    }

    /// Updates the run state after the run for `slot`. A slot that became due during the run is skipped, unless missed
    /// slots are caught up.
    fn finish_slot(&self, slot: Timestamp, start_time: StartTime) -> Result<()> {
        let mut state = self.job_dir.read_state()?;
        // If another slot was handled last, this was a retry or a second run, which skips nothing.
        if self.job.catch_up() == CatchUpPolicy::Once
            || state.last_slot_ms != Some(slot.as_millisecond())
        {
            return Ok(());
        }
        if let DueState::Due { slot } | DueState::Missed { slot } =
            timing::due_state(self.ctx, self.job, &state, start_time)?
        {
            state.last_slot_ms = Some(slot.as_millisecond());
            self.job_dir.write_state(&state)?;
        }
        Ok(())
    }

    /// Detects a run that began and did not end: records it, and reports it on standard error. Returns its slot if it
    /// is to be run again, and otherwise notifies the user of the failure. A run that only waited is run again in any case.
    pub(super) fn recover_interrupted_run(
        &self,
        state: &mut RunState,
    ) -> Result<Option<Timestamp>> {
        let job = self.job;
        let Some(started) = state.started.take() else {
            return Ok(None);
        };
        let to_timestamp = |millis: i64| Timestamp::from_millisecond(millis).unwrap_or_default();
        let slot = started.slot_ms.map(to_timestamp);
        let trigger = match slot {
            Some(_) => Trigger::Schedule,
            None => Trigger::Manual,
        };
        if started.is_waiting {
            self.job_dir.write_state(state)?;
            let now = self.ctx.clock.timestamp();
            return Ok(slot.filter(|slot| now.duration_since(*slot) < RERUN_PERIOD));
        }
        // If its record exists, the run ended, and only the run state was not updated.
        let started_at = to_timestamp(started.at_ms);
        let start = started_at.to_string();
        let records = self.job_dir.last_records(usize::MAX)?;
        let is_end =
            |record: &&RunRecord| record.start == start && record.outcome != RunOutcome::Busy;
        if let Some(record) = records.iter().find(is_end) {
            state.retry = retry::plan(self.ctx, job, record);
            self.job_dir.write_state(state)?;
            return Ok(None);
        }
        let mut record = self.new_record(trigger, slot, RunOutcome::Unknown, started_at);
        let message = format!(
            "it began at {start} as process {} and left no result; its work may be complete or partial",
            started.pid
        );
        record.error = Some(message.clone());
        (record.status, record.cause) = (Exit::Failed.code(), Exit::Failed.name().to_owned());
        self.job_dir.append_record(&record)?;
        self.job_dir.write_state(state)?;
        let error = anyhow!("the last run was interrupted: {message}");
        self.report_errors(&record, &[error], FailedPart::Run);
        let options = job.options.clone().unwrap_or_default();
        // A slot whose run crashed before is not run again, to avoid an endless loop.
        let is_first_crash = |slot: Timestamp| {
            let slot = Some(slot.to_string());
            !records
                .iter()
                .any(|earlier| earlier.outcome == RunOutcome::Unknown && earlier.slot == slot)
        };
        let now = self.ctx.clock.timestamp();
        let rerun = slot.filter(|slot| {
            options.after_crash == CrashPolicy::Again
                && now.duration_since(*slot) < RERUN_PERIOD
                && is_first_crash(*slot)
        });
        if rerun.is_none() {
            self.notify(&record, "");
            // The notification may have run a command of the user for minutes.
            self.store.update(&job.id, self.ctx.clock.timestamp(), |job| {
                job.state.last_status = Some("error".into());
                job.state.last_error = Some(message.clone());
                false
            })?;
        }
        Ok(rerun)
    }

    /// Records that `slot` was skipped because of `outcome`. Retires a one-time job.
    fn record_skipped_slot(
        &self,
        slot: Timestamp,
        outcome: RunOutcome,
        state: RunState,
    ) -> Result<Exit> {
        let job = self.job;
        let now = self.ctx.clock.timestamp();
        let record = self.new_record(Trigger::Schedule, Some(slot), outcome, now);
        // A process that was killed before it wrote the state has recorded the slot already.
        let last = self.job_dir.last_records(1)?.pop();
        let is_same = |last: RunRecord| last.slot == record.slot && last.outcome == outcome;
        if !last.is_some_and(is_same) {
            self.job_dir.append_record(&record)?;
        }
        self.job_dir.write_state(&state)?;
        if job.is_once() {
            self.retire(job, Some(outcome))?;
        }
        Ok(Exit::Answered)
    }

    /// Records the answers of the job before between `last_slot` and `slot`, which came while this job was busy: it does not run for them.
    fn record_passed_answers(&self, last_slot: Option<Timestamp>, slot: Timestamp) -> Result<()> {
        let job = self.job;
        let Some(predecessor) = &job.predecessor else {
            return Ok(());
        };
        let after = last_slot.max(Some(job.earliest_slot()));
        let answers = JobDir::new(self.store.job_dir(&predecessor.id)?);
        let answers = answers.last_records(MAX_RECORDS_SEARCHED)?;
        let ends = answers.iter().filter(|answer| answer.outcome == RunOutcome::Ok);
        let passed: Vec<Timestamp> = ends
            .filter_map(RunRecord::slot_of_followers)
            .filter(|end| Some(*end) > after && *end < slot)
            .collect();
        if passed.is_empty() {
            return Ok(());
        }
        let records = self.job_dir.last_records(MAX_RECORDS_SEARCHED)?;
        let now = self.ctx.clock.timestamp();
        for end in passed {
            let record = self.new_record(Trigger::Schedule, Some(end), RunOutcome::Missed, now);
            // A crash may have come after the record of an earlier start.
            if records.iter().all(|other| other.slot != record.slot) {
                self.job_dir.append_record(&record)?;
            }
        }
        Ok(())
    }

    /// Records that the job is still running and returns `error`, which says so: once for each run, which began at
    /// `running_since`, so that cron does not mail it every minute. Without that time, every start is reported.
    fn report_busy(
        &self,
        slot: Option<Timestamp>,
        running_since: Option<Timestamp>,
        error: anyhow::Error,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let mut record = self.new_record(Trigger::Schedule, slot, RunOutcome::Busy, now);
        if let Some(since) = running_since {
            let is_report_of_this_run = |other: &RunRecord| {
                other.outcome == RunOutcome::Busy
                    && other.start.parse::<Timestamp>().is_ok_and(|start| start >= since)
            };
            let last_records = self.job_dir.last_records(MAX_RECORDS_SEARCHED)?;
            if last_records.iter().any(is_report_of_this_run) {
                return Ok(Exit::Answered);
            }
        }
        let exit = exit_for(&error);
        record.error = Some(format!("{error:#}"));
        (record.status, record.cause) = (exit.code(), exit.name().to_owned());
        Err(match self.job_dir.append_record(&record) {
            Ok(()) => error,
            Err(write_error) => {
                error.context(format!("cannot write the run record: {write_error:#}"))
            }
        })
    }
}
