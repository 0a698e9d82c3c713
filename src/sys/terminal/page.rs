//! Buffered text output to standard output.
//!
//! Untrusted text and the program's own text go through the same functions. All of it is escaped if standard output is
//! a terminal. Colours are added here, after escaping, and nowhere else.

use super::device::Terminal;
use super::harmless::{Harmless, harmless, harmless_json, json_line};
use super::later;
use crate::sys::secret;
use anyhow::Result;
use console::Style;
use serde_json::Value;

/// Size of the buffer at which it is written, in bytes.
const PIECE: usize = 64 << 10;

/// A buffered writer to standard output.
#[derive(Debug)]
pub struct Page {
    terminal: Terminal,
    held: String,
    harmless: Harmless,
}

impl Page {
    /// Creates a writer with an empty buffer.
    pub fn on(terminal: Terminal) -> Self {
        Self {
            terminal,
            held: String::new(),
            harmless: Harmless::default(),
        }
    }

    /// Adds text. Consecutive calls form one text, even if a character sequence is split between them.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn put(&mut self, text: &str) -> Result<()> {
        let text = secret::mask(text);
        match self.terminal.out {
            true => self.held.push_str(&self.harmless.pass(&text)),
            false => self.held.push_str(&text),
        }
        self.turn_when_full()
    }

    /// Adds text in a style, if colours are allowed; unchanged if standard output is a pipe.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn paint(&mut self, text: &str, style: &Style) -> Result<()> {
        self.settle();
        let text = match self.terminal.out {
            true => harmless(&secret::mask(text)),
            false => secret::mask(text).into_owned(),
        };
        self.held.push_str(&style.apply_to(text).to_string());
        self.turn_when_full()
    }

    /// Adds a line of JSON.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn put_json(&mut self, value: &Value) -> Result<()> {
        self.settle();
        self.held.push_str(&json_line(self.terminal.out, value));
        self.turn_when_full()
    }

    /// Adds JSON that is already text, or a part of it.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn put_json_text(&mut self, text: &str) -> Result<()> {
        match self.terminal.out {
            true => self.held.push_str(&harmless_json(text)),
            false => self.held.push_str(text),
        }
        self.turn_when_full()
    }

    /// Writes the buffer, for interactive output. Characters whose escaping depends on the next piece are held back.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn flush(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.held);
        later::write(self.terminal.out, text.as_bytes())
    }

    /// Like [`Self::flush`], but combined with output that follows soon, and at the latest before the next wait.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn flush_soon(&mut self) -> Result<()> {
        later::say(&self.held)?;
        self.held.clear();
        Ok(())
    }

    /// Ends the current text: what follows does not belong to it.
    pub fn settle(&mut self) {
        if self.terminal.out {
            self.held.push_str(&self.harmless.rest());
        }
    }

    /// Writes the rest. A page that is dropped without this call loses its buffer, so nothing is written after a
    /// failure.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn end(mut self) -> Result<()> {
        self.settle();
        self.flush()
    }

    fn turn_when_full(&mut self) -> Result<()> {
        match self.held.len() >= PIECE {
            true => self.flush(),
            false => Ok(()),
        }
    }
}
