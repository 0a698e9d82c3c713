//! Text in the forms in which files have it: as it is, with JSON escapes, and in JSON texts that are strings of others. Each form
//! knows the bytes of the source that its own are written with, so that an occurrence can be overwritten there. The source
//! need not be valid: of a torn line, the part that is there is read. No I/O.

use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, compose};

/// Maximum bytes of the UTF-8 form of a character.
const MAX_CHAR_BYTES: usize = 4;
/// Stands for the white space between two words.
const GAP: char = ' ';

/// A text to look for. Letter case and Unicode's composition of accents do not matter, nor does which white space is between words;
/// there, an address may have `+` or `%20`. A letter is not found in one with more marks.
#[derive(Clone, Debug)]
pub struct SearchText(Vec<char>);

impl SearchText {
    pub fn new(text: &str) -> Self {
        let text = text.split_whitespace().collect::<Vec<_>>().join(&GAP.to_string());
        Self(fold(&text).collect())
    }

    /// The ranges of `bytes` in which the text occurs. They do not overlap.
    pub fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let Some(first) = self.0.first() else {
            return ranges;
        };
        let mut start = 0;
        while let Some(byte) = bytes.get(start) {
            // Most bytes need no decoding. Before a byte that is not ASCII, the letter may have an accent.
            let may_begin = !byte.is_ascii()
                || char::from(byte.to_ascii_lowercase()) == *first
                || bytes.get(start + 1).is_some_and(|next| !next.is_ascii());
            if may_begin && let Some(end) = self.end_of_match(bytes, start) {
                ranges.push(start..end);
                start = end;
            } else {
                start += 1;
            }
        }
        ranges
    }

    /// The end of the occurrence that begins at `start`.
    fn end_of_match(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let mut next = start;
        let mut expected = self.0.as_slice();
        while let Some(first) = expected.first() {
            let rest = &bytes[next..];
            if *first == GAP {
                let length = gap_length(rest);
                if length == 0 {
                    return None;
                }
                expected = &expected[1..];
                next += length;
                continue;
            }
            let letter = &rest[..letter_length(rest)?];
            for character in fold(&String::from_utf8_lossy(letter)) {
                let (first, others) = expected.split_first()?;
                if *first != character {
                    return None;
                }
                expected = others;
            }
            next += letter.len();
        }
        Some(next)
    }
}

/// The number of bytes at the start of `bytes` that separate words.
fn gap_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    while let Some((character, char_length)) = first_char(&bytes[length..]) {
        length += match character {
            '+' => 1,
            '%' if bytes[length..].starts_with(b"%20") => 3,
            character if character.is_whitespace() => char_length,
            _ => break,
        };
    }
    length
}

/// The number of bytes of the first character and the marks that follow it.
fn letter_length(bytes: &[u8]) -> Option<usize> {
    let (mut character, mut length) = first_char(bytes)?;
    while bytes.get(length).is_some_and(|byte| !byte.is_ascii())
        && let Some((mark, mark_length)) = first_char(&bytes[length..])
    {
        match compose(character, mark) {
            Some(composed) => character = composed,
            None if canonical_combining_class(mark) == 0 => break,
            None => {}
        }
        length += mark_length;
    }
    Some(length)
}

/// The first character, and the number of its bytes. An invalid byte is the replacement character.
fn first_char(bytes: &[u8]) -> Option<(char, usize)> {
    let first = bytes.first()?;
    if first.is_ascii() {
        return Some((char::from(*first), 1));
    }
    let chunk = bytes[..bytes.len().min(MAX_CHAR_BYTES)].utf8_chunks().next()?;
    let character = chunk.valid().chars().next();
    Some(character.map_or((char::REPLACEMENT_CHARACTER, 1), |valid| (valid, valid.len_utf8())))
}

/// `text` as it is compared. Some characters are never composed, so that both sides are decomposed in the end; `İ` is folded as a whole.
fn fold(text: &str) -> impl Iterator<Item = char> {
    text.nfc().map(fold_case).nfd()
}

fn fold_case(character: char) -> char {
    match character {
        'ς' => 'σ',
        ascii if ascii.is_ascii() => ascii.to_ascii_lowercase(),
        other => other.to_lowercase().next().unwrap_or(other),
    }
}

