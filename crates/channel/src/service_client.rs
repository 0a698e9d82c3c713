//! Requests to a chat service: retries, rate limits, and the errors that all services share.

use super::request_limits::{RequestLimit, RequestLimits, route_of};
use super::setup::ChannelSetup;
use super::{ChannelError, ChannelResult, Identity, RateLimit};
use nanobot_base::error::{Exit, HintedError, Stop, fail};
use nanobot_net::http::{
    ConnectError, Http, HttpMethod, HttpTimeouts, Response, WEBSOCKET_TIMEOUTS, WebSocket,
    WebSocketEvent, error_message, shown_message,
};
use nanobot_net::web_url::{self, is_loopback, redact_url};
use nanobot_os::clock::Clock;
use nanobot_os::secret::{Secret, redact_known};
use nanobot_os::signal;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{Read, Write};
use std::time::Duration;
use url::Url;

/// Timeouts of a request that does not wait for messages.
pub(super) const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(600),
};
/// Maximum time for all attempts at a request, besides the time for which the service may wait. A service that sends a byte
/// now and then does not extend it.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// The size of a body above which the total timeout of the client applies instead: an upload may be slow.
const MAX_SMALL_BODY_BYTES: usize = 64 << 10;
/// The longest time for which a service may be asked to wait before it responds. Proxies close connections after a
/// minute.
pub(super) const MAX_SERVICE_TIMEOUT: Duration = Duration::from_secs(50);
/// The longest rate limit that is waited for.
const MAX_RATE_LIMIT_DELAY: Duration = Duration::from_secs(60);
/// The wait where a service names none: ntfy refills one message in 5 s.
const DEFAULT_RATE_LIMIT_DELAY: Duration = Duration::from_secs(5);
const MIN_RATE_LIMIT_DELAY: Duration = Duration::from_secs(1);
/// Maximum bytes read of a response that is held in memory.
const MAX_RESPONSE_BYTES: u64 = 32 << 20;

/// A client of one service.
pub(super) struct ServiceClient {
    /// The channel's name.
    name: &'static str,
    /// The key of the token, for errors.
    token_key: &'static str,
    base: String,
    /// The base address, for messages.
    shown_base: String,
    headers: Vec<(String, String)>,
    /// Hosts that belong to the service, with their subdomains, besides that of `base`.
    hosts: &'static [&'static str],
    http: Http,
    /// For requests that wait at the service.
    waiting_http: Http,
    /// For connections for events.
    event_http: Http,
    clock: Clock,
    limits: RequestLimits,
    /// Attempts at a request that fails for a temporary cause.
    max_attempts: u32,
}

/// A request to a service. The service recognises it when it is sent again, or a repetition has no side effects that matter, unless it is
/// to be sent [`once`](Self::once).
#[derive(Clone, Debug)]
pub(super) struct ServiceRequest<'r> {
    method: &'static str,
    /// The path and the query, after the base address; or a whole address of the service.
    path: &'r str,
    body: Option<TypedBody<'r>>,
    /// Further headers.
    headers: Vec<(String, String)>,
    /// True if the request may be sent again when its outcome is unknown.
    is_idempotent: bool,
    /// The time that a poll has for the request: the service may wait for messages before it responds, up to
    /// [`MAX_SERVICE_TIMEOUT`], and a longer rate limit is an error. Zero for a request that does not wait.
    wait: Duration,
}

#[derive(Clone, Debug)]
struct TypedBody<'r> {
    media_type: &'r str,
    bytes: Cow<'r, [u8]>,
}

/// A response that needs no retry.
#[derive(Clone, Debug)]
pub(super) struct ServiceResponse {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// The header `Retry-After`, or `X-RateLimit-Reset` of Mattermost.
    retry_after: Option<Duration>,
    limit: Option<RequestLimit>,
}

/// The outcome of a download.
pub(super) enum Download {
    Complete,
    TooLong,
    /// The service does not have the content.
    Refused(ServiceResponse),
}

