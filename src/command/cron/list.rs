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
use nanobot_agent::report::columns::{Column, Side, format_table, truncate};
use nanobot_base::error::Exit;
use nanobot_base::format::format_dollars;
use nanobot_cron::job::Job;
use nanobot_cron::run_record::{PendingRetry, RunOutcome, RunRecord};
use nanobot_cron::schedule::Schedule;
use nanobot_os::secret;
use nanobot_os::terminal::sanitize;
use serde_json::{Value, json};

/// Maximum columns of names and schedules.
const MAX_CELL_COLUMNS: usize = 40;

/// Runs `cron list`.
pub(super) fn run(ctx: &Context, arguments: &CronListArgs) -> Result<Exit> {
    let CronListArgs { pattern, all, json } = arguments;
    let names = NamePattern(pattern.as_deref());
    let JobList { jobs: mut known, problems, now } = job_status::list(ctx)?;
    known.retain(|known| names.matches(&known.job.name) || names.matches(&known.job.id));
    let hidden = match all {
        true => 0,
        false => {
            let is_hidden =
                |known: &mut JobStatus| !known.job.enabled && !known.has_failed_for_good();
            known.extract_if(.., is_hidden).count()
        }
    };
    // Jobs that never run come last.
    known.sort_by_key(|known| {
        let next = known.due_slot.or(known.next_runs.first().copied());
        next.unwrap_or(Timestamp::MAX)
    });
    if *json {
        let lines = known.iter().map(|known| job_json(ctx, known, now.time_zone()));
        ctx.terminal.print_json_lines(lines)?;
        return Ok(Exit::Answered);
    }
    if known.is_empty() {
        ctx.explain_empty(match pattern {
            Some(_) => "no scheduled job matches",
            None => "no jobs are scheduled",
        });
    } else {
        ctx.terminal.print(&table(ctx, &known, &now))?;
    }
    if hidden > 0 {
        let (jobs, show) = match hidden {
            1 => ("1 job is", "shows it"),
            _ => ("some jobs are", "shows them"),
        };
        ctx.notice(&format!("{jobs} disabled; `--all` {show}"));
    }
    problems.iter().for_each(|problem| ctx.notice(&problem.text));
    for known in &known {
        let notices = [
            job_status::tampered_notice(&known.job),
            unsupported_channel_notice(ctx, &known.job),
            job_status::web_only_hosts_notice(&known.job),
        ];
        for words in notices.into_iter().flatten() {
            ctx.notice(&words);
        }
    }
    Ok(Exit::Answered)
}

fn table(ctx: &Context, known: &[JobStatus], now: &Zoned) -> String {
    let short_cell = |text: &str| truncate(&cell(text), Some(MAX_CELL_COLUMNS));
    let columns: [Column<'_, JobStatus>; 6] = [
        ("ID", Side::Left, &|known| cell(&known.job.id)),
        ("NAME", Side::Left, &|known| short_cell(&known.job.name)),
        ("SCHEDULE", Side::Left, &|known| {
            short_cell(&timing::describe_schedule(ctx, &known.job, now.time_zone()))
        }),
        ("NEXT", Side::Left, &|known| cell(&describe_next_run(known, now))),
        ("LAST", Side::Left, &|known| cell(&describe_last_run(known, now))),
        ("COST", Side::Right, &|known| {
            let cost = known.history.last.as_ref().and_then(|last| match last.usage.cost_usd {
                Some(cost) => Some(format!("${}", format_dollars(cost))),
                None => last.usage.has_unknown_cost().then(|| "unknown".into()),
            });
            cost.unwrap_or_default()
        }),
    ];
    format_table(known, &columns, ctx.terminal.stdout_width())
}

/// Formats text as one line without control characters.
pub(super) fn cell(text: &str) -> String {
    sanitize(&time_format::to_one_line(text))
}

/// The next run, for people.
pub(super) fn describe_next_run(known: &JobStatus, now: &Zoned) -> String {
    let JobStatus { job, line_state, due_slot: due, retry, next_runs: next, .. } = known;
    match (due.or(next.first().copied()), &job.schedule) {
        _ if known.has_failed_for_good() => "never: failed".into(),
        _ if !job.enabled => "disabled".into(),
        _ if *line_state == LineState::NotTakenOver => "not in the crontab".into(),
        _ if due.is_some() => "now".into(),
        (Some(time), _) => match retry {
            Some(retry) => {
                format!("{}, {}", time_format::format_time(time, now), describe_retry(job, retry))
            }
            None => time_format::format_time(time, now),
        },
        (None, Ok(Schedule::At(_))) => "past".into(),
        (None, _) => "never".into(),
    }
}

/// The number of a retry, for people.
pub(super) fn describe_retry(job: &Job, retry: &PendingRetry) -> String {
    format!("retry {} of {}", retry.number, job.retry_policy().limit)
}

