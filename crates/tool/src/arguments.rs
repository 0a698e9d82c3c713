//! Casts tool arguments, as models send them, to the types of a schema and checks them against it. No I/O.
//!
//! Small slips are corrected in the same way as in the Python program: numbers sent as text, JSON within a string, a
//! wrapper object. Everything else is returned as one error that names every problem.

use serde_json::{Map, Value};

/// The number `key` of a call's arguments. Zero and less count as not given: models fill arguments that they do not mean with them.
pub(crate) fn usize_argument(arguments: &Value, key: &str) -> Option<usize> {
    let number = arguments[key].as_u64().filter(|number| *number > 0)?;
    Some(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Casts `arguments` to the object that `schema` describes, and checks them.
///
/// # Errors
/// The arguments do not fit. The error is a text for the model, with every problem and the parameters that exist.
pub fn cast_and_check(schema: &Value, arguments: &Value) -> Result<Value, String> {
    let object = match unwrap_arguments(arguments) {
        Value::Object(object) => object,
        Value::String(text) => {
            let reason = serde_json::from_str::<Value>(&text)
                .err()
                .map_or_else(|| "not an object".into(), |error| error.to_string());
            return Err(format!(
                "the arguments are not a JSON object ({reason}); send the complete call again"
            ));
        }
        _ => {
            return Err(format!(
                "the arguments must be a JSON object with {}",
                describe_parameters(schema)
            ));
        }
    };
    let mut problems = Vec::new();
    let cast_arguments = cast_object(schema, object, "", &mut problems);
    if problems.is_empty() {
        Ok(Value::Object(cast_arguments))
    } else {
        Err(format!(
            "invalid arguments: {}; expected {}",
            problems.join("; "),
            describe_parameters(schema)
        ))
    }
}

/// Corrects obvious slips in `arguments` and leaves everything else unchanged. Checks nothing: `schema` only resembles
/// the one that the arguments will be checked against.
///
/// # Errors
/// The arguments are not an object. The error is a text for the model.
pub fn repair(schema: &Value, arguments: &Value) -> Result<Value, String> {
    let is_property = schema["properties"].get("arguments").is_some();
    let arguments = if is_property && arguments.is_object() {
        arguments.clone()
    } else {
        unwrap_arguments(arguments)
    };
    match arguments {
        Value::Object(object) => {
            let object = cast_object(schema, object, "", &mut Vec::new());
            Ok(Value::Object(object))
        }
        other => cast_and_check(schema, &other),
    }
}

/// Removes an `arguments` object around the arguments, which some models add.
fn unwrap_arguments(arguments: &Value) -> Value {
    let inner = match arguments {
        Value::Object(object) if object.len() == 1 => {
            object.get("arguments").filter(|inner| inner.is_object())
        }
        _ => None,
    };
    inner.unwrap_or(arguments).clone()
}

fn cast_object(
    schema: &Value,
    object: Map<String, Value>,
    path: &str,
    problems: &mut Vec<String>,
) -> Map<String, Value> {
    let no_properties = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&no_properties);
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut cast_properties = Map::new();
    for (name, value) in object {
        let property_path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match properties.get(&name) {
            // Models send null for an optional argument that they leave out, so drop it unless the schema gives null a
            // meaning.
            Some(property)
                if value.is_null()
                    && !required.contains(&name.as_str())
                    && property.get("type").is_some()
                    && property["nullable"] != true => {}
            Some(property) => {
                let value = cast_value(property, value, &property_path, problems);
                cast_properties.insert(name, value);
            }
            None if schema["properties"].is_object() => {
                let suggestion =
                    properties.keys().find(|key| strsim::jaro_winkler(key, &name) > 0.85);
                let suggestion =
                    suggestion.map(|key| format!(", did you mean `{key}`?")).unwrap_or_default();
                problems.push(format!("unknown argument `{property_path}`{suggestion}"));
                cast_properties.insert(name, value);
            }
            None => drop(cast_properties.insert(name, value)),
        }
    }
    for name in required.into_iter().filter(|name| !cast_properties.contains_key(*name)) {
        let property_path =
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        problems.push(format!("`{property_path}` is missing"));
    }
    cast_properties
}

fn cast_value(schema: &Value, value: Value, path: &str, problems: &mut Vec<String>) -> Value {
    if value.is_null() && schema["nullable"] == true {
        return value;
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    let value = cast(kind, value);
    let has_type = match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if !has_type {
        problems.push(format!("`{path}` must be of type {kind}"));
        return value;
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(&value)
    {
        problems.push(format!("`{path}` must be one of {}", Value::Array(choices.clone())));
    }
    let bound = |key: &str| schema[key].as_f64();
    if let (Some(minimum), Some(number)) = (bound("minimum"), value.as_f64())
        && number < minimum
    {
        problems.push(format!("`{path}` must be at least {minimum}"));
    }
    if let (Some(maximum), Some(number)) = (bound("maximum"), value.as_f64())
        && number > maximum
    {
        problems.push(format!("`{path}` must be at most {maximum}"));
    }
    if let (Some(min_chars), Some(text)) = (schema["minLength"].as_u64(), value.as_str())
        && (text.chars().count() as u64) < min_chars
    {
        problems.push(format!("`{path}` must not be empty"));
    }
    match value {
        Value::Array(items) if schema["items"].is_object() => {
            let item = |(index, item)| {
                cast_value(&schema["items"], item, &format!("{path}[{index}]"), problems)
            };
            items.into_iter().enumerate().map(item).collect()
        }
        Value::Object(object) if schema["properties"].is_object() => {
            Value::Object(cast_object(schema, object, path, problems))
        }
        other => other,
    }
}

/// Converts a value that a model sent as another type.
fn cast(kind: &str, value: Value) -> Value {
    match (kind, &value) {
        ("integer", Value::String(text)) => {
            text.trim().parse::<i64>().map_or(value.clone(), Value::from)
        }
        ("integer", Value::Number(number)) => match number.as_f64() {
            // 3.0 becomes 3. Numbers beyond 2^53 have already lost digits.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
                format!("{float:.0}").parse::<i64>().map_or(value.clone(), Value::from)
            }
            _ => value,
        },
        ("number", Value::String(text)) => text
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|float| float.is_finite())
            .map_or(value.clone(), Value::from),
        ("boolean", Value::String(text)) => match text.trim().to_lowercase().as_str() {
            "true" | "1" | "yes" => true.into(),
            "false" | "0" | "no" => false.into(),
            _ => value,
        },
        ("string", Value::Number(_) | Value::Bool(_)) => value.to_string().into(),
        ("array" | "object", Value::String(text)) => serde_json::from_str(text).unwrap_or(value),
        _ => value,
    }
}

/// The parameters of a schema, such as `path (string), limit (integer, optional)`.
fn describe_parameters(schema: &Value) -> String {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let describe = |(name, property): (&String, &Value)| {
        let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
        format!("{name} ({}{optional})", property["type"].as_str().unwrap_or("any"))
    };
    let list: Vec<String> =
        schema["properties"].as_object().into_iter().flatten().map(describe).collect();
    if list.is_empty() { "none".into() } else { list.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::{cast_and_check, repair};
    use serde_json::{Value, json};

    fn schema() -> Value {
        json!({ "type": "object", "required": ["path"], "properties": {
            "path": { "type": "string", "minLength": 1 },
            "limit": { "type": "integer", "minimum": 1, "maximum": 9 },
            "share": { "type": "number" },
            "all": { "type": "boolean" },
            "mode": { "type": "string", "enum": ["a", "b"] },
            "names": { "type": "array", "items": { "type": "string" } },
        } })
    }

    #[test]
    fn small_mistakes_are_corrected() {
        let check = |sent: Value, expect: Value| {
            assert_eq!(cast_and_check(&schema(), &sent), Ok(expect), "{sent}");
        };
        check(json!({ "path": "x" }), json!({ "path": "x" }));
        check(json!({ "arguments": { "path": "x" } }), json!({ "path": "x" }));
        check(json!({ "path": "x", "limit": "3" }), json!({ "path": "x", "limit": 3 }));
        check(json!({ "path": "x", "limit": 3.0 }), json!({ "path": "x", "limit": 3 }));
        check(json!({ "path": "x", "limit": null }), json!({ "path": "x" }));
        check(json!({ "path": 5 }), json!({ "path": "5" }));
        check(json!({ "path": "x", "all": "Yes" }), json!({ "path": "x", "all": true }));
        check(json!({ "path": "x", "share": "0.5" }), json!({ "path": "x", "share": 0.5 }));
        check(
            json!({ "path": "x", "names": "[\"a\", 1]" }),
            json!({ "path": "x", "names": ["a", "1"] }),
        );
    }

    #[test]
    fn repair_leaves_checks_to_the_server() {
        let schema = json!({ "type": "object", "required": ["a"], "properties": {
            "a": { "type": "integer" },
            "b": { "type": "string", "nullable": true },
            "c": { "type": "string" },
            "any": {},
            "arguments": { "type": "object" },
        } });
        let check = |sent: Value, expect: Value| {
            assert_eq!(repair(&schema, &sent), Ok(expect), "{sent}");
        };
        check(json!({ "a": "3", "b": null, "c": null }), json!({ "a": 3, "b": null }));
        check(json!({ "any": null, "more": [1] }), json!({ "any": null, "more": [1] }));
        check(json!({ "a": "x", "c": {} }), json!({ "a": "x", "c": {} }));
        check(json!({ "arguments": { "a": 1 } }), json!({ "arguments": { "a": 1 } }));
        assert!(repair(&schema, &json!([1])).is_err() && repair(&schema, &json!("{")).is_err());
        let plain = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
        assert_eq!(repair(&plain, &json!({ "arguments": { "a": 1 } })), Ok(json!({ "a": 1 })));
    }

    #[test]
    fn every_problem_is_reported() {
        let check = |sent: Value, words: &[&str]| {
            let error = cast_and_check(&schema(), &sent).unwrap_err();
            for word in words {
                assert!(error.contains(word), "no {word:?} in {error}");
            }
        };
        check(json!({}), &["`path` is missing", "path (string), limit (integer, optional)"]);
        check(
            json!({ "path": "", "limit": 0 }),
            &["`path` must not be empty", "`limit` must be at least 1"],
        );
        check(json!({ "path": "x", "limit": 10 }), &["at most 9"]);
        check(json!({ "path": "x", "limit": "many" }), &["`limit` must be of type integer"]);
        check(json!({ "path": "x", "limit": true }), &["of type integer"]);
        check(json!({ "path": "x", "mode": "c" }), &["one of [\"a\",\"b\"]"]);
        check(
            json!({ "pth": "x" }),
            &["unknown argument `pth`, did you mean `path`?", "`path` is missing"],
        );
        check(json!({ "path": "x", "names": [{}] }), &["`names[0]` must be of type string"]);
        check(json!("{\"path\": "), &["not a JSON object", "EOF"]);
        check(json!([1]), &["must be a JSON object"]);
    }

    #[test]
    fn fuzz_arguments_are_corrected_or_rejected() {
        let seeds: &[&[u8]] = &[
            br#"{"path": "a", "limit": "3", "list": "[1, 2]", "flag": "true"}"#,
            br#"{"path": ["a"], "limit": 1e99, "list": {"0": 1}, "flag": 0}"#,
            br#""{\"path\": \"a\"}""#,
            b"[[{\"path\": 7}]]",
        ];
        let schema = schema();
        nanobot_base::fuzz::check(seeds, |input, _| {
            if let Ok(value) = serde_json::from_slice(input)
                && let Ok(mended) = cast_and_check(&schema, &value)
            {
                assert!(mended.is_object());
                // Corrected arguments that passed once must pass unchanged.
                assert_eq!(cast_and_check(&schema, &mended).as_ref(), Ok(&mended));
            }
        });
    }
}
