//! Assembles a reply from the events of a stream, or from one complete response. No I/O.

use crate::provider::DeltaSink;
use crate::provider::reply_draft::{ReplyDraft, pass_on};
use crate::provider::response::{arguments_from_value, parse_arguments, parse_tokens};
use crate::provider::text_event::{self, Object};
use crate::provider::think_tags::TextSegment;
use crate::provider::wire_format::{ReplyBuilder, ReplyError, ReplyResult};
use crate::text_form::Text;
use nanobot_base::message::{Reply, ToolCall};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The reply so far.
#[derive(Default)]
pub(super) struct AnthropicReplyBuilder {
    draft: ReplyDraft,
    /// The content blocks, by their index in the response.
    blocks: Vec<(u64, ContentBlock)>,
    has_started: bool,
}

/// A content block under construction.
enum ContentBlock {
    Text(String),
    Call {
        id: String,
        name: String,
        input: Value,
        json: String,
    },
    /// Plain-text thinking, with its signature.
    Thinking {
        text: String,
        signature: String,
    },
    /// Any other block; sent back unchanged.
    Other(Value),
}

/// An event that only adds text or thinking to a block.
#[derive(Deserialize)]
struct AnthropicTextEvent<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow)]
    object: Option<Text<'a>>,
    error: Option<IgnoredAny>,
    index: u64,
    #[serde(borrow)]
    delta: Object<AnthropicTextDelta<'a>>,
}

#[derive(Deserialize)]
struct AnthropicTextDelta<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
}

impl AnthropicReplyBuilder {
    /// A builder that completes `draft`.
    pub(super) fn new(draft: ReplyDraft) -> Self {
        Self { draft, ..Self::default() }
    }

    /// Reads the head of a response: its model and its usage so far.
    fn start_message(&mut self, message: &Value) {
        self.has_started = true;
        self.draft.set_model(message["model"].as_str().unwrap_or_default());
        self.update_usage(&message["usage"]);
        self.set_finish_reason(message);
    }

    fn set_finish_reason(&mut self, object: &Value) {
        if let Some(reason) = object["stop_reason"].as_str() {
            self.draft.finish_reason = Some(reason.to_owned());
        }
    }

    /// Updates the usage. Numbers are totals and may be repeated. Of those of the input the largest count, since a later event may
    /// omit some; of the others the last.
    fn update_usage(&mut self, usage: &Value) {
        let number = |key: &str| parse_tokens(&usage[key]);
        let totals = &mut self.draft.reply.usage;
        if let Some(input) = number("input_tokens") {
            let cached = number("cache_read_input_tokens").unwrap_or(0);
            let cache_write = number("cache_creation_input_tokens").unwrap_or(0);
            totals.cached = cached.max(totals.cached);
            totals.cache_write = cache_write.max(totals.cache_write);
            totals.input = totals.input.max(input + totals.cached + totals.cache_write);
        }
        if let Some(output) = number("output_tokens") {
            totals.output = output;
        }
        let thinking = usage.pointer("/output_tokens_details/thinking_tokens");
        if let Some(thinking) = thinking.and_then(parse_tokens) {
            totals.reasoning = thinking;
        }
    }

    fn start_block(
        &mut self,
        index: u64,
        block: &Value,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        self.has_started = true;
        let field = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        let content = match block["type"].as_str() {
            Some("text") => ContentBlock::Text(field("text")),
            Some("tool_use") => ContentBlock::Call {
                id: field("id"),
                name: field("name"),
                input: block["input"].clone(),
                json: String::new(),
            },
            Some("thinking") => {
                ContentBlock::Thinking { text: field("thinking"), signature: field("signature") }
            }
            _ => ContentBlock::Other(block.clone()),
        };
        let segment = match &content {
            ContentBlock::Text(text) => TextSegment::Text(text),
            ContentBlock::Thinking { text, .. } => TextSegment::Reasoning(text),
            _ => TextSegment::Text(""),
        };
        pass_on(segment, on_delta)?;
        self.blocks.push((index, content));
        Ok(())
    }

