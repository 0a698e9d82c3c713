//! Assembles a reply from the events of a stream, or from one complete response. Pure.
//!
//! The same item is reported up to four times: when it begins, in pieces, when it ends, and within the complete
//! response at the end. Servers omit any of these, and the index and id of an item may differ between them.

use super::WIRE;
use crate::message::{Finish, Reply, ToolCall, Usage};
use crate::provider::reading::{self, Trouble, arguments, arguments_of, push_call, tokens};
use crate::provider::{Delta, Request, Tell};
use serde_json::{Map, Value, json};

/// The reply so far.
pub(super) struct Draft {
    id: String,
    /// Number of messages in the conversation. Generated ids count from it, which keeps them unique.
    messages: usize,
    /// The requested model. Its reasoning is sent back only to the same model.
    asked: String,
    items: Vec<Item>,
    /// The reasoning emitted so far.
    reasoning: String,
    finish: Option<String>,
    usage: Usage,
    model: String,
    done: bool,
}

/// An item of the output.
struct Item {
    /// Its index in the output.
    index: u64,
    /// The item as the server sent it, so far.
    value: Value,
    /// Its text or reasoning that was emitted so far.
    told: String,
    /// The index of the reasoning part that was emitted last.
    part: Option<u64>,
    /// The fragments of a call's arguments.
    arguments: String,
    refused: bool,
    /// True if its text was emitted as reasoning: models mark intermediate commentary as such.
    aside: bool,
    /// True once the complete item has arrived.
    ended: bool,
}

impl Item {
    fn is(&self, kind: &str) -> bool {
        self.value["type"] == kind
    }

    /// True if `other` describes the same item, judging by its ids.
    fn is_same(&self, other: &Value) -> bool {
        let same = |key: &str| {
            other[key].as_str().is_some_and(|id| !id.is_empty()) && self.value[key] == other[key]
        };
        // A duplicate call id belongs to another call if the name differs.
        same("id") || same("call_id") && self.value["name"] == other["name"]
    }
}

impl Draft {
    /// An empty draft for the reply to `request`.
    pub(super) fn new(request: &Request<'_>) -> Self {
        Self {
            id: request.reply_id.to_owned(),
            messages: request.messages.len(),
            asked: request.model.to_owned(),
            items: Vec::new(),
            reasoning: String::new(),
            finish: None,
            usage: Usage::default(),
            model: String::new(),
            done: false,
        }
    }

    fn push(&mut self, index: Option<u64>, value: Value) -> usize {
        let next = self
            .items
            .iter()
            .map(|item| item.index.saturating_add(1))
            .max();
        self.items.push(Item {
            index: index.or(next).unwrap_or(0),
            value,
            told: String::new(),
            part: None,
            arguments: String::new(),
            refused: false,
            aside: false,
            ended: false,
        });
        self.items.len() - 1
    }

    /// Begins an item.
    fn begin(&mut self, index: Option<u64>, value: &Value) {
        // The item was announced before, or its pieces arrived first.
        let is_it = |item: &Item| {
            item.is_same(value)
                || !item.ended
                    && Some(item.index) == index
                    && item.value["id"].is_null()
                    && item.value["type"] == value["type"]
        };
        match self.items.iter().position(is_it) {
            Some(at) if self.items[at].ended => {}
            Some(at) => self.items[at].value = value.clone(),
            None => drop(self.push(index, value.clone())),
        }
    }

