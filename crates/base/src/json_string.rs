//! The strings of a JSON text, with the bytes that each character is written with, and the occurrences of a text in them.
//! A character may be escaped, and a string may contain JSON itself, such as the arguments of a tool call. The text need
//! not be valid: of a torn line, the part that is there is read. No I/O.

use serde::de::IgnoredAny;
use std::ops::Range;

/// A character, with the range of bytes that it is written with.
#[derive(Clone, Copy, Debug)]
pub struct WrittenChar {
    character: char,
    start: usize,
    end: usize,
}

/// The characters of `bytes`. Invalid UTF-8 is the replacement character.
pub fn written_chars(bytes: &[u8]) -> Vec<WrittenChar> {
    let mut chars = Vec::with_capacity(bytes.len());
    let mut start = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let end = start + character.len_utf8();
            chars.push(WrittenChar { character, start, end });
            start = end;
        }
        let end = start + chunk.invalid().len();
        if end > start {
            chars.push(WrittenChar { character: char::REPLACEMENT_CHARACTER, start, end });
        }
        start = end;
    }
    chars
}

/// The text of `chars`.
pub fn text_of(chars: &[WrittenChar]) -> String {
    chars.iter().map(|written| written.character).collect()
}

/// The bytes that `chars` are written with; `None` if there are none.
pub fn byte_range(chars: &[WrittenChar]) -> Option<Range<usize>> {
    Some(chars.first()?.start..chars.last()?.end)
}

/// The ranges of `chars` in which `text` occurs, in any case. They do not overlap.
pub fn find_text(chars: &[WrittenChar], text: &str) -> Vec<Range<usize>> {
    let text: Vec<char> = text.chars().map(fold_case).collect();
    let mut ranges = Vec::new();
    let mut start = 0;
    while !text.is_empty() && start + text.len() <= chars.len() {
        let end = start + text.len();
        let pairs = chars[start..end].iter().zip(&text);
        if pairs.into_iter().all(|(written, expected)| fold_case(written.character) == *expected) {
            ranges.push(start..end);
            start = end;
        } else {
            start += 1;
        }
    }
    ranges
}

fn fold_case(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    character.to_lowercase().next().unwrap_or(character)
}

/// A string of a JSON text.
#[derive(Debug)]
pub struct JsonString<'a> {
    /// The keys of the objects that it is in, the outermost first. An array has an empty one.
    pub keys: &'a [String],
    pub chars: &'a [WrittenChar],
    /// True for the key of a member. It is not one of `keys`.
    pub is_key: bool,
    /// True within a string that contains JSON.
    pub is_nested: bool,
}

impl JsonString<'_> {
    /// The key of the innermost object, with the key of the one around it; empty where there is none.
    pub fn member(&self) -> (&str, &str) {
        let mut keys = self.keys.iter().rev().filter(|key| !key.is_empty());
        let key = keys.next().map_or("", String::as_str);
        (keys.next().map_or("", String::as_str), key)
    }
}

