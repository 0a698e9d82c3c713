//! Builds the request body. The order of the keys is fixed with `messages` last, and nothing that was sent before
//! changes: each request of a conversation starts with the bytes of the previous one, which lets providers' prompt
//! caches hit.

use super::ChatFormat;
use super::reasoning::{PlacedReasoning, place_reasoning};
use crate::provider::body_text::{BodyText, serialize_text};
use crate::provider::quirks::{CacheLifetime, Quirks, ThinkingStyle};
use crate::provider::reply_source::ReplySource;
use crate::provider::request_body::{BodyWriter, ToolForm, data_url, result_text};
use crate::provider::tool_call_ids::ToolCallIds;
use crate::provider::tool_call_repair::to_legal_name;
use crate::provider::{Request, ToolChoice};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::message::{Message, MessagePart, Reply, ToolCall, UserMessage, to_plain_text};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The body of `request`.
pub(super) fn write_body(
    request: &Request<'_>,
    format: &ChatFormat,
    stream: bool,
    mut body: BodyWriter<'_>,
) -> Vec<u8> {
    let quirks = &format.quirks;
    body.put("model", request.model);
    if !quirks.no_output_limit {
        let key = if quirks.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        let max_output_tokens = format.max_output_tokens.unwrap_or(u32::MAX);
        body.put(key, request.sampling.max_tokens.min(max_output_tokens));
    }
    if !quirks.no_temperature
        && let Some(temperature) = request.sampling.temperature
    {
        body.put("temperature", temperature);
    }
    if let Some((key, value)) = thinking_field(request.sampling.reasoning_effort.as_deref(), quirks)
    {
        body.put(key, value);
    }
    if let Some(verbosity) = &request.sampling.verbosity {
        body.put("verbosity", verbosity);
    }
    if stream {
        body.put("stream", true);
        if !quirks.no_stream_options {
            body.put("stream_options", json!({ "include_usage": true }));
        }
    }
    if let Some(schema) = request.schema {
        let format = json!({ "name": "answer", "schema": schema });
        body.put("response_format", json!({ "type": "json_schema", "json_schema": format }));
    }
    if !request.tools.is_empty() {
        body.put_tools(request.tools, &TOOL_FORM);
        body.put(
            "tool_choice",
            match request.tool_choice {
                ToolChoice::Auto => "auto".into(),
                ToolChoice::None => "none".into(),
                ToolChoice::Required(name) => {
                    json!({ "type": "function", "function": { "name": name } })
                }
            },
        );
    }
    let messages = ChatMessages { request, quirks, source: format.reply_source(request.model) };
    body.finish("messages", messages)
}

/// A tool as it is sent.
const TOOL_FORM: ToolForm = ToolForm {
    before_name: r#"{"type":"function","function":{"name":"#,
    before_description: r#","description":"#,
    before_schema: r#","parameters":"#,
    end: "}}",
    end_of_last: "}}",
};

/// The field that sets the thinking effort on this server. Without an effort, the server's default applies.
fn thinking_field(effort: Option<&str>, quirks: &Quirks) -> Option<(&'static str, Value)> {
    // Without this, reasoning arrives within the text and would be lost on the next request.
    if quirks.thinking == ThinkingStyle::Split {
        return Some(("reasoning_split", true.into()));
    }
    let effort = effort?;
    let is_enabled = effort != "none";
    Some(match quirks.thinking {
        ThinkingStyle::Effort => ("reasoning_effort", effort.into()),
        ThinkingStyle::NoneOrHigh => {
            let is_high = !matches!(effort, "none" | "minimal" | "low");
            ("reasoning_effort", if is_high { "high" } else { "none" }.into())
        }
        ThinkingStyle::Type => {
            let kind = if is_enabled { "enabled" } else { "disabled" };
            ("thinking", json!({ "type": kind }))
        }
        ThinkingStyle::Enable => ("enable_thinking", is_enabled.into()),
        ThinkingStyle::Object => ("reasoning", json!({ "effort": effort })),
        ThinkingStyle::Split
        | ThinkingStyle::Unsupported
        | ThinkingStyle::Budget
        | ThinkingStyle::Adaptive => return None,
    })
}

/// The messages of a request, converted while they are serialized.
struct ChatMessages<'a> {
    request: &'a Request<'a>,
    quirks: &'a Quirks,
    source: ReplySource,
}

/// A system, user or tool message, or an assistant message that fills a gap.
#[derive(Serialize)]
struct ChatMessage<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    content: ChatContent<'a>,
}

