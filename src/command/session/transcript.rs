//! Formats messages for people, with each tool call beside its result, and as JSON.

use anyhow::Result;
use console::Style;
use nanobot_base::message::{Message, Reply, ToolCall, ToolResult, plain_text};
use nanobot_os::clock::Clock;
use nanobot_os::terminal::{StdoutWriter, sanitize};
use nanobot_store::session::LoggedMessage;
use serde_json::{Value, json};

/// Maximum characters shown of a call's arguments, and of its result.
const MAX_SHORT_CHARS: usize = 100;

/// A transcript being written. Calls are held back until their results arrive, so that both are on one line.
#[derive(Debug)]
pub(super) struct Transcript {
    /// True if arguments and results are printed in full.
    is_full: bool,
    /// True once anything but results was written. A result before that may belong to a call before the first message
    /// shown.
    has_begun: bool,
    pending_calls: Vec<(ToolCall, Option<NumberedResult>)>,
}

/// A result, and the number of its message.
type NumberedResult = (usize, ToolResult);

impl Transcript {
    /// Creates an empty transcript.
    pub(super) fn new(is_full: bool) -> Self {
        Self { is_full, has_begun: false, pending_calls: Vec::new() }
    }

    /// Writes one more message.
    pub(super) fn push(&mut self, logged: LoggedMessage, page: &mut StdoutWriter) -> Result<()> {
        let LoggedMessage { index: number, time, turn: _, message } = logged;
        let number = number + 1;
        let heading = |who: &str, page: &mut StdoutWriter| {
            let words = format!("> {number} {who}, {}", day_and_time(&time));
            let words = words.trim_end_matches([' ', ',']);
            page.write("\n")?;
            page.write_styled(words, &Style::new().bold())?;
            page.write("\n")
        };
        self.has_begun |= !matches!(message, Message::Tool(_));
        match message {
            Message::User(user) => {
                self.write_pending(page)?;
                heading("user", page)?;
                put_block(page, &plain_text(&user.parts))
            }
            Message::Assistant(reply) => {
                self.write_pending(page)?;
                heading("nanobot", page)?;
                self.put_reply(&reply, page)?;
                self.pending_calls =
                    reply.tool_calls.into_iter().map(|call| (call, None)).collect();
                Ok(())
            }
            Message::Tool(result) => self.take_result(number, result, page),
        }
    }

    fn put_reply(&self, reply: &Reply, page: &mut StdoutWriter) -> Result<()> {
        if self.is_full && !reply.reasoning.is_empty() {
            put_indented(page, "  ~ ", &reply.reasoning)?;
        }
        if !reply.text.is_empty() || reply.tool_calls.is_empty() {
            put_block(page, &reply.text)?;
        }
        Ok(())
    }

    fn take_result(
        &mut self,
        number: usize,
        result: ToolResult,
        page: &mut StdoutWriter,
    ) -> Result<()> {
        let asked = |(call, answer): &&mut (ToolCall, Option<NumberedResult>)| {
            answer.is_none() && call.id == result.call_id
        };
        if let Some((_, answer)) = self.pending_calls.iter_mut().find(asked) {
            *answer = Some((number, result));
            return Ok(());
        }
        self.write_pending(page)?;
        let note = if self.has_begun || number == 1 { " (no matching call)" } else { "" };
        page.write(&format!("  ↳ {}{note}", result.name))?;
        self.put_result(&(number, result), page)
    }

    /// Writes the pending calls with their results.
    fn write_pending(&mut self, page: &mut StdoutWriter) -> Result<()> {
        for (call, answer) in std::mem::take(&mut self.pending_calls) {
            let arguments = call.arguments.to_string();
            let arguments = if self.is_full { arguments } else { shorten(&arguments) };
            page.write(&format!("  ↳ {} {arguments}", call.name))?;
            match &answer {
                Some(answer) => self.put_result(answer, page)?,
                None => page.write(" (no result)\n")?,
            }
        }
        Ok(())
    }

    fn put_result(&self, (number, result): &NumberedResult, page: &mut StdoutWriter) -> Result<()> {
        let text = plain_text(&result.parts);
        let mark = if result.failed { "✗" } else { "=" };
        if self.is_full {
            page.write(&format!("\n  {mark} {number} {}\n", result.name))?;
            return put_indented(page, "    ", &text);
        }
        let lines = text.lines().count();
        let more = if lines > 1 { format!(" ({lines} lines)") } else { String::new() };
        let first = text.lines().find(|line| !line.trim().is_empty());
        let first = shorten(first.unwrap_or("(nothing)").trim());
        page.write(&format!(" {mark} {first}{more}\n"))
    }

    /// Writes what is pending after the last message.
    pub(super) fn end(mut self, page: &mut StdoutWriter) -> Result<()> {
        self.write_pending(page)
    }
}

fn put_block(page: &mut StdoutWriter, text: &str) -> Result<()> {
    page.write(sanitize(text).trim_end())?;
    page.write("\n")
}

fn put_indented(page: &mut StdoutWriter, by: &str, text: &str) -> Result<()> {
    sanitize(text).lines().try_for_each(|line| page.write(&format!("{by}{line}\n")))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SHORT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A time from a session file, to the minute.
pub(super) fn day_and_time(time: &str) -> String {
    time.get(..16).unwrap_or(time).replacen('T', " ", 1)
}

/// A message as a JSON object.
pub(super) fn message_json(clock: &Clock, logged: &LoggedMessage) -> Value {
    let LoggedMessage { index: number, time, turn, message } = logged;
    let mut line = match message {
        Message::User(user) => json!({ "role": "user", "text": plain_text(&user.parts) }),
        Message::Assistant(reply) => {
            let call = |call: &ToolCall| json!({ "id": call.id, "name": call.name, "arguments": call.arguments });
            let calls: Vec<Value> = reply.tool_calls.iter().map(call).collect();
            json!({ "role": "assistant", "text": reply.text, "tool_calls": calls, "model": reply.model })
        }
        Message::Tool(result) => {
            json!({ "role": "tool", "call": result.call_id, "name": result.name, "text": plain_text(&result.parts), "failed": result.failed })
        }
    };
    line["number"] = json!(number + 1);
    line["time"] = json!(clock.to_rfc3339(time));
    line["turn"] = json!(turn);
    line
}
