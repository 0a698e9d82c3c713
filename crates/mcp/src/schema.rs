//! Converts the argument schemas of servers into a form that every provider accepts. No I/O.
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
/// Bytes that are counted for each schema, however small.
const MIN_SCHEMA_BYTES: usize = 24;
/// Approximate maximum of bytes for one tool.
const MAX_BYTES: usize = 16 << 10;
/// Maximum of characters of a description within a schema.
const MAX_DESCRIPTION_CHARS: usize = 500;
/// Maximum of bytes of a default and of a pattern. Longer ones are left out.
const MAX_DEFAULT_BYTES: usize = 200;
const MAX_PATTERN_BYTES: usize = 200;
/// Maximum number of choices, and of names of properties, in a description.
const MAX_DESCRIBED_CHOICES: usize = 10;
const MAX_DESCRIBED_NAMES: usize = 5;
/// Bytes of the quotes and separators around a choice.
const CHOICE_OVERHEAD_BYTES: usize = 4;
/// Maximum number of alternatives or choices. With more, any value is allowed.
const MAX_ALTERNATIVES: usize = 200;

/// The JSON types, except for `null`.
const TYPES: &[&str] = &["string", "integer", "number", "boolean", "array", "object"];

/// Converts `schema` into one that every provider accepts and that admits the same arguments.
pub fn convert(schema: &Value) -> Value {
    let mut converter = SchemaConverter {
        root: schema,
        open_refs: Vec::new(),
        remaining_schemas: MAX_SCHEMAS,
        remaining_bytes: MAX_BYTES,
    };
    let mut converted_schema = merge_into_object(converter.convert(schema, 0));
    if converter.remaining_bytes == 0 || converter.remaining_schemas == 0 {
        add_to_description(&mut converted_schema, "truncated: schema too large");
    }
    let converted_schema = Value::Object(converted_schema);
    if converted_schema.to_string().len() > 2 * MAX_BYTES {
        // A safeguard: the converter has already counted the size.
        json!({ "type": "object", "properties": {} })
    } else {
        converted_schema
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
        let Value::Object(schema) = schema else {
            return ConvertedSchema::new();
        };
        if depth > MAX_DEPTH || !self.spend(MIN_SCHEMA_BYTES) {
            return ConvertedSchema::new();
        }
        self.remaining_schemas = self.remaining_schemas.saturating_sub(1);
        let mut converted_schema = self.convert_keywords(schema, depth);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            converted_schema =
                intersect(converted_schema, self.convert_reference(reference, depth));
        }
        for part in list_field(schema, "allOf").iter().take(MAX_ALTERNATIVES) {
            converted_schema = intersect(converted_schema, self.convert(part, depth + 1));
        }
        for key in ["anyOf", "oneOf"] {
            if schema.get(key).is_some_and(Value::is_array) {
                let alternatives = self.convert_alternatives(list_field(schema, key), depth);
                converted_schema = intersect(converted_schema, alternatives);
            }
        }
        add_required_keywords(&mut converted_schema);
        converted_schema
    }

    /// Takes `bytes` from the size budget. Returns false if it is used up.
    fn spend(&mut self, bytes: usize) -> bool {
        let fits = self.remaining_schemas > 0 && self.remaining_bytes > bytes;
        self.remaining_bytes = if fits { self.remaining_bytes - bytes } else { 0 };
        fits
    }

    /// Converts the keywords of `schema` itself, without its references and alternatives.
    fn convert_keywords(
        &mut self,
        schema: &'s Map<String, Value>,
        depth: usize,
    ) -> ConvertedSchema {
        let mut converted_schema = ConvertedSchema::new();
        if let Some(text) = schema.get("description").and_then(Value::as_str) {
            let text = sanitize::truncate(sanitize::clean(text).trim(), MAX_DESCRIPTION_CHARS);
            if !text.is_empty() && self.spend(text.len()) {
                converted_schema.insert("description".into(), text.into());
            }
        }
        convert_type(schema, &mut converted_schema);
        self.convert_choices(schema, &mut converted_schema);
        self.convert_properties(schema, &mut converted_schema, depth);
        match schema.get("items") {
            Some(items @ Value::Object(_)) if !schema.contains_key("prefixItems") => {
                let items = self.convert(items, depth + 1);
                converted_schema.insert("items".into(), Value::Object(items));
            }
            Some(_) => drop(converted_schema.insert("items".into(), json!({}))),
            None => {}
        }
        for key in ["minimum", "maximum"] {
            if let Some(limit @ Value::Number(_)) = schema.get(key) {
                converted_schema.insert(key.into(), limit.clone());
            }
        }
        for key in ["minLength", "maxLength", "minItems", "maxItems"] {
            if let Some(limit) = schema.get(key).and_then(Value::as_u64) {
                converted_schema.insert(key.into(), limit.into());
            }
        }
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        if let Some(pattern) = text("pattern").filter(|pattern| is_portable_pattern(pattern))
            && self.spend(pattern.len())
        {
            converted_schema.insert("pattern".into(), pattern.into());
        }
        match text("format") {
            // The only format that every provider knows.
            Some("date-time") => drop(converted_schema.insert("format".into(), "date-time".into())),
            Some(other) => add_to_description(
                &mut converted_schema,
                &format!("format: {}", sanitize::single_line(other, 30)),
            ),
            None => {}
        }
        if let Some(default) = schema.get("default")
            && !default.is_object()
            && !default.is_array()
            && !default.is_null()
            && default.to_string().len() <= MAX_DEFAULT_BYTES
            && self.spend(default.to_string().len())
        {
            converted_schema.insert("default".into(), default.clone());
        }
        converted_schema
    }

    /// Converts the possible values. Not every provider accepts choices other than texts.
    fn convert_choices(
        &mut self,
        schema: &Map<String, Value>,
        converted_schema: &mut ConvertedSchema,
    ) {
        let mut choices: Vec<&Value> = match (schema.get("const"), schema.get("enum")) {
            (Some(only), _) => vec![only],
            (None, Some(Value::Array(choices))) => choices.iter().collect(),
            _ => return,
        };
        let count = choices.len();
        choices.retain(|choice| !choice.is_null());
        if choices.len() < count {
            converted_schema.insert("nullable".into(), true.into());
        }
        let texts: Vec<&str> = choices.iter().filter_map(|choice| choice.as_str()).collect();
        let may_be_text = converted_schema.get("type").is_none_or(|kind| kind == "string");
        let size: usize = texts.iter().map(|text| text.len() + CHOICE_OVERHEAD_BYTES).sum();
        let are_all_texts = texts.len() == choices.len() && !texts.is_empty() && may_be_text;
        if are_all_texts && texts.len() <= MAX_ALTERNATIVES && self.spend(size) {
            converted_schema.insert("type".into(), "string".into());
            converted_schema.insert("enum".into(), json!(texts));
            return;
        }
        let choice_texts: Vec<String> = choices
            .iter()
            .take(MAX_DESCRIBED_CHOICES)
            .map(|choice| sanitize::single_line(&choice.to_string(), 40))
            .collect();
        if !choice_texts.is_empty() {
            let more = if choices.len() > MAX_DESCRIBED_CHOICES { ", …" } else { "" };
            add_to_description(
                converted_schema,
                &format!("one of {}{more}", choice_texts.join(", ")),
            );
        }
    }

    fn convert_properties(
        &mut self,
        schema: &'s Map<String, Value>,
        converted_schema: &mut ConvertedSchema,
        depth: usize,
    ) {
        let members = match schema.get("properties") {
            Some(Value::Object(members)) => Some(members),
            _ => None,
        };
        let mut properties = Map::new();
        let mut omitted_names = Vec::new();
        for (name, schema) in members.into_iter().flatten() {
            match schema {
                // `false` admits no value.
                Value::Bool(false) => {}
                _ if !is_property_name(name) => {
                    omitted_names.push(sanitize::single_line(name, 40));
                }
                _ if !self.spend(name.len()) => break,
                _ => {
                    let member = self.convert(schema, depth + 1);
                    properties.insert(name.clone(), Value::Object(member));
                }
            }
        }
        if !omitted_names.is_empty() {
            omitted_names.truncate(MAX_DESCRIBED_NAMES);
            add_to_description(
                converted_schema,
                &format!("also takes {}", omitted_names.join(", ")),
            );
        }
        if let Some(Value::Object(values)) = schema.get("additionalProperties")
            && properties.is_empty()
        {
            let kind = values.get("type").and_then(Value::as_str);
            let kind = kind.filter(|kind| TYPES.contains(kind));
            let suffix = kind.map(|kind| format!(", each a {kind}")).unwrap_or_default();
            add_to_description(converted_schema, &format!("values by name{suffix}"));
        }
        let mut required: Vec<&str> = Vec::new();
        for name in list_field(schema, "required").iter().filter_map(Value::as_str) {
            if !required.contains(&name) && required.len() < MAX_SCHEMAS {
                required.push(name);
            }
        }
        if !required.is_empty() {
            converted_schema.insert("required".into(), json!(required));
        }
        if members.is_some() {
            converted_schema.insert("properties".into(), Value::Object(properties));
        }
    }

    /// Converts the schema at `reference` in the same document. Recursive schemas are cut.
    fn convert_reference(&mut self, reference: &'s str, depth: usize) -> ConvertedSchema {
        let describe = || {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let mut converted_schema = ConvertedSchema::new();
            add_to_description(
                &mut converted_schema,
                &format!("a {}", sanitize::single_line(name, 60)),
            );
            converted_schema
        };
        if self.open_refs.contains(&reference) {
            return describe();
        }
        let pointer = reference.strip_prefix('#').map(decode_fragment);
        let target = pointer.and_then(|pointer| self.root.pointer(&pointer));
        let Some(target) = target else {
            return describe();
        };
        self.open_refs.push(reference);
        let converted_schema = self.convert(target, depth + 1);
        self.open_refs.pop();
        converted_schema
    }

    /// Converts `alternatives`; at least one of them must hold.
    fn convert_alternatives(&mut self, alternatives: &'s [Value], depth: usize) -> ConvertedSchema {
        let mut is_nullable = false;
        let mut schemas: Vec<ConvertedSchema> = Vec::new();
        for alternative in alternatives.iter().take(MAX_ALTERNATIVES) {
            if is_null(alternative) {
                is_nullable = true;
                continue;
            }
            if *alternative == Value::Bool(false) {
                continue;
            }
            let converted_schema = self.convert(alternative, depth + 1);
            if !schemas.contains(&converted_schema) {
                schemas.push(converted_schema);
            }
        }
        let admits_all = |schema: &ConvertedSchema| schema.keys().all(|key| key == "description");
        if alternatives.len() > MAX_ALTERNATIVES
            || schemas.is_empty()
            || schemas.iter().any(admits_all)
        {
            return ConvertedSchema::new();
        }
        if schemas.len() == 1 || schemas.iter().all(is_choice) {
            let mut joined = schemas.into_iter().reduce(join_choices).unwrap_or_default();
            if is_nullable {
                joined.insert("nullable".into(), true.into());
            }
            return joined;
        }
        if is_nullable {
            schemas[0].insert("nullable".into(), true.into());
        }
        let schemas: Vec<Value> = schemas.into_iter().map(Value::Object).collect();
        ConvertedSchema::from_iter([("anyOf".to_owned(), Value::Array(schemas))])
    }
}

