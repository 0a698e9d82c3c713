//! `session show`: prints a session's messages and totals.

use super::transcript::{Transcript, day_and_time, message_json};
use crate::cli::session::SessionShowArgs as Arguments;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use console::Style;
use nanobot_base::format::format_dollars;
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::StdoutWriter;
use nanobot_store::session::{self, SessionEntry, SessionStats, SessionStore, SessionSummary};
use std::io::{BufRead, BufReader, Read};

/// Runs `session show`.
pub(super) fn run(ctx: &Context, place: &SessionStore, arguments: &Arguments) -> Result<()> {
    let Arguments { key, last, full, json, raw } = arguments;
    if *raw {
        return print_raw(ctx, place, key);
    }
    let mut page = StdoutWriter::for_pager(ctx.terminal);
    let mut transcript = Transcript::new(*full);
    if !json {
        let summary = session::summarize(place, key)?;
        let path = ctx.paths.display(&summary.path);
        page.write_styled(&header(&summary, &path), &Style::new().dim())?;
    }
    let entries: Box<dyn Iterator<Item = Result<SessionEntry>>> = match last {
        None => Box::new(session::read_entries(place, key)?),
        Some(count) => Box::new(session::read_last_entries(place, key, *count)?),
    };
    for entry in entries {
        match entry? {
            SessionEntry::Message(logged) if *json => {
                page.write_json(&message_json(&ctx.clock, &logged))?;
            }
            SessionEntry::Message(logged) => transcript.push(*logged, &mut page)?,
            SessionEntry::Invalid(at) => {
                ctx.terminal.eprint(&format!("nanobot: the line at byte {at} cannot be read"));
            }
        }
    }
    transcript.end(&mut page)?;
    page.finish()
}

/// The header before the messages, in lines that begin with `#`.
fn header(summary: &SessionSummary, path: &str) -> String {
    let SessionSummary { key, messages, created, updated, bytes, stats, title, is_newer, .. } =
        summary;
    let messages = messages.map_or_else(|| "?".into(), |count| count.to_string());
    let times: Vec<String> = [("from", created), ("to", updated)]
        .into_iter()
        .filter(|(_, time)| !time.is_empty())
        .map(|(word, time)| format!("{word} {}", day_and_time(time)))
        .collect();
    let size = format_size(*bytes);
    let whole = format!("messages {messages}, {size}, {}", times.join(" "));
    let mut lines = vec![key.replace('\n', " "), whole.trim_end_matches([' ', ',']).to_owned()];
    lines.extend(title.iter().map(|title| title.replace('\n', " ")));
    lines.extend(stats.iter().flat_map(totals));
    lines.push(path.to_owned());
    if *is_newer {
        lines.push("written by a newer nanobot: read-only".into());
    }
    lines.iter().map(|line| format!("# {line}\n")).collect()
}

/// The totals over all turns of a session, in two lines.
fn totals(stats: &SessionStats) -> [String; 2] {
    let speed = stats.speed.map(|speed| format!(" at {speed:.0} a second"));
    let cost = stats.cost.map(|cost| format!("${}", format_dollars(cost)));
    [
        format!(
            "turns {}, steps {}, tokens in {}, out {}{}, context {}, cost {}",
            stats.turns,
            stats.steps,
            stats.input,
            stats.output,
            speed.unwrap_or_default(),
            stats.context,
            cost.unwrap_or_else(|| "unknown".into()),
        ),
        format!(
            "tool calls agreed {}, succeeded {}, failed {}, rejected {}",
            stats.allowed, stats.succeeded, stats.failed, stats.denied
        ),
    ]
}

/// Prints the file unchanged; on a terminal, line by line and without control characters.
fn print_raw(ctx: &Context, place: &SessionStore, key: &str) -> Result<()> {
    let file = session::open_raw(place, key)?;
    let reading = || format!("read session `{key}`");
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if ctx.terminal.stdout_is_tty {
            // Limit the length, so that a line without an end is printed in pieces.
            let mut some = (&mut reader).take(1 << 20);
            some.read_until(b'\n', &mut bytes).with_context(reading)?;
        } else {
            let some = reader.fill_buf().with_context(reading)?;
            bytes.extend_from_slice(some);
            reader.consume(bytes.len());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        ctx.terminal.print_bytes(&bytes)?;
    }
}
