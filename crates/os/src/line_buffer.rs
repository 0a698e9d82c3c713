//! Lines of a pipe or of standard input, as they arrive.

use crate::signal::{self, Deadline};
use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The longest line, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Bytes read at a time: the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// A line without its line break, or the reason why it is not kept: it is too long.
pub type InputLine = Result<Vec<u8>, String>;

/// Bytes that were read from a pipe and not returned as lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that hold no line break.
    searched: usize,
    is_at_end: bool,
    /// True while the rest of a line that is too long is read.
    is_too_long: bool,
}

impl LineBuffer {
    /// Removes the first line; the last one of the input needs no line break. `None` if more has to be read.
    pub fn take_line(&mut self) -> Option<InputLine> {
        if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let rest = self.buffer.split_off(self.searched + length + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            line.pop();
            return Some(self.end_line(line));
        }
        self.searched = self.buffer.len();
        if self.is_at_end {
            let line = std::mem::take(&mut self.buffer);
            let is_line = self.is_too_long || !line.is_empty();
            return is_line.then(|| self.end_line(line));
        }
        if self.buffer.len() > MAX_LINE_BYTES {
            self.is_too_long = true;
            self.buffer = Vec::new();
            self.searched = 0;
        }
        None
    }

    /// True if the input has ended.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Reads the bytes that have arrived at `input`, which must be readable.
    ///
    /// # Errors
    /// The input fails.
    pub fn fill(&mut self, input: BorrowedFd<'_>) -> std::io::Result<()> {
        self.buffer.reserve(READ_BYTES);
        match rustix::io::read(input, spare_capacity(&mut self.buffer)) {
            Ok(count) => self.is_at_end = count == 0,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn end_line(&mut self, line: Vec<u8>) -> InputLine {
        self.searched = 0;
        if self.is_too_long {
            self.is_too_long = false;
            Err(format!("the line has more than {} MiB", MAX_LINE_BYTES >> 20))
        } else {
            Ok(line)
        }
    }
}

/// Reads standard input line by line. A signal ends the wait for the next line.
pub struct StdinLines {
    stdin: BorrowedFd<'static>,
    lines: LineBuffer,
}

impl StdinLines {
    /// Creates a reader of standard input. There must be only one.
    pub fn open() -> Self {
        Self { stdin: rustix::stdio::stdin(), lines: LineBuffer::default() }
    }

    /// Returns the next line; the last one needs no line break. `None` at the end of the input.
    ///
    /// # Errors
    /// Standard input fails, or a signal arrived.
    pub fn next_line(&mut self) -> Result<Option<InputLine>> {
        loop {
            if let Some(line) = self.lines.take_line() {
                return Ok(Some(line));
            }
            if self.lines.is_at_end() {
                return Ok(None);
            }
            signal::wait_readable(self.stdin, &mut Deadline::never())?;
            self.lines.fill(self.stdin).context("read standard input")?;
        }
    }
}
