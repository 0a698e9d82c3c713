//! Imports conversations: session files of this program, transcripts of Claude Code, and rollouts of Codex.
//!
//! All three are JSON lines. The formats of the others have no specification: what is read of them is what their files of 2025 and 2026
//! have in common, and lines of unknown types are skipped. Texts, tool calls and their results are imported; images, reasoning and the
//! messages of sub-agents are not. The authors of a file are not known, so no host that it names counts as the user's.

use super::copy::{CountingWriter, lock_new};
use super::files::LoggedMessage;
use super::layout::SessionStore;
use super::line::{self, ClosingLine, MetadataLine, SessionLine};
use super::metadata::RecordedOrigin;
use crate::history::result_truncation;
use anyhow::Result;
use jiff::civil;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::user_text::{MessageSources, OthersContent};
use nanobot_base::message::{
    Message, MessagePart, Origin, Reply, ResultSource, ToolCall, ToolResult, UserMessage,
    plain_text,
};
use nanobot_os::durable_file;
use nanobot_os::secret::{self, random_hex};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Write;

/// The program that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// This program, or the Python one.
    Nanobot,
    /// Claude Code: the files in `~/.claude/projects`.
    ClaudeCode,
    /// Codex: the files in `~/.codex/sessions`.
    Codex,
}

impl TranscriptFormat {
    /// The name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Nanobot => "nanobot",
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
        }
    }
}

/// A conversation that was read from a file.
#[derive(Debug)]
pub struct ImportedConversation {
    /// The program that wrote it.
    pub format: TranscriptFormat,
    /// The least trusted origin of its content, which is not the user: a file can say anything.
    pub origin: Origin,
    /// Without turns. The times are empty if they are not known.
    messages: Vec<LoggedMessage>,
}

/// Parses a file.
///
/// # Errors
/// Status 65: it is in none of the formats, or has no messages.
pub fn parse_conversation(bytes: &[u8]) -> Result<ImportedConversation> {
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    let mut values = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_slice::<Value>(line) {
            Ok(value) if value.is_object() => values.push(value),
            // The program may have been ended while it wrote the last line.
            Err(_) if index > 0 && index + 1 == lines.len() => {}
            _ => {
                let cause = format!("line {} is not a JSON object", index + 1);
                return Err(fail(Exit::BadInput, cause));
            }
        }
    }
    let format = values.iter().find_map(find_format).ok_or_else(|| {
        fail(Exit::BadInput, "it is no session of nanobot, Claude Code or Codex".to_owned())
    })?;
    let mut builder = TranscriptBuilder::default();
    let mut seen_ids = HashSet::new();
    match format {
        TranscriptFormat::Nanobot => lines.iter().for_each(|line| builder.add_own(line)),
        TranscriptFormat::ClaudeCode => {
            let is_new = |value: &&Value| {
                value["uuid"].as_str().is_none_or(|id| seen_ids.insert(id.to_owned()))
            };
            values.iter().filter(is_new).for_each(|value| builder.add_claude_code(value));
        }
        TranscriptFormat::Codex => values.iter().for_each(|value| builder.add_codex(value)),
    }
    builder.flush();
    if builder.messages.is_empty() {
        return Err(fail(Exit::BadInput, "it has no messages".to_owned()));
    }
    Ok(ImportedConversation { format, origin: builder.origin, messages: builder.messages })
}

/// The format that a line shows; `None` if several may have it.
fn find_format(line: &Value) -> Option<TranscriptFormat> {
    let kind = line["type"].as_str();
    if line["_type"].is_string() || (kind.is_none() && line["role"].is_string()) {
        return Some(TranscriptFormat::Nanobot);
    }
    if line["payload"].is_object() {
        return Some(TranscriptFormat::Codex);
    }
    match kind? {
        "user" | "assistant" if line["message"].is_object() => Some(TranscriptFormat::ClaudeCode),
        // Older files of Codex have the items without an envelope.
        "message" | "function_call" => Some(TranscriptFormat::Codex),
        _ => None,
    }
}

