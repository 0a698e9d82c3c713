//! Exports jobs to other schedulers, and the service of the channels: builds the content of their files. No I/O.
//!
//! Each scheduler starts `nanobot cron run ID --scheduled`, as the crontab does. The run itself checks whether it is due, so extra starts
//! are silent and harmless. A scheduler must never start a job too seldom.

pub mod channel_poll;
pub mod kubernetes;
pub mod systemd;
mod yaml;

use super::crontab_block;
use super::expression::{Expression, has_bit, set_bits};
use super::job::{AnswerDestination, Job};
use super::schedule::{CatchUpPolicy, Schedule, ceil_minute, floor_minute};
use super::time_fields::{MAX_CLOCK_CHANGES, gcd};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nanobot_base::shell_quote::quote;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first line of each exported file. A file without it is not an export.
pub const HEADER: &str =
    "# Made by `nanobot cron export`: changes here are lost when it is made again.\n";

/// The beginning of each file that this program has exported.
pub const EXPORT_MARK: &str = "# Made by `nanobot ";

/// Seconds that a run may take beyond its deadline, to stop its children and write its record.
const STOP_GRACE_SECS: u64 = 120;
const DAY_SECS: i64 = 86_400;

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFile {
    pub name: String,
    pub text: String,
}

/// Returns a complete crontab, for tables that other programs manage. `lines` are our block, in the form that
/// `nanobot cron sync` recognizes in a user's own table.
///
/// # Errors
/// A message, if the workspace's path cannot be written in a table.
pub fn crontab_file(workspace: &Path, lines: &[String]) -> Result<ExportFile, String> {
    let table = crontab_block::with_block(HEADER.as_bytes(), path_text(workspace)?, lines);
    Ok(ExportFile {
        name: "nanobot.crontab".into(),
        text: String::from_utf8_lossy(&table).into_owned(),
    })
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
    /// The ids of the enabled jobs that run after it.
    pub followers: &'a [String],
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
        self.job.options.as_ref().is_some_and(|options| {
            options.when.is_some()
                || options.command.is_some()
                || options.on_failure.is_some()
                || options.on_success.is_some()
                || matches!(options.destination, Some(AnswerDestination::Command(_)))
        })
    }

    /// Returns the granted directories. The working directory comes first, unless it is the workspace.
    fn granted_paths(&self) -> Vec<GrantedPath> {
        let Some(options) = &self.job.options else {
            return Vec::new();
        };
        let mut granted_paths = Vec::new();
        let mut add = |path: &Path, is_writable: bool| {
            granted_paths.push(GrantedPath { path: path.to_owned(), is_writable });
        };
        if let Some(path) = options.grants["directory"].as_str() {
            add(Path::new(path), true);
        }
        for (key, is_writable) in [("write", true), ("read", false)] {
            let paths = options.grants[key].as_array().into_iter().flatten();
            let paths = paths.filter_map(|path| path.as_str().map(Path::new));
            for path in paths.filter(|path| path.is_absolute()) {
                add(path, is_writable);
            }
        }
        if let Some(AnswerDestination::File(path)) = &options.destination {
            add(path.parent().unwrap_or(path), true);
        }
        granted_paths
    }
}

/// A directory or file that a job may use.
struct GrantedPath {
    path: PathBuf,
    is_writable: bool,
}

/// Shortens a job's name or another text for display, on one line and without invisible characters.
fn quote_short(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    quote(&short)
}

