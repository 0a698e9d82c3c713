//! Known facts about models: context windows, limits, abilities, prices. The config can override outdated facts; facts
//! about unlisted models are unknown, never guessed. Source: the vendors and LiteLLM 1.109.1, November 2026.

use super::entry::{Entry, Kind};
use crate::provider::quirks::bare;

/// The facts about a model and its dated versions.
#[derive(Debug)]
pub struct Facts {
    /// The name of the provider entry that charges these prices.
    pub vendor: &'static str,
    /// The model's name in lower case, without a vendor prefix.
    pub name: &'static str,
    /// Context window in tokens.
    pub context: u32,
    /// Output limit in tokens.
    pub output: u32,
    /// Bit set: input types other than text, and reasoning.
    can: u8,
    /// Price tiers, in ascending order. Each applies to requests with more input tokens than its threshold.
    prices: &'static [(u64, Price)],
}

const IMAGES: u8 = 1;
const PDF: u8 = 2;
const REASONS: u8 = 4;

impl Facts {
    /// True if the model accepts images.
    pub fn images(&self) -> bool {
        self.can & IMAGES != 0
    }

    /// True if the model accepts PDF documents.
    pub fn pdf(&self) -> bool {
        self.can & PDF != 0
    }

    /// True if the model reasons.
    pub fn reasons(&self) -> bool {
        self.can & REASONS != 0
    }

    /// The vendor's prices, if known.
    pub fn prices(&self) -> Option<Prices> {
        (!self.prices.is_empty()).then(|| Prices(self.prices.to_vec()))
    }
}

/// Prices in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    pub input: f64,
    /// Input that is read from the provider's cache.
    pub cached: f64,
    /// Input that is written to the provider's cache.
    pub cache_write: f64,
    pub output: f64,
}

/// The prices of a model. Long requests can have a higher price per token.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices(Vec<(u64, Price)>);

impl Prices {
    /// One price for requests of any length.
    pub fn flat(price: Price) -> Self {
        Self(vec![(0, price)])
    }

    /// The price tiers, in ascending order. Each applies to requests with more input tokens than its threshold.
    pub fn tiers(&self) -> &[(u64, Price)] {
        &self.0
    }

    /// The price of a request with `input` tokens of input.
    pub fn at(&self, input: u64) -> Price {
        let fits = self.0.iter().rev().find(|(above, _)| input > *above);
        fits.or(self.0.first()).map_or(FREE, |(_, price)| *price)
    }
}

/// The price of models that are not charged by the token.
const FREE: Price = price(0.0, 0.0, 0.0, 0.0);

const fn price(input: f64, cached: f64, cache_write: f64, output: f64) -> Price {
    Price {
        input,
        cached,
        cache_write,
        output,
    }
}

/// The facts about `model`, whatever provider serves it.
pub fn of(model: &str) -> Option<&'static Facts> {
    let name = bare(model);
    MODELS.iter().find(|facts| is_named(&name, facts.name))
}

/// The prices of `model` at the provider `entry`, if known.
pub fn prices(entry: Option<&Entry>, model: &str) -> Option<Prices> {
    let entry = entry?;
    // Local servers and logins are not charged by the token.
    if matches!(entry.kind, Kind::Local | Kind::Login) {
        return Some(Prices::flat(FREE));
    }
    let name = bare(model);
    // OpenRouter passes the vendors' prices on. A variant of a model has a different price, or none.
    let passes_on = entry.name == "openrouter";
    match name.split_once(':') {
        Some((_, "free")) if passes_on => return Some(Prices::flat(FREE)),
        Some(_) if passes_on => return None,
        _ => {}
    }
    let vendor = match entry.name {
        "minimaxAnthropic" => "minimax",
        name => name,
    };
    let facts = MODELS
        .iter()
        .find(|facts| (facts.vendor == vendor || passes_on) && is_named(&name, facts.name))?;
    facts.prices()
}

