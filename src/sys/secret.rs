//! Keys: a type that cannot be printed by accident, and the one redactor over what is said, shown and kept.
//!
//! [`mask`] takes out the keys that we were told, in every form that they are likely to take: whatever leaves us goes
//! through it. [`hide`] takes out what looks like anybody's key as well: it stands before what tools find, and before
//! errors, logs and recordings, but not before what a person or a model says. Nothing is built ahead of a text to look at.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

mod formats;
mod forms;
mod stream;

pub use stream::Stream;

/// Keys under so many bytes are too short to look for: they stand in innocent words.
const SHORTEST: usize = 8;
/// Nor is one that has fewer different letters.
const FEWEST: usize = 4;
/// What stands in the place of a key.
const MARK: &str = "***";

static KNOWN: RwLock<Known> = RwLock::new(Known {
    secrets: Vec::new(),
    forms: None,
});

/// The keys that we were told.
struct Known {
    secrets: Vec<Secret>,
    /// All their forms, once somebody looked for them.
    forms: Option<Arc<[String]>>,
}

/// From now on `secret` is a key that we know, unless it is one that stands in innocent text: short, or a line of dashes.
pub fn remember(secret: &Secret) {
    let is_known = |known: &Known| known.secrets.contains(secret);
    let letters: HashSet<char> = secret.0.chars().collect();
    if secret.0.len() < SHORTEST
        || letters.len() < FEWEST
        || is_known(&KNOWN.read().unwrap_or_else(PoisonError::into_inner))
    {
        return;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if !is_known(&known) {
        known.secrets.push(secret.clone());
        known.forms = None;
    }
}

/// Every form of every key that we know.
fn known_forms() -> Arc<[String]> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(forms) = &known.forms {
        return Arc::clone(forms);
    }
    drop(known);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let forms: Arc<[String]> = forms::all(&known.secrets).into();
    known.forms = Some(Arc::clone(&forms));
    forms
}

/// `text` without any key that we know, each replaced by `***`; a line break within one does not save it.
pub fn mask(text: &str) -> Cow<'_, str> {
    replaced(text, forms::find(text, &known_forms()))
}

/// As [`mask`], and without what has the format of somebody's key, of which the beginning stays: `sk-ant-***`.
pub fn hide(text: &str) -> Cow<'_, str> {
    replaced(text, hidden(text, &known_forms(), None))
}

/// What [`hide`] takes out of a text that follows the byte `before`.
fn hidden(text: &str, forms: &[String], before: Option<u8>) -> Vec<Found> {
    let mut found = forms::find(text, forms);
    formats::find(text, before, &mut found);
    found
}

/// As [`mask`], in every text within `value`.
pub fn mask_json(value: &Value) -> Cow<'_, Value> {
    in_json(value, &|text| mask(text))
}

/// As [`hide`], in every text within `value`.
pub fn hide_json(value: &Value) -> Cow<'_, Value> {
    in_json(value, &|text| hide(text))
}

/// Whether a key that we know can be read out of `text`: in any form, in small letters or capitals, percent-encoded, or
/// taken apart by other signs. What is to be sent away is asked this.
pub fn leaks(text: &str) -> bool {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    forms::leak(text, &known.secrets)
}

/// Whether `new`, written over `old`, puts the mark of a key where the key is: whoever wrote it saw `old` with its keys
/// hidden.
pub fn is_masked_copy(old: &str, new: &str) -> bool {
    if !new.contains(MARK) {
        return false;
    }
    let marked = |line: &&str| line.contains(MARK) && !old.contains(line);
    hide(old)
        .lines()
        .map(str::trim)
        .filter(marked)
        .any(|line| new.contains(line))
}

/// A key in a text, and what is to stand in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    range: Range<usize>,
    mark: Cow<'static, str>,
}

/// Sorted, and those that overlap as one, with the mark of the first.
fn united(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by_key(|found| found.range.start);
    let mut all: Vec<Found> = Vec::with_capacity(found.len());
    for next in found {
        match all.last_mut() {
            Some(last) if next.range.start < last.range.end => {
                last.range.end = last.range.end.max(next.range.end);
            }
            _ => all.push(next),
        }
    }
    all
}

fn replaced(text: &str, found: Vec<Found>) -> Cow<'_, str> {
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for Found { range, mark } in united(found) {
        out.push_str(&text[end..range.start]);
        out.push_str(&mark);
        end = range.end;
    }
    out.push_str(&text[end..]);
    Cow::Owned(out)
}

fn in_json<'v>(value: &'v Value, clean: &dyn Fn(&str) -> Cow<'_, str>) -> Cow<'v, Value> {
    match cleaned(value, clean) {
        Some(value) => Cow::Owned(value),
        None => Cow::Borrowed(value),
    }
}

/// `value` as it is to be, where it is not that already.
fn cleaned(value: &Value, clean: &dyn Fn(&str) -> Cow<'_, str>) -> Option<Value> {
    match value {
        Value::String(text) => match clean(text) {
            Cow::Owned(text) => Some(Value::String(text)),
            Cow::Borrowed(_) => None,
        },
        Value::Array(items) => {
            let mut copy = None;
            for (index, item) in items.iter().enumerate() {
                if let Some(item) = cleaned(item, clean) {
                    copy.get_or_insert_with(|| items.clone())[index] = item;
                }
            }
            copy.map(Value::Array)
        }
        Value::Object(members) => {
            let mut copy = None;
            for (name, member) in members {
                if let Some(member) = cleaned(member, clean) {
                    copy.get_or_insert_with(|| members.clone())
                        .insert(name.clone(), member);
                }
            }
            copy.map(Value::Object)
        }
        _ => None,
    }
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

    /// `text` with every occurrence of this key as it is replaced by `***`, unless it is too short to look for.
    pub fn mask(&self, text: String) -> String {
        match self.0.len() >= SHORTEST && text.contains(&self.0) {
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
        // Other tests of this process see them too.
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
