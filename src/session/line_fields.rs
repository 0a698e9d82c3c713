//! The fields of a line of a session file, as serde reads them: borrowed from the line, and lenient about types, because
//! other programs write these files too.

use crate::message::Usage;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The fields of a line that this program reads, borrowed from it. A field of an unexpected type counts as missing.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LineFields<'a> {
    #[serde(borrow, rename = "_type")]
    pub(super) record_type: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) role: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) content: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) id: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) facts: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) model: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) tool_call_id: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) name: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) state: Option<&'a RawValue>,
    /// `None` if missing, as opposed to null.
    #[serde(deserialize_with = "deserialize_some")]
    pub(super) opaque: Option<Value>,
    #[serde(borrow)]
    pub(super) finish_reason: StoredValue<'a>,
    #[serde(rename = "_command")]
    pub(super) command: StoredValue<'a>,
    pub(super) injected: StoredValue<'a>,
    pub(super) failed: StoredValue<'a>,
    #[serde(borrow)]
    pub(super) images: Option<&'a RawValue>,
}

/// A JSON value; a string, the usual case, is borrowed if it has no escapes.
#[derive(Debug)]
pub(super) enum StoredValue<'a> {
    Text(Cow<'a, str>),
    Other(Value),
}

impl Default for StoredValue<'_> {
    fn default() -> Self {
        Self::Other(Value::Null)
    }
}

impl StoredValue<'_> {
    /// The text, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(_) => None,
        }
    }

    /// The text; empty for any other value.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text.into_owned(),
            Self::Other(_) => String::new(),
        }
    }

    pub(super) fn is_true(&self) -> bool {
        matches!(self, Self::Other(Value::Bool(true)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for StoredValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StoredValueVisitor;
        impl<'de> Visitor<'de> for StoredValueVisitor {
            type Value = StoredValue<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(StoredValue::Text(text.into()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(StoredValue::Text(text.to_owned().into()))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(StoredValue::default())
            }

            fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
                Ok(StoredValue::Other(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(StoredValue::Other(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(StoredValue::Other(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok(StoredValue::Other(value.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                let items = SeqAccessDeserializer::new(items);
                Value::deserialize(items).map(StoredValue::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
                let entries = MapAccessDeserializer::new(entries);
                Value::deserialize(entries).map(StoredValue::Other)
            }
        }
        deserializer.deserialize_any(StoredValueVisitor)
    }
}

/// Reads a value that may be null; a missing one is the default `None`.
fn deserialize_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads the token counts that are stored with a reply.
pub(super) fn read_usage(usage: &RawValue) -> Usage {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct UsageFields {
        input: u64,
        cached: u64,
        output: u64,
        reasoning: u64,
    }
    let UsageFields {
        input,
        cached,
        output,
        reasoning,
    } = serde_json::from_str(usage.get()).unwrap_or_default();
    Usage {
        input,
        cached,
        output,
        reasoning,
        ..Usage::default()
    }
}
