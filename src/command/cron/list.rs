//! `cron list`: lists the jobs with their next and last run.

use crate::cli::cron::List;
use crate::cron::record::{Outcome, Record, Spent};
use crate::cron::schedule::Schedule;
use crate::error::Exit;
use crate::format::dollars;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_status::LineState;
use crate::ops::jobs::job_notices::unsupported_channel;
use crate::ops::jobs::job_status::{self, JobList, JobStatus};
use crate::ops::jobs::time_format;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::report::columns::{Side, aligned, clipped};
use crate::sys::secret;
use crate::sys::terminal::harmless;
use anyhow::Result;
use jiff::{Timestamp, Zoned};
use serde_json::{Value, json};

/// Maximum columns of names and schedules.
const WIDEST: usize = 40;

/// Runs `cron list`.
pub(super) fn run(ctx: &Context, arguments: &List) -> Result<Exit> {
    let List { all, json } = arguments;
    let JobList {
        jobs: mut known,
        problems,
    } = job_status::list(ctx)?;
    let hidden = match all {
        true => 0,
        false => {
            let is_hidden = |known: &mut JobStatus| !known.job.enabled && !known.is_lost();
            known.extract_if(.., is_hidden).count()
        }
    };
    // Jobs that never run come last.
    known.sort_by_key(|known| {
        let next = known.due.or(known.next.first().copied());
        next.unwrap_or(Timestamp::MAX)
    });
    if *json {
        for known in &known {
            ctx.terminal.print_json(&line(ctx, known))?;
        }
        return Ok(Exit::Answered);
    }
    if known.is_empty() {
        ctx.terminal.print("No scheduled jobs.\n")?;
    } else {
        let now = time_zone::now(ctx);
        ctx.terminal.print(&table(ctx, &known, &now))?;
    }
    if hidden > 0 {
        let (jobs, show) = match hidden {
            1 => ("1 job is", "shows it"),
            _ => ("some jobs are", "shows them"),
        };
        ctx.notice(&format!("{jobs} disabled; `--all` {show}"));
    }
    problems.iter().for_each(|words| ctx.notice(words));
    for known in &known {
        let notices = [
            job_status::tampered_notice(&known.job),
            unsupported_channel(&known.job),
        ];
        for words in notices.into_iter().flatten() {
            ctx.notice(&words);
        }
    }
    Ok(Exit::Answered)
}

fn table(ctx: &Context, known: &[JobStatus], now: &Zoned) -> String {
    let columns = [
        ("ID", Side::Left),
        ("NAME", Side::Left),
        ("SCHEDULE", Side::Left),
        ("NEXT", Side::Left),
        ("LAST", Side::Left),
        ("COST", Side::Right),
    ];
    let row = |known: &JobStatus| {
        let cost = known.last.as_ref().and_then(|last| last.spent.cost_usd);
        let cost = cost.map(|cost| format!("${}", dollars(cost)));
        vec![
            cell(&known.job.id),
            clipped(&cell(&known.job.name), Some(WIDEST)),
            clipped(
                &cell(&timing::describe_schedule(ctx, &known.job)),
                Some(WIDEST),
            ),
            cell(&next(known, now)),
            cell(&last(known, now)),
            cost.unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = known.iter().map(row).collect();
    aligned(&columns, &rows)
        .iter()
        .map(|line| format!("{}\n", clipped(line, ctx.terminal.width())))
        .collect()
}

/// Formats text as one line without control characters.
pub(super) fn cell(text: &str) -> String {
    harmless(&time_format::one_line(text))
}

/// The next run, for people.
pub(super) fn next(known: &JobStatus, now: &Zoned) -> String {
    let JobStatus {
        job,
        line_state,
        due,
        next,
        ..
    } = known;
    match (due.or(next.first().copied()), &job.schedule) {
        _ if known.is_lost() => "never: failed".into(),
        _ if !job.enabled => "disabled".into(),
        _ if *line_state == LineState::Foreign => "not in the crontab".into(),
        _ if due.is_some() => "now".into(),
        (Some(time), _) => time_format::moment(time, now),
        (None, Ok(Schedule::At(_))) => "past".into(),
        (None, _) => "never".into(),
    }
}

/// The last run and its outcome, for people.
pub(super) fn last(known: &JobStatus, now: &Zoned) -> String {
    let at = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => time_format::moment(time, now),
        Err(_) => text.to_owned(),
    };
    if let Some(time) = known.stamps.started.and_then(|started| started.at()) {
        return format!(
            "{}, {}",
            begun(known.is_running),
            time_format::moment(time, now)
        );
    }
    let state = &known.job.state;
    match &known.last {
        Some(record) => format!("{}, {}", outcome(record), at(&record.start)),
        None => match (&state.last_status, state.last_run) {
            (Some(status), Some(time)) => {
                format!("{status} elsewhere, {}", time_format::moment(time, now))
            }
            _ => String::new(),
        },
    }
}

/// The outcome of a run, in a word or two.
pub(super) fn outcome(record: &Record) -> String {
    match record.outcome {
        Outcome::Failed | Outcome::Busy => {
            format!("{} ({})", record.outcome.words(), record.status)
        }
        outcome => outcome.words().to_owned(),
    }
}

/// The state of a run that has begun and left no record.
pub(super) fn begun(is_running: bool) -> &'static str {
    match is_running {
        true => "running",
        false => "interrupted",
    }
}

