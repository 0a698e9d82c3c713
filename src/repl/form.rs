//! A form that an MCP server asks the user to fill in, field by field: the questions, and the parsing of answers. No I/O.

use nanobot_mcp::sanitize;
use serde_json::{Value, json};

/// Maximum number of fields; more is unreasonable to ask of a user.
pub(crate) const MAX_FIELDS: usize = 20;
/// Maximum number of choices of a field. No other answer is accepted, so an ordinary list has to fit.
const MAX_CHOICES: usize = 200;
/// Maximum characters of a field's name and of its description, which a server sends.
const MAX_LABEL_CHARS: usize = 200;

/// Maximum characters of the value and of the title of a choice.
const MAX_CHOICE_CHARS: usize = 80;

#[derive(Debug, PartialEq)]
pub(crate) struct FormField {
    pub(crate) name: String,
    /// The question, on one line.
    pub(crate) question: String,
    kind: FormFieldKind,
    required: bool,
    default: Option<Value>,
}

#[derive(Debug, PartialEq)]
enum FormFieldKind {
    Text,
    Integer,
    Number,
    Boolean,
    OneOf(Vec<FormChoice>),
    Several(Vec<FormChoice>),
}

/// One of several possible answers.
#[derive(Clone, Debug, PartialEq)]
struct FormChoice {
    value: String,
    /// The title for people.
    title: String,
}

/// Reads the fields from `form`, the schema of an object.
pub(crate) fn fields(form: &Value) -> Vec<FormField> {
    let required = form["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let properties = form["properties"].as_object().into_iter().flatten();
    let field = |(name, schema): (&String, &Value)| {
        let kind = field_kind(schema);
        let default = schema.get("default").filter(|default| !default.is_null()).cloned();
        let required = is_required(name);
        FormField {
            question: describe_field(name, schema, &kind, default.as_ref(), required),
            name: name.clone(),
            kind,
            required,
            default,
        }
    };
    properties.take(MAX_FIELDS).map(field).collect()
}

fn field_kind(schema: &Value) -> FormFieldKind {
    let first_choices = |schema: &Value, keys: &[&str]| {
        let mut lists = keys.iter().map(|key| form_choices(&schema[*key], &schema["enumNames"]));
        lists.find(|choices| !choices.is_empty())
    };
    if let Some(choices) = first_choices(schema, &["enum", "oneOf"]) {
        return FormFieldKind::OneOf(choices);
    }
    match schema["type"].as_str() {
        Some("integer") => FormFieldKind::Integer,
        Some("number") => FormFieldKind::Number,
        Some("boolean") => FormFieldKind::Boolean,
        Some("array") => {
            let choices = first_choices(&schema["items"], &["enum", "anyOf", "oneOf"]);
            FormFieldKind::Several(choices.unwrap_or_default())
        }
        _ => FormFieldKind::Text,
    }
}

/// Reads the choices in `list`: values with titles in `names`, or schemas that have both.
fn form_choices(list: &Value, names: &Value) -> Vec<FormChoice> {
    let choice = |(index, entry): (usize, &Value)| {
        let value = entry.as_str().or(entry["const"].as_str())?;
        let title = entry["title"].as_str().or(names[index].as_str());
        Some(FormChoice { value: value.to_owned(), title: title.unwrap_or(value).to_owned() })
    };
    let entries = list.as_array().into_iter().flatten().enumerate();
    entries.filter_map(choice).take(MAX_CHOICES).collect()
}

fn describe_field(
    name: &str,
    schema: &Value,
    kind: &FormFieldKind,
    default: Option<&Value>,
    required: bool,
) -> String {
    let text = |key: &str| {
        sanitize::single_line(schema[key].as_str().unwrap_or_default(), MAX_LABEL_CHARS)
    };
    let mut question = match text("title") {
        title if title.is_empty() => sanitize::single_line(name, MAX_LABEL_CHARS),
        title => title,
    };
    let description = text("description");
    if !description.is_empty() {
        question.push_str(&format!(": {description}"));
    }
    let list = |choices: &[FormChoice]| {
        let choices = choices.iter().map(|choice| {
            let value = sanitize::single_line(&choice.value, MAX_CHOICE_CHARS);
            let title = sanitize::single_line(&choice.title, MAX_CHOICE_CHARS);
            if value == title { value } else { format!("{title} ({value})") }
        });
        choices.collect::<Vec<_>>().join(", ")
    };
    let expected = match kind {
        FormFieldKind::Text => None,
        FormFieldKind::Integer => Some("a whole number".to_owned()),
        FormFieldKind::Number => Some("a number".to_owned()),
        FormFieldKind::Boolean => Some("yes or no".to_owned()),
        FormFieldKind::OneOf(choices) => Some(format!("one of {}", list(choices))),
        FormFieldKind::Several(choices) if choices.is_empty() => {
            Some("several, comma-separated".to_owned())
        }
        FormFieldKind::Several(choices) => {
            Some(format!("several of {}, comma-separated", list(choices)))
        }
    };
    let default = default.map(|default| {
        let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        format!("default {}", sanitize::single_line(&text, MAX_LABEL_CHARS))
    });
    let optional = (!required && default.is_none()).then(|| "optional".to_owned());
    let notes: Vec<String> = [expected, default, optional].into_iter().flatten().collect();
    if !notes.is_empty() {
        question.push_str(&format!(" ({})", notes.join("; ")));
    }
    question
}

impl FormField {
    /// Parses an answer; `None` if the field is left out.
    ///
    /// # Errors
    /// The answer is invalid; text for the user.
    pub(crate) fn parse(&self, text: &str) -> Result<Option<Value>, String> {
        let text = text.trim();
        if text.is_empty() {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("an answer is required".into()),
            };
        }
        let value = match &self.kind {
            FormFieldKind::Text => json!(text),
            FormFieldKind::Integer => json!(text.parse::<i64>().map_err(|_| "not a whole number")?),
            FormFieldKind::Number => {
                let number: f64 = text.parse().map_err(|_| "not a number")?;
                if number.is_finite() { json!(number) } else { return Err("not a number".into()) }
            }
            FormFieldKind::Boolean => match text.to_lowercase().as_str() {
                "y" | "yes" | "true" => json!(true),
                "n" | "no" | "false" => json!(false),
                _ => return Err("answer yes or no".into()),
            },
            FormFieldKind::OneOf(choices) => json!(find_choice(choices, text)?),
            FormFieldKind::Several(choices) => {
                let mut values = Vec::new();
                for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                    values.push(if choices.is_empty() {
                        part
                    } else {
                        find_choice(choices, part)?
                    });
                }
                json!(values)
            }
        };
        Ok(Some(value))
    }
}

