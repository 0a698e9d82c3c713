//! Builds the request body. `messages` is the last key, and nothing that was sent before changes except the last cache
//! mark, which keeps the prompt cache valid.

use super::AnthropicFormat;
use crate::provider::body_text::serialize_text;
use crate::provider::quirks::{CacheLifetime, ThinkingStyle};
use crate::provider::reply_source::ReplySource;
use crate::provider::request_body::{BodyWriter, ToolForm};
use crate::provider::tool_call_ids::ToolCallIds;
use crate::provider::tool_call_repair::to_legal_name;
use crate::provider::{Request, ToolChoice};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::message::{
    Document, Image, Message, MessagePart, Reply, ToolCall, ToolResult, UserMessage, images_first,
    to_plain_text,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The smallest thinking budget that Anthropic accepts, in tokens.
const MIN_THINKING_BUDGET_TOKENS: u32 = 1024;

/// The highest temperature that the vendor takes; others take up to 2.
const MAX_TEMPERATURE: f64 = 1.0;

/// The body of `request`.
pub(super) fn write_body(
    request: &Request<'_>,
    format: &AnthropicFormat,
    stream: bool,
    mut body: BodyWriter<'_>,
) -> Vec<u8> {
    let effort = request.sampling.reasoning_effort.as_deref();
    let thinking = effort.filter(|effort| *effort != "none" && can_think(request, format));
    if format.is_at_vertex() {
        body.put("anthropic_version", "vertex-2023-10-16");
    } else {
        body.put("model", request.model);
    }
    let (limit, budget) = token_limits(request.sampling.max_tokens, thinking, format);
    body.put("max_tokens", limit);
    let mut output = Map::new();
    let is_thinking = thinking.is_some()
        && (budget.is_some() || format.quirks.thinking == ThinkingStyle::Adaptive);
    match (thinking, format.quirks.thinking, budget) {
        (Some(effort), ThinkingStyle::Adaptive, _) => {
            body.put("thinking", json!({ "type": "adaptive" }));
            output.insert("effort".into(), adaptive_effort(effort, request.model).into());
        }
        (Some(_), _, Some(budget)) => {
            body.put("thinking", json!({ "type": "enabled", "budget_tokens": budget }));
        }
        _ => {}
    }
    // A model that thinks accepts only its default temperature.
    let takes_temperature = !is_thinking && !format.quirks.no_temperature;
    if takes_temperature && let Some(temperature) = request.sampling.temperature {
        body.put("temperature", temperature.min(MAX_TEMPERATURE));
    }
    if let Some(schema) = request.schema.and_then(close_schema) {
        output.insert("format".into(), json!({ "type": "json_schema", "schema": schema }));
    }
    if !output.is_empty() {
        body.put("output_config", output);
    }
    if stream {
        body.put("stream", true);
    }
    let cache_marks = format.quirks.cache_marks;
    if !request.tools.is_empty() {
        let form = match cache_marks {
            Some(CacheLifetime::Minutes) => &MARKED_TOOL_FORM,
            Some(CacheLifetime::Hour) => &HOUR_TOOL_FORM,
            None => &TOOL_FORM,
        };
        body.put_tools(request.tools, form);
        let choice = match request.tool_choice {
            ToolChoice::None => json!({ "type": "none" }),
            // With thinking enabled, a tool call cannot be forced.
            ToolChoice::Required(name) if !is_thinking => json!({ "type": "tool", "name": name }),
            ToolChoice::Auto | ToolChoice::Required(_) => json!({ "type": "auto" }),
        };
        body.put("tool_choice", choice);
    }
    if let Some(mut system) = text_block(request.system) {
        if let Some(lifetime) = cache_marks {
            system.add_cache_mark(lifetime);
        }
        body.put("system", [system]);
    }
    body.finish("messages", build_messages(request, format))
}

/// A tool as it is sent.
const TOOL_FORM: ToolForm = ToolForm {
    before_name: r#"{"name":"#,
    before_description: r#","description":"#,
    before_schema: r#","input_schema":"#,
    end: "}",
    end_of_last: "}",
};
/// The same with a cache mark at the last tool.
const MARKED_TOOL_FORM: ToolForm =
    ToolForm { end_of_last: r#","cache_control":{"type":"ephemeral"}}"#, ..TOOL_FORM };

/// The same with a mark for an hour.
const HOUR_TOOL_FORM: ToolForm =
    ToolForm { end_of_last: r#","cache_control":{"type":"ephemeral","ttl":"1h"}}"#, ..TOOL_FORM };

/// Maximum number of images in a request (Anthropic, "Vision": 100, or more with the newest models).
const MAX_IMAGES: usize = 100;

/// A mark up to which the provider caches the prompt.
#[derive(Clone, Copy, Serialize)]
struct CacheMark {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheMark {
    fn new(lifetime: CacheLifetime) -> Self {
        Self { r#type: "ephemeral", ttl: (lifetime == CacheLifetime::Hour).then_some("1h") }
    }
}

/// A message as it is sent.
#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// A content block as it is sent.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        #[serde(serialize_with = "serialize_text")]
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheMark>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheMark>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Vec<Self>,
        #[serde(skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheMark>,
    },
    /// An image, a document, or a block that is sent back unchanged.
    #[serde(untagged)]
    Other(Cow<'a, Value>),
}

impl Block<'_> {
    /// Marks the block: the provider caches the prompt up to it.
    fn add_cache_mark(&mut self, lifetime: CacheLifetime) {
        let mark = CacheMark::new(lifetime);
        match self {
            Self::Text { cache_control, .. }
            | Self::ToolUse { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => *cache_control = Some(mark),
            Self::Other(block) => block.to_mut()["cache_control"] = json!(mark),
        }
    }
}

/// Reduces `schema` to the subset that Anthropic accepts: every object is closed, and limits that it does not support
/// are removed (they are checked here in any case). `None` if the schema uses a feature that cannot be expressed.
fn close_schema(schema: &Value) -> Option<Value> {
    const SUPPORTED_KEYWORDS: [&str; 13] = [
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
    const CONSTRAINT_KEYWORDS: [&str; 14] = [
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
    let close_all = |schemas: &Map<String, Value>| -> Option<Map<String, Value>> {
        schemas.iter().map(|(name, inner)| Some((name.clone(), close_schema(inner)?))).collect()
    };
    let mut closed = Map::new();
    for (key, value) in schema.as_object()? {
        let value = match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(schemas)) => close_all(schemas)?.into(),
            ("anyOf" | "allOf", Value::Array(list)) => {
                list.iter().map(close_schema).collect::<Option<Vec<_>>>()?.into()
            }
            ("items", value) => close_schema(value)?,
            ("additionalProperties", Value::Bool(false)) => continue,
            (key, value) if SUPPORTED_KEYWORDS.contains(&key) => value.clone(),
            (key, _) if CONSTRAINT_KEYWORDS.contains(&key) => continue,
            _ => return None,
        };
        closed.insert(key.clone(), value);
    }
    // The type of an object that may be null is a list.
    let names_object = |kind: &Value| {
        let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
        kinds.iter().any(|kind| kind == "object")
    };
    if closed.get("type").is_some_and(names_object) {
        // A closed object without properties would always be empty.
        closed.get("properties")?;
        closed.insert("additionalProperties".into(), false.into());
    }
    Some(closed.into())
}

/// The output limit including thinking, and the thinking budget if the model takes one. Both in tokens.
fn token_limits(
    max_tokens: u32,
    effort: Option<&str>,
    format: &AnthropicFormat,
) -> (u32, Option<u32>) {
    let max_output_tokens = format.max_output_tokens.unwrap_or(u32::MAX);
    let share = match effort {
        None => return (max_tokens.min(max_output_tokens), None),
        Some("minimal") => MIN_THINKING_BUDGET_TOKENS,
        Some("low") => 2048,
        Some("medium") => 8192,
        Some("high") => 16_384,
        Some(_) => 32_768,
    };
    // Thinking is added on top of the share for the answer.
    let limit = max_tokens.saturating_add(share).min(max_output_tokens);
    // If the limit cannot hold both, each gets half.
    let budget =
        if limit < max_tokens.saturating_add(share) { share.min(limit / 2) } else { share };
    let has_budget =
        format.quirks.thinking == ThinkingStyle::Budget && budget >= MIN_THINKING_BUDGET_TOKENS;
    (limit, has_budget.then_some(budget))
}

/// Maps the effort to the values of adaptive thinking.
fn adaptive_effort<'a>(effort: &'a str, model: &str) -> &'a str {
    match effort {
        "minimal" => "low",
        // The first models with adaptive thinking have no value between high and max.
        "xhigh" if model.contains("-4-6") => "max",
        other => other,
    }
}

/// True if thinking can be requested. With a budget, it cannot be enabled in the middle of tool calls that began without it, such as after
/// a change of model. The later calls of such a turn have no thinking.
fn can_think(request: &Request<'_>, format: &AnthropicFormat) -> bool {
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let turn_start = request.messages.iter().rposition(is_user).unwrap_or(0);
    let mut replies = request.messages[turn_start..].iter();
    let first_reply = replies.find_map(|message| match message {
        Message::Assistant(reply) if !reply.tool_calls.is_empty() => Some(reply),
        _ => None,
    });
    let source = format.reply_source(request.model);
    let has_thinking = |reply: &Reply| opaque_blocks(reply, &source).iter().any(is_thinking_block);
    format.quirks.thinking != ThinkingStyle::Budget || first_reply.is_none_or(has_thinking)
}

fn is_thinking_block(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// The blocks of a reply that are sent back unchanged, if it is from this server and model. Placeholders mark the
/// positions of its text and calls.
fn opaque_blocks<'a>(reply: &'a Reply, source: &ReplySource) -> &'a [Value] {
    let blocks = source.unwrap(reply).and_then(Value::as_array);
    blocks.map_or(&[], Vec::as_slice)
}

fn build_messages<'a>(
    request: &Request<'a>,
    format: &AnthropicFormat,
) -> Vec<AnthropicMessage<'a>> {
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let latest_user = request.messages.iter().rposition(is_user);
    let source = format.reply_source(request.model);
    let mut ids = ToolCallIds::new(format.quirks.tool_call_ids);
    let mut writer = PartWriter {
        accepts_images: !format.quirks.no_images,
        surplus_images: count_images(request.messages).saturating_sub(MAX_IMAGES),
    };
    let mut messages: Vec<AnthropicMessage<'_>> = Vec::new();
    for (index, message) in request.messages.iter().enumerate() {
        let (role, mut content) = match message {
            Message::Assistant(reply) => ("assistant", assistant_blocks(reply, &source, &mut ids)),
            Message::User(user) => ("user", user_blocks(user, &mut writer)),
            Message::Tool(result) => ("user", vec![tool_result_block(result, &ids, &mut writer)]),
        };
        if content.is_empty() {
            continue;
        }
        // The latest user message stays marked for the whole turn, because all requests of the turn share that prefix.
        if let Some(lifetime) = format.quirks.cache_marks
            && Some(index) == latest_user
        {
            add_cache_mark(&mut content, lifetime);
        }
        match messages.last_mut() {
            // Results of one reply's calls belong in one message, and consecutive messages of one role are refused.
            Some(last) if last.role == role => last.content.extend(content),
            _ => messages.push(AnthropicMessage { role, content }),
        }
    }
    if messages.first().is_some_and(|first| first.role == "assistant") {
        let content = text_block("(continued)").into_iter().collect();
        let role = "user";
        messages.insert(0, AnthropicMessage { role, content });
    }
    for message in &mut messages {
        if message.role == "user" {
            // Tool results must precede the user's text.
            let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
            message.content.sort_by_key(|block| !is_result(block));
        }
    }
    if let Some(lifetime) = format.quirks.cache_marks
        && let Some(last) = messages.last_mut()
    {
        add_cache_mark(&mut last.content, lifetime);
    }
    messages
}

