//! Text on its way to standard output, in pieces large enough to cost little.
//!
//! Words of others and our own come in by the same doors, and all of them are made harmless where a terminal shows them;
//! colours are added here, after that, and nowhere else.

use super::device::Terminal;
use super::harmless::{Harmless, harmless, harmless_json, json_line};
use super::later;
use crate::sys::secret;
use anyhow::Result;
use console::Style;
use serde_json::Value;

/// What is written at once.
const PIECE: usize = 64 << 10;

/// Text that is being written to standard output.
#[derive(Debug)]
pub struct Page {
    terminal: Terminal,
    held: String,
    harmless: Harmless,
}

impl Page {
    pub fn on(terminal: Terminal) -> Self {
        Self {
            terminal,
            held: String::new(),
            harmless: Harmless::default(),
        }
    }

    /// Add text; what is cut between two calls is one text all the same.
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

    /// Add text in a colour, where colours may be used; in a pipe it is as it is.
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

    /// Add a line of JSON.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn put_json(&mut self, value: &Value) -> Result<()> {
        self.settle();
        self.held.push_str(&json_line(self.terminal.out, value));
        self.turn_when_full()
    }

    /// Add the text of JSON, or a part of it.
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

    /// Write what there is: somebody is watching. What the next piece decides about waits for it.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn flush(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        later::write(self.terminal.out, held.as_bytes())
    }

    /// As [`Self::flush`], with what follows soon: in one piece, and before anybody waits for more.
    ///
    /// # Errors
    /// Those of [`Terminal::print`].
    pub fn flush_soon(&mut self) -> Result<()> {
        later::say(&self.held)?;
        self.held.clear();
        Ok(())
    }

    /// Nothing that follows belongs to what was put so far.
    pub fn settle(&mut self) {
        if self.terminal.out {
            self.held.push_str(&self.harmless.rest());
        }
    }

    /// The rest. What is not told to end here is lost: nothing is written when something failed.
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
