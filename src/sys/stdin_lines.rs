//! Lines of standard input, as they arrive. A signal ends the wait for the next one.

use super::signal::{self, Deadline};
use crate::error::{Exit, fail};
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
}

impl StdinLines {
    /// Creates a reader of standard input. There must be only one.
    pub fn open() -> Self {
        Self {
            stdin: rustix::stdio::stdin(),
            buffer: Vec::new(),
            searched: 0,
            is_at_end: false,
        }
    }

    /// The next line without its line break; the last one needs none. `None` at the end of the input.
    ///
    /// # Errors
    /// Status 65 for a line beyond 16 MiB; standard input fails; a signal arrived.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            if let Some(at) = found.map(|at| self.searched + at) {
                let rest = self.buffer.split_off(at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.is_at_end {
                let line = std::mem::take(&mut self.buffer);
                self.searched = 0;
                return Ok((!line.is_empty()).then_some(line));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(fail(
                    Exit::BadInput,
                    format!("a line of standard input has more than {MAX_LINE_BYTES} bytes"),
                ));
            }
            self.fill()?;
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
