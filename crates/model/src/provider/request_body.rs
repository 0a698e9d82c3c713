//! A request body as JSON text, written field by field without a tree of values.

use super::body_text::{BodyFormatter, BodyText};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::message::{MessagePart, ToolSpec, to_plain_text};
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Size that most bodies do not exceed, so that they are not copied as they grow.
const CAPACITY_BYTES: usize = 64 << 10;

/// The JSON of a tool in a wire format, around its name, its description and its schema.
pub struct ToolForm {
    pub(crate) before_name: &'static str,
    pub(crate) before_description: &'static str,
    pub(crate) before_schema: &'static str,
    pub end: &'static str,
    /// The end of the last tool.
    pub end_of_last: &'static str,
}

/// Bytes as a `data` URL.
pub(super) fn data_url(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", STANDARD.encode(bytes))
}

/// The text of a tool result, with placeholders for parts that are not text.
pub(super) fn result_text(parts: &[MessagePart]) -> Cow<'_, str> {
    let text = to_plain_text(parts);
    if text.is_empty() { Cow::Borrowed("(no output)") } else { text }
}

/// A request body under construction: a JSON object whose fields stay in the order in which they are written. The
/// user's extra fields replace fields of the same name, except the last one.
pub struct BodyWriter<'a> {
    json: Vec<u8>,
    extra: &'a Map<String, Value>,
    /// The names of the fields so far.
    names: Vec<&'static str>,
}

impl<'a> BodyWriter<'a> {
    /// An empty body, with the user's extra fields.
    pub fn new(extra: &'a Map<String, Value>) -> Self {
        Self { json: Vec::with_capacity(CAPACITY_BYTES), extra, names: Vec::new() }
    }

    /// Writes a field.
    pub fn put(&mut self, name: &'static str, value: impl Serialize) {
        self.put_with(name, |body| body.write_value(value));
    }

    /// Writes the field `tools`. Schemas are JSON already, so they are neither parsed nor serialized.
    pub(crate) fn put_tools(&mut self, tools: &[ToolSpec], form: &ToolForm) {
        self.put_with("tools", |body| {
            let mut separator = "[";
            for (index, tool) in tools.iter().enumerate() {
                body.write_json(separator);
                body.write_json(form.before_name);
                body.write_value(&tool.name);
                body.write_json(form.before_description);
                body.write_value(BodyText(&tool.description));
                body.write_json(form.before_schema);
                body.write_json(tool.parameters.as_json());
                let is_last = index + 1 == tools.len();
                body.write_json(if is_last { form.end_of_last } else { form.end });
                separator = ",";
            }
            body.write_json("]");
        });
    }

    /// Writes the remaining extra fields and the last field, and returns the body. The last field is the one that grows
    /// during a conversation: the fields before it stay the same, so that providers' prompt caches hit. It holds the
    /// messages, so an extra field of its name is not sent.
    pub fn finish(mut self, name: &'static str, value: impl Serialize) -> Vec<u8> {
        self.names.push(name);
        for (other, extra) in self.extra {
            if !self.names.contains(&other.as_str()) {
                self.write(other, extra);
            }
        }
        self.write(name, value);
        self.json.push(b'}');
        self.json
    }

    /// Writes a field whose value `write_value` writes, unless it is an extra one.
    fn put_with(&mut self, name: &'static str, write_value: impl FnOnce(&mut Self)) {
        match self.extra.get(name) {
            Some(extra) => self.write(name, extra),
            None => {
                self.write_name(name);
                write_value(self);
            }
        }
        self.names.push(name);
    }

    fn write(&mut self, name: &str, value: impl Serialize) {
        self.write_name(name);
        self.write_value(value);
    }

    fn write_name(&mut self, name: &str) {
        self.write_json(if self.json.is_empty() { "{" } else { "," });
        self.write_value(name);
        self.write_json(":");
    }

    fn write_json(&mut self, json: &str) {
        self.json.extend_from_slice(json.as_bytes());
    }

    fn write_value(&mut self, value: impl Serialize) {
        let mut serializer = serde_json::Serializer::with_formatter(&mut self.json, BodyFormatter);
        value
            .serialize(&mut serializer)
            .expect("texts, numbers and JSON values can be serialized to memory");
    }
}

#[cfg(test)]
mod tests {
    use super::BodyWriter;
    use serde_json::{Map, Value, json};

    #[test]
    fn extra_fields_replace_others_and_precede_the_last() {
        let check = |extra: Value, expect: &str| {
            let extra: Map<String, Value> = serde_json::from_value(extra).unwrap();
            let mut body = BodyWriter::new(&extra);
            body.put("a", 1);
            body.put("b", "\u{e9}\n");
            let json = body.finish("last", [true]);
            assert_eq!(String::from_utf8(json).unwrap(), expect);
        };
        check(json!({}), r#"{"a":1,"b":"é\n","last":[true]}"#);
        check(json!({ "x": 2, "b": null, "a": 3 }), r#"{"a":3,"b":null,"x":2,"last":[true]}"#);
        check(
            json!({ "x": 2, "last": "not sent", "y": {} }),
            r#"{"a":1,"b":"é\n","x":2,"y":{},"last":[true]}"#,
        );
    }
}
