//! The timing of a job: its effective schedule and zone, its due state, and its next runs.

use crate::ops::context::Context;
use anyhow::Result;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use nanobot_base::error::{Exit, fail};
use nanobot_cron::job::Job;
use nanobot_cron::run_record::RunState;
use nanobot_cron::schedule::{DueState, Schedule};
use nanobot_cron::start_delay;
use nanobot_cron::time_fields;
use nanobot_os::clock;
use nanobot_os::host;
use std::time::Duration;

/// The schedule of `job`, and the time zone that applies to it.
///
/// # Errors
/// A message that says why the job never runs.
pub(crate) fn effective_schedule<'a>(
    ctx: &Context,
    job: &'a Job,
) -> Result<(&'a Schedule, TimeZone), String> {
    let schedule = job.schedule.as_ref().map_err(Clone::clone)?;
    let zone = match schedule {
        Schedule::Cron { zone: Some(name), .. } => clock::named_zone(name)
            .ok_or_else(|| format!("there is no time zone `{name}` on this machine"))?,
        _ => clock::system_zone(&ctx.env).0,
    };
    Ok((schedule, zone))
}

/// The time at which it is checked whether a job is to start, and the delay of its starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTime {
    pub(crate) now: Timestamp,
    /// The time from a slot to its start.
    pub(crate) delay: Duration,
}

impl StartTime {
    /// The time now, with the delay of `job` on this machine.
    pub(crate) fn new(ctx: &Context, job: &Job) -> Self {
        Self { now: ctx.clock.timestamp(), delay: start_delay(job) }
    }
}

/// The delay of the starts of `job` on this machine.
pub(crate) fn start_delay(job: &Job) -> Duration {
    match job.jitter() {
        Duration::ZERO => Duration::ZERO,
        max => start_delay::start_delay(max, &job.id, &host::name()),
    }
}

/// The due state of the job.
pub(crate) fn due_state(
    ctx: &Context,
    job: &Job,
    state: &RunState,
    start_time: StartTime,
) -> Result<DueState> {
    let (schedule, zone) = effective_schedule(ctx, job).map_err(|error| {
        let cause = format!("job `{}` cannot run: {error}", job.name);
        fail(Exit::Config, cause)
    })?;
    let timetable = job.timetable(schedule, &zone, start_time.delay);
    Ok(timetable.due_state(state.last_slot(), start_time.now))
}

/// Stores the time of the next run in the job file, for the Python program.
pub(crate) fn update_next_run(ctx: &Context, job: &mut Job, now: Timestamp) {
    job.state.next_run =
        if job.enabled { upcoming_runs(ctx, job, now, 1).first().copied() } else { None };
}

/// The next times at which `job` runs, at most `count`.
pub(crate) fn upcoming_runs(
    ctx: &Context,
    job: &Job,
    now: Timestamp,
    count: usize,
) -> Vec<Timestamp> {
    let Ok((schedule, zone)) = effective_schedule(ctx, job) else {
        return Vec::new();
    };
    let delay = start_delay(job);
    let from = now.checked_sub(delay).unwrap_or(now);
    let first = schedule.next(from.max(job.earliest_slot()), job.created, &zone);
    let follow = |time: &Timestamp| schedule.next(*time, job.created, &zone);
    let slots = std::iter::successors(first, follow).take(count);
    slots.filter_map(|slot| slot.checked_add(delay).ok()).collect()
}

/// A description of the schedule of `job` for a user in the zone `local`.
pub(crate) fn describe_schedule(ctx: &Context, job: &Job, local: &TimeZone) -> String {
    match effective_schedule(ctx, job) {
        // A one-time schedule is shown in the user's zone, which is named if it is not the system's.
        Ok((schedule @ Schedule::At(time), system)) => {
            let description = schedule.describe(local);
            if time_fields::is_same_clock(local, &system, *time) {
                description
            } else {
                format!("{description}, {} time", clock::zone_name(&time.to_zoned(local.clone())))
            }
        }
        Ok((schedule, zone)) => match &job.predecessor {
            Some(predecessor) => format!("after `{}`", predecessor.label()),
            None => schedule.describe(&zone),
        },
        Err(error) => format!("never: {error}"),
    }
}

/// Like [`describe_schedule`], but without the name of another job: other programs write the job file too.
pub(crate) fn describe_schedule_for_model(ctx: &Context, job: &Job, local: &TimeZone) -> String {
    match &job.schedule {
        Ok(schedule @ Schedule::After(_)) => schedule.describe(local),
        _ => describe_schedule(ctx, job, local),
    }
}

/// Schedules the heartbeat every `period`, starting at `now`.
pub(crate) fn start_period(job: &mut Job, period: Duration, now: Timestamp) {
    let now = truncate_to_millis(now);
    job.created = now;
    job.schedule = Ok(Schedule::Every(period));
    if let Some(options) = &mut job.options {
        options.since_ms = now.as_millisecond();
        options.every_ms = Some(i64::try_from(period.as_millis()).unwrap_or(i64::MAX));
    }
}

/// Truncates a time to milliseconds, the precision of the job file.
pub(crate) fn truncate_to_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}
