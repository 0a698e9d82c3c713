//! The Streamable HTTP transport, over the program's own HTTP client. Each exchange blocks a thread, which ends once
//! its answer is no longer wanted. No redirects are followed, so the headers of the config are only sent to the
//! configured address.

use super::message;
use super::thread::Held;
use super::watch::{Watch, one_line};
use crate::mcp::offer::Failed;
use crate::settings::servers::Remote;
use crate::sys::env::Env;
use crate::sys::http::{ConnectError, Http, Response, Timeouts, read_failure};
use crate::sys::signal;
use crate::sys::sse::{EventTooLarge, SseEvent, SseParser};
use crate::sys::web_url::{is_remote_cleartext, redacted};
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
const WHOLE: usize = 16 << 20;
/// The largest body of an error response, in bytes.
const FAILURE: usize = 64 << 10;
/// The largest event, in bytes; the same as for complete answers.
const MAX_EVENT_BYTES: usize = WHOLE;
/// Bounds of the reconnection delay that a server may request.
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(60);
/// Capacity of the queue of received events; each may have up to [`MAX_EVENT_BYTES`].
const WAITING: usize = 4;
/// Maximum of attempts to resume a broken stream. With the pauses between them, they outlast any call.
const TRIES: usize = 5;
/// Number of retries of a cancellation notice, and the pause before each.
const LAST_TRIES: usize = 20;
const LAST_PAUSE: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_secs(15);

const EVENTS: &str = "text/event-stream";
const BOTH: &str = "application/json, text/event-stream";

type Wrong = StreamableHttpError<Failed>;

/// A server at an address.
#[derive(Clone)]
pub(super) struct Far {
    http: Arc<Http>,
    headers: Arc<[(String, String)]>,
    watch: Arc<Watch>,
    /// Set when the server sent an event that is too large. A resumed stream would only deliver it again.
    is_spoilt: Arc<AtomicBool>,
}

/// The request of an exchange.
pub(super) enum Ask {
    Get,
    Delete,
    Post(Vec<u8>),
}

/// The response of an exchange.
pub(super) struct Came {
    status: u16,
    kind: String,
    session: Option<String>,
    pub(super) body: Body,
}

pub(super) enum Body {
    Whole(Vec<u8>),
    Events(Incoming),
}

/// A stream of received events. Dropping it ends the exchange.
pub(super) struct Incoming {
    events: mpsc::Receiver<Result<Sse, SseError>>,
    _held: Held,
}

impl Stream for Incoming {
    type Item = Result<Sse, SseError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_recv(cx)
    }
}

impl Incoming {
    pub(super) async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        self.events.recv().await
    }
}

/// Creates the transport to `remote`.
pub(super) fn transport(far: Far, remote: &Remote) -> StreamableHttpClientTransport<Far> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(remote.url.as_str());
    let mut again = ExponentialBackoff::default();
    again.max_times = Some(TRIES);
    again.max_delay = Some(Duration::from_secs(10));
    config.retry_config = Arc::new(again);
    config.max_sse_event_size = MAX_EVENT_BYTES;
    StreamableHttpClientTransport::with_client(far, config)
}

impl Far {
    /// Prepares access to `remote`.
    ///
    /// # Errors
    /// `remote` is not usable as configured.
    pub(super) fn new(
        remote: &Remote,
        env: &Env,
        offline: bool,
        watch: &Arc<Watch>,
    ) -> Result<Self, Failed> {
        let url = redacted(&remote.url);
        let valid = url::Url::parse(&remote.url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !valid {
            return Err(Failed::Unusable(format!("`{url}` is not an HTTP URL")));
        }
        if is_remote_cleartext(&remote.url) && !remote.headers.is_empty() {
            return Err(Failed::Unusable(format!(
                "`{url}` would send the headers unencrypted to another machine: use `https`"
            )));
        }
        let mut headers = Vec::with_capacity(remote.headers.len());
        for (name, value) in &remote.headers {
            let fits =
                name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value.expose()).is_ok();
            if !fits {
                return Err(Failed::Unusable(format!(
                    "invalid header `{}`",
                    one_line(name)
                )));
            }
            headers.push((name.to_lowercase(), value.expose().to_owned()));
        }
        // The caller has the deadline: a stream may be silent for hours, and a tool may run for long.
        let timeouts = Timeouts {
            connect: CONNECT,
            first_byte: Duration::ZERO,
            idle: Duration::ZERO,
            total: Duration::ZERO,
        };
        Ok(Self {
            http: Arc::new(Http::new(timeouts, offline, env)),
            headers: headers.into(),
            watch: Arc::clone(watch),
            is_spoilt: Arc::default(),
        })
    }

