//! Resolves the model of a command: providers from the registry, with budgets and fallbacks; a recording; or the demo.

use crate::attach::{Accepts, ImageLimits};
use crate::error::{Exit, fail, fail_hint};
use crate::ledger::{Account, Ledger, Limits};
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::provider::anthropic::Anthropic;
use crate::provider::chat::Chat;
use crate::provider::discreet::Discreet;
use crate::provider::fallback::{Fallback, Link};
use crate::provider::keys::{Key, Logins};
use crate::provider::login::Endpoints;
use crate::provider::meter::{Meter, Run};
use crate::provider::pace::Pace;
use crate::provider::quirks::{Quirks, reasons};
use crate::provider::record::Record;
use crate::provider::registry::facts::{Price, Prices};
use crate::provider::registry::{self, Choice, Format, KeySource, ProviderConfig, Wanted};
use crate::provider::replay::Replay;
use crate::provider::responses::Responses;
use crate::provider::retry::Retry;
use crate::provider::unforce::Unforce;
use crate::provider::wire::{Dialect, Wire};
use crate::provider::{Provider, Sampling, demo};
use crate::report::Report;
use crate::settings::{Asked, Settings};
use crate::sys::http::{Http, Timeouts};
use crate::sys::input;
use crate::sys::web_url;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

/// A model that is ready to receive requests.
#[derive(Clone)]
pub(crate) struct ModelHandle {
    /// The provider's name.
    pub(crate) provider_name: String,
    pub(crate) model: String,
    /// The context window in tokens, input and output together.
    pub(crate) context: u32,
    /// The provider with its retries, budget and fallbacks.
    pub(crate) provider: Arc<dyn Provider>,
    /// The budget of the run, and its cost so far.
    pub(crate) run: Arc<Run>,
}

/// Chooses the model for this turn, and its fallbacks.
pub(crate) fn choose(
    ctx: &Context,
    arguments: &TurnOptions,
    settings: &Settings,
    account: &Account,
    report: &mut Report,
) -> Result<ModelHandle> {
    let chosen = match &arguments.replay {
        Some(path) if is_demo(path) => ModelHandle {
            provider_name: demo::NAME.into(),
            model: demo::NAME.into(),
            context: settings.context_window,
            provider: Arc::new(demo::Demo),
            run: Arc::default(),
        },
        Some(path) => {
            if !path.exists() {
                let cause = format!("there is no recording `{}`", path.display());
                return Err(fail(Exit::NoInput, cause));
            }
            // Read without a limit: a recording of many turns is one file.
            let bytes = input::read_file(path, &path.display().to_string(), usize::MAX)?;
            let replay = Replay::new(path, &String::from_utf8_lossy(&bytes))?;
            let model = settings.asked[0].model.clone();
            ModelHandle {
                provider_name: "replay".into(),
                model: model.unwrap_or_else(|| "replay".into()),
                context: settings.context_window,
                provider: Arc::new(replay),
                run: Arc::default(),
            }
        }
        None => {
            let run = Arc::new(Run::new(arguments.max_cost, arguments.max_total_tokens));
            let mut notice = |text: &str| report.notice(text);
            fallback_chain(ctx, arguments, settings, account, run, &mut notice)?
        }
    };
    // An existing recording is emptied first, so it can be replayed from its beginning. A pipe or a device cannot be
    // emptied.
    if let Some(path) = arguments.record.as_ref().filter(|path| path.is_file()) {
        crate::sys::store::replace(path, b"")?;
    }
    Ok(with_recording(arguments, chosen))
}

/// True if `path` names the demo instead of a recording.
fn is_demo(path: &Path) -> bool {
    path == Path::new(demo::ALWAYS) || path == Path::new(demo::NAME) && !path.exists()
}

/// Chooses the model for a sub-agent that uses another model than its turn. `budget` is the budget of the turn. A
/// replay does not call this: it has only one recording.
pub(crate) fn choose_for_subagent(
    ctx: &Context,
    arguments: &TurnOptions,
    settings: &Settings,
    account: &Account,
    run: &Arc<Run>,
    notice: &mut dyn FnMut(&str),
) -> Result<ModelHandle> {
    let chosen = fallback_chain(ctx, arguments, settings, account, Arc::clone(run), notice)?;
    Ok(with_recording(arguments, chosen))
}

