//! `nanobot model`: lists the known models, and shows which provider a model resolves to.

use crate::cli::model::ModelCommand as Arguments;
use crate::command::name_pattern::NamePattern;
use crate::error::{Exit, fail_with_hint};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint};
use crate::provider::ProviderError;
use crate::provider::registry::model_info::{self, MODELS, ModelInfo, Prices, TokenPrice};
use crate::provider::registry::{self, ApiFormat, SelectedProvider, normalize_name};
use crate::report::columns::{Column, Side, format_table};
use crate::settings::keys::nearest;
use crate::settings::models::ModelOverrides;
use crate::settings::{FlagOverrides, ModelSettings, Settings};
use crate::sys::terminal::sanitize;
use crate::sys::web_url;
use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Timeout for a provider's list of models.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// Runs `nanobot model`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List { pattern, provider, json, remote } => {
            let names = NamePattern(pattern.as_deref());
            match remote {
                true => list_remote(ctx, names, provider.as_deref(), *json)?,
                false => list(ctx, names, provider.as_deref(), *json)?,
            }
        }
        Arguments::Show { name, json } => show(ctx, name, *json)?,
    }
    Ok(Exit::Answered)
}

fn settings(ctx: &Context, model: Option<&str>) -> Result<Settings> {
    ctx.settings_with(FlagOverrides { model: model.map(str::to_owned), ..FlagOverrides::default() })
}

/// Prints the models in the built-in table.
fn list(
    ctx: &Context,
    names: NamePattern<'_>,
    provider: Option<&str>,
    as_json: bool,
) -> Result<()> {
    if let Some(name) = provider.filter(|name| registry::find_provider(name).is_none()) {
        require_provider(name, &settings(ctx, None)?)?;
    }
    let is_wanted = |facts: &&ModelInfo| {
        provider.is_none_or(|name| normalize_name(name) == normalize_name(facts.vendor))
    };
    let mut found: Vec<&ModelInfo> = MODELS.iter().filter(is_wanted).collect();
    if let (Some(name), true, false) = (provider, found.is_empty(), ctx.quiet) {
        ctx.terminal.eprint(&format!(
            "nanobot: no models of `{name}` are known; `--remote` asks the provider"
        ));
    }
    let is_known = !found.is_empty();
    found.retain(|facts| names.matches(facts.name));
    if is_known && found.is_empty() && !as_json {
        ctx.explain_empty("no known model matches; `--remote` asks the provider");
    }
    if as_json {
        let lines = found.iter().map(|facts| model_json(facts.vendor, facts.name, Some(facts)));
        return ctx.terminal.print_json_lines(lines);
    }
    let columns: [Column<'_, &ModelInfo>; 7] = [
        ("PROVIDER", Side::Left, &|facts| facts.vendor.into()),
        ("NAME", Side::Left, &|facts| facts.name.into()),
        ("CONTEXT", Side::Right, &|facts| facts.context_tokens.to_string()),
        ("OUTPUT", Side::Right, &|facts| facts.max_output_tokens.to_string()),
        ("$IN", Side::Right, &|facts| format_price(facts, |price| price.input)),
        ("$OUT", Side::Right, &|facts| format_price(facts, |price| price.output)),
        ("TAKES", Side::Left, &|facts| capabilities(facts).join(",")),
    ];
    let mut text = format_table(&found, &columns, ctx.terminal.stdout_width());
    if found.iter().any(|facts| has_price_tiers(facts)) {
        text.push_str("+ long requests cost more; see `nanobot model show NAME`\n");
    }
    ctx.terminal.print(&text)
}

/// Fails if `name` is not a provider, in the table or in the config.
fn require_provider(name: &str, settings: &Settings) -> Result<()> {
    let is = |other: &String| normalize_name(other) == normalize_name(name);
    if registry::find_provider(name).is_some() || settings.providers.keys().any(is) {
        Ok(())
    } else {
        let cause = format!("there is no provider `{name}`");
        let own = settings.providers.keys().map(String::as_str);
        let names = registry::PROVIDERS.iter().map(|entry| entry.name).chain(own);
        Err(match nearest(name, names) {
            Some(meant) => fail_with_hint(Exit::Usage, cause, format!("`{meant}`")),
            None => fail_with_hint(Exit::Usage, cause, "nanobot provider list"),
        })
    }
}

/// True if long requests cost more.
fn has_price_tiers(facts: &ModelInfo) -> bool {
    facts.prices().is_some_and(|prices| prices.tiers().len() > 1)
}

/// One of the prices of a short request; marked if long requests cost more.
fn format_price(facts: &ModelInfo, part: fn(&TokenPrice) -> f64) -> String {
    let mark = if has_price_tiers(facts) { "+" } else { "" };
    match facts.prices() {
        None => "?".to_owned(),
        Some(prices) => format!("{}{mark}", part(&prices.for_input_tokens(0))),
    }
}

