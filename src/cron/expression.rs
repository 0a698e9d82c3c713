//! Cron expressions: what they say, and which minutes they name.
//!
//! The minutes are those at which Debian's cron would start a job. That program knows two kinds of lines. One whose minute
//! and hour begin with no `*` names times of the day: where the clock skips one, the job runs at the first minute after the
//! gap, and where the clock repeats one, at its first coming. Any other line just holds for each minute of real time. The
//! Python program's croniter treats all lines in the second way, so with it a job may run twice in the repeated hour.
//!
//! What is more than cron's own (`L`, `W`, `#`, `?`, ranges that wrap around, `5/15`) is what croniter takes.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use std::ops::RangeInclusive;

/// Five fields: minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    /// The five fields as every cron understands them; they name these minutes or more.
    spelling: [String; 5],
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

/// A field's place in the expression, its name and its values.
struct Field {
    name: &'static str,
    values: RangeInclusive<u32>,
    names: &'static [&'static str],
}

const DAY: usize = 2;
const WEEKDAY: usize = 4;

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        values: 0..=59,
        names: &[],
    },
    Field {
        name: "hour",
        values: 0..=23,
        names: &[],
    },
    Field {
        name: "day of the month",
        values: 1..=31,
        names: &[],
    },
    Field {
        name: "month",
        values: 1..=12,
        names: &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
    },
    // 7 is Sunday too.
    Field {
        name: "weekday",
        values: 0..=6,
        names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    },
];

const ALIASES: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// What every error ends with.
const FORM: &str = "minute, hour, day of the month, month and weekday, as in `0 8 * * 1-5`";
/// The longest expression; cron's lines have an end too.
const LONGEST: usize = 200;
/// After so many years the calendar is the same again: a day that none of them has never comes.
const CYCLE: i16 = 400;