impl Download {
    /// Returns false if the content is longer than the limit.
    ///
    /// # Errors
    /// Status 69 if the service does not have it.
    pub(super) fn into_result(self) -> anyhow::Result<bool> {
        match self {
            Self::Complete => Ok(true),
            Self::TooLong => Ok(false),
            Self::Refused(response) => Err(fail(Exit::Unavailable, response.describe())),
        }
    }
}

impl<'r> ServiceRequest<'r> {
    pub(super) fn get(path: &'r str) -> Self {
        Self::new("GET", path)
    }

    pub(super) fn post(path: &'r str) -> Self {
        Self::new("POST", path)
    }

    pub(super) fn put(path: &'r str) -> Self {
        Self::new("PUT", path)
    }

    pub(super) fn patch(path: &'r str) -> Self {
        Self::new("PATCH", path)
    }

    fn new(method: &'static str, path: &'r str) -> Self {
        let wait = Duration::ZERO;
        Self { method, path, body: None, headers: Vec::new(), is_idempotent: true, wait }
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string().into_bytes())
    }

    pub(super) fn body(self, media_type: &'r str, bytes: impl Into<Cow<'r, [u8]>>) -> Self {
        Self { body: Some(TypedBody { media_type, bytes: bytes.into() }), ..self }
    }

    /// The request is sent again only if it has not reached the service.
    pub(super) fn once(self) -> Self {
        Self { is_idempotent: false, ..self }
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    fn http_method(&self) -> HttpMethod<'_> {
        let body = self.body.as_ref().map(|body| (body.media_type, &*body.bytes));
        match (self.method, body) {
            ("POST", Some((media_type, bytes))) => HttpMethod::Post(media_type, bytes),
            ("POST", None) => HttpMethod::EmptyPost,
            ("PUT", Some((media_type, bytes))) => HttpMethod::Put(media_type, bytes),
            ("PUT", None) => HttpMethod::EmptyPut,
            ("PATCH", Some((media_type, bytes))) => HttpMethod::Patch(media_type, bytes),
            _ => HttpMethod::Get,
        }
    }

    /// The time at which the response must be complete, on the clock of [`signal::now`], if the request is sent now.
    fn end(&self) -> Duration {
        let body = self.body.as_ref();
        let is_small = body.is_none_or(|body| body.bytes.len() <= MAX_SMALL_BODY_BYTES);
        let limit = if is_small { EXCHANGE_TIMEOUT } else { TIMEOUTS.total };
        signal::now() + limit + self.wait.min(MAX_SERVICE_TIMEOUT)
    }
}

impl ServiceResponse {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON; null if it is not JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The status and the message of the service, on one line and without secrets.
    pub(super) fn describe(&self) -> String {
        let message = shown_message(&error_message(&String::from_utf8_lossy(&self.body)));
        if message.is_empty() {
            format!("status {}", self.status)
        } else {
            format!("status {}: {message}", self.status)
        }
    }

    /// The wait that a rate limit asks for: in the header, or in the body of Telegram, Discord and older Matrix servers.
    fn rate_limit_wait(&self) -> Duration {
        let body = self.json();
        let seconds = body["parameters"]["retry_after"].as_f64();
        let seconds = seconds.or(body["retry_after"].as_f64());
        let millis = body["retry_after_ms"].as_f64();
        let body_wait = seconds.or(millis.map(|millis| millis / 1000.0));
        let body_wait = body_wait.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let wait = body_wait.or(self.retry_after);
        // With a wait of zero, the same request could be refused for ever.
        wait.unwrap_or(DEFAULT_RATE_LIMIT_DELAY).max(MIN_RATE_LIMIT_DELAY)
    }
}

impl ServiceClient {
    /// Creates a client for the addresses below the value of `base_key`. `token_key` is the key of the token.
    ///
    /// # Errors
    /// Status 78 for an address that is missing or no URL, or that would send the token unencrypted over a network; or
    /// for an unusable `proxy`.
    pub(super) fn new(
        setup: &ChannelSetup,
        base_key: &str,
        token_key: &'static str,
    ) -> anyhow::Result<Self> {
        let base = setup.config.required_text(base_key, "URL")?;
        Self::at(setup, &base, base_key, token_key)
    }

