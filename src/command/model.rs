//! `nanobot model`: lists the known models, and shows which provider a model resolves to.

use crate::cli::model::Model as Arguments;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint};
use crate::provider::ProviderError;
use crate::provider::registry::facts::{self, Facts, MODELS, Price, Prices};
use crate::provider::registry::{self, Format, plain};
use crate::report::columns::{Side, aligned, clipped};
use crate::settings::keys::nearest;
use crate::settings::{Asked, Overrides, Settings};
use crate::sys::terminal::harmless;
use crate::sys::web_url;
use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

/// Runs `nanobot model`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List {
            provider,
            json,
            remote: true,
        } => remote(ctx, provider.as_deref(), *json)?,
        Arguments::List {
            provider,
            json,
            remote: false,
        } => list(ctx, provider.as_deref(), *json)?,
        Arguments::Show { name, json } => show(ctx, name, *json)?,
    }
    Ok(Exit::Answered)
}

fn settings(ctx: &Context, model: Option<&str>) -> Result<Settings> {
    ctx.settings_with(Overrides {
        model: model.map(str::to_owned),
        ..Overrides::default()
    })
}

/// Prints the models in the built-in table.
fn list(ctx: &Context, provider: Option<&str>, as_json: bool) -> Result<()> {
    if let Some(name) = provider.filter(|name| registry::entry(name).is_none()) {
        known(name, &settings(ctx, None)?)?;
    }
    let is_wanted = |facts: &&Facts| provider.is_none_or(|name| plain(name) == plain(facts.vendor));
    let found: Vec<&Facts> = MODELS.iter().filter(is_wanted).collect();
    if let (Some(name), true, false) = (provider, found.is_empty(), ctx.quiet) {
        ctx.terminal.complain(&format!(
            "nanobot: no models of `{name}` are known; `--remote` asks the provider"
        ));
    }
    if as_json {
        let lines = found
            .iter()
            .map(|facts| line(facts.vendor, facts.name, Some(facts)));
        return ctx.terminal.print_json_text(&lines.collect::<String>());
    }
    let columns = [
        ("PROVIDER", Side::Left),
        ("NAME", Side::Left),
        ("CONTEXT", Side::Right),
        ("OUTPUT", Side::Right),
        ("$IN", Side::Right),
        ("$OUT", Side::Right),
        ("TAKES", Side::Left),
    ];
    let rows: Vec<Vec<String>> = found.iter().map(|facts| row(facts)).collect();
    let mut text = String::new();
    for line in aligned(&columns, &rows) {
        text.push_str(&format!("{}\n", clipped(&line, ctx.terminal.width())));
    }
    if rows.iter().flatten().any(|cell| cell.ends_with('+')) {
        text.push_str("+ long requests cost more; see `nanobot model show NAME`\n");
    }
    ctx.terminal.print(&text)
}

/// Fails if `name` is not a provider, in the table or in the config.
fn known(name: &str, settings: &Settings) -> Result<()> {
    let is = |other: &String| plain(other) == plain(name);
    match registry::entry(name).is_some() || settings.providers.keys().any(is) {
        true => Ok(()),
        false => {
            let cause = format!("there is no provider `{name}`");
            let own = settings.providers.keys().map(String::as_str);
            let names = registry::TABLE.iter().map(|entry| entry.name).chain(own);
            Err(match nearest(name, names) {
                Some(meant) => fail_hint(Exit::Usage, cause, format!("`{meant}`")),
                None => fail_hint(Exit::Usage, cause, "nanobot provider list"),
            })
        }
    }
}

fn row(facts: &Facts) -> Vec<String> {
    let prices = facts.prices();
    let price = |of: fn(&Price) -> f64| match &prices {
        None => "?".to_owned(),
        Some(prices) => {
            let more = if prices.tiers().len() > 1 { "+" } else { "" };
            format!("{}{more}", of(&prices.at(0)))
        }
    };
    vec![
        facts.vendor.into(),
        facts.name.into(),
        facts.context.to_string(),
        facts.output.to_string(),
        price(|price| price.input),
        price(|price| price.output),
        takes(facts).join(","),
    ]
}

