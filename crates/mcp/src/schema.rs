//! Converts the argument schemas of servers into a form that every provider accepts. Pure.
//!
//! The common ground of providers is small: an object with properties, a handful of keywords, no references, and a
//! modest size. Other keywords are moved into descriptions or left out. The result admits every argument object that
//! the server would accept: it may be too permissive, since the server validates the arguments itself.

use super::sanitize;
use serde_json::{Map, Value, json};

/// Maximum nesting depth.
const MAX_DEPTH: usize = 10;
/// Maximum number of schemas within a schema.
const MAX_SCHEMAS: usize = 400;
/// Approximate maximum of bytes for one tool.
const MAX_BYTES: usize = 16 << 10;
/// Maximum of characters of a description within a schema.
const MAX_DESCRIPTION_CHARS: usize = 500;
/// Maximum number of alternatives or choices. With more, any value is allowed.
const MAX_ALTERNATIVES: usize = 200;

/// The JSON types, except for `null`.
const TYPES: &[&str] = &["string", "integer", "number", "boolean", "array", "object"];

/// Converts `schema` into one that every provider accepts and that admits the same arguments.
pub fn convert(schema: &Value) -> Value {
    let mut fitting = SchemaConverter {
        root: schema,
        open_refs: Vec::new(),
        remaining_schemas: MAX_SCHEMAS,
        remaining_bytes: MAX_BYTES,
    };
    let fitted = fitting.convert(schema, 0);
    let mut whole = merge_into_object(fitted);
    if fitting.remaining_bytes == 0 || fitting.remaining_schemas == 0 {
        add_to_description(&mut whole, "truncated: schema too large");
    }
    let whole = Value::Object(whole);
    if whole.to_string().len() > 2 * MAX_BYTES {
        // A safeguard: the size was already counted on the way.
        json!({ "type": "object", "properties": {} })
    } else {
        whole
    }
}

/// The constraints on a value, in the few remaining keywords.
type ConvertedSchema = Map<String, Value>;

struct SchemaConverter<'s> {
    root: &'s Value,
    /// The references that are being followed.
    open_refs: Vec<&'s str>,
    /// The remaining number of schemas.
    remaining_schemas: usize,
    remaining_bytes: usize,
}

impl<'s> SchemaConverter<'s> {
    fn convert(&mut self, schema: &'s Value, depth: usize) -> ConvertedSchema {
        let Value::Object(written) = schema else {
            return ConvertedSchema::new();
        };
        if depth > MAX_DEPTH || !self.spend(24) {
            return ConvertedSchema::new();
        }
        self.remaining_schemas = self.remaining_schemas.saturating_sub(1);
        let mut fitted = self.convert_keywords(written, depth);
        if let Some(place) = written.get("$ref").and_then(Value::as_str) {
            fitted = intersect(fitted, self.convert_reference(place, depth));
        }
        for part in list_field(written, "allOf").iter().take(MAX_ALTERNATIVES) {
            fitted = intersect(fitted, self.convert(part, depth + 1));
        }
        for key in ["anyOf", "oneOf"] {
            if written.get(key).is_some_and(Value::is_array) {
                let any = self.convert_alternatives(list_field(written, key), depth);
                fitted = intersect(fitted, any);
            }
        }
        add_required_keywords(&mut fitted);
        fitted
    }

    /// Takes `bytes` from the size budget. Returns false if it is used up.
    fn spend(&mut self, bytes: usize) -> bool {
        let may = self.remaining_schemas > 0 && self.remaining_bytes > bytes;
        self.remaining_bytes = if may { self.remaining_bytes - bytes } else { 0 };
        may
    }

