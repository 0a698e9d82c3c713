//! A reply that is being put together from the events of a stream, or from one whole answer. Pure.

use super::WIRE;
use crate::message::json::parse;
use crate::message::{Finish, Reply, ToolCall, Usage};
use crate::provider::reading::{self, Trouble};
use crate::provider::{Delta, Request, Tell};
use serde_json::{Map, Value, json};

/// The reply, as far as it is known.
pub(super) struct Draft {
    id: String,
    /// How many messages the conversation had: made ids are counted from there, so that they stay unique.
    messages: usize,
    /// The model that was asked: what it signs is returned to it alone.
    asked: String,
    /// Each content block, by its place in the answer.
    blocks: Vec<(u64, Block)>,
    finish: Option<String>,
    usage: Usage,
    model: String,
    begun: bool,
    done: bool,
}

/// A content block that is being put together.
enum Block {
    Text(String),
    Call {
        id: String,
        name: String,
        input: Value,
        json: String,
    },
    /// Thinking in the clear, with its signature.
    Thinking {
        text: String,
        signature: String,
    },
    /// Whatever else it sends goes back as it came.
    Other(Value),
}

impl Draft {
    pub(super) fn new(request: &Request<'_>) -> Self {
        Self {
            id: request.reply_id.to_owned(),
            messages: request.messages.len(),
            asked: request.model.to_owned(),
            blocks: Vec::new(),
            finish: None,
            usage: Usage::default(),
            model: String::new(),
            begun: false,
            done: false,
        }
    }

    /// The head of an answer: its model, and what is known of its cost.
    fn message(&mut self, message: &Value) {
        self.begun = true;
        if let Some(model) = message["model"].as_str() {
            model.clone_into(&mut self.model);
        }
        self.usage(&message["usage"]);
        self.stop(message);
    }

    fn stop(&mut self, holder: &Value) {
        if let Some(reason) = holder["stop_reason"].as_str() {
            self.finish = Some(reason.to_owned());
        }
    }

    /// Numbers are totals and come more than once; the last ones count.
    fn usage(&mut self, usage: &Value) {
        let number = |key: &str| usage[key].as_u64();
        if let Some(input) = number("input_tokens") {
            let cached = number("cache_read_input_tokens").unwrap_or(0);
            let cache_write = number("cache_creation_input_tokens").unwrap_or(0);
            // A later event may leave out what the first one told.
            let before = &mut self.usage;
            before.cached = cached.max(before.cached);
            before.cache_write = cache_write.max(before.cache_write);
            before.input = before.input.max(input + before.cached + before.cache_write);
        }
        if let Some(output) = number("output_tokens") {
            self.usage.output = output;
        }
        if let Some(thinking) = usage
            .pointer("/output_tokens_details/thinking_tokens")
            .and_then(Value::as_u64)
        {
            self.usage.reasoning = thinking;
        }
    }

    fn begin(&mut self, index: u64, block: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        self.begun = true;
        let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        let new = match block["type"].as_str() {
            Some("text") => Block::Text(text("text")),
            Some("tool_use") => Block::Call {
                id: text("id"),
                name: text("name"),
                input: block["input"].clone(),
                json: String::new(),
            },
            Some("thinking") => Block::Thinking {
                text: text("thinking"),
                signature: text("signature"),
            },
            _ => Block::Other(block.clone()),
        };
        let said = match &new {
            Block::Text(words) => Delta::Text(words),
            Block::Thinking { text, .. } => Delta::Reasoning(text),
            _ => Delta::Text(""),
        };
        told(said, tell)?;
        self.blocks.retain(|(other, _)| *other != index);
        self.blocks.push((index, new));
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let text = |key: &str| delta[key].as_str().unwrap_or_default();
        if !self.blocks.iter().any(|(other, _)| *other == index) {
            // A block that was never opened: what it is shows in what it says.
            let kind = match delta["type"].as_str() {
                Some("text_delta") => "text",
                Some("thinking_delta" | "signature_delta") => "thinking",
                _ => return Ok(()),
            };
            self.begin(index, &json!({ "type": kind }), tell)?;
        }
        let Some((_, block)) = self.blocks.iter_mut().find(|(other, _)| *other == index) else {
            return Ok(());
        };
        match (delta["type"].as_str(), block) {
            (Some("text_delta"), Block::Text(words)) => {
                words.push_str(text("text"));
                told(Delta::Text(text("text")), tell)
            }
            (Some("thinking_delta"), Block::Thinking { text: words, .. }) => {
                words.push_str(text("thinking"));
                told(Delta::Reasoning(text("thinking")), tell)
            }
            (Some("signature_delta"), Block::Thinking { signature, .. }) => {
                signature.push_str(text("signature"));
                Ok(())
            }
            (Some("input_json_delta"), Block::Call { json, .. }) => {
                json.push_str(text("partial_json"));
                Ok(())
            }
            // Citations, and what is yet to come.
            _ => Ok(()),
        }
    }
}

