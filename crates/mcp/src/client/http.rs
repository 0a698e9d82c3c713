//! The Streamable HTTP transport: each message is posted by its own thread, which also reads the answer. An event stream
//! that breaks off is resumed, and a session that the server has forgotten is renewed.

use super::connection::{Outgoing, OutgoingKind, Transport};
use super::connection_state::one_line;
use super::decode;
use super::http_exchange::{
    ACCEPTED, ExchangeBody, ExchangeResponse, ExchangeThreads, FORBIDDEN, HttpClient,
    METHOD_NOT_ALLOWED, NO_CONTENT, NOT_FOUND, StreamEnd, UNAUTHORIZED, is_header_value,
    is_success, parse_event, read_events, status_error,
};
use super::inbox::Inbox;
use super::reply::RequestError;
use crate::protocol::McpError;
use nanobot_base::json_rpc::{self, RpcMessage};
use nanobot_net::http::HttpMethod;
use nanobot_os::cancel;
use nanobot_os::signal;
use parking_lot::Mutex;
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Bounds of the reconnection delay that a server may request.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The first delay before a broken stream is resumed, and the longest one; it doubles with each attempt.
const FIRST_RESUME_DELAY: Duration = Duration::from_secs(1);
const MAX_RESUME_DELAY: Duration = Duration::from_secs(10);
/// Maximum of attempts to resume a broken stream: the server has about half a minute to come back, or longer if it requests longer
/// delays.
const MAX_RESUME_ATTEMPTS: u32 = 5;
/// Number of retries of a cancellation notice, and the pause before each.
const CANCEL_RETRIES: usize = 20;
const CANCEL_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A connection to a server at an address.
pub(super) struct HttpTransport {
    client: Arc<HttpClient>,
    url: String,
    inbox: Arc<Inbox>,
    threads: Arc<ExchangeThreads>,
    session: Mutex<HttpSession>,
    /// Locked while the session is renewed.
    renewal: Mutex<()>,
}

/// The session that the handshake has established.
#[derive(Clone, Default)]
struct HttpSession {
    /// Number of handshakes so far.
    handshakes: u64,
    /// The id that the server assigned, if it did.
    id: Option<String>,
    /// The protocol version that the server chose.
    version: Option<String>,
    /// The request that begins the handshake.
    initialize: Vec<u8>,
}

impl HttpSession {
    fn headers(&self) -> Vec<(String, String)> {
        let headers = [("mcp-session-id", &self.id), ("mcp-protocol-version", &self.version)];
        let set_headers = headers.into_iter().filter_map(|(name, value)| {
            let value = value.clone()?;
            Some((name.to_owned(), value))
        });
        set_headers.collect()
    }

    /// Takes the protocol version from the result of the handshake.
    fn set_version(&mut self, result: &Value) {
        let version = result["protocolVersion"].as_str();
        self.version = version.filter(|version| is_header_value(version)).map(str::to_owned);
    }
}

impl Transport for HttpTransport {
    fn send(self: Arc<Self>, message: Outgoing) {
        let state = Arc::clone(&self.inbox.state);
        // Other answers are read to their end only to reuse their connections, which the new request does not need.
        self.threads.cancel_unwanted(&|id| state.is_pending(id));
        let kind = message.kind;
        let is_initialized = matches!(kind, OutgoingKind::Initialized(_));
        let id = if is_initialized { None } else { kind.reply_id() };
        let threads = Arc::clone(&self.threads);
        if let Err(error) = threads.spawn(id, move || self.deliver(message, id))
            && let Some(id) = kind.reply_id()
        {
            state.set_sent(id, Err(error));
        }
    }

    fn close(&self) -> Option<Receiver<()>> {
        if !self.threads.close() {
            return None;
        }
        let session = std::mem::take(&mut *self.session.lock());
        session.id.as_ref()?;
        let (sender, closed) = mpsc::channel::<()>();
        let client = Arc::clone(&self.client);
        let url = self.url.clone();
        let delete = move || {
            let response = client.exchange(&url, HttpMethod::Delete, session.headers());
            // A server need not support this. The end of the sender tells the caller that the session is closed.
            drop((response, sender));
        };
        let thread = std::thread::Builder::new().name("mcp-end".into());
        thread.spawn(delete).ok().map(|_| closed)
    }
}

