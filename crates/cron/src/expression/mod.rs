//! Cron expressions: the minutes that they match.
//!
//! Slots are the minutes at which Debian's cron would start a job. It treats two kinds of lines differently. A line
//! whose minute and hour do not begin with `*` names times of day: a time skipped by the clock runs at the first
//! minute after the gap, and a repeated time runs at its first occurrence. Any other line is matched against every
//! minute of real time.
//!
//! The extensions (`L`, `W`, `#`, `?`, wrap-around ranges, `5/15`) are those of croniter, which the Python program
//! uses. Where croniter differs from cron, cron is followed: croniter runs a repeated time of day twice, requires
//! `*/10` or the weekday instead of both, and takes `1-1` for all days.

mod description;
mod parser;
pub(crate) mod systemd_calendar;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use std::ops::RangeInclusive;

/// A cron expression with five fields: minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    /// The five fields in a form that every cron understands; they match at least the minutes of the expression.
    plain_cron: Box<[String; 5]>,
    /// True if `plain_cron` matches no other minutes.
    is_exact: bool,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Days,
    weekdays: Weekdays,
    /// True if a day must match both day fields, because one of them begins with `*`. Otherwise either suffices.
    needs_both_days: bool,
    /// True if the expression names times of day: neither minute nor hour begins with `*`.
    is_time_of_day: bool,
}

/// Days of a month: fixed days as bits, and days that depend on the month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Days {
    plain: u64,
    /// `L`
    last: bool,
    /// `LW`
    last_working: bool,
    /// `15W`: the working day (Monday to Friday) nearest to the 15th, in the same month.
    nearest: u64,
}

/// Days of the week; Sunday is bit 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weekdays {
    plain: u64,
    /// `5#2`: weekdays by their number in the month, counted from 1.
    numbered: [u64; 6],
    /// `L5`
    last: u64,
}

/// Years after which the calendar repeats; a day that does not occur in them never occurs.
const CALENDAR_CYCLE_YEARS: i16 = 400;

impl Expression {
    /// The expression as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the five fields in a form that every cron accepts, unchanged where possible. A field that begins
    /// with `*` still does, because cron gives the `*` a meaning.
    pub(crate) fn as_plain_cron(&self) -> &[String; 5] {
        &self.plain_cron
    }

    /// True if the plain form matches exactly these minutes; otherwise it matches others too.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// True if the expression names times of day. Cron runs those that the clock skips right after the gap.
    pub(crate) fn is_time_of_day(&self) -> bool {
        self.is_time_of_day
    }

    /// The matching minutes of an hour, one bit each.
    pub fn minutes(&self) -> u64 {
        self.minutes
    }

