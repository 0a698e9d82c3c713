//! WebSocket clients (RFC 6455), with the name lookup, the proxy, the timeouts and the signals of HTTP.
//!
//! The library knows frames only. The opening handshake is ours, since it is one request.

use super::client::Http;
use super::stream::LineStream;
use super::timeouts::HttpTimeouts;
use super::transport::with_read_end;
use crate::web_url::{is_remote_cleartext, redact_url};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, fail};
use nanobot_os::secret::random_bytes;
use nanobot_os::signal;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::io::{Error, ErrorKind, Read, Write};
use std::time::Duration;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Message, WebSocket as Frames};
use url::Url;

/// The timeouts of a client that opens WebSockets.
pub const WEBSOCKET_TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(60),
    idle: Duration::ZERO,
    total: Duration::ZERO,
};
/// Time for the whole opening handshake, after which a connection may be silent for long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// The silence after which the server gets a ping, and the time that it has for a pong.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PONG_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a message.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Maximum bytes of a line of the response to the handshake, and maximum lines.
const MAX_HEAD_LINE_BYTES: usize = 8 << 10;
const MAX_HEAD_LINES: usize = 100;
/// The constant that a server joins to our key (RFC 6455 §1.3).
const HANDSHAKE_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An open WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    frames: Frames<FrameStream>,
    /// The time of the last frame that was received, on the clock of [`signal::now`].
    last_received_at: Duration,
    /// The time of a ping since then.
    pinged_at: Option<Duration>,
}

/// A message of the server, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketEvent {
    Text(String),
    Binary(Vec<u8>),
    /// The end of the connection, with the server's code and reason (RFC 6455 §7.4).
    Closed(Option<u16>, String),
}

impl Http {
    /// Opens a WebSocket at a `ws`, `wss`, `http` or `https` URL. The client should have [`WEBSOCKET_TIMEOUTS`].
    ///
    /// # Errors
    /// The errors of [`Http::request`], or the server does not agree to the protocol.
    pub fn open_websocket(&self, url: &str, headers: &[(String, String)]) -> Result<WebSocket> {
        let redacted_url = redact_url(url);
        let invalid = || fail(Exit::Config, format!("invalid URL `{redacted_url}`"));
        // The parser writes the scheme in lower case.
        let mut parsed = Url::parse(url).map_err(|_| invalid())?;
        let scheme = match parsed.scheme() {
            "ws" | "http" => "http",
            "wss" | "https" => "https",
            _ => return Err(invalid()),
        };
        parsed.set_scheme(scheme).map_err(|()| invalid())?;
        if is_remote_cleartext(parsed.as_str()) {
            let cause = format!("`{redacted_url}` is not encrypted");
            return Err(fail(Exit::Config, cause));
        }
        let host = parsed.host_str().ok_or_else(invalid)?;
        let port = parsed.port_or_known_default().ok_or_else(invalid)?;
        let stream = self.open_stream(host, port, parsed.scheme() == "https")?;
        let end = signal::now() + HANDSHAKE_TIMEOUT;
        let stream = with_read_end(Some(end), || shake_hands(stream, &parsed, headers))
            .with_context(|| format!("open the WebSocket of `{host}`"))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let now = signal::now();
        let stream = FrameStream { stream, end: now };
        Ok(WebSocket {
            frames: Frames::from_raw_socket(stream, Role::Client, Some(config)),
            last_received_at: now,
            pinged_at: None,
        })
    }
}

