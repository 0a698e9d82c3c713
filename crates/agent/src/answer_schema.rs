//! The answer format requested by `--schema`: a JSON schema, or a short list of fields that is converted to one.
//! Answers are checked with a JSON Schema validator.

use crate::turn::agent::AnswerFormat;
use anyhow::Result;
use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas, UrlLoader, ValidationError};
use nanobot_base::error::{Exit, WithHint, fail};
use serde_json::{Map, Value, json};

/// Maximum number of validation errors reported at once: more do not help a model.
const MAX_ERRORS: usize = 5;

/// Resource name of the schema in the validator; lets `$ref`s within the schema resolve, also by a relative `$id`.
const SCHEMA_NAME: &str = "https://schema.invalid/answer";

/// A compiled schema.
pub struct AnswerSchema {
    value: Value,
    compiled: Schemas,
    index: SchemaIndex,
}

/// Loader that rejects external references: nothing is fetched, and no file is read.
struct RejectingLoader;

impl UrlLoader for RejectingLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("`{url}` is not part of the schema").into())
    }
}

impl AnswerSchema {
    /// Parses `text`: JSON, or fields as `name, age int, tags str[]: what it is about`.
    ///
    /// # Errors
    /// Status 2 if `text` is neither, or not a valid schema.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let value = if text.starts_with('{') {
            serde_json::from_str(text).map_err(|error| {
                fail(Exit::Usage, format!("`--schema` is not valid JSON: {error}"))
            })?
        } else {
            schema_from_fields(text)?
        };
        let (mut compiler, mut compiled) = (Compiler::new(), Schemas::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.use_loader(Box::new(RejectingLoader));
        let schema_error = |error: CompileError| {
            let cause = describe_compile_error(&error, &value);
            fail(Exit::Usage, format!("`--schema` is not a valid JSON schema: {cause}"))
        };
        compiler.add_resource(SCHEMA_NAME, value.clone()).map_err(schema_error)?;
        let index = compiler.compile(SCHEMA_NAME, &mut compiled).map_err(schema_error)?;
        Ok(Self { value, compiled, index })
    }

    /// The instruction for the model, sent whether or not its provider supports schemas natively.
    pub fn instructions(&self) -> String {
        format!(
            "# Answer format\n\nYour final message must be a single JSON value and nothing else: no prose, no code \
             fence. It must satisfy this JSON schema:\n\n{}",
            self.value
        )
    }

    fn validation_errors(&self, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        if let Err(error) = self.compiled.validate(value, self.index) {
            collect_leaf_errors(&error, &mut errors);
        }
        errors.truncate(MAX_ERRORS);
        errors
    }
}

/// Describes why `schema` is not valid: the first mistake with its place, and without the name that the validator knows the schema by.
fn describe_compile_error(error: &CompileError, schema: &Value) -> String {
    let CompileError::ValidationError { src, .. } = error else {
        return error.to_string().replace(&format!("{SCHEMA_NAME}#"), "#");
    };
    let mut leaf = src;
    while let Some(cause) = leaf.causes.first() {
        leaf = cause;
    }
    let location = leaf.instance_location.to_string();
    let value = schema.pointer(&location).unwrap_or(schema);
    format!("at {location}: {value}: {}", leaf.kind)
}

/// Collects the innermost errors, from which the outer ones derive.
fn collect_leaf_errors(error: &ValidationError<'_, '_>, errors: &mut Vec<String>) {
    if error.causes.is_empty() {
        let location = error.instance_location.to_string();
        errors.push(match location.as_str() {
            "" => error.kind.to_string(),
            location => format!("at {location}: {}", error.kind),
        });
    }
    for cause in &error.causes {
        collect_leaf_errors(cause, errors);
    }
}

impl std::fmt::Debug for AnswerSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schema({})", self.value)
    }
}

impl AnswerFormat for AnswerSchema {
    fn schema(&self) -> &Value {
        &self.value
    }

    fn check(&self, text: &str) -> Result<String, String> {
        let json = without_code_fence(text);
        let value: Value =
            serde_json::from_str(json).map_err(|error| format!("not valid JSON: {error}"))?;
        let errors = self.validation_errors(&value);
        if errors.is_empty() { Ok(json.to_owned()) } else { Err(errors.join("; ")) }
    }
}

/// The JSON in a model's answer, without a surrounding code fence.
fn without_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| without_info_string(inner).trim())
}

/// The content of a code fence, without the language and other words after the opening marks.
fn without_info_string(inner: &str) -> &str {
    let is_word = |character: char| character.is_alphanumeric() || "_+-".contains(character);
    let rest = inner.trim_start_matches(is_word);
    match rest.split_once('\n') {
        Some((words, json)) if !words.trim_start().starts_with(['{', '[', '"']) => json,
        _ => rest,
    }
}

