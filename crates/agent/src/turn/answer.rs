//! The answer of a turn: continued if the output limit cuts it, checked against its format, and kept as far as it
//! arrived.

use super::ending::{incomplete_answer_error, schema_mismatch};
use super::{LoopEnd, Turn};
use anyhow::Result;
use nanobot_base::event::{Event, StopReason};
use nanobot_base::message::{FinishReason, Message, MessagePart, Reply, UserMessage};
use nanobot_store::history::{INTERRUPTION_MARK, NO_MORE_TEXT};

/// Maximum retries after an answer that does not satisfy its schema.
const MAX_REPAIRS: u32 = 2;

/// Maximum number of times that an answer is continued after the output limit has cut it.
const MAX_CONTINUATIONS: u32 = 3;

/// Maximum number of answers of a turn that hooks can reject. The next one is accepted.
const MAX_REJECTIONS: u32 = 3;

/// The message to the model when the output limit has cut its answer.
const CONTINUE_PROMPT: &str = "[nanobot] Your answer reached the output limit. Continue it exactly where it stopped, even within a word. Repeat \
     nothing, and add no remark.";

/// The message to the model when a turn with a partial answer is resumed.
const REPEAT_PROMPT: &str =
    "[nanobot] Your answer was interrupted. Write the complete answer, from its beginning.";

impl Turn<'_, '_, '_> {
    /// Accepts `reply`, which has no tool calls, as the answer. `None` if the model is to be asked again.
    pub(super) fn accept_answer(&mut self, mut reply: Reply) -> Result<Option<LoopEnd>> {
        let stop_reason = match reply.finish_reason {
            FinishReason::Length => StopReason::OutputLimit,
            FinishReason::Refusal => StopReason::Declined,
            FinishReason::Stop => StopReason::Answered,
            FinishReason::Interrupted | FinishReason::Other(_) => StopReason::Failed,
            FinishReason::ToolCalls if self.agent.toolbox.specs().is_empty() => {
                StopReason::Answered
            }
            FinishReason::ToolCalls => StopReason::Failed,
        };
        let Some(format) = self.agent.answer_format else {
            if stop_reason == StopReason::OutputLimit && self.cut_count < MAX_CONTINUATIONS {
                return self.request_continuation(&reply).map(|()| None);
            }
            return self.accept_by_hooks(stop_reason, reply);
        };
        if stop_reason != StopReason::Answered {
            return Err(incomplete_answer_error(&reply.finish_reason));
        }
        match format.check(&reply.text) {
            Ok(text) => reply.text = text,
            Err(error) if self.repair_count == MAX_REPAIRS => {
                return Err(self.keep_mismatch(reply, &error)?);
            }
            Err(error) => {
                self.repair_count += 1;
                self.session.push(Message::Assistant(reply.clone()))?;
                self.emit_reply(&reply, false)?;
                self.inject_message(repair_prompt(&error), &format!("r{}", self.repair_count))?;
                return Ok(None);
            }
        }
        self.accept_by_hooks(stop_reason, reply)
    }

    /// Stores and shows the last answer, which violates the schema and is paid for; standard output is for answers of the
    /// schema. Returns the error of the turn.
    pub(super) fn keep_mismatch(&mut self, reply: Reply, error: &str) -> Result<anyhow::Error> {
        let notice = format!("the last answer, which is not printed:\n{}", reply.text.trim());
        self.session.push(Message::Assistant(reply))?;
        (self.sink)(Event::Notice(&notice))?;
        Ok(schema_mismatch(error))
    }

    /// Accepts `reply` unless a hook or the command of `--until` rejects it. `None` if the model is to be asked again.
    fn accept_by_hooks(
        &mut self,
        stop_reason: StopReason,
        reply: Reply,
    ) -> Result<Option<LoopEnd>> {
        if let Some(hooks) = self.agent.hooks
            && stop_reason == StopReason::Answered
            && self.rejection_count < MAX_REJECTIONS
        {
            let text = format!("{}{}", self.cut_text, reply.text);
            if let Err(objection) = hooks.check_answer(&text, self.rejection_count) {
                self.rejection_count += 1;
                (self.cut_text, self.cut_count) = (String::new(), 0);
                self.session.push(Message::Assistant(reply.clone()))?;
                self.emit_reply(&reply, false)?;
                self.inject_message(objection, &format!("h{}", self.rejection_count))?;
                return Ok(None);
            }
        }
        self.accept_by_command(stop_reason, reply)
    }

    /// Keeps `reply`, which the output limit has cut, and asks for the rest. No event comes between the parts, so that
    /// they are one text on a terminal.
    fn request_continuation(&mut self, reply: &Reply) -> Result<()> {
        self.session.push(Message::Assistant(reply.clone()))?;
        self.cut_text.push_str(&reply.text);
        self.streamed_text.clear();
        self.cut_count += 1;
        self.session.push(Message::User(UserMessage {
            id: format!("{}-c{}", self.session.turn(), self.cut_count),
            parts: vec![MessagePart::Text(CONTINUE_PROMPT.into())],
            injected: true,
            ..UserMessage::default()
        }))?;
        (self.sink)(Event::Usage { message_id: &reply.id, usage: reply.usage, cost: reply.cost })
    }

    /// The last part of an answer that cannot be continued.
    pub(super) fn empty_rest(&self) -> Reply {
        Reply { id: format!("{}-end", self.session.turn()), ..Reply::default() }
    }

    /// Returns the answer, which is `reply` with the parts before it, and the message for the log.
    pub(super) fn complete_answer(&mut self, reply: Reply) -> (Reply, Message) {
        let mut stored = reply.clone();
        if stored.is_blank() {
            stored.text = NO_MORE_TEXT.into();
        }
        let text = std::mem::take(&mut self.cut_text) + &reply.text;
        (Reply { text, ..reply }, Message::Assistant(stored))
    }

    /// Logs the part of the current reply that has arrived, with a mark.
    pub(super) fn push_partial_reply(&mut self) -> Result<()> {
        let text = self.streamed_text.trim_end();
        if text.is_empty() {
            return Ok(());
        }
        let Some(id) = self.pending_reply_id.take() else {
            return Ok(());
        };
        self.session.push(Message::Assistant(Reply {
            id,
            text: format!("{text}{INTERRUPTION_MARK}"),
            finish_reason: FinishReason::Interrupted,
            model: self.agent.model.to_owned(),
            ..Reply::default()
        }))
    }

    /// Continues the answer of the resumed turn. An interrupted answer is requested again; one that the output limit has cut is continued.
    pub(super) fn resume_answer(&mut self) -> Result<()> {
        let mut messages = self.session.messages();
        if let Some(Message::Assistant(reply)) = messages.last()
            && reply.finish_reason == FinishReason::Interrupted
        {
            return self.inject_message(REPEAT_PROMPT.to_owned(), "resume");
        }
        while let [earlier @ .., Message::User(user)] = messages
            && user.injected
        {
            messages = earlier;
            if let [earlier @ .., Message::Assistant(reply)] = messages
                && reply.finish_reason == FinishReason::Length
                && reply.tool_calls.is_empty()
            {
                self.cut_text.insert_str(0, &reply.text);
                self.cut_count += 1;
                messages = earlier;
            }
        }
        Ok(())
    }
}

/// The message to the model about an answer that does not satisfy its schema.
fn repair_prompt(error: &str) -> String {
    format!(
        "[nanobot] Your answer does not satisfy the schema: {error}. Send the complete answer again, as JSON only."
    )
}
