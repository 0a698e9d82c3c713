//! The [`LazySecret`] type.

use super::key::{REDACTED, Secret};
use anyhow::Result;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A key of the config: its text, or one that is kept elsewhere and read when it is first needed.
#[derive(Clone)]
pub enum LazySecret {
    Text(Secret),
    Stored(Arc<StoredSecret>),
}

/// A key that is kept outside of the config.
pub struct StoredSecret {
    /// The place, which is no secret.
    identity: String,
    read: Box<dyn Fn() -> Result<Secret> + Send + Sync>,
    found: OnceLock<Secret>,
}

impl LazySecret {
    /// Wraps the text of a key.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Text(Secret::new(text))
    }

    /// A key that `read` finds when it is first needed. `identity` tells keys apart without reading them.
    pub fn stored(
        identity: String,
        read: impl Fn() -> Result<Secret> + Send + Sync + 'static,
    ) -> Self {
        let (read, found) = (Box::new(read), OnceLock::new());
        Self::Stored(Arc::new(StoredSecret { identity, read, found }))
    }

    /// The key, read if that was not done yet.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn resolve(&self) -> Result<&Secret> {
        match self {
            Self::Text(secret) => Ok(secret),
            Self::Stored(stored) => match stored.found.get() {
                Some(found) => Ok(found),
                None => {
                    let found = (stored.read)()?;
                    Ok(stored.found.get_or_init(|| found))
                }
            },
        }
    }

    /// The text of a key that the config has itself.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(secret) => Some(secret.expose()),
            Self::Stored(_) => None,
        }
    }

    /// A text that differs between keys: the key itself, or the place of one that is read when it is needed.
    pub fn identity(&self) -> &str {
        match self {
            Self::Text(secret) => secret.expose(),
            Self::Stored(stored) => &stored.identity,
        }
    }

    /// True if the key is the empty string.
    pub fn is_empty(&self) -> bool {
        self.text().is_some_and(str::is_empty)
    }
}

impl PartialEq for LazySecret {
    fn eq(&self, other: &Self) -> bool {
        self.text().is_some() == other.text().is_some() && self.identity() == other.identity()
    }
}

impl Eq for LazySecret {}

impl fmt::Debug for LazySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for LazySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}
