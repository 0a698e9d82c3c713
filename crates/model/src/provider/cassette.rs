//! The format of recorded exchanges: one JSON object per line, version 1. It is independent of the wire formats, and a
//! recording can be replayed whatever provider it came from. Keys, and text that looks like a key, are masked in
//! requests and replies.

use super::path_names::PathNames;
use super::{FailureKind, ProviderError, ProviderResult, Request};
use nanobot_base::error::{Exit, exit_for, fail};
use nanobot_base::message::{FinishReason, Message, Reply, Usage, plain_text};
use nanobot_os::secret;
use serde::Deserialize;
use serde_json::{Value, json};

/// The format version: the only one that is written or read.
const FORMAT_VERSION: u64 = 1;

/// Serializes an exchange as one line, with the paths replaced by `path_names`.
pub(super) fn format_line(
    session: &str,
    request: &Request<'_>,
    reply: &Result<Reply, ProviderError>,
    path_names: &PathNames,
) -> String {
    let mut object = json!({ "v": FORMAT_VERSION, "session": session, "request": request_to_json(request, path_names) });
    match reply {
        Ok(reply) => {
            object["reply"] = reply_to_json(reply);
            path_names.to_names(&mut object["reply"]);
        }
        Err(error) => {
            object["error"] = error.to_string().into();
            (object["kind"], object["status"]) = kind_and_status(error);
        }
    }
    format!("{}\n", secret::redact_all_json(&object))
}

pub(super) struct RecordedExchange {
    /// In the form of [`request_to_json`].
    pub(super) request: Value,
    pub(super) reply: ProviderResult<Reply>,
}

/// Parses a line; `None` if it is not an exchange.
pub(super) fn parse_line(line: &str, path_names: &PathNames) -> Option<RecordedExchange> {
    let mut object: Value = serde_json::from_str(line).ok()?;
    if object["v"].as_u64() != Some(FORMAT_VERSION) {
        return None;
    }
    let reply = match object["error"].as_str() {
        Some(message) => Err(error_from_json(&object, message.to_owned())),
        None => {
            path_names.to_paths(&mut object["reply"]);
            Ok(reply_from_json(&object["reply"])?)
        }
    };
    // A recording of an earlier release has the paths themselves.
    path_names.to_names(&mut object["request"]);
    Some(RecordedExchange { request: object["request"].take(), reply })
}

/// The kind of a failure, and the exit status of one that has no kind.
fn kind_and_status(error: &ProviderError) -> (Value, Value) {
    match error {
        ProviderError::Failed { kind, .. } => (json!(kind), Value::Null),
        ProviderError::BudgetExceeded(error) | ProviderError::Aborted(error) => {
            (Value::Null, exit_for(error).code().into())
        }
    }
}

/// Parses a failure. One of an earlier release has no kind.
fn error_from_json(object: &Value, message: String) -> ProviderError {
    match (&object["kind"], object["status"].as_i64()) {
        (Value::Null, Some(status)) => {
            let exit = Exit::from_code(i32::try_from(status).unwrap_or_default());
            ProviderError::Aborted(fail(exit, message))
        }
        (kind, _) => {
            let kind = FailureKind::deserialize(kind).unwrap_or(FailureKind::Refused);
            ProviderError::new(kind, message)
        }
    }
}

/// Serializes a request in the recording's format, with the paths replaced by `path_names`.
pub(super) fn request_to_json(request: &Request<'_>, path_names: &PathNames) -> Value {
    let tools: Vec<&str> = request.tools.iter().map(|spec| spec.name.as_str()).collect();
    let message = |message: &Message| match message {
        Message::User(user) => json!({ "role": "user", "text": plain_text(&user.parts) }),
        Message::Assistant(reply) => {
            json!({ "role": "assistant", "text": reply.text, "calls": reply.tool_calls })
        }
        Message::Tool(result) => {
            json!({ "role": "tool", "call": result.call_id, "text": plain_text(&result.parts) })
        }
    };
    let messages: Vec<Value> = request.messages.iter().map(message).collect();
    let mut object = json!({ "model": request.model, "tools": tools, "system": request.system, "messages": messages });
    path_names.to_names(&mut object);
    // Masked as well, because it is compared with a recorded request.
    secret::redact_all_json(&object).into_owned()
}