/// Stores `conversation` as the new session `key`. Returns the number of its messages.
///
/// # Errors
/// Status 2 if there is a session `key`. The file cannot be written.
pub fn import(
    store: &SessionStore,
    key: &str,
    conversation: &ImportedConversation,
) -> Result<usize> {
    let (path, lock) = lock_new(store, key)?;
    let now = store.clock.local_timestamp();
    let first = conversation
        .messages
        .iter()
        .map(|logged| &logged.time)
        .find(|time| !time.is_empty())
        .unwrap_or(&now);
    let mut metadata = MetadataLine {
        key: Some(key.to_owned()),
        created_at: Some(first.clone()),
        updated_at: Some(now.clone()),
        ..MetadataLine::default()
    };
    let count = conversation.messages.len();
    durable_file::create(&path, &mut |out: &mut dyn Write| {
        let mut out = CountingWriter { out, bytes_written: 0 };
        out.write(line::format_metadata(&metadata, None).as_bytes())?;
        let mut turn = random_hex(5);
        for (index, logged) in conversation.messages.iter().enumerate() {
            if logged.message.begins_turn() {
                turn = random_hex(5);
            }
            let mut message = logged.message.clone();
            match &mut message {
                Message::User(user) => user.id = format!("{turn}-0"),
                Message::Assistant(reply) => reply.id = format!("{turn}-{index}"),
                Message::Tool(result) => {
                    result_truncation::limit_result(result, store.result_limit);
                }
            }
            let message = message.map_texts(secret::mask_for_request).unwrap_or(message);
            let time = if logged.time.is_empty() { &now } else { &logged.time };
            out.write(line::format_message(&message, &turn, time).as_bytes())?;
        }
        metadata.update_session_metadata(|session_metadata| {
            session_metadata.origin = Some(RecordedOrigin {
                level: conversation.origin,
                content: IMPORTED_CONTENT.to_owned(),
                since: 1,
            });
        });
        metadata.message_count = Some(count);
        metadata.offset = Some(out.bytes_written);
        let closing = ClosingLine { turn: "", ending: "imported", summary: None };
        out.write(line::format_metadata(&metadata, Some(&closing)).as_bytes())
    })?;
    drop(lock);
    Ok(count)
}

/// The phrase for the content of an imported conversation.
const IMPORTED_CONTENT: &str = "an imported conversation";

/// Tools of the other programs whose results are files of the machine or text of the program itself. Results of any other tool may be
/// from anywhere: their commands have a network.
const LOCAL_TOOLS: [&str; 20] = [
    "Edit",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "LS",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "Read",
    "TodoWrite",
    "Write",
    "apply_patch",
    "edit_file",
    "glob",
    "grep",
    "list_dir",
    "read_file",
    "todo",
    "update_plan",
    "write_file",
];

/// Texts with which Codex begins a conversation on its own.
const CODEX_PREAMBLES: [&str; 4] = [
    "<environment_context>",
    "<permissions instructions>",
    "<user_instructions>",
    "# AGENTS.md instructions",
];

/// Collects messages in the order that providers demand: each reply, then one result for each of its calls.
struct TranscriptBuilder {
    messages: Vec<LoggedMessage>,
    origin: Origin,
    /// The time of the line that is added; empty if it is not known.
    time: String,
    /// The reply to which more calls may be added, with its time and the id that its lines share.
    reply: Option<Reply>,
    reply_time: String,
    reply_id: Option<String>,
    results: Vec<ToolResult>,
}

impl Default for TranscriptBuilder {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            origin: Origin::Project,
            time: String::new(),
            reply: None,
            reply_time: String::new(),
            reply_id: None,
            results: Vec::new(),
        }
    }
}

impl TranscriptBuilder {
    fn add_user(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.flush();
        let others = Some(OthersContent::new(Origin::Project, IMPORTED_CONTENT));
        self.push(Message::User(UserMessage {
            parts: vec![MessagePart::Text(text.to_owned())],
            sources: Some(MessageSources { others, ..MessageSources::default() }),
            ..UserMessage::default()
        }));
    }