    /// Returns the first slot after `after`, by the clock of `zone`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_time_of_day {
            self.next_time_of_day(after, zone)
        } else {
            self.next_in_real_time(after, zone)
        }
    }

    /// Returns the last slot at or before `at`, by the clock of `zone`.
    pub fn latest(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_time_of_day {
            self.latest_time_of_day(at, zone)
        } else {
            self.latest_in_real_time(at, zone)
        }
    }

    // Times of day run at the instant that `to_instant` returns. A later time never has an earlier instant, so the first
    // one past the limit decides. Several times may share an instant, at the end of a gap.

    fn next_time_of_day(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut time = zone.to_datetime(after);
        loop {
            time = self.first_from(next_minute(time)?)?;
            let instant = to_instant(time, zone)?;
            if instant > after {
                return Some(instant);
            }
        }
    }

    fn latest_time_of_day(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = zone.to_datetime(at);
        // In a repeated hour, times later than the clock shows may already have occurred.
        let mut time = match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Fold { before, .. } => before.to_datetime(at),
            _ => local,
        };
        loop {
            time = self.last_until(time)?;
            let instant = to_instant(time, zone)?;
            if instant <= at {
                return Some(instant);
            }
            time = time.checked_sub(1.minute()).ok()?;
        }
    }

    // Real time: between two clock changes, local time advances uniformly.

    fn next_in_real_time(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut changes = zone.following(after).map(|change| change.timestamp());
        let mut offset = zone.to_offset(after);
        let mut from = next_minute(offset.to_datetime(after))?;
        loop {
            let slot = offset.to_timestamp(self.first_from(from)?).ok()?;
            match changes.next() {
                Some(change) if slot >= change => {
                    offset = zone.to_offset(change);
                    from = ceil_minute(offset.to_datetime(change))?;
                }
                _ => return Some(slot),
            }
        }
    }

    fn latest_in_real_time(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = jiff::SignedDuration::from_secs(1);
        // `preceding` excludes a change at the given time itself, so add one second.
        let mut changes =
            zone.preceding(at.checked_add(second).unwrap_or(at)).map(|change| change.timestamp());
        let mut until = at;
        loop {
            let offset = zone.to_offset(until);
            let time = self.last_until(offset.to_datetime(until))?;
            let slot = offset.to_timestamp(time).ok()?;
            match changes.next() {
                Some(change) if slot < change => until = change.checked_sub(second).ok()?,
                _ => return Some(slot),
            }
        }
    }

    /// Returns the first matching time at or after `from`, which is a whole minute.
    fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        if self.is_match(date) {
            let hour = from.hour() as u32;
            if has_bit(self.hours, hour)
                && let Some(minute) = first_bit_from(self.minutes, from.minute() as u32)
            {
                return Some(datetime_at(date, hour, minute));
            }
            if let Some(hour) = first_bit_from(self.hours, hour + 1) {
                return Some(datetime_at(date, hour, self.minutes.trailing_zeros()));
            }
        }
        let end = from.year().saturating_add(CALENDAR_CYCLE_YEARS);
        while date.year() <= end {
            date = if has_bit(self.months, date.month() as u32) {
                date.tomorrow().ok()?
            } else {
                date.last_of_month().tomorrow().ok()?
            };
            if self.is_match(date) {
                let (hour, minute) = (self.hours.trailing_zeros(), self.minutes.trailing_zeros());
                return Some(datetime_at(date, hour, minute));
            }
        }
        None
    }

    /// Returns the last matching time at or before `until`.
    fn last_until(&self, until: DateTime) -> Option<DateTime> {
        let last = |bits: u64| 63 - bits.leading_zeros();
        let mut date = until.date();
        if self.is_match(date) {
            let hour = until.hour() as u32;
            if has_bit(self.hours, hour)
                && let Some(minute) = last_bit_until(self.minutes, until.minute() as u32)
            {
                return Some(datetime_at(date, hour, minute));
            }
            let earlier_hours = hour.checked_sub(1);
            if let Some(hour) = earlier_hours.and_then(|hour| last_bit_until(self.hours, hour)) {
                return Some(datetime_at(date, hour, last(self.minutes)));
            }
        }
        let end = until.year().saturating_sub(CALENDAR_CYCLE_YEARS);
        while date.year() >= end {
            date = if has_bit(self.months, date.month() as u32) {
                date.yesterday().ok()?
            } else {
                date.first_of_month().yesterday().ok()?
            };
            if self.is_match(date) {
                return Some(datetime_at(date, last(self.hours), last(self.minutes)));
            }
        }
        None
    }

    fn is_match(&self, date: Date) -> bool {
        let days = || self.days.is_match(date);
        let weekdays = || self.weekdays.is_match(date);
        has_bit(self.months, date.month() as u32)
            && if self.needs_both_days { days() && weekdays() } else { days() || weekdays() }
    }
}

impl Days {
    fn is_match(&self, date: Date) -> bool {
        let (day, length) = (date.day(), date.days_in_month());
        let is_nearest = |target_day: u32| {
            let target = date.first_of_month().with().day((target_day as i8).min(length)).build();
            target.is_ok_and(|target| nearest_working_day(target) == date)
        };
        has_bit(self.plain, day as u32)
            || (self.last && day == length)
            || (self.last_working && nearest_working_day(date.last_of_month()) == date)
            || (self.nearest != 0 && set_bits(self.nearest).any(is_nearest))
    }
}

impl Weekdays {
    fn is_match(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset() as u32;
        let number = (date.day() as usize).div_ceil(7);
        has_bit(self.plain | self.numbered[number], weekday)
            || (has_bit(self.last, weekday) && date.day() + 7 > date.days_in_month())
    }
}

/// Returns the days that the working day nearest to `day` can fall on: it is at most two days away. In short months, a day from
/// the 29th on is the last day.
fn days_around(day: u32) -> RangeInclusive<u32> {
    match day {
        29.. => 26..=31,
        _ => day.saturating_sub(2).max(1)..=day + 2,
    }
}