    /// Converts the keywords of `schema` itself, without its references and alternatives.
    fn convert_keywords(
        &mut self,
        schema: &'s Map<String, Value>,
        depth: usize,
    ) -> ConvertedSchema {
        let mut fitted = ConvertedSchema::new();
        if let Some(text) = schema.get("description").and_then(Value::as_str) {
            let text = sanitize::truncate(sanitize::clean(text).trim(), MAX_DESCRIPTION_CHARS);
            if !text.is_empty() && self.spend(text.len()) {
                fitted.insert("description".into(), text.into());
            }
        }
        convert_type(schema, &mut fitted);
        self.convert_choices(schema, &mut fitted);
        self.convert_properties(schema, &mut fitted, depth);
        match schema.get("items") {
            Some(items @ Value::Object(_)) if !schema.contains_key("prefixItems") => {
                let items = self.convert(items, depth + 1);
                fitted.insert("items".into(), Value::Object(items));
            }
            Some(_) => drop(fitted.insert("items".into(), json!({}))),
            None => {}
        }
        for key in ["minimum", "maximum"] {
            if let Some(limit @ Value::Number(_)) = schema.get(key) {
                fitted.insert(key.into(), limit.clone());
            }
        }
        for key in ["minLength", "maxLength", "minItems", "maxItems"] {
            if let Some(limit) = schema.get(key).and_then(Value::as_u64) {
                fitted.insert(key.into(), limit.into());
            }
        }
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        if let Some(pattern) = text("pattern").filter(|it| is_portable_pattern(it))
            && self.spend(pattern.len())
        {
            fitted.insert("pattern".into(), pattern.into());
        }
        match text("format") {
            // The only format that every provider knows.
            Some("date-time") => drop(fitted.insert("format".into(), "date-time".into())),
            Some(other) => add_to_description(
                &mut fitted,
                &format!("format: {}", sanitize::single_line(other, 30)),
            ),
            None => {}
        }
        if let Some(usual) = schema.get("default")
            && !usual.is_object()
            && !usual.is_array()
            && !usual.is_null()
            && usual.to_string().len() <= 200
            && self.spend(usual.to_string().len())
        {
            fitted.insert("default".into(), usual.clone());
        }
        fitted
    }

    /// Converts the possible values. Not every provider accepts choices other than texts.
    fn convert_choices(&mut self, schema: &Map<String, Value>, fitted: &mut ConvertedSchema) {
        let mut choices: Vec<&Value> = match (schema.get("const"), schema.get("enum")) {
            (Some(only), _) => vec![only],
            (None, Some(Value::Array(choices))) => choices.iter().collect(),
            _ => return,
        };
        let count = choices.len();
        choices.retain(|choice| !choice.is_null());
        if choices.len() < count {
            fitted.insert("nullable".into(), true.into());
        }
        let texts: Vec<&str> = choices.iter().filter_map(|it| it.as_str()).collect();
        let is_text = fitted.get("type").is_none_or(|kind| kind == "string");
        let size: usize = texts.iter().map(|text| text.len() + 4).sum();
        let all_texts = texts.len() == choices.len() && !texts.is_empty() && is_text;
        if all_texts && texts.len() <= MAX_ALTERNATIVES && self.spend(size) {
            fitted.insert("type".into(), "string".into());
            fitted.insert("enum".into(), json!(texts));
            return;
        }
        let shown: Vec<String> =
            choices.iter().take(10).map(|it| sanitize::single_line(&it.to_string(), 40)).collect();
        if !shown.is_empty() {
            let more = if choices.len() > 10 { ", …" } else { "" };
            add_to_description(fitted, &format!("one of {}{more}", shown.join(", ")));
        }
    }

    fn convert_properties(
        &mut self,
        schema: &'s Map<String, Value>,
        fitted: &mut ConvertedSchema,
        depth: usize,
    ) {
        let members = match schema.get("properties") {
            Some(Value::Object(members)) => Some(members),
            _ => None,
        };
        let mut properties = Map::new();
        let mut odd = Vec::new();
        for (name, schema) in members.into_iter().flatten() {
            match schema {
                // `false` admits no value.
                Value::Bool(false) => {}
                _ if !is_property_name(name) => odd.push(sanitize::single_line(name, 40)),
                _ if !self.spend(name.len()) => break,
                _ => {
                    let member = self.convert(schema, depth + 1);
                    properties.insert(name.clone(), Value::Object(member));
                }
            }
        }
        if !odd.is_empty() {
            odd.truncate(5);
            add_to_description(fitted, &format!("also takes {}", odd.join(", ")));
        }
        if let Some(Value::Object(values)) = schema.get("additionalProperties")
            && properties.is_empty()
        {
            let kind = values.get("type").and_then(Value::as_str);
            let kind = kind.filter(|kind| TYPES.contains(kind));
            let of = kind.map(|kind| format!(", each a {kind}"));
            add_to_description(fitted, &format!("values by name{}", of.unwrap_or_default()));
        }
        let mut required: Vec<&str> = Vec::new();
        for name in list_field(schema, "required").iter().filter_map(Value::as_str) {
            if !required.contains(&name) && required.len() < MAX_SCHEMAS {
                required.push(name);
            }
        }
        if !required.is_empty() {
            fitted.insert("required".into(), json!(required));
        }
        if members.is_some() {
            fitted.insert("properties".into(), Value::Object(properties));
        }
    }

