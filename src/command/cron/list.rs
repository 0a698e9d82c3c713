//! `cron list`: lists the jobs with their next and last run.

use crate::cli::cron::CronListArgs;
use crate::command::name_pattern::NamePattern;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_status::LineState;
use crate::ops::jobs::job_notices::{can_deliver, unsupported_channel_notice};
use crate::ops::jobs::job_status::{self, JobList, JobStatus};
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use anyhow::Result;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use nanobot_agent::report::columns::{Side, align_and_shorten, truncate};
use nanobot_base::format::format_dollars;
use nanobot_cron::job::Job;
use nanobot_cron::run_record::{PendingRetry, RunOutcome, RunRecord, StartedRun};
use nanobot_cron::schedule::Schedule;
use nanobot_os::secret;
use nanobot_os::terminal::sanitize;
use serde_json::{Value, json};

/// Maximum columns of names and schedules.
const MAX_CELL_COLUMNS: usize = 40;

/// Runs `cron list`.
pub(super) fn run(ctx: &Context, arguments: &CronListArgs) -> Result<()> {
    let CronListArgs { pattern, all, json } = arguments;
    let names = NamePattern(pattern.as_deref());
    let JobList { mut jobs, problems, now } = job_status::list(ctx)?;
    jobs.retain(|status| names.matches(&status.job.name) || names.matches(&status.job.id));
    let mut hidden_count = 0;
    if !all {
        let is_hidden =
            |status: &mut JobStatus| !status.job.enabled && !status.has_failed_for_good();
        hidden_count = jobs.extract_if(.., is_hidden).count();
    }
    // Jobs that never run come last.
    jobs.sort_by_key(|status| {
        let next = status.due_slot.or(status.next_runs.first().copied());
        next.unwrap_or(Timestamp::MAX)
    });
    let jobs = order_chains(jobs);
    if *json {
        let lines = jobs.iter().map(|status| job_json(ctx, status, now.time_zone()));
        return ctx.terminal.print_json_lines(lines);
    }
    if jobs.is_empty() {
        ctx.explain_empty(match pattern {
            Some(_) => "no scheduled job matches",
            None => "no jobs are scheduled",
        });
    } else {
        ctx.terminal.print(&table(ctx, &jobs, &now))?;
    }
    match hidden_count {
        0 => {}
        1 => ctx.notice("1 job is disabled; `--all` shows it"),
        _ => ctx.notice("some jobs are disabled; `--all` shows them"),
    }
    problems.iter().for_each(|problem| ctx.notice(&problem.text));
    for JobStatus { job, .. } in &jobs {
        let notices = [
            job_status::tampered_notice(job),
            job_status::predecessor_notice(job),
            unsupported_channel_notice(ctx, job),
            job_status::web_only_hosts_notice(job),
        ];
        notices.iter().flatten().for_each(|notice| ctx.notice(notice));
    }
    Ok(())
}

/// Moves each job behind the one that it runs after, if that is before it.
fn order_chains(jobs: Vec<JobStatus>) -> Vec<JobStatus> {
    let mut ordered: Vec<JobStatus> = Vec::new();
    for status in jobs {
        let id = status.job.follows();
        let is_before = |other: &JobStatus| {
            id.is_some() && (Some(other.job.id.as_str()) == id || other.job.follows() == id)
        };
        let index = ordered.iter().rposition(is_before).map_or(ordered.len(), |index| index + 1);
        ordered.insert(index, status);
    }
    ordered
}

const COLUMNS: &[(&str, Side)] = &[
    ("ID", Side::Left),
    ("NAME", Side::Left),
    ("SCHEDULE", Side::Left),
    ("NEXT", Side::Left),
    ("LAST", Side::Left),
    ("COST", Side::Right),
];
/// The columns that are shortened if the terminal is too narrow: SCHEDULE, then NAME.
const SHORTENED_COLUMNS: &[usize] = &[2, 1];
/// Minimum columns of shortened names and schedules.
const MIN_CELL_COLUMNS: usize = 12;
/// The same if the outcomes would not fit otherwise.
const MIN_NARROW_CELL_COLUMNS: usize = 6;

