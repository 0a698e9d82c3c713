//! Builds the request body. `input` is the last key, and nothing that was sent before changes, which keeps the prompt
//! cache valid.

use super::{ResponsesFormat, WIRE_NAME};
use crate::message::ToolSpec;
use crate::message::{
    Message, MessagePart, Reply, ToolCall, ToolResult, UserMessage, images_first, plain_text,
};
use crate::provider::quirks::Temperature;
use crate::provider::tool_call_ids::ToolCallIds;
use crate::provider::{Request, ToolChoice};
use base64::Engine;
use serde_json::{Map, Value, json};

/// The body of `request`.
pub(super) fn build_body(
    request: &Request<'_>,
    format: &ResponsesFormat,
    stream: bool,
) -> Map<String, Value> {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", request.model.into());
    if !format.quirks.no_output_limit {
        let most = format.max_output_tokens.unwrap_or(u32::MAX);
        // The API requires a limit of at least 16.
        let limit = request.sampling.max_tokens.min(most).max(16);
        put("max_output_tokens", limit.into());
    }
    let temperature = match format.quirks.temperature {
        Temperature::Configured => request.sampling.temperature,
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
    if format.is_reasoning_model {
        put("include", json!(["reasoning.encrypted_content"]));
    }
    if stream || format.quirks.streaming_only {
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
            match request.tool_choice {
                ToolChoice::Auto => "auto".into(),
                ToolChoice::None => "none".into(),
                ToolChoice::Required(name) => json!({ "type": "function", "name": name }),
            },
        );
    }
    put("input", build_input(request, format).into());
    body
}

fn build_input(request: &Request<'_>, format: &ResponsesFormat) -> Vec<Value> {
    let mut list = Vec::new();
    let mut ids = ToolCallIds::new(format.quirks.tool_call_ids);
    for message in request.messages {
        match message {
            Message::User(user) => {
                list.push(json!({ "role": "user", "content": user_content(user, format) }));
            }
            Message::Assistant(reply) => add_assistant_items(reply, request.model, &mut ids, &mut list),
            Message::Tool(result) => list.push(json!({ "type": "function_call_output",
                "call_id": ids.for_result(&result.call_id), "output": tool_output(result, format) })),
        }
    }
    list
}

/// The parts of a user message: images first, the per-message facts last.
fn user_content(user: &UserMessage, format: &ResponsesFormat) -> Vec<Value> {
    let mut parts: Vec<Value> = images_first(&user.parts)
        .map(|part| part_to_content(part, format))
        .collect();
    if !user.runtime_facts.is_empty() {
        parts.push(json!({ "type": "input_text", "text": user.runtime_facts }));
    }
    parts
}

fn part_to_content(part: &MessagePart, format: &ResponsesFormat) -> Value {
    match part {
        MessagePart::Image(image) if !format.quirks.no_images => {
            let data = base64::engine::general_purpose::STANDARD.encode(&image.bytes);
            let url = format!("data:{};base64,{data}", image.media_type);
            json!({ "type": "input_image", "detail": "auto", "image_url": url })
        }
        MessagePart::Document(document) => {
            let data = base64::engine::general_purpose::STANDARD.encode(&document.bytes);
            let data = format!("data:{};base64,{data}", document.media_type);
            json!({ "type": "input_file", "filename": document.name, "file_data": data })
        }
        part => json!({ "type": "input_text", "text": plain_text(std::slice::from_ref(part)) }),
    }
}

/// The output of a tool: text, or a list if it holds more than text.
fn tool_output(result: &ToolResult, format: &ResponsesFormat) -> Value {
    let is_text = |part: &MessagePart| matches!(part, MessagePart::Text(_));
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
        .map(|part| part_to_content(part, format))
        .collect()
}

