//! The Streamable HTTP transport, over the program's own HTTP client. Each exchange blocks a thread, which ends once
//! its answer is no longer wanted. No redirects are followed, so the headers of the config are only sent to the
//! configured address.

use super::connection_state::{ConnectionState, one_line};
use super::message;
use super::runtime::CancelOnDrop;
use crate::mcp::protocol::McpError;
use crate::settings::servers::RemoteEndpoint;
use crate::sys::env::Env;
use crate::sys::http::{ConnectError, Http, HttpTimeouts, Response, body_error_message};
use crate::sys::signal;
use crate::sys::sse::{EventTooLarge, SseEvent, SseParser};
use crate::sys::web_url::{is_remote_cleartext, redact_url};
use futures_core::Stream;
use futures_core::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The largest body of a complete answer, in bytes.
const MAX_BODY_BYTES: usize = 16 << 20;
/// The largest body of an error response, in bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// The largest event, in bytes; the same as for complete answers.
const MAX_EVENT_BYTES: usize = MAX_BODY_BYTES;
/// Bounds of the reconnection delay that a server may request.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Capacity of the queue of received events; each may have up to [`MAX_EVENT_BYTES`].
const EVENT_QUEUE_LEN: usize = 4;
/// Maximum of attempts to resume a broken stream. With the pauses between them, they outlast any call.
const MAX_RESUME_ATTEMPTS: usize = 5;
/// Number of retries of a cancellation notice, and the pause before each.
const CANCEL_RETRIES: usize = 20;
const CANCEL_RETRY_DELAY: Duration = Duration::from_millis(50);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

const EVENT_STREAM_TYPE: &str = "text/event-stream";
const ACCEPT_ALL: &str = "application/json, text/event-stream";

type TransportError = StreamableHttpError<McpError>;

/// A server at an address.
#[derive(Clone)]
pub(super) struct HttpTransport {
    http: Arc<Http>,
    headers: Arc<[(String, String)]>,
    state: Arc<ConnectionState>,
    /// Set when the server sent an event that is too large. A resumed stream would only deliver it again.
    is_oversized: Arc<AtomicBool>,
}

/// The request of an exchange.
pub(super) enum ExchangeMethod {
    Get,
    Delete,
    Post(Vec<u8>),
}

/// The response of an exchange.
pub(super) struct ExchangeResponse {
    status: u16,
    content_type: String,
    session_id: Option<String>,
    pub(super) body: ExchangeBody,
}

pub(super) enum ExchangeBody {
    Complete(Vec<u8>),
    Events(EventReceiver),
}

/// A stream of received events. Dropping it ends the exchange.
pub(super) struct EventReceiver {
    events: mpsc::Receiver<Result<Sse, SseError>>,
    _cancel: CancelOnDrop,
}

impl Stream for EventReceiver {
    type Item = Result<Sse, SseError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(cx)
    }
}

impl EventReceiver {
    pub(super) async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        self.events.recv().await
    }
}

/// Creates the transport to `remote`.
pub(super) fn transport(
    client: HttpTransport,
    remote: &RemoteEndpoint,
) -> StreamableHttpClientTransport<HttpTransport> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(remote.url.as_str());
    let mut again = ExponentialBackoff::default();
    again.max_times = Some(MAX_RESUME_ATTEMPTS);
    again.max_delay = Some(Duration::from_secs(10));
    config.retry_config = Arc::new(again);
    config.max_sse_event_size = MAX_EVENT_BYTES;
    StreamableHttpClientTransport::with_client(client, config)
}