    fn apply_delta(
        &mut self,
        index: u64,
        delta: &Value,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        let field = |key: &str| delta[key].as_str().unwrap_or_default();
        if !self.blocks.iter().any(|(other, _)| *other == index) {
            // The block was never opened; the delta's type implies the block's type.
            let kind = match delta["type"].as_str() {
                Some("text_delta") => "text",
                Some("thinking_delta" | "signature_delta") => "thinking",
                _ => return Ok(()),
            };
            self.start_block(index, &json!({ "type": kind }), on_delta)?;
        }
        // If a server gives every block the same index, deltas belong to the last block.
        let Some((_, block)) = self.blocks.iter_mut().rfind(|(other, _)| *other == index) else {
            return Ok(());
        };
        match (delta["type"].as_str(), block) {
            (Some("text_delta"), ContentBlock::Text(text)) => {
                text.push_str(field("text"));
                pass_on(TextSegment::Text(field("text")), on_delta)
            }
            (Some("thinking_delta"), ContentBlock::Thinking { text, .. }) => {
                text.push_str(field("thinking"));
                pass_on(TextSegment::Reasoning(field("thinking")), on_delta)
            }
            (Some("signature_delta"), ContentBlock::Thinking { signature, .. }) => {
                signature.push_str(field("signature"));
                Ok(())
            }
            (Some("input_json_delta"), ContentBlock::Call { json, .. }) => {
                json.push_str(field("partial_json"));
                Ok(())
            }
            // Citations, and future types.
            _ => Ok(()),
        }
    }
}

