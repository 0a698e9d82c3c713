//! Types for reading the events of a stream that only add text to a reply, without building a JSON value. An event that
//! does not have such a type, or that has more to say, is read as a [`serde_json::Value`].

use crate::text_form::Text;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Parses `event`, if it is an object with the fields of `T`.
pub(super) fn parse<'a, T: Deserialize<'a>>(event: &'a str) -> Option<T> {
    serde_json::from_str(event).ok().map(|Object(fields)| fields)
}

/// A JSON object. A derived `Deserialize` would accept an array too.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// The content of an optional string; an absent one is empty.
pub(super) fn as_str<'t>(text: &'t Option<Text<'_>>) -> &'t str {
    text.as_ref().map_or("", |text| &text.0)
}
