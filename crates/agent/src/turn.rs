//! The turn loop: call the model, run its tool calls, repeat.
//!
//! Each step is logged before the next one: a reply is on disk before its tools run, and a result is on disk before the
//! next request. So a stop at any time needs no cleanup. The loop knows the traits of providers and guards, the
//! toolbox, the session and sinks, and no feature; extensions are tools, guards, prompt text, sinks or provider wrappers.

use agent::Agent;
use anyhow::Result;
use ending::{
    Ending, Round, TurnStats, empty_reply_error, incomplete_answer_error, unknown_reason,
};
use guard::{GuardAction, RefusedCall, TurnState};
use nanobot_base::error::exit_for;
use nanobot_base::event::{Event, EventSink, StopReason, ToolOutcome};
use nanobot_base::message::{
    FinishReason, Message, MessagePart, Reply, STEERING_SUFFIX, ToolCall, UserMessage,
};
use nanobot_os::signal;
use nanobot_store::session::Session;
use nanobot_tool::CompletedCall;

pub mod agent;
mod answer;
pub mod background;
pub mod compact;
pub mod ending;
pub mod guard;
mod reports;
mod request;
mod until;

/// Runs one turn to its end. Without `user_message`, resumes an interrupted turn.
pub fn run(
    agent: &mut Agent<'_>,
    session: &mut Session,
    user_message: Option<UserMessage>,
    sink: &mut EventSink<'_>,
) -> Ending {
    let mut turn = Turn::new(agent, session, sink);
    match turn.is_done_already() {
        Ok(false) => {}
        // Nothing was sent, so the session has nothing of this turn.
        result => {
            let (is_unneeded, error) = (result.is_ok(), result.err());
            return Ending { is_unneeded, error, stats: turn.stats, ..Ending::default() };
        }
    }
    let (stop_reason, reply, mut error) = match turn.run_loop(user_message) {
        // The finish reason of the server does not say that the answer is complete.
        Ok(LoopEnd { stop_reason: StopReason::Failed, reply: Some(reply) }) => {
            let error = incomplete_answer_error(&reply.finish_reason);
            (StopReason::Failed, Some(reply), Some(error))
        }
        Ok(LoopEnd { stop_reason, reply }) => (stop_reason, reply, None),
        Err(error) => (StopReason::Failed, None, Some(error)),
    };
    turn.stop_background();
    // For the line that closes the turn in the session. The caller may end with another status, as with `--strict`.
    let exit = error.as_ref().map_or(ending::exit_status(stop_reason), exit_for);
    if reply.is_none() {
        if turn.session.is_stored() {
            signal::begin_shutdown_if_stopped();
        }
        error = error.or(turn.push_partial_reply().err());
        let is_in_calls = turn.is_in_calls;
        error = error.or(turn.session.answer_interrupted_calls(is_in_calls, &mut |_| {}).err());
        error = error.or(turn.drain_reports().err());
    }
    turn.agent.record_origin(turn.session);
    let (reply, message) = reply.map(|reply| turn.complete_answer(reply)).unzip();
    // The answer is paid for: a disk error is reported, and the answer is printed anyway.
    error =
        error.or(turn.session.end_turn(message, exit.name(), &turn.stats.to_session_stats()).err());
    if let Some(reply) = &reply {
        error = error.or(turn.emit_reply(reply, true).err());
    }
    let is_incomplete = reply.is_none()
        || matches!(
            stop_reason,
            StopReason::OutputLimit | StopReason::Declined | StopReason::Failed
        );
    let text = match reply {
        Some(reply) => reply.text,
        None => turn.cut_text + &turn.streamed_text,
    };
    Ending {
        stop_reason,
        is_partial: is_incomplete && !text.is_empty(),
        is_delivered: turn.agent.toolbox.has_answered(),
        text,
        is_left_out: turn.is_left_out,
        is_unneeded: false,
        rounds: turn.rounds,
        stats: turn.stats.with_background_denials(),
        error,
    }
}

