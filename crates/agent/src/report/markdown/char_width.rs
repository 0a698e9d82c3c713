//! The width of characters on a terminal, the characters that belong together, and the positions at which a row may
//! break.
//!
//! Terminals disagree about joined emoji: some show one glyph, others its parts side by side. The parts are counted
//! here, so no row is too wide on any terminal.

use unicode_width::UnicodeWidthChar;

const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// Variation selector that requests the emoji presentation.
const EMOJI_SELECTOR: char = '\u{fe0f}';

/// The columns that `character` takes after `previous`.
pub(super) fn char_columns(previous: Option<char>, character: char) -> usize {
    match character {
        ' '..='~' => 1,
        EMOJI_SELECTOR => usize::from(previous.is_some_and(|previous| previous.width() == Some(1))),
        _ => character.width().unwrap_or(0),
    }
}

/// The columns of a text.
pub(super) fn text_columns(text: &str) -> usize {
    let mut previous = None;
    text.chars().map(|character| char_columns(previous.replace(character), character)).sum()
}

/// True if `character` must stay with the character before it.
pub(super) fn joins(previous: char, character: char) -> bool {
    match character {
        ' '..='~' => false,
        // The second half of a flag. A third one starts another flag, and may be separated by chance.
        '\u{1f1e6}'..='\u{1f1ff}' => matches!(previous, '\u{1f1e6}'..='\u{1f1ff}'),
        '\u{1f3fb}'..='\u{1f3ff}' => true,
        _ => previous == ZERO_WIDTH_JOINER || character.width().unwrap_or(0) == 0,
    }
}

/// True if a row may break between two adjacent characters.
pub(super) fn may_break(previous: char, character: char) -> bool {
    if joins(previous, character) || cannot_start_row(character) || cannot_end_row(previous) {
        return false;
    }
    is_ideograph(previous) || is_ideograph(character)
}

/// True for characters of scripts that are written without spaces.
fn is_ideograph(character: char) -> bool {
    matches!(character,
        '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe4f}'
        | '\u{ff00}'..='\u{ff60}' | '\u{20000}'..='\u{3ffff}')
}

/// True for characters that cannot start a row.
fn cannot_start_row(character: char) -> bool {
    ")]},.;:!?\"'’”%、。，．・：；？！）］｝」』】〕〉》ー々〜".contains(character)
}

/// True for characters that cannot end a row.
fn cannot_end_row(character: char) -> bool {
    "([{“‘（［｛「『【〔〈《".contains(character)
}
