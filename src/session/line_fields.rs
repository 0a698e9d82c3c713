//! The fields of a line of a session file, borrowed from the line. A field of an unexpected type counts as missing, and of
//! several fields with one name, the last one is valid, because other programs write these files too.

use crate::message::lenient_json::parse as parse_json;
use crate::message::{ToolCall, Usage};
use serde_json::Value;
use std::borrow::Cow;

/// The fields of a line that this program reads, borrowed from it.
#[derive(Default)]
pub(super) struct LineFields<'a> {
    pub(super) record_type: StoredValue<'a>,
    pub(super) role: StoredValue<'a>,
    pub(super) content: StoredValue<'a>,
    pub(super) id: StoredValue<'a>,
    pub(super) facts: StoredValue<'a>,
    pub(super) model: StoredValue<'a>,
    pub(super) reasoning_content: StoredValue<'a>,
    pub(super) tool_call_id: StoredValue<'a>,
    pub(super) name: StoredValue<'a>,
    pub(super) tool_calls: StoredValue<'a>,
    pub(super) usage: StoredValue<'a>,
    pub(super) state: StoredValue<'a>,
    /// `None` if missing, as opposed to null.
    pub(super) opaque: Option<StoredValue<'a>>,
    pub(super) finish_reason: StoredValue<'a>,
    pub(super) command: StoredValue<'a>,
    pub(super) injected: StoredValue<'a>,
    pub(super) failed: StoredValue<'a>,
    pub(super) source: StoredValue<'a>,
    pub(super) images: StoredValue<'a>,
}

impl<'a> LineFields<'a> {
    /// Reads a line; `None` if it is not a JSON object.
    pub(super) fn read(line: &'a str) -> Option<Self> {
        let mut fields = Self::default();
        read_object(line, |name, value| {
            let field = match name {
                "_type" => &mut fields.record_type,
                "role" => &mut fields.role,
                "content" => &mut fields.content,
                "id" => &mut fields.id,
                "facts" => &mut fields.facts,
                "model" => &mut fields.model,
                "reasoning_content" => &mut fields.reasoning_content,
                "tool_call_id" => &mut fields.tool_call_id,
                "name" => &mut fields.name,
                "tool_calls" => &mut fields.tool_calls,
                "usage" => &mut fields.usage,
                "state" => &mut fields.state,
                "opaque" => fields.opaque.get_or_insert_default(),
                "finish_reason" => &mut fields.finish_reason,
                "_command" => &mut fields.command,
                "injected" => &mut fields.injected,
                "failed" => &mut fields.failed,
                "source" => &mut fields.source,
                "images" => &mut fields.images,
                _ => return,
            };
            *field = value;
        })?;
        Some(fields)
    }
}

/// A JSON value.
#[derive(Debug)]
pub(super) enum StoredValue<'a> {
    /// A string; borrowed if it has no escapes.
    Text(Cow<'a, str>),
    /// Any other value, as JSON.
    Json(&'a str),
}

impl Default for StoredValue<'_> {
    fn default() -> Self {
        Self::Json("null")
    }
}

impl<'a> StoredValue<'a> {
    /// The text, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Json(_) => None,
        }
    }

    /// The text; empty for any other value.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text.into_owned(),
            Self::Json(_) => String::new(),
        }
    }

    /// The value; null if it is malformed.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.into_owned()),
            Self::Json(json) => parse_json(json).unwrap_or_default(),
        }
    }

    /// The value as JSON, if it is neither a text nor null.
    pub(super) fn as_json(&self) -> Option<&'a str> {
        match *self {
            Self::Text(_) | Self::Json("null") => None,
            Self::Json(json) => Some(json),
        }
    }

    pub(super) fn is_true(&self) -> bool {
        matches!(self, Self::Json("true"))
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Json("null"))
    }
}

/// Passes the name and the value of each field of the JSON object `json` to `field`, in order. Returns `None` if `json`
/// is anything else. Nearly all of a session is strings without escapes, which this reads faster than serde_json does.
/// Lists, objects and numbers are checked once they are needed, and characters in strings never.
fn read_object<'a>(json: &'a str, mut field: impl FnMut(&str, StoredValue<'a>)) -> Option<()> {
    let mut reader = JsonReader { json, at: 0 };
    reader.expect(b'{')?;
    let mut is_first = true;
    while reader.has_next(is_first, b'}')? {
        is_first = false;
        let name = reader.read_string()?;
        reader.expect(b':')?;
        field(&name, reader.read_value()?);
    }
    reader.peek().is_none().then_some(())
}

