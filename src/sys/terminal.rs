//! Standard output and standard error. Nothing else in the program prints.
//!
//! Off a terminal, output goes out byte for byte. On one, and always on standard error, all text is made harmless first:
//! a terminal obeys escape sequences, and text can lie about its order. No door takes text as it is, so that nobody has to
//! think of it; colours are added by [`Page`] and [`Terminal::fail`], after that. The keys that we know leave by no door.

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

/// What stands before the cause of a failure, and before what to do next.
const NAME: &str = "nanobot:";
const HINT: &str = "  try: ";

impl Terminal {
    /// Write `text` to standard output; on a terminal it is made harmless. A reader that has gone ends the run quietly; a
    /// slow one is waited for.
    ///
    /// # Errors
    /// A full disk; a [`crate::error::Stop`] when nobody reads any more, or the run is to end.
    pub fn print(self, text: &str) -> Result<()> {
        let text = secret::mask(text);
        match self.out {
            true => self.put(harmless(&text).as_bytes()),
            false => self.put(text.as_bytes()),
        }
    }

    /// As [`Self::print`], for what may be no text: a pipe gets it byte for byte.
    pub fn print_bytes(self, bytes: &[u8]) -> Result<()> {
        match self.out {
            true => self.print(&String::from_utf8_lossy(bytes)),
            false => self.put(bytes),
        }
    }

    /// As [`Self::print`], for a line of JSON, which stays JSON on a terminal too.
    pub fn print_json(self, value: &Value) -> Result<()> {
        self.put(json_line(self.out, value).as_bytes())
    }

    /// As [`Self::print_json`], for lines of JSON that are text already.
    pub fn print_json_text(self, text: &str) -> Result<()> {
        match self.out {
            true => self.put(harmless_json(text).as_bytes()),
            false => self.put(text.as_bytes()),
        }
    }

    fn put(self, bytes: &[u8]) -> Result<()> {
        later::write(self.out, bytes)
    }

    /// Let `painter` say what stands below all else from now on, and changes in place: a spinner, say. `None` clears it.
    /// Nothing of it where standard error is no terminal.
    pub fn show_below(self, painter: Option<Painter>) {
        if self.err {
            later::catch_up();
            foot::show(painter);
        }
    }

    /// Draw what stands below as it is by now.
    pub fn refresh(self) {
        if foot::is_busy() {
            later::catch_up();
            foot::refresh();
        }
    }

    /// Run `work`, during which this thread has the terminal to itself: nothing stands below, and what others have to say
    /// to standard error waits.
    pub fn alone<T>(self, work: impl FnOnce() -> T) -> T {
        later::catch_up();
        foot::alone(work)
    }

    /// Let the readers of our streams see their end: what is written from now on goes nowhere. With `keeps_errors`
    /// standard error stays open.
    pub fn hang_up(self, keeps_errors: bool) -> Result<()> {
        let what = || "let go of standard output";
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

    /// Write a line to standard error, made harmless and without keys; on a terminal it is folded where the window ends.
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

    /// As [`Self::complain`], for a line in colours; on a terminal it is cut where the window ends.
    pub fn complain_row(self, row: &Row) {
        self.write_error(row.written(self.err.then(error_width)));
    }

    /// As [`Self::complain_whole`], where somebody decides by it.
    pub fn question(self, row: &Row) {
        self.write_error(row.exact());
    }

    /// As [`Self::complain_row`], and nothing of it is cut.
    pub fn complain_whole(self, row: &Row) {
        self.write_error(row.written(None));
    }

    /// As [`Self::complain`], for what ended the run: after our name, in red where colour may be used.
    pub fn fail(self, cause: &str) {
        let text = self.fitted(&format!("{NAME} {}", shown(cause)));
        let name = console::style(NAME).for_stderr().red().bold();
        self.write_error(text.replacen(NAME, &name.to_string(), 1));
    }

    fn write_error(self, mut text: String) {
        text.push('\n');
        later::catch_up();
        foot::complain(&text, self.out && self.err);
    }
}

/// Write `text` to standard error, harmless and without keys, however bad things are.
pub(super) fn cry(text: &str) {
    foot::give_up();
    let stderr = std::io::stderr();
    // A standard error that fails has nobody to tell.
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
