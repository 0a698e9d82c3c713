//! What a server offers, and what it answers: plain data, as the server said it. Nothing of it has been cleaned.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All that a server offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The version of the protocol that was agreed on.
    pub protocol: String,
    /// Its own name and version.
    pub server: String,
    /// What it says of its use.
    pub instructions: Option<String>,
    pub tools: Vec<Offered>,
    /// So many tools were seen that are not among these: they have no name, or there are too many, or they are too large.
    #[serde(default)]
    pub left_out: usize,
    pub resources: Vec<Resource>,
    /// Their addresses have places to fill in, as `file:///{path}`.
    pub templates: Vec<Resource>,
    pub prompts: Vec<Prompt>,
}

/// A tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
    pub hints: Hints,
}

/// What a server claims of a tool. `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    pub reads_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// Something that can be read, or a template for such.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its address, or a template of addresses.
    pub uri: String,
    pub name: String,
    pub description: String,
    /// The media type.
    pub kind: Option<String>,
}

/// A text with places to fill in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub name: String,
    pub description: String,
    pub arguments: Vec<Argument>,
}

/// A place in a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    pub name: String,
    pub description: String,
    pub required: bool,
}

/// What came back from a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub pieces: Vec<Piece>,
    /// The same as a value, where the server gives one.
    pub structured: Option<Value>,
    /// The server says that it failed, and the pieces say how.
    pub is_error: bool,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    /// An image of that media type.
    Image {
        kind: String,
        bytes: Vec<u8>,
    },
    /// A sound of that media type and so many bytes, which no model is shown.
    Audio {
        kind: String,
        bytes: usize,
    },
    /// What stands at an address, as text.
    Resource {
        uri: String,
        kind: Option<String>,
        text: String,
    },
    /// What stands at an address, of so many bytes that are no text.
    Blob {
        uri: String,
        kind: Option<String>,
        bytes: Vec<u8>,
    },
    /// An address at which there is more.
    Link {
        uri: String,
        name: String,
        description: String,
    },
    /// A message of a prompt.
    Said {
        role: String,
        text: String,
    },
}

/// Why a server did not do what it was asked for, in words that name neither the server nor the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It cannot be used as it is configured.
    #[error("{0}")]
    Unusable(String),
    /// It could not be started or reached, or did not shake hands.
    #[error("{0}")]
    Unreachable(String),
    /// It wants a login that we cannot do.
    #[error("{0}")]
    Login(String),
    /// It was there, and is no more, or speaks no MCP.
    #[error("{0}")]
    Broken(String),
    /// It took too long, and was told that nobody waits.
    #[error("{0}")]
    Late(String),
    /// It does not offer any more what it was to be called for.
    #[error("what it offers has changed in the meantime")]
    Altered,
    /// It answered that it will not.
    #[error("{0}")]
    Refused(String),
    /// The run is to end.
    #[error("{0}")]
    Stopped(crate::error::Stop),
}
