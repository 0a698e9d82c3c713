//! The schedule of a job, and the decision whether it is due.
//!
//! A schedule yields slots, which are whole minutes as in cron. The slots of a job that runs after another one are the ends of
//! that job's runs. Everything else follows from the slot that was handled last.

use super::expression::{Expression, to_instant};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nanobot_base::format::parse_time_span;
use std::time::Duration;

/// The schedule of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The minutes of an expression in a time zone; `None` for the system's zone.
    Cron { expression: Expression, zone: Option<String> },
    /// A fixed period, counted from the job's creation.
    Every(Duration),
    /// A single time.
    At(Timestamp),
    /// The end of each run of the job with this id that gave an answer.
    After(String),
}

/// The policy for slots missed while the machine was off or asleep: the job runs once, later, regardless of their number, or
/// not at all.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    clap::ValueEnum,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum CatchUpPolicy {
    Once,
    #[default]
    None,
}

/// The result of checking whether a job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DueState {
    /// No slot has come; `next` is the next one.
    NotYet { next: Option<Timestamp> },
    /// This slot has come, and its delay is not over.
    Delayed { slot: Timestamp },
    /// This slot is due. When its run starts, it becomes the last handled slot.
    Due { slot: Timestamp },
    /// This slot is too old to run. Recording it makes it handled.
    Missed { slot: Timestamp },
    /// The last handled slot is so far ahead that the clock must have been wrong. Use `last_slot` instead and check
    /// again: a slot at exactly the current minute is then due. From now on only the run records tell which slots
    /// were run, because a corrected clock may repeat slots.
    ClockWasWrong { last_slot: Timestamp },
}

impl DueState {
    /// True if a start has something to run or to record now.
    pub fn needs_start(&self) -> bool {
        !matches!(self, Self::NotYet { .. } | Self::Delayed { .. })
    }
}

/// Maximum delay of a run that is not caught up: cron itself starts late with many jobs or after a clock change.
pub(crate) const START_GRACE: SignedDuration = SignedDuration::from_mins(10);
/// Maximum distance of the last slot into the future. Within it, the clock was merely set back, and slots are not
/// repeated.
pub(crate) const MAX_CLOCK_AHEAD: SignedDuration = SignedDuration::from_hours(24);

const MINUTE_SECS: i64 = 60;
const NANOS_PER_SEC: i128 = 1_000_000_000;

/// The schedule of a particular job.
#[derive(Clone, Copy, Debug)]
pub struct Timetable<'a> {
    pub schedule: &'a Schedule,
    pub catch_up: CatchUpPolicy,
    /// The job's creation time; periods are counted from here.
    pub created: Timestamp,
    /// Slots before this time are ignored.
    pub earliest_slot: Timestamp,
    /// The schedule's time zone.
    pub zone: &'a TimeZone,
    /// The end of the last run with an answer of the job that this one runs after.
    pub predecessor_end: Option<Timestamp>,
    /// The time from a slot to its start.
    pub delay: Duration,
    /// Maximum delay that any machine has. A start within this delay after its slot is not late.
    pub max_delay: Duration,
}