/// The content of a message: a text, or a list of texts, images and documents.
#[derive(Serialize)]
#[serde(untagged)]
enum ChatContent<'a> {
    Text(#[serde(serialize_with = "serialize_text")] Cow<'a, str>),
    Parts(Vec<Value>),
}

/// A reply as it is sent back.
#[derive(Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: Option<AssistantContent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<BodyText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<BodyText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatToolCall<'a>>,
}

/// The content of a reply: its text, or text and reasoning.
#[derive(Serialize)]
#[serde(untagged)]
enum AssistantContent<'a> {
    Text(#[serde(serialize_with = "serialize_text")] &'a str),
    WithReasoning(Value),
}

#[derive(Serialize)]
struct ChatToolCall<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: CalledFunction<'a>,
    #[serde(skip_serializing_if = "Value::is_null")]
    extra_content: &'a Value,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: Cow<'a, str>,
    #[serde(serialize_with = "serialize_text")]
    arguments: String,
}

impl<'a> ChatMessage<'a> {
    fn new(role: &'static str, content: ChatContent<'a>) -> Self {
        Self { role, tool_call_id: None, content }
    }
}

impl Serialize for ChatMessages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, quirks, source } = self;
        let mut messages = serializer.serialize_seq(None)?;
        let mut ids = ToolCallIds::new(quirks.tool_call_ids);
        // Some servers refuse an empty text, or a cache mark at one.
        let mut pending_system = Some(request.system).filter(|system| !system.is_empty());
        // Without a system role, the first user message will begin with the system prompt.
        if !quirks.no_system
            && let Some(system) = pending_system.take()
        {
            let content = with_cache_mark(ChatContent::Text(system.into()), quirks.cache_marks);
            messages.serialize_element(&ChatMessage::new("system", content))?;
        }
        let is_user = |message: &Message| matches!(message, Message::User(_));
        let latest_user = request.messages.iter().rposition(is_user);
        let mut previous_is_tool = false;
        let mut rest = request.messages;
        while let Some((message, after)) = rest.split_first() {
            let index = request.messages.len() - rest.len();
            rest = after;
            let follows_tool = std::mem::take(&mut previous_is_tool);
            match message {
                Message::Assistant(reply) => {
                    let message = assistant_message(reply, source, &mut ids, quirks);
                    messages.serialize_element(&message)?;
                }
                Message::User(user) => {
                    // Strict servers refuse consecutive user messages, which an interrupted turn leaves behind.
                    let further_count = rest.iter().take_while(|next| is_user(next)).count();
                    let mut parts = user_parts(user);
                    for next in &rest[..further_count] {
                        if let Message::User(user) = next {
                            parts.extend(user_parts(user));
                        }
                    }
                    rest = &rest[further_count..];
                    if let Some(system) = pending_system.take() {
                        parts.insert(0, Cow::Owned(MessagePart::Text(system.to_owned())));
                    }
                    if quirks.assistant_after_tools && follows_tool {
                        let content = ChatContent::Text("(interrupted)".into());
                        messages.serialize_element(&ChatMessage::new("assistant", content))?;
                    }
                    let is_latest = latest_user
                        .is_some_and(|latest| (index..=index + further_count).contains(&latest));
                    let content = parts_to_content(&parts, quirks);
                    let content =
                        with_cache_mark(content, quirks.cache_marks.filter(|_| is_latest));
                    messages.serialize_element(&ChatMessage::new("user", content))?;
                }
                Message::Tool(first) => {
                    let results = rest.iter().map_while(|next| match next {
                        Message::Tool(result) => Some(result),
                        _ => None,
                    });
                    let mut attachments = Vec::new();
                    let mut count = 0;
                    for result in std::iter::once(first).chain(results) {
                        let is_attachment = |part: &&MessagePart| !is_sent_as_text(part, quirks);
                        attachments
                            .extend(result.parts.iter().filter(is_attachment).map(Cow::Borrowed));
                        messages.serialize_element(&ChatMessage {
                            role: "tool",
                            tool_call_id: Some(ids.for_result(&result.call_id)),
                            content: ChatContent::Text(result_text(&result.parts)),
                        })?;
                        count += 1;
                    }
                    rest = &rest[count - 1..];
                    previous_is_tool = attachments.is_empty();
                    // Tool messages hold text only; images and documents follow in a user message.
                    if !attachments.is_empty() {
                        if quirks.assistant_after_tools {
                            let content = ChatContent::Text("(images follow)".into());
                            messages.serialize_element(&ChatMessage::new("assistant", content))?;
                        }
                        let content = parts_to_content(&attachments, quirks);
                        messages.serialize_element(&ChatMessage::new("user", content))?;
                    }
                }
            }
        }
        messages.end()
    }
}