/// A run as a JSON object.
pub(super) fn run_line(record: &Record) -> Value {
    let Record {
        version: _,
        job,
        name,
        trigger,
        slot,
        start,
        end,
        outcome,
        status,
        cause,
        error,
        spent,
        output,
        delivered,
    } = record;
    let Spent {
        session,
        turn,
        model,
        iterations,
        input_tokens,
        output_tokens,
        cost_usd,
        denied,
    } = spent;
    json!({
        "job": job, "name": name, "trigger": trigger, "slot": slot.as_deref().map(to_the_second),
        "start": to_the_second(start), "end": to_the_second(end), "outcome": outcome, "status": status, "cause": cause,
        "error": error, "session": session, "turn": turn, "model": model, "iterations": iterations,
        "input_tokens": input_tokens, "output_tokens": output_tokens, "cost_usd": cost_usd, "denied": denied,
        "output": output, "delivered": delivered,
    })
}

/// A recorded time without fractions of a second.
fn to_the_second(text: &str) -> String {
    let time = text.parse::<Timestamp>();
    time.map_or_else(|_| text.to_owned(), second)
}

fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A job as a JSON object.
pub(super) fn line(ctx: &Context, known: &JobStatus) -> Value {
    let JobStatus {
        job,
        line_state,
        last,
        stamps,
        is_running,
        due,
        next,
    } = known;
    let (session, is_own) = job.conversation();
    let schedule = match &job.schedule {
        Ok(Schedule::Cron { expression, zone }) => {
            json!({ "kind": "cron", "expr": expression.text(), "tz": zone })
        }
        Ok(Schedule::Every(period)) => json!({ "kind": "every", "seconds": period.as_secs() }),
        Ok(Schedule::At(time)) => json!({ "kind": "at", "time": second(*time) }),
        Err(words) => json!({ "kind": null, "error": words }),
    };
    let times: Vec<String> = next.iter().copied().map(second).collect();
    let state = &job.state;
    let mut line = json!({
        "id": job.id, "name": job.name, "enabled": job.enabled, "schedule": schedule,
        "words": timing::describe_schedule(ctx, job), "due": due.map(second), "next": times.first(), "coming": times, "message": job.message,
        "session": session, "own_session": is_own, "created": second(job.created),
        "delete_after_run": job.delete_after_run,
        "delivery": {
            "deliver": job.delivery.deliver, "channel": job.delivery.channel, "to": job.delivery.to,
            "supported": unsupported_channel(job).is_none(),
        },
        "foreign": job.terms.is_none(), "altered": job.is_altered(), "crontab": line_state.name(),
        "last": last.as_ref().map(run_line),
        "cost_usd": last.as_ref().and_then(|last| last.spent.cost_usd),
        "elsewhere": {
            "last_run": state.last_run.map(second), "last_status": state.last_status,
            "last_error": state.last_error,
        },
        "begun": stamps.started.and_then(|started| started.at()).map(second), "running": is_running,
    });
    line["terms"] = match &job.terms {
        Some(terms) => json!({
            "grants": terms.grants, "by_model": terms.by_model, "model": terms.model, "when": terms.when,
            "timeout_s": terms.timeout, "max_cost_usd": terms.max_cost, "catch_up": job.catch_up(),
            "after_crash": terms.after_crash, "on_failure": terms.on_failure, "quiet": terms.quiet, "sink": terms.sink,
            "config": terms.config, "kind": terms.kind,
        }),
        None => Value::Null,
    };
    // Commands may contain keys, and the output may be passed on.
    line["terms"] = secret::hide_json(&line["terms"]).into_owned();
    line
}
