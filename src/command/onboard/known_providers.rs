//! Facts for people about well-known providers, which the registry does not need: where to get a key, and the form of an
//! address.

/// A provider that the list shows first.
pub(super) struct KnownProvider {
    pub(super) name: &'static str,
    /// The page where keys are made; empty if none is needed.
    pub(super) key_page: &'static str,
    /// A description in the list, in place of that page.
    description: &'static str,
}

const fn with_key(name: &'static str, key_page: &'static str) -> KnownProvider {
    KnownProvider { name, key_page, description: "" }
}

const fn described(name: &'static str, description: &'static str) -> KnownProvider {
    KnownProvider { name, key_page: "", description }
}

/// The providers that most users have, in the order of the list.
pub(super) const KNOWN_PROVIDERS: &[KnownProvider] = &[
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

/// Addresses of providers that give each user another one.
pub(super) const EXAMPLE_ADDRESSES: &[(&str, &str)] = &[
    ("azureOpenai", "https://RESOURCE.openai.azure.com/openai/v1"),
    ("bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1"),
];

/// The place of a provider in the list; `None` if it is not among these.
pub(super) fn position(name: &str) -> Option<usize> {
    KNOWN_PROVIDERS.iter().position(|known| known.name == name)
}

/// The page where keys of a provider are made.
pub(super) fn key_page(name: &str) -> Option<&'static str> {
    let known = &KNOWN_PROVIDERS[position(name)?];
    (!known.key_page.is_empty()).then_some(known.key_page)
}

/// The description of a provider in the list; empty for one that is not among these.
pub(super) fn describe(name: &str) -> String {
    let Some(place) = position(name) else {
        return String::new();
    };
    let known = &KNOWN_PROVIDERS[place];
    match known.key_page.strip_prefix("https://") {
        Some(page) => format!("key from {page}"),
        None => known.description.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLE_ADDRESSES, KNOWN_PROVIDERS};
    use nanobot_model::provider::registry::find_provider;

    #[test]
    fn the_registry_has_them_all() {
        let known = KNOWN_PROVIDERS.iter().map(|known| known.name);
        for name in known.chain(EXAMPLE_ADDRESSES.iter().map(|(name, _)| *name)) {
            assert!(find_provider(name).is_some(), "{name}");
        }
    }
}
