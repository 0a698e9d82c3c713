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
use nanobot_os::secret;
use nanobot_os::signal;
use nanobot_os::terminal::StdoutWriter;
use nanobot_store::session::{self, SessionEntry, SessionStore, SessionSummary};
use serde_json::json;
use std::borrow::Cow;
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
    let write = |bar: &Bar, sink: &mut dyn FnMut(&str) -> Result<()>| {
        let mut text = document_start(format, &ctx.clock, &summary);
        let mut comma = "";
        for entry in session::read_entries(store, key)? {
            let logged = match entry? {
                SessionEntry::Message(logged) => logged,
                SessionEntry::Invalid(offset) => {
                    let notice = format!("nanobot: the line at byte {offset} cannot be read");
                    ctx.terminal.eprint(&notice);
                    continue;
                }
            };
            bar.advance(1);
            signal::check()?;
            text.push_str(&match format {
                DocumentFormat::Markdown => markdown_section(&ExportedMessage::new(&logged)),
                DocumentFormat::Html => html::section(&ExportedMessage::new(&logged)),
                DocumentFormat::Json => format!("{comma}\n{}", message_json(&ctx.clock, &logged)),
            });
            comma = ",";
            if text.len() > WRITE_CHUNK_BYTES {
                sink(&redact(format, &std::mem::take(&mut text)))?;
            }
        }
        sink(&redact(format, &(text + document_end(format))))
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

/// Redacts the known keys in a part of the document, which may be given to others.
fn redact(format: DocumentFormat, text: &str) -> Cow<'_, str> {
    match format {
        DocumentFormat::Json => secret::redact_known_json_text(text),
        DocumentFormat::Markdown | DocumentFormat::Html => secret::redact_known(text),
    }
}

/// The document up to the first message.
fn document_start(format: DocumentFormat, clock: &Clock, summary: &SessionSummary) -> String {
    let SessionSummary { key, created, updated, stats, .. } = summary;
    let dates = format!("{} to {}", day_and_time(created), day_and_time(updated));
    match format {
        DocumentFormat::Markdown => format!("# {}\n\n{dates}\n", key.replace('\n', " ")),
        DocumentFormat::Html => html::page_start(key, &dates),
        DocumentFormat::Json => {
            let object = json!({
                "key": key, "created": clock.to_rfc3339(created), "updated": clock.to_rfc3339(updated), "statistics": stats.as_ref().map(statistics_json),
            });
            // The messages follow one by one, so the object stays open.
            let mut text = object.to_string();
            text.truncate(text.len() - 1);
            text + ",\"messages\":["
        }
    }
}

/// The document after the last message.
fn document_end(format: DocumentFormat) -> &'static str {
    match format {
        DocumentFormat::Markdown => "",
        DocumentFormat::Html => html::PAGE_END,
        DocumentFormat::Json => "\n]}\n",
    }
}

/// Formats one message under a heading with its role.
fn markdown_section(message: &ExportedMessage) -> String {
    let ExportedMessage { number, author: _, heading, time, body } = message;
    let separator = if time.is_empty() { "" } else { ", " };
    format!("\n## {number} {heading}{separator}{time}\n\n{}\n", body.trim_end())
}
