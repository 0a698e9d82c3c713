//! Facts about well-known providers that only onboarding shows, in its menu of providers: the page where keys are made, and the
//! form of an address.

use nanobot_model::provider::cloud::google::BASE_URL_FORM as VERTEX_ADDRESS;

/// A provider that the list shows first.
struct KnownProvider {
    name: &'static str,
    access: Access,
}

/// The way in which a user gets access to a provider.
enum Access {
    /// With a key, which is created on this page.
    KeyPage(&'static str),
    /// In another way. This text describes it.
    Other(&'static str),
}

const fn with_key(name: &'static str, page: &'static str) -> KnownProvider {
    KnownProvider { name, access: Access::KeyPage(page) }
}

const fn described(name: &'static str, description: &'static str) -> KnownProvider {
    KnownProvider { name, access: Access::Other(description) }
}

/// The providers that most users have, in the order of the list.
const KNOWN_PROVIDERS: &[KnownProvider] = &[
    with_key("openrouter", "https://openrouter.ai/keys"),
    with_key("anthropic", "https://console.anthropic.com/settings/keys"),
    with_key("openai", "https://platform.openai.com/api-keys"),
    with_key("gemini", "https://aistudio.google.com/apikey"),
    with_key("deepseek", "https://platform.deepseek.com/api_keys"),
    with_key("mistral", "https://console.mistral.ai/api-keys"),
    with_key("groq", "https://console.groq.com/keys"),
    with_key("xai", "https://console.x.ai"),
    described("githubCopilot", "log in with a GitHub account"),
    described("openaiCodex", "log in with a ChatGPT account"),
    described("ollama", "a server on this machine, no key"),
    described("custom", "any OpenAI-compatible address"),
];

/// Examples of addresses, for providers that give each user a different one.
pub(super) const EXAMPLE_ADDRESSES: &[(&str, &str)] = &[
    ("azureOpenai", "https://RESOURCE.openai.azure.com/openai/v1"),
    ("bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1"),
    ("vertex", VERTEX_ADDRESS),
];

/// The position of a provider in the list. `None` if it is not well known.
pub(super) fn position(name: &str) -> Option<usize> {
    KNOWN_PROVIDERS.iter().position(|provider| provider.name == name)
}

fn access(name: &str) -> Option<&'static Access> {
    Some(&KNOWN_PROVIDERS[position(name)?].access)
}

/// The page where keys of a provider are made.
pub(super) fn key_page(name: &str) -> Option<&'static str> {
    match access(name)? {
        Access::KeyPage(page) => Some(page),
        Access::Other(_) => None,
    }
}

/// The description of a provider in the list. It is empty if the provider is not well known.
pub(super) fn describe(name: &str) -> String {
    match access(name) {
        None => String::new(),
        Some(Access::KeyPage(page)) => format!("key from {}", page.trim_start_matches("https://")),
        Some(Access::Other(description)) => (*description).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLE_ADDRESSES, KNOWN_PROVIDERS};
    use nanobot_model::provider::registry::find_provider;

    #[test]
    fn the_registry_has_them_all() {
        let names = KNOWN_PROVIDERS.iter().map(|provider| provider.name);
        for name in names.chain(EXAMPLE_ADDRESSES.iter().map(|(name, _)| *name)) {
            // The menu compares names exactly.
            assert_eq!(find_provider(name).map(|provider| provider.name), Some(name));
        }
    }
}
