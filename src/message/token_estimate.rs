//! Token estimates without the model's tokenizer. Callers correct them by the provider's last count.

use super::{Message, Part, Reply, ToolCall};
use serde_json::Value;

/// Tokens per message in addition to its content.
const MESSAGE: u64 = 4;
/// Tokens of an image if the provider does not report them.
const IMAGE: u64 = 1600;
/// Bytes of a document per token; pages count as both text and images.
const DOCUMENT: u64 = 40;

/// Estimates the tokens of `text`: four ASCII characters make one token; other alphabets weigh more.
pub fn of_text(text: &str) -> u64 {
    if text.is_ascii() {
        return (text.len() as u64).div_ceil(4);
    }
    let quarters: u64 = text
        .chars()
        .map(|letter| match letter.len_utf8() {
            1 => 1,
            2 => 2,
            3 => 3,
            _ => 6,
        })
        .sum();
    quarters.div_ceil(4)
}

/// Estimates the tokens of a JSON value in text form.
pub fn of_value(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(text) => of_text(text) + 1,
        Value::Array(items) => items.iter().map(of_value).sum::<u64>() + 1,
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| of_text(name) + 1 + of_value(value);
            fields.iter().map(field).sum::<u64>() + 1
        }
    }
}

/// Estimates the tokens of a message in the form in which it is sent.
pub fn of_message(message: &Message) -> u64 {
    let parts = |parts: &[Part]| parts.iter().map(of_part).sum::<u64>();
    MESSAGE
        + match message {
            Message::User(user) => parts(&user.parts) + of_text(&user.facts),
            Message::Assistant(reply) => of_reply(reply),
            Message::Tool(result) => parts(&result.parts) + of_text(&result.call),
        }
}

/// Estimates the tokens of all `messages`.
pub fn of_messages(messages: &[Message]) -> u64 {
    messages.iter().map(of_message).sum()
}

fn of_part(part: &Part) -> u64 {
    match part {
        Part::Text(text) => of_text(text),
        Part::Image(_) => IMAGE,
        Part::Document(document) => document.bytes.len() as u64 / DOCUMENT,
    }
}

fn of_reply(reply: &Reply) -> u64 {
    let call = |call: &ToolCall| {
        MESSAGE + of_text(&call.id) + of_text(&call.name) + of_value(&call.arguments)
    };
    // The opaque data already contains the reasoning.
    let thoughts = match &reply.opaque {
        Some(opaque) => of_value(opaque),
        None => of_text(&reply.reasoning),
    };
    of_text(&reply.text) + thoughts + reply.calls.iter().map(call).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::{of_message, of_text, of_value};
    use crate::message::{Message, Part, User};
    use serde_json::json;

    #[test]
    fn letters_weigh_what_they_are() {
        let check = |text: &str, expect: u64| assert_eq!(of_text(text), expect, "{text}");
        check("", 0);
        check("abc", 1);
        check("abcd", 1);
        check("abcde", 2);
        check("привет", 3);
        check("日本語で", 3);
        check("🐈🐈", 3);
    }

    #[test]
    fn the_whole_weighs_more_than_its_parts() {
        assert_eq!(of_value(&json!({ "path": "a.md", "n": [1, null] })), 11);
        let message = Message::User(User {
            parts: vec![Part::Text("abcd".into())],
            ..User::default()
        });
        assert_eq!(of_message(&message), 5);
    }
}
