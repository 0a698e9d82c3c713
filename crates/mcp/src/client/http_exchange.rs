//! HTTP exchanges with a remote server, over the program's own HTTP client: the configured headers, the size limits, and
//! the event streams. An exchange blocks its thread, and ends when the thread is cancelled. No redirects are followed, so
//! the headers of the config are only sent to the configured address.

use super::connection_state::one_line;
use super::decode;
use crate::oauth::discovery::missing_scope;
use crate::oauth::renewal::ServerTokens;
use crate::protocol::McpError;
use http::{HeaderName, HeaderValue, StatusCode};
use nanobot_base::error::{Exit, HintedError, exit_for, hint_for};
use nanobot_base::json_rpc;
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::servers::RemoteEndpoint;
use nanobot_net::http::{
    ConnectError, Http, HttpMethod, HttpTimeouts, Network, Response, body_error_message,
};
use nanobot_net::sse::{EventTooLarge, SseEvent, SseParser};
use nanobot_net::web_url::{is_remote_cleartext, redact_url};
use nanobot_os::cancel::{self, CancelToken};
use parking_lot::Mutex;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// The largest body of a complete answer, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 16 << 20;
/// The largest body of an error response, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// The largest event, in bytes; the same as for complete answers.
const MAX_EVENT_BYTES: usize = MAX_BODY_BYTES;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) const ACCEPTED: u16 = StatusCode::ACCEPTED.as_u16();
pub(super) const NO_CONTENT: u16 = StatusCode::NO_CONTENT.as_u16();
pub(super) const UNAUTHORIZED: u16 = StatusCode::UNAUTHORIZED.as_u16();
pub(super) const FORBIDDEN: u16 = StatusCode::FORBIDDEN.as_u16();
pub(super) const NOT_FOUND: u16 = StatusCode::NOT_FOUND.as_u16();
pub(super) const METHOD_NOT_ALLOWED: u16 = StatusCode::METHOD_NOT_ALLOWED.as_u16();

const EVENT_STREAM_TYPE: &str = "text/event-stream";
const ACCEPT_ALL: &str = "application/json, text/event-stream";

/// A server at an address.
pub(super) struct HttpClient {
    http: Http,
    headers: Vec<(String, String)>,
    /// The tokens of a login, if requests carry one.
    tokens: Option<ServerTokens>,
}

pub(super) struct ExchangeResponse {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) session_id: Option<String>,
    /// The scope that a login lacks for the request.
    missing_scope: Option<String>,
    pub(super) body: ExchangeBody,
}

pub(super) enum ExchangeBody {
    Complete(Vec<u8>),
    Events(Box<dyn Read + Send>),
}

/// The end of an event stream.
pub(super) enum StreamEnd {
    /// The server or the network ended it, possibly within an event.
    Ended,
    /// The receiver of the events has ended the stream.
    Unwanted,
    /// An event is too large. Reading it again would not help.
    TooLarge(McpError),
}

impl From<EventTooLarge> for StreamEnd {
    fn from(_: EventTooLarge) -> Self {
        Self::TooLarge(McpError::Broken(format!(
            "it sent an event of more than {} MiB",
            MAX_EVENT_BYTES >> 20
        )))
    }
}

impl ExchangeResponse {
    /// Checks that the status means success.
    ///
    /// # Errors
    /// [`status_error`] for another one.
    pub(super) fn require_success(&self) -> Result<(), McpError> {
        match &self.body {
            ExchangeBody::Complete(body) if !is_success(self.status) => {
                Err(status_error(self.status, body))
            }
            _ => Ok(()),
        }
    }
}

