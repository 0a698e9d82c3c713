//! Lines of standard input, as they arrive. A signal ends the wait for the next one.

use super::line_buffer::{InputLine, LineBuffer};
use super::signal::{self, Deadline};
use anyhow::{Context, Result};
use std::os::fd::BorrowedFd;

/// Reads standard input line by line.
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