    /// Creates a client for the addresses below `base`. `base_key` is its config key, for messages.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub(super) fn at(
        setup: &ChannelSetup,
        base: &str,
        base_key: &str,
        token_key: &'static str,
    ) -> anyhow::Result<Self> {
        Self::with_timeouts(setup, base, base_key, token_key, TIMEOUTS)
    }

    /// Like [`Self::at`], with other timeouts of requests that do not wait for messages.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub(super) fn with_timeouts(
        setup: &ChannelSetup,
        base: &str,
        base_key: &str,
        token_key: &'static str,
        timeouts: HttpTimeouts,
    ) -> anyhow::Result<Self> {
        let ChannelSetup { config, network, clock, max_attempts, .. } = setup;
        let name = config.name;
        let base = base.trim_end_matches('/');
        let key = format!("channels.{name}.{base_key}");
        if let Err(cause) = web_url::parse(base) {
            return Err(fail(Exit::Config, format!("`{key}`: {cause}")));
        }
        if web_url::is_remote_cleartext(base) {
            let cause = format!("`{key}` must begin with `https://`, except for this machine");
            return Err(fail(Exit::Config, cause));
        }
        let proxy_key = format!("`channels.{name}.proxy`");
        let client = |timeouts| {
            Http::new(timeouts, false, network).with_proxy(config.secret("proxy")?, &proxy_key)
        };
        Ok(Self {
            name,
            token_key,
            base: base.to_owned(),
            shown_base: redact_url(base),
            headers: Vec::new(),
            hosts: &[],
            http: client(timeouts)?,
            waiting_http: client(HttpTimeouts {
                first_byte: MAX_SERVICE_TIMEOUT + TIMEOUTS.first_byte,
                total: Duration::ZERO,
                ..TIMEOUTS
            })?,
            event_http: client(WEBSOCKET_TIMEOUTS)?,
            clock: clock.clone(),
            limits: RequestLimits::default(),
            max_attempts: *max_attempts,
        })
    }

    /// Sends a token with every request.
    pub(super) fn with_bearer(self, token: &Secret) -> Self {
        self.with_header("authorization", format!("Bearer {}", token.expose()))
    }

    /// Shows only the host of the base address in messages.
    pub(super) fn with_secret_address(mut self) -> Self {
        self.shown_base = web_url::origin(&self.base);
        self
    }

    /// Sends a header with every request.
    pub(super) fn with_header(mut self, name: &str, value: String) -> Self {
        self.headers.push((name.to_owned(), value));
        self
    }

    /// Opens a WebSocket, once. `url` is a whole address, or a path after the base address, for which the token is sent.
    pub(super) fn open_websocket(&self, url: &str) -> ChannelResult<WebSocket> {
        let opened = if url.starts_with('/') {
            let url = format!("{}{url}", self.base);
            self.event_http.open_websocket(&url, &self.headers)
        } else {
            self.event_http.open_websocket(url, &[])
        };
        opened.map_err(to_channel_error)
    }

    /// Adds hosts that belong to the service, with their subdomains.
    pub(super) fn with_hosts(mut self, hosts: &'static [&'static str]) -> Self {
        self.hosts = hosts;
        self
    }

    /// True if `url` is an address of this service, to which the token may be sent.
    pub(super) fn owns(&self, url: &str) -> bool {
        let (Ok(base), Ok(url)) = (Url::parse(&self.base), Url::parse(url)) else {
            return false;
        };
        let host = url.host_str().unwrap_or_default();
        let is_local = || is_loopback(base.host_str().unwrap_or_default()) && is_loopback(host);
        url.origin() == base.origin()
            || is_local()
            || (url.scheme() == "https"
                && url.port_or_known_default() == Some(443)
                && web_url::is_within(host, self.hosts))
    }

    /// True if `url` is the address of a WebSocket of this service.
    pub(super) fn owns_socket(&self, url: &str) -> bool {
        url.starts_with("ws") && self.owns(&http_url(url))
    }

    /// The address of a WebSocket of this service in a response.
    ///
    /// # Errors
    /// It is missing, or that of another service.
    pub(super) fn own_socket<'v>(&self, url: &'v Value) -> ChannelResult<&'v str> {
        let url = url.as_str().filter(|url| self.owns_socket(url));
        url.ok_or_else(|| self.unexpected_response())
    }

    /// The error of a response without a required part, such as a page of a proxy.
    pub(super) fn unexpected_response(&self) -> ChannelError {
        let (name, base) = (self.name, &self.shown_base);
        ChannelError::Unavailable(format!("`{base}` does not respond as {name} does"))
    }

    /// The error of a token that the service does not accept.
    pub(super) fn token_rejected(&self, cause: &str) -> ChannelError {
        let (name, key) = (self.name, self.token_key);
        ChannelError::TokenRejected(format!("{cause}; `channels.{name}.{key}` is not accepted"))
    }

    /// Waits, as between two attempts.
    pub(super) fn pause(&self, duration: Duration) -> ChannelResult<()> {
        self.clock.sleep(duration).map_err(anyhow::Error::from)?;
        Ok(())
    }

    /// Sends a request and reads its response. Temporary failures are retried, and a short rate limit is waited for.
    ///
    /// # Errors
    /// The service is down after all attempts, has a longer rate limit, or rejects the token.
    pub(super) fn request(&self, request: &ServiceRequest<'_>) -> ChannelResult<ServiceResponse> {
        let mut rate_limit_left = match request.wait {
            Duration::ZERO => MAX_RATE_LIMIT_DELAY,
            wait => wait,
        };
        let mut attempts = 0;
        let mut end = request.end();
        let route = route_of(request.method, request.path);
        loop {
            let wait = self.limits.wait(&route, signal::now());
            if wait > rate_limit_left {
                let cause = "the service accepts no more of these requests for now".to_owned();
                return Err(ChannelError::RateLimited(RateLimit(wait), cause));
            }
            if !wait.is_zero() {
                rate_limit_left -= wait;
                end += wait;
                self.pause(wait)?;
            }
            let result = self.request_until(request, end);
            if let Ok(response) = &result {
                self.store_limit(&route, response);
            }
            let (cause, is_retried) = match result {
                Ok(response) if response.status == 401 => {
                    return Err(self.token_rejected(&response.describe()));
                }
                Ok(response) if response.status == 429 => {
                    let wait = response.rate_limit_wait();
                    if wait > rate_limit_left {
                        let cause = response.describe();
                        return Err(ChannelError::RateLimited(RateLimit(wait), cause));
                    }
                    rate_limit_left -= wait;
                    end += wait;
                    self.pause(wait)?;
                    continue;
                }
                // Redirects are not followed, since the token would go with them. No service needs one.
                Ok(response) if (300..400).contains(&response.status) => {
                    return Err(self.unexpected_response());
                }
                Ok(response) if response.status >= 500 => (response.describe(), true),
                Ok(response) => return Ok(response),
                Err(error) => {
                    let is_retried = request.is_idempotent || error.is::<ConnectError>();
                    (failure(error)?, is_retried)
                }
            };
            attempts += 1;
            if attempts >= self.max_attempts || !is_retried || signal::now() >= end {
                return Err(ChannelError::Unavailable(cause));
            }
            let (name, next, max) = (self.name, attempts + 1, self.max_attempts);
            log::warn!(target: "channel", "{name}: {cause}; attempt {next} of {max}");
            self.pause(Duration::from_secs(1 << (attempts - 1)))?;
        }
    }

    /// Stores the limit that a response announces, for the requests after it.
    fn store_limit(&self, route: &str, response: &ServiceResponse) {
        let now = signal::now();
        match response.limit {
            Some(RequestLimit::Route(wait)) => self.limits.store(route, now, now + wait),
            Some(RequestLimit::Global) => {
                self.limits.store("", now, now + response.rate_limit_wait());
            }
            None => {}
        }
    }

    /// Gets JSON.
    pub(super) fn get(&self, path: &str) -> ChannelResult<Value> {
        self.exchange(&ServiceRequest::get(path))
    }

    /// Posts JSON in a request that may be sent again, and returns the JSON of the response.
    pub(super) fn post(&self, path: &str, body: &Value) -> ChannelResult<Value> {
        self.exchange(&ServiceRequest::post(path).json(body))
    }

    /// Posts JSON once. The result does not matter.
    pub(super) fn notify(&self, path: &str, body: &Value) {
        self.try_once(&ServiceRequest::post(path).json(body));
    }

    /// Sends a request once. The result does not matter.
    pub(super) fn try_once(&self, request: &ServiceRequest<'_>) {
        if let Err(error) = self.request_once(request) {
            log::debug!(target: "channel", "{}: {}: {error:#}", self.name, request.path);
        }
    }

    /// Sends a request, and returns the JSON of its response.
    pub(super) fn exchange(&self, request: &ServiceRequest<'_>) -> ChannelResult<Value> {
        self.read_success(&self.request(request)?)
    }

    /// Returns the JSON of a response, or the error of a request that was refused.
    pub(super) fn read_success(&self, response: &ServiceResponse) -> ChannelResult<Value> {
        match response.status {
            200..300 => match response.json() {
                body @ (Value::Object(_) | Value::Array(_)) => Ok(body),
                _ => Err(self.unexpected_response()),
            },
            403 => Err(ChannelError::RecipientRefused(response.describe())),
            _ => Err(ChannelError::Undeliverable(response.describe())),
        }
    }

    /// Sends a request once, and reads its response.
    ///
    /// # Errors
    /// There is no response.
    pub(super) fn request_once(
        &self,
        request: &ServiceRequest<'_>,
    ) -> anyhow::Result<ServiceResponse> {
        self.request_until(request, request.end())
    }

    fn request_until(
        &self,
        request: &ServiceRequest<'_>,
        end: Duration,
    ) -> anyhow::Result<ServiceResponse> {
        read_response(self.open_until(request, end)?, end)
    }

    /// Sends a request once, and returns the response with its body unread.
    ///
    /// # Errors
    /// There is no response.
    pub(super) fn open(&self, request: &ServiceRequest<'_>) -> anyhow::Result<Response> {
        self.open_until(request, request.end())
    }

    fn open_until(&self, request: &ServiceRequest<'_>, end: Duration) -> anyhow::Result<Response> {
        let headers = [&self.headers[..], &request.headers].concat();
        let url = if self.owns(request.path) {
            request.path.to_owned()
        } else {
            format!("{}{}", self.base, request.path)
        };
        let http = if request.wait.is_zero() { &self.http } else { &self.waiting_http };
        http.request_until(&url, &headers, request.http_method(), end)
    }

    /// Writes the body of a GET request, at most `limit_bytes` of it. Returns false if it is longer.
    ///
    /// # Errors
    /// The service does not have it, the exchange failed, or `writer` cannot be written.
    pub(super) fn download(
        &self,
        path: &str,
        writer: &mut dyn Write,
        limit_bytes: u64,
    ) -> anyhow::Result<bool> {
        self.try_download(path, writer, limit_bytes)?.into_result()
    }

    /// Like [`Self::download`] from an address of `service`, to which the token may be sent.
    ///
    /// # Errors
    /// The errors of [`Self::download`]; status 77 for an address of another host.
    pub(super) fn download_own(
        &self,
        service: &str,
        url: &str,
        writer: &mut dyn Write,
        limit_bytes: u64,
    ) -> anyhow::Result<bool> {
        if !self.owns(url) {
            return Err(fail(
                Exit::Refused,
                format!("the address of the attachment is not one of {service}"),
            ));
        }
        self.download(url, writer, limit_bytes)
    }

    /// Like [`Self::download`], and returns the response of a service that does not have the content.
    ///
    /// # Errors
    /// The exchange failed, or `writer` cannot be written.
    pub(super) fn try_download(
        &self,
        path: &str,
        writer: &mut dyn Write,
        limit_bytes: u64,
    ) -> anyhow::Result<Download> {
        let response =
            self.open(&ServiceRequest::get(path)).map_err(|error| match failure(error) {
                Ok(cause) => fail(Exit::Unavailable, cause),
                Err(error) => error.into(),
            })?;
        if response.status != 200 {
            let end = signal::now() + EXCHANGE_TIMEOUT;
            return Ok(Download::Refused(read_response(response, end)?));
        }
        let mut body = response.body;
        std::io::copy(&mut (&mut body).take(limit_bytes), writer)?;
        let is_complete = body.read(&mut [0])? == 0;
        Ok(if is_complete { Download::Complete } else { Download::TooLong })
    }

    /// A text that the API of the service requires in a response.
    ///
    /// # Errors
    /// The text is missing.
    pub(super) fn text_of(&self, value: &Value) -> ChannelResult<String> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.unexpected_response())
    }

    /// A list that the API of the service requires in a response.
    ///
    /// # Errors
    /// The list is missing.
    pub(super) fn list_of<'v>(&self, value: &'v Value) -> ChannelResult<&'v Vec<Value>> {
        value.as_array().ok_or_else(|| self.unexpected_response())
    }

    /// The account with an id and a name that the API requires in a response.
    ///
    /// # Errors
    /// One of them is missing.
    pub(super) fn identity_of(&self, id: &Value, name: &Value) -> ChannelResult<Identity> {
        Ok(Identity { id: self.text_of(id)?, name: self.text_of(name)? })
    }
}