impl Timetable<'_> {
    /// Returns what is due at `now`. `last_slot` is the last slot that was run, skipped or recorded as missed.
    pub fn due_state(&self, last_slot: Option<Timestamp>, now: Timestamp) -> DueState {
        let Self { catch_up, earliest_slot, delay, max_delay, .. } = *self;
        // Starts come `delay` after their slots, so the slot that is due is the one that was due without a delay at this earlier time.
        let undelayed_now = now.checked_sub(delay).unwrap_or(now);
        let is_plausible = |time: &Timestamp| time.duration_since(now) <= MAX_CLOCK_AHEAD;
        // The job may also have been created under a wrong clock; then only `last_slot` matters.
        let earliest_slot = Some(earliest_slot).filter(is_plausible);
        let baseline = last_slot.into_iter().chain(earliest_slot).max().filter(is_plausible);
        let Some(baseline) = baseline else {
            return DueState::ClockWasWrong { last_slot: previous_minute(now) };
        };
        let is_new = |slot: Timestamp| match self.schedule {
            // An end is not repeated, so another one than the last is new, even if the clock was ahead at the last one.
            Schedule::After(_) => {
                Some(slot) != last_slot && earliest_slot.is_none_or(|earliest| slot > earliest)
            }
            _ => slot > baseline,
        };
        match self.latest(undelayed_now) {
            Some(slot) if is_new(slot) => {
                let max_delay = SignedDuration::try_from(max_delay).unwrap_or(SignedDuration::MAX);
                let lateness = now.duration_since(slot).saturating_sub(max_delay);
                let is_late = lateness > START_GRACE;
                if catch_up == CatchUpPolicy::None && is_late {
                    DueState::Missed { slot }
                } else {
                    DueState::Due { slot }
                }
            }
            _ => match self.next(baseline.max(undelayed_now)) {
                Some(slot) if slot <= now => DueState::Delayed { slot },
                next => DueState::NotYet { next },
            },
        }
    }

    /// Returns the last slot if it is far ahead of `now`, since the clock was ahead when it was handled: no slot before it is due.
    pub fn held_until(&self, last_slot: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let lead = last_slot?.duration_since(now);
        let is_ahead = lead > START_GRACE && lead <= MAX_CLOCK_AHEAD;
        last_slot.filter(|_| is_ahead && !matches!(self.schedule, Schedule::After(_)))
    }

    /// Returns the first slot after the last run (or the creation) if its start is more than `grace` ago: nothing starts the job any more
    /// then, whatever its policy for missed slots. Times far ahead come from a wrong clock and are ignored.
    pub fn overdue_slot(
        &self,
        last_run: Option<Timestamp>,
        now: Timestamp,
        grace: SignedDuration,
    ) -> Option<Timestamp> {
        let is_plausible = |time: &Timestamp| time.duration_since(now) <= MAX_CLOCK_AHEAD;
        let times = [last_run, Some(self.earliest_slot)].into_iter().flatten();
        let last = times.filter(is_plausible).max()?;
        let slot = self.next(last)?;
        let start = slot.checked_add(self.max_delay).ok()?;
        (now.duration_since(start) > grace).then_some(slot)
    }

    /// Returns the first slot after `after` that is known.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self.schedule {
            Schedule::After(_) => self.predecessor_end.filter(|slot| *slot > after),
            schedule => schedule.next(after, self.created, self.zone),
        }
    }

    /// Returns the last slot at or before `at`.
    fn latest(&self, at: Timestamp) -> Option<Timestamp> {
        match self.schedule {
            Schedule::After(_) => self.predecessor_end.filter(|slot| *slot <= at),
            schedule => schedule.latest(at, self.created, self.zone),
        }
    }
}

impl Schedule {
    /// Returns the first slot after `after` for a job created at `created`. `zone` is the schedule's. The slots of a job that
    /// runs after another one do not follow from its schedule.
    pub fn next(&self, after: Timestamp, created: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Cron { expression, .. } => expression.next(after, zone),
            // Start from the first whole minute after `after`.
            Self::Every(period) => first_period_slot(*period, created, next_minute(after)?),
            Self::At(time) => ceil_minute(*time).filter(|slot| *slot > after),
            Self::After(_) => None,
        }
    }

    /// Returns the last slot at or before `at`.
    pub fn latest(&self, at: Timestamp, created: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Cron { expression, .. } => expression.latest(at, zone),
            Self::Every(period) => last_period_slot(*period, created, at),
            Self::At(time) => ceil_minute(*time).filter(|slot| *slot <= at),
            Self::After(_) => None,
        }
    }

    /// Describes the schedule for users. `zone` is the schedule's.
    pub fn describe(&self, zone: &TimeZone) -> String {
        match self {
            Self::Cron { expression, zone: None } => expression.describe(),
            Self::Cron { expression, zone: Some(name) } => {
                format!("{}, {name} time", expression.describe())
            }
            Self::Every(period) => format!("every {}", describe_period(*period)),
            Self::At(time) => {
                let local = zone.to_datetime(*time);
                format!("once, on {} at {}", local.date(), local.strftime("%H:%M"))
            }
            Self::After(id) => format!("after job {id}"),
        }
    }
}

/// Parses a period; a bare number is in seconds, as in the Python program.
///
/// # Errors
/// A message with the correct form.
pub fn parse_period(text: &str) -> Result<Duration, String> {
    parse_duration(text, "--every 90m")
}

