//! Known facts about models: context windows, limits, abilities, prices. The config can override outdated facts; facts
//! about unlisted models are unknown, never guessed. Source: the vendors and LiteLLM 1.109.1, November 2026.

use super::provider_info::{ProviderInfo, ProviderKind};
use crate::provider::quirks::normalize_model;

/// The facts about a model and its dated versions.
#[derive(Debug)]
pub struct ModelInfo {
    /// The name of the provider entry that charges these prices.
    pub vendor: &'static str,
    /// The model's name in lower case, without a vendor prefix.
    pub name: &'static str,
    /// Context window in tokens.
    pub context_tokens: u32,
    /// Output limit in tokens.
    pub max_output_tokens: u32,
    /// Bit set: input types other than text, and reasoning.
    capabilities: u8,
    /// Price tiers, in ascending order. Each applies to requests with more input tokens than its threshold.
    prices: &'static [(u64, TokenPrice)],
}

const IMAGES: u8 = 1;
const PDF: u8 = 2;
const REASONS: u8 = 4;
const AUDIO: u8 = 8;

impl ModelInfo {
    /// True if the model accepts images.
    pub fn accepts_images(&self) -> bool {
        self.capabilities & IMAGES != 0
    }

    /// True if the model accepts PDF documents.
    pub fn accepts_pdf(&self) -> bool {
        self.capabilities & PDF != 0
    }

    /// True if the model accepts recordings of sound.
    pub fn accepts_audio(&self) -> bool {
        self.capabilities & AUDIO != 0
    }

    /// True if the model reasons.
    pub fn is_reasoning(&self) -> bool {
        self.capabilities & REASONS != 0
    }

    /// The vendor's prices, if known.
    pub fn prices(&self) -> Option<Prices> {
        (!self.prices.is_empty()).then(|| Prices(self.prices.to_vec()))
    }
}

/// Prices in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenPrice {
    pub input: f64,
    /// Input that is read from the provider's cache.
    pub cached: f64,
    /// Input that is written to the provider's cache.
    pub cache_write: f64,
    pub output: f64,
}

/// The prices of a model. Long requests can have a higher price per token.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices(Vec<(u64, TokenPrice)>);

impl Prices {
    /// One price for requests of any length.
    pub fn flat(price: TokenPrice) -> Self {
        Self(vec![(0, price)])
    }

    /// The same prices for a cache that lives for an hour: writes cost twice the price of input (Anthropic, "Prompt caching").
    #[must_use]
    pub(crate) fn with_hour_cache(self) -> Self {
        let tiers = self.0.into_iter();
        let with_write = |price: TokenPrice| TokenPrice { cache_write: 2.0 * price.input, ..price };
        Self(tiers.map(|(above, price)| (above, with_write(price))).collect())
    }

    /// The price tiers, in ascending order. Each applies to requests with more input tokens than its threshold.
    pub fn tiers(&self) -> &[(u64, TokenPrice)] {
        &self.0
    }

    /// The price of a request with `input` tokens of input.
    pub fn for_input_tokens(&self, input: u64) -> TokenPrice {
        let tier = self.0.iter().rev().find(|(above, _)| input > *above);
        tier.or(self.0.first()).map_or(FREE, |(_, price)| *price)
    }
}

/// The price of models that are not charged by the token.
pub(crate) const FREE: TokenPrice = price(0.0, 0.0, 0.0, 0.0);

const fn price(input: f64, cached: f64, cache_write: f64, output: f64) -> TokenPrice {
    TokenPrice { input, cached, cache_write, output }
}

/// The facts about `model`, whatever provider serves it.
pub fn find_model(model: &str) -> Option<&'static ModelInfo> {
    let name = normalize_model(model);
    MODELS.iter().find(|info| matches_name(&name, info.name))
}

