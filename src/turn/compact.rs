//! When a conversation does not fit any more: old results of tools are shortened, which is free; then the model sums up
//! what was said, and that stands for it. What fails leaves the conversation as it was.

use super::Turn;
use super::agent::Agent;
use super::ending::Ending;
use crate::error::{Exit, exit_of, without_turn};
use crate::event::{Event, Sink};
use crate::history::compaction::{Compaction, WORDS};
use crate::message::token_estimate;
use crate::message::{Finish, Message, Part, Reply, User};
use crate::provider::{Delta, ProviderError, Request};
use crate::session::{Session, Stats};
use anyhow::Result;
use std::time::Instant;

/// How often a conversation that is too long to be summed up is halved for it.
const HALVINGS: u32 = 6;

/// What has been done so far to make one request fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Made {
    #[default]
    Nothing,
    Shorter,
    Summed,
}

/// What a compaction changed, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    before: u64,
    after: u64,
}

/// Sum a conversation up now, whatever it weighs. The answer says what came of it.
pub fn now(
    agent: &mut Agent<'_>,
    session: &mut Session,
    instructions: Option<&str>,
    sink: &mut Sink<'_>,
) -> Ending {
    let mut turn = Turn::new(agent, session, sink);
    let done = turn
        .compact(instructions, 0, None)
        .map_err(|error| without_turn(error.into_failure(), "nothing was compacted"));
    let (text, error) = match done {
        Ok(None) => ("Nothing to compact.".to_owned(), None),
        Ok(Some(Room { before, after })) => {
            turn.tally.context = after;
            (format!("Compacted: {before} → {after} tokens."), None)
        }
        Err(error) => (String::new(), Some(error)),
    };
    let exit = error.as_ref().map_or(Exit::Answered, exit_of);
    // It is none of the conversation's turns.
    let stats = Stats {
        turns: 0,
        ..turn.tally.stats()
    };
    let mut error = error.or(turn.session.close(exit.name(), &stats).err());
    let reply = Reply {
        text,
        ..Reply::default()
    };
    if error.is_none() {
        let event = Event::Assistant {
            reply: &reply,
            last: true,
        };
        error = (turn.sink)(event).err();
    }
    Ending {
        text: reply.text,
        tally: turn.tally,
        error,
        ..Ending::default()
    }
}