/// The first difference between two requests, as a JSON pointer; `None` if they are equal.
pub(super) fn first_difference(one: &Value, other: &Value) -> Option<String> {
    let at = |key: &str, one: &Value, other: &Value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        Some(format!("/{key}{}", first_difference(one, other)?))
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            let value = |map: &serde_json::Map<String, Value>, key: &str| {
                map.get(key).cloned().unwrap_or_default()
            };
            keys.into_iter().find_map(|key| at(key, &value(one, key), &value(other, key)))
        }
        (Value::Array(one), Value::Array(other)) => {
            let value = |list: &[Value], index: usize| list.get(index).cloned().unwrap_or_default();
            (0..one.len().max(other.len()))
                .find_map(|index| at(&index.to_string(), &value(one, index), &value(other, index)))
        }
        _ => (one != other).then(String::new),
    }
}

/// The names of the finish reasons; any other one has its own.
const FINISH_REASONS: [(&str, FinishReason); 5] = [
    ("stop", FinishReason::Stop),
    ("calls", FinishReason::ToolCalls),
    ("length", FinishReason::Length),
    ("interrupted", FinishReason::Interrupted),
    ("refusal", FinishReason::Refusal),
];

fn reply_to_json(reply: &Reply) -> Value {
    let row = FINISH_REASONS.iter().find(|(_, reason)| *reason == reply.finish_reason);
    let finish = match (row, &reply.finish_reason) {
        (None, FinishReason::Other(other)) => other,
        (row, _) => row.map_or("", |(name, _)| name),
    };
    json!({ "text": reply.text, "reasoning": reply.reasoning, "calls": reply.tool_calls, "finish": finish,
            "model": reply.model, "opaque": reply.provider_data, "usage": reply.usage })
}

fn reply_from_json(value: &Value) -> Option<Reply> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let finish = value["finish"].as_str()?;
    let row = FINISH_REASONS.into_iter().find(|(name, _)| *name == finish);
    Some(Reply {
        id: String::new(),
        text: value["text"].as_str()?.to_owned(),
        reasoning: text("reasoning"),
        tool_calls: Vec::deserialize(&value["calls"]).ok()?,
        finish_reason: row
            .map_or_else(|| FinishReason::Other(finish.to_owned()), |(_, reason)| reason),
        usage: Usage::deserialize(&value["usage"]).unwrap_or_default(),
        // The cost was paid when the exchange was recorded.
        cost: Some(0.0),
        model: text("model"),
        provider_data: Some(value["opaque"].clone()).filter(|opaque| !opaque.is_null()),
    })
}

#[cfg(test)]
mod tests {
    use super::{first_difference, format_line, parse_line};
    use crate::provider::path_names::PathNames;
    use crate::provider::response::test_support::REQUEST;
    use crate::provider::{FailureKind, ProviderError, ProviderResult};
    use nanobot_base::error::{Exit, exit_for, fail};
    use nanobot_base::message::{FinishReason, Reply, ToolCall, Usage};
    use serde_json::{Value, json};

