//! Models: the built-in table, the list of a provider, and the details of one model.

use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::models::ModelOverrides;
use nanobot_config::settings::{FlagOverrides, ModelSettings, Settings};
use nanobot_model::provider::registry::model_info::{MODELS, ModelInfo, Prices};
use nanobot_model::provider::registry::{self, ApiFormat, SelectedProvider, normalize_name};
use nanobot_model::provider::{FailureKind, ProviderError};
use nanobot_net::web_url;
use nanobot_os::durable_file;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout for a provider's list of models.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// The models in the table; only those of `provider`, if it is given.
///
/// # Errors
/// There is no such provider.
pub(crate) fn table_models(
    ctx: &Context,
    provider: Option<&str>,
) -> Result<Vec<&'static ModelInfo>> {
    if let Some(name) = provider.filter(|name| registry::find_provider(name).is_none()) {
        require_provider(name, &ctx.settings()?)?;
    }
    let is_of_provider = |model: &&ModelInfo| {
        provider.is_none_or(|name| normalize_name(name) == normalize_name(model.vendor))
    };
    Ok(MODELS.iter().filter(is_of_provider).collect())
}

/// The models that a provider lists.
pub(crate) struct ListedModels {
    pub(crate) provider: String,
    pub(crate) names: Vec<String>,
}

/// Asks `provider`, or the provider of the config, for its models.
///
/// # Errors
/// There is no such provider, or it does not list its models.
pub(crate) fn listed_models(ctx: &Context, provider: Option<&str>) -> Result<ListedModels> {
    let settings = ctx.settings()?;
    let mut model_settings = settings.models[0].clone();
    if let Some(name) = provider {
        require_provider(name, &settings)?;
        model_settings = ModelSettings { provider: name.to_owned(), model: None, ..model_settings };
    }
    let settings = connection_test::with_short_timeouts(&settings, LIST_TIMEOUT);
    let endpoint = model::resolve_endpoint(ctx, &settings, &model_settings, false, true)?;
    let http_provider = &endpoint.http_provider;
    let address = http_provider.address.current();
    if http_provider.key.is_configured() && web_url::is_remote_cleartext(&address) {
        let address = web_url::redact_url(&address);
        ctx.notice(&format!("the API key is sent to {address} unencrypted"));
    }
    let names = http_provider.list_models(&mut |text| ctx.notice(text)).map_err(list_error)?;
    endpoint.store_models(ctx, &names);
    Ok(ListedModels { provider: endpoint.choice.provider, names })
}

impl Endpoint {
    /// The file with the models that the server listed, one name on each line.
    fn models_file(&self, ctx: &Context) -> PathBuf {
        let SelectedProvider { provider, base_url, .. } = &self.choice;
        let name = format!("{}.models", model::server_file_name(provider, base_url, ""));
        ctx.paths.root.join("limits").join(name)
    }

    /// Stores the models that the server listed, for completion. Best effort: without the file, completion offers less.
    pub(crate) fn store_models(&self, ctx: &Context, names: &[String]) {
        let path = self.models_file(ctx);
        drop(path.parent().map(durable_file::create_dir));
        drop(durable_file::replace(&path, names.join("\n").as_bytes()));
    }

    /// The models that the server listed when it was last asked.
    pub(crate) fn stored_models(&self, ctx: &Context) -> Vec<String> {
        let text = std::fs::read_to_string(self.models_file(ctx)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The failure of a server that does not list its models. The hints for a failed turn do not apply here.
fn list_error(error: ProviderError) -> anyhow::Error {
    match error {
        ProviderError::Failed {
            kind: FailureKind::ModelNotFound | FailureKind::NoSuchAddress,
            message,
            ..
        } => fail(Exit::Config, message)
            .with_hint("the provider's documentation: not every server lists its models"),
        error => error.into_failure(),
    }
}

/// Fails if `name` is not a provider, in the table or in the config.
fn require_provider(name: &str, settings: &Settings) -> Result<()> {
    let is_same = |other: &String| normalize_name(other) == normalize_name(name);
    if registry::find_provider(name).is_some() || settings.providers.keys().any(is_same) {
        Ok(())
    } else {
        let cause = format!("there is no provider `{name}`");
        let own_names = settings.providers.keys().map(String::as_str);
        let names = registry::PROVIDERS.iter().map(|provider| provider.name).chain(own_names);
        Err(match nearest(name, names) {
            Some(nearest) => fail(Exit::Usage, cause).with_hint(format!("`{nearest}`")),
            None => fail(Exit::Usage, cause).with_hint("nanobot model provider list"),
        })
    }
}

/// A fact with its source.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fact<T> {
    pub(crate) value: T,
    pub(crate) from: FactSource,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FactSource {
    Table,
    Config,
    /// The report of a local server.
    Server,
}

impl FactSource {
    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Config => "config",
            Self::Server => "server",
        }
    }
}

/// Prices in US dollars per million tokens, for requests with more tokens than `above`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PriceTier {
    pub(crate) above: u64,
    pub(crate) input: f64,
    pub(crate) cached_input: f64,
    pub(crate) cache_write: f64,
    pub(crate) output: f64,
}

