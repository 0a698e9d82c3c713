//! Layout of JSON text, the version of what commands print, and the items of lists. To lay it out, text is never parsed into values, since a
//! parsed number can lose digits.

use serde::de::IgnoredAny;
use serde_json::Value;
use std::slice::Iter;

/// The version of the JSON that commands print, which nanobot-json(5) describes.
pub const JSON_VERSION: u32 = 1;

/// The depth of JSON from which on it is not indented: each line of a hostile document could be mostly spaces.
const MAX_JSON_DEPTH: usize = 32;

/// The items of a list; none of any other value.
pub fn items(list: &Value) -> Iter<'_, Value> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// Puts each value of JSON text on a line. Nothing but white space between the values changes: numbers keep their digits, and
/// a repeated name stays. `None` if the text is not JSON, or nested deeply.
pub fn indent(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let new_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let is_space = |letter: &char| matches!(letter, ' ' | '\t' | '\r' | '\n');
    let mut out = String::with_capacity(text.len());
    let mut depth = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                out.push(letter);
                while let Some(letter) = letters.next() {
                    out.push(letter);
                    match letter {
                        '\\' => out.extend(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                out.push(letter);
                while letters.next_if(is_space).is_some() {}
                if let Some(end) = letters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                    continue;
                }
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return None;
                }
                new_line(&mut out, depth);
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            letter if is_space(&letter) => {}
            letter => out.push(letter),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::indent;

    #[test]
    fn json_is_indented_and_otherwise_unchanged() {
        let check = |text: &str, expect: Option<&str>| {
            let indented = indent(text);
            assert_eq!(indented.as_deref(), expect, "{text}");
        };
        check(
            r#"{"id":123456789012345678901234, "price" :1.10,"a":[ ] , "a":{},"b":[1e400,-0]}"#,
            Some(
                "{\n  \"id\": 123456789012345678901234,\n  \"price\": 1.10,\n  \"a\": [],\n  \"a\": {},\n  \
                 \"b\": [\n    1e400,\n    -0\n  ]\n}",
            ),
        );
        check(
            r#"["a, {b}: \"\\", "\u00e9\/"]"#,
            Some("[\n  \"a, {b}: \\\"\\\\\",\n  \"\\u00e9\\/\"\n]"),
        );
        check(" 1.50 ", Some("1.50"));
        check("\"a  b\"", Some("\"a  b\""));
        check("{", None);
        check("[1] [2]", None);
        check("", None);
        check(&format!("{}{}", "[".repeat(40), "]".repeat(40)), None);
        check(&"[".repeat(1_000_000), None);
    }
}
