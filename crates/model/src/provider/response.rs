//! Reads responses in all forms that servers send, a stream of events or one object, regardless of which was requested. No I/O: bytes are
//! fed in as they arrive, and the reply is taken at the end.

use super::split_surrogates::SurrogateJoiner;
use super::wire_format::{MAX_EVENT_BYTES, ReplyBuilder, ReplyError, ReplyResult};
use super::{Delta, DeltaSink};
use nanobot_base::message::{Reply, lenient_json};
use nanobot_net::http::error_message;
use nanobot_net::sse::{SseEvent, SseParser};
use serde_json::{Map, Value};

/// The byte order mark of UTF-8, with which some servers begin.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A response, as far as it has arrived.
pub(super) struct ResponseReader {
    parser: SseParser,
    /// The bytes so far, while the response may be one object.
    buffer: Vec<u8>,
    shape: ResponseShape,
    /// True if any data arrived since the last call of [`ResponseReader::take_progress`].
    has_progress: bool,
    builder: Box<dyn ReplyBuilder>,
    surrogates: SurrogateJoiner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResponseShape {
    /// Not enough bytes to decide.
    Unknown,
    Events,
    Object,
}

impl ResponseReader {
    /// `is_event_stream` is true if the server declares one. Otherwise the first byte decides.
    pub(super) fn new(builder: Box<dyn ReplyBuilder>, is_event_stream: bool) -> Self {
        let shape = if is_event_stream { ResponseShape::Events } else { ResponseShape::Unknown };
        Self {
            parser: SseParser::new(MAX_EVENT_BYTES),
            buffer: Vec::new(),
            shape,
            has_progress: false,
            builder,
            surrogates: SurrogateJoiner::default(),
        }
    }

    /// Processes the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8], on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        if self.shape == ResponseShape::Unknown {
            self.buffer.extend_from_slice(bytes);
            let text = self.buffer.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.buffer);
            self.shape = match text.trim_ascii_start().first() {
                None => ResponseShape::Unknown,
                // An incomplete byte order mark.
                Some(_) if BYTE_ORDER_MARK.starts_with(text) => ResponseShape::Unknown,
                Some(b'{' | b'<' | b'[') => ResponseShape::Object,
                Some(_) => ResponseShape::Events,
            };
            if self.shape == ResponseShape::Unknown {
                return Ok(());
            }
            let first = std::mem::take(&mut self.buffer);
            return self.feed(&first, on_delta);
        }
        if self.shape == ResponseShape::Object {
            self.has_progress |= !bytes.trim_ascii().is_empty();
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        let builder = self.builder.as_mut();
        let surrogates = &mut self.surrogates;
        let has_progress = &mut self.has_progress;
        let mut pieces = PieceJoiner::default();
        let mut join = |delta: Delta<'_>| pieces.add(delta, on_delta);
        let parsed = self.parser.feed(bytes, &mut |event| {
            *has_progress |= event.data.as_ref().is_some_and(|data| !data.is_empty());
            process_event(event, builder, surrogates, &mut join)
        });
        self.has_progress |= self.parser.has_partial_line();
        // The pieces before an error are still passed on.
        let emitted = pieces.emit(on_delta).map_err(ReplyError::Cancelled);
        parsed.and(emitted)
    }

    /// True if data arrived since the last call. Comments and blanks, which servers send to keep the connection open, are not data.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }

    /// Ends the response.
    pub(super) fn finish(&mut self, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()> {
        let builder = self.builder.as_mut();
        if self.shape == ResponseShape::Events {
            let surrogates = &mut self.surrogates;
            self.parser.finish(&mut |event| process_event(event, builder, surrogates, on_delta))?;
        } else {
            let text = String::from_utf8_lossy(&self.buffer);
            let text = text.trim_start_matches('\u{feff}').trim();
            if text.is_empty() {
                return Err(ReplyError::Malformed("the response is empty".into()));
            }
            let object = lenient_json::parse(text)
                .ok_or_else(|| ReplyError::Malformed(error_message(text)))?;
            check_for_error(&object)?;
            builder.add_response(&object, on_delta)?;
        }
        builder.finish(on_delta)
    }

    /// True once the response is complete, whatever follows.
    pub(super) fn is_done(&self) -> bool {
        self.builder.is_done()
    }

    /// Returns the finished reply.
    pub(super) fn into_reply(self) -> ReplyResult<Reply> {
        self.builder.into_reply()
    }
}

/// Joins pieces of a reply that arrive at once: a fast server sends a hundred pieces at a time, and every receiver does
/// some work for each.
#[derive(Default)]
struct PieceJoiner {
    text: String,
    /// True if the pieces are reasoning.
    is_reasoning: bool,
}

