//! The known keys, and the functions that redact them.

use super::key::{MIN_KEY_BYTES, REDACTED, Secret};
use super::replacement::{KeyMatch, replace_matches};
use super::{encodings, key_patterns};
use crate::sys::sync::IgnorePoison;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::{Arc, RwLock};

/// The minimum number of distinct characters of a key to search for. This excludes a line of dashes, for example.
const MIN_DISTINCT_CHARS: usize = 4;
static KNOWN_KEYS: RwLock<KnownKeys> =
    RwLock::new(KnownKeys { secrets: Vec::new(), encodings: None });

/// The registered keys.
struct KnownKeys {
    secrets: Vec<Secret>,
    /// All their forms, computed at the first search.
    encodings: Option<Arc<[String]>>,
}

/// Registers `secret` as a known key, unless it could occur in innocent text because it is short or repetitive.
pub fn register(secret: &Secret) {
    let is_registered = |keys: &KnownKeys| keys.secrets.contains(secret);
    let mut letters: Vec<char> = Vec::new();
    let is_first = |letter: &char| {
        let is_new = !letters.contains(letter);
        if is_new {
            letters.push(*letter);
        }
        is_new
    };
    let letters = secret.expose().chars().filter(is_first);
    if secret.expose().len() < MIN_KEY_BYTES
        || letters.take(MIN_DISTINCT_CHARS).count() < MIN_DISTINCT_CHARS
        || is_registered(&KNOWN_KEYS.read().ignore_poison())
    {
        return;
    }
    let mut keys = KNOWN_KEYS.write().ignore_poison();
    if !is_registered(&keys) {
        keys.secrets.push(secret.clone());
        keys.encodings = None;
    }
}

/// All forms of all known keys.
pub(super) fn known_encodings() -> Arc<[String]> {
    let keys = KNOWN_KEYS.read().ignore_poison();
    if let Some(forms) = &keys.encodings {
        return Arc::clone(forms);
    }
    drop(keys);
    let mut keys = KNOWN_KEYS.write().ignore_poison();
    let forms: Arc<[String]> = encodings::all_encodings(&keys.secrets).into();
    keys.encodings = Some(Arc::clone(&forms));
    forms
}

/// Replaces each known key in `text` by `***`, even if line breaks split it.
pub fn redact_known(text: &str) -> Cow<'_, str> {
    // No form of a key is shorter than a key. Most pieces of a streamed answer are.
    if text.len() < MIN_KEY_BYTES {
        return Cow::Borrowed(text);
    }
    replace_matches(text, encodings::find_encodings(text, &known_encodings()))
}

/// Redacts as [`redact_known`] does, and also what has the format of any key. The prefix of such a key stays:
/// `sk-ant-***`.
pub fn redact_all(text: &str) -> Cow<'_, str> {
    replace_matches(text, find_all(text, &known_encodings(), None))
}

/// Redacts as [`redact_all`] does, and known keys however they are spelled. For whole texts: a stream cannot know if the
/// letters at its end begin such a key.
pub fn redact_all_spellings(text: &str) -> Cow<'_, str> {
    let encodings = known_encodings();
    let mut found = find_all(text, &encodings, None);
    found.extend(encodings::find_respelled(text, &encodings));
    replace_matches(text, found)
}

/// The keys that [`redact_all`] redacts in a text that follows the byte `previous`.
pub(super) fn find_all(text: &str, encodings: &[String], previous: Option<u8>) -> Vec<KeyMatch> {
    let mut found = encodings::find_encodings(text, encodings);
    key_patterns::find_keys(text, previous, &mut found);
    found
}

/// Applies [`redact_known`] to every string within `value`.
pub fn redact_known_json(value: &Value) -> Cow<'_, Value> {
    redact_json(value, &|text| redact_known(text))
}

/// Applies [`redact_all`] to every string within `value`.
pub fn redact_all_json(value: &Value) -> Cow<'_, Value> {
    redact_json(value, &|text| redact_all(text))
}

/// True if a known key can be read out of `text`: in any form, in any case, percent-encoded, or split by other
/// characters. Checked for data that is about to be sent.
pub fn contains_key(text: &str) -> bool {
    let keys = KNOWN_KEYS.read().ignore_poison();
    encodings::contains_any(text, &keys.secrets)
}

/// True if `new`, written over `old`, would replace a key by its redaction mark. The author of `new` saw `old` with its
/// keys redacted.
pub fn is_redacted_copy(old: &str, new: &str) -> bool {
    if !new.contains(REDACTED) {
        return false;
    }
    let marked = |line: &&str| line.contains(REDACTED) && !old.contains(line);
    redact_all(old).lines().map(str::trim).filter(marked).any(|line| new.contains(line))
}

fn redact_json<'v>(value: &'v Value, redact: &dyn Fn(&str) -> Cow<'_, str>) -> Cow<'v, Value> {
    match map_strings(value, redact) {
        Some(value) => Cow::Owned(value),
        None => Cow::Borrowed(value),
    }
}

/// The cleaned `value`, or `None` if nothing changes.
fn map_strings(value: &Value, redact: &dyn Fn(&str) -> Cow<'_, str>) -> Option<Value> {
    match value {
        Value::String(text) => match redact(text) {
            Cow::Owned(text) => Some(Value::String(text)),
            Cow::Borrowed(_) => None,
        },
        Value::Array(items) => {
            let mut copy = None;
            for (index, item) in items.iter().enumerate() {
                if let Some(item) = map_strings(item, redact) {
                    copy.get_or_insert_with(|| items.clone())[index] = item;
                }
            }
            copy.map(Value::Array)
        }
        Value::Object(members) => {
            let mut copy = None;
            for (name, member) in members {
                if let Some(member) = map_strings(member, redact) {
                    copy.get_or_insert_with(|| members.clone()).insert(name.clone(), member);
                }
            }
            copy.map(Value::Object)
        }
        _ => None,
    }
}
