//! The types of config keys: the values that each accepts, and the words that describe a mismatch.

use super::secret_form::{STORED_SECRET_KINDS, is_stored_secret};
use nanobot_os::age::Age;
use serde_json::{Map, Number, Value, json};

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyType {
    Text,
    /// Text that is never displayed, or an object that says where such a text is stored.
    Secret,
    /// A whole number within inclusive bounds.
    Whole(i64, i64),
    /// A number within inclusive bounds.
    Number(f64, f64),
    Bool,
    /// A list of strings.
    TextList,
    /// An object whose values are strings.
    Map,
    /// Like `Map`, but the values are never displayed.
    SecretMap,
    /// A list of any values.
    List,
    /// An object with any members.
    Object,
    OneOf(&'static [&'static str]),
    /// The age at which data is removed.
    Age,
    Any,
    /// Like `Any`, but references to variables are left as they are.
    Verbatim,
}

impl KeyType {
    /// Converts `value` to the type's canonical form; `None` if it does not match the type.
    ///
    /// Numbers and booleans may be written as strings: the Python program accepts that, and environment variables
    /// require it.
    pub fn accept(self, value: &Value) -> Option<Value> {
        match self {
            Self::Text => value.is_string().then(|| value.clone()),
            Self::Secret => (value.is_string() || is_stored_secret(value)).then(|| value.clone()),
            Self::Whole(low, high) => {
                let number = to_integer(value)?;
                (low..=high).contains(&number).then(|| number.into())
            }
            Self::Number(low, high) => {
                let number = to_number(value)?;
                if !(low..=high).contains(&number) {
                    return None;
                }
                if value.is_number() {
                    return Some(value.clone());
                }
                Number::from_f64(number).map(Value::Number)
            }
            Self::Bool => to_bool(value).map(Value::Bool),
            Self::TextList => {
                let list = value.as_array()?;
                list.iter().all(Value::is_string).then(|| value.clone())
            }
            Self::Map => {
                let map = value.as_object()?;
                map.values().all(Value::is_string).then(|| value.clone())
            }
            Self::SecretMap => {
                let mut values = value.as_object()?.values();
                values
                    .all(|value| value.is_string() || is_stored_secret(value))
                    .then(|| value.clone())
            }
            Self::List => value.is_array().then(|| value.clone()),
            Self::Object => value.is_object().then(|| value.clone()),
            Self::OneOf(names) => names.contains(&value.as_str()?).then(|| value.clone()),
            Self::Age => Age::parse(value.as_str()?).map(|_| value.clone()),
            Self::Any | Self::Verbatim => Some(value.clone()),
        }
    }

    /// Parses `text` from an environment variable or the command line. `accept` then checks it against the type.
    pub fn parse(self, text: &str) -> Value {
        let is_compound = matches!(
            self,
            Self::TextList
                | Self::Map
                | Self::SecretMap
                | Self::List
                | Self::Object
                | Self::Any
                | Self::Verbatim
        );
        match serde_json::from_str(text) {
            Ok(value) if is_compound || (self == Self::Secret && is_stored_secret(&value)) => value,
            _ => Value::String(text.to_owned()),
        }
    }

    /// Describes the type, to follow "expected".
    pub fn describe(self) -> String {
        match self {
            Self::Text => "a string".into(),
            Self::Secret => "a string, or an object with `file`, `command` or `credential`".into(),
            Self::Whole(low, i64::MAX) => format!("an integer of at least {low}"),
            Self::Whole(low, high) => format!("an integer from {low} to {high}"),
            Self::Number(low, high) => format!("a number from {low} to {high}"),
            Self::Bool => "true or false".into(),
            Self::TextList => "a list of strings".into(),
            Self::Map => "an object with string values".into(),
            Self::SecretMap => "an object whose values are strings, or objects with `file`, `command` or `credential`".into(),
            Self::List => "a list".into(),
            Self::Object => "an object".into(),
            Self::OneOf(names) => format!("one of `{}`", names.join("`, `")),
            Self::Age => "an age above zero, such as `12h`, `30d` or `2y`, or `never`".into(),
            Self::Any | Self::Verbatim => "a value".into(),
        }
    }

    /// Describes `value`, to follow "is". Text is only quoted if it cannot be a secret.
    pub fn describe_value(self, value: &Value) -> String {
        match (self, value) {
            (_, Value::Number(number)) => number.to_string(),
            (Self::OneOf(_) | Self::Age, Value::String(text)) => format!("`{text}`"),
            (Self::Whole(..) | Self::Number(..), Value::String(text))
                if text.parse::<f64>().is_ok() =>
            {
                text.clone()
            }
            (Self::TextList, Value::Array(_)) => "a list with values other than strings".into(),
            (Self::Map | Self::SecretMap, Value::Object(_)) => {
                "an object with values other than strings".into()
            }
            _ => type_name(value).into(),
        }
    }