/// A form of a text, with the position of each of its bytes in the source.
#[derive(Clone, Debug)]
pub struct WrittenText<'a> {
    bytes: Cow<'a, [u8]>,
    /// The position of the first byte, if each byte stands for itself.
    offset: usize,
    /// Otherwise the position of each byte, and of the end.
    positions: Cow<'a, [u32]>,
}

impl<'a> WrittenText<'a> {
    /// The source as it is. It has less than 4 GiB.
    pub fn new(source: &'a [u8]) -> Self {
        Self { bytes: source.into(), offset: 0, positions: Cow::default() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The range of the source that `range` is written with.
    pub fn source_range(&self, range: &Range<usize>) -> Range<usize> {
        self.position(range.start)..self.position(range.end)
    }

    fn position(&self, index: usize) -> usize {
        self.positions.get(index).map_or(self.offset + index, |position| *position as usize)
    }

    fn part(&self, range: Range<usize>) -> WrittenText<'_> {
        let positions = self.positions.get(range.start..=range.end).unwrap_or_default();
        WrittenText {
            offset: self.offset + range.start,
            positions: positions.into(),
            bytes: self.bytes[range].into(),
        }
    }

    /// The text with its JSON escapes read once more; `None` if it has none.
    pub fn unescaped(&self) -> Option<WrittenText<'static>> {
        if !self.bytes.contains(&b'\\') {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut positions = Vec::with_capacity(self.bytes.len());
        let mut is_changed = false;
        let position_of =
            |index| u32::try_from(self.position(index)).expect("a source has less than 4 GiB");
        let mut next = 0;
        while let Some(byte) = self.bytes.get(next) {
            let position = position_of(next);
            match read_escape(&self.bytes[next..]) {
                Some((character, length)) => {
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    next += length;
                    is_changed = true;
                }
                None => {
                    bytes.push(*byte);
                    next += 1;
                }
            }
            positions.resize(bytes.len(), position);
        }
        positions.push(position_of(next));
        is_changed.then(|| WrittenText {
            bytes: bytes.into(),
            offset: 0,
            positions: positions.into(),
        })
    }

    /// True for a JSON object or array.
    pub fn is_json(&self) -> bool {
        self.bytes.trim_ascii_start().first().is_some_and(|first| b"{[".contains(first))
            && serde_json::from_slice::<IgnoredAny>(&self.bytes).is_ok()
    }

    /// Passes each string and number of a JSON text to `visit`. A string that contains an object or an array is visited as that.
    pub fn visit_json(&self, visit: &mut dyn FnMut(&JsonToken<'_>)) {
        self.visit_tokens(&mut Vec::new(), 0, visit);
    }

    fn visit_tokens(
        &self,
        keys: &mut Vec<String>,
        depth: usize,
        visit: &mut dyn FnMut(&JsonToken<'_>),
    ) {
        let outer_keys = keys.len();
        let bytes = self.bytes();
        let mut next = 0;
        while let Some(byte) = bytes.get(next) {
            let start = next;
            next += 1;
            match byte {
                b'{' | b'[' => keys.push(String::new()),
                b'}' | b']' if keys.len() > outer_keys => drop(keys.pop()),
                b'"' => {
                    let end = end_of_string(bytes, next);
                    let written = self.part(next..end);
                    next = (end + 1).min(bytes.len());
                    let text = written.unescaped().unwrap_or(written);
                    let is_key = keys.len() > outer_keys
                        && bytes[next..].trim_ascii_start().first() == Some(&b':');
                    if !is_key && text.is_json() {
                        text.visit_tokens(keys, depth + 1, visit);
                        continue;
                    }
                    let kind = if is_key { TokenKind::Key } else { TokenKind::String };
                    visit(&JsonToken { keys, kind, text: &text, depth });
                    if is_key {
                        keys.pop();
                        keys.push(String::from_utf8_lossy(&text.bytes).into_owned());
                    }
                }
                b'-' | b'0'..=b'9' => {
                    let is_digit = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                    next = start + bytes[start..].iter().take_while(is_digit).count();
                    let text = &self.part(start..next);
                    visit(&JsonToken { keys, kind: TokenKind::Number, text, depth });
                }
                _ => {}
            }
        }
        keys.truncate(outer_keys);
    }
}

/// The kind of a part of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The key of a member.
    Key,
    String,
    Number,
}

/// A string or a number of a JSON text.
#[derive(Debug)]
pub struct JsonToken<'a> {
    /// The keys of the objects that it is in, the outermost first. An array, and an object that is at its first key, has an empty one.
    pub keys: &'a [String],
    pub kind: TokenKind,
    /// The text without the quotes and escapes of the string.
    pub text: &'a WrittenText<'a>,
    /// The number of strings with JSON that it is in.
    pub depth: usize,
}

impl JsonToken<'_> {
    /// The key of the innermost object, with the key of the one around it; empty where there is none.
    pub fn member(&self) -> (&str, &str) {
        let mut keys = self.keys.iter().rev().filter(|key| !key.is_empty());
        let key = keys.next().map_or("", String::as_str);
        (keys.next().map_or("", String::as_str), key)
    }

