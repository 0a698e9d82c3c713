//! Replaces the keys found in a text.

use std::borrow::Cow;
use std::ops::Range;

/// A key found in a text, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyMatch {
    pub(super) range: Range<usize>,
    pub(super) replacement: Cow<'static, str>,
}

/// Sorts the matches and merges overlapping ones, with the replacement of the first.
pub(super) fn merge_overlapping(mut matches: Vec<KeyMatch>) -> Vec<KeyMatch> {
    matches.sort_by_key(|key_match| key_match.range.start);
    let mut merged: Vec<KeyMatch> = Vec::with_capacity(matches.len());
    for key_match in matches {
        match merged.last_mut() {
            Some(last) if key_match.range.start < last.range.end => {
                last.range.end = last.range.end.max(key_match.range.end);
            }
            _ => merged.push(key_match),
        }
    }
    merged
}

/// Replaces the matches in `text`.
pub(super) fn replace_matches(text: &str, matches: Vec<KeyMatch>) -> Cow<'_, str> {
    if matches.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for KeyMatch { range, replacement } in merge_overlapping(matches) {
        out.push_str(&text[end..range.start]);
        out.push_str(&replacement);
        end = range.end;
    }
    out.push_str(&text[end..]);
    Cow::Owned(out)
}
