//! Prompts for user input: a line, visible or hidden. The terminal's own line editing is used.
//!
//! The wait notices signals like every other wait, so Ctrl-C ends the run in order and the terminal's settings are
//! restored. While input is hidden, the keys for SIGQUIT and SIGTSTP, which would bypass the restoring, are disabled.

use super::Terminal;
use super::sanitize::redact_and_sanitize;
use super::streams::{stderr_width, write_stderr};
use crate::signal::{self, Deadline};
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{IsTerminal, Stdin};

/// Maximum length of a line from the terminal in canonical mode, in bytes.
const MAX_LINE_BYTES: usize = 4096;
/// Disables a special key.
const DISABLED_KEY: u8 = 0;

impl Terminal {
    /// True if the user can be prompted: standard input and standard error are terminals.
    pub fn can_prompt() -> bool {
        std::io::stdin().is_terminal() && rustix::termios::isatty(rustix::stdio::stderr())
    }

    /// Returns the width of standard error in columns; 80 if unknown.
    pub fn stderr_width(self) -> usize {
        stderr_width()
    }

    /// Prompts on standard error and reads a line; `None` at the end of input (Ctrl-D).
    ///
    /// # Errors
    /// Cancellation, or the terminal is gone.
    pub fn prompt(self, question: &str) -> Result<Option<String>> {
        self.read_answer(question, &std::io::stdin())
    }

    /// Like [`Self::prompt`], for input that is not shown.
    pub fn prompt_hidden(self, question: &str) -> Result<Option<String>> {
        let stdin = std::io::stdin();
        // Before the prompt, so that input typed early is hidden too.
        let _guard = EchoGuard::disable_echo(&stdin).context("disable echo")?;
        self.read_answer(question, &stdin)
    }

    fn read_answer(self, question: &str, stdin: &Stdin) -> Result<Option<String>> {
        let line = self.with_exclusive_use(|| {
            // A failure to write to standard error cannot be reported anywhere.
            write_stderr(&redact_and_sanitize(question));
            read_line(stdin)
        });
        // Later output starts on a new line.
        if !matches!(line, Ok(Some(_))) {
            self.eprint("");
        }
        line
    }
}

/// Reads a line, without its line ending.
fn read_line(stdin: &Stdin) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; MAX_LINE_BYTES];
    loop {
        signal::wait_readable(stdin, &mut Deadline::never())?;
        let count = match rustix::io::read(stdin, &mut chunk) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            other => other.map_err(std::io::Error::from).context("read from the terminal")?,
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
struct EchoGuard<'a> {
    stdin: &'a Stdin,
    original: Termios,
}

impl<'a> EchoGuard<'a> {
    fn disable_echo(stdin: &'a Stdin) -> std::io::Result<Self> {
        let original = tcgetattr(stdin)?;
        let mut hidden = original.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden.local_modes.insert(LocalModes::ECHONL);
        for key in [SpecialCodeIndex::VQUIT, SpecialCodeIndex::VSUSP] {
            hidden.special_codes[key] = DISABLED_KEY;
        }
        tcsetattr(stdin, OptionalActions::Drain, &hidden)?;
        Ok(Self { stdin, original })
    }
}

impl Drop for EchoGuard<'_> {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(self.stdin, OptionalActions::Drain, &self.original).unwrap_or_default();
    }
}