/// Converts the type, if there is only one. Several types are described in words.
fn convert_type(schema: &Map<String, Value>, converted_schema: &mut ConvertedSchema) {
    let type_names: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut kinds: Vec<&str> = Vec::new();
    for kind in type_names.iter().filter(|kind| TYPES.contains(kind)) {
        if !kinds.contains(kind) {
            kinds.push(kind);
        }
    }
    if kinds.contains(&"number") {
        kinds.retain(|kind| *kind != "integer");
    }
    match kinds[..] {
        [kind] => {
            converted_schema.insert("type".into(), kind.into());
            if type_names.contains(&"null") || schema.get("nullable") == Some(&Value::Bool(true)) {
                converted_schema.insert("nullable".into(), true.into());
            }
        }
        [] => {}
        _ => add_to_description(converted_schema, &kinds.join(" or ")),
    }
}

/// Adds the keywords that providers require for objects and arrays.
fn add_required_keywords(converted_schema: &mut ConvertedSchema) {
    if !converted_schema.contains_key("type") && !converted_schema.contains_key("anyOf") {
        let has_properties = converted_schema.contains_key("properties");
        // A schema with both keywords is for either.
        if has_properties != converted_schema.contains_key("items") {
            let kind = if has_properties { "object" } else { "array" };
            converted_schema.insert("type".into(), kind.into());
        }
    }
    match converted_schema.get("type").and_then(Value::as_str) {
        Some("object") => {
            let properties = converted_schema.entry("properties").or_insert_with(|| json!({}));
            let names: Vec<String> = properties
                .as_object()
                .map(|members| members.keys().cloned().collect())
                .unwrap_or_default();
            retain_required(converted_schema, &names);
        }
        Some("array") => drop(converted_schema.entry("items").or_insert_with(|| json!({}))),
        _ => {}
    }
    if !converted_schema.contains_key("properties")
        && converted_schema.get("type").is_some_and(|kind| kind != "object")
    {
        converted_schema.remove("required");
    }
    if !converted_schema.contains_key("type") {
        // Without a type, `nullable` has no meaning.
        converted_schema.remove("nullable");
    }
}

