//! The prompt, the line and the completions that the editor and its caller exchange.

use nanobot_os::terminal::sanitize;

/// The text before a line that is being entered.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    pub text: &'a str,
    /// True if it is shown in red.
    pub is_warning: bool,
}

impl Prompt<'_> {
    /// The text without control characters.
    pub(super) fn plain(self) -> String {
        sanitize(self.text)
    }

    /// The text in its style.
    pub(super) fn styled(self) -> String {
        let style = console::style(self.plain()).bold();
        let style = if self.is_warning { style.red() } else { style };
        style.to_string()
    }
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Self { text, is_warning: false }
    }
}

/// A key that leaves the line for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKey {
    /// Shift-Tab.
    NextProfile,
    /// Ctrl-O.
    LastOutput,
    /// Ctrl-V.
    Paste,
    /// Esc Esc, without text.
    Rewind,
    /// Ctrl-C after text, which is given up.
    Discard,
}

/// The result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditorLine {
    /// The text, without the line ending.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// A key with an effect outside of the line. The text is not finished.
    Key(LineKey, String),
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

/// A completion candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The text to insert.
    pub text: String,
    /// A short description; may be empty.
    pub description: String,
}

/// A source of completions and hints.
pub trait CompletionSource: Send {
    /// Returns the start of the text to complete, as a byte offset in `line`, and the candidates for it.
    fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<Candidate>);
    /// Returns a hint to show dimmed after the line.
    fn hint(&self, line: &str, cursor: usize) -> Option<String>;
}
