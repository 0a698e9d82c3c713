//! Reads responses in all forms that servers send, a stream of events or one object, regardless of which was requested.
//! Pure: bytes are fed in as they arrive, and the reply is taken at the end.

use super::Tell;
use super::failure;
use crate::message::{Reply, ToolCall, json};
use crate::sys::sse::{EventTooLarge, SseEvent, SseParser};
use serde_json::{Map, Value};

/// A reply under construction, in one wire format.
pub trait Draft {
    /// Processes an event of a stream.
    fn event(&mut self, event: &Value, on_delta: &mut Tell<'_>) -> Result<(), Trouble>;
    /// Processes a complete response.
    fn whole(&mut self, answer: &Value, on_delta: &mut Tell<'_>) -> Result<(), Trouble>;
    /// Processes the stream's closing mark, if the format has one in addition to its events.
    fn close(&mut self) {}
    /// True once the response is complete, whatever follows.
    fn is_done(&self) -> bool;
    /// Ends the response: passes on the text held back so far, and reports missing parts.
    fn end(&mut self, on_delta: &mut Tell<'_>) -> Result<(), Trouble>;
    /// Returns the finished reply.
    fn reply(self: Box<Self>) -> Result<Reply, Trouble>;
}

/// The reason why a response is unusable.
#[derive(Debug)]
pub enum Trouble {
    /// The receiver cancelled the exchange.
    Listener(anyhow::Error),
    /// The response ended before it was complete.
    Cut(String),
    /// The response has no known form.
    Nonsense(String),
    /// The server reports a failure within a successful response.
    Server(Value),
}

impl From<EventTooLarge> for Trouble {
    fn from(_: EventTooLarge) -> Self {
        Self::Nonsense("an event larger than 32 MiB".into())
    }
}

/// Maximum size of an event. A tool call with a whole file in it stays far below.
const MAX_EVENT_BYTES: usize = 32 << 20;

/// A response, as far as it has arrived.
pub(super) struct Reading {
    events: SseParser,
    /// The bytes so far, while the response may be one object.
    whole: Vec<u8>,
    form: Form,
    draft: Box<dyn Draft>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Not enough bytes to decide.
    Unknown,
    Events,
    Object,
}

impl Reading {
    /// `events` is true if the server declares an event stream. Otherwise the first byte decides.
    pub(super) fn new(draft: Box<dyn Draft>, events: bool) -> Self {
        let form = if events { Form::Events } else { Form::Unknown };
        Self {
            events: SseParser::new(MAX_EVENT_BYTES),
            whole: Vec::new(),
            form,
            draft,
        }
    }

    /// Processes the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8], on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
        if self.form == Form::Unknown {
            self.whole.extend_from_slice(bytes);
            let mark = b"\xef\xbb\xbf";
            let text = self.whole.strip_prefix(mark).unwrap_or(&self.whole);
            self.form = match text.trim_ascii_start().first() {
                None => Form::Unknown,
                // An incomplete byte order mark.
                Some(_) if mark.starts_with(text) => Form::Unknown,
                Some(b'{' | b'<' | b'[') => Form::Object,
                Some(_) => Form::Events,
            };
            if self.form != Form::Events {
                return Ok(());
            }
            let first = std::mem::take(&mut self.whole);
            return self.feed(&first, on_delta);
        }
        if self.form == Form::Object {
            self.whole.extend_from_slice(bytes);
            return Ok(());
        }
        let draft = self.draft.as_mut();
        self.events
            .feed(bytes, &mut |found| event(&found, draft, on_delta))
    }

    /// Ends the response.
    pub(super) fn finish(&mut self, on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
        let draft = self.draft.as_mut();
        if self.form == Form::Events {
            self.events
                .finish(&mut |found| event(&found, draft, on_delta))?;
        } else {
            let text = String::from_utf8_lossy(&self.whole);
            let text = text.trim_start_matches('\u{feff}').trim();
            let object =
                json::parse(text).ok_or_else(|| Trouble::Nonsense(failure::message(text)))?;
            check(&object)?;
            draft.whole(&object, on_delta)?;
        }
        draft.end(on_delta)
    }

    /// True once the response is complete, whatever follows.
    pub(super) fn is_done(&self) -> bool {
        self.draft.is_done()
    }

    /// Returns the finished reply.
    pub(super) fn reply(self) -> Result<Reply, Trouble> {
        self.draft.reply()
    }
}

/// Processes one event. Events without data only keep the connection open.
fn event(event: &SseEvent, draft: &mut dyn Draft, on_delta: &mut Tell<'_>) -> Result<(), Trouble> {
    let data = event.data.as_deref().unwrap_or_default().trim();
    if data == "[DONE]" {
        draft.close();
        return Ok(());
    }
    if data.is_empty() {
        return Ok(());
    }
    let object = json::parse(data)
        .ok_or_else(|| Trouble::Nonsense(format!("an event that is not JSON: {data}")))?;
    check(&object)?;
    draft.event(&object, on_delta)
}

/// Detects an error object within a successful response.
fn check(object: &Value) -> Result<(), Trouble> {
    let has_error = object.get("error").is_some_and(|error| !error.is_null());
    match has_error || object["object"] == "error" || object["type"] == "error" {
        true => Err(Trouble::Server(object.clone())),
        false => Ok(()),
    }
}

/// Parses the arguments of a call. Text that is not an object is kept as text, so that the model can be told about it.
pub(super) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match json::parse(text) {
        Some(object @ Value::Object(_)) => object,
        // Arguments that were encoded twice.
        Some(Value::String(inner)) if inner.trim_start().starts_with('{') => {
            json::parse(&inner).unwrap_or_else(|| text.into())
        }
        _ => text.into(),
    }
}

/// The arguments of a call, from any JSON value that a server sends for them.
pub(super) fn arguments_of(value: &Value) -> Value {
    match value {
        Value::Object(_) => value.clone(),
        Value::Null => arguments(""),
        Value::String(text) => arguments(text),
        other => arguments(&other.to_string()),
    }
}

/// Adds `call` to the calls of the same reply, with `spare_id` if its own id is missing or a duplicate, which would
/// assign a result to the wrong call.
pub(super) fn push_call(
    calls: &mut Vec<ToolCall>,
    mut call: ToolCall,
    spare_id: String,
) -> Result<(), Trouble> {
    if call.name.is_empty() {
        return Err(Trouble::Nonsense("a tool call without a name".into()));
    }
    if call.id.is_empty() || calls.iter().any(|other| other.id == call.id) {
        call.id = spare_id;
    }
    calls.push(call);
    Ok(())
}

/// Parses a number of tokens. Clamped, so that sums cannot overflow.
pub(super) fn tokens(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    Some(number.clamp(0.0, f64::from(u32::MAX)) as u64)
}

/// Test helpers: read responses in every wire format.
#[cfg(test)]
pub(super) mod trial {
    use super::{Reading, Trouble};
    use crate::message::Reply;
    use crate::provider::wire::Dialect;
    use crate::provider::{Calls, Delta, Request, Sampling};
    use serde_json::Value;