    #[test]
    fn exchanges_round_trip() {
        let reply = Reply {
            id: String::new(),
            text: "a\nb".into(),
            reasoning: "hm".into(),
            tool_calls: vec![ToolCall {
                id: "c".into(),
                name: "t".into(),
                arguments: json!({ "x": 1 }),
            }],
            finish_reason: FinishReason::ToolCalls,
            usage: Usage { input: 1, cached: 2, output: 3, reasoning: 4, ..Usage::default() },
            cost: Some(0.0),
            model: "m".into(),
            provider_data: Some(json!({ "sig": "x" })),
        };
        let path_names = PathNames::default();
        let round_trip = |reply: ProviderResult<Reply>| {
            let line = format_line("s", &REQUEST, &reply, &path_names);
            parse_line(&line, &path_names).unwrap().reply
        };
        assert_eq!(round_trip(Ok(reply.clone())).unwrap(), reply);
        let check = |error: ProviderError, exit: Exit| {
            let message = error.to_string();
            let replayed = round_trip(Err(error)).unwrap_err();
            assert_eq!(replayed.to_string(), message);
            assert_eq!(exit_for(&replayed.into_failure()), exit, "{message}");
        };
        check(ProviderError::new(FailureKind::Refused, "no"), Exit::Failed);
        check(ProviderError::new(FailureKind::Unavailable, "down"), Exit::Unavailable);
        check(ProviderError::new(FailureKind::Interrupted, "cut"), Exit::Unavailable);
        check(ProviderError::new(FailureKind::ContextExceeded, "long"), Exit::BadInput);
        check(ProviderError::new(FailureKind::KeyRejected, "key"), Exit::Refused);
        check(ProviderError::new(FailureKind::OutOfCredit, "poor"), Exit::Refused);
        check(ProviderError::new(FailureKind::ModelNotFound, "gone"), Exit::Config);
        check(ProviderError::new(FailureKind::NoSuchAddress, "where"), Exit::Config);
        check(ProviderError::new(FailureKind::Forbidden, "no"), Exit::Refused);
        check(ProviderError::new(FailureKind::NotAccepted, "image"), Exit::Failed);
        check(ProviderError::new(FailureKind::ServerFailed, "bug"), Exit::Unavailable);
        check(ProviderError::new(FailureKind::Busy, "later"), Exit::TryAgain);
        let over = fail(Exit::Budget, "spent");
        check(ProviderError::BudgetExceeded(over), Exit::Budget);
        // A recording of an earlier release.
        let recorded =
            parse_line(r#"{"v": 1, "request": {}, "error": "no"}"#, &path_names).unwrap();
        assert_eq!(recorded.reply.unwrap_err().kind(), Some(FailureKind::Refused));
        for bad in ["", "{}", "{\"v\": 2}", "{\"v\": 1}", "[]", "nonsense"] {
            assert!(parse_line(bad, &path_names).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        let check = |one: Value, other: Value, expect: Option<&str>| {
            assert_eq!(first_difference(&one, &other).as_deref(), expect, "{one} {other}");
        };
        check(json!({ "a": [1, { "b": 2 }] }), json!({ "a": [1, { "b": 2 }] }), None);
        check(json!({ "a": [1, { "b": 2 }] }), json!({ "a": [1, { "b": 3 }] }), Some("/a/1/b"));
        check(json!({ "a": 1 }), json!({ "a": 1, "b": 2 }), Some("/b"));
        check(json!([1]), json!([1, 2]), Some("/1"));
        check(json!({ "a/~b": 1 }), json!({}), Some("/a~1~0b"));
        check(json!(1), json!("1"), Some(""));
    }

    #[test]
    fn fuzz_any_line_is_parsed_or_rejected() {
        let seeds: &[&[u8]] = &[
            br#"{"v": 1, "request": {"messages": [{"role": "user", "text": "x"}], "tools": ["f"]}, "reply": {"text": "a", "calls": [{"id": "c", "name": "f", "arguments": {}}], "finish": "stop", "usage": {"input": 1}}}"#,
            br#"{"request": {}, "error": "no"}"#,
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let line = nanobot_base::fuzz::lossy_text(input);
            if let Some(recorded) = parse_line(&line, &PathNames::default()) {
                assert_eq!(first_difference(&recorded.request, &recorded.request), None);
            }
        });
    }
}