impl HttpTransport {
    /// Creates the transport to the server at `url`.
    pub(super) fn new(client: HttpClient, url: &str, inbox: &Arc<Inbox>) -> Arc<Self> {
        Arc::new(Self {
            client: Arc::new(client),
            url: url.to_owned(),
            inbox: Arc::clone(inbox),
            threads: Arc::default(),
            session: Mutex::default(),
            renewal: Mutex::default(),
        })
    }

    /// Posts a message, and reads the answer to the request `id`.
    fn deliver(self: Arc<Self>, message: Outgoing, id: Option<u64>) {
        let Outgoing { body, kind, on_sent } = message;
        let (mut session, response) = match self.post_in_session(&body, kind) {
            Ok((session, response)) => (session, response),
            Err(error) => return on_sent(Err(error)),
        };
        let state = &self.inbox.state;
        let Some(id) = id else {
            let outcome = response.require_success();
            if let (OutgoingKind::Initialized(_), Ok(())) = (kind, &outcome) {
                self.start_listening(&session);
            }
            on_sent(outcome);
            if let OutgoingKind::Cancellation(cancelled) = kind {
                self.threads.cancel_unwanted(&|id| id != cancelled);
            }
            return;
        };
        if let OutgoingKind::Initialize(_) = kind {
            session = HttpSession {
                handshakes: 1,
                id: response.session_id.clone(),
                version: None,
                initialize: body,
            };
            *self.session.lock() = session.clone();
        }
        match parse_response(response) {
            Ok(Answer::Message(message)) => {
                on_sent(Ok(()));
                self.receive(message);
                // If that was the answer, the exchange is complete.
                state.complete(id, Err(RequestError::Closed));
            }
            Ok(Answer::Refused(error)) => {
                on_sent(Ok(()));
                state.complete(id, Err(RequestError::Refused(error)));
            }
            Ok(Answer::Events(events)) => {
                on_sent(Ok(()));
                self.follow(Some(id), events, &session);
            }
            // The answer comes over the session's own stream, which is opened after the handshake.
            Ok(Answer::Accepted)
                if session.id.is_some() && matches!(kind, OutgoingKind::Request(_)) =>
            {
                on_sent(Ok(()));
            }
            Ok(Answer::Accepted) => {
                on_sent(Ok(()));
                state.complete(id, Err(RequestError::Closed));
            }
            Err(error) => on_sent(Err(error)),
        }
    }

    /// Posts `body` in the current session, and once more in a new one if the server has forgotten it.
    fn post_in_session(
        self: &Arc<Self>,
        body: &[u8],
        kind: OutgoingKind,
    ) -> Result<(HttpSession, ExchangeResponse), McpError> {
        let mut session = self.session.lock().clone();
        let mut response = self.post(&session, body);
        if let OutgoingKind::Cancellation(_) = kind {
            // Ctrl-C ends every exchange, but the cancellation notice that it causes must still be sent. That becomes possible
            // once the run begins its shutdown, or the conversation continues.
            for _ in 0..CANCEL_RETRIES {
                if response.is_ok() || signal::check().is_ok() {
                    break;
                }
                std::thread::park_timeout(CANCEL_RETRY_DELAY);
                response = self.post(&session, body);
            }
        }
        let mut response = response?;
        // The answer of a server that has forgotten the session.
        let is_expired = |session: &HttpSession, response: &ExchangeResponse| {
            session.id.is_some() && response.status == NOT_FOUND
        };
        if is_expired(&session, &response) && matches!(kind, OutgoingKind::Request(_)) {
            session = self.renew_session(&session)?;
            response = self.post(&session, body)?;
        }
        if is_expired(&session, &response) { Err(renewal_error()) } else { Ok((session, response)) }
    }

