//! A parser for server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>). No I/O: the caller supplies the
//! bytes as they arrive.
//!
//! It is more lenient than the standard: it passes on an event without data, and also an event that the end of the
//! stream cut off, if the caller calls [`SseParser::finish`].

use std::borrow::Cow;
use std::time::Duration;

/// An event. Each field has the last value of its name; the lines of `data` are joined with newlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The event type.
    pub event: Option<String>,
    /// The payload.
    pub data: Option<String>,
    /// The event id.
    pub id: Option<String>,
    /// The delay before reconnecting.
    pub retry: Option<Duration>,
}

/// The error for an event larger than the parser's limit. The rest of the stream cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct EventTooLarge;

/// Receives an event, and may take it.
type SseEventSink<'a, E> = dyn FnMut(&mut SseEvent) -> Result<(), E> + 'a;

/// An incremental parser for a stream of bytes.
#[derive(Debug, Default)]
pub struct SseParser {
    max_event_bytes: usize,
    /// The incomplete last line.
    line: Vec<u8>,
    event: SseEvent,
    /// The memory of the previous event's data, for the next one.
    spare_data: String,
    /// Total length of the data lines of `event`, in bytes.
    data_bytes: usize,
    /// The input ended in CR, so a following LF belongs to the same line ending.
    is_after_cr: bool,
    has_started: bool,
}

impl SseParser {
    /// Creates a parser that rejects events larger than `max_event_bytes`.
    pub fn new(max_event_bytes: usize) -> Self {
        Self { max_event_bytes, ..Self::default() }
    }