    /// The key of the member whose object has this key, if it is one.
    pub fn parent_of_key(&self) -> &str {
        let parent = self.keys.len().checked_sub(2).and_then(|index| self.keys.get(index));
        parent.map_or("", String::as_str)
    }
}

/// The index of the quote that ends the string whose first byte is at `next`; the length if it is torn.
fn end_of_string(bytes: &[u8], mut next: usize) -> usize {
    while let Some(byte) = bytes.get(next) {
        match byte {
            b'"' => return next,
            b'\\' => next += 2,
            _ => next += 1,
        }
    }
    bytes.len()
}

/// The character of the escape at the start of `bytes`, and the number of its bytes. `None` if it is no escape.
fn read_escape(bytes: &[u8]) -> Option<(char, usize)> {
    if bytes.first() != Some(&b'\\') {
        return None;
    }
    let code_at = |start: usize| {
        let digits = std::str::from_utf8(bytes.get(start..start + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let simple = match bytes.get(1)? {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => {
            let Some(code) = code_at(2) else {
                return Some((char::REPLACEMENT_CHARACTER, 2));
            };
            let low = code_at(8).filter(|_| bytes[6..].starts_with(b"\\u"));
            if let (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) = (code, low) {
                let code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12));
            }
            return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 6));
        }
        other if other.is_ascii() => char::from(*other),
        _ => return None,
    };
    Some((simple, 2))
}

#[cfg(test)]
mod tests {
    use super::{SearchText, TokenKind, WrittenText};

    /// `json` with each occurrence of `text` overwritten, and the members that have it.
    fn overwrite(json: &str, text: &str) -> (String, Vec<String>) {
        let mut bytes = json.as_bytes().to_vec();
        let mut members = Vec::new();
        WrittenText::new(json.as_bytes()).visit_json(&mut |token| {
            for range in SearchText::new(text).find(token.text.bytes()) {
                let (parent, key) = token.member();
                let nested = if token.depth > 0 { "nested " } else { "" };
                let kind = match token.kind {
                    TokenKind::Key => "key below ",
                    TokenKind::String => "",
                    TokenKind::Number => "number ",
                };
                members.push(format!("{nested}{kind}{parent}.{key}"));
                bytes[token.text.source_range(&range)].fill(b'*');
            }
        });
        (String::from_utf8(bytes).unwrap(), members)
    }

