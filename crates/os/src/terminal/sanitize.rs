//! Escapes untrusted text for a terminal: an incremental state machine whose output does not depend on how the input is
//! split.
//!
//! Nothing is dropped. A control character is shown as `\u{1b}`, so the rest of an escape sequence appears as plain
//! characters. Sequences are not parsed, so one that never ends hides nothing. The result is plain text, and escaping
//! it again does not change it.

use crate::secret;
use nanobot_base::json_text::JSON_VERSION;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` with everything escaped that a terminal would interpret.
pub fn sanitize(text: &str) -> String {
    let mut sanitizer = Sanitizer::default();
    let mut out = sanitizer.feed(text).into_owned();
    out.push_str(&sanitizer.finish());
    out
}

/// Returns `text` as [`sanitize`] does, on one line: a line break, as in the name of a file, must not start a new one.
pub fn sanitize_line(text: &str) -> String {
    sanitize(text).replace('\n', "?")
}

/// Escapes the text of a JSON value, with `\u001b` inside its strings; the value is unchanged.
pub fn sanitize_json(json: &str) -> String {
    let mut sanitizer = Sanitizer { escape_style: EscapeStyle::Json, ..Sanitizer::default() };
    let mut out = sanitizer.feed(json).into_owned();
    out.push_str(&sanitizer.finish());
    out
}

/// Escapes a stream of text, chunk by chunk.
///
/// A carriage return before a newline is dropped. Control characters except newline and tab, and characters that change
/// the text direction or hide text, are escaped. Joiners and variation selectors are kept where they are valid.
#[derive(Debug, Default)]
pub struct Sanitizer {
    escape_style: EscapeStyle,
    /// The class of the last character shown, which decides about joiners and variation selectors.
    previous: CharClass,
    /// A character that is buffered until the next one decides about it.
    pending: Option<PendingChar>,
}

/// The escape syntax.
#[derive(Clone, Copy, Debug, Default)]
enum EscapeStyle {
    /// `\u{1b}`
    #[default]
    Rust,
    /// `\u001b`, one for each UTF-16 code unit.
    Json,
}

/// The character that was received last. It is output together with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingChar {
    /// A carriage return, which is dropped before a newline. Alone it would overwrite the line.
    CarriageReturn,
    /// A joiner after an emoji, which is valid if another emoji follows.
    Joiner,
}

/// The class of a character: which modifiers may follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CharClass {
    #[default]
    None,
    /// A digit or sign, which a variation selector turns into a keycap.
    Keycap,
    /// An emoji, which accepts variation selectors and joiners.
    Emoji,
    /// An emoji with its variation selector, which accepts only a joiner.
    EmojiWithSelector,
    /// An ideograph, which accepts selectors for variant glyphs, as in names.
    Ideograph,
    /// A Mongolian letter, which accepts the free variation selectors of its script.
    Mongolian,
}

impl Sanitizer {
    /// Returns `chunk` escaped. It is not copied if nothing needs escaping.
    pub fn feed<'p>(&mut self, chunk: &'p str) -> Cow<'p, str> {
        let plain_bytes = match self.pending {
            Some(_) => 0,
            None => chunk.bytes().position(may_need_escape).unwrap_or(chunk.len()),
        };
        if plain_bytes == chunk.len() {
            self.previous = chunk.chars().next_back().map_or(self.previous, char_class);
            return Cow::Borrowed(chunk);
        }
        let mut out = String::with_capacity(chunk.len() + chunk.len() / 8);
        out.push_str(&chunk[..plain_bytes]);
        self.previous = chunk[..plain_bytes].chars().next_back().map_or(self.previous, char_class);
        for character in chunk[plain_bytes..].chars() {
            self.push_char(character, &mut out);
        }
        Cow::Owned(out)
    }

    /// Returns the buffered character at the end of the text.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        if let Some(pending) = self.pending.take() {
            self.push_escaped(pending.to_char(), &mut out);
        }
        self.previous = CharClass::None;
        out
    }

    fn push_char(&mut self, character: char, out: &mut String) {
        match self.pending.take() {
            Some(PendingChar::Joiner) if char_class(character) == CharClass::Emoji => {
                out.push(ZERO_WIDTH_JOINER);
            }
            Some(PendingChar::CarriageReturn) if character == '\n' => {}
            Some(pending) => self.push_escaped(pending.to_char(), out),
            None => {}
        }
        match character {
            '\r' => self.pending = Some(PendingChar::CarriageReturn),
            ZERO_WIDTH_JOINER
                if matches!(self.previous, CharClass::Emoji | CharClass::EmojiWithSelector) =>
            {
                self.pending = Some(PendingChar::Joiner);
            }
            _ => match self.class_if_allowed(character) {
                Some(base) => {
                    out.push(character);
                    self.previous = base;
                }
                None => self.push_escaped(character, out),
            },
        }
    }

    fn push_escaped(&mut self, character: char, out: &mut String) {
        self.previous = CharClass::None;
        match self.escape_style {
            EscapeStyle::Rust => out.extend(character.escape_unicode()),
            EscapeStyle::Json => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("writing to a string cannot fail");
                }
            }
        }
    }

    /// Returns the class of `character` if it may be shown; `None` if it must be escaped.
    fn class_if_allowed(&self, character: char) -> Option<CharClass> {
        let allowed_after = |classes: &[CharClass], next: CharClass| {
            classes.contains(&self.previous).then_some(next)
        };
        match character {
            '\n' | '\t' => Some(CharClass::None),
            // Direction marks and overrides, joiners, invisible operators and fillers.
            '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}' => None,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => None,
            '\u{feff}' | '\u{fff9}'..='\u{fffb}' => None,
            '\u{fe0e}' | '\u{fe0f}' => match self.previous {
                CharClass::Emoji => Some(CharClass::EmojiWithSelector),
                CharClass::Keycap => Some(CharClass::None),
                _ => None,
            },
            '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => {
                allowed_after(&[CharClass::Ideograph], CharClass::None)
            }
            '\u{180b}'..='\u{180d}' | '\u{180f}' => {
                allowed_after(&[CharClass::Mongolian], CharClass::None)
            }
            // Other variation selectors, and tag characters, which can spell invisible words.
            '\u{fe03}'..='\u{fe0d}' | '\u{e0000}'..='\u{e0fff}' => None,
            other if other.is_control() => None,
            other => Some(char_class(other)),
        }
    }
}

impl PendingChar {
    fn to_char(self) -> char {
        match self {
            Self::CarriageReturn => '\r',
            Self::Joiner => ZERO_WIDTH_JOINER,
        }
    }
}

const ZERO_WIDTH_JOINER: char = '\u{200d}';

/// True if a byte may belong to a character that needs escaping: anything except printable ASCII, newline and tab.
fn may_need_escape(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

fn char_class(character: char) -> CharClass {
    match character {
        '#' | '*' | '0'..='9' => CharClass::Keycap,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}'..='\u{2bff}' => CharClass::Emoji,
        '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' => CharClass::Emoji,
        '\u{1f000}'..='\u{1faff}' => CharClass::Emoji,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' => {
            CharClass::Ideograph
        }
        '\u{20000}'..='\u{3ffff}' => CharClass::Ideograph,
        '\u{1820}'..='\u{1878}' | '\u{1880}'..='\u{18aa}' => CharClass::Mongolian,
        _ => CharClass::None,
    }
}

/// Escapes and redacts text for standard error.
pub(super) fn redact_and_sanitize(text: &str) -> String {
    sanitize(&secret::redact_all(text))
}

/// Redacts JSON text for standard output, and escapes it if that is a terminal.
pub(super) fn json_text(is_terminal: bool, text: &str) -> Cow<'_, str> {
    let text = secret::redact_known_json_text(text);
    if is_terminal { sanitize_json(&text).into() } else { text }
}

/// Formats `value` as a line for standard output, as [`json_text`] does. An object without a version gets [`JSON_VERSION`].
pub(super) fn json_line(is_terminal: bool, value: &Value) -> String {
    let mut text = format!("{value}\n");
    if let Value::Object(members) = value
        && !members.contains_key("v")
    {
        let separator = if members.is_empty() { "" } else { "," };
        text.insert_str(1, &format!("\"v\":{JSON_VERSION}{separator}"));
    }
    json_text(is_terminal, &text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Sanitizer, sanitize, sanitize_json};

    #[test]
    fn control_characters_are_escaped() {
        let check = |text: &str, expect: &str| {
            assert_eq!(sanitize(text), expect);
            let mut pieces = Sanitizer::default();
            let mut one_by_one: String = text
                .chars()
                .map(|character| pieces.feed(&character.to_string()).into_owned())
                .collect();
            one_by_one.push_str(&pieces.finish());
            assert_eq!(one_by_one, expect, "cut everywhere");
        };
        check("plain\ttext\n", "plain\ttext\n");
        check("\x1b[2Jgone", "\\u{1b}[2Jgone");
        check("\x1b]52;c;ZXZpbA==\x07", "\\u{1b}]52;c;ZXZpbA==\\u{7}");
        check("\x1b]0;never ends", "\\u{1b}]0;never ends");
        check("safe\rEVIL", "safe\\u{d}EVIL");
        check("a\r\nb\r\r\nc\r", "a\nb\\u{d}\nc\\u{d}");
        check("a\u{9b}31m\u{7f}", "a\\u{9b}31m\\u{7f}");
        check("abc\u{202e}txt.exe", "abc\\u{202e}txt.exe");
        check("pay\u{200b}pal", "pay\\u{200b}pal");
        check("\u{e0041}", "\\u{e0041}");
        check("👩\u{200d}🔬 ❤\u{fe0f}", "👩\u{200d}🔬 ❤\u{fe0f}");
        check("❤\u{fe0f}\u{200d}🔥", "❤\u{fe0f}\u{200d}🔥");
        check("👩\u{200d}x👩\u{200d}", "👩\\u{200d}x👩\\u{200d}");
        check("👩\u{200d}\r\n", "👩\\u{200d}\n");
        check("👩\u{200d}\u{200d}🔬", "👩\\u{200d}\\u{200d}🔬");
        check("1\u{fe0f}\u{20e3}", "1\u{fe0f}\u{20e3}");
        check("1\u{fe0f}\u{fe0f}", "1\u{fe0f}\\u{fe0f}");
        check("a\u{fe0f}a\u{e0100}", "a\\u{fe0f}a\\u{e0100}");
        check("葛\u{e0100}葛", "葛\u{e0100}葛");
        check("a\u{200d}b", "a\\u{200d}b");
        check("naïve 日本 עברית", "naïve 日本 עברית");
    }

    #[test]
    fn sanitized_json_keeps_its_value() {
        let check = |text: &str, expect: &str| {
            let written = serde_json::to_string(text).unwrap();
            let shown = sanitize_json(&written);
            assert_eq!(shown, format!("\"{expect}\""));
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        };
        check("plain", "plain");
        check("\x1b[2J\r", "\\u001b[2J\\r");
        check("\u{9b}\u{7f}", "\\u009b\\u007f");
        check("\u{202e}a\u{e0041}", "\\u202ea\\udb40\\udc41");
        check("👩\u{200d}🔬\u{200d}", "👩\u{200d}🔬\\u200d");
    }

    #[test]
    fn fuzz_no_control_character_gets_through() {
        let seeds: &[&[u8]] = &[
            b"plain\ttext\r\n\x1b[31mred\x1b]52;c;eA==\x07\r",
            "\u{9b}31m \u{202e}abc\u{2066} \u{1f469}\u{200d}\u{1f52c} \u{e0041} \u{2764}\u{fe0f}\u{200d}\u{1f525}"
                .as_bytes(),
            b"\x1bP1$r\x1b\\ \x1b_apc \x1b^pm \x1bXsos \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            let text = nanobot_base::fuzz::lossy_text(input);
            let whole = sanitize(&text);
            let obeyed = |character: &char| {
                (character.is_control() && !matches!(character, '\n' | '\t'))
                    || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e00ff}')
            };
            assert_eq!(whole.chars().find(obeyed), None);
            assert_eq!(sanitize(&whole), whole);
            // The result does not depend on how the text is split. For long texts, a few splits are tried.
            let cuts = match text.len() {
                0..100 => 0..text.len() + 1,
                length => {
                    let cut = random.below(length);
                    cut..cut + 1
                }
            };
            for cut in cuts.filter(|cut| text.is_char_boundary(*cut)) {
                let mut pieces = Sanitizer::default();
                let mut both = pieces.feed(&text[..cut]).into_owned();
                both.push_str(&pieces.feed(&text[cut..]));
                both.push_str(&pieces.finish());
                assert_eq!(both, whole, "cut at {cut}");
            }
            let written = serde_json::to_string(&text).unwrap();
            let shown = sanitize_json(&written);
            assert_eq!(shown.chars().find(obeyed), None);
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        });
    }
}
