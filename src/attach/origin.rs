//! The source of an attachment, as messages and the model are told of it.

use crate::message::{Part, block};
use std::fmt;

/// Where something came from.
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

    /// `text` in a block that says where it came from.
    pub(super) fn block(&self, text: &str) -> Part {
        Part::Text(match self {
            Self::File(name) => block("file", Some(name), text),
            Self::Page(url) => block("page", Some(url), text),
            Self::Stdin => block("stdin", None, text),
        })
    }
}

/// As messages name it.
impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) | Self::Page(name) => write!(f, "`{name}`"),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}