impl WebSocket {
    /// Sends a text.
    ///
    /// # Errors
    /// The connection broke, or the run was cancelled.
    pub fn send(&mut self, text: &str) -> Result<()> {
        self.send_message(Message::text(text))
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The errors of [`Self::send`].
    pub fn send_binary(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.send_message(Message::binary(bytes))
    }

    fn send_message(&mut self, message: Message) -> Result<()> {
        self.frames.send(message).map_err(|error| to_error(&error))?;
        self.frames.get_mut().flush_now()
    }

    /// Returns the next event; `None` if there is none until `end`, on the clock of [`signal::now`].
    ///
    /// # Errors
    /// The connection broke, or the run was cancelled.
    pub fn next(&mut self, end: Duration) -> Result<Option<WebSocketEvent>> {
        loop {
            let ping_at = self.last_received_at + PING_INTERVAL;
            if self.pinged_at.is_none() && signal::now() >= ping_at {
                let ping = Message::Ping(Vec::new().into());
                self.frames.send(ping).map_err(|error| to_error(&error))?;
                self.pinged_at = Some(signal::now());
            }
            let wake_at = self.pinged_at.map_or(ping_at, |at| at + PONG_TIMEOUT);
            self.frames.get_mut().end = end.min(wake_at);
            match self.frames.read() {
                Ok(Message::Text(text)) => {
                    self.record_receipt();
                    return Ok(Some(WebSocketEvent::Text(text.as_str().to_owned())));
                }
                Ok(Message::Binary(bytes)) => {
                    self.record_receipt();
                    return Ok(Some(WebSocketEvent::Binary(bytes.into())));
                }
                Ok(Message::Close(frame)) => {
                    let (code, reason) = match frame {
                        Some(frame) => (Some(frame.code.into()), frame.reason.as_str().to_owned()),
                        None => (None, String::new()),
                    };
                    // The reply to it is queued. Errors do not matter: the connection ends either way.
                    drop(self.frames.flush());
                    drop(self.frames.get_mut().flush_now());
                    return Ok(Some(WebSocketEvent::Closed(code, reason)));
                }
                Ok(_) => {
                    self.record_receipt();
                    // A server that sends one ping after the other does not extend the wait.
                    if signal::now() >= end {
                        return Ok(None);
                    }
                }
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    signal::check()?;
                    if signal::now() >= end {
                        return Ok(None);
                    }
                    if self.pinged_at.is_some() && signal::now() >= wake_at {
                        return Err(anyhow::Error::msg("the server does not respond"));
                    }
                }
                Err(error) => return Err(to_error(&error)),
            }
        }
    }

    fn record_receipt(&mut self) {
        (self.last_received_at, self.pinged_at) = (signal::now(), None);
    }
}

/// The connection under the frames. A read ends at `end` without data.
#[derive(Debug)]
struct FrameStream {
    stream: LineStream,
    end: Duration,
}

impl FrameStream {
    /// Sends the written bytes: a connection does so when it waits for input. While received bytes wait to be read, it does not;
    /// then the read after them sends.
    fn flush_now(&mut self) -> Result<()> {
        self.stream.wait_until(signal::now()).map(drop)
    }
}

impl Read for FrameStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.stream.read_until(buffer, self.end) {
            Ok(Some(count)) => Ok(count),
            Ok(None) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(Error::other(format!("{error:#}"))),
        }
    }
}

impl Write for FrameStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes).map_err(|error| Error::other(format!("{error:#}")))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Converts an error of the library. A pending cancellation takes precedence.
fn to_error(error: &tungstenite::Error) -> anyhow::Error {
    match signal::check() {
        Err(stop) => stop.into(),
        Ok(()) => anyhow::Error::msg(error.to_string()),
    }
}

/// Sends the opening handshake, and checks the response.
fn shake_hands(
    mut stream: LineStream,
    url: &Url,
    headers: &[(String, String)],
) -> Result<LineStream> {
    let key = STANDARD.encode(random_bytes(16));
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nUser-Agent: {}\r\n",
        concat!("nanobot/", env!("CARGO_PKG_VERSION"))
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write(format!("{head}\r\n").as_bytes())?;
    let status = read_head_line(&mut stream)?;
    if status.split(' ').nth(1) != Some("101") {
        return Err(anyhow::Error::msg(format!("response `{status}`")));
    }
    let accept_hash =
        digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{HANDSHAKE_GUID}").as_bytes());
    let accept_key = STANDARD.encode(accept_hash);
    let mut is_accepted = false;
    for _ in 0..MAX_HEAD_LINES {
        let line = read_head_line(&mut stream)?;
        match line.split_once(':') {
            Some((name, value)) => {
                is_accepted |=
                    name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept_key;
            }
            None if line.is_empty() && is_accepted => return Ok(stream),
            None => break,
        }
    }
    Err(anyhow::Error::msg("the server does not speak WebSocket"))
}

