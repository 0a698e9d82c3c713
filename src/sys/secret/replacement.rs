//! Replaces the keys found in a text.

use std::borrow::Cow;
use std::ops::Range;

/// A key found in a text, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) range: Range<usize>,
    pub(super) mark: Cow<'static, str>,
}

/// Sorts the keys and merges overlapping ones, with the mark of the first.
pub(super) fn united(mut found: Vec<Found>) -> Vec<Found> {
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

/// Replaces each key in `text` by its mark.
pub(super) fn replaced(text: &str, found: Vec<Found>) -> Cow<'_, str> {
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