/// Adds a cache mark to the content, up to which providers cache the prompt. A mark requires the content to be a list.
fn with_cache_mark(content: ChatContent<'_>, lifetime: Option<CacheLifetime>) -> ChatContent<'_> {
    let Some(lifetime) = lifetime else {
        return content;
    };
    let mut parts = match content {
        ChatContent::Parts(parts) => parts,
        ChatContent::Text(text) => vec![json!({ "type": "text", "text": text })],
    };
    if let Some(last) = parts.last_mut() {
        last["cache_control"] = match lifetime {
            CacheLifetime::Minutes => json!({ "type": "ephemeral" }),
            CacheLifetime::Hour => json!({ "type": "ephemeral", "ttl": "1h" }),
        };
    }
    ChatContent::Parts(parts)
}

/// The parts of a user message, the per-message facts last.
fn user_parts(user: &UserMessage) -> Vec<Cow<'_, MessagePart>> {
    let mut parts: Vec<_> = user.parts.iter().map(Cow::Borrowed).collect();
    let facts = &user.runtime_facts;
    if !facts.is_empty() {
        let last = match user.parts.last() {
            Some(MessagePart::Text(text)) => {
                parts.pop();
                [text, "\n\n", facts].concat()
            }
            _ => facts.clone(),
        };
        parts.push(Cow::Owned(MessagePart::Text(last)));
    }
    parts
}

/// True if `part` is sent as text.
fn is_sent_as_text(part: &MessagePart, quirks: &Quirks) -> bool {
    match part {
        MessagePart::Text(_) => true,
        MessagePart::Image(_) => quirks.no_images,
        MessagePart::Document(_) => false,
    }
}