fn takes(facts: &Facts) -> Vec<&'static str> {
    let abilities = [
        (facts.images(), "images"),
        (facts.pdf(), "pdf"),
        (facts.reasons(), "reasoning"),
    ];
    let has = abilities.into_iter().filter(|(is, _)| *is);
    has.map(|(_, name)| name).collect()
}

/// A model as JSON, with the known facts about it.
fn line(provider: &str, name: &str, facts: Option<&Facts>) -> String {
    let prices = facts.and_then(Facts::prices);
    let line = json!({
        "provider": provider, "name": name,
        "context": facts.map(|facts| facts.context), "output": facts.map(|facts| facts.output),
        "images": facts.map(Facts::images), "pdf": facts.map(Facts::pdf), "reasoning": facts.map(Facts::reasons),
        "prices": prices.map(|prices| tiers(&prices)),
    });
    format!("{line}\n")
}

/// Prices as JSON: per million tokens, for requests with more tokens than `above`.
fn tiers(prices: &Prices) -> Value {
    let tier = |(above, price): &(u64, Price)| {
        let Price {
            input,
            cached,
            cache_write,
            output,
        } = price;
        json!({ "above": above, "input": input, "cached_input": cached, "cache_write": cache_write, "output": output })
    };
    prices.tiers().iter().map(tier).collect()
}

/// Prints the models that the provider lists.
fn remote(ctx: &Context, provider: Option<&str>, as_json: bool) -> Result<()> {
    let settings = settings(ctx, None)?;
    let mut asked = settings.asked[0].clone();
    if let Some(name) = provider {
        known(name, &settings)?;
        asked = Asked {
            provider: name.to_owned(),
            model: None,
            ..asked
        };
    }
    let Endpoint { choice, wire } = model::resolve_endpoint(ctx, &settings, &asked, false, true)?;
    if wire.key.is_some() && web_url::is_remote_cleartext(&wire.base) && !ctx.quiet {
        let base = web_url::redacted(&wire.base);
        ctx.terminal.complain(&format!(
            "nanobot: the API key is sent to {base} unencrypted"
        ));
    }
    let names = wire.models().map_err(untold)?;
    let mut text = String::new();
    for name in names {
        text.push_str(&match as_json {
            true => line(&choice.provider, &name, facts::of(&name)),
            false => format!("{}\n", harmless(&name)),
        });
    }
    match as_json {
        true => ctx.terminal.print_json_text(&text),
        false => ctx.terminal.print(&text),
    }
}

/// The failure of a server that does not list its models. The hints for a failed turn do not apply here.
fn untold(error: ProviderError) -> anyhow::Error {
    match error {
        ProviderError::Unavailable(cause) => fail(Exit::Unavailable, cause),
        ProviderError::NotFound(cause) => fail_hint(
            Exit::Config,
            cause,
            "the provider's documentation: not every server lists its models",
        ),
        other => other.into_failure(),
    }
}

/// The source of a fact.
#[derive(Clone, Copy)]
enum Source {
    Table,
    Config,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Config => "config",
        }
    }
}

/// A fact from the config, or else from the table.
fn fact<T>(config: Option<T>, table: Option<T>) -> Option<(T, Source)> {
    let config = config.map(|fact| (fact, Source::Config));
    config.or(table.map(|fact| (fact, Source::Table)))
}

