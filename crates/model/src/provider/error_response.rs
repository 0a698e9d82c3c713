//! Parses servers' error responses in their various forms.

use jiff::Timestamp;
use nanobot_net::http::Response;
use serde_json::Value;
use std::time::Duration;

/// The HTTP status named by an error within a successful response.
pub(super) fn embedded_status(error: &Value) -> Option<u16> {
    let http_status = |value: &Value| -> Option<u16> {
        let number = match value {
            Value::Number(number) => number.as_u64()?,
            Value::String(text) => text.parse().ok()?,
            _ => return None,
        };
        u16::try_from(number).ok().filter(|status| (400..600).contains(status))
    };
    let status = ["/error/code", "/error/status", "/code", "/status", "/error/status_code"]
        .iter()
        .filter_map(|pointer| error.pointer(pointer))
        .find_map(http_status);
    status.or_else(|| {
        // A code is more precise than a type.
        ["/error/code", "/code", "/error/type", "/type"]
            .iter()
            .filter_map(|pointer| error.pointer(pointer)?.as_str())
            .find_map(status_for_type)
    })
}

/// The HTTP status for an error type, as named by Anthropic and OpenAI.
fn status_for_type(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" | "invalid_prompt" => 400,
        "authentication_error" | "invalid_api_key" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "permission_error" => 403,
        "not_found_error" | "model_not_found" => 404,
        "request_too_large" | "context_length_exceeded" => 413,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "api_error" | "server_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" | "server_is_overloaded" | "slow_down" => 529,
        _ => return None,
    })
}

/// Error codes and types for a conversation that exceeds the context window, in lower case. Each has its source.
const CONTEXT_OVERFLOW_CODES: &[&str] = &[
    // OpenAI, Groq, Cerebras: <https://github.com/letta-ai/letta/issues/1963>
    "context_length_exceeded",
    // GitHub Copilot: "prompt token count of 391491 exceeds the limit of 128000"
    "model_max_prompt_tokens_exceeded",
    // llama.cpp: tools/server/server-context.cpp
    "exceed_context_size_error",
    // Mistral: vibe/core/llm/exceptions.py of <https://github.com/mistralai/mistral-vibe>
    "model_context_exceeded",
    "prompt_too_long",
];

/// Phrases of error messages for a conversation that exceeds the context window, in lower case. Each has its source; `pi`
/// is packages/ai/src/utils/overflow.ts of <https://github.com/badlogic/pi-mono>, `vibe` is
/// vibe/core/llm/exceptions.py of <https://github.com/mistralai/mistral-vibe>, and `litellm` is
/// litellm_core_utils/exception_mapping_utils.py of <https://github.com/BerriAI/litellm>.
const CONTEXT_OVERFLOW_PHRASES: &[&str] = &[
    // OpenAI, vLLM, OpenRouter, Mistral: "This model's maximum context length is 4097 tokens" (pi)
    "maximum context",
    // LM Studio: "… is greater than the context length" (pi); others: "longer than the model's context length" (litellm)
    "context length",
    // Gateways that put OpenAI's code into the message (pi)
    "context_length",
    // OpenAI: "Your input exceeds the context window of this model"; MiniMax: "context window exceeds limit" (pi)
    "context window",
    // OpenAI: "Input tokens exceed the configured limit of 272000 tokens": <https://github.com/cline/cline/issues/5474>
    "input tokens exceed the configured limit",
    // Groq: <https://github.com/OpenHands/OpenHands/issues/1902>; Cerebras: "Please reduce the length of the messages or
    // completion. Current length is 42328 while limit is 40000": <https://github.com/cline/cline/issues/5140>
    "reduce the length of the messages",
    // Gemini: "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)":
    // <https://github.com/google-gemini/gemini-cli/issues/6678>
    "input token count",
    // xAI: "This model's maximum prompt length is 131072 but the request contains 136973 tokens":
    // <https://github.com/cline/cline/issues/3120>
    "maximum prompt length is",
    // Qwen: "Range of input length should be [1, 204800]": <https://github.com/QwenLM/qwen-code/issues/98>
    "range of input length should be",
    // Kimi: "Your request exceeded model token limit: 262144 (requested: 300000)" (pi)
    "exceeded model token limit",
    // GitHub Copilot: "prompt token count of 391491 exceeds the limit of 128000" (pi)
    "prompt token count of",
    // Anthropic: "prompt is too long: 213462 tokens > 200000 maximum" (pi)
    "prompt is too long",
    // Anthropic: "input length and `max_tokens` exceed context limit":
    // <https://github.com/continuedev/continue/issues/6080>
    "input length and",
    // Amazon Bedrock: "Input is too long for requested model" (pi)
    "input is too long",
    // llama.cpp: "the request exceeds the available context size" (pi)
    "exceeds the available context",
    // Cohere and gateways (pi)
    "too many tokens",
    // Groq, with status 413, which some gateways change: "Request too large for model":
    // <https://github.com/continuedev/continue/issues/10218>
    "request too large",
    // Mistral: "Input too large: couldn't fit with truncation" (vibe)
    "input too large",
    "couldn't fit with truncation",
    "context too long",
];