/// The items of the JSON list `json`; `None` if it is anything else.
fn read_list(json: &str) -> Option<Vec<StoredValue<'_>>> {
    let mut reader = JsonReader { json, at: 0 };
    reader.expect(b'[')?;
    let mut items = Vec::new();
    while reader.has_next(items.is_empty(), b']')? {
        items.push(reader.read_value()?);
    }
    reader.peek().is_none().then_some(items)
}

/// A position in a JSON text.
struct JsonReader<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> JsonReader<'a> {
    /// The next byte that is not whitespace.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.json.as_bytes().get(self.at)? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    /// Skips `mark`, which must be next.
    fn expect(&mut self, mark: u8) -> Option<()> {
        (self.peek()? == mark).then(|| self.at += 1)
    }

    /// Skips the comma before the next item and returns true, or skips `end` and returns false.
    fn has_next(&mut self, is_first: bool, end: u8) -> Option<bool> {
        if self.peek()? == end {
            self.at += 1;
            return Some(false);
        }
        if !is_first {
            self.expect(b',')?;
        }
        Some(true)
    }

    fn read_value(&mut self) -> Option<StoredValue<'a>> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => return self.read_string().map(StoredValue::Text),
            b'{' | b'[' => self.skip_brackets()?,
            _ => self.skip_word()?,
        }
        Some(StoredValue::Json(&self.json[start..self.at]))
    }

    fn read_string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let start = self.at;
        let has_escapes = self.skip_string()?;
        if !has_escapes {
            return Some(Cow::Borrowed(&self.json[start..self.at - 1]));
        }
        match parse_json(&self.json[start - 1..self.at])? {
            Value::String(string) => Some(Cow::Owned(string)),
            _ => None,
        }
    }

    /// Skips the rest of a string, and returns true if it has escapes.
    fn skip_string(&mut self) -> Option<bool> {
        let bytes = self.json.as_bytes();
        let mut has_escapes = false;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', bytes.get(self.at..)?)? + 1;
            if bytes[self.at - 1] == b'"' {
                return Some(has_escapes);
            }
            has_escapes = true;
            self.at += 1;
        }
    }

    /// Skips a list or an object.
    fn skip_brackets(&mut self) -> Option<()> {
        let mut depth = 0;
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 1 => return Some(()),
                b'}' | b']' => depth -= 1,
                b'"' => drop(self.skip_string()?),
                _ => {}
            }
        }
    }

    /// Skips a number, `true`, `false` or `null`.
    fn skip_word(&mut self) -> Option<()> {
        let is_part =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let rest = self.json.as_bytes()[self.at..].iter();
        let length = rest.take_while(|byte| is_part(byte)).count();
        self.at += length;
        (length > 0).then_some(())
    }
}

/// Reads the tool calls of a reply. A malformed one is left out.
pub(super) fn read_calls(calls: &str) -> Vec<ToolCall> {
    let calls = read_list(calls).unwrap_or_default();
    let calls = calls.iter().filter_map(StoredValue::as_json);
    calls.filter_map(read_call).collect()
}

fn read_call(call: &str) -> Option<ToolCall> {
    let (mut id, mut name) = (StoredValue::default(), StoredValue::default());
    let mut arguments = StoredValue::default();
    let mut function = StoredValue::default();
    read_object(call, |field, value| match field {
        "id" => id = value,
        "function" => function = value,
        _ => {}
    })?;
    read_object(function.as_json()?, |field, value| match field {
        "name" => name = value,
        "arguments" => arguments = value,
        _ => {}
    })?;
    id.as_str().and(name.as_str())?;
    Some(ToolCall {
        id: id.into_text(),
        name: name.into_text(),
        arguments: match arguments {
            StoredValue::Text(text) => {
                parse_json(&text).unwrap_or_else(|| Value::String(text.into_owned()))
            }
            other => other.into_value(),
        },
    })
}