/// The address of HTTP for that of a WebSocket.
pub(super) fn http_url(url: &str) -> String {
    url.strip_prefix("ws").map_or_else(|| url.to_owned(), |rest| format!("http{rest}"))
}

/// Returns the next event as JSON, or `None` at `end`, on the clock of [`signal::now`].
///
/// # Errors
/// The connection was closed or broke.
pub(super) fn next_json(socket: &mut WebSocket, end: Duration) -> ChannelResult<Option<Value>> {
    read_json(socket.next(end).map_err(to_channel_error)?)
}

/// The JSON of an event.
///
/// # Errors
/// The connection was closed.
pub(super) fn read_json(event: Option<WebSocketEvent>) -> ChannelResult<Option<Value>> {
    match event {
        Some(WebSocketEvent::Text(text)) => {
            Ok(Some(serde_json::from_str(&text).unwrap_or_default()))
        }
        Some(WebSocketEvent::Closed(code, reason)) => Err(closed("the service", code, &reason)),
        Some(WebSocketEvent::Binary(_)) => Ok(Some(Value::Null)),
        None => Ok(None),
    }
}

/// The error of a connection that `peer` has closed, with its code and its reason.
pub(super) fn closed(peer: &str, code: Option<u16>, reason: &str) -> ChannelError {
    let code = code.map_or(String::new(), |code| format!(" with code {code}"));
    let cause = format!("{peer} closed the connection{code} {reason}");
    ChannelError::Unavailable(cause.trim_end().to_owned())
}

