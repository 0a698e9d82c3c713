//! `nanobot model`: lists models, and shows which provider a model resolves to.

use super::provider;
use crate::cli::model::ModelCommand;
use crate::command::name_pattern::NamePattern;
use crate::ops::agent_turn;
use crate::ops::config_keys;
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::model_catalog::{
    self, Fact, ListedModels, ModelDetails, ModelFallback, PriceTier, price_tiers,
};
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::Exit;
use nanobot_model::provider::registry::model_info::{self, ModelInfo, TokenPrice};
use nanobot_os::terminal::sanitize;
use serde_json::{Value, json};

/// Runs `nanobot model`.
pub fn run(ctx: &Context, command: &ModelCommand) -> Result<Exit> {
    match command {
        ModelCommand::List { pattern, provider, json, remote } => {
            let pattern = NamePattern(pattern.as_deref());
            if *remote {
                list_remote(ctx, pattern, provider.as_deref(), *json)?;
            } else {
                list(ctx, pattern, provider.as_deref(), *json)?;
            }
        }
        ModelCommand::Use { name } => use_by_default(ctx, name)?,
        ModelCommand::Show { name, json } => show(ctx, name, *json)?,
        ModelCommand::Provider { command } => return provider::run(ctx, command),
    }
    Ok(Exit::Answered)
}

/// Prints the models in the built-in table.
fn list(
    ctx: &Context,
    pattern: NamePattern<'_>,
    provider: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let mut models = model_catalog::table_models(ctx, provider)?;
    let has_models = !models.is_empty();
    if let Some(provider) = provider
        && !has_models
    {
        ctx.notice(&format!("no models of `{provider}` are known; `--remote` asks the provider"));
    }
    models.retain(|model| pattern.matches(model.name));
    if as_json {
        let lines = models.iter().map(|model| model_json(model.vendor, model.name, Some(model)));
        return ctx.terminal.print_json_lines(lines);
    }
    if has_models && models.is_empty() {
        ctx.explain_empty("no known model matches; `--remote` asks the provider");
    }
    let columns: [Column<'_, &ModelInfo>; 7] = [
        ("PROVIDER", Side::Left, &|model| model.vendor.into()),
        ("NAME", Side::Left, &|model| model.name.into()),
        ("CONTEXT", Side::Right, &|model| model.context_tokens.to_string()),
        ("OUTPUT", Side::Right, &|model| model.max_output_tokens.to_string()),
        ("$IN", Side::Right, &|model| format_price(model, |price| price.input)),
        ("$OUT", Side::Right, &|model| format_price(model, |price| price.output)),
        ("TAKES", Side::Left, &|model| capabilities(model).join(",")),
    ];
    let mut text = format_table(&models, &columns, ctx.terminal.stdout_width());
    if models.iter().any(|model| has_price_tiers(model)) {
        text.push_str("+ long requests cost more; see `nanobot model show NAME`\n");
    }
    ctx.terminal.print(&text)
}

/// True if long requests cost more.
fn has_price_tiers(model: &ModelInfo) -> bool {
    model.prices().is_some_and(|prices| prices.tiers().len() > 1)
}

/// One of the prices of a short request, with a mark if long requests cost more.
fn format_price(model: &ModelInfo, part: fn(&TokenPrice) -> f64) -> String {
    let mark = if has_price_tiers(model) { "+" } else { "" };
    match model.prices() {
        None => "?".to_owned(),
        Some(prices) => format!("{}{mark}", part(&prices.for_input_tokens(0))),
    }
}

fn capabilities(model: &ModelInfo) -> Vec<&'static str> {
    let mut names = Vec::new();
    if model.accepts_images() {
        names.push("images");
    }
    if model.accepts_pdf() {
        names.push("pdf");
    }
    if model.accepts_audio() {
        names.push("audio");
    }
    if model.is_reasoning() {
        names.push("reasoning");
    }
    names
}

/// A model as JSON, with the facts of the built-in table.
fn model_json(provider: &str, name: &str, model: Option<&ModelInfo>) -> Value {
    let prices = model.and_then(ModelInfo::prices);
    json!({
        "provider": provider, "name": name,
        "context": model.map(|model| model.context_tokens), "output": model.map(|model| model.max_output_tokens),
        "images": model.map(ModelInfo::accepts_images), "pdf": model.map(ModelInfo::accepts_pdf), "audio": model.map(ModelInfo::accepts_audio),
        "reasoning": model.map(ModelInfo::is_reasoning),
        "prices": prices.map(|prices| price_tiers(&prices)),
    })
}

