//! The messages that are sent to a provider: which stored messages are valid, their size, and the replacement for those
//! that no longer fit. Pure.
//!
//! Providers reject a conversation that does not begin with a user message, or in which calls and results do not pair
//! up. Logs contain such conversations after a killed run, a cut by another program's window, or an edit by hand. The
//! log is not changed; only the messages to send are repaired.

pub mod ageing;
pub mod compaction;
pub mod ends;
pub mod spawned;

use crate::message::{Finish, Message, Part, Reply, ToolCall, ToolResult, plain_text};
use std::collections::{HashMap, HashSet};

/// Result text for a call whose outcome is unknown.
pub const INTERRUPTED: &str =
    "interrupted: this call may or may not have happened; check before repeating it";

/// Repairs `messages`: they begin with a user message, each call is followed by exactly one result in call order, and
/// there are no orphaned results or empty messages.
pub fn sendable(messages: Vec<Message>) -> Vec<Message> {
    let mut sent: Vec<Message> = Vec::with_capacity(messages.len());
    let mut ids = Ids::default();
    let mut rest = messages
        .into_iter()
        .filter(|message| !is_blank(message))
        .skip_while(|message| !matches!(message, Message::User(_)))
        .peekable();
    while let Some(message) = rest.next() {
        match message {
            Message::User(_) => sent.push(message),
            // A result without a preceding call.
            Message::Tool(_) => {}
            Message::Assistant(reply) if reply.calls.is_empty() => match sent.last_mut() {
                // Strict servers reject consecutive assistant messages, which unsolicited messages can produce.
                Some(Message::Assistant(before)) => join(before, &reply),
                _ => sent.push(Message::Assistant(reply)),
            },
            Message::Assistant(mut reply) => {
                let mut results: Vec<ToolResult> = Vec::new();
                while let Some(Message::Tool(result)) =
                    rest.next_if(|next| matches!(next, Message::Tool(_)))
                {
                    results.push(result);
                }
                let answers = pair(&mut reply, results, &mut ids);
                sent.push(Message::Assistant(reply));
                sent.extend(answers.into_iter().map(Message::Tool));
            }
        }
    }
    sent
}

/// True if a message is empty: providers reject it, and every request that contains it.
fn is_blank(message: &Message) -> bool {
    match message {
        Message::User(user) => user.facts.is_empty() && plain_text(&user.parts).trim().is_empty(),
        Message::Assistant(reply) => reply.is_blank(),
        Message::Tool(_) => false,
    }
}

/// Appends the text of `reply` to `before`. Signed provider data is valid for a single reply only, so it is dropped.
fn join(before: &mut Reply, reply: &Reply) {
    for (text, more) in [
        (&mut before.text, &reply.text),
        (&mut before.reasoning, &reply.reasoning),
    ] {
        if !text.is_empty() && !more.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(more);
    }
    before.opaque = None;
}

/// Returns one result for each call of `reply`, in call order. An id that was used before is replaced in call and
/// result.
fn pair(reply: &mut Reply, mut results: Vec<ToolResult>, ids: &mut Ids) -> Vec<ToolResult> {
    let mut answers = Vec::new();
    for call in &mut reply.calls {
        let found = results.iter().position(|result| result.call == call.id);
        let mut answer = found.map_or_else(|| lost(call), |place| results.remove(place));
        let id = ids.fresh(&call.id);
        call.id.clone_from(&id);
        answer.call = id;
        answers.push(answer);
    }
    answers
}

/// The call ids in use. Servers that number calls per reply reuse the same ids.
#[derive(Default)]
struct Ids {
    used: HashSet<String>,
    /// Number of replacements made per id.
    met: HashMap<String, usize>,
}

impl Ids {
    /// Returns `id`, or a variant that is not in use. Deterministic, so that the same prefix of a conversation gets the
    /// same ids.
    fn fresh(&mut self, id: &str) -> String {
        let met = self.met.entry(id.to_owned()).or_default();
        let mut fresh = id.to_owned();
        while !self.used.insert(fresh.clone()) {
            *met += 1;
            fresh = format!("{id}x{met}");
        }
        fresh
    }
}

/// The substitute result of a call that has none.
fn lost(call: &ToolCall) -> ToolResult {
    let parts = vec![Part::Text(INTERRUPTED.into())];
    ToolResult {
        call: call.id.clone(),
        name: call.name.clone(),
        parts,
        failed: true,
    }
}

/// Creates results for the calls at the end of a log that have none.
pub fn unanswered(messages: &[Message]) -> Vec<ToolResult> {
    let results = messages
        .iter()
        .rev()
        .take_while(|message| matches!(message, Message::Tool(_)))
        .count();
    let (before, results) = messages.split_at(messages.len() - results);
    let Some(Message::Assistant(reply)) = before.last() else {
        return Vec::new();
    };
    let answered = |call: &&ToolCall| !results.iter().any(|result| result.id() == call.id);
    reply.calls.iter().filter(answered).map(lost).collect()
}