/// The value of the choice with the value or the title `text`.
fn find_choice<'a>(choices: &'a [FormChoice], text: &str) -> Result<&'a str, String> {
    let is_named = |choice: &&FormChoice| {
        choice.value.eq_ignore_ascii_case(text) || choice.title.eq_ignore_ascii_case(text)
    };
    match choices.iter().find(is_named) {
        Some(choice) => Ok(&choice.value),
        None => Err(format!("`{text}` is not one of these")),
    }
}

#[cfg(test)]
mod tests {
    use super::fields;
    use serde_json::{Value, json};

    #[test]
    fn answers_have_the_types_of_their_fields() {
        let check = |schema: Value, text: &str, expect: Result<Value, &str>| {
            let form = json!({ "properties": { "a": schema }, "required": ["a"] });
            let value = fields(&form)[0].parse(text);
            let value = value.map(Option::unwrap_or_default);
            assert_eq!(value, expect.map_err(str::to_owned), "{form} {text}");
        };
        check(json!({ "type": "string" }), " hello ", Ok(json!("hello")));
        check(json!({ "type": "string" }), "", Err("an answer is required"));
        check(json!({ "type": "integer" }), "42", Ok(json!(42)));
        check(json!({ "type": "integer" }), "4.2", Err("not a whole number"));
        check(json!({ "type": "number" }), "4.5", Ok(json!(4.5)));
        check(json!({ "type": "number" }), "inf", Err("not a number"));
        check(json!({ "type": "boolean" }), "Y", Ok(json!(true)));
        check(json!({ "type": "boolean" }), "maybe", Err("answer yes or no"));
        check(json!({ "enum": ["Red", "Blue"] }), "red", Ok(json!("Red")));
        check(json!({ "enum": ["Red"] }), "green", Err("`green` is not one of these"));
        let states: Vec<String> = (1..=50).map(|number| format!("state {number}")).collect();
        check(json!({ "enum": states }), "state 50", Ok(json!("state 50")));
        check(json!({ "oneOf": [{ "const": "r", "title": "Red" }] }), "r", Ok(json!("r")));
        let several = json!({ "type": "array", "items": { "enum": ["a", "b"] } });
        check(several, "b, a", Ok(json!(["b", "a"])));
        check(json!({ "type": "string", "default": "x" }), "", Ok(json!("x")));
        check(json!(null), "any", Ok(json!("any")));
    }

    #[test]
    fn what_is_asked_says_what_is_expected_and_does_no_harm() {
        let check = |schema: Value, expect: &str| {
            let form = json!({ "properties": { "age": schema } });
            assert_eq!(fields(&form)[0].question, expect);
        };
        check(json!({ "type": "integer" }), "age (a whole number; optional)");
        check(
            json!({ "title": "How\nold", "description": "in \u{1b}[31myears", "default": 3 }),
            "How old: in years (default 3)",
        );
    }
}
