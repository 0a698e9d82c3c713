//! The messages that are sent to a provider: which stored messages are valid, their size, and the replacement for those that no longer fit.
//! No I/O.
//!
//! Providers reject a conversation that does not begin with a user message, or in which calls and results do not pair
//! up. Logs contain such conversations after a killed run, a cut by another program's window, or an edit by hand. The
//! log is not changed; only the messages to send are repaired.
//!
//! # After a failure
//!
//! A new message begins a new turn; `--resume` continues the last one. Each row has a story of this name in
//! `tests/cli/conversation_recovery.rs`, or in the file that is named.
//!
//! | event | stored | sent next | reported | story |
//! |---|---|---|---|---|
//! | cut by the output limit | each part, and a message that asks for the rest | all of it | the parts as one answer; status 3 if the third continuation is cut too | `an_answer_that_the_output_limit_cuts_is_continued` |
//! | interrupted in a text | the part of the reply, which ends in `[interrupted]` | all of it | by the shell or the REPL, which saw the signal | `a_partial_answer_is_kept_when_it_is_interrupted` |
//! | interrupted before any text | the message | the message, and [`NO_ANSWER`] as its reply | a notice with the next message | `an_abandoned_question_is_not_merged_into_the_next_one` |
//! | that several times | the messages | each but repetitions; all but the newest with [`SUPERSEDED`] | a notice with the next message | `a_retried_message_is_sent_once` |
//! | interrupted in a call | a failed result for each call without one | all of it, and [`NO_ANSWER`] | a notice with the next message | `signals.rs`: `a_signal_ends_the_children_before_the_program` |
//! | broken stream | after all retries, as interrupted in a text | the same | status 69 | `provider_http.rs`: `an_unfinished_stream_is_retried_if_nothing_was_shown` |
//! | refused by the server | the message, and its turn in the metadata | a note for all since the last answer | once, as the hint of the error | `a_refused_message_is_left_out_until_it_is_resumed` |
//! | refused by status | as refused, or as interrupted if the status has another cause | as refused, or the message | the same | `no_status_of_a_refusal_ends_the_conversation` |
//! | the server fails (5xx) | the message, and its turn in the metadata | the message; a note once it failed twice and others succeed | a notice | `a_message_on_which_the_server_fails_is_left_out` |
//! | too long | as refused | a note for all since the last answer | once, as the hint of the error | `a_message_that_is_too_long_does_not_end_the_conversation` |
//! | compacted | the summary | the summary, and what follows it | a notice | `a_message_that_is_too_long_does_not_end_the_conversation` |
//! | being consolidated | as before; refused turns are no part of it | as before | nothing | `a_refused_message_is_left_out_of_the_consolidation` |
//! | resumed | for a partial reply, a message that asks for the complete answer | the whole turn, refused or not | nothing | `a_resumed_answer_is_complete` |

pub mod compaction;
pub mod head_and_tail;
pub mod rejection;
pub mod result_truncation;
pub mod subagent_refs;

use nanobot_base::message::{
    FinishReason, Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult, to_plain_text,
};
use std::collections::{HashMap, HashSet};

/// Result text for a call whose outcome is unknown.
pub(crate) const INTERRUPTED: &str =
    "interrupted: this call may or may not have happened; check before repeating it";

/// Result text for a later call of the same reply. Calls are made in their order, and those that are made together only read, by what
/// is known of them.
const NOT_BEGUN: &str = "interrupted before this call was begun, or while it only read";

/// The end of a stored reply that was interrupted.
pub const INTERRUPTION_MARK: &str = "\n\n[interrupted]";

/// The stored reply where the rest of an answer is empty: providers reject empty replies.
pub const NO_MORE_TEXT: &str = "[no more text]";

/// The reply that is sent for a turn without an answer, before the next turn begins: the model must not mistake both messages for one.
const NO_ANSWER: &str = "[interrupted before an answer]";

/// The reply that is sent for an earlier one of several turns without an answer, each of which a later one has followed. The model must
/// not do what a script has asked for several times.
const SUPERSEDED: &str =
    "[interrupted before an answer; a later message takes its place, so it is not to be acted on]";

/// Spare capacity for the messages of a turn: most turns add no more, so the earlier messages are not copied when new
/// ones are pushed.
const TURN_CAPACITY: usize = 16;