/// The items of a reply. Items that must go back unchanged are included if this model produced them, with its text and
/// calls in their original positions.
fn add_assistant_items<'a>(
    reply: &'a Reply,
    model: &str,
    ids: &mut ToolCallIds<'a>,
    list: &mut Vec<Value>,
) {
    let opaque = reply
        .provider_data
        .as_ref()
        .filter(|opaque| opaque["wire"] == WIRE_NAME && opaque["model"] == model);
    let kept = opaque.and_then(|opaque| opaque["keep"].as_array());
    let mut call = |call: &'a ToolCall| {
        json!({ "type": "function_call", "call_id": ids.assign(&call.id),
                                         "name": call.name, "arguments": call.arguments_object().to_string() })
    };
    let text = |words: &str, phase: &Value| {
        let mut message = json!({ "role": "assistant", "content": words });
        if phase.is_string() {
            message["phase"] = phase.clone();
        }
        (!words.is_empty()).then_some(message)
    };
    let mut rest = reply.text.as_str();
    let mut calls = reply.tool_calls.iter();
    for item in kept.into_iter().flatten() {
        match (item["type"].as_str(), item["length"].as_u64()) {
            (Some("message"), Some(length)) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (words, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
                list.extend(text(words, &item["phase"]));
                rest = after;
            }
            (Some("function_call"), _) => list.extend(calls.next().map(&mut call)),
            _ => list.push(item.clone()),
        }
    }
    list.extend(text(rest, &Value::Null));
    list.extend(calls.map(call));
    // A trailing reasoning item, as after truncation at the output limit, is refused.
    while list.last().is_some_and(|item| item["type"] == "reasoning") {
        list.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::build_body;
    use crate::message::ToolSpec;
    use crate::message::{
        Document, Image, Message, MessagePart, Reply, ToolCall, ToolResult, UserMessage,
    };
    use crate::provider::quirks::{CODEX, NONE, Quirks, Temperature};
    use crate::provider::responses::ResponsesFormat;
    use crate::provider::{Request, Sampling, ToolChoice};
    use serde_json::{Value, json};

    const DEFAULT_FORMAT: ResponsesFormat = ResponsesFormat {
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

    fn text(words: &str) -> MessagePart {
        MessagePart::Text(words.into())
    }

    fn picture() -> MessagePart {
        MessagePart::Image(Image {
            media_type: "image/png",
            bytes: vec![1],
            name: "a".into(),
        })
    }

    fn result(parts: Vec<MessagePart>) -> Message {
        Message::Tool(ToolResult {
            call_id: "c".into(),
            name: "t".into(),
            parts,
            failed: false,
        })
    }

    fn reply(words: &str, calls: usize, keep: Value) -> Message {
        let call = |number: usize| ToolCall {
            id: format!("c{number}"),
            name: "t".into(),
            arguments: json!({ "a": 1 }),
        };
        Message::Assistant(Reply {
            text: words.into(),
            tool_calls: (0..calls).map(call).collect(),
            provider_data: keep
                .is_array()
                .then(|| json!({ "wire": "responses", "model": "m", "keep": keep })),
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
            },
            reply_id: "r",
            schema: None,
        };
        Value::Object(build_body(&request, format, false))
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
            quirks: Quirks {
                temperature: Temperature::None,
                ..NONE
            },
            max_output_tokens: Some(50),
        };
        let sent = body(&[], &reasons, "m", 99);
        assert_eq!(sent["include"], json!(["reasoning.encrypted_content"]));
        assert_eq!(
            (&sent["temperature"], &sent["max_output_tokens"]),
            (&Value::Null, &json!(50))
        );
        assert_eq!(body(&[], &DEFAULT_FORMAT, "m", 1)["max_output_tokens"], 16);
        let codex = ResponsesFormat {
            quirks: CODEX,
            ..DEFAULT_FORMAT
        };
        let sent = body(&[], &codex, "m", 99);
        assert_eq!(
            (&sent["max_output_tokens"], &sent["stream"]),
            (&Value::Null, &json!(true))
        );
    }

    #[test]
    fn messages_in_their_forms() {
        let document = MessagePart::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let say = |words: &str| json!({ "type": "input_text", "text": words });
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
            { "role": "user", "content": [image, file, say("look"), say("[now]")] },
            { "role": "assistant", "content": "I look." },
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
        let words = |words: &str| json!({ "role": "assistant", "content": words });
        let mut marked = words("on");
        marked["phase"] = "final_answer".into();
        let expect = json!([
            secret,
            aside,
            call(0),
            secret,
            marked,
            call(1),
            secret,
            words("etwo"),
            call(2)
        ]);
        assert_eq!(input(std::slice::from_ref(&message)), expect);
        let other = body(&[message], &DEFAULT_FORMAT, "n", 99)["input"].clone();
        assert_eq!(other, json!([words("onetwo"), call(0), call(1), call(2)]));
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
