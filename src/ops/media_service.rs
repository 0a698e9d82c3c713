//! Requests for speech, pictures and embeddings: to a provider's service, within the budgets and with a line in the ledger, or to a
//! command of the user's.

use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, Stop, WithHint as _, fail};
use nanobot_base::message::Usage;
use nanobot_config::settings::{ModelSettings, Settings};
use nanobot_model::ledger::{CallPurpose, Ledger, ModelCall};
use nanobot_model::provider::ProviderError;
use nanobot_model::provider::budget::RunBudget;
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts, error_message, shown_message};
use nanobot_net::web_url;
use nanobot_os::secret::LazySecret;
use nanobot_os::signal;
use nanobot_sandbox::process::{self, CommandSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeouts of a request: a service takes some seconds for a minute of speech, and up to two minutes for a picture.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(150),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(240),
};
/// Time limit of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
/// Attempts at a request that fails for a temporary cause.
const MAX_ATTEMPTS: u32 = 3;
/// HTTP statuses (RFC 9110 §15, RFC 6585 §4). Those from 500 on are failures of the server.
const OK: u16 = 200;
const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
const TOO_MANY_REQUESTS: u16 = 429;
const SERVER_ERRORS: u16 = 500;

/// The purpose and the budget of the run that pay for a request.
#[derive(Clone, Default)]
pub(crate) struct MediaAccount {
    pub(crate) purpose: CallPurpose,
    /// The budget of the run; `None` outside a run.
    pub(crate) run: Option<Arc<RunBudget>>,
}

/// A service of a provider.
pub(crate) struct MediaService<'a> {
    ctx: &'a Context,
    settings: &'a Settings,
    model: &'a str,
    provider: String,
    base: String,
    headers: Vec<(String, String)>,
    http: Http,
    /// The price of a million tokens of input in US dollars; `None` if it is unknown.
    input_price: Option<f64>,
    /// The config or this release says that it costs nothing.
    is_free: bool,
}

/// A request to a service.
pub(crate) struct MediaRequest<'a> {
    /// The path beneath the provider's address, such as `/audio/speech`.
    pub(crate) path: &'a str,
    pub(crate) media_type: &'a str,
    pub(crate) body: &'a [u8],
    /// An upper bound of its cost in US dollars; 0 if it is unknown.
    pub(crate) max_usd: f64,
    /// True if tokens are charged, and not pictures, characters or seconds.
    pub(crate) is_charged_by_token: bool,
    /// Maximum size of the response, in bytes.
    pub(crate) limit_bytes: u64,
    /// The word for the content of the response, for the error if it has none.
    pub(crate) wanted: &'static str,
}

/// The content of a response.
pub(crate) struct MediaReply<T> {
    pub(crate) content: T,
    pub(crate) usage: Usage,
    /// The cost in US dollars; `None` if it is unknown.
    pub(crate) usd: Option<f64>,
}

impl<'a> MediaService<'a> {
    /// The service of `provider` with this model. Nothing is sent.
    ///
    /// # Errors
    /// Status 78 if there is no such provider, or no key of it.
    pub(crate) fn open(
        ctx: &'a Context,
        settings: &'a Settings,
        provider: &str,
        model: &'a str,
        offline: bool,
    ) -> Result<Self> {
        let model_settings = ModelSettings {
            model: Some(model.to_owned()),
            provider: provider.to_owned(),
            overrides: settings.overrides_of(model),
            ..settings.models[0].clone()
        };
        let Endpoint { choice, http_provider } =
            model::resolve_endpoint(ctx, settings, &model_settings, offline, false)?;
        let (base, headers) =
            http_provider.base_and_headers().map_err(ProviderError::into_failure)?;
        let provider_settings = settings.provider(&choice.provider)?;
        let proxy = provider_settings.and_then(|settings| settings.proxy.as_ref());
        let proxy = proxy.map(LazySecret::resolve).transpose()?;
        let http = Http::new(TIMEOUTS, offline, &settings.network)
            .with_proxy(proxy, "the provider's `proxy`")?;
        if http_provider.key.is_configured() && web_url::is_remote_cleartext(&base) {
            let address = web_url::redact_url(&base);
            let text = format!("the API key is sent to {address} unencrypted");
            if ctx.single_notices.is_new(&text) {
                ctx.notice(&text);
            }
        }
        let price = choice.prices.map(|prices| prices.for_input_tokens(0));
        let input_price = price.map(|price| price.input);
        let is_free = price.is_some_and(|price| price.input.max(price.output) <= 0.0);
        let provider = choice.provider;
        Ok(Self { ctx, settings, model, provider, base, headers, http, input_price, is_free })
    }

    /// The provider's address, without secrets.
    pub(crate) fn address(&self) -> String {
        web_url::redact_url(&self.base)
    }

    /// The provider's name.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// The price of a million tokens of input in US dollars, if the config or this release knows it.
    pub(crate) fn input_price(&self) -> Option<f64> {
        self.input_price
    }