impl ReplyBuilder for AnthropicReplyBuilder {
    fn add_text_event(&mut self, event: &str, on_delta: &mut DeltaSink<'_>) -> ReplyResult<bool> {
        let Some(event) = text_event::parse::<AnthropicTextEvent<'_>>(event) else {
            return Ok(false);
        };
        if event.error.is_some()
            || text_event::as_str(&event.object) == "error"
            || event.r#type.0 != "content_block_delta"
        {
            return Ok(false);
        }
        let Object(delta) = &event.delta;
        let block = self.blocks.iter_mut().rfind(|(index, _)| *index == event.index);
        match (&*delta.r#type.0, block) {
            ("text_delta", Some((_, ContentBlock::Text(text)))) => {
                text.push_str(text_event::as_str(&delta.text));
                pass_on(TextSegment::Text(text_event::as_str(&delta.text)), on_delta)?;
            }
            ("thinking_delta", Some((_, ContentBlock::Thinking { text, .. }))) => {
                text.push_str(text_event::as_str(&delta.thinking));
                pass_on(TextSegment::Reasoning(text_event::as_str(&delta.thinking)), on_delta)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add_event(&mut self, event: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let index = event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str() {
            Some("message_start") => self.start_message(&event["message"]),
            Some("content_block_start") => {
                self.start_block(index, &event["content_block"], on_delta)?;
            }
            Some("content_block_delta") => self.apply_delta(index, &event["delta"], on_delta)?,
            Some("message_delta") => {
                self.set_finish_reason(&event["delta"]);
                self.update_usage(&event["usage"]);
            }
            Some("message_stop") => self.draft.is_complete = true,
            // Some servers send the complete response as one event of the stream.
            Some("message") => return self.add_response(event, on_delta),
            // Pings, ends of blocks, and future types.
            _ => {}
        }
        Ok(())
    }

    fn add_response(&mut self, response: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let Some(blocks) = response["content"].as_array() else {
            return Err(ReplyError::Malformed("a response without content".into()));
        };
        self.start_message(response);
        for (number, block) in blocks.iter().enumerate() {
            self.start_block(number as u64, block, on_delta)?;
        }
        self.draft.is_complete = true;
        Ok(())
    }

    fn close(&mut self) {
        self.draft.is_complete = true;
    }

    fn is_done(&self) -> bool {
        self.draft.is_complete
    }

    fn finish(&mut self, _: &mut DeltaSink<'_>) -> ReplyResult<()> {
        if !self.has_started {
            return Err(ReplyError::Malformed("a response without content".into()));
        }
        self.draft.check_end()
    }

    fn into_reply(self: Box<Self>) -> ReplyResult<Reply> {
        let Self { mut draft, mut blocks, .. } = *self;
        let is_claude = draft.source.model.to_lowercase().contains("claude");
        let mut opaque_blocks = Vec::new();
        // If all blocks are placeholders of texts and calls, they need not be sent back.
        let mut has_opaque = false;
        blocks.sort_by_key(|(index, _)| *index);
        for (number, (_, block)) in blocks.into_iter().enumerate() {
            match block {
                ContentBlock::Text(text) => {
                    opaque_blocks.push(json!({ "type": "text", "length": text.len() }));
                    draft.reply.text.push_str(&text);
                }
                ContentBlock::Call { id, name, input, json } => {
                    opaque_blocks.push(json!({ "type": "tool_use" }));
                    // The streamed fragments if there are any, else the input from the block's start.
                    let arguments = match json.trim() {
                        "" => arguments_from_value(&input),
                        _ => parse_arguments(&json),
                    };
                    draft.add_call(number, ToolCall { id, name, arguments })?;
                }
                ContentBlock::Thinking { text, signature } => {
                    draft.reply.reasoning.push_str(&text);
                    // The vendor's own models refuse unsigned thinking. Some others sign nothing, and refuse calls
                    // whose thinking is missing.
                    if !signature.is_empty() || (!is_claude && !text.is_empty()) {
                        has_opaque = true;
                        opaque_blocks.push(
                            json!({ "type": "thinking", "thinking": text, "signature": signature }),
                        );
                    }
                }
                ContentBlock::Other(block) => {
                    if block["type"] == "redacted_thinking" {
                        has_opaque = true;
                        opaque_blocks.push(block);
                    }
                }
            }
        }
        draft.into_reply(has_opaque.then(|| opaque_blocks.into()))
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::anthropic::AnthropicFormat;
    use crate::provider::quirks::NONE;
    use crate::provider::response::test_support::{self, calls};
    use crate::provider::wire_format::{ReplyError, ReplyResult};
    use nanobot_base::message::{FinishReason, Reply, Usage};
    use serde_json::{Value, json};

    const ANTHROPIC: AnthropicFormat = AnthropicFormat {
        server: String::new(),
        quirks: NONE,
        max_output_tokens: None,
        vertex_path: String::new(),
    };

    fn read(response: &str) -> ReplyResult<(Reply, test_support::EmittedDeltas)> {
        test_support::read(&ANTHROPIC, response.as_bytes(), 0)
    }

    #[track_caller]
    fn read_object(response: &Value) -> Reply {
        test_support::read_object(&ANTHROPIC, response.to_string().as_bytes())
    }

    /// Reads a complete response with this content and stop reason.
    #[track_caller]
    fn message(content: Value, reason: &str) -> Reply {
        read_object(
            &json!({ "type": "message", "role": "assistant", "model": "m1", "content": content,
                      "stop_reason": reason, "usage": { "input_tokens": 10, "output_tokens": 5 } }),
        )
    }

    #[track_caller]
    fn stream(events: &[Value]) -> Reply {
        test_support::read_object(&ANTHROPIC, test_support::events(events).as_bytes())
    }

    fn start() -> Value {
        let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
        json!({ "type": "message_start", "message": { "type": "message", "model": "m1", "content": [], "usage": usage } })
    }

    fn begin(index: u64, block: Value) -> Value {
        json!({ "type": "content_block_start", "index": index, "content_block": block })
    }

    fn delta(index: u64, kind: &str, key: &str, text: &str) -> Value {
        json!({ "type": "content_block_delta", "index": index, "delta": { "type": kind, key: text } })
    }

    fn text(index: u64, text: &str) -> Value {
        delta(index, "text_delta", "text", text)
    }

    fn input(index: u64, json: &str) -> Value {
        delta(index, "input_json_delta", "partial_json", json)
    }

    fn content_block_stop(index: u64) -> Value {
        json!({ "type": "content_block_stop", "index": index })
    }

    fn reason(reason: &str) -> Value {
        json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": { "output_tokens": 7 } })
    }

    fn stop() -> Value {
        json!({ "type": "message_stop" })
    }

    fn tool(id: &str, name: &str) -> Value {
        json!({ "type": "tool_use", "id": id, "name": name, "input": {} })
    }

    #[test]
    fn text_in_pieces() {
        let reply = stream(&[
            start(),
            json!({ "type": "ping" }),
            begin(0, json!({ "type": "text", "text": "" })),
            text(0, "h\u{e9}"),
            json!({ "type": "a_kind_to_come", "index": 0, "delta": { "text": "x" } }),
            delta(0, "citations_delta", "citation", "x"),
            text(0, "llo \u{1f642}"),
            content_block_stop(0),
            reason("end_turn"),
            stop(),
        ]);
        assert_eq!(reply.text, "h\u{e9}llo \u{1f642}");
        assert_eq!(
            (reply.finish_reason, reply.model.as_str(), reply.provider_data),
            (FinishReason::Stop, "m1", None)
        );
        assert_eq!((reply.usage.input, reply.usage.output), (10, 7));
    }

    #[test]
    fn calls_from_fragments_of_any_size() {
        let reply = stream(&[
            start(),
            begin(0, tool("a", "read")),
            begin(1, tool("b", "list")),
            input(0, ""),
            input(0, "{\"p\":"),
            input(1, "{}"),
            input(0, " 1}"),
            begin(2, tool("c", "none")),
            content_block_stop(0),
            reason("tool_use"),
            stop(),
        ]);
        assert_eq!(
            calls(&reply),
            [("a", "read", json!({ "p": 1 })), ("b", "list", json!({})), ("c", "none", json!({}))]
        );
        assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
    }

    #[test]
    fn calls_in_odd_shapes() {
        let check = |list: &[Value], expect: &[(&str, &str, Value)]| {
            let mut events = vec![start()];
            events.extend_from_slice(list);
            events.extend([reason("end_turn"), stop()]);
            let reply = stream(&events);
            assert_eq!(calls(&reply), expect, "{list:?}");
            assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
        };
        let with =
            |input: Value| json!({ "type": "tool_use", "id": "a", "name": "f", "input": input });
        let one = json!({ "x": 1 });
        // All of the input at the block's start: as an object, as text, as null.
        check(&[begin(0, with(one.clone()))], &[("a", "f", one.clone())]);
        check(&[begin(0, with(json!("{\"x\": 1}")))], &[("a", "f", one.clone())]);
        check(&[begin(0, with(Value::Null))], &[("a", "f", json!({}))]);
        // Text that is not an object, or that was encoded twice.
        check(&[begin(0, tool("a", "f")), input(0, "{oops")], &[("a", "f", json!("{oops"))]);
        check(&[begin(0, tool("a", "f")), input(0, "\"{\\\"x\\\": 1}\"")], &[("a", "f", one)]);
        // Missing or duplicate ids; blocks that all have the same index.
        check(
            &[begin(0, tool("", "f")), begin(1, tool("a", "g")), begin(2, tool("a", "h"))],
            &[("call_0_0", "f", json!({})), ("a", "g", json!({})), ("call_0_2", "h", json!({}))],
        );
        check(
            &[
                begin(0, tool("a", "f")),
                input(0, "{}"),
                begin(0, tool("b", "g")),
                input(0, "{\"y\": 2}"),
            ],
            &[("a", "f", json!({})), ("b", "g", json!({ "y": 2 }))],
        );
    }

    #[test]
    fn thinking_is_preserved_in_position() {
        let reply = stream(&[
            start(),
            begin(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            delta(0, "thinking_delta", "thinking", "h"),
            delta(0, "thinking_delta", "thinking", "m"),
            delta(0, "signature_delta", "signature", "si"),
            delta(0, "signature_delta", "signature", "gn"),
            begin(1, json!({ "type": "redacted_thinking", "data": "secret" })),
            begin(2, json!({ "type": "text", "text": "I " })),
            text(2, "look."),
            begin(3, tool("a", "f")),
            begin(4, json!({ "type": "thinking", "thinking": " and", "signature": "more" })),
            begin(5, tool("b", "g")),
            reason("tool_use"),
            stop(),
        ]);
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("I look.", "hm and"));
        assert_eq!(calls(&reply), [("a", "f", json!({})), ("b", "g", json!({}))]);
        let keep = json!([
            { "type": "thinking", "thinking": "hm", "signature": "sign" },
            { "type": "redacted_thinking", "data": "secret" },
            { "type": "text", "length": 7 },
            { "type": "tool_use" },
            { "type": "thinking", "thinking": " and", "signature": "more" },
            { "type": "tool_use" },
        ]);
        let opaque = json!({ "wire": "anthropic", "server": "", "model": "m", "keep": keep });
        assert_eq!(reply.provider_data, Some(opaque));
        // Thinking that is not displayed but still signed.
        let hidden = json!([{ "type": "thinking", "thinking": "", "signature": "s" }, { "type": "text", "text": "a" }]);
        assert!(message(hidden, "end_turn").provider_data.is_some());
        // Unsigned thinking, as from another vendor's model.
        let reply = stream(&[
            start(),
            delta(0, "thinking_delta", "thinking", "hm"),
            text(1, "ok"),
            reason("end_turn"),
        ]);
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("ok", "hm"));
        let keep = json!([{ "type": "thinking", "thinking": "hm", "signature": "" }, { "type": "text", "length": 2 }]);
        assert_eq!(reply.provider_data.unwrap()["keep"], keep);
    }

    #[test]
    fn complete_responses() {
        let content = json!([{ "type": "thinking", "thinking": "hm", "signature": "s" }, { "type": "text", "text": "a" },
                             { "type": "a_block_to_come", "text": "x" },
                             { "type": "tool_use", "id": "t", "name": "f", "input": { "x": 1 } }]);
        let reply = message(content, "tool_use");
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("a", "hm"));
        assert_eq!(calls(&reply), [("t", "f", json!({ "x": 1 }))]);
        assert_eq!((reply.usage.input, reply.usage.output), (10, 5));
        // The server was asked for a stream, and sends the complete response as its one event.
        let event = json!({ "type": "message", "content": [{ "type": "text", "text": "a" }], "stop_reason": "end_turn" });
        assert_eq!(stream(&[event]).text, "a");
    }

    #[test]
    fn finish_reasons() {
        let check = |reason: &str, expect: FinishReason| {
            let content = json!([{ "type": "text", "text": "x" }]);
            assert_eq!(message(content, reason).finish_reason, expect, "{reason}");
        };
        check("end_turn", FinishReason::Stop);
        check("stop_sequence", FinishReason::Stop);
        check("tool_use", FinishReason::ToolCalls);
        check("max_tokens", FinishReason::Length);
        check("model_context_window_exceeded", FinishReason::Length);
        check("refusal", FinishReason::Refusal);
        check("pause_turn", FinishReason::Length);
        let cut = json!([{ "type": "tool_use", "id": "a", "name": "f", "input": {} }]);
        assert_eq!(message(cut, "max_tokens").finish_reason, FinishReason::Length);
        assert_eq!(message(json!([]), "end_turn").text, "");
    }

    #[test]
    fn usage_arrives_in_two_parts() {
        let check = |first: Value, last: Value, expect: (u64, u64, u64, u64)| {
            let begin = json!({ "type": "message_start", "message": { "usage": first } });
            let end = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": last });
            let Usage { input, cached, cache_write, output, .. } =
                stream(&[begin, text(0, "a"), end, stop()]).usage;
            assert_eq!((input, cached, cache_write, output), expect);
        };
        let cached = json!({ "input_tokens": 3, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 7, "output_tokens": 1 });
        check(cached.clone(), json!({ "output_tokens": 9 }), (60, 50, 7, 9));
        // The usage is repeated at the end, with and without the cache numbers.
        check(cached.clone(), json!({ "input_tokens": 3, "output_tokens": 9 }), (60, 50, 7, 9));
        check(cached.clone(), cached, (60, 50, 7, 1));
        // Servers that report the usage only at the end.
        check(
            json!({ "input_tokens": 0, "output_tokens": 0 }),
            json!({ "input_tokens": 42, "output_tokens": 9 }),
            (42, 0, 0, 9),
        );
        let late = json!({ "input_tokens": 2, "cache_read_input_tokens": 40, "output_tokens": 9 });
        check(Value::Null, late, (42, 40, 0, 9));
        let thought =
            json!({ "output_tokens": 9, "output_tokens_details": { "thinking_tokens": 4 } });
        let end = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": thought });
        assert_eq!(stream(&[start(), end]).usage.reasoning, 4);
    }

    #[test]
    fn ends_of_streams() {
        let begun = test_support::events(&[start(), text(0, "a")]);
        let check = |response: &str| {
            assert_eq!(test_support::read_object(&ANTHROPIC, response.as_bytes()).text, "a");
        };
        check(&(begun.clone() + &test_support::events(&[reason("end_turn")])));
        check(&(begun.clone() + &test_support::events(&[stop()])));
        check(&(begun.clone() + "data: [DONE]\n\n"));
        check(&test_support::events(&[text(0, "a"), stop()]));
        let all = begun.clone()
            + &test_support::events(&[content_block_stop(0), reason("end_turn"), stop()]);
        check(&all.replace('\n', "\r\n"));
        check(&format!(": hello\n\n{all}").replace("data: ", "data:"));
        assert!(matches!(read(&begun), Err(ReplyError::Truncated(_))));
    }

    #[test]
    fn invalid_responses() {
        let nonsense = |response: &str| {
            let actual = read(response);
            assert!(matches!(actual, Err(ReplyError::Malformed(_))), "{response}");
        };
        nonsense("");
        nonsense("<html><title>Login</title></html>");
        nonsense("{\"choices\": []}");
        nonsense("{\"content\": ");
        nonsense("data: {oops\n\n");
        nonsense("data: [DONE]\n\n");
        nonsense(&test_support::events(&[start(), begin(0, tool("a", "")), stop()]));
        let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
        let server = |response: &str| {
            let result = read(response);
            assert!(matches!(result, Err(ReplyError::Server(actual)) if actual == error));
        };
        server(&error.to_string());
        server(&test_support::events(std::slice::from_ref(&error)));
        server(&test_support::events(&[start(), text(0, "a"), error.clone()]));
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        let response =
            br#"{"content":[{"type":"text","text":"a\ud83d"}],"stop_reason":"end_turn"}"#;
        assert_eq!(test_support::read_object(&ANTHROPIC, response).text, "a\u{fffd}");
    }

    #[test]
    fn fuzz_events_of_text_have_the_same_effect_as_others() {
        let seeds: &[&[u8]] = &[
            br#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b\n"}}
{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"c"}}
{"type":"content_block_delta","delta":{"type":"text_delta","text":"d"}}
{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"e"},"error":null}
{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}
{"type":"message_stop"}"#,
        ];
        test_support::fuzz_text_events(&ANTHROPIC, seeds);
    }

    #[test]
    fn fuzz_results_do_not_depend_on_chunking() {
        let stream = test_support::events(&[
            start(),
            json!({ "type": "ping" }),
            begin(0, json!({ "type": "thinking", "thinking": "" })),
            delta(0, "thinking_delta", "thinking", "hm"),
            delta(0, "signature_delta", "signature", "s"),
            content_block_stop(0),
            begin(1, tool("a", "f")),
            input(1, "{\"x\": 1}"),
            reason("tool_use"),
            stop(),
        ]);
        let seeds: &[&[u8]] = &[
            stream.as_bytes(),
            br#"{"type":"message","model":"m","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{"x":1}}],"stop_reason":"tool_use","usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":2,"output_tokens":3}}"#,
            br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"no\"}}\n\n",
        ];
        test_support::fuzz(&ANTHROPIC, seeds);
    }
}
