//! Connections to Discord's gateway: heartbeats, and sessions that a later connection resumes.
//!
//! A bot may begin 1,000 sessions in a day, or its token is reset; resuming one does not count. So the session is kept
//! from poll to poll, and new ones are rationed.

use super::message::number_of;
use crate::channel::conversation_poll::Conversation;
use crate::channel::service_client::{ServiceClient, to_send_error};
use crate::channel::{Identity, SendError};
use crate::sys::http::{WebSocket, WebSocketEvent};
use crate::sys::secret::Secret;
use crate::sys::signal;
use serde_json::{Value, json};
use std::time::Duration;

/// Time that the gateway has for its first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);
/// Bounds of the interval that the gateway asks for; usual are 41 seconds.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(600);
/// New sessions in an hour, at most.
const MAX_SESSIONS_PER_HOUR: usize = 10;
const HOUR_SECS: i64 = 3600;
/// The end of a gateway's address.
const GATEWAY_QUERY: &str = "/?v=10&encoding=json";

/// The values that begin a session.
pub(super) struct GatewayLogin<'g> {
    pub(super) url: &'g str,
    pub(super) token: &'g Secret,
    pub(super) intents: u64,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// An open connection.
pub(super) struct GatewayConnection {
    socket: WebSocket,
    heartbeat_interval: Duration,
    next_heartbeat_at: Duration,
    is_heartbeat_answered: bool,
    /// The number of the last event.
    sequence: Value,
}

impl GatewayConnection {
    /// Opens a connection, and resumes the session of `cache`, or begins one. `None` if too many were begun.
    pub(super) fn open(
        client: &ServiceClient,
        login: &GatewayLogin<'_>,
        cache: &mut Value,
    ) -> Result<Option<Self>, SendError> {
        let GatewayLogin {
            url,
            token,
            intents,
            now,
        } = login;
        let session = cache["session"].clone();
        let resume_url = session["url"].as_str();
        // The token goes to gateways of the service only.
        let resume_url = resume_url.filter(|url| client.owns_socket(url));
        let mut begun: Vec<Value> = cache["begun"].as_array().cloned().unwrap_or_default();
        begun.retain(|at| {
            at.as_i64()
                .is_some_and(|at| (0..HOUR_SECS).contains(&(now - at)))
        });
        if resume_url.is_none() && begun.len() >= MAX_SESSIONS_PER_HOUR {
            return Ok(None);
        }
        let resume_url =
            resume_url.map(|url| format!("{}{GATEWAY_QUERY}", url.trim_end_matches('/')));
        let mut socket = client.open_websocket(resume_url.as_deref().unwrap_or(url))?;
        let end = signal::now() + HELLO_TIMEOUT;
        let hello = next_payload(&mut socket, cache, end)?.unwrap_or_default();
        let Some(interval) = hello["d"]["heartbeat_interval"]
            .as_u64()
            .filter(|it| *it > 0)
        else {
            return Err(client.unexpected_response());
        };
        let heartbeat_interval =
            Duration::from_millis(interval).clamp(MIN_HEARTBEAT_INTERVAL, MAX_HEARTBEAT_INTERVAL);
        let mut connection = Self {
            socket,
            heartbeat_interval,
            next_heartbeat_at: signal::now() + heartbeat_interval,
            is_heartbeat_answered: true,
            sequence: session["seq"].clone(),
        };
        let first = match resume_url {
            Some(_) => json!({ "op": 6, "d": {
                "token": token.expose(), "session_id": session["id"], "seq": session["seq"] } }),
            None => {
                begun.push((*now).into());
                cache["begun"] = begun.into();
                let properties =
                    json!({ "os": "linux", "browser": "nanobot", "device": "nanobot" });
                json!({ "op": 2, "d": {
                    "token": token.expose(), "intents": intents, "properties": properties } })
            }
        };
        connection.send(&first)?;
        Ok(Some(connection))
    }