    /// Performs one exchange on its own thread. `extra_headers` are additional headers, which override those of the config.
    pub(super) async fn exchange(
        &self,
        url: &str,
        ask: Ask,
        more: Vec<(String, String)>,
    ) -> Result<Came, Failed> {
        let is_ours =
            |name: &str| more.iter().any(|(ours, _)| ours == name) || name == "content-type";
        let mut headers: Vec<(String, String)> = self.headers.to_vec();
        headers.retain(|(name, _)| !is_ours(name));
        headers.extend(more);
        let (http, url) = (Arc::clone(&self.http), url.to_owned());
        let (head, coming) = oneshot::channel();
        let (events, incoming) = mpsc::channel(WAITING);
        let (watch, is_spoilt) = (Arc::clone(&self.watch), Arc::clone(&self.is_spoilt));
        let work = move || {
            let answer = match &ask {
                Ask::Get => http.send(&url, &headers, None),
                Ask::Delete => http.delete(&url, &headers),
                Ask::Post(body) => http.post_json(&url, &headers, body),
            };
            match answer.map_err(|error| unanswered(&error)).and_then(begin) {
                Err(failed) => drop(head.send(Err(failed))),
                Ok((came, None)) => drop(head.send(Ok((came, false)))),
                Ok((came, Some(body))) => {
                    drop(head.send(Ok((came, true))));
                    pump(body, &events, &watch, &is_spoilt);
                }
            }
        };
        let no_thread =
            |error: std::io::Error| Failed::Unreachable(format!("start a thread: {error}"));
        let held = Held::new().map_err(no_thread)?;
        held.spawn("mcp-http", work).map_err(no_thread)?;
        let gone = || Failed::Broken("the HTTP exchange was aborted".into());
        let (mut came, streams) = coming.await.map_err(|_| gone())??;
        if streams {
            came.body = Body::Events(Incoming {
                events: incoming,
                _held: held,
            });
        }
        Ok(came)
    }
}

/// Converts the error of a request without a response.
fn unanswered(error: &anyhow::Error) -> Failed {
    let words = one_line(&error.to_string());
    match error.is::<ConnectError>() || error.is::<crate::error::Hinted>() {
        true => Failed::Unreachable(words),
        false => Failed::Broken(words),
    }
}

/// Reads the start of a response: the status and headers, and the body unless that is a stream of events.
fn begin(answer: Response) -> Result<(Came, Option<Box<dyn Read + Send>>), Failed> {
    let kind = answer.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let mut came = Came {
        status: answer.status,
        kind: kind.to_lowercase(),
        session: answer.header("mcp-session-id").map(str::to_owned),
        body: Body::Whole(Vec::new()),
    };
    let is_success = (200..300).contains(&came.status);
    if is_success && came.kind == EVENTS {
        return Ok((came, Some(answer.body)));
    }
    let most = if is_success { WHOLE } else { FAILURE };
    let mut bytes = Vec::new();
    let mut body = answer.body.take(most as u64 + 1);
    let read = body.read_to_end(&mut bytes);
    // For an error response, the status matters more than the body.
    if bytes.len() > most && is_success {
        let words = format!("its response is larger than {} KiB", most >> 10);
        return Err(Failed::Broken(words));
    }
    match read {
        Ok(_) => came.body = Body::Whole(bytes),
        Err(_) if !is_success => {}
        Err(error) => return Err(Failed::Broken(read_failure(&error))),
    }
    Ok((came, None))
}

/// Forwards the events of `body`, until it ends or the receiver is dropped.
fn pump(
    mut body: Box<dyn Read + Send>,
    events: &mpsc::Sender<Result<Sse, SseError>>,
    watch: &Watch,
    is_spoilt: &AtomicBool,
) {
    let mut parser = SseParser::new(MAX_EVENT_BYTES);
    let mut buffer = vec![0; 32 << 10];
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let words = read_failure(&error);
                let error = SseError::Body(Box::new(Failed::Broken(words)));
                return drop(events.blocking_send(Err(error)));
            }
        };
        let fed = parser.feed(&buffer[..count], &mut |event| {
            let data = event.data.as_deref().unwrap_or_default();
            if message::is_dense(data.as_bytes()) {
                return Ok(());
            }
            let sent = events.blocking_send(Ok(to_sse(event)));
            sent.map_err(|_| PumpEnd::NobodyReads)
        });
        match fed {
            Ok(()) => {}
            Err(PumpEnd::NobodyReads) => return,
            Err(PumpEnd::TooLarge) => {
                let words = format!(
                    "it sent an event of more than {} MiB",
                    MAX_EVENT_BYTES >> 20
                );
                let failed = Failed::Broken(words);
                is_spoilt.store(true, Ordering::SeqCst);
                watch.over(failed.clone());
                return drop(events.blocking_send(Err(SseError::Body(Box::new(failed)))));
            }
        }
    }
}

