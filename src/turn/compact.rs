//! Compaction when a conversation no longer fits: first old tool results are shortened, which costs nothing; then a
//! summary by the model replaces the messages. A failure leaves the conversation unchanged.

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

/// Maximum number of times that messages too long to summarize are halved.
const HALVINGS: u32 = 6;

/// The measures taken so far to make one request fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Made {
    #[default]
    Nothing,
    Shorter,
    Summed,
}

/// Context size before and after a compaction, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    before: u64,
    after: u64,
}

/// Compacts a conversation now, regardless of its size. The answer describes the result.
pub fn now(
    agent: &mut Agent<'_>,
    session: &mut Session,
    instructions: Option<&str>,
    sink: &mut Sink<'_>,
) -> Ending {
    let mut turn = Turn::new(agent, session, sink);
    let done = turn
        .compact(instructions, 0, None)
        .map_err(|error| without_turn(error.into_failure(), "the session was not compacted"));
    let (text, error) = match done {
        Ok(None) => ("Nothing to compact.".to_owned(), None),
        Ok(Some(Room { before, after })) => {
            turn.tally.context = after;
            (format!("Compacted: {before} → {after} tokens."), None)
        }
        Err(error) => (String::new(), Some(error)),
    };
    let exit = error.as_ref().map_or(Exit::Answered, exit_of);
    // A manual compaction does not count as a turn.
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
    /// Estimated tokens of the next request, corrected by the provider's last count.
    pub(super) fn context(&self) -> u64 {
        self.corrected(self.estimate())
    }

    /// The part of these tokens that belongs to messages.
    pub(super) fn said(&self) -> u64 {
        self.corrected(self.session.weight())
    }

    fn corrected(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.session.outline().ratio.unwrap_or(1.0)) as u64
    }

    /// Estimated tokens of the next request, uncorrected.
    pub(super) fn estimate(&self) -> u64 {
        self.overhead + self.session.weight()
    }

    /// Reduces a context that has reached `threshold` tokens. If that fails, the turn continues unchanged, since the
    /// model may accept it anyway.
    pub(super) fn make_room(&mut self, threshold: u64) -> Result<()> {
        if self.full {
            return Ok(());
        }
        let before = self.context();
        let old = newest(self.session.messages());
        if self.session.age(old) && self.context() < threshold / 10 * 7 {
            let after = self.context();
            let notice =
                format!("old tool results are truncated from now on: {before} → {after} tokens");
            return (self.sink)(Event::Notice(&notice));
        }
        let done = self.compact(None, threshold / 6, Some(threshold));
        self.full = !self.told(done)? || self.context() >= threshold;
        Ok(())
    }

    /// Reports the result of a compaction. True if there is more room now. A failure does not end the turn, unless the
    /// run is being stopped or its budget is spent.
    fn told(&mut self, done: Result<Option<Room>, ProviderError>) -> Result<bool> {
        let (has_room, notice) = match done {
            // There were no messages that a summary could replace.
            Ok(None) => return Ok(false),
            Err(error @ (ProviderError::Aborted(_) | ProviderError::Spent(_))) => {
                return Err(error.into_failure());
            }
            Ok(Some(Room { before, after })) => (
                true,
                format!("the session was compacted: {before} → {after} tokens"),
            ),
            Err(error) => (
                false,
                format!("the session could not be compacted: {error}"),
            ),
        };
        (self.sink)(Event::Notice(&notice))?;
        Ok(has_room)
    }

    /// Shortens a request that the server rejected as too long. True if that was possible.
    pub(super) fn make_fit(&mut self, made: &mut Made) -> Result<bool> {
        if *made == Made::Nothing {
            *made = Made::Shorter;
            if self.session.age(self.session.messages().len()) {
                let notice =
                    "the session is too long for the model; long tool results are truncated";
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

    /// Replaces all but the end of the turn by a summary; that end is kept if it has at most `max_tail_tokens` tokens.
    /// `None` if there is nothing to summarize.
    pub(super) fn compact(
        &mut self,
        instructions: Option<&str>,
        tail: u64,
        threshold: Option<u64>,
    ) -> Result<Option<Room>, ProviderError> {
        let messages = self.session.messages();
        let (old, kept) = messages.split_at(cut(messages, tail));
        // Without a reply there are only user messages, which must not be altered.
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
            // Limit the user's messages, so that they leave enough room for the work.
            let budget = threshold.map_or(WORDS, |threshold| WORDS.min(threshold / 8));
            let weight = token_estimate::of_messages(&old);
            let summary =
                Compaction::new(&text, self.session.summary(), &old, budget.min(weight / 2));
            if token_estimate::of_message(&summary.message()) >= weight {
                let cause = "the summary is not shorter than the messages it replaces";
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

    /// Requests a summary of `messages` from the model. If they are too long for that, the older ones are left out.
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
                    return Err(ProviderError::Refused(
                        "the model returned an empty summary".into(),
                    ));
                }
                Ok(reply) if matches!(reply.finish, Finish::Length | Finish::Refusal) => {
                    let cause = "the model returned an incomplete summary";
                    return Err(ProviderError::Refused(cause.into()));
                }
                answer => return answer.map(|reply| reply.text),
            }
        }
        Err(ProviderError::TooLong(
            "even the most recent messages are too long to summarize".into(),
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
                // The summary is not an answer, so its text is not printed.
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

/// The instructions for the summary.
fn request(instructions: Option<&str>) -> String {
    let mut text = String::from(
        "[nanobot] The conversation so far will be replaced by a summary. Write this summary now, for \
         yourself, in the language of the conversation:\n\
         - the user's goals, constraints and preferences;\n\
         - what was done and learned, with the exact names, paths, commands, numbers and error messages still needed;\n\
         - which files were read or changed, and their current state;\n\
         - decisions and the reasons for them; what was tried and failed;\n\
         - open tasks, and the next step.\n\
         The user's messages are kept verbatim next to the summary: do not repeat them. Be concise, but omit nothing \
         that is still needed. Reply with the summary only; tools are not available now.",
    );
    if let Some(instructions) = instructions {
        text.push_str("\n\nInstructions from the user: ");
        text.push_str(instructions);
    }
    text
}

/// Index of the start of the newest exchange: the last reply with its results, or the user message.
fn newest(messages: &[Message]) -> usize {
    let begins = |message: &Message| !matches!(message, Message::Tool(_));
    messages.iter().rposition(begins).unwrap_or(0)
}

/// Index at which `messages` are cut. A message without a reply is always kept. Otherwise the cut is before the turn if
/// it has at most `max_tail_tokens` tokens, else before the newest exchange if that has, else after all messages.
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

/// The newer half of `messages`, starting at a message that may follow our note about the omission.
fn younger_half(mut messages: Vec<Message>) -> Vec<Message> {
    let half = messages.len().div_ceil(2);
    let rest = messages.split_off(half).into_iter();
    let rest = rest.skip_while(|message| matches!(message, Message::Tool(_)));
    let note = Message::User(User {
        parts: vec![Part::Text(
            "[nanobot] Earlier messages are omitted because they do not fit.".into(),
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

    /// `u`: a user, `w`: a warning, `c`: a call, `r`: its result, `a`: an answer; each of at least ten tokens.
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
        // A warning is not an answer.
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
