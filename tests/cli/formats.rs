//! The wire formats from the server's side: builds replies in each format, and validates requests.

use crate::json_schema::Validator;
use crate::server::{Request, Response};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A wire format, which follows from the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Chat,
    Anthropic,
    Responses,
}

pub(crate) const ALL_FORMATS: [Format; 3] = [Format::Chat, Format::Anthropic, Format::Responses];

impl Format {
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        if is_vertex_path(path) {
            return Some(Self::Anthropic);
        }
        ALL_FORMATS.into_iter().find(|format| path.ends_with(format.path()))
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Anthropic => "/v1/messages",
            Self::Responses => "/responses",
        }
    }

    /// The name in the config.
    pub(crate) fn config_name(self) -> &'static str {
        match self {
            Self::Chat => "chat_completions",
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
        }
    }
}

/// True for a path of Anthropic's models at Google's Vertex AI.
fn is_vertex_path(path: &str) -> bool {
    path.ends_with(":rawPredict") || path.ends_with(":streamRawPredict")
}

/// The response to a request, with this message and finish reason in the terms of chat completions.
pub(crate) fn build_response(message: &Value, finish: &str, request: &Request) -> Response {
    let input = request.raw.len() / 4;
    let stream = request.body["stream"] == json!(true);
    match (Format::from_path(&request.path), stream) {
        (Some(Format::Anthropic), false) => {
            Response::json(200, &anthropic_body(message, finish, input))
        }
        (Some(Format::Anthropic), true) => typed_events(&anthropic_events(message, finish, input)),
        (Some(Format::Responses), false) => {
            Response::json(200, &responses_body(message, finish, input))
        }
        (Some(Format::Responses), true) => typed_events(&responses_events(message, finish, input)),
        (_, false) => Response::json(200, &chat_body(message, finish, input)),
        (_, true) => Response::events(chat_events(message, finish, input)),
    }
}

/// Events that carry their type twice, as Anthropic and OpenAI send them.
pub(crate) fn typed_events(list: &[Value]) -> Response {
    let event = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or("message");
        format!("event: {kind}\ndata: {event}\n\n")
    };
    Response::events(list.iter().map(event))
}

/// The name, id and arguments of each call.
fn tool_calls(message: &Value) -> Vec<(&Value, &Value, &str)> {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    calls
        .map(|call| {
            let function = &call["function"];
            let arguments = function["arguments"].as_str().unwrap_or_default();
            (&function["name"], &call["id"], arguments)
        })
        .collect()
}

fn text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

fn split_in_half(text: &str) -> [&str; 2] {
    let middle = text.char_indices().nth(text.chars().count() / 2);
    let (first, second) = text.split_at(middle.map_or(0, |(at, _)| at));
    [first, second]
}

fn chat_body(message: &Value, finish: &str, input: usize) -> Value {
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish });
    let usage = json!({ "prompt_tokens": input, "completion_tokens": 7, "total_tokens": 0 });
    json!({ "id": "x", "model": "scripted", "choices": [choice], "usage": usage })
}

fn chat_events(message: &Value, finish: &str, input: usize) -> Vec<String> {
    let mut events = Vec::new();
    let mut event = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let chunk = json!({ "id": "x", "model": "scripted", "choices": [choice] });
        events.push(format!("data: {chunk}\n\n"));
    };
    event(json!({ "role": "assistant", "content": "" }), Value::Null);
    // Vendor-specific keys of the message and of its calls.
    let mut more = message.clone();
    if let Some(more) = more.as_object_mut() {
        more.retain(|key, _| !matches!(key.as_str(), "role" | "content" | "tool_calls"));
    }
    if more != json!({}) {
        event(more, Value::Null);
    }
    for word in text(message).split_inclusive(' ') {
        event(json!({ "content": word }), Value::Null);
    }
    if message["content"].is_array() {
        event(json!({ "content": message["content"] }), Value::Null);
    }
    for (index, (name, id, arguments)) in tool_calls(message).into_iter().enumerate() {
        let [first, second] = split_in_half(arguments);
        let mut head = json!({ "index": index, "id": id, "type": "function",
                               "function": { "name": name, "arguments": first } });
        let extra = &message["tool_calls"][index]["extra_content"];
        if !extra.is_null() {
            head["extra_content"] = extra.clone();
        }
        event(json!({ "tool_calls": [head] }), Value::Null);
        let tail = json!({ "index": index, "function": { "arguments": second } });
        event(json!({ "tool_calls": [tail] }), Value::Null);
    }
    event(json!({}), json!(finish));
    let usage = json!({ "prompt_tokens": input, "completion_tokens": 7, "total_tokens": 0 });
    let last = json!({ "id": "x", "model": "scripted", "choices": [], "usage": usage });
    events.push(format!("data: {last}\n\n"));
    events.push("data: [DONE]\n\n".into());
    events
}

fn anthropic_stop_reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
}

