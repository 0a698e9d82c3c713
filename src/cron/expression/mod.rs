//! Cron expressions: what they say, and which minutes they name.
//!
//! The minutes are those at which Debian's cron would start a job. That program knows two kinds of lines. One whose minute
//! and hour begin with no `*` names times of the day: where the clock skips one, the job runs at the first minute after the
//! gap, and where the clock repeats one, at its first coming. Any other line just holds for each minute of real time.
//!
//! What is more than cron's own (`L`, `W`, `#`, `?`, ranges that wrap around, `5/15`) is what the Python program's croniter
//! takes. Where that differs from cron, cron is right: croniter runs a time of the day twice where the clock repeats it,
//! wants `*/10` or the weekday and not both, and takes `1-1` for all days.

pub(in crate::cron) mod calendar;
mod read;
mod words;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// Five fields: minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    /// The five fields as every cron understands them; they name these minutes or more.
    spelling: Box<[String; 5]>,
    /// Whether the spelling names no other minutes.
    exact: bool,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Days,
    weekdays: Weekdays,
    /// A day must fit both its fields: one of them begins with `*`. Otherwise it must fit either.
    both: bool,
    /// It names times of the day: neither minute nor hour begins with `*`.
    fixed: bool,
}

/// Days of a month: a bit for each, and those that every month has elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Days {
    plain: u64,
    /// `L`
    last: bool,
    /// `LW`
    last_working: bool,
    /// `15W`: the day from Monday to Friday that is nearest, in the same month.
    nearest: u64,
}

/// Days of the week, Sunday being bit 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weekdays {
    plain: u64,
    /// `5#2`: by its number in the month, from 1.
    numbered: [u64; 6],
    /// `L5`
    last: u64,
}

/// After so many years the calendar is the same again: a day that none of them has never comes.
const CYCLE: i16 = 400;

impl Expression {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The five fields for a crontab, in a spelling that every cron takes, and as they were written where that is one.
    /// Whatever begins with `*` still does, since cron makes much of it.
    pub fn spelling(&self) -> &[String; 5] {
        &self.spelling
    }

    /// Whether the spelling names exactly these minutes. Without it, it names others too.
    pub fn exact(&self) -> bool {
        self.exact
    }

    /// Whether it names times of the day, which cron makes up for where the clock skips them.
    pub fn fixed(&self) -> bool {
        self.fixed
    }

    /// A bit for each minute of the hour that it names.
    pub fn minutes(&self) -> u64 {
        self.minutes
    }