/// Passes each string of a JSON text to `visit`. A string that contains an object or an array is visited as that.
pub fn visit_strings(chars: &[WrittenChar], visit: &mut dyn FnMut(&JsonString<'_>)) {
    visit_text(chars, &mut Vec::new(), false, visit);
}

fn visit_text(
    chars: &[WrittenChar],
    keys: &mut Vec<String>,
    is_nested: bool,
    visit: &mut dyn FnMut(&JsonString<'_>),
) {
    let outer_keys = keys.len();
    let mut next = 0;
    while let Some(written) = chars.get(next) {
        next += 1;
        match written.character {
            '{' | '[' => keys.push(String::new()),
            '}' | ']' if keys.len() > outer_keys => drop(keys.pop()),
            '"' => {
                let (string, end) = read_string(chars, next);
                next = end;
                let mut following = chars[end..].iter().map(|written| written.character);
                let is_key = following.find(|letter| !letter.is_ascii_whitespace()) == Some(':');
                let text = text_of(&string);
                if is_key && keys.len() > outer_keys {
                    visit(&JsonString { keys, chars: &string, is_key, is_nested });
                    keys.pop();
                    keys.push(text);
                } else if is_json(&text) {
                    visit_text(&string, keys, true, visit);
                } else {
                    visit(&JsonString { keys, chars: &string, is_key, is_nested });
                }
            }
            _ => {}
        }
    }
    keys.truncate(outer_keys);
}

/// True if a text is an object or an array.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Reads the string whose first character is at `next`. Returns its characters, and the index after its end.
fn read_string(chars: &[WrittenChar], mut next: usize) -> (Vec<WrittenChar>, usize) {
    let mut string = Vec::new();
    while let Some(written) = chars.get(next) {
        match written.character {
            '"' => return (string, next + 1),
            '\\' => {
                let (character, length) = read_escape(&chars[next..]);
                let end = (next + length).min(chars.len());
                string.push(WrittenChar {
                    character,
                    start: written.start,
                    end: chars[end - 1].end,
                });
                next = end;
            }
            _ => {
                string.push(*written);
                next += 1;
            }
        }
    }
    (string, next)
}

/// The character of an escape, and the number of characters that it is written with.
fn read_escape(chars: &[WrittenChar]) -> (char, usize) {
    let hex = |at: usize| {
        let digits = chars.get(at..at + 4)?;
        digits.iter().try_fold(0, |code, digit| Some(code * 16 + digit.character.to_digit(16)?))
    };
    let begins_escape = |at: usize| {
        let two = chars.get(at..at + 2);
        two.is_some_and(|two| two[0].character == '\\' && two[1].character == 'u')
    };
    let simple = match chars.get(1).map(|written| written.character) {
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('u') => {
            let Some(code) = hex(2) else {
                return (char::REPLACEMENT_CHARACTER, 2);
            };
            if let (0xd800..0xdc00, true, Some(low @ 0xdc00..0xe000)) =
                (code, begins_escape(6), hex(8))
            {
                let code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
            }
            return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 6);
        }
        other => other.unwrap_or('\\'),
    };
    (simple, 2)
}

#[cfg(test)]
mod tests {
    use super::{byte_range, find_text, text_of, visit_strings, written_chars};

    /// `json` with each occurrence of `text` overwritten, and the members that have it.
    fn overwrite(json: &str, text: &str) -> (String, Vec<String>) {
        let mut bytes = json.as_bytes().to_vec();
        let mut members = Vec::new();
        visit_strings(&written_chars(json.as_bytes()), &mut |string| {
            for found in find_text(string.chars, text) {
                let (parent, key) = string.member();
                let nested = if string.is_nested { "nested " } else { "" };
                let kind = if string.is_key { "key below " } else { "" };
                members.push(format!("{nested}{kind}{parent}.{key}"));
                bytes[byte_range(&string.chars[found]).unwrap()].fill(b'*');
            }
        });
        (String::from_utf8(bytes).unwrap(), members)
    }

    #[test]
    fn a_text_is_found_however_it_is_written() {
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
        // A torn line.
        check(r#"{"a": "anna and an"#, "anna", r#"{"a": "**** and an"#, &[".a"]);
        check(r#"{"a": "anna \"#, "anna", r#"{"a": "**** \"#, &[".a"]);
        check(r#"{"a": "anna \u00"#, "anna", r#"{"a": "**** \u00"#, &[".a"]);
    }

    #[test]
    fn invalid_bytes_are_skipped() {
        let chars = written_chars(b"a\xff\xfeanna\xc3");
        let found = find_text(&chars, "anna");
        assert_eq!(byte_range(&chars[found[0].clone()]), Some(3..7));
        assert_eq!(text_of(&chars[..1]), "a");
        assert!(find_text(&chars, "").is_empty());
    }
}