impl HttpTransport {
    /// Prepares access to `remote`.
    ///
    /// # Errors
    /// `remote` is not usable as configured.
    pub(super) fn new(
        remote: &RemoteEndpoint,
        env: &Env,
        offline: bool,
        state: &Arc<ConnectionState>,
    ) -> Result<Self, McpError> {
        let url = redact_url(&remote.url);
        let valid = url::Url::parse(&remote.url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !valid {
            return Err(McpError::Unusable(format!("`{url}` is not an HTTP URL")));
        }
        if is_remote_cleartext(&remote.url) && !remote.headers.is_empty() {
            return Err(McpError::Unusable(format!(
                "`{url}` would send the headers unencrypted to another machine: use `https`"
            )));
        }
        let mut headers = Vec::with_capacity(remote.headers.len());
        for (name, value) in &remote.headers {
            let fits =
                name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value.expose()).is_ok();
            if !fits {
                return Err(McpError::Unusable(format!(
                    "invalid header `{}`",
                    one_line(name)
                )));
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
        Ok(Self {
            http: Arc::new(Http::new(timeouts, offline, env)),
            headers: headers.into(),
            state: Arc::clone(state),
            is_oversized: Arc::default(),
        })
    }

    /// Performs one exchange on its own thread. `extra_headers` are additional headers, which override those of the config.
    pub(super) async fn exchange(
        &self,
        url: &str,
        method: ExchangeMethod,
        extra_headers: Vec<(String, String)>,
    ) -> Result<ExchangeResponse, McpError> {
        let is_ours = |name: &str| {
            extra_headers.iter().any(|(ours, _)| ours == name) || name == "content-type"
        };
        let mut headers: Vec<(String, String)> = self.headers.to_vec();
        headers.retain(|(name, _)| !is_ours(name));
        headers.extend(extra_headers);
        let (http, url) = (Arc::clone(&self.http), url.to_owned());
        let (head, coming) = oneshot::channel();
        let (events, incoming) = mpsc::channel(EVENT_QUEUE_LEN);
        let (watch, is_spoilt) = (Arc::clone(&self.state), Arc::clone(&self.is_oversized));
        let work = move || {
            let answer = match &method {
                ExchangeMethod::Get => http.send(&url, &headers, None),
                ExchangeMethod::Delete => http.delete(&url, &headers),
                ExchangeMethod::Post(body) => http.post_json(&url, &headers, body),
            };
            match answer
                .map_err(|error| to_request_error(&error))
                .and_then(read_head)
            {
                Err(failed) => drop(head.send(Err(failed))),
                Ok((came, None)) => drop(head.send(Ok((came, false)))),
                Ok((came, Some(body))) => {
                    drop(head.send(Ok((came, true))));
                    forward_events(body, &events, &watch, &is_spoilt);
                }
            }
        };
        let no_thread =
            |error: std::io::Error| McpError::Unreachable(format!("start a thread: {error}"));
        let held = CancelOnDrop::new().map_err(no_thread)?;
        held.spawn("mcp-http", work).map_err(no_thread)?;
        let gone = || McpError::Broken("the HTTP exchange was aborted".into());
        let (mut came, streams) = coming.await.map_err(|_| gone())??;
        if streams {
            came.body = ExchangeBody::Events(EventReceiver {
                events: incoming,
                _cancel: held,
            });
        }
        Ok(came)
    }
}

/// Converts the error of a request without a response.
fn to_request_error(error: &anyhow::Error) -> McpError {
    let words = one_line(&error.to_string());
    match error.is::<ConnectError>() || error.is::<crate::error::HintedError>() {
        true => McpError::Unreachable(words),
        false => McpError::Broken(words),
    }
}

/// Reads the start of a response: the status and headers, and the body unless that is a stream of events.
fn read_head(
    response: Response,
) -> Result<(ExchangeResponse, Option<Box<dyn Read + Send>>), McpError> {
    let kind = response.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let mut came = ExchangeResponse {
        status: response.status,
        content_type: kind.to_lowercase(),
        session_id: response.header("mcp-session-id").map(str::to_owned),
        body: ExchangeBody::Complete(Vec::new()),
    };
    let is_success = (200..300).contains(&came.status);
    if is_success && came.content_type == EVENT_STREAM_TYPE {
        return Ok((came, Some(response.body)));
    }
    let most = if is_success {
        MAX_BODY_BYTES
    } else {
        MAX_ERROR_BODY_BYTES
    };
    let mut bytes = Vec::new();
    let mut body = response.body.take(most as u64 + 1);
    let read = body.read_to_end(&mut bytes);
    // For an error response, the status matters more than the body.
    if bytes.len() > most && is_success {
        let words = format!("its response is larger than {} KiB", most >> 10);
        return Err(McpError::Broken(words));
    }
    match read {
        Ok(_) => came.body = ExchangeBody::Complete(bytes),
        Err(_) if !is_success => {}
        Err(error) => return Err(McpError::Broken(body_error_message(&error))),
    }
    Ok((came, None))
}

/// Forwards the events of `body`, until it ends or the receiver is dropped.
fn forward_events(
    mut body: Box<dyn Read + Send>,
    events: &mpsc::Sender<Result<Sse, SseError>>,
    state: &ConnectionState,
    is_oversized: &AtomicBool,
) {
    let mut parser = SseParser::new(MAX_EVENT_BYTES);
    let mut buffer = vec![0; 32 << 10];
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let words = body_error_message(&error);
                let error = SseError::Body(Box::new(McpError::Broken(words)));
                return drop(events.blocking_send(Err(error)));
            }
        };
        let fed = parser.feed(&buffer[..count], &mut |event| {
            let data = event.data.as_deref().unwrap_or_default();
            if message::has_too_many_values(data.as_bytes()) {
                return Ok(());
            }
            let sent = events.blocking_send(Ok(to_sse(std::mem::take(event))));
            sent.map_err(|_| ForwardEnd::ReceiverDropped)
        });
        match fed {
            Ok(()) => {}
            Err(ForwardEnd::ReceiverDropped) => return,
            Err(ForwardEnd::TooLarge) => {
                let words = format!(
                    "it sent an event of more than {} MiB",
                    MAX_EVENT_BYTES >> 20
                );
                let failed = McpError::Broken(words);
                is_oversized.store(true, Ordering::SeqCst);
                state.set_end_reason(failed.clone());
                return drop(events.blocking_send(Err(SseError::Body(Box::new(failed)))));
            }
        }
    }
}

