//! The origin of content: who may have written it.

use serde::{Deserialize, Serialize};

/// The origin of content, from the most to the least trusted. The origin of a conversation is the least trusted one of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The user's words, the config, the workspace's own notes and memory, installed skills.
    #[default]
    User,
    /// Files of the directory, attachments, piped text, output of commands without network.
    Project,
    /// Web pages, search results, output of commands with network, MCP servers.
    External,
}

impl Origin {
    /// All origins, lowest first.
    pub const ALL: [Self; 3] = [Self::User, Self::Project, Self::External];

    /// The name, as it is serialized.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::External => "external",
        }
    }
}
