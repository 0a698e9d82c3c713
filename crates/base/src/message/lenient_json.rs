//! Lenient parsing of JSON written by models, servers and other programs.

use serde_json::Value;
use std::borrow::Cow;

/// Parses `text` as JSON. Models and servers do send lone surrogates, which become the replacement character, and
/// strings with unescaped newlines.
pub fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| {
        let repaired = escape_control_chars(&without_lone_surrogates(text));
        serde_json::from_str(&repaired).ok()
    })
}

/// Parses the object, list or string at the start of `text`, like [`parse`]. Returns it with the text after it.
pub fn parse_first(text: &str) -> Option<(Value, &str)> {
    let mut depth = 0_usize;
    let mut is_in_string = false;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match byte {
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            _ if is_in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
        if depth == 0 && !is_in_string {
            let (value, rest) = text.split_at(at + 1);
            return Some((parse(value)?, rest));
        }
    }
    None
}

/// Escapes control characters in the strings of `json`.
fn escape_control_chars(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut is_in_string = false;
    let mut is_escaped = false;
    for character in json.chars() {
        if is_escaped {
            is_escaped = false;
            out.push(character);
            continue;
        }
        match character {
            '\\' if is_in_string => is_escaped = true,
            '"' => is_in_string = !is_in_string,
            '\0'..=' ' if is_in_string && character != ' ' => {
                out.push_str(&format!("\\u{:04x}", u32::from(character)));
                continue;
            }
            _ => {}
        }
        out.push(character);
    }
    out
}

/// Replaces every lone surrogate escape in `json` with `\uFFFD`.
pub(crate) fn without_lone_surrogates(json: &str) -> String {
    replace_lone_surrogates(json, |_| "\\ufffd".into())
}

/// Replaces every lone surrogate escape in `json` with the text that `replacement` returns for it.
pub fn replace_lone_surrogates(
    json: &str,
    replacement: impl Fn(u16) -> Cow<'static, str>,
) -> String {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(offset) = json[at..].find('\\') {
        out.push_str(&json[at..at + offset]);
        at += offset;
        let (length, lone_surrogate) = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, None),
            (Some(unit @ 0xd800..=0xdfff), _) => (6, Some(unit)),
            // Skip the escaped character too: an escaped backslash must not start another escape.
            _ => (1 + json[at + 1..].chars().next().map_or(0, char::len_utf8), None),
        };
        match lone_surrogate {
            Some(unit) => out.push_str(&replacement(unit)),
            None => out.push_str(&json[at..at + length]),
        }
        at += length;
    }
    out.push_str(&json[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_first, without_lone_surrogates};
    use serde_json::json;

    #[test]
    fn strings_may_have_unescaped_newlines() {
        let check = |text: &str, expect| assert_eq!(parse(text), expect, "{text}");
        check("{\"a\":\n\"b\n\tc\"}", Some(json!({ "a": "b\n\tc" })));
        check(r#"{"a": "\"\\"}"#, Some(json!({ "a": "\"\\" })));
        check("{\"a\": \"b\n", None);
        check("\"\\\n\"", None);
    }

    #[test]
    fn the_first_value_ends_where_its_brackets_do() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(parse_first(text).map(|(_, rest)| rest), expect, "{text}");
        };
        check("{\"a\": [\"}\"]} after", Some(" after"));
        check("\"é\\\"\" after", Some(" after"));
        check("[{}, {\"a\": 1}]", Some(""));
        for text in ["", "after", "{", "}", "{]", "{\"a\"", "1"] {
            check(text, None);
        }
    }

    #[test]
    fn replaces_lone_surrogates() {
        let check = |json: &str, expect: &str| assert_eq!(without_lone_surrogates(json), expect);
        check(r#""plain""#, r#""plain""#);
        check(r#""\ud83d\ude42""#, r#""\ud83d\ude42""#);
        check(r#""\ud83d""#, r#""\ufffd""#);
        check(r#""\ude42x\ud83d\n""#, r#""\ufffdx\ufffd\n""#);
        check(r#""\\ud83d""#, r#""\\ud83d""#);
        check(r#""é\"#, r#""é\"#);
    }
}