/// The reason why forwarding of events ended.
enum ForwardEnd {
    ReceiverDropped,
    TooLarge,
}

impl From<EventTooLarge> for ForwardEnd {
    fn from(_: EventTooLarge) -> Self {
        Self::TooLarge
    }
}

/// Converts an event to the type of `rmcp`.
fn to_sse(event: SseEvent) -> Sse {
    let retry = event
        .retry
        .map(|wish| wish.clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY));
    Sse {
        event: event.event,
        data: event.data,
        id: event.id,
        retry: retry.and_then(|wait| u64::try_from(wait.as_millis()).ok()),
    }
}

/// Converts an unsuccessful status to an error.
pub(super) fn status_error(status: u16, body: &ExchangeBody) -> McpError {
    let text = match body {
        ExchangeBody::Complete(bytes) => one_line(&String::from_utf8_lossy(bytes)),
        ExchangeBody::Events(_) => String::new(),
    };
    let says = if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    };
    match status {
        401 | 403 => McpError::Login(format!(
            "it requires a login (status {status}): OAuth is not supported; put a token in `headers`"
        )),
        300..=399 => McpError::Broken(format!(
            "it redirects to another URL (status {status}), which is not followed: correct `url` in the config"
        )),
        _ => McpError::Broken(format!("it responded with status {status}{says}")),
    }
}

/// Builds the headers: those of rmcp, and those of the session.
fn build_headers(
    custom: HashMap<HeaderName, HeaderValue>,
    accept: &str,
    session: Option<&str>,
    last_event_id: Option<String>,
) -> Vec<(String, String)> {
    let text = |(name, value): (HeaderName, HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let mut all: Vec<_> = custom.into_iter().filter_map(text).collect();
    all.push(("accept".into(), accept.into()));
    let fits = |value: &String| HeaderValue::from_str(value).is_ok();
    all.extend(session.map(|session| ("mcp-session-id".into(), session.to_owned())));
    let last = last_event_id.filter(fits);
    all.extend(last.map(|last| ("last-event-id".into(), last)));
    all
}

/// True if the message is a cancellation notice.
fn is_cancellation(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Notification(notification)
        if matches!(notification.notification, ClientNotification::CancelledNotification(_)))
}

