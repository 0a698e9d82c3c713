//! The WebSockets of a stand-in: they tell of events, and record what is sent to them.

use crate::server::{Request, Response, Upgrade};
use crate::wait::DEADLINE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::Value;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

/// The answers of a server to a message; the first message is null, for the opening.
type Respond = Box<dyn Fn(&Value) -> Vec<Value> + Send + Sync>;

/// The frames of a protocol.
#[derive(Clone, Copy)]
pub(crate) struct Codec {
    /// A value may take several frames.
    pub(crate) encode: fn(&Value) -> Vec<Message>,
    pub(crate) decode: fn(Message) -> Option<Value>,
}

/// JSON in texts.
const JSON_CODEC: Codec = Codec {
    encode: |value| vec![Message::text(value.to_string())],
    decode: |message| match message {
        Message::Text(text) => Some(serde_json::from_str(&text).unwrap()),
        _ => None,
    },
};

/// The open connections of a server. An answer `{"close": CODE}` closes the connection.
#[derive(Clone)]
pub(crate) struct Sockets(Arc<(Mutex<State>, Condvar, Respond)>, Codec);

#[derive(Default)]
struct State {
    /// The connections in the order of their opening; `None` once closed.
    open: Vec<Option<WebSocket<TcpStream>>>,
    received: Vec<Value>,
}

impl Sockets {
    pub(crate) fn new(respond: Respond) -> Self {
        Self::with_codec(respond, JSON_CODEC)
    }

    pub(crate) fn with_codec(respond: Respond, codec: Codec) -> Self {
        Self(Arc::new((Mutex::default(), Condvar::new(), respond)), codec)
    }

    /// The response to a request that opens a connection.
    pub(crate) fn accept(&self, request: &Request) -> Response {
        let key = request.header("sec-websocket-key").unwrap();
        let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let accepted = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()));
        let server = self.clone();
        Response {
            upgrade: Some(Upgrade(Arc::new(move |stream| server.serve(stream)))),
            ..Response::default()
        }
        .header("upgrade", "websocket")
        .header("connection", "upgrade")
        .header("sec-websocket-accept", &accepted)
    }

    fn serve(&self, stream: TcpStream) {
        let (state, changed, respond) = &*self.0;
        let copy = stream.try_clone().unwrap();
        let number = {
            let mut state = state.lock().unwrap();
            state.open.push(Some(WebSocket::from_raw_socket(copy, Role::Server, None)));
            state.open.len() - 1
        };
        let answer = |message: &Value| {
            let mut state = state.lock().unwrap();
            for answer in respond(message) {
                let Some(socket) = &mut state.open[number] else {
                    break;
                };
                match answer["close"].as_u64() {
                    Some(code) => {
                        close(socket, u16::try_from(code).unwrap());
                        state.open[number] = None;
                    }
                    None => self.send_to(socket, &answer),
                }
            }
            if !message.is_null() {
                state.received.push(message.clone());
            }
            changed.notify_all();
        };
        answer(&Value::Null);
        let mut reader = WebSocket::from_raw_socket(stream, Role::Server, None);
        while let Ok(message) = reader.read() {
            if let Some(message) = (self.1.decode)(message) {
                answer(&message);
            }
        }
        state.lock().unwrap().open[number] = None;
        changed.notify_all();
    }

    fn send_to(&self, socket: &mut WebSocket<TcpStream>, event: &Value) {
        for message in (self.1.encode)(event) {
            drop(socket.send(message));
        }
    }

    /// Sends an event to all open connections.
    pub(crate) fn send(&self, event: &Value) {
        let mut state = self.0.0.lock().unwrap();
        for socket in state.open.iter_mut().flatten() {
            self.send_to(socket, event);
        }
    }

    /// Sends a ping over all open connections.
    pub(crate) fn ping(&self) {
        let mut state = self.0.0.lock().unwrap();
        for socket in state.open.iter_mut().flatten() {
            drop(socket.send(Message::Ping("ping".into())));
        }
    }

    /// Closes all open connections with a code.
    pub(crate) fn close(&self, code: u16) {
        let mut state = self.0.0.lock().unwrap();
        for open in &mut state.open {
            if let Some(mut socket) = open.take() {
                close(&mut socket, code);
            }
        }
    }

    /// The messages that were sent to the server.
    pub(crate) fn received(&self) -> Vec<Value> {
        self.0.0.lock().unwrap().received.clone()
    }

    /// Waits until `count` connections were opened in all.
    #[track_caller]
    pub(crate) fn wait_for_connections(&self, count: usize) {
        self.wait_until(|state| state.open.len() >= count);
    }

    /// Waits until a message was received for which `is_wanted` is true.
    #[track_caller]
    pub(crate) fn wait_for_message(&self, is_wanted: impl Fn(&Value) -> bool) {
        self.wait_until(|state| state.received.iter().any(&is_wanted));
    }

    #[track_caller]
    fn wait_until(&self, is_done: impl Fn(&State) -> bool) {
        let (state, changed, _) = &*self.0;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, DEADLINE, |state| !is_done(state));
        let (state, timeout) = waited.unwrap();
        let state_text = format!("{} connections, {:?}", state.open.len(), state.received);
        drop(state);
        assert!(!timeout.timed_out(), "{state_text}");
    }
}

fn close(socket: &mut WebSocket<TcpStream>, code: u16) {
    let frame = CloseFrame { code: code.into(), reason: "".into() };
    drop(socket.close(Some(frame)));
    drop(socket.get_ref().shutdown(std::net::Shutdown::Write));
}