/// Repairs `messages`: they begin with a user message, each call is followed by exactly one result in call order, and
/// there are no orphaned results or empty messages.
pub(crate) fn to_sendable(messages: Vec<Message>) -> Vec<Message> {
    let mut sent: Vec<Message> = Vec::with_capacity(messages.len() + TURN_CAPACITY);
    let mut ids = UniqueCallIds::default();
    let mut rest = messages
        .into_iter()
        .filter(|message| !is_blank(message))
        .skip_while(|message| !matches!(message, Message::User(_)))
        .peekable();
    while let Some(message) = rest.next() {
        match message {
            Message::User(_) => {
                if message.begins_turn() {
                    close_unanswered(&mut sent, &message);
                }
                sent.push(message);
            }
            // A result without a preceding call.
            Message::Tool(_) => {}
            Message::Assistant(reply) if reply.tool_calls.is_empty() => match sent.last_mut() {
                // Strict servers reject consecutive assistant messages, which unsolicited messages can produce.
                Some(Message::Assistant(previous)) => append_reply(previous, &reply),
                _ => sent.push(Message::Assistant(reply)),
            },
            Message::Assistant(mut reply) => {
                let mut results: Vec<ToolResult> = Vec::new();
                while let Some(Message::Tool(result)) =
                    rest.next_if(|next| matches!(next, Message::Tool(_)))
                {
                    results.push(result);
                }
                let answers = pair_results(&mut reply, results, &mut ids);
                sent.push(Message::Assistant(reply));
                sent.extend(answers.into_iter().map(Message::Tool));
            }
        }
    }
    sent
}

/// Prepares `messages`, which are sent, for the message `next`, which begins a turn: one without an answer gets a reply, and an earlier
/// one is marked as superseded. A message that `next` repeats is left out: it was sent again after a failure.
pub(crate) fn close_unanswered(messages: &mut Vec<Message>, next: &Message) {
    if messages.last().is_some_and(|last| last.begins_turn() && is_same_request(last, next)) {
        messages.pop();
    }
    let Some(reply) = no_answer(messages) else {
        return;
    };
    if let Some(question) = messages.iter().rposition(Message::begins_turn)
        && let Some((Message::Assistant(reply), [.., earlier])) =
            messages[..question].split_last_mut()
        && reply.text == NO_ANSWER
        && earlier.begins_turn()
    {
        reply.text = SUPERSEDED.into();
    }
    messages.push(reply);
}

/// True if both messages have the same content, whenever they were sent.
fn is_same_request(message: &Message, other: &Message) -> bool {
    matches!((message, other), (Message::User(user), Message::User(other)) if user.parts == other.parts && user.images == other.images)
}

/// The texts of the messages without an answer that are sent before one of `parts`, oldest first.
pub(crate) fn unanswered_texts(messages: &[Message], parts: &[MessagePart]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = messages;
    if no_answer(messages).is_none() {
        return texts;
    }
    while let Some(question) = rest.iter().rposition(Message::begins_turn) {
        let Message::User(user) = &rest[question] else { break };
        let is_repeated = question + 1 == messages.len() && user.parts == parts;
        texts.extend(rest[question].user_text().filter(|_| !is_repeated));
        rest = match rest[..question].split_last() {
            Some((reply, earlier)) if is_no_answer(reply) => earlier,
            _ => break,
        };
    }
    texts.reverse();
    texts
}

/// The reply to send before a new turn if the last of `messages`, which are sent, has no answer. The summary of a
/// compaction needs none.
pub(crate) fn no_answer(messages: &[Message]) -> Option<Message> {
    let is_open = match messages {
        [] | [.., Message::Assistant(_)] => false,
        [first] => first.begins_turn(),
        [.., Message::User(_) | Message::Tool(_)] => true,
    };
    is_open.then(|| {
        Message::Assistant(Reply {
            text: NO_ANSWER.into(),
            finish_reason: FinishReason::Interrupted,
            ..Reply::default()
        })
    })
}

/// True if `message` is a reply that stands for a missing answer.
pub(crate) fn is_no_answer(message: &Message) -> bool {
    matches!(message, Message::Assistant(reply) if reply.finish_reason == FinishReason::Interrupted && [NO_ANSWER, SUPERSEDED].contains(&reply.text.as_str()))
}

/// True if a message is empty: providers reject it, and every request that contains it.
fn is_blank(message: &Message) -> bool {
    match message {
        Message::User(user) => {
            user.runtime_facts.is_empty() && to_plain_text(&user.parts).trim().is_empty()
        }
        Message::Assistant(reply) => reply.is_blank(),
        Message::Tool(_) => false,
    }
}

/// Appends the text of `reply` to `previous`. Signed provider data is valid for a single reply only, so it is dropped.
fn append_reply(previous: &mut Reply, reply: &Reply) {
    let texts = [(&mut previous.text, &reply.text), (&mut previous.reasoning, &reply.reasoning)];
    for (text, more) in texts {
        if !text.is_empty() && !more.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(more);
    }
    previous.provider_data = None;
    previous.finish_reason = reply.finish_reason.clone();
}

