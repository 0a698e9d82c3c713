//! `cron show`: prints the details of a job.

use super::list::{describe_last_run, describe_retry, job_json};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_status::LineState;
use crate::ops::jobs::delivery;
use crate::ops::jobs::job_grants;
use crate::ops::jobs::job_notices::unsupported_channel_notice;
use crate::ops::jobs::job_status::{self, JobDetails, JobStatus};
use crate::ops::jobs::resolved_job;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp, Zoned};
use nanobot_base::format::format_dollars;
use nanobot_cron::job::{AnswerDestination, Job, JobKind, JobOptions, NotifyPolicy};
use nanobot_cron::run_record::{RunRecord, RunUsage};
use nanobot_cron::schedule::CatchUpPolicy;
use nanobot_os::secret;
use nanobot_os::terminal::sanitize;
use serde_json::json;

/// The rows of a policy that describe a job's permissions; the other rows are the same for all jobs.
const PERMISSION_ROWS: &[&str] = &[
    "profile",
    "directory",
    "change",
    "read",
    "sandbox",
    "network",
    "tools",
    "permission",
    "allow",
    "deny",
];

/// Runs `cron show` for the job with the id or name `job`.
pub(super) fn run(ctx: &Context, job: &str, as_json: bool) -> Result<()> {
    let details = JobDetails::find(ctx, job)?;
    let JobDetails { status, lines, followers, .. } = &details;
    let permissions = permission_rows(ctx, &status.job);
    if as_json {
        let mut line = job_json(ctx, status, details.now.time_zone());
        let permissions =
            permissions.iter().map(|(name, value)| json!({ "what": name, "value": value }));
        line["lines"] = json!(lines);
        line["followers"] =
            followers.iter().map(|job| json!({ "id": job.id, "name": job.name })).collect();
        line["may"] = permissions.collect();
        return ctx.terminal.print_json(&line);
    }
    let mut rows = job_rows(ctx, status, &details.now);
    rows.extend(
        followers
            .iter()
            .map(|job| ("then", format!("{} ({})", time_format::to_one_line(&job.name), job.id))),
    );
    rows.extend(permissions);
    match lines.as_slice() {
        [] => rows.push(("crontab", "no line".into())),
        lines => rows.extend(lines.iter().map(|line| ("crontab", line.clone()))),
    }
    if let Some(records) = details.records()? {
        rows.extend(run_rows(ctx, status, &records, &details.now));
    }
    print_rows(ctx, &rows)?;
    let notices =
        [job_status::tampered_notice(&status.job), unsupported_channel_notice(ctx, &status.job)];
    notices.iter().flatten().for_each(|notice| ctx.notice(notice));
    Ok(())
}

/// Prints names, each with its value, which may have several lines.
pub(super) fn print_rows(ctx: &Context, rows: &[(&str, String)]) -> Result<()> {
    let lines = rows.iter().map(|(name, value)| {
        let value = sanitize(value).replace('\n', &format!("\n{:13}", ""));
        format!("{name:<11}  {value}\n")
    });
    ctx.terminal.print(&lines.collect::<String>())
}

