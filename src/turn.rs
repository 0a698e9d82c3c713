//! The turn loop: call the model, run its tool calls, repeat.
//!
//! Each step is logged before the next one: a reply is on disk before its tools run, and a result is on disk before the
//! next request. So a stop at any time needs no cleanup. The loop only knows interfaces; extensions are tools, guards,
//! prompt text, sinks or provider wrappers.

use crate::error::exit_of;
use crate::event::{Event, Sink, StopReason};

use crate::message::{Finish, Message, Part, Reply, ToolCall, User};
use crate::session::Session;
use crate::sys::signal;
use agent::Agent;
use anyhow::Result;
use ending::{Ending, Tally, answered_nothing, unfinished, unfit};
use guard::{GuardAction, TurnState};

pub mod agent;
mod ask;
pub mod beside;
pub mod compact;
pub mod ending;
pub mod guard;
mod reports;

/// Maximum retries after a reply with neither text nor calls.
const BLANKS: u32 = 2;
/// Maximum retries after an answer that does not satisfy its schema.
const REPAIRS: u32 = 2;

/// Runs one turn to its end. Without `input`, resumes an interrupted turn.
pub fn run(
    agent: &mut Agent<'_>,
    session: &mut Session,
    input: Option<User>,
    sink: &mut Sink<'_>,
) -> Ending {
    let mut turn = Turn::new(agent, session, sink);
    let (cause, reply, mut error) = match turn.converse(input) {
        // The answer is paid for: a disk error is reported, and the answer is printed anyway.
        Ok((cause, Some(reply))) => {
            let saved = turn.session.push(Message::Assistant(reply.clone()));
            (cause, Some(reply), saved.err())
        }
        Ok((cause, None)) => (cause, None, None),
        Err(error) => (StopReason::Failed, None, Some(error)),
    };
    turn.stop_background();
    let exit = error.as_ref().map_or(ending::exit_status(cause), exit_of);
    if reply.is_none() {
        if turn.session.is_kept() {
            signal::last_words();
        }
        error = error.or(turn.session.settle(&mut |_| {}).err());
        error = error.or(turn.drain_reports().err());
    }
    error = error.or(turn.session.close(exit.name(), &turn.tally.stats()).err());
    if let Some(reply) = &reply {
        error = error.or(turn.tell(reply, true).err());
    }
    let partial =
        reply.is_none() || matches!(cause, StopReason::OutputLimit | StopReason::Declined);
    let text = reply.map_or(turn.heard, |reply| reply.text);
    Ending {
        cause,
        partial: partial && !text.is_empty(),
        text,
        tally: turn.tally.whole(),
        error,
    }
}

/// A running turn.
struct Turn<'a, 'b, 's> {
    agent: &'a mut Agent<'b>,
    session: &'a mut Session,
    sink: &'a mut Sink<'s>,
    tally: Tally,
    /// Text of the current reply so far, or of the last one.
    heard: String,
    /// Tokens of the request apart from the messages.
    overhead: u64,
    /// Number of summaries requested in this turn.
    summaries: u32,
    /// True if no further compaction is possible in this turn.
    full: bool,
}

