//! `/last` and Ctrl-O: the whole output of a tool call, as the session has it. The screen has shown only a part.

use super::repl_session::ReplSession;
use crate::ops::pager;
use crate::ops::slash_commands::parse_count_back;
use anyhow::Result;
use console::Style;
use nanobot_agent::report::short_text::identifying_arguments;
use nanobot_base::error::{Exit, exit_for, fail};
use nanobot_base::message::{Message, ToolCall, ToolResult, plain_text};
use nanobot_os::terminal::StdoutWriter;
use nanobot_store::session::{self, SessionEntry};
use serde_json::Value;

/// The number of messages at the end of the session that are searched.
const SEARCHED_MESSAGES: usize = 1000;
/// The tool whose result the screen shows whole, as the task list.
const SHOWN_WHOLE: &str = "todo";

impl ReplSession<'_> {
    /// Shows the output of the last tool call, or of the one that `rest` counts back to: 2 is the one before.
    pub(super) fn show_last_output(&self, rest: &str) -> Result<()> {
        let number = parse_count_back("last", rest)?;
        let key = self.session_key()?;
        let nothing = || fail(Exit::NoInput, "there is no such tool call in this session");
        let store = self.session_store()?;
        let entries = match session::read_last_entries(&store, &key, SEARCHED_MESSAGES) {
            Err(error) if exit_for(&error) == Exit::NoInput => return Err(nothing()),
            entries => entries?,
        };
        let mut messages = Vec::new();
        for entry in entries {
            if let SessionEntry::Message(logged) = entry? {
                messages.push(logged.message);
            }
        }
        let mut results = messages.iter().rev().filter_map(|message| match message {
            Message::Tool(result) if result.name != SHOWN_WHOLE => Some(result),
            _ => None,
        });
        let Some(result) = results.nth(number - 1) else {
            return Err(nothing());
        };
        let mut calls = messages.iter().rev().flat_map(|message| match message {
            Message::Assistant(reply) => reply.tool_calls.as_slice(),
            _ => &[],
        });
        let call = calls.find(|call| call.id == result.call_id);
        let mut writer = StdoutWriter::for_page(self.ctx.terminal);
        write_call(&mut writer, result, call)?;
        self.editor().restore_terminal()?;
        pager::show(&self.ctx.env, self.ctx.terminal, writer)
    }
}

/// Writes a heading, the arguments that have several lines, and the result.
fn write_call(
    writer: &mut StdoutWriter,
    result: &ToolResult,
    call: Option<&ToolCall>,
) -> Result<()> {
    let heading = Style::new().bold();
    let arguments = call.map(|call| identifying_arguments(&call.name, &call.arguments));
    let title = format!("{} {}", result.name, arguments.unwrap_or_default());
    writer.write_styled(title.trim_end(), &heading)?;
    writer.write("\n")?;
    let arguments = call.and_then(|call| call.arguments.as_object());
    for (name, value) in arguments.into_iter().flatten() {
        if let Value::String(text) = value
            && text.trim_end().contains('\n')
        {
            writer.write_styled(&format!("{name}:"), &heading)?;
            writer.write(&format!("\n{}\n", text.trim_end()))?;
        }
    }
    writer.write(plain_text(&result.parts).trim_end())?;
    writer.write("\n")
}
