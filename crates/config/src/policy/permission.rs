//! The permission to use a tool, by its name.

use super::rule::Pattern;
use super::tool_names;
use serde::{Deserialize, Serialize};

/// The permission to use a tool, from strictest to weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    Never,
    /// Requires approval. Means no if the run cannot prompt.
    Ask,
    Always,
}

impl Permission {
    /// Parses `never`, `ask` or `always`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "always" => Some(Self::Always),
            "ask" => Some(Self::Ask),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Parses one entry of the config map `permissions`.
    ///
    /// # Errors
    /// A phrase to append to `name`: it refers to no tool, or `word` is not a permission.
    pub fn parse_entry(name: &str, permission: &str) -> Result<(Pattern, Self), String> {
        let name = tool_names::canonical_name(name);
        tool_names::check(name)?;
        let permission = Self::parse(permission)
            .ok_or_else(|| format!("is `{permission}`, expected `always`, `ask` or `never`"))?;
        Ok((Pattern::new(name), permission))
    }
}
