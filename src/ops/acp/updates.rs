//! The events of a turn, as an editor receives them.

use super::client::EditorClient;
use super::session::EditorSession;
use nanobot_agent::report::short_text::{identifying_arguments, truncate_line};
use nanobot_base::event::{Event, ToolOutcome};
use nanobot_base::message::{Message, ToolCall, plain_text};
use nanobot_config::policy::call_files::files_of_call;
use nanobot_config::policy::tool_names::{WRITE_TOOLS, find_built_in};
use nanobot_os::durable_file;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum characters of the title of a call.
const MAX_TITLE_CHARS: usize = 80;
/// The largest file whose change is shown, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Sends the events of a session's turns to the editor.
pub(super) struct TurnUpdates {
    client: Arc<EditorClient>,
    session: Arc<EditorSession>,
    state: Mutex<UpdateState>,
}

#[derive(Default)]
struct UpdateState {
    /// The id of the reply whose text was sent in chunks.
    streamed_reply: String,
    /// The calls of the turn that have not ended, with the files that they may change.
    calls: Vec<EditorCall>,
}

struct EditorCall {
    call: ToolCall,
    files: Vec<FileBefore>,
}

/// A file that a call may change.
struct FileBefore {
    path: PathBuf,
    /// Its text before the call.
    text: FileText,
}

impl TurnUpdates {
    pub(super) fn new(client: &Arc<EditorClient>, session: &Arc<EditorSession>) -> Self {
        Self { client: Arc::clone(client), session: Arc::clone(session), state: Mutex::default() }
    }

    /// Handles an event of the turn.
    pub(super) fn handle(&self, event: &Event<'_>) {
        let mut state = self.state.lock();
        match *event {
            Event::Text { message_id, text } => {
                message_id.clone_into(&mut state.streamed_reply);
                self.send(&message_chunk("agent_message_chunk", message_id, text));
            }
            Event::Reasoning { message_id, text } => {
                self.send(&message_chunk("agent_thought_chunk", message_id, text));
            }
            // The text of a reply that was not streamed.
            Event::Assistant { reply, .. }
                if state.streamed_reply != reply.id && !reply.text.is_empty() =>
            {
                self.send(&message_chunk("agent_message_chunk", &reply.id, &reply.text));
            }
            Event::ToolCall(call) => {
                let paths = self.paths(call);
                self.send(&tool_call_update(call, &paths));
                if let Some(plan) = plan_update(call) {
                    self.send(&plan);
                }
                let mut files = Vec::new();
                if WRITE_TOOLS.contains(&call.name.as_str()) {
                    files.extend(paths.into_iter().map(FileBefore::read));
                }
                state.calls.push(EditorCall { call: call.clone(), files });
            }
            Event::ToolResult { result, outcome, command_failed, .. } => {
                let mut calls = state.calls.iter();
                let index = calls.position(|running| running.call.id == result.call_id);
                let ended_call = index.map(|index| state.calls.remove(index));
                let mut content = Vec::new();
                for file in ended_call.into_iter().flat_map(|call| call.files) {
                    content.extend(diff_content(&file));
                }
                let text = plain_text(&result.parts);
                content.push(json!({ "type": "content", "content": text_content(&text) }));
                let is_completed = outcome == ToolOutcome::Ok && !command_failed;
                self.send(&json!({
                    "sessionUpdate": "tool_call_update", "toolCallId": result.call_id,
                    "status": if is_completed { "completed" } else { "failed" }, "content": content,
                }));
            }
            _ => {}
        }
    }

    /// The id of the running call of `tool` with these arguments; `None` if it is a sub-agent's.
    pub(super) fn call_id(&self, tool: &str, arguments: &Value) -> Option<String> {
        let state = self.state.lock();
        let mut calls = state.calls.iter();
        let call = calls.find(|running| {
            running.call.name == tool && *running.call.arguments_object() == *arguments
        });
        call.map(|running| running.call.id.clone())
    }

    /// The paths of the files that a call is about.
    fn paths(&self, call: &ToolCall) -> Vec<PathBuf> {
        let arguments = call.arguments_object();
        let files = files_of_call(&call.name, &arguments);
        files.iter().map(|file| self.session.directory.join(&*file.path)).collect()
    }

    fn send(&self, update: &Value) {
        // If standard output fails, the connection ends, and the turn with it.
        drop(self.client.update(&self.session.key, update));
    }
}

