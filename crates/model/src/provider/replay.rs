//! `--replay FILE`: answers from a recording, in order and without network access. Concurrent callers each get the
//! reply that was recorded for the same request, or else for the same caller, identified by the beginning of the
//! conversation.

use super::path_names::PathNames;
use super::{Delta, DeltaSink, Provider, ProviderError, Request, cassette};
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Reply;
use nanobot_os::sync::IgnorePoison;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A recording, with the exchanges that are not replayed yet.
pub struct ReplayProvider {
    path: PathBuf,
    exchanges: Mutex<VecDeque<(Value, Result<Reply, ProviderError>)>>,
    path_names: PathNames,
    /// True if a request that differs from the recorded one is an error.
    is_strict: bool,
    /// The session in which the recording was made, and the number of its earlier messages, if there were any.
    pub recorded_conversation: Option<(String, usize)>,
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
            recorded_conversation: cassette::recorded_conversation(text),
        })
    }
}

impl Provider for ReplayProvider {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        let question = cassette::request_to_json(request, &self.path_names);
        let next = {
            let mut exchanges = self.exchanges.lock().ignore_poison();
            let alike = |keys: &[&str]| {
                let same = |(recorded, _): &(Value, _)| {
                    keys.iter().all(|key| recorded.pointer(key) == question.pointer(key))
                };
                exchanges.iter().position(same)
            };
            let place = alike(&[""])
                .or_else(|| alike(&["/system", "/messages/0"]))
                .or_else(|| alike(&["/system"]));
            exchanges.remove(place.unwrap_or(0))
        };
        let Some((recorded, answer)) = next else {
            let cause = format!("the recording `{}` has no further exchange", self.path.display());
            return Err(ProviderError::Aborted(fail(Exit::BadInput, cause)));
        };
        if let Some(place) = cassette::first_difference(&recorded, &question) {
            let notice = format!("the request differs from the recorded one at {place}");
            if self.is_strict {
                let diff = difference_at(&place, &recorded, &question);
                let cause = format!("{notice}\n{diff}");
                return Err(ProviderError::Aborted(fail(Exit::BadInput, cause)));
            }
            on_delta(Delta::Notice(&notice)).map_err(ProviderError::Aborted)?;
        }
        let mut reply = answer?;
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

/// The unified diff of what two requests have at a JSON pointer.
fn difference_at(place: &str, recorded: &Value, request: &Value) -> String {
    let text = |value: &Value| match value.pointer(place) {
        Some(Value::String(text)) => format!("{text}\n"),
        Some(other) => format!("{other:#}\n"),
        None => String::new(),
    };
    let (recorded, request) = (text(recorded), text(request));
    let diff = Diff::new(&recorded, &request).unified_with_header(1, "recorded", "request");
    diff.trim_end().to_owned()
}