/// Marks the last of `blocks` that can have a mark.
fn add_cache_mark(blocks: &mut [Block<'_>], lifetime: CacheLifetime) {
    let is_thinking =
        |block: &Block<'_>| matches!(block, Block::Other(block) if is_thinking_block(block));
    let last = blocks.iter_mut().rfind(|block| !is_thinking(block));
    if let Some(block) = last {
        block.add_cache_mark(lifetime);
    }
}

fn text_block<'a>(text: impl Into<Cow<'a, str>>) -> Option<Block<'a>> {
    let text = text.into();
    (!text.trim().is_empty()).then_some(Block::Text { text, cache_control: None })
}

/// The blocks of a user message: images first, the per-message facts last.
fn user_blocks<'a>(user: &'a UserMessage, writer: &mut PartWriter) -> Vec<Block<'a>> {
    let mut blocks: Vec<_> =
        images_first(&user.parts).filter_map(|part| writer.part_to_block(part)).collect();
    blocks.extend(text_block(&user.runtime_facts));
    blocks
}

/// Writes the parts of messages in their order.
struct PartWriter {
    accepts_images: bool,
    /// The number of images above the limit. The oldest ones are replaced by their names.
    surplus_images: usize,
}

impl PartWriter {
    fn part_to_block<'a>(&mut self, part: &'a MessagePart) -> Option<Block<'a>> {
        match part {
            MessagePart::Image(image) if self.accepts_images && self.surplus_images == 0 => {
                return Some(image_block(image));
            }
            MessagePart::Image(_) => self.surplus_images = self.surplus_images.saturating_sub(1),
            MessagePart::Document(document) if !document.is_audio() => {
                return Some(document_block(document));
            }
            MessagePart::Document(_) | MessagePart::Text(_) => {}
        }
        text_block(to_plain_text(std::slice::from_ref(part)))
    }
}

