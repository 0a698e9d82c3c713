//! The features and answers of a server, as plain data. The texts are the server's own and have not been cleaned.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// The name under which the instructions of a server are pinned. [`super::limits`] leaves out a tool that has it.
pub const INSTRUCTIONS: &str = "(instructions)";

/// Everything that a server offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerFeatures {
    /// The negotiated protocol version.
    pub protocol: String,
    /// The server's name and version.
    pub server: String,
    /// The server's instructions for its use.
    pub instructions: Option<String>,
    /// The tools of the server.
    pub tools: Vec<ToolInfo>,
    /// Number of tools that were left out because they have no name, are too large or exceed the limit.
    #[serde(default)]
    pub left_out: usize,
    /// The resources of the server.
    pub resources: Vec<ResourceInfo>,
    /// Resource templates; their addresses have placeholders, as in `file:///{path}`.
    pub templates: Vec<ResourceInfo>,
    /// The prompts of the server.
    pub prompts: Vec<PromptInfo>,
}

impl ServerFeatures {
    /// The texts that are pinned: the tools, and the instructions in the form of one, named [`INSTRUCTIONS`].
    pub fn pinned_texts(&self) -> impl Iterator<Item = Cow<'_, ToolInfo>> {
        let text = self.instructions.as_ref().filter(|text| !text.trim().is_empty());
        let instructions = text.map(|text| {
            Cow::Owned(ToolInfo {
                name: INSTRUCTIONS.to_owned(),
                description: text.clone(),
                ..ToolInfo::default()
            })
        });
        self.tools.iter().map(Cow::Borrowed).chain(instructions)
    }
}

/// A tool that a server offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolInfo {
    /// The server's own name for the tool.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// The server's description.
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
    /// The server's claims about the tool.
    pub hints: ToolHints,
}

/// A server's claims about a tool (annotations in MCP). `None` if the server makes no claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolHints {
    /// The tool changes nothing.
    pub reads_only: Option<bool>,
    /// The tool may destroy data.
    pub destructive: Option<bool>,
    /// A repeated call has no further effect.
    pub idempotent: Option<bool>,
    /// The tool interacts with systems outside of the server.
    pub(crate) open_world: Option<bool>,
}

/// A resource, or a resource template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceInfo {
    /// The address, or a template of addresses.
    pub uri: String,
    /// The server's name for it.
    pub name: String,
    /// The server's description.
    pub description: String,
    /// The media type.
    pub kind: Option<String>,
}

/// A prompt with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptInfo {
    /// The name of the prompt.
    pub name: String,
    /// The server's description.
    pub description: String,
    /// The arguments that fill the placeholders.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// The name of the argument.
    pub name: String,
    /// The server's description.
    pub description: String,
    /// True if the prompt needs this argument.
    pub required: bool,
}

/// The answer of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerAnswer {
    /// The parts of the answer, in order.
    pub parts: Vec<ContentPart>,
    /// The structured form of the answer as JSON text, if the server provides one.
    pub structured: Option<String>,
    /// True if the server reports a failure. The parts then describe it.
    pub is_error: bool,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentPart {
    Text(String),
    /// An image of the given media type.
    Image {
        kind: String,
        bytes: Vec<u8>,
    },
    /// Audio of the given media type and size in bytes. It is not shown to models.
    Audio {
        kind: String,
        bytes: usize,
    },
    /// The content of a resource, as text.
    Resource {
        uri: String,
        kind: Option<String>,
        text: String,
    },
    /// The content of a resource that is not text, with its size in bytes.
    Blob {
        uri: String,
        kind: Option<String>,
        bytes: Vec<u8>,
    },
    /// A link to a resource that holds more.
    Link {
        uri: String,
        name: String,
        description: String,
    },
    PromptMessage {
        role: String,
        text: String,
    },
}

/// The reason why a server did not carry out a request. The texts name neither the server nor the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// The server cannot be used as configured.
    #[error("{0}")]
    Unusable(String),
    /// The server could not be started or reached, or the handshake failed.
    #[error("{0}")]
    Unreachable(String),
    /// The server requires a login, and there is none.
    #[error("{0}")]
    Login(String),
    /// The connection was lost, or the server does not speak MCP.
    #[error("{0}")]
    Broken(String),
    /// The request timed out and was cancelled.
    #[error("{0}")]
    TimedOut(String),
    /// The features of the server have changed since the caller checked them.
    #[error("its tools have changed in the meantime")]
    FeaturesChanged,
    /// The server refused the request.
    #[error("{0}")]
    Refused(String),
    /// The run is ending.
    #[error("{0}")]
    Stopped(nanobot_base::error::Stop),
}
