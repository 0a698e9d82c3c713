//! Jobs for other schedulers: what is written into their files. Pure.
//!
//! Each of them starts `nanobot cron run ID --scheduled`, as the crontab does. So a run looks for itself whether it is due,
//! and what a scheduler starts too often is silent; it must only never start too seldom.

pub mod crontab;
pub mod kubernetes;
pub mod systemd;
mod yaml;

use super::expression::{Expression, bits, has};
use super::job::{Job, Sink};
use super::schedule::{CatchUp, Schedule, floor, minute_of};
use crate::shell_quote::quoted;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How each file begins: what begins otherwise is somebody else's.
pub const MARK: &str =
    "# Made by `nanobot cron export`: changes here are lost when it is made again.\n";

/// What a run may take beyond its deadline, to end what it started and to write its record.
const SLACK: u64 = 120;
/// How many changes of the clock are looked at: twenty years of summer times.
const CHANGES: usize = 40;
const DAY: i64 = 86_400;

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// What the files of all jobs share. Paths are absolute.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub home: &'a Path,
    /// Where this program keeps what is its own.
    pub root: &'a Path,
    /// It is `NANOBOT_HOME` that says so.
    pub root_is_named: bool,
    pub path: Option<&'a str>,
    pub program: &'a Path,
    pub workspace: &'a Path,
    /// The variables of the keys that runs may need.
    pub keys: &'a [&'a str],
    /// A key is what a command of the user's prints.
    pub asks_command: bool,
    /// The zone of this system, and its name.
    pub system: &'a TimeZone,
    pub system_name: Option<&'a str>,
    pub now: Timestamp,
}

/// A job that has times.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    pub job: &'a Job,
    pub schedule: &'a Schedule,
    /// The zone by whose clock it goes.
    pub zone: &'a TimeZone,
    /// The file of `-c`.
    pub config: Option<&'a Path>,
    /// The directory of `-w`.
    pub workspace: Option<&'a Path>,
}

impl<'a> Planned<'a> {
    /// When it runs, in words.
    fn words(&self) -> String {
        self.schedule.words(self.zone)
    }

    fn catches_up(&self) -> bool {
        self.job.catch_up() == CatchUp::Once
    }

    /// The seconds after which a run is not just late but stuck.
    fn stuck_after(&self) -> Option<u64> {
        let seconds = self.job.deadline();
        (seconds > 0).then(|| seconds.saturating_add(SLACK))
    }

    /// Whether commands of the user's are run, which are outside of any sandbox.
    fn runs_commands(&self) -> bool {
        self.job.terms.as_ref().is_some_and(|terms| {
            terms.when.is_some()
                || terms.on_failure.is_some()
                || matches!(terms.sink, Some(Sink::Command(_)))
        })
    }

    /// The directories that it was given, and whether it may change them: that in which it works is the first, where it is
    /// not the workspace.
    fn places(&self) -> Vec<(PathBuf, bool)> {
        let Some(terms) = &self.job.terms else {
            return Vec::new();
        };
        let paths = |key: &str| -> Vec<PathBuf> {
            let given = terms.grants[key].as_array().into_iter().flatten();
            given
                .filter_map(|path| path.as_str().map(PathBuf::from))
                .filter(|path| path.is_absolute())
                .collect()
        };
        let directory = terms.grants["directory"].as_str().map(PathBuf::from);
        let mut places: Vec<(PathBuf, bool)> =
            directory.map(|path| (path, true)).into_iter().collect();
        places.extend(paths("write").into_iter().map(|path| (path, true)));
        places.extend(paths("read").into_iter().map(|path| (path, false)));
        if let Some(Sink::File(path)) = &terms.sink {
            let folder = path.parent().unwrap_or(path);
            places.push((folder.to_owned(), true));
        }
        places
    }
}

/// A job's name, or another text, on one line and with nothing in it that cannot be seen.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    quoted(&short)
}

/// A path as text that fits on a line.
///
/// # Errors
/// In words, what it has that none can say.
fn text(path: &Path) -> Result<&str, String> {
    let cannot = |why: &str| {
        Err(format!(
            "`{}` cannot be written there: {why}",
            path.display()
        ))
    };
    match path.to_str() {
        None => cannot("its name is no text"),
        Some(text) if text.contains(char::is_control) => {
            cannot("its name holds a line's end or another control character")
        }
        Some(_) if !path.is_absolute() => cannot("it is relative"),
        Some(text) => Ok(text),
    }
}

/// Times by UTC, of the days on which a clock is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Around {
    month: u32,
    first_day: u32,
    last_day: u32,
    hours: u64,
    minutes: u64,
}

/// How far from a change of the clock slots are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// The one at the end of a gap, which stands for times that no clock shows.
    Gap,
    /// All of those in the hours that are skipped or shown twice, and in the next.
    Hours,
}