fn count_images(messages: &[Message]) -> usize {
    let parts = messages.iter().flat_map(|message| match message {
        Message::User(user) => user.parts.as_slice(),
        Message::Tool(result) => &result.parts,
        Message::Assistant(_) => &[],
    });
    parts.filter(|part| matches!(part, MessagePart::Image(_))).count()
}

fn image_block(image: &Image) -> Block<'static> {
    let source = to_source(image.media_type, &image.bytes);
    Block::Other(Cow::Owned(json!({ "type": "image", "source": source })))
}

fn document_block(document: &Document) -> Block<'static> {
    let source = to_source(document.media_type, &document.bytes);
    let block = json!({ "type": "document", "title": document.name, "source": source });
    Block::Other(Cow::Owned(block))
}

fn to_source(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "type": "base64", "media_type": media_type, "data": STANDARD.encode(bytes) })
}

fn assistant_blocks<'a>(
    reply: &'a Reply,
    source: &ReplySource,
    ids: &mut ToolCallIds<'a>,
) -> Vec<Block<'a>> {
    let mut call = |call: &'a ToolCall| Block::ToolUse {
        id: ids.assign(&call.id),
        name: to_legal_name(&call.name),
        input: call.arguments_object(),
        cache_control: None,
    };
    let mut rest = reply.text.as_str();
    let mut calls = reply.tool_calls.iter();
    let mut blocks = Vec::new();
    for block in opaque_blocks(reply, source) {
        match block["type"].as_str() {
            Some("text") => {
                let length =
                    block["length"].as_u64().and_then(|length| usize::try_from(length).ok());
                let (text, after) =
                    length.and_then(|length| rest.split_at_checked(length)).unwrap_or((rest, ""));
                blocks.extend(text_block(text));
                rest = after;
            }
            Some("tool_use") => blocks.extend(calls.next().map(&mut call)),
            _ => blocks.push(Block::Other(Cow::Borrowed(block))),
        }
    }
    // Text without a placeholder (all of it if the reply has no opaque blocks) goes after the last text block, or before the calls.
    let is_text = |block: &Block<'_>| matches!(block, Block::Text { .. });
    let is_call = |block: &Block<'_>| matches!(block, Block::ToolUse { .. });
    let last_text = blocks.iter().rposition(is_text);
    let first_call = blocks.iter().position(is_call);
    let index = last_text.map(|index| index + 1).or(first_call);
    if let Some(rest) = text_block(rest) {
        blocks.insert(index.unwrap_or(blocks.len()), rest);
    }
    blocks.extend(calls.map(call));
    blocks
}

