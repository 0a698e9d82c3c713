//! The time fields of a job's crontab lines, which precede the command.
//!
//! A run started by cron checks whether it is due, so a line may match more minutes than the job has slots, but never
//! fewer. Only syntax that every cron understands is used: numbers, names, lists, ranges, steps and `*`. Cron matches
//! hours that begin with `*` against the clock as it is, so it fires twice in a repeated hour and not at all in a
//! skipped one. For other hours it compensates for clock changes. The `*` of a line is therefore part of its meaning.

use super::expression::{Expression, has_bit, set_bits};
use super::schedule::{CatchUpPolicy, Schedule, ceil_minute, floor_minute};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// Minutes of the hour at which clocks change in any zone, as seen from any other: offsets are whole quarters of an
/// hour.
const QUARTER_HOUR_MINUTES: u64 = 1 | 1 << 15 | 1 << 30 | 1 << 45;
const ALL_MINUTES: u64 = (1 << 60) - 1;
/// Number of clock changes to examine: twenty years of daylight saving time.
pub(crate) const MAX_CLOCK_CHANGES: usize = 40;

/// Returns the five time fields of each line for a job created at `created`. `zone` is the schedule's zone, `system`
/// that of cron.
///
/// | schedule | line |
/// |---|---|
/// | expression, same zone | as written; days that cron cannot express (`L`, `15W`, `5#2`) as a range that has them |
/// | expression, other zone | every hour, at its minutes and those 15, 30 and 45 later |
/// | every | every hour, at the minutes that it can fall on |
/// | at | its date, each year |
/// | after | none |
///
/// A job that is caught up is also checked every ten minutes, on the same line if that covers every hour anyway.
pub fn crontab_fields(
    schedule: &Schedule,
    catch_up: CatchUpPolicy,
    created: Timestamp,
    zone: &TimeZone,
    system: &TimeZone,
) -> Vec<String> {
    let (mut hourly, line) = match schedule {
        Schedule::Cron { expression, .. } if is_same_clock(zone, system, created) => {
            (0, Some(expression.as_plain_cron().join(" ")))
        }
        Schedule::Cron { expression, .. } => {
            (minutes_in_other_zone(expression, created, zone), None)
        }
        Schedule::Every(period) => {
            (period_minutes(period.as_secs(), period.subsec_nanos(), created, system), None)
        }
        Schedule::At(time) => (0, date_fields(*time, system)),
        Schedule::After(_) => (0, None),
    };
    if catch_up == CatchUpPolicy::Once {
        let own_minutes = match schedule {
            Schedule::Cron { expression, .. } => expression.minutes(),
            Schedule::At(time) => {
                ceil_minute(*time).map_or(0, |time| 1 << minute_of_hour(time, system))
            }
            Schedule::Every(_) | Schedule::After(_) => 0,
        };
        let is_hourly = line.as_ref().is_some_and(|line| line.ends_with(" * * * *"));
        if !(is_hourly && is_every_ten_minutes(own_minutes)) {
            hourly = add_catch_up_checks(hourly, own_minutes, created);
        }
    }
    let hourly = (hourly != 0).then(|| match hourly {
        ALL_MINUTES => "* * * * *".to_owned(),
        _ => {
            let minutes: Vec<String> = set_bits(hourly).map(|minute| minute.to_string()).collect();
            format!("{} * * * *", minutes.join(","))
        }
    });
    line.into_iter().chain(hourly).collect()
}

/// True if two zones show the same time from `start` on, whatever their names are.
pub fn is_same_clock(left: &TimeZone, right: &TimeZone, start: Timestamp) -> bool {
    let changes = |zone: &TimeZone| -> Vec<(Timestamp, Offset)> {
        let following = zone.following(start).take(MAX_CLOCK_CHANGES);
        following.map(|change| (change.timestamp(), change.offset())).collect()
    };
    left == right
        || (left.to_offset(start) == right.to_offset(start) && changes(left) == changes(right))
}