impl PieceJoiner {
    fn add(&mut self, delta: Delta<'_>, on_delta: &mut DeltaSink<'_>) -> anyhow::Result<()> {
        let (text, is_reasoning) = match delta {
            Delta::Text(text) => (text, false),
            Delta::Reasoning(text) => (text, true),
            other => {
                self.emit(on_delta)?;
                return on_delta(other);
            }
        };
        if is_reasoning != self.is_reasoning {
            self.emit(on_delta)?;
        }
        self.is_reasoning = is_reasoning;
        self.text.push_str(text);
        Ok(())
    }

    /// Passes on the joined pieces.
    fn emit(&mut self, on_delta: &mut DeltaSink<'_>) -> anyhow::Result<()> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            Ok(())
        } else if self.is_reasoning {
            on_delta(Delta::Reasoning(&text))
        } else {
            on_delta(Delta::Text(&text))
        }
    }
}

/// Processes one event. Events without data only keep the connection open, and events after the end of the reply are
/// not part of it.
fn process_event(
    event: &SseEvent,
    builder: &mut dyn ReplyBuilder,
    surrogates: &mut SurrogateJoiner,
    on_delta: &mut DeltaSink<'_>,
) -> ReplyResult<()> {
    let data = event.data.as_deref().unwrap_or_default().trim();
    if data == "[DONE]" {
        builder.close();
        return Ok(());
    }
    if data.is_empty() || builder.is_done() {
        return Ok(());
    }
    if !surrogates.is_pending() && builder.add_text_event(data, on_delta)? {
        return Ok(());
    }
    let object = surrogates
        .parse(data)
        .ok_or_else(|| ReplyError::Malformed(format!("an event that is not JSON: {data}")))?;
    check_for_error(&object)?;
    builder.add_event(&object, on_delta)
}

/// Detects an error object within a successful response.
fn check_for_error(object: &Value) -> ReplyResult<()> {
    let has_error = object.get("error").is_some_and(|error| !error.is_null());
    if has_error || object["object"] == "error" || object["type"] == "error" {
        Err(ReplyError::Server(object.clone()))
    } else {
        Ok(())
    }
}

/// Parses the arguments of a call. Text that is not an object is kept as text, so that the error that the model gets can quote it.
pub(super) fn parse_arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match lenient_json::parse(text) {
        Some(object @ Value::Object(_)) => object,
        // Arguments that were encoded twice.
        Some(Value::String(inner)) if inner.trim_start().starts_with('{') => {
            lenient_json::parse(&inner).unwrap_or_else(|| text.into())
        }
        _ => text.into(),
    }
}

/// The arguments of a call, from any JSON value that a server sends for them.
pub(super) fn arguments_from_value(value: &Value) -> Value {
    match value {
        Value::Object(_) => value.clone(),
        Value::Null => parse_arguments(""),
        Value::String(text) => parse_arguments(text),
        other => parse_arguments(&other.to_string()),
    }
}

/// Parses a number of tokens. Clamped, so that sums cannot overflow.
pub(super) fn parse_tokens(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    Some(number.clamp(0.0, f64::from(u32::MAX)) as u64)
}

/// Test helpers: read responses in every wire format.
#[cfg(test)]
pub(super) mod test_support {
    use super::{ResponseReader, check_for_error};
    use crate::provider::wire_format::{ReplyResult, WireFormat};
    use crate::provider::{Delta, Request, Sampling, ToolChoice};
    use nanobot_base::message::{Reply, lenient_json};
    use serde_json::Value;