impl Turn<'_, '_, '_> {
    /// Tokens that the next request would have: our estimate, as far as the provider agreed with it last.
    pub(super) fn context(&self) -> u64 {
        self.corrected(self.estimate())
    }

    /// Those of them that are of messages.
    pub(super) fn said(&self) -> u64 {
        self.corrected(self.session.weight())
    }

    fn corrected(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.session.outline().ratio.unwrap_or(1.0)) as u64
    }

    pub(super) fn estimate(&self) -> u64 {
        self.overhead + self.session.weight()
    }

    /// What is sent has reached `threshold` tokens: make room. Where that cannot be, the turn goes on as it is, since the
    /// model may take it all the same.
    pub(super) fn make_room(&mut self, threshold: u64) -> Result<()> {
        if self.full {
            return Ok(());
        }
        let before = self.context();
        let old = newest(self.session.messages());
        if self.session.age(old) && self.context() < threshold / 10 * 7 {
            let after = self.context();
            let notice = format!(
                "old results of tools are sent shortened from now on: {before} → {after} tokens"
            );
            return (self.sink)(Event::Notice(&notice));
        }
        let done = self.compact(None, threshold / 6, Some(threshold));
        self.full = !self.told(done)? || self.context() >= threshold;
        Ok(())
    }

    /// Say what came of a compaction: whether there is more room now. It is no reason to end the turn, unless that was to
    /// end anyway.
    fn told(&mut self, done: Result<Option<Room>, ProviderError>) -> Result<bool> {
        let (has_room, notice) = match done {
            // There was nothing that a summary could stand for.
            Ok(None) => return Ok(false),
            Err(error @ (ProviderError::Aborted(_) | ProviderError::Spent(_))) => {
                return Err(error.into_failure());
            }
            Ok(Some(Room { before, after })) => (
                true,
                format!("the conversation was compacted: {before} → {after} tokens"),
            ),
            Err(error) => (
                false,
                format!("the conversation could not be compacted: {error}"),
            ),
        };
        (self.sink)(Event::Notice(&notice))?;
        Ok(has_room)
    }

    /// The server says that a request is too long: make it shorter; whether that was possible.
    pub(super) fn make_fit(&mut self, made: &mut Made) -> Result<bool> {
        if *made == Made::Nothing {
            *made = Made::Shorter;
            if self.session.age(self.session.messages().len()) {
                let notice = "the conversation is too long for the model; long results of tools are sent shortened";
                (self.sink)(Event::Notice(notice))?;
                return Ok(true);
            }
        }
        if *made == Made::Shorter {
            *made = Made::Summed;
            let done = self.compact(None, self.session.weight() / 4, None);
            return self.told(done);
        }
        Ok(false)
    }

    /// Let a summary stand for all but the end of the turn, which stays where it weighs at most `tail` tokens. `None` where
    /// there is nothing to sum up.
    pub(super) fn compact(
        &mut self,
        instructions: Option<&str>,
        tail: u64,
        threshold: Option<u64>,
    ) -> Result<Option<Room>, ProviderError> {
        let messages = self.session.messages();
        let (old, kept) = messages.split_at(cut(messages, tail));
        // A message alone is what it is: cut, it would be another one.
        let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
        if !old.iter().any(is_reply) {
            return Ok(None);
        }
        let (old, keep) = (old.to_vec(), kept.len());
        let before = self.context();
        let start = Event::CompactStart {
            tokens: before,
            threshold,
        };
        (self.sink)(start).map_err(ProviderError::Aborted)?;
        let started = Instant::now();
        let answer = self.sum_up(&old, instructions);
        let done = answer.and_then(|text| {
            // Not so much room for the user's words that none is left for the work.
            let budget = threshold.map_or(WORDS, |threshold| WORDS.min(threshold / 8));
            let weight = token_estimate::of_messages(&old);
            let summary =
                Compaction::new(&text, self.session.summary(), &old, budget.min(weight / 2));
            if token_estimate::of_message(&summary.message()) >= weight {
                let cause = "the summary is no shorter than what it stands for";
                return Err(ProviderError::Refused(cause.into()));
            }
            self.session
                .compact(keep, summary)
                .map_err(ProviderError::Aborted)
        });
        let after = self.context();
        let error = done.as_ref().err().map(ToString::to_string);
        let end = Event::CompactEnd {
            before,
            after,
            error: error.as_deref(),
            duration: started.elapsed(),
        };
        (self.sink)(end).map_err(ProviderError::Aborted)?;
        done.map(|()| Some(Room { before, after }))
    }

    /// The model's summary of `messages`. Where they are too long even for that, the older ones are left out of it.
    fn sum_up(
        &mut self,
        messages: &[Message],
        instructions: Option<&str>,
    ) -> Result<String, ProviderError> {
        self.summaries += 1;
        let id = format!("{}-s{}", self.session.turn(), self.summaries);
        let mut messages = messages.to_vec();
        for _ in 0..HALVINGS {
            messages.push(Message::User(User {
                parts: vec![Part::Text(request(instructions))],
                injected: true,
                ..User::default()
            }));
            match self.ask_for_summary(&messages, &id) {
                Err(ProviderError::TooLong(_)) if messages.len() > 2 => {
                    messages.pop();
                    messages = younger_half(messages);
                }
                Ok(reply) if reply.text.trim().is_empty() => {
                    return Err(ProviderError::Refused("the model summed up nothing".into()));
                }
                Ok(reply) if matches!(reply.finish, Finish::Length | Finish::Refusal) => {
                    let cause = "the model did not write its summary to the end";
                    return Err(ProviderError::Refused(cause.into()));
                }
                answer => return answer.map(|reply| reply.text),
            }
        }
        Err(ProviderError::TooLong(
            "even the end of it is too long to be summed up".into(),
        ))
    }

    fn ask_for_summary(&mut self, messages: &[Message], id: &str) -> Result<Reply, ProviderError> {
        let request = Request {
            schema: None,
            ..self.agent.request(messages, false, id)
        };
        let started = Instant::now();
        let reply = self
            .agent
            .provider
            .reply(&request, &mut |delta| match delta {
                // It is no answer, and nobody waits for its words.
                Delta::Text(_) | Delta::Reasoning(_) => Ok(()),
                delta => (self.sink)(delta.event(id)),
            })?;
        self.tally.asking += started.elapsed();
        self.tally.pay(&reply);
        (self.sink)(Event::Usage {
            message: id,
            usage: reply.usage,
            cost: reply.cost,
        })
        .map_err(ProviderError::Aborted)?;
        Ok(reply)
    }
}

