//! What is sent. `messages` is the last key, and nothing that was sent once changes but the last mark for the cache.

use super::{Anthropic, WIRE};
use crate::message::{
    Document, Image, Message, Part, Reply, ToolCall, ToolResult, User, plain_text,
};
use crate::provider::ids::fit;
use crate::provider::quirks::{Temperature, Thinking};
use crate::provider::{Request, ToolSpec};
use base64::Engine;
use serde_json::{Map, Value, json};

/// The smallest budget that Anthropic takes for thinking.
const LEAST_BUDGET: u32 = 1024;

/// The body of `request`.
pub(super) fn of(request: &Request<'_>, format: &Anthropic, stream: bool) -> Map<String, Value> {
    let effort = request.sampling.reasoning_effort.as_deref();
    let thinking = effort.filter(|effort| *effort != "none" && may_think(request));
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", request.model.into());
    let (limit, budget) = limits(request.sampling.max_tokens, thinking, format);
    put("max_tokens", limit.into());
    let mut output = Map::new();
    match (thinking, format.quirks.thinking, budget) {
        (Some(effort), Thinking::Adaptive, _) => {
            put("thinking", json!({ "type": "adaptive" }));
            output.insert("effort".into(), adaptive(effort).into());
        }
        (Some(_), _, Some(budget)) => {
            put(
                "thinking",
                json!({ "type": "enabled", "budget_tokens": budget }),
            );
        }
        // A model that thinks has a temperature of its own.
        _ => {
            let ours = request.sampling.temperature;
            let temperature = match format.quirks.temperature {
                // Theirs ends at 1.
                Temperature::Ours => ours.map(|degree| degree.min(1.0)),
                Temperature::Fixed(degree) => Some(degree),
                Temperature::None => None,
            };
            if let Some(temperature) = temperature {
                put("temperature", temperature.into());
            }
        }
    }
    if let Some(schema) = request.schema {
        output.insert(
            "format".into(),
            json!({ "type": "json_schema", "schema": schema }),
        );
    }
    if !output.is_empty() {
        put("output_config", output.into());
    }
    if stream {
        put("stream", true.into());
    }
    let mark = format.quirks.cache_marks;
    if !request.tools.is_empty() {
        let tool = |spec: &ToolSpec| json!({ "name": spec.name, "description": spec.description, "input_schema": spec.parameters });
        let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
        if mark {
            marked(&mut tools);
        }
        put("tools", tools.into());
        let choice = if request.may_call { "auto" } else { "none" };
        put("tool_choice", json!({ "type": choice }));
    }
    if !request.system.trim().is_empty() {
        let mut system = vec![json!({ "type": "text", "text": request.system })];
        if mark {
            marked(&mut system);
        }
        put("system", system.into());
    }
    put("messages", messages(request, format).into());
    body
}

/// The limit of the answer, thinking included, and the budget for thinking where the model has one.
fn limits(wanted: u32, effort: Option<&str>, format: &Anthropic) -> (u32, Option<u32>) {
    let most = format.most.unwrap_or(u32::MAX);
    let budget = match (effort, format.quirks.thinking) {
        (Some("minimal"), Thinking::Budget) => LEAST_BUDGET,
        (Some("low"), Thinking::Budget) => 2048,
        (Some("medium"), Thinking::Budget) => 8192,
        (Some(_), Thinking::Budget) => 16_384,
        _ => return (wanted.min(most), None),
    };
    // The answer keeps its own share: what is spent on thinking comes on top.
    let limit = wanted.saturating_add(budget).min(most);
    match budget.min(limit.saturating_sub(1)) {
        budget if budget >= LEAST_BUDGET => (limit, Some(budget)),
        _ => (limit, None),
    }
}

/// The effort in the words of adaptive thinking.
fn adaptive(effort: &str) -> &str {
    match effort {
        "minimal" => "low",
        "xhigh" => "max",
        other => other,
    }
}

/// Whether thinking can be asked for: not in the middle of tool calls that were made without it, as after a change of
/// the model.
fn may_think(request: &Request<'_>) -> bool {
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let start = request.messages.iter().rposition(is_user).unwrap_or(0);
    request.messages[start..]
        .iter()
        .all(|message| match message {
            Message::Assistant(reply) if !reply.calls.is_empty() => kept(reply, request.model)
                .iter()
                .any(|block| block["type"] != "text" && block["type"] != "tool_use"),
            _ => true,
        })
}

/// The blocks of a reply that go back unchanged, if they are this model's. Its text and calls stand in between as
/// placeholders.
fn kept<'a>(reply: &'a Reply, model: &str) -> &'a [Value] {
    let opaque = reply.opaque.as_ref().filter(|opaque| {
        opaque["wire"] == WIRE && (opaque["model"] == model || opaque["model"].is_null())
    });
    let blocks = opaque.and_then(|opaque| opaque["keep"].as_array());
    blocks.map_or(&[], Vec::as_slice)
}

