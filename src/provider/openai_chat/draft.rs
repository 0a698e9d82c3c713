//! A reply that is being put together from the chunks of a stream, or from one whole answer. Pure.

use super::reading::Trouble;
use crate::message::json::parse;
use crate::message::{Finish, Reply, ToolCall, Usage};
use crate::provider::think::{Piece, Splitter};
use crate::provider::{Delta, Request, Tell};
use serde_json::Value;

/// The reply, as far as it is known.
pub(super) struct Draft {
    id: String,
    /// How many messages the conversation had: made ids are counted from there, so that they stay unique.
    messages: usize,
    splitter: Splitter,
    text: String,
    reasoning: String,
    calls: Vec<Part>,
    finish: Option<String>,
    refused: bool,
    usage: Usage,
    model: String,
    /// Any choice was seen.
    choices: bool,
    pub(super) done: bool,
}

/// A tool call that is being put together.
struct Part {
    index: Option<u64>,
    id: String,
    name: String,
    text: String,
    /// Arguments that came as an object, as they should not.
    object: Option<Value>,
}

impl Draft {
    pub(super) fn new(request: &Request<'_>) -> Self {
        Self {
            id: request.reply_id.to_owned(),
            messages: request.messages.len(),
            splitter: Splitter::default(),
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            finish: None,
            refused: false,
            usage: Usage::default(),
            model: String::new(),
            choices: false,
            done: false,
        }
    }

    pub(super) fn event(&mut self, data: &str, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let data = data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        let object = parse(data)
            .ok_or_else(|| Trouble::Nonsense(format!("an event that is no JSON: {data}")))?;
        self.object(&object, tell)
    }