/// Returns one result for each call of `reply`, in call order. An id that was used before is replaced in call and
/// result.
fn pair_results(
    reply: &mut Reply,
    mut results: Vec<ToolResult>,
    ids: &mut UniqueCallIds,
) -> Vec<ToolResult> {
    let mut answers = Vec::new();
    for call in &mut reply.tool_calls {
        let mut answer = match results.iter().position(|result| result.call_id == call.id) {
            Some(index) => results.remove(index),
            None => interrupted_result(call, INTERRUPTED),
        };
        if let Some(id) = ids.replacement(&call.id) {
            call.id.clone_from(&id);
            answer.call_id = id;
        }
        answers.push(answer);
    }
    answers
}

/// The call ids in use. Servers that number calls per reply reuse the same ids.
#[derive(Default)]
struct UniqueCallIds {
    used: HashSet<String>,
    /// Number of replacements made per id.
    replacements: HashMap<String, usize>,
}

impl UniqueCallIds {
    /// Takes `id` into use. If it is in use already, returns a variant to use instead. Deterministic, so that the same
    /// prefix of a conversation gets the same ids.
    fn replacement(&mut self, id: &str) -> Option<String> {
        if self.used.insert(id.to_owned()) {
            return None;
        }
        let count = self.replacements.entry(id.to_owned()).or_default();
        loop {
            *count += 1;
            let replacement = format!("{id}x{count}");
            if self.used.insert(replacement.clone()) {
                return Some(replacement);
            }
        }
    }
}

/// The substitute result of a call that has none.
fn interrupted_result(call: &ToolCall, text: &str) -> ToolResult {
    let parts = vec![MessagePart::Text(text.into())];
    ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        parts,
        failed: true,
        source: ResultSource::NotMade,
    }
}

/// Creates results for the calls at the end of a log that have none. `has_begun` is true if the first of them may have been begun.
pub(crate) fn interrupted_results(messages: &[Message], has_begun: bool) -> Vec<ToolResult> {
    let results =
        messages.iter().rev().take_while(|message| matches!(message, Message::Tool(_))).count();
    let (before, results) = messages.split_at(messages.len() - results);
    let Some(Message::Assistant(reply)) = before.last() else {
        return Vec::new();
    };
    let has_result = |call: &ToolCall| results.iter().any(|result| result.id() == call.id);
    let unanswered = reply.tool_calls.iter().filter(|call| !has_result(call)).enumerate();
    let text = |index: usize| if has_begun && index == 0 { INTERRUPTED } else { NOT_BEGUN };
    unanswered.map(|(index, call)| interrupted_result(call, text(index))).collect()
}

