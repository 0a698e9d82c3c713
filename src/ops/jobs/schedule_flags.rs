//! Resolves the flags for a job's schedule.

use crate::ops::context::Context;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use crate::options::job::ScheduleFlags;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Settings;
use nanobot_cron::expression::Expression;
use nanobot_cron::job::Job;
use nanobot_cron::schedule::{self, Schedule};

/// The schedule that the flags describe; `None` if they describe none. Unset parts are taken from `before`, and `--after` names one
/// of `jobs`.
///
/// # Errors
/// Status 2 for a text that is not a valid time; status 66 if there is no such job.
pub(crate) fn resolve(
    ctx: &Context,
    flags: &ScheduleFlags,
    settings: &Settings,
    jobs: &[Job],
    before: Option<&Schedule>,
    now: Timestamp,
    notices: &mut Vec<String>,
) -> Result<Option<Schedule>> {
    let ScheduleFlags { cron, tz, every, at, delay, after, catch_up: _, jitter: _ } = flags;
    let flag_error = |flag: &str, error: String| fail(Exit::Usage, format!("`{flag}`: {error}"));
    // An empty `--tz` means the system's zone.
    let flag_zone = match tz.as_deref() {
        Some("") => Some(None),
        Some(name) => Some(Some(time_zone::validate_zone(name)?)),
        None => None,
    };
    if let Some(text) = cron {
        let expression = Expression::parse(text).map_err(|error| flag_error("--cron", error))?;
        let zone = match (flag_zone, before) {
            (Some(zone), _) => zone,
            (None, Some(Schedule::Cron { zone, .. })) => zone.clone(),
            (None, _) => time_zone::default_zone(ctx, settings, now, notices),
        };
        return Ok(Some(Schedule::Cron { expression, zone }));
    }
    match (flag_zone, before) {
        (Some(zone), Some(Schedule::Cron { expression, .. })) if !flags.has_times() => {
            let expression = expression.clone();
            return Ok(Some(Schedule::Cron { expression, zone }));
        }
        (Some(_), _) => {
            let hint = match (at, flags.has_times()) {
                (Some(_), _) => "an offset in the time: `--at 2026-12-24T18:00+02:00`",
                (None, true) => "the same without `--tz`",
                (None, false) => "`--cron` with it, such as `--cron '30 7 * * *'`",
            };
            return Err(fail(Exit::Usage, "`--tz` can only be used with `--cron`").with_hint(hint));
        }
        (None, _) => {}
    }
    if let Some(text) = every {
        let period = schedule::parse_period(text).map_err(|error| flag_error("--every", error))?;
        return Ok(Some(Schedule::Every(period)));
    }
    if let Some(name_or_id) = after {
        return Ok(Some(Schedule::After(workspace_jobs::find_among(jobs, name_or_id)?.id)));
    }
    let time = match (at, delay) {
        (Some(text), _) => schedule::parse_time(text, &time_zone::local_zone(ctx, settings), now)
            .map_err(|error| flag_error("--at", error))?,
        (_, Some(text)) => {
            schedule::parse_delay(text, now).map_err(|error| flag_error("--in", error))?
        }
        _ => return Ok(None),
    };
    Ok(Some(Schedule::At(timing::truncate_to_millis(time))))
}