/// The reason why forwarding of events ended.
enum PumpEnd {
    NobodyReads,
    TooLarge,
}

impl From<EventTooLarge> for PumpEnd {
    fn from(_: EventTooLarge) -> Self {
        Self::TooLarge
    }
}

/// Converts an event to the type of `rmcp`.
fn to_sse(event: SseEvent) -> Sse {
    let retry = event.retry.map(|wish| wish.clamp(MIN_RETRY, MAX_RETRY));
    Sse {
        event: event.event,
        data: event.data,
        id: event.id,
        retry: retry.and_then(|wait| u64::try_from(wait.as_millis()).ok()),
    }
}

/// Converts an unsuccessful status to an error.
pub(super) fn refused(status: u16, body: &Body) -> Failed {
    let text = match body {
        Body::Whole(bytes) => one_line(&String::from_utf8_lossy(bytes)),
        Body::Events(_) => String::new(),
    };
    let says = if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    };
    match status {
        401 | 403 => Failed::Login(format!(
            "it requires a login (status {status}): OAuth is not supported; put a token in `headers`"
        )),
        300..=399 => Failed::Broken(format!(
            "it redirects to another URL (status {status}), which is not followed: correct `url` in the config"
        )),
        _ => Failed::Broken(format!("it responded with status {status}{says}")),
    }
}

/// Builds the headers: those of rmcp, and those of the session.
fn headers_of(
    custom: HashMap<HeaderName, HeaderValue>,
    accept: &str,
    session: Option<&str>,
    last: Option<String>,
) -> Vec<(String, String)> {
    let text = |(name, value): (HeaderName, HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let mut all: Vec<_> = custom.into_iter().filter_map(text).collect();
    all.push(("accept".into(), accept.into()));
    let fits = |value: &String| HeaderValue::from_str(value).is_ok();
    all.extend(session.map(|session| ("mcp-session-id".into(), session.to_owned())));
    let last = last.filter(fits);
    all.extend(last.map(|last| ("last-event-id".into(), last)));
    all
}

/// True if the message is a cancellation notice.
fn is_last_word(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Notification(notification)
        if matches!(notification.notification, ClientNotification::CancelledNotification(_)))
}

impl StreamableHttpClient for Far {
    type Error = Failed;