    /// The first slot after `after`, by the clock of `zone`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self.fixed {
            true => self.next_fixed(after, zone),
            false => self.next_wild(after, zone),
        }
    }

    /// The last slot that is not after `at`, by the clock of `zone`.
    pub fn latest(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self.fixed {
            true => self.latest_fixed(at, zone),
            false => self.latest_wild(at, zone),
        }
    }

    // Times of the day, each at the moment that `moment` says. A later time has no earlier moment, so the first one that
    // is past the limit decides; several may share one moment, that at the end of a gap.

    fn next_fixed(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut time = zone.to_datetime(after);
        loop {
            time = self.first_from(following(time)?)?;
            let moment = moment(time, zone)?;
            if moment > after {
                return Some(moment);
            }
        }
    }

    fn latest_fixed(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let shown = zone.to_datetime(at);
        // While an hour is repeated, times that the clock does not show yet have been.
        let mut time = match zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Fold { before, .. } => before.to_datetime(at),
            _ => shown,
        };
        loop {
            time = self.last_until(time)?;
            let moment = moment(time, zone)?;
            if moment <= at {
                return Some(moment);
            }
            time = time.checked_sub(1.minute()).ok()?;
        }
    }

    // Real time: within a stretch in which the clock is not changed, it can be counted on.

    fn next_wild(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut changes = zone.following(after).map(|change| change.timestamp());
        let mut offset = zone.to_offset(after);
        let mut from = following(offset.to_datetime(after))?;
        loop {
            let found = self.first_from(from)?;
            let found = offset.to_timestamp(found).ok()?;
            match changes.next() {
                Some(change) if found >= change => {
                    offset = zone.to_offset(change);
                    from = minute_from(offset.to_datetime(change))?;
                }
                _ => return Some(found),
            }
        }
    }

    fn latest_wild(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = jiff::SignedDuration::from_secs(1);
        // Those before a time leave out the one at that time.
        let mut changes = zone
            .preceding(at.checked_add(second).unwrap_or(at))
            .map(|change| change.timestamp());
        let mut until = at;
        loop {
            let offset = zone.to_offset(until);
            let found = self.last_until(offset.to_datetime(until))?;
            let found = offset.to_timestamp(found).ok()?;
            match changes.next() {
                Some(change) if found < change => until = change.checked_sub(second).ok()?,
                _ => return Some(found),
            }
        }
    }

    /// The first time that fits and is not before `from`, which is a whole minute.
    fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        if self.fits(date) {
            let hour = from.hour() as u32;
            let minute = (has(self.hours, hour))
                .then(|| bit_from(self.minutes, from.minute() as u32))
                .flatten();
            let time = match minute {
                Some(minute) => Some((hour, minute)),
                None => {
                    bit_from(self.hours, hour + 1).map(|hour| (hour, self.minutes.trailing_zeros()))
                }
            };
            if let Some((hour, minute)) = time {
                return Some(at(date, hour, minute));
            }
        }
        let end = from.year().saturating_add(CYCLE);
        while date.year() <= end {
            date = match has(self.months, date.month() as u32) {
                true => date.tomorrow().ok()?,
                false => date.last_of_month().tomorrow().ok()?,
            };
            if self.fits(date) {
                let (hour, minute) = (self.hours.trailing_zeros(), self.minutes.trailing_zeros());
                return Some(at(date, hour, minute));
            }
        }
        None
    }

    /// The last time that fits and is not after `until`.
    fn last_until(&self, until: DateTime) -> Option<DateTime> {
        let last = |bits: u64| 63 - bits.leading_zeros();
        let mut date = until.date();
        if self.fits(date) {
            let hour = until.hour() as u32;
            let minute = (has(self.hours, hour))
                .then(|| bit_until(self.minutes, until.minute() as u32))
                .flatten();
            let time = match minute {
                Some(minute) => Some((hour, minute)),
                None => hour
                    .checked_sub(1)
                    .and_then(|hour| bit_until(self.hours, hour))
                    .map(|hour| (hour, last(self.minutes))),
            };
            if let Some((hour, minute)) = time {
                return Some(at(date, hour, minute));
            }
        }
        let end = until.year().saturating_sub(CYCLE);
        while date.year() >= end {
            date = match has(self.months, date.month() as u32) {
                true => date.yesterday().ok()?,
                false => date.first_of_month().yesterday().ok()?,
            };
            if self.fits(date) {
                return Some(at(date, last(self.hours), last(self.minutes)));
            }
        }
        None
    }

    fn fits(&self, date: Date) -> bool {
        let days = || self.days.fit(date);
        let weekdays = || self.weekdays.fit(date);
        has(self.months, date.month() as u32)
            && match self.both {
                true => days() && weekdays(),
                false => days() || weekdays(),
            }
    }
}

impl Days {
    fn fit(&self, date: Date) -> bool {
        let (day, length) = (date.day(), date.days_in_month());
        let is_nearest = |wanted: u32| {
            let wanted = date
                .first_of_month()
                .with()
                .day((wanted as i8).min(length))
                .build();
            wanted.is_ok_and(|wanted| working(wanted) == date)
        };
        has(self.plain, day as u32)
            || (self.last && day == length)
            || (self.last_working && working(date.last_of_month()) == date)
            || (self.nearest != 0 && bits(self.nearest).any(is_nearest))
    }
}

impl Weekdays {
    fn fit(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset() as u32;
        let number = (date.day() as usize).div_ceil(7);
        has(self.plain | self.numbered[number], weekday)
            || (has(self.last, weekday) && date.day() + 7 > date.days_in_month())
    }
}

/// The day from Monday to Friday that is nearest to `date`, in the same month.
fn working(date: Date) -> Date {
    let days = match date.weekday() {
        Weekday::Saturday if date.day() == 1 => 2,
        Weekday::Saturday => -1,
        Weekday::Sunday if date == date.last_of_month() => -2,
        Weekday::Sunday => 1,
        _ => 0,
    };
    date.saturating_add(days.days())
}