/// Parses a time, in `zone` unless the text names an offset.
///
/// # Errors
/// A message with the correct form, if the text is not a time or the time is past.
pub fn parse_time(text: &str, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, String> {
    let text = text.trim();
    let local_now = zone.to_datetime(now);
    let time = match (text.parse::<Timestamp>(), text.parse::<DateTime>()) {
        // A zone name in brackets would be parsed but ignored.
        _ if text.contains('[') => None,
        (Ok(time), _) => Some(time),
        (_, Ok(time)) => to_instant(time, zone),
        _ => None,
    };
    let Some(time) = time else {
        let suggestion = match text.parse::<jiff::civil::Time>() {
            // Without a date, the error suggests the next occurrence of the time.
            _ if text.contains(['-', '[']) => None,
            Ok(time) if time > local_now.time() => Some((local_now.date(), time)),
            Ok(time) => local_now.date().tomorrow().ok().map(|day| (day, time)),
            Err(_) => None,
        };
        if let Some(error) = missing_day_error(text) {
            return Err(error);
        }
        return Err(match suggestion {
            Some((day, time)) => {
                format!("`{text}` has no date; use `{day}T{}`", time.strftime("%H:%M"))
            }
            None => format!(
                "`{text}` is not a date and time such as `{}T18:00`; append `Z` or `+02:00` for another zone",
                local_now.date()
            ),
        });
    };
    if time > now {
        Ok(time)
    } else {
        Err(format!("`{text}` is in the past: it is {} now", local_now.strftime("%Y-%m-%dT%H:%M")))
    }
}

/// Returns the error for a well-formed date whose day does not exist in its month.
fn missing_day_error(text: &str) -> Option<String> {
    let mut parts = text.get(..10)?.split('-');
    let mut number = || parts.next()?.parse::<i16>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    let month = Date::new(year, i8::try_from(month).ok()?, 1).ok()?;
    let days = month.days_in_month();
    (day > i16::from(days))
        .then(|| format!("`{text}`: {} has {days} days", month.strftime("%B %Y")))
}

/// Parses a delay from `now`; returns the first whole minute after it.
///
/// # Errors
/// A message with the correct form.
pub fn parse_delay(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let length = parse_duration(text, "--in 2h")?;
    let seconds = i64::try_from(length.as_secs()).ok();
    seconds
        .and_then(|seconds| now.checked_add(SignedDuration::from_secs(seconds)).ok())
        .and_then(ceil_minute)
        .ok_or_else(|| format!("`{text}` is too long"))
}

/// Minimum Jaro-Winkler similarity of a suggested time zone.
const MIN_ZONE_SIMILARITY: f64 = 0.85;

/// Builds the error for an unknown time zone, with similar names from `zones`.
pub fn unknown_zone_error(name: &str, zones: &[String]) -> String {
    let lower_name = name.to_lowercase().replace(' ', "_");
    let similarity = |zone: &String| {
        let zone = zone.to_lowercase();
        let city = zone.rsplit('/').next().unwrap_or_default();
        strsim::jaro_winkler(&lower_name, &zone).max(strsim::jaro_winkler(&lower_name, city))
    };
    let mut matches: Vec<(f64, &String)> = zones
        .iter()
        .map(|zone| (similarity(zone), zone))
        .filter(|(similarity, _)| *similarity > MIN_ZONE_SIMILARITY)
        .collect();
    matches.sort_by(|(left, left_zone), (right, right_zone)| {
        right.total_cmp(left).then(left_zone.cmp(right_zone))
    });
    let names: Vec<String> = matches.iter().take(3).map(|(_, zone)| format!("`{zone}`")).collect();
    if names.is_empty() {
        format!("there is no time zone `{name}`; use a name such as `Europe/Berlin` or `UTC`")
    } else {
        format!("there is no time zone `{name}`; similar names: {}", names.join(", "))
    }
}

/// Parses a duration such as `90m`, `1h30m`, `2 days`, or a number of seconds.
fn parse_duration(text: &str, example: &str) -> Result<Duration, String> {
    let text = text.trim();
    let invalid = || {
        format!(
            "`{text}` is not a duration: use a number with `m`, `h`, `d` or `w`, as in `{example}`, or a number of seconds"
        )
    };
    let seconds = parse_time_span(text).ok_or_else(invalid)?.as_secs();
    match seconds {
        seconds if seconds > MAX_PERIOD_SECS => {
            Err(format!("`{text}` is too long; the maximum is 100 years"))
        }
        0..60 => Err(format!(
            "`{text}` is less than a minute; the minimum is `1m`, or 60 as a bare number"
        )),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// A hundred years, in seconds.
const MAX_PERIOD_SECS: u64 = 100 * 366 * 86_400;

fn describe_period(period: Duration) -> String {
    let seconds = period.as_secs();
    let units = [(604_800, "week"), (86_400, "day"), (3600, "hour"), (60, "minute")];
    let unit = units.into_iter().find(|(size, _)| seconds > 0 && seconds.is_multiple_of(*size));
    let (size, name) = unit.unwrap_or((1, "second"));
    match seconds / size {
        1 => name.into(),
        number => format!("{number} {name}s"),
    }
}

// The slots of a period start at `created`, floored to its minute, and follow at whole periods, each rounded up to a
// minute. Slots before `created` are included, so that a job created under a wrong clock has slots.

fn first_period_slot(period: Duration, created: Timestamp, from: Timestamp) -> Option<Timestamp> {
    let (start, period) = period_grid(period, created)?;
    // The first point after the preceding minute.
    let from = from.as_nanosecond() - i128::from(MINUTE_SECS) * NANOS_PER_SEC;
    let number = (from - start).div_euclid(period) + 1;
    ceil_minute(Timestamp::from_nanosecond(number.checked_mul(period)?.checked_add(start)?).ok()?)
}

fn last_period_slot(period: Duration, created: Timestamp, until: Timestamp) -> Option<Timestamp> {
    let (start, period) = period_grid(period, created)?;
    let until = floor_minute(until).as_nanosecond();
    let number = (until - start).div_euclid(period);
    ceil_minute(Timestamp::from_nanosecond(number.checked_mul(period)?.checked_add(start)?).ok()?)
}

fn period_grid(period: Duration, created: Timestamp) -> Option<(i128, i128)> {
    let period = i128::try_from(period.as_nanos()).ok().filter(|period| *period > 0)?;
    Some((floor_minute(created).as_nanosecond(), period))
}

/// Returns the minute that contains `time`.
pub(crate) fn floor_minute(time: Timestamp) -> Timestamp {
    let seconds = time.as_nanosecond().div_euclid(NANOS_PER_SEC) as i64;
    Timestamp::from_second(seconds - seconds.rem_euclid(MINUTE_SECS)).unwrap_or(Timestamp::MIN)
}

/// Returns the first whole minute at or after `time`.
pub(crate) fn ceil_minute(time: Timestamp) -> Option<Timestamp> {
    match floor_minute(time) {
        whole if whole == time => Some(time),
        _ => next_minute(time),
    }
}

fn next_minute(time: Timestamp) -> Option<Timestamp> {
    floor_minute(time).checked_add(SignedDuration::from_mins(1)).ok()
}

/// Returns the minute before the one that contains `time`.
fn previous_minute(time: Timestamp) -> Timestamp {
    let minute = SignedDuration::from_mins(1);
    floor_minute(time).checked_sub(minute).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::{
        CatchUpPolicy, DueState, Schedule, Timetable, parse_delay, parse_period, parse_time,
        unknown_zone_error,
    };
    use crate::expression::Expression;
    use jiff::tz::TimeZone;
    use jiff::{SignedDuration, Timestamp};
    use std::time::Duration;

    const CREATED: &str = "2026-01-01T00:00:20Z";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn daily() -> Schedule {
        Schedule::Cron { expression: Expression::parse("0 8 * * *").unwrap(), zone: None }
    }

    fn due_state(
        schedule: &Schedule,
        catch_up: CatchUpPolicy,
        last_slot: &str,
        now: &str,
    ) -> DueState {
        let last_slot = (!last_slot.is_empty()).then(|| time(last_slot));
        let created = time(CREATED);
        let timetable = Timetable {
            schedule,
            catch_up,
            created,
            earliest_slot: created,
            zone: &TimeZone::UTC,
            predecessor_end: None,
            delay: Duration::ZERO,
            max_delay: Duration::ZERO,
        };
        timetable.due_state(last_slot, time(now))
    }

    #[test]
    fn a_delayed_start_is_due_later_and_not_late() {
        let created = time(CREATED);
        let check = |last_slot: &str, now: &str, expect: DueState| {
            let timetable = Timetable {
                schedule: &daily(),
                catch_up: CatchUpPolicy::None,
                created,
                earliest_slot: created,
                zone: &TimeZone::UTC,
                predecessor_end: None,
                delay: Duration::from_secs(1205),
                max_delay: Duration::from_mins(30),
            };
            assert_eq!(timetable.due_state(Some(time(last_slot)), time(now)), expect);
        };
        let slot = time("2026-01-05T08:00:00Z");
        let before = "2026-01-04T08:00:00Z";
        let not_yet = |next| DueState::NotYet { next: Some(next) };
        check(before, "2026-01-05T07:59:00Z", not_yet(slot));
        check(before, "2026-01-05T08:20:00Z", DueState::Delayed { slot });
        check(before, "2026-01-05T08:20:05Z", DueState::Due { slot });
        check(before, "2026-01-05T08:40:00Z", DueState::Due { slot });
        check(before, "2026-01-05T08:40:01Z", DueState::Missed { slot });
        let next = time("2026-01-06T08:00:00Z");
        check("2026-01-05T08:00:00Z", "2026-01-05T08:20:05Z", not_yet(next));
    }

    #[test]
    fn the_end_of_the_run_before_is_a_slot() {
        let created = time(CREATED);
        let schedule = Schedule::After("a".into());
        let check = |catch_up, end: &str, last_slot: &str, now: &str, expect: DueState| {
            let timetable = Timetable {
                schedule: &schedule,
                catch_up,
                created,
                earliest_slot: created,
                zone: &TimeZone::UTC,
                predecessor_end: (!end.is_empty()).then(|| time(end)),
                delay: Duration::ZERO,
                max_delay: Duration::ZERO,
            };
            let last_slot = (!last_slot.is_empty()).then(|| time(last_slot));
            assert_eq!(
                timetable.due_state(last_slot, time(now)),
                expect,
                "{end} {last_slot:?} {now}"
            );
        };
        let (once, none) = (CatchUpPolicy::Once, CatchUpPolicy::None);
        let not_yet = DueState::NotYet { next: None };
        let (end, later) = ("2026-01-05T08:03:07.250Z", "2026-01-05T12:00:00Z");
        let slot = time(end);
        check(once, "", "", later, not_yet.clone());
        check(once, "2025-12-31T08:00:00Z", "", later, not_yet.clone());
        check(once, end, "", end, DueState::Due { slot });
        check(once, end, "", later, DueState::Due { slot });
        check(none, end, "", later, DueState::Missed { slot });
        check(once, end, end, later, not_yet);
        check(once, end, "2026-01-04T08:00:00.5Z", later, DueState::Due { slot });
        // The clock was set back after the run before.
        let future = DueState::NotYet { next: Some(slot) };
        check(once, end, "", "2026-01-05T08:00:00Z", future);
    }

    #[test]
    fn a_slot_is_overdue_if_nothing_has_run_since() {
        let schedule = |text: &str| Schedule::Cron {
            expression: Expression::parse(text).unwrap(),
            zone: None,
        };
        let check = |text: &str, catch_up, last: &str, now: &str, expect: &str| {
            let (schedule, created) = (schedule(text), time(CREATED));
            let timetable = Timetable {
                schedule: &schedule,
                catch_up,
                created,
                earliest_slot: created,
                zone: &TimeZone::UTC,
                predecessor_end: None,
                delay: Duration::ZERO,
                max_delay: Duration::from_mins(2),
            };
            let last = (!last.is_empty()).then(|| time(last));
            let slot = timetable.overdue_slot(last, time(now), SignedDuration::from_mins(5));
            let expect = (!expect.is_empty()).then(|| time(expect));
            assert_eq!(slot, expect, "{text} {last:?} {now}");
        };
        let eight = "2026-01-05T08:00:00Z";
        for catch_up in [CatchUpPolicy::None, CatchUpPolicy::Once] {
            // Just late enough: the delay, and the grace.
            check("0 8 * * *", catch_up, eight, "2026-01-06T08:07:00Z", "");
            check("0 8 * * *", catch_up, eight, "2026-01-06T08:07:01Z", "2026-01-06T08:00:00Z");
            for now in ["2026-01-07T09:00:00Z", "2026-01-12T09:00:00Z", "2026-02-19T09:00:00Z"] {
                check("0 8 * * *", catch_up, eight, now, "2026-01-06T08:00:00Z");
                check("0 * * * *", catch_up, eight, now, "2026-01-05T09:00:00Z");
                check("* * * * *", catch_up, eight, now, "2026-01-05T08:01:00Z");
            }
            // It never ran.
            check("0 8 * * *", catch_up, "", "2026-02-01T00:00:00Z", "2026-01-01T08:00:00Z");
            // A last run in the far future is an error of the clock.
            check(
                "0 8 * * *",
                catch_up,
                "2027-01-01T08:00:00Z",
                "2026-02-01T00:00:00Z",
                "2026-01-01T08:00:00Z",
            );
            check("* * * * *", catch_up, eight, "2026-01-05T08:04:00Z", "");
        }
    }

    #[test]
    fn due_slots() {
        let check = |last_slot: &str, now: &str, expect: DueState| {
            assert_eq!(
                due_state(&daily(), CatchUpPolicy::None, last_slot, now),
                expect,
                "{last_slot} {now}"
            );
        };
        let not_yet = |next| DueState::NotYet { next: Some(time(next)) };
        let is_due = |slot| DueState::Due { slot: time(slot) };
        let missed = |slot| DueState::Missed { slot: time(slot) };
        check("", "2026-01-01T07:59:59Z", not_yet("2026-01-01T08:00:00Z"));
        check("", "2026-01-01T08:00:00Z", is_due("2026-01-01T08:00:00Z"));
        check("", "2026-01-01T08:10:00Z", is_due("2026-01-01T08:00:00Z"));
        check("", "2026-01-01T08:10:01Z", missed("2026-01-01T08:00:00Z"));
        check("2026-01-01T08:00:00Z", "2026-01-01T08:00:59Z", not_yet("2026-01-02T08:00:00Z"));
        check("2026-01-01T08:00:00Z", "2026-01-05T08:00:00Z", is_due("2026-01-05T08:00:00Z"));
        check("2026-01-01T08:00:00Z", "2026-01-05T09:00:00Z", missed("2026-01-05T08:00:00Z"));
        // The clock was set back by at most a day: nothing is repeated.
        check("2026-01-03T08:00:00Z", "2026-01-02T08:00:00Z", not_yet("2026-01-04T08:00:00Z"));
        check("2026-01-03T08:00:00Z", "2026-01-03T08:00:00Z", not_yet("2026-01-04T08:00:00Z"));
    }

    #[test]
    fn missed_slots_are_caught_up() {
        let check = |last_slot: &str, now: &str, expect: &str| {
            let expect = DueState::Due { slot: time(expect) };
            assert_eq!(due_state(&daily(), CatchUpPolicy::Once, last_slot, now), expect);
        };
        check("", "2026-01-01T20:00:00Z", "2026-01-01T08:00:00Z");
        check("2026-01-01T08:00:00Z", "2026-02-01T07:00:00Z", "2026-01-31T08:00:00Z");
    }

    #[test]
    fn a_wrong_clock_is_detected() {
        let check = |last_slot: &str, now: &str, again: DueState| {
            let DueState::ClockWasWrong { last_slot } =
                due_state(&daily(), CatchUpPolicy::Once, last_slot, now)
            else {
                panic!("{last_slot} {now}");
            };
            assert_eq!(
                due_state(&daily(), CatchUpPolicy::Once, &last_slot.to_string(), now),
                again
            );
        };
        let slot = time("2026-01-02T08:00:00Z");
        check("2036-01-01T08:00:00Z", "2026-01-02T08:00:20Z", DueState::Due { slot });
        // The slot may have been run before.
        let next = Some(time("2026-01-03T08:00:00Z"));
        check("2036-01-01T08:00:00Z", "2026-01-02T08:01:00Z", DueState::NotYet { next });
        // The job's creation is in the future, too.
        check("", "2025-06-01T08:00:00Z", DueState::Due { slot: time("2025-06-01T08:00:00Z") });
        check(
            "2036-01-01T08:00:00Z",
            "2025-06-01T08:00:00Z",
            DueState::Due { slot: time("2025-06-01T08:00:00Z") },
        );
        // A difference of less than a day is only waited for.
        assert_eq!(
            due_state(&daily(), CatchUpPolicy::Once, "", "2025-12-31T12:00:00Z"),
            DueState::NotYet { next: Some(time("2026-01-01T08:00:00Z")) }
        );
    }

    #[test]
    fn periods_start_at_the_minute_of_creation() {
        let check = |seconds: u64, after: &str, next: &str, latest: &str| {
            let schedule = Schedule::Every(Duration::from_secs(seconds));
            let created = time(CREATED);
            let slot = schedule.next(time(after), created, &TimeZone::UTC);
            assert_eq!(slot, Some(time(next)), "after {after}");
            let slot = schedule.latest(time(after), created, &TimeZone::UTC);
            assert_eq!(slot, Some(time(latest)), "until {after}");
        };
        check(5400, "2026-01-01T00:00:20Z", "2026-01-01T01:30:00Z", "2026-01-01T00:00:00Z");
        check(5400, "2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z", "2026-01-01T01:30:00Z");
        check(5400, "2026-01-01T01:30:59Z", "2026-01-01T03:00:00Z", "2026-01-01T01:30:00Z");
        // A slot between two minutes runs at the second one.
        check(90, "2026-01-01T00:00:20Z", "2026-01-01T00:02:00Z", "2026-01-01T00:00:00Z");
        check(90, "2026-01-01T00:02:00Z", "2026-01-01T00:03:00Z", "2026-01-01T00:02:00Z");
        check(7, "2026-01-01T00:02:30Z", "2026-01-01T00:03:00Z", "2026-01-01T00:02:00Z");
        // A period of the length of February, with slots before the job was created.
        check(86_400 * 28, "2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z", "2025-12-04T00:00:00Z");
        let schedule = Schedule::Every(Duration::MAX);
        assert_eq!(schedule.next(time(CREATED), time(CREATED), &TimeZone::UTC), None);
    }

    #[test]
    fn a_single_time() {
        let schedule = Schedule::At(time("2026-12-24T17:59:30Z"));
        let (slot, created) = (time("2026-12-24T18:00:00Z"), time(CREATED));
        let zone = &TimeZone::UTC;
        assert_eq!(schedule.next(created, created, zone), Some(slot));
        assert_eq!(schedule.next(slot, created, zone), None);
        assert_eq!(schedule.latest(slot, created, zone), Some(slot));
        assert_eq!(schedule.latest(created, created, zone), None);
        let late = due_state(&schedule, CatchUpPolicy::Once, "", "2027-12-24T18:00:00Z");
        assert_eq!(late, DueState::Due { slot });
        let after = due_state(
            &schedule,
            CatchUpPolicy::Once,
            "2026-12-24T18:00:00Z",
            "2027-12-24T18:00:00Z",
        );
        assert_eq!(after, DueState::NotYet { next: None });
    }

    #[test]
    fn descriptions() {
        let check = |schedule: Schedule, expect: &str| {
            let zone = TimeZone::get("Europe/Berlin").unwrap();
            assert_eq!(schedule.describe(&zone), expect);
        };
        let every = |seconds| Schedule::Every(Duration::from_secs(seconds));
        check(daily(), "at 08:00 each day");
        check(
            Schedule::Cron {
                expression: Expression::parse("@hourly").unwrap(),
                zone: Some("Asia/Tokyo".into()),
            },
            "every hour, Asia/Tokyo time",
        );
        check(every(5400), "every 90 minutes");
        check(every(3600), "every hour");
        check(every(86_400), "every day");
        check(every(100), "every 100 seconds");
        check(every(0), "every 0 seconds");
        check(Schedule::At(time("2026-12-24T17:00:00Z")), "once, on 2026-12-24 at 18:00");
    }

    #[test]
    fn parse_periods() {
        let check = |text: &str, expect: u64| {
            assert_eq!(parse_period(text), Ok(Duration::from_secs(expect)), "{text}");
        };
        check("5400", 5400);
        check("60", 60);
        check("90m", 5400);
        check("1h30m", 5400);
        check(" 1h 30 min ", 5400);
        check("2 Days", 172_800);
        check("1w", 604_800);
        check("90s", 90);
        let refuse = |text: &str, expect: &str| {
            let error = parse_period(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        };
        refuse("", "is not a duration");
        refuse(
            "1.5h",
            "is not a duration: use a number with `m`, `h`, `d` or `w`, as in `--every 90m`",
        );
        refuse("-5m", "is not a duration");
        refuse("m", "is not a duration");
        refuse("1h30", "is not a duration");
        refuse("5 fortnights", "is not a duration");
        refuse("30", "`30` is less than a minute; the minimum is `1m`");
        refuse("0", "`0` is less than a minute; the minimum is `1m`, or 60 as a bare number");
        refuse("99999999999999999999", "is not a duration");
        refuse("999999999999", "the maximum is 100 years");
        refuse("99999999999999999w", "is not a duration");
    }

    #[test]
    fn parse_times() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now = time("2026-03-01T12:00:00Z");
        let check = |text: &str, expect: &str| {
            assert_eq!(parse_time(text, &zone, now), Ok(time(expect)), "{text}");
        };
        check("2026-12-24T18:00", "2026-12-24T17:00:00Z");
        check("2026-12-24 18:00:30", "2026-12-24T17:00:30Z");
        check("2026-12-24", "2026-12-23T23:00:00Z");
        check("2026-12-24T18:00Z", "2026-12-24T18:00:00Z");
        check("2026-12-24T18:00:00-05:00", "2026-12-24T23:00:00Z");
        // A skipped time, and one that occurs twice.
        check("2026-03-29T02:30", "2026-03-29T01:00:00Z");
        check("2026-10-25T02:30", "2026-10-25T00:30:00Z");
        let refuse = |text: &str, expect: &str| {
            assert_eq!(parse_time(text, &zone, now).unwrap_err(), expect);
        };
        refuse("2026-03-01T13:00", "`2026-03-01T13:00` is in the past: it is 2026-03-01T13:00 now");
        refuse("2020-01-01", "`2020-01-01` is in the past: it is 2026-03-01T13:00 now");
        refuse("2026-02-30", "`2026-02-30`: February 2026 has 28 days");
        refuse("18:00", "`18:00` has no date; use `2026-03-01T18:00`");
        refuse("07:30", "`07:30` has no date; use `2026-03-02T07:30`");
        let form = "is not a date and time such as `2026-03-01T18:00`; append `Z` or `+02:00` for another zone";
        for text in ["tomorrow", "24.12.2026", "", "2026-12-24T18:00[Asia/Tokyo]"] {
            refuse(text, &format!("`{text}` {form}"));
        }
    }

    #[test]
    fn parse_delays() {
        let now = time("2026-03-01T12:00:20Z");
        assert_eq!(parse_delay("2h", now), Ok(time("2026-03-01T14:01:00Z")));
        assert_eq!(parse_delay("60", now), Ok(time("2026-03-01T12:02:00Z")));
        assert!(parse_delay("30s", now).is_err_and(|error| error.contains("less than a minute")));
        assert!(parse_delay("soon", now).is_err_and(|error| error.contains("as in `--in 2h`")));
        assert_eq!(parse_delay("1m", Timestamp::MAX).unwrap_err(), "`1m` is too long");
    }

    #[test]
    fn unknown_zones_get_suggestions() {
        let zones = ["America/New_York", "Europe/Berlin", "Europe/Bratislava", "UTC"];
        let zones = zones.map(str::to_owned);
        let check = |name: &str, expect: &str| {
            assert_eq!(unknown_zone_error(name, &zones), expect);
        };
        check("berlin", "there is no time zone `berlin`; similar names: `Europe/Berlin`");
        check(
            "Europe/Berlni",
            "there is no time zone `Europe/Berlni`; similar names: `Europe/Berlin`, `Europe/Bratislava`",
        );
        check("new york", "there is no time zone `new york`; similar names: `America/New_York`");
        check("XYZ", "there is no time zone `XYZ`; use a name such as `Europe/Berlin` or `UTC`");
    }
}