impl StreamableHttpClient for HttpTransport {
    type Error = McpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        asked: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let body = serde_json::to_vec(&asked)?;
        let headers = build_headers(custom_headers, ACCEPT_ALL, session_id.as_deref(), None);
        let mut came = self
            .exchange(&uri, ExchangeMethod::Post(body.clone()), headers.clone())
            .await;
        if is_cancellation(&asked) {
            // Ctrl-C ends every exchange, but the cancellation notice must still be sent because of it. That becomes
            // possible once the run begins its shutdown, or the conversation continues.
            for _ in 0..CANCEL_RETRIES {
                if came.is_ok() || signal::check().is_ok() {
                    break;
                }
                tokio::time::sleep(CANCEL_RETRY_DELAY).await;
                let again = ExchangeMethod::Post(body.clone());
                came = self.exchange(&uri, again, headers.clone()).await;
            }
        }
        let ExchangeResponse {
            status,
            content_type: kind,
            session_id: session,
            body,
        } = came.map_err(StreamableHttpError::Client)?;
        let is_request = matches!(asked, ClientJsonRpcMessage::Request(_));
        if status == 404 && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let is_success = (200..300).contains(&status);
        match body {
            ExchangeBody::Events(events) if is_request => {
                let events: BoxStream<'static, _> = Box::pin(events);
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            _ if is_success && (!is_request || matches!(status, 202 | 204)) => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            ExchangeBody::Complete(bytes) if is_success && kind == "application/json" => {
                let message = message::parse(&bytes).ok_or_else(|| {
                    protocol_error("it responded with JSON that is not an MCP message")
                })?;
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            ExchangeBody::Complete(_) if is_success => Err(protocol_error(&format!(
                "it responded with `{}`, which is not an MCP message",
                one_line(&kind)
            ))),
            body => {
                // Some servers report an error by the status and by a protocol message.
                if let (ClientJsonRpcMessage::Request(request), ExchangeBody::Complete(bytes)) =
                    (&asked, &body)
                    && !matches!(status, 401 | 403)
                    && let Some(ServerJsonRpcMessage::Error(error)) = message::parse(bytes)
                {
                    let error = ServerJsonRpcMessage::error(error.error, Some(request.id.clone()));
                    return Ok(StreamableHttpPostResponse::Json(error, session));
                }
                Err(StreamableHttpError::Client(status_error(status, &body)))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), TransportError> {
        let headers = build_headers(custom_headers, ACCEPT_ALL, Some(&session_id), None);
        let came = self.exchange(&uri, ExchangeMethod::Delete, headers).await;
        match came.map_err(StreamableHttpError::Client)?.status {
            405 => Err(StreamableHttpError::ServerDoesNotSupportDeleteSession),
            _ => Ok(()),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, TransportError> {
        if self.is_oversized.load(Ordering::SeqCst) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let headers = build_headers(
            custom_headers,
            EVENT_STREAM_TYPE,
            session_id.as_deref(),
            last_event_id,
        );
        let came = self.exchange(&uri, ExchangeMethod::Get, headers).await;
        let came = came.map_err(StreamableHttpError::Client)?;
        match (came.status, came.body) {
            (_, ExchangeBody::Events(events)) => Ok(Box::pin(events)),
            (401 | 403, _) => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(
                String::new(),
            ))),
            (405 | 200..300, _) => Err(StreamableHttpError::ServerDoesNotSupportSse),
            (status, body) => Err(StreamableHttpError::Client(status_error(status, &body))),
        }
    }
}

fn protocol_error(message: &str) -> TransportError {
    StreamableHttpError::Client(McpError::Broken(message.into()))
}

/// Opens the event stream at `url`.
///
/// # Errors
/// There is no such stream.
pub(super) async fn open_event_stream(
    transport: &HttpTransport,
    url: &str,
) -> Result<EventReceiver, McpError> {
    let accept = ("accept".to_owned(), EVENT_STREAM_TYPE.to_owned());
    let came = transport
        .exchange(url, ExchangeMethod::Get, vec![accept])
        .await?;
    match came.body {
        ExchangeBody::Events(events) => Ok(events),
        ExchangeBody::Complete(_) if (200..300).contains(&came.status) => Err(McpError::Broken(
            "it did not respond with an event stream".into(),
        )),
        body => Err(status_error(came.status, &body)),
    }
}

/// Posts `body` to `url`; the body of the response is ignored.
///
/// # Errors
/// The server did not accept it.
pub(super) async fn post(
    transport: &HttpTransport,
    url: &str,
    body: Vec<u8>,
) -> Result<(), McpError> {
    let accept = ("accept".to_owned(), ACCEPT_ALL.to_owned());
    let came = transport
        .exchange(url, ExchangeMethod::Post(body), vec![accept])
        .await?;
    match (200..300).contains(&came.status) {
        true => Ok(()),
        false => Err(status_error(came.status, &came.body)),
    }
}

#[cfg(test)]
mod tests {
    use super::to_sse;
    use crate::mcp::client::{ClientConfig, ClientPool};
    use crate::mcp::protocol::{ContentPart, McpError};
    use crate::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use crate::sys::env::Env;
    use crate::sys::paths::Paths;
    use crate::sys::secret::Secret;
    use crate::sys::sse::SseEvent;
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[test]
    fn the_retry_delay_is_clamped() {
        let check = |retry: u64, expect: u64| {
            let event = SseEvent {
                retry: Some(Duration::from_millis(retry)),
                ..SseEvent::default()
            };
            assert_eq!(to_sse(event).retry, Some(expect));
        };
        check(0, 100);
        check(500, 500);
        check(u64::MAX, 60_000);
    }

    /// A received request, such as `POST tools/call s1`, which needs an answer.
    struct TestRequest {
        line: String,
        id: Value,
        key: String,
    }

    /// A server on this machine; the function `answers` writes all responses.
    struct TestServer {
        clients: ClientPool,
        requests: Arc<Mutex<Vec<String>>>,
        _folder: tempfile::TempDir,
    }

    fn read_request(
        stream: TcpStream,
        answer: &dyn Fn(&TestRequest, &mut TcpStream),
        log: &Mutex<Vec<String>>,
    ) -> Option<()> {
        let mut writer = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let header = |name: &str| {
            let found = head.iter().find_map(|line| {
                let (other, value) = line.split_once(": ")?;
                other.eq_ignore_ascii_case(name).then(|| value.to_owned())
            });
            found.unwrap_or_default()
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let verb = head.first()?.split(' ').next()?.to_owned();
        let words = [
            &verb,
            body["method"].as_str().unwrap_or_default(),
            &header("mcp-session-id"),
        ];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let asked = TestRequest {
            line: words.join(" "),
            id: body["id"].clone(),
            key: header("x-key"),
        };
        log.lock().unwrap().push(asked.line.clone());
        answer(&asked, &mut writer);
        Some(())
    }

    fn listen(
        answer: impl Fn(&TestRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> (u16, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || read_request(stream, &*answer, &log));
            }
        });
        (port, asked)
    }

    fn send(stream: &mut TcpStream, head: &str, body: &str) {
        let length = body.len();
        // A client that does not want the answer closes the connection.
        drop(write!(
            stream,
            "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }

    fn json_of(stream: &mut TcpStream, id: &Value, result: &Value) {
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        send(
            stream,
            "200 OK\r\ncontent-type: application/json; charset=utf-8\r\nmcp-session-id: s1",
            &body,
        );
    }

    /// Answers the requests that usually precede a call.
    fn answer_startup(request: &TestRequest, stream: &mut TcpStream) -> bool {
        match request.line.split(' ').nth(1) {
            Some("initialize") => json_of(
                stream,
                &request.id,
                &json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}}),
            ),
            Some("tools/list") => json_of(
                stream,
                &request.id,
                &json!({"tools": [{"name": "t", "inputSchema": {}}]}),
            ),
            Some("tools/call") => return false,
            _ if request.line.starts_with("GET") => send(stream, "405 No", ""),
            _ => send(stream, "202 Accepted", ""),
        }
        true
    }

    impl TestServer {
        fn new(
            reached: fn(RemoteEndpoint) -> ServerTransport,
            answer: impl Fn(&TestRequest, &mut TcpStream) + Send + Sync + 'static,
        ) -> Self {
            let (port, requests) = listen(answer);
            let remote = RemoteEndpoint {
                url: format!("http://127.0.0.1:{port}/mcp"),
                headers: vec![("X-Key".into(), Secret::new("k"))],
            };
            let server = McpServer {
                name: "far".into(),
                transport: reached(remote),
                call_timeout: Duration::from_secs(60),
                start_timeout: Duration::from_secs(60),
                ..McpServer::default()
            };
            let folder = tempfile::tempdir().unwrap();
            let env: Env = [("HOME", folder.path().to_str().unwrap())]
                .into_iter()
                .collect();
            let ground = ClientConfig {
                paths: Paths::resolve(&env, None).unwrap(),
                env,
                offline: true,
                elicitation: None,
                sandboxes: None,
            };
            Self {
                clients: ClientPool::new(&[server], ground),
                requests,
                _folder: folder,
            }
        }

        fn call(&self) -> Result<String, McpError> {
            let ask = || {
                let offer = self.clients.fetch_features(&["far"]).remove(0).1?;
                self.clients
                    .call_tool("far", &offer, "t", &json!({}), &mut |_| {})
            };
            // A caller checks the offer again if it has changed.
            let answer = match ask() {
                Err(McpError::FeaturesChanged) => ask()?,
                other => other?,
            };
            match &answer.parts[..] {
                [ContentPart::Text(text)] => Ok(text.clone()),
                other => panic!("{other:?}"),
            }
        }

        fn requests(&self) -> Vec<String> {
            self.requests.lock().unwrap().clone()
        }
    }

    fn text(content: &str) -> Value {
        json!({"content": [{"type": "text", "text": content}]})
    }

    #[test]
    fn an_expired_session_is_renewed_and_all_requests_have_the_headers() {
        let expired = Mutex::new(false);
        let far = TestServer::new(ServerTransport::Http, move |asked, stream| {
            assert_eq!(asked.key, "k");
            if answer_startup(asked, stream) {
                return;
            }
            match std::mem::replace(&mut *expired.lock().unwrap(), true) {
                false => send(stream, "404 Gone", ""),
                true => json_of(stream, &asked.id, &text("yes")),
            }
        });
        assert_eq!(far.call().unwrap(), "yes");
        far.clients.shut_down();
        let mut asked = far.requests();
        // The separate event stream may be opened at any time.
        asked.retain(|line| !line.starts_with("GET"));
        assert_eq!(
            asked,
            [
                "POST initialize",
                "POST notifications/initialized s1",
                "POST tools/list s1",
                "POST tools/call s1",
                "POST initialize",
                "POST notifications/initialized s1",
                "POST tools/call s1",
                "DELETE s1",
            ]
        );
    }

    #[test]
    fn invalid_responses_are_reported() {
        let check = |head: &'static str, body: &'static str, expect: &str| {
            let far = TestServer::new(ServerTransport::Http, move |asked, stream| {
                if !answer_startup(asked, stream) {
                    send(stream, head, body);
                }
            });
            let failed = far.call().unwrap_err();
            assert!(format!("{failed:?}").contains(expect), "{head}: {failed:?}");
        };
        check("401 No", "", "Login(");
        check("403 No", "", "Login(");
        check(
            "500 Oh",
            "some\nwords",
            "Broken(\"it responded with status 500: some words",
        );
        check(
            "400 Oh",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"not so"}}"#,
            "Refused(\"not so",
        );
        check(
            "200 Ok\r\ncontent-type: text/html",
            "<p>",
            "Broken(\"it responded with `text/html`",
        );
        check(
            "200 Ok\r\ncontent-type: application/json",
            "{}",
            "not an MCP message",
        );
        check(
            "200 Ok\r\ncontent-type: text/event-stream",
            "data: {}\n\n",
            "may have taken effect",
        );
    }

