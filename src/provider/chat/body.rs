//! Builds the request body. The order of the keys is fixed with `messages` last, and nothing that was sent before
//! changes: each request of a conversation starts with the bytes of the previous one, which lets providers' prompt
//! caches hit.

use super::{Chat, WIRE};
use crate::message::ToolSpec;
use crate::message::{Message, Part, Reply, ToolCall, ToolResult, User, plain_text};
use crate::provider::ids::Names;
use crate::provider::quirks::{Quirks, Temperature, Thinking};
use crate::provider::{Calls, Request};
use base64::Engine;
use serde_json::{Map, Value, json};

/// The body of `request`.
pub(super) fn of(request: &Request<'_>, format: &Chat, stream: bool) -> Map<String, Value> {
    let quirks = &format.quirks;
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", request.model.into());
    let limit = if quirks.max_completion_tokens {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    if !quirks.no_limit {
        put(
            limit,
            request
                .sampling
                .max_tokens
                .min(format.most.unwrap_or(u32::MAX))
                .into(),
        );
    }
    let temperature = match quirks.temperature {
        Temperature::Ours => request.sampling.temperature,
        Temperature::Fixed(degree) => Some(degree),
        Temperature::None => None,
    };
    if let Some(temperature) = temperature {
        put("temperature", temperature.into());
    }
    if let Some((key, value)) = thinking(request.sampling.reasoning_effort.as_deref(), quirks) {
        put(key, value);
    }
    if stream {
        put("stream", true.into());
        if !quirks.no_stream_options {
            put("stream_options", json!({ "include_usage": true }));
        }
    }
    if let Some(schema) = request.schema {
        let format = json!({ "name": "answer", "schema": schema });
        put(
            "response_format",
            json!({ "type": "json_schema", "json_schema": format }),
        );
    }
    if !request.tools.is_empty() {
        let function = |spec: &ToolSpec| json!({ "name": spec.name, "description": spec.description, "parameters": spec.parameters });
        let tools = request
            .tools
            .iter()
            .map(|spec| json!({ "type": "function", "function": function(spec) }));
        put("tools", tools.collect());
        put(
            "tool_choice",
            match request.calls {
                Calls::May => "auto".into(),
                Calls::MayNot => "none".into(),
                Calls::Must(name) => {
                    json!({ "type": "function", "function": { "name": name } })
                }
            },
        );
    }
    put("messages", messages(request, quirks).into());
    body
}

/// The field that sets the thinking effort on this server. Without an effort, the server's default applies.
fn thinking(effort: Option<&str>, quirks: &Quirks) -> Option<(&'static str, Value)> {
    // Without this, reasoning arrives within the text and would be lost on the next request.
    if quirks.thinking == Thinking::Split {
        return Some(("reasoning_split", true.into()));
    }
    let effort = effort?;
    let on = effort != "none";
    Some(match quirks.thinking {
        Thinking::Effort => ("reasoning_effort", effort.into()),
        Thinking::NoneOrHigh => {
            let high = !matches!(effort, "none" | "minimal" | "low");
            (
                "reasoning_effort",
                if high { "high" } else { "none" }.into(),
            )
        }
        Thinking::Type => {
            let kind = if on { "enabled" } else { "disabled" };
            ("thinking", json!({ "type": kind }))
        }
        Thinking::Enable => ("enable_thinking", on.into()),
        Thinking::Object => ("reasoning", json!({ "effort": effort })),
        Thinking::Split | Thinking::Unsaid | Thinking::Budget | Thinking::Adaptive => return None,
    })
}

fn messages(request: &Request<'_>, quirks: &Quirks) -> Vec<Value> {
    let mut list = Vec::new();
    let mut ids = Names::new(quirks.ids);
    let mut opening = request.system;
    if !quirks.no_system {
        list.push(json!({ "role": "system", "content": marked(request.system.into(), quirks.cache_marks) }));
        opening = "";
    }
    let is_user = |message: &Message| matches!(message, Message::User(_));
    let turn = request.messages.iter().rposition(is_user);
    let mut rest = request.messages;
    while let Some((message, after)) = rest.split_first() {
        let at = request.messages.len() - rest.len();
        rest = after;
        match message {
            Message::Assistant(reply) => {
                list.push(assistant(reply, request.model, &mut ids, quirks));
            }
            Message::User(user) => {
                // Strict servers refuse consecutive user messages, which an interrupted turn leaves behind.
                let more = rest.iter().take_while(|next| is_user(next)).count();
                let mut parts = said(user);
                for next in &rest[..more] {
                    if let Message::User(user) = next {
                        parts.extend(said(user));
                    }
                }
                rest = &rest[more..];
                if !opening.is_empty() {
                    parts.insert(0, Part::Text(std::mem::take(&mut opening).to_owned()));
                }
                if quirks.word_after_tools && list.last().is_some_and(|last| last["role"] == "tool")
                {
                    list.push(json!({ "role": "assistant", "content": "(interrupted)" }));
                }
                let last = turn.is_some_and(|turn| (at..=at + more).contains(&turn));
                let content = marked(content(&parts, quirks), quirks.cache_marks && last);
                list.push(json!({ "role": "user", "content": content }));
            }
            Message::Tool(first) => {
                let more = rest
                    .iter()
                    .take_while(|next| matches!(next, Message::Tool(_)))
                    .count();
                let mut others = Vec::new();
                list.push(tool(first, &ids, &mut others));
                for next in &rest[..more] {
                    if let Message::Tool(result) = next {
                        list.push(tool(result, &ids, &mut others));
                    }
                }
                rest = &rest[more..];
                // Tool messages hold text only; images and documents follow in a user message.
                others.retain(|part| !is_plain(part, quirks));
                if !others.is_empty() {
                    if quirks.word_after_tools {
                        list.push(json!({ "role": "assistant", "content": "(images follow)" }));
                    }
                    list.push(json!({ "role": "user", "content": content(&others, quirks) }));
                }
            }
        }
    }
    list
}

/// Adds a cache mark to the content, up to which providers cache the prompt. A mark requires the content to be a list.
fn marked(content: Value, mark: bool) -> Value {
    if !mark {
        return content;
    }
    let mut list = match content {
        Value::Array(list) => list,
        text => vec![json!({ "type": "text", "text": text })],
    };
    if let Some(last) = list.last_mut() {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
    list.into()
}

/// The parts of a user message, the per-message facts last.
fn said(user: &User) -> Vec<Part> {
    let mut parts = user.parts.clone();
    if !user.facts.is_empty() {
        match parts.last_mut() {
            Some(Part::Text(text)) => *text = format!("{text}\n\n{}", user.facts),
            _ => parts.push(Part::Text(user.facts.clone())),
        }
    }
    parts
}

/// True if `part` is sent as text.
fn is_plain(part: &Part, quirks: &Quirks) -> bool {
    match part {
        Part::Text(_) => true,
        Part::Image(_) => quirks.no_images,
        Part::Document(_) => false,
    }
}

/// The parts as one text if they are all text, else as a list with images and documents first.
fn content(parts: &[Part], quirks: &Quirks) -> Value {
    if parts.iter().all(|part| is_plain(part, quirks)) {
        let texts: Vec<String> = parts
            .iter()
            .map(|part| plain_text(std::slice::from_ref(part)))
            .collect();
        return texts.join("\n\n").into();
    }
    let value = |part: &Part| match part {
        part if is_plain(part, quirks) => {
            json!({ "type": "text", "text": plain_text(std::slice::from_ref(part)) })
        }
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image(image) => {
            let url = data_url(image.media_type, &image.bytes);
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
        Part::Document(document) => {
            let data = data_url(document.media_type, &document.bytes);
            json!({ "type": "file", "file": { "filename": document.name, "file_data": data } })
        }
    };
    let (texts, others): (Vec<&Part>, Vec<&Part>) =
        parts.iter().partition(|part| is_plain(part, quirks));
    others.into_iter().chain(texts).map(value).collect()
}

fn data_url(media_type: &str, bytes: &[u8]) -> String {
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    format!("data:{media_type};base64,{data}")
}

fn assistant<'a>(reply: &'a Reply, model: &str, ids: &mut Names<'a>, quirks: &Quirks) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let silent = reply.text.is_empty() && !reply.calls.is_empty();
    message.insert(
        "content".into(),
        if silent {
            Value::Null
        } else {
            reply.text.as_str().into()
        },
    );
    // Other servers would refuse keys that they do not know.
    let keep = reply.opaque.as_ref().filter(|opaque| {
        opaque["wire"] == WIRE && (opaque["model"] == model || opaque["model"].is_null())
    });
    let keep = keep.map_or(&Value::Null, |opaque| &opaque["keep"]);
    // Sent even if it is empty: these servers require the key in every message.
    if quirks.reasoning_back {
        message.insert("reasoning_content".into(), reply.reasoning.as_str().into());
    }
    if let Some(details) = keep.get("reasoning_details") {
        message.insert("reasoning_details".into(), details.clone());
    }
    if !reply.calls.is_empty() {
        let call = |(place, call): (usize, &'a ToolCall)| {
            let arguments = call.arguments_object().to_string();
            let mut value = json!({ "id": ids.call(&call.id), "type": "function",
                                    "function": { "name": call.name, "arguments": arguments } });
            let extra = &keep["extra_content"][place];
            if !extra.is_null() {
                value["extra_content"] = extra.clone();
            }
            value
        };
        message.insert(
            "tool_calls".into(),
            reply.calls.iter().enumerate().map(call).collect(),
        );
    }
    Value::Object(message)
}

/// The message for a tool result. Parts that are not text are added to `others`.
fn tool(result: &ToolResult, ids: &Names<'_>, others: &mut Vec<Part>) -> Value {
    others.extend(
        result
            .parts
            .iter()
            .filter(|part| !matches!(part, Part::Text(_)))
            .cloned(),
    );
    let text = plain_text(&result.parts);
    let text = if text.is_empty() {
        "(no output)"
    } else {
        &text
    };
    json!({ "role": "tool", "tool_call_id": ids.result(&result.call), "content": text })
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::message::ToolSpec;
    use crate::message::{Document, Image, Message, Part, Reply, ToolCall, ToolResult, User};
    use crate::provider::chat::Chat;
    use crate::provider::quirks::{Ids, NONE, Quirks, Temperature};
    use crate::provider::{Calls, Request, Sampling};
    use serde_json::{Value, json};

    fn user(text: &str) -> Message {
        Message::User(User {
            id: String::new(),
            parts: vec![Part::Text(text.into())],
            facts: "[now]".into(),
            injected: false,
        })
    }

    fn result(parts: Vec<Part>) -> Message {
        Message::Tool(ToolResult {
            call: "c".into(),
            name: "t".into(),
            parts,
            failed: false,
        })
    }

    fn body(messages: &[Message], quirks: &Quirks, calls: Calls<'_>) -> Value {
        let sampling = Sampling {
            max_tokens: 9,
            temperature: Some(0.5),
            reasoning_effort: None,
        };
        let tools = [ToolSpec {
            name: "t".into(),
            description: "d".into(),
            parameters: json!({ "type": "object" }),
        }];
        let request = Request {
            system: "s",
            messages,
            tools: &tools,
            calls,
            model: "m",
            sampling: &sampling,
            reply_id: "r",
            schema: None,
        };
        let format = Chat {
            quirks: *quirks,
            most: None,
        };
        Value::Object(of(&request, &format, true))
    }

    #[test]
    fn a_longer_conversation_begins_with_the_shorter_ones_bytes() {
        let call = ToolCall {
            id: "c".into(),
            name: "t".into(),
            arguments: json!({ "a": 1 }),
        };
        let mut messages = vec![
            user("hi"),
            Message::Assistant(Reply {
                calls: vec![call],
                ..Reply::default()
            }),
        ];
        messages.push(result(vec![Part::Text("out".into())]));
        messages.push(Message::Assistant(Reply {
            text: "done".into(),
            ..Reply::default()
        }));
        messages.push(user("more"));
        for end in [1, 3, 5] {
            let short = body(&messages[..end], &NONE, Calls::May).to_string();
            let long = body(&messages, &NONE, Calls::May).to_string();
            assert!(long.starts_with(short.strip_suffix("]}").unwrap()));
        }
    }

    #[test]
    fn neighbours_are_merged_and_images_follow_results() {
        let image = Part::Image(Image {
            media_type: "image/png",
            bytes: vec![1],
            name: "a".into(),
        });
        let sent = body(
            &[user("a"), user("b"), result(vec![image]), result(vec![])],
            &NONE,
            Calls::May,
        );
        let messages = sent["messages"].as_array().unwrap();
        assert_eq!(
            messages[1],
            json!({ "role": "user", "content": "a\n\n[now]\n\nb\n\n[now]" })
        );
        assert_eq!(messages[2]["content"], "[image: a]");
        assert_eq!(messages[3]["content"], "(no output)");
        let url =
            json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AQ==" } }]);
        assert_eq!(messages[4], json!({ "role": "user", "content": url }));
    }

    #[test]
    fn a_document_is_sent_as_a_file_before_the_text() {
        let document = Part::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let parts = vec![Part::Text("read".into()), document];
        let user = Message::User(User {
            parts,
            ..User::default()
        });
        let sent = body(&[user], &NONE, Calls::May);
        let file = json!({ "filename": "a.pdf", "file_data": "data:application/pdf;base64,AQ==" });
        let expect = json!([{ "type": "file", "file": file }, { "type": "text", "text": "read" }]);
        assert_eq!(sent["messages"][1]["content"], expect);
    }

    #[test]
    fn quirks_change_the_keys() {
        let plain = body(&[user("a")], &NONE, Calls::MayNot);
        assert_eq!(
            (
                &plain["max_tokens"],
                &plain["temperature"],
                &plain["tool_choice"]
            ),
            (&json!(9), &json!(0.5), &json!("none"))
        );
        let forced = body(&[user("a")], &NONE, Calls::Must("t"));
        assert_eq!(
            forced["tool_choice"],
            json!({ "type": "function", "function": { "name": "t" } })
        );
        let odd = Quirks {
            max_completion_tokens: true,
            temperature: Temperature::None,
            reasoning_back: true,
            no_stream_options: true,
            ids: Ids::Nine,
            ..NONE
        };
        let reply = Message::Assistant(Reply {
            text: "x".into(),
            reasoning: "why".into(),
            ..Reply::default()
        });
        let sent = body(&[user("a"), reply.clone()], &odd, Calls::May);
        assert_eq!(
            (&sent["max_completion_tokens"], &sent["max_tokens"]),
            (&json!(9), &Value::Null)
        );
        assert_eq!(sent["temperature"], Value::Null);
        assert_eq!(sent["messages"][2]["reasoning_content"], "why");
        assert_eq!(
            body(&[reply], &NONE, Calls::May)["messages"][1],
            json!({ "role": "assistant", "content": "x" })
        );
    }

    #[test]
    fn what_a_model_wants_back_is_no_other_models() {
        let check = |model: Value, expect: bool| {
            let keep = json!({ "reasoning_details": [1], "extra_content": [2] });
            let call = ToolCall {
                id: "c".into(),
                name: "t".into(),
                arguments: json!({}),
            };
            let reply = Reply {
                calls: vec![call],
                opaque: Some(json!({ "wire": "chat", "model": model, "keep": keep })),
                ..Reply::default()
            };
            let sent = body(&[Message::Assistant(reply)], &NONE, Calls::May)["messages"][1].clone();
            assert_eq!(sent["reasoning_details"] == json!([1]), expect);
            assert_eq!(sent["tool_calls"][0]["extra_content"] == 2, expect);
        };
        check(json!("m"), true);
        // The format of older sessions.
        check(Value::Null, true);
        check(json!("n"), false);
    }

    #[test]
    fn arguments_that_were_no_json_go_back_as_an_object() {
        let call = ToolCall {
            id: "c".into(),
            name: "t".into(),
            arguments: Value::String("{oops".into()),
        };
        let sent = body(
            &[Message::Assistant(Reply {
                calls: vec![call],
                ..Reply::default()
            })],
            &NONE,
            Calls::May,
        );
        let arguments = sent["messages"][1]["tool_calls"][0]["function"]["arguments"]
            .as_str()
            .unwrap();
        assert_eq!(arguments, "{\"malformed_arguments\":\"{oops\"}");
        assert_eq!(sent["messages"][1]["content"], Value::Null);
    }
}