    /// The reply that lines with this id belong to. Without an id, `starts_reply` begins another one.
    fn reply(&mut self, id: Option<&str>, starts_reply: bool) -> &mut Reply {
        let is_same = match id {
            Some(id) => self.reply_id.as_deref() == Some(id),
            None => !starts_reply,
        };
        if !is_same {
            self.flush();
            self.reply_id = id.map(str::to_owned);
        }
        if self.reply.is_none() {
            self.reply_time.clone_from(&self.time);
        }
        self.reply.get_or_insert_default()
    }

    fn add_text(&mut self, id: Option<&str>, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let reply = self.reply(id, true);
        if !reply.text.is_empty() {
            reply.text.push_str("\n\n");
        }
        reply.text.push_str(text);
    }

    fn add_call(&mut self, id: Option<&str>, call: ToolCall) {
        if !LOCAL_TOOLS.contains(&call.name.as_str()) {
            self.origin = Origin::External;
        }
        // Calls without an id that follow results are those of the next reply.
        let starts_reply = !self.results.is_empty();
        self.reply(id, starts_reply).tool_calls.push(call);
    }

    fn add_result(&mut self, call_id: &str, text: String, failed: bool) {
        let calls = self.reply.iter().flat_map(|reply| &reply.tool_calls);
        let call = calls.into_iter().find(|call| call.id == call_id);
        let is_answered = self.results.iter().any(|result| result.call_id == call_id);
        if let Some(call) = call
            && !is_answered
        {
            self.results.push(ToolResult {
                call_id: call_id.to_owned(),
                name: call.name.clone(),
                parts: vec![MessagePart::Text(text)],
                failed,
                source: ResultSource::Unspecified,
            });
        }
    }

    fn push(&mut self, message: Message) {
        let (index, time, turn) = (self.messages.len(), self.time.clone(), String::new());
        self.messages.push(LoggedMessage { index, time, turn, message });
    }

