//! Reads the output of a command from a pipe and keeps its beginning and its end.

use crate::sys::signal::{self, Deadline};
use std::io::{self, PipeReader, Read};

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

/// The beginning and the end of an output.
#[derive(Default)]
pub(super) struct HeadAndTail {
    limit_bytes: usize,
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    /// The number of bytes discarded between the two.
    pub(super) omitted_bytes: u64,
}

impl HeadAndTail {
    /// Keeps `limit` bytes of the beginning, and as many of the end.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit_bytes: limit, ..Self::default() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let head_bytes = self.limit_bytes.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..head_bytes]);
        self.tail.extend_from_slice(&bytes[head_bytes..]);
        // Cut only occasionally, so that each byte is moved only a few times.
        if self.tail.len() > self.limit_bytes * 4 {
            self.trim_tail();
        }
    }

    fn trim_tail(&mut self) {
        let excess = self.tail.len().saturating_sub(self.limit_bytes);
        self.tail.drain(..excess);
        self.omitted_bytes += excess as u64;
    }
}
