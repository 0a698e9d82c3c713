//! `nanobot model`: lists models, and shows which provider a model resolves to.

use crate::cli::model::ModelCommand as Arguments;
use crate::command::name_pattern::NamePattern;
use crate::ops::context::Context;
use crate::ops::model_catalog::{
    self, Fact, ListedModels, ModelDetails, ModelFallback, PriceTier, price_tiers,
};
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::Exit;
use nanobot_model::provider::registry::model_info::{self, ModelInfo, TokenPrice};
use nanobot_os::terminal::sanitize;
use serde_json::{Value, json};

/// Runs `nanobot model`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List { pattern, provider, json, remote } => {
            let names = NamePattern(pattern.as_deref());
            if *remote {
                list_remote(ctx, names, provider.as_deref(), *json)?;
            } else {
                list(ctx, names, provider.as_deref(), *json)?;
            }
        }
        Arguments::Show { name, json } => show(ctx, name, *json)?,
    }
    Ok(Exit::Answered)
}

/// Prints the models in the built-in table.
fn list(
    ctx: &Context,
    names: NamePattern<'_>,
    provider: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let mut found = model_catalog::table_models(ctx, provider)?;
    if let (Some(name), true) = (provider, found.is_empty()) {
        ctx.notice(&format!("no models of `{name}` are known; `--remote` asks the provider"));
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
        let facts = |name: &String| model_info::find_model(name);
        let lines = names.iter().map(|name| model_json(&provider, name, facts(name)));
        return ctx.terminal.print_json_lines(lines);
    }
    if names.is_empty() {
        ctx.explain_empty("the provider lists no model that matches");
    }
    let lines = names.iter().map(|name| format!("{}\n", sanitize(name)));
    ctx.terminal.print(&lines.collect::<String>())
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
    let tokens = |fact: &Option<Fact<u32>>| describe_fact(fact, |count| format!("{count} tokens"));
    let truth =
        |fact: &Option<Fact<bool>>| describe_fact(fact, |is| if *is { "yes" } else { "no" }.into());
    let mut rows = vec![
        ("provider", provider),
        ("address", details.address.clone()),
        ("format", details.format.to_owned()),
        ("model", details.model.clone()),
        ("key", details.key.as_deref().unwrap_or("none").replace('`', "")),
        ("context", tokens(&details.context)),
        ("output", tokens(&details.output)),
        ("images", truth(&details.images)),
        ("pdf", truth(&details.pdf)),
        ("reasoning", truth(&details.reasoning)),
    ];
    match &details.prices {
        None => rows.push(("price", UNKNOWN.into())),
        Some(Fact { value, from }) => rows.extend(
            value
                .iter()
                .map(|tier| ("price", format!("{} ({})", describe_price(tier), from.name()))),
        ),
    }
    rows.extend(details.quirks.into_iter().map(|words| ("quirk", words)));
    rows.extend(details.fallbacks.iter().map(|model| ("fallback", describe_fallback(model))));
    let line = |(name, words): &(&str, String)| format!("{name:<9}  {}\n", sanitize(words));
    ctx.terminal.print(&rows.iter().map(line).collect::<String>())
}

const UNKNOWN: &str = "unknown";

/// A fact for people, with its source.
fn describe_fact<T>(fact: &Option<Fact<T>>, words: impl FnOnce(&T) -> String) -> String {
    match fact {
        None => UNKNOWN.into(),
        Some(Fact { value, from }) => format!("{} ({})", words(value), from.name()),
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