/// True if the conversation stopped in mid-turn. A text is not an answer while a sub-agent's report is pending.
pub fn is_interrupted(messages: &[Message]) -> bool {
    let is_answer = |reply: &Reply| reply.calls.is_empty() && reply.finish != Finish::Calls;
    match messages.last() {
        None => false,
        Some(Message::Assistant(reply)) => {
            !is_answer(reply) || !spawned::unheard(messages).is_empty()
        }
        Some(Message::User(_) | Message::Tool(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_interrupted, sendable, unanswered};
    use crate::message::{Message, Part, Reply, ToolCall, ToolResult, User};
    use serde_json::json;

    /// `u`: a user; `n`: an empty user message; `a`: a text; `e`: an empty reply; `1+2`: a reply with these calls;
    /// `=1`: the result of call 1.
    fn conversation(words: &str) -> Vec<Message> {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "t".into(),
            arguments: json!({}),
        };
        let message = |word: &str| match word {
            "u" => Message::User(User {
                parts: vec![Part::Text("u".into())],
                ..User::default()
            }),
            "n" => Message::User(User::default()),
            "a" => Message::Assistant(Reply {
                text: "a".into(),
                ..Reply::default()
            }),
            "e" => Message::Assistant(Reply::default()),
            _ if word.starts_with('=') => {
                let parts = vec![Part::Text("out".into())];
                Message::Tool(ToolResult {
                    call: word[1..].into(),
                    name: "t".into(),
                    parts,
                    failed: false,
                })
            }
            _ => Message::Assistant(Reply {
                calls: word.split('+').map(call).collect(),
                ..Reply::default()
            }),
        };
        words.split_whitespace().map(message).collect()
    }

    fn words(messages: &[Message]) -> String {
        let word = |message: &Message| match message {
            Message::User(_) => "u".to_owned(),
            Message::Assistant(reply) if reply.calls.is_empty() => {
                if reply.text.is_empty() { "e" } else { "a" }.into()
            }
            Message::Assistant(reply) => reply
                .calls
                .iter()
                .map(|call| call.id.clone())
                .collect::<Vec<_>>()
                .join("+"),
            Message::Tool(result) => {
                format!("{}{}", if result.failed { "?" } else { "=" }, result.call)
            }
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_sent_pairs_up() {
        let check = |stored: &str, expect: &str| {
            let sent = sendable(conversation(stored));
            assert_eq!(words(&sent), expect, "{stored}");
            assert_eq!(
                sendable(sent.clone()),
                sent,
                "mending twice changes nothing: {stored}"
            );
        };
        check("", "");
        check("u a", "u a");
        check("a =1 u a", "u a");
        check("=1 =2", "");
        check("u 1+2 =1 =2 a", "u 1+2 =1 =2 a");
        check("u 1+2 =2 =1 a", "u 1+2 =1 =2 a");
        check("u 1+2 =1 u a", "u 1+2 =1 ?2 u a");
        check("u 1", "u 1 ?1");
        check("u =9 a", "u a");
        check("u 1 =1 =1 =7 a", "u 1 =1 a");
        check("u e a", "u a");
        check("n a u n a a n a", "u a");
        check("u a e a 1 =1 a a", "u a 1 =1 a");
        check("u u a", "u u a");
        check("u 1 =1 1 =1 a", "u 1 =1 1x1 =1x1 a");
        check("u 1+1 =1 =1 a", "u 1+1x1 =1 =1x1 a");
    }

    #[test]
    fn a_longer_conversation_begins_as_the_shorter_did() {
        let turns = ["u a", "u 1+2 =1 =2 a", "u 1 =1 a", "u e a", "u 3 =3 a"];
        for end in 1..turns.len() {
            let short = sendable(conversation(&turns[..end].join(" ")));
            let long = sendable(conversation(&turns.join(" ")));
            assert_eq!(long[..short.len()], short);
        }
    }

    #[test]
    fn ends_that_are_none() {
        let check = |stored: &str, lost: usize, interrupted: bool| {
            let messages = conversation(stored);
            assert_eq!(
                (unanswered(&messages).len(), is_interrupted(&messages)),
                (lost, interrupted),
                "{stored}"
            );
        };
        check("", 0, false);
        check("u a", 0, false);
        check("u", 0, true);
        check("u 1+2", 2, true);
        check("u 1+2 =2", 1, true);
        check("u 1+2 =1 =2", 0, true);
        check("u 1 =1 a", 0, false);
    }

    #[test]
    fn fuzz_what_is_sent_pairs_up_whatever_was_stored() {
        crate::fuzz::hold(
            &[
                b"u 1+2 =1 =2 a",
                b"u 1 =1 u a n a =1 =2 e",
                b"=1 1 1 =1 u 3+3 =3",
            ],
            |input, _| {
                let known = |word: &&str| {
                    matches!(*word, "u" | "n" | "a" | "e")
                        || word
                            .trim_start_matches('=')
                            .split('+')
                            .all(|id| !id.is_empty() && id.len() < 3)
                };
                let text = crate::fuzz::text(input);
                let words: Vec<&str> = text.split_whitespace().filter(known).collect();
                let sent = sendable(conversation(&words.join(" ")));
                assert!(matches!(sent.first(), None | Some(Message::User(_))));
                let mut open: Vec<String> = Vec::new();
                for message in &sent {
                    match message {
                        Message::Tool(result) => assert_eq!(result.call, open.remove(0)),
                        other => {
                            assert!(open.is_empty(), "{text}");
                            if let Message::Assistant(reply) = other {
                                open = reply.calls.iter().map(|call| call.id.clone()).collect();
                            }
                        }
                    }
                }
                assert!(open.is_empty() && unanswered(&sent).is_empty(), "{text}");
            },
        );
    }
}
