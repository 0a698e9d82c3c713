//! Builds the request body. `messages` is the last key, and nothing that was sent before changes except the last cache
//! mark, which keeps the prompt cache valid.

use super::{Anthropic, WIRE};
use crate::message::ToolSpec;
use crate::message::{
    Document, Image, Message, Part, Reply, ToolCall, ToolResult, User, pictures_first, plain_text,
};
use crate::provider::ids::Names;
use crate::provider::quirks::{Temperature, Thinking};
use crate::provider::{Calls, Request};
use base64::Engine;
use serde_json::{Map, Value, json};

/// The smallest thinking budget that Anthropic accepts, in tokens.
const LEAST_BUDGET: u32 = 1024;

/// The body of `request`.
pub(super) fn of(request: &Request<'_>, format: &Anthropic, stream: bool) -> Map<String, Value> {
    let effort = request.sampling.reasoning_effort.as_deref();
    let thinking = effort.filter(|effort| *effort != "none" && may_think(request, format));
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", request.model.into());
    let (limit, budget) = limits(request.sampling.max_tokens, thinking, format);
    put("max_tokens", limit.into());
    let mut output = Map::new();
    let thinks =
        thinking.is_some() && (budget.is_some() || format.quirks.thinking == Thinking::Adaptive);
    match (thinking, format.quirks.thinking, budget) {
        (Some(effort), Thinking::Adaptive, _) => {
            put("thinking", json!({ "type": "adaptive" }));
            output.insert("effort".into(), adaptive(effort, request.model).into());
        }
        (Some(_), _, Some(budget)) => {
            put(
                "thinking",
                json!({ "type": "enabled", "budget_tokens": budget }),
            );
        }
        _ => {}
    }
    // Newer models refuse a temperature, and the vendor's own types omit it. It is sent only to models that require
    // one.
    if let Temperature::Fixed(degree) = format.quirks.temperature {
        put("temperature", degree.into());
    }
    if let Some(schema) = request.schema.and_then(closed) {
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
        let choice = match request.calls {
            Calls::MayNot => json!({ "type": "none" }),
            // With thinking enabled, a tool call cannot be forced.
            Calls::Must(name) if !thinks => json!({ "type": "tool", "name": name }),
            Calls::May | Calls::Must(_) => json!({ "type": "auto" }),
        };
        put("tool_choice", choice);
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

/// Reduces `schema` to the subset that Anthropic accepts: every object is closed, and limits that it does not support
/// are removed (they are checked here in any case). `None` if the schema uses a feature that cannot be expressed.
fn closed(schema: &Value) -> Option<Value> {
    const KNOWN: [&str; 13] = [
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "$defs",
        "description",
        "title",
        "default",
    ];
    const LIMITS: [&str; 14] = [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "uniqueItems",
        "format",
        "$schema",
        "$id",
    ];
    let all = |map: &Map<String, Value>| -> Option<Map<String, Value>> {
        map.iter()
            .map(|(name, inner)| Some((name.clone(), closed(inner)?)))
            .collect()
    };
    let mut new = Map::new();
    for (key, value) in schema.as_object()? {
        let value = match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(map)) => all(map)?.into(),
            ("anyOf" | "allOf", Value::Array(list)) => {
                list.iter().map(closed).collect::<Option<Vec<_>>>()?.into()
            }
            ("items", value) => closed(value)?,
            ("additionalProperties", Value::Bool(false)) => continue,
            (key, value) if KNOWN.contains(&key) => value.clone(),
            (key, _) if LIMITS.contains(&key) => continue,
            _ => return None,
        };
        new.insert(key.clone(), value);
    }
    if new.get("type").is_some_and(|kind| kind == "object") {
        // A closed object without properties would always be empty.
        new.get("properties")?;
        new.insert("additionalProperties".into(), false.into());
    }
    Some(new.into())
}