    async fn post_message(
        &self,
        uri: Arc<str>,
        asked: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Wrong> {
        let body = serde_json::to_vec(&asked)?;
        let headers = headers_of(custom_headers, BOTH, session_id.as_deref(), None);
        let mut came = self
            .exchange(&uri, Ask::Post(body.clone()), headers.clone())
            .await;
        if is_last_word(&asked) {
            // Ctrl-C ends every exchange, but the cancellation notice must still be sent because of it. That becomes
            // possible once the run begins its shutdown, or the conversation continues.
            for _ in 0..LAST_TRIES {
                if came.is_ok() || signal::check().is_ok() {
                    break;
                }
                tokio::time::sleep(LAST_PAUSE).await;
                let again = Ask::Post(body.clone());
                came = self.exchange(&uri, again, headers.clone()).await;
            }
        }
        let Came {
            status,
            kind,
            session,
            body,
        } = came.map_err(StreamableHttpError::Client)?;
        let is_request = matches!(asked, ClientJsonRpcMessage::Request(_));
        if status == 404 && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let is_success = (200..300).contains(&status);
        match body {
            Body::Events(events) if is_request => {
                let events: BoxStream<'static, _> = Box::pin(events);
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            _ if is_success && (!is_request || matches!(status, 202 | 204)) => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            Body::Whole(bytes) if is_success && kind == "application/json" => {
                let message = message::read(&bytes)
                    .ok_or_else(|| no_mcp("it responded with JSON that is not an MCP message"))?;
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            Body::Whole(_) if is_success => Err(no_mcp(&format!(
                "it responded with `{}`, which is not an MCP message",
                one_line(&kind)
            ))),
            body => {
                // Some servers report an error by the status and by a protocol message.
                if let (ClientJsonRpcMessage::Request(request), Body::Whole(bytes)) =
                    (&asked, &body)
                    && !matches!(status, 401 | 403)
                    && let Some(ServerJsonRpcMessage::Error(error)) = message::read(bytes)
                {
                    let error = ServerJsonRpcMessage::error(error.error, Some(request.id.clone()));
                    return Ok(StreamableHttpPostResponse::Json(error, session));
                }
                Err(StreamableHttpError::Client(refused(status, &body)))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Wrong> {
        let headers = headers_of(custom_headers, BOTH, Some(&session_id), None);
        let came = self.exchange(&uri, Ask::Delete, headers).await;
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
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Wrong> {
        if self.is_spoilt.load(Ordering::SeqCst) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let headers = headers_of(custom_headers, EVENTS, session_id.as_deref(), last_event_id);
        let came = self.exchange(&uri, Ask::Get, headers).await;
        let came = came.map_err(StreamableHttpError::Client)?;
        match (came.status, came.body) {
            (_, Body::Events(events)) => Ok(Box::pin(events)),
            (401 | 403, _) => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(
                String::new(),
            ))),
            (405 | 200..300, _) => Err(StreamableHttpError::ServerDoesNotSupportSse),
            (status, body) => Err(StreamableHttpError::Client(refused(status, &body))),
        }
    }
}

fn no_mcp(words: &str) -> Wrong {
    StreamableHttpError::Client(Failed::Broken(words.into()))
}

/// Opens the event stream at `url`.
///
/// # Errors
/// There is no such stream.
pub(super) async fn listen(far: &Far, url: &str) -> Result<Incoming, Failed> {
    let accept = ("accept".to_owned(), EVENTS.to_owned());
    let came = far.exchange(url, Ask::Get, vec![accept]).await?;
    match came.body {
        Body::Events(events) => Ok(events),
        Body::Whole(_) if (200..300).contains(&came.status) => Err(Failed::Broken(
            "it did not respond with an event stream".into(),
        )),
        body => Err(refused(came.status, &body)),
    }
}

/// Posts `body` to `url`; the body of the response is ignored.
///
/// # Errors
/// The server did not accept it.
pub(super) async fn post(far: &Far, url: &str, body: Vec<u8>) -> Result<(), Failed> {
    let accept = ("accept".to_owned(), BOTH.to_owned());
    let came = far.exchange(url, Ask::Post(body), vec![accept]).await?;
    match (200..300).contains(&came.status) {
        true => Ok(()),
        false => Err(refused(came.status, &came.body)),
    }
}

#[cfg(test)]
mod tests {
    use super::to_sse;
    use crate::mcp::client::{ClientConfig, Fleet};
    use crate::mcp::offer::{Failed, Piece};
    use crate::settings::servers::{Reached, Remote, Server};
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
    fn the_wait_before_the_next_try_has_bounds() {
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
    struct Asked {
        line: String,
        id: Value,
        key: String,
    }

    /// A server on this machine; the function `answers` writes all responses.
    struct Far {
        fleet: Fleet,
        asked: Arc<Mutex<Vec<String>>>,
        _folder: tempfile::TempDir,
    }

    fn one(
        stream: TcpStream,
        answer: &dyn Fn(&Asked, &mut TcpStream),
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
        let asked = Asked {
            line: words.join(" "),
            id: body["id"].clone(),
            key: header("x-key"),
        };
        log.lock().unwrap().push(asked.line.clone());
        answer(&asked, &mut writer);
        Some(())
    }

    fn listen(
        answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static,
    ) -> (u16, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || one(stream, &*answer, &log));
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
    fn begin(asked: &Asked, stream: &mut TcpStream) -> bool {
        match asked.line.split(' ').nth(1) {
            Some("initialize") => json_of(
                stream,
                &asked.id,
                &json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}}),
            ),
            Some("tools/list") => json_of(
                stream,
                &asked.id,
                &json!({"tools": [{"name": "t", "inputSchema": {}}]}),
            ),
            Some("tools/call") => return false,
            _ if asked.line.starts_with("GET") => send(stream, "405 No", ""),
            _ => send(stream, "202 Accepted", ""),
        }
        true
    }

    impl Far {
        fn new(
            reached: fn(Remote) -> Reached,
            answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static,
        ) -> Self {
            let (port, asked) = listen(answer);
            let remote = Remote {
                url: format!("http://127.0.0.1:{port}/mcp"),
                headers: vec![("X-Key".into(), Secret::new("k"))],
            };
            let server = Server {
                name: "far".into(),
                reached: reached(remote),
                call_timeout: Duration::from_secs(60),
                start_timeout: Duration::from_secs(60),
                ..Server::default()
            };
            let folder = tempfile::tempdir().unwrap();
            let env: Env = [("HOME", folder.path().to_str().unwrap())]
                .into_iter()
                .collect();
            let ground = ClientConfig {
                paths: Paths::resolve(&env, None).unwrap(),
                env,
                offline: true,
                answers: None,
                walls: None,
            };
            Self {
                fleet: Fleet::new(&[server], ground),
                asked,
                _folder: folder,
            }
        }

        fn call(&self) -> Result<String, Failed> {
            let ask = || {
                let offer = self.fleet.reach(&["far"]).remove(0).1?;
                self.fleet.call("far", &offer, "t", &json!({}), &mut |_| {})
            };
            // A caller checks the offer again if it has changed.
            let answer = match ask() {
                Err(Failed::Altered) => ask()?,
                other => other?,
            };
            match &answer.pieces[..] {
                [Piece::Text(text)] => Ok(text.clone()),
                other => panic!("{other:?}"),
            }
        }

        fn asked(&self) -> Vec<String> {
            self.asked.lock().unwrap().clone()
        }
    }

    fn text(words: &str) -> Value {
        json!({"content": [{"type": "text", "text": words}]})
    }

    #[test]
    fn a_session_that_ends_is_begun_anew_and_the_headers_are_everywhere() {
        let expired = Mutex::new(false);
        let far = Far::new(Reached::Http, move |asked, stream| {
            assert_eq!(asked.key, "k");
            if begin(asked, stream) {
                return;
            }
            match std::mem::replace(&mut *expired.lock().unwrap(), true) {
                false => send(stream, "404 Gone", ""),
                true => json_of(stream, &asked.id, &text("yes")),
            }
        });
        assert_eq!(far.call().unwrap(), "yes");
        far.fleet.end();
        let mut asked = far.asked();
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
    fn what_is_no_answer_is_told() {
        let check = |head: &'static str, body: &'static str, expect: &str| {
            let far = Far::new(Reached::Http, move |asked, stream| {
                if !begin(asked, stream) {
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
    fn no_redirect_takes_the_headers_elsewhere() {
        let (port, elsewhere) = listen(|_, stream| send(stream, "200 Ok", ""));
        let head = format!("307 There\r\nlocation: http://127.0.0.1:{port}/mcp");
        let far = Far::new(Reached::Http, move |_, stream| send(stream, &head, ""));
        let failed = far.call().unwrap_err();
        assert!(
            format!("{failed:?}").contains("redirects to another URL"),
            "{failed:?}"
        );
        assert!(elsewhere.lock().unwrap().is_empty());
    }

    #[test]
    fn what_has_no_end_is_ended() {
        let huge = Far::new(Reached::Http, |asked, stream| {
            if !begin(asked, stream) {
                json_of(stream, &asked.id, &text(&"x".repeat(super::WHOLE)));
            }
        });
        let failed = huge.call().unwrap_err();
        assert!(
            format!("{failed:?}").contains("larger than 16384 KiB"),
            "{failed:?}"
        );
        let mut endless = Far::new(Reached::Http, |asked, stream| {
            if begin(asked, stream) {
                return;
            }
            drop(stream.write_all(
                b"HTTP/1.1 200 Ok\r\ncontent-type: text/event-stream\r\n\r\nid: 1\nretry: 0\n\n",
            ));
            while stream.write_all(b": still here\n\n").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let mut server = endless.fleet.servers()[0].clone();
        server.call_timeout = Duration::from_secs(1);
        endless.fleet = Fleet::new(&[server], endless.fleet.0.ground.clone());
        assert!(matches!(endless.call(), Err(Failed::Late(_))));
        let large = Far::new(Reached::Http, |asked, stream| {
            if begin(asked, stream) {
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
    fn the_older_way_posts_to_where_it_is_told() {
        let stream_of = Mutex::new(None::<TcpStream>);
        let far = Far::new(Reached::Sse, move |asked, stream| {
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
        let elsewhere = Far::new(Reached::Sse, |_, stream| {
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