fn show(ctx: &Context, name: &str, as_json: bool) -> Result<()> {
    let settings = settings(ctx, Some(name))?;
    let asked = &settings.asked[0];
    let Endpoint { choice, wire } = model::resolve_endpoint(ctx, &settings, asked, true, true)?;
    let (known, facts) = (asked.known, choice.facts);
    let context = fact(known.context, facts.map(|facts| facts.context));
    let output = fact(known.output, facts.map(|facts| facts.output));
    let images = fact(known.images, facts.map(Facts::images));
    let pdf = fact(known.pdf, facts.map(Facts::pdf));
    let reasoning = fact(None, facts.map(Facts::reasons));
    // The prices of the choice already come from the config if it has any.
    let (of_config, of_table) = match known.price {
        Some(_) => (choice.prices.as_ref(), None),
        None => (None, choice.prices.as_ref()),
    };
    let prices = fact(of_config, of_table);
    let mut quirks = choice.quirks;
    // Only the chat completions format has two names for this parameter.
    quirks.max_completion_tokens &= choice.format == Format::Chat;
    let quirks = quirks.in_words();
    let label = choice.entry.map_or("", |entry| entry.label);
    let address = web_url::redacted(&wire.base);
    let key = wire.key.is_some().then_some(&choice.key_place);
    let fallbacks = &settings.asked[1..];
    if as_json {
        let fallbacks: Vec<Value> = fallbacks
            .iter()
            .map(|asked| json!({ "model": asked.model, "provider": asked.provider }))
            .collect();
        let model = json!({
            "name": name, "provider": choice.provider, "label": label, "address": address,
            "format": choice.format.name(), "model": choice.model, "key": key,
            "context": sourced(context), "output": sourced(output), "images": sourced(images), "pdf": sourced(pdf),
            "reasoning": sourced(reasoning), "prices": sourced(prices.map(|(prices, source)| (tiers(prices), source))),
            "quirks": quirks, "fallbacks": fallbacks,
        });
        return ctx.terminal.print_json(&model);
    }
    let tokens = |fact| said(fact, |count: u32| format!("{count} tokens"));
    let truth = |fact| said(fact, |is| if is { "yes" } else { "no" }.to_owned());
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
        ("key", key.map_or("none", String::as_str).replace('`', "")),
        ("context", tokens(context)),
        ("output", tokens(output)),
        ("images", truth(images)),
        ("pdf", truth(pdf)),
        ("reasoning", truth(reasoning)),
    ];
    match prices {
        None => rows.push(("price", UNKNOWN.into())),
        Some((prices, source)) => {
            let each = prices.tiers().iter();
            rows.extend(each.map(|tier| ("price", format!("{} ({})", price(tier), source.name()))));
        }
    }
    rows.extend(quirks.into_iter().map(|words| ("quirk", words)));
    rows.extend(fallbacks.iter().map(|asked| ("fallback", who(asked))));
    let mut text = String::new();
    for (name, words) in rows {
        text.push_str(&format!("{name:<9}  {}\n", harmless(&words)));
    }
    ctx.terminal.print(&text)
}

const UNKNOWN: &str = "unknown";

/// A fact for people, with its source.
fn said<T>(fact: Option<(T, Source)>, words: impl FnOnce(T) -> String) -> String {
    fact.map_or_else(
        || UNKNOWN.into(),
        |(fact, source)| format!("{} ({})", words(fact), source.name()),
    )
}

/// A fact with its source, as JSON.
fn sourced<T: Serialize>(fact: Option<(T, Source)>) -> Value {
    fact.map_or(
        Value::Null,
        |(value, source)| json!({ "value": value, "from": source.name() }),
    )
}

fn price((above, price): &(u64, Price)) -> String {
    let Price {
        input,
        cached,
        cache_write,
        output,
    } = price;
    let when = match above {
        0 => String::new(),
        above => format!(" for requests above {above} tokens"),
    };
    format!(
        "${input} in, ${cached} cached, ${cache_write} cache write, ${output} out per million tokens{when}"
    )
}

fn who(asked: &Asked) -> String {
    let model = asked.model.as_deref().unwrap_or("its provider's default");
    match asked.provider.as_str() {
        "auto" => model.to_owned(),
        provider => format!("{model} of {provider}"),
    }
}
