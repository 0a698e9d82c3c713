//! The line that a person types at a terminal: read with editing, history, completion and hints. The only contact with
//! `rustyline`; what is known to complete with comes from whoever reads.

use crate::sys::env::Env;
use crate::sys::terminal::Terminal;
use anyhow::Result;
use std::path::PathBuf;

/// What may stand at a place of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub text: String,
    /// What it is, in a few words; may be empty.
    pub about: String,
}

/// What a line can be completed with.
pub trait Known: Send {
    /// Where what is completed begins, and what may stand there.
    fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<Candidate>);
    /// What is shown dim after the line.
    fn hint(&self, line: &str, cursor: usize) -> Option<String>;
}

/// What came of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D on an empty line, or the terminal went away.
    End,
}

/// Reads lines. The terminal's settings are those of its beginning whenever it does not read, and after any end of the program.
pub struct Editor {}

impl Editor {
    /// `history` is the file of what was typed before: [`crate::sys::paths::Paths::history`].
    ///
    /// # Errors
    /// There is no terminal to read from.
    pub fn new(
        _env: &Env,
        _terminal: Terminal,
        _history: PathBuf,
        _known: Box<dyn Known>,
    ) -> Result<Self> {
        Ok(Self {})
    }

    /// What is to be told of the history, where it cannot be used: once.
    pub fn notice(&mut self) -> Option<String> {
        None
    }

    /// Read an entry, which may have many lines; `begun` stands in it already. What was typed meanwhile comes first.
    ///
    /// # Errors
    /// A signal ends the run; the terminal fails.
    pub fn read(&mut self, _prompt: &str, _begun: &str) -> Result<Line> {
        Ok(Line::End)
    }

    /// Read the answer to a question: one line, without history and completion. What was typed before is kept for [`Self::read`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn ask(&mut self, _question: &str) -> Result<Line> {
        Ok(Line::End)
    }

    /// Take `text` into the history, unless it begins with a space, is what the last one was, or holds a key.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn remember(&mut self, _text: &str) -> Result<()> {
        Ok(())
    }

    /// From now on until it is dropped, nobody reads: what is typed is not shown, and is kept for the next [`Self::read`].
    pub fn quiet(&self) -> Quiet {
        Quiet {}
    }
}

/// See [`Editor::quiet`].
#[must_use]
pub struct Quiet {}

impl Drop for Quiet {
    fn drop(&mut self) {}
}

/// Let a person write a text with an editor of their own, beginning with `text`. `None` where nothing is left of it.
///
/// # Errors
/// The editor cannot be run, or fails.
pub fn compose(_env: &Env, _text: &str) -> Result<Option<String>> {
    Ok(None)
}
