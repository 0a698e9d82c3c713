//! One request of a turn: sending it, retrying when it is too long, objecting to an invalid answer, counting its cost.

use super::Turn;
use super::agent::Agent;
use super::compact::ShrinkStage;
use super::ending::TurnStats;
use anyhow::Result;
use nanobot_base::event::{Event, EventSink};
use nanobot_base::message::{Message, MessagePart, Reply, Usage, UserMessage};
use nanobot_model::provider::{Delta, FailureKind, MessageFault, ProviderError};
use nanobot_store::session::Session;
use std::borrow::Cow;
use std::time::Instant;

impl<'a, 'b, 's> Turn<'a, 'b, 's> {
    /// Creates a turn that has not made a request yet.
    pub(super) fn new(
        agent: &'a mut Agent<'b>,
        session: &'a mut Session,
        sink: &'a mut EventSink<'s>,
    ) -> Self {
        Self {
            overhead_tokens: agent.overhead_tokens(session.messages()),
            agent,
            session,
            sink,
            stats: TurnStats::default(),
            streamed_text: String::new(),
            cut_text: String::new(),
            cut_count: 0,
            pending_reply_id: None,
            summary_count: 0,
            steering_count: 0,
            repair_count: 0,
            rejection_count: 0,
            rounds: Vec::new(),
            refused_calls: Vec::new(),
            is_in_calls: false,
            compaction_exhausted: false,
            is_left_out: false,
        }
    }

    /// Sends one request, and shortens the conversation if the server rejects it as too long. If the shortened request is rejected too,
    /// later runs leave the turn out. If the server fails, and has failed on an earlier message, the request is repeated without that
    /// message. `closing_message` ends the turn: it is sent as the last message, and tool calls are not allowed.
    pub(super) fn send_request(&mut self, closing_message: Option<&str>) -> Result<Reply> {
        self.stats.iterations += 1;
        let mut stage = ShrinkStage::default();
        let mut failing_turns = None;
        loop {
            let error = match self.send_once(closing_message) {
                Err(error) => error,
                Ok(reply) => {
                    if failing_turns.is_some() {
                        let notice =
                            "the server fails on an earlier message, which is left out from now on";
                        (self.sink)(Event::Notice(notice))?;
                    }
                    return Ok(reply);
                }
            };
            let is_too_long = error.kind() == Some(FailureKind::ContextExceeded);
            if is_too_long && self.shrink_request(&mut stage)? {
                continue;
            }
            if error.message_fault() == MessageFault::Possible && failing_turns.is_none() {
                failing_turns = self.session.leave_out_failing_turns();
                if failing_turns.is_some() {
                    continue;
                }
            }
            if let Some(failing_turns) = failing_turns {
                self.session.put_back(failing_turns);
            }
            return Err(self.request_failure(error));
        }
    }

    /// Converts the failure of a request, and leaves the turn out of later runs if its message is the cause.
    fn request_failure(&mut self, error: ProviderError) -> anyhow::Error {
        self.is_left_out = self.session.is_stored()
            && match error.message_fault() {
                MessageFault::None => false,
                MessageFault::Possible => self.session.record_server_failure(),
                MessageFault::Assumed => {
                    self.session.reject_turn();
                    true
                }
            };
        if self.is_left_out {
            self.pending_reply_id = None;
        }
        error.into_failure()
    }

    fn send_once(&mut self, closing_message: Option<&str>) -> Result<Reply, ProviderError> {
        let id = format!("{}-{}", self.session.turn(), self.stats.iterations);
        let may_call = closing_message.is_none();
        let mut messages = Cow::Borrowed(self.session.messages());
        if let Some(text) = closing_message {
            messages.to_mut().push(Message::User(UserMessage {
                parts: vec![MessagePart::Text(text.to_owned())],
                injected: true,
                ..UserMessage::default()
            }));
        }
        let tools = self.agent.toolbox.requested_specs(&messages);
        let request = self.agent.build_request(&messages, &tools, may_call, &id);
        let previous_text = std::mem::take(&mut self.streamed_text);
        self.pending_reply_id = Some(id.clone());
        let mut on_delta = |delta: Delta<'_>| {
            match delta {
                Delta::Text(text) => self.streamed_text.push_str(text),
                Delta::Retry { .. } | Delta::Fallback { .. } => self.streamed_text.clear(),
                Delta::Charged { usage, cost } => self.stats.add_charge(usage, cost),
                Delta::Reasoning(_) | Delta::Wait { .. } | Delta::Notice(_) => {}
            }
            (self.sink)(delta.into_event(&id))
        };
        let started = Instant::now();
        let result = self.agent.provider.reply(&request, &mut on_delta);
        if matches!(result, Err(ProviderError::BudgetExceeded(_))) {
            // No request was sent, so the text of the previous reply remains the partial answer.
            self.streamed_text = previous_text;
            self.pending_reply_id = None;
        }
        let reply = result?;
        self.pending_reply_id = None;
        let Usage { input, estimated, .. } = reply.usage;
        if input > 0 && !estimated {
            self.session.set_token_ratio(input as f64 / self.estimated_tokens() as f64);
        }
        self.stats.request_time += started.elapsed();
        self.stats.add_usage(&reply);
        self.stats.model.clone_from(&reply.model);
        Ok(reply)
    }
}