impl Expression {
    /// Read an expression.
    ///
    /// # Errors
    /// In words: what is wrong, and how it would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(format!("a cron expression has five fields: {FORM}"));
        }
        if text.len() > LONGEST {
            return Err(format!(
                "a cron expression has {LONGEST} characters at most: {FORM}"
            ));
        }
        if !text.is_ascii()
            || text.contains(|letter: char| letter.is_ascii_control() && letter != '\t')
        {
            return Err(format!(
                "`{}` has letters that no cron expression has: {FORM}",
                text.escape_debug()
            ));
        }
        let meant = match text.strip_prefix('@') {
            None => text,
            Some(_) => alias(text)?,
        };
        let fields: Vec<&str> = meant.split_ascii_whitespace().collect();
        let fields: [&str; 5] = fields
            .try_into()
            .map_err(|fields: Vec<&str>| wrong_number(text, &fields))?;

        let mut read = fields.map(|_| Read::default());
        for (at, (field, read)) in fields.iter().zip(&mut read).enumerate() {
            *read = Read::field(at, field).map_err(|cause| format!("`{text}`: {cause}"))?;
        }
        let star = |at: usize| read[at].spelling.starts_with('*');
        let expression = Self {
            both: star(DAY) || star(WEEKDAY),
            fixed: !star(0) && !star(1),
            exact: read.iter().all(|read| read.exact),
            minutes: read[0].plain,
            hours: read[1].plain,
            months: read[3].plain,
            days: Days {
                plain: read[DAY].plain,
                ..read[DAY].days.clone()
            },
            weekdays: Weekdays {
                plain: read[WEEKDAY].plain,
                ..read[WEEKDAY].weekdays.clone()
            },
            spelling: read.map(|read| read.spelling),
            text: text.into(),
        };
        let some_day = Date::constant(2000, 1, 1).at(0, 0, 0, 0);
        match expression.first_from(some_day) {
            Some(_) => Ok(expression),
            None => Err(format!(
                "`{text}` never comes: no month it names has such a day"
            )),
        }
    }

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

    /// In words, for people; the expression itself where words would be long.
    pub fn words(&self) -> String {
        let words = || Some(format!("{}{}", self.times()?, self.on_days()?));
        words().unwrap_or_else(|| self.text.clone())
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

    /// `at 08:00`, `every 15 minutes`.
    fn times(&self) -> Option<String> {
        let [minute, hour, ..] = &self.spelling;
        let step = |field: &str, of: u32| {
            let step: u32 = match field {
                "*" => 1,
                _ => field.strip_prefix("*/")?.parse().ok()?,
            };
            (of.is_multiple_of(step) && step < of).then_some(step)
        };
        let each = |step, unit: &str| match step {
            1 => format!("every {unit}"),
            _ => format!("every {step} {unit}s"),
        };
        let (minutes, hours) = (bits(self.minutes), bits(self.hours));
        if self.minutes.count_ones() * self.hours.count_ones() <= 4 {
            let times = hours.flat_map(|hour| {
                bits(self.minutes).map(move |minute| format!("{hour:02}:{minute:02}"))
            });
            return Some(format!("at {}", listed(times)));
        }
        if hour == "*" {
            if let Some(step) = step(minute, 60) {
                return Some(each(step, "minute"));
            }
            return match self.minutes.count_ones() {
                1 if has(self.minutes, 0) => Some(each(1, "hour")),
                1 => Some(format!(
                    "every hour at minute {}",
                    self.minutes.trailing_zeros()
                )),
                2..=4 => Some(format!(
                    "every hour at minutes {}",
                    listed(minutes.map(|minute| minute.to_string()))
                )),
                _ => None,
            };
        }
        if let (Some(step), 1) = (step(hour, 24), self.minutes.count_ones()) {
            let minute = self.minutes.trailing_zeros();
            return Some(format!("{} from 00:{minute:02} on", each(step, "hour")));
        }
        let run = run(self.hours)?;
        let (first, last) = (run.start(), run.end());
        let end = 63 - self.minutes.leading_zeros();
        let start = self.minutes.trailing_zeros();
        let every = match step(minute, 60) {
            Some(step) => each(step, "minute"),
            None if self.minutes.count_ones() == 1 => each(1, "hour"),
            None => return None,
        };
        Some(format!(
            "{every} from {first:02}:{start:02} to {last:02}:{end:02}"
        ))
    }

    /// ` on Monday to Friday`, ` on day 1 of each month`.
    fn on_days(&self) -> Option<String> {
        let [_, _, day, month, weekday] = &self.spelling;
        let months = match &**month {
            "*" => None,
            _ => Some(named(self.months, &MONTHS)),
        };
        let of = months.as_deref().unwrap_or("each month");
        let each_day = || match (&months, self.times()?.starts_with("at")) {
            (Some(months), true) => Some(format!(" each day in {months}")),
            (Some(months), false) => Some(format!(" in {months}")),
            (None, true) => Some(" each day".into()),
            (None, false) => Some(String::new()),
        };
        match (&**day, &**weekday) {
            ("*", "*") => each_day(),
            (_, "*") => Some(format!(" on {} of {of}", self.days.words()?)),
            ("*", _) => {
                let weekdays = self.weekdays.words()?;
                match (&months, self.weekdays.plain) {
                    (None, 1..) => Some(format!(" on {weekdays}")),
                    (Some(months), 1..) => Some(format!(" on {weekdays} in {months}")),
                    (_, 0) => Some(format!(" on {weekdays} of {of}")),
                }
            }
            _ if self.both => None,
            _ if months.is_some() => None,
            _ => {
                let (days, weekdays) = (self.days.words()?, self.weekdays.words()?);
                let month = if self.weekdays.plain == 0 {
                    " of each month"
                } else {
                    ""
                };
                Some(format!(
                    " on {days} of each month, and on {weekdays}{month}"
                ))
            }
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
    /// `day 1`, `the last day`.
    fn words(&self) -> Option<String> {
        let Self {
            plain,
            last,
            last_working,
            nearest,
        } = self;
        match (plain, last, last_working, nearest.count_ones()) {
            (0, true, false, 0) => Some("the last day".into()),
            (0, false, true, 0) => Some("the last day from Monday to Friday".into()),
            (0, false, false, 1) => Some(format!(
                "the day from Monday to Friday that is nearest to day {}",
                nearest.trailing_zeros()
            )),
            (days, last, false, 0) => {
                let words = match (days.count_ones(), run(*days)) {
                    (1, _) => format!("day {}", days.trailing_zeros()),
                    (_, Some(run)) if run.end() - run.start() > 1 => {
                        format!("days {} to {}", run.start(), run.end())
                    }
                    (2..=6, _) => {
                        format!("days {}", listed(bits(*days).map(|day| day.to_string())))
                    }
                    _ => return None,
                };
                Some(if *last {
                    format!("{words} and the last day")
                } else {
                    words
                })
            }
            _ => None,
        }
    }

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
    /// `Monday to Friday`; `the second Friday`.
    fn words(&self) -> Option<String> {
        const NUMBERS: [&str; 6] = ["", "first", "second", "third", "fourth", "fifth"];
        let numbered: Vec<(usize, u64)> = (self.numbered.iter().copied().enumerate())
            .filter(|(_, days)| *days != 0)
            .collect();
        let weekday = |days| named(days, &WEEKDAYS);
        match (self.plain, &*numbered, self.last) {
            (days, [], 0) => Some(weekday(days)),
            (0, [(number, days)], 0) if days.count_ones() == 1 => {
                Some(format!("the {} {}", NUMBERS[*number], weekday(*days)))
            }
            (0, [], days) if days.count_ones() == 1 => Some(format!("the last {}", weekday(days))),
            _ => None,
        }
    }

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

/// What one field, or one item of its list, comes to.
#[derive(Default)]
struct Read {
    plain: u64,
    days: Days,
    weekdays: Weekdays,
    spelling: String,
    /// The values that the spelling names.
    spelled: u64,
    exact: bool,
}

impl Read {
    fn field(at: usize, text: &str) -> Result<Self, String> {
        let mut whole = Self {
            exact: true,
            ..Self::default()
        };
        for item in text.split(',') {
            let item = Self::item(at, item, item == text)?;
            whole.plain |= item.plain;
            whole.days.last |= item.days.last;
            whole.days.last_working |= item.days.last_working;
            whole.days.nearest |= item.days.nearest;
            whole.weekdays.last |= item.weekdays.last;
            for (all, one) in (whole.weekdays.numbered.iter_mut()).zip(item.weekdays.numbered) {
                *all |= one;
            }
            whole.exact &= item.exact;
            whole.spelled |= item.spelled;
            if !whole.spelling.is_empty() {
                whole.spelling.push(',');
            }
            whole.spelling.push_str(&item.spelling);
        }
        // Ranges that wrap around may have been written out many times over.
        if whole.spelling.len() > LONGEST {
            let first = whole.spelling.split(',').next().unwrap_or_default();
            whole.spelling = match first.starts_with('*') {
                true => format!("{first},{}", list(bits(whole.spelled))),
                false => list(bits(whole.spelled)),
            };
        }
        Ok(whole)
    }

    /// One item of a list; `alone` where it is all of the list.
    fn item(at: usize, text: &str, alone: bool) -> Result<Self, String> {
        let field = &FIELDS[at];
        let upper = text.to_ascii_uppercase();
        let (low, high) = field.values.clone().into_inner();
        if text == "?" {
            return match alone && (at == DAY || at == WEEKDAY) {
                true => Ok(Self::of(low..=high, "*".into())),
                false => Err("`?` stands alone, as the day of the month or the weekday".into()),
            };
        }
        if let Some(special) = match at {
            DAY => Self::day(&upper)?,
            WEEKDAY => Self::weekday(&upper)?,
            _ => None,
        } {
            return Ok(special);
        }
        if matches!(upper.split(['(', '/']).next(), Some("H" | "R")) {
            return Err(format!(
                "`{text}` leaves the {} to chance; name one from {low} to {high}",
                field.name
            ));
        }
        let (range, step) = match upper.split_once('/') {
            Some((range, step)) => (range, Some(field.step(step, range)?)),
            None => (&*upper, None),
        };
        let by = step.unwrap_or(1) as usize;
        if range == "*" {
            return Ok(Self::of((low..=high).step_by(by), text.into()));
        }
        let (first, last) = match range.split_once('-') {
            Some((first, "L")) if at == DAY => (field.value(first)?, 31),
            Some((first, last)) => (field.value(first)?, field.value(last)?),
            None if step.is_some() => {
                // `5/15`: from there on.
                let first = sunday(at, field.value(range)?);
                let spelling = format!("{first}-{high}/{by}");
                return Ok(Self::of((first..=high).step_by(by), spelling));
            }
            None => {
                let value = field.value(range)?;
                return Ok(Self::of([sunday(at, value)], text.into()));
            }
        };
        let written = first <= last && last <= high && !range.ends_with('L');
        // Sunday as 7 ends a week, as 0 it begins one.
        let (first, last) = match (first, last) {
            (7, 7) if at == WEEKDAY => (0, 0),
            (0, 7) if at == WEEKDAY => (0, 6),
            (first, last) => (sunday(at, first), sunday(at, last)),
        };
        // The same day twice is that day, as cron has it; croniter takes it for all days.
        let values: Vec<u32> = match first <= last {
            true => (first..=last).step_by(by).collect(),
            false => (first..=high).chain(low..=last).step_by(by).collect(),
        };
        let spelling = match written {
            true => text.into(),
            false => list(values.iter().copied()),
        };
        Ok(Self::of(values, spelling))
    }

    fn of(values: impl IntoIterator<Item = u32>, spelling: String) -> Self {
        let plain = values.into_iter().fold(0, |all, value| all | 1 << value);
        Self {
            plain,
            spelled: plain,
            spelling,
            exact: true,
            ..Self::default()
        }
    }

    /// Days of which no crontab can say more than that they are among `among`.
    fn among(among: RangeInclusive<u32>, days: Days, weekdays: Weekdays) -> Self {
        Self {
            spelling: format!("{}-{}", among.start(), among.end()),
            spelled: among.fold(0, |all, value| all | 1 << value),
            days,
            weekdays,
            ..Self::default()
        }
    }

    /// `L`, `LW`, `15W`.
    fn day(text: &str) -> Result<Option<Self>, String> {
        let days = Days::default();
        let (among, days) = match text {
            "L" => (28..=31, Days { last: true, ..days }),
            "LW" | "WL" => (
                26..=31,
                Days {
                    last_working: true,
                    ..days
                },
            ),
            _ => {
                let Some(day) = text.strip_suffix('W').or(text.strip_prefix('W')) else {
                    return Ok(None);
                };
                let day = FIELDS[DAY].value(day)?;
                // Two days off at most, and the last days are any month's last.
                let among = match day {
                    29.. => 26..=31,
                    _ => day.saturating_sub(2).max(1)..=day + 2,
                };
                let nearest = 1 << day;
                (among, Days { nearest, ..days })
            }
        };
        Ok(Some(Self::among(among, days, Weekdays::default())))
    }

    /// `5#2`, `L5`, `5L`.
    fn weekday(text: &str) -> Result<Option<Self>, String> {
        let field = &FIELDS[WEEKDAY];
        let value = |text| field.value(text).map(|value| sunday(WEEKDAY, value));
        let mut weekdays = Weekdays::default();
        let day = if let Some((day, number)) = text.split_once('#') {
            let day = value(day)?;
            match number.parse::<usize>() {
                Ok(number @ 1..=5) => weekdays.numbered[number] = 1 << day,
                _ => {
                    return Err(format!(
                        "`{text}` names no day: after `#` stands a number from 1 to 5, as in `5#2`, the second Friday"
                    ));
                }
            }
            day
        } else if text == "L" {
            return Err("`L` needs a weekday, as in `L5`, the last Friday of the month".into());
        } else if let Some(day) = text.strip_prefix('L').or(text.strip_suffix('L')) {
            let day = value(day)?;
            weekdays.last = 1 << day;
            day
        } else {
            return Ok(None);
        };
        let read = Self::among(day..=day, Days::default(), weekdays);
        Ok(Some(Self {
            spelling: day.to_string(),
            ..read
        }))
    }
}

impl Field {
    fn value(&self, text: &str) -> Result<u32, String> {
        let (low, high) = self.values.clone().into_inner();
        let named = self.names.iter().position(|name| *name == text);
        if let Some(at) = named {
            return Ok(low + at as u32);
        }
        let high = if self.names.len() == 7 { 7 } else { high };
        let names = match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!(", or `{first}` to `{last}`"),
            _ => String::new(),
        };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(value) if digits && (low..=high).contains(&value) => Ok(value),
            _ => Err(format!(
                "`{text}` is no {}: {low} to {high}{names}",
                self.name
            )),
        }
    }

    fn step(&self, text: &str, range: &str) -> Result<u32, String> {
        let (low, high) = self.values.clone().into_inner();
        let most = high - low + 1;
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(step) if digits && (1..=most).contains(&step) => Ok(step),
            Ok(step) if digits && step > most && range == "*" && low == 0 && most > 7 => {
                let unit = if most == 60 { "m" } else { "h" };
                Err(format!(
                    "`*/{step}` begins anew each time the {} is 0; `--every {step}{unit}` does not, and is no cron expression",
                    self.name
                ))
            }
            _ => Err(format!(
                "`{text}` is no step for a {}: 1 to {most}, as in `*/{}`",
                self.name,
                most.min(5)
            )),
        }
    }
}

