//! `session list`: lists the sessions with their age, length and cost.

use crate::cli::session::{SessionListArgs as Arguments, SessionSort};
use crate::command::name_pattern::{NamePattern, single_line};
use crate::ops::context::Context;
use crate::ops::since::SinceFilter;
use anyhow::Result;
use console::measure_text_width;
use jiff::Timestamp;
use nanobot_agent::report::columns::{Side, align_to_width, truncate};
use nanobot_agent::report::short_text::format_age;
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::format::format_dollars;
use nanobot_os::clock::Clock;
use nanobot_store::session::{self, SessionListing, SessionStats, SessionStore, SessionSummary};
use serde_json::{Value, json};
use std::cmp::{Ordering, Reverse};

/// Maximum columns of the first words if the output is not a terminal, and the minimum on a terminal.
const MAX_SUMMARY_COLUMNS: usize = 60;
const MIN_SUMMARY_COLUMNS: usize = 10;
/// The heading of that column.
const SUMMARY_HEADING: &str = "TITLE";

/// Runs `session list`.
pub(super) fn run(ctx: &Context, place: &SessionStore, arguments: &Arguments) -> Result<Exit> {
    let Arguments { pattern, sort, limit, since, json } = arguments;
    let SessionListing { mut sessions, failures } = session::list(place)?;
    let now = ctx.clock.now();
    let start = since.map(|since| SinceFilter::new(since, &now));
    let keys = NamePattern(pattern.as_deref());
    let is_wanted = |session: &SessionSummary| {
        let day = || session.last_used.to_zoned(now.time_zone().clone()).date();
        keys.matches(&session.key)
            && start.is_none_or(|start| start.includes(session.last_used, day()))
    };
    sessions.retain(is_wanted);
    sort_by(*sort, &mut sessions);
    sessions.truncate(limit.unwrap_or(usize::MAX));
    let width = ctx.terminal.stdout_width();
    if *json {
        let lines = sessions.iter().map(|session| session_json(&ctx.clock, session));
        ctx.terminal.print_json_lines(lines)?;
    } else {
        ctx.terminal.print(&table(&sessions, now.timestamp(), width))?;
        if sessions.is_empty() {
            ctx.explain_empty("no session is stored that matches");
        }
    }
    Ok(report_failures(ctx, &failures))
}

/// Reports the files that could not be read; the others are listed anyway.
pub(super) fn report_failures(ctx: &Context, failures: &[anyhow::Error]) -> Exit {
    for failure in failures {
        ctx.terminal.eprint(&format!("nanobot: {failure:#}"));
    }
    failures.first().map_or(Exit::Answered, exit_for)
}

/// Sorts the sessions, which arrive newest first. Unknown values come last.
fn sort_by(sort: SessionSort, sessions: &mut [SessionSummary]) {
    let tokens = |session: &SessionSummary| Reverse(session.stats.as_ref().map(tokens));
    let most = |one: f64, other: f64| -> Ordering { other.total_cmp(&one) };
    let cost =
        |session: &SessionSummary| session.stats.and_then(|stats| stats.cost).unwrap_or(-1.0);
    match sort {
        SessionSort::Newest => {}
        SessionSort::Oldest => sessions.reverse(),
        SessionSort::Messages => sessions.sort_by_key(|session| Reverse(session.messages)),
        SessionSort::Tokens => sessions.sort_by_key(tokens),
        SessionSort::Cost => sessions.sort_by(|one, other| most(cost(one), cost(other))),
        SessionSort::Key => sessions.sort_by(|one, other| one.key.cmp(&other.key)),
    }
}

fn tokens(stats: &SessionStats) -> u64 {
    stats.input.saturating_add(stats.output)
}

/// A session as JSON.
pub(super) fn session_json(clock: &Clock, session: &SessionSummary) -> Value {
    json!({
        "key": session.key, "messages": session.messages, "created": clock.to_rfc3339(&session.created),
        "updated": clock.to_rfc3339(&session.updated), "used": session.last_used.to_string(),
        "title": session.title, "first_words": session.first_words, "fork_of": session.fork_of,
        "bytes": session.bytes, "path": session.path, "read_only": session.is_newer,
        "statistics": session.stats.as_ref().map(statistics_json),
    })
}

/// The totals of a session's turns as JSON.
pub(super) fn statistics_json(stats: &SessionStats) -> Value {
    json!({
        "turns": stats.turns, "steps": stats.steps, "input": stats.input, "output": stats.output,
        "calls": {
            "agreed": stats.allowed, "succeeded": stats.succeeded, "failed": stats.failed, "rejected": stats.denied,
        },
        "context": stats.context, "tokens_per_second": stats.speed, "cost_usd": stats.cost,
    })
}

/// Formats the sessions as columns for a terminal of `width`.
pub(super) fn table(sessions: &[SessionSummary], now: Timestamp, width: Option<usize>) -> String {
    let columns = [
        ("SESSION", Side::Left),
        ("AGE", Side::Right),
        ("MESSAGES", Side::Right),
        ("TOKENS", Side::Right),
        ("COST", Side::Right),
        (SUMMARY_HEADING, Side::Left),
    ];
    let row = |session: &SessionSummary, room: usize| {
        let messages = session.messages.map_or_else(|| "?".into(), |count| count.to_string());
        let of_stats = |part: fn(&SessionStats) -> String| session.stats.as_ref().map(part);
        let title = session.title.as_ref().unwrap_or(&session.first_words);
        let title = match &session.fork_of {
            Some(of) => format!("fork of {of}: {title}"),
            None => title.clone(),
        };
        let tokens = of_stats(|stats| tokens(stats).to_string());
        let cost = session.stats.and_then(|stats| stats.cost);
        let cost = cost.map(|cost| format!("${}", format_dollars(cost)));
        vec![
            single_line(&session.key),
            format_age(session.last_used, now),
            messages,
            tokens.unwrap_or_default(),
            cost.unwrap_or_default(),
            truncate(&single_line(&title), Some(room)),
        ]
    };
    let lines = |room: usize| {
        let rows: Vec<Vec<String>> = sessions.iter().map(|session| row(session, room)).collect();
        // In a narrow terminal the title counts more than the numbers.
        let others = width.map(|width| width.saturating_sub(MIN_SUMMARY_COLUMNS));
        let width = if room == 0 { others } else { width };
        align_to_width(&columns, &rows, width, &[3, 2, 4])
    };
    let room = match width {
        None => MAX_SUMMARY_COLUMNS,
        // The titles take the columns that the others leave. Keys are never cut, since the user needs to type
        // them.
        Some(width) => {
            let bare = lines(0);
            let used = bare.iter().map(|line| measure_text_width(line)).max();
            let others = used.unwrap_or(0).saturating_sub(SUMMARY_HEADING.len());
            width.saturating_sub(others).max(MIN_SUMMARY_COLUMNS)
        }
    };
    lines(room).iter().map(|line| format!("{line}\n")).collect()
}