fn read_head_line(stream: &mut LineStream) -> Result<String> {
    let mut line = Vec::new();
    stream.read_line(&mut line, MAX_HEAD_LINE_BYTES)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{WEBSOCKET_TIMEOUTS, WebSocketEvent};
    use crate::http::{Http, Network};
    use base64::Engine as _;
    use nanobot_os::signal;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;
    use tungstenite::protocol::{CloseFrame, Role};
    use tungstenite::{Message, WebSocket as Frames};

    /// Accepts a WebSocket, with an answer for the handshake that has `accept` for the right key.
    fn accept(listener: &TcpListener, answer: &str) -> Frames<TcpStream> {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> =
            lines.by_ref().map(|line| line.unwrap()).take_while(|line| !line.is_empty()).collect();
        assert_eq!(head[0], "GET /a?b=c HTTP/1.1");
        assert!(head.contains(&"x-test: yes".to_owned()));
        let key = head.iter().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let text = format!("{}{}", key.unwrap(), super::HANDSHAKE_GUID);
        let digest = ring::digest::digest(&super::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let accepted = super::STANDARD.encode(digest);
        stream.write_all(answer.replace("accept", &accepted).as_bytes()).unwrap();
        Frames::from_raw_socket(stream, Role::Server, None)
    }

    const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-ACCEPT: accept\r\n\r\n";

    #[test]
    fn texts_go_both_ways_until_the_server_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let mut frames = accept(&listener, AGREED);
            frames.send(Message::text("one")).unwrap();
            frames.send(Message::text("two")).unwrap();
            let heard = frames.read().unwrap();
            let close = CloseFrame { code: 4004.into(), reason: "go".into() };
            frames.close(Some(close)).unwrap();
            frames.get_ref().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert!(frames.read().unwrap().is_close());
            heard
        });
        let http = Http::new(WEBSOCKET_TIMEOUTS, true, &Network::default());
        let url = format!("ws://127.0.0.1:{port}/a?b=c");
        let headers = [("x-test".to_owned(), "yes".to_owned())];
        let mut socket = http.open_websocket(&url, &headers).unwrap();
        let long = || signal::now() + Duration::from_secs(20);
        let text = |text: &str| Some(WebSocketEvent::Text(text.into()));
        assert_eq!(socket.next(long()).unwrap(), text("one"));
        assert_eq!(socket.next(long()).unwrap(), text("two"));
        assert_eq!(socket.next(signal::now()).unwrap(), None);
        socket.send("three").unwrap();
        let closed = Some(WebSocketEvent::Closed(Some(4004), "go".into()));
        assert_eq!(socket.next(long()).unwrap(), closed);
        assert_eq!(server.join().unwrap(), Message::text("three"));
        assert!(socket.next(long()).is_err());
    }

    #[test]
    fn handshakes_that_are_refused() {
        let http = Http::new(WEBSOCKET_TIMEOUTS, true, &Network::default());
        let check = |answer: &'static str, expect: &str| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("ws://127.0.0.1:{}/a?b=c", listener.local_addr().unwrap().port());
            let server = std::thread::spawn(move || drop(accept(&listener, answer)));
            let headers = [("x-test".to_owned(), "yes".to_owned())];
            let error = http.open_websocket(&url, &headers).unwrap_err();
            assert!(format!("{error:#}").contains(expect), "{error:#}");
            server.join().unwrap();
        };
        check("HTTP/1.1 401 No\r\n\r\n", "401 No");
        check("HTTP/1.1 101 Ok\r\nsec-websocket-accept: x\r\n\r\n", "does not speak WebSocket");
        let refused = |url: &str| format!("{:#}", http.open_websocket(url, &[]).unwrap_err());
        assert!(refused("ws://chat.example/").contains("is not encrypted"));
        for url in ["wss://chat.example/", "WSS://chat.example/", "https://chat.example/"] {
            assert!(refused(url).contains("`--offline` forbids"), "{url}");
        }
        assert!(refused("WS://chat.example/").contains("is not encrypted"));
        assert!(refused("ftp://127.0.0.1/").contains("invalid URL"));
        assert!(refused("wss:").contains("invalid URL"));
    }
}