/// True if the error says that the conversation exceeds the context window: by its code, which is precise, or else by
/// a phrase in its message.
pub(super) fn is_context_overflow(status: u16, body: &str, message: &str) -> bool {
    let has_code = || {
        let body = serde_json::from_str::<Value>(body).unwrap_or_default();
        let pointers = ["/error/code", "/error/type", "/code", "/type", "/0/error/code"];
        let mut codes = pointers.iter().filter_map(|pointer| body.pointer(pointer)?.as_str());
        codes.any(|code| CONTEXT_OVERFLOW_CODES.contains(&&*code.to_lowercase()))
    };
    let has_phrase = || {
        let message = message.to_lowercase();
        CONTEXT_OVERFLOW_PHRASES.iter().any(|phrase| message.contains(phrase))
    };
    // A 413 is always about the size of the request. A phrase counts only with a status that names no other cause: a
    // rate limit (429) speaks of too many tokens too. Most servers use 400, those that validate a schema 422, and some
    // local servers and gateways 500.
    status == 413 || has_code() || (matches!(status, 400 | 422 | 500) && has_phrase())
}

/// True if the error message says that the account is out of credit; a retry is pointless then.
pub(super) fn is_out_of_credit(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "current quota",
        "insufficient_quota",
        "insufficient balance",
        "insufficient credit",
        "billing hard limit",
        "billing_not_active",
    ]
    .iter()
    .any(|phrase| message.contains(phrase))
}

