//! A longer life of the provider's prompt cache, where its API documents one.
//!
//! - Claude models take `ttl: "1h"` in a cache mark (Anthropic, "Prompt caching"), for twice the price of input.
//! - OpenAI routes requests by `prompt_cache_key`, and keeps a prompt for up to a day by `prompt_cache_retention: "24h"`. Models from
//!   GPT-5.6 on have a lifetime that cannot be changed, and older ones refuse the field (OpenAI, "Prompt caching").

use super::quirks::{CacheLifetime, normalize_model};
use super::registry::SelectedProvider;
use serde_json::{Map, Value};

/// The entries of the table whose API has `prompt_cache_key`, and true for those that have `prompt_cache_retention`.
const PROVIDERS_WITH_KEYS: [(&str, bool); 3] =
    [("openai", true), ("azureOpenai", true), ("openaiCodex", false)];

/// Models with `prompt_cache_retention`: these names, and those that begin with one of the prefixes.
const RETAINED_MODELS: [&str; 3] = ["gpt-4.1", "gpt-5", "gpt-5-codex"];
const RETAINED_PREFIXES: [&str; 5] = ["gpt-5.1", "gpt-5.2", "gpt-5.3", "gpt-5.4", "gpt-5.5"];

/// Requests that the provider keeps the prompts of a conversation, named by `key`, for an hour. Nothing is sent to a provider without a
/// documented way.
pub fn request_hour_cache(choice: &mut SelectedProvider, key: &str) {
    let model = normalize_model(&choice.model);
    if choice.quirks.cache_marks.is_some() && model.starts_with("claude") {
        choice.quirks.cache_marks = Some(CacheLifetime::Hour);
        choice.prices = choice.prices.take().map(|prices| prices.with_hour_cache());
    }
    choice.body = with_fields(choice.entry.name, &model, key, std::mem::take(&mut choice.body));
}

/// `body` with the fields for `model` of the provider `entry`. Fields that it has take precedence.
fn with_fields(
    entry: &str,
    model: &str,
    key: &str,
    mut body: Map<String, Value>,
) -> Map<String, Value> {
    let provider = PROVIDERS_WITH_KEYS.iter().find(|(name, _)| *name == entry);
    let Some((_, has_retention)) = provider else {
        return body;
    };
    body.entry("prompt_cache_key").or_insert_with(|| key.into());
    let is_retained = RETAINED_MODELS.contains(&model)
        || RETAINED_PREFIXES.iter().any(|prefix| model.starts_with(prefix));
    if *has_retention && is_retained {
        body.entry("prompt_cache_retention").or_insert_with(|| "24h".into());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::with_fields;
    use serde_json::{Map, Value, json};

    #[test]
    fn fields_are_sent_where_they_are_documented() {
        let check = |entry: &str, model: &str, expect: Value| {
            let body = Value::Object(with_fields(entry, model, "k", Map::new()));
            assert_eq!(body, expect, "{entry} {model}");
        };
        let (key, both) = (
            json!({ "prompt_cache_key": "k" }),
            json!({ "prompt_cache_key": "k", "prompt_cache_retention": "24h" }),
        );
        check("openai", "gpt-5.1-codex-mini", both.clone());
        check("azureOpenai", "gpt-5", both);
        check("openai", "gpt-6-luna", key.clone());
        check("openai", "gpt-5-mini", key.clone());
        check("openai", "gpt-4o", key.clone());
        check("openaiCodex", "gpt-5.4", key);
        check("mistral", "mistral-large", json!({}));
        check("", "gpt-5.4", json!({}));
    }

    #[test]
    fn fields_of_the_user_take_precedence() {
        let own = json!({ "prompt_cache_key": "mine", "prompt_cache_retention": "in_memory" });
        let body = own.as_object().cloned().unwrap_or_default();
        assert_eq!(Value::Object(with_fields("openai", "gpt-5.4", "k", body)), own);
    }
}
