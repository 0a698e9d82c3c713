//! The times of a job in a crontab: what stands before the command.
//!
//! A run that cron starts looks for itself whether it is due, so a line may name more minutes than the job has slots, but
//! never fewer. Only what every cron understands is used: numbers, names, lists, ranges, steps and `*`. A cron looks at
//! hours that begin with `*` as they come, and so fires in a repeated hour twice and in a skipped one not at all; with other
//! hours it makes up for what the clock does. So the `*` of a line is part of its meaning.

use super::expression::{Expression, bits, has};
use super::schedule::{CatchUp, Schedule, floor, minute_of};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// Minutes of the hour at which the clock of every zone is changed, wherever it is looked at from: offsets are whole
/// quarters of an hour.
const QUARTERS: u64 = 1 | 1 << 15 | 1 << 30 | 1 << 45;
const ALL: u64 = (1 << 60) - 1;
/// How many changes of the clock are looked at: twenty years of summer times.
const CHANGES: usize = 40;

/// The five fields of each line that stands for a job, which was made at `created`. `zone` is the schedule's, `system` is
/// cron's.
///
/// | schedule | line |
/// |---|---|
/// | expression, same zone | as it was written; days that cron cannot name (`L`, `15W`, `5#2`) by those that they may be |
/// | expression, other zone | every hour, at its minutes and those a quarter, half and three quarters later |
/// | every | every hour, at the minutes that it can fall on |
/// | at | its date, each year |
///
/// What is caught up is looked for every ten minutes too: on the same line where that is for every hour anyway.
pub fn fields(
    schedule: &Schedule,
    catch_up: CatchUp,
    created: Timestamp,
    zone: &TimeZone,
    system: &TimeZone,
) -> Vec<String> {
    let (mut hourly, line) = match schedule {
        Schedule::Cron { expression, .. } if zone == system => {
            (0, Some(expression.spelling().join(" ")))
        }
        Schedule::Cron { expression, .. } => (elsewhere(expression, created, zone), None),
        Schedule::Every(period) => (
            every(period.as_secs(), period.subsec_nanos(), created, system),
            None,
        ),
        Schedule::At(time) => (0, at(*time, system)),
    };
    if catch_up == CatchUp::Once {
        let own = match schedule {
            Schedule::Cron { expression, .. } => expression.minutes(),
            Schedule::At(time) => minute_of(*time).map_or(0, |time| 1 << minute(time, system)),
            Schedule::Every(_) => 0,
        };
        let own_hourly = line.as_ref().is_some_and(|line| line.ends_with(" * * * *"));
        if !(own_hourly && often(own)) {
            hourly = checked(hourly, own, created);
        }
    }
    let hourly = (hourly != 0).then(|| match hourly {
        ALL => "* * * * *".to_owned(),
        _ => {
            let minutes: Vec<String> = bits(hourly).map(|minute| minute.to_string()).collect();
            format!("{} * * * *", minutes.join(","))
        }
    });
    line.into_iter().chain(hourly).collect()
}

/// The minutes of an expression by another zone's clock. Two clocks differ by whole quarters of an hour, and where a time
/// is skipped, the slot is the end of the gap, which lies on a quarter.
fn elsewhere(expression: &Expression, created: Timestamp, zone: &TimeZone) -> u64 {
    let skips = expression.fixed() && zone.following(created).next().is_some();
    let shifted = bits(expression.minutes())
        .flat_map(|minute| [0, 15, 30, 45].map(|shift| (minute + shift) % 60))
        .fold(0, |all, minute| all | 1 << minute);
    shifted | if skips { QUARTERS } else { 0 }
}

/// The minutes that a period can fall on: it goes through the hour in steps of what it and the hour have in common. A clock
/// that is changed by half an hour has that in common too.
fn every(seconds: u64, nanos: u32, created: Timestamp, system: &TimeZone) -> u64 {
    if nanos != 0 || !seconds.is_multiple_of(60) {
        return ALL;
    }
    let start = floor(created);
    let first = minute(start, system);
    let changed = system
        .following(start)
        .take(CHANGES)
        .map(|change| change.offset())
        .map(|offset| offset.duration_since(system.to_offset(start)).as_mins());
    let step = changed.fold(gcd(60, seconds / 60), |step, minutes| {
        gcd(step, minutes.unsigned_abs())
    });
    (0..60 / step).fold(0, |all, number| {
        all | 1 << ((u64::from(first) + number * step) % 60)
    })
}

/// The date of a moment. Where the clock shows the time twice, the hour is `*`, and cron fires both times.
fn at(time: Timestamp, system: &TimeZone) -> Option<String> {
    let time = minute_of(time)?;
    let shown = system.to_datetime(time);
    let hour = match system.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Fold { .. } => "*".to_owned(),
        _ => shown.hour().to_string(),
    };
    Some(format!(
        "{} {hour} {} {} *",
        shown.minute(),
        shown.day(),
        shown.month()
    ))
}

/// The minutes of every hour with those of a check every ten minutes. Where in the ten, the job's age says, so that jobs do
/// not all start at once; but not where `own` minutes lie, at which another line fires.
fn checked(hourly: u64, own: u64, created: Timestamp) -> u64 {
    let tens = |first: u32| (0..6).fold(0_u64, |all, number| all | 1 << (first + 10 * number));
    if often(hourly) {
        return hourly;
    }
    let age = floor(created).as_second().div_euclid(60).rem_euclid(10) as u32;
    let firsts = || (0..10).map(|number| (age + number) % 10);
    let apart = firsts().find(|first| tens(*first) & own == 0);
    let shared = firsts().find(|first| tens(*first) & hourly != 0);
    hourly | tens(shared.or(apart).unwrap_or(age))
}

/// Whether ten minutes never pass without one of them.
fn often(hourly: u64) -> bool {
    (0..60).all(|first| (first..first + 10).any(|minute| has(hourly, minute % 60)))
}

fn minute(time: Timestamp, zone: &TimeZone) -> u32 {
    zone.to_datetime(time).minute() as u32
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
