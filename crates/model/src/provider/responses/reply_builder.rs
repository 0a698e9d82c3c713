//! Assembles a reply from the events of a stream, or from one complete response. Pure.
//!
//! The same item is reported up to four times: when it begins, in pieces, when it ends, and within the complete
//! response at the end. Servers omit any of these, and the index and id of an item may differ between them.

use super::TEXT_BYTES_KEY;
use crate::provider::DeltaSink;
use crate::provider::reply_draft::{ReplyDraft, pass_on};
use crate::provider::response::{arguments_from_value, parse_arguments, parse_tokens};
use crate::provider::text_event;
use crate::provider::think_tags::TextSegment;
use crate::provider::wire_format::{ReplyBuilder, ReplyError, ReplyResult};
use crate::text_form::Text;
use nanobot_base::message::{Reply, ToolCall, Usage};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// The reply so far.
#[derive(Default)]
pub(super) struct ResponsesReplyBuilder {
    draft: ReplyDraft,
    items: Vec<OutputItem>,
}

/// An item of the output.
#[derive(Default)]
struct OutputItem {
    /// Its index in the output.
    index: u64,
    /// The item as the server sent it, so far.
    value: Value,
    /// Its text or reasoning that was emitted so far.
    emitted: String,
    /// The index of the reasoning part that was emitted last.
    reasoning_part: Option<u64>,
    /// The fragments of a call's arguments.
    arguments: String,
    is_refusal: bool,
    /// True if its text was emitted as reasoning: models mark intermediate commentary as such.
    is_commentary: bool,
    /// True once the complete item has arrived.
    is_complete: bool,
}

/// An event that only adds text to an item with a known id.
#[derive(Deserialize)]
struct ResponsesTextEvent<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow)]
    object: Option<Text<'a>>,
    error: Option<IgnoredAny>,
    #[serde(borrow)]
    item_id: Text<'a>,
    #[serde(borrow)]
    delta: Text<'a>,
}

impl OutputItem {
    fn has_type(&self, kind: &str) -> bool {
        self.value["type"] == kind
    }

    /// True if `other` describes the same item, judging by its ids.
    fn is_same(&self, other: &Value) -> bool {
        let same = |key: &str| {
            other[key].as_str().is_some_and(|id| !id.is_empty()) && self.value[key] == other[key]
        };
        // A duplicate call id belongs to another call if the name differs.
        same("id") || (same("call_id") && self.value["name"] == other["name"])
    }
}

impl ResponsesReplyBuilder {
    /// A builder that completes `draft`.
    pub(super) fn new(draft: ReplyDraft) -> Self {
        Self { draft, ..Self::default() }
    }

    fn add_item(&mut self, index: Option<u64>, value: Value) -> usize {
        let next = self.items.iter().map(|item| item.index.saturating_add(1)).max();
        let index = index.or(next).unwrap_or(0);
        self.items.push(OutputItem { index, value, ..OutputItem::default() });
        self.items.len() - 1
    }

    /// Begins an item.
    fn begin_item(&mut self, index: Option<u64>, value: &Value) {
        // The item was announced before, or its pieces arrived first.
        let is_same_item = |item: &OutputItem| {
            item.is_same(value)
                || (!item.is_complete
                    && Some(item.index) == index
                    && item.value["id"].is_null()
                    && item.value["type"] == value["type"])
        };
        match self.items.iter().position(is_same_item) {
            Some(position) if self.items[position].is_complete => {}
            Some(position) => self.items[position].value = value.clone(),
            None => {
                self.add_item(index, value.clone());
            }
        }
    }

    /// Completes an item from its final form, and emits the text that was missed.
    fn complete_item(
        &mut self,
        index: Option<u64>,
        value: &Value,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        let text = message_text(value);
        let position = self
            .find_item_to_complete(index, value, &text)
            .unwrap_or_else(|| self.add_item(index, value.clone()));
        let item = &mut self.items[position];
        if item.is_complete {
            return Ok(());
        }
        item.is_complete = true;
        item.value = value.clone();
        match value["type"].as_str() {
            Some("message") => {
                self.items[position].is_refusal |= has_refusal(value);
                let rest = text.strip_prefix(&self.items[position].emitted);
                self.emit_text(position, rest.unwrap_or_default(), on_delta)
            }
            Some("reasoning") if self.items[position].emitted.is_empty() => {
                self.emit_reasoning(position, None, &reasoning_text(value), on_delta)
            }
            _ => Ok(()),
        }
    }