/// Returns the time fields of the line that starts a retry at `time`; `None` if one of `lines` starts one in that minute.
pub fn retry_fields(lines: &[String], time: Timestamp, system: &TimeZone) -> Option<String> {
    let minute = ceil_minute(time)?;
    let mut expressions = lines.iter().filter_map(|line| Expression::parse(line).ok());
    let is_covered =
        expressions.any(|expression| expression.latest(minute, system) == Some(minute));
    (!is_covered).then(|| date_fields(time, system))?
}

/// Returns the minutes of an expression in another time zone. Offsets differ by whole quarters of an hour, and the
/// slot of a skipped time is the end of the gap, which lies on a quarter.
fn minutes_in_other_zone(expression: &Expression, created: Timestamp, zone: &TimeZone) -> u64 {
    let has_gap_slots = expression.is_time_of_day() && zone.following(created).next().is_some();
    let shifted = set_bits(expression.minutes())
        .flat_map(|minute| [0, 15, 30, 45].map(|shift| (minute + shift) % 60))
        .fold(0, |all, minute| all | 1 << minute);
    if has_gap_slots { shifted | QUARTER_HOUR_MINUTES } else { shifted }
}

/// Returns the minutes of the hour that a period can fall on, in steps of the greatest common divisor of the period
/// and an hour. Half an hour is included in the divisor if the clock changes by half an hour.
fn period_minutes(seconds: u64, nanos: u32, created: Timestamp, system: &TimeZone) -> u64 {
    if nanos != 0 || !seconds.is_multiple_of(60) {
        return ALL_MINUTES;
    }
    let start = floor_minute(created);
    let first = minute_of_hour(start, system);
    let mut step = gcd(60, seconds / 60);
    for change in system.following(start).take(MAX_CLOCK_CHANGES) {
        let shift = change.offset().duration_since(system.to_offset(start));
        step = gcd(step, shift.as_mins().unsigned_abs());
    }
    (0..60 / step).fold(0, |all, number| all | 1 << ((u64::from(first) + number * step) % 60))
}

/// Returns the date and time of an instant. If the clock shows that time twice, the hour is `*` and cron fires both
/// times.
fn date_fields(time: Timestamp, system: &TimeZone) -> Option<String> {
    let time = ceil_minute(time)?;
    let local = system.to_datetime(time);
    let hour = match system.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Fold { .. } => "*".to_owned(),
        _ => local.hour().to_string(),
    };
    Some(format!("{} {hour} {} {} *", local.minute(), local.day(), local.month()))
}

/// Adds a check every ten minutes to the minutes of every hour. Its offset depends on the job's creation time, so
/// that jobs do not all start at once, and avoids `own_minutes`, those of another line of the job.
fn add_catch_up_checks(hourly: u64, own_minutes: u64, created: Timestamp) -> u64 {
    if is_every_ten_minutes(hourly) {
        return hourly;
    }
    let checks = |first: u32| (0..6).fold(0_u64, |all, number| all | 1 << (first + 10 * number));
    let creation_minute = floor_minute(created).as_second().div_euclid(60).rem_euclid(10) as u32;
    let first_minutes = || (0..10).map(|number| (creation_minute + number) % 10);
    // Checks that share a minute with the line cost fewer starts.
    let shared = first_minutes().find(|first| checks(*first) & hourly != 0);
    let distinct = first_minutes().find(|first| checks(*first) & own_minutes == 0);
    hourly | checks(shared.or(distinct).unwrap_or(creation_minute))
}

/// True if no ten minutes pass without a match.
fn is_every_ten_minutes(hourly: u64) -> bool {
    (0..60).all(|first| (first..first + 10).any(|minute| has_bit(hourly, minute % 60)))
}

fn minute_of_hour(time: Timestamp, zone: &TimeZone) -> u32 {
    zone.to_datetime(time).minute() as u32
}

