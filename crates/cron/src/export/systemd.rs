//! Exports a job as a systemd timer and service.
//!
//! A timer follows local wall-clock time and so misses slots that cron runs when the clock skips or repeats an hour.
//! If a job has slots there, extra lines in UTC are added for the days of those clock changes.

use super::{
    ChangeWindow, ExportFile, ExportSettings, GrantedPath, HEADER, ScheduledJob, UtcTimes,
    is_hourly_in_utc, path_text, period_times, quote_short, single_slot, times_around_changes,
};
use crate::command_line::DEFAULT_PATH;
use crate::expression::systemd_calendar::format_values;
use crate::schedule::Schedule;
use jiff::tz::TimeZone;
use nanobot_base::error::Exit;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// The period at which it is checked whether a job that runs after another one was started, as in the crontab.
const CATCH_UP_PERIOD: Duration = Duration::from_mins(10);

/// Returns the units of a job: the service, then its timer. A job without a schedule of its own, which is not caught up either, has
/// none: the unit of the job before it starts it.
///
/// # Errors
/// A message that says why the job cannot be exported.
pub fn unit_files(
    settings: &ExportSettings,
    scheduled_job: &ScheduledJob,
) -> Result<Vec<ExportFile>, String> {
    let id = &scheduled_job.job.id;
    let mut files = vec![ExportFile {
        name: format!("nanobot-{id}.service"),
        text: service(settings, scheduled_job)?,
    }];
    if scheduled_job.job.follows().is_none() || scheduled_job.is_caught_up() {
        let text = timer(settings, scheduled_job)?;
        files.push(ExportFile { name: format!("nanobot-{id}.timer"), text });
    }
    Ok(files)
}

fn timer(settings: &ExportSettings, scheduled_job: &ScheduledJob) -> Result<String, String> {
    let mut out =
        format!("{HEADER}[Unit]\nDescription={}\n\n[Timer]\n", description(scheduled_job));
    let zone_note = match (scheduled_job.schedule, settings.system_zone_name) {
        (Schedule::Cron { zone: None, .. }, Some(name)) => {
            format!(", in the system's time zone, {name} at the time of export")
        }
        _ => String::new(),
    };
    writeln!(out, "# {}{zone_note}", scheduled_job.describe()).expect(INFALLIBLE);
    let CalendarLines { regular, clock_changes } = calendar_lines(scheduled_job, settings)?;
    for line in regular {
        writeln!(out, "OnCalendar={line}").expect(INFALLIBLE);
    }
    if !clock_changes.is_empty() {
        out.push_str("# For the days of clock changes.\n");
    }
    for line in clock_changes {
        writeln!(out, "OnCalendar={line}").expect(INFALLIBLE);
    }
    let jitter = scheduled_job.job.jitter().as_secs();
    if jitter > 0 {
        writeln!(out, "RandomizedDelaySec={jitter}\nFixedRandomDelay=true").expect(INFALLIBLE);
    }
    let persistent = scheduled_job.is_caught_up();
    write!(
        out,
        "Persistent={persistent}\nAccuracySec=1s\nUnit=nanobot-{}.service\n\n[Install]\nWantedBy=timers.target\n",
        scheduled_job.job.id
    )
    .expect(INFALLIBLE);
    Ok(out)
}

/// The places of a unit, as a comment at its beginning.
pub(super) const PLACES: &str = "# As a user unit: in ~/.config/systemd/user, with `loginctl enable-linger` to run without a login session.\n\
     # As a system unit: in /etc/systemd/system, with User= set below, and in [Unit]:\n\
     #After=network-online.target\n\
     #Wants=network-online.target\n";

const INFALLIBLE: &str = "writing to a string cannot fail";

/// The `OnCalendar` lines of a timer.
#[derive(Debug)]
pub struct CalendarLines {
    /// For the regular slots.
    pub regular: Vec<String>,
    /// For the extra times around clock changes.
    pub clock_changes: Vec<String>,
}

