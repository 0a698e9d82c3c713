//! The width of characters on a terminal, the characters that belong together, and the positions at which a row may
//! break.
//!
//! Terminals disagree about joined emoji: some show one glyph, others its parts side by side. The parts are counted
//! here, so no row is too wide on any terminal.

use unicode_width::UnicodeWidthChar;

const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// Variation selector that requests the emoji presentation.
const EMOJI_SELECTOR: char = '\u{fe0f}';

/// The columns that `letter` takes after `before`.
pub(super) fn char_columns(before: Option<char>, letter: char) -> usize {
    match letter {
        ' '..='~' => 1,
        EMOJI_SELECTOR => usize::from(before.is_some_and(|before| before.width() == Some(1))),
        _ => letter.width().unwrap_or(0),
    }
}

/// The columns of a text.
pub(super) fn text_columns(text: &str) -> usize {
    let mut before = None;
    let widths = text.chars().map(|letter| char_columns(before.replace(letter), letter));
    widths.sum()
}

/// True if `letter` must stay with the character before it.
pub(super) fn joins(before: char, letter: char) -> bool {
    match letter {
        ' '..='~' => false,
        // The second half of a flag. A third one starts another flag, and may be separated by chance.
        '\u{1f1e6}'..='\u{1f1ff}' => matches!(before, '\u{1f1e6}'..='\u{1f1ff}'),
        '\u{1f3fb}'..='\u{1f3ff}' => true,
        _ => before == ZERO_WIDTH_JOINER || letter.width().unwrap_or(0) == 0,
    }
}

/// True if a row may break between two adjacent characters.
pub(super) fn may_break(before: char, letter: char) -> bool {
    if joins(before, letter) || cannot_start_row(letter) || cannot_end_row(before) {
        return false;
    }
    is_ideograph(before) || is_ideograph(letter)
}

/// True for characters of scripts that are written without spaces.
fn is_ideograph(letter: char) -> bool {
    matches!(letter,
        '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ff60}' | '\u{20000}'..='\u{3ffff}')
}

/// True for characters that cannot start a row.
fn cannot_start_row(letter: char) -> bool {
    ")]},.;:!?\"'’”%、。，．・：；？！）］｝」』】〕〉》ー々〜".contains(letter)
}

/// True for characters that cannot end a row.
fn cannot_end_row(letter: char) -> bool {
    "([{“‘（［｛「『【〔〈《".contains(letter)
}