    /// Converts the schema at `reference` in the same document. Recursive schemas are cut.
    fn convert_reference(&mut self, reference: &'s str, depth: usize) -> ConvertedSchema {
        let again = || {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let mut fitted = ConvertedSchema::new();
            add_to_description(&mut fitted, &format!("a {}", sanitize::single_line(name, 60)));
            fitted
        };
        if self.open_refs.contains(&reference) {
            return again();
        }
        let pointer = reference.strip_prefix('#').map(decode_fragment);
        let there = pointer.and_then(|pointer| self.root.pointer(&pointer));
        let Some(there) = there else {
            return again();
        };
        self.open_refs.push(reference);
        let fitted = self.convert(there, depth + 1);
        self.open_refs.pop();
        fitted
    }

    /// Converts the constraints that hold if one of `all` does.
    fn convert_alternatives(&mut self, all: &'s [Value], depth: usize) -> ConvertedSchema {
        let mut nullable = false;
        let mut kinds: Vec<ConvertedSchema> = Vec::new();
        for one in all.iter().take(MAX_ALTERNATIVES) {
            if is_null(one) {
                nullable = true;
                continue;
            }
            if *one == Value::Bool(false) {
                continue;
            }
            let fitted = self.convert(one, depth + 1);
            if !kinds.contains(&fitted) {
                kinds.push(fitted);
            }
        }
        let says_nothing = |it: &ConvertedSchema| it.keys().all(|key| key == "description");
        if all.len() > MAX_ALTERNATIVES || kinds.is_empty() || kinds.iter().any(says_nothing) {
            return ConvertedSchema::new();
        }
        if kinds.len() == 1 || kinds.iter().all(is_choice) {
            let mut kinds = kinds.into_iter();
            let first = kinds.next().unwrap_or_default();
            let mut one = kinds.fold(first, join_choices);
            if nullable {
                one.insert("nullable".into(), true.into());
            }
            return one;
        }
        if nullable {
            kinds[0].insert("nullable".into(), true.into());
        }
        let kinds: Vec<Value> = kinds.into_iter().map(Value::Object).collect();
        [("anyOf".to_owned(), Value::Array(kinds))].into_iter().collect()
    }
}

/// Converts the type, if there is only one. Several types are described in words.
fn convert_type(schema: &Map<String, Value>, fitted: &mut ConvertedSchema) {
    let named: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut kinds: Vec<&str> = Vec::new();
    for kind in named.iter().filter(|kind| TYPES.contains(kind)) {
        if !kinds.contains(kind) {
            kinds.push(kind);
        }
    }
    if kinds.contains(&"number") {
        kinds.retain(|kind| *kind != "integer");
    }
    match kinds[..] {
        [kind] => {
            fitted.insert("type".into(), kind.into());
            if named.contains(&"null") || schema.get("nullable") == Some(&Value::Bool(true)) {
                fitted.insert("nullable".into(), true.into());
            }
        }
        [] => {}
        _ => add_to_description(fitted, &kinds.join(" or ")),
    }
}

/// Adds the keywords that providers require for objects and arrays.
fn add_required_keywords(fitted: &mut ConvertedSchema) {
    if !fitted.contains_key("type") && !fitted.contains_key("anyOf") {
        let kind = match (fitted.contains_key("properties"), fitted.get("items")) {
            (true, None) => Some("object"),
            (false, Some(_)) => Some("array"),
            _ => None,
        };
        if let Some(kind) = kind {
            fitted.insert("type".into(), kind.into());
        }
    }
    match fitted.get("type").and_then(Value::as_str) {
        Some("object") => {
            let properties = fitted.entry("properties").or_insert_with(|| json!({}));
            let known: Vec<String> = properties
                .as_object()
                .map(|members| members.keys().cloned().collect())
                .unwrap_or_default();
            retain_known_required(fitted, &known);
        }
        Some("array") => drop(fitted.entry("items").or_insert_with(|| json!({}))),
        _ => {}
    }
    if !fitted.contains_key("properties") && fitted.get("type").is_some_and(|it| it != "object") {
        fitted.remove("required");
    }
    if !fitted.contains_key("type") {
        // Without a type, `nullable` has no meaning.
        fitted.remove("nullable");
    }
}