    fn post(&self, session: &HttpSession, body: &[u8]) -> Result<ExchangeResponse, McpError> {
        let method = HttpMethod::Post("application/json", body);
        self.client.exchange(&self.url, method, session.headers())
    }

    /// Repeats the handshake, unless another thread did so after `expired_session` began.
    fn renew_session(
        self: &Arc<Self>,
        expired_session: &HttpSession,
    ) -> Result<HttpSession, McpError> {
        let _renewal = self.renewal.lock();
        let mut session = self.session.lock().clone();
        if session.handshakes != expired_session.handshakes {
            return Ok(session);
        }
        session.id = None;
        session.version = None;
        let response = self.post(&session, &session.initialize)?;
        session.id.clone_from(&response.session_id);
        let mut answer = None;
        match parse_response(response)? {
            Answer::Message(message) => answer = Some(message),
            Answer::Events(events) => {
                // It does not matter why the stream ends, only whether the answer came before.
                drop(read_events(events, &mut |event| {
                    answer = parse_event(&event);
                    !matches!(answer, Some(RpcMessage::Response { .. }))
                }));
            }
            Answer::Accepted | Answer::Refused(_) => {}
        }
        let Some(RpcMessage::Response { result: Ok(result), .. }) = answer else {
            return Err(renewal_error());
        };
        session.set_version(&result);
        session.handshakes += 1;
        let notice = json_rpc::notification("notifications/initialized", &Value::Null);
        let response = self.post(&session, &notice)?;
        if !is_success(response.status) {
            return Err(renewal_error());
        }
        *self.session.lock() = session.clone();
        self.start_listening(&session);
        Ok(session)
    }

    /// Passes `message` on. Returns false if the connection has ended.
    fn receive(self: &Arc<Self>, message: RpcMessage) -> bool {
        let state = &self.inbox.state;
        if let RpcMessage::Response { result: Ok(result), .. } = &message
            && !state.is_ready.load(std::sync::atomic::Ordering::SeqCst)
        {
            self.session.lock().set_version(result);
        }
        let transport: Arc<dyn Transport> = Arc::<Self>::clone(self);
        self.inbox.receive(message, &transport)
    }

    /// Reads the session's own event stream, on which the server may send messages that belong to no request.
    fn start_listening(self: &Arc<Self>, session: &HttpSession) {
        if session.id.is_none() {
            return;
        }
        let transport = Arc::clone(self);
        let session = session.clone();
        let listen = move || {
            if let Ok(Some(events)) = transport.open_events(&session, None) {
                transport.follow(None, events, &session);
            }
        };
        if let Err(error) = self.threads.spawn(None, listen) {
            log::debug!(target: "mcp", "no event stream: {error}");
        }
    }

    /// Passes on the messages of an event stream, which is resumed when it breaks off. The stream of a request ends with
    /// its answer, and can be resumed only if its events have ids.
    fn follow(
        self: &Arc<Self>,
        id: Option<u64>,
        mut events: Box<dyn Read + Send>,
        session: &HttpSession,
    ) {
        let state = &self.inbox.state;
        let mut last_id = None;
        let mut retry = None;
        loop {
            let end = read_events(events, &mut |event| {
                last_id = event.id.clone().or(last_id.take());
                retry = event.retry.map(clamp_retry_delay).or(retry);
                parse_event(&event).is_none_or(|message| self.receive(message))
            });
            match end {
                StreamEnd::TooLarge(error) => break state.end(error),
                StreamEnd::Unwanted => break,
                StreamEnd::Ended => {}
            }
            let is_done = id.is_some_and(|id| !state.is_pending(id) || last_id.is_none());
            if is_done || state.is_closed() {
                break;
            }
            match self.resume(session, last_id.as_deref(), retry) {
                Some(resumed_events) => events = resumed_events,
                None => break,
            }
        }
        if let Some(id) = id {
            // If the answer has arrived, the exchange is complete.
            state.complete(id, Err(RequestError::Closed));
        }
    }