/// The end of the loop of a turn.
struct LoopEnd {
    stop_reason: StopReason,
    /// The final reply, which is not on disk yet; `None` if it is blank.
    reply: Option<Reply>,
}

/// A running turn.
struct Turn<'a, 'b, 's> {
    agent: &'a mut Agent<'b>,
    session: &'a mut Session,
    sink: &'a mut EventSink<'s>,
    stats: TurnStats,
    /// Text of the current reply so far, or of the last one.
    streamed_text: String,
    /// The parts of an answer that was cut by the output limit, and their number.
    cut_text: String,
    cut_count: u32,
    /// The id of the reply that is awaited.
    pending_reply_id: Option<String>,
    /// Tokens of the request apart from the messages.
    overhead_tokens: u64,
    /// Number of summaries requested in this turn.
    summary_count: u32,
    /// Number of messages that the user has sent into this turn.
    steering_count: u32,
    /// Number of answers of this turn that did not satisfy the schema.
    repair_count: u32,
    /// Number of answers that hooks have rejected in this turn.
    rejection_count: u32,
    /// The rounds of `--until`.
    rounds: Vec<Round>,
    refused_calls: Vec<RefusedCall>,
    /// True while calls are made whose results are not on disk.
    is_in_calls: bool,
    /// True if no further compaction is possible in this turn.
    compaction_exhausted: bool,
    /// True if later runs leave the message of this turn out.
    is_left_out: bool,
}