/// The prices of `model` at a provider, if known.
pub fn find_prices(provider: &ProviderInfo, model: &str) -> Option<Prices> {
    // Local servers and logins are not charged by the token.
    if matches!(provider.kind, ProviderKind::Local | ProviderKind::Login) {
        return Some(Prices::flat(FREE));
    }
    let name = normalize_model(model);
    // OpenRouter passes the vendors' prices on. A variant of a model has a different price, or none.
    let is_openrouter = provider.name == "openrouter";
    match name.split_once(':') {
        Some((_, "free")) if is_openrouter => return Some(Prices::flat(FREE)),
        Some(_) if is_openrouter => return None,
        _ => {}
    }
    let vendor = match provider.name {
        "minimaxAnthropic" => "minimax",
        name => name,
    };
    let info = MODELS
        .iter()
        .find(|info| (info.vendor == vendor || is_openrouter) && matches_name(&name, info.name))?;
    info.prices()
}

/// An upper bound for the prices of a model that is not listed: the highest ones of its family, whatever their vendor.
/// `None` if no model of its family has a price.
pub fn find_family_bound(model: &str) -> Option<Prices> {
    let name = normalize_model(model);
    let family = family_name(&name);
    let relatives =
        MODELS.iter().filter(|info| !family.is_empty() && family_name(info.name) == family);
    let prices = relatives.flat_map(|info| info.prices).map(|(_, price)| *price);
    let highest = prices.reduce(|one, other| TokenPrice {
        input: one.input.max(other.input),
        cached: one.cached.max(other.cached),
        cache_write: one.cache_write.max(other.cache_write),
        output: one.output.max(other.output),
    });
    highest.map(Prices::flat)
}

/// The letters at the start of a model's name: `gpt` of `gpt-5`, `qwen` of `qwen3-coder`.
fn family_name(name: &str) -> &str {
    let end = name.find(|letter: char| !letter.is_ascii_alphabetic());
    &name[..end.unwrap_or(name.len())]
}

/// True if `name` is `model_name`, optionally followed by a date, a tag or `-latest`. Any other suffix is another
/// model.
fn matches_name(name: &str, model_name: &str) -> bool {
    let Some(rest) = name.strip_prefix(model_name) else {
        return false;
    };
    let is_date = |text: &str| {
        text.len() >= 8 && text.chars().all(|letter| letter.is_ascii_digit() || letter == '-')
    };
    match rest.strip_prefix('-') {
        Some(suffix) => suffix == "latest" || is_date(suffix),
        None => rest.is_empty() || rest.starts_with([':', '@']),
    }
}

