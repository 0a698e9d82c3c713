//! The flags for a job's schedule.

use crate::cron::expression::Expression;
use crate::cron::schedule::{self, CatchUpPolicy, Schedule};
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::Context;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::settings::Settings;
use anyhow::Result;
use jiff::Timestamp;

/// The flags for a job's schedule. At most one of `cron`, `every`, `at` and `after` is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScheduleFlags {
    /// A cron expression.
    pub(crate) cron: Option<String>,
    /// The time zone for `cron`; an empty text means the system's.
    pub(crate) tz: Option<String>,
    /// A period.
    pub(crate) every: Option<String>,
    /// A time.
    pub(crate) at: Option<String>,
    /// A duration from now.
    pub(crate) after: Option<String>,
    /// The handling of missed slots.
    pub(crate) catch_up: Option<CatchUpPolicy>,
}

impl ScheduleFlags {
    /// True if any flag sets a time.
    pub(crate) fn has_times(&self) -> bool {
        let Self { cron, tz: _, every, at, after, catch_up: _ } = self;
        [cron, every, at, after].iter().any(|flag| flag.is_some())
    }

    /// The schedule that the flags describe; `None` if they describe none. Unset parts are taken from `before`.
    ///
    /// # Errors
    /// Status 64 for a text that is no valid time.
    pub(crate) fn resolve(
        &self,
        ctx: &Context,
        settings: &Settings,
        before: Option<&Schedule>,
        now: Timestamp,
        notices: &mut Vec<String>,
    ) -> Result<Option<Schedule>> {
        let Self { cron, tz, every, at, after, catch_up: _ } = self;
        let wrong = |flag: &str, words: String| fail(Exit::Usage, format!("`{flag}`: {words}"));
        let typed = match tz.as_deref() {
            Some("") => Some(None),
            Some(name) => Some(Some(time_zone::validate_zone(name)?)),
            None => None,
        };
        if let Some(text) = cron {
            let expression = Expression::parse(text).map_err(|words| wrong("--cron", words))?;
            let zone = match (typed, before) {
                (Some(zone), _) => zone,
                (None, Some(Schedule::Cron { zone, .. })) => zone.clone(),
                (None, _) => time_zone::default_zone(ctx, settings, now, notices),
            };
            return Ok(Some(Schedule::Cron { expression, zone }));
        }
        match (typed, before) {
            (Some(zone), Some(Schedule::Cron { expression, .. })) if !self.has_times() => {
                let expression = expression.clone();
                return Ok(Some(Schedule::Cron { expression, zone }));
            }
            (Some(_), _) if before.is_some() || self.has_times() => {
                return Err(fail_with_hint(
                    Exit::Usage,
                    "`--tz` can only be used with `--cron`",
                    "an offset in the time: `--at 2026-12-24T18:00+02:00`",
                ));
            }
            _ => {}
        }
        if let Some(text) = every {
            let period = schedule::parse_period(text).map_err(|words| wrong("--every", words))?;
            return Ok(Some(Schedule::Every(period)));
        }
        let time = match (at, after) {
            (Some(text), _) => {
                schedule::parse_time(text, &time_zone::local_zone(ctx, settings), now)
                    .map_err(|words| wrong("--at", words))?
            }
            (_, Some(text)) => {
                schedule::parse_delay(text, now).map_err(|words| wrong("--in", words))?
            }
            _ => return Ok(None),
        };
        Ok(Some(Schedule::At(timing::truncate_to_millis(time))))
    }
}
