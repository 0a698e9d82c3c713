//! WhatsApp, through the bridge of the Python program: a server on this machine that is linked to an account as a device.
//!
//! The bridge stores nothing: a message that comes while no poll listens is lost. It names no senders in groups, only the group.

use super::push_poll::{FrameConnection, FrameContent, PollState, PushListener, PushService};
use super::service_client::{ServiceClient, http_url, read_json, to_channel_error};
use super::setup::ChannelSetup;
use super::{
    Channel, ChannelError, ChannelResult, Chat, Destination, Identity, InboundMessage, Part,
    PollRequest, QuotedText, Sender,
};
use anyhow::Result;
use nanobot_base::message::user_text::UserText;
use nanobot_net::http::{WebSocket, WebSocketEvent};
use nanobot_os::secret::Secret;
use serde_json::{Value, json};
use std::time::Duration;

/// The text that the bridge sends in place of a recording.
const VOICE_TEXT: &str = "[Voice Message]";
/// The ends of ids: of a chat with a phone number, and of a group.
const NUMBER_DOMAIN: &str = "@s.whatsapp.net";
const GROUP_DOMAIN: &str = "@g.us";
/// Close codes for a client that sends no token in time, and for a wrong one.
const TOKEN_CODES: [u16; 2] = [4001, 4003];

struct WhatsAppBridge {
    client: ServiceClient,
    token: Option<Secret>,
    listener: PushListener,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 for an unusable address.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let url = setup.config.required_text("bridgeUrl", "URL")?;
    Ok(Box::new(WhatsAppBridge {
        client: ServiceClient::at(setup, &http_url(&url), "bridgeUrl", "bridgeToken")?,
        token: setup.config.secret("bridgeToken")?.cloned(),
        listener: PushListener::default(),
    }))
}

struct BridgeConnection(WebSocket);

impl FrameConnection for BridgeConnection {
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        match self.0.next(end).map_err(to_channel_error)? {
            Some(WebSocketEvent::Closed(Some(code), _)) if TOKEN_CODES.contains(&code) => {
                Err(ChannelError::TokenRejected(
                    "the bridge does not accept `channels.whatsapp.bridgeToken`".to_owned(),
                ))
            }
            event => read_json(event),
        }
    }

    fn send_frame(&mut self, frame: &Value) -> ChannelResult<()> {
        self.0.send_frame(frame)
    }
}

impl PushService for WhatsAppBridge {
    fn connect(&self, _cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>> {
        let mut socket = self.client.open_websocket("/")?;
        if let Some(token) = &self.token {
            socket.send_frame(&json!({ "type": "auth", "token": token.expose() }))?;
        }
        Ok(Box::new(BridgeConnection(socket)))
    }

    fn read_frame(&self, frame: &Value, _poll: &mut PollState<'_>) -> ChannelResult<FrameContent> {
        match frame["type"].as_str() {
            Some("qr") => {
                log::warn!(target: "channel", "whatsapp: the bridge is not linked; its terminal shows a QR code");
            }
            Some("status" | "error") => {
                let state = frame["status"].as_str().or(frame["error"].as_str());
                log::info!(target: "channel", "whatsapp: the bridge says: {}", state.unwrap_or_default());
            }
            _ => {}
        }
        Ok(FrameContent::from_message(to_message(frame)))
    }
}

impl Channel for WhatsAppBridge {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        self.listener.poll(self, request)
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        if part.file.is_some() {
            return Err(ChannelError::Undeliverable("the bridge does not accept files".into()));
        }
        let chat = &destination.chat.id;
        let to = if chat.contains('@') {
            chat.clone()
        } else {
            format!("{}{NUMBER_DOMAIN}", chat.trim_start_matches('+'))
        };
        let request = json!({ "type": "send", "to": to, "text": part.markup });
        let is_response = |frame: &Value| {
            frame["type"] == "error" || (frame["type"] == "sent" && frame["to"] == to.as_str())
        };
        let response = self.listener.request(self, &request, &is_response)?;
        match response["error"].as_str() {
            Some(cause) => Err(ChannelError::Unavailable(format!("the bridge: {cause}"))),
            None => Ok(key.to_owned()),
        }
    }

    fn identity(&self) -> Result<Identity> {
        self.listener.check(self)?;
        Ok(Identity { id: "bridge".to_owned(), name: "the bridge".to_owned() })
    }
}

/// The message of a frame.
fn to_message(frame: &Value) -> Option<InboundMessage> {
    let text = |name: &str| frame[name].as_str().filter(|text| !text.is_empty());
    let (id, chat, content) = (text("id")?, text("sender")?, text("content")?);
    if frame["type"] != "message" {
        return None;
    }
    let is_group = frame["isGroup"] == true || chat.ends_with(GROUP_DOMAIN);
    let sender = text("pn").unwrap_or(chat);
    let is_voice = content == VOICE_TEXT;
    let quote = is_voice.then(|| {
        QuotedText::new("voice message", "The bridge does not pass on the recording.".to_owned())
    });
    let sent_at = &frame["timestamp"];
    Some(InboundMessage {
        id: id.to_owned(),
        chat: Chat::new(chat, None, !is_group),
        from: Sender::new(sender.split('@').next().unwrap_or_default(), None, false),
        // The bridge does not say which messages are forwarded.
        text: UserText::label(if is_voice { "" } else { content }),
        quotes: quote.into_iter().collect(),
        // Long numbers come in halves.
        sent_at: sent_at.as_i64().or(sent_at["low"].as_i64()).unwrap_or_default(),
        reply_facts: json!({ "id": id }),
        ..InboundMessage::default()
    })
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message(value)
}