    /// True if values of this type are masked.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::Secret | Self::SecretMap)
    }

    /// Returns the type as JSON Schema. `null` means "not set" for every type.
    pub fn schema(self) -> Map<String, Value> {
        let schema = match self {
            Self::Text => json!({"type": ["string", "null"]}),
            Self::Secret => secret_schema(&["string", "null"]),
            Self::Whole(low, i64::MAX) => json!({"type": ["integer", "null"], "minimum": low}),
            Self::Whole(low, high) => {
                json!({"type": ["integer", "null"], "minimum": low, "maximum": high})
            }
            Self::Number(low, high) => {
                json!({"type": ["number", "null"], "minimum": low, "maximum": high})
            }
            Self::Bool => json!({"type": ["boolean", "null"]}),
            Self::TextList => json!({"type": ["array", "null"], "items": {"type": "string"}}),
            Self::Map => {
                json!({"type": ["object", "null"], "additionalProperties": {"type": "string"}})
            }
            Self::SecretMap => {
                json!({"type": ["object", "null"], "additionalProperties": secret_schema(&["string"])})
            }
            Self::List => json!({"type": ["array", "null"]}),
            Self::Object => json!({"type": ["object", "null"]}),
            Self::OneOf(names) => {
                let mut values: Vec<Value> = names.iter().map(|name| json!(name)).collect();
                values.push(Value::Null);
                json!({ "enum": values })
            }
            Self::Age => {
                json!({"type": ["string", "null"], "pattern": "^(never|[0-9]+ *[A-Za-z].*)$"})
            }
            Self::Any | Self::Verbatim => json!({}),
        };
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

/// The schema of a secret: a text of one of these types, or an object that says where it is stored.
fn secret_schema(types: &[&str]) -> Value {
    let members = STORED_SECRET_KINDS.map(|name| (name.to_owned(), json!({"type": "string"})));
    json!({ "anyOf": [
        { "type": types },
        { "type": "object", "properties": Map::from_iter(members), "additionalProperties": false,
            "minProperties": 1, "maxProperties": 1 },
    ] })
}

/// Returns the name of a JSON value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn to_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// 2^53. From there on, a float no longer identifies a single integer.
const FIRST_AMBIGUOUS_FLOAT: f64 = 9_007_199_254_740_992.0;

fn to_integer(value: &Value) -> Option<i64> {
    let integer = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    // `8192.0` is accepted as a whole number.
    integer.or_else(|| {
        let float = to_number(value)?;
        (float.fract() == 0.0 && float.abs() < FIRST_AMBIGUOUS_FLOAT).then_some(float as i64)
    })
}

fn to_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        },
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::KeyType;
    use serde_json::{Value, json};

    #[test]
    fn values_are_accepted_as_the_python_program_does() {
        fn check(kind: KeyType, value: Value, expect: Value) {
            let accepted = kind.accept(&value).unwrap_or(Value::Null);
            assert_eq!(accepted, expect, "{kind:?} {value}");
        }
        const NONE: Value = Value::Null;
        let count = KeyType::Whole(1, 100);
        check(count, json!(7), json!(7));
        check(count, json!("7"), json!(7));
        check(count, json!(7.0), json!(7));
        check(count, json!(7.5), NONE);
        check(count, json!(0), NONE);
        check(count, json!(101), NONE);
        check(count, json!("seven"), NONE);
        check(count, json!(true), NONE);
        check(count, json!(1e300), NONE);
        let number = KeyType::Number(0.0, 2.0);
        check(number, json!(0), json!(0));
        check(number, json!("0.5"), json!(0.5));
        check(number, json!("nan"), NONE);
        check(number, json!(2.1), NONE);
        check(KeyType::Bool, json!("yes"), json!(true));
        check(KeyType::Bool, json!(0), json!(false));
        check(KeyType::Bool, json!("maybe"), NONE);
        check(KeyType::Text, json!("7"), json!("7"));
        check(KeyType::Text, json!(7), NONE);
        check(KeyType::TextList, json!(["a"]), json!(["a"]));
        check(KeyType::TextList, json!(["a", 1]), NONE);
        check(KeyType::Map, json!({"a": "b"}), json!({"a": "b"}));
        check(KeyType::Map, json!({"a": 1}), NONE);
        check(KeyType::List, json!(["a", 1]), json!(["a", 1]));
        check(KeyType::List, json!({"0": "a"}), NONE);
        check(KeyType::Object, json!({"a": 1}), json!({"a": 1}));
        check(KeyType::Object, json!("a"), NONE);
        check(KeyType::OneOf(&["a", "b"]), json!("b"), json!("b"));
        check(KeyType::OneOf(&["a", "b"]), json!("c"), NONE);
        check(KeyType::Age, json!("30d"), json!("30d"));
        check(KeyType::Age, json!("never"), json!("never"));
        check(KeyType::Age, json!("0d"), NONE);
        check(KeyType::Age, json!(30), NONE);
    }

    #[test]
    fn text_is_json_only_for_compounds() {
        let check = |kind: KeyType, text: &str, expect: Value| assert_eq!(kind.parse(text), expect);
        check(KeyType::Text, "[1]", json!("[1]"));
        check(KeyType::TextList, r#"["a"]"#, json!(["a"]));
        check(KeyType::TextList, "a", json!("a"));
        check(KeyType::Whole(0, 9), "5", json!("5"));
    }
}