    /// The position of the item whose final form is `value`, with the text `text`.
    fn find_item_to_complete(
        &self,
        index: Option<u64>,
        value: &Value,
        text: &str,
    ) -> Option<usize> {
        let has_index =
            |item: &OutputItem| Some(item.index) == index && item.value["type"] == value["type"];
        let is_open = |item: &OutputItem| !item.is_complete && item.value["type"] == value["type"];
        let is_emitted = |item: &OutputItem| {
            item.has_type("message") && !text.is_empty() && item.emitted == text
        };
        let items = &self.items;
        // Most servers keep the id of an item.
        (items.iter().position(|item| item.is_same(value)))
            // Some change it between the beginning and the end of an item.
            .or_else(|| items.iter().position(|item| is_open(item) && has_index(item)))
            // Some omit the index, too.
            .or_else(|| items.iter().position(is_open))
            // The complete response repeats items that have ended, perhaps with other ids …
            .or_else(|| items.iter().position(has_index))
            // … and at other indexes, if it omits items of the stream.
            .or_else(|| items.iter().position(is_emitted))
    }

    /// Finds the item of type `kind` that an event refers to, or adds it.
    fn item_for_event(&mut self, event: &Value, kind: &str) -> usize {
        let index = event["output_index"].as_u64();
        let id = event["item_id"].as_str().filter(|id| !id.is_empty());
        let by_id = |item: &OutputItem| {
            id.is_some_and(|id| item.value["id"] == id || item.value["call_id"] == id)
        };
        let by_index = |item: &OutputItem| item.has_type(kind) && Some(item.index) == index;
        // Without index and id, the event refers to the item that was begun last.
        let is_open =
            |item: &OutputItem| index.is_none() && item.has_type(kind) && !item.is_complete;
        let position = (self.items.iter().rposition(by_id))
            .or_else(|| self.items.iter().rposition(by_index))
            .or_else(|| self.items.iter().rposition(is_open));
        position.unwrap_or_else(|| {
            let mut value = json!({ "type": kind });
            if let Some(id) = id {
                value["id"] = id.into();
            }
            self.add_item(index, value)
        })
    }

    /// Appends text to a message.
    fn emit_text(
        &mut self,
        position: usize,
        text: &str,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        if text.is_empty() {
            return Ok(());
        }
        let item = &mut self.items[position];
        item.is_commentary |= item.emitted.is_empty() && item.value["phase"] == "commentary";
        if item.is_commentary {
            return self.emit_reasoning(position, None, text, on_delta);
        }
        self.items[position].emitted.push_str(text);
        pass_on(TextSegment::Text(text), on_delta)
    }

    fn emit_reasoning(
        &mut self,
        position: usize,
        part: Option<u64>,
        text: &str,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        if text.is_empty() {
            return Ok(());
        }
        let item = &mut self.items[position];
        let is_new = item.emitted.is_empty() || item.reasoning_part != part;
        item.reasoning_part = part;
        item.emitted.push_str(text);
        let text = if is_new && !self.draft.reply.reasoning.is_empty() {
            format!("\n\n{text}")
        } else {
            text.to_owned()
        };
        self.draft.add(TextSegment::Reasoning(&text), on_delta)
    }

    /// Processes the response object, partial or complete.
    fn update_response(&mut self, response: &Value) -> ReplyResult<()> {
        self.draft.set_model(response["model"].as_str().unwrap_or_default());
        if response["usage"].is_object() {
            self.draft.reply.usage = parse_usage(&response["usage"]);
        }
        if response["error"].is_object() {
            return Err(ReplyError::Server(json!({ "error": response["error"] })));
        }
        if response["status"] == "failed" {
            let error = json!({ "message": "the response failed without a reason" });
            return Err(ReplyError::Server(json!({ "error": error })));
        }
        Ok(())
    }