fn tool_result_block<'a>(
    result: &'a ToolResult,
    ids: &ToolCallIds<'a>,
    writer: &mut PartWriter,
) -> Block<'a> {
    let mut content: Vec<_> =
        result.parts.iter().filter_map(|part| writer.part_to_block(part)).collect();
    if content.is_empty() {
        content.extend(text_block("(no output)"));
    }
    let is_text = |block: &Block<'_>| matches!(block, Block::Text { .. });
    // An error result that holds more than text is refused.
    let is_error = (result.failed && content.iter().all(is_text)).then_some(true);
    Block::ToolResult {
        tool_use_id: ids.for_result(&result.call_id),
        content,
        is_error,
        cache_control: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_IMAGES, write_body};
    use crate::provider::anthropic::AnthropicFormat;
    use crate::provider::quirks::{CacheLifetime, NONE, Quirks, ThinkingStyle};
    use crate::provider::request_body::BodyWriter;
    use crate::provider::{Request, Sampling, ToolChoice};
    use nanobot_base::message::ToolSpec;
    use nanobot_base::message::{
        Document, Image, Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult,
        UserMessage,
    };
    use serde_json::{Map, Value, json};

    /// The registry's quirks for one of the vendor's models, older or newer.
    fn quirks(thinking: ThinkingStyle) -> Quirks {
        Quirks { cache_marks: Some(CacheLifetime::Minutes), thinking, ..NONE }
    }

    fn user(text: &str) -> Message {
        Message::User(UserMessage {
            parts: vec![MessagePart::Text(text.into())],
            runtime_facts: "[now]".into(),
            ..UserMessage::default()
        })
    }

    fn result(call: &str, parts: Vec<MessagePart>, failed: bool) -> Message {
        Message::Tool(ToolResult {
            call_id: call.into(),
            name: "t".into(),
            parts,
            failed,
            source: ResultSource::Unspecified,
        })
    }

    fn text(text: &str) -> MessagePart {
        MessagePart::Text(text.into())
    }

    fn picture() -> MessagePart {
        MessagePart::Image(Image {
            media_type: "image/png",
            bytes: vec![1],
            name: "a".into(),
            source: None,
        })
    }

    fn reply_with_calls(ids: &[&str], keep: Value) -> Reply {
        let call = |id: &&str| ToolCall {
            id: (*id).to_owned(),
            name: "t".into(),
            arguments: json!({ "a": 1 }),
        };
        Reply {
            tool_calls: ids.iter().map(call).collect(),
            provider_data: keep
                .is_array()
                .then(|| json!({ "wire": "anthropic", "server": "", "model": "m", "keep": keep })),
            ..Reply::default()
        }
    }

    struct BodyInput<'a> {
        quirks: Quirks,
        effort: Option<&'a str>,
        max_output_tokens: Option<u32>,
        model: &'a str,
        tool_choice: ToolChoice<'a>,
    }

    const DEFAULT_INPUT: BodyInput<'static> = BodyInput {
        quirks: NONE,
        effort: None,
        max_output_tokens: None,
        model: "m",
        tool_choice: ToolChoice::Auto,
    };

    fn body(messages: &[Message], input: &BodyInput<'_>) -> Value {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: "d".into(),
            parameters: json!({ "type": "object" }).into(),
        };
        let request = Request {
            system: "s",
            messages,
            tools: &[tool("t"), tool("u")],
            tool_choice: input.tool_choice,
            model: input.model,
            sampling: &Sampling {
                max_tokens: 8192,
                temperature: Some(0.5),
                reasoning_effort: input.effort.map(str::to_owned),
                verbosity: None,
            },
            reply_id: "r",
            schema: None,
        };
        let format = AnthropicFormat {
            vertex_path: String::new(),
            server: String::new(),
            quirks: input.quirks,
            max_output_tokens: input.max_output_tokens,
        };
        let json = write_body(&request, &format, true, BodyWriter::new(&Map::new()));
        serde_json::from_slice(&json).unwrap()
    }

    fn messages(messages: &[Message]) -> Value {
        body(messages, &DEFAULT_INPUT)["messages"].clone()
    }

    #[test]
    fn consecutive_messages_of_a_role_are_merged() {
        let list = [
            user("a"),
            Message::Assistant(reply_with_calls(&["x|1", "y"], Value::Null)),
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
        let say = |text: &str| json!({ "type": "text", "text": text });
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
    fn empty_content_is_omitted() {
        let blank = Reply { text: " \n".into(), ..Reply::default() };
        let sent = messages(&[
            Message::Assistant(reply_with_calls(&["x"], Value::Null)),
            result("x", vec![text("")], false),
            Message::Assistant(blank),
            Message::User(UserMessage::default()),
            user("a"),
        ]);
        let roles: Vec<&Value> =
            sent.as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert_eq!(sent[0]["content"][0]["text"], "(continued)");
        assert_eq!(sent[2]["content"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn images_and_documents() {
        let document = MessagePart::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let parts = vec![text("look"), picture(), document];
        let list = [
            Message::User(UserMessage { parts, ..UserMessage::default() }),
            Message::Assistant(reply_with_calls(&["x"], Value::Null)),
            result("x", vec![text("1"), picture()], true),
        ];
        let source = |kind: &str| json!({ "type": "base64", "media_type": kind, "data": "AQ==" });
        let image = json!({ "type": "image", "source": source("image/png") });
        let sent = messages(&list);
        let file =
            json!({ "type": "document", "title": "a.pdf", "source": source("application/pdf") });
        assert_eq!(sent[0]["content"], json!([image, file, { "type": "text", "text": "look" }]));
        // An error result with an image would be refused.
        let content = json!([{ "type": "text", "text": "1" }, image]);
        let expect = json!([{ "type": "tool_result", "tool_use_id": "x", "content": content }]);
        assert_eq!(sent[2]["content"], expect);
        let mut blind = DEFAULT_INPUT;
        blind.quirks.no_images = true;
        let sent = body(&list, &blind);
        assert_eq!(sent["messages"][0]["content"][0]["text"], "[image: a]");
    }

    #[test]
    fn the_oldest_of_too_many_images_are_only_named() {
        let list = [
            Message::User(UserMessage {
                parts: vec![text("look"), picture(), picture()],
                ..UserMessage::default()
            }),
            Message::Assistant(reply_with_calls(&["x"], Value::Null)),
            result("x", vec![picture(); MAX_IMAGES - 1], false),
        ];
        let sent = messages(&list);
        let name = json!({ "type": "text", "text": "[image: a]" });
        assert_eq!(sent[0]["content"][0], name);
        assert_eq!(sent[0]["content"][1]["type"], "image");
        let shown = sent[2]["content"][0]["content"].as_array().unwrap();
        assert_eq!(shown.len(), MAX_IMAGES - 1);
        assert!(shown.iter().all(|block| block["type"] == "image"));
    }

    /// A reply with thinking between its calls, and the blocks that it was built from.
    fn reply_with_thinking() -> (Reply, Value) {
        let keep = json!([
            { "type": "thinking", "thinking": "hm", "signature": "s" },
            { "type": "text", "length": 2 },
            { "type": "tool_use" },
            { "type": "redacted_thinking", "data": "d" },
            { "type": "text", "length": 3 },
            { "type": "tool_use" },
        ]);
        let mut reply = reply_with_calls(&["x", "y"], keep);
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
    fn thinking_is_sent_back_in_position_to_the_same_model() {
        let (reply, blocks) = reply_with_thinking();
        let list = [user("a"), Message::Assistant(reply.clone())];
        assert_eq!(messages(&list)[1]["content"], blocks);
        let other = BodyInput { model: "n", ..DEFAULT_INPUT };
        let sent = body(&list, &other)["messages"][1]["content"].clone();
        let kinds: Vec<&Value> =
            sent.as_array().unwrap().iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["text", "tool_use", "tool_use"]);
        // If the text was changed in the meantime, all of the new text is sent.
        for text in ["", "o", "\u{e9}\u{e9}", "onetwo and more"] {
            let mut reply = reply.clone();
            reply.text = text.into();
            let sent = messages(&[user("a"), Message::Assistant(reply)]);
            let list = sent[1]["content"].as_array().unwrap();
            let texts: String = list.iter().filter_map(|block| block["text"].as_str()).collect();
            assert_eq!(texts, text);
            assert_eq!(list.iter().filter(|block| block["type"] == "tool_use").count(), 2);
        }
    }

    #[test]
    fn thinking_is_requested_by_effort() {
        let check = |thinking: ThinkingStyle, effort: &str, most: Option<u32>, expect: Value| {
            let input = BodyInput {
                quirks: quirks(thinking),
                effort: Some(effort),
                max_output_tokens: most,
                ..DEFAULT_INPUT
            };
            let sent = body(&[user("a")], &input);
            let actual = json!([sent["max_tokens"], sent["thinking"], sent["output_config"]]);
            assert_eq!(actual, expect, "{effort}");
        };
        let budget = |tokens: u32| json!({ "type": "enabled", "budget_tokens": tokens });
        let old = ThinkingStyle::Budget;
        check(old, "none", None, json!([8192, null, null]));
        check(old, "minimal", None, json!([9216, budget(1024), null]));
        check(old, "low", None, json!([10240, budget(2048), null]));
        check(old, "medium", None, json!([16384, budget(8192), null]));
        check(old, "high", None, json!([24576, budget(16384), null]));
        check(old, "high", Some(8192), json!([8192, budget(4096), null]));
        check(old, "high", Some(1024), json!([1024, null, null]));
        let adaptive =
            |limit: u32, effort: &str| json!([limit, { "type": "adaptive" }, { "effort": effort }]);
        let new = ThinkingStyle::Adaptive;
        check(new, "none", None, json!([8192, null, null]));
        check(new, "minimal", None, adaptive(9216, "low"));
        check(new, "high", None, adaptive(24_576, "high"));
        check(new, "xhigh", None, adaptive(40_960, "xhigh"));
        check(new, "low", Some(100), json!([100, { "type": "adaptive" }, { "effort": "low" }]));
    }

    #[test]
    fn thinking_is_not_requested_amid_calls_that_began_without_it() {
        let (with, _) = reply_with_thinking();
        let without = reply_with_calls(&["z"], Value::Null);
        let check = |thinking: ThinkingStyle, replies: &[&Reply], expect: bool| {
            let mut list = vec![user("a"), Message::Assistant(without.clone()), user("b")];
            for reply in replies {
                list.push(Message::Assistant((*reply).clone()));
                list.extend(reply.tool_calls.iter().map(|call| result(&call.id, vec![], false)));
            }
            let input =
                BodyInput { quirks: quirks(thinking), effort: Some("high"), ..DEFAULT_INPUT };
            assert_eq!(body(&list, &input)["thinking"].is_object(), expect);
        };
        check(ThinkingStyle::Budget, &[], true);
        check(ThinkingStyle::Budget, &[&without], false);
        check(ThinkingStyle::Budget, &[&with], true);
        // The second request of a turn often has no thinking.
        check(ThinkingStyle::Budget, &[&with, &without], true);
        check(ThinkingStyle::Budget, &[&without, &with], false);
        // Newer models decide themselves when to think.
        check(ThinkingStyle::Adaptive, &[&without], true);
    }

    #[test]
    fn a_temperature_is_sent_if_the_model_takes_it() {
        let check = |no_temperature: bool, expect: Value| {
            let mut input = DEFAULT_INPUT;
            input.quirks.no_temperature = no_temperature;
            assert_eq!(body(&[user("a")], &input)["temperature"], expect);
        };
        check(false, json!(0.5));
        check(true, Value::Null);
    }

    #[test]
    fn tools_can_be_forbidden() {
        let sent =
            body(&[user("a")], &BodyInput { tool_choice: ToolChoice::None, ..DEFAULT_INPUT });
        assert_eq!(sent["tool_choice"], json!({ "type": "none" }));
        assert_eq!(sent["tools"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_tool_can_be_forced_without_thinking() {
        let check = |effort, expect: Value| {
            let input = BodyInput {
                tool_choice: ToolChoice::Required("u"),
                effort,
                quirks: Quirks { thinking: ThinkingStyle::Adaptive, ..NONE },
                ..DEFAULT_INPUT
            };
            assert_eq!(body(&[user("a")], &input)["tool_choice"], expect);
        };
        check(None, json!({ "type": "tool", "name": "u" }));
        check(Some("none"), json!({ "type": "tool", "name": "u" }));
        check(Some("low"), json!({ "type": "auto" }));
    }

    /// Collects the positions of all cache marks and removes them from `value`.
    fn remove_cache_marks(value: &mut Value, pointer: &str, actual: &mut Vec<String>) {
        match value {
            Value::Array(list) => {
                for (number, value) in list.iter_mut().enumerate() {
                    remove_cache_marks(value, &format!("{pointer}/{number}"), actual);
                }
            }
            Value::Object(object) => {
                if object.shift_remove("cache_control").is_some() {
                    let block = Value::Object(object.clone());
                    assert!(!super::is_thinking_block(&block), "{pointer}");
                    assert_ne!(object.get("text"), Some(&json!("")), "{pointer}");
                    actual.push(pointer.to_owned());
                }
                for (key, value) in object {
                    remove_cache_marks(value, &format!("{pointer}/{key}"), actual);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn cache_marks_match_the_next_request() {
        let (with, _) = reply_with_thinking();
        let mut list = vec![user("old"), Message::Assistant(with.clone()), user("a"), user("b")];
        let mut turn = vec![list.clone()];
        for number in 0..3 {
            let mut reply = with.clone();
            let ids = [format!("x{number}"), format!("y{number}")];
            for (call, id) in reply.tool_calls.iter_mut().zip(&ids) {
                call.id.clone_from(id);
            }
            list.push(Message::Assistant(reply));
            list.extend(ids.map(|id| result(&id, vec![text("1")], false)));
            turn.push(list.clone());
        }
        let input = BodyInput {
            quirks: quirks(ThinkingStyle::Adaptive),
            effort: Some("high"),
            ..DEFAULT_INPUT
        };
        let mut before: Option<String> = None;
        for (number, list) in turn.iter().enumerate() {
            let mut sent = body(list, &input);
            let marked = sent.to_string();
            let mut marks = Vec::new();
            remove_cache_marks(&mut sent, "", &mut marks);
            let last = 2 + 2 * number;
            let mut expect =
                vec!["/tools/1".to_owned(), "/system/0".into(), "/messages/2/content/3".into()];
            if number > 0 {
                expect.push(format!("/messages/{last}/content/1"));
            }
            assert_eq!(marks, expect);
            let bare = sent.to_string();
            if number == 1 {
                let first = body(&turn[0], &input).to_string();
                assert!(marked.starts_with(first.strip_suffix("]}").unwrap()));
            }
            if let Some(before) = &before {
                assert!(bare.starts_with(before.strip_suffix("]}").unwrap()));
            }
            before = Some(bare);
        }
        // A reply that ends in thinking, as after truncation.
        let mut cut = reply_with_calls(
            &[],
            json!([{ "type": "thinking", "thinking": "hm", "signature": "s" }]),
        );
        cut.text = "x".into();
        let mut sent = body(&[user("a"), Message::Assistant(cut)], &input);
        let mut marks = Vec::new();
        remove_cache_marks(&mut sent, "", &mut marks);
        assert_eq!(marks.last().unwrap(), "/messages/1/content/1");
        assert_eq!(marks.len(), 4);
    }

    #[test]
    fn schemas_are_closed_and_stripped_of_constraints() {
        let check = |schema: Value, expect: Option<Value>| {
            assert_eq!(super::close_schema(&schema), expect, "{schema}");
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
        check(
            json!({ "type": ["object", "null"], "properties": {} }),
            Some(
                json!({ "type": ["object", "null"], "properties": {}, "additionalProperties": false }),
            ),
        );
        check(json!({ "type": "object" }), None);
        check(json!({ "type": ["object", "null"] }), None);
        check(
            json!({ "type": "object", "properties": {}, "additionalProperties": { "type": "string" } }),
            None,
        );
        check(json!({ "not": { "type": "string" } }), None);
        check(json!(true), None);
    }
}
