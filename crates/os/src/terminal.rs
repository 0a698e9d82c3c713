//! Standard output and standard error. No other module prints.
//!
//! If standard output is not a terminal, it receives text byte for byte. On a terminal, and always on standard error,
//! control characters are escaped first: a terminal obeys escape sequences, and text can disguise its order. Every
//! output function does this, so callers cannot forget it. Colours are added afterwards, by [`StdoutWriter`] and
//! [`Terminal::eprint_failure`]. Known API keys are redacted in all text, apart from raw bytes in a pipe and from a request
//! that is shown as it would be sent.

use crate::secret;
use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use sanitize::{json_line, json_text, redact_and_sanitize};
use serde::Serialize;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::time::Duration;

mod device;
mod prompt;
mod sanitize;
mod status_area;
mod stdout_writer;
mod streams;
mod styled_line;
pub mod termios;
pub mod theme;
mod wrap;
pub mod write_buffer;

pub use device::{Terminal, stderr_width};
pub use sanitize::{Sanitizer, sanitize, sanitize_json, sanitize_line};
pub use status_area::Painter;
pub use stdout_writer::StdoutWriter;
pub use streams::move_cursor_up;
pub use styled_line::StyledLine;
pub use wrap::wrap_words;

/// The prefixes of an error's cause and of its hint.
const ERROR_PREFIX: &str = "nanobot:";
const HINT_PREFIX: &str = "  try: ";

impl Terminal {
    /// Writes `text` to standard output, escaped if that is a terminal. A closed pipe ends the run quietly; a slow
    /// reader is waited for.
    ///
    /// # Errors
    /// The disk is full; a [`nanobot_base::error::Stop`] if the reader is gone or the run is cancelled.
    pub fn print(self, text: &str) -> Result<()> {
        let text = secret::redact_known(text);
        if self.stdout_is_tty {
            self.write_stdout(sanitize(&text).as_bytes())
        } else {
            self.write_stdout(text.as_bytes())
        }
    }

    /// Like [`Self::print`], for a request as it would be sent: its keys are masked already, or the user wants them sent.
    pub fn print_request(self, text: &str) -> Result<()> {
        if self.stdout_is_tty {
            self.write_stdout(sanitize(text).as_bytes())
        } else {
            self.write_stdout(text.as_bytes())
        }
    }

    /// Like [`Self::print_request`], for the JSON of a request, which stays valid JSON on a terminal too.
    pub fn print_request_json(self, text: &str) -> Result<()> {
        if self.stdout_is_tty {
            self.write_stdout(sanitize_json(text).as_bytes())
        } else {
            self.write_stdout(text.as_bytes())
        }
    }

    /// Like [`Self::print`], for bytes that may not be text: a pipe receives them unchanged.
    pub fn print_bytes(self, bytes: &[u8]) -> Result<()> {
        if self.stdout_is_tty {
            self.print(&String::from_utf8_lossy(bytes))
        } else {
            self.write_stdout(bytes)
        }
    }

    /// Like [`Self::print`], for a line of JSON, which stays valid JSON on a terminal too. An object without a version `v` gets
    /// [`JSON_VERSION`](nanobot_base::json_text::JSON_VERSION).
    pub fn print_json(self, value: &Value) -> Result<()> {
        self.write_stdout(json_line(self.stdout_is_tty, value).as_bytes())
    }

    /// Like [`Self::print_json`], for the records of a list, one on each line.
    pub fn print_json_lines(self, records: impl IntoIterator<Item = impl Serialize>) -> Result<()> {
        let mut lines = String::new();
        for record in records {
            let value = serde_json::to_value(record).context("format as JSON")?;
            lines.push_str(&json_line(self.stdout_is_tty, &value));
        }
        self.write_stdout(lines.as_bytes())
    }

    /// Like [`Self::print_json`], for lines of JSON that are already text.
    pub fn print_json_text(self, text: &str) -> Result<()> {
        self.write_stdout(json_text(self.stdout_is_tty, text).as_bytes())
    }

    fn write_stdout(self, bytes: &[u8]) -> Result<()> {
        write_buffer::write_after_flush(self.stdout_is_tty, bytes)
    }

    /// Asks the terminal to put `text` on the clipboard (OSC 52). Terminals that do not support it ignore it.
    pub fn copy_to_clipboard(self, text: &str) {
        let text = BASE64_STANDARD.encode(secret::redact_known(text).as_bytes());
        write_buffer::flush_deferring_error();
        streams::write_stderr(&format!("\u{1b}]52;c;{text}\u{7}"));
    }

    /// Sets the source of the status lines, which stay below all other output and change in place, such as a spinner.
    /// `None` clears them. No effect if standard error is not a terminal.
    pub fn set_status(self, painter: Option<Painter>) {
        if self.stderr_is_tty {
            write_buffer::flush_deferring_error();
            status_area::set_painter(painter);
        }
    }

    /// Sets the source of the text that the user types during other output; it is shown below that output.
    /// `None` clears it. No effect as for [`Self::set_status`].
    pub fn set_typed_text(self, painter: Option<Painter>) {
        if self.stderr_is_tty && self.stdout_is_rich {
            write_buffer::flush_deferring_error();
            status_area::set_typed_text(painter);
        }
    }

    /// Rings the bell of the terminal.
    pub fn ring_bell(self) {
        if self.stderr_is_tty {
            write_buffer::flush_deferring_error();
            streams::write_stderr("\u{7}");
        }
    }

