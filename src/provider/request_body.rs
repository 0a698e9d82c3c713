//! A request body as JSON text, written field by field without a tree of values.

use super::body_text::BodyFormatter;
use crate::message::ToolSpec;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Bytes that most bodies fit in, so that they are not copied as they grow.
const CAPACITY_BYTES: usize = 64 << 10;

/// A request body under construction: a JSON object whose fields stay in the order in which they are written. The
/// user's extra fields replace fields of the same name.
pub struct BodyWriter<'a> {
    json: Vec<u8>,
    extra: &'a Map<String, Value>,
    /// The names of the fields so far.
    names: Vec<&'static str>,
}

impl<'a> BodyWriter<'a> {
    /// An empty body, with the user's extra fields.
    pub fn new(extra: &'a Map<String, Value>) -> Self {
        Self {
            json: Vec::with_capacity(CAPACITY_BYTES),
            extra,
            names: Vec::new(),
        }
    }

    /// Writes a field.
    pub fn put(&mut self, name: &'static str, value: impl Serialize) {
        match self.extra.get(name) {
            Some(extra) => self.write(name, extra),
            None => self.write(name, value),
        }
        self.names.push(name);
    }

    /// Writes the remaining extra fields and the last field, and returns the body. The last field is the one that grows
    /// during a conversation: what precedes it stays the same, which lets providers' prompt caches hit.
    pub fn finish(mut self, name: &'static str, value: impl Serialize) -> Vec<u8> {
        for (other, extra) in self.extra {
            if other == name {
                self.write(name, &value);
            } else if !self.names.contains(&other.as_str()) {
                self.write(other, extra);
            }
        }
        if !self.extra.contains_key(name) {
            self.write(name, value);
        }
        self.json.push(b'}');
        self.json
    }

    fn write(&mut self, name: &str, value: impl Serialize) {
        let mark = if self.json.is_empty() { b'{' } else { b',' };
        self.json.push(mark);
        self.write_value(name);
        self.json.push(b':');
        self.write_value(value);
    }

    fn write_value(&mut self, value: impl Serialize) {
        let mut serializer = serde_json::Serializer::with_formatter(&mut self.json, BodyFormatter);
        value
            .serialize(&mut serializer)
            .expect("texts, numbers and JSON values can be serialized to memory");
    }
}

/// The tools of a request; `T` is their form in the wire format.
pub struct ToolArray<'a, T>(pub &'a [ToolSpec], pub fn(&'a ToolSpec) -> T);

impl<T: Serialize> Serialize for ToolArray<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
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
        check(
            json!({ "x": 2, "b": null, "a": 3 }),
            r#"{"a":3,"b":null,"x":2,"last":[true]}"#,
        );
        check(
            json!({ "x": 2, "last": "not sent", "y": {} }),
            r#"{"a":1,"b":"é\n","x":2,"last":[true],"y":{}}"#,
        );
    }
}