    /// Waits until `end` for a message of another user. Returns the event's conversation, and its sender.
    pub(super) fn next_message(
        &mut self,
        cache: &mut Value,
        account: &Identity,
        end: Duration,
    ) -> Result<Option<(Conversation, String)>, SendError> {
        loop {
            let wake_at = end.min(self.next_heartbeat_at);
            let Some(payload) = next_payload(&mut self.socket, cache, wake_at)? else {
                if signal::now() >= self.next_heartbeat_at {
                    self.beat(cache)?;
                }
                if signal::now() >= end {
                    return Ok(None);
                }
                continue;
            };
            if payload["s"].is_u64() {
                self.sequence = payload["s"].clone();
            }
            let data = &payload["d"];
            match (payload["op"].as_u64(), payload["t"].as_str()) {
                (Some(0), Some("READY")) => {
                    cache["session"] = json!({ "id": data["session_id"],
                        "url": data["resume_gateway_url"], "seq": self.sequence });
                }
                (Some(0), Some("MESSAGE_CREATE")) => {
                    let sender = data["author"]["id"].as_str().unwrap_or_default();
                    if let Some(channel) = data["channel_id"].as_str()
                        && sender != account.id
                    {
                        let conversation = Conversation {
                            id: channel.to_owned(),
                            is_direct: data["guild_id"].is_null(),
                            newest: Some(number_of(&data["id"])),
                        };
                        return Ok(Some((conversation, sender.to_owned())));
                    }
                }
                (Some(1), _) => self.send_heartbeat()?,
                (Some(7), _) => {
                    return Err(unavailable("the gateway asks for a new connection"));
                }
                (Some(9), _) => {
                    if *data != true {
                        cache["session"] = Value::Null;
                    }
                    return Err(unavailable("the gateway has ended the session"));
                }
                (Some(11), _) => self.is_heartbeat_answered = true,
                _ => {}
            }
        }
    }

    /// Sends the heartbeat that is due, and stores how far the session is.
    fn beat(&mut self, cache: &mut Value) -> Result<(), SendError> {
        if !self.is_heartbeat_answered {
            return Err(unavailable("the gateway does not respond"));
        }
        self.is_heartbeat_answered = false;
        self.next_heartbeat_at = signal::now() + self.heartbeat_interval;
        if cache["session"].is_object() {
            cache["session"]["seq"] = self.sequence.clone();
        }
        self.send_heartbeat()
    }

    fn send_heartbeat(&mut self) -> Result<(), SendError> {
        self.send(&json!({ "op": 1, "d": self.sequence }))
    }

    fn send(&mut self, payload: &Value) -> Result<(), SendError> {
        let text = payload.to_string();
        self.socket.send(&text).map_err(to_send_error)
    }
}

/// Returns the next payload; `None` at `end`. A close code tells if the session can be resumed (Discord, "Gateway Close
/// Event Codes").
fn next_payload(
    socket: &mut WebSocket,
    cache: &mut Value,
    end: Duration,
) -> Result<Option<Value>, SendError> {
    match socket.next(end).map_err(to_send_error)? {
        None => Ok(None),
        Some(WebSocketEvent::Text(text)) => Ok(serde_json::from_str(&text).ok()),
        Some(WebSocketEvent::Closed(Some(4004), _)) => Err(SendError::TokenRejected(
            "the gateway does not accept `channels.discord.token`".to_owned(),
        )),
        Some(WebSocketEvent::Closed(Some(4013 | 4014), _)) => {
            Err(SendError::Misconfigured(
                "the gateway refuses `channels.discord.intents`: allow the bot the message content intent in Discord's \
                 developer portal, or leave out 32768 of the number"
                    .to_owned(),
            ))
        }
        Some(WebSocketEvent::Closed(code, reason)) => {
            if matches!(code, Some(1000 | 1001 | 4003 | 4007 | 4009)) {
                cache["session"] = Value::Null;
            }
            let code = code.map_or(String::new(), |code| format!(" with code {code}"));
            let cause = format!("the gateway closed the connection{code} {reason}");
            Err(unavailable(cause.trim_end()))
        }
    }
}

fn unavailable(cause: &str) -> SendError {
    SendError::Unavailable(cause.to_owned())
}
