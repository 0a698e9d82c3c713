//! The answer of a turn: checked against its format, and kept as far as it arrived.

use super::Turn;
use super::ending::{incomplete_answer_error, schema_mismatch};
use crate::event::StopReason;
use crate::history::INTERRUPTION_MARK;
use crate::message::{FinishReason, Message, Reply};
use anyhow::Result;

/// Maximum retries after an answer that does not satisfy its schema.
const MAX_REPAIRS: u32 = 2;

/// The message to the model when a turn with a partial answer is resumed.
const REPEAT_PROMPT: &str =
    "[nanobot] Your answer was interrupted. Write the complete answer, from its beginning.";

impl Turn<'_, '_, '_> {
    /// Accepts `reply`, which has no tool calls, as the answer. `None` if the model is to be asked again, which
    /// `repairs` counts.
    pub(super) fn accept_answer(
        &mut self,
        mut reply: Reply,
        repairs: &mut u32,
    ) -> Result<Option<(StopReason, Option<Reply>)>> {
        let stop_reason = match reply.finish_reason {
            FinishReason::Length => StopReason::OutputLimit,
            FinishReason::Refusal => StopReason::Declined,
            _ => StopReason::Answered,
        };
        let Some(format) = self.agent.answer_format else {
            return Ok(Some((stop_reason, Some(reply))));
        };
        if stop_reason != StopReason::Answered {
            return Err(incomplete_answer_error(&reply.finish_reason));
        }
        match format.check(&reply.text) {
            Ok(text) => reply.text = text,
            Err(wrong) if *repairs == MAX_REPAIRS => {
                self.session.push(Message::Assistant(reply))?;
                return Err(schema_mismatch(&wrong));
            }
            Err(wrong) => {
                *repairs += 1;
                self.session.push(Message::Assistant(reply.clone()))?;
                self.emit_reply(&reply, false)?;
                self.inject_message(repair_prompt(&wrong), &format!("r{repairs}"))?;
                return Ok(None);
            }
        }
        Ok(Some((stop_reason, Some(reply))))
    }

    /// Logs the part of the current reply that has arrived, with a mark.
    pub(super) fn push_partial_reply(&mut self) -> Result<()> {
        let text = self.streamed_text.trim_end();
        if self.pending_reply_id.is_empty() || text.is_empty() {
            return Ok(());
        }
        self.session.push(Message::Assistant(Reply {
            id: std::mem::take(&mut self.pending_reply_id),
            text: format!("{text}{INTERRUPTION_MARK}"),
            finish_reason: FinishReason::Interrupted,
            model: self.agent.model.to_owned(),
            ..Reply::default()
        }))
    }

    /// Asks for the complete answer, if the turn that is resumed has a partial one.
    pub(super) fn request_repetition(&mut self) -> Result<()> {
        match self.session.messages().last() {
            Some(Message::Assistant(reply)) if reply.finish_reason == FinishReason::Interrupted => {
                self.inject_message(REPEAT_PROMPT.to_owned(), "resume")
            }
            _ => Ok(()),
        }
    }
}

/// The message to the model about an answer that does not satisfy its schema.
fn repair_prompt(error: &str) -> String {
    format!(
        "[nanobot] Your answer does not satisfy the schema: {error}. Send the complete answer again, as JSON only."
    )
}