    /// Adds the pending reply with the results of its calls.
    fn flush(&mut self) {
        self.reply_id = None;
        let mut results = std::mem::take(&mut self.results);
        let Some(reply) = self.reply.take() else {
            return;
        };
        let calls = reply.tool_calls.clone();
        let time = std::mem::replace(&mut self.time, std::mem::take(&mut self.reply_time));
        self.push(Message::Assistant(reply));
        self.time = time;
        for call in calls {
            let index = results.iter().position(|result| result.call_id == call.id);
            let result = index.map(|index| results.remove(index)).unwrap_or_else(|| ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                parts: vec![MessagePart::Text("(the file has no result of this call)".to_owned())],
                failed: true,
                source: ResultSource::NotMade,
            });
            self.push(Message::Tool(result));
        }
    }

    /// Adds a line of a session file of this program.
    fn add_own(&mut self, text: &[u8]) {
        let line = line::parse(text);
        if let SessionLine::Message(message) = &line {
            if matches!(message, Some(Message::User(_) | Message::Assistant(_))) {
                self.flush();
            }
            let (time, _) = line::timestamp_and_turn(text);
            let is_time = time.parse::<civil::DateTime>().is_ok();
            self.time = if is_time { time } else { String::new() };
        }
        match line {
            SessionLine::Metadata(metadata) => {
                let recorded = metadata.session_metadata();
                let origins = [recorded.origin, recorded.origin_left_by_new];
                let levels = origins.into_iter().flatten().map(|origin| origin.level);
                self.origin = levels.fold(self.origin, Origin::max);
            }
            SessionLine::Message(Some(Message::User(user))) => {
                self.add_user(&plain_text(&user.parts));
            }
            SessionLine::Message(Some(Message::Assistant(reply))) => {
                self.add_text(None, &reply.text);
                for call in reply.tool_calls {
                    self.add_call(None, call);
                }
            }
            SessionLine::Message(Some(Message::Tool(result))) => {
                self.add_result(&result.call_id, plain_text(&result.parts), result.failed);
            }
            _ => {}
        }
    }

    /// Adds a line of a transcript of Claude Code. It has a line for each block of a reply, and results of tools are messages of the user.
    fn add_claude_code(&mut self, line: &Value) {
        let is_skipped = |key: &str| line[key] == Value::Bool(true);
        if ["isSidechain", "isMeta", "isApiErrorMessage"].into_iter().any(is_skipped) {
            return;
        }
        let message = &line["message"];
        let content = &message["content"];
        match line["type"].as_str() {
            Some("user") => {
                for block in blocks(content).filter(|block| block["type"] == "tool_result") {
                    let call_id = block["tool_use_id"].as_str().unwrap_or_default();
                    let failed = block["is_error"] == Value::Bool(true);
                    self.add_result(call_id, text_of(&block["content"]), failed);
                }
                self.add_user(&text_of(content));
            }
            Some("assistant") => {
                let id = message["id"].as_str();
                self.add_text(id, &text_of(content));
                for block in blocks(content) {
                    match block["type"].as_str() {
                        Some("tool_use") => self
                            .add_call(id, to_call(&block["id"], &block["name"], &block["input"])),
                        // Tools of the provider: their results are from the web.
                        Some("server_tool_use") => self.origin = Origin::External,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a line of a rollout of Codex: an item of the Responses API, in an envelope or, in older files, without one.
    fn add_codex(&mut self, line: &Value) {
        let item = match line["type"].as_str() {
            Some("response_item") => &line["payload"],
            _ if line["payload"].is_object() => return,
            _ => line,
        };
        match item["type"].as_str() {
            Some("message") => {
                let text = text_of(&item["content"]);
                let is_preamble = |preamble: &&str| text.trim_start().starts_with(*preamble);
                match item["role"].as_str() {
                    Some("user") if !CODEX_PREAMBLES.iter().any(is_preamble) => {
                        self.add_user(&text);
                    }
                    Some("assistant") => self.add_text(None, &text),
                    _ => {}
                }
            }
            Some("function_call") => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let arguments = serde_json::from_str(arguments)
                    .unwrap_or_else(|_| Value::String(arguments.to_owned()));
                self.add_call(None, to_call(&item["call_id"], &item["name"], &arguments));
            }
            Some("custom_tool_call") => {
                let input = serde_json::json!({ "input": item["input"] });
                self.add_call(None, to_call(&item["call_id"], &item["name"], &input));
            }
            Some("local_shell_call") => {
                let name = Value::String("shell".to_owned());
                self.add_call(None, to_call(&item["call_id"], &name, &item["action"]));
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let call_id = item["call_id"].as_str().unwrap_or_default();
                let output = &item["output"];
                let failed = output["success"] == Value::Bool(false);
                let content = if output["content"].is_null() { output } else { &output["content"] };
                self.add_result(call_id, text_of(content), failed);
            }
            Some("web_search_call") => self.origin = Origin::External,
            _ => {}
        }
    }
}

fn to_call(id: &Value, name: &Value, arguments: &Value) -> ToolCall {
    ToolCall {
        id: id.as_str().unwrap_or_default().to_owned(),
        name: name.as_str().unwrap_or_default().to_owned(),
        arguments: match secret::redact_known_json(arguments) {
            Cow::Owned(clean) => clean,
            Cow::Borrowed(arguments) => arguments.clone(),
        },
    }
}

fn blocks(content: &Value) -> impl Iterator<Item = &Value> {
    content.as_array().into_iter().flatten()
}

/// The text of `content`: a string, or the texts of its blocks. Images are named.
fn text_of(content: &Value) -> String {
    if let Value::String(text) = content {
        return text.clone();
    }
    let texts = blocks(content).filter_map(|block| match block["type"].as_str() {
        Some("text" | "input_text" | "output_text") => block["text"].as_str(),
        Some("image" | "input_image") => Some("[image]"),
        Some("document" | "input_file") => Some("[document]"),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
