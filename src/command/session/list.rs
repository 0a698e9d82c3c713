//! `session list`: lists the sessions with their age, length and cost.

use crate::cli::session::{SessionListArgs, SessionSort};
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
use std::cmp::Reverse;

/// Maximum columns of a title if the output is not a terminal, and the minimum on a terminal.
const MAX_TITLE_COLUMNS: usize = 60;
const MIN_TITLE_COLUMNS: usize = 10;
const TITLE_HEADING: &str = "TITLE";
/// The columns that a narrow terminal leaves out: the tokens, the messages, and the cost.
const OPTIONAL_COLUMNS: [usize; 3] = [3, 2, 4];

/// Runs `session list`.
pub(super) fn run(
    ctx: &Context,
    store: &SessionStore,
    arguments: &SessionListArgs,
) -> Result<Exit> {
    let SessionListArgs { pattern, all, sort, limit, since, json } = arguments;
    let SessionListing { mut sessions, failures } = session::list(store)?;
    let now = ctx.clock.now();
    let since = since.map(|since| SinceFilter::new(since, &now));
    let keys = NamePattern(pattern.as_deref());
    let lists_temporary = *all || *json || pattern.is_some();
    sessions.retain(|session| {
        let day = || session.last_used.to_zoned(now.time_zone().clone()).date();
        (lists_temporary || !session::is_temporary(&session.key))
            && keys.matches(&session.key)
            && since.is_none_or(|since| since.includes(session.last_used, day()))
    });
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
    let tokens = |session: &SessionSummary| Reverse(session.stats.as_ref().map(count_tokens));
    let cost =
        |session: &SessionSummary| session.stats.and_then(|stats| stats.cost).unwrap_or(-1.0);
    match sort {
        SessionSort::Newest => {}
        SessionSort::Oldest => sessions.reverse(),
        SessionSort::Messages => sessions.sort_by_key(|session| Reverse(session.messages)),
        SessionSort::Tokens => sessions.sort_by_key(tokens),
        SessionSort::Cost => sessions.sort_by(|left, right| cost(right).total_cmp(&cost(left))),
        SessionSort::Key => sessions.sort_by(|left, right| left.key.cmp(&right.key)),
    }
}

fn count_tokens(stats: &SessionStats) -> u64 {
    stats.input.saturating_add(stats.output)
}

pub(super) fn session_json(clock: &Clock, session: &SessionSummary) -> Value {
    json!({
        "key": session.key, "messages": session.messages, "created": clock.to_rfc3339(&session.created),
        "updated": clock.to_rfc3339(&session.updated), "used": session.last_used.to_string(),
        "title": session.title, "first_words": session.first_words, "fork_of": session.fork_of,
        "bytes": session.bytes, "path": session.path.display().to_string(), "read_only": session.is_newer,
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
        (TITLE_HEADING, Side::Left),
    ];
    let row = |session: &SessionSummary, title_columns: usize| {
        let messages = session.messages.map_or_else(|| "?".into(), |count| count.to_string());
        let title = match (&session.title, &session.fork_of) {
            (Some(title), _) => title.clone(),
            (None, Some(origin)) => format!("fork of {origin}: {}", session.first_words),
            (None, None) => session.first_words.clone(),
        };
        let tokens = session.stats.as_ref().map(|stats| count_tokens(stats).to_string());
        let cost = session.stats.and_then(|stats| stats.cost);
        let cost = cost.map(|cost| format!("${}", format_dollars(cost)));
        vec![
            single_line(&session.key),
            format_age(session.last_used, now),
            messages,
            tokens.unwrap_or_default(),
            cost.unwrap_or_default(),
            truncate(&single_line(&title), Some(title_columns)),
        ]
    };
    let format_lines = |title_columns: usize, width: Option<usize>| {
        let rows: Vec<Vec<String>> =
            sessions.iter().map(|session| row(session, title_columns)).collect();
        align_to_width(&columns, &rows, width, &OPTIONAL_COLUMNS)
    };
    let title_columns = match width {
        None => MAX_TITLE_COLUMNS,
        // The titles take the space that the other columns leave. In a narrow terminal, columns with numbers are left out until titles have
        // the minimum. Keys are never cut, since the user needs to type them.
        Some(width) => {
            let lines = format_lines(0, Some(width.saturating_sub(MIN_TITLE_COLUMNS)));
            let columns = lines.iter().map(|line| measure_text_width(line)).max().unwrap_or(0);
            let other_columns = columns.saturating_sub(TITLE_HEADING.len());
            width.saturating_sub(other_columns).max(MIN_TITLE_COLUMNS)
        }
    };
    format_lines(title_columns, width).iter().map(|line| format!("{line}\n")).collect()
}