/// The rows about the job and how it runs.
fn job_rows(ctx: &Context, status: &JobStatus, now: &Zoned) -> Vec<(&'static str, String)> {
    let job = &status.job;
    let mut rows = vec![
        ("job", format!("{} ({})", time_format::to_one_line(&job.name), job.id)),
        ("state", describe_state(status)),
        ("schedule", timing::describe_schedule(ctx, job, now.time_zone())),
    ];
    if status.due_slot.is_some() {
        rows.push(("due", "now".into()));
    }
    if !status.next_runs.is_empty() {
        rows.push(("next", time_format::format_times(&status.next_runs, now)));
    }
    rows.extend(start_rows(status));
    rows.push((
        "missed",
        match job.catch_up() {
            CatchUpPolicy::Once => "run once, later".into(),
            CatchUpPolicy::None => "skipped".into(),
        },
    ));
    if !job.message.is_empty() {
        rows.push(("message", job.message.clone()));
    }
    if job.kind() != JobKind::Command {
        let session = job.session_key();
        rows.push((
            "session",
            if job.has_own_session() {
                format!("{session}, its own; only the last run is sent")
            } else {
                session
            },
        ));
    }
    rows.push(("answer", describe_delivery(ctx, job)));
    let default_options = JobOptions::default();
    let options = job.options.as_ref().unwrap_or(&default_options);
    let mut add =
        |name: &'static str, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("model", options.model.clone());
    add("fallbacks", options.fallbacks.as_ref().map(|names| names.join(", ")));
    let redact = |command: &String| secret::redact_all(command).into_owned();
    add("command", options.command.as_ref().map(redact));
    let condition = options.when.as_ref().map(redact);
    add(
        "only if",
        condition.map(|command| {
            if options.when_output { format!("`{command}` prints something") } else { command }
        }),
    );
    add("cache", options.hour_cache.then(|| "1 h".to_owned()));
    add("skills", (!options.skills.is_empty()).then(|| options.skills.join(", ")));
    add("until", options.until.as_ref().map(redact));
    add("max rounds", options.max_rounds.map(|count| count.to_string()));
    add(
        "timeout",
        Some(match job.deadline_secs() {
            0 => "none".into(),
            seconds => format_seconds(seconds),
        }),
    );
    add("max cost", options.max_cost.map(|cost| format!("${}", format_dollars(cost))));
    add("on failure", options.on_failure.as_ref().map(redact));
    add("on success", options.on_success.as_ref().map(redact));
    add("ping", options.ping.as_ref().map(redact));
    add("notify", (options.notify == NotifyPolicy::Change).then(|| "only of changes".into()));
    add("config", options.config.as_ref().map(|path| path.display().to_string()));
    rows
}

/// The rows about retries and delays.
fn start_rows(status: &JobStatus) -> Vec<(&'static str, String)> {
    let job = &status.job;
    let mut rows = Vec::new();
    if let Some(retry) = &status.retry {
        rows.push(("waiting", format!("for {}", describe_retry(job, retry))));
    }
    let policy = job.retry_policy();
    if policy.limit > 0 {
        let statuses = job.options.as_ref().map_or(&[][..], |options| &options.retry_on);
        let statuses: Vec<String> = statuses.iter().map(u8::to_string).collect();
        rows.push((
            "retry",
            format!(
                "{}, each after {}{}",
                match policy.limit {
                    1 => "once".to_owned(),
                    limit => format!("at most {limit} times"),
                },
                format_seconds(policy.delay.as_secs()),
                match statuses.as_slice() {
                    [] => String::new(),
                    statuses => format!(", also after status {}", statuses.join(", ")),
                }
            ),
        ));
    }
    if !job.jitter().is_zero() {
        let delay = timing::start_delay(job).as_secs();
        rows.push((
            "jitter",
            format!(
                "less than {}; on this machine {}",
                format_seconds(job.jitter().as_secs()),
                format_seconds(delay)
            ),
        ));
    }
    rows
}

fn format_seconds(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    time_format::format_duration(SignedDuration::from_secs(seconds))
}

fn describe_state(status: &JobStatus) -> String {
    let job = &status.job;
    let mut states = vec![if job.enabled { "enabled" } else { "disabled" }];
    states.extend(match status.line_state {
        LineState::NotTakenOver => Some("from another program, and not in the crontab"),
        _ if job.options.is_none() => Some("from another program"),
        LineState::Missing => Some("not in the crontab"),
        LineState::Stale => Some("outdated in the crontab"),
        _ => None,
    });
    if job.options.as_ref().is_some_and(|options| options.by_model) {
        states.push("created by a model");
    }
    if job.delete_after_run {
        states.push("removed after its run");
    }
    let problem = job.predecessor_problem();
    states.extend(problem.as_deref());
    states.join(", ")
}