    /// A request without content, for the model `m`.
    pub(in crate::provider) const REQUEST: Request<'static> = Request {
        system: "",
        messages: &[],
        tools: &[],
        tool_choice: ToolChoice::Auto,
        model: "m",
        sampling: &Sampling {
            max_tokens: 1,
            temperature: None,
            reasoning_effort: None,
            verbosity: None,
        },
        reply_id: "r",
        schema: None,
    };

    /// The deltas emitted while a response arrived.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub(in crate::provider) struct EmittedDeltas {
        pub(in crate::provider) text: String,
        pub(in crate::provider) reasoning: String,
    }

    /// Reads `response` in two pieces, split at `cut`.
    pub(in crate::provider) fn read(
        format: &dyn WireFormat,
        response: &[u8],
        cut: usize,
    ) -> ReplyResult<(Reply, EmittedDeltas)> {
        let mut reader = ResponseReader::new(format.reply_builder(&REQUEST), false);
        let mut emitted = EmittedDeltas::default();
        let mut on_delta = |delta: Delta<'_>| {
            match delta {
                Delta::Text(text) => emitted.text.push_str(text),
                Delta::Reasoning(text) => emitted.reasoning.push_str(text),
                _ => {}
            }
            Ok(())
        };
        reader.feed(&response[..cut], &mut on_delta)?;
        reader.feed(&response[cut..], &mut on_delta)?;
        reader.finish(&mut on_delta)?;
        Ok((reader.into_reply()?, emitted))
    }

    /// Checks that `response`, split anywhere, gives the same reply, and that all of it was emitted. Returns the reply.
    #[track_caller]
    pub(in crate::provider) fn read_object(format: &dyn WireFormat, response: &[u8]) -> Reply {
        let (expect, _) = read(format, response, response.len()).unwrap();
        // Not each cut of each answer: the cases of a format have the same events.
        let step = nanobot_base::fuzz::by_depth(5, 1);
        for cut in (0..response.len()).step_by(step) {
            let (reply, emitted) = read(format, response, cut).unwrap();
            assert_eq!(reply, expect, "cut at {cut}");
            assert_eq!(emitted.text, expect.text, "cut at {cut}");
            assert_eq!(emitted.reasoning, expect.reasoning, "cut at {cut}");
        }
        expect
    }

    /// Checks that events, one per line, have the same effect whether or not those that only add text are read as such.
    pub(in crate::provider) fn fuzz_text_events(format: &dyn WireFormat, seeds: &[&[u8]]) {
        let fold = |events: &str, is_fast: bool| {
            let mut builder = format.reply_builder(&REQUEST);
            let mut deltas = Vec::new();
            let mut count = 0;
            let mut on_delta = |delta: Delta<'_>| {
                deltas.push(format!("{delta:?}"));
                Ok(())
            };
            let mut add = |event: &str| {
                let Some(value) = lenient_json::parse(event) else {
                    return Ok(());
                };
                if is_fast && builder.add_text_event(event, &mut on_delta)? {
                    count += 1;
                    return Ok(());
                }
                check_for_error(&value)?;
                builder.add_event(&value, &mut on_delta)
            };
            let added = events.lines().try_for_each(&mut add);
            let added = added.and_then(|()| builder.finish(&mut on_delta));
            let reply = added.and_then(|()| builder.into_reply());
            (format!("{reply:?} {deltas:?}"), count)
        };
        for seed in seeds {
            let (_, count) = fold(str::from_utf8(seed).unwrap(), true);
            assert!(count > 0, "no event of the seed only adds text");
        }
        nanobot_base::fuzz::check(seeds, |input, random| {
            // Only one input in four: each is read twice.
            if random.below(4) > 0 {
                return;
            }
            let events = nanobot_base::fuzz::lossy_text(input);
            assert_eq!(fold(&events, true).0, fold(&events, false).0);
        });
    }

    /// Formats events as a server sends them.
    pub(in crate::provider) fn events(list: &[Value]) -> String {
        list.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"])).collect()
    }

    /// The calls of a reply: id, name, arguments.
    pub(in crate::provider) fn calls(reply: &Reply) -> Vec<(&str, &str, Value)> {
        let calls = reply.tool_calls.iter();
        calls.map(|call| (&*call.id, &*call.name, call.arguments.clone())).collect()
    }

    /// Checks that any response is read or refused in the same way wherever it is split.
    pub(in crate::provider) fn fuzz(format: &dyn WireFormat, seeds: &[&[u8]]) {
        let describe = |result: ReplyResult<(Reply, EmittedDeltas)>| format!("{result:?}");
        nanobot_base::fuzz::check(seeds, |input, random| {
            let cut = random.below(input.len() + 1);
            assert_eq!(describe(read(format, input, cut)), describe(read(format, input, 0)));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::ResponseReader;
    use super::test_support::REQUEST;
    use crate::provider::chat::ChatFormat;
    use crate::provider::quirks::NONE;
    use crate::provider::wire_format::WireFormat;

    #[test]
    fn the_first_bytes_of_a_reply_are_progress_and_blanks_are_none() {
        let format = ChatFormat { server: String::new(), quirks: NONE, max_output_tokens: None };
        let progress = |pieces: &[&str]| {
            let mut reader = ResponseReader::new(format.reply_builder(&REQUEST), false);
            let progress = pieces.iter().map(|piece| {
                reader.feed(piece.as_bytes(), &mut |_| Ok(())).unwrap();
                reader.take_progress()
            });
            progress.collect::<Vec<_>>()
        };
        assert_eq!(progress(&["\u{feff}", "\n{", " ", "}"]), [false, true, false, true]);
        assert_eq!(progress(&["{\"id\":", " "]), [true, false]);
        assert_eq!(progress(&["\n", ": x\n\n", "data: {"]), [false, false, true]);
    }
}
