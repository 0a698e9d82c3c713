//! The type of a key.

use std::fmt;

/// Keys under so many bytes are too short to look for: they stand in innocent words.
pub(super) const MIN_KEY_BYTES: usize = 8;
/// What stands in the place of a key.
pub(super) const MARK: &str = "***";

/// A key. Shown as `***` by every formatter; [`Secret::expose`] is the one way to its text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` with every occurrence of this key as it is replaced by `***`, unless it is too short to look for.
    pub fn mask(&self, text: String) -> String {
        match self.0.len() >= MIN_KEY_BYTES && text.contains(&self.0) {
            true => text.replace(&self.0, MARK),
            false => text,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MARK)
    }
}