/// 7 is Sunday, which is 0.
fn sunday(at: usize, value: u32) -> u32 {
    match at {
        WEEKDAY => value % 7,
        _ => value,
    }
}

fn list(values: impl Iterator<Item = u32>) -> String {
    let values: Vec<String> = values.map(|value| value.to_string()).collect();
    values.join(",")
}

const MONTHS: [&str; 13] = [
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// The bits by their names: `Monday to Friday`, `January and July`.
fn named(all: u64, names: &[&str]) -> String {
    match run(all) {
        Some(run) if run.end() - run.start() > 1 => format!(
            "{} to {}",
            names[*run.start() as usize],
            names[*run.end() as usize]
        ),
        _ => listed(bits(all).map(|bit| names[bit as usize].to_owned())),
    }
}

/// From the first bit to the last, where all between are there.
fn run(all: u64) -> Option<RangeInclusive<u32>> {
    let (first, last) = (all.trailing_zeros(), 63 - all.leading_zeros());
    (all.count_ones() == last - first + 1).then_some(first..=last)
}

/// `a, b and c`
fn listed(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    match words.pop() {
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} and {last}", words.join(", ")),
        None => String::new(),
    }
}

/// What a word stands for.
fn alias(text: &str) -> Result<&'static str, String> {
    let known = ALIASES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    if let Some((_, meant)) = known {
        return Ok(meant);
    }
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    Err(match &*word.to_ascii_lowercase() {
        "@reboot" => {
            "`@reboot` is no time: a job runs by the clock; what is to run when the machine starts is a line of your own crontab".into()
        }
        "@every" => format!(
            "`{text}` is no cron expression: `--every {}` says it",
            text[word.len()..].trim()
        ),
        _ => {
            let names: Vec<&str> = ALIASES.iter().map(|(name, _)| *name).collect();
            format!("`{text}` is unknown: {}", names.join(", "))
        }
    })
}

