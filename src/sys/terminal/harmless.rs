//! Escapes untrusted text for a terminal: an incremental state machine whose output does not depend on how the input is
//! split.
//!
//! Nothing is dropped. A control character is shown as `\u{1b}`, so the rest of an escape sequence appears as plain
//! characters. Sequences are not parsed, so one that never ends hides nothing. The result is plain text, and escaping
//! it again does not change it.

use crate::sys::secret;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` with everything escaped that a terminal would interpret.
pub fn harmless(text: &str) -> String {
    let mut harmless = Harmless::default();
    let mut out = harmless.pass(text).into_owned();
    out.push_str(&harmless.rest());
    out
}

/// Escapes the text of a JSON value, with `\u001b` inside its strings; the value is unchanged.
pub fn harmless_json(json: &str) -> String {
    let mut harmless = Harmless {
        spelling: Spelling::Json,
        ..Harmless::default()
    };
    let mut out = harmless.pass(json).into_owned();
    out.push_str(&harmless.rest());
    out
}

/// Escapes a stream of text piece by piece.
///
/// A carriage return before a newline is dropped. Control characters except newline and tab, and characters that change
/// the text direction or hide text, are escaped. Joiners and variation selectors are kept where they are valid.
#[derive(Debug, Default)]
pub struct Harmless {
    spelling: Spelling,
    /// The class of the last character shown, which decides about joiners and variation selectors.
    previous: Base,
    /// A character that is held back until the next one decides about it.
    held: Option<Held>,
}

/// The escape syntax.
#[derive(Clone, Copy, Debug, Default)]
enum Spelling {
    /// `\u{1b}`
    #[default]
    Rust,
    /// `\u001b`, one for each UTF-16 code unit.
    Json,
}

/// A character that was received last, and is output together with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// A carriage return, which is dropped before a newline. Alone it would overwrite the line.
    Return,
    /// A joiner after an emoji, which is valid if another emoji follows.
    Joiner,
}

/// The class of a character: which modifiers may follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Base {
    #[default]
    None,
    /// A digit or sign, which a variation selector turns into a keycap.
    Keycap,
    /// An emoji, which accepts variation selectors and joiners.
    Emoji,
    /// An emoji with its variation selector, which accepts only a joiner.
    Chosen,
    /// An ideograph, which accepts selectors for variant glyphs, as in names.
    Ideograph,
    /// A Mongolian letter, which accepts the free variation selectors of its script.
    Mongolian,
}

impl Harmless {
    /// Returns `piece` escaped. It is not copied if nothing needs escaping.
    pub fn pass<'p>(&mut self, piece: &'p str) -> Cow<'p, str> {
        let odd = match self.held {
            Some(_) => 0,
            None => piece.bytes().position(is_odd).unwrap_or(piece.len()),
        };
        if odd == piece.len() {
            self.previous = piece.chars().next_back().map_or(self.previous, base);
            return Cow::Borrowed(piece);
        }
        let mut out = String::with_capacity(piece.len() + piece.len() / 8);
        out.push_str(&piece[..odd]);
        self.previous = piece[..odd].chars().next_back().map_or(self.previous, base);
        for letter in piece[odd..].chars() {
            self.take(letter, &mut out);
        }
        Cow::Owned(out)
    }

    /// Returns the held-back character at the end of the text.
    pub fn rest(&mut self) -> String {
        let mut out = String::new();
        if let Some(pending) = self.held.take() {
            self.spell(pending.letter(), &mut out);
        }
        self.previous = Base::None;
        out
    }

    fn take(&mut self, letter: char, out: &mut String) {
        match self.held.take() {
            Some(Held::Joiner) if base(letter) == Base::Emoji => out.push(JOINER),
            Some(Held::Return) if letter == '\n' => {}
            Some(pending) => self.spell(pending.letter(), out),
            None => {}
        }
        match letter {
            '\r' => self.held = Some(Held::Return),
            JOINER if matches!(self.previous, Base::Emoji | Base::Chosen) => {
                self.held = Some(Held::Joiner);
            }
            _ => match self.after(letter) {
                Some(base) => {
                    out.push(letter);
                    self.previous = base;
                }
                None => self.spell(letter, out),
            },
        }
    }

    fn spell(&mut self, letter: char, out: &mut String) {
        self.previous = Base::None;
        match self.spelling {
            Spelling::Rust => out.extend(letter.escape_unicode()),
            Spelling::Json => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("writing to a string cannot fail");
                }
            }
        }
    }

    /// Returns the class of `letter` if it may be shown; `None` if it must be escaped.
    fn after(&self, letter: char) -> Option<Base> {
        let allowed_after =
            |classes: &[Base], next: Base| classes.contains(&self.previous).then_some(next);
        match letter {
            '\n' | '\t' => Some(Base::None),
            // Direction marks and overrides, joiners, invisible operators and fillers.
            '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}' => None,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => None,
            '\u{feff}' | '\u{fff9}'..='\u{fffb}' => None,
            '\u{fe0e}' | '\u{fe0f}' => match self.previous {
                Base::Emoji => Some(Base::Chosen),
                Base::Keycap => Some(Base::None),
                _ => None,
            },
            '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => {
                allowed_after(&[Base::Ideograph], Base::None)
            }
            '\u{180b}'..='\u{180d}' | '\u{180f}' => allowed_after(&[Base::Mongolian], Base::None),
            // Other variation selectors, and tag characters, which can spell invisible words.
            '\u{fe03}'..='\u{fe0d}' | '\u{e0000}'..='\u{e0fff}' => None,
            other if other.is_control() => None,
            other => Some(base(other)),
        }
    }
}

impl Held {
    fn letter(self) -> char {
        match self {
            Self::Return => '\r',
            Self::Joiner => JOINER,
        }
    }
}

const JOINER: char = '\u{200d}';

/// True if a byte may belong to a character that needs escaping: anything except printable ASCII, newline and tab.
fn is_odd(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

fn base(letter: char) -> Base {
    match letter {
        '#' | '*' | '0'..='9' => Base::Keycap,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}'..='\u{2bff}' => Base::Emoji,
        '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' => Base::Emoji,
        '\u{1f000}'..='\u{1faff}' => Base::Emoji,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' => {
            Base::Ideograph
        }
        '\u{20000}'..='\u{3ffff}' => Base::Ideograph,
        '\u{1820}'..='\u{1878}' | '\u{1880}'..='\u{18aa}' => Base::Mongolian,
        _ => Base::None,
    }
}

/// Escapes and redacts text for standard error.
pub(super) fn shown(text: &str) -> String {
    harmless(&secret::hide(text))
}

/// Formats `value` as a line for standard output, redacted; escaped if that is a terminal.
pub(super) fn json_line(is_terminal: bool, value: &Value) -> String {
    let line = secret::mask_json(value).to_string() + "\n";
    match is_terminal {
        true => harmless_json(&line),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::{Harmless, harmless, harmless_json};

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        let check = |text: &str, expect: &str| {
            assert_eq!(harmless(text), expect);
            let mut pieces = Harmless::default();
            let mut one_by_one: String = text
                .chars()
                .map(|letter| pieces.pass(&letter.to_string()).into_owned())
                .collect();
            one_by_one.push_str(&pieces.rest());
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
    fn json_stays_what_it_says() {
        let check = |text: &str, expect: &str| {
            let written = serde_json::to_string(text).unwrap();
            let shown = harmless_json(&written);
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
    fn fuzz_nothing_that_a_terminal_obeys_gets_through() {
        let seeds: &[&[u8]] = &[
            b"plain\ttext\r\n\x1b[31mred\x1b]52;c;eA==\x07\r",
            "\u{9b}31m \u{202e}abc\u{2066} \u{1f469}\u{200d}\u{1f52c} \u{e0041} \u{2764}\u{fe0f}\u{200d}\u{1f525}"
                .as_bytes(),
            b"\x1bP1$r\x1b\\ \x1b_apc \x1b^pm \x1bXsos \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
        ];
        crate::fuzz::hold(seeds, |input, random| {
            let text = crate::fuzz::text(input);
            let whole = harmless(&text);
            let obeyed = |letter: &char| {
                (letter.is_control() && !matches!(letter, '\n' | '\t'))
                    || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e00ff}')
            };
            assert_eq!(whole.chars().find(obeyed), None);
            assert_eq!(harmless(&whole), whole);
            // The result does not depend on how the text is split. For long texts, a few splits are tried.
            let cuts = match text.len() {
                0..100 => 0..text.len() + 1,
                length => {
                    let cut = random.below(length);
                    cut..cut + 1
                }
            };
            for cut in cuts.filter(|cut| text.is_char_boundary(*cut)) {
                let mut pieces = Harmless::default();
                let mut both = pieces.pass(&text[..cut]).into_owned();
                both.push_str(&pieces.pass(&text[cut..]));
                both.push_str(&pieces.rest());
                assert_eq!(both, whole, "cut at {cut}");
            }
            let written = serde_json::to_string(&text).unwrap();
            let shown = harmless_json(&written);
            assert_eq!(shown.chars().find(obeyed), None);
            assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        });
    }
}