/// When a clock in `zone` shows `time`: at the end of the gap where it never does, and the first time where it does twice.
pub(crate) fn moment(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let shown = zone.to_ambiguous_timestamp(time);
    match shown.offset() {
        AmbiguousOffset::Gap { after, .. } => {
            // By the offset that holds after the gap, the time lies just before it.
            let early = after.to_timestamp(time).ok()?;
            let change = zone.following(early).next()?.timestamp();
            minute_from(after.to_datetime(change)).and_then(|end| after.to_timestamp(end).ok())
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => shown.earlier().ok(),
    }
}

/// The minute after the one that `time` is in.
fn following(time: DateTime) -> Option<DateTime> {
    let time = at(time.date(), time.hour() as u32, time.minute() as u32);
    time.checked_add(1.minute()).ok()
}

/// The first whole minute that is not before `time`.
fn minute_from(time: DateTime) -> Option<DateTime> {
    let whole = at(time.date(), time.hour() as u32, time.minute() as u32);
    match whole == time {
        true => Some(time),
        false => following(time),
    }
}

fn at(date: Date, hour: u32, minute: u32) -> DateTime {
    let time = Time::new(hour as i8, minute as i8, 0, 0).expect("fields are in their ranges");
    date.to_datetime(time)
}

/// Whether the bit is there.
pub(crate) fn has(bits: u64, bit: u32) -> bool {
    bits >> bit & 1 == 1
}

/// The bits that are there.
pub(crate) fn bits(bits: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |bit| has(bits, *bit))
}

fn bit_from(bits: u64, from: u32) -> Option<u32> {
    let rest = bits >> from << from;
    (rest != 0).then(|| rest.trailing_zeros())
}

fn bit_until(bits: u64, until: u32) -> Option<u32> {
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

    /// The slots after a time, and the same ones backwards.
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
        assert!(
            expression
                .latest(start, &zone)
                .is_none_or(|time| time <= start)
        );
    }

    #[test]
    fn days_that_every_month_has_elsewhere() {
        slots(
            "0 0 L * *",
            "UTC",
            "2024-01-31T00:00:00Z",
            &[
                "2024-02-29T00:00+00:00",
                "2024-03-31T00:00+00:00",
                "2024-04-30T00:00+00:00",
            ],
        );
        // 31 August 2024 was a Saturday, 30 June a Sunday.
        slots(
            "0 0 LW * *",
            "UTC",
            "2024-06-01T00:00:00Z",
            &[
                "2024-06-28T00:00+00:00",
                "2024-07-31T00:00+00:00",
                "2024-08-30T00:00+00:00",
            ],
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
            &[
                "2025-02-28T00:00+00:00",
                "2025-06-30T00:00+00:00",
                "2026-02-27T00:00+00:00",
            ],
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
        // A Sunday, which each 28 years bring.
        slots(
            "0 0 29 2 */7",
            "UTC",
            "2024-03-01T00:00:00Z",
            &["2032-02-29T00:00+00:00", "2060-02-29T00:00+00:00"],
        );
    }

    #[test]
    fn days_of_month_and_week() {
        // Either, where both are named.
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
        // Both, where one of them begins with a star.
        slots(
            "0 0 */10 * 1",
            "UTC",
            "2024-01-01T01:00:00Z",
            &["2024-03-11T00:00+00:00", "2024-04-01T00:00+00:00"],
        );
    }

    #[test]
    fn skipped_times_come_after_the_gap() {
        slots(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T01:30:00Z",
            &["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        );
        // Several are one.
        slots(
            "10,30,50 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &[
                "2026-03-29T03:00+02:00",
                "2026-03-29T03:10+02:00",
                "2026-03-29T03:30+02:00",
            ],
        );
        slots(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            &["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
        );
        // What holds for each hour is not made up for.
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
    fn repeated_times_come_once() {
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
        // What holds for each hour holds for both.
        slots(
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            &[
                "2026-10-25T02:30+02:00",
                "2026-10-25T02:30+01:00",
                "2026-10-25T03:30+01:00",
            ],
        );
        slots(
            "*/20 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:30:00Z",
            &[
                "2026-04-05T01:40+11:00",
                "2026-04-05T01:40+10:30",
                "2026-04-06T01:00+10:30",
            ],
        );
    }

    #[test]
    fn latest_within_a_repeated_hour() {
        let (expression, zone) = (
            Expression::parse("30 2 * * *").unwrap(),
            zone("Europe/Berlin"),
        );
        // 02:10 for the second time: 02:30 has been.
        let at: Timestamp = "2026-10-25T02:10:00+01:00".parse().unwrap();
        let expect: Timestamp = "2026-10-25T02:30:00+02:00".parse().unwrap();
        assert_eq!(expression.latest(at, &zone), Some(expect));
    }

    #[test]
    fn the_end_of_time() {
        let expression = Expression::parse("* * * * *").unwrap();
        let zone = TimeZone::UTC;
        assert_eq!(expression.next(Timestamp::MAX, &zone), None);
        assert!(expression.latest(Timestamp::MAX, &zone).is_some());
        let expression = Expression::parse("0 0 1 1 *").unwrap();
        assert_eq!(expression.latest(Timestamp::MIN, &zone), None);
    }
}
