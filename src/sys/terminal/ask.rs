//! Prompts for user input: a line, visible or hidden. The terminal's own line editing is used.
//!
//! The wait notices signals like every other wait, so Ctrl-C ends the run in order and the terminal's settings are
//! restored. While input is hidden, the keys for SIGQUIT and SIGTSTP, which would bypass the restoring, are disabled.

use super::Terminal;
use super::harmless::shown;
use super::streams::{error_width, write_stderr};
use crate::sys::signal::{self, Patience};
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{IsTerminal, Stdin};

/// Maximum length of a line from the terminal in canonical mode, in bytes.
const LINE: usize = 4096;
/// Disables a special key.
const NO_KEY: u8 = 0;

impl Terminal {
    /// True if the user can be prompted: standard input and standard error are terminals.
    pub fn is_attended() -> bool {
        std::io::stdin().is_terminal() && rustix::termios::isatty(rustix::stdio::stderr())
    }

    /// Returns the width of standard error in columns; 80 if unknown.
    pub fn breadth(self) -> usize {
        error_width()
    }

    /// Prompts on standard error and reads a line; `None` at the end of input (Ctrl-D).
    ///
    /// # Errors
    /// Cancellation, or the terminal is gone.
    pub fn ask(self, words: &str) -> Result<Option<String>> {
        self.answer(words, &std::io::stdin())
    }

    /// Like [`Self::prompt`], for input that is not shown.
    pub fn ask_hidden(self, words: &str) -> Result<Option<String>> {
        let stdin = std::io::stdin();
        // Before the prompt, so that input typed early is hidden too.
        let _hidden = Hidden::on(&stdin).context("disable echo")?;
        self.answer(words, &stdin)
    }

    fn answer(self, words: &str, stdin: &Stdin) -> Result<Option<String>> {
        let line = self.alone(|| {
            // A failure to write to standard error cannot be reported anywhere.
            write_stderr(&shown(words));
            line(stdin)
        });
        // Later output starts on a new line.
        if !matches!(line, Ok(Some(_))) {
            self.complain("");
        }
        line
    }
}

/// Reads a line, without its line ending.
fn line(stdin: &Stdin) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; LINE];
    loop {
        signal::readable(stdin, &mut Patience::endless())?;
        let count = match rustix::io::read(stdin, &mut chunk) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other
                .map_err(std::io::Error::from)
                .context("read from the terminal")?,
        };
        bytes.extend_from_slice(&chunk[..count]);
        if count == 0 && bytes.is_empty() {
            return Ok(None);
        }
        if count == 0 || bytes.ends_with(b"\n") {
            let text = String::from_utf8_lossy(&bytes);
            return Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()));
        }
    }
}

/// Disables echo on a terminal until it is dropped.
struct Hidden<'a> {
    stdin: &'a Stdin,
    before: Termios,
}

impl<'a> Hidden<'a> {
    fn on(stdin: &'a Stdin) -> std::io::Result<Self> {
        let before = tcgetattr(stdin)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden.local_modes.insert(LocalModes::ECHONL);
        for key in [SpecialCodeIndex::VQUIT, SpecialCodeIndex::VSUSP] {
            hidden.special_codes[key] = NO_KEY;
        }
        tcsetattr(stdin, OptionalActions::Drain, &hidden)?;
        Ok(Self { stdin, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(self.stdin, OptionalActions::Drain, &self.before).unwrap_or_default();
    }
}
