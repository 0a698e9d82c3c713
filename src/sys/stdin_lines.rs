//! Lines of standard input, as they arrive. A signal ends the wait for the next one.

use super::signal::{self, Deadline};
use anyhow::{Context, Result};
use std::os::fd::BorrowedFd;

/// The longest line, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// Bytes read at a time: the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// Reads standard input line by line.
pub struct StdinLines {
    stdin: BorrowedFd<'static>,
    /// Bytes that were read and not returned; the first `searched` of them hold no line break.
    buffer: Vec<u8>,
    searched: usize,
    is_at_end: bool,
    /// True while the rest of a line that is too long is read.
    is_too_long: bool,
}

impl StdinLines {
    /// Creates a reader of standard input. There must be only one.
    pub fn open() -> Self {
        Self {
            stdin: rustix::stdio::stdin(),
            buffer: Vec::new(),
            searched: 0,
            is_at_end: false,
            is_too_long: false,
        }
    }

    /// The next line without its line break; the last one needs none. `None` at the end of the input. A line that is too
    /// long is not kept, only the reason.
    ///
    /// # Errors
    /// Standard input fails; a signal arrived.
    pub fn next_line(&mut self) -> Result<Option<Result<Vec<u8>, String>>> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            if let Some(at) = found.map(|at| self.searched + at) {
                let rest = self.buffer.split_off(at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(self.end_line(line)));
            }
            self.searched = self.buffer.len();
            if self.is_at_end {
                let line = std::mem::take(&mut self.buffer);
                let is_line = self.is_too_long || !line.is_empty();
                return Ok(is_line.then(|| self.end_line(line)));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                self.is_too_long = true;
                self.buffer = Vec::new();
                self.searched = 0;
            }
            self.fill()?;
        }
    }

    fn end_line(&mut self, line: Vec<u8>) -> Result<Vec<u8>, String> {
        self.searched = 0;
        match std::mem::take(&mut self.is_too_long) {
            true => Err(format!("the line has more than {MAX_LINE_BYTES} bytes")),
            false => Ok(line),
        }
    }

    /// Reads what has arrived, or waits for more.
    fn fill(&mut self) -> Result<()> {
        signal::wait_readable(self.stdin, &mut Deadline::never())?;
        let start = self.buffer.len();
        self.buffer.resize(start + READ_BYTES, 0);
        let read = rustix::io::read(self.stdin, &mut self.buffer[start..]);
        let count = match read {
            Ok(count) => {
                self.is_at_end = count == 0;
                count
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => 0,
            Err(error) => {
                self.buffer.truncate(start);
                return Err(error).context("read standard input");
            }
        };
        self.buffer.truncate(start + count);
        Ok(())
    }
}