/// Reads the token counts that are stored with a reply.
pub(super) fn read_usage(json: &str) -> Usage {
    let mut usage = Usage::default();
    let is_object = read_object(json, |name, value| {
        let count = match name {
            "input" => &mut usage.input,
            "cached" => &mut usage.cached,
            "output" => &mut usage.output,
            "reasoning" => &mut usage.reasoning,
            _ => return,
        };
        *count = value.as_json().and_then(|json| json.parse().ok()).unwrap_or_default();
    });
    is_object.map_or_else(Usage::default, |()| usage)
}

#[cfg(test)]
mod tests {
    use super::{StoredValue, parse_json, read_list, read_object};
    use serde_json::{Map, Value, json};

    fn read(json: &str) -> Option<Map<String, Value>> {
        let mut map = Map::new();
        read_object(json, |name, value| {
            map.insert(name.to_owned(), value.into_value());
        })?;
        Some(map)
    }

    #[test]
    fn objects_are_read_as_serde_json_reads_them() {
        for json in [
            "{}",
            " { } ",
            r#"{"a":"","b":"x","a":"last"}"#,
            "{ \"a\" :\t\"x\" ,\r\n\"b\" : 1 }\n",
            r#"{"a":null,"b":true,"c":false,"d":-1.5e3,"e":0,"f":18446744073709551615}"#,
            r#"{"a":{"b":["}",{"c":"\"]"}]},"d":[],"e":{}}"#,
            r#"{"a\n\u00e9":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00","é":"é\\"}"#,
        ] {
            assert_eq!(read(json), serde_json::from_str(json).ok(), "{json}");
            assert!(read(json).is_some(), "{json}");
            let is_cut =
                |cut: &usize| json.is_char_boundary(*cut) && !json[*cut..].trim().is_empty();
            for cut in (0..json.len()).filter(is_cut) {
                assert_eq!(read(&json[..cut]), None, "{}", &json[..cut]);
            }
        }
        for json in [
            "",
            "null",
            "[]",
            "{}{}",
            "{},",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":["#,
            r#"{"a":[{}"#,
            r#"{"a":{"b":"}"#,
            r#"{"a":1{}}"#,
            r#"{"a":'x'}"#,
            r#"{a:1}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"b"c"}"#,
            "{\"a\":\u{a0}1}",
        ] {
            assert!(serde_json::from_str::<Map<String, Value>>(json).is_err(), "{json}");
            assert_eq!(read(json), None, "{json}");
        }
    }

    #[test]
    fn bad_characters_are_no_reason_to_lose_a_field() {
        let map = read("{\"a\":\"x\0\ty\",\"b\":\"\\ud83d\",\"c\":[\"\\ud83d\"]}");
        let expect = json!({ "a": "x\0\ty", "b": "\u{fffd}", "c": ["\u{fffd}"] });
        assert_eq!(map.map(Value::Object), Some(expect));
    }

    #[test]
    fn fuzz_objects_are_read_as_serde_json_reads_them() {
        let seeds: &[&[u8]] = &[
            br#"{"role": "user", "content": "h\u00e9\n\nx", "timestamp": "x", "id": "i", "facts": null}"#,
            br#"{"a":[1,-2.5,{"b":"}"}],"c":true,"d":"\"\\","a":{}}"#,
        ];
        crate::fuzz::check(seeds, |input, _| {
            let text = crate::fuzz::lossy_text(input);
            let map = read(&text).map(Value::Object);
            if let Some(object @ Value::Object(_)) = parse_json(&text) {
                assert_eq!(map, Some(object), "{text}");
            }
        });
    }

    #[test]
    fn lists_are_read_as_serde_json_reads_them() {
        let read = |json| {
            let items = read_list(json)?.into_iter();
            Some(items.map(StoredValue::into_value).collect::<Vec<_>>())
        };
        for json in [
            "[]",
            "[ ] ",
            r#"["a"]"#,
            r#"[ 1 , "b]" , [[], "]"] , {"c": "}"} ]"#,
            "",
            "[",
            "[,]",
            "[1,]",
            "[1 2]",
            "[]]",
            "{}",
        ] {
            assert_eq!(read(json), serde_json::from_str(json).ok(), "{json}");
        }
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let read = read_object(r#"{"a":"x"}"#, |_, value| {
            assert!(matches!(value, StoredValue::Text(std::borrow::Cow::Borrowed("x"))));
        });
        assert_eq!(read, Some(()));
    }
}