    /// Opens an event stream again, after the delay that the server requested.
    fn resume(
        &self,
        session: &HttpSession,
        last_id: Option<&str>,
        retry: Option<Duration>,
    ) -> Option<Box<dyn Read + Send>> {
        for attempt in 0..MAX_RESUME_ATTEMPTS {
            let backoff = (FIRST_RESUME_DELAY * 2_u32.pow(attempt)).min(MAX_RESUME_DELAY);
            let delay = match (attempt, retry) {
                (0, Some(retry)) => retry,
                (_, retry) => backoff.max(retry.unwrap_or_default()),
            };
            // A Ctrl-C that the conversation survives must not end the stream.
            std::thread::park_timeout(delay);
            if cancel::current().is_some_and(|token| token.is_cancelled()) {
                return None;
            }
            match self.open_events(session, last_id) {
                Ok(events) => return events,
                Err(error) => log::debug!(target: "mcp", "cannot resume a stream: {error}"),
            }
        }
        None
    }

    /// Opens an event stream; `None` if the server offers none.
    fn open_events(
        &self,
        session: &HttpSession,
        last_id: Option<&str>,
    ) -> Result<Option<Box<dyn Read + Send>>, McpError> {
        let mut headers = session.headers();
        let last_id = last_id.filter(|id| is_header_value(id));
        headers.extend(last_id.map(|id| ("last-event-id".to_owned(), id.to_owned())));
        let response = self.client.exchange(&self.url, HttpMethod::Get, headers)?;
        match (response.status, response.body) {
            (_, ExchangeBody::Events(events)) => Ok(Some(events)),
            // Another attempt would fail as well.
            (UNAUTHORIZED | FORBIDDEN | METHOD_NOT_ALLOWED | 200..300, _) => Ok(None),
            (status, ExchangeBody::Complete(body)) => Err(status_error(status, &body)),
        }
    }
}

/// The content of a response to a request.
enum Answer {
    Message(RpcMessage),
    Refused(json_rpc::ErrorObject),
    Events(Box<dyn Read + Send>),
    Accepted,
}

/// Parses the response to a request.
fn parse_response(response: ExchangeResponse) -> Result<Answer, McpError> {
    let ExchangeResponse { status, content_type, body, .. } = response;
    let bytes = match body {
        ExchangeBody::Events(events) => return Ok(Answer::Events(events)),
        ExchangeBody::Complete(bytes) => bytes,
    };
    if matches!(status, ACCEPTED | NO_CONTENT) {
        return Ok(Answer::Accepted);
    }
    if is_success(status) {
        if content_type != "application/json" {
            return Err(McpError::Broken(format!(
                "it responded with `{}`, which is not an MCP message",
                one_line(&content_type)
            )));
        }
        let message = decode::message(&bytes).map(Answer::Message);
        let error = "it responded with JSON that is not an MCP message";
        return message.ok_or_else(|| McpError::Broken(error.into()));
    }
    // Some servers report an error by the status and by a protocol message.
    match json_rpc::parse(&bytes) {
        Some(RpcMessage::Response { result: Err(error), .. })
            if !matches!(status, UNAUTHORIZED | FORBIDDEN) =>
        {
            Ok(Answer::Refused(error))
        }
        _ => Err(status_error(status, &bytes)),
    }
}

fn clamp_retry_delay(delay: Duration) -> Duration {
    delay.clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY)
}

fn renewal_error() -> McpError {
    McpError::Broken("its session expired and could not be renewed".into())
}