    /// A chunk of a stream, or a whole answer.
    pub(super) fn object(&mut self, object: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        if object.get("error").is_some_and(|error| !error.is_null()) || object["object"] == "error"
        {
            return Err(Trouble::Server(object.clone()));
        }
        if let Some(model) = object["model"].as_str().filter(|model| !model.is_empty()) {
            model.clone_into(&mut self.model);
        }
        if object["usage"].is_object() {
            self.usage = usage(&object["usage"]);
        }
        let Some(choice) = object["choices"]
            .as_array()
            .and_then(|choices| choices.first())
        else {
            return Ok(());
        };
        self.choices = true;
        let message = if choice["delta"].is_object() {
            &choice["delta"]
        } else {
            &choice["message"]
        };
        self.message(message, tell)?;
        if let Some(reason) = choice["finish_reason"]
            .as_str()
            .filter(|reason| !reason.is_empty())
        {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn message(&mut self, message: &Value, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let thought = ["reasoning_content", "reasoning"]
            .iter()
            .find_map(|key| message[*key].as_str());
        if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
            self.think(thought, tell)?;
        }
        let text = spoken(&message["content"], &mut |thought| {
            self.think(thought, tell)
        })?;
        for piece in self.splitter.feed(&text) {
            self.piece(&piece, tell)?;
        }
        if let Some(refusal) = message["refusal"]
            .as_str()
            .filter(|refusal| !refusal.is_empty())
        {
            self.refused = true;
            self.piece(&Piece::Text(refusal.to_owned()), tell)?;
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
        }
        if message["function_call"].is_object() {
            let function = &message["function_call"];
            self.call(&serde_json::json!({ "index": 0, "function": function }));
        }
        Ok(())
    }

    /// A fragment of a tool call. It belongs to the call of its index; without one to the call of its id; without
    /// either to the last call, unless it names a tool: then it begins a new one.
    fn call(&mut self, fragment: &Value) {
        let index = fragment["index"].as_u64();
        let id = fragment["id"].as_str().unwrap_or_default();
        let function = &fragment["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let place = match index {
            Some(_) => self
                .calls
                .iter()
                .rposition(|call| call.index == index && !is_another(call, id, name)),
            None if !id.is_empty() => self.calls.iter().position(|call| call.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        let place = place.unwrap_or_else(|| {
            self.calls.push(Part {
                index,
                id: String::new(),
                name: String::new(),
                text: String::new(),
                object: None,
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[place];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Some servers repeat the whole name with every fragment, others send it in pieces.
        if !name.is_empty() && call.name != name {
            call.name.push_str(name);
        }
        match &function["arguments"] {
            Value::String(text) => call.text.push_str(text),
            Value::Null => {}
            object => call.object = Some(object.clone()),
        }
    }

    fn think(&mut self, thought: &str, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        self.piece(&Piece::Thought(thought.to_owned()), tell)
    }

    fn piece(&mut self, piece: &Piece, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let (kept, words) = match piece {
            Piece::Text(words) => (&mut self.text, words),
            Piece::Thought(words) => (&mut self.reasoning, words),
        };
        if words.is_empty() {
            return Ok(());
        }
        kept.push_str(words);
        let delta = match piece {
            Piece::Text(words) => Delta::Text(words),
            Piece::Thought(words) => Delta::Reasoning(words),
        };
        tell(delta).map_err(Trouble::Listener)
    }

    /// All has come: what was held back is told, and what is missing is noticed.
    pub(super) fn end(&mut self, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        for piece in self.splitter.finish() {
            self.piece(&piece, tell)?;
        }
        if !self.choices {
            return Err(Trouble::Nonsense("an answer without choices".into()));
        }
        // A server that sends neither a finish reason nor the closing mark has broken off.
        if self.finish.is_none() && !self.done {
            return Err(Trouble::Cut("the stream ended early".into()));
        }
        Ok(())
    }

    pub(super) fn reply(self) -> Result<Reply, Trouble> {
        let Self {
            id,
            messages,
            text,
            reasoning,
            calls,
            finish,
            refused,
            usage,
            model,
            ..
        } = self;
        let mut taken: Vec<String> = Vec::new();
        let mut made = Vec::new();
        for (number, part) in calls.into_iter().enumerate() {
            if part.name.is_empty() {
                return Err(Trouble::Nonsense("a tool call without a name".into()));
            }
            // An id that is missing, or that stands twice, would tie a result to the wrong call.
            let id = match part.id {
                id if id.is_empty() || taken.contains(&id) => format!("call_{messages}_{number}"),
                id => id,
            };
            taken.push(id.clone());
            made.push(ToolCall {
                id,
                name: part.name,
                arguments: arguments(part.object, &part.text),
            });
        }
        let finish = match finish.as_deref() {
            Some("length" | "max_tokens" | "model_length") => Finish::Length,
            Some("content_filter") => Finish::Refusal,
            _ if refused => Finish::Refusal,
            _ if !made.is_empty() => Finish::Calls,
            None | Some("stop" | "eos" | "end_turn" | "tool_calls" | "function_call") => {
                Finish::Stop
            }
            Some(other) => Finish::Other(other.to_owned()),
        };
        Ok(Reply {
            id,
            text,
            reasoning,
            calls: made,
            finish,
            usage,
            model,
            opaque: None,
        })
    }
}

/// Whether a fragment with a call's index belongs to another call all the same: some servers number every call 0.
fn is_another(call: &Part, id: &str, name: &str) -> bool {
    !id.is_empty() && !call.id.is_empty() && call.id != id && !name.is_empty()
}

/// Content as text: a string, or parts, of which thinking ones are told to `think`.
fn spoken(
    content: &Value,
    think: &mut dyn FnMut(&str) -> Result<(), Trouble>,
) -> Result<String, Trouble> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Ok(String::new()),
    };
    let mut text = String::new();
    for part in parts {
        match (part, part["type"].as_str()) {
            (Value::String(words), _) => text.push_str(words),
            (_, Some("thinking" | "reasoning")) => {
                let inner = if part["thinking"].is_null() {
                    &part["text"]
                } else {
                    &part["thinking"]
                };
                think(&spoken(inner, &mut |_| Ok(()))?)?;
            }
            _ => text.push_str(part["text"].as_str().unwrap_or_default()),
        }
    }
    Ok(text)
}

/// Arguments as an object; text that is none stays text, so that the model can be told.
fn arguments(object: Option<Value>, text: &str) -> Value {
    match object {
        Some(object) => object,
        None if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        None => match parse(text) {
            Some(object @ Value::Object(_)) => object,
            // Arguments that were encoded twice.
            Some(Value::String(inner)) if inner.trim_start().starts_with('{') => {
                parse(&inner).unwrap_or_else(|| Value::String(text.to_owned()))
            }
            _ => Value::String(text.to_owned()),
        },
    }
}

fn usage(value: &Value) -> Usage {
    let number = |places: &[&str]| {
        places
            .iter()
            .find_map(|place| value.pointer(place)?.as_u64())
            .unwrap_or(0)
    };
    Usage {
        input: number(&["/prompt_tokens", "/input_tokens"]),
        cached: number(&[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cached_tokens",
        ]),
        output: number(&["/completion_tokens", "/output_tokens"]),
        reasoning: number(&[
            "/completion_tokens_details/reasoning_tokens",
            "/reasoning_tokens",
        ]),
    }
}
