//! Assembles a reply from the chunks of a stream, or from one complete response. No I/O.

use super::ChatFormat;
use super::reasoning::{REASONING, REASONING_CONTENT, THINKING_CHUNK};
use crate::provider::reply_draft::ReplyDraft;
use crate::provider::response::{arguments_from_value, parse_arguments, parse_tokens};
use crate::provider::text_event::{self, Object};
use crate::provider::think_tags::{TextSegment, ThinkTagSplitter};
use crate::provider::wire_format::{ReplyBuilder, ReplyError, ReplyResult};
use crate::provider::{DeltaSink, Request};
use crate::text_form::Text;
use nanobot_base::message::{Reply, ToolCall, Usage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// The reply so far.
#[derive(Default)]
pub(super) struct ChatReplyBuilder {
    draft: ReplyDraft,
    splitter: ThinkTagSplitter,
    calls: Vec<PartialToolCall>,
    /// True if this server reports costs in US dollars.
    reports_cost: bool,
    /// The location of the reasoning, at which it is sent back.
    reasoning_location: Option<&'static str>,
    /// The signature of a thinking chunk.
    signature: Value,
    /// Pieces of structured reasoning that must be sent back unchanged.
    reasoning_details: Vec<Value>,
    /// True once any choice has arrived.
    has_choices: bool,
}

/// A chunk that only adds text. If one of its unused fields is present, the whole chunk is read instead.
#[derive(Deserialize)]
struct TextChunk<'a> {
    #[serde(borrow)]
    object: Option<Text<'a>>,
    r#type: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
    #[serde(borrow)]
    model: Option<Text<'a>>,
    usage: Option<IgnoredAny>,
    #[serde(borrow)]
    choices: [Object<TextChoice<'a>>; 1],
}

#[derive(Deserialize)]
struct TextChoice<'a> {
    #[serde(borrow)]
    delta: Object<ChatTextDelta<'a>>,
    error: Option<IgnoredAny>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ChatTextDelta<'a> {
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    content: Option<Text<'a>>,
    refusal: Option<IgnoredAny>,
    reasoning_details: Option<IgnoredAny>,
    tool_calls: Option<IgnoredAny>,
    function_call: Option<IgnoredAny>,
}

impl TextChunk<'_> {
    /// True if the chunk has other content than its text.
    fn has_more(&self) -> bool {
        let Self { object, r#type, error, usage, model: _, choices: [Object(choice)] } = self;
        let Object(ChatTextDelta { refusal, reasoning_details, tool_calls, function_call, .. }) =
            &choice.delta;
        let others = [r#type, error, usage, &choice.error, &choice.finish_reason];
        let deltas = [refusal, reasoning_details, tool_calls, function_call];
        text_event::as_str(object) == "error"
            || others.into_iter().chain(deltas).any(Option::is_some)
    }
}

/// A tool call under construction.
#[derive(Default)]
struct PartialToolCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments_text: String,
    /// Arguments that arrived as an object, against the specification.
    arguments_object: Option<Value>,
    /// Data that the server requires back with the call, such as Gemini's thought signature.
    extra: Value,
}

impl ChatReplyBuilder {
    /// A builder of the reply to `request`.
    pub(super) fn new(request: &Request<'_>, format: &ChatFormat) -> Self {
        Self {
            draft: ReplyDraft::new(request, format.reply_source(request.model)),
            reports_cost: format.quirks.reports_cost,
            ..Self::default()
        }
    }

    /// Processes a chunk of a stream, or a complete response.
    fn add_chunk(&mut self, object: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        self.draft.set_model(object["model"].as_str().unwrap_or_default());
        if object["usage"].is_object() {
            let reply = &mut self.draft.reply;
            reply.usage = parse_usage(&object["usage"]);
            reply.cost = self.reports_cost.then(|| reported_cost(&object["usage"])).flatten();
        }
        let Some(choice) = object["choices"].as_array().and_then(|choices| choices.first()) else {
            return Ok(());
        };
        self.has_choices = true;
        // OpenRouter reports a failure of the model's own server here.
        if !choice["error"].is_null() {
            return Err(ReplyError::Server(json!({ "error": choice["error"] })));
        }
        let message =
            if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        self.add_message(message, on_delta)?;
        // Qwen's servers send the text `null` before the end.
        if let Some(reason) = choice["finish_reason"].as_str()
            && !matches!(reason, "" | "null")
        {
            self.draft.finish_reason = Some(reason.to_owned());
        }
        Ok(())
    }

