//! The interface through which a caller supplies completions to the editor.

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