/// The last run and its outcome, for people.
pub(super) fn describe_last_run(known: &JobStatus, now: &Zoned) -> String {
    let at = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => time_format::format_time(time, now),
        Err(_) => text.to_owned(),
    };
    if let Some(time) = known.run_state.started.and_then(|started| started.started_at()) {
        return format!(
            "{}, {}",
            describe_unfinished(known.is_running),
            time_format::format_time(time, now)
        );
    }
    let state = &known.job.state;
    match &known.history.last {
        Some(record) => {
            let times = match (record.outcome.is_failure(), known.history.failures) {
                (true, count @ 2..) => format!(" {count} times"),
                _ => String::new(),
            };
            format!("{}{times}, {}", describe_outcome(record), at(&record.start))
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
pub(super) fn describe_unfinished(is_running: bool) -> &'static str {
    if is_running { "running" } else { "interrupted" }
}

/// A run as a JSON object.
pub(super) fn run_json(record: &RunRecord) -> Value {
    let usage = &record.usage;
    json!({
        "job": record.job, "name": record.name, "host": record.host, "release": record.release, "trigger": record.trigger,
        "slot": record.slot.as_deref().map(truncate_to_seconds), "retry": record.retry,
        "start": truncate_to_seconds(&record.start), "end": truncate_to_seconds(&record.end), "outcome": record.outcome,
        "status": record.status, "cause": record.cause, "error": record.error, "session": usage.session, "turn": usage.turn,
        "model": usage.model, "iterations": usage.iterations, "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens, "cost_usd": usage.cost_usd, "denied": usage.denied,
        "output": record.output, "delivered": record.delivered,
    })
}

/// A recorded time without fractions of a second.
fn truncate_to_seconds(text: &str) -> String {
    let time = text.parse::<Timestamp>();
    time.map_or_else(|_| text.to_owned(), format_utc)
}

pub(super) fn format_utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A job as a JSON object.
pub(super) fn job_json(ctx: &Context, known: &JobStatus, local: &TimeZone) -> Value {
    let JobStatus { job, history, .. } = known;
    let last = &history.last;
    let (session, is_own) = job.session_key();
    let schedule = match &job.schedule {
        Ok(Schedule::Cron { expression, zone }) => {
            json!({ "kind": "cron", "expr": expression.text(), "tz": zone })
        }
        Ok(Schedule::Every(period)) => json!({ "kind": "every", "seconds": period.as_secs() }),
        Ok(Schedule::At(time)) => json!({ "kind": "at", "time": format_utc(*time) }),
        Err(words) => json!({ "kind": null, "error": words }),
    };
    let times: Vec<String> = known.next_runs.iter().copied().map(format_utc).collect();
    let state = &job.state;
    let mut line = json!({
        "id": job.id, "name": job.name, "enabled": job.enabled, "schedule": schedule,
        "words": timing::describe_schedule(ctx, job, local), "due": known.due_slot.map(format_utc), "overdue": known.overdue_slot.map(format_utc),
        "next": times.first(), "coming": times, "message": job.message,
        "session": session, "own_session": is_own, "created": format_utc(job.created),
        "delete_after_run": job.delete_after_run,
        "delivery": {
            "deliver": job.delivery.deliver, "channel": job.delivery.channel, "to": job.delivery.to,
            "supported": can_deliver(ctx, job),
        },
        "foreign": job.options.is_none(), "altered": job.is_altered(), "crontab": known.line_state.name(),
        "retry": known.retry.map(|retry| json!({ "at": format_utc(retry.at()), "number": retry.number })),
        "last": last.as_ref().map(run_json),
        "failures": history.failures, "failing_since": history.failing_since.map(format_utc),
        "last_success": history.last_success.map(format_utc),
        "cost_usd": last.as_ref().and_then(|last| last.usage.cost_usd),
        "elsewhere": {
            "last_run": state.last_run.map(format_utc), "last_status": state.last_status,
            "last_error": state.last_error,
        },
        "begun": known.run_state.started.and_then(|started| started.started_at()).map(format_utc), "running": known.is_running,
    });
    line["terms"] = match &job.options {
        Some(terms) => json!({
            "grants": terms.grants, "by_model": terms.by_model, "model": terms.model, "when": terms.when,
            "timeout_s": terms.timeout, "max_cost_usd": terms.max_cost, "catch_up": job.catch_up(),
            "after_crash": terms.after_crash, "on_failure": terms.on_failure, "on_success": terms.on_success,
            "notify": terms.notify, "retry": job.retry_policy().limit, "retry_delay_s": job.retry_policy().delay.as_secs(),
            "jitter_s": job.jitter().as_secs(), "quiet": terms.quiet, "sink": terms.sink,
            "config": terms.config, "kind": terms.kind,
        }),
        None => Value::Null,
    };
    // Commands may contain keys, and the output may be passed on.
    line["terms"] = secret::redact_all_json(&line["terms"]).into_owned();
    line
}