/// Builds the schema of an object with these fields, all required: `NAME [TYPE[[]]][: MEANING]`, separated by commas,
/// or by newlines if a meaning contains commas.
fn schema_from_fields(text: &str) -> Result<Value> {
    let separator = if text.contains('\n') { '\n' } else { ',' };
    let mut properties = Map::new();
    for field in text.split(separator).map(str::trim).filter(|field| !field.is_empty()) {
        let (head, meaning) = match field.split_once(':') {
            Some((head, meaning)) => (head.trim(), Some(meaning.trim())),
            None => (field, None),
        };
        let mut parts = head.split_whitespace();
        let name = parts.next().unwrap_or_default();
        let type_name = parts.next().unwrap_or("str");
        let item_type = json_type(type_name.strip_suffix("[]").unwrap_or(type_name));
        let is_name_char =
            |character: char| character.is_alphanumeric() || "_-".contains(character);
        let is_name = !name.is_empty() && name.chars().all(is_name_char);
        if item_type.is_none() || !is_name || parts.next().is_some() {
            return Err(fail(Exit::Usage, format!("`--schema`: `{field}` is neither a field nor an existing file"))
                .with_hint("a file, a JSON schema, or fields such as `name, age int, tags str[]` (str, int, float, bool)"));
        }
        let mut schema = json!({ "type": item_type });
        if type_name.ends_with("[]") {
            schema = json!({ "type": "array", "items": schema });
        }
        if let Some(meaning) = meaning.filter(|meaning| !meaning.is_empty()) {
            schema["description"] = meaning.into();
        }
        if properties.insert(name.to_owned(), schema).is_some() {
            return Err(fail(Exit::Usage, format!("`--schema` has two fields `{name}`")));
        }
    }
    if properties.is_empty() {
        return Err(fail(Exit::Usage, "`--schema` has no fields"));
    }
    let names: Vec<&String> = properties.keys().collect();
    Ok(
        json!({ "type": "object", "required": names, "additionalProperties": false, "properties": properties }),
    )
}

/// The type of JSON Schema for the type of a field; `None` if there is no such type.
fn json_type(name: &str) -> Option<&'static str> {
    match name {
        "str" | "string" => Some("string"),
        "int" | "integer" => Some("integer"),
        "float" | "number" => Some("number"),
        "bool" | "boolean" => Some("boolean"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::AnswerSchema;
    use crate::turn::agent::AnswerFormat;
    use nanobot_base::error::{Exit, exit_for};
    use serde_json::json;

    #[test]
    fn parses_fields_and_json_schemas() {
        let schema = AnswerSchema::parse("name, age int, tags str[]: what, it is").unwrap_err();
        assert_eq!(exit_for(&schema), Exit::Usage, "a meaning with a comma wants lines");
        let schema = AnswerSchema::parse("name\nage int\ntags str[]: what, it is\n").unwrap();
        assert_eq!(
            *schema.schema(),
            json!({ "type": "object", "required": ["name", "age", "tags"], "additionalProperties": false, "properties": {
                "name": { "type": "string" }, "age": { "type": "integer" },
                "tags": { "type": "array", "items": { "type": "string" }, "description": "what, it is" } } })
        );
    }

    #[test]
    fn validates_answers() {
        let schema = AnswerSchema::parse("name, age int").unwrap();
        let good = r#"{"name": "a", "age": 1}"#;
        assert_eq!(schema.check(good).unwrap(), good);
        for (start, end) in [
            ("```json\n", "\n```\n"),
            ("```\n", "\n```"),
            ("```json ", "```"),
            ("```", "\n```"),
            ("``` json title=a\n", "```"),
        ] {
            assert_eq!(schema.check(&format!("{start}{good}{end}")).unwrap(), good, "{start}");
        }
        assert_eq!(
            AnswerSchema::parse(r#"{"type": "integer"}"#).unwrap().check("```\n5\n```"),
            Ok("5".into())
        );
        for bad in
            ["a", "{}", r#"{"name": "a", "age": "1"}"#, r#"{"name": "a", "age": 1, "x": 2}"#, ""]
        {
            assert!(schema.check(bad).is_err(), "{bad}");
        }
        let wrong = schema.check(r#"{"name": "a", "age": "old"}"#).unwrap_err();
        assert!(wrong.starts_with("at /age: "), "{wrong}");
    }

    #[test]
    fn an_id_may_be_relative() {
        let schema = r#"{"$id": "answer.json", "$defs": {"item": {"$id": "item", "type": "integer"}},
                         "type": "array", "items": {"$ref": "item"}}"#;
        let schema = AnswerSchema::parse(schema).unwrap();
        assert!(schema.check("[1]").is_ok() && schema.check("[true]").is_err());
    }

    #[test]
    fn rejects_invalid_schemas() {
        for text in [
            "{",
            r#"{"type": 5}"#,
            r#"{"$ref": "other.json"}"#,
            "",
            "a b c",
            "a money",
            "no/such/file.json",
            "name, name int",
        ] {
            let error = AnswerSchema::parse(text).expect_err(text);
            assert_eq!(exit_for(&error), Exit::Usage, "{text}");
        }
    }
}
