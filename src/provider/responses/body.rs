//! What is sent. `input` is the last key, and nothing that was sent once changes.

use super::{Responses, WIRE};
use crate::message::{Message, Part, Reply, ToolCall, ToolResult, User, plain_text};
use crate::provider::ids::fit;
use crate::provider::quirks::Temperature;
use crate::provider::{Request, ToolSpec};
use base64::Engine;
use serde_json::{Map, Value, json};

/// The body of `request`.
pub(super) fn of(request: &Request<'_>, format: &Responses, stream: bool) -> Map<String, Value> {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", request.model.into());
    if !format.quirks.no_limit {
        // Theirs begins at 16.
        put(
            "max_output_tokens",
            request.sampling.max_tokens.max(16).into(),
        );
    }
    let temperature = match format.quirks.temperature {
        Temperature::Ours => request.sampling.temperature,
        Temperature::Fixed(degree) => Some(degree),
        Temperature::None => None,
    };
    if let Some(temperature) = temperature {
        put("temperature", temperature.into());
    }
    if let Some(effort) = &request.sampling.reasoning_effort {
        put("reasoning", json!({ "effort": effort }));
    }
    put("store", false.into());
    if format.reasons {
        put("include", json!(["reasoning.encrypted_content"]));
    }
    if stream || format.quirks.only_streams {
        put("stream", true.into());
    }
    if let Some(schema) = request.schema {
        let form =
            json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": false });
        put("text", json!({ "format": form }));
    }
    put("instructions", request.system.into());
    if !request.tools.is_empty() {
        let tool = |spec: &ToolSpec| json!({ "type": "function", "name": spec.name, "description": spec.description, "parameters": spec.parameters, "strict": false });
        put("tools", request.tools.iter().map(tool).collect());
        put(
            "tool_choice",
            if request.may_call { "auto" } else { "none" }.into(),
        );
    }
    put("input", input(request, format).into());
    body
}

fn input(request: &Request<'_>, format: &Responses) -> Vec<Value> {
    let mut list = Vec::new();
    for message in request.messages {
        match message {
            Message::User(user) => list.push(json!({ "role": "user", "content": said(user, format) })),
            Message::Assistant(reply) => assistant(reply, request.model, format, &mut list),
            Message::Tool(result) => list.push(json!({ "type": "function_call_output",
                "call_id": fit(&result.call, format.quirks.ids), "output": output(result, format) })),
        }
    }
    list
}

/// The parts of a user's message: images first, the facts of its moment last.
fn said(user: &User, format: &Responses) -> Vec<Value> {
    let (images, texts): (Vec<&Part>, Vec<&Part>) = user
        .parts
        .iter()
        .partition(|part| !matches!(part, Part::Text(_)));
    let mut parts: Vec<Value> = images
        .into_iter()
        .chain(texts)
        .map(|part| content(part, format))
        .collect();
    if !user.facts.is_empty() {
        parts.push(json!({ "type": "input_text", "text": user.facts }));
    }
    parts
}

fn content(part: &Part, format: &Responses) -> Value {
    match part {
        Part::Image(image) if !format.quirks.no_images => {
            let data = base64::engine::general_purpose::STANDARD.encode(&image.bytes);
            let url = format!("data:{};base64,{data}", image.media_type);
            json!({ "type": "input_image", "detail": "auto", "image_url": url })
        }
        Part::Document(document) => {
            let data = base64::engine::general_purpose::STANDARD.encode(&document.bytes);
            let data = format!("data:{};base64,{data}", document.media_type);
            json!({ "type": "input_file", "filename": document.name, "file_data": data })
        }
        part => json!({ "type": "input_text", "text": plain_text(std::slice::from_ref(part)) }),
    }
}

/// What a tool said: a text, or a list where there is more than text.
fn output(result: &ToolResult, format: &Responses) -> Value {
    let is_text = |part: &Part| matches!(part, Part::Text(_));
    if result.parts.iter().all(is_text) {
        let text = plain_text(&result.parts);
        return if text.is_empty() {
            "(no output)".into()
        } else {
            text.into()
        };
    }
    result
        .parts
        .iter()
        .map(|part| content(part, format))
        .collect()
}

/// The items of a reply: those that go back unchanged if they are this model's, its text and calls in their places.
fn assistant(reply: &Reply, model: &str, format: &Responses, list: &mut Vec<Value>) {
    let opaque = reply
        .opaque
        .as_ref()
        .filter(|opaque| opaque["wire"] == WIRE && opaque["model"] == model);
    let kept = opaque.and_then(|opaque| opaque["keep"].as_array());
    let call = |call: &ToolCall| {
        json!({ "type": "function_call", "call_id": fit(&call.id, format.quirks.ids),
                                         "name": call.name, "arguments": call.arguments_object().to_string() })
    };
    let text =
        |words: &str| (!words.is_empty()).then(|| json!({ "role": "assistant", "content": words }));
    let mut rest = reply.text.as_str();
    let mut calls = reply.calls.iter();
    for item in kept.into_iter().flatten() {
        match (item["type"].as_str(), item["length"].as_u64()) {
            (Some("message"), Some(length)) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (words, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
                list.extend(text(words));
                rest = after;
            }
            (Some("function_call"), _) => list.extend(calls.next().map(call)),
            _ => list.push(item.clone()),
        }
    }
    list.extend(text(rest));
    list.extend(calls.map(call));
}
