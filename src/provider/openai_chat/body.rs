//! What is sent. The keys have a fixed order with `messages` last, and nothing that was sent once changes: so each
//! request of a conversation begins with the bytes of the one before, and providers' caches hit.

use crate::message::{Message, Part, Reply, ToolCall, ToolResult, User, plain_text};
use crate::provider::Request;
use base64::Engine;
use serde_json::{Map, Value, json};

/// What a server, or a model, wants otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// The limit is called `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// The temperature is the model's own; one of ours is refused.
    pub no_temperature: bool,
    /// Reasoning goes back with the messages it belongs to.
    pub reasoning_back: bool,
}

/// The body of `request`.
pub(super) fn of(request: &Request<'_>, quirks: &Quirks, stream: bool) -> Value {
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.into(), value));
    put("model", request.model.into());
    let limit = if quirks.max_completion_tokens {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    put(limit, request.sampling.max_tokens.into());
    if let Some(temperature) = request
        .sampling
        .temperature
        .filter(|_| !quirks.no_temperature)
    {
        put("temperature", temperature.into());
    }
    if let Some(effort) = &request.sampling.reasoning_effort {
        put("reasoning_effort", effort.as_str().into());
    }
    if stream {
        put("stream", true.into());
        put("stream_options", json!({ "include_usage": true }));
    }
    if !request.tools.is_empty() {
        let function = |spec: &crate::provider::ToolSpec| json!({ "name": spec.name, "description": spec.description, "parameters": spec.parameters });
        let tools = request
            .tools
            .iter()
            .map(|spec| json!({ "type": "function", "function": function(spec) }));
        put("tools", tools.collect());
        put(
            "tool_choice",
            if request.may_call { "auto" } else { "none" }.into(),
        );
    }
    put("messages", messages(request, quirks).into());
    Value::Object(body)
}

fn messages(request: &Request<'_>, quirks: &Quirks) -> Vec<Value> {
    let mut list = vec![json!({ "role": "system", "content": request.system })];
    let mut rest = request.messages;
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        match message {
            Message::Assistant(reply) => list.push(assistant(reply, quirks)),
            Message::User(user) => {
                // Strict servers refuse two user messages in a row, as an interrupted turn leaves them.
                let more = rest
                    .iter()
                    .take_while(|next| matches!(next, Message::User(_)))
                    .count();
                let mut parts = said(user);
                for next in &rest[..more] {
                    if let Message::User(user) = next {
                        parts.extend(said(user));
                    }
                }
                rest = &rest[more..];
                list.push(json!({ "role": "user", "content": content(&parts) }));
            }
            Message::Tool(first) => {
                let more = rest
                    .iter()
                    .take_while(|next| matches!(next, Message::Tool(_)))
                    .count();
                let mut images = Vec::new();
                list.push(tool(first, &mut images));
                for next in &rest[..more] {
                    if let Message::Tool(result) = next {
                        list.push(tool(result, &mut images));
                    }
                }
                rest = &rest[more..];
                // A tool message holds text only; its images follow as the user's.
                if !images.is_empty() {
                    list.push(json!({ "role": "user", "content": content(&images) }));
                }
            }
        }
    }
    list
}

/// The parts of a user message, the facts of its moment last.
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

/// Parts as text, where they are only text, else as a list with the images first.
fn content(parts: &[Part]) -> Value {
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        let texts: Vec<&str> = parts
            .iter()
            .filter_map(|part| {
                if let Part::Text(text) = part {
                    Some(text.as_str())
                } else {
                    None
                }
            })
            .collect();
        return texts.join("\n\n").into();
    }
    let value = |part: &Part| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image(image) => {
            let data = base64::engine::general_purpose::STANDARD.encode(&image.bytes);
            let url = format!("data:{};base64,{data}", image.media_type);
            json!({ "type": "image_url", "image_url": { "url": url } })
        }
    };
    let (images, texts): (Vec<&Part>, Vec<&Part>) = parts
        .iter()
        .partition(|part| matches!(part, Part::Image(_)));
    images.into_iter().chain(texts).map(value).collect()
}

fn assistant(reply: &Reply, quirks: &Quirks) -> Value {
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
    if quirks.reasoning_back && !reply.reasoning.is_empty() {
        message.insert("reasoning_content".into(), reply.reasoning.as_str().into());
    }
    if !reply.calls.is_empty() {
        let call = |call: &ToolCall| {
            let arguments = call.arguments_object().to_string();
            json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
        };
        message.insert("tool_calls".into(), reply.calls.iter().map(call).collect());
    }
    Value::Object(message)
}

/// The message of a result; its images are added to `images`.
fn tool(result: &ToolResult, images: &mut Vec<Part>) -> Value {
    images.extend(
        result
            .parts
            .iter()
            .filter(|part| matches!(part, Part::Image(_)))
            .cloned(),
    );
    let text = plain_text(&result.parts);
    let text = if text.is_empty() {
        "(no output)"
    } else {
        &text
    };
    json!({ "role": "tool", "tool_call_id": result.call, "content": text })
}

#[cfg(test)]
mod tests {
    use super::{Quirks, of};
    use crate::message::{Image, Message, Part, Reply, ToolCall, ToolResult, User};
    use crate::provider::{Request, Sampling, ToolSpec};
    use serde_json::{Value, json};

    fn user(text: &str) -> Message {
        Message::User(User {
            id: String::new(),
            parts: vec![Part::Text(text.into())],
            facts: "[now]".into(),
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

    fn body(messages: &[Message], quirks: &Quirks, may_call: bool) -> Value {
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
            may_call,
            model: "m",
            sampling: &sampling,
            reply_id: "r",
        };
        of(&request, quirks, true)
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
            let short = body(&messages[..end], &Quirks::default(), true).to_string();
            let long = body(&messages, &Quirks::default(), true).to_string();
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
            &Quirks::default(),
            true,
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
    fn quirks_change_the_keys() {
        let plain = body(&[user("a")], &Quirks::default(), false);
        assert_eq!(
            (
                &plain["max_tokens"],
                &plain["temperature"],
                &plain["tool_choice"]
            ),
            (&json!(9), &json!(0.5), &json!("none"))
        );
        let odd = Quirks {
            max_completion_tokens: true,
            no_temperature: true,
            reasoning_back: true,
        };
        let reply = Message::Assistant(Reply {
            text: "x".into(),
            reasoning: "why".into(),
            ..Reply::default()
        });
        let sent = body(&[user("a"), reply.clone()], &odd, true);
        assert_eq!(
            (&sent["max_completion_tokens"], &sent["max_tokens"]),
            (&json!(9), &Value::Null)
        );
        assert_eq!(sent["temperature"], Value::Null);
        assert_eq!(sent["messages"][2]["reasoning_content"], "why");
        assert_eq!(
            body(&[reply], &Quirks::default(), true)["messages"][1],
            json!({ "role": "assistant", "content": "x" })
        );
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
            &Quirks::default(),
            true,
        );
        let arguments = sent["messages"][1]["tool_calls"][0]["function"]["arguments"]
            .as_str()
            .unwrap();
        assert_eq!(arguments, "{\"malformed_arguments\":\"{oops\"}");
        assert_eq!(sent["messages"][1]["content"], Value::Null);
    }
}
