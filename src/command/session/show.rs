//! `session show`: prints a session's messages and totals.

use super::transcript::{Transcript, day_and_time, message_json};
use crate::cli::session::SessionShowArgs;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use console::Style;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::format::format_dollars;
use nanobot_base::shell_quote::quote;
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::StdoutWriter;
use nanobot_store::session::{self, SessionEntry, SessionStats, SessionStore, SessionSummary};
use std::io::{BufRead, BufReader, Read};

/// Runs `session show`.
pub(super) fn run(ctx: &Context, store: &SessionStore, arguments: &SessionShowArgs) -> Result<()> {
    let SessionShowArgs { key, last, turn, full, json, raw } = arguments;
    if *raw {
        return print_raw(ctx, store, key);
    }
    let mut writer = StdoutWriter::for_pager(ctx.terminal);
    let mut transcript = Transcript::new(*full);
    if !json {
        let summary = session::summarize(store, key)?;
        let path = ctx.paths.display(&summary.path);
        writer.write_styled(&header(&summary, &path), &Style::new().dim())?;
    }
    let entries: Box<dyn Iterator<Item = Result<SessionEntry>>> = match last {
        None => Box::new(session::read_entries(store, key)?),
        Some(count) => Box::new(session::read_last_entries(store, key, *count)?),
    };
    let mut has_messages = false;
    for entry in entries {
        match entry? {
            SessionEntry::Message(logged)
                if turn.as_ref().is_some_and(|turn| logged.turn != *turn) => {}
            SessionEntry::Message(logged) if *json => {
                has_messages = true;
                writer.write_json(&message_json(&ctx.clock, &logged))?;
            }
            SessionEntry::Message(logged) => {
                has_messages = true;
                transcript.push(*logged, &mut writer)?;
            }
            SessionEntry::Invalid(offset) => {
                ctx.terminal.eprint(&format!("nanobot: the line at byte {offset} cannot be read"));
            }
        }
    }
    transcript.end(&mut writer)?;
    writer.finish()?;
    match turn {
        Some(turn) if !has_messages => {
            Err(fail(Exit::NoInput, format!("session `{key}` has no turn `{turn}`"))
                .with_hint(format!("`nanobot session show {} --json` for its turns", quote(key))))
        }
        _ => Ok(()),
    }
}

/// The header before the messages, in lines that begin with `#`.
fn header(summary: &SessionSummary, path: &str) -> String {
    let SessionSummary { key, messages, created, updated, bytes, stats, title, is_newer, .. } =
        summary;
    let messages = messages.map_or_else(|| "?".into(), |count| count.to_string());
    let mut length = format!("messages {messages}, {}", format_size(*bytes));
    let times = [("from", created), ("to", updated)];
    let times = times.into_iter().filter(|(_, time)| !time.is_empty());
    for (index, (preposition, time)) in times.enumerate() {
        length.push_str(if index == 0 { ", " } else { " " });
        length.push_str(&format!("{preposition} {}", day_and_time(time)));
    }
    let mut lines = vec![key.replace('\n', " "), length];
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

/// Maximum bytes that are printed at once.
const MAX_CHUNK_BYTES: u64 = 1 << 20;

/// Prints the file unchanged. On a terminal it is printed without control characters, and line by line, so that no character is
/// cut in two.
fn print_raw(ctx: &Context, store: &SessionStore, key: &str) -> Result<()> {
    let file = session::open_raw(store, key)?;
    let context = || format!("read session `{key}`");
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if ctx.terminal.stdout_is_tty {
            // The limit keeps a line without an end out of memory: it is printed in chunks.
            let mut chunk = (&mut reader).take(MAX_CHUNK_BYTES);
            chunk.read_until(b'\n', &mut bytes).with_context(context)?;
        } else {
            let chunk = reader.fill_buf().with_context(context)?;
            bytes.extend_from_slice(chunk);
            reader.consume(bytes.len());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        ctx.terminal.print_bytes(&bytes)?;
    }
}
