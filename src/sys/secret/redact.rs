//! The known keys, and the functions that redact them.

use super::key::{MIN_KEY_BYTES, REDACTED, Secret};
use super::replacement::{Found, replaced};
use super::{formats, forms};
use crate::sys::sync::IgnorePoison;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, RwLock};

/// The minimum number of distinct characters of a key to search for. This excludes a line of dashes, for example.
const MIN_DISTINCT_CHARS: usize = 4;
static KNOWN: RwLock<Known> = RwLock::new(Known {
    secrets: Vec::new(),
    forms: None,
});

/// The registered keys.
struct Known {
    secrets: Vec<Secret>,
    /// All their forms, computed at the first search.
    forms: Option<Arc<[String]>>,
}

/// Registers `secret` as a known key, unless it could occur in innocent text because it is short or repetitive.
pub fn remember(secret: &Secret) {
    let is_registered = |keys: &Known| keys.secrets.contains(secret);
    let letters: HashSet<char> = secret.expose().chars().collect();
    if secret.expose().len() < MIN_KEY_BYTES
        || letters.len() < MIN_DISTINCT_CHARS
        || is_registered(&KNOWN.read().ignore_poison())
    {
        return;
    }
    let mut keys = KNOWN.write().ignore_poison();
    if !is_registered(&keys) {
        keys.secrets.push(secret.clone());
        keys.forms = None;
    }
}

/// All forms of all known keys.
pub(super) fn known_forms() -> Arc<[String]> {
    let keys = KNOWN.read().ignore_poison();
    if let Some(forms) = &keys.forms {
        return Arc::clone(forms);
    }
    drop(keys);
    let mut keys = KNOWN.write().ignore_poison();
    let forms: Arc<[String]> = forms::all(&keys.secrets).into();
    keys.forms = Some(Arc::clone(&forms));
    forms
}

/// Replaces each known key in `text` by `***`, even if line breaks split it.
pub fn mask(text: &str) -> Cow<'_, str> {
    replaced(text, forms::find(text, &known_forms()))
}

/// Redacts as [`redact_known`] does, and also what has the format of any key. The prefix of such a key stays:
/// `sk-ant-***`.
pub fn hide(text: &str) -> Cow<'_, str> {
    replaced(text, hidden(text, &known_forms(), None))
}

/// The keys that [`redact_all`] redacts in a text that follows the byte `previous`.
pub(super) fn hidden(text: &str, forms: &[String], before: Option<u8>) -> Vec<Found> {
    let mut found = forms::find(text, forms);
    formats::find(text, before, &mut found);
    found
}

/// Applies [`redact_known`] to every string within `value`.
pub fn mask_json(value: &Value) -> Cow<'_, Value> {
    in_json(value, &|text| mask(text))
}

/// Applies [`redact_all`] to every string within `value`.
pub fn hide_json(value: &Value) -> Cow<'_, Value> {
    in_json(value, &|text| hide(text))
}

/// True if a known key can be read out of `text`: in any form, in any case, percent-encoded, or split by other
/// characters. Checked for data that is about to be sent.
pub fn leaks(text: &str) -> bool {
    let keys = KNOWN.read().ignore_poison();
    forms::leak(text, &keys.secrets)
}

/// True if `new`, written over `old`, would replace a key by its redaction mark. The author of `new` saw `old` with its
/// keys redacted.
pub fn is_masked_copy(old: &str, new: &str) -> bool {
    if !new.contains(REDACTED) {
        return false;
    }
    let marked = |line: &&str| line.contains(REDACTED) && !old.contains(line);
    hide(old)
        .lines()
        .map(str::trim)
        .filter(marked)
        .any(|line| new.contains(line))
}

fn in_json<'v>(value: &'v Value, clean: &dyn Fn(&str) -> Cow<'_, str>) -> Cow<'v, Value> {
    match cleaned(value, clean) {
        Some(value) => Cow::Owned(value),
        None => Cow::Borrowed(value),
    }
}

/// The cleaned `value`, or `None` if nothing changes.
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
