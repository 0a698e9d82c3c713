//! Connections to gateways of the kind that Discord and QQ have: heartbeats, and sessions that a later connection resumes.
//!
//! A bot of Discord may begin 1,000 sessions in a day, or its token is reset; resuming one does not count. So the session
//! is stored from poll to poll, and the number of new ones is limited.

use super::service_client::{ServiceClient, closed, to_channel_error};
use super::{ChannelError, ChannelResult};
use nanobot_net::http::{WebSocket, WebSocketEvent};
use nanobot_os::signal;
use serde_json::{Value, json};
use std::time::Duration;

/// Time that the gateway has for its first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);
/// Bounds of the interval that the gateway asks for; usually it is 41 seconds.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(600);
/// New sessions in an hour, at most.
const MAX_SESSIONS_PER_HOUR: usize = 10;
const HOUR_SECS: i64 = 3600;
/// Opcodes (Discord, "Gateway Opcodes"; those of QQ are the same).
const DISPATCH: u64 = 0;
const HEARTBEAT: u64 = 1;
const IDENTIFY: u64 = 2;
const RESUME: u64 = 6;
const RECONNECT: u64 = 7;
const INVALID_SESSION: u64 = 9;
const HEARTBEAT_ACKNOWLEDGED: u64 = 11;

/// The values that begin a session.
pub(super) struct GatewayLogin<'g> {
    /// The address for a new session.
    pub(super) url: &'g str,
    /// The end of the address at which a session is resumed.
    pub(super) query: &'g str,
    pub(super) token: &'g str,
    /// The data of IDENTIFY besides the token, such as the intents.
    pub(super) identify: Value,
    /// Seconds since 1970.
    pub(super) now: i64,
    pub(super) explain_close: fn(u16) -> GatewayClose,
}