/// The delay that the server requests before a retry, from the headers. `now` is our time.
pub(super) fn retry_after(response: &Response, now: Timestamp) -> Option<Duration> {
    let millis = response.header("retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok());
    let after = response.header("retry-after").map(str::trim);
    duration_from_secs(millis.map(|millis| millis / 1000.0)).or_else(|| {
        let after = after?;
        duration_from_secs(after.parse().ok())
            .or_else(|| duration_until(after, response.header("date"), now))
    })
}

/// The spellings of the unit of a delay in seconds.
const SECONDS: [&str; 5] = ["s", "sec", "secs", "second", "seconds"];

/// The delay that the server requests, from the body: as a field, or as text ("please retry in 36.5s", "Please try again in
/// 11.054s" of OpenAI, which an error within a stream has no header for).
pub(super) fn retry_after_in_body(body: &str) -> Option<Duration> {
    let number_after = |label: &str, has_unit: bool| {
        let (_, rest) = body.split_once(label)?;
        let rest = rest.trim_start_matches([' ', ':', '"']);
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let unit =
            rest[end..].trim_start().split(|letter: char| !letter.is_ascii_alphabetic()).next();
        if has_unit && !unit.is_some_and(|unit| SECONDS.contains(&unit)) {
            return None;
        }
        duration_from_secs(rest[..end].parse().ok())
    };
    ["\"retryDelay\"", "retry in", "try again in"]
        .into_iter()
        .find_map(|label| number_after(label, true))
        // The limit of an account, as OpenAI's Codex backend reports it.
        .or_else(|| number_after("\"resets_in_seconds\"", false))
}

fn duration_from_secs(number: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(number?.max(0.0)).ok()
}

/// The time until the date of `Retry-After`. It is relative to the server's own `Date`, because our clock may differ;
/// without a usable one, our clock is used.
fn duration_until(after: &str, date: Option<&str>, now: Timestamp) -> Option<Duration> {
    let parse = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp());
    let gap = parse(after)?.duration_since(date.and_then(parse).unwrap_or(now));
    Some(Duration::try_from(gap).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{duration_until, embedded_status, is_context_overflow, is_out_of_credit};
    use jiff::Timestamp;
    use nanobot_net::http::error_message;
    use serde_json::{Value, json};
    use std::time::Duration;

    #[test]
    fn causes_are_classified_by_message() {
        let check = |status: u16, body: &str, expect: bool| {
            let message = error_message(body);
            assert_eq!(is_context_overflow(status, body, &message), expect, "{body}");
        };
        check(413, "", true);
        for message in [
            "This model's maximum context length is 8192 tokens",
            "Input tokens exceed the configured limit of 272000 tokens.",
            "Please reduce the length of the messages or completion.",
            "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
            "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
            "InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
            "Your request exceeded model token limit: 262144 (requested: 300000)",
        ] {
            check(400, message, true);
            check(401, message, false);
        }
        for code in ["context_length_exceeded", "exceed_context_size_error"] {
            check(400, &json!({ "error": { "message": "no", "code": code } }).to_string(), true);
            check(400, &json!({ "error": { "message": "no", "type": code } }).to_string(), true);
            check(400, &json!({ "message": "no", "code": code }).to_string(), true);
        }
        for other in [
            "bad parameter",
            "Range of max_tokens should be [1, 8192]",
            "max_tokens is too large: 100000",
            "string too long. Expected a string with maximum length 64",
        ] {
            check(400, other, false);
        }
        check(429, "too many tokens per minute", false);
        assert!(is_out_of_credit("You exceeded your current quota, please check your plan"));
        assert!(!is_out_of_credit("rate limit reached"));
    }

    #[test]
    fn a_status_within_an_error() {
        assert_eq!(embedded_status(&json!({ "error": { "code": 429 } })), Some(429));
        assert_eq!(embedded_status(&json!({ "error": { "code": "503" } })), Some(503));
        assert_eq!(embedded_status(&json!({ "error": { "code": "invalid" } })), None);
        assert_eq!(embedded_status(&json!({ "error": { "code": 7 } })), None);
        // A code of the vendor's own, before the status.
        let with_own_code = json!({ "error": { "code": 1302, "status": 429 } });
        assert_eq!(embedded_status(&with_own_code), Some(429));
        let named = |kind: &str| embedded_status(&json!({ "error": { "type": kind } }));
        assert_eq!(named("overloaded_error"), Some(529));
        assert_eq!(named("rate_limit_error"), Some(429));
        assert_eq!(named("odd"), None);
        // A code decides, if it is one of those that have a status.
        let with_code = |code: Value| {
            embedded_status(&json!({ "error": { "type": "invalid_request_error", "code": code } }))
        };
        assert_eq!(with_code(json!("model_not_found")), Some(404));
        assert_eq!(with_code(json!("invalid_api_key")), Some(401));
        assert_eq!(with_code(json!("odd")), Some(400));
        assert_eq!(with_code(json!(7)), Some(400));
        assert_eq!(with_code(Value::Null), Some(400));
    }

    #[test]
    fn a_retry_delay_in_the_body() {
        let check = |body: &str, expect: Option<f64>| {
            assert_eq!(
                super::retry_after_in_body(body),
                expect.map(Duration::from_secs_f64),
                "{body}"
            );
        };
        check(r#"{"error": {"details": [{"retryDelay": "36s"}]}}"#, Some(36.0));
        check("You exceeded your current quota. Please retry in 36.5s.", Some(36.5));
        check("Please retry in 5 seconds.", Some(5.0));
        check("Please retry in 5 sec", Some(5.0));
        check("Rate limit reached for m. Please try again in 11.054s. Visit", Some(11.054));
        check("Please try again in 1m12s.", None);
        check("please retry in a while", None);
        check(
            r#"{"error": {"type": "usage_limit_reached", "resets_in_seconds": 7200}}"#,
            Some(7200.0),
        );
        check(r#"{"error": {"resets_in_seconds": null}}"#, None);
        check("retry in 5 minutes", None);
        check("", None);
    }

    #[test]
    fn a_retry_date() {
        let (from, to) = ("Fri, 02 Jan 2026 03:04:05 GMT", "Fri, 02 Jan 2026 03:04:15 GMT");
        let now = "2026-01-02T03:04:00Z".parse().unwrap();
        let check = |after: &str, date: Option<&str>, expect: Option<u64>| {
            let expect = expect.map(Duration::from_secs);
            assert_eq!(duration_until(after, date, now), expect, "{after} {date:?}");
        };
        check(to, Some(from), Some(10));
        check(from, Some(to), Some(0));
        check(to, None, Some(15));
        check(to, Some("today"), Some(15));
        check("soon", Some(from), None);
    }

    #[test]
    fn fuzz_any_failure_has_a_message() {
        let seeds: &[&[u8]] = &[
            br#"{"error": {"message": "no", "code": "429", "status": 500}}"#,
            br#"[{"error": {"message": "no"}}]"#,
            "<html><TITLE>Bad \u{130} gateway</title></html>".as_bytes(),
            b"plain",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let body = nanobot_base::fuzz::lossy_text(input);
            let message = error_message(&body);
            is_context_overflow(400, &body, &message);
            is_out_of_credit(&message);
            if let Ok(value) = serde_json::from_str(&body) {
                embedded_status(&value);
            }
            duration_until(&body, Some(&body), Timestamp::UNIX_EPOCH);
        });
    }
}
