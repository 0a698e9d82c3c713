//! The keys that we know, and texts without them.

use super::key::{MARK, MIN_KEY_BYTES, Secret};
use super::replacement::{Found, replaced};
use super::{formats, forms};
use crate::sys::sync::IgnorePoison;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, RwLock};

/// Nor is a key with fewer different letters looked for: a line of dashes, say.
const MIN_DISTINCT_CHARS: usize = 4;
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
    let letters: HashSet<char> = secret.expose().chars().collect();
    if secret.expose().len() < MIN_KEY_BYTES
        || letters.len() < MIN_DISTINCT_CHARS
        || is_known(&KNOWN.read().ignore_poison())
    {
        return;
    }
    let mut known = KNOWN.write().ignore_poison();
    if !is_known(&known) {
        known.secrets.push(secret.clone());
        known.forms = None;
    }
}

/// Every form of every key that we know.
pub(super) fn known_forms() -> Arc<[String]> {
    let known = KNOWN.read().ignore_poison();
    if let Some(forms) = &known.forms {
        return Arc::clone(forms);
    }
    drop(known);
    let mut known = KNOWN.write().ignore_poison();
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
pub(super) fn hidden(text: &str, forms: &[String], before: Option<u8>) -> Vec<Found> {
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
    let known = KNOWN.read().ignore_poison();
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