/// Returns the lines by which systemd starts a job at its slots.
///
/// # Errors
/// systemd cannot express the schedule.
pub fn calendar_lines(
    scheduled_job: &ScheduledJob,
    settings: &ExportSettings,
) -> Result<CalendarLines, String> {
    let utc_line = |times: &UtcTimes| {
        let weekday = times.weekday.map_or(String::new(), |weekday| {
            let names = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
            format!("{} ", names[weekday as usize])
        });
        let (hours, minutes) =
            (format_values(times.hours, 0..=23), format_values(times.minutes, 0..=59));
        format!("{weekday}*-*-* {hours}:{minutes}:00 UTC")
    };
    let regular = match scheduled_job.schedule {
        Schedule::Cron { expression, .. }
            if is_hourly_in_utc(expression, scheduled_job.zone, settings.now) =>
        {
            let minutes = format_values(expression.minutes(), 0..=59);
            return Ok(CalendarLines {
                regular: vec![format!("*-*-* *:{minutes}:00 UTC")],
                clock_changes: Vec::new(),
            });
        }
        Schedule::Cron { expression, zone } => {
            let zone = zone.as_ref().map_or(String::new(), |zone| format!(" {zone}"));
            let lines = expression.to_systemd_calendar();
            lines.into_iter().map(|line| format!("{line}{zone}")).collect()
        }
        Schedule::Every(period) => {
            let times = period_times(*period, scheduled_job.job.created);
            times.iter().map(utc_line).collect()
        }
        Schedule::At(time) => {
            let time = single_slot(scheduled_job, *time, settings.now)?;
            let time = TimeZone::UTC.to_datetime(time);
            vec![time.strftime("%Y-%m-%d %H:%M:00 UTC").to_string()]
        }
        Schedule::After(_) => {
            let times = period_times(CATCH_UP_PERIOD, scheduled_job.job.created);
            times.iter().map(utc_line).collect()
        }
    };
    let changes = times_around_changes(scheduled_job, settings.now, ChangeWindow::Hours);
    let clock_changes = changes.iter().map(|times| {
        let days = match (times.first_day, times.last_day) {
            (first, last) if first == last => format!("{first:02}"),
            (first, last) => format!("{first:02}..{last:02}"),
        };
        let (hours, minutes) =
            (format_values(times.hours, 0..=23), format_values(times.minutes, 0..=59));
        format!("*-{:02}-{days} {hours}:{minutes}:00 UTC", times.month)
    });
    Ok(CalendarLines { clock_changes: clock_changes.collect(), regular })
}

fn service(settings: &ExportSettings, scheduled_job: &ScheduledJob) -> Result<String, String> {
    let id = &scheduled_job.job.id;
    let mut out = HEADER.to_owned();
    write!(
        out,
        "{PLACES}[Unit]\n\
         Description={}\n",
        description(scheduled_job)
    )
    .expect(INFALLIBLE);
    for follower in scheduled_job.followers {
        writeln!(out, "OnSuccess=nanobot-{follower}.service").expect(INFALLIBLE);
    }
    out.push_str(
        "\n\
         [Service]\n\
         # Not oneshot: that type may not be restarted when the job was busy.\n\
         Type=exec\n\
         #User=NAME\n",
    );
    let mut arguments = vec!["cron", "run", id.as_str(), "--scheduled"];
    if !scheduled_job.job.jitter().is_zero() {
        arguments.push("--no-jitter");
    }
    if !scheduled_job.followers.is_empty() {
        arguments.push("--no-after");
    }
    let ScheduledJob { config, workspace, .. } = *scheduled_job;
    out.push_str(&start_lines(settings, config, workspace, &arguments)?);
    let again = Exit::TryAgain.code();
    let policy = scheduled_job.job.retry_policy();
    let (retry_statuses, restart_secs) = match policy.limit {
        0 => (format!("{again}"), 60),
        // A start before the time of the retry does nothing.
        _ => (format!("{again} {}", Exit::Unavailable.code()), policy.delay.as_secs()),
    };
    write!(
        out,
        "# {again}: the job or its session is busy. This is not a failure; it is retried for a slot that has not run yet.\n\
         # Any other status but 0 is a failure: see `nanobot agent --help` for the list, `nanobot cron logs {id}` for details.\n\
         SuccessExitStatus={again}\n\
         RestartForceExitStatus={retry_statuses}\n\
         RestartSec={restart_secs}\n"
    )
    .expect(INFALLIBLE);
    let max_runtime = match scheduled_job.stuck_after() {
        Some(seconds) => format!("{seconds}"),
        None => "infinity".into(),
    };
    // A run terminates its own children on SIGTERM.
    writeln!(out, "RuntimeMaxSec={max_runtime}\nKillMode=mixed\nUMask=0077").expect(INFALLIBLE);
    let granted_paths = scheduled_job.granted_paths();
    out.push_str(&hardening(settings, &granted_paths, config, scheduled_job.has_user_commands())?);
    Ok(out)
}

