//! Secrets: a type that cannot be printed by accident, and the redactor for everything that is output, logged or
//! stored.
//!
//! [`redact_known`] redacts the keys known to this program, in every form that they are likely to take; the text of all
//! output passes through it. [`redact_all`] also redacts text that looks like any key. It applies to tool results, errors, logs and
//! recordings, but not to text of a user or a model. [`mask_for_request`] redacts the longer known keys in texts that are sent to a model
//! and stored in a session. The encodings of the keys are computed when there is a text to redact.

mod encodings;
mod key;
mod key_patterns;
mod redact;
mod replacement;
mod search_set;
mod stream;

pub use key::{LazySecret, REDACTED, Secret};
pub use redact::{
    contains_key, has_masked_request, is_redacted_copy, mask_for_request, redact_all,
    redact_all_json, redact_all_json_text, redact_all_spellings, redact_known, redact_known_json,
    redact_known_json_text, register, register_file, register_files_of,
};
pub use stream::StreamRedactor;

/// Returns `byte_count` random bytes of the kernel's generator, each as two hexadecimal digits.
pub fn random_hex(byte_count: usize) -> String {
    random_bytes(byte_count).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns `byte_count` random bytes of the kernel's generator.
pub fn random_bytes(byte_count: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; byte_count];
    let mut filled = 0;
    while filled < byte_count {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => unreachable!(
                "getrandom fails only where it does not exist, before Linux 3.17: {error}"
            ),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{
        Secret, is_redacted_copy, random_hex, redact_all, redact_all_json, redact_known, register,
    };
    use serde_json::json;
    use std::borrow::Cow;

    #[test]
    fn a_key_is_never_printed() {
        let key = Secret::new("sk-0123456789");
        assert_eq!(format!("{key} {key:?}"), "*** ***");
    }

    #[test]
    fn registered_keys_are_redacted() {
        // Other tests of this process see these keys too.
        register(&Secret::new("key-that-is-remembered"));
        for innocent in ["a", "        ", "--------"] {
            register(&Secret::new(innocent));
        }
        assert_eq!(redact_known("bad key-that-is-remembered!"), "bad ***!");
        assert!(matches!(redact_known("banana"), Cow::Borrowed("banana")));
        assert_eq!(redact_known("--------          x"), "--------          x");
        let both = "key-that-is-remembered https://u:pass@h";
        assert_eq!(redact_known(both), "*** https://u:pass@h");
        assert_eq!(redact_all(both), "*** https://u:***@h");
        let value = json!({ "a": ["key-that-is-remembered", 1], "b": "x" });
        assert_eq!(*redact_all_json(&value), json!({ "a": ["***", 1], "b": "x" }));
    }

    #[test]
    fn a_redacted_copy_is_detected() {
        let old = "name = x\npassword_url = http://u:p4ss@h/\n# *** stars ***\n";
        let check =
            |new: &str, expect: bool| assert_eq!(is_redacted_copy(old, new), expect, "{new}");
        check("name = y\npassword_url = http://u:***@h/\n", true);
        check("  password_url = http://u:***@h/", true);
        check("name = y\npassword_url = http://u:p4ss@h/\n", false);
        check("# *** stars ***\nname = z", false);
        check("**bold** and ***bolder***", false);
    }

    #[test]
    fn random_names_differ() {
        assert_ne!(random_hex(8), random_hex(8));
        assert_eq!(random_hex(8).len(), 16);
    }
}
