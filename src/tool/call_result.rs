//! The result of a call: what the tool returns, or the reason why it did not do what was asked for.

use crate::message::MessagePart;
use crate::policy::Refusal;
use std::path::PathBuf;

/// The reason why a tool did not do what a call asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolError {
    /// It could not be done; text for the model.
    Failed(String),
    /// The policy refused it.
    Denied(Refusal),
    /// The user was asked and declined; text for the model.
    Declined(String),
}

impl ToolError {
    /// The text for the model.
    pub fn message(&self) -> &str {
        match self {
            Self::Failed(message) | Self::Declined(message) => message,
            Self::Denied(refusal) => &refusal.message,
        }
    }
}

impl From<String> for ToolError {
    fn from(words: String) -> Self {
        Self::Failed(words)
    }
}

impl From<&str> for ToolError {
    fn from(words: &str) -> Self {
        Self::Failed(words.to_owned())
    }
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        Self::Denied(refusal)
    }
}

/// The effect of a call. Adjacent calls that only read run in parallel; a writing call runs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    Reads,
    Writes,
}

/// The result of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    pub parts: Vec<MessagePart>,
    /// True if the command that was run failed, as `parts` describe. For the model that is a result like any other; a
    /// call by hand shows it in the exit status.
    pub command_failed: bool,
    /// The permission that was probably missing, if the user can grant it.
    pub missing_grant: Option<Refusal>,
    /// The change to a file as a unified diff: for people who follow the run, not for the model.
    pub diff: Option<String>,
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self {
            parts: vec![MessagePart::Text(text)],
            command_failed: false,
            missing_grant: None,
            diff: None,
        }
    }
}

/// A change of a file by a call, which was taken back and waits for the user's consent.
#[derive(Clone, Debug)]
pub struct WithheldFile {
    pub path: PathBuf,
    /// The content as it is, empty if there is no file.
    pub before: String,
    /// The content that the call left.
    pub after: String,
}
