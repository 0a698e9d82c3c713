//! A message of a session in the form of a Markdown document.

use super::transcript::day_and_time;
use nanobot_base::markdown::document;
use nanobot_base::message::{Message, ToolCall, ToolResult, plain_text};
use nanobot_store::session::LoggedMessage;

/// A message as the document shows it.
pub(super) struct ExportedMessage {
    /// Its number, from 1.
    pub(super) number: usize,
    pub(super) heading: String,
    pub(super) time: String,
    /// Its text as Markdown.
    pub(super) body: String,
}

impl ExportedMessage {
    pub(super) fn new(logged: &LoggedMessage) -> Self {
        let LoggedMessage { index, time, turn: _, message } = logged;
        let (heading, body) = match message {
            Message::User(user) => ("User".to_owned(), close_fence(&plain_text(&user.parts))),
            Message::Assistant(reply) => {
                let calls: Vec<String> = reply.tool_calls.iter().map(format_call).collect();
                let parts = std::iter::once(close_fence(&reply.text)).chain(calls);
                let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
                ("nanobot".to_owned(), parts.join("\n\n"))
            }
            Message::Tool(result) => {
                (result_heading(result), fence_text("", &plain_text(&result.parts)))
            }
        };
        Self { number: index + 1, heading, time: day_and_time(time), body }
    }
}

fn format_call(call: &ToolCall) -> String {
    let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
    format!("Calls `{}`:\n\n{}", call.name, fence_text("json", &arguments))
}

fn result_heading(result: &ToolResult) -> String {
    let failed = if result.failed { " (failed)" } else { "" };
    format!("Result of `{}`{failed}", result.name)
}

/// Closes the code block that `text` leaves open, such as an answer that was cut. Otherwise the rest of the document would be code.
pub(super) fn close_fence(text: &str) -> String {
    let mut text = text.trim_end().to_owned();
    if let Some(code_fence) = document::unclosed_fence(&text) {
        let marks = code_fence.mark.to_string().repeat(code_fence.length);
        text.push_str(&format!("\n{:column$}{marks}", "", column = code_fence.column));
    }
    text
}

/// Encloses `text` in code fences longer than any run of backticks in it.
fn fence_text(language: &str, text: &str) -> String {
    let longest_run = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let code_fence = "`".repeat(longest_run.max(2) + 1);
    format!("{code_fence}{language}\n{}\n{code_fence}", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::{close_fence, fence_text};

    #[test]
    fn no_text_ends_in_code() {
        let check = |text: &str, expect: &str| assert_eq!(close_fence(text), expect);
        check("a\n", "a");
        check("````sh\n```\nls\n\n", "````sh\n```\nls\n````");
        check("1. ~~~\n   ls", "1. ~~~\n   ls\n   ~~~");
    }

    #[test]
    fn no_text_ends_its_fence() {
        let check = |text: &str, expect: &str| assert_eq!(fence_text("x", text), expect);
        check("a\n", "```x\na\n```");
        check("```\nrm\n```", "````x\n```\nrm\n```\n````");
        check("`````", "``````x\n`````\n``````");
        check("", "```x\n\n```");
    }
}
