//! Questions to a person: a line that is typed, or one that nobody sees. The terminal's own line editing does the rest.
//!
//! The wait sees signals as every wait does, so that Ctrl-C ends the run in order, and the settings of the terminal are put
//! back on the way. While what is typed is not shown, the keys that would stop or abort us past that way mean nothing.

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

/// The longest line that a terminal takes at once.
const LINE: usize = 4096;
/// What takes its meaning from a key.
const NO_KEY: u8 = 0;

impl Terminal {
    /// Whether there is somebody to ask: both what is typed and what is asked go through a terminal.
    pub fn is_attended() -> bool {
        std::io::stdin().is_terminal() && rustix::termios::isatty(rustix::stdio::stderr())
    }

    /// The columns of standard error; 80 where it does not say.
    pub fn breadth(self) -> usize {
        error_width()
    }

    /// Ask on standard error, and read a line; `None` when the person has no more to say (Ctrl-D).
    ///
    /// # Errors
    /// A signal, or a terminal that has gone.
    pub fn ask(self, words: &str) -> Result<Option<String>> {
        self.answer(words, &std::io::stdin())
    }

    /// As [`Self::ask`], for what nobody is to see.
    pub fn ask_hidden(self, words: &str) -> Result<Option<String>> {
        let stdin = std::io::stdin();
        // Before the question: whoever is quick is not to be seen either.
        let _hidden = Hidden::on(&stdin).context("hide what is typed")?;
        self.answer(words, &stdin)
    }

    fn answer(self, words: &str, stdin: &Stdin) -> Result<Option<String>> {
        let line = self.alone(|| {
            // A standard error that fails has nobody to tell.
            write_stderr(&shown(words));
            line(stdin)
        });
        // What comes next begins a line of its own.
        if !matches!(line, Ok(Some(_))) {
            self.complain("");
        }
        line
    }
}

/// A line without its end.
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

/// A terminal that does not show what is typed, until this is dropped.
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
        // A terminal that has gone has nothing to be put back.
        tcsetattr(self.stdin, OptionalActions::Drain, &self.before).unwrap_or_default();
    }
}
