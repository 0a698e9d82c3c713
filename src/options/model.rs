//! The model of a turn, its parameters, and the limits of its cost.

use super::value::{BodyField, ModelNames, body_field, dollars, model_names, temperature};
use clap::{ArgAction, Args, ValueEnum};
use nanobot_config::settings::FlagOverrides;

/// Model, parameters and cost limit
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// Model, or a preset of the config
    #[arg(id = "model", long = "model", value_name = "NAME", overrides_with = "model")]
    pub name: Option<String>,
    /// Model, or a preset, that answers if the first one cannot; may be repeated
    ///
    /// In this order, in place of the config's `fallbackModels`; separated by commas, or the flag again. An empty value means none.
    #[arg(
        id = "fallback",
        long = "fallback",
        alias = "fallback-model",
        value_name = "NAME",
        action = ArgAction::Append,
        value_parser = model_names,
        hide_short_help = true
    )]
    pub fallbacks: Option<Vec<ModelNames>>,
    /// Maximum number of tokens in one reply
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true, overrides_with = "max_tokens")]
    pub max_tokens: Option<u32>,
    /// Sampling temperature, 0 to 2
    #[arg(long, alias = "temp", value_name = "N", value_parser = temperature, hide_short_help = true, overrides_with = "temperature")]
    pub temperature: Option<f64>,
    /// Reasoning effort: low, medium, high, or another level that the model takes
    #[arg(
        long,
        alias = "effort",
        value_name = "LEVEL",
        hide_short_help = true,
        overrides_with = "reasoning_effort"
    )]
    pub reasoning_effort: Option<String>,
    /// Verbosity of the answer: low, medium or high, where the model takes it
    #[arg(long, value_name = "LEVEL", hide_short_help = true, overrides_with = "verbosity")]
    pub verbosity: Option<String>,
    /// Lifetime of the provider's prompt cache
    ///
    /// For conversations that go on after more than five minutes, such as hourly jobs: an hour for Claude models, whose cache then costs
    /// twice the price of input to write; for OpenAI a cache key of the session, and a day where the model takes it. Other providers
    /// have no such choice. Default: `5m`, the provider's own.
    #[arg(long, value_name = "TIME", hide_short_help = true, overrides_with = "cache")]
    pub cache: Option<CacheTime>,
    /// Add a field to the request's body, such as `top_p=0.9`; may be repeated
    ///
    /// For what a provider offers beside the flags: `seed=7`, `service_tier=flex`. A value that is JSON is sent as such, any other as a
    /// string. Fields that nanobot sets itself are refused.
    #[arg(id = "option", short = 'o', long = "option", value_name = "KEY=VALUE", action = ArgAction::Append, value_parser = body_field,
          hide_short_help = true)]
    pub body_fields: Vec<BodyField>,
    /// Maximum number of requests to the model in a turn
    #[arg(long, alias = "max-turns", value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true, overrides_with = "max_iterations")]
    pub max_iterations: Option<u32>,
    /// Cost limit of a turn, in US dollars
    #[arg(long, alias = "max-budget-usd", value_name = "USD", value_parser = dollars, allow_negative_numbers = true, overrides_with = "max_cost")]
    pub max_cost: Option<f64>,
    /// Do not stream replies, for servers that cannot
    #[arg(long, hide_short_help = true)]
    pub no_stream: bool,
    /// Send keys that nanobot knows, which are masked as `***` otherwise
    ///
    /// The session keeps them masked, and the next turn sends them masked.
    #[arg(long, hide_short_help = true)]
    pub send_keys: bool,
}

/// A lifetime of the provider's prompt cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheTime {
    /// The provider's default
    #[value(name = "5m")]
    Minutes,
    /// An hour, or more
    #[value(name = "1h")]
    Hour,
}

impl CacheTime {
    /// The lifetime that `text` names.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::from_str(text, false).ok()
    }

    /// The value as typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Minutes => "5m",
            Self::Hour => "1h",
        }
    }
}

impl ModelOptions {
    /// The options that take precedence over the settings of the config.
    pub(crate) fn overrides(&self) -> FlagOverrides {
        FlagOverrides {
            model: self.name.clone(),
            fallbacks: self.fallbacks.as_deref().map(ModelNames::join),
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            reasoning_effort: self.reasoning_effort.clone(),
            verbosity: self.verbosity.clone(),
            body_fields: self
                .body_fields
                .iter()
                .map(|field| (field.name.clone(), field.value.clone()))
                .collect(),
            max_iterations: self.max_iterations,
            workspace: None,
        }
    }
}