    /// Ends the response, and takes missed items from the complete response object.
    fn finish_response(
        &mut self,
        response: &Value,
        on_delta: &mut DeltaSink<'_>,
    ) -> ReplyResult<()> {
        self.update_response(response)?;
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        self.draft.finish_reason = reason.or(response["status"].as_str()).map(str::to_owned);
        self.draft.is_complete = true;
        for (index, item) in response["output"].as_array().into_iter().flatten().enumerate() {
            self.complete_item(Some(index as u64), item, on_delta)?;
        }
        Ok(())
    }
}

impl ReplyBuilder for ResponsesReplyBuilder {
    fn add_text_event(&mut self, event: &str, on_delta: &mut DeltaSink<'_>) -> ReplyResult<bool> {
        let Some(event) = text_event::parse::<ResponsesTextEvent<'_>>(event) else {
            return Ok(false);
        };
        if event.error.is_some()
            || text_event::as_str(&event.object) == "error"
            || event.r#type.0 != "response.output_text.delta"
            || event.item_id.0.is_empty()
        {
            return Ok(false);
        }
        let has_id = |item: &OutputItem| {
            let id = &*event.item_id.0;
            item.value["id"] == id || item.value["call_id"] == id
        };
        let Some(position) = self.items.iter().rposition(has_id) else {
            return Ok(false);
        };
        self.emit_text(position, &event.delta.0, on_delta)?;
        Ok(true)
    }

    fn add_event(&mut self, event: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let index = event["output_index"].as_u64();
        let delta = event["delta"].as_str().unwrap_or_default();
        match event["type"].as_str() {
            Some("response.created" | "response.in_progress" | "response.queued") => {
                self.update_response(&event["response"])?;
            }
            Some("response.output_item.added") => self.begin_item(index, &event["item"]),
            Some("response.output_item.done") => {
                self.complete_item(index, &event["item"], on_delta)?;
            }
            Some(kind @ ("response.output_text.delta" | "response.refusal.delta")) => {
                let position = self.item_for_event(event, "message");
                self.items[position].is_refusal |= kind == "response.refusal.delta";
                self.emit_text(position, delta, on_delta)?;
            }
            Some("response.reasoning_summary_text.delta" | "response.reasoning_text.delta") => {
                let position = self.item_for_event(event, "reasoning");
                let part = event["summary_index"].as_u64().or(event["content_index"].as_u64());
                self.emit_reasoning(position, part, delta, on_delta)?;
            }
            Some("response.function_call_arguments.delta") => {
                let position = self.item_for_event(event, "function_call");
                self.items[position].arguments.push_str(delta);
            }
            Some("response.function_call_arguments.done") => {
                let position = self.item_for_event(event, "function_call");
                if let Some(text) = event["arguments"].as_str().filter(|text| !text.is_empty()) {
                    text.clone_into(&mut self.items[position].arguments);
                }
            }
            Some(
                kind @ ("response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled"
                | "response.done"),
            ) => {
                self.finish_response(&event["response"], on_delta)?;
                // Some servers repeat the response object of the beginning, with the status that it had there.
                let is_stale =
                    matches!(self.draft.finish_reason.as_deref(), Some("in_progress" | "queued"));
                if is_stale && kind == "response.completed" {
                    self.draft.finish_reason = None;
                }
            }
            // Some servers send the complete response as one event of the stream.
            None if event["object"] == "response" => self.add_response(event, on_delta)?,
            _ => {}
        }
        Ok(())
    }

    fn add_response(&mut self, response: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        if response["output"].is_array() {
            self.finish_response(response, on_delta)
        } else {
            self.update_response(response)?;
            Err(ReplyError::Malformed("a response without output".into()))
        }
    }

    fn close(&mut self) {
        // Some servers send the closing mark without the complete response.
        self.draft.is_complete |= !self.items.is_empty();
    }

    fn is_done(&self) -> bool {
        self.draft.is_complete
    }

    fn finish(&mut self, _: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let is_empty = self.items.is_empty() && self.draft.reply.model.is_empty();
        if !self.draft.is_complete && is_empty {
            return Err(ReplyError::Malformed("a response without output".into()));
        }
        self.draft.check_end()
    }

    fn into_reply(self: Box<Self>) -> ReplyResult<Reply> {
        let Self { mut draft, mut items } = *self;
        items.sort_by_key(|item| item.index);
        let mut opaque_items = Vec::new();
        let mut has_opaque = false;
        for (number, item) in items.iter().enumerate() {
            let value = &item.value;
            match value["type"].as_str() {
                Some("message") => {
                    draft.is_refusal |= item.is_refusal;
                    has_opaque |= value["phase"].is_string();
                    opaque_items.push(message_to_send_back(item));
                    if !item.is_commentary {
                        draft.reply.text.push_str(&item.emitted);
                    }
                }
                Some("function_call") => {
                    opaque_items.push(json!({ "type": "function_call" }));
                    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
                    let arguments = call_arguments(item);
                    let call = ToolCall { id: text("call_id"), name: text("name"), arguments };
                    draft.add_call(number, call)?;
                }
                // Reasoning that is not encrypted is useless to a server that stores nothing.
                Some("reasoning") if value["encrypted_content"].is_string() => {
                    has_opaque = true;
                    opaque_items.push(reasoning_to_send_back(value));
                }
                _ => {}
            }
        }
        draft.into_reply(has_opaque.then(|| opaque_items.into()))
    }
}