    /// Redraws the status lines.
    pub fn refresh_status(self) {
        if status_area::is_busy() {
            write_buffer::flush_deferring_error();
            status_area::redraw();
        }
    }

    /// Runs `work` with exclusive use of the terminal: the status lines are cleared, and other threads' output to
    /// standard error is delayed.
    pub fn with_exclusive_use<T>(self, work: impl FnOnce() -> T) -> T {
        write_buffer::flush_deferring_error();
        status_area::with_exclusive_use(work)
    }

    /// The time of all [`Self::with_exclusive_use`] of this process so far.
    pub fn exclusive_time(self) -> Duration {
        status_area::exclusive_time()
    }

    /// Closes the output streams, so that their readers find the end of file: later output is discarded. With
    /// `keeps_errors`, standard error stays open.
    pub fn close_output(self, keeps_errors: bool) -> Result<()> {
        let context = || "close the output streams";
        let null = std::fs::File::options().write(true).open("/dev/null").with_context(context)?;
        rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from).with_context(context)?;
        if !keeps_errors {
            rustix::stdio::dup2_stderr(&null)
                .map_err(std::io::Error::from)
                .with_context(context)?;
        }
        Ok(())
    }

    /// Writes a line to standard error, escaped and redacted; on a terminal it is wrapped to the window's width.
    pub fn eprint(self, line: &str) {
        self.write_stderr_line(self.wrap_to_width(&redact_and_sanitize(line)));
    }

    /// Like [`Self::eprint`], dimmed: for text that the user need not read.
    pub fn eprint_dim(self, line: &str) {
        let text = self.wrap_to_width(&redact_and_sanitize(line));
        let rows = text.split('\n').map(|row| console::style(row).for_stderr().dim().to_string());
        self.write_stderr_line(rows.collect::<Vec<_>>().join("\n"));
    }

    fn wrap_to_width(self, text: &str) -> String {
        let hanging_indent =
            if text.starts_with(HINT_PREFIX) { HINT_PREFIX.trim_start().len() } else { 2 };
        if self.stderr_is_tty {
            wrap_words(text, stderr_width(), hanging_indent)
        } else {
            text.to_owned()
        }
    }

    /// Like [`Self::eprint`], for a styled line; on a terminal it is truncated to the window's width.
    pub fn eprint_truncated(self, line: &StyledLine) {
        self.write_stderr_line(line.render(self.stderr_is_tty.then(stderr_width)));
    }

    /// Like [`Self::eprint_truncated`], but never truncated, for text on which the user bases a decision: only known keys
    /// are redacted, and nothing that merely looks like one.
    pub fn eprint_exact(self, line: &StyledLine) {
        self.write_stderr_line(line.render_exact());
    }

    /// Like [`Self::eprint_truncated`], but never truncated, for a line of the log, which waits for the end of a line of
    /// the answer.
    pub(crate) fn eprint_log(self, line: &StyledLine) {
        let text = line.render(None) + "\n";
        write_buffer::flush_deferring_error();
        status_area::eprint_between_lines(&text, self.stdout_is_tty && self.stderr_is_tty);
    }

    /// Like [`Self::eprint`], for the error that ended the run: after the program's name, in red if colours are
    /// allowed.
    pub fn eprint_failure(self, cause: &str) {
        let text = self.wrap_to_width(&format!("{ERROR_PREFIX} {}", redact_and_sanitize(cause)));
        let name = console::style(ERROR_PREFIX).for_stderr().red().bold();
        self.write_stderr_line(text.replacen(ERROR_PREFIX, &name.to_string(), 1));
    }

    fn write_stderr_line(self, mut text: String) {
        text.push('\n');
        write_buffer::flush_deferring_error();
        status_area::eprint(&text, self.stdout_is_tty && self.stderr_is_tty);
    }
}

/// Writes a line to standard error, escaped and redacted, for code that has no [`Terminal`].
pub fn eprint_notice(line: &str) {
    let is_shared = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    write_buffer::flush_deferring_error();
    status_area::eprint(&(redact_and_sanitize(line) + "\n"), is_shared);
}

/// Like [`eprint_notice`], but only if standard error is a terminal.
pub fn eprint_on_terminal(line: &str) {
    if std::io::stderr().is_terminal() {
        eprint_notice(line);
    }
}

/// Writes `line` to standard output while the process panics.
pub(crate) fn print_panic_result(line: &str) {
    // A failure to write cannot be reported while the process panics.
    drop(std::io::stdout().write_all(format!("{line}\n").as_bytes()));
}

/// Writes `text` to standard error, escaped and redacted, even while the process panics.
pub(crate) fn eprint_panic(text: &str) {
    status_area::clear_if_unlocked();
    let stderr = std::io::stderr();
    // A failure to write to standard error cannot be reported anywhere.
    drop(stderr.lock().write_all(redact_and_sanitize(text).as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::redact_and_sanitize;
    use crate::secret::{Secret, register};

    #[test]
    fn standard_error_is_redacted_and_sanitized() {
        register(&Secret::new("key-for-standard-error"));
        let check = |text: &str, expect: &str| assert_eq!(redact_and_sanitize(text), expect);
        check("a defect: key-for-standard-error\u{1b}[2J", "a defect: ***\\u{1b}[2J");
        check("yek: rorre-dradnats-rof-yek", "yek: ***");
        check("connect to http://u:pass@h/", "connect to http://u:***@h/");
    }
}