    #[test]
    fn a_text_is_found_however_json_has_it() {
        let check = |json: &str, text: &str, expect: &str, members: &[&str]| {
            assert_eq!(
                overwrite(json, text),
                (expect.to_owned(), members.iter().map(|m| (*m).to_owned()).collect())
            );
            assert_eq!(json.len(), expect.len());
        };
        check(r#"{"a": "Über uns"}"#, "üBER", r#"{"a": "***** uns"}"#, &[".a"]);
        check(
            r#"{"a": {"b": ["x \u00dcber"]}}"#,
            "über",
            r#"{"a": {"b": ["x *********"]}}"#,
            &["a.b"],
        );
        check(r#"["\ud83d\ude00!"]"#, "😀", r#"["************!"]"#, &["."]);
        check(
            r#"{"a": "say \"hi\" \\ there"}"#,
            r#""hi" \"#,
            r#"{"a": "say ********* there"}"#,
            &[".a"],
        );
        // An `n` that is a line break is no letter.
        check(r#"{"a": "1\nnanna"}"#, "nnan", r#"{"a": "1\nnanna"}"#, &[]);
        check(r#"{"a": "\nanna"}"#, "nanna", r#"{"a": "\nanna"}"#, &[]);
        check(
            r#"{"f": {"arguments": "{\"path\": \"a\\nAnna\"}"}}"#,
            "anna",
            r#"{"f": {"arguments": "{\"path\": \"a\\n****\"}"}}"#,
            &["nested arguments.path"],
        );
        check(
            r#"{"arguments": "{\"q\": \"M\\u00fcller\"}"}"#,
            "müller",
            r#"{"arguments": "{\"q\": \"************\"}"}"#,
            &["nested arguments.q"],
        );
        check(
            r#"{"anna": 1, "b": "anna"}"#,
            "anna",
            r#"{"****": 1, "b": "****"}"#,
            &["key below .", ".b"],
        );
        check(
            r#"{"content": "{\"phone\": [4711, -4.7e1]}"}"#,
            "4711",
            r#"{"content": "{\"phone\": [****, -4.7e1]}"}"#,
            &["nested number content.phone"],
        );
        // A torn line.
        check(r#"{"a": "anna and an"#, "anna", r#"{"a": "**** and an"#, &[".a"]);
        check(r#"{"a": "anna \"#, "anna", r#"{"a": "**** \"#, &[".a"]);
        check(r#"{"a": "anna \u00"#, "anna", r#"{"a": "**** \u00"#, &[".a"]);
    }

    #[test]
    fn spelling_may_differ() {
        let check = |text: &str, bytes: &[u8], expect: &[&str]| {
            let ranges = SearchText::new(text).find(bytes);
            let texts: Vec<_> = ranges
                .into_iter()
                .map(|range| String::from_utf8_lossy(&bytes[range]).into_owned())
                .collect();
            assert_eq!(texts, expect, "{text}");
        };
        check("anna", b"a\xff\xfeanna\xc3anNA", &["anna", "anNA"]);
        check("", b"anna", &[]);
        check("Jörg", "Jo\u{308}rg, JÖRG".as_bytes(), &["Jo\u{308}rg", "JÖRG"]);
        check("Jo\u{308}rg", "jörg".as_bytes(), &["jörg"]);
        check("Ömer", "O\u{308}mer".as_bytes(), &["O\u{308}mer"]);
        check("Omer", "O\u{308}mer".as_bytes(), &[]);
        // Characters that Unicode decomposes and never composes, and marks in another order.
        for text in ["\u{9b0}\u{9be}\u{9df}", "\u{fa10}\u{672c}", "\u{958}a", "e\u{302}\u{323}"] {
            check(text, text.as_bytes(), &[text]);
        }
        check("\u{9af}\u{9bc}", "\u{9df}".as_bytes(), &["\u{9df}"]);
        check("\u{1ec7}", "e\u{302}\u{323}".as_bytes(), &["e\u{302}\u{323}"]);
        check("\u{1ec7}", "e\u{302}".as_bytes(), &[]);
        check(
            "istanbul",
            "\u{130}stanbul I\u{307}stanbul".as_bytes(),
            &["\u{130}stanbul", "I\u{307}stanbul"],
        );
        check("\u{d55c}", "\u{1112}\u{1161}\u{11ab}".as_bytes(), &["\u{1112}\u{1161}\u{11ab}"]);
        check("\u{d558}", "\u{d55c} \u{1112}\u{1161}\u{11ab}".as_bytes(), &[]);
        check("Νίκος", "ΝΊΚΟΣ".as_bytes(), &["ΝΊΚΟΣ"]);
        check(
            "Ada  Lovelace",
            b"Ada\n  lovelace, Ada+Lovelace",
            &["Ada\n  lovelace", "Ada+Lovelace"],
        );
        check(
            "Ada Lovelace",
            "?q=Ada%20Lovelace Ada\u{a0}Lovelace AdaLovelace".as_bytes(),
            &["Ada%20Lovelace", "Ada\u{a0}Lovelace"],
        );
    }

    #[test]
    fn escapes_are_read_until_there_are_none() {
        let text = WrittenText::new(br"x \\u00fc\");
        let once = text.unescaped().unwrap();
        assert_eq!(once.bytes(), br"x \u00fc\");
        let twice = once.unescaped().unwrap();
        assert_eq!(twice.bytes(), "x ü\\".as_bytes());
        assert_eq!(twice.source_range(&(2..4)), 2..9);
        assert!(twice.unescaped().is_none());
    }
}
