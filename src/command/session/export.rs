//! `session export`: writes a session as one document.

use super::list::statistics_json;
use super::transcript::{day_and_time, message_json};
use crate::cli::session::{DocumentFormat, SessionExportArgs as Arguments};
use crate::message::{Message, ToolCall, ToolResult, plain_text};
use crate::ops::context::Context;
use crate::report::Bar;
use crate::session::{self, LoggedMessage, SessionEntry, SessionStore, SessionSummary};
use crate::sys::terminal::StdoutWriter;
use crate::sys::{durable_file, signal};
use anyhow::{Context as _, Result};
use serde_json::json;

/// Bytes written at once.
const WRITE_CHUNK_BYTES: usize = 64 << 10;

/// Runs `session export`.
pub(super) fn run(ctx: &Context, place: &SessionStore, arguments: &Arguments) -> Result<()> {
    let Arguments {
        key,
        format,
        output,
    } = arguments;
    let summary = session::summarize(place, key)?;
    let write = |bar: &Bar, put: &mut dyn FnMut(&str) -> Result<()>| {
        let mut said = session::read_entries(place, key)?.filter_map(|entry| match entry {
            Ok(SessionEntry::Message(logged)) => {
                bar.advance(1);
                Some(signal::check().map(|()| *logged).map_err(Into::into))
            }
            Ok(SessionEntry::Invalid(at)) => {
                let odd = format!("nanobot: the line at byte {at} cannot be read");
                ctx.terminal.eprint(&odd);
                None
            }
            Err(error) => Some(Err(error)),
        });
        match format {
            DocumentFormat::Markdown => write_markdown(&summary, &mut said, put),
            DocumentFormat::Json => write_json(&summary, &mut said, put),
        }
    };
    match output.as_deref().filter(|path| path.as_os_str() != "-") {
        None => {
            let mut page = StdoutWriter::new(ctx.terminal);
            // No progress bar: the printed text shows the progress itself.
            let none = Bar::new(ctx.terminal, true, 0);
            match format {
                DocumentFormat::Markdown => write(&none, &mut |text| page.write(text))?,
                DocumentFormat::Json => write(&none, &mut |text| page.write_json_text(text))?,
            }
            page.finish()
        }
        Some(path) => {
            signal::install(None).context("wait for signals")?;
            let bar = Bar::new(ctx.terminal, ctx.quiet, summary.messages.unwrap_or(0));
            bar.set_item(key);
            durable_file::replace_with(path, |out| {
                write(&bar, &mut |text| Ok(out.write_all(text.as_bytes())?))
            })
        }
    }
}

/// The messages of a session, in order.
type LoggedMessages<'a> = &'a mut dyn Iterator<Item = Result<LoggedMessage>>;
/// A sink for text.
type TextSink<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

fn write_json(summary: &SessionSummary, said: LoggedMessages<'_>, put: TextSink<'_>) -> Result<()> {
    let SessionSummary {
        key,
        created,
        updated,
        stats,
        ..
    } = summary;
    let head = json!({
        "key": key, "created": created, "updated": updated, "statistics": statistics_json(stats.as_ref()),
    });
    // The messages are added one by one to the object that starts here.
    let mut text = head.to_string();
    text.truncate(text.len() - 1);
    text.push_str(",\"messages\":[");
    for (number, logged) in said.enumerate() {
        let comma = if number > 0 { "," } else { "" };
        text.push_str(&format!("{comma}\n{}", message_json(&logged?)));
        if text.len() > WRITE_CHUNK_BYTES {
            put(&std::mem::take(&mut text))?;
        }
    }
    put(&format!("{text}\n]}}\n"))
}

fn write_markdown(
    summary: &SessionSummary,
    said: LoggedMessages<'_>,
    put: TextSink<'_>,
) -> Result<()> {
    let SessionSummary {
        key,
        created,
        updated,
        ..
    } = summary;
    let dates = [created, updated].map(|time| day_and_time(time));
    let mut text = format!(
        "# {}\n\n{} to {}\n",
        key.replace('\n', " "),
        dates[0],
        dates[1]
    );
    for logged in said {
        text.push_str(&section(&logged?));
        if text.len() > WRITE_CHUNK_BYTES {
            put(&std::mem::take(&mut text))?;
        }
    }
    put(&text)
}

/// Formats one message under a heading with its role.
fn section(logged: &LoggedMessage) -> String {
    let LoggedMessage {
        index: number,
        time,
        turn: _,
        message,
    } = logged;
    let (who, body) = match message {
        Message::User(user) => ("User".to_owned(), plain_text(&user.parts)),
        Message::Assistant(reply) => {
            let calls: Vec<String> = reply.tool_calls.iter().map(format_call).collect();
            let parts = std::iter::once(reply.text.trim_end().to_owned()).chain(calls);
            let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
            ("nanobot".to_owned(), parts.join("\n\n"))
        }
        Message::Tool(result) => (
            result_heading(result),
            fence_text("", &plain_text(&result.parts)),
        ),
    };
    let time = day_and_time(time);
    let mark = if time.is_empty() { "" } else { ", " };
    format!(
        "\n## {} {who}{mark}{time}\n\n{}\n",
        number + 1,
        body.trim_end()
    )
}

fn format_call(call: &ToolCall) -> String {
    let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
    format!(
        "Calls `{}`:\n\n{}",
        call.name,
        fence_text("json", &arguments)
    )
}

fn result_heading(result: &ToolResult) -> String {
    let failed = if result.failed { " (failed)" } else { "" };
    format!("Result of `{}`{failed}", result.name)
}

/// Encloses `text` in fences longer than any in it.
fn fence_text(language: &str, text: &str) -> String {
    let runs = text.split(|letter| letter != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    format!(
        "{fence}{language}\n{}\n{fence}",
        text.trim_end_matches('\n')
    )
}

#[cfg(test)]
mod tests {
    use super::fence_text;

    #[test]
    fn no_text_ends_its_fence() {
        let check = |text: &str, expect: &str| assert_eq!(fence_text("x", text), expect);
        check("a\n", "```x\na\n```");
        check("```\nrm\n```", "````x\n```\nrm\n```\n````");
        check("`````", "``````x\n`````\n``````");
        check("", "```x\n\n```");
    }
}
