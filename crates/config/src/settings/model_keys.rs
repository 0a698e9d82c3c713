//! The keys of a model's metadata, in the values of `models`, and of presets. The table of keys has one row for all of
//! them, since the names of models and presets are the user's own.

use super::config_file::KeyPath;
use super::key_spelling::camel_case;
use serde_json::Value;

/// The keys of a model's metadata.
pub(super) const METADATA_KEYS: &[&str] =
    &["contextWindowTokens", "maxOutputTokens", "images", "pdf", "price"];
pub(super) const PRESET_KEYS: &[&str] = &[
    "model",
    "provider",
    "maxTokens",
    "temperature",
    "reasoningEffort",
    "fallbacks",
    "fallbackModels",
    "contextWindowTokens",
    "maxOutputTokens",
    "images",
    "pdf",
    "price",
];
/// The keys of a model's price.
pub(super) const PRICE_KEYS: &[&str] = &["input", "output", "cachedInput", "cacheWrite"];

/// The unknown keys in `value` at `path`, which is `models`, `modelPresets` or below.
pub(super) fn unknown_metadata_keys(path: &[String], value: &Value) -> Vec<KeyPath> {
    let keys = match path {
        [root, _, _] if root == "modelPresets" => PRESET_KEYS,
        [_, _, _] => METADATA_KEYS,
        [_, _, price, _] if price == "price" => PRICE_KEYS,
        _ => &[],
    };
    let is_key = |name: &String| keys.contains(&camel_case(name).as_str());
    match (path.last(), value) {
        (Some(name), _) if path.len() > 2 && !is_key(name) => vec![path.to_vec()],
        (_, Value::Object(members)) => members
            .iter()
            .flat_map(|(name, member)| {
                unknown_metadata_keys(&[path, std::slice::from_ref(name)].concat(), member)
            })
            .collect(),
        _ => Vec::new(),
    }
}