    /// Completes an item from its final form, and emits the text that was missed.
    fn complete(
        &mut self,
        index: Option<u64>,
        value: &Value,
        on_delta: &mut Tell<'_>,
    ) -> Result<(), Trouble> {
        let by_id = |item: &Item| item.is_same(value);
        let by_place =
            |item: &Item| Some(item.index) == index && item.value["type"] == value["type"];
        // Some servers change an item's id between its beginning and its end.
        let is_open = |item: &Item| !item.ended && item.value["type"] == value["type"];
        let found = self.items.iter().position(by_id);
        let found = found.or_else(|| {
            self.items
                .iter()
                .position(|item| is_open(item) && by_place(item))
        });
        let found = found.or_else(|| self.items.iter().position(is_open));
        let found = found.or_else(|| self.items.iter().position(by_place));
        let words = spoken(value);
        let is_told = |item: &Item| item.is("message") && !words.is_empty() && item.told == words;
        let found = found.or_else(|| self.items.iter().position(is_told));
        let at = found.unwrap_or_else(|| self.push(index, value.clone()));
        if std::mem::replace(&mut self.items[at].ended, true) {
            return Ok(());
        }
        self.items[at].value = value.clone();
        match value["type"].as_str() {
            Some("message") => {
                self.items[at].refused |= has_refusal(value);
                let rest = words.strip_prefix(&self.items[at].told);
                self.say(at, rest.unwrap_or_default(), on_delta)
            }
            Some("reasoning") if self.items[at].told.is_empty() => {
                self.think(at, None, &summary(value), on_delta)
            }
            _ => Ok(()),
        }
    }

    /// Finds the item of type `kind` that an event refers to, or adds it.
    fn about(&mut self, event: &Value, kind: &str) -> usize {
        let index = event["output_index"].as_u64();
        let id = event["item_id"].as_str().filter(|id| !id.is_empty());
        let by_id = |item: &Item| {
            id.is_some_and(|id| item.value["id"] == id || item.value["call_id"] == id)
        };
        let by_place = |item: &Item| item.is(kind) && Some(item.index) == index;
        let found = self.items.iter().rposition(by_id);
        let found = found.or_else(|| self.items.iter().rposition(by_place));
        // Without index and id, the event refers to the item that was begun last.
        let last = |item: &Item| item.is(kind) && !item.ended;
        let found = found.or_else(|| {
            self.items
                .iter()
                .rposition(last)
                .filter(|_| index.is_none())
        });
        found.unwrap_or_else(|| {
            let mut value = json!({ "type": kind });
            if let Some(id) = id {
                value["id"] = id.into();
            }
            self.push(index, value)
        })
    }

    /// Appends text to a message.
    fn say(&mut self, at: usize, text: &str, on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
        if text.is_empty() {
            return Ok(());
        }
        let item = &mut self.items[at];
        item.aside |= item.told.is_empty() && item.value["phase"] == "commentary";
        if item.aside {
            return self.think(at, None, text, on_delta);
        }
        self.items[at].told.push_str(text);
        on_delta(Delta::Text(text)).map_err(Trouble::Listener)
    }

    fn think(
        &mut self,
        at: usize,
        part: Option<u64>,
        text: &str,
        on_delta: &mut Tell<'_>,
    ) -> Result<(), Trouble> {
        if text.is_empty() {
            return Ok(());
        }
        let item = &mut self.items[at];
        let is_new = item.told.is_empty() || item.part != part;
        item.part = part;
        item.told.push_str(text);
        let text = match is_new && !self.reasoning.is_empty() {
            true => format!("\n\n{text}"),
            false => text.to_owned(),
        };
        self.reasoning.push_str(&text);
        on_delta(Delta::Reasoning(&text)).map_err(Trouble::Listener)
    }

    /// Processes the response object, partial or complete.
    fn response(&mut self, response: &Value) -> Result<(), Trouble> {
        if let Some(model) = response["model"].as_str() {
            model.clone_into(&mut self.model);
        }
        if response["usage"].is_object() {
            self.usage = usage(&response["usage"]);
        }
        if response["error"].is_object() {
            return Err(Trouble::Server(json!({ "error": response["error"] })));
        }
        let why = response
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str);
        match response["status"].as_str() {
            Some("failed") => {
                let error = json!({ "message": "the response failed without a reason" });
                return Err(Trouble::Server(json!({ "error": error })));
            }
            Some(status @ ("incomplete" | "cancelled")) => {
                self.finish = Some(why.unwrap_or(status).to_owned());
            }
            _ if why.is_some() => self.finish = why.map(str::to_owned),
            _ => {}
        }
        Ok(())
    }

    /// Ends the response, and takes missed items from the complete response object.
    fn conclude(&mut self, response: &Value, on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
        self.response(response)?;
        self.done = true;
        for (index, item) in response["output"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            self.complete(Some(index as u64), item, on_delta)?;
        }
        Ok(())
    }
}

