//! What comes back, in all the shapes that servers give it: a stream of events or one object, whichever was asked for.
//! Pure: bytes are fed in as they come, the reply is taken out at the end.

use super::draft::Draft;
use crate::message::Reply;
use crate::message::json;
use crate::provider::sse::{Events, TooLong};
use crate::provider::{Request, Tell};
use serde_json::Value;

/// Why an answer is none.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Whoever listens gave up.
    Listener(anyhow::Error),
    /// It ended before it was whole.
    Cut(String),
    /// It is not in any form we know.
    Nonsense(String),
    /// The server tells of a failure within an answer.
    Server(Value),
}

impl From<TooLong> for Trouble {
    fn from(_: TooLong) -> Self {
        Self::Nonsense("an event without an end".into())
    }
}

/// An answer, as far as it has come.
pub(super) struct Reading {
    events: Events,
    /// The answer, while it may be one object.
    whole: Vec<u8>,
    form: Form,
    draft: Draft,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Too little has come to tell.
    Unknown,
    Events,
    Object,
}

impl Reading {
    /// `events` is what the server calls it; what it is shows in its first byte.
    pub(super) fn new(request: &Request<'_>, events: bool) -> Self {
        let form = if events { Form::Events } else { Form::Unknown };
        Self {
            events: Events::default(),
            whole: Vec::new(),
            form,
            draft: Draft::new(request),
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], tell: &mut Tell<'_>) -> Result<(), Trouble> {
        if self.form == Form::Unknown {
            self.whole.extend_from_slice(bytes);
            let mark = b"\xef\xbb\xbf";
            let text = self.whole.strip_prefix(mark).unwrap_or(&self.whole);
            self.form = match text.trim_ascii_start().first() {
                None => Form::Unknown,
                // A mark that has not come whole.
                Some(_) if mark.starts_with(text) => Form::Unknown,
                Some(b'{' | b'<' | b'[') => Form::Object,
                Some(_) => Form::Events,
            };
            if self.form != Form::Events {
                return Ok(());
            }
            let first = std::mem::take(&mut self.whole);
            return self.feed(&first, tell);
        }
        if self.form == Form::Object {
            self.whole.extend_from_slice(bytes);
            return Ok(());
        }
        let draft = &mut self.draft;
        self.events.feed(bytes, &mut |data| draft.event(data, tell))
    }

    /// The answer has ended.
    pub(super) fn finish(&mut self, tell: &mut Tell<'_>) -> Result<(), Trouble> {
        let draft = &mut self.draft;
        if self.form == Form::Events {
            self.events.finish(&mut |data| draft.event(data, tell))?;
        } else {
            let text = String::from_utf8_lossy(&self.whole);
            let text = text.trim_start_matches('\u{feff}').trim();
            let object = json::parse(text)
                .ok_or_else(|| Trouble::Nonsense(super::failure::message(text)))?;
            draft.object(&object, tell)?;
            draft.done = true;
        }
        draft.end(tell)
    }

    /// Whether all of the answer has come, whatever follows.
    pub(super) fn is_done(&self) -> bool {
        self.draft.done
    }

    pub(super) fn reply(self) -> Result<Reply, Trouble> {
        self.draft.reply()
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, Trouble};
    use crate::message::{Finish, Reply};
    use crate::provider::{Delta, Request, Sampling};
    use serde_json::{Value, json};

