//! The source of an attachment, as shown in messages and to the model.

use crate::message::{Part, block};
use std::fmt;

/// The source of an attachment.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    File(&'a str),
    Page(&'a str),
    Stdin,
}

impl Origin<'_> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::File(name) | Self::Page(name) => name,
            Self::Stdin => "standard input",
        }
    }

    /// Wraps `text` in a block that names its source.
    pub(super) fn block(&self, text: &str) -> Part {
        Part::Text(match self {
            Self::File(name) => block("file", Some(name), text),
            Self::Page(url) => block("page", Some(url), text),
            Self::Stdin => block("stdin", None, text),
        })
    }
}

/// The form used in messages.
impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) | Self::Page(name) => write!(f, "`{name}`"),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}
