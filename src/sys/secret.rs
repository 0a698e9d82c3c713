//! Keys: a type that cannot be printed by accident, and the mask over what others say.

use std::fmt;
use std::sync::{PoisonError, RwLock};

/// Keys under so many bytes are too short to look for: they stand in innocent words.
const SHORTEST: usize = 8;

/// What no tool's result may show, whoever reads it.
static KNOWN: RwLock<Vec<Secret>> = RwLock::new(Vec::new());

/// From now on [`mask`] hides `secret`.
pub fn remember(secret: &Secret) {
    let is_known = |known: &[Secret]| known.contains(secret);
    if secret.0.len() < SHORTEST || is_known(&KNOWN.read().unwrap_or_else(PoisonError::into_inner))
    {
        return;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if !is_known(&known) {
        known.push(secret.clone());
    }
}

/// `text` without any secret that is known, each replaced by `***`.
pub fn mask(text: String) -> String {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().fold(text, |text, secret| secret.mask(text))
}

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

    /// `text` with every occurrence of this key replaced by `***`, unless it is too short to look for.
    pub fn mask(&self, text: String) -> String {
        if self.0.len() >= SHORTEST && text.contains(&self.0) {
            text.replace(&self.0, "***")
        } else {
            text
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A random name of `bytes` × 2 hexadecimal digits, from the kernel.
pub fn random_hex(bytes: usize) -> String {
    let mut noise = vec![0_u8; bytes];
    let mut filled = 0;
    while filled < bytes {
        match rustix::rand::getrandom(&mut noise[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => unreachable!(
                "getrandom fails only where it does not exist, before Linux 3.17: {error}"
            ),
        }
    }
    noise.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Secret, random_hex};

    #[test]
    fn a_key_is_never_printed() {
        let key = Secret::new("sk-0123456789");
        assert_eq!(format!("{key} {key:?}"), "*** ***");
        assert_eq!(key.mask("bad key sk-0123456789!".into()), "bad key ***!");
        assert_eq!(Secret::new("a").mask("banana".into()), "banana");
    }

    #[test]
    fn random_names_differ() {
        assert_ne!(random_hex(8), random_hex(8));
        assert_eq!(random_hex(8).len(), 16);
    }
}
