//! Token estimates without the model's tokenizer. Callers correct them by the provider's last count.

use super::{Message, MessagePart, Reply, ToolCall};
use serde_json::Value;

/// Tokens per message in addition to its content.
const TOKENS_PER_MESSAGE: u64 = 4;
/// Tokens of an image if the provider does not report them.
const TOKENS_PER_IMAGE: u64 = 1600;
/// Bytes of a document per token; pages are sent both as text and as images.
const BYTES_PER_DOCUMENT_TOKEN: u64 = 40;
/// Bytes of a recording per token: speech as MP3 has 8 kB in a second, for which Gemini counts 32 tokens.
const BYTES_PER_AUDIO_TOKEN: u64 = 250;

/// Estimates the tokens of `text`: four ASCII characters make one token; other alphabets weigh more.
pub fn for_text(text: &str) -> u64 {
    if text.is_ascii() {
        return (text.len() as u64).div_ceil(4);
    }
    let quarters: u64 = text
        .chars()
        .map(|character| match character.len_utf8() {
            1 => 1,
            2 => 2,
            3 => 3,
            _ => 6,
        })
        .sum();
    quarters.div_ceil(4)
}

/// Estimates the tokens of a JSON value in text form.
pub fn for_value(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(text) => for_text(text) + 1,
        Value::Array(items) => items.iter().map(for_value).sum::<u64>() + 1,
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| for_text(name) + 1 + for_value(value);
            fields.iter().map(field).sum::<u64>() + 1
        }
    }
}

/// Estimates the tokens of a message in the form in which it is sent.
pub fn for_message(message: &Message) -> u64 {
    let parts = |parts: &[MessagePart]| parts.iter().map(for_part).sum::<u64>();
    TOKENS_PER_MESSAGE
        + match message {
            Message::User(user) => parts(&user.parts) + for_text(&user.runtime_facts),
            Message::Assistant(reply) => for_reply(reply),
            Message::Tool(result) => parts(&result.parts) + for_text(&result.call_id),
        }
}

/// Estimates the tokens of all `messages`.
pub fn for_messages(messages: &[Message]) -> u64 {
    messages.iter().map(for_message).sum()
}

fn for_part(part: &MessagePart) -> u64 {
    match part {
        MessagePart::Text(text) => for_text(text),
        MessagePart::Image(_) => TOKENS_PER_IMAGE,
        MessagePart::Document(document) => {
            let is_audio = document.is_audio();
            let bytes_per_token =
                if is_audio { BYTES_PER_AUDIO_TOKEN } else { BYTES_PER_DOCUMENT_TOKEN };
            document.bytes.len() as u64 / bytes_per_token
        }
    }
}

fn for_reply(reply: &Reply) -> u64 {
    let call = |call: &ToolCall| {
        TOKENS_PER_MESSAGE + for_text(&call.id) + for_text(&call.name) + for_value(&call.arguments)
    };
    // Some opaque data contains the reasoning, some only says where it belongs.
    let opaque = reply.provider_data.as_ref().map_or(0, for_value);
    let thoughts = for_text(&reply.reasoning).max(opaque);
    for_text(&reply.text) + thoughts + reply.tool_calls.iter().map(call).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::{for_message, for_text, for_value};
    use crate::message::{Message, MessagePart, UserMessage};
    use serde_json::json;

    #[test]
    fn estimates_by_utf8_length() {
        let check = |text: &str, expect: u64| assert_eq!(for_text(text), expect, "{text}");
        check("", 0);
        check("abc", 1);
        check("abcd", 1);
        check("abcde", 2);
        check("привет", 3);
        check("日本語で", 3);
        check("🐈🐈", 3);
    }

    #[test]
    fn total_exceeds_the_parts() {
        assert_eq!(for_value(&json!({ "path": "a.md", "n": [1, null] })), 11);
        let message = Message::User(UserMessage {
            parts: vec![MessagePart::Text("abcd".into())],
            ..UserMessage::default()
        });
        assert_eq!(for_message(&message), 5);
    }
}
