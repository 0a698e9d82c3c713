//! What the editor completes with.

/// What may stand at a place of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub text: String,
    /// What it is, in a few words; may be empty.
    pub about: String,
}

/// What a line can be completed with.
pub trait CompletionSource: Send {
    /// Where what is completed begins, and what may stand there.
    fn complete(&self, line: &str, cursor: usize) -> (usize, Vec<Candidate>);
    /// What is shown dim after the line.
    fn hint(&self, line: &str, cursor: usize) -> Option<String>;
}
