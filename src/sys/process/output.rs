//! Reads the output of a command from a pipe and keeps its beginning and its end.

use crate::sys::signal::{self, Patience};
use std::io::{self, PipeReader, Read};

/// The read end of a pipe that a command writes to.
pub(super) struct OutputPipe {
    /// `None` after the end of the stream.
    pub(super) pipe: Option<PipeReader>,
    pub(super) kept: Kept,
    block: Vec<u8>,
}

impl OutputPipe {
    /// Creates a reader. `limit` is the number of bytes to keep of the beginning, and as many of the end.
    pub(super) fn new(pipe: PipeReader, limit: usize) -> Self {
        Self {
            pipe: Some(pipe),
            kept: Kept {
                limit,
                ..Kept::default()
            },
            block: vec![0; 64 << 10],
        }
    }

    /// True if data or the end of the stream can be read; false on timeout or cancellation.
    pub(super) fn is_readable(&self, mut deadline: Patience) -> bool {
        let pipe = self.pipe.as_ref();
        pipe.is_some_and(|pipe| matches!(signal::readable(pipe, &mut deadline), Ok(true)))
    }

    /// Reads available data once and passes it to `on_output`.
    pub(super) fn read(&mut self, say: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        match pipe.read(&mut self.block) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                say(&self.block[..count]);
                self.kept.add(&self.block[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The beginning and the end of an output.
#[derive(Default)]
pub(super) struct Kept {
    limit: usize,
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    /// The number of bytes discarded between the two.
    pub(super) left_out: u64,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let head_bytes = self.limit.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..head_bytes]);
        self.tail.extend_from_slice(&bytes[head_bytes..]);
        // Cut only occasionally, so that each byte is moved only a few times.
        if self.tail.len() > self.limit * 4 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let excess = self.tail.len().saturating_sub(self.limit);
        self.tail.drain(..excess);
        self.left_out += excess as u64;
    }
}
