//! Much text for standard output, in pieces large enough to cost little and made harmless where a terminal shows it.

use crate::sys::terminal::{Terminal, harmless};
use anyhow::Result;

/// What is written at once.
const PIECE: usize = 64 << 10;

/// Text on its way to standard output.
#[derive(Debug)]
pub(super) struct Page {
    terminal: Terminal,
    held: String,
}

impl Page {
    pub(super) fn on(terminal: Terminal) -> Self {
        Self {
            terminal,
            held: String::new(),
        }
    }

    /// Add words of others.
    pub(super) fn put(&mut self, text: &str) -> Result<()> {
        match self.terminal.out {
            true => self.held.push_str(&harmless(text)),
            false => self.held.push_str(text),
        }
        self.turn_when_full()
    }

    /// Add what is harmless already, and may have colours.
    pub(super) fn put_plain(&mut self, text: &str) -> Result<()> {
        self.held.push_str(text);
        self.turn_when_full()
    }

    fn turn_when_full(&mut self) -> Result<()> {
        if self.held.len() >= PIECE {
            self.terminal.print(&self.held)?;
            self.held.clear();
        }
        Ok(())
    }

    /// The rest. What is not told to end here is lost: nothing is written when something failed.
    pub(super) fn end(self) -> Result<()> {
        self.terminal.print(&self.held)
    }
}