/// Returns the working day (Monday to Friday) nearest to `date`, in the same month.
fn nearest_working_day(date: Date) -> Date {
    let days = match date.weekday() {
        Weekday::Saturday if date.day() == 1 => 2,
        Weekday::Saturday => -1,
        Weekday::Sunday if date == date.last_of_month() => -2,
        Weekday::Sunday => 1,
        _ => 0,
    };
    date.saturating_add(days.days())
}

/// Returns the instant at which a clock in `zone` shows `time`: the end of the gap if it never does, the first
/// occurrence if it does twice.
pub(crate) fn to_instant(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(time);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { after, .. } => {
            // Interpreted with the offset after the gap, the time lies just before the gap.
            let early = after.to_timestamp(time).ok()?;
            let change = zone.following(early).next()?.timestamp();
            ceil_minute(after.to_datetime(change)).and_then(|end| after.to_timestamp(end).ok())
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
            ambiguous.earlier().ok()
        }
    }
}

/// Returns the minute after the one that contains `time`.
fn next_minute(time: DateTime) -> Option<DateTime> {
    let time = datetime_at(time.date(), time.hour() as u32, time.minute() as u32);
    time.checked_add(1.minute()).ok()
}

/// Returns the first whole minute at or after `time`.
fn ceil_minute(time: DateTime) -> Option<DateTime> {
    let whole = datetime_at(time.date(), time.hour() as u32, time.minute() as u32);
    if whole == time { Some(time) } else { next_minute(time) }
}

fn datetime_at(date: Date, hour: u32, minute: u32) -> DateTime {
    let time = Time::new(hour as i8, minute as i8, 0, 0).expect("fields are in their ranges");
    date.to_datetime(time)
}

/// True if the bit is set.
pub(crate) fn has_bit(bits: u64, bit: u32) -> bool {
    bits >> bit & 1 == 1
}

pub(crate) fn set_bits(bits: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |bit| has_bit(bits, *bit))
}

fn first_bit_from(bits: u64, from: u32) -> Option<u32> {
    let rest = bits >> from << from;
    (rest != 0).then(|| rest.trailing_zeros())
}

