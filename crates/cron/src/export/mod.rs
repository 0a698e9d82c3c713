//! Exports jobs to other schedulers: builds the content of their files. Pure.
//!
//! Each scheduler starts `nanobot cron run ID --scheduled`, as the crontab does. The run itself checks if it is due,
//! so extra starts are silent and harmless; a scheduler must only never start too seldom.

pub mod crontab;
pub mod kubernetes;
pub mod systemd;
mod yaml;

use super::expression::{Expression, has_bit, set_bits};
use super::job::{AnswerSink, Job};
use super::schedule::{CatchUpPolicy, Schedule, ceil_minute, floor_minute};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nanobot_base::shell_quote::quote;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first line of each exported file; a file without it was not made by us.
pub const HEADER: &str =
    "# Made by `nanobot cron export`: changes here are lost when it is made again.\n";

/// Seconds that a run may take beyond its deadline, to stop its children and write its record.
const STOP_GRACE_SECS: u64 = 120;
/// Number of clock changes to examine: twenty years of daylight saving time.
const MAX_CLOCK_CHANGES: usize = 40;
const DAY_SECS: i64 = 86_400;

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFile {
    pub name: String,
    pub text: String,
}

/// The settings shared by the files of all jobs. All paths are absolute.
#[derive(Clone, Copy, Debug)]
pub struct ExportSettings<'a> {
    pub home: &'a Path,
    /// The directory of this program's own data.
    pub root: &'a Path,
    /// True if `NANOBOT_HOME` sets `root`.
    pub is_root_set: bool,
    pub path: Option<&'a str>,
    pub program: &'a Path,
    pub workspace: &'a Path,
    /// The environment variables of API keys that runs may need.
    pub keys: &'a [&'a str],
    /// True if an API key comes from a command of the user's.
    pub has_key_command: bool,
    /// The system's time zone.
    pub system_zone: &'a TimeZone,
    pub system_zone_name: Option<&'a str>,
    pub now: Timestamp,
}

/// A job with a valid schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduledJob<'a> {
    pub job: &'a Job,
    pub schedule: &'a Schedule,
    /// The time zone of the schedule.
    pub zone: &'a TimeZone,
    /// The file given with `-c`.
    pub config: Option<&'a Path>,
    /// The directory given with `-w`.
    pub workspace: Option<&'a Path>,
}

impl<'a> ScheduledJob<'a> {
    /// Describes the schedule.
    fn describe(&self) -> String {
        self.schedule.describe(self.zone)
    }

    fn is_caught_up(&self) -> bool {
        self.job.catch_up() == CatchUpPolicy::Once
    }

    /// Returns the seconds after which a run is considered stuck.
    fn stuck_after(&self) -> Option<u64> {
        let seconds = self.job.deadline_secs();
        let delay = self.job.jitter().as_secs();
        (seconds > 0).then(|| seconds.saturating_add(delay + STOP_GRACE_SECS))
    }

    /// True if the job runs commands of the user's, which are not sandboxed.
    fn has_user_commands(&self) -> bool {
        self.job.options.as_ref().is_some_and(|terms| {
            terms.when.is_some()
                || terms.on_failure.is_some()
                || terms.on_success.is_some()
                || matches!(terms.sink, Some(AnswerSink::Command(_)))
        })
    }

    /// Returns the granted directories, and if each may be changed. The working directory comes first, unless it is
    /// the workspace.
    fn granted_paths(&self) -> Vec<(PathBuf, bool)> {
        let Some(terms) = &self.job.options else {
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
        if let Some(AnswerSink::File(path)) = &terms.sink {
            let folder = path.parent().unwrap_or(path);
            places.push((folder.to_owned(), true));
        }
        places
    }
}

/// Shortens a job's name or another text for display, on one line and without invisible characters.
fn quote_short(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    quote(&short)
}

/// Returns a path as text that fits on one line.
///
/// # Errors
/// A message that names what cannot be written.
fn path_text(path: &Path) -> Result<&str, String> {
    let cannot = |why: &str| Err(format!("`{}` cannot be exported: {why}", path.display()));
    match path.to_str() {
        None => cannot("the path is not valid UTF-8"),
        Some(text) if text.contains(char::is_control) => {
            cannot("the path contains a control character")
        }
        Some(_) if !path.is_absolute() => cannot("it is relative"),
        Some(text) => Ok(text),
    }
}

/// Times in UTC on the days of clock changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockChangeTimes {
    month: u32,
    first_day: u32,
    last_day: u32,
    hours: u64,
    minutes: u64,
}

/// The range around a clock change in which slots are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeWindow {
    /// The slot at the end of a gap, which replaces the times that the clock skips.
    Gap,
    /// All slots in the skipped or repeated hours, and in the following hour.
    Hours,
}

/// Returns the slots that a wall-clock scheduler may miss.
fn times_around_changes(
    scheduled_job: &ScheduledJob,
    now: Timestamp,
    width: ChangeWindow,
) -> Vec<ClockChangeTimes> {
    let ScheduledJob { job, schedule: schedule @ Schedule::Cron { expression, .. }, zone, .. } =
        scheduled_job
    else {
        return Vec::new();
    };
    let mut slots: Vec<Timestamp> = Vec::new();
    for change in zone.following(now).take(MAX_CLOCK_CHANGES) {
        let at = change.timestamp();
        let Ok(before) = at.checked_sub(SignedDuration::from_secs(1)) else {
            continue;
        };
        let shift = change.offset().duration_since(zone.to_offset(before));
        let is_gap = shift.is_positive();
        let far = shift.abs() + SignedDuration::from_hours(1);
        let (from, until) = match width {
            // A change within a minute has its slot in the next minute.
            ChangeWindow::Gap if is_gap && expression.is_time_of_day() => {
                (at, at + SignedDuration::from_mins(1))
            }
            ChangeWindow::Gap => continue,
            ChangeWindow::Hours if is_gap => (at, at + far),
            // Times of day run only once, and every scheduler takes the first occurrence.
            ChangeWindow::Hours if expression.is_time_of_day() => continue,
            ChangeWindow::Hours => (at - far, at + far),
        };
        // systemd's search for the next time can fail across a gap, and a timer without a next time never starts
        // again. This extra time, just after the gap, wakes it up.
        slots.extend(ceil_minute(at).filter(|_| is_gap && width == ChangeWindow::Hours));
        let mut after = from - SignedDuration::from_secs(1);
        while let Some(slot) = schedule.next(after, job.created, zone) {
            if slot >= until {
                break;
            }
            slots.push(slot);
            after = slot;
        }
    }
    merge_hours(group_by_hour(slots))
}