/// Removes names from `required` that are not properties.
fn retain_required(converted_schema: &mut ConvertedSchema, properties: &[String]) {
    let Some(Value::Array(required)) = converted_schema.get_mut("required") else {
        return;
    };
    required.retain(|name| properties.iter().any(|property| name == property));
    if required.is_empty() {
        converted_schema.remove("required");
    }
}

/// Merges everything into an object: no provider accepts alternatives at the top level.
fn merge_into_object(mut converted_schema: ConvertedSchema) -> ConvertedSchema {
    if let Some(Value::Array(alternatives)) = converted_schema.remove("anyOf") {
        let objects = alternatives.into_iter().filter_map(|alternative| match alternative {
            Value::Object(schema) if schema.get("type").is_none_or(|kind| kind == "object") => {
                Some(merge_into_object(schema))
            }
            _ => None,
        });
        if let Some(union) = objects.reduce(unite) {
            converted_schema = intersect(converted_schema, union);
        }
    }
    let mut object = ConvertedSchema::new();
    object.insert("type".into(), "object".into());
    let properties = take_properties(&mut converted_schema);
    let names: Vec<String> = properties.keys().cloned().collect();
    object.insert("properties".into(), Value::Object(properties));
    for key in ["required", "description"] {
        if let Some(value) = converted_schema.remove(key) {
            object.insert(key.into(), value);
        }
    }
    retain_required(&mut object, &names);
    object
}