    /// Parses the next bytes; `on_event` receives every event that they complete, and may take it.
    ///
    /// # Errors
    /// The errors of `on_event`, and [`EventTooLarge`].
    pub fn feed<E: From<EventTooLarge>>(
        &mut self,
        mut bytes: &[u8],
        on_event: &mut SseEventSink<'_, E>,
    ) -> Result<(), E> {
        let Some(first) = bytes.first() else {
            return Ok(());
        };
        if self.is_after_cr && *first == b'\n' {
            bytes = &bytes[1..];
        }
        self.is_after_cr = false;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let line = &bytes[..end];
            let is_crlf = bytes[end] == b'\r' && bytes.get(end + 1) == Some(&b'\n');
            self.is_after_cr = bytes[end] == b'\r' && end + 1 == bytes.len();
            bytes = &bytes[end + 1 + usize::from(is_crlf)..];
            if self.line.is_empty() {
                self.check_size(line)?;
                self.end_line(line, on_event)?;
            } else {
                self.add_to_line(line)?;
                self.end_pending_line(on_event)?;
            }
        }
        Ok(self.add_to_line(bytes)?)
    }

    /// Ends the stream: passes on an event that was cut off.
    ///
    /// # Errors
    /// The errors of `on_event`.
    pub fn finish<E>(&mut self, on_event: &mut SseEventSink<'_, E>) -> Result<(), E> {
        if !self.line.is_empty() {
            self.end_pending_line(on_event)?;
        }
        self.end_line(b"", on_event)
    }

    /// True if the stream so far ends within a line that is not a comment.
    pub fn has_partial_line(&self) -> bool {
        self.line.first().is_some_and(|first| *first != b':')
    }

    fn add_to_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        self.check_size(bytes)?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn check_size(&self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.data_bytes + self.line.len() + bytes.len() > self.max_event_bytes {
            Err(EventTooLarge)
        } else {
            Ok(())
        }
    }

    /// Parses the line that arrived in several chunks.
    fn end_pending_line<E>(&mut self, on_event: &mut SseEventSink<'_, E>) -> Result<(), E> {
        let mut line = std::mem::take(&mut self.line);
        self.end_line(&line, on_event)?;
        line.clear();
        self.line = line;
        Ok(())
    }

    fn end_line<E>(&mut self, line: &[u8], on_event: &mut SseEventSink<'_, E>) -> Result<(), E> {
        let text = if !std::mem::replace(&mut self.has_started, true) {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        } else {
            line
        };
        if text.is_empty() {
            self.data_bytes = 0;
            let mut event = std::mem::take(&mut self.event);
            if event != SseEvent::default() {
                on_event(&mut event)?;
            }
            self.spare_data = event.data.unwrap_or_default();
            return Ok(());
        }
        // Nearly all text is valid, and valid text is checked much faster.
        let text = match str::from_utf8(text) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(text),
        };
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data_bytes += line.len();
                match &mut self.event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    none => {
                        let mut data = std::mem::take(&mut self.spare_data);
                        value.clone_into(&mut data);
                        *none = Some(data);
                    }
                }
            }
            "event" => self.event.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                let millis = value.parse().unwrap_or(u64::MAX);
                self.event.retry = Some(Duration::from_millis(millis));
            }
            // A comment, or an unknown field.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{EventTooLarge, SseEvent, SseParser};

    const MIB: usize = 1 << 20;

    /// Parses `pieces` and returns their events.
    fn read(pieces: &[&[u8]], finish: bool) -> Vec<SseEvent> {
        let mut parser = SseParser::new(MIB);
        let mut events = Vec::new();
        let mut on_event = |event: &mut SseEvent| {
            events.push(std::mem::take(event));
            Ok::<(), EventTooLarge>(())
        };
        for piece in pieces {
            parser.feed(piece, &mut on_event).unwrap();
        }
        if finish {
            parser.finish(&mut on_event).unwrap();
        }
        events
    }

    /// Checks the data of `stream`, split at every byte.
    fn check_data(stream: &[u8], expect: &[&str]) {
        for cut in 0..=stream.len() {
            let events = read(&[&stream[..cut], &stream[cut..]], true);
            let data: Vec<_> = events.into_iter().filter_map(|event| event.data).collect();
            assert_eq!(data, expect, "cut at {cut}");
        }
    }

    #[test]
    fn data_in_all_spellings() {
        check_data(b"", &[]);
        check_data(b"data: a\n\ndata: b\n\n", &["a", "b"]);
        check_data(b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check_data(b"data: a\r\rdata: b\r\r", &["a", "b"]);
        check_data(b"\xef\xbb\xbfdata: a\n\n", &["a"]);
        check_data(b": comment\n\ndata:a\n:x\n\n", &["a"]);
        check_data(b"event: x\nid: 1\nretry: 5\ndata: a\n\n", &["a"]);
        check_data(b"event: x\n\n", &[]);
        check_data(b"data: a\ndata: b\n\n", &["a\nb"]);
        check_data(b"data:  two\n\n", &[" two"]);
        check_data(b"data\n\n", &[""]);
        check_data(b"database: x\n\n", &[]);
        check_data(b"data: cut off", &["cut off"]);
        check_data("data: h\u{e9}\u{1f642}\n\n".as_bytes(), &["h\u{e9}\u{1f642}"]);
        check_data(b"data: \xff\n\n", &["\u{fffd}"]);
        check_data(b"\n\n\n\ndata: a\n\n\n\n", &["a"]);
    }

    #[test]
    fn all_fields() {
        let check = |text: &str, expect: &[&str]| {
            let display = |event: SseEvent| {
                format!(
                    "{} {:?} {} {}",
                    event.event.unwrap_or_default(),
                    event.data.unwrap_or_default(),
                    event.id.unwrap_or_default(),
                    event.retry.unwrap_or_default().as_millis()
                )
            };
            let events = read(&[text.as_bytes()], false);
            let events: Vec<_> = events.into_iter().map(display).collect();
            assert_eq!(events, expect, "{text:?}");
        };
        check("data: a\n\n", &[r#" "a"  0"#]);
        check("\u{feff}data:a\r\n\r\ndata: b\r\rdata: c", &[r#" "a"  0"#, r#" "b"  0"#]);
        check("event: x\nid: 7\nretry: 500\ndata: a\ndata:  b\n\n", &[r#"x "a\n b" 7 500"#]);
        check(": ping\n\n: ping\n\n", &[]);
        check("id: 1\ndata\n\n", &[r#" "" 1 0"#]);
        check("id: a\0b\n\n", &[]);
        check(
            "retry: 20\n\nretry: 99999999999999999999999\n\nretry: -1\n\n",
            &[r#" ""  20"#, &format!(r#" ""  {}"#, u64::MAX)],
        );
        check("odd: x\ndata: y\n\n", &[r#" "y"  0"#]);
    }

    #[test]
    fn a_partial_line_is_not_a_comment() {
        let check = |text: &str, expect: bool| {
            let mut parser = SseParser::new(MIB);
            let ignore = &mut |_: &mut SseEvent| Ok::<(), EventTooLarge>(());
            parser.feed(text.as_bytes(), ignore).unwrap();
            assert_eq!(parser.has_partial_line(), expect, "{text:?}");
        };
        check("", false);
        check("data: a\n\n", false);
        check("data: a\n\ndata: b", true);
        check("data: a\n\n: pi", false);
        check(": ping\n\nd", true);
    }

    #[test]
    fn large_events_are_rejected() {
        let ignore = &mut |_: &mut SseEvent| Ok::<(), EventTooLarge>(());
        let mut parser = SseParser::new(16 * MIB);
        let line = [b"data: ".as_slice(), &vec![b'x'; MIB], b"\n"].concat();
        for end in [b"\n".as_slice(), b"\r\n"] {
            for _ in 0..15 {
                parser.feed(&line, ignore).unwrap();
            }
            parser.feed(end, ignore).unwrap();
        }
        for _ in 0..15 {
            parser.feed(&line, ignore).unwrap();
        }
        assert_eq!(parser.feed(&line, ignore), Err(EventTooLarge));
        // The limit also applies to a line that never ends.
        let mut parser = SseParser::new(16 * MIB);
        let endless = vec![b'x'; MIB];
        for _ in 0..16 {
            parser.feed(&endless, ignore).unwrap();
        }
        assert_eq!(parser.feed(&endless, ignore), Err(EventTooLarge));
    }

    #[test]
    fn fuzz_events_do_not_depend_on_chunks() {
        let seeds: &[&[u8]] = &[
            b"data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\ndata: [DONE]\n\n",
            b"\xef\xbb\xbf: ping\r\n\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\ndata: c",
            b"data: a\r\rid: 1\rdata: \xff\r\r",
            b"id: 1\r\ndata: a\r\rdata: b\n\nevent: endpoint\ndata: /x\n\n",
            b"\xef\xbb\xbfretry: 1\ndata:\xff\xfe\n\n:\n\n",
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            let (mut pieces, mut rest) = (Vec::new(), input);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + random.below(rest.len().min(7)));
                pieces.push(piece);
                rest = after;
            }
            for finish in [true, false] {
                assert_eq!(read(&pieces, finish), read(&[input], finish));
            }
        });
    }
}