/// What the model is asked for.
fn request(instructions: Option<&str>) -> String {
    let mut text = String::from(
        "[nanobot] The conversation up to here will not be sent any more; you go on from notes. Write these notes now, for \
         yourself, in the language of the conversation:\n\
         - what the user wants, and the limits and preferences that hold;\n\
         - what was done and found out, with the exact names, paths, commands, numbers and error texts that will be \
         needed;\n\
         - which files were read or changed, and how each stands;\n\
         - what was decided, and why; what was tried and failed;\n\
         - what is open, and the very next step.\n\
         What the user said is kept word for word beside your notes: do not repeat it. Be brief, and leave out nothing \
         that is still needed. Answer with the notes alone; no tool can be called now.",
    );
    if let Some(instructions) = instructions {
        text.push_str("\n\nThe user adds: ");
        text.push_str(instructions);
    }
    text
}

/// Where the newest exchange begins: the last reply with its results, or the user's message.
fn newest(messages: &[Message]) -> usize {
    let begins = |message: &Message| !matches!(message, Message::Tool(_));
    messages.iter().rposition(begins).unwrap_or(0)
}

/// Where `messages` are cut: before a message that has no answer yet; else before the turn where that weighs at most
/// `tail` tokens, else before the newest exchange where that does, else after all.
fn cut(messages: &[Message], tail: u64) -> usize {
    let is_users = |message: &Message| matches!(message, Message::User(user) if !user.injected);
    let turn = messages.iter().rposition(is_users);
    let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
    let is_open = turn.is_some_and(|at| !messages[at..].iter().any(is_reply));
    let fits = |at: &usize| is_open || token_estimate::of_messages(&messages[*at..]) <= tail;
    let places = turn.into_iter().chain([newest(messages)]);
    places
        .filter(|at| *at > 0 || is_open)
        .find(fits)
        .unwrap_or(messages.len())
}

/// The younger half of `messages`, from a message on that may follow a note of ours.
fn younger_half(mut messages: Vec<Message>) -> Vec<Message> {
    let half = messages.len().div_ceil(2);
    let rest = messages.split_off(half).into_iter();
    let rest = rest.skip_while(|message| matches!(message, Message::Tool(_)));
    let note = Message::User(User {
        parts: vec![Part::Text(
            "[nanobot] What was said before is left out here: it does not fit.".into(),
        )],
        injected: true,
        ..User::default()
    });
    [note].into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::{cut, younger_half};
    use crate::message::token_estimate;
    use crate::message::{Message, Part, Reply, ToolCall, ToolResult, User};
    use serde_json::json;

    /// `u`: a user, `w`: a warning, `c`: a call, `r`: its result, `a`: an answer; each of ten tokens and more.
    fn conversation(letters: &str) -> Vec<Message> {
        let parts = || vec![Part::Text("x".repeat(40))];
        let message = |letter| match letter {
            'r' => Message::Tool(ToolResult {
                call: "c".into(),
                name: "t".into(),
                parts: parts(),
                failed: false,
            }),
            'c' => Message::Assistant(Reply {
                calls: vec![ToolCall {
                    id: "c".into(),
                    name: "t".into(),
                    arguments: json!({ "x": "x".repeat(30) }),
                }],
                ..Reply::default()
            }),
            'a' => Message::Assistant(Reply {
                text: "x".repeat(40),
                ..Reply::default()
            }),
            letter => Message::User(User {
                parts: parts(),
                injected: letter == 'w',
                ..User::default()
            }),
        };
        letters.chars().map(message).collect()
    }

    #[test]
    fn what_is_going_on_stays_where_there_is_room() {
        let check = |letters: &str, tail: u64, expect: usize| {
            assert_eq!(cut(&conversation(letters), tail), expect, "{letters}");
        };
        check("uau", 20, 2);
        check("uau", 5, 2);
        check("uaucr", 200, 2);
        check("uaucrcrcr", 50, 7);
        check("uaucrcrcr", 10, 9);
        check("ucr", 60, 1);
        check("uauw", 60, 2);
        check("uaw", 5, 3);
        check("u", 60, 0);
        // A warning is no answer.
        check("uauw", 5, 2);
    }

    #[test]
    fn a_half_begins_with_a_note_and_no_lonely_result() {
        let half = younger_half(conversation("ucrcrcr"));
        assert!(matches!(&half[0], Message::User(user) if user.injected));
        assert!(matches!(half[1], Message::Assistant(_)));
        assert!(
            token_estimate::of_messages(&half)
                < token_estimate::of_messages(&conversation("ucrcrcr"))
        );
        assert_eq!(younger_half(conversation("ur")).len(), 1);
    }
}