/// The greatest common divisor.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::{crontab_fields, retry_fields};
    use crate::expression::Expression;
    use crate::schedule::{CatchUpPolicy, Schedule};
    use jiff::civil::DateTime;
    use jiff::tz::{AmbiguousOffset, TimeZone};
    use jiff::{Timestamp, ToSpan};
    use std::time::Duration;

    const CREATED: &str = "2026-01-01T00:03:20Z";
    const ZONES: [&str; 8] = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Pacific/Chatham",
        "Africa/Casablanca",
        "UTC",
    ];

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    fn cron(text: &str) -> Schedule {
        Schedule::Cron { expression: Expression::parse(text).unwrap(), zone: None }
    }

    fn every(minutes: u64) -> Schedule {
        Schedule::Every(Duration::from_secs(60 * minutes))
    }

    fn check(schedule: &Schedule, catch_up: CatchUpPolicy, zones: [&str; 2], expect: &[&str]) {
        let [of, system] = zones.map(zone);
        let fields = crontab_fields(schedule, catch_up, CREATED.parse().unwrap(), &of, &system);
        assert_eq!(fields, expect, "{schedule:?}");
    }

    #[test]
    fn expressions_in_cron_syntax_are_unchanged() {
        let here = ["Europe/Berlin"; 2];
        let check =
            |text: &str, expect: &[&str]| check(&cron(text), CatchUpPolicy::None, here, expect);
        check("*/15 9-17 * * MON-FRI", &["*/15 9-17 * * MON-FRI"]);
        check("@daily", &["0 0 * * *"]);
        check("0 9 L * ?", &["0 9 28-31 * *"]);
    }

    #[test]
    fn retries() {
        let check = |lines: &[&str], time: &str, expect: Option<&str>| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let fields = retry_fields(&lines, time.parse().unwrap(), &zone("Europe/Berlin"));
            assert_eq!(fields.as_deref(), expect, "{lines:?} {time}");
        };
        check(&["0 8 * * *"], "2026-07-01T06:10:30Z", Some("11 8 1 7 *"));
        check(&["0 8 * * *"], "2026-07-01T05:59:30Z", None);
        check(&["0 8 * * 1", "4,14 * * * *"], "2026-07-01T06:14:00Z", None);
        check(&["* * * * *"], "2026-07-01T06:10:30Z", None);
        // Shown twice, so that cron starts it in either hour.
        check(&[], "2026-10-25T00:30:00Z", Some("30 * 25 10 *"));
    }

    #[test]
    fn other_zones() {
        let check = |text: &str, zones: [&str; 2], expect: &str| {
            check(&cron(text), CatchUpPolicy::None, zones, &[expect]);
        };
        check("5 9 * * 1-5", ["Asia/Kolkata", "UTC"], "5,20,35,50 * * * *");
        // A skipped time runs at the end of the gap.
        check("5 9 * * 1-5", ["Europe/Berlin", "UTC"], "0,5,15,20,30,35,45,50 * * * *");
        check("5 * * * *", ["Europe/Berlin", "UTC"], "5,20,35,50 * * * *");
        check("* * * * *", ["Europe/Berlin", "UTC"], "* * * * *");
    }

    #[test]
    fn periods() {
        let check = |minutes, zone: &str, expect: &str| {
            check(&every(minutes), CatchUpPolicy::None, [zone; 2], &[expect]);
        };
        check(90, "UTC", "3,33 * * * *");
        check(60, "Europe/Berlin", "3 * * * *");
        check(1440, "Asia/Kolkata", "33 * * * *");
        check(7, "UTC", "* * * * *");
        check(45, "UTC", "3,18,33,48 * * * *");
        // A clock that changes by half an hour.
        check(60, "Australia/Lord_Howe", "3,33 * * * *");
        super::tests::check(
            &Schedule::Every(Duration::from_secs(90)),
            CatchUpPolicy::None,
            ["UTC"; 2],
            &["* * * * *"],
        );
    }

    #[test]
    fn a_single_time() {
        let check = |time: &str, zone: &str, expect: &[&str]| {
            let schedule = Schedule::At(time.parse().unwrap());
            check(&schedule, CatchUpPolicy::Once, [zone; 2], expect);
        };
        let checks = "3,13,23,33,43,53 * * * *";
        check("2026-12-24T17:00:00Z", "Europe/Berlin", &["0 18 24 12 *", checks]);
        check("2026-12-24T16:59:30Z", "Europe/Berlin", &["0 18 24 12 *", checks]);
        // Not at a minute at which the job's own line fires.
        check("2026-12-24T17:43:00Z", "UTC", &["43 17 24 12 *", "4,14,24,34,44,54 * * * *"]);
        // The second 02:30.
        check("2026-10-25T01:30:00Z", "Europe/Berlin", &["30 * 25 10 *", checks]);
    }

    #[test]
    fn catch_up_checks() {
        let check = |schedule: Schedule, zones: [&str; 2], expect: &[&str]| {
            check(&schedule, CatchUpPolicy::Once, zones, expect);
        };
        let here = ["UTC"; 2];
        check(cron("0 8 * * *"), here, &["0 8 * * *", "3,13,23,33,43,53 * * * *"]);
        check(cron("*/10 8 * * *"), here, &["*/10 8 * * *", "3,13,23,33,43,53 * * * *"]);
        // A line that fires this often needs no extra check.
        check(cron("*/5 * * * *"), here, &["*/5 * * * *"]);
        check(cron("*/15 * * * *"), here, &["*/15 * * * *", "3,13,23,33,43,53 * * * *"]);
        check(every(5), here, &["3,8,13,18,23,28,33,38,43,48,53,58 * * * *"]);
        // One line, if both apply to every hour.
        check(every(60), here, &["3,13,23,33,43,53 * * * *"]);
        check(cron("5 9 * * *"), ["Asia/Kolkata", "UTC"], &["5,15,20,25,35,45,50,55 * * * *"]);
    }

    /// True if Debian's cron starts a line at `time`; an independent implementation of its manual.
    fn cron_fires(line: &str, time: Timestamp, zone: &TimeZone) -> bool {
        let fields: Vec<&str> = line.split(' ').collect();
        let shown = zone.to_datetime(time);
        if fields[0].starts_with('*') || fields[1].starts_with('*') {
            return field_matches(&fields, shown);
        }
        if let AmbiguousOffset::Fold { after, .. } = zone.to_ambiguous_timestamp(shown).offset() {
            return zone.to_offset(time) != after && field_matches(&fields, shown);
        }
        // Includes times of day that the clock has just skipped.
        let mut skipped = shown;
        loop {
            if field_matches(&fields, skipped) {
                return true;
            }
            skipped = skipped.checked_sub(1.minute()).unwrap();
            let offset = zone.to_ambiguous_timestamp(skipped).offset();
            if !matches!(offset, AmbiguousOffset::Gap { .. }) {
                return false;
            }
        }
    }

    fn field_matches(fields: &[&str], time: DateTime) -> bool {
        let has = |at: usize, value: i8, low: u32, high: u32| {
            fields[at].split(',').any(|item| {
                let (range, step) = item.split_once('/').unwrap_or((item, "1"));
                let (first, last) = match range.split_once('-') {
                    _ if range == "*" => (low, high),
                    None => (parse_value(range), parse_value(range)),
                    Some((first, last)) => (parse_value(first), parse_value(last)),
                };
                assert!(low <= first && first <= last && last <= high, "{item}");
                assert!(step == "1" || range.contains(['*', '-']), "{item}");
                let value = value as u32;
                (first..=last).contains(&value) && (value - first).is_multiple_of(parse_value(step))
            })
        };
        let day = has(2, time.day(), 1, 31);
        let sunday = time.weekday().to_sunday_zero_offset();
        let weekday = has(4, sunday, 0, 7) || (sunday == 0 && has(4, 7, 0, 7));
        has(0, time.minute(), 0, 59)
            && has(1, time.hour(), 0, 23)
            && has(3, time.month(), 1, 12)
            && if fields[2].starts_with('*') || fields[4].starts_with('*') {
                day && weekday
            } else {
                day || weekday
            }
    }

    fn parse_value(text: &str) -> u32 {
        let names = [
            "sun", "mon", "tue", "wed", "thu", "fri", "sat", "", "jan", "feb", "mar", "apr", "may",
            "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ];
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        match named {
            Some(at) if at > 7 => at as u32 - 7,
            Some(at) => at as u32,
            None => text.parse().unwrap_or_else(|_| panic!("{text}")),
        }
    }

    /// Any expression is parsed or rejected; its slots are the same forwards and backwards; and cron fires at each.
    #[test]
    fn fuzz_lines_cover_every_slot() {
        let seeds: &[&[u8]] = &[
            b"*/15 9-17 * * MON-FRI",
            b"0 8 * * 1-5",
            b"10,30,50 2,3 */2 3,4,10,11 *",
            b"30 2 29 2 *",
            b"0 22-2/2 L,15 jan-MAR,10 5-7",
            b"5/20 1/3 LW * FRI-MON",
            b"* 1-3 15W * 5#2,L1",
            b"59 23 31 * 0",
            b"@hourly",
            b"*,7 * 1-31/9 11-2 ?",
        ];
        let zones = ZONES.map(zone);
        nanobot_base::fuzz::check(seeds, |input, random| {
            let mut text = nanobot_base::fuzz::lossy_text(input);
            if random.below(2) == 0 {
                // Few random changes give a valid expression.
                let item = |random: &mut nanobot_base::fuzz::Random, low: usize, high: usize| {
                    let value = |random: &mut nanobot_base::fuzz::Random| {
                        low + random.below(high - low + 1)
                    };
                    match random.below(6) {
                        0 | 1 => "*".to_owned(),
                        2 => format!("*/{}", 1 + random.below(high - low)),
                        3 => value(random).to_string(),
                        4 => format!("{}-{}", value(random), value(random)),
                        _ => format!(
                            "{}-{}/{},{}",
                            value(random),
                            value(random),
                            1 + random.below(7),
                            value(random)
                        ),
                    }
                };
                text = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
                    .map(|(low, high)| item(random, low, high))
                    .join(" ");
            }
            let Ok(expression) = Expression::parse(&text) else {
                return;
            };
            assert!(!expression.describe().is_empty());
            let spelling = expression.as_plain_cron().join(" ");
            assert!(spelling.len() <= 400, "{text} {spelling}");

            let [of, system] = [(); 2].map(|()| &zones[random.below(ZONES.len())]);
            let of = if random.below(2) == 0 { of } else { system };
            // Near a clock change, or at any time.
            let mut time =
                Timestamp::from_second(1_700_000_000 + random.below(150_000_000) as i64).unwrap();
            if random.below(2) == 0
                && let Some(change) = of.following(time).next()
            {
                time = change.timestamp() - 3.hours();
            }
            let created: Timestamp = CREATED.parse().unwrap();
            let schedules = [
                Schedule::Cron { expression, zone: None },
                every(1 + random.below(3000) as u64),
                Schedule::At(time),
            ];
            for schedule in schedules {
                let lines = crontab_fields(&schedule, CatchUpPolicy::None, created, of, system);
                let checked = crontab_fields(&schedule, CatchUpPolicy::Once, created, of, system);
                let mut slot = time - 1.second();
                for _ in 0..4 {
                    let Some(next) = schedule.next(slot, created, of) else {
                        break;
                    };
                    assert!(next > slot && next.as_second() % 60 == 0);
                    assert_eq!(schedule.latest(next, created, of), Some(next), "{text}");
                    let before = schedule.latest(next - 1.second(), created, of);
                    assert!(before.is_none_or(|before| before <= slot), "{text}");
                    let zones = (of.iana_name(), system.iana_name());
                    for lines in [&lines, &checked] {
                        let starts = lines.iter().any(|line| cron_fires(line, next, system));
                        assert!(starts, "{text} {schedule:?} in {zones:?} at {next}: {lines:?}");
                    }
                    slot = next;
                }
            }
        });
    }
}
