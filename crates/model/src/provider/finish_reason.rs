//! The finish reasons of servers, and their meanings. One table serves all wire formats, because gateways pass on the
//! reasons of other vendors. A reason that is not in the table is reported unchanged: a reply is complete only if its server says so with a
//! known reason.

use super::wire_format::{ReplyError, ReplyResult};
use nanobot_base::message::{FinishReason, Reply};

/// The meaning of a finish reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The reply is complete.
    Complete,
    /// The reply ends with tool calls.
    ToolCalls,
    /// A limit has cut the reply, and the model can continue it.
    Length,
    /// A filter or the model itself has stopped the reply.
    Declined,
    /// The server failed within the reply. Another attempt may succeed.
    Broken,
}

/// The finish reasons, in lower case and with `_` for `-`. The comments name the first source of the rows below them.
const FINISH_REASONS: &[(&str, Meaning)] = &[
    // OpenAI, chat completions
    ("stop", Meaning::Complete),
    ("length", Meaning::Length),
    ("tool_calls", Meaning::ToolCalls),
    ("function_call", Meaning::ToolCalls),
    ("content_filter", Meaning::Declined),
    // OpenAI, responses: the status, and the reason of an incomplete one. vLLM sends `incomplete` without a reason if the
    // output limit was reached.
    ("completed", Meaning::Complete),
    ("incomplete", Meaning::Length),
    ("max_output_tokens", Meaning::Length),
    ("cancelled", Meaning::Broken),
    ("in_progress", Meaning::Broken),
    ("queued", Meaning::Broken),
    ("failed", Meaning::Broken),
    // Anthropic. A paused turn is continued like a cut one.
    ("end_turn", Meaning::Complete),
    ("stop_sequence", Meaning::Complete),
    ("tool_use", Meaning::ToolCalls),
    ("max_tokens", Meaning::Length),
    ("model_context_window_exceeded", Meaning::Length),
    ("pause_turn", Meaning::Length),
    ("refusal", Meaning::Declined),
    // Amazon Bedrock
    ("guardrail_intervened", Meaning::Declined),
    ("content_filtered", Meaning::Declined),
    ("malformed_model_output", Meaning::Broken),
    ("malformed_tool_use", Meaning::Broken),
    // Mistral, OpenRouter
    ("model_length", Meaning::Length),
    ("error", Meaning::Broken),
    // DeepSeek
    ("insufficient_system_resource", Meaning::Broken),
    // Zhipu, Tencent
    ("sensitive", Meaning::Declined),
    ("network_error", Meaning::Broken),
    // Baidu
    ("normal", Meaning::Complete),
    // Together, TGI
    ("eos", Meaning::Complete),
    ("eos_token", Meaning::Complete),
    // vLLM, SGLang, and proxies whose own client has disconnected
    ("abort", Meaning::Broken),
    ("aborted", Meaning::Broken),
    ("canceled", Meaning::Broken),
    ("repetition", Meaning::Broken),
    ("repetition_truncation", Meaning::Broken),
    // Cohere
    ("complete", Meaning::Complete),
    ("tool_call", Meaning::ToolCalls),
    ("error_toxic", Meaning::Declined),
    ("error_limit", Meaning::Length),
    ("timeout", Meaning::Broken),
    ("user_cancel", Meaning::Broken),
    // Gemini
    ("safety", Meaning::Declined),
    ("recitation", Meaning::Declined),
    ("language", Meaning::Declined),
    ("blocklist", Meaning::Declined),
    ("prohibited_content", Meaning::Declined),
    ("spii", Meaning::Declined),
    ("model_armor", Meaning::Declined),
    ("malformed_function_call", Meaning::Broken),
    ("malformed_response", Meaning::Broken),
    ("unexpected_tool_call", Meaning::Broken),
    ("too_many_tool_calls", Meaning::Broken),
    ("missing_thought_signature", Meaning::Broken),
];

/// The meaning of a finish reason, if it is known. Gemini puts the kind of filter before its reason, as in
/// `function_call_filter: MALFORMED_FUNCTION_CALL`.
fn meaning_of(reason: &str) -> Option<Meaning> {
    let name = reason.rsplit(':').next().unwrap_or(reason).trim();
    let name = name.to_ascii_lowercase().replace('-', "_");
    FINISH_REASONS.iter().find(|(reason, _)| *reason == name).map(|(_, meaning)| *meaning)
}