/// The output limit including thinking, and the thinking budget if the model takes one. Both in tokens.
fn limits(wanted: u32, effort: Option<&str>, format: &Anthropic) -> (u32, Option<u32>) {
    let most = format.most.unwrap_or(u32::MAX);
    let share = match effort {
        None => return (wanted.min(most), None),
        Some("minimal") => LEAST_BUDGET,
        Some("low") => 2048,
        Some("medium") => 8192,
        Some("high") => 16_384,
        Some(_) => 32_768,
    };
    // Thinking is added on top of the share for the answer.
    let limit = wanted.saturating_add(share).min(most);
    // If the limit cannot hold both, each gets half.
    let budget = if limit < wanted.saturating_add(share) {
        share.min(limit / 2)
    } else {
        share
    };
    let has_budget = format.quirks.thinking == Thinking::Budget && budget >= LEAST_BUDGET;
    (limit, has_budget.then_some(budget))
}

/// Maps the effort to the values of adaptive thinking.
fn adaptive<'a>(effort: &'a str, model: &str) -> &'a str {
    match effort {
        "minimal" => "low",
        // The first models with adaptive thinking have no value between high and max.
        "xhigh" if model.contains("-4-6") => "max",
        other => other,
    }
}

/// True if thinking can be requested. With a budget, it cannot be enabled in the middle of tool calls that began
/// without it, as after a change of model; the later calls of a turn do without.
fn may_think(request: &Request<'_>, format: &Anthropic) -> bool {
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let start = request.messages.iter().rposition(is_user).unwrap_or(0);
    let mut replies = request.messages[start..].iter();
    let first = replies.find_map(|message| match message {
        Message::Assistant(reply) if !reply.calls.is_empty() => Some(reply),
        _ => None,
    });
    let thought = |reply: &Reply| kept(reply, request.model).iter().any(is_thinking);
    format.quirks.thinking != Thinking::Budget || first.is_none_or(thought)
}