/// The slots that a scheduler may leave out which follows the clock on the wall.
fn around(planned: &Planned, now: Timestamp, width: Width) -> Vec<Around> {
    let Planned {
        job,
        schedule: schedule @ Schedule::Cron { expression, .. },
        zone,
        ..
    } = planned
    else {
        return Vec::new();
    };
    let mut slots: Vec<Timestamp> = Vec::new();
    for change in zone.following(now).take(CHANGES) {
        let at = change.timestamp();
        let Ok(before) = at.checked_sub(SignedDuration::from_secs(1)) else {
            continue;
        };
        let shift = change.offset().duration_since(zone.to_offset(before));
        let is_gap = shift.is_positive();
        let far = shift.abs() + SignedDuration::from_hours(1);
        let (from, until) = match width {
            // A change in the middle of a minute has its slot in the next.
            Width::Gap if is_gap && expression.fixed() => (at, at + SignedDuration::from_mins(1)),
            Width::Gap => continue,
            Width::Hours if is_gap => (at, at + far),
            // Times of the day come once, and then every scheduler takes the first.
            Width::Hours if expression.fixed() => continue,
            Width::Hours => (at - far, at + far),
        };
        // systemd's search may fail that has to cross a gap, and a timer with no time left is never started again: this one
        // wakes it up behind the gap.
        slots.extend(minute_of(at).filter(|_| is_gap && width == Width::Hours));
        let mut after = from - SignedDuration::from_secs(1);
        while let Some(slot) = schedule.next(after, job.created, zone) {
            if slot >= until {
                break;
            }
            slots.push(slot);
            after = slot;
        }
    }
    let mut around: Vec<Around> = Vec::new();
    for slot in slots {
        let time = TimeZone::UTC.to_datetime(slot);
        let (month, day) = (time.month() as u32, time.day() as u32);
        let (hours, minutes) = (1 << time.hour(), 1 << time.minute());
        let known = around
            .iter_mut()
            .find(|known| (known.month, known.hours) == (month, hours));
        match known {
            Some(known) => {
                known.first_day = known.first_day.min(day);
                known.last_day = known.last_day.max(day);
                known.minutes |= minutes;
            }
            None => around.push(Around {
                month,
                first_day: day,
                last_day: day,
                hours,
                minutes,
            }),
        }
    }
    let mut merged: Vec<Around> = Vec::new();
    for one in around {
        let alike = |other: &&mut Around| {
            Around { hours: 0, ..one }
                == Around {
                    hours: 0,
                    ..**other
                }
        };
        match merged.iter_mut().find(alike) {
            Some(other) => other.hours |= one.hours,
            None => merged.push(one),
        }
    }
    merged
}

/// Whether the times of `expression` are the same by the clock of `zone` and by UTC: those of each hour, where clocks differ
/// by whole hours.
fn is_of_each_hour(expression: &Expression, zone: &TimeZone, now: Timestamp) -> bool {
    let is_whole = |offset: jiff::tz::Offset| offset.seconds() % 3600 == 0;
    let mut changes = zone.following(now).take(CHANGES);
    expression.spelling()[1..].iter().all(|field| field == "*")
        && is_whole(zone.to_offset(now))
        && changes.all(|change| is_whole(change.offset()))
}

/// Minutes and hours of each day by UTC, or of one weekday, Sunday being 0: what a period falls on, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    minutes: u64,
    hours: u64,
    weekday: Option<u32>,
}

/// What a period falls on. Days have in common with it what divides both, and by UTC all of them are alike.
fn every(period: Duration, created: Timestamp) -> Vec<Times> {
    const MINUTES: u64 = (1 << 60) - 1;
    const HOURS: u64 = (1 << 24) - 1;
    let seconds = period.as_secs();
    if period.subsec_nanos() != 0 || seconds == 0 || !seconds.is_multiple_of(60) {
        return vec![Times {
            minutes: MINUTES,
            hours: HOURS,
            weekday: None,
        }];
    }
    let start = floor(created);
    let step = gcd(DAY as u64, seconds);
    let first = start.as_second().rem_euclid(DAY) as u64 % step;
    let mut of_hours = [0_u64; 24];
    for time in (first..DAY as u64).step_by(step as usize) {
        of_hours[(time / 3600) as usize] |= 1 << (time % 3600 / 60);
    }
    let is_weekly = seconds.is_multiple_of(7 * DAY as u64);
    let weekday = is_weekly.then(|| {
        let weekday = TimeZone::UTC.to_datetime(start).weekday();
        weekday.to_sunday_zero_offset() as u32
    });
    let mut times: Vec<Times> = Vec::new();
    for (hour, minutes) in of_hours
        .into_iter()
        .enumerate()
        .filter(|(_, minutes)| *minutes != 0)
    {
        match times.iter_mut().find(|times| times.minutes == minutes) {
            Some(times) => times.hours |= 1 << hour,
            None => times.push(Times {
                minutes,
                hours: 1 << hour,
                weekday,
            }),
        }
    }
    times
}

/// The one minute of a job that runs once.
///
/// # Errors
/// In words: it is past.
fn once(planned: &Planned, time: Timestamp, now: Timestamp) -> Result<Timestamp, String> {
    let is_over = planned.job.state.last_run.is_some_and(|last| last >= time);
    match minute_of(time) {
        Some(minute) if minute > now => Ok(minute),
        _ if is_over => Err("it has run".into()),
        _ => Err(format!(
            "its time has passed; `nanobot cron run {}` runs it now",
            planned.job.id
        )),
    }
}

/// The values as cron writes them.
fn list(set: u64, count: u32) -> String {
    match (0..count).all(|bit| has(set, bit)) {
        true => "*".into(),
        false => {
            let values: Vec<String> = bits(set).map(|value| value.to_string()).collect();
            values.join(",")
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
