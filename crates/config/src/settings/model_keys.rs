//! The keys of a model's metadata, in the values of `models`, and of presets. The table of keys has one row for all of
//! them, since the names of models and presets are the user's own.

use super::config_file::KeyPath;
use super::key_spelling::snake_case;
use serde_json::Value;

/// The keys of a model's metadata.
const METADATA_KEYS: &[&str] =
    &["contextWindowTokens", "maxOutputTokens", "images", "pdf", "audio", "price"];
/// The keys of a preset: parameters of requests, and metadata of its model.
const PRESET_KEYS: &[&str] = &[
    "model",
    "provider",
    "maxTokens",
    "temperature",
    "reasoningEffort",
    "fallbacks",
    "fallbackModels",
    EXTRA_BODY,
    "contextWindowTokens",
    "maxOutputTokens",
    "images",
    "pdf",
    "audio",
    "price",
];
/// The keys of a model's price.
const PRICE_KEYS: &[&str] = &["input", "output", "cachedInput", "cacheWrite"];
/// The key of fields of the request. Its members belong to the provider.
const EXTRA_BODY: &str = "extraBody";

/// The keys of the value at `path`, if it belongs to a model or a preset. Most values have none.
pub fn keys_at(path: &[impl AsRef<str>]) -> Option<&'static [&'static str]> {
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    match path[..] {
        ["models", _] => Some(METADATA_KEYS),
        ["modelPresets", _] => Some(PRESET_KEYS),
        ["models" | "modelPresets", _, "price"] => Some(PRICE_KEYS),
        ["modelPresets", _, key, ..] if is_spelling_of(EXTRA_BODY, key) => None,
        ["models" | "modelPresets", _, _, ..] => Some(&[]),
        _ => None,
    }
}

/// True if `name` is one of the two spellings in which `key` is read.
fn is_spelling_of(key: &str, name: &str) -> bool {
    name == key || name == snake_case(key)
}

/// The unknown keys in `value` at `path`.
pub(super) fn unknown_model_keys(path: &[String], value: &Value) -> Vec<KeyPath> {
    if let Some((name, parents)) = path.split_last()
        && let Some(keys) = keys_at(parents)
        && !keys.iter().any(|key| is_spelling_of(key, name))
    {
        return vec![path.to_vec()];
    }
    let members = value.as_object().filter(|_| path.len() <= 2 || keys_at(path).is_some());
    let unknown_in = |(name, member): (&String, &Value)| {
        unknown_model_keys(&[path, std::slice::from_ref(name)].concat(), member)
    };
    members.into_iter().flatten().flat_map(unknown_in).collect()
}

#[cfg(test)]
mod tests {
    use super::unknown_model_keys;
    use crate::settings::key_spelling::format_path;
    use serde_json::{Value, json};

    #[test]
    fn keys_that_are_not_read_are_unknown() {
        let check = |root: &str, value: Value, expect: &[&str]| {
            let unknown = unknown_model_keys(&[root.to_owned()], &json!({ "m": value }));
            let unknown: Vec<String> = unknown.iter().map(|path| format_path(path)).collect();
            assert_eq!(unknown, expect);
        };
        check("models", json!({ "price": { "input": 1, "cached_input": 1 }, "pdf": true }), &[]);
        check("models", json!({ "price_": { "input": 1 } }), &["models.m.price_"]);
        check("models", json!({ "price": { "inptu": 1 } }), &["models.m.price.inptu"]);
        check("models", json!({ "images": { "x": 1 } }), &["models.m.images.x"]);
        check("models", json!({ "extraBody": {} }), &["models.m.extraBody"]);
        check("modelPresets", json!({ "extraBody": { "top_k": 5, "a": { "b": 1 } } }), &[]);
        check("modelPresets", json!({ "extra_body": { "top_k": 5 }, "max_tokens": 1 }), &[]);
        check("modelPresets", json!({ "extra__body": {} }), &["modelPresets.m.extra__body"]);
    }
}
