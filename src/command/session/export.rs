//! `session export`: writes a session as one document.

use super::exported_message::ExportedMessage;
use super::html;
use super::list::statistics_json;
use super::transcript::{day_and_time, message_json};
use crate::cli::session::{DocumentFormat, SessionExportArgs};
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_agent::report::Bar;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::signal;
use nanobot_os::terminal::StdoutWriter;
use nanobot_store::session::{self, LoggedMessage, SessionEntry, SessionStore, SessionSummary};
use serde_json::json;
use std::ffi::OsStr;
use std::path::Path;

/// Bytes written at once.
const WRITE_CHUNK_BYTES: usize = 64 << 10;

/// Runs `session export`.
pub(super) fn run(
    ctx: &Context,
    store: &SessionStore,
    arguments: &SessionExportArgs,
) -> Result<()> {
    let SessionExportArgs { key, format, output } = arguments;
    let format = format.unwrap_or_else(|| format_of(output.as_deref()));
    let summary = session::summarize(store, key)?;
    let write = |bar: &Bar, sink: TextSink<'_>| {
        let mut messages = session::read_entries(store, key)?.filter_map(|entry| match entry {
            Ok(SessionEntry::Message(logged)) => {
                bar.advance(1);
                Some(signal::check().map(|()| *logged).map_err(Into::into))
            }
            Ok(SessionEntry::Invalid(offset)) => {
                ctx.terminal.eprint(&format!("nanobot: the line at byte {offset} cannot be read"));
                None
            }
            Err(error) => Some(Err(error)),
        });
        match format {
            DocumentFormat::Markdown => write_markdown(&summary, &mut messages, sink),
            DocumentFormat::Json => write_json(&ctx.clock, &summary, &mut messages, sink),
            DocumentFormat::Html => write_html(&summary, &mut messages, sink),
        }
    };
    match output.as_deref().filter(|path| path.as_os_str() != "-") {
        None => {
            let mut writer = StdoutWriter::new(ctx.terminal);
            // The printed text shows the progress itself.
            let hidden_bar = Bar::new(ctx.terminal, true, 0);
            match format {
                DocumentFormat::Markdown | DocumentFormat::Html => {
                    write(&hidden_bar, &mut |text| writer.write(text))?;
                }
                DocumentFormat::Json => {
                    write(&hidden_bar, &mut |text| writer.write_json_text(text))?;
                }
            }
            writer.finish()
        }
        Some(path) => {
            signal::install(None).context("wait for signals")?;
            let bar = Bar::new(ctx.terminal, ctx.quiet, summary.messages.unwrap_or(0));
            bar.set_item(key);
            durable_file::replace_with(path, |file| {
                write(&bar, &mut |text| Ok(file.write_all(text.as_bytes())?))
            })
        }
    }
}

/// The format that the extension of the file names.
fn format_of(output: Option<&Path>) -> DocumentFormat {
    let extension = output.and_then(Path::extension).and_then(OsStr::to_str);
    match extension.unwrap_or_default().to_lowercase().as_str() {
        "html" | "htm" => DocumentFormat::Html,
        "json" => DocumentFormat::Json,
        _ => DocumentFormat::Markdown,
    }
}

/// The messages of a session, in order.
type LoggedMessages<'a> = &'a mut dyn Iterator<Item = Result<LoggedMessage>>;
/// A sink for text.
type TextSink<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

fn write_json(
    clock: &Clock,
    summary: &SessionSummary,
    messages: LoggedMessages<'_>,
    sink: TextSink<'_>,
) -> Result<()> {
    let SessionSummary { key, created, updated, stats, .. } = summary;
    let object = json!({
        "key": key, "created": clock.to_rfc3339(created), "updated": clock.to_rfc3339(updated), "statistics": stats.as_ref().map(statistics_json),
    });
    // The messages are written one by one, so the closing brace of the object comes last.
    let mut text = object.to_string();
    text.truncate(text.len() - 1);
    text.push_str(",\"messages\":[");
    for (index, logged) in messages.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        text.push_str(&format!("{comma}\n{}", message_json(clock, &logged?)));
        if text.len() > WRITE_CHUNK_BYTES {
            sink(&std::mem::take(&mut text))?;
        }
    }
    sink(&format!("{text}\n]}}\n"))
}

fn write_markdown(
    summary: &SessionSummary,
    messages: LoggedMessages<'_>,
    sink: TextSink<'_>,
) -> Result<()> {
    let SessionSummary { key, created, updated, .. } = summary;
    let dates = [created, updated].map(|time| day_and_time(time));
    let mut text = format!("# {}\n\n{} to {}\n", key.replace('\n', " "), dates[0], dates[1]);
    for logged in messages {
        text.push_str(&section(&logged?));
        if text.len() > WRITE_CHUNK_BYTES {
            sink(&std::mem::take(&mut text))?;
        }
    }
    sink(&text)
}

fn write_html(
    summary: &SessionSummary,
    messages: LoggedMessages<'_>,
    sink: TextSink<'_>,
) -> Result<()> {
    let SessionSummary { key, created, updated, .. } = summary;
    let dates = [created, updated].map(|time| day_and_time(time));
    let mut text = html::page_start(key, &format!("{} to {}", dates[0], dates[1]));
    for logged in messages {
        text.push_str(&html::section(&ExportedMessage::new(&logged?)));
        if text.len() > WRITE_CHUNK_BYTES {
            sink(&std::mem::take(&mut text))?;
        }
    }
    sink(&(text + html::PAGE_END))
}

/// Formats one message under a heading with its role.
fn section(logged: &LoggedMessage) -> String {
    let ExportedMessage { number, author: _, heading, time, body } = ExportedMessage::new(logged);
    let separator = if time.is_empty() { "" } else { ", " };
    format!("\n## {number} {heading}{separator}{time}\n\n{}\n", body.trim_end())
}
