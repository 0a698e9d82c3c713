//! `--replay FILE`: answers from a recording, in order and without network access. Concurrent callers each get the
//! reply that was recorded for the same request, or else for the same caller, identified by the beginning of the
//! conversation.

use super::cassette::{self, RecordedExchange};
use super::path_names::PathNames;
use super::{Delta, DeltaSink, Provider, ProviderError, ProviderResult, Request};
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Reply;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// A recording, with the exchanges that are not replayed yet.
pub struct ReplayProvider {
    path: PathBuf,
    exchanges: Mutex<VecDeque<RecordedExchange>>,
    path_names: PathNames,
    /// True if a request that differs from the recorded one is an error.
    is_strict: bool,
    pub recorded_conversation: Option<RecordedConversation>,
}

/// The conversation that a recording continues.
pub struct RecordedConversation {
    /// The key of its session.
    pub session: String,
    /// The number of its messages before the first recorded one.
    pub earlier_count: usize,
}

impl ReplayProvider {
    /// # Errors
    /// Status 65 if `text`, the file's content, is not a recording.
    pub fn new(
        path: &Path,
        text: &str,
        path_names: PathNames,
        is_strict: bool,
    ) -> anyhow::Result<Self> {
        let mut exchanges = VecDeque::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let exchange = cassette::parse_line(line, &path_names).ok_or_else(|| {
                fail(
                    Exit::BadInput,
                    format!("`{}` is not a recording: line {}", path.display(), number + 1),
                )
            })?;
            exchanges.push_back(exchange);
        }
        Ok(Self {
            path: path.to_owned(),
            exchanges: Mutex::new(exchanges),
            path_names,
            is_strict,
            recorded_conversation: recorded_conversation(text),
        })
    }
}

impl Provider for ReplayProvider {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let request_json = cassette::request_to_json(request, &self.path_names);
        let next = {
            let mut exchanges = self.exchanges.lock();
            let position_of_equal = |pointers: &[&str]| {
                exchanges.iter().position(|recorded| {
                    let is_equal = |pointer: &&str| {
                        recorded.request.pointer(pointer) == request_json.pointer(pointer)
                    };
                    pointers.iter().all(is_equal)
                })
            };
            // The same request, or the same caller: its system prompt and its first message.
            let position = position_of_equal(&[""])
                .or_else(|| position_of_equal(&["/system", "/messages/0"]))
                .or_else(|| position_of_equal(&["/system"]));
            exchanges.remove(position.unwrap_or(0))
        };
        let Some(recorded) = next else {
            let cause = format!("the recording `{}` has no further exchange", self.path.display());
            return Err(ProviderError::Aborted(fail(Exit::BadInput, cause)));
        };
        if let Some(pointer) = cassette::first_difference(&recorded.request, &request_json) {
            let notice = format!("the request differs from the recorded one at {pointer}");
            if self.is_strict {
                let diff = difference_at(&pointer, &recorded.request, &request_json);
                let cause = format!("{notice}\n{diff}");
                return Err(ProviderError::Aborted(fail(Exit::BadInput, cause)));
            }
            on_delta(Delta::Notice(&notice)).map_err(ProviderError::Aborted)?;
        }
        let mut reply = recorded.reply?;
        request.reply_id.clone_into(&mut reply.id);
        for (text, delta) in [
            (&reply.reasoning, Delta::Reasoning(&reply.reasoning)),
            (&reply.text, Delta::Text(&reply.text)),
        ] {
            if !text.is_empty() {
                on_delta(delta).map_err(ProviderError::Aborted)?;
            }
        }
        Ok(reply)
    }
}

/// The unified diff of the values of two requests at a JSON pointer.
fn difference_at(pointer: &str, recorded: &Value, request: &Value) -> String {
    let text = |value: &Value| match value.pointer(pointer) {
        Some(Value::String(text)) => format!("{text}\n"),
        Some(other) => format!("{other:#}\n"),
        None => String::new(),
    };
    let (recorded, request) = (text(recorded), text(request));
    let diff = Diff::new(&recorded, &request).unified_with_header(1, "recorded", "request");
    diff.trim_end().to_owned()
}

/// The conversation that `recording` continues; `None` if its first exchange began a session.
fn recorded_conversation(recording: &str) -> Option<RecordedConversation> {
    let object: Value = serde_json::from_str(recording.lines().next()?).ok()?;
    let messages = object["request"]["messages"].as_array()?;
    let is_injected = |message: &Value| {
        message["text"].as_str().is_some_and(|text| text.starts_with("[nanobot]"))
    };
    let is_user = |message: &Value| message["role"] == "user" && !is_injected(message);
    let earlier_count = messages.iter().rposition(is_user).filter(|count| *count > 0)?;
    Some(RecordedConversation { session: object["session"].as_str()?.to_owned(), earlier_count })
}