/// Removes names from `required` that are not properties.
fn retain_known_required(fitted: &mut ConvertedSchema, properties: &[String]) {
    let Some(Value::Array(required)) = fitted.get_mut("required") else {
        return;
    };
    required.retain(|name| properties.iter().any(|known| name == known));
    if required.is_empty() {
        fitted.remove("required");
    }
}

/// Merges everything into an object: no provider accepts alternatives at the top level.
fn merge_into_object(mut fitted: ConvertedSchema) -> ConvertedSchema {
    if let Some(Value::Array(kinds)) = fitted.remove("anyOf") {
        let objects = kinds.into_iter().filter_map(|kind| match kind {
            Value::Object(kind) if kind.get("type").is_none_or(|kind| kind == "object") => {
                Some(merge_into_object(kind))
            }
            _ => None,
        });
        if let Some(either) = objects.reduce(unite) {
            fitted = intersect(fitted, either);
        }
    }
    let mut whole = ConvertedSchema::new();
    whole.insert("type".into(), "object".into());
    let properties = match fitted.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let known: Vec<String> = properties.keys().cloned().collect();
    whole.insert("properties".into(), Value::Object(properties));
    for key in ["required", "description"] {
        if let Some(value) = fitted.remove(key) {
            whole.insert(key.into(), value);
        }
    }
    retain_known_required(&mut whole, &known);
    whole
}

/// Combines constraints that must both hold.
fn intersect(mut one: ConvertedSchema, other: ConvertedSchema) -> ConvertedSchema {
    if one.is_empty() {
        return other;
    }
    let kinds = (one.get("type").cloned(), other.get("type").cloned());
    for (key, theirs) in other {
        let Some(ours) = one.get_mut(&key) else {
            one.insert(key, theirs);
            continue;
        };
        match (key.as_str(), ours, theirs) {
            ("description" | "default" | "format", ..) => {}
            ("properties", Value::Object(ours), Value::Object(theirs)) => {
                for (name, theirs) in theirs {
                    match (ours.remove(&name), theirs) {
                        (Some(Value::Object(our)), Value::Object(their)) => {
                            ours.insert(name, Value::Object(intersect(our, their)));
                        }
                        (_, theirs) => drop(ours.insert(name, theirs)),
                    }
                }
            }
            ("required", Value::Array(ours), Value::Array(theirs)) => {
                for name in theirs {
                    if !ours.contains(&name) {
                        ours.push(name);
                    }
                }
            }
            (_, ours, theirs) if *ours == theirs => {}
            // The intersection would have to be computed. A schema without this keyword is permissive enough.
            _ => drop(one.remove(&key)),
        }
    }
    if let (Some(Value::String(ours)), Some(Value::String(theirs))) = kinds
        && ours != theirs
        && [ours.as_str(), &theirs].iter().all(|kind| ["integer", "number"].contains(kind))
    {
        one.insert("type".into(), "number".into());
    }
    one
}

/// Combines constraints on objects of which one must hold.
fn unite(mut one: ConvertedSchema, mut other: ConvertedSchema) -> ConvertedSchema {
    let members = |of: &mut ConvertedSchema| match of.remove("properties") {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let (mut all, theirs) = (members(&mut one), members(&mut other));
    for (name, theirs) in theirs {
        match all.get_mut(&name) {
            None => drop(all.insert(name, theirs)),
            Some(ours) if *ours == theirs => {}
            Some(ours) => match (ours.as_object().cloned(), theirs) {
                (Some(our), Value::Object(their)) if is_choice(&our) && is_choice(&their) => {
                    *ours = Value::Object(join_choices(our, their));
                }
                (_, theirs) => *ours = json!({ "anyOf": [ours.take(), theirs] }),
            },
        }
    }
    let theirs = other.remove("required").unwrap_or_default();
    if let Some(Value::Array(required)) = one.get_mut("required") {
        required.retain(|name| {
            let mut theirs = theirs.as_array().into_iter().flatten();
            theirs.any(|it| it == name)
        });
    }
    one.remove("description");
    one.insert("properties".into(), Value::Object(all));
    one
}

/// True if the schema is a choice of texts without other constraints.
fn is_choice(fitted: &ConvertedSchema) -> bool {
    let plain = ["type", "enum", "description", "nullable"];
    fitted.contains_key("enum") && fitted.keys().all(|key| plain.contains(&key.as_str()))
}

/// Joins the choices of both.
fn join_choices(mut one: ConvertedSchema, mut other: ConvertedSchema) -> ConvertedSchema {
    if let (Some(Value::Array(ours)), Some(Value::Array(theirs))) =
        (one.get_mut("enum"), other.remove("enum"))
    {
        for choice in theirs {
            if !ours.contains(&choice) {
                ours.push(choice);
            }
        }
    }
    if let Some(nullable) = other.remove("nullable") {
        one.insert("nullable".into(), nullable);
    }
    // The description applied to some of the choices only.
    one.remove("description");
    one
}

/// Adds a constraint to the description that no keyword can express.
fn add_to_description(fitted: &mut ConvertedSchema, constraint: &str) {
    let text = match fitted.get("description").and_then(Value::as_str) {
        Some(text) => format!("{text} ({constraint})"),
        None => constraint.to_owned(),
    };
    fitted.insert("description".into(), text.into());
}

fn list_field<'s>(schema: &'s Map<String, Value>, key: &str) -> &'s [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// True if the schema admits only `null`.
fn is_null(schema: &Value) -> bool {
    schema["type"] == "null"
        || schema.get("const") == Some(&Value::Null)
        || schema["enum"] == json!([null])
}