fn take_properties(converted_schema: &mut ConvertedSchema) -> Map<String, Value> {
    match converted_schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    }
}

/// Combines constraints that must both hold.
fn intersect(mut converted_schema: ConvertedSchema, other: ConvertedSchema) -> ConvertedSchema {
    if converted_schema.is_empty() {
        return other;
    }
    let kinds = (converted_schema.get("type").cloned(), other.get("type").cloned());
    for (key, other_value) in other {
        let Some(value) = converted_schema.get_mut(&key) else {
            converted_schema.insert(key, other_value);
            continue;
        };
        match (key.as_str(), value, other_value) {
            ("description" | "default" | "format", ..) => {}
            ("properties", Value::Object(properties), Value::Object(other_properties)) => {
                for (name, other_property) in other_properties {
                    let property = match (properties.remove(&name), other_property) {
                        (Some(Value::Object(property)), Value::Object(other_property)) => {
                            Value::Object(intersect(property, other_property))
                        }
                        (_, other_property) => other_property,
                    };
                    properties.insert(name, property);
                }
            }
            ("required", Value::Array(names), Value::Array(other_names)) => {
                for name in other_names {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
            (_, value, other_value) if *value == other_value => {}
            // The intersection would have to be computed. A schema without this keyword is permissive enough.
            _ => drop(converted_schema.remove(&key)),
        }
    }
    if let (Some(Value::String(kind)), Some(Value::String(other_kind))) = kinds
        && kind != other_kind
        && [kind, other_kind].iter().all(|kind| ["integer", "number"].contains(&kind.as_str()))
    {
        converted_schema.insert("type".into(), "number".into());
    }
    converted_schema
}

/// Combines constraints on objects; at least one of them must hold.
fn unite(mut converted_schema: ConvertedSchema, mut other: ConvertedSchema) -> ConvertedSchema {
    let mut properties = take_properties(&mut converted_schema);
    for (name, other_property) in take_properties(&mut other) {
        match properties.get_mut(&name) {
            None => drop(properties.insert(name, other_property)),
            Some(property) if *property == other_property => {}
            Some(property) => match (property.as_object().cloned(), other_property) {
                (Some(choices), Value::Object(other_choices))
                    if is_choice(&choices) && is_choice(&other_choices) =>
                {
                    *property = Value::Object(join_choices(choices, other_choices));
                }
                (_, other_property) => {
                    *property = json!({ "anyOf": [property.take(), other_property] });
                }
            },
        }
    }
    let other_required = other.remove("required").unwrap_or_default();
    if let Some(Value::Array(required)) = converted_schema.get_mut("required") {
        let other_names = other_required.as_array().map_or(&[][..], Vec::as_slice);
        required.retain(|name| other_names.contains(name));
    }
    converted_schema.remove("description");
    converted_schema.insert("properties".into(), Value::Object(properties));
    converted_schema
}

/// True if the schema is a choice of texts without other constraints.
fn is_choice(converted_schema: &ConvertedSchema) -> bool {
    let is_allowed = |key: &String| ["type", "enum", "description", "nullable"].contains(&&**key);
    converted_schema.contains_key("enum") && converted_schema.keys().all(is_allowed)
}

/// Joins the choices of both.
fn join_choices(
    mut converted_schema: ConvertedSchema,
    mut other: ConvertedSchema,
) -> ConvertedSchema {
    if let (Some(Value::Array(choices)), Some(Value::Array(other_choices))) =
        (converted_schema.get_mut("enum"), other.remove("enum"))
    {
        for choice in other_choices {
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
    }
    if let Some(nullable) = other.remove("nullable") {
        converted_schema.insert("nullable".into(), nullable);
    }
    // The description applied to some of the choices only.
    converted_schema.remove("description");
    converted_schema
}

/// Adds to the description a constraint that no keyword can express.
fn add_to_description(converted_schema: &mut ConvertedSchema, constraint: &str) {
    let text = match converted_schema.get("description").and_then(Value::as_str) {
        Some(text) => format!("{text} ({constraint})"),
        None => constraint.to_owned(),
    };
    converted_schema.insert("description".into(), text.into());
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
    pattern.len() <= MAX_PATTERN_BYTES
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
        let digits = if *first == b'%' { after.get(..2) } else { None };
        let byte =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, convert};
    use serde_json::{Value, json};

    fn check(schema: Value, expect: Value) {
        let converted_schema = convert(&json!({ "type": "object", "properties": { "x": schema } }));
        assert_eq!(converted_schema["properties"]["x"], expect, "{schema}");
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
            let converted_schema = convert(&schema);
            assert!(converted_schema.to_string().len() < 2 * MAX_BYTES);
            assert_eq!(converted_schema["type"], "object");
        }
    }

    /// Expresses `null` in the form that validators know.
    fn usual(converted_schema: &Value) -> Value {
        match converted_schema {
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
            let converted_schema = usual(&convert(&whole));
            let (mut compiler, mut compiled) = (boon::Compiler::new(), boon::Schemas::new());
            let [theirs, ours] =
                [("whole.json", &whole), ("converted_schema.json", &converted_schema)].map(
                    |(name, schema)| {
                        compiler.add_resource(name, schema.clone()).unwrap();
                        compiler.compile(name, &mut compiled).unwrap()
                    },
                );
            for value in &values {
                let arguments = json!({ "x": value });
                if compiled.validate(&arguments, theirs).is_ok() {
                    admitted += 1;
                    assert!(
                        compiled.validate(&arguments, ours).is_ok(),
                        "{value}: {whole} became {converted_schema}"
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
            let converted_schema = convert(&schema);
            assert_eq!(converted_schema["type"], "object");
            assert!(converted_schema["properties"].is_object());
            let text = converted_schema.to_string();
            assert!(text.len() <= 2 * MAX_BYTES);
            assert!(!text.contains("\"$ref\":"));
            let required = converted_schema["required"].as_array().into_iter().flatten();
            for name in required {
                assert!(converted_schema["properties"].get(name.as_str().unwrap()).is_some());
            }
        });
    }
}