    /// A request without content, for the model `m`.
    pub(in crate::provider) const REQUEST: Request<'static> = Request {
        system: "",
        messages: &[],
        tools: &[],
        calls: Calls::May,
        model: "m",
        sampling: &Sampling {
            max_tokens: 1,
            temperature: None,
            reasoning_effort: None,
        },
        reply_id: "r",
        schema: None,
    };

    /// The deltas emitted while a response arrived.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub(in crate::provider) struct Told {
        pub(in crate::provider) text: String,
        pub(in crate::provider) reasoning: String,
    }

    /// Reads `answer` in two pieces, split at `cut`.
    pub(in crate::provider) fn read(
        dialect: &dyn Dialect,
        answer: &[u8],
        cut: usize,
    ) -> Result<(Reply, Told), Trouble> {
        let mut reading = Reading::new(dialect.draft(&REQUEST), false);
        let mut told = Told::default();
        let mut on_delta = |delta: Delta<'_>| {
            match delta {
                Delta::Text(text) => told.text.push_str(text),
                Delta::Reasoning(text) => told.reasoning.push_str(text),
                _ => {}
            }
            Ok(())
        };
        reading.feed(&answer[..cut], &mut on_delta)?;
        reading.feed(&answer[cut..], &mut on_delta)?;
        reading.finish(&mut on_delta)?;
        Ok((reading.reply()?, told))
    }

    /// Checks that `answer`, split anywhere, gives the same reply, and that all of it was emitted. Returns the reply.
    #[track_caller]
    pub(in crate::provider) fn whole(dialect: &dyn Dialect, answer: &[u8]) -> Reply {
        let (expect, _) = read(dialect, answer, answer.len()).unwrap();
        for cut in 0..answer.len() {
            let (reply, told) = read(dialect, answer, cut).unwrap();
            assert_eq!(reply, expect, "cut at {cut}");
            assert_eq!(told.text, expect.text, "cut at {cut}");
            assert_eq!(told.reasoning, expect.reasoning, "cut at {cut}");
        }
        expect
    }

    /// Formats events as a server sends them.
    pub(in crate::provider) fn events(list: &[Value]) -> String {
        list.iter()
            .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"]))
            .collect()
    }

    /// The calls of a reply: id, name, arguments.
    pub(in crate::provider) fn calls(reply: &Reply) -> Vec<(&str, &str, Value)> {
        let calls = reply.calls.iter();
        calls
            .map(|call| (&*call.id, &*call.name, call.arguments.clone()))
            .collect()
    }

    /// Checks that any response is read or refused in the same way wherever it is split.
    pub(in crate::provider) fn fuzz(dialect: &dyn Dialect, seeds: &[&[u8]]) {
        let same = |found: Result<(Reply, Told), Trouble>| format!("{found:?}");
        crate::fuzz::hold(seeds, |input, random| {
            let cut = random.below(input.len() + 1);
            assert_eq!(
                same(read(dialect, input, cut)),
                same(read(dialect, input, 0))
            );
        });
    }
}
