//! Facts about well-known providers that only onboarding shows, in its menu of providers: the page where keys are made, and the
//! form of an address.

use nanobot_model::provider::cloud::google::BASE_URL_FORM as VERTEX_ADDRESS;

/// The providers that most users have, in the order of the list: the page where keys are made, or another way to get access.
const KNOWN_PROVIDERS: &[(&str, &str)] = &[
    ("openrouter", "https://openrouter.ai/keys"),
    ("anthropic", "https://console.anthropic.com/settings/keys"),
    ("openai", "https://platform.openai.com/api-keys"),
    ("gemini", "https://aistudio.google.com/apikey"),
    ("deepseek", "https://platform.deepseek.com/api_keys"),
    ("mistral", "https://console.mistral.ai/api-keys"),
    ("groq", "https://console.groq.com/keys"),
    ("xai", "https://console.x.ai"),
    ("githubCopilot", "log in with a GitHub account"),
    ("openaiCodex", "log in with a ChatGPT account"),
    ("ollama", "a server on this machine, no key"),
    ("custom", "any OpenAI-compatible address"),
];

/// Examples of addresses, for providers that give each user a different one.
pub(super) const EXAMPLE_ADDRESSES: &[(&str, &str)] = &[
    ("azureOpenai", "https://RESOURCE.openai.azure.com/openai/v1"),
    ("bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1"),
    ("vertex", VERTEX_ADDRESS),
];

/// The position of a provider in the list. `None` if it is not well known.
pub(super) fn position(name: &str) -> Option<usize> {
    KNOWN_PROVIDERS.iter().position(|(known_name, _)| *known_name == name)
}

fn access(name: &str) -> Option<&'static str> {
    Some(KNOWN_PROVIDERS[position(name)?].1)
}

/// The page where keys of a provider are made.
pub(super) fn key_page(name: &str) -> Option<&'static str> {
    access(name).filter(|access| access.starts_with("https://"))
}

/// The description of a provider in the list. It is empty if the provider is not well known.
pub(super) fn describe(name: &str) -> String {
    let access = access(name).unwrap_or_default();
    match access.strip_prefix("https://") {
        Some(page) => format!("key from {page}"),
        None => access.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLE_ADDRESSES, KNOWN_PROVIDERS};
    use nanobot_model::provider::registry::find_provider;

    #[test]
    fn the_registry_has_them_all() {
        for (name, _) in KNOWN_PROVIDERS.iter().chain(EXAMPLE_ADDRESSES) {
            // The menu compares names exactly.
            assert_eq!(find_provider(name).map(|provider| provider.name), Some(*name));
        }
    }
}