/// Ends `reply` with the finish reason of the server. Without a `reason`, the server has marked the end in another way.
/// `is_refusal` is true if the content itself says that the model declines.
///
/// # Errors
/// The server could not complete the reply. It is then as unusable as a reply whose connection broke.
pub(super) fn end_reply(
    reply: &mut Reply,
    reason: Option<&str>,
    is_refusal: bool,
) -> ReplyResult<()> {
    let meaning = reason.map_or(Some(Meaning::Complete), meaning_of);
    let has_calls = !reply.tool_calls.is_empty();
    reply.finish_reason = match (meaning, reason) {
        (Some(Meaning::Broken), _) => {
            let reason = reason.unwrap_or_default();
            return Err(ReplyError::Truncated(format!("its finish reason is `{reason}`")));
        }
        (Some(Meaning::Length), _) => FinishReason::Length,
        (Some(Meaning::Declined), _) => FinishReason::Refusal,
        _ if is_refusal => FinishReason::Refusal,
        (None, Some(reason)) => FinishReason::Other(reason.to_owned()),
        _ if has_calls => FinishReason::ToolCalls,
        (Some(Meaning::ToolCalls), _) => FinishReason::ToolCalls,
        _ => FinishReason::Stop,
    };
    if reply.finish_reason == FinishReason::Refusal && has_calls {
        // Calls of a reply that was stopped are not run. The provider data lists them, so it is dropped too.
        reply.tool_calls.clear();
        reply.provider_data = None;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FINISH_REASONS, Meaning};
    use crate::provider::anthropic::AnthropicFormat;
    use crate::provider::chat::ChatFormat;
    use crate::provider::quirks::NONE;
    use crate::provider::response::test_support;
    use crate::provider::responses::ResponsesFormat;
    use crate::provider::wire_format::{ReplyError, WireFormat};
    use nanobot_base::message::FinishReason;
    use serde_json::{Value, json};

    /// The end of a reply: its finish reason, and whether its call is to be carried out. `None` if it is broken.
    type End = Option<(FinishReason, bool)>;

    fn read(format: &dyn WireFormat, reply: &Value) -> End {
        match test_support::read(format, reply.to_string().as_bytes(), 0) {
            Ok((reply, _)) => Some((reply.finish_reason, !reply.tool_calls.is_empty())),
            Err(ReplyError::Truncated(_)) => None,
            Err(error) => panic!("{reply}: {error:?}"),
        }
    }

    /// The end of a reply with this finish reason in each wire format, with a text or with a call.
    fn ends(reason: &str, has_call: bool) -> [End; 3] {
        let name = "f";
        let server = String::new;
        let chat = ChatFormat { server: server(), quirks: NONE, max_output_tokens: None };
        let message = if !has_call {
            json!({ "content": "Half of" })
        } else {
            json!({ "tool_calls": [{ "id": "c", "function": { "name": name, "arguments": "{}" } }] })
        };
        let anthropic = AnthropicFormat {
            server: server(),
            quirks: NONE,
            max_output_tokens: None,
            vertex_path: String::new(),
        };
        let block = if !has_call {
            json!({ "type": "text", "text": "Half of" })
        } else {
            json!({ "type": "tool_use", "id": "c", "name": name, "input": {} })
        };
        let responses = ResponsesFormat {
            server: server(),
            quirks: NONE,
            max_output_tokens: None,
            is_reasoning_model: false,
        };
        let item = if !has_call {
            json!({ "type": "message", "content": [{ "type": "output_text", "text": "Half of" }] })
        } else {
            json!({ "type": "function_call", "call_id": "c", "name": name, "arguments": "{}" })
        };
        let details = json!({ "reason": reason });
        [
            read(&chat, &json!({ "choices": [{ "message": message, "finish_reason": reason }] })),
            read(
                &anthropic,
                &json!({ "type": "message", "content": [block], "stop_reason": reason }),
            ),
            read(
                &responses,
                &json!({ "output": [item], "status": "incomplete", "incomplete_details": details }),
            ),
        ]
    }

    #[test]
    fn every_reason_has_the_same_meaning_in_every_format() {
        let check = |reason: &str, expect: &End, expect_with_call: &End| {
            for (has_call, expect) in [(false, expect), (true, expect_with_call)] {
                for actual in ends(reason, has_call) {
                    assert_eq!(&actual, expect, "{reason}, call: {has_call}");
                }
            }
        };
        let text = |finish: FinishReason| Some((finish, false));
        let call = |finish: FinishReason| Some((finish, true));
        for (reason, meaning) in FINISH_REASONS {
            let (expect, expect_with_call) = match meaning {
                Meaning::Complete => (text(FinishReason::Stop), call(FinishReason::ToolCalls)),
                Meaning::ToolCalls => {
                    (text(FinishReason::ToolCalls), call(FinishReason::ToolCalls))
                }
                Meaning::Length => (text(FinishReason::Length), call(FinishReason::Length)),
                Meaning::Declined => (text(FinishReason::Refusal), text(FinishReason::Refusal)),
                Meaning::Broken => (None, None),
            };
            check(reason, &expect, &expect_with_call);
            check(&reason.to_uppercase(), &expect, &expect_with_call);
            check(&reason.replace('_', "-"), &expect, &expect_with_call);
        }
        check("function_call_filter: MALFORMED_FUNCTION_CALL", &None, &None);
        check(
            "content_filter: RECITATION",
            &text(FinishReason::Refusal),
            &text(FinishReason::Refusal),
        );
        for unknown in ["odd", "stopped", " "] {
            let other = FinishReason::Other(unknown.to_owned());
            check(unknown, &text(other.clone()), &call(other));
        }
    }

    #[test]
    fn each_word_is_listed_once_in_its_plain_form() {
        for (number, (word, _)) in FINISH_REASONS.iter().enumerate() {
            let is_plain = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            assert!(word.chars().all(is_plain), "{word}");
            assert!(FINISH_REASONS[..number].iter().all(|(other, _)| other != word), "{word}");
        }
    }
}
