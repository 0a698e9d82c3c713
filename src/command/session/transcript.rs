//! Formats messages for people, with each tool call beside its result, and as JSON.

use crate::message::{Message, Reply, ToolCall, ToolResult, plain_text};
use crate::session::Logged;
use crate::sys::terminal::Page;
use anyhow::Result;
use console::Style;
use serde_json::{Value, json};

/// Maximum characters shown of a call's arguments, and of its result.
const SHORT: usize = 100;

/// A transcript being written. Calls are held back until their results arrive, so that both are on one line.
#[derive(Debug)]
pub(super) struct Transcript {
    /// True if arguments and results are printed in full.
    is_full: bool,
    /// True once anything but results was written. A result before that may belong to a call before the first message
    /// shown.
    has_begun: bool,
    waiting: Vec<(ToolCall, Option<Answer>)>,
}

/// A result, and the number of its message.
type Answer = (usize, ToolResult);

impl Transcript {
    /// Creates an empty transcript.
    pub(super) fn new(is_full: bool) -> Self {
        Self {
            is_full,
            has_begun: false,
            waiting: Vec::new(),
        }
    }

    /// Writes one more message.
    pub(super) fn take(&mut self, logged: Logged, page: &mut Page) -> Result<()> {
        let Logged {
            number,
            time,
            turn: _,
            message,
        } = logged;
        let number = number + 1;
        let heading = |who: &str, page: &mut Page| {
            let words = format!("> {number} {who}, {}", day_and_time(&time));
            let words = words.trim_end_matches([' ', ',']);
            page.put("\n")?;
            page.paint(words, &Style::new().bold())?;
            page.put("\n")
        };
        self.has_begun |= !matches!(message, Message::Tool(_));
        match message {
            Message::User(user) => {
                self.answer(page)?;
                heading("user", page)?;
                put_block(page, &plain_text(&user.parts))
            }
            Message::Assistant(reply) => {
                self.answer(page)?;
                heading("nanobot", page)?;
                self.put_reply(&reply, page)?;
                self.waiting = reply.calls.into_iter().map(|call| (call, None)).collect();
                Ok(())
            }
            Message::Tool(result) => self.take_result(number, result, page),
        }
    }

    fn put_reply(&self, reply: &Reply, page: &mut Page) -> Result<()> {
        if self.is_full && !reply.reasoning.is_empty() {
            put_indented(page, "  ~ ", &reply.reasoning)?;
        }
        if !reply.text.is_empty() || reply.calls.is_empty() {
            put_block(page, &reply.text)?;
        }
        Ok(())
    }

    fn take_result(&mut self, number: usize, result: ToolResult, page: &mut Page) -> Result<()> {
        let asked = |(call, answer): &&mut (ToolCall, Option<Answer>)| {
            answer.is_none() && call.id == result.call
        };
        if let Some((_, answer)) = self.waiting.iter_mut().find(asked) {
            *answer = Some((number, result));
            return Ok(());
        }
        self.answer(page)?;
        let note = match self.has_begun || number == 1 {
            true => " (no matching call)",
            false => "",
        };
        page.put(&format!("  ↳ {}{note}", result.name))?;
        self.put_result(&(number, result), page)
    }

    /// Writes the pending calls with their results.
    fn answer(&mut self, page: &mut Page) -> Result<()> {
        for (call, answer) in std::mem::take(&mut self.waiting) {
            let arguments = call.arguments.to_string();
            let arguments = match self.is_full {
                true => arguments,
                false => short(&arguments),
            };
            page.put(&format!("  ↳ {} {arguments}", call.name))?;
            match &answer {
                Some(answer) => self.put_result(answer, page)?,
                None => page.put(" (no result)\n")?,
            }
        }
        Ok(())
    }

    fn put_result(&self, (number, result): &Answer, page: &mut Page) -> Result<()> {
        let text = plain_text(&result.parts);
        let mark = if result.failed { "✗" } else { "=" };
        if self.is_full {
            page.put(&format!("\n  {mark} {number} {}\n", result.name))?;
            return put_indented(page, "    ", &text);
        }
        let lines = text.lines().count();
        let more = if lines > 1 {
            format!(" ({lines} lines)")
        } else {
            String::new()
        };
        let first = text.lines().find(|line| !line.trim().is_empty());
        let first = short(first.unwrap_or("(nothing)").trim());
        page.put(&format!(" {mark} {first}{more}\n"))
    }

    /// Writes what is pending after the last message.
    pub(super) fn end(mut self, page: &mut Page) -> Result<()> {
        self.answer(page)
    }
}

fn put_block(page: &mut Page, text: &str) -> Result<()> {
    page.put(text.trim_end())?;
    page.put("\n")
}

fn put_indented(page: &mut Page, by: &str, text: &str) -> Result<()> {
    text.lines()
        .try_for_each(|line| page.put(&format!("{by}{line}\n")))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHORT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A time from a session file, to the minute.
pub(super) fn day_and_time(time: &str) -> String {
    time.get(..16).unwrap_or(time).replacen('T', " ", 1)
}

/// A message as a JSON object.
pub(super) fn line(logged: &Logged) -> Value {
    let Logged {
        number,
        time,
        turn,
        message,
    } = logged;
    let mut line = match message {
        Message::User(user) => json!({ "role": "user", "text": plain_text(&user.parts) }),
        Message::Assistant(reply) => {
            let call = |call: &ToolCall| json!({ "id": call.id, "name": call.name, "arguments": call.arguments });
            let calls: Vec<Value> = reply.calls.iter().map(call).collect();
            json!({ "role": "assistant", "text": reply.text, "tool_calls": calls, "model": reply.model })
        }
        Message::Tool(result) => {
            json!({ "role": "tool", "call": result.call, "name": result.name, "text": plain_text(&result.parts), "failed": result.failed })
        }
    };
    (line["number"], line["time"], line["turn"]) = (json!(number + 1), json!(time), json!(turn));
    line
}