/// Prints the models that the provider lists.
fn list_remote(
    ctx: &Context,
    pattern: NamePattern<'_>,
    provider: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let ListedModels { provider, mut names } = model_catalog::listed_models(ctx, provider)?;
    names.retain(|name| pattern.matches(name));
    if as_json {
        let lines =
            names.iter().map(|name| model_json(&provider, name, model_info::find_model(name)));
        return ctx.terminal.print_json_lines(lines);
    }
    if names.is_empty() {
        ctx.explain_empty("the provider lists no model that matches");
    }
    let lines = names.iter().map(|name| format!("{}\n", sanitize(name)));
    ctx.terminal.print(&lines.collect::<String>())
}

/// Sets the model, or the preset, of runs that name none.
fn use_by_default(ctx: &Context, name: &str) -> Result<()> {
    // It is stored only if a run could use it.
    let details = ModelDetails::find(ctx, name)?;
    let config = ctx.load_config()?;
    let presets = config.get_path("modelPresets").and_then(Value::as_object);
    if presets.is_some_and(|presets| presets.contains_key(name)) {
        config_keys::set(ctx, "agents.defaults.modelPreset", name)?;
    } else {
        config_keys::set(ctx, "agents.defaults.model", name)?;
        if config.get_path("agents.defaults.modelPreset").is_some() {
            config_keys::unset(ctx, "agents.defaults.modelPreset")?;
        }
    }
    ctx.notice(&format!("runs use {} of {}", details.model, details.provider));
    let mut options = TurnOptions::default();
    options.model.name = Some(name.to_owned());
    let choice = agent_turn::select_provider(ctx, &options)?;
    if agent_turn::is_unlisted(ctx, &choice, &options) {
        ctx.notice(&format!(
            "`{}` is not in the list of {}, which `nanobot model list --remote` shows",
            choice.model, choice.provider
        ));
    } else if let Some(warning) = model::unknown_model_warning(&choice) {
        ctx.notice(&warning);
    }
    Ok(())
}

fn show(ctx: &Context, name: &str, as_json: bool) -> Result<()> {
    let details = ModelDetails::find(ctx, name)?;
    if as_json {
        return ctx.terminal.print_json_lines([details]);
    }
    let provider = match details.label {
        "" => details.provider.clone(),
        label => format!("{}: {label}", details.provider),
    };
    let tokens =
        |fact: &Option<Fact<u32>>| describe_fact(fact.as_ref(), |count| format!("{count} tokens"));
    let yes_or_no = |fact: &Option<Fact<bool>>| {
        describe_fact(fact.as_ref(), |is_true| if *is_true { "yes" } else { "no" }.into())
    };
    let mut rows = vec![
        ("provider", provider),
        ("address", details.address.clone()),
        ("format", details.format.to_owned()),
        ("model", details.model.clone()),
        ("key", details.key.clone().unwrap_or_else(|| "none".into())),
        ("context", tokens(&details.context)),
        ("output", tokens(&details.output)),
        ("images", yes_or_no(&details.images)),
        ("pdf", yes_or_no(&details.pdf)),
        ("audio", yes_or_no(&details.audio)),
        ("reasoning", yes_or_no(&details.reasoning)),
    ];
    match &details.prices {
        None => rows.push(("price", UNKNOWN.into())),
        Some(Fact { value, from }) => {
            for tier in value {
                rows.push(("price", format!("{} ({})", describe_price(tier), from.name())));
            }
        }
    }
    rows.extend(details.quirks.into_iter().map(|quirk| ("quirk", quirk)));
    rows.extend(details.fallbacks.iter().map(|model| ("fallback", describe_fallback(model))));
    let line = |(name, value): &(&str, String)| format!("{name:<9}  {}\n", sanitize(value));
    ctx.terminal.print(&rows.iter().map(line).collect::<String>())
}

const UNKNOWN: &str = "unknown";

/// A fact for people, with its source.
fn describe_fact<T>(fact: Option<&Fact<T>>, describe: impl FnOnce(&T) -> String) -> String {
    match fact {
        None => UNKNOWN.into(),
        Some(Fact { value, from }) => format!("{} ({})", describe(value), from.name()),
    }
}

fn describe_price(tier: &PriceTier) -> String {
    let PriceTier { above, input, cached_input, cache_write, output } = tier;
    let when = match above {
        0 => String::new(),
        above => format!(" for requests above {above} tokens"),
    };
    format!(
        "${input} in, ${cached_input} cached, ${cache_write} cache write, ${output} out per million tokens{when}"
    )
}

fn describe_fallback(fallback: &ModelFallback) -> String {
    let model = fallback.model.as_deref().unwrap_or("its provider's default");
    match fallback.provider.as_str() {
        "auto" => model.to_owned(),
        provider => format!("{model} of {provider}"),
    }
}
