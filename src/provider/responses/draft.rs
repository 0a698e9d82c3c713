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
    /// The model that was asked: its reasoning is returned to it alone.
    asked: String,
    /// Each output item, by its place in the answer.
    items: Vec<(u64, Value)>,
    /// Text that was told, so that the whole text at its end is not told again.
    told: usize,
    /// Arguments of calls whose item was never completed.
    pieces: Vec<(u64, String)>,
    finish: Option<String>,
    usage: Usage,
    model: String,
    done: bool,
}

impl Draft {
    pub(super) fn new(request: &Request<'_>) -> Self {
        Self {
            id: request.reply_id.to_owned(),
            messages: request.messages.len(),
            asked: request.model.to_owned(),
            items: Vec::new(),
            told: 0,
            pieces: Vec::new(),
            finish: None,
            usage: Usage::default(),
            model: String::new(),
            done: false,
        }
    }

    fn place(&mut self, index: u64, item: &Value) {
        match self.items.iter_mut().find(|(other, _)| *other == index) {
            Some((_, before)) => *before = item.clone(),
            None => self.items.push((index, item.clone())),
        }
    }

    fn text(&mut self, text: &str, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        self.told += text.len();
        match text {
            "" => Ok(()),
            text => tell(Delta::Text(text)).map_err(Trouble::Listener),
        }
    }

    /// Whether the item at `index` is talk on the way, which models mark as such.
    fn is_commentary(&self, index: u64) -> bool {
        let item = self.items.iter().find(|(other, _)| *other == index);
        item.is_some_and(|(_, item)| is_commentary(item))
    }

    /// The response, as far as it has come, or all of it.
    fn response(&mut self, response: &Value) -> Result<(), Trouble> {
        if let Some(model) = response["model"].as_str() {
            model.clone_into(&mut self.model);
        }
        if response["usage"].is_object() {
            self.usage = usage(&response["usage"]);
        }
        if response["status"] == "failed" || response["error"].is_object() {
            return Err(Trouble::Server(json!({ "error": response["error"] })));
        }
        if let Some(reason) = response
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str)
        {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    /// The end: the whole response, from which what was missed is taken.
    fn complete(&mut self, response: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        self.response(response)?;
        self.done = true;
        let output = response["output"].as_array().map_or(&[][..], Vec::as_slice);
        for (index, item) in output.iter().enumerate() {
            let index = index as u64;
            let is_known = self
                .items
                .iter()
                .any(|(other, known)| *other == index && known["status"] != "in_progress");
            if !is_known {
                self.place(index, item);
            }
        }
        if self.told == 0 {
            let texts: Vec<String> = output
                .iter()
                .filter(|item| !is_commentary(item))
                .map(spoken)
                .collect();
            for text in texts {
                self.text(&text, tell)?;
            }
        }
        Ok(())
    }
}

impl reading::Draft for Draft {
    fn event(&mut self, event: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let index = event["output_index"].as_u64().unwrap_or(0);
        let delta = event["delta"].as_str().unwrap_or_default();
        let think = |tell: &mut Tell<'_>, text: &str| match text {
            "" => Ok(()),
            text => tell(Delta::Reasoning(text)).map_err(Trouble::Listener),
        };
        match event["type"].as_str() {
            Some("response.created" | "response.in_progress" | "response.queued") => {
                self.response(&event["response"])
            }
            Some("response.output_item.added" | "response.output_item.done") => {
                self.place(index, &event["item"]);
                Ok(())
            }
            Some("response.output_text.delta" | "response.refusal.delta")
                if self.is_commentary(index) =>
            {
                think(tell, delta)
            }
            Some("response.output_text.delta" | "response.refusal.delta") => self.text(delta, tell),
            Some("response.reasoning_summary_text.delta" | "response.reasoning_text.delta") => {
                think(tell, delta)
            }
            Some("response.function_call_arguments.delta") => {
                match self.pieces.iter_mut().find(|(other, _)| *other == index) {
                    Some((_, text)) => text.push_str(delta),
                    None => self.pieces.push((index, delta.to_owned())),
                }
                Ok(())
            }
            Some(
                "response.completed" | "response.incomplete" | "response.failed" | "response.done",
            ) => self.complete(&event["response"], tell),
            // A server that was asked for a stream and sends the answer whole, as an event.
            None if event["object"] == "response" => self.whole(event, tell),
            _ => Ok(()),
        }
    }