/// Returns a path as text that fits on one line.
///
/// # Errors
/// The path cannot be written. The message names it.
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
    window: ChangeWindow,
) -> Vec<ClockChangeTimes> {
    let ScheduledJob { job, schedule: schedule @ Schedule::Cron { expression, .. }, zone, .. } =
        scheduled_job
    else {
        return Vec::new();
    };
    let mut slots: Vec<Timestamp> = Vec::new();
    for change in zone.following(now).take(MAX_CLOCK_CHANGES) {
        let change_time = change.timestamp();
        let Ok(before) = change_time.checked_sub(SignedDuration::from_secs(1)) else {
            continue;
        };
        let shift = change.offset().duration_since(zone.to_offset(before));
        let is_gap = shift.is_positive();
        let width = shift.abs() + SignedDuration::from_hours(1);
        let (from, until) = match window {
            // A change within a minute has its slot in the next minute.
            ChangeWindow::Gap if is_gap && expression.is_time_of_day() => {
                (change_time, change_time + SignedDuration::from_mins(1))
            }
            ChangeWindow::Gap => continue,
            ChangeWindow::Hours if is_gap => (change_time, change_time + width),
            // Times of day run only once, and every scheduler takes the first occurrence.
            ChangeWindow::Hours if expression.is_time_of_day() => continue,
            ChangeWindow::Hours => (change_time - width, change_time + width),
        };
        // systemd's search for the next time can fail across a gap, and a timer without a next time never starts
        // again. This extra time, just after the gap, wakes it up.
        if is_gap && window == ChangeWindow::Hours {
            slots.extend(ceil_minute(change_time));
        }
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
    let mut groups: Vec<ClockChangeTimes> = Vec::new();
    for slot in slots {
        let time = TimeZone::UTC.to_datetime(slot);
        let (month, day) = (time.month() as u32, time.day() as u32);
        let (hours, minutes) = (1 << time.hour(), 1 << time.minute());
        let group = groups.iter_mut().find(|group| (group.month, group.hours) == (month, hours));
        match group {
            Some(group) => {
                group.first_day = group.first_day.min(day);
                group.last_day = group.last_day.max(day);
                group.minutes |= minutes;
            }
            None => groups.push(ClockChangeTimes {
                month,
                first_day: day,
                last_day: day,
                hours,
                minutes,
            }),
        }
    }
    groups
}

/// Merges groups that differ only in their hours.
fn merge_hours(groups: Vec<ClockChangeTimes>) -> Vec<ClockChangeTimes> {
    let mut merged: Vec<ClockChangeTimes> = Vec::new();
    for group in groups {
        let differs_only_in_hours = |other: &&mut ClockChangeTimes| {
            ClockChangeTimes { hours: 0, ..group } == ClockChangeTimes { hours: 0, ..**other }
        };
        match merged.iter_mut().find(differs_only_in_hours) {
            Some(other) => other.hours |= group.hours,
            None => merged.push(group),
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
    const ALL_MINUTES: u64 = (1 << 60) - 1;
    const ALL_HOURS: u64 = (1 << 24) - 1;
    let seconds = period.as_secs();
    if period.subsec_nanos() != 0 || seconds == 0 || !seconds.is_multiple_of(60) {
        return vec![UtcTimes { minutes: ALL_MINUTES, hours: ALL_HOURS, weekday: None }];
    }
    let start = floor_minute(created);
    let step = gcd(DAY_SECS as u64, seconds);
    let first = start.as_second().rem_euclid(DAY_SECS) as u64 % step;
    let mut minutes_by_hour = [0_u64; 24];
    for time in (first..DAY_SECS as u64).step_by(step as usize) {
        minutes_by_hour[(time / 3600) as usize] |= 1 << (time % 3600 / 60);
    }
    let is_weekly = seconds.is_multiple_of(7 * DAY_SECS as u64);
    let weekday = is_weekly.then(|| {
        let weekday = TimeZone::UTC.to_datetime(start).weekday();
        weekday.to_sunday_zero_offset() as u32
    });
    let mut times: Vec<UtcTimes> = Vec::new();
    let hours = minutes_by_hour.into_iter().enumerate();
    for (hour, minutes) in hours.filter(|(_, minutes)| *minutes != 0) {
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
    let has_run = scheduled_job.job.state.last_run.is_some_and(|last| last >= time);
    match ceil_minute(time) {
        Some(minute) if minute > now => Ok(minute),
        _ if has_run => Err("it has already run".into()),
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