impl HttpClient {
    /// Prepares access to `remote`.
    ///
    /// # Errors
    /// `remote` is not usable as configured.
    pub(super) fn new(
        remote: &RemoteEndpoint,
        network: &Network,
        offline: bool,
        tokens: Option<ServerTokens>,
    ) -> Result<Self, McpError> {
        let url = redact_url(&remote.url);
        let is_valid = url::Url::parse(&remote.url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_valid {
            return Err(McpError::Unusable(format!("`{url}` is not an HTTP URL")));
        }
        let has_secrets = !remote.headers.is_empty() || tokens.is_some();
        if is_remote_cleartext(&remote.url) && has_secrets {
            return Err(McpError::Unusable(format!(
                "`{url}` would send the headers unencrypted to another machine: use `https`"
            )));
        }
        let mut headers = Vec::with_capacity(remote.headers.len());
        for (name, value) in &remote.headers {
            let value =
                value.resolve().map_err(|error| McpError::Unusable(format!("{error:#}")))?;
            if name.parse::<HeaderName>().is_err() || !is_header_value(value.expose()) {
                return Err(McpError::Unusable(format!("invalid header `{}`", one_line(name))));
            }
            headers.push((name.to_lowercase(), value.expose().to_owned()));
        }
        // The caller has the deadline: a stream may be silent for hours, and a tool may run for long.
        let timeouts = HttpTimeouts {
            connect: CONNECT_TIMEOUT,
            first_byte: Duration::ZERO,
            idle: Duration::ZERO,
            total: Duration::ZERO,
        };
        Ok(Self { http: Http::new(timeouts, offline, network), headers, tokens })
    }

    /// Performs one exchange. `extra_headers` are additional headers, which override those of the config.
    ///
    /// # Errors
    /// There is no response.
    pub(super) fn exchange(
        &self,
        url: &str,
        method: HttpMethod<'_>,
        mut extra_headers: Vec<(String, String)>,
    ) -> Result<ExchangeResponse, McpError> {
        let accept = match method {
            HttpMethod::Get => EVENT_STREAM_TYPE,
            _ => ACCEPT_ALL,
        };
        extra_headers.push(("accept".into(), accept.into()));
        let is_overridden = |name: &str| {
            extra_headers.iter().any(|(extra, _)| extra == name) || name == "content-type"
        };
        let mut headers = self.headers.clone();
        headers.retain(|(name, _)| !is_overridden(name));
        headers.extend(extra_headers);
        let send = |headers: &[(String, String)]| {
            let response = self.http.request(url, headers, method);
            read_head(response.map_err(|error| to_request_error(&error))?)
        };
        let Some(tokens) = &self.tokens else {
            return send(&headers);
        };
        headers.retain(|(name, _)| name != "authorization");
        let token = tokens.token(&self.http).map_err(|error| to_login_error(&error))?;
        let with_token = |token: &str| {
            let bearer = ("authorization".to_owned(), format!("Bearer {token}"));
            [&headers[..], &[bearer]].concat()
        };
        let response = send(&with_token(&token))?;
        if let (FORBIDDEN, Some(scope)) = (response.status, &response.missing_scope) {
            let command = tokens.login_command();
            return Err(McpError::Login(format!(
                "the login lacks a scope: `{command} --scope {}`",
                quote(&one_line(scope))
            )));
        }
        if response.status != UNAUTHORIZED {
            return Ok(response);
        }
        // The token may have been revoked, or the server has another clock.
        let token =
            tokens.renew_refused(&self.http, &token).and_then(|()| tokens.token(&self.http));
        send(&with_token(&token.map_err(|error| to_login_error(&error))?))
    }

    /// Opens the event stream at `url`.
    ///
    /// # Errors
    /// There is no such stream.
    pub(super) fn open_events(&self, url: &str) -> Result<Box<dyn Read + Send>, McpError> {
        let response = self.exchange(url, HttpMethod::Get, Vec::new())?;
        response.require_success()?;
        match response.body {
            ExchangeBody::Events(events) => Ok(events),
            ExchangeBody::Complete(_) => {
                Err(McpError::Broken("it did not respond with an event stream".into()))
            }
        }
    }
}

/// True if `value` fits in a header.
pub(super) fn is_header_value(value: &str) -> bool {
    HeaderValue::from_str(value).is_ok()
}

pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Converts the error of a login. Most of these errors must be solved by the user.
fn to_login_error(error: &anyhow::Error) -> McpError {
    let hint = hint_for(error).map(|hint| format!(": `{hint}`"));
    match exit_for(error) {
        Exit::Config => McpError::Login(format!("{error:#}{}", hint.unwrap_or_default())),
        _ => to_request_error(error),
    }
}

/// Converts the error of a request without a response.
fn to_request_error(error: &anyhow::Error) -> McpError {
    let message = one_line(&error.to_string());
    if error.is::<ConnectError>() || error.is::<HintedError>() {
        McpError::Unreachable(message)
    } else {
        McpError::Broken(message)
    }
}

/// Reads the start of a response: the status and headers, and the body unless that is a stream of events.
fn read_head(response: Response) -> Result<ExchangeResponse, McpError> {
    let content_type = response.header("content-type").unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let mut head = ExchangeResponse {
        status: response.status,
        content_type: content_type.to_lowercase(),
        session_id: response.header("mcp-session-id").map(str::to_owned),
        missing_scope: response.header("www-authenticate").and_then(missing_scope),
        body: ExchangeBody::Complete(Vec::new()),
    };
    let is_success = is_success(head.status);
    if is_success && head.content_type == EVENT_STREAM_TYPE {
        head.body = ExchangeBody::Events(response.body);
        return Ok(head);
    }
    let max_bytes = if is_success { MAX_BODY_BYTES } else { MAX_ERROR_BODY_BYTES };
    let mut bytes = Vec::new();
    let mut body = response.body.take(max_bytes as u64 + 1);
    let read = body.read_to_end(&mut bytes);
    // For an error response, the status matters more than the body.
    if bytes.len() > max_bytes && is_success {
        let message = format!("its response is larger than {} KiB", max_bytes >> 10);
        return Err(McpError::Broken(message));
    }
    match read {
        Ok(_) => head.body = ExchangeBody::Complete(bytes),
        Err(_) if !is_success => {}
        Err(error) => return Err(McpError::Broken(body_error_message(&error))),
    }
    Ok(head)
}

/// Passes the events of `body` on, until it ends or `on_event` returns false. Returns the cause of the end.
pub(super) fn read_events(
    mut body: Box<dyn Read + Send>,
    on_event: &mut dyn FnMut(SseEvent) -> bool,
) -> StreamEnd {
    let mut parser = SseParser::new(MAX_EVENT_BYTES);
    let mut buffer = vec![0; 32 << 10];
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => return StreamEnd::Ended,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                log::debug!(target: "mcp", "event stream: {}", body_error_message(&error));
                return StreamEnd::Ended;
            }
        };
        let result = parser.feed(&buffer[..count], &mut |event| {
            if on_event(std::mem::take(event)) { Ok(()) } else { Err(StreamEnd::Unwanted) }
        });
        if let Err(end) = result {
            return end;
        }
    }
}

