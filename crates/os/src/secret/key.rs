//! The [`Secret`] type.

use std::fmt;

/// The minimum length of a key to search for, in bytes: shorter ones occur in innocent words.
pub(super) const MIN_KEY_BYTES: usize = 8;
/// The replacement for a key.
pub const REDACTED: &str = "***";

/// A key. Every formatter shows it as `***`; only [`Secret::expose`] returns its text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text of a key.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text of the key.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True if the key is the empty string.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}