/// The lines of a service that start it: the command, with its environment and its keys.
///
/// # Errors
/// A path cannot be written in a unit. The message names it.
pub(super) fn start_lines(
    settings: &ExportSettings,
    config: Option<&Path>,
    workspace: Option<&Path>,
    arguments: &[&str],
) -> Result<String, String> {
    let mut out = format!("ExecStart={}\n", command_line(settings, config, workspace, arguments)?);
    let path = settings.path.unwrap_or(DEFAULT_PATH);
    if path.contains(char::is_control) {
        return Err("its PATH contains a control character".into());
    }
    writeln!(out, "Environment={}", escape_argument(&format!("PATH={path}"))).expect(INFALLIBLE);
    if settings.is_root_set {
        let root = path_text(settings.root)?;
        writeln!(out, "Environment={}", escape_argument(&format!("NANOBOT_HOME={root}")))
            .expect(INFALLIBLE);
    }
    out.push_str(
        "# An API key that is not in the config, alone in a file. `man systemd-creds` explains how to encrypt it.\n",
    );
    let keys: &[&str] = match settings.keys {
        [] => &["OPENAI_API_KEY"],
        keys => keys,
    };
    for key in keys {
        writeln!(out, "#LoadCredential={key}:%h/.config/nanobot/{key}").expect(INFALLIBLE);
    }
    Ok(out)
}

/// Returns the sandboxing settings of a run. The agent's commands use their own sandbox, which needs Landlock,
/// seccomp and, if available, namespaces; none of these is disabled here.
///
/// # Errors
/// A path cannot be written in a unit. The message names it.
pub(super) fn hardening(
    settings: &ExportSettings,
    granted_paths: &[GrantedPath],
    config: Option<&Path>,
    has_user_commands: bool,
) -> Result<String, String> {
    if has_user_commands || settings.has_key_command {
        return Ok(
            "# Not hardened: it runs your own commands with all your permissions. The agent's commands are sandboxed.\n"
                .into(),
        );
    }
    let mut out = String::from(
        "NoNewPrivileges=yes\n\
         LockPersonality=yes\n\
         RestrictRealtime=yes\n\
         RestrictSUIDSGID=yes\n\
         RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n\
         SystemCallArchitectures=native\n\
         # The rest needs a manager that can create namespaces: the system's, or a user's if users may. Otherwise the status\n\
         # is 217, 218 or 226: then remove these lines.\n\
         # The sandbox of commands needs this one if the service runs as root.\n\
         CapabilityBoundingSet=CAP_SETFCAP\n\
         ProtectSystem=strict\n",
    );
    let writable_grants = granted_paths.iter().filter(|granted_path| granted_path.is_writable);
    let mut writable: Vec<&Path> = vec![settings.root, settings.workspace];
    writable.extend(writable_grants.map(|granted_path| granted_path.path.as_path()));
    for (index, path) in writable.iter().enumerate() {
        if writable[..index].iter().any(|other| path.starts_with(other)) {
            continue;
        }
        // The leading dash makes a missing path acceptable.
        let path = escape_argument(&format!("-{}", path_text(path)?));
        writeln!(out, "ReadWritePaths={path}").expect(INFALLIBLE);
    }
    let granted = granted_paths.iter().map(|granted_path| granted_path.path.as_path());
    let used_paths = writable.iter().copied().chain(granted).chain(config);
    let mut used_paths = used_paths.chain([settings.program, settings.home]);
    let is_temporary = |path: &&Path| path.starts_with("/tmp") || path.starts_with("/var/tmp");
    let private_tmp = match used_paths.find(is_temporary) {
        None => "PrivateTmp=yes".into(),
        Some(path) => format!("# No PrivateTmp: it uses {}.", quote_short(path_text(path)?)),
    };
    writeln!(out, "{private_tmp}").expect(INFALLIBLE);
    out.push_str(
        "ProtectControlGroups=yes\n\
         ProtectHostname=yes\n\
         ProtectKernelLogs=yes\n\
         ProtectKernelModules=yes\n\
         ProtectKernelTunables=yes\n",
    );
    Ok(out)
}

/// Returns the command line. A `$` in it is literal.
fn command_line(
    settings: &ExportSettings,
    config: Option<&Path>,
    workspace: Option<&Path>,
    command: &[&str],
) -> Result<String, String> {
    let mut arguments = vec![path_text(settings.program)?];
    if let Some(config) = config {
        arguments.extend(["-c", path_text(config)?]);
    }
    if let Some(workspace) = workspace {
        arguments.extend(["-w", path_text(workspace)?]);
    }
    arguments.extend(command);
    // The prefix `:` turns the expansion of variables off (systemd.service(5)).
    let prefix = if arguments.iter().any(|argument| argument.contains('$')) { ":" } else { "" };
    let arguments: Vec<String> = arguments.into_iter().map(escape_argument).collect();
    Ok(format!("{prefix}{}", arguments.join(" ")))
}

fn description(scheduled_job: &ScheduledJob) -> String {
    let name = quote_short(&scheduled_job.job.name).replace('%', "%%");
    format!("nanobot: {name} (job {})", scheduled_job.job.id)
}

/// Escapes `text`, which has no control characters, as one argument of a setting.
fn escape_argument(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    let escaped = text.replace('%', "%%");
    if text.chars().all(plain) {
        escaped
    } else {
        format!("\"{}\"", escaped.replace('\\', r"\\").replace('"', "\\\""))
    }
}
