//! The loop: ask, run tools, repeat.
//!
//! Log first, act second: a reply is on disk before its tools run, a result is on disk before the next question. So a
//! stop at any instant needs no cleanup. The loop knows interfaces only; whatever is to be added comes as a tool, a
//! guard, prompt text, a sink, or a wrapper of a provider.

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

/// How often a reply with neither text nor calls is asked for again.
const BLANKS: u32 = 2;
/// How often an answer that does not satisfy its schema is asked for again.
const REPAIRS: u32 = 2;

/// Run one turn to its end. Without `input` an interrupted turn is taken up where it stopped.
pub fn run(
    agent: &mut Agent<'_>,
    session: &mut Session,
    input: Option<User>,
    sink: &mut Sink<'_>,
) -> Ending {
    let mut turn = Turn::new(agent, session, sink);
    let (cause, reply, mut error) = match turn.converse(input) {
        // The answer is paid for: a disk that will not take it is told, and the answer given all the same.
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

/// A turn on its way.
struct Turn<'a, 'b, 's> {
    agent: &'a mut Agent<'b>,
    session: &'a mut Session,
    sink: &'a mut Sink<'s>,
    tally: Tally,
    /// What the model said so far in the reply that is on its way, or said last.
    heard: String,
    /// Tokens of what is sent besides the messages.
    overhead: u64,
    /// How often what was said was summed up.
    summaries: u32,
    /// No more room can be made in this turn.
    full: bool,
}

impl Turn<'_, '_, '_> {
    /// Ask and run tools until there is a last reply, or there is to be none. It is not yet on disk.
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

    /// Say `words` in the user's place.
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

    /// The first word of a guard against going on.
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

    /// Run the calls of `reply`, batch by batch, and log each result.
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
            // What is known is on disk before anybody is told, and so before telling can fail.
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

    /// Tell of a reply that is on disk, and of what it cost.
    fn tell(&mut self, reply: &Reply, last: bool) -> Result<()> {
        (self.sink)(Event::Assistant { reply, last })?;
        (self.sink)(Event::Usage {
            message: &reply.id,
            usage: reply.usage,
            cost: reply.cost,
        })
    }
}