// Skipped by rustfmt, to keep one row per line.
#[rustfmt::skip]
/// The table of models.
pub const MODELS: &[ModelInfo] = &[
    ModelInfo { vendor: "anthropic", name: "claude-haiku-5-5", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.1, 0.01, 0.125, 0.5)), (100_000, price(0.5, 0.05, 0.625, 2.5))] },
    ModelInfo { vendor: "anthropic", name: "claude-sonnet-5-5", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.1, 2.5, 10.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-opus-5-5", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(4.0, 0.2, 5.0, 20.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-fable-5-1", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 0.25, 12.5, 50.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-mythos-5-1", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 0.25, 12.5, 50.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-sonnet-5", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.5, 10.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-opus-5", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-fable-5", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 1.0, 12.5, 50.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-opus-4-8", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-opus-4-7", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-opus-4-6", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-sonnet-4-6", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(3.0, 0.3, 3.75, 15.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-haiku-4-5", context_tokens: 200_000, max_output_tokens: 64_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(1.0, 0.1, 1.25, 5.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-opus-4-5", context_tokens: 200_000, max_output_tokens: 64_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    ModelInfo { vendor: "anthropic", name: "claude-sonnet-4-5", context_tokens: 200_000, max_output_tokens: 64_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(3.0, 0.3, 3.75, 15.0))] },
    ModelInfo { vendor: "openai", name: "gpt-6-luna", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.1, 0.01, 0.125, 0.5)), (272_000, price(0.2, 0.02, 0.25, 0.75))] },
    ModelInfo { vendor: "openai", name: "gpt-6.1-terra", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(1.0, 0.05, 1.25, 5.0)), (272_000, price(2.0, 0.1, 2.5, 7.5))] },
    ModelInfo { vendor: "openai", name: "gpt-6.1-sol", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.1, 2.5, 10.0)), (272_000, price(4.0, 0.2, 5.0, 15.0))] },
    ModelInfo { vendor: "openai", name: "gpt-6-sol", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.5, 10.0)), (272_000, price(4.0, 0.4, 5.0, 15.0))] },
    ModelInfo { vendor: "openai", name: "gpt-6-astra", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 1.0, 12.5, 50.0)), (272_000, price(20.0, 2.0, 25.0, 75.0))] },
    ModelInfo { vendor: "openai", name: "chat-latest", context_tokens: 400_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 5.0, 30.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.6", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(4.0, 0.4, 5.0, 20.0)), (272_000, price(8.0, 0.8, 10.0, 30.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.6-sol", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(4.0, 0.4, 5.0, 20.0)), (272_000, price(8.0, 0.8, 10.0, 30.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.6-terra", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.5, 12.0)), (272_000, price(4.0, 0.4, 5.0, 18.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.6-luna", context_tokens: 922_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.2, 0.02, 0.25, 1.2)), (272_000, price(0.4, 0.04, 0.5, 1.8))] },
    ModelInfo { vendor: "openai", name: "gpt-5.5", context_tokens: 1_050_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 5.0, 30.0)), (272_000, price(10.0, 1.0, 10.0, 45.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.5-pro", context_tokens: 1_050_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(30.0, 30.0, 30.0, 180.0)), (272_000, price(60.0, 60.0, 60.0, 270.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.4", context_tokens: 1_050_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(2.5, 0.25, 2.5, 15.0)), (272_000, price(5.0, 0.5, 5.0, 22.5))] },
    ModelInfo { vendor: "openai", name: "gpt-5.4-mini", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.75, 0.075, 0.75, 4.5))] },
    ModelInfo { vendor: "openai", name: "gpt-5.4-nano", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.2, 0.02, 0.2, 1.25))] },
    ModelInfo { vendor: "openai", name: "gpt-5.3-codex", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(1.75, 0.175, 1.75, 14.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5.2", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(1.75, 0.175, 1.75, 14.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(1.25, 0.125, 1.25, 10.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5-mini", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.25, 0.025, 0.25, 2.0))] },
    ModelInfo { vendor: "openai", name: "gpt-5-nano", context_tokens: 272_000, max_output_tokens: 128_000, capabilities: IMAGES | PDF | REASONS, prices: &[(0, price(0.05, 0.005, 0.05, 0.4))] },
    ModelInfo { vendor: "openai", name: "gpt-4.1", context_tokens: 1_047_576, max_output_tokens: 32_768, capabilities: IMAGES | PDF, prices: &[(0, price(2.0, 0.5, 2.0, 8.0))] },
    ModelInfo { vendor: "openai", name: "gpt-4.1-mini", context_tokens: 1_047_576, max_output_tokens: 32_768, capabilities: IMAGES | PDF, prices: &[(0, price(0.4, 0.1, 0.4, 1.6))] },
    ModelInfo { vendor: "openai", name: "gpt-4o", context_tokens: 128_000, max_output_tokens: 16_384, capabilities: IMAGES | PDF, prices: &[(0, price(2.5, 1.25, 2.5, 10.0))] },
    ModelInfo { vendor: "openai", name: "gpt-4o-mini", context_tokens: 128_000, max_output_tokens: 16_384, capabilities: IMAGES | PDF, prices: &[(0, price(0.15, 0.075, 0.15, 0.6))] },
    ModelInfo { vendor: "gemini", name: "gemini-3.8-flash", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.75, 0.075, 0.75, 3.75))] },
    ModelInfo { vendor: "gemini", name: "gemini-4-argon", context_tokens: 1_048_576, max_output_tokens: 1_048_576, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(2.0, 0.1, 2.0, 10.0))] },
    ModelInfo { vendor: "gemini", name: "gemini-3.5-flash", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(1.5, 0.15, 1.5, 9.0))] },
    ModelInfo { vendor: "gemini", name: "gemini-3.5-flash-lite", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.3, 0.03, 0.3, 2.5))] },
    ModelInfo { vendor: "gemini", name: "gemini-3.1-pro-preview", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(2.0, 0.2, 2.0, 12.0)), (200_000, price(4.0, 0.4, 4.0, 18.0))] },
    ModelInfo { vendor: "gemini", name: "gemini-3.1-flash-lite", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.25, 0.025, 0.25, 1.5))] },
    ModelInfo { vendor: "gemini", name: "gemini-3-flash-preview", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.5, 0.05, 0.5, 3.0))] },
    ModelInfo { vendor: "gemini", name: "gemini-2.5-pro", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(1.25, 0.125, 1.25, 10.0)), (200_000, price(2.5, 0.25, 2.5, 15.0))] },
    ModelInfo { vendor: "gemini", name: "gemini-2.5-flash", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.3, 0.03, 0.3, 2.5))] },
    ModelInfo { vendor: "gemini", name: "gemini-pro-latest", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(2.0, 0.2, 2.0, 12.0)), (200_000, price(4.0, 0.4, 4.0, 18.0))] },
    ModelInfo { vendor: "gemini", name: "gemini-flash-latest", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.75, 0.075, 0.75, 3.75))] },
    ModelInfo { vendor: "gemini", name: "gemini-flash-lite-latest", context_tokens: 1_048_576, max_output_tokens: 65_536, capabilities: IMAGES | PDF | AUDIO | REASONS, prices: &[(0, price(0.3, 0.03, 0.3, 2.5))] },
    ModelInfo { vendor: "deepseek", name: "deepseek-flash", context_tokens: 1_000_000, max_output_tokens: 393_216, capabilities: IMAGES | REASONS, prices: &[(0, price(0.3, 0.006, 0.3, 1.2))] },
    ModelInfo { vendor: "deepseek", name: "deepseek-v4-flash", context_tokens: 1_000_000, max_output_tokens: 393_216, capabilities: IMAGES | REASONS, prices: &[(0, price(0.3, 0.006, 0.3, 1.2))] },
    ModelInfo { vendor: "deepseek", name: "deepseek-v4-pro", context_tokens: 1_000_000, max_output_tokens: 393_216, capabilities: REASONS, prices: &[(0, price(1.32, 0.044, 1.32, 3.96))] },
    ModelInfo { vendor: "mistral", name: "mistral-small-latest", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES | REASONS, prices: &[(0, price(0.15, 0.015, 0.15, 0.6))] },
    ModelInfo { vendor: "mistral", name: "mistral-medium-latest", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES | REASONS, prices: &[(0, price(1.5, 0.15, 1.5, 7.5))] },
    ModelInfo { vendor: "mistral", name: "mistral-large-latest", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES, prices: &[(0, price(0.5, 0.05, 0.5, 1.5))] },
    ModelInfo { vendor: "mistral", name: "mistral-large-4", context_tokens: 1_048_576, max_output_tokens: 1_048_576, capabilities: IMAGES | REASONS, prices: &[(0, price(1.36, 0.14, 1.36, 4.18))] },
    ModelInfo { vendor: "mistral", name: "devstral-latest", context_tokens: 256_000, max_output_tokens: 256_000, capabilities: REASONS, prices: &[(0, price(0.4, 0.04, 0.4, 2.0))] },
    ModelInfo { vendor: "mistral", name: "devstral-small-latest", context_tokens: 256_000, max_output_tokens: 256_000, capabilities: REASONS, prices: &[(0, price(0.1, 0.01, 0.1, 0.3))] },
    ModelInfo { vendor: "mistral", name: "codestral-latest", context_tokens: 128_000, max_output_tokens: 128_000, capabilities: 0, prices: &[(0, price(0.3, 0.03, 0.3, 0.9))] },
    ModelInfo { vendor: "mistral", name: "ministral-14b-latest", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES, prices: &[(0, price(0.2, 0.02, 0.2, 0.2))] },
    ModelInfo { vendor: "mistral", name: "ministral-8b-latest", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES, prices: &[(0, price(0.15, 0.015, 0.15, 0.15))] },
    ModelInfo { vendor: "moonshot", name: "kimi-k3.1-pro", context_tokens: 1_048_576, max_output_tokens: 1_048_576, capabilities: IMAGES | REASONS, prices: &[(0, price(2.0, 0.2, 2.0, 10.0))] },
    ModelInfo { vendor: "moonshot", name: "kimi-k3", context_tokens: 1_048_576, max_output_tokens: 1_048_576, capabilities: IMAGES | REASONS, prices: &[(0, price(3.0, 0.3, 3.0, 15.0))] },
    ModelInfo { vendor: "moonshot", name: "kimi-k2.7-code", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES | REASONS, prices: &[(0, price(0.95, 0.19, 0.95, 4.0))] },
    ModelInfo { vendor: "moonshot", name: "kimi-k2.6", context_tokens: 262_144, max_output_tokens: 262_144, capabilities: IMAGES | REASONS, prices: &[(0, price(0.95, 0.16, 0.95, 4.0))] },
    ModelInfo { vendor: "zhipu", name: "glm-5.3-flash", context_tokens: 1_048_576, max_output_tokens: 128_000, capabilities: IMAGES | REASONS, prices: &[(0, price(0.15, 0.03, 0.15, 0.5))] },
    ModelInfo { vendor: "zhipu", name: "glm-5.3", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: REASONS, prices: &[(0, price(1.4, 0.26, 1.4, 4.4))] },
    ModelInfo { vendor: "zhipu", name: "glm-5.2", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: REASONS, prices: &[(0, price(1.4, 0.26, 1.4, 4.4))] },
    ModelInfo { vendor: "zhipu", name: "glm-5.1", context_tokens: 200_000, max_output_tokens: 128_000, capabilities: REASONS, prices: &[(0, price(1.4, 0.26, 1.4, 4.4))] },
    ModelInfo { vendor: "zhipu", name: "glm-5", context_tokens: 200_000, max_output_tokens: 128_000, capabilities: REASONS, prices: &[(0, price(1.0, 0.2, 1.0, 3.2))] },
    ModelInfo { vendor: "zhipu", name: "glm-5v-turbo", context_tokens: 200_000, max_output_tokens: 128_000, capabilities: IMAGES | REASONS, prices: &[(0, price(1.2, 0.24, 1.2, 4.0))] },
    ModelInfo { vendor: "zhipu", name: "glm-4.7-flash", context_tokens: 200_000, max_output_tokens: 128_000, capabilities: REASONS, prices: &[(0, price(0.0, 0.0, 0.0, 0.0))] },
    ModelInfo { vendor: "dashscope", name: "qwen3.8-flash", context_tokens: 991_808, max_output_tokens: 131_072, capabilities: IMAGES | REASONS, prices: &[(0, price(0.15, 0.016, 0.2, 0.47))] },
    ModelInfo { vendor: "dashscope", name: "qwen3.8-max", context_tokens: 991_808, max_output_tokens: 131_072, capabilities: IMAGES | REASONS, prices: &[(0, price(2.0, 0.25, 2.0, 6.0))] },
    ModelInfo { vendor: "dashscope", name: "qwen3.7-plus", context_tokens: 991_808, max_output_tokens: 65_536, capabilities: IMAGES | REASONS, prices: &[(0, price(0.4, 0.08, 0.4, 1.6)), (256_000, price(1.2, 0.24, 1.2, 4.8))] },
    ModelInfo { vendor: "dashscope", name: "qwen3.7-max", context_tokens: 991_808, max_output_tokens: 65_536, capabilities: REASONS, prices: &[(0, price(2.5, 0.5, 3.125, 7.5))] },
    ModelInfo { vendor: "dashscope", name: "qwen3.5-plus", context_tokens: 991_808, max_output_tokens: 65_536, capabilities: IMAGES | REASONS, prices: &[(0, price(0.4, 0.4, 0.4, 2.4)), (256_000, price(0.5, 0.5, 0.5, 3.0))] },
    ModelInfo { vendor: "dashscope", name: "qwen3-coder-plus", context_tokens: 997_952, max_output_tokens: 65_536, capabilities: REASONS, prices: &[(0, price(1.0, 0.1, 1.0, 5.0)), (32_000, price(1.8, 0.18, 1.8, 9.0)), (128_000, price(3.0, 0.3, 3.0, 15.0)), (256_000, price(6.0, 0.6, 6.0, 60.0))] },
    ModelInfo { vendor: "dashscope", name: "qwen3-coder-flash", context_tokens: 997_952, max_output_tokens: 65_536, capabilities: REASONS, prices: &[(0, price(0.3, 0.08, 0.3, 1.5)), (32_000, price(0.5, 0.12, 0.5, 2.5)), (128_000, price(0.8, 0.2, 0.8, 4.0)), (256_000, price(1.6, 0.4, 1.6, 9.6))] },
    ModelInfo { vendor: "dashscope", name: "qwen-plus-latest", context_tokens: 997_952, max_output_tokens: 32_768, capabilities: REASONS, prices: &[(0, price(0.4, 0.4, 0.4, 1.2)), (256_000, price(1.2, 1.2, 1.2, 3.6))] },
    ModelInfo { vendor: "minimax", name: "minimax-m3", context_tokens: 1_000_000, max_output_tokens: 128_000, capabilities: IMAGES | REASONS, prices: &[(0, price(0.3, 0.06, 0.3, 1.2)), (512_000, price(0.6, 0.12, 0.6, 2.4))] },
    ModelInfo { vendor: "minimax", name: "minimax-m2.5", context_tokens: 1_000_000, max_output_tokens: 8_192, capabilities: REASONS, prices: &[(0, price(0.3, 0.03, 0.375, 1.2))] },
    ModelInfo { vendor: "minimax", name: "minimax-m2.5-lightning", context_tokens: 1_000_000, max_output_tokens: 8_192, capabilities: REASONS, prices: &[(0, price(0.3, 0.03, 0.375, 2.4))] },
    ModelInfo { vendor: "groq", name: "gpt-oss-120b", context_tokens: 131_072, max_output_tokens: 65_536, capabilities: REASONS, prices: &[(0, price(0.15, 0.075, 0.15, 0.6))] },
    ModelInfo { vendor: "groq", name: "gpt-oss-20b", context_tokens: 131_072, max_output_tokens: 65_536, capabilities: REASONS, prices: &[(0, price(0.075, 0.0375, 0.075, 0.3))] },
    ModelInfo { vendor: "groq", name: "qwen3.8-27b", context_tokens: 131_072, max_output_tokens: 16_384, capabilities: IMAGES | REASONS, prices: &[(0, price(0.8, 0.8, 0.8, 4.0))] },
    ModelInfo { vendor: "xai", name: "grok-4.7", context_tokens: 500_000, max_output_tokens: 500_000, capabilities: IMAGES | REASONS, prices: &[(0, price(2.0, 0.5, 2.0, 6.0)), (200_000, price(4.0, 1.0, 4.0, 12.0))] },
    ModelInfo { vendor: "xai", name: "grok-4.6", context_tokens: 500_000, max_output_tokens: 500_000, capabilities: IMAGES | REASONS, prices: &[(0, price(2.0, 0.5, 2.0, 6.0)), (200_000, price(4.0, 1.0, 4.0, 12.0))] },
    ModelInfo { vendor: "xai", name: "grok-4.5", context_tokens: 500_000, max_output_tokens: 500_000, capabilities: IMAGES | REASONS, prices: &[(0, price(2.0, 0.3, 2.0, 6.0)), (200_000, price(4.0, 0.6, 4.0, 12.0))] },
    ModelInfo { vendor: "xai", name: "grok-4.3", context_tokens: 1_000_000, max_output_tokens: 1_000_000, capabilities: IMAGES | REASONS, prices: &[(0, price(1.25, 0.2, 1.25, 2.5)), (200_000, price(2.5, 0.4, 2.5, 5.0))] },
    ModelInfo { vendor: "xai", name: "grok-build-0.1", context_tokens: 256_000, max_output_tokens: 256_000, capabilities: IMAGES | REASONS, prices: &[(0, price(1.0, 0.2, 1.0, 2.0)), (200_000, price(2.0, 0.4, 2.0, 4.0))] },
    ModelInfo { vendor: "openrouter", name: "deepseek-v4.1-flash", context_tokens: 1_000_000, max_output_tokens: 393_216, capabilities: IMAGES | REASONS, prices: &[(0, price(0.3, 0.006, 0.3, 1.2))] },
];

