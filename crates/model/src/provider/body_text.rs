//! Texts of a request body. serde_json escapes a text byte by byte; texts are most of a body, so this module escapes
//! them itself, eight bytes at a time, with the same result.

use serde::{Serialize, Serializer};
use serde_json::ser::{CharEscape, Formatter};
use std::io::{self, Write};

/// A text of a request body.
pub(super) struct BodyText<'a>(pub(super) &'a str);

impl Serialize for BodyText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_text(&self.0, serializer)
    }
}

/// Serializes a text for [`BodyFormatter`]. serde_json passes bytes to a formatter unchanged, but texts in escaped
/// pieces.
pub(super) fn serialize_text<T: AsRef<str>, S: Serializer>(
    text: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(text.as_ref().as_bytes())
}

/// Formatter of compact JSON in which bytes are a text: see [`serialize_text`].
pub(super) struct BodyFormatter;

impl Formatter for BodyFormatter {
    fn write_byte_array<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        text: &[u8],
    ) -> io::Result<()> {
        writer.write_all(b"\"")?;
        let mut rest = text;
        loop {
            let (plain, after) = rest.split_at(plain_length(rest));
            writer.write_all(plain)?;
            let Some((&byte, after)) = after.split_first() else {
                return writer.write_all(b"\"");
            };
            rest = after;
            let escape = match byte {
                b'"' => CharEscape::Quote,
                b'\\' => CharEscape::ReverseSolidus,
                b'\x08' => CharEscape::Backspace,
                b'\t' => CharEscape::Tab,
                b'\n' => CharEscape::LineFeed,
                b'\x0c' => CharEscape::FormFeed,
                b'\r' => CharEscape::CarriageReturn,
                control => CharEscape::AsciiControl(control),
            };
            self.write_char_escape(writer, escape)?;
        }
    }
}

/// The number of bytes before the first one that is escaped: a control character, a quote or a backslash.
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    // Sets the high bit of each byte below `limit`. A byte after such a byte may be marked too, so only the first is used.
    let mark_below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let (chunks, tail) = text.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        let marks = mark_below(word, 0x20)
            | mark_below(word ^ (ONES * u64::from(b'"')), 1)
            | mark_below(word ^ (ONES * u64::from(b'\\')), 1);
        let marks = marks & (ONES << 7);
        if marks != 0 {
            return index * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let is_escaped = |byte: &u8| matches!(byte, ..0x20 | b'"' | b'\\');
    let plain = tail.iter().position(is_escaped).unwrap_or(tail.len());
    text.len() - tail.len() + plain
}

#[cfg(test)]
mod tests {
    use super::{BodyFormatter, BodyText};
    use serde::Serialize;

    fn to_json(text: &str) -> String {
        let mut json = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut json, BodyFormatter);
        BodyText(text).serialize(&mut serializer).unwrap();
        String::from_utf8(json).unwrap()
    }

    fn check(text: &str) {
        assert_eq!(to_json(text), serde_json::to_string(text).unwrap());
    }

    #[test]
    fn every_character_is_written_as_serde_json_writes_it() {
        for letter in ('\0'..='\u{7ff}').chain(['\u{2028}', '\u{fffd}', '\u{1f600}', char::MAX]) {
            // Alone, and across the end of a word of eight bytes.
            check(&format!("{letter}"));
            check(&format!("seven..{letter}{letter}the rest of the text"));
        }
    }

    #[test]
    fn characters_are_found_at_every_offset() {
        check("");
        for letter in ["\0", "\x1f", " ", "!", "\"", "#", "\\", "]", "\x7f", "é", "\u{1f600}"] {
            for length in 0..40 {
                for offset in 0..=length {
                    let (before, after) = ("x".repeat(offset), "y".repeat(length - offset));
                    check(&format!("{before}{letter}{after}"));
                    check(&format!("{before}{letter}\n{letter}\"{after}"));
                }
            }
        }
    }
}
