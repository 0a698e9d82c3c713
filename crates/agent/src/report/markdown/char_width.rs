//! The width of characters on a terminal, the characters that belong together, and the positions at which a row may
//! break.
//!
//! Terminals disagree about joined emoji: some show one glyph, others its parts side by side. The parts are counted
//! here, so no row is too wide on any terminal.

use std::ops::RangeInclusive;
use unicode_width::UnicodeWidthChar;

const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// Variation selector that requests the emoji presentation.
const EMOJI_SELECTOR: char = '\u{fe0f}';
/// Modifiers that give the emoji before them a skin tone.
const SKIN_TONES: RangeInclusive<char> = '\u{1f3fb}'..='\u{1f3ff}';
/// The letters of a country code, of which two are a flag.
const REGIONAL_INDICATORS: RangeInclusive<char> = '\u{1f1e6}'..='\u{1f1ff}';

/// The columns that `character` takes after `previous`.
pub(super) fn char_columns(previous: Option<char>, character: char) -> usize {
    match character {
        ' '..='~' => 1,
        // The emoji of a narrow character, such as `❤`, is wide.
        EMOJI_SELECTOR => usize::from(previous.is_some_and(|previous| previous.width() == Some(1))),
        _ => character.width().unwrap_or(0),
    }
}

/// The columns of a text.
pub(super) fn text_columns(text: &str) -> usize {
    let mut previous = None;
    let mut columns = 0;
    for character in text.chars() {
        columns += char_columns(previous, character);
        previous = Some(character);
    }
    columns
}

/// True if `character` must stay with the character before it.
pub(super) fn joins(previous: char, character: char) -> bool {
    if matches!(character, ' '..='~') {
        return false;
    }
    // Flags in a row stay together: one character before does not tell where a flag begins.
    if REGIONAL_INDICATORS.contains(&character) {
        return REGIONAL_INDICATORS.contains(&previous);
    }
    SKIN_TONES.contains(&character)
        || previous == ZERO_WIDTH_JOINER
        || character.width().unwrap_or(0) == 0
}

/// True if a row may break between two adjacent characters.
pub(super) fn may_break(previous: char, character: char) -> bool {
    if joins(previous, character) || cannot_start_row(character) || cannot_end_row(previous) {
        return false;
    }
    breaks_around(previous) || breaks_around(character)
}

/// True for characters before and after which a row may break, since their scripts have no spaces between words, or as in
/// Korean rows break within words too. These are mostly the classes ID, H2 and H3 of UAX #14.
fn breaks_around(character: char) -> bool {
    matches!(character,
        '\u{2e80}'..='\u{303f}' // CJK radicals, symbols and punctuation
        | '\u{3040}'..='\u{30ff}' // Hiragana and Katakana
        | '\u{3100}'..='\u{33ff}' // Bopomofo, Hangul letters, enclosed and squared characters
        | '\u{3400}'..='\u{9fff}' // CJK ideographs
        | '\u{ac00}'..='\u{d7a3}' // Hangul syllables
        | '\u{f900}'..='\u{faff}' // CJK compatibility ideographs
        | '\u{fe30}'..='\u{fe4f}' // CJK compatibility forms
        | '\u{ff00}'..='\u{ff60}' // fullwidth forms
        | '\u{20000}'..='\u{3ffff}' // CJK ideographs of the supplementary planes
    )
}

/// True for characters that cannot start a row: the common ones of the classes CL, CP, EX, IS, NS and CJ of UAX #14, with
/// the percent sign and the quotes that may close.
fn cannot_start_row(character: char) -> bool {
    ")]},.;:!?\"'’”%、。，．・：；？！）］｝」』】〕〉》ー々〜".contains(character)
}

/// True for characters that cannot end a row: the common ones of the class OP of UAX #14, with the quotes that open.
fn cannot_end_row(character: char) -> bool {
    "([{“‘（［｛「『【〔〈《".contains(character)
}