/// The error of an exchange that is not retried at once.
pub(super) fn to_channel_error(error: anyhow::Error) -> ChannelError {
    match failure(error) {
        Ok(cause) => ChannelError::Unavailable(cause),
        Err(error) => error,
    }
}

/// Returns the cause of a failed exchange that may be retried.
///
/// # Errors
/// A retry cannot help, or the run was cancelled.
pub(super) fn failure(error: anyhow::Error) -> ChannelResult<String> {
    if error.is::<Stop>() {
        return Err(ChannelError::Other(error));
    }
    let cause = redact_known(&format!("{error:#}")).into_owned();
    match error.downcast_ref::<HintedError>().map(|error| error.exit) {
        None => Ok(cause),
        Some(Exit::Config) => Err(ChannelError::Misconfigured(cause)),
        Some(_) => Err(ChannelError::Unavailable(cause)),
    }
}

/// Reads a response, which must be complete at `end`, on the clock of [`signal::now`].
fn read_response(response: Response, end: Duration) -> anyhow::Result<ServiceResponse> {
    let retry_after = response.header("retry-after");
    let retry_after = retry_after.or_else(|| response.header("x-ratelimit-reset"));
    let retry_after = retry_after.and_then(|text| text.trim().parse().ok());
    let limit = RequestLimit::from_response(&response);
    let status = response.status;
    let body = response.read_body(MAX_RESPONSE_BYTES, Some(end))?;
    Ok(ServiceResponse { status, body, retry_after: retry_after.map(Duration::from_secs), limit })
}
