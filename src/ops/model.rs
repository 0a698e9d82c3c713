//! Resolves the model of a command: providers from the registry, with budgets and fallbacks; a recording; or the demo.

use crate::ops::context::Context;
use crate::ops::recording::{path_names, with_recording};
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_agent::report::Reporter;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::shell_quote;
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::models::ModelOverrides;
use nanobot_config::settings::{ModelSettings, Settings};
use nanobot_model::ledger::{CallPurpose, Ledger};
use nanobot_model::provider::anthropic::AnthropicFormat;
use nanobot_model::provider::base_address::BaseAddress;
use nanobot_model::provider::budget::{BudgetedProvider, RunBudget};
use nanobot_model::provider::chat::ChatFormat;
use nanobot_model::provider::credentials::{LazyCredentials, LoginStore, account_number};
use nanobot_model::provider::fallback::{FallbackModel, FallbackProvider};
use nanobot_model::provider::hour_cache;
use nanobot_model::provider::http_provider::HttpProvider;
use nanobot_model::provider::login::LoginEndpoints;
use nanobot_model::provider::quirks::{Quirks, is_reasoning_model};
use nanobot_model::provider::rate_limit::{RateLimitedProvider, RateLimiter};
use nanobot_model::provider::redact::RedactingProvider;
use nanobot_model::provider::registry::model_info::{
    MODELS, Prices, TokenPrice, find_family_bound,
};
use nanobot_model::provider::registry::{
    self, ApiFormat, CredentialKind, KeySource, ProviderConfig, SelectInput, SelectedProvider,
    normalize_name,
};
use nanobot_model::provider::replay::{RecordedConversation, ReplayProvider};
use nanobot_model::provider::responses::ResponsesFormat;
use nanobot_model::provider::retry::RetryProvider;
use nanobot_model::provider::tool_choice_fallback::ToolChoiceFallback;
use nanobot_model::provider::wire_format::WireFormat;
use nanobot_model::provider::{Provider, Sampling, demo};
use nanobot_net::http::{Http, HttpTimeouts};
use nanobot_net::web_url;
use nanobot_os::env::Env;
use nanobot_os::input;
use nanobot_os::secret::LazySecret;
use nanobot_tool::attach::{AcceptedInputs, ImageLimits};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

/// A model that is ready to receive requests.
#[derive(Clone)]
pub(crate) struct ModelHandle {
    /// The provider's name.
    pub(crate) provider_name: String,
    pub(crate) model: String,
    /// The context window in tokens, input and output together.
    pub(crate) context_tokens: u32,
    /// The largest context window of the model and its fallbacks, if all of them are known.
    pub(crate) known_max_tokens: Option<u32>,
    /// The provider with its retries, budget and fallbacks.
    pub(crate) provider: Arc<dyn Provider>,
    /// The budget of the run, and its cost so far.
    pub(crate) budget: Arc<RunBudget>,
}

/// Chooses the model for this turn, and its fallbacks.
pub(crate) fn choose(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    purpose: &CallPurpose,
    reporter: &mut Reporter,
) -> Result<ModelHandle> {
    let handle = match &options.recording.replay {
        Some(path) if is_demo(path) => ModelHandle {
            provider_name: demo::NAME.into(),
            model: demo::NAME.into(),
            context_tokens: settings.context_window,
            known_max_tokens: None,
            provider: Arc::new(demo::DemoProvider),
            budget: Arc::default(),
        },
        Some(path) => {
            if !path.exists() {
                let cause = format!("there is no recording `{}`", path.display());
                return Err(fail(Exit::NoInput, cause));
            }
            // Read without a limit: a recording of many turns is one file.
            let bytes = input::read_file(path, &path.display().to_string(), usize::MAX)?;
            let text = String::from_utf8_lossy(&bytes);
            let names = path_names(ctx, &options.grants, settings);
            let replay = ReplayProvider::new(path, &text, names, options.recording.replay_strict)?;
            if let Some(RecordedConversation { session, earlier_count }) =
                &replay.recorded_conversation
                && options.session.key.is_none()
            {
                reporter.notice(&format!(
                    "recorded in session `{session}` after {earlier_count} messages, replayed in a new one; for the same requests: \
                     `nanobot session fork {} COPY --at {earlier_count}`, then `-s COPY`",
                    shell_quote::quote(session)
                ));
            }
            let model = settings.models[0].model.clone();
            ModelHandle {
                provider_name: "replay".into(),
                model: model.unwrap_or_else(|| "replay".into()),
                context_tokens: settings.context_window,
                known_max_tokens: None,
                provider: Arc::new(replay),
                budget: Arc::default(),
            }
        }
        None => {
            let budget =
                Arc::new(RunBudget::new(options.model.max_cost, options.limits.max_total_tokens));
            let shows_pieces = reporter.shows_pieces();
            let mut notice = |text: &str| reporter.notice(text);
            fallback_chain(ctx, options, settings, purpose, budget, shows_pieces, &mut notice)?
        }
    };
    // An existing recording is emptied first, so it can be replayed from its beginning. A pipe or a device cannot be
    // emptied.
    if let Some(path) = options.recording.record.as_ref().filter(|path| path.is_file()) {
        nanobot_os::durable_file::replace(path, b"")?;
    }
    let provider = with_masked_keys(options, handle.provider);
    let provider = with_recording(ctx, options, settings, purpose, provider);
    Ok(ModelHandle { provider, ..handle })
}