/// The table of `jobs`. What a person looks for is the outcome of the last run, so its time goes before it, and names and schedules
/// are shortened before both.
fn table(ctx: &Context, jobs: &[JobStatus], now: &Zoned) -> String {
    let width = ctx.terminal.stdout_width();
    let align = |has_times: bool, min_columns: usize| {
        let row = |status| job_row(ctx, status, now, has_times);
        let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
        align_and_shorten(COLUMNS, &rows, width, SHORTENED_COLUMNS, min_columns)
    };
    let is_cut = |lines: &[String]| lines.iter().any(|line| truncate(line, width) != *line);
    let mut lines = align(true, MIN_CELL_COLUMNS);
    if is_cut(&lines) {
        lines = align(false, MIN_CELL_COLUMNS);
    }
    if is_cut(&lines) {
        lines = align(false, MIN_NARROW_CELL_COLUMNS);
    }
    lines.iter().map(|line| truncate(line, width) + "\n").collect()
}

/// The row of a job, with the time of its last run only if `has_times`.
fn job_row(ctx: &Context, status: &JobStatus, now: &Zoned, has_times: bool) -> Vec<String> {
    let short_cell = |text: &str| truncate(&cell(text), Some(MAX_CELL_COLUMNS));
    let last_run = describe_last_run(status, now);
    // An outcome has no comma.
    let last_run = match last_run.split_once(", ") {
        Some((outcome, _)) if !has_times => outcome,
        _ => last_run.as_str(),
    };
    let cost = status.history.last.as_ref().and_then(|last| match last.usage.cost_usd {
        Some(cost) => Some(format!("${}", format_dollars(cost))),
        None => last.usage.has_unknown_cost().then(|| "unknown".into()),
    });
    vec![
        cell(&status.job.id),
        short_cell(&status.job.name),
        short_cell(&timing::describe_schedule(ctx, &status.job, now.time_zone())),
        cell(&describe_next_run(status, now)),
        cell(last_run),
        cost.unwrap_or_default(),
    ]
}

/// Formats text as one line without control characters.
pub(super) fn cell(text: &str) -> String {
    sanitize(&time_format::to_one_line(text))
}

/// The next run, for people.
pub(super) fn describe_next_run(status: &JobStatus, now: &Zoned) -> String {
    let JobStatus { job, line_state, due_slot, retry, next_runs, .. } = status;
    if status.has_failed_for_good() {
        return "never: failed".into();
    }
    if !job.enabled {
        return "disabled".into();
    }
    if *line_state == LineState::NotTakenOver {
        return "not in the crontab".into();
    }
    if due_slot.is_some() {
        return "now".into();
    }
    let time = next_runs.first().map(|time| time_format::format_time(*time, now));
    match (time, retry, &job.schedule) {
        (Some(time), Some(retry), _) => format!("{time}, {}", describe_retry(job, retry)),
        (Some(time), None, _) => time,
        (None, _, Ok(Schedule::At(_))) => "past".into(),
        (None, _, Ok(Schedule::After(_))) if job.predecessor_problem().is_none() => String::new(),
        (None, ..) => "never".into(),
    }
}

/// The number of a retry, for people.
pub(super) fn describe_retry(job: &Job, retry: &PendingRetry) -> String {
    format!("retry {} of {}", retry.number, job.retry_policy().limit)
}

/// The last run and its outcome, for people.
pub(super) fn describe_last_run(status: &JobStatus, now: &Zoned) -> String {
    let format_start = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => time_format::format_time(time, now),
        Err(_) => text.to_owned(),
    };
    if let Some(started) = status.run_state.started
        && let Some(time) = started.started_at()
    {
        return format!(
            "{}, {}",
            describe_unfinished(started, status.is_running),
            time_format::format_time(time, now)
        );
    }
    let state = &status.job.state;
    match &status.history.last {
        Some(record) => {
            let times = match (record.outcome.is_failure(), status.history.failures) {
                (true, count @ 2..) => format!(" {count} times"),
                _ => String::new(),
            };
            format!("{}{times}, {}", describe_outcome(record), format_start(&record.start))
        }
        None => match (&state.last_status, state.last_run) {
            (Some(status), Some(time)) => {
                format!("{status} elsewhere, {}", time_format::format_time(time, now))
            }
            _ => String::new(),
        },
    }
}

/// The outcome of a run, in a word or two.
pub(super) fn describe_outcome(record: &RunRecord) -> String {
    match record.outcome {
        RunOutcome::Failed | RunOutcome::Busy => {
            format!("{} ({})", record.outcome.describe(), record.status)
        }
        outcome => outcome.describe().to_owned(),
    }
}

/// The state of a run that has begun and left no record.
pub(super) fn describe_unfinished(started: StartedRun, is_running: bool) -> &'static str {
    match (is_running, started.is_waiting) {
        (true, true) => "waiting",
        (true, false) => "running",
        (false, _) => "interrupted",
    }
}