    /// Read `answer`, cut in two at `cut`; the reply, and what was told as text meanwhile.
    fn read(answer: &[u8], cut: usize) -> Result<(Reply, String), Trouble> {
        let sampling = Sampling {
            max_tokens: 1,
            temperature: None,
            reasoning_effort: None,
        };
        let request = Request {
            system: "",
            messages: &[],
            tools: &[],
            may_call: true,
            model: "m",
            sampling: &sampling,
            reply_id: "r",
        };
        let mut reading = Reading::new(&request, false);
        let mut told = String::new();
        let mut tell = |delta: Delta<'_>| {
            if let Delta::Text(text) = delta {
                told.push_str(text);
            }
            Ok(())
        };
        reading.feed(&answer[..cut], &mut tell)?;
        reading.feed(&answer[cut..], &mut tell)?;
        reading.finish(&mut tell)?;
        Ok((reading.reply()?, told))
    }

    /// `answer`, cut anywhere, is always the same reply; that reply.
    fn whole(answer: &[u8]) -> Reply {
        let (expect, _) = read(answer, answer.len()).unwrap();
        for cut in 0..answer.len() {
            let (reply, told) = read(answer, cut).unwrap();
            assert_eq!(reply, expect, "cut at {cut}");
            assert_eq!(told, expect.text, "cut at {cut}");
        }
        expect
    }

    fn stream(chunks: &[Value]) -> Reply {
        let events: String = chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        whole(format!("{events}data: [DONE]\n\n").as_bytes())
    }

    fn delta(delta: Value) -> Value {
        json!({ "choices": [{ "delta": delta }] })
    }

    fn end(reason: &str) -> Value {
        json!({ "choices": [{ "delta": {}, "finish_reason": reason }] })
    }

    fn calls(reply: &Reply) -> Vec<(String, String, Value)> {
        reply
            .calls
            .iter()
            .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()))
            .collect()
    }

    fn call(id: &str, name: &str, arguments: Value) -> (String, String, Value) {
        (id.into(), name.into(), arguments)
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
            (reply.text.as_str(), reply.finish),
            ("h\u{e9}llo 🙂", Finish::Stop)
        );
    }

    #[test]
    fn calls_by_index_from_fragments_of_any_size() {
        let fragment = |index: u64, rest: Value| {
            let mut call = json!({ "index": index });
            call.as_object_mut()
                .unwrap()
                .extend(rest.as_object().unwrap().clone());
            delta(json!({ "tool_calls": [call] }))
        };
        let reply = stream(&[
            fragment(
                0,
                json!({"id": "a", "function": {"name": "read", "arguments": ""}}),
            ),
            fragment(
                1,
                json!({"id": "b", "function": {"name": "list", "arguments": "{"}}),
            ),
            fragment(0, json!({"function": {"arguments": "{\"p\":"}})),
            fragment(1, json!({"function": {"arguments": "}"}})),
            fragment(0, json!({"function": {"arguments": " 1}"}})),
            end("tool_calls"),
        ]);
        assert_eq!(
            calls(&reply),
            [
                call("a", "read", json!({"p": 1})),
                call("b", "list", json!({}))
            ]
        );
        assert_eq!(reply.finish, Finish::Calls);
    }

    #[test]
    fn calls_in_odd_shapes() {
        let check = |fragments: Value, expect: &[(String, String, Value)]| {
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
        // No index: by id, by position, by name.
        check(
            json!([{"id": "a", "function": function("f", json!("{\"x\":"))}, {"id": "a", "function": {"arguments": "1}"}}]),
            &[call("a", "f", json!({"x": 1}))],
        );
        check(
            json!([{"id": "a", "function": function("f", json!("{"))}, {"function": {"arguments": "}"}}]),
            &[call("a", "f", json!({}))],
        );
        check(
            json!([{"function": function("f", json!("{}"))}, {"function": function("g", json!("{}"))}]),
            &[
                call("call_0_0", "f", json!({})),
                call("call_0_1", "g", json!({})),
            ],
        );
        // Every call numbered 0; ids missing or repeated; names repeated or in pieces; arguments as an object or absent.
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("{}"))}, {"index": 0, "id": "b", "function": function("g", json!("{}"))}]),
            &[call("a", "f", json!({})), call("b", "g", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("{}"))}, {"index": 1, "id": "a", "function": function("g", json!("{}"))}]),
            &[call("a", "f", json!({})), call("call_0_1", "g", json!({}))],
        );
        check(
            json!([{"index": 0, "function": function("f", json!("{"))}, {"index": 0, "function": function("f", json!("}"))}]),
            &[call("call_0_0", "f", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": {"name": "read_"}}, {"index": 0, "function": {"name": "file", "arguments": "{}"}}]),
            &[call("a", "read_file", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!({"x": 1}))}]),
            &[call("a", "f", json!({"x": 1}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": {"name": "f"}}]),
            &[call("a", "f", json!({}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("\"{\\\"x\\\": 1}\""))}]),
            &[call("a", "f", json!({"x": 1}))],
        );
        check(
            json!([{"index": 0, "id": "a", "function": function("f", json!("{oops"))}]),
            &[call("a", "f", json!("{oops"))],
        );
    }

    #[test]
    fn whole_answers() {
        let answer = |message: Value, reason: Value| {
            let answer = json!({ "model": "m1", "choices": [{ "message": message, "finish_reason": reason }],
                "usage": { "prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": { "cached_tokens": 4 },
                           "completion_tokens_details": { "reasoning_tokens": 2 } } });
            whole(answer.to_string().as_bytes())
        };
        let reply = answer(
            json!({ "content": "hi", "reasoning_content": "hm" }),
            json!("stop"),
        );
        assert_eq!(
            (
                reply.text.as_str(),
                reply.reasoning.as_str(),
                reply.model.as_str()
            ),
            ("hi", "hm", "m1")
        );
        assert_eq!(
            (
                reply.usage.input,
                reply.usage.cached,
                reply.usage.output,
                reply.usage.reasoning
            ),
            (10, 4, 5, 2)
        );
        assert_eq!(answer(json!({ "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}] }), Value::Null).text, "ab");
        let thinking = json!({ "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "b"}] });
        assert_eq!(answer(thinking, json!("stop")).reasoning, "hm");
        assert_eq!(
            answer(json!({ "content": null, "refusal": "no" }), json!("stop")).finish,
            Finish::Refusal
        );
        assert_eq!(
            answer(json!({ "content": "x" }), json!("length")).finish,
            Finish::Length
        );
        assert_eq!(
            answer(json!({ "content": "" }), json!("content_filter")).finish,
            Finish::Refusal
        );
        assert_eq!(
            answer(json!({ "content": "x" }), json!("odd")).finish,
            Finish::Other("odd".into())
        );
        assert_eq!(
            answer(json!({ "content": "x" }), json!("tool_calls")).finish,
            Finish::Stop
        );
        let old = json!({ "content": null, "function_call": { "name": "f", "arguments": "{}" } });
        assert_eq!(
            calls(&answer(old, json!("function_call"))),
            [call("call_0_0", "f", json!({}))]
        );
        let wins = json!({ "content": "x", "tool_calls": [{ "id": "a", "function": { "name": "f", "arguments": "{}" } }] });
        assert_eq!(answer(wins, json!("stop")).finish, Finish::Calls);
    }

    #[test]
    fn reasoning_by_its_names() {
        for key in ["reasoning_content", "reasoning"] {
            let reply = stream(&[
                delta(json!({ key: "hm" })),
                delta(json!({ key: ", yes" })),
                delta(json!({ "content": "ok" })),
                end("stop"),
            ]);
            assert_eq!(
                (reply.reasoning.as_str(), reply.text.as_str()),
                ("hm, yes", "ok")
            );
        }
    }

    #[test]
    fn think_blocks_are_reasoning_wherever_the_stream_is_cut() {
        let reply = stream(&[
            delta(json!({"content": "<th"})),
            delta(json!({"content": "ink>hm</thi"})),
            delta(json!({"content": "nk>\n\nyes"})),
            end("stop"),
        ]);
        assert_eq!(
            (reply.reasoning.as_str(), reply.text.as_str()),
            ("hm", "yes")
        );
    }

    #[test]
    fn ends_of_streams() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        let usage =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
        assert_eq!(whole(format!("{text}{stop}").as_bytes()).text, "a");
        assert_eq!(
            whole(format!("{text}data: [DONE]\n\n").as_bytes()).text,
            "a"
        );
        assert_eq!(
            whole(format!("{text}{stop}{usage}data: [DONE]\n\n").as_bytes())
                .usage
                .input,
            3
        );
        assert_eq!(
            whole(
                format!(": hello\r\n\r\n{text}{stop}")
                    .replace('\n', "\r\n")
                    .as_bytes()
            )
            .text,
            "a"
        );
        assert!(matches!(read(text.as_bytes(), 0), Err(Trouble::Cut(_))));
    }

    #[test]
    fn what_is_no_answer() {
        let nonsense = |answer: &str| {
            assert!(
                matches!(read(answer.as_bytes(), 0), Err(Trouble::Nonsense(_))),
                "{answer}"
            );
        };
        nonsense("");
        nonsense("<html><title>Login</title></html>");
        nonsense("{\"choices\": []}");
        nonsense("{\"choices\": ");
        nonsense("data: {oops\n\n");
        nonsense("data: [DONE]\n\n");
        let server = |answer: &str| {
            assert!(
                matches!(read(answer.as_bytes(), 0), Err(Trouble::Server(_))),
                "{answer}"
            );
        };
        server("{\"error\": {\"message\": \"no\"}}");
        server(
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"broke\"}}\n\n",
        );
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        let reply =
            whole(br#"{"choices":[{"message":{"content":"a\ud83d"},"finish_reason":"stop"}]}"#);
        assert_eq!(reply.text, "a\u{fffd}");
    }

    #[test]
    fn fuzz_any_answer_is_read_or_refused_alike_wherever_it_is_cut() {
        let seeds: &[&[u8]] = &[
            br#"{"model": "m", "choices": [{"message": {"content": "a", "reasoning_content": "b", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}}}"#,
            b"data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"<think>x</think>a\"}}]}\n\ndata: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}], \"usage\": {\"prompt_tokens\": 1}}\n\ndata: [DONE]\n\n",
            b"data: {\"choices\": [{\"delta\": {\"tool_calls\": [{\"index\": 0, \"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": \"{\"}}]}}]}\n\ndata: {\"choices\": [{\"delta\": {\"tool_calls\": [{\"index\": 0, \"function\": {\"arguments\": \"}\"}}]}, \"finish_reason\": \"tool_calls\"}]}\n\n",
            br#"{"error": {"message": "no", "code": 429}}"#,
            b"<html><title>Bad gateway</title></html>",
            b"data: {\"error\": {\"message\": \"overloaded\"}}\n\n",
        ];
        crate::fuzz::hold(seeds, |input, random| {
            let same = |found: Result<(Reply, String), Trouble>| match found {
                Ok((reply, told)) => format!("{reply:?} {told}"),
                Err(trouble) => format!("{trouble:?}"),
            };
            let cut = random.below(input.len() + 1);
            assert_eq!(same(read(input, cut)), same(read(input, 0)));
        });
    }
}