/// The form in which a message goes back to the server. The text of an answer is that of the reply; only its length is stored.
fn message_to_send_back(item: &OutputItem) -> Value {
    let mut message = json!({ "type": "message" });
    // Models that mark their final answer with a phase require the marks back.
    if let Some(phase) = item.value["phase"].as_str() {
        message["phase"] = phase.into();
    }
    if item.is_commentary {
        message["role"] = "assistant".into();
        message["content"] = item.emitted.as_str().into();
    } else {
        message[TEXT_BYTES_KEY] = item.emitted.len().into();
    }
    message
}

/// The arguments of a call: those of the complete item, or of the fragments if it has none.
fn call_arguments(item: &OutputItem) -> Value {
    let has_fragments = !item.arguments.trim().is_empty();
    match &item.value["arguments"] {
        Value::Null => parse_arguments(&item.arguments),
        Value::String(text) if has_fragments && text.trim().is_empty() => {
            parse_arguments(&item.arguments)
        }
        arguments => arguments_from_value(arguments),
    }
}

fn content_parts(item: &Value) -> impl Iterator<Item = &Value> {
    item["content"].as_array().into_iter().flatten()
}

/// The text of a message item, including a refusal's text.
fn message_text(item: &Value) -> String {
    if item["type"] != "message" {
        return String::new();
    }
    content_parts(item)
        .filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str()))
        .collect()
}

fn has_refusal(item: &Value) -> bool {
    content_parts(item).any(|part| part["type"] == "refusal")
}

/// The readable part of a reasoning item.
fn reasoning_text(item: &Value) -> String {
    let summaries = item["summary"].as_array().into_iter().flatten();
    let texts: Vec<&str> =
        summaries.chain(content_parts(item)).filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n\n")
}

/// A reasoning item in the form in which it can be sent back.
fn reasoning_to_send_back(item: &Value) -> Value {
    let mut opaque = Map::new();
    for key in ["type", "id", "summary", "content", "encrypted_content"] {
        if let Some(value) = item.get(key).filter(|value| !value.is_null()) {
            opaque.insert(key.into(), value.clone());
        }
    }
    opaque.entry("summary").or_insert_with(|| json!([]));
    opaque.into()
}

