//! Buffered text output to standard output.
//!
//! Untrusted text and the program's own text go through the same functions. All of it is escaped if standard output is
//! a terminal. Colours are added here, after escaping, and nowhere else.

use super::device::Terminal;
use super::sanitize::{Sanitizer, json_line, json_text, sanitize};
use super::status_area::{LINK_END, LINK_START};
use super::write_buffer;
use crate::secret;
use anyhow::Result;
use console::Style;
use serde_json::Value;

/// The usual value of [`StdoutWriter::flush_bytes`].
const FLUSH_BYTES: usize = 64 << 10;
/// Longest address that terminals accept as a link, in bytes.
const MAX_LINK_BYTES: usize = 2083;

/// A buffered writer to standard output.
#[derive(Debug)]
pub struct StdoutWriter {
    terminal: Terminal,
    buffer: String,
    sanitizer: Sanitizer,
    /// True if text is escaped: standard output is a terminal, or a pipe to a pager. JSON is escaped for a terminal only.
    sanitizes: bool,
    /// Size of the buffer at which it is written, in bytes.
    flush_bytes: usize,
}

impl StdoutWriter {
    /// Creates a writer with an empty buffer.
    pub fn new(terminal: Terminal) -> Self {
        Self {
            terminal,
            buffer: String::new(),
            sanitizer: Sanitizer::default(),
            sanitizes: terminal.stdout_is_tty,
            flush_bytes: FLUSH_BYTES,
        }
    }

    /// Creates a writer that also escapes text for a pipe: a pager may pass it on to a terminal. JSON in a pipe is not
    /// escaped: its reader is a program.
    pub fn for_pager(terminal: Terminal) -> Self {
        Self { sanitizes: true, ..Self::new(terminal) }
    }

    /// Creates a writer that writes nothing until it is finished: a page, whose size can be found before.
    pub fn for_page(terminal: Terminal) -> Self {
        Self { flush_bytes: usize::MAX, ..Self::new(terminal) }
    }

    /// Returns the text of the page, with its styles.
    pub fn page_text(&mut self) -> &str {
        self.end_text();
        &self.buffer
    }

    /// Adds text. Consecutive calls form one text, even if a character sequence is split between them.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn write(&mut self, text: &str) -> Result<()> {
        let text = secret::redact_known(text);
        if self.sanitizes {
            self.buffer.push_str(&self.sanitizer.feed(&text));
        } else {
            self.buffer.push_str(&text);
        }
        self.flush_if_full()
    }

    /// Adds text in a style, if colours are allowed. It is redacted and escaped as [`Self::write`] does it.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn write_styled(&mut self, text: &str, style: &Style) -> Result<()> {
        self.end_text();
        let text = if self.sanitizes {
            sanitize(&secret::redact_known(text))
        } else {
            secret::redact_known(text).into_owned()
        };
        self.buffer.push_str(&style.apply_to(text).to_string());
        self.flush_if_full()
    }

    /// Like [`Self::write_styled`], for all or a part of the address `address`, which the terminal opens on a click
    /// (OSC 8) if colours are allowed. Terminals that do not support it ignore it.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn write_link(&mut self, text: &str, style: &Style, address: &str) -> Result<()> {
        let is_safe = address.len() <= MAX_LINK_BYTES
            && address.bytes().all(is_address_byte)
            && secret::redact_known(address) == address;
        if !self.terminal.stdout_is_rich || !console::colors_enabled() || !is_safe {
            return self.write_styled(text, style);
        }
        self.end_text();
        self.buffer.push_str(&format!("{LINK_START}{address}{LINK_END}"));
        self.write_styled(text, style)?;
        self.buffer.push_str(&format!("{LINK_START}{LINK_END}"));
        Ok(())
    }

    /// Adds a line of JSON, as [`Terminal::print_json`] prints it.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn write_json(&mut self, value: &Value) -> Result<()> {
        self.end_text();
        self.buffer.push_str(&json_line(self.terminal.stdout_is_tty, value));
        self.flush_if_full()
    }

    /// Adds JSON that is already text, or a part of it that begins and ends outside of its strings.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn write_json_text(&mut self, text: &str) -> Result<()> {
        self.end_text();
        self.buffer.push_str(&json_text(self.terminal.stdout_is_tty, text));
        self.flush_if_full()
    }

    /// Writes the buffer, for interactive output. A character whose escaping depends on the next one stays in the buffer.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn flush(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.buffer);
        write_buffer::write_after_flush(self.terminal.stdout_is_tty, text.as_bytes())
    }

    /// Like [`Self::flush`], but combined with output that follows soon, and at the latest before the next wait.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn flush_soon(&mut self) -> Result<()> {
        write_buffer::push(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the current text: the text that follows does not belong to it.
    pub fn end_text(&mut self) {
        if self.sanitizes {
            self.buffer.push_str(&self.sanitizer.finish());
        }
    }

    /// Writes the rest. A writer that is dropped without this call loses its buffer, so nothing is written after a
    /// failure.
    ///
    /// # Errors
    /// The errors of [`Terminal::print`].
    pub fn finish(mut self) -> Result<()> {
        self.end_text();
        self.flush()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= self.flush_bytes { self.flush() } else { Ok(()) }
    }
}

/// True for the characters of an address (RFC 3986).
fn is_address_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}