    fn whole(&mut self, answer: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        match answer["output"].is_array() {
            true => self.complete(answer, tell),
            false => {
                self.response(answer)?;
                Err(Trouble::Nonsense("an answer without output".into()))
            }
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn end(&mut self, _: &mut Tell<'_>) -> Result<(), Trouble> {
        match (self.done, self.items.is_empty() && self.model.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => Err(Trouble::Nonsense("an answer without output".into())),
            (false, false) => Err(Trouble::Cut("the stream ended early".into())),
        }
    }

    fn reply(self: Box<Self>) -> Result<Reply, Trouble> {
        let mut reply = Reply {
            id: self.id,
            usage: self.usage,
            model: self.model,
            ..Reply::default()
        };
        let mut items = self.items;
        items.sort_by_key(|(index, _)| *index);
        let mut keep = Vec::new();
        let mut keeps = false;
        let mut refused = false;
        for (number, (index, item)) in items.into_iter().enumerate() {
            match item["type"].as_str() {
                Some("message") if is_commentary(&item) => {
                    let text = spoken(&item);
                    reply.reasoning.push_str(&text);
                    keeps = true;
                    keep.push(json!({ "type": "message", "role": "assistant", "phase": "commentary",
                                      "content": [{ "type": "output_text", "text": text, "annotations": [] }] }));
                }
                Some("message") => {
                    let text = spoken(&item);
                    refused |= has_refusal(&item);
                    keep.push(json!({ "type": "message", "length": text.len() }));
                    reply.text.push_str(&text);
                }
                Some("function_call") => {
                    let name = item["name"].as_str().unwrap_or_default();
                    if name.is_empty() {
                        return Err(Trouble::Nonsense("a tool call without a name".into()));
                    }
                    keep.push(json!({ "type": "function_call" }));
                    let id = item["call_id"].as_str().unwrap_or_default();
                    let is_taken = reply.calls.iter().any(|call| call.id == id);
                    let id = match id {
                        id if id.is_empty() || is_taken => {
                            format!("call_{}_{number}", self.messages)
                        }
                        id => id.to_owned(),
                    };
                    let pieces = self.pieces.iter().find(|(other, _)| *other == index);
                    let arguments =
                        arguments(&item["arguments"], pieces.map_or("", |(_, text)| text));
                    reply.calls.push(ToolCall {
                        id,
                        name: name.to_owned(),
                        arguments,
                    });
                }
                Some("reasoning") => {
                    reply.reasoning.push_str(&summary(&item));
                    // What was not encrypted is of no use to a server that stores nothing.
                    if item["encrypted_content"].is_string() {
                        keeps = true;
                        keep.push(returned(&item));
                    }
                }
                _ => {}
            }
        }
        reply.finish = match self.finish.as_deref() {
            Some("max_output_tokens") => Finish::Length,
            Some("content_filter") => Finish::Refusal,
            _ if refused => Finish::Refusal,
            _ if !reply.calls.is_empty() => Finish::Calls,
            None => Finish::Stop,
            Some(other) => Finish::Other(other.to_owned()),
        };
        reply.opaque = keeps.then(|| json!({ "wire": WIRE, "model": self.asked, "keep": keep }));
        Ok(reply)
    }
}

fn is_commentary(item: &Value) -> bool {
    item["phase"] == "commentary"
}

fn parts(item: &Value) -> impl Iterator<Item = &Value> {
    item["content"].as_array().into_iter().flatten()
}

/// The text of a message item, a refusal's words included.
fn spoken(item: &Value) -> String {
    let words = |part: &Value| {
        part["text"]
            .as_str()
            .or_else(|| part["refusal"].as_str())
            .map(str::to_owned)
    };
    match item["type"].as_str() {
        Some("message") => parts(item).filter_map(words).collect(),
        _ => String::new(),
    }
}

fn has_refusal(item: &Value) -> bool {
    parts(item).any(|part| part["type"] == "refusal")
}

/// What of its reasoning can be read.
fn summary(item: &Value) -> String {
    let summaries = item["summary"].as_array().into_iter().flatten();
    let texts: Vec<&str> = summaries
        .chain(parts(item))
        .filter_map(|part| part["text"].as_str())
        .collect();
    texts.join("\n\n")
}

/// A reasoning item as it may be sent again.
fn returned(item: &Value) -> Value {
    let mut kept = Map::new();
    for key in ["type", "id", "summary", "content", "encrypted_content"] {
        if let Some(value) = item.get(key).filter(|value| !value.is_null()) {
            kept.insert(key.into(), value.clone());
        }
    }
    kept.entry("summary").or_insert_with(|| json!([]));
    kept.into()
}

fn arguments(whole: &Value, pieces: &str) -> Value {
    let text = match whole {
        Value::String(text) if !text.trim().is_empty() => text,
        Value::Object(_) => return whole.clone(),
        _ => pieces,
    };
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match parse(text) {
        Some(object @ Value::Object(_)) => object,
        _ => Value::String(text.to_owned()),
    }
}

fn usage(value: &Value) -> Usage {
    let number = |place: &str| value.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        input: number("/input_tokens"),
        cached: number("/input_tokens_details/cached_tokens"),
        cache_write: number("/input_tokens_details/cache_write_tokens"),
        output: number("/output_tokens"),
        reasoning: number("/output_tokens_details/reasoning_tokens"),
        estimated: false,
    }
}
