//! How wide letters are on a terminal, which of them belong together, and between which a row may end.
//!
//! Terminals differ about joined emoji: some show one picture, others its parts side by side. Here the parts count, so that
//! no row is longer than it may be on any of them.

use unicode_width::UnicodeWidthChar;

const JOINER: char = '\u{200d}';
/// Asks for the picture instead of the letter.
const PICTURE: char = '\u{fe0f}';

/// The columns that `letter` takes after `before`.
pub(super) fn width(before: Option<char>, letter: char) -> usize {
    match letter {
        ' '..='~' => 1,
        PICTURE => usize::from(before.is_some_and(|before| before.width() == Some(1))),
        _ => letter.width().unwrap_or(0),
    }
}

/// The columns of a text.
pub(super) fn width_of(text: &str) -> usize {
    let mut before = None;
    let widths = text
        .chars()
        .map(|letter| width(before.replace(letter), letter));
    widths.sum()
}

/// Whether `letter` belongs to the one before it, from which no row's end may part it.
pub(super) fn joins(before: char, letter: char) -> bool {
    match letter {
        ' '..='~' => false,
        // The second half of a flag; a third one begins another, and is parted by chance as well as not.
        '\u{1f1e6}'..='\u{1f1ff}' => matches!(before, '\u{1f1e6}'..='\u{1f1ff}'),
        '\u{1f3fb}'..='\u{1f3ff}' => true,
        _ => before == JOINER || letter.width().unwrap_or(0) == 0,
    }
}

/// Whether a row may end between two letters that no blank parts.
pub(super) fn parts(before: char, letter: char) -> bool {
    if joins(before, letter) || closes(letter) || opens(before) {
        return false;
    }
    is_ideograph(before) || is_ideograph(letter)
}

/// Letters of scripts that are written without blanks.
fn is_ideograph(letter: char) -> bool {
    matches!(letter,
        '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ff60}' | '\u{20000}'..='\u{3ffff}')
}

/// What no row begins with.
fn closes(letter: char) -> bool {
    ")]},.;:!?\"'’”%、。，．・：；？！）］｝」』】〕〉》ー々〜".contains(letter)
}

/// What no row ends with.
fn opens(letter: char) -> bool {
    "([{“‘（［｛「『【〔〈《".contains(letter)
}