/// True if `name` is `model_name`, optionally followed by a date, a tag or `-latest`. Any other suffix is another
/// model.
fn is_named(name: &str, known: &str) -> bool {
    let Some(rest) = name.strip_prefix(known) else {
        return false;
    };
    let is_date = |text: &str| {
        text.len() >= 8
            && text
                .chars()
                .all(|letter| letter.is_ascii_digit() || letter == '-')
    };
    match rest.strip_prefix('-') {
        Some(tail) => tail == "latest" || is_date(tail),
        None => rest.is_empty() || rest.starts_with([':', '@']),
    }
}

// Skipped by rustfmt, to keep one row per line.
#[rustfmt::skip]
/// The table of models.
pub const MODELS: &[Facts] = &[
    Facts { vendor: "anthropic", name: "claude-haiku-5-5", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.1, 0.01, 0.125, 0.5)), (100_000, price(0.5, 0.05, 0.625, 2.5))] },
    Facts { vendor: "anthropic", name: "claude-sonnet-5-5", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.1, 2.5, 10.0))] },
    Facts { vendor: "anthropic", name: "claude-opus-5-5", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(4.0, 0.2, 5.0, 20.0))] },
    Facts { vendor: "anthropic", name: "claude-fable-5-1", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 0.25, 12.5, 50.0))] },
    Facts { vendor: "anthropic", name: "claude-mythos-5-1", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 0.25, 12.5, 50.0))] },
    Facts { vendor: "anthropic", name: "claude-sonnet-5", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.5, 10.0))] },
    Facts { vendor: "anthropic", name: "claude-opus-5", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    Facts { vendor: "anthropic", name: "claude-fable-5", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 1.0, 12.5, 50.0))] },
    Facts { vendor: "anthropic", name: "claude-opus-4-8", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    Facts { vendor: "anthropic", name: "claude-opus-4-7", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    Facts { vendor: "anthropic", name: "claude-opus-4-6", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    Facts { vendor: "anthropic", name: "claude-sonnet-4-6", context: 1_000_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(3.0, 0.3, 3.75, 15.0))] },
    Facts { vendor: "anthropic", name: "claude-haiku-4-5", context: 200_000, output: 64_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.0, 0.1, 1.25, 5.0))] },
    Facts { vendor: "anthropic", name: "claude-opus-4-5", context: 200_000, output: 64_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 6.25, 25.0))] },
    Facts { vendor: "anthropic", name: "claude-sonnet-4-5", context: 200_000, output: 64_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(3.0, 0.3, 3.75, 15.0))] },
    Facts { vendor: "openai", name: "gpt-6-luna", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.1, 0.01, 0.125, 0.5)), (272_000, price(0.2, 0.02, 0.25, 0.75))] },
    Facts { vendor: "openai", name: "gpt-6.1-terra", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.0, 0.05, 1.25, 5.0)), (272_000, price(2.0, 0.1, 2.5, 7.5))] },
    Facts { vendor: "openai", name: "gpt-6.1-sol", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.1, 2.5, 10.0)), (272_000, price(4.0, 0.2, 5.0, 15.0))] },
    Facts { vendor: "openai", name: "gpt-6-sol", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.5, 10.0)), (272_000, price(4.0, 0.4, 5.0, 15.0))] },
    Facts { vendor: "openai", name: "gpt-6-astra", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(10.0, 1.0, 12.5, 50.0)), (272_000, price(20.0, 2.0, 25.0, 75.0))] },
    Facts { vendor: "openai", name: "chat-latest", context: 400_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 5.0, 30.0))] },
    Facts { vendor: "openai", name: "gpt-5.6", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(4.0, 0.4, 5.0, 20.0)), (272_000, price(8.0, 0.8, 10.0, 30.0))] },
    Facts { vendor: "openai", name: "gpt-5.6-sol", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(4.0, 0.4, 5.0, 20.0)), (272_000, price(8.0, 0.8, 10.0, 30.0))] },
    Facts { vendor: "openai", name: "gpt-5.6-terra", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.5, 12.0)), (272_000, price(4.0, 0.4, 5.0, 18.0))] },
    Facts { vendor: "openai", name: "gpt-5.6-luna", context: 922_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.2, 0.02, 0.25, 1.2)), (272_000, price(0.4, 0.04, 0.5, 1.8))] },
    Facts { vendor: "openai", name: "gpt-5.5", context: 1_050_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(5.0, 0.5, 5.0, 30.0)), (272_000, price(10.0, 1.0, 10.0, 45.0))] },
    Facts { vendor: "openai", name: "gpt-5.5-pro", context: 1_050_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(30.0, 30.0, 30.0, 180.0)), (272_000, price(60.0, 60.0, 60.0, 270.0))] },
    Facts { vendor: "openai", name: "gpt-5.4", context: 1_050_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.5, 0.25, 2.5, 15.0)), (272_000, price(5.0, 0.5, 5.0, 22.5))] },
    Facts { vendor: "openai", name: "gpt-5.4-mini", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.75, 0.075, 0.75, 4.5))] },
    Facts { vendor: "openai", name: "gpt-5.4-nano", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.2, 0.02, 0.2, 1.25))] },
    Facts { vendor: "openai", name: "gpt-5.3-codex", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.75, 0.175, 1.75, 14.0))] },
    Facts { vendor: "openai", name: "gpt-5.2", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.75, 0.175, 1.75, 14.0))] },
    Facts { vendor: "openai", name: "gpt-5", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.25, 0.125, 1.25, 10.0))] },
    Facts { vendor: "openai", name: "gpt-5-mini", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.25, 0.025, 0.25, 2.0))] },
    Facts { vendor: "openai", name: "gpt-5-nano", context: 272_000, output: 128_000, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.05, 0.005, 0.05, 0.4))] },
    Facts { vendor: "openai", name: "gpt-4.1", context: 1_047_576, output: 32_768, can: IMAGES | PDF, prices: &[(0, price(2.0, 0.5, 2.0, 8.0))] },
    Facts { vendor: "openai", name: "gpt-4.1-mini", context: 1_047_576, output: 32_768, can: IMAGES | PDF, prices: &[(0, price(0.4, 0.1, 0.4, 1.6))] },
    Facts { vendor: "openai", name: "gpt-4o", context: 128_000, output: 16_384, can: IMAGES | PDF, prices: &[(0, price(2.5, 1.25, 2.5, 10.0))] },
    Facts { vendor: "openai", name: "gpt-4o-mini", context: 128_000, output: 16_384, can: IMAGES | PDF, prices: &[(0, price(0.15, 0.075, 0.15, 0.6))] },
    Facts { vendor: "gemini", name: "gemini-3.8-flash", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.75, 0.075, 0.75, 3.75))] },
    Facts { vendor: "gemini", name: "gemini-4-argon", context: 1_048_576, output: 1_048_576, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.1, 2.0, 10.0))] },
    Facts { vendor: "gemini", name: "gemini-3.5-flash", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.5, 0.15, 1.5, 9.0))] },
    Facts { vendor: "gemini", name: "gemini-3.5-flash-lite", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.3, 0.03, 0.3, 2.5))] },
    Facts { vendor: "gemini", name: "gemini-3.1-pro-preview", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.0, 12.0)), (200_000, price(4.0, 0.4, 4.0, 18.0))] },
    Facts { vendor: "gemini", name: "gemini-3.1-flash-lite", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.25, 0.025, 0.25, 1.5))] },
    Facts { vendor: "gemini", name: "gemini-3-flash-preview", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.5, 0.05, 0.5, 3.0))] },
    Facts { vendor: "gemini", name: "gemini-2.5-pro", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(1.25, 0.125, 1.25, 10.0)), (200_000, price(2.5, 0.25, 2.5, 15.0))] },
    Facts { vendor: "gemini", name: "gemini-2.5-flash", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.3, 0.03, 0.3, 2.5))] },
    Facts { vendor: "gemini", name: "gemini-pro-latest", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(2.0, 0.2, 2.0, 12.0)), (200_000, price(4.0, 0.4, 4.0, 18.0))] },
    Facts { vendor: "gemini", name: "gemini-flash-latest", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.75, 0.075, 0.75, 3.75))] },
    Facts { vendor: "gemini", name: "gemini-flash-lite-latest", context: 1_048_576, output: 65_536, can: IMAGES | PDF | REASONS, prices: &[(0, price(0.3, 0.03, 0.3, 2.5))] },
    Facts { vendor: "deepseek", name: "deepseek-flash", context: 1_000_000, output: 393_216, can: IMAGES | REASONS, prices: &[(0, price(0.3, 0.006, 0.3, 1.2))] },
    Facts { vendor: "deepseek", name: "deepseek-v4-flash", context: 1_000_000, output: 393_216, can: IMAGES | REASONS, prices: &[(0, price(0.3, 0.006, 0.3, 1.2))] },
    Facts { vendor: "deepseek", name: "deepseek-v4-pro", context: 1_000_000, output: 393_216, can: REASONS, prices: &[(0, price(1.32, 0.044, 1.32, 3.96))] },
    Facts { vendor: "mistral", name: "mistral-small-latest", context: 262_144, output: 262_144, can: IMAGES | REASONS, prices: &[(0, price(0.15, 0.015, 0.15, 0.6))] },
    Facts { vendor: "mistral", name: "mistral-medium-latest", context: 262_144, output: 262_144, can: IMAGES | REASONS, prices: &[(0, price(1.5, 0.15, 1.5, 7.5))] },
    Facts { vendor: "mistral", name: "mistral-large-latest", context: 262_144, output: 262_144, can: IMAGES, prices: &[(0, price(0.5, 0.05, 0.5, 1.5))] },
    Facts { vendor: "mistral", name: "mistral-large-4", context: 1_048_576, output: 1_048_576, can: IMAGES | REASONS, prices: &[(0, price(1.36, 0.14, 1.36, 4.18))] },
    Facts { vendor: "mistral", name: "devstral-latest", context: 256_000, output: 256_000, can: REASONS, prices: &[(0, price(0.4, 0.04, 0.4, 2.0))] },
    Facts { vendor: "mistral", name: "devstral-small-latest", context: 256_000, output: 256_000, can: REASONS, prices: &[(0, price(0.1, 0.01, 0.1, 0.3))] },
    Facts { vendor: "mistral", name: "codestral-latest", context: 128_000, output: 128_000, can: 0, prices: &[(0, price(0.3, 0.03, 0.3, 0.9))] },
    Facts { vendor: "mistral", name: "ministral-14b-latest", context: 262_144, output: 262_144, can: IMAGES, prices: &[(0, price(0.2, 0.02, 0.2, 0.2))] },
    Facts { vendor: "mistral", name: "ministral-8b-latest", context: 262_144, output: 262_144, can: IMAGES, prices: &[(0, price(0.15, 0.015, 0.15, 0.15))] },
    Facts { vendor: "moonshot", name: "kimi-k3.1-pro", context: 1_048_576, output: 1_048_576, can: IMAGES | REASONS, prices: &[(0, price(2.0, 0.2, 2.0, 10.0))] },
    Facts { vendor: "moonshot", name: "kimi-k3", context: 1_048_576, output: 1_048_576, can: IMAGES | REASONS, prices: &[(0, price(3.0, 0.3, 3.0, 15.0))] },
    Facts { vendor: "moonshot", name: "kimi-k2.7-code", context: 262_144, output: 262_144, can: IMAGES | REASONS, prices: &[(0, price(0.95, 0.19, 0.95, 4.0))] },
    Facts { vendor: "moonshot", name: "kimi-k2.6", context: 262_144, output: 262_144, can: IMAGES | REASONS, prices: &[(0, price(0.95, 0.16, 0.95, 4.0))] },
    Facts { vendor: "zhipu", name: "glm-5.3-flash", context: 1_048_576, output: 128_000, can: IMAGES | REASONS, prices: &[(0, price(0.15, 0.03, 0.15, 0.5))] },
    Facts { vendor: "zhipu", name: "glm-5.3", context: 1_000_000, output: 128_000, can: REASONS, prices: &[(0, price(1.4, 0.26, 1.4, 4.4))] },
    Facts { vendor: "zhipu", name: "glm-5.2", context: 1_000_000, output: 128_000, can: REASONS, prices: &[(0, price(1.4, 0.26, 1.4, 4.4))] },
    Facts { vendor: "zhipu", name: "glm-5.1", context: 200_000, output: 128_000, can: REASONS, prices: &[(0, price(1.4, 0.26, 1.4, 4.4))] },
    Facts { vendor: "zhipu", name: "glm-5", context: 200_000, output: 128_000, can: REASONS, prices: &[(0, price(1.0, 0.2, 1.0, 3.2))] },
    Facts { vendor: "zhipu", name: "glm-5v-turbo", context: 200_000, output: 128_000, can: IMAGES | REASONS, prices: &[(0, price(1.2, 0.24, 1.2, 4.0))] },
    Facts { vendor: "zhipu", name: "glm-4.7-flash", context: 200_000, output: 128_000, can: REASONS, prices: &[(0, price(0.0, 0.0, 0.0, 0.0))] },
    Facts { vendor: "dashscope", name: "qwen3.8-flash", context: 991_808, output: 131_072, can: IMAGES | REASONS, prices: &[(0, price(0.15, 0.016, 0.2, 0.47))] },
    Facts { vendor: "dashscope", name: "qwen3.8-max", context: 991_808, output: 131_072, can: IMAGES | REASONS, prices: &[(0, price(2.0, 0.25, 2.0, 6.0))] },
    Facts { vendor: "dashscope", name: "qwen3.7-plus", context: 991_808, output: 65_536, can: IMAGES | REASONS, prices: &[(0, price(0.4, 0.08, 0.4, 1.6)), (256_000, price(1.2, 0.24, 1.2, 4.8))] },
    Facts { vendor: "dashscope", name: "qwen3.7-max", context: 991_808, output: 65_536, can: REASONS, prices: &[(0, price(2.5, 0.5, 3.125, 7.5))] },
    Facts { vendor: "dashscope", name: "qwen3.5-plus", context: 991_808, output: 65_536, can: IMAGES | REASONS, prices: &[(0, price(0.4, 0.4, 0.4, 2.4)), (256_000, price(0.5, 0.5, 0.5, 3.0))] },
    Facts { vendor: "dashscope", name: "qwen3-coder-plus", context: 997_952, output: 65_536, can: REASONS, prices: &[(0, price(1.0, 0.1, 1.0, 5.0)), (32_000, price(1.8, 0.18, 1.8, 9.0)), (128_000, price(3.0, 0.3, 3.0, 15.0)), (256_000, price(6.0, 0.6, 6.0, 60.0))] },
    Facts { vendor: "dashscope", name: "qwen3-coder-flash", context: 997_952, output: 65_536, can: REASONS, prices: &[(0, price(0.3, 0.08, 0.3, 1.5)), (32_000, price(0.5, 0.12, 0.5, 2.5)), (128_000, price(0.8, 0.2, 0.8, 4.0)), (256_000, price(1.6, 0.4, 1.6, 9.6))] },
    Facts { vendor: "dashscope", name: "qwen-plus-latest", context: 997_952, output: 32_768, can: REASONS, prices: &[(0, price(0.4, 0.4, 0.4, 1.2)), (256_000, price(1.2, 1.2, 1.2, 3.6))] },
    Facts { vendor: "minimax", name: "minimax-m3", context: 1_000_000, output: 128_000, can: IMAGES | REASONS, prices: &[(0, price(0.3, 0.06, 0.3, 1.2)), (512_000, price(0.6, 0.12, 0.6, 2.4))] },
    Facts { vendor: "minimax", name: "minimax-m2.5", context: 1_000_000, output: 8_192, can: REASONS, prices: &[(0, price(0.3, 0.03, 0.375, 1.2))] },
    Facts { vendor: "minimax", name: "minimax-m2.5-lightning", context: 1_000_000, output: 8_192, can: REASONS, prices: &[(0, price(0.3, 0.03, 0.375, 2.4))] },
    Facts { vendor: "groq", name: "gpt-oss-120b", context: 131_072, output: 65_536, can: REASONS, prices: &[(0, price(0.15, 0.075, 0.15, 0.6))] },
    Facts { vendor: "groq", name: "gpt-oss-20b", context: 131_072, output: 65_536, can: REASONS, prices: &[(0, price(0.075, 0.0375, 0.075, 0.3))] },
    Facts { vendor: "groq", name: "qwen3.8-27b", context: 131_072, output: 16_384, can: IMAGES | REASONS, prices: &[(0, price(0.8, 0.8, 0.8, 4.0))] },
    Facts { vendor: "xai", name: "grok-4.7", context: 500_000, output: 500_000, can: IMAGES | REASONS, prices: &[(0, price(2.0, 0.5, 2.0, 6.0)), (200_000, price(4.0, 1.0, 4.0, 12.0))] },
    Facts { vendor: "xai", name: "grok-4.6", context: 500_000, output: 500_000, can: IMAGES | REASONS, prices: &[(0, price(2.0, 0.5, 2.0, 6.0)), (200_000, price(4.0, 1.0, 4.0, 12.0))] },
    Facts { vendor: "xai", name: "grok-4.5", context: 500_000, output: 500_000, can: IMAGES | REASONS, prices: &[(0, price(2.0, 0.3, 2.0, 6.0)), (200_000, price(4.0, 0.6, 4.0, 12.0))] },
    Facts { vendor: "xai", name: "grok-4.3", context: 1_000_000, output: 1_000_000, can: IMAGES | REASONS, prices: &[(0, price(1.25, 0.2, 1.25, 2.5)), (200_000, price(2.5, 0.4, 2.5, 5.0))] },
    Facts { vendor: "xai", name: "grok-build-0.1", context: 256_000, output: 256_000, can: IMAGES | REASONS, prices: &[(0, price(1.0, 0.2, 1.0, 2.0)), (200_000, price(2.0, 0.4, 2.0, 4.0))] },
    Facts { vendor: "openrouter", name: "deepseek-v4.1-flash", context: 1_000_000, output: 393_216, can: IMAGES | REASONS, prices: &[(0, price(0.3, 0.006, 0.3, 1.2))] },
];