/// Groups slots, in UTC, that share a month and an hour.
fn group_by_hour(slots: Vec<Timestamp>) -> Vec<ClockChangeTimes> {
    let mut around: Vec<ClockChangeTimes> = Vec::new();
    for slot in slots {
        let time = TimeZone::UTC.to_datetime(slot);
        let (month, day) = (time.month() as u32, time.day() as u32);
        let (hours, minutes) = (1 << time.hour(), 1 << time.minute());
        let known = around.iter_mut().find(|known| (known.month, known.hours) == (month, hours));
        match known {
            Some(known) => {
                known.first_day = known.first_day.min(day);
                known.last_day = known.last_day.max(day);
                known.minutes |= minutes;
            }
            None => around.push(ClockChangeTimes {
                month,
                first_day: day,
                last_day: day,
                hours,
                minutes,
            }),
        }
    }
    around
}

/// Merges groups that differ only in their hours.
fn merge_hours(groups: Vec<ClockChangeTimes>) -> Vec<ClockChangeTimes> {
    let mut merged: Vec<ClockChangeTimes> = Vec::new();
    for one in groups {
        let alike = |other: &&mut ClockChangeTimes| {
            ClockChangeTimes { hours: 0, ..one } == ClockChangeTimes { hours: 0, ..**other }
        };
        match merged.iter_mut().find(alike) {
            Some(other) => other.hours |= one.hours,
            None => merged.push(one),
        }
    }
    merged
}

/// True if `expression` has the same times in `zone` and in UTC: it applies to every hour, and the offsets are whole
/// hours.
fn is_hourly_in_utc(expression: &Expression, zone: &TimeZone, now: Timestamp) -> bool {
    let is_whole = |offset: jiff::tz::Offset| offset.seconds() % 3600 == 0;
    let mut changes = zone.following(now).take(MAX_CLOCK_CHANGES);
    expression.as_plain_cron()[1..].iter().all(|field| field == "*")
        && is_whole(zone.to_offset(now))
        && changes.all(|change| is_whole(change.offset()))
}

/// Minutes and hours of each day in UTC, or of one weekday (Sunday is 0). They cover a period's slots, and possibly
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UtcTimes {
    minutes: u64,
    hours: u64,
    weekday: Option<u32>,
}

/// Returns the times that a period can fall on. In UTC all days have equal length, so the times of day repeat with
/// the greatest common divisor of the period and a day.
fn period_times(period: Duration, created: Timestamp) -> Vec<UtcTimes> {
    const MINUTES: u64 = (1 << 60) - 1;
    const HOURS: u64 = (1 << 24) - 1;
    let seconds = period.as_secs();
    if period.subsec_nanos() != 0 || seconds == 0 || !seconds.is_multiple_of(60) {
        return vec![UtcTimes { minutes: MINUTES, hours: HOURS, weekday: None }];
    }
    let start = floor_minute(created);
    let step = gcd(DAY_SECS as u64, seconds);
    let first = start.as_second().rem_euclid(DAY_SECS) as u64 % step;
    let mut of_hours = [0_u64; 24];
    for time in (first..DAY_SECS as u64).step_by(step as usize) {
        of_hours[(time / 3600) as usize] |= 1 << (time % 3600 / 60);
    }
    let is_weekly = seconds.is_multiple_of(7 * DAY_SECS as u64);
    let weekday = is_weekly.then(|| {
        let weekday = TimeZone::UTC.to_datetime(start).weekday();
        weekday.to_sunday_zero_offset() as u32
    });
    let mut times: Vec<UtcTimes> = Vec::new();
    for (hour, minutes) in of_hours.into_iter().enumerate().filter(|(_, minutes)| *minutes != 0) {
        match times.iter_mut().find(|times| times.minutes == minutes) {
            Some(times) => times.hours |= 1 << hour,
            None => times.push(UtcTimes { minutes, hours: 1 << hour, weekday }),
        }
    }
    times
}

/// Returns the minute of a job that runs once.
///
/// # Errors
/// A message, if the time is past.
fn single_slot(
    scheduled_job: &ScheduledJob,
    time: Timestamp,
    now: Timestamp,
) -> Result<Timestamp, String> {
    let is_over = scheduled_job.job.state.last_run.is_some_and(|last| last >= time);
    match ceil_minute(time) {
        Some(minute) if minute > now => Ok(minute),
        _ if is_over => Err("it has already run".into()),
        _ => Err(format!(
            "its time has passed; `nanobot cron run {}` runs it now",
            scheduled_job.job.id
        )),
    }
}

/// Formats the set bits as a cron field.
fn format_field(set: u64, count: u32) -> String {
    if (0..count).all(|bit| has_bit(set, bit)) {
        "*".into()
    } else {
        let values: Vec<String> = set_bits(set).map(|value| value.to_string()).collect();
        values.join(",")
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