impl Turn<'_, '_, '_> {
    /// Calls the model and runs tools until there is a final reply, which is not yet on disk, or none is to be
    /// expected.
    fn converse(&mut self, input: Option<User>) -> Result<(StopReason, Option<Reply>)> {
        if let Some(user) = input {
            self.session.push(Message::User(user.clone()))?;
            (self.sink)(Event::User(&user))?;
        }
        let (mut blanks, mut repairs) = (0, 0);
        loop {
            signal::check()?;
            self.poll_background(false)?;
            match self.guard() {
                GuardAction::Continue => {}
                GuardAction::Inject { mark, words } => self.add(words, mark)?,
                GuardAction::Compact { threshold } => self.make_room(threshold)?,
                GuardAction::Finish { cause, words } => {
                    self.stop_background();
                    self.poll_background(false)?;
                    let mut reply = self.ask(Some(&words))?;
                    reply.calls.clear();
                    let answer = self.agent.answer.filter(|_| !reply.is_blank());
                    return match answer.map(|answer| answer.check(&reply.text)) {
                        Some(Err(wrong)) => Err(unfit(&wrong)),
                        Some(Ok(text)) => Ok((cause, Some(Reply { text, ..reply }))),
                        _ if reply.is_blank() => Err(answered_nothing(&reply)),
                        _ => Ok((cause, Some(reply))),
                    };
                }
            }
            let mut reply = self.ask(None)?;
            if !reply.calls.is_empty() {
                self.session.push(Message::Assistant(reply.clone()))?;
                self.tell(&reply, false)?;
                self.run_calls(&reply)?;
            } else if self.has_pending_reports() {
                self.wait_for_reports(&reply)?;
            } else if !reply.is_blank() {
                let answer = self.agent.answer;
                if answer.is_some() && matches!(reply.finish, Finish::Length | Finish::Refusal) {
                    return Err(unfinished(&reply.finish));
                }
                match answer.map(|answer| answer.check(&reply.text)) {
                    None => {}
                    Some(Ok(text)) => reply.text = text,
                    Some(Err(wrong)) if repairs == REPAIRS => {
                        self.session.push(Message::Assistant(reply))?;
                        return Err(unfit(&wrong));
                    }
                    Some(Err(wrong)) => {
                        repairs += 1;
                        self.object(&reply, &wrong, repairs)?;
                        continue;
                    }
                }
                let cause = match reply.finish {
                    Finish::Length => StopReason::OutputLimit,
                    Finish::Refusal => StopReason::Declined,
                    _ => StopReason::Answered,
                };
                return Ok((cause, Some(reply)));
            } else if blanks == BLANKS || reply.finish != Finish::Stop {
                return Err(answered_nothing(&reply));
            } else {
                blanks += 1;
            }
        }
    }

    /// Adds `text` as an injected user message; `id_suffix` is the suffix of its id.
    fn add(&mut self, words: String, mark: &str) -> Result<()> {
        let user = User {
            id: format!("{}-{mark}", self.session.turn()),
            parts: vec![Part::Text(words)],
            injected: true,
            ..User::default()
        };
        self.session.push(Message::User(user.clone()))?;
        (self.sink)(Event::User(&user))
    }

    /// The first guard action other than `Continue`.
    fn guard(&mut self) -> GuardAction {
        let is_users = |message: &Message| matches!(message, Message::User(user) if !user.injected);
        let sent = self.session.messages();
        let state = TurnState {
            iterations: self.tally.iterations,
            context: self.context(),
            said: self.said(),
            sent,
            denials: &self.tally.denials,
            turn: &sent[sent.iter().rposition(is_users).unwrap_or(0)..],
        };
        let mut verdicts = self
            .agent
            .guards
            .iter_mut()
            .map(|guard| guard.before(&state));
        verdicts
            .find(|verdict| *verdict != GuardAction::Continue)
            .unwrap_or(GuardAction::Continue)
    }

    /// Runs the calls of `reply`, batch by batch, and logs each result.
    fn run_calls(&mut self, reply: &Reply) -> Result<()> {
        let toolbox = self.agent.toolbox;
        for batch in toolbox.batches(&reply.calls) {
            toolbox.heed(self.session.messages());
            for call in batch {
                (self.sink)(Event::ToolCall(call))?;
            }
            let mut say = |call: &ToolCall, text: &str| {
                (self.sink)(Event::ToolOutput {
                    call: &call.id,
                    text,
                })
            };
            let (all, told) = toolbox.run(batch, reply.finish == Finish::Length, &mut say);
            // Log all results before emitting events, because the sink may fail.
            for done in &all {
                self.tally.count(done);
                self.session.push(Message::Tool(done.result.clone()))?;
            }
            told?;
            for done in &all {
                (self.sink)(done.event())?;
            }
            signal::check()?;
        }
        Ok(())
    }

    /// Emits the events for a reply that is on disk, and for its cost.
    fn tell(&mut self, reply: &Reply, last: bool) -> Result<()> {
        (self.sink)(Event::Assistant { reply, last })?;
        (self.sink)(Event::Usage {
            message: &reply.id,
            usage: reply.usage,
            cost: reply.cost,
        })
    }
}