/// What to say of any number of fields but five.
fn wrong_number(text: &str, fields: &[&str]) -> String {
    let count = match fields.len() {
        1 => "one field",
        2 => "two fields",
        3 => "three fields",
        4 => "four fields",
        6 => "six fields",
        7 => "seven fields",
        _ => "too many fields",
    };
    if fields.len() < 5 {
        return format!("`{text}` has {count}; cron has five: {FORM}");
    }
    // Some programs have seconds first, others last; a year is last.
    let middle = &fields[1..fields.len().min(6)];
    let order = match fields {
        [_, _, _, _, _, "0" | "00"] if !matches!(fields[0], "0" | "00") => [&fields[..5], middle],
        _ => [middle, &fields[..5]],
    };
    let without = order
        .iter()
        .filter(|fields| fields.len() == 5)
        .map(|fields| fields.join(" "))
        .find(|text| Expression::parse(text).is_ok());
    let years = if fields.len() == 7 {
        " and no years"
    } else {
        ""
    };
    format!(
        "`{text}` has {count}; cron has five, and no seconds{years}: `{}`",
        without.as_deref().unwrap_or("0 8 * * 1-5")
    )
}

#[cfg(test)]
mod tests {
    use super::Expression;
    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    #[test]
    fn what_cron_is_told() {
        let check = |text: &str, expect: &str| {
            let read = Expression::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read.spelling().join(" "), expect, "{text}");
            assert_eq!(read.text(), text.trim());
        };
        // As it was written, wherever cron takes that.
        check("*/15 9-17 * jan,JUL Mon-fri", "*/15 9-17 * jan,JUL Mon-fri");
        check(" 05  8\t1,15 */3 7 ", "05 8 1,15 */3 7");
        check("1-59/2 * * * *", "1-59/2 * * * *");
        check("@daily", "0 0 * * *");
        check("@Weekly", "0 0 * * 0");
        // Ranges that wrap around, Sunday at a week's end, starts without an end.
        check("0 22-2 * * *", "0 22,23,0,1,2 * * *");
        check("0 22-3/2 * * *", "0 22,0,2 * * *");
        check("0 0 * 11-2 FRI-MON", "0 0 * 11,12,1,2 5,6,0,1");
        check("0 0 * * 5-7", "0 0 * * 5,6,0");
        check("0 0 * * 0-7", "0 0 * * 0,1,2,3,4,5,6");
        check("0 0 * * 1-7/2", "0 0 * * 1,3,5,0");
        check("5/15 3/7 20/5 * 4/2", "5-59/15 3-23/7 20-31/5 * 4-6/2");
        check("0 0 ? * ?", "0 0 * * *");
        // Days that cron cannot name, as those that they may be.
        check("0 0 L * *", "0 0 28-31 * *");
        check("0 0 1,L * *", "0 0 1,28-31 * *");
        check("0 0 */9,L * 1", "0 0 */9,28-31 * 1");
        check("0 0 LW * *", "0 0 26-31 * *");
        check("0 0 15W * *", "0 0 13-17 * *");
        check("0 0 1w * *", "0 0 1-3 * *");
        check("0 0 w30 * *", "0 0 26-31 * *");
        check("0 0 * * 5#2,L1,fri#4,0L", "0 0 * * 5,1,5,0");
    }

    #[test]
    fn mistakes_show_the_right_form() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Expression::parse(text).unwrap_err(), expect, "{text}");
        };
        check(
            "0 0 8 * * 1-5",
            "`0 0 8 * * 1-5` has six fields; cron has five, and no seconds: `0 8 * * 1-5`",
        );
        check(
            "30 8 * * 1-5 0",
            "`30 8 * * 1-5 0` has six fields; cron has five, and no seconds: `30 8 * * 1-5`",
        );
        check(
            "0 0 8 * * ? 2030",
            "`0 0 8 * * ? 2030` has seven fields; cron has five, and no seconds and no years: `0 8 * * ?`",
        );
        check(
            "0 8 * *",
            "`0 8 * *` has four fields; cron has five: minute, hour, day of the month, month and weekday, as in `0 8 * * 1-5`",
        );
        check(
            "",
            "a cron expression has five fields: minute, hour, day of the month, month and weekday, as in `0 8 * * 1-5`",
        );
        check("60 * * * *", "`60 * * * *`: `60` is no minute: 0 to 59");
        check("0 24 * * *", "`0 24 * * *`: `24` is no hour: 0 to 23");
        check(
            "0 0 0 * *",
            "`0 0 0 * *`: `0` is no day of the month: 1 to 31",
        );
        check(
            "0 0 * 13 *",
            "`0 0 * 13 *`: `13` is no month: 1 to 12, or `JAN` to `DEC`",
        );
        check(
            "0 0 * * 8",
            "`0 0 * * 8`: `8` is no weekday: 0 to 7, or `SUN` to `SAT`",
        );
        check(
            "0 0 * * monday",
            "`0 0 * * monday`: `MONDAY` is no weekday: 0 to 7, or `SUN` to `SAT`",
        );
        check("+1 * * * *", "`+1 * * * *`: `+1` is no minute: 0 to 59");
        check("1,,2 * * * *", "`1,,2 * * * *`: `` is no minute: 0 to 59");
        check(
            "*/0 * * * *",
            "`*/0 * * * *`: `0` is no step for a minute: 1 to 60, as in `*/5`",
        );
        check(
            "*/90 * * * *",
            "`*/90 * * * *`: `*/90` begins anew each time the minute is 0; `--every 90m` does not, and is no cron expression",
        );
        check(
            "0 0 31 2 *",
            "`0 0 31 2 *` never comes: no month it names has such a day",
        );
        check(
            "0 0 30,31 2 */2",
            "`0 0 30,31 2 */2` never comes: no month it names has such a day",
        );
        check(
            "R * * * *",
            "`R * * * *`: `R` leaves the minute to chance; name one from 0 to 59",
        );
        check(
            "0 H(1-3) * * *",
            "`0 H(1-3) * * *`: `H(1-3)` leaves the hour to chance; name one from 0 to 23",
        );
        check(
            "? * * * *",
            "`? * * * *`: `?` stands alone, as the day of the month or the weekday",
        );
        check(
            "0 0 * * L",
            "`0 0 * * L`: `L` needs a weekday, as in `L5`, the last Friday of the month",
        );
        check(
            "0 0 * * 5#6",
            "`0 0 * * 5#6`: `5#6` names no day: after `#` stands a number from 1 to 5, as in `5#2`, the second Friday",
        );
        check(
            "@reboot",
            "`@reboot` is no time: a job runs by the clock; what is to run when the machine starts is a line of your own crontab",
        );
        check(
            "@every 90m",
            "`@every 90m` is no cron expression: `--every 90m` says it",
        );
        check(
            "@noon",
            "`@noon` is unknown: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually",
        );
    }

    #[test]
    fn words() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Expression::parse(text).unwrap().words(), expect, "{text}");
        };
        check("0 8 * * 1-5", "at 08:00 on Monday to Friday");
        check("*/15 * * * *", "every 15 minutes");
        check("* * * * *", "every minute");
        check("30 2 1 * *", "at 02:30 on day 1 of each month");
        check("@hourly", "every hour");
        check("@daily", "at 00:00 each day");
        check("@weekly", "at 00:00 on Sunday");
        check("@yearly", "at 00:00 on day 1 of January");
        check("5 * * * *", "every hour at minute 5");
        check(
            "5,35 * * * 6,0",
            "every hour at minutes 5 and 35 on Sunday and Saturday",
        );
        check(
            "0,30 8,17 * * *",
            "at 08:00, 08:30, 17:00 and 17:30 each day",
        );
        check("15 */2 * * *", "every 2 hours from 00:15 on");
        check(
            "*/10 9-17 * * MON-FRI",
            "every 10 minutes from 09:00 to 17:50 on Monday to Friday",
        );
        check("0 9-17 * 1 *", "every hour from 09:00 to 17:00 in January");
        check(
            "0 0 1,15 6-8 *",
            "at 00:00 on days 1 and 15 of June to August",
        );
        check("0 0 L * *", "at 00:00 on the last day of each month");
        check(
            "0 0 LW * *",
            "at 00:00 on the last day from Monday to Friday of each month",
        );
        check(
            "0 0 15W * *",
            "at 00:00 on the day from Monday to Friday that is nearest to day 15 of each month",
        );
        check("0 9 * * 5#2", "at 09:00 on the second Friday of each month");
        check("0 9 * 3 L5", "at 09:00 on the last Friday of March");
        check(
            "0 9 13 * 5",
            "at 09:00 on day 13 of each month, and on Friday",
        );
        check("0 9 24 12 *", "at 09:00 on day 24 of December");
        // As cron says it, where words would be wrong or long.
        check("7-52/9 * * * *", "7-52/9 * * * *");
        check("*/7 * * * *", "*/7 * * * *");
        check("0 9 */2 * 1", "0 9 */2 * 1");
        check("0 1,4,9,16,22 * * *", "0 1,4,9,16,22 * * *");
        check("0 9 13 2 5", "0 9 13 2 5");
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