fn messages(request: &Request<'_>, format: &Anthropic) -> Vec<Value> {
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let turn = request.messages.iter().rposition(is_user);
    let mut list: Vec<(&str, Vec<Value>)> = Vec::new();
    for (number, message) in request.messages.iter().enumerate() {
        let (role, mut blocks) = match message {
            Message::Assistant(reply) => ("assistant", assistant(reply, request.model, format)),
            Message::User(user) => ("user", said(user, format)),
            Message::Tool(result) => ("user", vec![tool(result, format)]),
        };
        if blocks.is_empty() {
            continue;
        }
        // The turn's own message stays marked while the turn lasts, so that its requests begin alike.
        if format.quirks.cache_marks && Some(number) == turn {
            marked(&mut blocks);
        }
        match list.last_mut() {
            // Results of one reply's calls belong into one message, and two of one role are refused.
            Some((last, before)) if *last == role => before.extend(blocks),
            _ => list.push((role, blocks)),
        }
    }
    if list.first().is_some_and(|(role, _)| *role == "assistant") {
        list.insert(
            0,
            (
                "user",
                vec![json!({ "type": "text", "text": "(continued)" })],
            ),
        );
    }
    for (role, blocks) in &mut list {
        if *role == "user" {
            // Results stand before what the user says.
            blocks.sort_by_key(|block| block["type"] != "tool_result");
        }
    }
    if let Some((_, blocks)) = list.last_mut().filter(|_| format.quirks.cache_marks) {
        marked(blocks);
    }
    list.into_iter()
        .map(|(role, blocks)| json!({ "role": role, "content": blocks }))
        .collect()
}

/// Mark the last of `blocks`: what comes up to it is kept in the provider's cache.
fn marked(blocks: &mut [Value]) {
    let can = |block: &&mut Value| {
        !matches!(
            block["type"].as_str(),
            Some("thinking" | "redacted_thinking")
        )
    };
    if let Some(block) = blocks.iter_mut().rev().find(can) {
        block["cache_control"] = json!({ "type": "ephemeral" });
    }
}

fn text(words: &str) -> Option<Value> {
    (!words.trim().is_empty()).then(|| json!({ "type": "text", "text": words }))
}

/// A user's message: images first, the facts of its moment last.
fn said(user: &User, format: &Anthropic) -> Vec<Value> {
    let (images, texts): (Vec<&Part>, Vec<&Part>) = user
        .parts
        .iter()
        .partition(|part| !matches!(part, Part::Text(_)));
    let mut blocks: Vec<Value> = images
        .into_iter()
        .chain(texts)
        .filter_map(|part| block(part, format))
        .collect();
    blocks.extend(text(&user.facts));
    blocks
}

fn block(part: &Part, format: &Anthropic) -> Option<Value> {
    match part {
        Part::Text(words) => text(words),
        Part::Image(_) if format.quirks.no_images => text(&plain_text(std::slice::from_ref(part))),
        Part::Image(picture) => Some(image(picture)),
        Part::Document(file) => Some(document(file)),
    }
}

fn image(image: &Image) -> Value {
    let data = base64::engine::general_purpose::STANDARD.encode(&image.bytes);
    json!({ "type": "image", "source": { "type": "base64", "media_type": image.media_type, "data": data } })
}

fn document(document: &Document) -> Value {
    let data = base64::engine::general_purpose::STANDARD.encode(&document.bytes);
    json!({ "type": "document", "title": document.name,
            "source": { "type": "base64", "media_type": document.media_type, "data": data } })
}

fn assistant(reply: &Reply, model: &str, format: &Anthropic) -> Vec<Value> {
    let call = |call: &ToolCall| json!({ "type": "tool_use", "id": fit(&call.id, format.quirks.ids), "name": call.name, "input": call.arguments_object() });
    let kept = kept(reply, model);
    let mut rest = reply.text.as_str();
    let mut calls = reply.calls.iter();
    let mut blocks = Vec::new();
    for block in kept {
        match block["type"].as_str() {
            Some("text") => {
                let length = block["length"]
                    .as_u64()
                    .and_then(|length| usize::try_from(length).ok());
                let (words, after) = length
                    .and_then(|length| rest.split_at_checked(length))
                    .unwrap_or((rest, ""));
                blocks.extend(text(words));
                rest = after;
            }
            Some("tool_use") => blocks.extend(calls.next().map(call)),
            _ => blocks.push(block.clone()),
        }
    }
    // What has no placeholder: all of it, where nothing was kept.
    let before_calls = blocks.iter().position(|block| block["type"] == "tool_use");
    if let Some(rest) = text(rest) {
        blocks.insert(before_calls.unwrap_or(blocks.len()), rest);
    }
    blocks.extend(calls.map(call));
    blocks
}

fn tool(result: &ToolResult, format: &Anthropic) -> Value {
    let mut content: Vec<Value> = result
        .parts
        .iter()
        .filter_map(|part| block(part, format))
        .collect();
    if content.is_empty() {
        content.extend(text("(no output)"));
    }
    let mut value = json!({ "type": "tool_result", "tool_use_id": fit(&result.call, format.quirks.ids), "content": content });
    if result.failed {
        value["is_error"] = true.into();
    }
    value
}