fn capabilities(facts: &ModelInfo) -> Vec<&'static str> {
    let abilities = [
        (facts.accepts_images(), "images"),
        (facts.accepts_pdf(), "pdf"),
        (facts.is_reasoning(), "reasoning"),
    ];
    let has = abilities.into_iter().filter(|(is, _)| *is);
    has.map(|(_, name)| name).collect()
}

/// A model as JSON, with the known facts about it.
fn model_json(provider: &str, name: &str, facts: Option<&ModelInfo>) -> Value {
    let prices = facts.and_then(ModelInfo::prices);
    json!({
        "provider": provider, "name": name,
        "context": facts.map(|facts| facts.context_tokens), "output": facts.map(|facts| facts.max_output_tokens),
        "images": facts.map(ModelInfo::accepts_images), "pdf": facts.map(ModelInfo::accepts_pdf), "reasoning": facts.map(ModelInfo::is_reasoning),
        "prices": prices.map(|prices| prices_json(&prices)),
    })
}

/// Prices as JSON: per million tokens, for requests with more tokens than `above`.
fn prices_json(prices: &Prices) -> Value {
    let tier = |(above, price): &(u64, TokenPrice)| {
        let TokenPrice { input, cached, cache_write, output } = price;
        json!({ "above": above, "input": input, "cached_input": cached, "cache_write": cache_write, "output": output })
    };
    prices.tiers().iter().map(tier).collect()
}

/// Prints the models that the provider lists.
fn list_remote(
    ctx: &Context,
    pattern: NamePattern<'_>,
    provider: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let settings = settings(ctx, None)?;
    let mut asked = settings.models[0].clone();
    if let Some(name) = provider {
        require_provider(name, &settings)?;
        asked = ModelSettings { provider: name.to_owned(), model: None, ..asked };
    }
    let Endpoint { choice, http_provider: wire } = model::resolve_endpoint(
        ctx,
        &connection_test::with_short_timeouts(&settings, LIST_TIMEOUT),
        &asked,
        false,
        true,
    )?;
    if wire.key.is_configured()
        && web_url::is_remote_cleartext(&wire.address.current())
        && !ctx.quiet
    {
        let base = web_url::redact_url(&wire.address.current());
        ctx.terminal.eprint(&format!("nanobot: the API key is sent to {base} unencrypted"));
    }
    let mut names = wire.list_models(&mut |text| ctx.notice(text)).map_err(list_error)?;
    names.retain(|name| pattern.matches(name));
    if names.is_empty() && !as_json {
        ctx.explain_empty("the provider lists no model that matches");
    }
    if as_json {
        let facts = |name: &String| model_info::find_model(name);
        let lines = names.iter().map(|name| model_json(&choice.provider, name, facts(name)));
        return ctx.terminal.print_json_lines(lines);
    }
    let lines = names.iter().map(|name| format!("{}\n", sanitize(name)));
    ctx.terminal.print(&lines.collect::<String>())
}

/// The failure of a server that does not list its models. The hints for a failed turn do not apply here.
fn list_error(error: ProviderError) -> anyhow::Error {
    match error {
        ProviderError::NotFound(cause) | ProviderError::NoSuchAddress(cause) => fail_with_hint(
            Exit::Config,
            cause,
            "the provider's documentation: not every server lists its models",
        ),
        other => other.into_failure(),
    }
}

/// The source of a fact.
#[derive(Clone, Copy)]
enum FactSource {
    Table,
    Config,
    /// The report of a local server.
    Server,
}

impl FactSource {
    fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Config => "config",
            Self::Server => "server",
        }
    }
}

/// A fact from the config, or else from the table.
fn fact<T>(config: Option<T>, table: Option<T>) -> Option<(T, FactSource)> {
    let config = config.map(|fact| (fact, FactSource::Config));
    config.or(table.map(|fact| (fact, FactSource::Table)))
}

/// Facts about a model, with their sources.
struct ModelFacts<'a> {
    context: Option<(u32, FactSource)>,
    output: Option<(u32, FactSource)>,
    images: Option<(bool, FactSource)>,
    pdf: Option<(bool, FactSource)>,
    reasoning: Option<(bool, FactSource)>,
    prices: Option<(&'a Prices, FactSource)>,
}

impl<'a> ModelFacts<'a> {
    fn new(
        overrides: ModelOverrides,
        choice: &'a SelectedProvider,
        reported_context: Option<u32>,
    ) -> Self {
        let info = choice.model_info;
        // The prices of the choice already come from the config if it has any.
        let (configured, listed) = match overrides.price {
            Some(_) => (choice.prices.as_ref(), None),
            None => (None, choice.prices.as_ref()),
        };
        let output = info.map(|info| info.max_output_tokens);
        Self {
            context: match (overrides.context_window, reported_context) {
                (None, Some(tokens)) => Some((tokens, FactSource::Server)),
                (configured, _) => fact(configured, info.map(|info| info.context_tokens)),
            },
            output: fact(overrides.max_output_tokens, output),
            images: fact(overrides.images, info.map(ModelInfo::accepts_images)),
            pdf: fact(overrides.pdf, info.map(ModelInfo::accepts_pdf)),
            reasoning: fact(None, info.map(ModelInfo::is_reasoning)),
            prices: fact(configured, listed),
        }
    }

