//! A reply under construction: what the builders of all wire formats have in common.

use super::finish_reason::end_reply;
use super::reply_source::ReplySource;
use super::think_tags::TextSegment;
use super::wire_format::{ReplyError, ReplyResult};
use super::{Delta, DeltaSink, Request};
use nanobot_base::message::{Reply, ToolCall};
use serde_json::Value;

/// The parts that have arrived.
#[derive(Default)]
pub(super) struct ReplyDraft {
    pub(super) reply: Reply,
    /// Number of messages in the conversation. Generated ids count from it, which keeps them unique.
    message_count: usize,
    pub(super) source: ReplySource,
    /// The reason of the end, as the server names it.
    pub(super) finish_reason: Option<String>,
    /// True if the content itself says that the model declines.
    pub(super) is_refusal: bool,
    /// True once the response is complete, whatever follows.
    pub(super) is_complete: bool,
}

impl ReplyDraft {
    /// The draft of the reply to `request`.
    pub(super) fn new(request: &Request<'_>, source: ReplySource) -> Self {
        let reply = Reply { id: request.reply_id.to_owned(), ..Reply::default() };
        Self { reply, message_count: request.messages.len(), source, ..Self::default() }
    }

    /// Sets the model that answers, if it is named.
    pub(super) fn set_model(&mut self, model: &str) {
        if !model.is_empty() {
            model.clone_into(&mut self.reply.model);
        }
    }

    /// Adds text or reasoning, and passes it on.
    pub(super) fn add(
        &mut self,
        segment: TextSegment<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        match segment {
            TextSegment::Text(text) => self.reply.text.push_str(text),
            TextSegment::Reasoning(reasoning) => self.reply.reasoning.push_str(reasoning),
        }
        pass_on(segment, on_delta)
    }

    /// Adds the call with the position `number` in the response. It gets another id if its own is missing or a duplicate, which would
    /// assign a result to the wrong call.
    pub(super) fn add_call(&mut self, number: usize, mut call: ToolCall) -> ReplyResult<()> {
        if call.name.is_empty() {
            return Err(ReplyError::Malformed("a tool call without a name".into()));
        }
        let calls = &mut self.reply.tool_calls;
        if call.id.is_empty() || calls.iter().any(|other| other.id == call.id) {
            call.id = format!("call_{}_{number}", self.message_count);
        }
        calls.push(call);
        Ok(())
    }

    /// Checks that there is an end: without a finish reason and without the closing mark, the stream was truncated.
    pub(super) fn check_end(&self) -> ReplyResult<()> {
        if self.finish_reason.is_none() && !self.is_complete {
            return Err(ReplyError::Truncated("the stream ended early".into()));
        }
        Ok(())
    }

    /// The finished reply, with the data that the server requires back.
    pub(super) fn into_reply(mut self, opaque: Option<Value>) -> ReplyResult<Reply> {
        self.reply.provider_data = opaque.map(|opaque| self.source.wrap(opaque));
        end_reply(&mut self.reply, self.finish_reason.as_deref(), self.is_refusal)?;
        Ok(self.reply)
    }
}

/// Passes text or reasoning on.
pub(super) fn pass_on(segment: TextSegment<'_>, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
    let delta = match segment {
        TextSegment::Text("") | TextSegment::Reasoning("") => return Ok(()),
        TextSegment::Text(text) => Delta::Text(text),
        TextSegment::Reasoning(reasoning) => Delta::Reasoning(reasoning),
    };
    on_delta(delta).map_err(ReplyError::Cancelled)
}