#[cfg(test)]
mod tests {
    use super::clamp_retry_delay;
    use crate::client::{ClientConfig, ClientPool};
    use crate::protocol::{ContentPart, McpError};
    use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use nanobot_net::http::Network;
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use nanobot_os::secret::LazySecret;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn the_retry_delay_is_clamped() {
        let check = |retry: u64, expect: u64| {
            let delay = clamp_retry_delay(Duration::from_millis(retry));
            assert_eq!(delay, Duration::from_millis(expect));
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
        last_event_id: String,
        body: Value,
    }

    /// The head of a response whose body is a stream of events.
    const STREAM_HEAD: &str = "HTTP/1.1 200 Ok\r\ncontent-type: text/event-stream\r\nmcp-session-id: s1\r\n\
        connection: close\r\n\r\n";

    /// A server on this machine. A function that is passed to [`TestServer::new`] writes all responses.
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
            let value = head.iter().find_map(|line| {
                let (other, value) = line.split_once(": ")?;
                other.eq_ignore_ascii_case(name).then(|| value.to_owned())
            });
            value.unwrap_or_default()
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let verb = head.first()?.split(' ').next()?.to_owned();
        let parts = [&verb, body["method"].as_str().unwrap_or_default(), &header("mcp-session-id")];
        let parts: Vec<&str> = parts.into_iter().filter(|word| !word.is_empty()).collect();
        let request = TestRequest {
            line: parts.join(" "),
            id: body["id"].clone(),
            key: header("x-key"),
            last_event_id: header("last-event-id"),
            body,
        };
        log.lock().push(request.line.clone());
        answer(&request, &mut writer);
        Some(())
    }