#[cfg(test)]
mod tests {
    use super::{MODELS, Prices, find_family_bound, find_model, find_prices, price};
    use crate::provider::registry::table::find_provider;

    #[test]
    fn names_lead_to_facts() {
        let name = |model: &str| find_model(model).map(|facts| facts.name);
        assert_eq!(name("claude-haiku-4-5-20251001"), Some("claude-haiku-4-5"));
        assert_eq!(name("anthropic/claude-haiku-4.5"), Some("claude-haiku-4-5"));
        assert_eq!(name("us.anthropic.claude-haiku-4-5@20251001"), Some("claude-haiku-4-5"));
        assert_eq!(name("gpt-4o-2024-08-06"), Some("gpt-4o"));
        assert_eq!(name("gpt-5-mini"), Some("gpt-5-mini"));
        assert_eq!(name("MiniMax-M3"), Some("minimax-m3"));
        assert_eq!(name("gpt-5.9"), None);
        assert_eq!(name("gpt-5-unheard-of"), None);
    }

    #[test]
    fn prices_are_the_vendors_own() {
        let input = |name: &str, model: &str, tokens| {
            find_prices(find_provider(name)?, model)
                .map(|prices| prices.for_input_tokens(tokens).input)
        };
        assert_eq!(input("openai", "gpt-5", 0), Some(1.25));
        assert_eq!(input("openrouter", "openai/gpt-5", 0), Some(1.25));
        assert_eq!(input("openrouter", "openai/gpt-5:free", 0), Some(0.0));
        assert_eq!(input("openrouter", "openai/gpt-5:online", 0), None);
        assert_eq!(input("aihubmix", "gpt-5", 0), None);
        assert_eq!(input("custom", "gpt-5", 0), None);
        assert_eq!(input("ollama", "anything", 0), Some(0.0));
        assert_eq!(input("openai", "gpt-5.4", 272_000), Some(2.5));
        assert_eq!(input("openai", "gpt-5.4", 272_001), Some(5.0));
    }

