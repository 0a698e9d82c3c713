//! Builds the request body. `input` is the last key, and nothing that was sent before changes, which keeps the prompt
//! cache valid.

use super::{ResponsesFormat, TEXT_BYTES_KEY};
use crate::provider::body_text::{BodyText, serialize_text};
use crate::provider::reply_source::ReplySource;
use crate::provider::request_body::{BodyWriter, ToolForm, data_url, result_text};
use crate::provider::tool_call_ids::ToolCallIds;
use crate::provider::tool_call_repair::to_legal_name;
use crate::provider::{Request, ToolChoice};
use nanobot_base::message::{
    Message, MessagePart, Reply, ToolCall, ToolResult, UserMessage, images_first, to_plain_text,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The smallest output limit that the API accepts.
const MIN_OUTPUT_TOKENS: u32 = 16;

/// The body of `request`.
pub(super) fn write_body(
    request: &Request<'_>,
    format: &ResponsesFormat,
    stream: bool,
    mut body: BodyWriter<'_>,
) -> Vec<u8> {
    body.put("model", request.model);
    if !format.quirks.no_output_limit {
        let max_output_tokens = format.max_output_tokens.unwrap_or(u32::MAX);
        let limit = request.sampling.max_tokens.min(max_output_tokens).max(MIN_OUTPUT_TOKENS);
        body.put("max_output_tokens", limit);
    }
    if !format.quirks.no_temperature
        && let Some(temperature) = request.sampling.temperature
    {
        body.put("temperature", temperature);
    }
    if let Some(effort) = &request.sampling.reasoning_effort {
        body.put("reasoning", json!({ "effort": effort }));
    }
    body.put("store", false);
    if format.is_reasoning_model {
        body.put("include", json!(["reasoning.encrypted_content"]));
    }
    if stream || format.quirks.streaming_only {
        body.put("stream", true);
    }
    let mut text = Map::new();
    if let Some(verbosity) = &request.sampling.verbosity {
        text.insert("verbosity".into(), verbosity.as_str().into());
    }
    if let Some(schema) = request.schema {
        let format =
            json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": false });
        text.insert("format".into(), format);
    }
    if !text.is_empty() {
        body.put("text", text);
    }
    body.put("instructions", BodyText(request.system));
    if !request.tools.is_empty() {
        body.put_tools(request.tools, &TOOL_FORM);
        body.put(
            "tool_choice",
            match request.tool_choice {
                ToolChoice::Auto => "auto".into(),
                ToolChoice::None => "none".into(),
                ToolChoice::Required(name) => json!({ "type": "function", "name": name }),
            },
        );
    }
    body.finish("input", build_input(request, format))
}

/// A tool as it is sent.
const TOOL_FORM: ToolForm = ToolForm {
    before_name: r#"{"type":"function","name":"#,
    before_description: r#","description":"#,
    before_schema: r#","parameters":"#,
    end: r#","strict":false}"#,
    end_of_last: r#","strict":false}"#,
};

/// An item of the input as it is sent.
#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Message {
        /// Optional for the vendor; llama.cpp refuses the text of a reply without it.
        r#type: &'static str,
        role: &'static str,
        content: ItemContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a str>,
    },
    Call {
        r#type: &'static str,
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        #[serde(serialize_with = "serialize_text")]
        arguments: String,
    },
    Output {
        r#type: &'static str,
        call_id: Cow<'a, str>,
        output: ItemContent<'a>,
    },
    /// An item that is sent back unchanged.
    Unchanged(&'a Value),
}

