//! Prompts for user input: a line, visible or hidden. The terminal's own line editing is used.
//!
//! A signal ends the wait for input, so Ctrl-C ends the run normally, and the terminal's settings are restored. SIGQUIT
//! and SIGTSTP would take effect before that, so their keys are disabled while input is hidden.

use super::Terminal;
use super::sanitize::redact_and_sanitize;
use super::streams::write_stderr;
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

    /// Prompts on standard error and reads a line; `None` at the end of input (Ctrl-D).
    ///
    /// # Errors
    /// Cancellation, or the terminal is gone.
    pub fn prompt(self, prompt: &str) -> Result<Option<String>> {
        self.prompt_on(prompt, &std::io::stdin())
    }

    /// Like [`Self::prompt`], for input that is not shown.
    pub fn prompt_hidden(self, prompt: &str) -> Result<Option<String>> {
        let stdin = std::io::stdin();
        // Before the prompt, so that input typed early is hidden too.
        let _guard = EchoGuard::disable_echo(&stdin).context("disable echo")?;
        self.prompt_on(prompt, &stdin)
    }

    fn prompt_on(self, prompt: &str, stdin: &Stdin) -> Result<Option<String>> {
        let line = self.with_exclusive_use(|| {
            // A failure to write to standard error cannot be reported anywhere.
            write_stderr(&redact_and_sanitize(prompt));
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

/// Hidden input: echo is disabled until this is dropped.
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
        let _ = tcsetattr(self.stdin, OptionalActions::Drain, &self.original);
    }
}