    fn add_message(&mut self, message: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let field = |key: &str| message[key].as_str().unwrap_or_default();
        self.add_reasoning(field(REASONING), field(REASONING_CONTENT), on_delta)?;
        let text = content_text(&message["content"], &mut |chunk| {
            self.add_thinking_chunk(chunk, on_delta)
        })?;
        self.add_text(&text, on_delta)?;
        if let Some(refusal) = message["refusal"].as_str().filter(|refusal| !refusal.is_empty()) {
            self.draft.is_refusal = true;
            self.draft.add(TextSegment::Text(refusal), on_delta)?;
        }
        for detail in message["reasoning_details"].as_array().into_iter().flatten() {
            self.add_reasoning_detail(detail);
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.add_call_fragment(call);
        }
        if message["function_call"].is_object() {
            let function = &message["function_call"];
            self.add_call_fragment(&json!({ "index": 0, "function": function }));
        }
        Ok(())
    }

    /// Processes a fragment of a tool call. It belongs to the call with its index; without an index to the call with
    /// its id; without either to the last call, unless it names a tool and thus starts a new call.
    fn add_call_fragment(&mut self, fragment: &Value) {
        let index = fragment["index"].as_u64();
        let id = fragment["id"].as_str().unwrap_or_default();
        let function = &fragment["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let position = match index {
            Some(_) => self
                .calls
                .iter()
                .rposition(|call| call.index == index && !starts_new_call(call, id, name)),
            None if !id.is_empty() => self.calls.iter().position(|call| call.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        let position = position.unwrap_or_else(|| {
            self.calls.push(PartialToolCall { index, ..PartialToolCall::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[position];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Some servers repeat the whole name in every fragment, others send it in pieces.
        if !name.is_empty() && call.name != name {
            call.name.push_str(name);
        }
        match &function["arguments"] {
            Value::String(text) => call.arguments_text.push_str(text),
            Value::Null => {}
            object => call.arguments_object = Some(object.clone()),
        }
        if !fragment["extra_content"].is_null() {
            call.extra = fragment["extra_content"].clone();
        }
    }

    /// Adds a piece of reasoning, appending it to the last piece if it continues that piece.
    fn add_reasoning_detail(&mut self, detail: &Value) {
        let continues = |last: &&mut Value| {
            last["type"] == detail["type"]
                && last["index"] == detail["index"]
                && !detail["index"].is_null()
        };
        let (Some(last), Some(new)) =
            (self.reasoning_details.last_mut().filter(continues), detail.as_object())
        else {
            self.reasoning_details.push(detail.clone());
            return;
        };
        for (key, value) in new {
            match (&mut last[key], value) {
                (Value::String(text), Value::String(more))
                    if matches!(key.as_str(), "text" | "summary" | "data") =>
                {
                    text.push_str(more);
                }
                (field, value) if !value.is_null() => *field = value.clone(),
                _ => {}
            }
        }
    }

    /// Adds text that may contain think blocks.
    fn add_text(&mut self, text: &str, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let draft = &mut self.draft;
        self.splitter.feed(text, &mut |segment| draft.add(segment, on_delta))?;
        self.reasoning_location = self.reasoning_location.or(self.splitter.tag());
        Ok(())
    }

    /// Adds reasoning from one of the fields for it. Servers that fill both are about to drop the older one,
    /// `reasoning_content`.
    fn add_reasoning(
        &mut self,
        reasoning: &str,
        reasoning_content: &str,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        let (location, text) = match reasoning {
            "" => (REASONING_CONTENT, reasoning_content),
            _ => (REASONING, reasoning),
        };
        if !text.is_empty() {
            self.reasoning_location.get_or_insert(location);
        }
        self.draft.add(TextSegment::Reasoning(text), on_delta)
    }

    /// Adds a chunk of the content of type `thinking`.
    fn add_thinking_chunk(
        &mut self,
        chunk: &Value,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        self.reasoning_location.get_or_insert(THINKING_CHUNK);
        if !chunk["signature"].is_null() {
            self.signature = chunk["signature"].clone();
        }
        let inner = if chunk["thinking"].is_null() { &chunk["text"] } else { &chunk["thinking"] };
        let reasoning = content_text(inner, &mut |_| Ok(()))?;
        self.draft.add(TextSegment::Reasoning(&reasoning), on_delta)
    }
}

impl ReplyBuilder for ChatReplyBuilder {
    fn add_text_event(&mut self, event: &str, on_delta: &mut DeltaSink<'_>) -> ReplyResult<bool> {
        let chunk = text_event::parse(event).filter(|chunk: &TextChunk<'_>| !chunk.has_more());
        let Some(TextChunk { model, choices, .. }) = chunk else {
            return Ok(false);
        };
        self.draft.set_model(text_event::as_str(&model));
        self.has_choices = true;
        let [Object(TextChoice { delta, .. })] = choices;
        let Object(delta) = delta;
        let reasoning = text_event::as_str(&delta.reasoning);
        let reasoning_content = text_event::as_str(&delta.reasoning_content);
        self.add_reasoning(reasoning, reasoning_content, on_delta)?;
        self.add_text(text_event::as_str(&delta.content), on_delta)?;
        Ok(true)
    }

    fn add_event(&mut self, event: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        self.add_chunk(event, on_delta)
    }

    fn add_response(&mut self, response: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        self.draft.is_complete = true;
        self.add_chunk(response, on_delta)
    }

    fn close(&mut self) {
        self.draft.is_complete = true;
    }

    fn is_done(&self) -> bool {
        self.draft.is_complete
    }

    fn finish(&mut self, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let draft = &mut self.draft;
        self.splitter.finish(&mut |segment| draft.add(segment, on_delta))?;
        if !self.has_choices {
            return Err(ReplyError::Malformed("a response without choices".into()));
        }
        self.draft.check_end()
    }

    fn into_reply(self: Box<Self>) -> ReplyResult<Reply> {
        let Self { mut draft, calls, reasoning_location, signature, reasoning_details, .. } = *self;
        let mut extras = Vec::new();
        for (number, part) in calls.into_iter().enumerate() {
            let arguments = match part.arguments_object {
                Some(object) => arguments_from_value(&object),
                None => parse_arguments(&part.arguments_text),
            };
            draft.add_call(number, ToolCall { id: part.id, name: part.name, arguments })?;
            extras.push(part.extra);
        }
        draft.into_reply(opaque_data(reasoning_location, signature, reasoning_details, extras))
    }
}

/// The data that the server requires back, if any.
fn opaque_data(
    reasoning_location: Option<&str>,
    signature: Value,
    reasoning_details: Vec<Value>,
    extras: Vec<Value>,
) -> Option<Value> {
    let mut opaque = Map::new();
    // Structured reasoning contains the text.
    if !reasoning_details.is_empty() {
        opaque.insert("reasoning_details".into(), reasoning_details.into());
    } else if let Some(reasoning_location) = reasoning_location {
        opaque.insert("place".into(), reasoning_location.into());
        if !signature.is_null() {
            opaque.insert("signature".into(), signature);
        }
    }
    // One item per call, by position: a call's id may be replaced later.
    if extras.iter().any(|extra| !extra.is_null()) {
        opaque.insert("extra_content".into(), extras.into());
    }
    (!opaque.is_empty()).then(|| opaque.into())
}

/// True if a fragment with a known call's index starts another call: some servers give every call index 0.
fn starts_new_call(call: &PartialToolCall, id: &str, name: &str) -> bool {
    !id.is_empty() && !call.id.is_empty() && call.id != id && !name.is_empty()
}

/// Content as text: a string, or a list of parts. Thinking chunks are passed to `on_thinking`.
fn content_text(
    content: &Value,
    on_thinking: &mut dyn FnMut(&Value) -> ReplyResult<()>,
) -> ReplyResult<String> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => return Ok(String::new()),
    };
    let mut text = String::new();
    for part in parts {
        match (part, part["type"].as_str()) {
            (Value::String(part), _) => text.push_str(part),
            (_, Some("thinking" | "reasoning")) => on_thinking(part)?,
            _ => text.push_str(part["text"].as_str().unwrap_or_default()),
        }
    }
    Ok(text)
}

/// The cost that the server reports, in US dollars. With the user's own upstream key, the amount billed there is
/// included.
fn reported_cost(usage: &Value) -> Option<f64> {
    let cost = usage["cost"].as_f64()?;
    let mut upstream = None;
    if usage["is_byok"] == true {
        upstream = usage.pointer("/cost_details/upstream_inference_cost").and_then(Value::as_f64);
    }
    Some(cost + upstream.unwrap_or(0.0)).filter(|cost| cost.is_finite() && *cost >= 0.0)
}

fn parse_usage(value: &Value) -> Usage {
    let number = |pointers: &[&str]| {
        pointers.iter().find_map(|pointer| parse_tokens(value.pointer(pointer)?)).unwrap_or(0)
    };
    Usage {
        input: number(&["/prompt_tokens", "/input_tokens"]),
        cached: number(&[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cached_tokens",
            "/cache_read_input_tokens",
        ]),
        cache_write: number(&[
            "/prompt_tokens_details/cache_write_tokens",
            "/prompt_tokens_details/cache_creation_tokens",
            "/cache_creation_input_tokens",
        ]),
        // Some servers count reasoning tokens only in the total.
        output: number(&["/completion_tokens", "/output_tokens"]).max(
            number(&["/total_tokens"]).saturating_sub(number(&["/prompt_tokens", "/input_tokens"])),
        ),
        reasoning: number(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]),
        estimated: false,
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::chat::ChatFormat;
    use crate::provider::quirks::NONE;
    use crate::provider::response::test_support::{self, calls};
    use crate::provider::wire_format::{ReplyError, ReplyResult};
    use nanobot_base::message::{FinishReason, Reply};
    use serde_json::{Value, json};

    const CHAT: ChatFormat =
        ChatFormat { server: String::new(), quirks: NONE, max_output_tokens: None };

    fn read(response: &[u8], cut: usize) -> ReplyResult<(Reply, test_support::EmittedDeltas)> {
        test_support::read(&CHAT, response, cut)
    }

    #[track_caller]
    fn read_object(response: &[u8]) -> Reply {
        test_support::read_object(&CHAT, response)
    }

    fn stream(chunks: &[Value]) -> Reply {
        let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        read_object(format!("{events}data: [DONE]\n\n").as_bytes())
    }

    fn delta(delta: Value) -> Value {
        json!({ "choices": [{ "delta": delta }] })
    }

    fn end(reason: &str) -> Value {
        json!({ "choices": [{ "delta": {}, "finish_reason": reason }] })
    }

    #[test]
    fn text_in_pieces() {
        let reply = stream(&[
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"content": "h\u{e9}"})),
            delta(json!({"content": "llo 🙂"})),
            end("stop"),
        ]);
        assert_eq!(
            (reply.text.as_str(), reply.finish_reason),
            ("h\u{e9}llo 🙂", FinishReason::Stop)
        );
    }

    #[test]
    fn calls_by_index_from_fragments_of_any_size() {
        let fragment = |index: u64, rest: Value| {
            let mut call = json!({ "index": index });
            call.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            delta(json!({ "tool_calls": [call] }))
        };
        let reply = stream(&[
            fragment(0, json!({"id": "a", "function": {"name": "read", "arguments": ""}})),
            fragment(1, json!({"id": "b", "function": {"name": "list", "arguments": "{"}})),
            fragment(0, json!({"function": {"arguments": "{\"p\":"}})),
            fragment(1, json!({"function": {"arguments": "}"}})),
            fragment(0, json!({"function": {"arguments": " 1}"}})),
            end("tool_calls"),
        ]);
        assert_eq!(calls(&reply), [("a", "read", json!({"p": 1})), ("b", "list", json!({}))]);
        assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
    }

    #[test]
    fn calls_in_odd_shapes() {
        let check = |fragments: Value, expect: &[(&str, &str, Value)]| {
            let chunks: Vec<Value> = fragments
                .as_array()
                .unwrap()
                .iter()
                .map(|fragment| delta(json!({ "tool_calls": [fragment] })))
                .collect();
            let mut all = chunks;
            all.push(end("stop"));
            assert_eq!(calls(&stream(&all)), expect, "{fragments}");
        };
        let function = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
        // Without an index: by id, by position, by name.
        check(
            json!([{"id": "a", "function": function("f", json!("{\"x\":"))}, {"id": "a", "function": {"arguments": "1}"}}]),
            &[("a", "f", json!({"x": 1}))],
        );
        check(
            json!([{"id": "a", "function": function("f", json!("{"))}, {"function": {"arguments": "}"}}]),
            &[("a", "f", json!({}))],
        );
        check(
            json!([{"function": function("f", json!("{}"))}, {"function": function("g", json!("{}"))}]),
            &[("call_0_0", "f", json!({})), ("call_0_1", "g", json!({}))],
        );
        // All calls with index 0; ids missing or repeated; names repeated or in pieces; arguments as an object or
        // absent.
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("{}"))}, {"index": 0, "id": "b", "function": function("g", json!("{}"))}]),
            &[("a", "f", json!({})), ("b", "g", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("{}"))}, {"index": 1, "id": "a", "function": function("g", json!("{}"))}]),
            &[("a", "f", json!({})), ("call_0_1", "g", json!({}))],
        );
        check(
            json!([{"index": 0, "function": function("f", json!("{"))}, {"index": 0, "function": function("f", json!("}"))}]),
            &[("call_0_0", "f", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": {"name": "read_"}}, {"index": 0, "function": {"name": "file", "arguments": "{}"}}]),
            &[("a", "read_file", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!({"x": 1}))}]),
            &[("a", "f", json!({"x": 1}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": {"name": "f"}}]),
            &[("a", "f", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("\"{\\\"x\\\": 1}\""))}]),
            &[("a", "f", json!({"x": 1}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("{oops"))}]),
            &[("a", "f", json!("{oops"))],
        );
    }

    #[test]
    fn complete_responses() {
        let response = |message: Value, reason: Value| {
            let response = json!({ "model": "m1", "choices": [{ "message": message, "finish_reason": reason }],
                "usage": { "prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": { "cached_tokens": 4 },
                           "completion_tokens_details": { "reasoning_tokens": 2 } } });
            read_object(response.to_string().as_bytes())
        };
        let reply = response(json!({ "content": "hi", "reasoning_content": "hm" }), json!("stop"));
        assert_eq!(
            (reply.text.as_str(), reply.reasoning.as_str(), reply.model.as_str()),
            ("hi", "hm", "m1")
        );
        assert_eq!(
            (reply.usage.input, reply.usage.cached, reply.usage.output, reply.usage.reasoning),
            (10, 4, 5, 2)
        );
        assert_eq!(response(json!({ "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}] }), Value::Null).text, "ab");
        let thinking = json!({ "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "b"}] });
        assert_eq!(response(thinking, json!("stop")).reasoning, "hm");
        assert_eq!(
            response(json!({ "content": null, "refusal": "no" }), json!("stop")).finish_reason,
            FinishReason::Refusal
        );
        assert_eq!(
            response(json!({ "content": "x" }), json!("length")).finish_reason,
            FinishReason::Length
        );
        assert_eq!(
            response(json!({ "content": "" }), json!("content_filter")).finish_reason,
            FinishReason::Refusal
        );
        assert_eq!(
            response(json!({ "content": "x" }), json!("odd")).finish_reason,
            FinishReason::Other("odd".into())
        );
        assert_eq!(
            response(json!({ "content": "x" }), json!("tool_calls")).finish_reason,
            FinishReason::ToolCalls
        );
        let old = json!({ "content": null, "function_call": { "name": "f", "arguments": "{}" } });
        assert_eq!(calls(&response(old, json!("function_call"))), [("call_0_0", "f", json!({}))]);
        let wins = json!({ "content": "x", "tool_calls": [{ "id": "a", "function": { "name": "f", "arguments": "{}" } }] });
        assert_eq!(response(wins, json!("stop")).finish_reason, FinishReason::ToolCalls);
    }

    #[test]
    fn reasoning_in_all_its_fields() {
        for key in ["reasoning_content", "reasoning"] {
            let reply = stream(&[
                delta(json!({ key: "hm" })),
                delta(json!({ key: ", yes" })),
                delta(json!({ "content": "ok" })),
                end("stop"),
            ]);
            assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("hm, yes", "ok"));
        }
    }

    #[test]
    fn think_blocks_are_reasoning_in_any_chunking() {
        let reply = stream(&[
            delta(json!({"content": "<th"})),
            delta(json!({"content": "ink>hm</thi"})),
            delta(json!({"content": "nk>\n\nyes"})),
            end("stop"),
        ]);
        assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("hm", "yes"));
    }

    #[test]
    fn known_client_bugs() {
        let used = |input: u64| json!({ "prompt_tokens": input, "completion_tokens": 1 });
        let late = json!({ "index": 0, "function": { "name": "f", "arguments": "{\"x\"" } });
        let mut chunks = [
            delta(json!({ "role": "assistant", "content": null, "tool_calls": [late] })),
            // The id arrives after the name, and there is no role.
            delta(
                json!({ "role": null, "tool_calls": [{ "index": 0, "id": "a", "function": { "name": null } }] }),
            ),
            delta(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": ": 1}" } }] })),
            end("tool_calls"),
        ];
        // Each chunk carries the totals so far.
        for (number, chunk) in chunks.iter_mut().enumerate() {
            chunk["usage"] = used(number as u64);
        }
        let reply = stream(&chunks);
        assert_eq!(calls(&reply), [("a", "f", json!({ "x": 1 }))]);
        assert_eq!((reply.usage.input, reply.usage.output), (3, 1));
        let lines: String = chunks
            .iter()
            .map(|chunk| {
                format!("data:{}\n\n:keepalive\n", chunk.to_string().replace(',', ",\ndata: "))
            })
            .collect();
        assert_eq!(read_object(format!("{lines}data: [DONE] \n\n").as_bytes()), reply);
    }

    #[test]
    fn reasoning_in_pieces_is_put_together() {
        let detail = |piece: Value| delta(json!({ "reasoning_details": [piece] }));
        let reply = stream(&[
            detail(json!({ "type": "reasoning.text", "index": 0, "text": "h" })),
            detail(json!({ "type": "reasoning.text", "index": 0, "text": "m", "signature": null })),
            detail(json!({ "type": "reasoning.text", "index": 0, "signature": "s" })),
            detail(json!({ "type": "reasoning.encrypted", "index": 1, "data": "x" })),
            detail(json!({ "type": "reasoning.encrypted", "data": "y" })),
            detail(json!({ "type": "reasoning.encrypted", "data": "z" })),
            end("stop"),
        ]);
        let details = json!([
            { "type": "reasoning.text", "index": 0, "text": "hm", "signature": "s" },
            { "type": "reasoning.encrypted", "index": 1, "data": "x" },
            { "type": "reasoning.encrypted", "data": "y" },
            { "type": "reasoning.encrypted", "data": "z" },
        ]);
        let opaque = json!({ "wire": "chat", "server": "", "model": "m", "keep": { "reasoning_details": details } });
        assert_eq!(reply.provider_data, Some(opaque));
    }

    #[test]
    fn ends_of_streams() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        let usage =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
        assert_eq!(read_object(format!("{text}{stop}").as_bytes()).text, "a");
        assert_eq!(read_object(format!("{text}data: [DONE]\n\n").as_bytes()).text, "a");
        assert_eq!(
            read_object(format!("{text}{stop}{usage}data: [DONE]\n\n").as_bytes()).usage.input,
            3
        );
        assert_eq!(
            read_object(format!(": hello\r\n\r\n{text}{stop}").replace('\n', "\r\n").as_bytes())
                .text,
            "a"
        );
        assert!(matches!(read(text.as_bytes(), 0), Err(ReplyError::Truncated(_))));
    }

    #[test]
    fn invalid_responses() {
        let nonsense = |response: &str| {
            assert!(
                matches!(read(response.as_bytes(), 0), Err(ReplyError::Malformed(_))),
                "{response}"
            );
        };
        nonsense("");
        nonsense("<html><title>Login</title></html>");
        nonsense("{\"choices\": []}");
        nonsense("{\"choices\": ");
        nonsense("data: {oops\n\n");
        nonsense("data: [DONE]\n\n");
        let server = |response: &str| {
            assert!(
                matches!(read(response.as_bytes(), 0), Err(ReplyError::Server(_))),
                "{response}"
            );
        };
        server("{\"error\": {\"message\": \"no\"}}");
        server(
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"broke\"}}\n\n",
        );
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        let reply = read_object(
            br#"{"choices":[{"message":{"content":"a\ud83d"},"finish_reason":"stop"}]}"#,
        );
        assert_eq!(reply.text, "a\u{fffd}");
    }

    #[test]
    fn fuzz_chunks_of_text_have_the_same_effect_as_others() {
        let seeds: &[&[u8]] = &[
            br#"{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"<think>a"},"finish_reason":null}]}
{"model":"n","choices":[{"delta":{"role":"assistant","content":"b</think>c\n","refusal":null,"tool_calls":null}}],"usage":null}
{"choices":[{"delta":{"content":"d"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#,
            br#"{"choices":[{"delta":{"reasoning_content":"","reasoning":"a","content":null}}],"error":null}
{"choices":[{"delta":{"reasoning_content":null,"reasoning":"b"}}]}
{"choices":[{"delta":["x"],"message":{"content":"e\ud83d"}},{}],"object":"error"}
{"choices":[{"delta":{"content":[{"type":"text","text":"f"}],"refusal":"g"},"finish_reason":""}]}"#,
            br#"{"choices":[{"delta":{"content":"a","content":"b"}}]}
{"choices":[{"delta":{"content":"c","reasoning_details":[{"type":"t","text":"x"}]}}],"type":"x"}
{"choices":[{"delta":{"content":"d","function_call":{"name":"f","arguments":"{}"}}}]}
{"choices":[{"delta":{"content":"e","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}
{"choices":[{"delta":{"content":"f"},"finish_reason":null}]}"#,
        ];
        test_support::fuzz_text_events(&CHAT, seeds);
    }

    #[test]
    fn fuzz_results_do_not_depend_on_chunking() {
        let seeds: &[&[u8]] = &[
            br#"{"model": "m", "choices": [{"message": {"content": "a", "reasoning_content": "b", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}}}"#,
            b"data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"<think>x</think>a\"}}]}\n\ndata: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}], \"usage\": {\"prompt_tokens\": 1}}\n\ndata: [DONE]\n\n",
            b"data: {\"choices\": [{\"delta\": {\"tool_calls\": [{\"index\": 0, \"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": \"{\"}}]}}]}\n\ndata: {\"choices\": [{\"delta\": {\"tool_calls\": [{\"index\": 0, \"function\": {\"arguments\": \"}\"}}]}, \"finish_reason\": \"tool_calls\"}]}\n\n",
            br#"{"error": {"message": "no", "code": 429}}"#,
            b"<html><title>Bad gateway</title></html>",
            b"data: {\"error\": {\"message\": \"overloaded\"}}\n\n",
        ];
        test_support::fuzz(&CHAT, seeds);
    }
}