/// The destination of the job's answer.
pub(super) fn describe_delivery(ctx: &Context, job: &Job) -> String {
    match delivery::find_destination(ctx, job) {
        Some(AnswerDestination::Chat { channel, to }) => format!("sent to {channel} {to}"),
        Some(AnswerDestination::File(path)) => {
            format!("appended to `{}`", ctx.paths.display(&path))
        }
        Some(AnswerDestination::Command(command)) => {
            format!("piped into `{}`", secret::redact_all(&command))
        }
        None if job.options.as_ref().is_some_and(|options| options.quiet) => {
            "saved, not printed".into()
        }
        None if ctx.settings().is_ok_and(|settings| settings.notify_target.is_some()) => {
            "sent to `notify.target` of the config".into()
        }
        None => match (&job.delivery.channel, &job.delivery.to) {
            (Some(channel), Some(to)) => format!("printed; not sent to {channel} {to}"),
            _ => "printed".into(),
        },
    }
}

/// The rows about the job's permissions.
pub(super) fn permission_rows(ctx: &Context, job: &Job) -> Vec<(&'static str, String)> {
    if job.kind() == JobKind::Command {
        return Vec::new();
    }
    let options = job.options.clone().unwrap_or_default();
    let resolved = match resolved_job::resolve(ctx, &options) {
        Ok(resolved) => resolved,
        Err(error) => return vec![("may", format!("nothing: {error:#}"))],
    };
    let flags = job_grants::as_flags(&resolved.grants);
    let mut rows = Vec::new();
    if !flags.is_empty() {
        rows.push(("flags", flags));
    }
    let lines = resolved.policy.describe_for_people(&|path| ctx.paths.display(path));
    let permissions = lines.into_iter().filter(|(name, _)| PERMISSION_ROWS.contains(name));
    rows.extend(permissions.map(|(name, value)| match name {
        "profile" => (name, format!("{value}: {}", resolved.profile.description)),
        _ => (name, value),
    }));
    rows
}

/// The tokens and the cost of a run.
pub(super) fn describe_usage(usage: &RunUsage) -> String {
    let tokens = usage.input_tokens + usage.output_tokens;
    match usage.cost_usd {
        Some(cost) => format!("{tokens} tokens, ${}", format_dollars(cost)),
        None if usage.has_unknown_cost() => format!("{tokens} tokens, cost unknown"),
        None => format!("{tokens} tokens"),
    }
}

/// The rows about past runs.
fn run_rows(
    ctx: &Context,
    status: &JobStatus,
    records: &[RunRecord],
    now: &Zoned,
) -> Vec<(&'static str, String)> {
    let last_run = describe_last_run(status, now);
    if last_run.is_empty() {
        return vec![("last", "never run".into())];
    }
    let mut rows = vec![("last", last_run)];
    let Some(record) = records.last() else {
        return rows;
    };
    // If another run has begun since, the record is not the one of the last run.
    if status.run_state.started.is_none()
        && let Some(error) = &record.error
    {
        rows.push(("cause", error.clone()));
    }
    let time = |text: &str| text.parse::<Timestamp>().ok();
    if let (Some(start), Some(end)) = (time(&record.start), time(&record.end)) {
        let duration = time_format::format_duration(end.duration_since(start));
        rows.push(("took", format!("{duration}, {}", describe_usage(&record.usage))));
        if !record.usage.denied.is_empty() {
            rows.push(("denied", record.usage.denied.join(", ")));
        }
    }
    if status.history.failures > 0 {
        let success = match status.history.last_success {
            Some(time) => time_format::format_time(time, now),
            None => "never".into(),
        };
        rows.push(("success", success));
    }
    if let Some(path) = &record.output {
        rows.push(("output", ctx.paths.display(path)));
    }
    let run_count = records.iter().filter(|record| record.outcome.was_attempted()).count();
    let cost =
        records.iter().filter_map(|record| record.usage.cost_usd).reduce(|sum, cost| sum + cost);
    let is_partial = records.iter().any(|record| record.usage.has_unknown_cost());
    let at_least = if is_partial { "at least " } else { "" };
    let cost = cost.map(|cost| format!(", {at_least}${} in total", format_dollars(cost)));
    rows.push(("runs", format!("{run_count}{}", cost.unwrap_or_default())));
    rows
}
