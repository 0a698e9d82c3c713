//! The source of an attachment, as shown in messages and to the model.

use nanobot_base::message::{MessagePart, tagged_block};
use std::fmt;

/// The source of an attachment.
#[derive(Clone, Copy, Debug)]
pub enum AttachmentOrigin<'a> {
    File(&'a str),
    Page(&'a str),
    /// A resource of an MCP server, or a prompt of it: `SERVER:URI`, `SERVER:PROMPT`.
    Resource(&'a str),
    Stdin,
}

impl AttachmentOrigin<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::File(name) | Self::Page(name) | Self::Resource(name) => name,
            Self::Stdin => "standard input",
        }
    }

    /// Wraps `text` in a block that names its source.
    pub fn wrap_text(&self, text: &str) -> MessagePart {
        MessagePart::Text(match self {
            Self::File(name) => tagged_block("file", Some(name), text),
            Self::Page(url) => tagged_block("page", Some(url), text),
            Self::Resource(name) => tagged_block("resource", Some(name), text),
            Self::Stdin => tagged_block("stdin", None, text),
        })
    }
}

/// The form used in messages.
impl fmt::Display for AttachmentOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) | Self::Page(name) | Self::Resource(name) => write!(f, "`{name}`"),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}