/// The prices of a model, for requests of each length.
pub(crate) fn price_tiers(prices: &Prices) -> Vec<PriceTier> {
    let tiers = prices.tiers().iter().map(|(above, price)| PriceTier {
        above: *above,
        input: price.input,
        cached_input: price.cached,
        cache_write: price.cache_write,
        output: price.output,
    });
    tiers.collect()
}

#[derive(Debug, Serialize)]
pub(crate) struct ModelDetails {
    /// The name that the user gave.
    pub(crate) name: String,
    pub(crate) provider: String,
    /// The provider's name for people; empty for one that is not in the table.
    pub(crate) label: &'static str,
    pub(crate) address: String,
    pub(crate) format: &'static str,
    /// The name that the provider gets.
    pub(crate) model: String,
    /// The source of the key; `None` if there is none.
    pub(crate) key: Option<String>,
    pub(crate) context: Option<Fact<u32>>,
    pub(crate) output: Option<Fact<u32>>,
    pub(crate) images: Option<Fact<bool>>,
    pub(crate) pdf: Option<Fact<bool>>,
    pub(crate) audio: Option<Fact<bool>>,
    pub(crate) reasoning: Option<Fact<bool>>,
    pub(crate) prices: Option<Fact<Vec<PriceTier>>>,
    /// The peculiarities of the server, for people.
    pub(crate) quirks: Vec<String>,
    pub(crate) fallbacks: Vec<ModelFallback>,
}

/// A model that is used when the first one is unavailable.
#[derive(Debug, Serialize)]
pub(crate) struct ModelFallback {
    /// `None` for the default of its provider.
    pub(crate) model: Option<String>,
    pub(crate) provider: String,
}

impl ModelDetails {
    /// Collects the details of the model `name`. A local server is asked for its context window.
    ///
    /// # Errors
    /// No provider has the model, or its endpoint cannot be used.
    pub(crate) fn find(ctx: &Context, name: &str) -> Result<Self> {
        let overrides = FlagOverrides { model: Some(name.to_owned()), ..FlagOverrides::default() };
        let settings = ctx.settings_with(overrides)?;
        let model_settings = &settings.models[0];
        let endpoint = model::resolve_endpoint(ctx, &settings, model_settings, true, true)?;
        endpoint.update_window_report(ctx, &settings, model_settings, true);
        let reported_context = endpoint.reported_context_tokens(ctx, &settings, model_settings);
        let Endpoint { choice, http_provider } = endpoint;
        let SelectedProvider { model_info, mut quirks, .. } = choice;
        // Only the chat completions format has two names for this parameter.
        quirks.max_completion_tokens &= choice.format == ApiFormat::Chat;
        let ModelOverrides { context_window, max_output_tokens, images, pdf, audio, price, .. } =
            model_settings.overrides;
        // The prices of the choice already come from the config if it has any.
        let prices_from = if price.is_some() { FactSource::Config } else { FactSource::Table };
        let has_key = http_provider.key.is_configured();
        let fallbacks = settings.models[1..].iter().map(|fallback| ModelFallback {
            model: fallback.model.clone(),
            provider: fallback.provider.clone(),
        });
        Ok(Self {
            name: name.to_owned(),
            label: choice.entry.label,
            address: web_url::redact_url(&http_provider.address.current()),
            format: choice.format.name(),
            key: has_key.then(|| choice.key_label.plain_text()),
            context: match (context_window, reported_context) {
                (None, Some(tokens)) => Some(Fact { value: tokens, from: FactSource::Server }),
                (configured, _) => fact(configured, model_info.map(|info| info.context_tokens)),
            },
            output: fact(max_output_tokens, model_info.map(|info| info.max_output_tokens)),
            images: fact(images, model_info.map(ModelInfo::accepts_images)),
            pdf: fact(pdf, model_info.map(ModelInfo::accepts_pdf)),
            audio: fact(audio, model_info.map(ModelInfo::accepts_audio)),
            reasoning: fact(None, model_info.map(ModelInfo::is_reasoning)),
            prices: choice
                .prices
                .map(|prices| Fact { value: price_tiers(&prices), from: prices_from }),
            quirks: quirks.describe(),
            fallbacks: fallbacks.collect(),
            provider: choice.provider,
            model: choice.model,
        })
    }
}

/// A fact from the config, or else from the table.
fn fact<T>(config: Option<T>, table: Option<T>) -> Option<Fact<T>> {
    let config = config.map(|value| Fact { value, from: FactSource::Config });
    config.or(table.map(|value| Fact { value, from: FactSource::Table }))
}
