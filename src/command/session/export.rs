//! `session export`: writes a session as one document.

use super::list::statistics;
use super::transcript::{day_and_time, line};
use crate::cli::session::{Document, Export as Arguments};
use crate::message::{Message, ToolCall, ToolResult, plain_text};
use crate::ops::context::Context;
use crate::report::Bar;
use crate::session::{self, Entry, Logged, Place, Summary};
use crate::sys::terminal::Page;
use crate::sys::{signal, store};
use anyhow::{Context as _, Result};
use serde_json::json;

/// Bytes written at once.
const PIECE: usize = 64 << 10;

/// Runs `session export`.
pub(super) fn run(ctx: &Context, place: &Place, arguments: &Arguments) -> Result<()> {
    let Arguments {
        key,
        format,
        output,
    } = arguments;
    let summary = session::look(place, key)?;
    let write = |bar: &Bar, put: &mut dyn FnMut(&str) -> Result<()>| {
        let mut said = session::entries(place, key)?.filter_map(|entry| match entry {
            Ok(Entry::Message(logged)) => {
                bar.add(1);
                Some(signal::check().map(|()| *logged).map_err(Into::into))
            }
            Ok(Entry::Bad(at)) => {
                let odd = format!("nanobot: the line at byte {at} cannot be read");
                ctx.terminal.complain(&odd);
                None
            }
            Err(error) => Some(Err(error)),
        });
        match format {
            Document::Markdown => markdown(&summary, &mut said, put),
            Document::Json => as_json(&summary, &mut said, put),
        }
    };
    match output.as_deref().filter(|path| path.as_os_str() != "-") {
        None => {
            let mut page = Page::on(ctx.terminal);
            // No progress bar: the printed text shows the progress itself.
            let none = Bar::new(ctx.terminal, true, 0);
            match format {
                Document::Markdown => write(&none, &mut |text| page.put(text))?,
                Document::Json => write(&none, &mut |text| page.put_json_text(text))?,
            }
            page.end()
        }
        Some(path) => {
            signal::arm(None).context("wait for signals")?;
            let bar = Bar::new(ctx.terminal, ctx.quiet, summary.messages.unwrap_or(0));
            bar.at(key);
            store::replace_with(path, |out| {
                write(&bar, &mut |text| Ok(out.write_all(text.as_bytes())?))
            })
        }
    }
}

/// The messages of a session, in order.
type Said<'a> = &'a mut dyn Iterator<Item = Result<Logged>>;
/// A sink for text.
type Put<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

fn as_json(summary: &Summary, said: Said<'_>, put: Put<'_>) -> Result<()> {
    let Summary {
        key,
        created,
        updated,
        stats,
        ..
    } = summary;
    let head = json!({
        "key": key, "created": created, "updated": updated, "statistics": statistics(stats.as_ref()),
    });
    // The messages are added one by one to the object that starts here.
    let mut text = head.to_string();
    text.truncate(text.len() - 1);
    text.push_str(",\"messages\":[");
    for (number, logged) in said.enumerate() {
        let comma = if number > 0 { "," } else { "" };
        text.push_str(&format!("{comma}\n{}", line(&logged?)));
        if text.len() > PIECE {
            put(&std::mem::take(&mut text))?;
        }
    }
    put(&format!("{text}\n]}}\n"))
}

fn markdown(summary: &Summary, said: Said<'_>, put: Put<'_>) -> Result<()> {
    let Summary {
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
        if text.len() > PIECE {
            put(&std::mem::take(&mut text))?;
        }
    }
    put(&text)
}

/// Formats one message under a heading with its role.
fn section(logged: &Logged) -> String {
    let Logged {
        number,
        time,
        turn: _,
        message,
    } = logged;
    let (who, body) = match message {
        Message::User(user) => ("User".to_owned(), plain_text(&user.parts)),
        Message::Assistant(reply) => {
            let calls: Vec<String> = reply.calls.iter().map(called).collect();
            let parts = std::iter::once(reply.text.trim_end().to_owned()).chain(calls);
            let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
            ("nanobot".to_owned(), parts.join("\n\n"))
        }
        Message::Tool(result) => (came_of(result), fenced("", &plain_text(&result.parts))),
    };
    let time = day_and_time(time);
    let mark = if time.is_empty() { "" } else { ", " };
    format!(
        "\n## {} {who}{mark}{time}\n\n{}\n",
        number + 1,
        body.trim_end()
    )
}

fn called(call: &ToolCall) -> String {
    let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
    format!("Calls `{}`:\n\n{}", call.name, fenced("json", &arguments))
}

fn came_of(result: &ToolResult) -> String {
    let failed = if result.failed { " (failed)" } else { "" };
    format!("Result of `{}`{failed}", result.name)
}

/// Encloses `text` in fences longer than any in it.
fn fenced(language: &str, text: &str) -> String {
    let runs = text.split(|letter| letter != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    format!(
        "{fence}{language}\n{}\n{fence}",
        text.trim_end_matches('\n')
    )
}

#[cfg(test)]
mod tests {
    use super::fenced;

    #[test]
    fn no_text_ends_its_fence() {
        let check = |text: &str, expect: &str| assert_eq!(fenced("x", text), expect);
        check("a\n", "```x\na\n```");
        check("```\nrm\n```", "````x\n```\nrm\n```\n````");
        check("`````", "``````x\n`````\n``````");
        check("", "```x\n\n```");
    }
}
