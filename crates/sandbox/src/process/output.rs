//! Reads the output of a command from a pipe, and captures its beginning and its end.

use crate::output_file::{OutputFile, OutputFileWriter};
use nanobot_base::terminal_text::TerminalText;
use nanobot_os::signal::{self, Deadline};
use nanobot_os::utf8_stream::Utf8Decoder;
use std::io::{self, PipeReader, Read};
use std::path::PathBuf;

/// The lines of an output that a program may still draw over: more than the windows of most terminals have.
pub(super) const SCREEN_LINES: usize = 60;

/// The read end of a pipe that a command writes to.
pub(super) struct OutputPipe {
    /// `None` after the end of the stream.
    pub(super) pipe: Option<PipeReader>,
    pub(super) captured: HeadAndTail,
    buffer: Vec<u8>,
}

impl OutputPipe {
    /// Creates a reader. `limit` is the number of bytes to keep of the beginning, and as many of the end.
    pub(super) fn new(pipe: PipeReader, limit: usize) -> Self {
        Self { pipe: Some(pipe), captured: HeadAndTail::new(limit), buffer: vec![0; 64 << 10] }
    }

    /// True if data or the end of the stream can be read; false on timeout or cancellation.
    pub(super) fn is_readable(&self, mut deadline: Deadline) -> bool {
        let pipe = self.pipe.as_ref();
        pipe.is_some_and(|pipe| matches!(signal::wait_readable(pipe, &mut deadline), Ok(true)))
    }

    /// Reads available data once and passes it to `on_output`.
    pub(super) fn read(&mut self, on_output: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match pipe.read(&mut self.buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                on_output(&self.buffer[..count]);
                self.captured.push(&self.buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The beginning and the end of an output. A character of UTF-8 that is pushed whole is not cut between them.
#[derive(Default)]
pub(super) struct HeadAndTail {
    limit_bytes: usize,
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    /// The number of bytes discarded between the two.
    pub(super) omitted_bytes: u64,
}

/// Maximum bytes of a character of UTF-8 after its first one.
const MAX_CONTINUATION_BYTES: usize = 3;

impl HeadAndTail {
    /// Keeps `limit` bytes of the beginning, and as many of the end.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit_bytes: limit, ..Self::default() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let head_bytes = match self.limit_bytes.saturating_sub(self.head.len()) {
            0 => 0,
            space => character_boundary(bytes, space),
        };
        self.head.extend_from_slice(&bytes[..head_bytes]);
        self.tail.extend_from_slice(&bytes[head_bytes..]);
        // Cut only occasionally, so that each byte is moved only a few times.
        if self.tail.len() > self.limit_bytes * 4 {
            self.trim_tail();
        }
    }

    /// Ends the output: cuts its end to the limit.
    pub(super) fn finish(mut self) -> Self {
        self.trim_tail();
        self
    }

    fn trim_tail(&mut self) {
        let excess = match self.tail.len().saturating_sub(self.limit_bytes) {
            0 => 0,
            excess => character_boundary(&self.tail, excess),
        };
        self.tail.drain(..excess);
        self.omitted_bytes += excess as u64;
    }
}

/// The first position from `at` on that is not within a character of UTF-8; the end if `bytes` are shorter.
fn character_boundary(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default().iter().take(MAX_CONTINUATION_BYTES);
    let continuation = rest.take_while(|byte| (0x80..=0xbf).contains(*byte));
    at.min(bytes.len()) + continuation.count()
}

/// The output of a command as text for the model: as a terminal shows it at the end, in limited memory.
pub struct TextOutput {
    decoder: Utf8Decoder,
    screen: TerminalText,
    captured: HeadAndTail,
    file_writer: OutputFileWriter,
    /// Bytes to keep of the beginning, and as many of the end.
    limit_bytes: usize,
    /// Candidate parents of the directory for the file.
    parents: Vec<PathBuf>,
}

/// The output of a command, or the part since the last one was taken.
pub struct CapturedText {
    /// The beginning.
    pub head: Vec<u8>,
    /// The end.
    pub tail: Vec<u8>,
    /// The number of bytes between the two that were not kept.
    pub omitted_bytes: u64,
    /// The file with all of it, if it is long.
    pub file: Option<OutputFile>,
}

impl CapturedText {
    /// True if there is no text.
    pub fn is_blank(&self) -> bool {
        self.head.trim_ascii().is_empty()
            && self.omitted_bytes == 0
            && self.tail.trim_ascii().is_empty()
    }
}

impl TextOutput {
    /// Keeps `limit_bytes` of the beginning, and as many of the end; all of an output that is longer, in a file in one of
    /// `parents`.
    pub fn new(limit_bytes: usize, parents: &[PathBuf]) -> Self {
        Self {
            decoder: Utf8Decoder::default(),
            screen: TerminalText::new(SCREEN_LINES),
            captured: HeadAndTail::new(limit_bytes),
            file_writer: OutputFileWriter::new(parents, limit_bytes * 2),
            limit_bytes,
            parents: parents.to_owned(),
        }
    }

    /// Adds `bytes`, and returns their text as it was written.
    pub fn feed(&mut self, bytes: &[u8]) -> String {
        let text = self.decoder.feed(bytes);
        self.draw(&text);
        text
    }

    /// Ends the output, and returns the rest of its text as it was written.
    pub fn end(&mut self) -> String {
        let text = self.decoder.finish();
        self.draw(&text);
        text
    }

    /// Takes the output since the last call.
    pub fn take(&mut self) -> CapturedText {
        let rest = self.screen.flush();
        self.keep(&rest);
        let next_captured = HeadAndTail::new(self.limit_bytes);
        let HeadAndTail { head, tail, omitted_bytes, .. } =
            std::mem::replace(&mut self.captured, next_captured).finish();
        let next_writer = OutputFileWriter::new(&self.parents, self.limit_bytes * 2);
        let file = std::mem::replace(&mut self.file_writer, next_writer).finish();
        CapturedText { head, tail, omitted_bytes, file }
    }

    fn draw(&mut self, text: &str) {
        let finished = self.screen.feed(text);
        self.keep(&finished);
    }

    fn keep(&mut self, text: &str) {
        self.captured.push(text.as_bytes());
        self.file_writer.feed(text);
    }
}

#[cfg(test)]
mod tests {
    use super::HeadAndTail;

    #[test]
    fn the_beginning_and_the_end_have_whole_characters() {
        let check = |parts: &[&str], limit: usize, expect: (&str, &str, u64)| {
            let mut captured = HeadAndTail::new(limit);
            parts.iter().for_each(|part| captured.push(part.as_bytes()));
            let HeadAndTail { head, tail, omitted_bytes, .. } = captured.finish();
            let text = [head, tail].map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!((text[0].as_str(), text[1].as_str(), omitted_bytes), expect, "{parts:?}");
        };
        check(&["ab"], 3, ("ab", "", 0));
        check(&["aé", "éz"], 2, ("aé", "z", 2));
        check(&["ab", "€uro"], 3, ("ab€", "uro", 0));
        check(&["ab€€€yz"], 3, ("ab€", "yz", 6));
        check(&["abc", "d".repeat(40).as_str(), "efg"], 3, ("abc", "efg", 40));
        check(&["ab"], 0, ("", "", 2));
    }
}
