//! The digest by which a file's content is recognized later.

use crate::durable_file;
use siphasher::sip128::{Hasher128, SipHasher13, SipHasher24};
use std::hash::Hasher;
use std::path::Path;

/// Computes a fingerprint of a content, stable across releases. It does not protect against forgery: a program that can
/// write the stored digests can change the files anyway.
pub fn digest(bytes: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    let hash = hasher.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

/// Maximum size of a program whose digest is computed, in bytes.
pub const MAX_PROGRAM_BYTES: u64 = 32 << 20;

/// Computes the fingerprint of the program at `path`; `None` if it is missing or too large.
pub fn digest_program(path: &Path) -> Option<String> {
    let bytes = durable_file::read_limited(path, MAX_PROGRAM_BYTES).ok()??;
    Some(digest(&bytes))
}

/// Computes a fingerprint that cannot be forged without `key`.
pub fn keyed_digest(key: &[u8; 16], bytes: &[u8]) -> String {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(bytes);
    let hash = hasher.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

#[cfg(test)]
mod tests {
    use super::digest;

    #[test]
    fn digests_stay_the_same() {
        // Journals outlive releases: with a different digest, every file would look like one changed by others.
        assert_eq!(digest(b""), "2134935d61d9b40db91c5ed031fb3303");
        assert_ne!(digest(b"a"), digest(b"b"));
    }
}