#[cfg(test)]
mod tests {
    use super::{MODELS, of, prices};
    use crate::provider::registry::entry;

    #[test]
    fn names_lead_to_facts() {
        let name = |model: &str| of(model).map(|facts| facts.name);
        assert_eq!(name("claude-haiku-4-5-20251001"), Some("claude-haiku-4-5"));
        assert_eq!(name("anthropic/claude-haiku-4.5"), Some("claude-haiku-4-5"));
        assert_eq!(
            name("us.anthropic.claude-haiku-4-5@20251001"),
            Some("claude-haiku-4-5")
        );
        assert_eq!(name("gpt-4o-2024-08-06"), Some("gpt-4o"));
        assert_eq!(name("gpt-5-mini"), Some("gpt-5-mini"));
        assert_eq!(name("MiniMax-M3"), Some("minimax-m3"));
        assert_eq!(name("gpt-5.9"), None);
        assert_eq!(name("gpt-5-unheard-of"), None);
    }

    #[test]
    fn prices_are_the_vendors_own() {
        let input = |name: &str, model: &str, tokens| {
            prices(entry(name), model).map(|prices| prices.at(tokens).input)
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
    fn the_table_is_sound() {
        for facts in MODELS {
            assert_eq!(facts.name, facts.name.to_lowercase());
            assert!(entry(facts.vendor).is_some(), "{facts:?}");
            assert!(
                facts.prices.is_sorted_by_key(|(above, _)| *above),
                "{facts:?}"
            );
            assert!(
                facts.prices.first().is_none_or(|(above, _)| *above == 0),
                "{facts:?}"
            );
        }
    }
}
