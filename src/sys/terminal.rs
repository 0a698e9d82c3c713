//! Standard output and standard error. No other module prints.
//!
//! If standard output is not a terminal, it receives text byte for byte. On a terminal, and always on standard error,
//! control characters are escaped first: a terminal obeys escape sequences, and text can disguise its order. Every
//! output function does this, so callers cannot forget it. Colours are added afterwards, by [`StdoutWriter`] and
//! [`Terminal::eprint_failure`]. Known API keys are redacted in all text.

use crate::sys::secret;
use anyhow::{Context, Result};
use harmless::{json_line, shown};
use serde_json::Value;
use std::io::Write;

mod ask;
mod device;
mod fold;
mod foot;
mod harmless;
pub(super) mod later;
mod page;
mod row;
mod streams;

pub use device::Terminal;
pub use fold::folded;
pub use foot::Painter;
pub use harmless::{Harmless, harmless, harmless_json};
pub use page::Page;
pub use row::Row;
pub use streams::error_width;

/// The prefixes of an error's cause and of its hint.
const ERROR_PREFIX: &str = "nanobot:";
const HINT: &str = "  try: ";

impl Terminal {
    /// Writes `text` to standard output, escaped if that is a terminal. A closed pipe ends the run quietly; a slow
    /// reader is waited for.
    ///
    /// # Errors
    /// A full disk; a [`crate::error::Stop`] if the reader is gone or the run is cancelled.
    pub fn print(self, text: &str) -> Result<()> {
        let text = secret::mask(text);
        match self.out {
            true => self.put(harmless(&text).as_bytes()),
            false => self.put(text.as_bytes()),
        }
    }

    /// Like [`Self::print`], for bytes that may not be text: a pipe receives them unchanged.
    pub fn print_bytes(self, bytes: &[u8]) -> Result<()> {
        match self.out {
            true => self.print(&String::from_utf8_lossy(bytes)),
            false => self.put(bytes),
        }
    }

    /// Like [`Self::print`], for a line of JSON, which stays valid JSON on a terminal too.
    pub fn print_json(self, value: &Value) -> Result<()> {
        self.put(json_line(self.out, value).as_bytes())
    }

    /// Like [`Self::print_json`], for JSON that is already text.
    pub fn print_json_text(self, text: &str) -> Result<()> {
        match self.out {
            true => self.put(harmless_json(text).as_bytes()),
            false => self.put(text.as_bytes()),
        }
    }

    fn put(self, bytes: &[u8]) -> Result<()> {
        later::write(self.out, bytes)
    }

    /// Sets the source of the status lines, which stay below all other output and change in place, such as a spinner.
    /// `None` clears them. No effect if standard error is not a terminal.
    pub fn show_below(self, painter: Option<Painter>) {
        if self.err {
            later::catch_up();
            foot::show(painter);
        }
    }

    /// Redraws the status lines.
    pub fn refresh(self) {
        if foot::is_busy() {
            later::catch_up();
            foot::refresh();
        }
    }

    /// Runs `work` with exclusive use of the terminal: the status lines are cleared, and other threads' output to
    /// standard error is delayed.
    pub fn alone<T>(self, work: impl FnOnce() -> T) -> T {
        later::catch_up();
        foot::alone(work)
    }

    /// Closes the output streams, so that their readers find the end of file: later output is discarded. With
    /// `keeps_errors`, standard error stays open.
    pub fn hang_up(self, keeps_errors: bool) -> Result<()> {
        let what = || "close the output streams";
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .with_context(what)?;
        rustix::stdio::dup2_stdout(&null)
            .map_err(std::io::Error::from)
            .with_context(what)?;
        if !keeps_errors {
            rustix::stdio::dup2_stderr(&null)
                .map_err(std::io::Error::from)
                .with_context(what)?;
        }
        Ok(())
    }

    /// Writes a line to standard error, escaped and redacted; on a terminal it is wrapped to the window's width.
    pub fn complain(self, line: &str) {
        self.write_error(self.fitted(&shown(line)));
    }

    fn fitted(self, text: &str) -> String {
        let hang = if text.starts_with(HINT) {
            HINT.trim_start().len()
        } else {
            2
        };
        match self.err {
            true => folded(text, error_width(), hang),
            false => text.to_owned(),
        }
    }

    /// Like [`Self::eprint`], for a styled line; on a terminal it is truncated to the window's width.
    pub fn complain_row(self, row: &Row) {
        self.write_error(row.written(self.err.then(error_width)));
    }

    /// Like [`Self::eprint_styled`], for text on which the user bases a decision: only known keys are redacted, and
    /// nothing that merely looks like one.
    pub fn question(self, row: &Row) {
        self.write_error(row.exact());
    }

    /// Like [`Self::eprint_truncated`], but never truncated.
    pub fn complain_whole(self, row: &Row) {
        self.write_error(row.written(None));
    }

    /// Like [`Self::eprint`], for the error that ended the run: after the program's name, in red if colours are
    /// allowed.
    pub fn fail(self, cause: &str) {
        let text = self.fitted(&format!("{ERROR_PREFIX} {}", shown(cause)));
        let name = console::style(ERROR_PREFIX).for_stderr().red().bold();
        self.write_error(text.replacen(ERROR_PREFIX, &name.to_string(), 1));
    }

    fn write_error(self, mut text: String) {
        text.push('\n');
        later::catch_up();
        foot::complain(&text, self.out && self.err);
    }
}

/// Writes `text` to standard error, escaped and redacted, even while the process panics.
pub(super) fn cry(text: &str) {
    foot::give_up();
    let stderr = std::io::stderr();
    // A failure to write to standard error cannot be reported anywhere.
    drop(stderr.lock().write_all(shown(text).as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::shown;
    use crate::sys::secret::{Secret, remember};

    #[test]
    fn standard_error_is_told_no_keys_and_nothing_that_a_terminal_obeys() {
        remember(&Secret::new("key-for-standard-error"));
        let check = |text: &str, expect: &str| assert_eq!(shown(text), expect);
        check(
            "a defect: key-for-standard-error\u{1b}[2J",
            "a defect: ***\\u{1b}[2J",
        );
        check("yek: rorre-dradnats-rof-yek", "yek: ***");
        check("connect to http://u:pass@h/", "connect to http://u:***@h/");
    }
}