fn anthropic_body(message: &Value, finish: &str, input: usize) -> Value {
    let mut content = Vec::new();
    if !text(message).is_empty() {
        content.push(json!({ "type": "text", "text": text(message), "citations": null }));
    }
    content.extend(tool_calls(message).into_iter().map(|(name, id, arguments)| {
        let input: Value = serde_json::from_str(arguments).unwrap_or_default();
        json!({ "type": "tool_use", "id": id, "name": name, "input": input })
    }));
    json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": anthropic_stop_reason(finish), "stop_sequence": null,
            "usage": { "input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7 } })
}

fn anthropic_events(message: &Value, finish: &str, input: usize) -> Vec<Value> {
    let mut whole = anthropic_body(message, finish, input);
    let blocks = std::mem::replace(&mut whole["content"], json!([]));
    whole["stop_reason"] = Value::Null;
    whole["usage"]["output_tokens"] = 1.into();
    let mut events =
        vec![json!({ "type": "message_start", "message": whole }), json!({ "type": "ping" })];
    let arguments: Vec<&str> = tool_calls(message).into_iter().map(|(_, _, text)| text).collect();
    let mut arguments = arguments.into_iter();
    for (index, block) in blocks.as_array().into_iter().flatten().enumerate() {
        let mut head = block.clone();
        let deltas: Vec<Value> = if block["type"] == "text" {
            head["text"] = "".into();
            let parts = text(message).split_inclusive(' ');
            parts.map(|word| json!({ "type": "text_delta", "text": word })).collect()
        } else {
            head["input"] = json!({});
            let pieces = split_in_half(arguments.next().unwrap_or_default());
            pieces
                .map(|text_part| json!({ "type": "input_json_delta", "partial_json": text_part }))
                .into()
        };
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": head }));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ),
        );
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let end = json!({ "stop_reason": anthropic_stop_reason(finish), "stop_sequence": null });
    events.push(json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 7 } }));
    events.push(json!({ "type": "message_stop" }));
    events
}

fn responses_body(message: &Value, finish: &str, input: usize) -> Value {
    let mut output = Vec::new();
    if !text(message).is_empty() {
        let content = json!([{ "type": "output_text", "text": text(message), "annotations": [] }]);
        output.push(json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content }));
    }
    for (number, (name, id, arguments)) in tool_calls(message).into_iter().enumerate() {
        output.push(json!({ "type": "function_call", "id": format!("fc_{number}"), "call_id": id, "name": name,
                            "arguments": arguments, "status": "completed" }));
    }
    let reason = match finish {
        "stop" | "tool_calls" => None,
        "length" => Some("max_output_tokens"),
        other => Some(other),
    };
    let status = if reason.is_some() { "incomplete" } else { "completed" };
    let details = reason.map(|reason| json!({ "reason": reason }));
    json!({ "id": "resp_1", "object": "response", "model": "scripted", "status": status, "error": null,
            "incomplete_details": details, "output": output,
            "usage": { "input_tokens": input, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 7,
                       "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 0 } })
}

fn responses_events(message: &Value, finish: &str, input: usize) -> Vec<Value> {
    let whole = responses_body(message, finish, input);
    let mut head = whole.clone();
    head["output"] = json!([]);
    head["status"] = "in_progress".into();
    head["usage"] = Value::Null;
    head["incomplete_details"] = Value::Null;
    let mut events = vec![json!({ "type": "response.created", "response": head })];
    for (index, item) in whole["output"].as_array().into_iter().flatten().enumerate() {
        let mut open = item.clone();
        open["status"] = "in_progress".into();
        let (kind, pieces): (&str, Vec<&str>) = if item["type"] == "message" {
            open["content"] = json!([]);
            ("output_text", text(message).split_inclusive(' ').collect())
        } else {
            open["arguments"] = "".into();
            let arguments = item["arguments"].as_str().unwrap_or_default();
            ("function_call_arguments", split_in_half(arguments).into())
        };
        events.push(
            json!({ "type": "response.output_item.added", "output_index": index, "item": open }),
        );
        for text_part in pieces {
            events.push(json!({ "type": format!("response.{kind}.delta"), "item_id": item["id"], "output_index": index, "delta": text_part }));
        }
        events.push(
            json!({ "type": "response.output_item.done", "output_index": index, "item": item }),
        );
    }
    let kind = if whole["status"] == "completed" { "completed" } else { "incomplete" };
    events.push(json!({ "type": format!("response.{kind}"), "response": whole }));
    events
}

/// Validates a request against the vendor's types for its format. Requests may also have the keys in `extra_keys`, and
/// parts of these types.
pub(crate) fn validate_request(request: &Request, extra_keys: &[String]) -> Option<String> {
    static VALIDATORS: LazyLock<[Validator; 3]> = LazyLock::new(|| {
        let sources = [
            include_str!("../schemas/openai_chat.json"),
            include_str!("../schemas/anthropic_messages.json"),
            include_str!("../schemas/openai_responses.json"),
        ];
        sources.map(|source| {
            let schema = serde_json::from_str(source).expect("a schema is JSON");
            Validator::new(&schema)
        })
    });
    let format = Format::from_path(&request.path)?;
    let mut body = request.body.clone();
    // Vertex has the model in the path, and the version in the body.
    if let Some(fields) = body.as_object_mut().filter(|_| is_vertex_path(&request.path)) {
        fields.remove("anthropic_version");
        fields.insert("model".into(), json!("of the path"));
    }
    if !extra_keys.is_empty() {
        remove_keys(&mut body, extra_keys);
    }
    let mut error = VALIDATORS[format as usize].validate(&body).err()?;
    error.truncate(error.floor_char_boundary(2000));
    Some(format!("{}: {error}", request.path))
}

fn remove_keys(value: &mut Value, keys: &[String]) {
    match value {
        Value::Array(list) => {
            let is_extra = |item: &Value| keys.iter().any(|key| item["type"] == **key);
            list.retain(|item| !is_extra(item));
            list.iter_mut().for_each(|value| remove_keys(value, keys));
        }
        Value::Object(object) => {
            object.retain(|key, _| !keys.contains(key));
            object.values_mut().for_each(|value| remove_keys(value, keys));
        }
        _ => {}
    }
}