    fn listen(
        answer: impl Fn(&TestRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> (u16, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || read_request(stream, &*answer, &log));
            }
        });
        (port, requests)
    }

    fn send(stream: &mut TcpStream, head: &str, body: &str) {
        let length = body.len();
        // A client that does not want the answer closes the connection.
        drop(write!(
            stream,
            "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }

    fn send_result(stream: &mut TcpStream, id: &Value, result: &Value) {
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        send(
            stream,
            "200 OK\r\ncontent-type: application/json; charset=utf-8\r\nmcp-session-id: s1",
            &body,
        );
    }

    /// The result of the request that begins the handshake.
    fn handshake() -> Value {
        json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"},
        })
    }

    /// Answers the requests that usually precede a call. Returns false for the call.
    fn answer_startup(request: &TestRequest, stream: &mut TcpStream) -> bool {
        match request.line.split(' ').nth(1) {
            Some("initialize") => send_result(stream, &request.id, &handshake()),
            Some("tools/list") => {
                let tools = json!({"tools": [{"name": "t", "inputSchema": {}}]});
                send_result(stream, &request.id, &tools);
            }
            Some("tools/call") => return false,
            _ if request.line.starts_with("GET") => send(stream, "405 No", ""),
            _ => send(stream, "202 Accepted", ""),
        }
        true
    }

    impl TestServer {
        fn new(
            transport: fn(RemoteEndpoint) -> ServerTransport,
            answer: impl Fn(&TestRequest, &mut TcpStream) + Send + Sync + 'static,
        ) -> Self {
            let (port, requests) = listen(answer);
            let remote = RemoteEndpoint {
                url: format!("http://127.0.0.1:{port}/mcp"),
                headers: vec![("X-Key".into(), LazySecret::new("k"))],
                uses_login: false,
            };
            let server = McpServer {
                name: "far".into(),
                transport: transport(remote),
                call_timeout: Duration::from_secs(60),
                start_timeout: Duration::from_secs(60),
                ..McpServer::default()
            };
            let folder = tempfile::tempdir().unwrap();
            let env: Env = [("HOME", folder.path().to_str().unwrap())].into_iter().collect();
            let config = ClientConfig {
                paths: Paths::resolve(&env, None).unwrap(),
                env,
                network: Network::default(),
                offline: true,
                elicitation: None,
                sandboxes: None,
            };
            Self { clients: ClientPool::new(&[server], config), requests, _folder: folder }
        }

        fn call(&self) -> Result<String, McpError> {
            let call = || {
                let features = self.clients.fetch_features("far")?;
                self.clients.call_tool("far", &features, "t", &json!({}), None, &mut |_| {})
            };
            // A caller checks the offer again if it has changed.
            let answer = match call() {
                Err(McpError::FeaturesChanged) => call()?,
                other => other?,
            };
            match &answer.parts[..] {
                [ContentPart::Text(text)] => Ok(text.clone()),
                other => panic!("{other:?}"),
            }
        }

        fn requests(&self) -> Vec<String> {
            self.requests.lock().clone()
        }
    }

    fn text(content: &str) -> Value {
        json!({"content": [{"type": "text", "text": content}]})
    }

    #[test]
    fn an_expired_session_is_renewed_and_all_requests_have_the_headers() {
        let expired = Mutex::new(false);
        let server = TestServer::new(ServerTransport::Http, move |request, stream| {
            assert_eq!(request.key, "k");
            if answer_startup(request, stream) {
                return;
            }
            if !std::mem::replace(&mut *expired.lock(), true) {
                send(stream, "404 Gone", "");
            } else {
                send_result(stream, &request.id, &text("yes"));
            }
        });
        assert_eq!(server.call().unwrap(), "yes");
        server.clients.shut_down();
        let mut requests = server.requests();
        // The separate event stream may be opened at any time.
        requests.retain(|line| !line.starts_with("GET"));
        assert_eq!(
            requests,
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
            let server = TestServer::new(ServerTransport::Http, move |request, stream| {
                if !answer_startup(request, stream) {
                    send(stream, head, body);
                }
            });
            let error = server.call().unwrap_err();
            assert!(format!("{error:?}").contains(expect), "{head}: {error:?}");
        };
        check("401 No", "", "Login(");
        check("403 No", "", "Login(");
        check("500 Oh", "some\nwords", "Broken(\"it responded with status 500: some words");
        check(
            "400 Oh",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"not so"}}"#,
            "Refused(\"not so",
        );
        check("200 Ok\r\ncontent-type: text/html", "<p>", "Broken(\"it responded with `text/html`");
        check("200 Ok\r\ncontent-type: application/json", "{}", "not an MCP message");
        check("200 Ok\r\ncontent-type: text/event-stream", "data: {}\n\n", "may have taken effect");
    }

    #[test]
    fn a_broken_stream_is_resumed_and_carries_requests_of_the_server() {
        let called = Mutex::new(Value::Null);
        let (sender, pongs) = std::sync::mpsc::channel();
        let pongs = Mutex::new(pongs);
        let server = TestServer::new(ServerTransport::Http, move |request, stream| {
            match (request.line.as_str(), request.last_event_id.as_str()) {
                ("POST tools/call s1", _) => {
                    *called.lock() = request.id.clone();
                    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
                    drop(write!(stream, "{STREAM_HEAD}id: 7\nretry: 0\ndata: {ping}\n\n"));
                }
                ("POST s1", _) => {
                    sender.send(request.body.to_string()).unwrap();
                    send(stream, "202 Accepted", "");
                }
                ("GET s1", "7") => {
                    let result = text(&pongs.lock().recv().unwrap());
                    let id = called.lock().clone();
                    let message = json!({"jsonrpc": "2.0", "id": id, "result": result});
                    let events = format!("event: odd\ndata: x\n\ndata: {message}\n\n");
                    drop(write!(stream, "{STREAM_HEAD}{events}"));
                }
                _ => drop(answer_startup(request, stream)),
            }
        });
        let answer = r#"{"jsonrpc":"2.0","id":"p","result":{}}"#;
        assert_eq!(server.call().unwrap(), answer);
    }

    #[test]
    fn the_stream_that_begins_the_session_is_resumed_in_it() {
        let initialize_id = Mutex::new(Value::Null);
        let server = TestServer::new(ServerTransport::Http, move |request, stream| {
            match (request.line.as_str(), request.last_event_id.as_str()) {
                ("POST initialize", _) => {
                    *initialize_id.lock() = request.id.clone();
                    let notice = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
                    drop(write!(stream, "{STREAM_HEAD}id: 3\nretry: 0\ndata: {notice}\n\n"));
                }
                ("GET s1", "3") => {
                    let id = initialize_id.lock().clone();
                    let message = json!({"jsonrpc": "2.0", "id": id, "result": handshake()});
                    drop(write!(stream, "{STREAM_HEAD}data: {message}\n\n"));
                }
                ("POST tools/call s1", _) => send_result(stream, &request.id, &text("yes")),
                _ => drop(answer_startup(request, stream)),
            }
        });
        assert_eq!(server.call().unwrap(), "yes");
    }
}