    /// Sends the request, with retries after temporary failures, and records it in the ledger. `read` reads the body of a
    /// response; `None` if it is not what was asked for.
    ///
    /// # Errors
    /// A budget is used up: status 4. There is a budget, and no price: status 78. The service fails, or refuses the key: status 69 or 77.
    pub(crate) fn request<T>(
        &self,
        media_account: &MediaAccount,
        request: &MediaRequest<'_>,
        read: impl Fn(Vec<u8>) -> Option<MediaReply<T>>,
    ) -> Result<MediaReply<T>> {
        if let Some(run) = &media_account.run {
            run.check()?;
        }
        let purpose = &media_account.purpose;
        let ledger = Ledger::new(&self.ctx.paths.root, &self.ctx.clock);
        let budget = self.settings.budget;
        let is_limited_by_flag = media_account.run.as_ref().is_some_and(|run| run.has_cost_limit());
        let is_limited = is_limited_by_flag || !budget.is_unlimited();
        if is_limited && request.max_usd <= 0.0 {
            // The price of a token says nothing about that of a picture.
            if request.is_charged_by_token && self.input_price.is_none() {
                return Err(model::unknown_price(self.model, is_limited_by_flag));
            }
            if !request.is_charged_by_token && !self.is_free {
                let cause = model::unknown_price_cause(self.model, is_limited_by_flag);
                return Err(fail(Exit::Config, cause).with_hint("a model with a known price"));
            }
        }
        let session_usd = match budget.per_session {
            // Without a session it is none of a conversation, and all of these together are no session.
            Some(_) if !purpose.session.is_empty() => ledger.session_cost(&purpose.session)?,
            _ => 0.0,
        };
        let reservation = ledger.reserve(&budget, session_usd, request.max_usd, &mut |_| Ok(()))?;
        let start = Instant::now();
        let mut is_charged = false;
        let mut result = self.send(request, read, &mut is_charged);
        let reserved = (request.max_usd > 0.0).then_some(request.max_usd);
        let (usage, usd) = match &mut result {
            Ok(reply) => {
                // A cost that is not one counts as unknown, and an unknown one as the most that was reserved.
                reply.usd = reply.usd.filter(|usd| usd.is_finite() && *usd >= 0.0).or(reserved);
                (reply.usage, reply.usd)
            }
            Err(_) if is_charged => (Usage::default(), reserved),
            Err(_) => (Usage::default(), Some(0.0)),
        };
        ledger.record(
            &ModelCall {
                purpose,
                provider: &self.provider,
                model: self.model,
                usage,
                usd,
                duration: start.elapsed(),
                failed: result.is_err(),
            },
            Some(reservation),
        )?;
        if let (Some(run), Some(usd)) = (&media_account.run, usd) {
            run.add_cost(usd);
        }
        result
    }

    /// Sends the request. `is_charged` becomes true once the service may charge for it: it has accepted it, or the run ended meanwhile.
    fn send<T>(
        &self,
        request: &MediaRequest<'_>,
        read: impl Fn(Vec<u8>) -> Option<MediaReply<T>>,
        is_charged: &mut bool,
    ) -> Result<MediaReply<T>> {
        let url = format!("{}{}", self.base.trim_end_matches('/'), request.path);
        let mut attempt = 1;
        loop {
            let method = HttpMethod::Post(request.media_type, request.body);
            let response = self.http.request(&url, &self.headers, method);
            let response = response.inspect_err(|error| *is_charged = error.is::<Stop>())?;
            let status = response.status;
            *is_charged = status == OK;
            let body = response.read_body(request.limit_bytes + 1, None)?;
            if body.len() as u64 > request.limit_bytes {
                let cause =
                    format!("{url}: the response is larger than {} MB", request.limit_bytes >> 20);
                return Err(fail(Exit::Unavailable, cause));
            }
            if status == OK {
                let cause = format!("{url}: the response has no {}", request.wanted);
                return read(body).ok_or_else(|| fail(Exit::Unavailable, cause));
            }
            if !matches!(status, TOO_MANY_REQUESTS | SERVER_ERRORS..) || attempt == MAX_ATTEMPTS {
                let exit = match status {
                    UNAUTHORIZED | FORBIDDEN => Exit::Refused,
                    _ => Exit::Unavailable,
                };
                let cause = shown_message(&error_message(&String::from_utf8_lossy(&body)));
                return Err(fail(exit, format!("{url}: {cause} (status {status})")));
            }
            signal::sleep(Duration::from_secs(u64::from(attempt)))?;
            attempt += 1;
        }
    }
}

/// Runs a command of the user's for the config key `key`, with `input` as its standard input and `path` as its first argument.
/// Returns its output, which is at most `limit_bytes` long.
///
/// # Errors
/// It cannot be started, fails, takes too long, or prints too much.
pub(crate) fn run_command(
    ctx: &Context,
    key: &str,
    command: &str,
    path: Option<&Path>,
    input: Option<Vec<u8>>,
    limit_bytes: u64,
) -> Result<Vec<u8>> {
    let mut arguments = vec!["-c".to_owned(), command.to_owned(), "sh".to_owned()];
    arguments.extend(path.map(|path| path.to_string_lossy().into_owned()));
    let spec = CommandSpec {
        program: PathBuf::from("/bin/sh"),
        arguments,
        directory: PathBuf::from("/"),
        env: (ctx.env.iter()).map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        timeout: COMMAND_TIMEOUT,
        capture_bytes: usize::try_from(limit_bytes)?,
        sandbox: None,
        input,
    };
    let (result, stderr) =
        process::run_split_stderr(&spec).with_context(|| format!("run `{key}`"))?;
    if let Some(stop) = result.stop {
        return Err(stop.into());
    }
    match result.status {
        Some(status) if status.success() => {}
        Some(status) => {
            let stderr = String::from_utf8_lossy(&stderr);
            let reason = stderr.lines().rfind(|line| !line.trim().is_empty());
            let reason = reason.map(|line| format!(": {}", shown_message(line)));
            let cause = format!("`{key}` failed: {status}{}", reason.unwrap_or_default());
            return Err(fail(Exit::Failed, cause));
        }
        None => {
            let minutes = COMMAND_TIMEOUT.as_secs() / 60;
            return Err(fail(Exit::Failed, format!("`{key}` took longer than {minutes} minutes")));
        }
    }
    if !result.tail.is_empty() || result.omitted_bytes > 0 {
        let cause = format!("`{key}` printed more than {} MB", limit_bytes >> 20);
        return Err(fail(Exit::Failed, cause));
    }
    Ok(result.head)
}