/// Wraps `chosen` so that keys are hidden, and every exchange is recorded if `--record` was given.
fn with_recording(arguments: &TurnOptions, chosen: ModelHandle) -> ModelHandle {
    // Outside of the fallbacks, so their messages are not truncated.
    let chosen = ModelHandle {
        provider: Arc::new(Discreet {
            inner: chosen.provider,
        }),
        ..chosen
    };
    match &arguments.record {
        Some(path) => ModelHandle {
            provider: Arc::new(Record {
                inner: chosen.provider,
                path: path.clone(),
            }),
            ..chosen
        },
        None => chosen,
    }
}

/// The model and its fallbacks. Each has its own retries, and all share one budget.
fn fallback_chain(
    ctx: &Context,
    arguments: &TurnOptions,
    settings: &Settings,
    account: &Account,
    run: Arc<Run>,
    notice: &mut dyn FnMut(&str),
) -> Result<ModelHandle> {
    let by_flag = arguments.max_cost.is_some();
    let capped = by_flag || is_capped(settings);
    let mut links = Vec::new();
    let mut first = None;
    for asked in &settings.asked {
        let way = resolve_endpoint(
            ctx,
            settings,
            asked,
            arguments.offline,
            !arguments.no_stream,
        )
        .and_then(|way| require_price(way, capped.then_some(by_flag)));
        let way = match way {
            Ok(way) => way,
            // A fallback that cannot be used is skipped; the first model is required.
            Err(error) if first.is_some() => {
                let model = asked.model.as_deref().unwrap_or("the default model");
                notice(&format!("fallback `{model}` is unavailable: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let context = way.known_context(asked);
        let Endpoint { choice, wire } = way;
        if wire.key.is_some() && web_url::is_remote_cleartext(&wire.base) {
            let place = web_url::redacted(&wire.base);
            notice(&format!("the API key is sent to {place} unencrypted"));
        }
        let place = web_url::redacted(&wire.base);
        let (model, provider, key) = (&choice.model, &choice.provider, &wire.key.place);
        log::info!(target: "model", "{} `{model}` of `{provider}` at {place}, key from {key}",
                   if first.is_none() { "primary" } else { "fallback" });
        first.get_or_insert_with(|| {
            let (provider, model) = (choice.provider.clone(), choice.model.clone());
            (provider, model, context.unwrap_or(settings.context_window))
        });
        links.push(Link {
            model: choice.model.clone(),
            sampling: sampling(asked),
            context,
            answers: with_retries(ctx, settings, Endpoint { choice, wire }, account, &run),
        });
    }
    let (provider, model, context) = first.expect("the settings name at least one model");
    Ok(ModelHandle {
        provider_name: provider,
        model,
        context,
        provider: Arc::new(Fallback::new(links)),
        run,
    })
}

/// Returns `endpoint` if its price is known or no cost limit is set. `cap_by_flag` is `Some(true)` for `--max-cost`,
/// and `Some(false)` for a budget in the config.
pub(crate) fn require_price(way: Endpoint, cap: Option<bool>) -> Result<Endpoint> {
    let Some(by_flag) = cap.filter(|_| way.choice.prices.is_none()) else {
        return Ok(way);
    };
    let (model, flag) = (
        &way.choice.model,
        if by_flag { "`--max-cost`" } else { "`budget`" },
    );
    let price = "{\"price\": {\"input\": 1.0, \"output\": 4.0}}";
    Err(fail_hint(
        Exit::Config,
        format!("the price of `{model}` is unknown, so {flag} cannot be enforced"),
        format!("nanobot config set models '{{\"{model}\": {price}}}'"),
    ))
}

/// Wraps a provider in the budget, which counts every attempt, and then in retries.
pub(crate) fn with_retries(
    ctx: &Context,
    settings: &Settings,
    way: Endpoint,
    account: &Account,
    run: &Arc<Run>,
) -> Box<dyn Provider> {
    let retry = Retry {
        inner: single_attempt(ctx, settings, way, account, run),
        clock: ctx.clock.clone(),
    };
    Box::new(Unforce {
        inner: retry,
        unwilling: AtomicBool::new(false),
    })
}

/// Wraps a provider in the budget, without retries.
pub(crate) fn single_attempt(
    ctx: &Context,
    settings: &Settings,
    Endpoint { choice, wire }: Endpoint,
    account: &Account,
    run: &Arc<Run>,
) -> Meter<Pace<Wire>> {
    let name = limit_name(&choice.provider, &wire.base, &choice.model);
    let pace = Pace {
        path: ctx.paths.root.join("limits").join(name),
        inner: wire,
        clock: ctx.clock.clone(),
        known: AtomicI64::new(0),
    };
    Meter {
        inner: pace,
        ledger: Ledger::new(&ctx.paths.root, &ctx.clock),
        limits: limits(settings),
        account: account.clone(),
        provider: choice.provider,
        prices: choice.prices,
        run: Arc::clone(run),
    }
}

/// True if the config has a budget, so a model with an unknown price is refused.
pub(crate) fn is_capped(settings: &Settings) -> bool {
    !limits(settings).is_none()
}

/// The budgets of the config.
fn limits(settings: &Settings) -> Limits {
    let budget = settings.budget;
    Limits {
        daily: budget.daily,
        monthly: budget.monthly,
        per_session: budget.per_session,
    }
}

/// The sampling options of a request.
pub(crate) fn sampling(asked: &Asked) -> Sampling {
    Sampling {
        max_tokens: asked.max_tokens,
        temperature: Some(asked.temperature),
        reasoning_effort: asked.reasoning_effort.clone(),
    }
}

/// A file name for the scope of a rate limit: a model of a provider at an address.
fn limit_name(provider: &str, base: &str, model: &str) -> String {
    let plain = |text: &str| -> String {
        let chars = text.chars().map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        });
        chars.take(80).collect()
    };
    format!("{}_{}_{}", plain(provider), plain(base), plain(model))
}

/// A resolved provider and its connection.
pub(crate) struct Endpoint {
    pub(crate) choice: Choice,
    pub(crate) wire: Wire,
}

impl Endpoint {
    /// The context window in tokens, input and output together.
    pub(crate) fn context(&self, asked: &Asked, settings: &Settings) -> u32 {
        self.known_context(asked).unwrap_or(settings.context_window)
    }

    fn known_context(&self, asked: &Asked) -> Option<u32> {
        let facts = self.choice.facts.map(|facts| facts.context);
        asked.known.context.or(facts)
    }
}

/// Resolves the provider of `model_settings` and prepares its connection.
pub(crate) fn resolve_endpoint(
    ctx: &Context,
    settings: &Settings,
    asked: &Asked,
    offline: bool,
    stream: bool,
) -> Result<Endpoint> {
    let blocks = blocks(ctx, settings);
    let wanted = Wanted {
        provider: &asked.provider,
        model: asked.model.as_deref().unwrap_or_default(),
        model_given: asked.model.is_some(),
        blocks: &blocks,
        env: &ctx.env,
    };
    let choice = registry::choose(&wanted);
    // An error in a provider's config matters only if that provider is chosen, or if no other is available.
    let name = choice
        .as_ref()
        .map_or(asked.provider.clone(), |choice| choice.provider.clone());
    let block = settings.block(&name)?;
    if choice.is_err() {
        for name in settings.providers.keys() {
            settings.block(name)?;
        }
    }
    let mut choice = choice?;
    let known = asked.known;
    if let Some(images) = known.images {
        choice.quirks.no_images = !images;
    }
    if let Some(price) = known.price {
        choice.prices = Some(Prices::flat(Price {
            input: price.input,
            output: price.output,
            cached: price.cached.unwrap_or(price.input),
            cache_write: price.cache_write.unwrap_or(price.input),
        }));
    }
    let limits = &settings.timeouts;
    let timeouts = Timeouts {
        connect: limits.connect,
        first_byte: limits.first_byte,
        idle: limits.stream_idle,
        total: limits.total,
    };
    let proxy = block.and_then(|block| block.proxy.as_ref());
    let http = Http::new(timeouts, offline, &ctx.env)
        .with_proxy(proxy, "the provider's `proxy`")?
        .with_pool(&ctx.connections, &choice.base);
    let logins = Logins {
        folder: ctx.paths.auth(),
        clock: ctx.clock.clone(),
        endpoints: Endpoints::from_env(&ctx.env)?,
    };
    // Only a key command needs the environment.
    let env = match &choice.key {
        Some(KeySource::Command(_)) => ctx
            .env
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        _ => Vec::new(),
    };
    let wire = Wire {
        dialect: dialect(&choice, known.output),
        base: choice.base.clone(),
        base_given: choice.base_given,
        key: Key::new(choice.key.take(), choice.key_place.clone(), env, logins),
        key_header: choice.key_header,
        headers: std::mem::take(&mut choice.headers),
        extra: std::mem::take(&mut choice.body),
        query: std::mem::take(&mut choice.query),
        stream: stream || choice.quirks.only_streams,
        takes_schemas: choice.quirks.schemas || choice.format == Format::Responses,
        http,
    };
    Ok(Endpoint { choice, wire })
}

/// The context window of the model to be asked, in tokens, input and output together, or the configured default if the
/// model is unknown.
pub(crate) fn context(ctx: &Context, settings: &Settings) -> u32 {
    let asked = &settings.asked[0];
    let facts = || {
        resolve_endpoint(ctx, settings, asked, true, true)
            .ok()?
            .choice
            .facts
    };
    let known = asked
        .known
        .context
        .or_else(|| facts().map(|facts| facts.context));
    known.unwrap_or(settings.context_window)
}

/// The attachments that the model accepts. If the provider cannot be resolved, the request itself will report it.
pub(crate) fn accepts(ctx: &Context, settings: &Settings) -> (Accepts, ImageLimits) {
    let asked = &settings.asked[0];
    let Ok(Endpoint { choice, .. }) = resolve_endpoint(ctx, settings, asked, true, true) else {
        return (Accepts::default(), ImageLimits::default());
    };
    // Few servers that use the chat completions format accept files.
    let name = choice.entry.map_or("", |entry| entry.name);
    let takes_files =
        choice.format != Format::Chat || matches!(name, "openai" | "azureOpenai" | "openrouter");
    let accepts = Accepts {
        images: !choice.quirks.no_images,
        pdf: asked
            .known
            .pdf
            .unwrap_or(takes_files && choice.facts.is_some_and(|facts| facts.pdf())),
    };
    let images = match choice.format {
        // The limit is 5 MB, measured after base64 encoding.
        Format::Anthropic => ImageLimits {
            max_bytes: 3_750_000,
            ..ImageLimits::default()
        },
        _ => ImageLimits::default(),
    };
    (accepts, images)
}

/// The wire format of the chosen server and model.
fn dialect(choice: &Choice, most: Option<u32>) -> Box<dyn Dialect> {
    let quirks: Quirks = choice.quirks;
    let most = most.or(choice.facts.map(|facts| facts.output));
    match choice.format {
        Format::Anthropic => Box::new(Anthropic { quirks, most }),
        Format::Responses => Box::new(Responses {
            quirks,
            most,
            reasons: choice
                .facts
                .map_or_else(|| reasons(&choice.model), |facts| facts.reasons()),
        }),
        Format::Chat | Format::OpenAi => Box::new(Chat { quirks, most }),
    }
}

/// The provider sections of the config, in the form that the registry takes.
pub(crate) fn blocks(ctx: &Context, settings: &Settings) -> BTreeMap<String, ProviderConfig> {
    let blocks = settings.providers.iter().map(|(name, block)| {
        let file = |path: &String| KeySource::File(ctx.paths.expand(path));
        let key = block.api_key.clone().map(KeySource::Text);
        let key = key
            .or_else(|| block.api_key_file.as_ref().map(file))
            .or_else(|| block.api_key_command.clone().map(KeySource::Command));
        let headers = block.extra_headers.iter();
        let block = ProviderConfig {
            key,
            base: block.api_base.clone(),
            api_type: block.api_type.clone(),
            thinking_style: block.thinking_style.clone(),
            headers: headers
                .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                .collect(),
            body: block.extra_body.clone(),
            query: block.extra_query.clone(),
        };
        (name.clone(), block)
    });
    blocks.collect()
}