    /// The rows of the table for people: name and value.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let tokens = |fact| describe_fact(fact, |count: u32| format!("{count} tokens"));
        let truth = |fact| describe_fact(fact, |is| if is { "yes" } else { "no" }.to_owned());
        let mut rows = vec![
            ("context", tokens(self.context)),
            ("output", tokens(self.output)),
            ("images", truth(self.images)),
            ("pdf", truth(self.pdf)),
            ("reasoning", truth(self.reasoning)),
        ];
        let Some((prices, source)) = self.prices else {
            rows.push(("price", UNKNOWN.into()));
            return rows;
        };
        let tiers = prices.tiers().iter();
        rows.extend(
            tiers.map(|tier| ("price", format!("{} ({})", describe_price(tier), source.name()))),
        );
        rows
    }
}

fn show(ctx: &Context, name: &str, as_json: bool) -> Result<()> {
    let settings = settings(ctx, Some(name))?;
    let asked = &settings.models[0];
    let endpoint = model::resolve_endpoint(ctx, &settings, asked, true, true)?;
    endpoint.update_window_report(ctx, &settings, asked, true);
    let reported_context = endpoint.reported_context_tokens(ctx, &settings, asked);
    let Endpoint { choice, http_provider: wire } = endpoint;
    let facts = ModelFacts::new(asked.overrides, &choice, reported_context);
    let mut quirks = choice.quirks;
    // Only the chat completions format has two names for this parameter.
    quirks.max_completion_tokens &= choice.format == ApiFormat::Chat;
    let quirks = quirks.describe();
    let label = choice.entry.map_or("", |entry| entry.label);
    let address = web_url::redact_url(&wire.address.current());
    let key = wire.key.is_configured().then(|| choice.key_label.to_string());
    let fallbacks = &settings.models[1..];
    if as_json {
        let fallbacks: Vec<Value> = fallbacks
            .iter()
            .map(|asked| json!({ "model": asked.model, "provider": asked.provider }))
            .collect();
        let model = json!({
            "name": name, "provider": choice.provider, "label": label, "address": address,
            "format": choice.format.name(), "model": choice.model, "key": key,
            "context": fact_json(facts.context), "output": fact_json(facts.output),
            "images": fact_json(facts.images), "pdf": fact_json(facts.pdf), "reasoning": fact_json(facts.reasoning),
            "prices": fact_json(facts.prices.map(|(prices, source)| (prices_json(prices), source))),
            "quirks": quirks, "fallbacks": fallbacks,
        });
        return ctx.terminal.print_json(&model);
    }
    let mut rows = vec![
        (
            "provider",
            match label {
                "" => choice.provider.clone(),
                label => format!("{}: {label}", choice.provider),
            },
        ),
        ("address", address),
        ("format", choice.format.name().to_owned()),
        ("model", choice.model.clone()),
        ("key", key.as_deref().unwrap_or("none").replace('`', "")),
    ];
    rows.extend(facts.rows());
    rows.extend(quirks.into_iter().map(|words| ("quirk", words)));
    rows.extend(fallbacks.iter().map(|asked| ("fallback", describe_fallback(asked))));
    let mut text = String::new();
    for (name, words) in rows {
        text.push_str(&format!("{name:<9}  {}\n", sanitize(&words)));
    }
    ctx.terminal.print(&text)
}

const UNKNOWN: &str = "unknown";

/// A fact for people, with its source.
fn describe_fact<T>(fact: Option<(T, FactSource)>, words: impl FnOnce(T) -> String) -> String {
    fact.map_or_else(
        || UNKNOWN.into(),
        |(fact, source)| format!("{} ({})", words(fact), source.name()),
    )
}

/// A fact with its source, as JSON.
fn fact_json<T: Serialize>(fact: Option<(T, FactSource)>) -> Value {
    fact.map_or(Value::Null, |(value, source)| json!({ "value": value, "from": source.name() }))
}

fn describe_price((above, price): &(u64, TokenPrice)) -> String {
    let TokenPrice { input, cached, cache_write, output } = price;
    let when = match above {
        0 => String::new(),
        above => format!(" for requests above {above} tokens"),
    };
    format!(
        "${input} in, ${cached} cached, ${cache_write} cache write, ${output} out per million tokens{when}"
    )
}

fn describe_fallback(asked: &ModelSettings) -> String {
    let model = asked.model.as_deref().unwrap_or("its provider's default");
    match asked.provider.as_str() {
        "auto" => model.to_owned(),
        provider => format!("{model} of {provider}"),
    }
}
