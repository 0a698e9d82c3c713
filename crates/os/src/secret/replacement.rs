//! Replaces the keys found in a text.

use std::borrow::Cow;
use std::ops::Range;

/// A key found in a text, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyMatch {
    pub(super) range: Range<usize>,
    pub(super) replacement: Cow<'static, str>,
}

/// Sorts the keys and merges overlapping ones, with the mark of the first.
pub(super) fn merge_overlapping(mut matches: Vec<KeyMatch>) -> Vec<KeyMatch> {
    matches.sort_by_key(|found| found.range.start);
    let mut all: Vec<KeyMatch> = Vec::with_capacity(matches.len());
    for next in matches {
        match all.last_mut() {
            Some(last) if next.range.start < last.range.end => {
                last.range.end = last.range.end.max(next.range.end);
            }
            _ => all.push(next),
        }
    }
    all
}

/// Replaces each key in `text` by its mark.
pub(super) fn replace_matches(text: &str, matches: Vec<KeyMatch>) -> Cow<'_, str> {
    if matches.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for KeyMatch { range, replacement: mark } in merge_overlapping(matches) {
        out.push_str(&text[end..range.start]);
        out.push_str(&mark);
        end = range.end;
    }
    out.push_str(&text[end..]);
    Cow::Owned(out)
}