/// True if the conversation stopped in mid-turn. A text is not an answer while a sub-agent's report is pending.
pub fn is_interrupted(messages: &[Message]) -> bool {
    let is_answer = |reply: &Reply| {
        reply.tool_calls.is_empty()
            && !matches!(reply.finish_reason, FinishReason::ToolCalls | FinishReason::Interrupted)
    };
    match messages.last() {
        None => false,
        Some(Message::Assistant(reply)) => {
            !is_answer(reply) || !subagent_refs::unreported(messages).is_empty()
        }
        Some(Message::User(_) | Message::Tool(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        NO_ANSWER, SUPERSEDED, close_unanswered, interrupted_results, is_interrupted, to_sendable,
        unanswered_texts,
    };
    use nanobot_base::message::{
        Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult, UserMessage, to_plain_text,
    };
    use serde_json::json;

    /// `u`, `v`, `w`: a user; `n`: an empty user message; `a`: a text; `e`: an empty reply; `1+2`: a reply with these calls;
    /// `=1`: the result of call 1.
    fn conversation(letters: &str) -> Vec<Message> {
        let call = |id: &str| ToolCall { id: id.into(), name: "t".into(), arguments: json!({}) };
        let message = |word: &str| match word {
            "u" | "v" | "w" => Message::User(UserMessage {
                parts: vec![MessagePart::Text(word.into())],
                ..UserMessage::default()
            }),
            "n" => Message::User(UserMessage::default()),
            "a" => Message::Assistant(Reply { text: "a".into(), ..Reply::default() }),
            "e" => Message::Assistant(Reply::default()),
            _ if word.starts_with('=') => {
                let parts = vec![MessagePart::Text("out".into())];
                Message::Tool(ToolResult {
                    call_id: word[1..].into(),
                    name: "t".into(),
                    parts,
                    failed: false,
                    source: ResultSource::Unspecified,
                })
            }
            _ => Message::Assistant(Reply {
                tool_calls: word.split('+').map(call).collect(),
                ..Reply::default()
            }),
        };
        letters.split_whitespace().map(message).collect()
    }

    fn describe(messages: &[Message]) -> String {
        let word = |message: &Message| match message {
            Message::User(user) => to_plain_text(&user.parts).into_owned(),
            Message::Assistant(reply) if reply.tool_calls.is_empty() => match reply.text.as_str() {
                "" => "e",
                NO_ANSWER => "?",
                SUPERSEDED => "!",
                _ => "a",
            }
            .into(),
            Message::Assistant(reply) => {
                reply.tool_calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>().join("+")
            }
            Message::Tool(result) => {
                format!("{}{}", if result.failed { "?" } else { "=" }, result.call_id)
            }
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn calls_and_results_are_paired() {
        let check = |stored: &str, expect: &str| {
            let sent = to_sendable(conversation(stored));
            assert_eq!(describe(&sent), expect, "{stored}");
            assert_eq!(to_sendable(sent.clone()), sent, "mending twice changes nothing: {stored}");
        };
        check("", "");
        check("u a", "u a");
        check("a =1 u a", "u a");
        check("=1 =2", "");
        check("u 1+2 =1 =2 a", "u 1+2 =1 =2 a");
        check("u 1+2 =2 =1 a", "u 1+2 =1 =2 a");
        check("u 1+2 =1 u a", "u 1+2 =1 ?2 ? u a");
        check("u 1", "u 1 ?1");
        check("u =9 a", "u a");
        check("u 1 =1 =1 =7 a", "u 1 =1 a");
        check("u e a", "u a");
        check("n a u n a a n a", "u a");
        check("u a e a 1 =1 a a", "u a 1 =1 a");
        check("u 1 =1 u a", "u 1 =1 ? u a");
        check("u v a", "u ? v a");
        check("u v w a", "u ! v ? w a");
        check("u v w a u", "u ! v ? w a u");
        check("u u u a", "u a");
        check("u v v a", "u ? v a");
        check("u v u u a", "u ! v ? u a");
        check("u 1 =1 v w", "u 1 =1 ? v ? w");
        check("u 1 =1 1 =1 a", "u 1 =1 1x1 =1x1 a");
        check("u 1+1 =1 =1 a", "u 1+1x1 =1 =1x1 a");
    }

    #[test]
    fn unanswered_messages_are_named_unless_the_next_one_repeats_them() {
        let check = |stored: &str, next: &str, expect: &[&str], sent: &str| {
            let mut messages = to_sendable(conversation(stored));
            let next = conversation(next).remove(0);
            let Message::User(user) = &next else { unreachable!("it is a message of the user") };
            assert_eq!(unanswered_texts(&messages, &user.parts), expect, "{stored}");
            close_unanswered(&mut messages, &next);
            assert_eq!(describe(&messages), sent, "{stored}");
        };
        check("u a", "v", &[], "u a");
        check("u", "v", &["u"], "u ?");
        check("u", "u", &[], "");
        check("u a v w", "u", &["v", "w"], "u a v ! w ?");
        check("u v", "v", &["u"], "u ?");
        check("u 1 =1", "u", &["u"], "u 1 =1 ?");
    }

    #[test]
    fn repaired_prefix_is_stable() {
        let turns = ["u a", "u 1+2 =1 =2 a", "u 1 =1 a", "u e a", "u 3 =3 a"];
        for end in 1..turns.len() {
            let short = to_sendable(conversation(&turns[..end].join(" ")));
            let long = to_sendable(conversation(&turns.join(" ")));
            assert_eq!(long[..short.len()], short);
        }
    }

    #[test]
    fn detects_interrupted_conversations() {
        let check = |stored: &str, lost: usize, interrupted: bool| {
            let messages = conversation(stored);
            assert_eq!(
                (interrupted_results(&messages, true).len(), is_interrupted(&messages)),
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
    fn fuzz_calls_and_results_are_paired() {
        nanobot_base::fuzz::check(
            &[b"u 1+2 =1 =2 a", b"u 1 =1 u a n a =1 =2 e", b"=1 1 1 =1 u 3+3 =3"],
            |input, _| {
                let is_message = |word: &&str| {
                    matches!(*word, "u" | "n" | "a" | "e")
                        || word
                            .trim_start_matches('=')
                            .split('+')
                            .all(|id| !id.is_empty() && id.len() < 3)
                };
                let text = nanobot_base::fuzz::lossy_text(input);
                let letters: Vec<&str> = text.split_whitespace().filter(is_message).collect();
                let sent = to_sendable(conversation(&letters.join(" ")));
                assert!(matches!(sent.first(), None | Some(Message::User(_))));
                let mut open: Vec<String> = Vec::new();
                for message in &sent {
                    match message {
                        Message::Tool(result) => assert_eq!(result.call_id, open.remove(0)),
                        other => {
                            assert!(open.is_empty(), "{text}");
                            if let Message::Assistant(reply) = other {
                                open =
                                    reply.tool_calls.iter().map(|call| call.id.clone()).collect();
                            }
                        }
                    }
                }
                assert!(open.is_empty() && interrupted_results(&sent, true).is_empty(), "{text}");
            },
        );
    }
}
