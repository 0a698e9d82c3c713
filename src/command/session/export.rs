//! `session export`: writes a session as one document.

use super::exported_message::ExportedMessage;
use super::html::{self, PageBody};
use super::list::statistics_json;
use super::transcript::{day_and_time, message_json};
use crate::cli::session::{DocumentFormat, SessionExportArgs};
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_agent::report::Bar;
use nanobot_base::format::format_dollars;
use nanobot_base::json_text::JSON_VERSION;
use nanobot_base::message::Message;
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
/// Number of messages from the end in which the model is looked for.
const LAST_MESSAGES: usize = 50;

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
        let mut text = document_start(ctx, store, format, &summary)?;
        let mut comma = "";
        let mut page = PageBody::default();
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
                DocumentFormat::Html => page.push(&logged),
                DocumentFormat::Json => format!("{comma}\n{}", message_json(&ctx.clock, &logged)),
            });
            comma = ",";
            if text.len() > WRITE_CHUNK_BYTES {
                sink(&redact(format, &std::mem::take(&mut text)))?;
            }
        }
        text.push_str(&match format {
            DocumentFormat::Markdown => String::new(),
            DocumentFormat::Html => page.end(),
            DocumentFormat::Json => "\n]}\n".to_owned(),
        });
        sink(&redact(format, &text))
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
fn document_start(
    ctx: &Context,
    store: &SessionStore,
    format: DocumentFormat,
    summary: &SessionSummary,
) -> Result<String> {
    let SessionSummary { key, title, created, updated, stats, directory, .. } = summary;
    let clock = &ctx.clock;
    let heading = title.as_ref().unwrap_or(key).replace('\n', " ");
    let mut facts = vec![format!("{} to {}", day_and_time(created), day_and_time(updated))];
    if title.is_some() {
        facts.insert(0, key.clone());
    }
    Ok(match format {
        DocumentFormat::Markdown => format!("# {heading}\n\n{}\n", facts.join(", ")),
        DocumentFormat::Html => {
            facts.extend(last_model(store, key)?);
            let cost = stats.as_ref().and_then(|stats| stats.cost);
            facts.extend(cost.map(|cost| format!("${}", format_dollars(cost))));
            facts.extend(directory.iter().map(|directory| ctx.paths.display(directory)));
            html::page_start(&heading, &facts)
        }
        DocumentFormat::Json => {
            let object = json!({
                "v": JSON_VERSION, "key": key, "created": clock.to_rfc3339(created), "updated": clock.to_rfc3339(updated), "statistics": stats.as_ref().map(statistics_json),
            });
            // The messages follow one by one, so the object stays open.
            let mut text = object.to_string();
            text.truncate(text.len() - 1);
            text + ",\"messages\":["
        }
    })
}

/// The model of the last replies.
fn last_model(store: &SessionStore, key: &str) -> Result<Option<String>> {
    let mut model = None;
    for entry in session::read_last_entries(store, key, LAST_MESSAGES)? {
        if let SessionEntry::Message(logged) = entry?
            && let Message::Assistant(reply) = logged.message
            && !reply.model.is_empty()
        {
            model = Some(reply.model);
        }
    }
    Ok(model)
}

/// Formats one message under a heading with its role.
fn markdown_section(message: &ExportedMessage) -> String {
    let ExportedMessage { number, heading, time, body } = message;
    let separator = if time.is_empty() { "" } else { ", " };
    format!("\n## {number} {heading}{separator}{time}\n\n{}\n", body.trim_end())
}