impl Turn<'_, '_, '_> {
    /// Calls the model and runs tools until there is a final reply, or none is to be expected.
    fn run_loop(&mut self, user_message: Option<UserMessage>) -> Result<LoopEnd> {
        if let Some(user) = user_message {
            self.session.push(Message::User(user.clone()))?;
            (self.sink)(Event::User(&user))?;
        } else {
            self.resume_answer()?;
        }
        let mut blank_replies = 0;
        loop {
            signal::check()?;
            self.poll_background(false)?;
            self.accept_steering()?;
            match self.run_guards() {
                GuardAction::Continue => {}
                GuardAction::Inject { id_suffix, text } => self.inject_message(text, id_suffix)?,
                GuardAction::Compact { threshold } => self.reduce_context(threshold)?,
                GuardAction::Finish { .. } if self.cut_count > 0 => {
                    let reply = Some(self.empty_rest());
                    return Ok(LoopEnd { stop_reason: StopReason::OutputLimit, reply });
                }
                GuardAction::Finish { stop_reason, text } => {
                    self.stop_background();
                    self.poll_background(false)?;
                    let mut reply = self.send_request(Some(&text))?;
                    reply.tool_calls.clear();
                    let format = if reply.is_blank() { None } else { self.agent.answer_format };
                    if let Some(format) = format {
                        match format.check(&reply.text) {
                            Ok(text) => reply.text = text,
                            Err(error) => return Err(self.keep_mismatch(reply, &error)?),
                        }
                    }
                    // Some servers let the model call tools even so; the reply may then be blank.
                    let reply = Some(reply).filter(|reply| !reply.is_blank());
                    return Ok(LoopEnd { stop_reason, reply });
                }
            }
            let reply = self.send_request(None)?;
            if !reply.tool_calls.is_empty() {
                (self.cut_text, self.cut_count) = (String::new(), 0);
                self.session.push(Message::Assistant(reply.clone()))?;
                self.emit_reply(&reply, false)?;
                if let FinishReason::Other(word) = &reply.finish_reason {
                    (self.sink)(Event::Notice(&format!(
                        "a reply with tool calls has {}",
                        unknown_reason(word)
                    )))?;
                }
                self.run_calls(&reply)?;
            } else if self.has_pending_reports() {
                self.wait_for_reports(&reply)?;
            } else if !reply.is_blank() || self.cut_count > 0 {
                if let Some(end) = self.accept_answer(reply)? {
                    return Ok(end);
                }
            } else if self.agent.toolbox.has_answered() && reply.finish_reason == FinishReason::Stop
            {
                if let Some(end) = self.accept_by_command(StopReason::Answered, reply)? {
                    return Ok(end);
                }
            } else if blank_replies == Reply::MAX_BLANK_RETRIES
                || !matches!(reply.finish_reason, FinishReason::Stop | FinishReason::ToolCalls)
            {
                return Err(empty_reply_error(&reply));
            } else {
                blank_replies += 1;
            }
        }
    }

    /// Adds `text` as an injected user message; `id_suffix` is the suffix of its id.
    fn inject_message(&mut self, text: String, id_suffix: &str) -> Result<()> {
        let user = UserMessage {
            id: format!("{}-{id_suffix}", self.session.turn()),
            parts: vec![MessagePart::Text(text)],
            injected: true,
            ..UserMessage::default()
        };
        self.session.push(Message::User(user.clone()))?;
        (self.sink)(Event::User(&user))
    }

    /// Adds the messages that the user has sent into the turn since its last request.
    fn accept_steering(&mut self) -> Result<()> {
        if self.stats.iterations == 0 {
            return Ok(());
        }
        let Some(next_message) = self.agent.steering else {
            return Ok(());
        };
        while let Some(message) = next_message() {
            self.steering_count += 1;
            let mut id =
                format!("{}-{STEERING_SUFFIX}{}", self.session.turn(), self.steering_count);
            if !message.id.is_empty() {
                id = format!("{id}.{}", message.id);
            }
            let user = UserMessage { id, ..message };
            self.session.push(Message::User(user.clone()))?;
            (self.sink)(Event::User(&user))?;
        }
        Ok(())
    }

    /// The first guard action other than `Continue`.
    fn run_guards(&mut self) -> GuardAction {
        let state = TurnState {
            iterations: self.stats.iterations,
            context_tokens: self.context_tokens(),
            message_tokens: self.message_tokens(),
            messages: self.session.messages(),
            refused_calls: &self.refused_calls,
            turn_messages: self.session.turn_messages(),
        };
        let guards = self.agent.guards.iter_mut();
        let mut actions = guards.map(|guard| guard.check(&state));
        actions.find(|action| *action != GuardAction::Continue).unwrap_or(GuardAction::Continue)
    }

    /// Runs the calls of `reply`, batch by batch, and logs each result.
    fn run_calls(&mut self, reply: &Reply) -> Result<()> {
        let toolbox = self.agent.toolbox;
        for batch in toolbox.batches(&reply.tool_calls) {
            // The results of the batch before count for the origin of the conversation from here on.
            toolbox.observe(self.session.messages());
            for call in batch {
                (self.sink)(Event::ToolCall(call))?;
            }
            let mut on_output = |call: &ToolCall, text: &str| {
                (self.sink)(Event::ToolOutput { call_id: &call.id, text })
            };
            let is_truncated = reply.finish_reason == FinishReason::Length;
            self.is_in_calls = true;
            let (calls, sink_result) = toolbox.run(batch, is_truncated, &mut on_output);
            // Log all results before emitting events, because the sink may fail.
            for (call, completed) in batch.iter().zip(&calls) {
                self.stats.count_call(completed);
                self.refused_calls.extend(refused_call(call, completed, self.stats.iterations));
                self.session.push(Message::Tool(completed.result.clone()))?;
            }
            self.is_in_calls = false;
            sink_result?;
            for call in &calls {
                (self.sink)(call.event())?;
            }
            signal::check()?;
        }
        Ok(())
    }

    /// Emits the events for a reply that is on disk, and for its cost.
    fn emit_reply(&mut self, reply: &Reply, is_final: bool) -> Result<()> {
        (self.sink)(Event::Assistant { reply, is_final })?;
        (self.sink)(Event::Usage { message_id: &reply.id, usage: reply.usage, cost: reply.cost })
    }
}

/// `call`, if it was denied.
fn refused_call(call: &ToolCall, completed: &CompletedCall, iteration: u32) -> Option<RefusedCall> {
    let denial = completed.denial.as_ref().filter(|_| completed.outcome == ToolOutcome::Denied)?;
    Some(RefusedCall { iteration, call: call.clone(), message: denial.message.clone() })
}
