//! Secrets: a type that cannot be printed by accident, and the redactor for everything that is output, logged or
//! stored.
//!
//! [`mask`] redacts the keys known to this program, in every form that they are likely to take; all output passes
//! through it. [`hide`] also redacts text that looks like any key. It applies to tool results, errors, logs and
//! recordings, but not to text of a user or a model. Nothing is built until there is a text to redact.

mod formats;
mod forms;
mod key;
mod redact;
mod replacement;
mod stream;

pub use key::Secret;
pub use redact::{hide, hide_json, is_masked_copy, leaks, mask, mask_json, remember};
pub use stream::Stream;

/// Returns a random name of `bytes` × 2 hexadecimal digits, from the kernel's random generator.
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
    use super::{Secret, hide, hide_json, is_masked_copy, mask, random_hex, remember};
    use serde_json::json;
    use std::borrow::Cow;

    #[test]
    fn a_key_is_never_printed() {
        let key = Secret::new("sk-0123456789");
        assert_eq!(format!("{key} {key:?}"), "*** ***");
    }

    #[test]
    fn what_is_remembered_is_masked() {
        // Other tests of this process see these keys too.
        remember(&Secret::new("key-that-is-remembered"));
        for innocent in ["a", "        ", "--------"] {
            remember(&Secret::new(innocent));
        }
        assert_eq!(mask("bad key-that-is-remembered!"), "bad ***!");
        assert!(matches!(mask("banana"), Cow::Borrowed("banana")));
        assert_eq!(mask("--------          x"), "--------          x");
        let both = "key-that-is-remembered https://u:pass@h";
        assert_eq!(mask(both), "*** https://u:pass@h");
        assert_eq!(hide(both), "*** https://u:***@h");
        let value = json!({ "a": ["key-that-is-remembered", 1], "b": "x" });
        assert_eq!(*hide_json(&value), json!({ "a": ["***", 1], "b": "x" }));
    }

    #[test]
    fn a_copy_with_marks_is_none_to_write() {
        let old = "name = x\npassword_url = http://u:p4ss@h/\n# *** stars ***\n";
        let check = |new: &str, expect: bool| assert_eq!(is_masked_copy(old, new), expect, "{new}");
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