/// A text, or a list of texts, images and documents.
#[derive(Serialize)]
#[serde(untagged)]
enum ItemContent<'a> {
    Text(#[serde(serialize_with = "serialize_text")] Cow<'a, str>),
    Parts(Vec<InputContent<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum InputContent<'a> {
    #[serde(rename = "input_text")]
    Text {
        #[serde(serialize_with = "serialize_text")]
        text: Cow<'a, str>,
    },
    #[serde(rename = "input_image")]
    Image {
        detail: &'static str,
        #[serde(serialize_with = "serialize_text")]
        image_url: String,
    },
    #[serde(rename = "input_file")]
    File {
        filename: &'a str,
        #[serde(serialize_with = "serialize_text")]
        file_data: String,
    },
}

fn build_input<'a>(request: &Request<'a>, format: &ResponsesFormat) -> Vec<InputItem<'a>> {
    let mut items = Vec::new();
    let mut ids = ToolCallIds::new(format.quirks.tool_call_ids);
    let source = format.reply_source(request.model);
    for message in request.messages {
        match message {
            Message::User(user) => items.push(InputItem::Message {
                r#type: "message",
                role: "user",
                content: ItemContent::Parts(user_content(user, format)),
                phase: None,
            }),
            Message::Assistant(reply) => {
                add_assistant_items(reply, &source, &mut ids, &mut items);
            }
            Message::Tool(result) => items.push(InputItem::Output {
                r#type: "function_call_output",
                call_id: ids.for_result(&result.call_id),
                output: tool_output(result, format),
            }),
        }
    }
    items
}

/// The parts of a user message: images first, the per-message facts last.
fn user_content<'a>(user: &'a UserMessage, format: &ResponsesFormat) -> Vec<InputContent<'a>> {
    let mut parts: Vec<_> =
        images_first(&user.parts).map(|part| part_to_content(part, format)).collect();
    if !user.runtime_facts.is_empty() {
        let text = Cow::Borrowed(&*user.runtime_facts);
        parts.push(InputContent::Text { text });
    }
    parts
}

fn part_to_content<'a>(part: &'a MessagePart, format: &ResponsesFormat) -> InputContent<'a> {
    match part {
        MessagePart::Image(image) if !format.quirks.no_images => {
            let image_url = data_url(image.media_type, &image.bytes);
            InputContent::Image { detail: "auto", image_url }
        }
        MessagePart::Document(document) if !document.is_audio() => InputContent::File {
            filename: &document.name,
            file_data: data_url(document.media_type, &document.bytes),
        },
        part => InputContent::Text { text: to_plain_text(std::slice::from_ref(part)) },
    }
}

/// The output of a tool: text, or a list if it holds more than text.
fn tool_output<'a>(result: &'a ToolResult, format: &ResponsesFormat) -> ItemContent<'a> {
    let is_text = |part: &MessagePart| matches!(part, MessagePart::Text(_));
    if result.parts.iter().all(is_text) {
        return ItemContent::Text(result_text(&result.parts));
    }
    let parts = result.parts.iter();
    ItemContent::Parts(parts.map(|part| part_to_content(part, format)).collect())
}