/// The meaning of a close code.
pub(super) enum GatewayClose {
    TokenRejected(&'static str),
    Misconfigured(&'static str),
    /// The session cannot be resumed.
    SessionLost,
    /// The session can be resumed.
    Temporary,
}

/// An open connection.
pub(super) struct GatewayConnection {
    socket: WebSocket,
    heartbeat_interval: Duration,
    next_heartbeat_at: Duration,
    is_heartbeat_answered: bool,
    /// The id, the address and the number of the last event; null if there is none to resume.
    session: Value,
    explain_close: fn(u16) -> GatewayClose,
}

impl GatewayConnection {
    /// Opens a connection, and resumes the session of `cache`, or begins one. `None` if too many were begun.
    pub(super) fn open(
        client: &ServiceClient,
        login: GatewayLogin<'_>,
        cache: &mut Value,
    ) -> ChannelResult<Option<Self>> {
        let GatewayLogin { url, query, token, identify, now, explain_close } = login;
        let session = cache["session"].clone();
        // The token goes to gateways of the service only.
        let session_url = if session["id"].is_string() { session["url"].as_str() } else { None };
        let resume_url = session_url
            .map(|url| format!("{}{query}", url.trim_end_matches('/')))
            .filter(|url| client.owns_socket(url));
        let is_resumed = resume_url.is_some();
        let mut begun_at: Vec<Value> = cache["begun"].as_array().cloned().unwrap_or_default();
        begun_at.retain(|at| at.as_i64().is_some_and(|at| (0..HOUR_SECS).contains(&(now - at))));
        if !is_resumed && begun_at.len() >= MAX_SESSIONS_PER_HOUR {
            return Ok(None);
        }
        let mut connection = Self {
            socket: client.open_websocket(resume_url.as_deref().unwrap_or(url))?,
            heartbeat_interval: MAX_HEARTBEAT_INTERVAL,
            next_heartbeat_at: Duration::MAX,
            is_heartbeat_answered: true,
            session,
            explain_close,
        };
        let end = signal::now() + HELLO_TIMEOUT;
        let hello = connection.next_payload(end);
        if connection.session.is_null() {
            cache["session"] = Value::Null;
        }
        let hello = hello?.unwrap_or_default();
        let interval = hello["d"]["heartbeat_interval"].as_u64();
        let Some(interval) = interval.filter(|millis| *millis > 0) else {
            return Err(client.unexpected_response());
        };
        connection.heartbeat_interval =
            Duration::from_millis(interval).clamp(MIN_HEARTBEAT_INTERVAL, MAX_HEARTBEAT_INTERVAL);
        connection.next_heartbeat_at = signal::now() + connection.heartbeat_interval;
        let login_payload = if is_resumed {
            let session = &connection.session;
            let data =
                json!({ "token": token, "session_id": session["id"], "seq": session["seq"] });
            json!({ "op": RESUME, "d": data })
        } else {
            begun_at.push(now.into());
            cache["begun"] = begun_at.into();
            connection.session = Value::Null;
            let mut data = identify;
            data["token"] = token.into();
            json!({ "op": IDENTIFY, "d": data })
        };
        connection.send(&login_payload)?;
        Ok(Some(connection))
    }

    /// The session, to be resumed by a later connection; null if it has ended.
    pub(super) fn session(&self) -> &Value {
        &self.session
    }

    /// Waits until `end` for an event. Returns it with its number, kind and data as `s`, `t` and `d`.
    pub(super) fn next_event(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        loop {
            let wake_at = end.min(self.next_heartbeat_at);
            let Some(payload) = self.next_payload(wake_at)? else {
                if signal::now() >= self.next_heartbeat_at {
                    self.send_due_heartbeat()?;
                }
                if signal::now() >= end {
                    return Ok(None);
                }
                continue;
            };
            match payload["op"].as_u64() {
                Some(DISPATCH) => {
                    let data = &payload["d"];
                    if payload["t"] == "READY" {
                        self.session =
                            json!({ "id": data["session_id"], "url": data["resume_gateway_url"] });
                    }
                    if payload["s"].is_u64() && self.session.is_object() {
                        self.session["seq"] = payload["s"].clone();
                    }
                    return Ok(Some(payload));
                }
                Some(HEARTBEAT) => self.send_heartbeat()?,
                Some(RECONNECT) => {
                    return Err(unavailable("the gateway asks for a new connection"));
                }
                Some(INVALID_SESSION) => {
                    if payload["d"] != true {
                        self.session = Value::Null;
                    }
                    return Err(unavailable("the gateway has ended the session"));
                }
                Some(HEARTBEAT_ACKNOWLEDGED) => self.is_heartbeat_answered = true,
                _ => {}
            }
        }
    }

    /// Sends the heartbeat that is due, if the last one was acknowledged.
    fn send_due_heartbeat(&mut self) -> ChannelResult<()> {
        if !self.is_heartbeat_answered {
            return Err(unavailable("the gateway does not respond"));
        }
        self.is_heartbeat_answered = false;
        self.next_heartbeat_at = signal::now() + self.heartbeat_interval;
        self.send_heartbeat()
    }

    fn send_heartbeat(&mut self) -> ChannelResult<()> {
        self.send(&json!({ "op": HEARTBEAT, "d": self.session["seq"] }))
    }

    fn send(&mut self, payload: &Value) -> ChannelResult<()> {
        let text = payload.to_string();
        self.socket.send(&text).map_err(to_channel_error)
    }

    /// Returns the next payload; `None` at `end`.
    fn next_payload(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        let (code, reason) = match self.socket.next(end).map_err(to_channel_error)? {
            None => return Ok(None),
            Some(WebSocketEvent::Text(text)) => return Ok(serde_json::from_str(&text).ok()),
            Some(WebSocketEvent::Binary(_)) => return Ok(Some(Value::Null)),
            Some(WebSocketEvent::Closed(code, reason)) => (code, reason),
        };
        match code.map(self.explain_close) {
            Some(GatewayClose::TokenRejected(cause)) => {
                return Err(ChannelError::TokenRejected(cause.to_owned()));
            }
            Some(GatewayClose::Misconfigured(cause)) => {
                return Err(ChannelError::Misconfigured(cause.to_owned()));
            }
            Some(GatewayClose::SessionLost) => self.session = Value::Null,
            Some(GatewayClose::Temporary) | None => {}
        }
        Err(closed("the gateway", code, &reason))
    }
}

fn unavailable(cause: &str) -> ChannelError {
    ChannelError::Unavailable(cause.to_owned())
}