fn told(delta: Delta<'_>, tell: &mut Tell<'_>) -> Result<(), Trouble> {
    match delta {
        Delta::Text("") | Delta::Reasoning("") => Ok(()),
        delta => tell(delta).map_err(Trouble::Listener),
    }
}

impl reading::Draft for Draft {
    fn event(&mut self, event: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let index = event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str() {
            Some("message_start") => self.message(&event["message"]),
            Some("content_block_start") => self.begin(index, &event["content_block"], tell)?,
            Some("content_block_delta") => self.delta(index, &event["delta"], tell)?,
            Some("message_delta") => {
                self.stop(&event["delta"]);
                self.usage(&event["usage"]);
            }
            Some("message_stop") => self.done = true,
            // A server that was asked for a stream and sends the answer whole, as an event.
            Some("message") => return self.whole(event, tell),
            // Pings, ends of blocks, and kinds that are yet to come.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, answer: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let Some(blocks) = answer["content"].as_array() else {
            return Err(Trouble::Nonsense("an answer without content".into()));
        };
        self.message(answer);
        for (number, block) in blocks.iter().enumerate() {
            self.begin(number as u64, block, tell)?;
        }
        self.done = true;
        Ok(())
    }

    fn close(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn end(&mut self, _: &mut Tell<'_>) -> Result<(), Trouble> {
        if !self.begun {
            return Err(Trouble::Nonsense("an answer without content".into()));
        }
        match self.finish.is_none() && !self.done {
            true => Err(Trouble::Cut("the stream ended early".into())),
            false => Ok(()),
        }
    }

    fn reply(self: Box<Self>) -> Result<Reply, Trouble> {
        let mut reply = Reply {
            id: self.id,
            usage: self.usage,
            model: self.model,
            ..Reply::default()
        };
        let mut keep = Vec::new();
        let mut keeps = false;
        let mut blocks = self.blocks;
        blocks.sort_by_key(|(index, _)| *index);
        for (number, (_, block)) in blocks.into_iter().enumerate() {
            match block {
                Block::Text(words) => {
                    keep.push(json!({ "type": "text", "length": words.len() }));
                    reply.text.push_str(&words);
                }
                Block::Call {
                    id,
                    name,
                    input,
                    json,
                } => {
                    if name.is_empty() {
                        return Err(Trouble::Nonsense("a tool call without a name".into()));
                    }
                    keep.push(json!({ "type": "tool_use" }));
                    let is_taken = |id: &str| reply.calls.iter().any(|call| call.id == id);
                    let id = match id {
                        id if id.is_empty() || is_taken(&id) => {
                            format!("call_{}_{number}", self.messages)
                        }
                        id => id,
                    };
                    let arguments = arguments(input, &json);
                    reply.calls.push(ToolCall {
                        id,
                        name,
                        arguments,
                    });
                }
                Block::Thinking { text, signature } => {
                    reply.reasoning.push_str(&text);
                    // Without its signature it would be refused.
                    if !signature.is_empty() {
                        keeps = true;
                        keep.push(
                            json!({ "type": "thinking", "thinking": text, "signature": signature }),
                        );
                    }
                }
                Block::Other(block) => {
                    keeps |= block["type"] == "redacted_thinking";
                    if block["type"] == "redacted_thinking" {
                        keep.push(block);
                    }
                }
            }
        }
        reply.finish = match self.finish.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
            Some("refusal") => Finish::Refusal,
            _ if !reply.calls.is_empty() => Finish::Calls,
            None | Some("end_turn" | "stop_sequence" | "tool_use") => Finish::Stop,
            Some(other) => Finish::Other(other.to_owned()),
        };
        reply.opaque = keeps.then(|| json!({ "wire": WIRE, "model": self.asked, "keep": keep }));
        Ok(reply)
    }
}

/// The input of a call: the pieces where there are any, else what came with its beginning.
fn arguments(input: Value, json: &str) -> Value {
    if json.trim().is_empty() {
        return match input {
            Value::Null => Value::Object(Map::new()),
            Value::String(text) => parse(&text).unwrap_or(Value::String(text)),
            input => input,
        };
    }
    match parse(json) {
        Some(object @ Value::Object(_)) => object,
        _ => Value::String(json.to_owned()),
    }
}