    #[test]
    fn redirects_are_not_followed() {
        let (port, elsewhere) = listen(|_, stream| send(stream, "200 Ok", ""));
        let head = format!("307 There\r\nlocation: http://127.0.0.1:{port}/mcp");
        let far = TestServer::new(ServerTransport::Http, move |_, stream| {
            send(stream, &head, "");
        });
        let failed = far.call().unwrap_err();
        assert!(
            format!("{failed:?}").contains("redirects to another URL"),
            "{failed:?}"
        );
        assert!(elsewhere.lock().unwrap().is_empty());
    }

    #[test]
    fn oversized_and_endless_responses_are_aborted() {
        let huge = TestServer::new(ServerTransport::Http, |asked, stream| {
            if !answer_startup(asked, stream) {
                json_of(stream, &asked.id, &text(&"x".repeat(super::MAX_BODY_BYTES)));
            }
        });
        let failed = huge.call().unwrap_err();
        assert!(
            format!("{failed:?}").contains("larger than 16384 KiB"),
            "{failed:?}"
        );
        let mut endless = TestServer::new(ServerTransport::Http, |asked, stream| {
            if answer_startup(asked, stream) {
                return;
            }
            drop(stream.write_all(
                b"HTTP/1.1 200 Ok\r\ncontent-type: text/event-stream\r\n\r\nid: 1\nretry: 0\n\n",
            ));
            while stream.write_all(b": still here\n\n").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut server = endless.clients.servers()[0].clone();
        server.call_timeout = Duration::from_secs(1);
        endless.clients = ClientPool::new(&[server], endless.clients.0.config.clone());
        assert!(matches!(endless.call(), Err(McpError::TimedOut(_))));
        let large = TestServer::new(ServerTransport::Http, |asked, stream| {
            if answer_startup(asked, stream) {
                return;
            }
            drop(stream.write_all(
                b"HTTP/1.1 200 Ok\r\ncontent-type: text/event-stream\r\n\r\nid: 1\ndata: ",
            ));
            while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        });
        let failed = large.call().unwrap_err();
        assert!(format!("{failed:?}").contains("16 MiB"), "{failed:?}");
    }

    #[test]
    fn the_sse_transport_posts_to_the_endpoint() {
        let stream_of = Mutex::new(None::<TcpStream>);
        let far = TestServer::new(ServerTransport::Sse, move |asked, stream| {
            assert_eq!(asked.key, "k");
            let mut there = stream_of.lock().unwrap();
            if asked.line == "GET" {
                drop(stream.write_all(b"HTTP/1.1 200 Ok\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /post\n\n"));
                *there = stream.try_clone().ok();
                return;
            }
            send(stream, "202 Accepted", "");
            let result = match asked.line.as_str() {
                "POST initialize" => {
                    json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}})
                }
                "POST tools/list" => json!({"tools": []}),
                "POST tools/call" => text("old"),
                _ => return,
            };
            let message = json!({"jsonrpc": "2.0", "id": asked.id, "result": result});
            drop(write!(
                there.as_mut().unwrap(),
                "event: message\ndata: {message}\n\n"
            ));
        });
        assert_eq!(far.call().unwrap(), "old");
        let elsewhere = TestServer::new(ServerTransport::Sse, |_, stream| {
            send(
                stream,
                "200 Ok\r\ncontent-type: text/event-stream",
                "event: endpoint\ndata: http://127.0.0.1:1/post\n\n",
            );
        });
        let failed = elsewhere.call().unwrap_err();
        assert!(
            format!("{failed:?}").contains("has another origin"),
            "{failed:?}"
        );
    }
}
