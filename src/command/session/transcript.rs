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

/// A transcript that is being written. Calls are buffered until their results arrive, so that both are on one line.
#[derive(Debug)]
pub(super) struct Transcript {
    /// True if arguments and results are printed in full.
    is_full: bool,
    /// True once a message other than a result was written. The call of an earlier result may precede the first message that is
    /// shown.
    has_begun: bool,
    pending_calls: Vec<(ToolCall, Option<NumberedResult>)>,
}

#[derive(Debug)]
struct NumberedResult {
    /// The number of its message.
    number: usize,
    result: ToolResult,
}

impl Transcript {
    /// Creates an empty transcript.
    pub(super) fn new(is_full: bool) -> Self {
        Self { is_full, has_begun: false, pending_calls: Vec::new() }
    }

    /// Writes one more message.
    pub(super) fn push(&mut self, logged: LoggedMessage, writer: &mut StdoutWriter) -> Result<()> {
        let LoggedMessage { index, time, turn: _, message } = logged;
        let number = index + 1;
        let write_heading = |author: &str, writer: &mut StdoutWriter| {
            let heading = format!("> {number} {author}, {}", day_and_time(&time));
            writer.write("\n")?;
            writer.write_styled(heading.trim_end_matches([' ', ',']), &Style::new().bold())?;
            writer.write("\n")
        };
        self.has_begun |= !matches!(message, Message::Tool(_));
        match message {
            Message::User(user) => {
                self.write_pending(writer)?;
                write_heading("user", writer)?;
                write_block(writer, &plain_text(&user.parts))
            }
            Message::Assistant(reply) => {
                self.write_pending(writer)?;
                write_heading("nanobot", writer)?;
                self.write_reply(&reply, writer)?;
                self.pending_calls =
                    reply.tool_calls.into_iter().map(|call| (call, None)).collect();
                Ok(())
            }
            Message::Tool(result) => self.push_result(number, result, writer),
        }
    }

    fn write_reply(&self, reply: &Reply, writer: &mut StdoutWriter) -> Result<()> {
        if self.is_full && !reply.reasoning.is_empty() {
            write_indented(writer, "  ~ ", &reply.reasoning)?;
        }
        if !reply.text.is_empty() || reply.tool_calls.is_empty() {
            write_block(writer, &reply.text)?;
        }
        Ok(())
    }

    /// Keeps the result beside its call, or writes it if there is no such call.
    fn push_result(
        &mut self,
        number: usize,
        result: ToolResult,
        writer: &mut StdoutWriter,
    ) -> Result<()> {
        for (call, call_result) in &mut self.pending_calls {
            if call_result.is_none() && call.id == result.call_id {
                *call_result = Some(NumberedResult { number, result });
                return Ok(());
            }
        }
        self.write_pending(writer)?;
        let note = if self.has_begun || number == 1 { " (no matching call)" } else { "" };
        writer.write(&format!("  ↳ {}{note}", result.name))?;
        self.write_result(&NumberedResult { number, result }, writer)
    }

    /// Writes the pending calls with their results.
    fn write_pending(&mut self, writer: &mut StdoutWriter) -> Result<()> {
        for (call, result) in std::mem::take(&mut self.pending_calls) {
            let arguments = call.arguments.to_string();
            let arguments = if self.is_full { arguments } else { shorten(&arguments) };
            writer.write(&format!("  ↳ {} {arguments}", call.name))?;
            match &result {
                Some(result) => self.write_result(result, writer)?,
                None => writer.write(" (no result)\n")?,
            }
        }
        Ok(())
    }

    fn write_result(
        &self,
        numbered_result: &NumberedResult,
        writer: &mut StdoutWriter,
    ) -> Result<()> {
        let NumberedResult { number, result } = numbered_result;
        let text = plain_text(&result.parts);
        let mark = if result.failed { "✗" } else { "=" };
        if self.is_full {
            writer.write(&format!("\n  {mark} {number} {}\n", result.name))?;
            return write_indented(writer, "    ", &text);
        }
        let count = match text.lines().count() {
            0 | 1 => String::new(),
            count => format!(" ({count} lines)"),
        };
        let first_line = text.lines().find(|line| !line.trim().is_empty());
        let first_line = shorten(first_line.unwrap_or("(nothing)").trim());
        writer.write(&format!(" {mark} {first_line}{count}\n"))
    }

    /// Writes the pending calls after the last message.
    pub(super) fn end(mut self, writer: &mut StdoutWriter) -> Result<()> {
        self.write_pending(writer)
    }
}

fn write_block(writer: &mut StdoutWriter, text: &str) -> Result<()> {
    writer.write(sanitize(text).trim_end())?;
    writer.write("\n")
}

fn write_indented(writer: &mut StdoutWriter, indent: &str, text: &str) -> Result<()> {
    sanitize(text).lines().try_for_each(|line| writer.write(&format!("{indent}{line}\n")))
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_SHORT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A time from a session file, to the minute.
pub(super) fn day_and_time(time: &str) -> String {
    time.get(..16).unwrap_or(time).replacen('T', " ", 1)
}

/// A message as a JSON object.
pub(super) fn message_json(clock: &Clock, logged: &LoggedMessage) -> Value {
    let LoggedMessage { index, time, turn, message } = logged;
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
    line["number"] = json!(index + 1);
    line["time"] = json!(clock.to_rfc3339(time));
    line["turn"] = json!(turn);
    line
}