/// Parses the message in an event; `None` if it holds none.
pub(super) fn parse_event(event: &SseEvent) -> Option<json_rpc::RpcMessage> {
    if !matches!(event.event.as_deref(), None | Some("" | "message")) {
        return None;
    }
    let message = decode::message(event.data.as_deref()?.as_bytes());
    if message.is_none() {
        log::debug!(target: "mcp", "ignored an event that is not an MCP message");
    }
    message
}

/// Converts an unsuccessful status to an error.
pub(super) fn status_error(status: u16, body: &[u8]) -> McpError {
    let text = one_line(&String::from_utf8_lossy(body));
    let suffix = if text.is_empty() { String::new() } else { format!(": {text}") };
    match status {
        UNAUTHORIZED | FORBIDDEN => McpError::Login(format!(
            "it requires a login (status {status}): `nanobot mcp login`, or a token in `headers`"
        )),
        300..=399 => McpError::Broken(format!(
            "it redirects to another URL (status {status}), which is not followed: correct `url` in the config"
        )),
        _ => McpError::Broken(format!("it responded with status {status}{suffix}")),
    }
}

/// The threads of a remote connection, each with an exchange. They end when the connection is closed.
#[derive(Default)]
pub(super) struct ExchangeThreads(Mutex<Exchanges>);

#[derive(Default)]
struct Exchanges {
    is_closed: bool,
    /// The id of the request that an exchange is for, and the token that cancels it.
    running: Vec<(Option<u64>, Arc<CancelToken>)>,
}

impl ExchangeThreads {
    /// Runs `work` on a new thread, for the request `id` if it is for one.
    ///
    /// # Errors
    /// The connection is closed, or no thread is available.
    pub(super) fn spawn(
        self: &Arc<Self>,
        id: Option<u64>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), McpError> {
        let to_error = |error| McpError::Unreachable(format!("start a thread: {error}"));
        let token = CancelToken::new().map_err(to_error)?;
        let mut exchanges = self.0.lock();
        if exchanges.is_closed {
            return Err(McpError::Broken("the connection was closed".into()));
        }
        exchanges.running.push((id, Arc::clone(&token)));
        drop(exchanges);
        let threads = Arc::clone(self);
        let run = move || {
            cancel::scope(Some(Arc::clone(&token)), work);
            let mut exchanges = threads.0.lock();
            exchanges.running.retain(|(_, other)| !Arc::ptr_eq(other, &token));
        };
        let thread = std::thread::Builder::new().name("mcp-http".into());
        thread.spawn(run).map(drop).map_err(to_error)
    }

    /// Cancels the exchanges for all requests that `is_wanted` does not accept.
    pub(super) fn cancel_unwanted(&self, is_wanted: &dyn Fn(u64) -> bool) {
        for (id, token) in &self.0.lock().running {
            if id.is_some_and(|id| !is_wanted(id)) {
                token.cancel();
            }
        }
    }

    /// Cancels all exchanges. Returns false if that was done before.
    pub(super) fn close(&self) -> bool {
        let mut exchanges = self.0.lock();
        for (_, token) in &exchanges.running {
            token.cancel();
        }
        !std::mem::replace(&mut exchanges.is_closed, true)
    }
}