impl FileBefore {
    fn read(path: PathBuf) -> Self {
        let text = FileText::read(&path);
        Self { path, text }
    }
}

/// The text of a file, as a diff shows it.
#[derive(PartialEq, Eq)]
enum FileText {
    Missing,
    Present(String),
    /// The file is too large, not text, or cannot be read.
    NotShown,
}

impl FileText {
    fn read(path: &Path) -> Self {
        match durable_file::read_limited(path, MAX_FILE_BYTES) {
            Ok(None) => Self::Missing,
            Ok(Some(bytes)) => String::from_utf8(bytes).map_or(Self::NotShown, Self::Present),
            Err(_) => Self::NotShown,
        }
    }

    fn as_str(&self) -> Option<&str> {
        match self {
            Self::Present(text) => Some(text),
            Self::Missing | Self::NotShown => None,
        }
    }
}

/// The change of a file; `None` if there is none, or none that can be shown.
fn diff_content(before: &FileBefore) -> Option<Value> {
    let FileBefore { path, text } = before;
    let new_text = FileText::read(path);
    if new_text == *text || [text, &new_text].contains(&&FileText::NotShown) {
        return None;
    }
    Some(json!({
        "type": "diff", "path": path.to_string_lossy(), "oldText": text.as_str(), "newText": new_text.as_str().unwrap_or_default(),
    }))
}

fn text_content(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A chunk of a message. `kind` says whose message it is.
fn message_chunk(kind: &str, id: &str, text: &str) -> Value {
    json!({ "sessionUpdate": kind, "messageId": id, "content": text_content(text) })
}

/// The start of a call that is about the files `paths`.
fn tool_call_update(call: &ToolCall, paths: &[PathBuf]) -> Value {
    let location = |path: &PathBuf| json!({ "path": path.to_string_lossy() });
    let locations: Vec<Value> = paths.iter().map(location).collect();
    json!({
        "sessionUpdate": "tool_call", "toolCallId": call.id, "title": call_title(&call.name, &call.arguments),
        "kind": tool_kind(&call.name), "status": "in_progress", "locations": locations,
        "rawInput": call.arguments_object(),
    })
}

/// The title of a call: the tool, and the arguments that identify the call.
pub(super) fn call_title(tool: &str, arguments: &Value) -> String {
    match identifying_arguments(tool, arguments).as_str() {
        "" => tool.to_owned(),
        arguments => truncate_line(&format!("{tool}: {arguments}"), MAX_TITLE_CHARS),
    }
}

/// The kind of a tool, by which an editor chooses an icon.
pub(super) fn tool_kind(tool: &str) -> &'static str {
    find_built_in(tool).map_or("other", |tool| tool.kind)
}

/// The plan of a call of `todo` that writes one.
fn plan_update(call: &ToolCall) -> Option<Value> {
    let todos = call.arguments["todos"].as_array()?;
    if call.name != "todo" {
        return None;
    }
    let entries = todos.iter().map(|todo| {
        let status = match todo["status"].as_str() {
            Some("in_progress") => "in_progress",
            Some("completed" | "cancelled") => "completed",
            _ => "pending",
        };
        // The protocol requires a priority, and a todo has none.
        json!({ "content": todo["content"], "priority": "medium", "status": status })
    });
    Some(json!({ "sessionUpdate": "plan", "entries": entries.collect::<Vec<_>>() }))
}

/// The updates that show the messages of a stored conversation.
pub(super) fn replay(messages: &[Message]) -> Vec<Value> {
    let mut updates = Vec::new();
    for message in messages {
        match message {
            Message::User(user) if user.injected => {}
            Message::User(user) => {
                let text = plain_text(&user.parts);
                updates.push(message_chunk("user_message_chunk", &user.id, &text));
            }
            Message::Assistant(reply) => {
                if !reply.text.is_empty() {
                    updates.push(message_chunk("agent_message_chunk", &reply.id, &reply.text));
                }
                updates.extend(reply.tool_calls.iter().map(|call| tool_call_update(call, &[])));
            }
            // That the command of a call failed, which counts as a failure in a running turn, is not stored.
            Message::Tool(result) => updates.push(json!({
                "sessionUpdate": "tool_call_update", "toolCallId": result.call_id,
                "status": if result.failed { "failed" } else { "completed" },
                "content": [{ "type": "content", "content": text_content(&plain_text(&result.parts)) }],
            })),
        }
    }
    updates
}
