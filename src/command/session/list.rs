//! `session list`: lists the sessions with their age, length and cost.

use super::keys::{Keys, single_line};
use crate::cli::session::{List as Arguments, Sort};
use crate::command::arguments::since_filter;
use crate::error::{Exit, exit_of};
use crate::format::dollars;
use crate::ops::context::Context;
use crate::report::columns::{Side, aligned, clipped};
use crate::session::{self, Listing, Place, Stats, Summary};
use anyhow::Result;
use console::measure_text_width;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::{Ordering, Reverse};

/// Maximum columns of the first words if the output is not a terminal, and the minimum on a terminal.
const WORDS: usize = 60;
const FEWEST: usize = 10;
/// The heading of that column.
const HEAD: &str = "FIRST WORDS";

/// Runs `session list`.
pub(super) fn run(ctx: &Context, place: &Place, arguments: &Arguments) -> Result<Exit> {
    let Arguments {
        pattern,
        sort,
        limit,
        since,
        json,
    } = arguments;
    let Listing {
        mut sessions,
        failures,
    } = session::list(place)?;
    let now = ctx.clock.now();
    let start = since.map(|since| since_filter(since, &now));
    let keys = Keys(pattern.as_deref());
    let is_wanted = |session: &Summary| {
        let day = || session.used.to_zoned(now.time_zone().clone()).date();
        keys.have(&session.key) && start.is_none_or(|start| start.includes(session.used, day()))
    };
    sessions.retain(is_wanted);
    sort_by(*sort, &mut sessions);
    sessions.truncate(limit.unwrap_or(usize::MAX));
    let width = ctx.terminal.width();
    match json {
        true => {
            let lines: String = sessions.iter().map(line).collect();
            ctx.terminal.print_json_text(&lines)?;
        }
        false => ctx
            .terminal
            .print(&table(&sessions, now.timestamp(), width))?,
    }
    Ok(tell(ctx, &failures))
}

/// Reports the files that could not be read; the others are listed anyway.
pub(super) fn tell(ctx: &Context, failures: &[anyhow::Error]) -> Exit {
    for failure in failures {
        ctx.terminal.complain(&format!("nanobot: {failure:#}"));
    }
    failures.first().map_or(Exit::Answered, exit_of)
}

/// Sorts the sessions, which arrive newest first. Unknown values come last.
fn sort_by(sort: Sort, sessions: &mut [Summary]) {
    let tokens = |session: &Summary| Reverse(session.stats.as_ref().map(tokens));
    let most = |one: f64, other: f64| -> Ordering { other.total_cmp(&one) };
    let cost = |session: &Summary| session.stats.and_then(|stats| stats.cost).unwrap_or(-1.0);
    match sort {
        Sort::Newest => {}
        Sort::Oldest => sessions.reverse(),
        Sort::Messages => sessions.sort_by_key(|session| Reverse(session.messages)),
        Sort::Tokens => sessions.sort_by_key(tokens),
        Sort::Cost => sessions.sort_by(|one, other| most(cost(one), cost(other))),
        Sort::Key => sessions.sort_by(|one, other| one.key.cmp(&other.key)),
    }
}

fn tokens(stats: &Stats) -> u64 {
    stats.input.saturating_add(stats.output)
}

fn line(session: &Summary) -> String {
    let Summary {
        key,
        path,
        messages,
        created,
        updated,
        used,
        bytes,
        stats,
        first_words,
        is_newer,
    } = session;
    let mut line = json!({
        "key": key, "messages": messages, "created": created, "updated": updated, "used": used.to_string(),
        "first_words": first_words, "bytes": bytes, "path": path, "read_only": is_newer,
    });
    line["statistics"] = statistics(stats.as_ref());
    format!("{line}\n")
}

/// The totals of a session's turns as JSON; `null` if there are no statistics.
pub(super) fn statistics(stats: Option<&Stats>) -> Value {
    let Some(stats) = stats else {
        return Value::Null;
    };
    let Stats {
        turns,
        steps,
        input,
        output,
        agreed,
        succeeded,
        failed,
        rejected,
        context,
        speed,
        cost,
    } = stats;
    json!({
        "turns": turns, "steps": steps, "input": input, "output": output,
        "calls": { "agreed": agreed, "succeeded": succeeded, "failed": failed, "rejected": rejected },
        "context": context, "tokens_per_second": speed, "cost_usd": cost,
    })
}

/// Formats the sessions as columns for a terminal of `width`.
pub(super) fn table(sessions: &[Summary], now: Timestamp, width: Option<usize>) -> String {
    let columns = [
        ("SESSION", Side::Left),
        ("AGE", Side::Right),
        ("MESSAGES", Side::Right),
        ("TOKENS", Side::Right),
        ("COST", Side::Right),
        (HEAD, Side::Left),
    ];
    let row = |session: &Summary, room: usize| {
        let messages = session
            .messages
            .map_or_else(|| "?".into(), |count| count.to_string());
        let of_stats = |part: fn(&Stats) -> String| session.stats.as_ref().map(part);
        let tokens = of_stats(|stats| tokens(stats).to_string());
        let cost = session.stats.and_then(|stats| stats.cost);
        let cost = cost.map(|cost| format!("${}", dollars(cost)));
        vec![
            single_line(&session.key),
            age(session.used, now),
            messages,
            tokens.unwrap_or_default(),
            cost.unwrap_or_default(),
            clipped(&single_line(&session.first_words), Some(room)),
        ]
    };
    let lines = |room: usize| {
        let rows: Vec<Vec<String>> = sessions.iter().map(|session| row(session, room)).collect();
        aligned(&columns, &rows)
    };
    let room = match width {
        None => WORDS,
        // The first words take the columns that the others leave. Keys are never cut, since the user needs to type
        // them.
        Some(width) => {
            let bare = lines(0);
            let used = bare.iter().map(|line| measure_text_width(line)).max();
            let others = used.unwrap_or(0).saturating_sub(HEAD.len());
            width.saturating_sub(others).max(FEWEST)
        }
    };
    lines(room).iter().map(|line| format!("{line}\n")).collect()
}

/// An age as a single number with its unit.
fn age(used: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(used).as_secs();
    match (seconds / 60, seconds / 3600, seconds / 86_400) {
        (..=0, _, _) => "now".into(),
        (minutes, ..=0, _) => format!("{minutes}m"),
        (_, hours, ..=0) => format!("{hours}h"),
        (_, _, days @ ..730) => format!("{days}d"),
        (_, _, days) => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_are_one_number() {
        let check = |used: &str, expect: &str| {
            let now = "2026-03-01T12:00:00Z".parse().unwrap();
            assert_eq!(age(used.parse().unwrap(), now), expect, "{used}");
        };
        check("2026-03-01T12:00:10Z", "now");
        check("2026-03-01T11:59:01Z", "now");
        check("2026-03-01T11:59:00Z", "1m");
        check("2026-03-01T10:00:01Z", "1h");
        check("2026-02-28T12:00:00Z", "1d");
        check("2024-03-02T12:00:00Z", "729d");
        check("2024-03-01T12:00:00Z", "2y");
    }
}
