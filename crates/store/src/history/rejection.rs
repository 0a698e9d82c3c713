//! Turns that the provider rejected. They stay in the log, and are not sent: a note replaces them.

use super::is_no_answer;
use nanobot_base::message::{Message, MessagePart, UserMessage};

/// The text that is sent for messages that are left out. It quotes neither them nor the provider, so that it cannot be
/// rejected for the same reason.
const NOTE: &str = "[message not accepted: the provider refused it, so it is left out]";

/// The message that is sent for messages that are left out.
pub fn note() -> Message {
    Message::User(UserMessage {
        parts: vec![MessagePart::Text(NOTE.into())],
        injected: true,
        ..UserMessage::default()
    })
}

/// Splits `messages` into those to send, and those at the end that are left out because of the rejected `turns`. All
/// messages between the last answer before a rejected turn and the next turn are left out, because any of them may be
/// the cause. Where this happens before the end, a note takes their place.
pub(crate) fn leave_out(messages: Vec<Message>, turns: &[String]) -> (Vec<Message>, Vec<Message>) {
    if turns.is_empty() {
        return (messages, Vec::new());
    }
    let is_answer = |message: &Message| matches!(message, Message::Assistant(reply) if reply.tool_calls.is_empty());
    let mut sent = Vec::with_capacity(messages.len());
    let mut left_out = Vec::new();
    let mut is_left_out = false;
    for message in messages {
        let is_rejected = turns.iter().any(|turn| turn == message.turn_id());
        if message.begins_turn() && !is_rejected {
            if is_left_out {
                sent.push(note());
            }
            left_out.clear();
            is_left_out = false;
        } else if is_rejected && !is_left_out {
            let after_answer = sent.iter().rposition(is_answer).map_or(0, |index| index + 1);
            left_out = sent.split_off(after_answer);
            is_left_out = true;
        }
        if is_left_out { left_out.push(message) } else { sent.push(message) }
    }
    (sent, left_out)
}

/// The turns at the end of `messages` that have no reply, oldest first. Each is a list of ids: a turn that was resumed
/// has one id for each of its runs.
pub(crate) fn unanswered_turns(messages: &[Message]) -> Vec<Vec<&str>> {
    let is_reply = |message: &Message| matches!(message, Message::Assistant(reply) if reply.tool_calls.is_empty() && !is_no_answer(message));
    let start = messages.iter().rposition(is_reply).map_or(0, |index| index + 1);
    let mut turns: Vec<Vec<&str>> = Vec::new();
    for message in &messages[start..] {
        if message.begins_turn() {
            turns.push(Vec::new());
        }
        let id = message.turn_id();
        if let Some(turn) = turns.last_mut()
            && !id.is_empty()
            && !turn.contains(&id)
        {
            turn.push(id);
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::{leave_out, note, unanswered_turns};
    use nanobot_base::message::{
        Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult, UserMessage,
    };
    use serde_json::json;

    /// A message of turn `1`: `u1` of the user, `a1` an answer, `c1` a call, `i1` an injected message. `r` is a result.
    fn message(word: &str) -> Message {
        let (kind, turn) = word.split_at(1);
        let id = format!("{turn}-{kind}");
        let parts = vec![MessagePart::Text(word.into())];
        match kind {
            "u" | "i" => Message::User(UserMessage {
                id,
                parts,
                injected: kind == "i",
                ..UserMessage::default()
            }),
            "r" => Message::Tool(ToolResult {
                call_id: "call_1".into(),
                name: word.into(),
                parts,
                failed: false,
                source: ResultSource::Unspecified,
            }),
            _ => Message::Assistant(Reply {
                id,
                text: word.into(),
                tool_calls: (kind == "c")
                    .then(|| ToolCall {
                        id: "call_1".into(),
                        name: "t".into(),
                        arguments: json!({}),
                    })
                    .into_iter()
                    .collect(),
                ..Reply::default()
            }),
        }
    }

    fn conversation(letters: &str) -> Vec<Message> {
        let message = |word| if word == "note" { note() } else { message(word) };
        letters.split_whitespace().map(message).collect()
    }

    #[test]
    fn rejected_turns_are_left_out_back_to_the_last_answer() {
        let check = |stored: &str, turns: &[&str], sent: &str, left_out: &str| {
            let turns: Vec<String> = turns.iter().map(|turn| (*turn).to_owned()).collect();
            assert_eq!(
                leave_out(conversation(stored), &turns),
                (conversation(sent), conversation(left_out)),
                "{stored}"
            );
        };
        check("u1 a1 u2", &[], "u1 a1 u2", "");
        check("u1 a1 u2", &["2"], "u1 a1", "u2");
        check("u1 a1 u2 u3 a3", &["2"], "u1 a1 note u3 a3", "");
        check("u1 c1 r u2 a2", &["1"], "note u2 a2", "");
        // The message before it has no answer, so it may be the cause.
        check("u1 a1 u2 i2 u3", &["3"], "u1 a1", "u2 i2 u3");
        check("u1 a1 u2 u3 u4 a4", &["2", "3"], "u1 a1 note u4 a4", "");
        // A turn that was resumed has messages of both runs.
        check("u1 a1 u2 c3 r", &["2", "3"], "u1 a1", "u2 c3 r");
        // The beginning of the turn is compacted.
        check("c1 r u2 a2", &["1"], "note u2 a2", "");
    }

    #[test]
    fn turns_without_a_reply_are_at_the_end() {
        let check = |stored: &str, expect: &[&[&str]]| {
            assert_eq!(unanswered_turns(&conversation(stored)), expect, "{stored}");
        };
        check("", &[]);
        check("u1 a1", &[]);
        check("u1", &[&["1"]]);
        check("u1 a1 u2 u3 i3", &[&["2"], &["3"]]);
        check("u1 a1 note u2 c3 r", &[&["2", "3"]]);
    }
}