fn last_bit_until(bits: u64, until: u32) -> Option<u32> {
    let rest = bits & (u64::MAX >> (63 - until));
    (rest != 0).then(|| 63 - rest.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::Expression;
    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    /// Checks the slots after a time, forwards and backwards.
    fn slots(text: &str, name: &str, after: &str, expect: &[&str]) {
        let (expression, zone) = (Expression::parse(text).unwrap(), zone(name));
        let start: Timestamp = after.parse().unwrap();
        let mut time = start;
        for expect in expect {
            time = expression.next(time, &zone).unwrap();
            let shown = time.to_zoned(zone.clone());
            assert_eq!(
                shown.strftime("%Y-%m-%dT%H:%M%:z").to_string(),
                *expect,
                "{text} in {name}"
            );
            assert_eq!(expression.latest(time, &zone), Some(time), "{text}");
        }
        for expect in expect.iter().rev().skip(1) {
            let before = time - jiff::SignedDuration::from_secs(1);
            time = expression.latest(before, &zone).unwrap();
            assert_eq!(time, expect.parse().unwrap(), "{text} in {name}, backwards");
        }
        assert!(expression.latest(start, &zone).is_none_or(|time| time <= start));
    }

    #[test]
    fn days_that_depend_on_the_month() {
        slots(
            "0 0 L * *",
            "UTC",
            "2024-01-31T00:00:00Z",
            &["2024-02-29T00:00+00:00", "2024-03-31T00:00+00:00", "2024-04-30T00:00+00:00"],
        );
        // 31 August 2024 was a Saturday, 30 June a Sunday.
        slots(
            "0 0 LW * *",
            "UTC",
            "2024-06-01T00:00:00Z",
            &["2024-06-28T00:00+00:00", "2024-07-31T00:00+00:00", "2024-08-30T00:00+00:00"],
        );
        // 1 June 2024 was a Saturday, 1 September a Sunday.
        slots(
            "0 0 1W 6-9 *",
            "UTC",
            "2024-05-15T00:00:00Z",
            &[
                "2024-06-03T00:00+00:00",
                "2024-07-01T00:00+00:00",
                "2024-08-01T00:00+00:00",
                "2024-09-02T00:00+00:00",
            ],
        );
        slots(
            "0 0 31W 2,6 *",
            "UTC",
            "2025-01-01T00:00:00Z",
            &["2025-02-28T00:00+00:00", "2025-06-30T00:00+00:00", "2026-02-27T00:00+00:00"],
        );
        slots(
            "0 0 * * 5#5",
            "UTC",
            "2024-03-01T00:00:00Z",
            &["2024-03-29T00:00+00:00", "2024-05-31T00:00+00:00"],
        );
        slots(
            "0 0 * * L5,1#1",
            "UTC",
            "2024-03-01T00:00:00Z",
            &[
                "2024-03-04T00:00+00:00",
                "2024-03-29T00:00+00:00",
                "2024-04-01T00:00+00:00",
                "2024-04-26T00:00+00:00",
            ],
        );
        slots(
            "0 0 29 2 *",
            "UTC",
            "2096-03-01T00:00:00Z",
            &["2104-02-29T00:00+00:00", "2108-02-29T00:00+00:00"],
        );
        // A Sunday, which recurs every 28 years.
        slots(
            "0 0 29 2 */7",
            "UTC",
            "2024-03-01T00:00:00Z",
            &["2032-02-29T00:00+00:00", "2060-02-29T00:00+00:00"],
        );
    }

    #[test]
    fn days_of_month_and_week() {
        // Either field suffices if both are restricted.
        slots(
            "0 0 13 * 5",
            "UTC",
            "2024-09-07T00:00:00Z",
            &[
                "2024-09-13T00:00+00:00",
                "2024-09-20T00:00+00:00",
                "2024-09-27T00:00+00:00",
                "2024-10-04T00:00+00:00",
                "2024-10-11T00:00+00:00",
                "2024-10-13T00:00+00:00",
            ],
        );
        // Both fields must match if one begins with a star.
        slots(
            "0 0 */10 * 1",
            "UTC",
            "2024-01-01T01:00:00Z",
            &["2024-03-11T00:00+00:00", "2024-04-01T00:00+00:00"],
        );
    }

    #[test]
    fn skipped_times_run_after_the_gap() {
        slots(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T01:30:00Z",
            &["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        );
        // Several skipped times share one slot.
        slots(
            "10,30,50 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T03:00+02:00", "2026-03-29T03:10+02:00", "2026-03-29T03:30+02:00"],
        );
        slots(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            &["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
        );
        // Skipped times of lines that match every hour are not run later.
        slots(
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"],
        );
        slots(
            "*/30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T01:20:00Z",
            &["2026-03-28T02:30+01:00", "2026-03-30T02:00+02:00"],
        );
    }

    #[test]
    fn repeated_times_run_once() {
        slots(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
        );
        slots(
            "0,30 1-3 * * *",
            "Europe/Berlin",
            "2026-10-24T23:00:00Z",
            &[
                "2026-10-25T01:30+02:00",
                "2026-10-25T02:00+02:00",
                "2026-10-25T02:30+02:00",
                "2026-10-25T03:00+01:00",
            ],
        );
        slots(
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            &["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"],
        );
        // Lines that match every hour match both occurrences.
        slots(
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            &["2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"],
        );
        slots(
            "*/20 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:30:00Z",
            &["2026-04-05T01:40+11:00", "2026-04-05T01:40+10:30", "2026-04-06T01:00+10:30"],
        );
    }

    #[test]
    fn latest_within_a_repeated_hour() {
        let (expression, zone) = (Expression::parse("30 2 * * *").unwrap(), zone("Europe/Berlin"));
        // The second 02:10: 02:30 has already occurred.
        let at: Timestamp = "2026-10-25T02:10:00+01:00".parse().unwrap();
        let expect: Timestamp = "2026-10-25T02:30:00+02:00".parse().unwrap();
        assert_eq!(expression.latest(at, &zone), Some(expect));
    }

    #[test]
    fn slots_near_the_maximum_time() {
        let expression = Expression::parse("* * * * *").unwrap();
        let zone = TimeZone::UTC;
        assert_eq!(expression.next(Timestamp::MAX, &zone), None);
        assert!(expression.latest(Timestamp::MAX, &zone).is_some());
        let expression = Expression::parse("0 0 1 1 *").unwrap();
        assert_eq!(expression.latest(Timestamp::MIN, &zone), None);
    }
}