fn parse_usage(value: &Value) -> Usage {
    let number = |pointer: &str| value.pointer(pointer).and_then(parse_tokens).unwrap_or(0);
    Usage {
        input: number("/input_tokens"),
        cached: number("/input_tokens_details/cached_tokens"),
        cache_write: number("/input_tokens_details/cache_write_tokens"),
        output: number("/output_tokens"),
        reasoning: number("/output_tokens_details/reasoning_tokens"),
        estimated: false,
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::quirks::NONE;
    use crate::provider::response::test_support::{self, calls};
    use crate::provider::responses::ResponsesFormat;
    use crate::provider::wire_format::{ReplyError, ReplyResult};
    use nanobot_base::message::{FinishReason, Reply};
    use serde_json::{Value, json};

    const RESPONSES: ResponsesFormat = ResponsesFormat {
        server: String::new(),
        quirks: NONE,
        max_output_tokens: None,
        is_reasoning_model: true,
    };

    fn read(response: &str) -> ReplyResult<(Reply, test_support::EmittedDeltas)> {
        test_support::read(&RESPONSES, response.as_bytes(), 0)
    }

    #[track_caller]
    fn read_object(response: &Value) -> Reply {
        test_support::read_object(&RESPONSES, response.to_string().as_bytes())
    }

    #[track_caller]
    fn stream(events: &[Value]) -> Reply {
        test_support::read_object(&RESPONSES, test_support::events(events).as_bytes())
    }

    fn response(status: &str, output: &[Value]) -> Value {
        json!({ "object": "response", "id": "resp_1", "model": "m1", "status": status, "error": null, "output": output,
                "usage": { "input_tokens": 10, "input_tokens_details": { "cached_tokens": 4 },
                           "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 2 } } })
    }

    fn created() -> Value {
        json!({ "type": "response.created", "response": { "model": "m1", "status": "in_progress", "output": [] } })
    }

    fn completed(output: &[Value]) -> Value {
        json!({ "type": "response.completed", "response": response("completed", output) })
    }

    fn added(index: u64, item: &Value) -> Value {
        json!({ "type": "response.output_item.added", "output_index": index, "item": item })
    }

    fn done(index: u64, item: &Value) -> Value {
        json!({ "type": "response.output_item.done", "output_index": index, "item": item })
    }

    fn delta(kind: &str, index: u64, text: &str) -> Value {
        json!({ "type": format!("response.{kind}.delta"), "output_index": index, "delta": text })
    }

    fn text(index: u64, text: &str) -> Value {
        delta("output_text", index, text)
    }

    fn message_item(id: &str, text: &str) -> Value {
        let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
        json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content })
    }

    fn empty(id: &str) -> Value {
        json!({ "type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": [] })
    }

    fn call(id: &str, call: &str, name: &str, arguments: &str) -> Value {
        json!({ "type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments })
    }

    fn reasoning_item(id: &str, summary: &[&str], secret: Value) -> Value {
        let summary: Vec<Value> =
            summary.iter().map(|text| json!({ "type": "summary_text", "text": text })).collect();
        json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": secret, "status": null })
    }

    /// The events without their output indexes; only ids remain.
    fn without_index(events: &[Value], id: &str) -> Vec<Value> {
        let without = |event: &Value| {
            let mut event = event.clone();
            let object = event.as_object_mut().unwrap();
            object.shift_remove("output_index");
            if object.contains_key("delta") {
                object.insert("item_id".into(), id.into());
            }
            event
        };
        events.iter().map(without).collect()
    }

    #[test]
    fn text_in_pieces() {
        let item = message_item("msg_1", "h\u{e9}llo \u{1f642}");
        let reply = stream(&[
            created(),
            json!({ "type": "response.in_progress", "response": {} }),
            added(0, &empty("msg_1")),
            json!({ "type": "response.content_part.added", "output_index": 0, "part": { "type": "output_text", "text": "" } }),
            text(0, "h\u{e9}"),
            json!({ "type": "response.a_kind_to_come", "output_index": 0, "delta": "x" }),
            text(0, "llo \u{1f642}"),
            json!({ "type": "response.output_text.done", "output_index": 0, "text": "h\u{e9}llo \u{1f642}" }),
            done(0, &item),
            completed(&[item]),
        ]);
        assert_eq!(reply.text, "h\u{e9}llo \u{1f642}");
        assert_eq!(
            (reply.finish_reason, reply.model.as_str(), reply.provider_data),
            (FinishReason::Stop, "m1", None)
        );
        let usage = reply.usage;
        assert_eq!((usage.input, usage.cached, usage.output, usage.reasoning), (10, 4, 5, 2));
    }

    #[test]
    fn any_one_of_the_four_reports_suffices() {
        let item = message_item("msg_1", "hi there");
        let beginning = vec![added(0, &empty("msg_1"))];
        let pieces = vec![text(0, "hi "), text(0, "there")];
        let end = vec![done(0, &item)];
        let last = |output: &[Value]| vec![completed(output)];
        let all = std::slice::from_ref(&item);
        let nothing = Vec::new;
        let cases = [
            [beginning.clone(), pieces.clone(), end.clone(), last(all)],
            [beginning.clone(), pieces.clone(), end.clone(), last(&[])],
            [beginning.clone(), pieces.clone(), nothing(), last(all)],
            [beginning.clone(), pieces.clone(), nothing(), last(&[])],
            [nothing(), pieces.clone(), end.clone(), last(all)],
            [nothing(), pieces.clone(), nothing(), last(&[])],
            [beginning.clone(), nothing(), end.clone(), last(&[])],
            [beginning.clone(), vec![text(0, "hi ")], end.clone(), last(all)],
            [nothing(), nothing(), end, last(all)],
            [beginning, nothing(), nothing(), last(all)],
            [nothing(), pieces, nothing(), last(&[message_item("other", "hi there")])],
            [nothing(), nothing(), nothing(), last(all)],
        ];
        for case in cases {
            let events = case.concat();
            assert_eq!(stream(&events).text, "hi there", "{events:?}");
            let reply = stream(&without_index(&events, "msg_1"));
            assert_eq!(reply.text, "hi there", "{events:?}");
            let reply = stream(&without_index(&events, "another"));
            assert_eq!(reply.text, "hi there", "{events:?}");
        }
    }

    #[test]
    fn calls_from_any_report() {
        let open = call("fc_1", "a", "read", "");
        let item = call("fc_1", "a", "read", "{\"p\": 1}");
        let other = call("fc_2", "b", "list", "{}");
        let pieces =
            |index| ["{\"p\":", " 1}"].map(|piece| delta("function_call_arguments", index, piece));
        let expect = [("a", "read", json!({ "p": 1 })), ("b", "list", json!({}))];
        let check = |events: &[&[Value]]| {
            let events = events.concat();
            let reply = stream(&events);
            assert_eq!(calls(&reply), expect, "{events:?}");
            assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
        };
        let (begun, over) = ([added(0, &open)], [done(0, &item)]);
        let second = [added(1, &other), done(1, &other)];
        let both = [completed(&[item, other.clone()])];
        let nothing = [completed(&[])];
        check(&[&begun, &pieces(0), &over, &second, &both]);
        check(&[&begun, &pieces(0), &second, &nothing]);
        check(&[&begun, &over, &second, &nothing]);
        check(&[&over, &second, &both]);
        check(&[&both]);
        // Interleaved.
        check(&[&begun, &second[..1], &pieces(0), &second[1..], &both]);
        // Identified by ids only, and all with index 0.
        let apart = [&begun[..], &second[..1], &pieces(0)].concat();
        let apart = without_index(&apart, "fc_1");
        check(&[&apart, &nothing]);
        check(&[&apart, &both]);
        let zero = [added(0, &other), done(0, &other)];
        check(&[&begun, &pieces(0), &over, &zero, &both]);
        // The complete arguments as a separate event.
        let whole = json!({ "type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{\"p\": 1}" });
        check(&[&begun, &[whole], &second, &nothing]);
    }

    #[test]
    fn calls_in_odd_shapes() {
        let check = |output: &[Value], expect: &[(&str, &str, Value)]| {
            assert_eq!(calls(&read_object(&response("completed", output))), expect);
            assert_eq!(calls(&stream(&[completed(output)])), expect);
        };
        check(&[call("", "a", "f", "{oops")], &[("a", "f", json!("{oops"))]);
        check(&[call("", "a", "f", "")], &[("a", "f", json!({}))]);
        let mut object = call("", "a", "f", "");
        object["arguments"] = json!({ "x": 1 });
        check(&[object], &[("a", "f", json!({ "x": 1 }))]);
        let list = [call("", "", "f", "{}"), call("", "a", "g", "{}"), call("", "a", "h", "{}")];
        let expect =
            [("call_0_0", "f", json!({})), ("a", "g", json!({})), ("call_0_2", "h", json!({}))];
        check(&list, &expect);
        // A server that changes an item's id at the end, and inserts another item before it.
        let before = [message_item("x", ""), call("fc_9", "a", "f", "{}")];
        let reply = stream(&[
            added(0, &call("fc_1", "a", "f", "")),
            done(0, &call("fc_1", "a", "f", "{}")),
            completed(&before),
        ]);
        assert_eq!(calls(&reply), [("a", "f", json!({}))]);
    }

    #[test]
    fn reasoning_is_preserved_in_position() {
        let item = reasoning_item("rs_1", &["hm", "yes"], json!("secret"));
        let part = |index: u64, text: &str| json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": index, "delta": text });
        let message = message_item("msg_1", "I look.");
        let tool = call("fc_1", "a", "f", "{}");
        let keep = json!([
            { "type": "reasoning", "id": "rs_1", "summary": item["summary"], "encrypted_content": "secret" },
            { "type": "message", "length": 7 },
            { "type": "function_call" },
        ]);
        let output = [item.clone(), message.clone(), tool.clone()];
        let deltas = [
            created(),
            added(0, &reasoning_item("rs_1", &[], Value::Null)),
            part(0, "h"),
            part(0, "m"),
            part(1, "yes"),
            done(0, &item),
            done(1, &message),
            done(2, &tool),
            completed(&[]),
        ];
        for reply in [
            stream(&deltas),
            stream(&[completed(&output)]),
            read_object(&response("completed", &output)),
        ] {
            assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("I look.", "hm\n\nyes"));
            let opaque = json!({ "wire": "responses", "server": "", "model": "m", "keep": keep });
            assert_eq!(reply.provider_data, Some(opaque));
        }
        // Unencrypted reasoning is displayed, and not sent back.
        let open = json!({ "type": "reasoning", "id": "rs_1", "content": [{ "type": "reasoning_text", "text": "hm" }] });
        let reply = read_object(&response("completed", &[open, message.clone()]));
        assert_eq!((reply.reasoning.as_str(), reply.provider_data), ("hm", None));
        let pieces = [
            delta("reasoning_text", 0, "h"),
            delta("reasoning_text", 0, "m"),
            done(1, &message),
            completed(&[]),
        ];
        assert_eq!(stream(&pieces).reasoning, "hm");
    }

    #[test]
    fn commentary_is_not_part_of_the_answer() {
        let marked = |mut item: Value, phase: &str| {
            item["phase"] = phase.into();
            item
        };
        let aside = marked(message_item("msg_1", "I look."), "commentary");
        let last = marked(message_item("msg_2", "Milk."), "final_answer");
        let output = [aside.clone(), last.clone()];
        let deltas = [
            added(0, &marked(empty("msg_1"), "commentary")),
            text(0, "I "),
            text(0, "look."),
            done(0, &aside),
            added(1, &marked(empty("msg_2"), "final_answer")),
            text(1, "Milk."),
            done(1, &last),
            completed(&output),
        ];
        let keep = json!([
            { "type": "message", "phase": "commentary", "role": "assistant", "content": "I look." },
            { "type": "message", "phase": "final_answer", "length": 5 },
        ]);
        for reply in [stream(&deltas), read_object(&response("completed", &output))] {
            assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Milk.", "I look."));
            assert_eq!(reply.provider_data.unwrap()["keep"], keep);
        }
    }

    #[test]
    fn ends_of_answers() {
        let check = |status: &str, reason: Value, expect: FinishReason| {
            let mut response = response(status, &[message_item("msg_1", "x")]);
            response["incomplete_details"] = reason;
            assert_eq!(read_object(&response).finish_reason, expect);
            let event = json!({ "type": format!("response.{status}"), "response": response });
            assert_eq!(stream(&[text(0, "x"), event]).finish_reason, expect);
        };
        check("completed", Value::Null, FinishReason::Stop);
        check("incomplete", json!({ "reason": "max_output_tokens" }), FinishReason::Length);
        check("incomplete", json!({ "reason": "content_filter" }), FinishReason::Refusal);
        check("incomplete", json!({ "reason": "odd" }), FinishReason::Other("odd".into()));
        check("incomplete", Value::Null, FinishReason::Length);
        let refusal = json!({ "type": "message", "id": "msg_1", "content": [{ "type": "refusal", "refusal": "no" }] });
        let reply = read_object(&response("completed", std::slice::from_ref(&refusal)));
        assert_eq!((reply.text.as_str(), reply.finish_reason), ("no", FinishReason::Refusal));
        let reply = stream(&[delta("refusal", 0, "no"), completed(&[])]);
        assert_eq!((reply.text.as_str(), reply.finish_reason), ("no", FinishReason::Refusal));
    }

    #[test]
    fn ends_of_streams() {
        let begun = test_support::events(&[created(), text(0, "a")]);
        assert!(matches!(read(&begun), Err(ReplyError::Truncated(_))));
        assert_eq!(
            test_support::read_object(&RESPONSES, (begun.clone() + "data: [DONE]\n\n").as_bytes())
                .text,
            "a"
        );
        let all = begun + &test_support::events(&[completed(&[])]);
        assert_eq!(
            test_support::read_object(&RESPONSES, all.replace('\n', "\r\n").as_bytes()).text,
            "a"
        );
        let event = format!("data: {}\n\n", response("completed", &[message_item("msg_1", "a")]));
        assert_eq!(test_support::read_object(&RESPONSES, event.as_bytes()).text, "a");
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
        nonsense("{\"output\": ");
        nonsense("data: {oops\n\n");
        nonsense("data: [DONE]\n\n");
        nonsense(&response("completed", &[call("", "a", "", "{}")]).to_string());
        let server = |response: &str, message: &str| match read(response) {
            Err(ReplyError::Server(error)) => {
                assert!(error.to_string().contains(message), "{error}");
            }
            other => panic!("{other:?}"),
        };
        let mut failed = response("failed", &[]);
        server(&failed.to_string(), "failed without a reason");
        failed["error"] = json!({ "code": "rate_limit_exceeded", "message": "slow" });
        server(&failed.to_string(), "slow");
        let event = json!({ "type": "response.failed", "response": failed });
        server(&test_support::events(&[created(), text(0, "a"), event]), "slow");
        let error =
            json!({ "type": "error", "code": "server_error", "message": "broke", "param": null });
        server(&test_support::events(&[created(), error]), "broke");
    }

    #[test]
    fn fuzz_events_of_text_have_the_same_effect_as_others() {
        let seeds: &[&[u8]] = &[
            br#"{"type":"response.created","response":{"model":"m"}}
{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"i","phase":"commentary"}}
{"type":"response.output_text.delta","item_id":"i","output_index":0,"delta":"a\n"}
{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"j"}}
{"type":"response.output_text.delta","item_id":"j","output_index":1,"delta":"b","error":null}
{"type":"response.refusal.delta","item_id":"j","output_index":1,"delta":"c"}
{"type":"response.output_text.delta","item_id":"","output_index":1,"delta":"d"}
{"type":"response.output_text.delta","item_id":"k","delta":"e"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","id":"j","content":[{"text":"bcd"}]}]}}"#,
        ];
        test_support::fuzz_text_events(&RESPONSES, seeds);
    }

    #[test]
    fn fuzz_results_do_not_depend_on_chunking() {
        let item = call("fc_1", "a", "f", "{\"x\": 1}");
        let stream = test_support::events(&[
            created(),
            added(0, &reasoning_item("rs_1", &[], Value::Null)),
            delta("reasoning_summary_text", 0, "hm"),
            done(0, &reasoning_item("rs_1", &["hm"], json!("secret"))),
            added(1, &empty("msg_1")),
            text(1, "a"),
            added(2, &call("fc_1", "a", "f", "")),
            delta("function_call_arguments", 2, "{\"x\": 1}"),
            done(2, &item),
            completed(&[message_item("msg_1", "a"), item.clone()]),
        ]);
        let whole = response(
            "completed",
            &[reasoning_item("rs_1", &["hm"], json!("s")), message_item("msg_1", "a"), item],
        )
        .to_string();
        let seeds: &[&[u8]] = &[
            stream.as_bytes(),
            whole.as_bytes(),
            br#"{"type":"response.output_item.added","output_index":18446744073709551615,"item":{"type":"message"}}"#,
            b"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"no\"}\n\n",
        ];
        test_support::fuzz(&RESPONSES, seeds);
    }
}