fn is_thinking(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// The blocks of a reply that are sent back unchanged, if this model produced them. Placeholders mark the positions of
/// its text and calls.
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
    let mut ids = Names::new(format.quirks.ids);
    let mut list: Vec<(&str, Vec<Value>)> = Vec::new();
    for (number, message) in request.messages.iter().enumerate() {
        let (role, mut blocks) = match message {
            Message::Assistant(reply) => ("assistant", assistant(reply, request.model, &mut ids)),
            Message::User(user) => ("user", said(user, format)),
            Message::Tool(result) => ("user", vec![tool(result, &ids, format)]),
        };
        if blocks.is_empty() {
            continue;
        }
        // The latest user message stays marked for the whole turn, because all requests of the turn share that prefix.
        if format.quirks.cache_marks && Some(number) == turn {
            marked(&mut blocks);
        }
        match list.last_mut() {
            // Results of one reply's calls belong in one message, and consecutive messages of one role are refused.
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
            // Tool results must precede the user's text.
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

/// Marks the last of `blocks`: the provider caches the prompt up to it.
fn marked(blocks: &mut [Value]) {
    let last = blocks.iter_mut().rfind(|block| !is_thinking(block));
    if let Some(block) = last {
        block["cache_control"] = json!({ "type": "ephemeral" });
    }
}

fn text(words: &str) -> Option<Value> {
    (!words.trim().is_empty()).then(|| json!({ "type": "text", "text": words }))
}

/// The blocks of a user message: images first, the per-message facts last.
fn said(user: &User, format: &Anthropic) -> Vec<Value> {
    let mut blocks: Vec<Value> = pictures_first(&user.parts)
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

fn assistant<'a>(reply: &'a Reply, model: &str, ids: &mut Names<'a>) -> Vec<Value> {
    let mut call = |call: &'a ToolCall| json!({ "type": "tool_use", "id": ids.call(&call.id), "name": call.name, "input": call.arguments_object() });
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
            Some("tool_use") => blocks.extend(calls.next().map(&mut call)),
            _ => blocks.push(block.clone()),
        }
    }
    // Text without a placeholder (all of it if nothing was kept) goes after the last text block, or before the calls.
    let after = blocks.iter().rposition(|block| block["type"] == "text");
    let before = blocks.iter().position(|block| block["type"] == "tool_use");
    let place = after.map(|place| place + 1).or(before);
    if let Some(rest) = text(rest) {
        blocks.insert(place.unwrap_or(blocks.len()), rest);
    }
    blocks.extend(calls.map(call));
    blocks
}

fn tool(result: &ToolResult, ids: &Names<'_>, format: &Anthropic) -> Value {
    let mut content: Vec<Value> = result
        .parts
        .iter()
        .filter_map(|part| block(part, format))
        .collect();
    if content.is_empty() {
        content.extend(text("(no output)"));
    }
    let is_text = content.iter().all(|block| block["type"] == "text");
    let mut value = json!({ "type": "tool_result", "tool_use_id": ids.result(&result.call), "content": content });
    // An error result that holds more than text is refused.
    if result.failed && is_text {
        value["is_error"] = true.into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::message::ToolSpec;
    use crate::message::{Document, Image, Message, Part, Reply, ToolCall, ToolResult, User};
    use crate::provider::anthropic::Anthropic;
    use crate::provider::quirks::{NONE, Quirks, Temperature, Thinking};
    use crate::provider::{Calls, Request, Sampling};
    use serde_json::{Value, json};

    /// The registry's quirks for one of the vendor's models, older or newer.
    fn quirks(thinking: Thinking) -> Quirks {
        Quirks {
            cache_marks: true,
            thinking,
            ..NONE
        }
    }

    fn user(text: &str) -> Message {
        Message::User(User {
            parts: vec![Part::Text(text.into())],
            facts: "[now]".into(),
            ..User::default()
        })
    }

    fn result(call: &str, parts: Vec<Part>, failed: bool) -> Message {
        Message::Tool(ToolResult {
            call: call.into(),
            name: "t".into(),
            parts,
            failed,
        })
    }

    fn text(words: &str) -> Part {
        Part::Text(words.into())
    }

    fn picture() -> Part {
        Part::Image(Image {
            media_type: "image/png",
            bytes: vec![1],
            name: "a".into(),
        })
    }

    fn calling(ids: &[&str], keep: Value) -> Reply {
        let call = |id: &&str| ToolCall {
            id: (*id).to_owned(),
            name: "t".into(),
            arguments: json!({ "a": 1 }),
        };
        Reply {
            calls: ids.iter().map(call).collect(),
            opaque: keep
                .is_array()
                .then(|| json!({ "wire": "anthropic", "model": "m", "keep": keep })),
            ..Reply::default()
        }
    }

    struct Asked<'a> {
        quirks: Quirks,
        effort: Option<&'a str>,
        most: Option<u32>,
        model: &'a str,
        calls: Calls<'a>,
    }

    const USUAL: Asked<'static> = Asked {
        quirks: NONE,
        effort: None,
        most: None,
        model: "m",
        calls: Calls::May,
    };

    fn body(messages: &[Message], asked: &Asked<'_>) -> Value {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: "d".into(),
            parameters: json!({ "type": "object" }),
        };
        let request = Request {
            system: "s",
            messages,
            tools: &[tool("t"), tool("u")],
            calls: asked.calls,
            model: asked.model,
            sampling: &Sampling {
                max_tokens: 8192,
                temperature: Some(0.5),
                reasoning_effort: asked.effort.map(str::to_owned),
            },
            reply_id: "r",
            schema: None,
        };
        let format = Anthropic {
            quirks: asked.quirks,
            most: asked.most,
        };
        Value::Object(of(&request, &format, true))
    }

    fn messages(messages: &[Message]) -> Value {
        body(messages, &USUAL)["messages"].clone()
    }

    #[test]
    fn what_belongs_together_is_one_message() {
        let list = [
            user("a"),
            Message::Assistant(calling(&["x|1", "y"], Value::Null)),
            result("x|1", vec![text("1")], false),
            user("b"),
            result("y", vec![], true),
            user("c"),
        ];
        let sent = messages(&list);
        let call =
            |id: &str| json!({ "type": "tool_use", "id": id, "name": "t", "input": { "a": 1 } });
        let calls = sent[1]["content"].clone();
        let id = calls[0]["id"].as_str().unwrap();
        assert_eq!(calls, json!([call(id), call("y")]));
        let say = |words: &str| json!({ "type": "text", "text": words });
        let expect = json!([
            { "role": "user", "content": [say("a"), say("[now]")] },
            { "role": "assistant", "content": calls },
            // Results come first, whatever else the user said in between.
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": id, "content": [say("1")] },
                { "type": "tool_result", "tool_use_id": "y", "content": [say("(no output)")], "is_error": true },
                say("b"), say("[now]"), say("c"), say("[now]"),
            ] },
        ]);
        assert_eq!(sent, expect);
        assert!(id.starts_with("x1_"), "{id}");
    }

    #[test]
    fn what_cannot_be_said_is_left_out() {
        let blank = Reply {
            text: " \n".into(),
            ..Reply::default()
        };
        let sent = messages(&[
            Message::Assistant(calling(&["x"], Value::Null)),
            result("x", vec![text("")], false),
            Message::Assistant(blank),
            Message::User(User::default()),
            user("a"),
        ]);
        let roles: Vec<&Value> = sent
            .as_array()
            .unwrap()
            .iter()
            .map(|message| &message["role"])
            .collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!(sent[0]["content"][0]["text"], "(continued)");
        assert_eq!(sent[2]["content"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn images_and_documents() {
        let document = Part::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let parts = vec![text("look"), picture(), document];
        let list = [
            Message::User(User {
                parts,
                ..User::default()
            }),
            Message::Assistant(calling(&["x"], Value::Null)),
            result("x", vec![text("1"), picture()], true),
        ];
        let source = |kind: &str| json!({ "type": "base64", "media_type": kind, "data": "AQ==" });
        let image = json!({ "type": "image", "source": source("image/png") });
        let sent = messages(&list);
        let file =
            json!({ "type": "document", "title": "a.pdf", "source": source("application/pdf") });
        assert_eq!(
            sent[0]["content"],
            json!([image, file, { "type": "text", "text": "look" }])
        );
        // An error result with an image would be refused.
        let content = json!([{ "type": "text", "text": "1" }, image]);
        let expect = json!([{ "type": "tool_result", "tool_use_id": "x", "content": content }]);
        assert_eq!(sent[2]["content"], expect);
        let mut blind = USUAL;
        blind.quirks.no_images = true;
        let sent = body(&list, &blind);
        assert_eq!(sent["messages"][0]["content"][0]["text"], "[image: a]");
    }

    /// A reply with thinking between its calls, and the blocks that it was built from.
    fn thought() -> (Reply, Value) {
        let keep = json!([
            { "type": "thinking", "thinking": "hm", "signature": "s" },
            { "type": "text", "length": 2 },
            { "type": "tool_use" },
            { "type": "redacted_thinking", "data": "d" },
            { "type": "text", "length": 3 },
            { "type": "tool_use" },
        ]);
        let mut reply = calling(&["x", "y"], keep);
        reply.text = "onetwo".into();
        reply.text.truncate(5);
        let call =
            |id: &str| json!({ "type": "tool_use", "id": id, "name": "t", "input": { "a": 1 } });
        let blocks = json!([
            { "type": "thinking", "thinking": "hm", "signature": "s" },
            { "type": "text", "text": "on" },
            call("x"),
            { "type": "redacted_thinking", "data": "d" },
            { "type": "text", "text": "etw" },
            call("y"),
        ]);
        (reply, blocks)
    }

    #[test]
    fn thinking_goes_back_in_its_place_to_its_own_model() {
        let (reply, blocks) = thought();
        let list = [user("a"), Message::Assistant(reply.clone())];
        assert_eq!(messages(&list)[1]["content"], blocks);
        let other = Asked {
            model: "n",
            ..USUAL
        };
        let sent = body(&list, &other)["messages"][1]["content"].clone();
        let kinds: Vec<&Value> = sent
            .as_array()
            .unwrap()
            .iter()
            .map(|block| &block["type"])
            .collect();
        assert_eq!(kinds, ["text", "tool_use", "tool_use"]);
        // If the text was changed in the meantime, all of the new text is sent.
        for words in ["", "o", "\u{e9}\u{e9}", "onetwo and more"] {
            let mut reply = reply.clone();
            reply.text = words.into();
            let sent = messages(&[user("a"), Message::Assistant(reply)]);
            let list = sent[1]["content"].as_array().unwrap();
            let texts: String = list
                .iter()
                .filter_map(|block| block["text"].as_str())
                .collect();
            assert_eq!(texts, words);
            assert_eq!(
                list.iter()
                    .filter(|block| block["type"] == "tool_use")
                    .count(),
                2
            );
        }
    }

    #[test]
    fn how_it_is_told_to_think() {
        let check = |thinking: Thinking, effort: &str, most: Option<u32>, expect: Value| {
            let asked = Asked {
                quirks: quirks(thinking),
                effort: Some(effort),
                most,
                ..USUAL
            };
            let sent = body(&[user("a")], &asked);
            let found = json!([sent["max_tokens"], sent["thinking"], sent["output_config"]]);
            assert_eq!(found, expect, "{effort}");
        };
        let budget = |tokens: u32| json!({ "type": "enabled", "budget_tokens": tokens });
        let old = Thinking::Budget;
        check(old, "none", None, json!([8192, null, null]));
        check(old, "minimal", None, json!([9216, budget(1024), null]));
        check(old, "low", None, json!([10240, budget(2048), null]));
        check(old, "medium", None, json!([16384, budget(8192), null]));
        check(old, "high", None, json!([24576, budget(16384), null]));
        check(old, "high", Some(8192), json!([8192, budget(4096), null]));
        check(old, "high", Some(1024), json!([1024, null, null]));
        let adaptive =
            |limit: u32, effort: &str| json!([limit, { "type": "adaptive" }, { "effort": effort }]);
        let new = Thinking::Adaptive;
        check(new, "none", None, json!([8192, null, null]));
        check(new, "minimal", None, adaptive(9216, "low"));
        check(new, "high", None, adaptive(24_576, "high"));
        check(new, "xhigh", None, adaptive(40_960, "xhigh"));
        check(
            new,
            "low",
            Some(100),
            json!([100, { "type": "adaptive" }, { "effort": "low" }]),
        );
    }

    #[test]
    fn thinking_is_not_asked_for_in_the_middle_of_calls_that_began_without_it() {
        let (with, _) = thought();
        let without = calling(&["z"], Value::Null);
        let check = |thinking: Thinking, replies: &[&Reply], expect: bool| {
            let mut list = vec![user("a"), Message::Assistant(without.clone()), user("b")];
            for reply in replies {
                list.push(Message::Assistant((*reply).clone()));
                list.extend(
                    reply
                        .calls
                        .iter()
                        .map(|call| result(&call.id, vec![], false)),
                );
            }
            let asked = Asked {
                quirks: quirks(thinking),
                effort: Some("high"),
                ..USUAL
            };
            assert_eq!(body(&list, &asked)["thinking"].is_object(), expect);
        };
        check(Thinking::Budget, &[], true);
        check(Thinking::Budget, &[&without], false);
        check(Thinking::Budget, &[&with], true);
        // The second request of a turn often has no thinking.
        check(Thinking::Budget, &[&with, &without], true);
        check(Thinking::Budget, &[&without, &with], false);
        // Newer models decide themselves when to think.
        check(Thinking::Adaptive, &[&without], true);
    }

    #[test]
    fn only_a_temperature_that_a_model_insists_on_is_sent() {
        let check = |temperature: Temperature, expect: Value| {
            let mut asked = USUAL;
            asked.quirks.temperature = temperature;
            assert_eq!(body(&[user("a")], &asked)["temperature"], expect);
        };
        check(Temperature::Ours, Value::Null);
        check(Temperature::None, Value::Null);
        check(Temperature::Fixed(1.0), json!(1.0));
    }

    #[test]
    fn tools_can_be_forbidden() {
        let sent = body(
            &[user("a")],
            &Asked {
                calls: Calls::MayNot,
                ..USUAL
            },
        );
        assert_eq!(sent["tool_choice"], json!({ "type": "none" }));
        assert_eq!(sent["tools"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_tool_can_be_forced_where_nothing_is_thought() {
        let check = |effort, expect: Value| {
            let asked = Asked {
                calls: Calls::Must("u"),
                effort,
                quirks: Quirks {
                    thinking: Thinking::Adaptive,
                    ..NONE
                },
                ..USUAL
            };
            assert_eq!(body(&[user("a")], &asked)["tool_choice"], expect);
        };
        check(None, json!({ "type": "tool", "name": "u" }));
        check(Some("none"), json!({ "type": "tool", "name": "u" }));
        check(Some("low"), json!({ "type": "auto" }));
    }

    /// Collects the positions of all cache marks and removes them from `value`.
    fn unmark(value: &mut Value, place: &str, found: &mut Vec<String>) {
        match value {
            Value::Array(list) => {
                for (number, value) in list.iter_mut().enumerate() {
                    unmark(value, &format!("{place}/{number}"), found);
                }
            }
            Value::Object(object) => {
                if object.shift_remove("cache_control").is_some() {
                    let block = Value::Object(object.clone());
                    assert!(!super::is_thinking(&block), "{place}");
                    assert_ne!(object.get("text"), Some(&json!("")), "{place}");
                    found.push(place.to_owned());
                }
                for (key, value) in object {
                    unmark(value, &format!("{place}/{key}"), found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn marks_for_the_cache_stand_where_the_next_request_finds_them() {
        let (with, _) = thought();
        let mut list = vec![
            user("old"),
            Message::Assistant(with.clone()),
            user("a"),
            user("b"),
        ];
        let mut turn = vec![list.clone()];
        for number in 0..3 {
            let mut reply = with.clone();
            let ids = [format!("x{number}"), format!("y{number}")];
            for (call, id) in reply.calls.iter_mut().zip(&ids) {
                call.id.clone_from(id);
            }
            list.push(Message::Assistant(reply));
            list.extend(ids.map(|id| result(&id, vec![text("1")], false)));
            turn.push(list.clone());
        }
        let asked = Asked {
            quirks: quirks(Thinking::Adaptive),
            effort: Some("high"),
            ..USUAL
        };
        let mut before: Option<String> = None;
        for (number, list) in turn.iter().enumerate() {
            let mut sent = body(list, &asked);
            let marked = sent.to_string();
            let mut marks = Vec::new();
            unmark(&mut sent, "", &mut marks);
            let last = 2 + 2 * number;
            let mut expect = vec![
                "/tools/1".to_owned(),
                "/system/0".into(),
                "/messages/2/content/3".into(),
            ];
            if number > 0 {
                expect.push(format!("/messages/{last}/content/1"));
            }
            assert_eq!(marks, expect);
            let bare = sent.to_string();
            if number == 1 {
                let first = body(&turn[0], &asked).to_string();
                assert!(marked.starts_with(first.strip_suffix("]}").unwrap()));
            }
            if let Some(before) = &before {
                assert!(bare.starts_with(before.strip_suffix("]}").unwrap()));
            }
            before = Some(bare);
        }
        // A reply that ends in thinking, as after truncation.
        let mut cut = calling(
            &[],
            json!([{ "type": "thinking", "thinking": "hm", "signature": "s" }]),
        );
        cut.text = "x".into();
        let mut sent = body(&[user("a"), Message::Assistant(cut)], &asked);
        let mut marks = Vec::new();
        unmark(&mut sent, "", &mut marks);
        assert_eq!(marks.last().unwrap(), "/messages/1/content/1");
        assert_eq!(marks.len(), 4);
    }

    #[test]
    fn schemas_are_closed_and_freed_of_limits() {
        let check = |schema: Value, expect: Option<Value>| {
            assert_eq!(super::closed(&schema), expect, "{schema}");
        };
        check(
            json!({ "$schema": "x", "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } } }),
            Some(
                json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "additionalProperties": false }),
            ),
        );
        check(
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string", "maxLength": 3 }, { "$ref": "#/$defs/a" }] },
                    "$defs": { "a": { "enum": [1] } } }),
            Some(
                json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/a" }] },
                         "$defs": { "a": { "enum": [1] } } }),
            ),
        );
        check(json!({ "type": "object" }), None);
        check(
            json!({ "type": "object", "properties": {}, "additionalProperties": { "type": "string" } }),
            None,
        );
        check(json!({ "not": { "type": "string" } }), None);
        check(json!(true), None);
    }
}