/// The parts as one text if they are all text, else as a list with images and documents first.
fn parts_to_content<'a>(parts: &'a [Cow<'_, MessagePart>], quirks: &Quirks) -> ChatContent<'a> {
    let plain_text = |part: &'a MessagePart| to_plain_text(std::slice::from_ref(part));
    let mut parts = parts.iter().map(AsRef::as_ref);
    if parts.clone().all(|part| is_sent_as_text(part, quirks)) {
        let mut text = parts.next().map(plain_text).unwrap_or_default();
        for part in parts {
            text.to_mut().push_str("\n\n");
            text.to_mut().push_str(&plain_text(part));
        }
        return ChatContent::Text(text);
    }
    let to_json = |part: &'a MessagePart| match part {
        part if is_sent_as_text(part, quirks) => {
            json!({ "type": "text", "text": plain_text(part) })
        }
        MessagePart::Text(text) => json!({ "type": "text", "text": text }),
        MessagePart::Image(image) => {
            let url = data_url(image.media_type, &image.bytes);
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
        MessagePart::Document(document) if document.is_audio() => {
            let data = STANDARD.encode(&document.bytes);
            let format = if document.media_type == "audio/wav" { "wav" } else { "mp3" };
            json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
        }
        MessagePart::Document(document) => {
            let data = data_url(document.media_type, &document.bytes);
            json!({ "type": "file", "file": { "filename": document.name, "file_data": data } })
        }
    };
    let (texts, attachments): (Vec<&MessagePart>, Vec<&MessagePart>) =
        parts.partition(|part| is_sent_as_text(part, quirks));
    ChatContent::Parts(attachments.into_iter().chain(texts).map(to_json).collect())
}

fn assistant_message<'a>(
    reply: &'a Reply,
    source: &ReplySource,
    ids: &mut ToolCallIds<'a>,
    quirks: &Quirks,
) -> AssistantMessage<'a> {
    let is_silent = reply.text.is_empty() && !reply.tool_calls.is_empty();
    let opaque = source.unwrap(reply).unwrap_or(&Value::Null);
    let PlacedReasoning { content, reasoning_content, reasoning } = if quirks.requires_reasoning {
        PlacedReasoning { reasoning_content: Some(&reply.reasoning), ..PlacedReasoning::default() }
    } else {
        place_reasoning(reply, opaque)
    };
    let content = content.map(AssistantContent::WithReasoning);
    let call = |(index, call): (usize, &'a ToolCall)| ChatToolCall {
        id: ids.assign(&call.id),
        r#type: "function",
        function: CalledFunction {
            name: to_legal_name(&call.name),
            arguments: call.arguments_json(),
        },
        extra_content: &opaque["extra_content"][index],
    };
    AssistantMessage {
        role: "assistant",
        content: content.or_else(|| (!is_silent).then_some(AssistantContent::Text(&reply.text))),
        reasoning_content: reasoning_content.map(BodyText),
        reasoning: reasoning.map(BodyText),
        reasoning_details: opaque.get("reasoning_details"),
        tool_calls: reply.tool_calls.iter().enumerate().map(call).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::write_body;
    use crate::provider::chat::ChatFormat;
    use crate::provider::quirks::{CacheLifetime, NONE, Quirks, ToolCallIdFormat};
    use crate::provider::request_body::BodyWriter;
    use crate::provider::{Request, Sampling, ToolChoice};
    use nanobot_base::message::ToolSpec;
    use nanobot_base::message::{
        Document, Image, Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult,
        UserMessage,
    };
    use serde_json::{Map, Value, json};

    fn user(text: &str) -> Message {
        Message::User(UserMessage {
            parts: vec![MessagePart::Text(text.into())],
            runtime_facts: "[now]".into(),
            ..UserMessage::default()
        })
    }

    fn result(parts: Vec<MessagePart>) -> Message {
        Message::Tool(ToolResult {
            call_id: "c".into(),
            name: "t".into(),
            parts,
            failed: false,
            source: ResultSource::Unspecified,
        })
    }

    fn body(messages: &[Message], quirks: &Quirks, calls: ToolChoice<'_>) -> Value {
        body_with_system("s", messages, quirks, calls)
    }

    fn body_with_system(
        system: &str,
        messages: &[Message],
        quirks: &Quirks,
        calls: ToolChoice<'_>,
    ) -> Value {
        let sampling = Sampling {
            max_tokens: 9,
            temperature: Some(0.5),
            reasoning_effort: None,
            verbosity: None,
        };
        let tools = [ToolSpec {
            name: "t".into(),
            description: "d".into(),
            parameters: json!({ "type": "object" }).into(),
        }];
        let request = Request {
            system,
            messages,
            tools: &tools,
            tool_choice: calls,
            model: "m",
            sampling: &sampling,
            reply_id: "r",
            schema: None,
        };
        let format = ChatFormat { server: String::new(), quirks: *quirks, max_output_tokens: None };
        let json = write_body(&request, &format, true, BodyWriter::new(&Map::new()));
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn a_longer_conversation_shares_the_prefix_bytes() {
        let call = ToolCall { id: "c".into(), name: "t".into(), arguments: json!({ "a": 1 }) };
        let mut messages = vec![
            user("hi"),
            Message::Assistant(Reply { tool_calls: vec![call], ..Reply::default() }),
        ];
        messages.push(result(vec![MessagePart::Text("out".into())]));
        messages.push(Message::Assistant(Reply { text: "done".into(), ..Reply::default() }));
        messages.push(user("more"));
        for end in [1, 3, 5] {
            let short = body(&messages[..end], &NONE, ToolChoice::Auto).to_string();
            let long = body(&messages, &NONE, ToolChoice::Auto).to_string();
            assert!(long.starts_with(short.strip_suffix("]}").unwrap()));
        }
    }

    #[test]
    fn an_empty_system_prompt_is_left_out() {
        for no_system in [false, true] {
            let quirks = Quirks { cache_marks: Some(CacheLifetime::Minutes), no_system, ..NONE };
            let sent = body_with_system("", &[user("a")], &quirks, ToolChoice::Auto);
            assert_eq!(sent["messages"].as_array().map(Vec::len), Some(1));
            assert_eq!(sent["messages"][0]["role"], "user");
        }
    }

    #[test]
    fn neighbours_are_merged_and_images_follow_results() {
        let image = MessagePart::Image(Image {
            media_type: "image/png",
            bytes: vec![1],
            name: "a".into(),
            source: None,
        });
        let sent = body(
            &[user("a"), user("b"), result(vec![image]), result(vec![])],
            &NONE,
            ToolChoice::Auto,
        );
        let messages = sent["messages"].as_array().unwrap();
        assert_eq!(messages[1], json!({ "role": "user", "content": "a\n\n[now]\n\nb\n\n[now]" }));
        assert_eq!(messages[2]["content"], "[image: a]");
        assert_eq!(messages[3]["content"], "(no output)");
        let url =
            json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AQ==" } }]);
        assert_eq!(messages[4], json!({ "role": "user", "content": url }));
    }

    #[test]
    fn a_document_is_sent_as_a_file_before_the_text() {
        let document = MessagePart::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let parts = vec![MessagePart::Text("read".into()), document];
        let user = Message::User(UserMessage { parts, ..UserMessage::default() });
        let sent = body(&[user], &NONE, ToolChoice::Auto);
        let file = json!({ "filename": "a.pdf", "file_data": "data:application/pdf;base64,AQ==" });
        let expect = json!([{ "type": "file", "file": file }, { "type": "text", "text": "read" }]);
        assert_eq!(sent["messages"][1]["content"], expect);
    }

    #[test]
    fn a_recording_is_sent_with_its_format() {
        for (media_type, format) in [("audio/mpeg", "mp3"), ("audio/wav", "wav")] {
            let recording =
                MessagePart::Document(Document { media_type, bytes: vec![1], name: "a".into() });
            let user = UserMessage { parts: vec![recording], ..UserMessage::default() };
            let sent = body(&[Message::User(user)], &NONE, ToolChoice::Auto);
            let audio = json!({ "data": "AQ==", "format": format });
            let expect = json!([{ "type": "input_audio", "input_audio": audio }]);
            assert_eq!(sent["messages"][1]["content"], expect);
        }
    }

    #[test]
    fn quirks_change_the_keys() {
        let plain = body(&[user("a")], &NONE, ToolChoice::None);
        assert_eq!(
            (&plain["max_tokens"], &plain["temperature"], &plain["tool_choice"]),
            (&json!(9), &json!(0.5), &json!("none"))
        );
        let forced = body(&[user("a")], &NONE, ToolChoice::Required("t"));
        assert_eq!(
            forced["tool_choice"],
            json!({ "type": "function", "function": { "name": "t" } })
        );
        let odd = Quirks {
            max_completion_tokens: true,
            no_temperature: true,
            requires_reasoning: true,
            no_stream_options: true,
            tool_call_ids: ToolCallIdFormat::NineAlphanumerics,
            ..NONE
        };
        let reply = Message::Assistant(Reply {
            text: "x".into(),
            reasoning: "why".into(),
            ..Reply::default()
        });
        let sent = body(&[user("a"), reply.clone()], &odd, ToolChoice::Auto);
        assert_eq!(
            (&sent["max_completion_tokens"], &sent["max_tokens"]),
            (&json!(9), &Value::Null)
        );
        assert_eq!(sent["temperature"], Value::Null);
        assert_eq!(sent["messages"][2]["reasoning_content"], "why");
        assert_eq!(
            body(&[reply], &NONE, ToolChoice::Auto)["messages"][1],
            json!({ "role": "assistant", "content": "x" })
        );
    }

    #[test]
    fn opaque_data_is_sent_only_to_its_own_server_and_model() {
        let check = |server: &str, model: &str, expect: bool| {
            let keep = json!({ "reasoning_details": [1], "extra_content": [2] });
            let call = ToolCall { id: "c".into(), name: "t".into(), arguments: json!({}) };
            let reply = Reply {
                tool_calls: vec![call],
                provider_data: Some(
                    json!({ "wire": "chat", "server": server, "model": model, "keep": keep }),
                ),
                ..Reply::default()
            };
            let sent =
                body(&[Message::Assistant(reply)], &NONE, ToolChoice::Auto)["messages"][1].clone();
            assert_eq!(sent["reasoning_details"] == json!([1]), expect);
            assert_eq!(sent["tool_calls"][0]["extra_content"] == 2, expect);
        };
        check("", "m", true);
        check("", "n", false);
        check("https://example.com/v1", "m", false);
    }

    #[test]
    fn arguments_that_are_not_json_are_sent_as_an_object() {
        let call =
            ToolCall { id: "c".into(), name: "t".into(), arguments: Value::String("{oops".into()) };
        let sent = body(
            &[Message::Assistant(Reply { tool_calls: vec![call], ..Reply::default() })],
            &NONE,
            ToolChoice::Auto,
        );
        let arguments =
            sent["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(arguments, "{\"malformed_arguments\":\"{oops\"}");
        assert_eq!(sent["messages"][1]["content"], Value::Null);
    }
}