/// A run as a JSON object.
pub(super) fn run_json(record: &RunRecord) -> Value {
    let usage = &record.usage;
    json!({
        "run": record.id, "job": record.job_id, "name": record.name, "host": record.host, "release": record.release, "trigger": record.trigger,
        "slot": record.slot.as_deref().and_then(truncate_to_seconds), "retry": record.retry,
        "start": truncate_to_seconds(&record.start), "end": truncate_to_seconds(&record.end), "outcome": record.outcome,
        "status": record.status, "cause": record.cause, "error": record.error, "session": usage.session, "turn": usage.turn,
        "model": usage.model, "iterations": usage.iterations, "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens, "cost_usd": usage.cost_usd, "denied": usage.denied,
        "output": record.output, "delivered": record.delivered,
    })
}

/// A recorded time without fractions of a second; `None` if it is not a time.
fn truncate_to_seconds(text: &str) -> Option<String> {
    text.parse().ok().map(format_utc)
}

pub(super) fn format_utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A job as a JSON object.
pub(super) fn job_json(ctx: &Context, status: &JobStatus, local: &TimeZone) -> Value {
    let JobStatus { job, history, .. } = status;
    let last = &history.last;
    let session = job.session_key();
    let schedule = match &job.schedule {
        Ok(Schedule::Cron { expression, zone }) => {
            json!({ "kind": "cron", "expr": expression.text(), "tz": zone })
        }
        Ok(Schedule::Every(period)) => json!({ "kind": "every", "seconds": period.as_secs() }),
        Ok(Schedule::At(time)) => json!({ "kind": "at", "time": format_utc(*time) }),
        Ok(Schedule::After(id)) => {
            let name = job.predecessor.as_ref().and_then(|predecessor| predecessor.name.as_ref());
            json!({ "kind": "after", "job": id, "name": name })
        }
        Err(error) => json!({ "kind": null, "error": error }),
    };
    let times: Vec<String> = status.next_runs.iter().copied().map(format_utc).collect();
    let state = &job.state;
    let mut line = json!({
        "id": job.id, "name": job.name, "enabled": job.enabled, "schedule": schedule,
        "words": timing::describe_schedule(ctx, job, local), "due": status.due_slot.map(format_utc), "overdue": status.overdue_slot.map(format_utc),
        "next": times.first(), "coming": times, "message": job.message,
        "session": session, "own_session": job.has_own_session(), "created": format_utc(job.created),
        "delete_after_run": job.delete_after_run,
        "delivery": {
            "deliver": job.delivery.deliver, "channel": job.delivery.channel, "to": job.delivery.to,
            "supported": can_deliver(ctx, job),
        },
        "foreign": job.options.is_none(), "altered": job.is_altered(), "crontab": status.line_state.name(),
        "retry": status.retry.map(|retry| json!({ "at": format_utc(retry.at()), "number": retry.number })),
        "last": last.as_ref().map(run_json),
        "failures": history.failures, "failing_since": history.failing_since.map(format_utc),
        "last_success": history.last_success.map(format_utc),
        "cost_usd": last.as_ref().and_then(|last| last.usage.cost_usd),
        "elsewhere": {
            "last_run": state.last_run.map(format_utc), "last_status": state.last_status,
            "last_error": state.last_error,
        },
        "begun": status.run_state.started.and_then(|started| started.started_at()).map(format_utc), "running": status.is_running,
        "waiting": status.is_running && status.run_state.started.is_some_and(|started| started.is_waiting),
    });
    line["terms"] = match &job.options {
        Some(options) => json!({
            "grants": options.grants, "by_model": options.by_model, "model": options.model, "when": options.when, "when_output": options.when_output,
            "command": options.command,
            "fallbacks": options.fallbacks, "hour_cache": options.hour_cache, "skills": options.skills, "until": options.until, "max_rounds": options.max_rounds,
            "timeout_s": options.timeout, "max_cost_usd": options.max_cost, "catch_up": job.catch_up(),
            "after_crash": options.after_crash, "ping": options.ping, "on_failure": options.on_failure, "on_success": options.on_success,
            "notify": options.notify, "retry": job.retry_policy().limit, "retry_on": options.retry_on, "retry_delay_s": job.retry_policy().delay.as_secs(),
            "jitter_s": job.jitter().as_secs(), "quiet": options.quiet, "sink": options.destination,
            "config": options.config, "kind": options.kind,
        }),
        None => Value::Null,
    };
    // Commands may contain keys, and the output may be passed on.
    line["terms"] = secret::redact_all_json(&line["terms"]).into_owned();
    line
}