impl reading::Draft for Draft {
    fn event(&mut self, event: &Value, on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
        let index = event["output_index"].as_u64();
        let delta = event["delta"].as_str().unwrap_or_default();
        match event["type"].as_str() {
            Some("response.created" | "response.in_progress" | "response.queued") => {
                self.response(&event["response"])?;
            }
            Some("response.output_item.added") => self.begin(index, &event["item"]),
            Some("response.output_item.done") => self.complete(index, &event["item"], on_delta)?,
            Some(kind @ ("response.output_text.delta" | "response.refusal.delta")) => {
                let at = self.about(event, "message");
                self.items[at].refused |= kind == "response.refusal.delta";
                self.say(at, delta, on_delta)?;
            }
            Some("response.reasoning_summary_text.delta" | "response.reasoning_text.delta") => {
                let at = self.about(event, "reasoning");
                let part = event["summary_index"]
                    .as_u64()
                    .or(event["content_index"].as_u64());
                self.think(at, part, delta, on_delta)?;
            }
            Some("response.function_call_arguments.delta") => {
                let at = self.about(event, "function_call");
                self.items[at].arguments.push_str(delta);
            }
            Some("response.function_call_arguments.done") => {
                let at = self.about(event, "function_call");
                if let Some(text) = event["arguments"].as_str().filter(|text| !text.is_empty()) {
                    text.clone_into(&mut self.items[at].arguments);
                }
            }
            Some(
                "response.completed" | "response.incomplete" | "response.failed" | "response.done",
            ) => self.conclude(&event["response"], on_delta)?,
            // Some servers send the complete response as one event of the stream.
            None if event["object"] == "response" => self.whole(event, on_delta)?,
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, answer: &Value, on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
        match answer["output"].is_array() {
            true => self.conclude(answer, on_delta),
            false => {
                self.response(answer)?;
                Err(Trouble::Nonsense("a response without output".into()))
            }
        }
    }

    fn close(&mut self) {
        self.done |= !self.items.is_empty();
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn end(&mut self, _: &mut Tell<'_>) -> Result<(), Trouble> {
        match (self.done, self.items.is_empty() && self.model.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => Err(Trouble::Nonsense("a response without output".into())),
            (false, false) => Err(Trouble::Cut("the stream ended early".into())),
        }
    }

    fn reply(self: Box<Self>) -> Result<Reply, Trouble> {
        let mut reply = Reply {
            id: self.id,
            reasoning: self.reasoning,
            usage: self.usage,
            model: self.model,
            ..Reply::default()
        };
        let mut items = self.items;
        items.sort_by_key(|item| item.index);
        let mut keep = Vec::new();
        let mut keeps = false;
        let mut refused = false;
        for (number, item) in items.into_iter().enumerate() {
            let value = item.value;
            match value["type"].as_str() {
                Some("message") => {
                    refused |= item.refused;
                    // Models that mark their final answer with a phase require the marks back.
                    let phase = value["phase"].as_str();
                    keeps |= phase.is_some();
                    let mut kept = json!({ "type": "message" });
                    if let Some(phase) = phase {
                        kept["phase"] = phase.into();
                    }
                    if item.aside {
                        kept["role"] = "assistant".into();
                        kept["content"] = item.told.into();
                    } else {
                        kept["length"] = item.told.len().into();
                        reply.text.push_str(&item.told);
                    }
                    keep.push(kept);
                }
                Some("function_call") => {
                    keep.push(json!({ "type": "function_call" }));
                    let has_pieces = !item.arguments.trim().is_empty();
                    let is_blank = |text: &str| text.trim().is_empty();
                    let arguments = match &value["arguments"] {
                        Value::Null => arguments(&item.arguments),
                        Value::String(text) if has_pieces && is_blank(text) => {
                            arguments(&item.arguments)
                        }
                        whole => arguments_of(whole),
                    };
                    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
                    let call = ToolCall {
                        id: text("call_id"),
                        name: text("name"),
                        arguments,
                    };
                    let spare_id = format!("call_{}_{number}", self.messages);
                    push_call(&mut reply.calls, call, spare_id)?;
                }
                // Reasoning that is not encrypted is useless to a server that stores nothing.
                Some("reasoning") if value["encrypted_content"].is_string() => {
                    keeps = true;
                    keep.push(returned(&value));
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

fn parts(item: &Value) -> impl Iterator<Item = &Value> {
    item["content"].as_array().into_iter().flatten()
}

/// The text of a message item, including a refusal's text.
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

/// The readable part of a reasoning item.
fn summary(item: &Value) -> String {
    let summaries = item["summary"].as_array().into_iter().flatten();
    let texts: Vec<&str> = summaries
        .chain(parts(item))
        .filter_map(|part| part["text"].as_str())
        .collect();
    texts.join("\n\n")
}

/// A reasoning item in the form in which it can be sent back.
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

fn usage(value: &Value) -> Usage {
    let number = |place: &str| value.pointer(place).and_then(tokens).unwrap_or(0);
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
    use crate::message::{Finish, Reply};
    use crate::provider::quirks::NONE;
    use crate::provider::reading::Trouble;
    use crate::provider::reading::trial::{self, calls};
    use crate::provider::responses::Responses;
    use serde_json::{Value, json};

    const RESPONSES: Responses = Responses {
        quirks: NONE,
        most: None,
        reasons: true,
    };

    fn read(answer: &str) -> Result<(Reply, trial::Told), Trouble> {
        trial::read(&RESPONSES, answer.as_bytes(), 0)
    }

    #[track_caller]
    fn whole(answer: &Value) -> Reply {
        trial::whole(&RESPONSES, answer.to_string().as_bytes())
    }

    #[track_caller]
    fn stream(events: &[Value]) -> Reply {
        trial::whole(&RESPONSES, trial::events(events).as_bytes())
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

    fn text(index: u64, words: &str) -> Value {
        delta("output_text", index, words)
    }

    fn said(id: &str, words: &str) -> Value {
        let content = json!([{ "type": "output_text", "text": words, "annotations": [] }]);
        json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content })
    }

    fn empty(id: &str) -> Value {
        json!({ "type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": [] })
    }

    fn call(id: &str, call: &str, name: &str, arguments: &str) -> Value {
        json!({ "type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments })
    }

    fn thought(id: &str, summary: &[&str], secret: Value) -> Value {
        let summary: Vec<Value> = summary
            .iter()
            .map(|text| json!({ "type": "summary_text", "text": text }))
            .collect();
        json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": secret, "status": null })
    }

    /// The events without their output indexes; only ids remain.
    fn placeless(events: &[Value], id: &str) -> Vec<Value> {
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
        let item = said("msg_1", "h\u{e9}llo \u{1f642}");
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
            (reply.finish, reply.model.as_str(), reply.opaque),
            (Finish::Stop, "m1", None)
        );
        let usage = reply.usage;
        assert_eq!(
            (usage.input, usage.cached, usage.output, usage.reasoning),
            (10, 4, 5, 2)
        );
    }

    #[test]
    fn any_of_the_four_tellings_will_do() {
        let item = said("msg_1", "hi there");
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
            [
                beginning.clone(),
                vec![text(0, "hi ")],
                end.clone(),
                last(all),
            ],
            [nothing(), nothing(), end, last(all)],
            [beginning, nothing(), nothing(), last(all)],
            [
                nothing(),
                pieces,
                nothing(),
                last(&[said("other", "hi there")]),
            ],
            [nothing(), nothing(), nothing(), last(all)],
        ];
        for case in cases {
            let events = case.concat();
            assert_eq!(stream(&events).text, "hi there", "{events:?}");
            let reply = stream(&placeless(&events, "msg_1"));
            assert_eq!(reply.text, "hi there", "{events:?}");
            let reply = stream(&placeless(&events, "another"));
            assert_eq!(reply.text, "hi there", "{events:?}");
        }
    }

    #[test]
    fn calls_from_whatever_tells_of_them() {
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
            assert_eq!(reply.finish, Finish::Calls);
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
        let apart = placeless(&apart, "fc_1");
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
            assert_eq!(calls(&whole(&response("completed", output))), expect);
            assert_eq!(calls(&stream(&[completed(output)])), expect);
        };
        check(
            &[call("", "a", "f", "{oops")],
            &[("a", "f", json!("{oops"))],
        );
        check(&[call("", "a", "f", "")], &[("a", "f", json!({}))]);
        let mut object = call("", "a", "f", "");
        object["arguments"] = json!({ "x": 1 });
        check(&[object], &[("a", "f", json!({ "x": 1 }))]);
        let list = [
            call("", "", "f", "{}"),
            call("", "a", "g", "{}"),
            call("", "a", "h", "{}"),
        ];
        let expect = [
            ("call_0_0", "f", json!({})),
            ("a", "g", json!({})),
            ("call_0_2", "h", json!({})),
        ];
        check(&list, &expect);
        // A server that changes an item's id at the end, and inserts another item before it.
        let before = [said("x", ""), call("fc_9", "a", "f", "{}")];
        let reply = stream(&[
            added(0, &call("fc_1", "a", "f", "")),
            done(0, &call("fc_1", "a", "f", "{}")),
            completed(&before),
        ]);
        assert_eq!(calls(&reply), [("a", "f", json!({}))]);
    }

    #[test]
    fn reasoning_is_kept_in_its_place() {
        let item = thought("rs_1", &["hm", "yes"], json!("secret"));
        let part = |index: u64, text: &str| json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": index, "delta": text });
        let answer = said("msg_1", "I look.");
        let tool = call("fc_1", "a", "f", "{}");
        let keep = json!([
            { "type": "reasoning", "id": "rs_1", "summary": item["summary"], "encrypted_content": "secret" },
            { "type": "message", "length": 7 },
            { "type": "function_call" },
        ]);
        let output = [item.clone(), answer.clone(), tool.clone()];
        let told = [
            created(),
            added(0, &thought("rs_1", &[], Value::Null)),
            part(0, "h"),
            part(0, "m"),
            part(1, "yes"),
            done(0, &item),
            done(1, &answer),
            done(2, &tool),
            completed(&[]),
        ];
        for reply in [
            stream(&told),
            stream(&[completed(&output)]),
            whole(&response("completed", &output)),
        ] {
            assert_eq!(
                (reply.text.as_str(), reply.reasoning.as_str()),
                ("I look.", "hm\n\nyes")
            );
            let opaque = json!({ "wire": "responses", "model": "m", "keep": keep });
            assert_eq!(reply.opaque, Some(opaque));
        }
        // Unencrypted reasoning is displayed, and not sent back.
        let open = json!({ "type": "reasoning", "id": "rs_1", "content": [{ "type": "reasoning_text", "text": "hm" }] });
        let reply = whole(&response("completed", &[open, answer.clone()]));
        assert_eq!((reply.reasoning.as_str(), reply.opaque), ("hm", None));
        let pieces = [
            delta("reasoning_text", 0, "h"),
            delta("reasoning_text", 0, "m"),
            done(1, &answer),
            completed(&[]),
        ];
        assert_eq!(stream(&pieces).reasoning, "hm");
    }

    #[test]
    fn talk_on_the_way_is_no_answer() {
        let marked = |mut item: Value, phase: &str| {
            item["phase"] = phase.into();
            item
        };
        let aside = marked(said("msg_1", "I look."), "commentary");
        let last = marked(said("msg_2", "Milk."), "final_answer");
        let output = [aside.clone(), last.clone()];
        let told = [
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
        for reply in [stream(&told), whole(&response("completed", &output))] {
            assert_eq!(
                (reply.text.as_str(), reply.reasoning.as_str()),
                ("Milk.", "I look.")
            );
            assert_eq!(reply.opaque.unwrap()["keep"], keep);
        }
    }

    #[test]
    fn ends_of_answers() {
        let check = |status: &str, reason: Value, expect: Finish| {
            let mut answer = response(status, &[said("msg_1", "x")]);
            answer["incomplete_details"] = reason;
            assert_eq!(whole(&answer).finish, expect);
            let event = json!({ "type": format!("response.{status}"), "response": answer });
            assert!(status == "cancelled" || stream(&[text(0, "x"), event]).finish == expect);
        };
        check("completed", Value::Null, Finish::Stop);
        check(
            "incomplete",
            json!({ "reason": "max_output_tokens" }),
            Finish::Length,
        );
        check(
            "incomplete",
            json!({ "reason": "content_filter" }),
            Finish::Refusal,
        );
        check(
            "incomplete",
            json!({ "reason": "odd" }),
            Finish::Other("odd".into()),
        );
        check(
            "incomplete",
            Value::Null,
            Finish::Other("incomplete".into()),
        );
        check("cancelled", Value::Null, Finish::Other("cancelled".into()));
        let refusal = json!({ "type": "message", "id": "msg_1", "content": [{ "type": "refusal", "refusal": "no" }] });
        let reply = whole(&response("completed", std::slice::from_ref(&refusal)));
        assert_eq!((reply.text.as_str(), reply.finish), ("no", Finish::Refusal));
        let reply = stream(&[delta("refusal", 0, "no"), completed(&[])]);
        assert_eq!((reply.text.as_str(), reply.finish), ("no", Finish::Refusal));
    }

    #[test]
    fn ends_of_streams() {
        let begun = trial::events(&[created(), text(0, "a")]);
        assert!(matches!(read(&begun), Err(Trouble::Cut(_))));
        assert_eq!(
            trial::whole(&RESPONSES, (begun.clone() + "data: [DONE]\n\n").as_bytes()).text,
            "a"
        );
        let all = begun + &trial::events(&[completed(&[])]);
        assert_eq!(
            trial::whole(&RESPONSES, all.replace('\n', "\r\n").as_bytes()).text,
            "a"
        );
        let event = format!("data: {}\n\n", response("completed", &[said("msg_1", "a")]));
        assert_eq!(trial::whole(&RESPONSES, event.as_bytes()).text, "a");
    }

    #[test]
    fn what_is_no_answer() {
        let nonsense = |answer: &str| {
            let found = read(answer);
            assert!(matches!(found, Err(Trouble::Nonsense(_))), "{answer}");
        };
        nonsense("");
        nonsense("<html><title>Login</title></html>");
        nonsense("{\"choices\": []}");
        nonsense("{\"output\": ");
        nonsense("data: {oops\n\n");
        nonsense("data: [DONE]\n\n");
        nonsense(&response("completed", &[call("", "a", "", "{}")]).to_string());
        let server = |answer: &str, words: &str| match read(answer) {
            Err(Trouble::Server(said)) => assert!(said.to_string().contains(words), "{said}"),
            other => panic!("{other:?}"),
        };
        let mut failed = response("failed", &[]);
        server(&failed.to_string(), "without a word");
        failed["error"] = json!({ "code": "rate_limit_exceeded", "message": "slow" });
        server(&failed.to_string(), "slow");
        let event = json!({ "type": "response.failed", "response": failed });
        server(&trial::events(&[created(), text(0, "a"), event]), "slow");
        let error =
            json!({ "type": "error", "code": "server_error", "message": "broke", "param": null });
        server(&trial::events(&[created(), error]), "broke");
    }

    #[test]
    fn fuzz_any_answer_is_read_or_refused_alike_wherever_it_is_cut() {
        let item = call("fc_1", "a", "f", "{\"x\": 1}");
        let stream = trial::events(&[
            created(),
            added(0, &thought("rs_1", &[], Value::Null)),
            delta("reasoning_summary_text", 0, "hm"),
            done(0, &thought("rs_1", &["hm"], json!("secret"))),
            added(1, &empty("msg_1")),
            text(1, "a"),
            added(2, &call("fc_1", "a", "f", "")),
            delta("function_call_arguments", 2, "{\"x\": 1}"),
            done(2, &item),
            completed(&[said("msg_1", "a"), item.clone()]),
        ]);
        let whole = response(
            "completed",
            &[
                thought("rs_1", &["hm"], json!("s")),
                said("msg_1", "a"),
                item,
            ],
        )
        .to_string();
        let seeds: &[&[u8]] = &[
            stream.as_bytes(),
            whole.as_bytes(),
            br#"{"type":"response.output_item.added","output_index":18446744073709551615,"item":{"type":"message"}}"#,
            b"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"no\"}\n\n",
        ];
        trial::fuzz(&RESPONSES, seeds);
    }
}
