//! Server-sent events: bytes in, the data of events out. Pure; whoever reads the bytes feeds them in as they come.
//!
//! The rules are those of the HTML standard, read leniently: any line end, a byte order mark, comments, fields other
//! than `data` ignored, and an event that the end of the stream cut off is still given out.

/// The longest event that is taken. A tool call with a whole file in it stays far below.
const LIMIT: usize = 32 << 20;

/// A stream of events, as far as it has come.
#[derive(Debug, Default)]
pub struct Events {
    /// Bytes of the line that has not ended yet.
    line: Vec<u8>,
    /// Data of the event that has not ended yet.
    data: Option<String>,
    /// The last line ended in CR, so that an LF belongs to it.
    after_cr: bool,
    started: bool,
}

/// An event that is longer than any reply.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Events {
    /// Take the next bytes; `each` gets the data of every event that they complete.
    pub fn feed<E: From<TooLong>>(
        &mut self,
        mut bytes: &[u8],
        each: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(first) = bytes.first() else {
            return Ok(());
        };
        if std::mem::take(&mut self.after_cr) && *first == b'\n' {
            bytes = &bytes[1..];
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.line.extend_from_slice(&bytes[..end]);
            let crlf = bytes[end] == b'\r' && bytes.get(end + 1) == Some(&b'\n');
            self.after_cr = bytes[end] == b'\r' && end + 1 == bytes.len();
            bytes = &bytes[end + 1 + usize::from(crlf)..];
            self.end_line(each)?;
        }
        self.line.extend_from_slice(bytes);
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held > LIMIT {
            Err(TooLong.into())
        } else {
            Ok(())
        }
    }

    /// The stream has ended.
    pub fn finish<E>(&mut self, each: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        if !self.line.is_empty() {
            self.end_line(each)?;
        }
        self.end_line(each)
    }

    fn end_line<E>(&mut self, each: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        let line = match std::mem::replace(&mut self.started, true) {
            false => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line),
            true => &line,
        };
        if line.is_empty() {
            return self.data.take().map_or(Ok(()), |data| each(&data));
        }
        let Some(value) = line
            .strip_prefix(b"data")
            .filter(|rest| rest.is_empty() || rest[0] == b':')
        else {
            return Ok(());
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&value);
            }
            none => *none = Some(value.into_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Events, TooLong};

    /// `stream`, cut at every byte, always gives `expect`.
    fn check(stream: &[u8], expect: &[&str]) {
        for cut in 0..=stream.len() {
            let mut events = Events::default();
            let mut found: Vec<String> = Vec::new();
            let mut each = |data: &str| {
                found.push(data.to_owned());
                Ok::<(), TooLong>(())
            };
            events.feed(&stream[..cut], &mut each).unwrap();
            events.feed(&stream[cut..], &mut each).unwrap();
            events.finish(&mut each).unwrap();
            assert_eq!(found, expect, "cut at {cut}");
        }
    }

    #[test]
    fn events_in_all_their_spellings() {
        check(b"", &[]);
        check(b"data: a\n\ndata: b\n\n", &["a", "b"]);
        check(b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check(b"data: a\r\rdata: b\r\r", &["a", "b"]);
        check(b"\xef\xbb\xbfdata: a\n\n", &["a"]);
        check(b": comment\n\ndata:a\n:x\n\n", &["a"]);
        check(b"event: x\nid: 1\nretry: 5\ndata: a\n\n", &["a"]);
        check(b"data: a\ndata: b\n\n", &["a\nb"]);
        check(b"data:  two\n\n", &[" two"]);
        check(b"data\n\n", &[""]);
        check(b"database: x\n\n", &[]);
        check(b"data: cut off", &["cut off"]);
        check(
            "data: h\u{e9}\u{1f642}\n\n".as_bytes(),
            &["h\u{e9}\u{1f642}"],
        );
        check(b"data: \xff\n\n", &["\u{fffd}"]);
        check(b"\n\n\n\ndata: a\n\n\n\n", &["a"]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut events = Events::default();
        let chunk = vec![b'x'; 8 << 20];
        let mut refused = false;
        for _ in 0..5 {
            refused |= events.feed::<TooLong>(&chunk, &mut |_| Ok(())).is_err();
        }
        assert!(refused);
    }

    #[test]
    fn fuzz_any_stream_is_the_same_wherever_it_is_cut() {
        let seeds: &[&[u8]] = &[
            b"data: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\ndata: [DONE]\n\n",
            b"\xef\xbb\xbf: ping\r\n\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\ndata: c",
            b"data: a\r\rid: 1\rdata: \xff\r\r",
        ];
        crate::fuzz::hold(seeds, |input, random| {
            let read = |cuts: [usize; 2]| {
                let mut events = Events::default();
                let mut found = Vec::new();
                let mut each = |data: &str| {
                    found.push(data.to_owned());
                    Ok::<(), TooLong>(())
                };
                events.feed(&input[..cuts[0]], &mut each).unwrap();
                events.feed(&input[cuts[0]..cuts[1]], &mut each).unwrap();
                events.feed(&input[cuts[1]..], &mut each).unwrap();
                events.finish(&mut each).unwrap();
                found
            };
            let second = random.below(input.len() + 1);
            let first = random.below(second + 1);
            assert_eq!(read([first, second]), read([0, input.len()]));
        });
    }
}