/// True if every provider accepts the text as a property name.
fn is_property_name(name: &str) -> bool {
    let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"_.-".contains(&letter);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// True if every dialect of regular expressions supports the pattern.
fn is_portable_pattern(pattern: &str) -> bool {
    pattern.len() <= 200
        && pattern.is_ascii()
        && !pattern.contains("(?")
        && !pattern.contains("\\p")
        && regex_syntax::parse(pattern).is_ok()
}

/// Decodes the percent-encoded bytes of a URL fragment, which yields a JSON pointer.
fn decode_fragment(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let number = digits.and_then(|it| u8::from_str_radix(str::from_utf8(it).ok()?, 16).ok());
        (rest, _) = match number {
            Some(byte) => (&after[2..], bytes.push(byte)),
            None => (after, bytes.push(*first)),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, convert};
    use serde_json::{Value, json};

    fn check(schema: Value, expect: Value) {
        let fitted = convert(&json!({ "type": "object", "properties": { "x": schema } }));
        assert_eq!(fitted["properties"]["x"], expect, "{schema}");
    }

    #[test]
    fn values_are_expressed_in_common_keywords() {
        check(json!({ "type": "string", "title": "X" }), json!({ "type": "string" }));
        check(json!({ "type": ["string", "null"] }), json!({ "type": "string", "nullable": true }));
        check(
            json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "null" }], "default": null, "description": "n" }),
            json!({ "description": "n", "type": "integer", "minimum": 1, "nullable": true }),
        );
        check(
            json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
        );
        check(
            json!({ "oneOf": [{ "const": "a", "title": "A" }, { "const": "b" }, { "type": "null" }] }),
            json!({ "type": "string", "enum": ["a", "b"], "nullable": true }),
        );
        check(json!({ "anyOf": [{ "type": "string" }, true] }), json!({}));
        check(
            json!({ "type": ["string", "integer"] }),
            json!({ "description": "string or integer" }),
        );
        check(json!({ "type": ["integer", "number"] }), json!({ "type": "number" }));
        check(
            json!({ "type": "integer", "enum": [1, 2] }),
            json!({ "type": "integer", "description": "one of 1, 2" }),
        );
        check(
            json!({ "enum": ["a", null] }),
            json!({ "nullable": true, "type": "string", "enum": ["a"] }),
        );
        check(json!({ "type": "array" }), json!({ "type": "array", "items": {} }));
        check(
            json!({ "type": "array", "prefixItems": [{ "type": "string" }], "items": false }),
            json!({ "items": {}, "type": "array" }),
        );
        check(
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "type": "object", "description": "values by name, each a string", "properties": {} }),
        );
        check(
            json!({ "type": "string", "format": "uri", "pattern": "^(?=a)", "minLength": 1 }),
            json!({ "type": "string", "minLength": 1, "description": "format: uri" }),
        );
        check(
            json!({ "type": "string", "pattern": "^[a-z]+$" }),
            json!({ "type": "string", "pattern": "^[a-z]+$" }),
        );
        check(json!({ "not": { "type": "string" }, "if": {}, "$comment": "x" }), json!({}));
        check(json!(true), json!({}));
        check(
            json!({ "allOf": [{ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] },
                { "properties": { "b": { "type": "integer" } }, "required": ["b", "c"] }] }),
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } },
                "required": ["a", "b"] }),
        );
        check(
            json!({ "allOf": [{ "type": "integer" }, { "type": "number" }] }),
            json!({ "type": "number" }),
        );
        check(
            json!({ "description": "a\u{200b}\u{1b}[31mb", "type": "string" }),
            json!({ "description": "ab", "type": "string" }),
        );
    }

    #[test]
    fn the_result_is_always_an_object() {
        let check = |schema: Value, expect: Value| assert_eq!(convert(&schema), expect, "{schema}");
        let empty = json!({ "type": "object", "properties": {} });
        check(Value::Null, empty.clone());
        check(json!(true), empty.clone());
        check(json!("x"), empty.clone());
        check(json!({ "type": "string" }), empty.clone());
        check(json!({ "type": ["object", "null"] }), empty.clone());
        check(
            json!({ "$schema": "x", "$id": "y", "title": "T", "type": "object", "additionalProperties": false }),
            empty,
        );
        check(
            json!({ "type": "object", "required": ["a", "b", "a", 1], "properties": { "a": { "title": "A" }, "z": false } }),
            json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] }),
        );
        check(
            json!({ "anyOf": [
                { "type": "object", "properties": { "kind": { "const": "a" }, "a": { "type": "string" } }, "required": ["kind", "a"] },
                { "type": "object", "properties": { "kind": { "const": "b" }, "b": { "type": "string" } }, "required": ["kind"] },
            ] }),
            json!({ "type": "object", "properties": { "kind": { "type": "string", "enum": ["a", "b"] },
                "a": { "type": "string" }, "b": { "type": "string" } }, "required": ["kind"] }),
        );
        check(
            json!({ "properties": { "ä": { "type": "string" }, "a": {} }, "required": ["ä", "a"] }),
            json!({ "type": "object", "properties": { "a": {} }, "required": ["a"], "description": "also takes ä" }),
        );
        check(
            json!({ "properties": { "title": { "type": "string" }, "$id": { "type": "string" } } }),
            json!({ "type": "object", "properties": { "title": { "type": "string" } }, "description": "also takes $id" }),
        );
    }

    #[test]
    fn references_are_followed_without_recursion() {
        let schema = json!({ "type": "object", "$defs": {
                "P%q/r": { "type": "object", "properties": { "n": { "type": "integer" } } },
                "Tree": { "type": "object", "properties": { "next": { "$ref": "#/$defs/Tree" } } },
            }, "properties": {
                "p": { "$ref": "#/$defs/P%25q~1r", "description": "where" },
                "t": { "$ref": "#/$defs/Tree" },
                "far": { "$ref": "https://a.example/x.json#/Y" },
                "gone": { "$ref": "#/$defs/None" },
            } });
        assert_eq!(
            convert(&schema)["properties"],
            json!({
                "p": { "description": "where", "type": "object", "properties": { "n": { "type": "integer" } } },
                "t": { "type": "object", "properties": { "next": { "description": "a Tree" } } },
                "far": { "description": "a Y" },
                "gone": { "description": "a None" },
            })
        );
        let itself = json!({ "$ref": "#" });
        assert_eq!(convert(&itself)["type"], "object");
    }

    #[test]
    fn huge_schemas_are_truncated() {
        // Each level refers to the next one twice.
        let mut defs = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            let level_schema = json!({ "type": "object", "properties": { "a": next, "b": next } });
            defs.insert(format!("d{level}"), level_schema);
        }
        let wide: serde_json::Map<String, Value> = (0..100_000)
            .map(|number| (format!("p{number}"), json!({ "type": "string" })))
            .collect();
        let mut deep = json!({ "type": "string" });
        for _ in 0..100 {
            deep = json!({ "type": "object", "properties": { "x": deep } });
        }
        for schema in [
            json!({ "$defs": defs, "$ref": "#/$defs/d0" }),
            json!({ "properties": wide }),
            deep,
            json!({ "properties": { "x": { "description": "é".repeat(1 << 20) } } }),
            json!({ "properties": { "x": { "enum": vec!["long"; 1 << 17] } } }),
            json!({ "required": vec!["long"; 1 << 17] }),
        ] {
            let fitted = convert(&schema);
            assert!(fitted.to_string().len() < 2 * MAX_BYTES);
            assert_eq!(fitted["type"], "object");
        }
    }

    /// Expresses `null` in the form that validators know.
    fn usual(fitted: &Value) -> Value {
        match fitted {
            Value::Object(members) => {
                let mut members: serde_json::Map<String, Value> =
                    members.iter().map(|(name, value)| (name.clone(), usual(value))).collect();
                if members.remove("nullable") == Some(Value::Bool(true)) {
                    return json!({ "anyOf": [members, { "type": "null" }] });
                }
                Value::Object(members)
            }
            Value::Array(items) => items.iter().map(usual).collect(),
            other => other.clone(),
        }
    }

    #[test]
    fn valid_arguments_remain_valid() {
        let schemas = [
            json!({ "type": ["string", "null"], "enum": ["a", null] }),
            json!({ "anyOf": [{ "type": "string", "format": "uri" }, { "type": "null" }] }),
            json!({ "oneOf": [{ "type": "integer" }, { "type": "string", "pattern": "^[^b]" }] }),
            json!({ "allOf": [{ "type": "number", "minimum": 1 }, { "type": "integer", "minimum": 2 }] }),
            json!({ "enum": [1, "a", null, [1]] }),
            json!({ "const": 1 }),
            json!({ "type": "array", "prefixItems": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "type": "array", "items": { "type": ["integer", "null"] } }),
            json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "additionalProperties": true }),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "$ref": "#/$defs/tree" }),
            json!({ "not": { "type": "string" } }),
            json!({ "type": ["integer", "number", "string"] }),
            json!({ "anyOf": [{ "enum": ["a"] }, { "enum": ["b", null] }] }),
            json!({ "type": "string", "nullable": true, "minLength": 1 }),
        ];
        let values = [
            json!(null),
            json!("a"),
            json!("b"),
            json!(""),
            json!(1),
            json!(2),
            json!(1.5),
            json!(true),
            json!([]),
            json!([1]),
            json!(["a", 1]),
            json!([null]),
            json!({}),
            json!({ "a": 1 }),
            json!({ "a": "x" }),
            json!({ "kids": [{ "kids": [{ "kids": "odd" }] }] }),
            json!({ "kids": [{}] }),
        ];
        let tree = json!({ "type": "object", "properties": { "kids": { "type": "array",
            "items": { "$ref": "#/$defs/tree" } } } });
        let mut admitted = 0;
        for schema in schemas {
            let whole = json!({ "type": "object", "$defs": { "tree": tree }, "properties": { "x": schema },
                "required": ["x"] });
            let fitted = usual(&convert(&whole));
            let (mut compiler, mut compiled) = (boon::Compiler::new(), boon::Schemas::new());
            let [theirs, ours] =
                [("whole.json", &whole), ("fitted.json", &fitted)].map(|(name, schema)| {
                    compiler.add_resource(name, schema.clone()).unwrap();
                    compiler.compile(name, &mut compiled).unwrap()
                });
            for value in &values {
                let arguments = json!({ "x": value });
                if compiled.validate(&arguments, theirs).is_ok() {
                    admitted += 1;
                    assert!(
                        compiled.validate(&arguments, ours).is_ok(),
                        "{value}: {whole} became {fitted}"
                    );
                }
            }
        }
        assert!(admitted > 50, "{admitted}");
    }

    #[test]
    fn fuzz_any_json_becomes_an_object() {
        let seeds: &[&[u8]] = &[
            br##"{"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"type": ["string", "null"]}},
                "required": ["a"], "$defs": {"A": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}, {"enum": ["x", 1]}]}}}"##,
            br##"{"allOf": [{"properties": {"a": {"const": "x"}}}, {"oneOf": [{"required": ["a"]}, true, false]}], "items": []}"##,
            br##"{"properties": {"a": {"type": "array", "items": {"$ref": "#"}, "minItems": 1e99, "pattern": "(?<a"}}}"##,
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let Ok(schema) = serde_json::from_slice::<Value>(input) else {
                return;
            };
            let fitted = convert(&schema);
            assert_eq!(fitted["type"], "object");
            assert!(fitted["properties"].is_object());
            let text = fitted.to_string();
            assert!(text.len() <= 2 * MAX_BYTES);
            assert!(!text.contains("\"$ref\":"));
            let required = fitted["required"].as_array().into_iter().flatten();
            for name in required {
                assert!(fitted["properties"].get(name.as_str().unwrap()).is_some());
            }
        });
    }
}