    #[test]
    fn an_unlisted_model_is_bounded_by_its_family() {
        let bound = |model: &str| {
            find_family_bound(model).map(|prices| {
                let price = prices.for_input_tokens(0);
                (price.input, price.output)
            })
        };
        let highest = |family: &str| {
            let rows = MODELS.iter().filter(|facts| facts.name.starts_with(family));
            let tiers = rows.flat_map(|facts| facts.prices);
            tiers.fold((0.0_f64, 0.0_f64), |(input, output), (_, price)| {
                (input.max(price.input), output.max(price.output))
            })
        };
        assert_eq!(bound("gpt-99"), Some(highest("gpt-")));
        assert_eq!(bound("anthropic/claude-haiku-99"), Some(highest("claude-")));
        assert_eq!(bound("unheard-of"), None);
        assert_eq!(bound("7b"), None);
    }

    #[test]
    fn an_hour_of_cache_costs_twice_the_input() {
        let tiers = Prices(vec![(0, price(1.0, 0.1, 1.25, 5.0)), (9, price(2.0, 0.2, 2.5, 9.0))]);
        let prices = tiers.with_hour_cache();
        assert_eq!(prices.for_input_tokens(1), price(1.0, 0.1, 2.0, 5.0));
        assert_eq!(prices.for_input_tokens(10), price(2.0, 0.2, 4.0, 9.0));
    }

    #[test]
    fn the_table_is_sound() {
        for facts in MODELS {
            assert_eq!(facts.name, facts.name.to_lowercase());
            assert!(find_provider(facts.vendor).is_some(), "{facts:?}");
            assert!(facts.prices.is_sorted_by_key(|(above, _)| *above), "{facts:?}");
            assert!(facts.prices.first().is_none_or(|(above, _)| *above == 0), "{facts:?}");
        }
    }
}
