//! The types of keys: [`Secret`], and [`LazySecret`] for one that is read when it is needed. Every formatter shows either
//! as `***`.

use anyhow::Result;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The minimum length of a key to search for, in bytes: shorter ones occur in innocent words.
pub(super) const MIN_KEY_BYTES: usize = 8;
/// The replacement for a key.
pub const REDACTED: &str = "***";

/// A key. Every formatter shows it as `***`. [`Secret::expose`] and [`LazySecret::identity`] return its text.
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

/// A key of the config: its text, or one that is kept elsewhere and read when it is first needed.
#[derive(Clone)]
pub enum LazySecret {
    Text(Secret),
    Stored(Arc<StoredSecret>),
}

/// A key that is kept outside of the config.
pub struct StoredSecret {
    /// The name of the file or variable that has it, which is not secret.
    identity: String,
    read: Box<dyn Fn() -> Result<Secret> + Send + Sync>,
    secret: OnceLock<Secret>,
}

impl LazySecret {
    /// Wraps the text of a key.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Text(Secret::new(text))
    }

    /// A key that `read` returns when it is first needed. `identity` names the place where it is kept.
    pub fn stored(
        identity: String,
        read: impl Fn() -> Result<Secret> + Send + Sync + 'static,
    ) -> Self {
        let (read, secret) = (Box::new(read), OnceLock::new());
        Self::Stored(Arc::new(StoredSecret { identity, read, secret }))
    }

    /// The key, read if that was not done yet.
    ///
    /// # Errors
    /// The errors of reading it.
    pub fn resolve(&self) -> Result<&Secret> {
        match self {
            Self::Text(secret) => Ok(secret),
            Self::Stored(stored) => match stored.secret.get() {
                Some(secret) => Ok(secret),
                None => {
                    let secret = (stored.read)()?;
                    Ok(stored.secret.get_or_init(|| secret))
                }
            },
        }
    }

    /// A key that the config has itself.
    pub fn text(&self) -> Option<&Secret> {
        match self {
            Self::Text(secret) => Some(secret),
            Self::Stored(_) => None,
        }
    }

    /// The key itself, or the identity of one that is kept elsewhere, which stays the same when another key is stored there.
    /// It may be secret.
    pub fn identity(&self) -> &str {
        match self {
            Self::Text(secret) => secret.expose(),
            Self::Stored(stored) => &stored.identity,
        }
    }

    /// True if the config has the key itself, and it is the empty string.
    pub fn is_empty(&self) -> bool {
        self.text().is_some_and(Secret::is_empty)
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