/// Adds the items of a reply. Items that must go back unchanged are included if this server and model produced them, with
/// the text and the calls of the reply in their original positions.
fn add_assistant_items<'a>(
    reply: &'a Reply,
    source: &ReplySource,
    ids: &mut ToolCallIds<'a>,
    items: &mut Vec<InputItem<'a>>,
) {
    let opaque_items = source.unwrap(reply).and_then(Value::as_array);
    let mut call = |call: &'a ToolCall| InputItem::Call {
        r#type: "function_call",
        call_id: ids.assign(&call.id),
        name: to_legal_name(&call.name),
        arguments: call.arguments_json(),
    };
    let message = |text: &'a str, phase: &'a Value| {
        (!text.is_empty()).then(|| InputItem::Message {
            r#type: "message",
            role: "assistant",
            content: ItemContent::Text(text.into()),
            phase: phase.as_str(),
        })
    };
    let mut rest = reply.text.as_str();
    let mut calls = reply.tool_calls.iter();
    for item in opaque_items.into_iter().flatten() {
        match (item["type"].as_str(), item[TEXT_BYTES_KEY].as_u64()) {
            (Some("message"), Some(length)) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (text, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
                items.extend(message(text, &item["phase"]));
                rest = after;
            }
            (Some("function_call"), _) => items.extend(calls.next().map(&mut call)),
            _ => items.push(InputItem::Unchanged(item)),
        }
    }
    items.extend(message(rest, &Value::Null));
    items.extend(calls.map(call));
    // A trailing reasoning item, as after truncation at the output limit, is refused.
    let is_reasoning = |item: &InputItem<'_>| matches!(item, InputItem::Unchanged(item) if item["type"] == "reasoning");
    while items.last().is_some_and(is_reasoning) {
        items.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::write_body;
    use crate::provider::quirks::{CODEX, NONE, Quirks};
    use crate::provider::request_body::BodyWriter;
    use crate::provider::responses::ResponsesFormat;
    use crate::provider::{Request, Sampling, ToolChoice};
    use nanobot_base::message::ToolSpec;
    use nanobot_base::message::{
        Document, Image, Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult,
        UserMessage,
    };
    use serde_json::{Map, Value, json};

    const DEFAULT_FORMAT: ResponsesFormat = ResponsesFormat {
        server: String::new(),
        quirks: NONE,
        max_output_tokens: None,
        is_reasoning_model: false,
    };

    fn user(parts: Vec<MessagePart>) -> Message {
        Message::User(UserMessage {
            parts,
            runtime_facts: "[now]".into(),
            ..UserMessage::default()
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

    fn result(parts: Vec<MessagePart>) -> Message {
        Message::Tool(ToolResult {
            call_id: "c".into(),
            name: "t".into(),
            parts,
            failed: false,
            source: ResultSource::Unspecified,
        })
    }

    fn reply(text: &str, calls: usize, keep: Value) -> Message {
        let call = |number: usize| ToolCall {
            id: format!("c{number}"),
            name: "t".into(),
            arguments: json!({ "a": 1 }),
        };
        Message::Assistant(Reply {
            text: text.into(),
            tool_calls: (0..calls).map(call).collect(),
            provider_data: keep
                .is_array()
                .then(|| json!({ "wire": "responses", "server": "", "model": "m", "keep": keep })),
            ..Reply::default()
        })
    }

    fn body(messages: &[Message], format: &ResponsesFormat, model: &str, max_tokens: u32) -> Value {
        let request = Request {
            system: "s",
            messages,
            tools: &[ToolSpec {
                name: "t".into(),
                description: "d".into(),
                parameters: json!({ "type": "object" }).into(),
            }],
            tool_choice: ToolChoice::Auto,
            model,
            sampling: &Sampling {
                max_tokens,
                temperature: Some(0.5),
                reasoning_effort: Some("high".into()),
                verbosity: None,
            },
            reply_id: "r",
            schema: None,
        };
        let json = write_body(&request, format, false, BodyWriter::new(&Map::new()));
        serde_json::from_slice(&json).unwrap()
    }

    fn input(messages: &[Message]) -> Value {
        body(messages, &DEFAULT_FORMAT, "m", 99)["input"].clone()
    }

    fn call(number: usize) -> Value {
        json!({ "type": "function_call", "call_id": format!("c{number}"), "name": "t", "arguments": "{\"a\":1}" })
    }

    #[test]
    fn request_parameters() {
        let sent = body(&[], &DEFAULT_FORMAT, "m", 99);
        let keys: Vec<&String> = sent.as_object().unwrap().keys().collect();
        let expect = [
            "model",
            "max_output_tokens",
            "temperature",
            "reasoning",
            "store",
            "instructions",
            "tools",
            "tool_choice",
            "input",
        ];
        assert_eq!(keys, expect);
        assert_eq!(
            (&sent["store"], &sent["reasoning"]),
            (&json!(false), &json!({ "effort": "high" }))
        );
        let reasons = ResponsesFormat {
            is_reasoning_model: true,
            quirks: Quirks { no_temperature: true, ..NONE },
            max_output_tokens: Some(50),
            ..DEFAULT_FORMAT
        };
        let sent = body(&[], &reasons, "m", 99);
        assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]));
        assert_eq!((&sent["temperature"], &sent["max_output_tokens"]), (&Value::Null, &json!(50)));
        assert_eq!(body(&[], &DEFAULT_FORMAT, "m", 1)["max_output_tokens"], 16);
        let codex = ResponsesFormat { quirks: CODEX, ..DEFAULT_FORMAT };
        let sent = body(&[], &codex, "m", 99);
        assert_eq!((&sent["max_output_tokens"], &sent["stream"]), (&Value::Null, &json!(true)));
    }

    #[test]
    fn messages_in_their_forms() {
        let document = MessagePart::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let say = |text: &str| json!({ "type": "input_text", "text": text });
        let image = json!({ "type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AQ==" });
        let file = json!({ "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AQ==" });
        let output = |output: Value| json!({ "type": "function_call_output", "call_id": "c", "output": output });
        let sent = input(&[
            user(vec![text("look"), picture(), document]),
            reply("I look.", 2, Value::Null),
            result(vec![text("1")]),
            result(vec![]),
            result(vec![text("1"), picture()]),
            reply("", 0, Value::Null),
        ]);
        let expect = json!([
            { "type": "message", "role": "user", "content": [image, file, say("look"), say("[now]")] },
            { "type": "message", "role": "assistant", "content": "I look." },
            call(0),
            call(1),
            output(json!("1")),
            output(json!("(no output)")),
            output(json!([say("1"), image])),
        ]);
        assert_eq!(sent, expect);
        let mut blind = DEFAULT_FORMAT;
        blind.quirks.no_images = true;
        let sent = body(&[user(vec![picture()])], &blind, "m", 99);
        assert_eq!(sent["input"][0]["content"][0], say("[image: a]"));
    }

    #[test]
    fn reasoning_is_sent_back_in_position_to_the_same_model() {
        let secret =
            json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "s" });
        let aside = json!({ "type": "message", "phase": "commentary", "role": "assistant", "content": "Hm." });
        let keep = json!([secret, aside, { "type": "function_call" }, secret,
                          { "type": "message", "phase": "final_answer", "length": 2 }, { "type": "function_call" }, secret]);
        let message = reply("onetwo", 3, keep);
        let text = |text: &str| json!({ "type": "message", "role": "assistant", "content": text });
        let mut marked = text("on");
        marked["phase"] = "final_answer".into();
        let expect =
            json!([secret, aside, call(0), secret, marked, call(1), secret, text("etwo"), call(2)]);
        assert_eq!(input(std::slice::from_ref(&message)), expect);
        let other = body(&[message], &DEFAULT_FORMAT, "n", 99)["input"].clone();
        assert_eq!(other, json!([text("onetwo"), call(0), call(1), call(2)]));
        // Reasoning that no other item follows.
        assert_eq!(input(&[reply("", 0, json!([secret, secret]))]), json!([]));
    }

    #[test]
    fn a_longer_conversation_shares_the_prefix_bytes() {
        let secret = json!([{ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "s" }, { "type": "function_call" }]);
        let list = [
            user(vec![text("hi")]),
            reply("", 1, secret.clone()),
            result(vec![text("out"), picture()]),
            reply("on it", 1, secret),
            result(vec![text("out")]),
            reply("done", 0, Value::Null),
            user(vec![text("more")]),
        ];
        let long = body(&list, &DEFAULT_FORMAT, "m", 99).to_string();
        for end in [1, 3, 5] {
            let short = body(&list[..end], &DEFAULT_FORMAT, "m", 99).to_string();
            assert!(long.starts_with(short.strip_suffix("]}").unwrap()));
        }
    }
}