/// True if `path` names the demo instead of a recording.
fn is_demo(path: &Path) -> bool {
    path == Path::new(demo::UNSHADOWED_PATH) || path == Path::new(demo::NAME) && !path.exists()
}

/// Wraps `provider` so that known keys are masked in each request and each reply, as SECURITY.md promises.
fn with_masked_keys(options: &TurnOptions, provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
    Arc::new(RedactingProvider { inner: provider, sends_keys: options.model.send_keys })
}

/// Chooses the model for a sub-agent that uses another model than its turn. `budget` is the budget of the turn. A
/// replay does not call this: it has only one recording.
pub(crate) fn choose_for_subagent(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    purpose: &CallPurpose,
    budget: &Arc<RunBudget>,
    notice: &mut dyn FnMut(&str),
) -> Result<ModelHandle> {
    let handle =
        fallback_chain(ctx, options, settings, purpose, Arc::clone(budget), false, notice)?;
    let provider = with_masked_keys(options, handle.provider);
    let provider = with_recording(ctx, options, settings, purpose, provider);
    Ok(ModelHandle { provider, ..handle })
}

/// The model and its fallbacks. Each has its own retries, and all share one budget. With `shows_pieces`, the pieces of
/// a reply are shown as they arrive, so a reply that breaks off is not requested again.
fn fallback_chain(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    purpose: &CallPurpose,
    budget: Arc<RunBudget>,
    shows_pieces: bool,
    notice: &mut dyn FnMut(&str),
) -> Result<ModelHandle> {
    let is_limited_by_flag = options.model.max_cost.is_some();
    let is_limited = is_limited_by_flag || has_budget(settings);
    let mut models = Vec::new();
    let mut first = None;
    for (index, model_settings) in settings.models.iter().enumerate() {
        let result = resolve_endpoint(
            ctx,
            settings,
            model_settings,
            options.limits.offline,
            !options.model.no_stream,
        )
        .and_then(|endpoint| {
            require_price(endpoint, is_limited.then_some(is_limited_by_flag), notice)
        });
        let endpoint = match result {
            Ok(endpoint) => endpoint,
            // A fallback that cannot be used is skipped; the first model is required.
            Err(error) if first.is_some() => {
                let model = model_settings.model.as_deref().unwrap_or("the default model");
                notice(&format!("fallback `{model}` is unavailable: {error:#}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        endpoint.update_window_report(ctx, settings, model_settings, options.limits.offline);
        let known_context_tokens = endpoint.known_context_tokens(ctx, settings, model_settings);
        let context_tokens = known_context_tokens.unwrap_or(settings.context_window);
        let Endpoint { choice, http_provider } = endpoint;
        let address = http_provider.address.current();
        let redacted_address = web_url::redact_url(&address);
        if http_provider.key.is_configured() && web_url::is_remote_cleartext(&address) {
            notice(&format!("the API key is sent to {redacted_address} unencrypted"));
        }
        if first.is_none() {
            let notices = [
                temperature_notice(&choice, model_settings),
                verbosity_notice(&choice, model_settings),
            ];
            for text in notices.into_iter().flatten() {
                if ctx.single_notices.is_new(&text) {
                    notice(&text);
                }
            }
        }
        let (model, provider, key) =
            (&choice.model, &choice.provider, &http_provider.key.source_label);
        log::info!(target: "model", "{} `{model}` of `{provider}` at {redacted_address}, key from {key}",
                   if first.is_none() { "primary" } else { "fallback" });
        first
            .get_or_insert_with(|| (choice.provider.clone(), choice.model.clone(), context_tokens));
        let (name, model) = (choice.provider.clone(), choice.model.clone());
        let endpoint = Endpoint { choice, http_provider };
        let has_fallback = index + 1 < settings.models.len();
        let attempt = single_attempt(ctx, settings, endpoint, purpose, &budget, has_fallback);
        let provider = with_retries(ctx, attempt, shows_pieces);
        models.push(FallbackModel {
            model,
            sampling: sampling(model_settings, context_tokens),
            context_tokens: known_context_tokens,
            provider: match &ctx.trace {
                Some(trace) => Arc::new(trace.wrap(&name, provider)),
                None => provider,
            },
        });
    }
    let known_max_tokens = FallbackModel::largest_window(&models);
    let (provider_name, model, context_tokens) =
        first.expect("the settings name at least one model");
    Ok(ModelHandle {
        provider_name,
        model,
        context_tokens,
        known_max_tokens,
        provider: Arc::new(FallbackProvider::new(models, shows_pieces)),
        budget,
    })
}

/// The notice that the configured temperature is not sent. There is none for the default temperature.
fn temperature_notice(choice: &SelectedProvider, model_settings: &ModelSettings) -> Option<String> {
    let temperature = model_settings.temperature;
    if (temperature - ModelSettings::DEFAULT_TEMPERATURE).abs() < f64::EPSILON {
        return None;
    }
    let is_thinking = choice.format == ApiFormat::Anthropic
        && model_settings.reasoning_effort.as_deref().is_some_and(|effort| effort != "none");
    let reason = if choice.quirks.no_temperature {
        "takes no temperature"
    } else if is_thinking {
        "takes no temperature while it thinks"
    } else {
        return None;
    };
    Some(format!("`{}` {reason}: {temperature} is not sent", choice.model))
}

/// The notice that the verbosity is not sent.
fn verbosity_notice(choice: &SelectedProvider, model_settings: &ModelSettings) -> Option<String> {
    let verbosity = model_settings.verbosity.as_deref()?;
    (choice.format == ApiFormat::Anthropic)
        .then(|| format!("`{}` takes no verbosity: `{verbosity}` is not sent", choice.model))
}

/// Returns `endpoint` with a price, or unchanged if no cost limit is set. The highest price of its family replaces an
/// unknown one. `is_limited_by_flag` is `Some(true)` for `--max-cost`, `Some(false)` for a budget in the config, and
/// `None` without a limit.
pub(crate) fn require_price(
    mut endpoint: Endpoint,
    is_limited_by_flag: Option<bool>,
    notice: &mut dyn FnMut(&str),
) -> Result<Endpoint> {
    if endpoint.choice.prices.is_some() {
        return Ok(endpoint);
    }
    let Some(by_flag) = is_limited_by_flag else {
        return Ok(endpoint);
    };
    let (model, flag) = (&endpoint.choice.model, if by_flag { "`--max-cost`" } else { "`budget`" });
    if let Some(bound) = find_family_bound(model) {
        let TokenPrice { input, output, .. } = bound.for_input_tokens(0);
        notice(&format!(
            "the price of `{model}` is unknown; {flag} counts the highest of its family: ${input} in, ${output} out per \
             million tokens"
        ));
        endpoint.choice.prices = Some(bound);
        return Ok(endpoint);
    }
    Err(unknown_price(model, by_flag))
}

/// The error for a model without a price in a run with a cost limit: that of `--max-cost`, or a budget of the config.
pub(crate) fn unknown_price(model: &str, is_limited_by_flag: bool) -> anyhow::Error {
    let price = "{\"price\": {\"input\": 1.0, \"output\": 4.0}}";
    fail(Exit::Config, unknown_price_cause(model, is_limited_by_flag))
        .with_hint(format!("nanobot config set models '{{\"{model}\": {price}}}'"))
}

/// Says that a limit of costs cannot be enforced, because the price of `model` is unknown.
pub(crate) fn unknown_price_cause(model: &str, is_limited_by_flag: bool) -> String {
    let flag = if is_limited_by_flag { "`--max-cost`" } else { "`budget`" };
    format!("the price of `{model}` is unknown, so {flag} cannot be enforced")
}

/// Wraps a provider in retries, and these in the fallback for models that ignore the tool choice.
pub(crate) fn with_retries(
    ctx: &Context,
    attempt: impl Provider + 'static,
    shows_pieces: bool,
) -> Arc<dyn Provider> {
    let retry = RetryProvider { inner: attempt, clock: ctx.clock.clone(), shows_pieces };
    Arc::new(ToolChoiceFallback { inner: retry, ignores_tool_choice: AtomicBool::new(false) })
}

/// Wraps a provider in the budget, which counts every attempt, and that in the rate limit, without retries. A request that waits for its turn
/// holds no part of the budget.
pub(crate) fn single_attempt(
    ctx: &Context,
    settings: &Settings,
    Endpoint { choice, http_provider }: Endpoint,
    purpose: &CallPurpose,
    budget: &Arc<RunBudget>,
    has_fallback: bool,
) -> RateLimitedProvider<BudgetedProvider<HttpProvider>> {
    RateLimitedProvider {
        has_fallback,
        limiter: Arc::clone(&http_provider.limiter),
        inner: BudgetedProvider {
            inner: http_provider,
            ledger: Ledger::new(&ctx.paths.root, &ctx.clock),
            limits: settings.budget,
            purpose: purpose.clone(),
            provider: choice.provider,
            prices: choice.prices,
            run: Arc::clone(budget),
        },
    }
}

/// True if the config has a budget, so a model with an unknown price is refused.
pub(crate) fn has_budget(settings: &Settings) -> bool {
    !settings.budget.is_unlimited()
}

/// The sampling options of a request to a model with a context window of `context_tokens`. The answer may take half of it:
/// servers with a small window refuse a request whose input and answer together could exceed it.
pub(crate) fn sampling(model_settings: &ModelSettings, context_tokens: u32) -> Sampling {
    Sampling {
        max_tokens: model_settings.max_tokens.min(context_tokens / 2).max(1),
        temperature: Some(model_settings.temperature),
        reasoning_effort: model_settings.reasoning_effort.clone(),
        verbosity: model_settings.verbosity.clone(),
    }
}

/// Returns a warning if this release lists models of the provider, and not the chosen one.
pub(crate) fn unknown_model_warning(choice: &SelectedProvider) -> Option<String> {
    if choice.model_info.is_some() {
        return None;
    }
    let vendor = normalize_name(&choice.provider);
    let models = MODELS.iter().filter(|model| normalize_name(model.vendor) == vendor);
    let names: Vec<&str> = models.map(|model| model.name).collect();
    let suggestion = nearest(&choice.model, names.iter().copied())
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default();
    (!names.is_empty()).then(|| {
        format!(
            "`{}` is none of the models of {} that this release knows{suggestion}",
            choice.model, choice.provider
        )
    })
}

/// Maximum length of each part of a file name for limits, in characters.
const MAX_PART_CHARS: usize = 80;

/// A file name for the limits of a model of a provider at an address.
pub(crate) fn server_file_name(provider: &str, base: &str, model: &str) -> String {
    let to_plain = |text: &str| -> String {
        let chars =
            text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
        chars.take(MAX_PART_CHARS).collect()
    };
    let base = web_url::redact_url(base);
    format!("{}_{}_{}", to_plain(provider), to_plain(&base), to_plain(model))
}

/// A resolved provider and its connection.
pub(crate) struct Endpoint {
    pub(crate) choice: SelectedProvider,
    pub(crate) http_provider: HttpProvider,
}

impl Endpoint {
    /// The context window in tokens, input and output together.
    pub(crate) fn context_tokens(
        &self,
        ctx: &Context,
        model_settings: &ModelSettings,
        settings: &Settings,
    ) -> u32 {
        self.known_context_tokens(ctx, settings, model_settings).unwrap_or(settings.context_window)
    }

    fn known_context_tokens(
        &self,
        ctx: &Context,
        settings: &Settings,
        model_settings: &ModelSettings,
    ) -> Option<u32> {
        let configured = model_settings.overrides.context_window;
        configured
            .or_else(|| self.reported_context_tokens(ctx, settings, model_settings))
            .or_else(|| Some(self.choice.model_info?.context_tokens))
    }
}

/// Resolves the provider of `model_settings` and prepares its connection.
pub(crate) fn resolve_endpoint(
    ctx: &Context,
    settings: &Settings,
    model_settings: &ModelSettings,
    offline: bool,
    stream: bool,
) -> Result<Endpoint> {
    let configs = provider_configs(ctx, settings);
    let result = registry::select_provider(&SelectInput {
        provider: &model_settings.provider,
        model: model_settings.model.as_deref().unwrap_or_default(),
        is_model_explicit: model_settings.model.is_some(),
        configs: &configs,
        env: &ctx.env,
    });
    // An error in a provider's config matters only if that provider is chosen, or if no other is available.
    let name =
        result.as_ref().map_or(model_settings.provider.clone(), |choice| choice.provider.clone());
    let provider_settings = settings.provider(&name)?;
    if result.is_err() {
        for name in settings.providers.keys() {
            settings.provider(name)?;
        }
    }
    let mut choice = result?;
    apply_overrides(&mut choice, model_settings.overrides);
    choice.body.extend(model_settings.extra_body.clone());
    if let Some(key) = &model_settings.hour_cache_key {
        hour_cache::request_hour_cache(&mut choice, key);
    }
    let limits = &settings.timeouts;
    let timeouts = HttpTimeouts {
        connect: limits.connect,
        first_byte: limits.first_byte,
        idle: limits.stream_idle,
        total: limits.total,
    };
    let proxy = provider_settings.and_then(|settings| settings.proxy.as_ref());
    let proxy = proxy.map(LazySecret::resolve).transpose()?;
    let http = Http::new(timeouts, offline, &settings.network)
        .with_proxy(proxy, "the provider's `proxy`")?
        .with_pool(&ctx.connections, &choice.base_url);
    let logins = LoginStore {
        folder: ctx.paths.auth(),
        clock: ctx.clock.clone(),
        endpoints: LoginEndpoints::from_env(&ctx.env)?,
    };
    // Only commands and the keys of a cloud need the environment.
    let env = match &choice.key {
        Some(KeySource::Command(_) | KeySource::Aws(_)) => ctx.env.clone(),
        _ => Env::default(),
    };
    let headers = std::mem::take(&mut choice.headers)
        .into_iter()
        .map(|(name, value)| Ok((name, value.resolve()?.expose().to_owned())))
        .collect::<Result<_>>()?;
    let server_name = server_file_name(&name, &choice.base_url, "");
    let server_file = |suffix| ctx.paths.root.join("limits").join(format!("{server_name}{suffix}"));
    let key_source = choice.key.clone();
    let limiter = RateLimiter {
        provider: name,
        account: LazyLock::new(Box::new(move || account_number(key_source.as_ref()?))),
        limits: provider_settings.map(|settings| settings.limits).unwrap_or_default(),
        path: server_file(".rates"),
        clock: ctx.clock.clone(),
        has_reported_limit: AtomicBool::new(false),
    };
    let http_provider = HttpProvider {
        format: wire_format(&choice, model_settings.overrides.max_output_tokens, stream),
        address: BaseAddress::new(choice.base_url.clone(), server_file(".address")),
        is_base_configured: choice.is_base_configured,
        key: LazyCredentials::new(choice.key.take(), choice.key_label.clone(), env, logins),
        key_header: choice.key_header,
        headers,
        extra_body: std::mem::take(&mut choice.body),
        query: std::mem::take(&mut choice.query),
        stream: stream || choice.quirks.streaming_only,
        supports_schemas: choice.quirks.json_schemas || choice.format == ApiFormat::Responses,
        accepts_written_calls: choice.entry.is_users_own()
            || web_url::is_private_server(&choice.base_url),
        http,
        clock: ctx.clock.clone(),
        limiter: Arc::new(limiter),
    };
    Ok(Endpoint { choice, http_provider })
}

/// The reason why a cloud cannot be used as the provider that the config names: its address or region is missing. Nothing is sent, and no
/// command runs.
pub(crate) fn cloud_problem(ctx: &Context, settings: &Settings) -> Option<String> {
    let model_settings = &settings.models[0];
    let entry = registry::find_provider(&model_settings.provider)?;
    if entry.credentials == CredentialKind::KeyOnly {
        return None;
    }
    let error = resolve_endpoint(ctx, settings, model_settings, true, true).err()?;
    Some(format!("{error:#}"))
}

/// Replaces properties of the model in our table by those in the config.
fn apply_overrides(choice: &mut SelectedProvider, overrides: ModelOverrides) {
    if let Some(images) = overrides.images {
        choice.quirks.no_images = !images;
    }
    if let Some(price) = overrides.price {
        choice.prices = Some(Prices::flat(TokenPrice {
            input: price.input,
            output: price.output,
            cached: price.cached_input.unwrap_or(price.input),
            cache_write: price.cache_write.unwrap_or(price.input),
        }));
    }
}

/// The attachments that the model accepts. If the provider cannot be resolved, the request itself will report it.
pub(crate) fn accepted_attachments(
    ctx: &Context,
    settings: &Settings,
) -> (AcceptedInputs, ImageLimits) {
    let model_settings = &settings.models[0];
    let Ok(Endpoint { choice, .. }) = resolve_endpoint(ctx, settings, model_settings, true, true)
    else {
        return (AcceptedInputs::default(), ImageLimits::default());
    };
    // Few servers that use the chat completions format accept files.
    let takes_files = choice.format != ApiFormat::Chat
        || matches!(choice.entry.name, "openai" | "azureOpenai" | "openrouter");
    let accepts = AcceptedInputs {
        images: !choice.quirks.no_images,
        pdf: model_settings
            .overrides
            .pdf
            .unwrap_or(takes_files && choice.model_info.is_some_and(|info| info.accepts_pdf())),
        // The other formats have no place for sound.
        audio: matches!(choice.format, ApiFormat::Chat | ApiFormat::OpenAi)
            && (model_settings.overrides.audio)
                .unwrap_or(choice.model_info.is_some_and(|info| info.accepts_audio())),
    };
    let images = match choice.format {
        // The limit is 5 MB after the base64 encoding. In a request with more than 20 images, no side may be longer than
        // 2000 pixels (Anthropic, "Vision").
        ApiFormat::Anthropic => ImageLimits { max_bytes: 3_750_000, max_side: 2000 },
        _ => ImageLimits::default(),
    };
    (accepts, images)
}

/// The wire format of the chosen server and model.
fn wire_format(
    choice: &SelectedProvider,
    max_output_tokens: Option<u32>,
    stream: bool,
) -> Box<dyn WireFormat> {
    let quirks: Quirks = choice.quirks;
    let server = web_url::redact_url(&choice.base_url);
    let max_output_tokens =
        max_output_tokens.or(choice.model_info.map(|info| info.max_output_tokens));
    match choice.format {
        ApiFormat::Anthropic => {
            let vertex_path = if choice.entry.credentials == CredentialKind::Google {
                AnthropicFormat::vertex_path(&choice.model, stream)
            } else {
                String::new()
            };
            Box::new(AnthropicFormat { quirks, server, max_output_tokens, vertex_path })
        }
        ApiFormat::Responses => Box::new(ResponsesFormat {
            quirks,
            server,
            max_output_tokens,
            is_reasoning_model: choice
                .model_info
                .map_or_else(|| is_reasoning_model(&choice.model), |info| info.is_reasoning()),
        }),
        ApiFormat::Chat | ApiFormat::OpenAi => {
            Box::new(ChatFormat { quirks, server, max_output_tokens })
        }
    }
}

/// The providers of the config, as the registry takes them.
pub(crate) fn provider_configs(
    ctx: &Context,
    settings: &Settings,
) -> BTreeMap<String, ProviderConfig> {
    let mut configs = BTreeMap::new();
    for (name, provider) in &settings.providers {
        let to_file = |path: &String| KeySource::File(ctx.paths.expand(path));
        let key = provider
            .api_key
            .clone()
            .map(KeySource::Secret)
            .or_else(|| provider.api_key_file.as_ref().map(to_file))
            .or_else(|| provider.api_key_command.clone().map(KeySource::Command));
        let config = ProviderConfig {
            key,
            base_url: provider.api_base.clone(),
            api_type: provider.api_type.clone(),
            thinking_style: provider.thinking_style.clone(),
            headers: provider.extra_headers.clone(),
            body: provider.extra_body.clone(),
            query: provider.extra_query.clone(),
            region: provider.region.clone(),
            profile: provider.profile.clone(),
        };
        configs.insert(name.clone(), config);
    }
    configs
}
