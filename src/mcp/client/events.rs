//! Server-sent events, taken out of the bytes that carry them (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//! Pure. An event has a largest size, and a time to wait before the next try that is neither none nor for ever.

use sse_stream::Sse;
use std::time::Duration;

/// The largest event, as it is for answers that come whole.
pub(super) const LARGEST: usize = 16 << 20;
/// A server that wants to be asked again at once would be asked for ever.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(60);

/// An event is larger than [`LARGEST`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Takes events out of a stream.
#[derive(Default)]
pub(super) struct Events {
    /// A line that has not ended.
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed after it ends no further line.
    returned: bool,
    began: bool,
    event: Sse,
    size: usize,
}

impl Events {
    /// The events that end within `bytes`, which follow what came before.
    ///
    /// # Errors
    /// One is too large; nothing more is to be had then.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Result<Vec<Sse>, TooLarge> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.returned) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.size + self.line.len() + part.len() > LARGEST {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            rest = after;
            if end.is_some() {
                self.returned = rest[0] == b'\r';
                rest = &rest[1..];
                let line = std::mem::take(&mut self.line);
                found.extend(self.finish(&line));
            }
        }
        Ok(found)
    }

    /// A line has ended; the event, where it was the last one of it.
    fn finish(&mut self, line: &[u8]) -> Option<Sse> {
        let text = String::from_utf8_lossy(line);
        let mut text: &str = &text;
        if !std::mem::replace(&mut self.began, true) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            self.size = 0;
            let event = std::mem::take(&mut self.event);
            return (event != Sse::default()).then_some(event);
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.size += line.len();
                match &mut self.event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    none => *none = Some(value.to_owned()),
                }
            }
            "event" => self.event.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                if digits {
                    let wish = Duration::from_millis(value.parse().unwrap_or(u64::MAX));
                    let wait = wish.clamp(SOONEST, LATEST).as_millis();
                    self.event.retry = u64::try_from(wait).ok();
                }
            }
            // A comment, or what nobody knows.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Events, LARGEST, TooLarge};

    fn all(text: &[u8]) -> Vec<String> {
        let mut events = Events::default();
        let found = events.pass(text).unwrap();
        let words = |event: sse_stream::Sse| {
            format!(
                "{} {:?} {} {}",
                event.event.unwrap_or_default(),
                event.data.unwrap_or_default(),
                event.id.unwrap_or_default(),
                event.retry.unwrap_or_default()
            )
        };
        found.into_iter().map(words).collect()
    }

    #[test]
    fn events_are_read_as_browsers_read_them() {
        let check =
            |text: &str, expect: &[&str]| assert_eq!(all(text.as_bytes()), expect, "{text:?}");
        check("data: a\n\n", &[r#" "a"  0"#]);
        check(
            "\u{feff}data:a\r\n\r\ndata: b\r\rdata: c",
            &[r#" "a"  0"#, r#" "b"  0"#],
        );
        check(
            "event: x\nid: 7\nretry: 500\ndata: a\ndata:  b\n\n",
            &[r#"x "a\n b" 7 500"#],
        );
        check(": ping\n\n: ping\n\n", &[]);
        check("id: 1\ndata\n\n", &[r#" "" 1 0"#]);
        check(
            "retry: 0\n\nretry: 99999999999999999999999\n\nretry: -1\n\n",
            &[r#" ""  100"#, r#" ""  60000"#],
        );
        check("odd: x\ndata: y\n\n", &[r#" "y"  0"#]);
    }

    #[test]
    fn an_event_has_a_largest_size() {
        let mut events = Events::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
        let fitting = (LARGEST >> 20) - 1;
        for _ in 0..fitting {
            assert!(events.pass(&line).is_ok());
        }
        assert_eq!(events.pass(b"\n").unwrap().len(), 1);
        for _ in 0..fitting {
            assert!(events.pass(&line).is_ok());
        }
        assert_eq!(events.pass(&line).map(drop), Err(TooLarge));
        // A line that never ends, too.
        let mut events = Events::default();
        let endless = vec![b'x'; 1 << 20];
        assert!((0..=fitting + 1).any(|_| events.pass(&endless).is_err()));
    }

    #[test]
    fn fuzz_events_are_the_same_wherever_they_are_cut() {
        let seeds: &[&[u8]] = &[
            b"id: 1\r\ndata: a\r\rdata: b\n\nevent: endpoint\ndata: /x\n\n",
            b"\xef\xbb\xbfretry: 1\ndata:\xff\xfe\n\n:\n\n",
        ];
        crate::fuzz::hold(seeds, |input, random| {
            let mut events = Events::default();
            let whole = events.pass(input).unwrap();
            let (mut events, mut parts, mut rest) = (Events::default(), Vec::new(), input);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + random.below(rest.len().min(7)));
                parts.extend(events.pass(piece).unwrap());
                rest = after;
            }
            assert_eq!(parts, whole);
        });
    }
}
