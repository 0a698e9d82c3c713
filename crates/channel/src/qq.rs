//! QQ, through the API for bots (<https://bot.q.qq.com/wiki/develop/api-v2/>): events come from a gateway, whose sessions
//! are resumed, and answers are requests.
//!
//! The service accepts only answers: five to a message, within an hour in a direct chat and five minutes in a group. It
//! recognises an answer that is sent again by its number.

use super::access_token::{AccessToken, IssuedToken};
use super::gateway::{GatewayClose, GatewayConnection, GatewayLogin};
use super::mention::without_pings;
use super::push_poll::{FrameConnection, FrameContent, PollState, PushListener, PushService};
use super::service_client::{ServiceClient, ServiceRequest, ServiceResponse};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    AttachmentKind, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, Part, PollRequest, QuotedText, RemoteFile, Sender,
};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_net::web_url::percent_encode;
use nanobot_os::clock::Clock;
use nanobot_os::digest::digest;
use nanobot_os::secret::Secret;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Hosts of gateways and of attachments.
const HOSTS: &[&str] = &["qq.com", "qq.com.cn", "qpic.cn"];
/// Events: messages of direct chats and mentions in groups, and direct messages of servers.
const INTENTS: u64 = 1 << 25 | 1 << 12;
/// Marks that notify people.
const MENTION_MARKS: &[&str] = &["<@", "<qqbot"];
/// The largest number of an answer; the service documents no larger ones.
const LAST_SEQUENCE_NUMBER: u32 = 999_999;
/// Largest upload.
const MAX_UPLOAD_BYTES: u64 = 10_000_000;
/// Types of messages, and of files.
const TEXT_MESSAGE: u64 = 0;
const MARKDOWN_MESSAGE: u64 = 2;
const MEDIA_MESSAGE: u64 = 7;
const IMAGE_FILE: u64 = 1;
const OTHER_FILE: u64 = 4;
/// Error codes (QQ, "Error codes"): an answer that the service has received before.
const REPEATED_CODE: i64 = 40_054_005;
/// Too many messages.
const RATE_LIMIT_CODES: [i64; 4] = [22_009, 20_028, 304_045, 304_049];
/// An answer that comes too late, or is one too many.
const LATE_ANSWER_CODES: [i64; 3] = [304_103, 40_034_005, 40_034_128];
/// A token that is missing or not valid.
const TOKEN_CODES: [i64; 4] = [11_241, 11_242, 11_243, 11_244];
/// Close codes of the gateway (QQ, "WebSocket").
const INVALID_TOKEN: u16 = 4004;
const INVALID_INTENTS: [u16; 2] = [4013, 4014];
const BOT_CLOSED: [u16; 2] = [4914, 4915];
const SESSION_LOST: [u16; 5] = [4006, 4007, 4009, 9001, 9005];

struct Qq {
    client: ServiceClient,
    token_client: ServiceClient,
    app_id: String,
    secret: Secret,
    is_markdown: bool,
    clock: Clock,
    token: AccessToken,
    listener: PushListener,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let app_id = config.required_text("appId", "ID")?;
    let secret = config.required_secret("secret")?.clone();
    Ok(Box::new(Qq {
        client: ServiceClient::new(setup, "apiBase", "secret")?.with_hosts(HOSTS),
        token_client: ServiceClient::new(setup, "tokenUrl", "secret")?,
        app_id,
        secret,
        is_markdown: config.text("msgFormat").as_deref() == Some("markdown"),
        clock: setup.clock.clone(),
        token: AccessToken::default(),
        listener: PushListener::default(),
    }))
}

struct QqConnection(GatewayConnection);

impl FrameConnection for QqConnection {
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        match self.0.next_event(end) {
            // The session is forgotten when this is read.
            Err(ChannelError::Unavailable(_)) if self.0.session().is_null() => {
                Ok(Some(json!({ "t": "SESSION_LOST" })))
            }
            next => next,
        }
    }

    fn send_frame(&mut self, _frame: &Value) -> ChannelResult<()> {
        Ok(())
    }
}

impl PushService for Qq {
    fn connect(&self, cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>> {
        let gateway = self.request("/gateway", None)?;
        let url = self.client.own_socket(&gateway["url"])?;
        // The service resumes a session at the address for new ones.
        if cache["session"].is_object() {
            cache["session"]["url"] = url.into();
        }
        let (connection, new_cache) = self.token.with(&|| self.fetch_token(), &|token| {
            let mut cache = cache.clone();
            let login = GatewayLogin {
                url,
                query: "",
                token: &format!("QQBot {token}"),
                identify: json!({ "intents": INTENTS, "shard": [0, 1] }),
                now: self.clock.timestamp().as_second(),
                explain_close,
            };
            Ok((GatewayConnection::open(&self.client, login, &mut cache)?, cache))
        })?;
        *cache = new_cache;
        match connection {
            Some(connection) => Ok(Box::new(QqConnection(connection))),
            None => {
                let cause = "too many sessions were begun in the last hour";
                Err(ChannelError::Unavailable(cause.to_owned()))
            }
        }
    }

    fn read_frame(&self, frame: &Value, poll: &mut PollState<'_>) -> ChannelResult<FrameContent> {
        let (kind, data) = (frame["t"].as_str().unwrap_or_default(), &frame["d"]);
        match kind {
            "SESSION_LOST" => {
                poll.cache["session"] = Value::Null;
                let cause = "the gateway has ended the session";
                return Err(ChannelError::Unavailable(cause.to_owned()));
            }
            "READY" => poll.cache["session"] = json!({ "id": data["session_id"] }),
            _ => {}
        }
        // The position is stored together with the message.
        if poll.cache["session"].is_object() && frame["s"].is_u64() {
            poll.cache["session"]["seq"] = frame["s"].clone();
        }
        Ok(FrameContent::from_message(to_message(kind, data)))
    }
}

impl Channel for Qq {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        self.listener.poll(self, request)
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let facts = &destination.reply_facts;
        let Some(answered_id) = facts["id"].as_str() else {
            let cause = "QQ accepts only answers to messages since April 2025";
            return Err(ChannelError::RecipientRefused(cause.to_owned()));
        };
        let chat = percent_encode(&destination.chat.id);
        let base = match facts["kind"].as_str() {
            Some("group") => format!("/v2/groups/{chat}"),
            Some("server") => format!("/dms/{chat}"),
            _ => format!("/v2/users/{chat}"),
        };
        let mut message = json!({ "msg_id": answered_id, "msg_seq": sequence_of(key) });
        match &part.file {
            Some(path) => {
                message["msg_type"] = MEDIA_MESSAGE.into();
                message["media"] = self.upload(&base, path)?;
            }
            None if self.is_markdown => {
                message["msg_type"] = MARKDOWN_MESSAGE.into();
                let text = without_pings(&part.markup, MENTION_MARKS);
                message["markdown"] = json!({ "content": text });
            }
            None => {
                message["msg_type"] = TEXT_MESSAGE.into();
                message["content"] = without_pings(&part.plain, MENTION_MARKS).into();
            }
        }
        let response = self.request(&format!("{base}/messages"), Some(&message))?;
        let id = response["id"].as_str().map(str::to_owned);
        Ok(id.unwrap_or_else(|| key.to_owned()))
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        self.client.download_own("QQ", &file.id, writer, limit_bytes)
    }

    fn identity(&self) -> Result<Identity> {
        let user = self.request("/users/@me", None)?;
        Ok(self.client.identity_of(&user["id"], &user["username"])?)
    }
}

impl Qq {
    fn fetch_token(&self) -> ChannelResult<IssuedToken> {
        let request = json!({ "appId": self.app_id, "clientSecret": self.secret.expose() });
        let response = self.token_client.post("", &request)?;
        let seconds = &response["expires_in"];
        let seconds = seconds.as_u64().or(seconds.as_str().and_then(|text| text.parse().ok()));
        match response["access_token"].as_str() {
            Some(token) => Ok(IssuedToken {
                text: token.to_owned(),
                lifetime_secs: seconds.unwrap_or_default(),
            }),
            None => {
                let cause = response["message"].as_str().unwrap_or("no token");
                Err(ChannelError::TokenRejected(format!(
                    "{cause}; `channels.qq.appId` and `secret` are not accepted"
                )))
            }
        }
    }

    /// Gets JSON, or posts `body`. The service recognises a repeated answer; the result is null then.
    fn request(&self, path: &str, body: Option<&Value>) -> ChannelResult<Value> {
        self.token.with(&|| self.fetch_token(), &|token| {
            let request = match body {
                Some(body) => ServiceRequest::post(path).json(body),
                None => ServiceRequest::get(path),
            };
            let request = request.header("authorization", format!("QQBot {token}"));
            let response = self.client.request(&request.header("x-union-appid", &self.app_id))?;
            if response.is_success() {
                return self.client.read_success(&response);
            }
            let body = response.json();
            match body["err_code"].as_i64().or(body["code"].as_i64()) {
                Some(REPEATED_CODE) => Ok(Value::Null),
                code => Err(to_error(code, &response)),
            }
        })
    }

    /// Uploads a file for a chat, and returns the reference for its message.
    fn upload(&self, base: &str, path: &Path) -> ChannelResult<Value> {
        let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
        let is_image = matches!(file.media_type(), (AttachmentKind::Image, _));
        let mut request = json!({
            "file_type": if is_image { IMAGE_FILE } else { OTHER_FILE }, "srv_send_msg": false,
            "file_data": STANDARD.encode(&file.bytes),
        });
        if !is_image {
            request["file_name"] = file.name.into();
        }
        let response = self.request(&format!("{base}/files"), Some(&request))?;
        Ok(json!({ "file_info": response["file_info"] }))
    }
}

fn explain_close(code: u16) -> GatewayClose {
    if code == INVALID_TOKEN {
        GatewayClose::TokenRejected("the gateway does not accept the token of `channels.qq.appId`")
    } else if INVALID_INTENTS.contains(&code) {
        GatewayClose::Misconfigured(
            "the bot may not receive direct messages and mentions in groups",
        )
    } else if BOT_CLOSED.contains(&code) {
        GatewayClose::Misconfigured("the bot is offline or banned; see the console of QQ's bots")
    } else if SESSION_LOST.contains(&code) {
        GatewayClose::SessionLost
    } else {
        GatewayClose::Temporary
    }
}

/// The number of a part among the answers to a message: the same when it is sent again.
fn sequence_of(key: &str) -> u32 {
    let hex = digest(key.as_bytes());
    u32::from_str_radix(&hex[..6], 16).unwrap_or_default() % LAST_SEQUENCE_NUMBER + 1
}

/// The error of a response, by the service's code.
fn to_error(code: Option<i64>, response: &ServiceResponse) -> ChannelError {
    let cause = response.describe();
    match code {
        Some(code) if RATE_LIMIT_CODES.contains(&code) => ChannelError::rate_limited(cause),
        Some(code) if LATE_ANSWER_CODES.contains(&code) => ChannelError::RecipientRefused(format!(
            "{cause}; the time in which QQ accepts an answer is over"
        )),
        Some(code) if TOKEN_CODES.contains(&code) => ChannelError::TokenRejected(cause),
        _ if response.status == 403 => ChannelError::RecipientRefused(cause),
        _ => ChannelError::Undeliverable(cause),
    }
}

/// The message of an event.
fn to_message(kind: &str, data: &Value) -> Option<InboundMessage> {
    let author = &data["author"];
    let (kind, chat, sender) = match kind {
        "C2C_MESSAGE_CREATE" => ("user", &author["user_openid"], &author["user_openid"]),
        "GROUP_AT_MESSAGE_CREATE" => ("group", &data["group_openid"], &author["member_openid"]),
        "DIRECT_MESSAGE_CREATE" => ("server", &data["guild_id"], &author["id"]),
        _ => return None,
    };
    let (id, chat, sender) = (data["id"].as_str()?, chat.as_str()?, sender.as_str()?);
    let files: Vec<RemoteFile> = items(&data["attachments"]).filter_map(to_file).collect();
    let text = data["content"].as_str().unwrap_or_default().trim().to_owned();
    // Faces and cards come without content.
    let is_unreadable = text.is_empty() && files.is_empty();
    // The service gives only the id of the message.
    let replied = data["message_reference"]["message_id"].as_str();
    let replied = replied.map(|id| QuotedText::replied("", 0, Some(id), false));
    let sent_at = data["timestamp"].as_str().unwrap_or_default();
    let sent_at = sent_at.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second);
    Some(InboundMessage {
        id: id.to_owned(),
        chat: Chat::new(chat, None, kind != "group"),
        from: Sender::new(sender, author["username"].as_str(), author["bot"] == true),
        text: UserText::typed(text),
        quotes: replied.into_iter().collect(),
        mentions_us: true,
        files,
        is_unreadable,
        sent_at: sent_at.unwrap_or_default(),
        reply_facts: json!({ "id": id, "kind": kind }),
        ..InboundMessage::default()
    })
}

fn to_file(attachment: &Value) -> Option<RemoteFile> {
    let url = attachment["url"].as_str()?;
    let url = match url.strip_prefix("//") {
        Some(rest) => format!("https://{rest}"),
        None => url.to_owned(),
    };
    let kind = attachment["content_type"].as_str().unwrap_or_default();
    Some(RemoteFile {
        id: url,
        name: attachment["filename"].as_str().unwrap_or("file").to_owned(),
        kind: match kind {
            "voice" => AttachmentKind::Voice,
            kind => AttachmentKind::of_media_type(kind),
        },
        size_bytes: attachment["size"].as_u64(),
        seconds: None,
    })
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message("C2C_MESSAGE_CREATE", value)
}

#[cfg(test)]
mod tests {
    use super::{sequence_of, to_message};
    use serde_json::json;

    #[test]
    fn events_are_messages() {
        let group = json!({ "id": "m1", "content": " hi ", "group_openid": "g", "timestamp": "2026-01-02T03:04:05+08:00",
            "author": { "member_openid": "ann" }, "attachments": [{ "url": "//x.qq.com/a", "content_type": "image/png" }] });
        let message = to_message("GROUP_AT_MESSAGE_CREATE", &group).unwrap();
        assert_eq!((message.text.as_str(), message.chat.is_direct), ("hi", false));
        assert_eq!(message.files[0].id, "https://x.qq.com/a");
        assert_eq!(message.sent_at, 1_767_294_245);
        assert_eq!(to_message("MESSAGE_CREATE", &group), None);
        assert!(!message.is_unreadable && message.quotes.is_empty());
        let of = |members: serde_json::Value| {
            let mut data = members;
            (data["id"], data["author"]) = (json!("m1"), json!({ "user_openid": "ann" }));
            to_message("C2C_MESSAGE_CREATE", &data).unwrap()
        };
        assert!(of(json!({ "content": " " })).is_unreadable, "a face");
        assert!(!of(json!({ "content": "a" })).is_unreadable);
        let reply = of(json!({ "content": "this", "message_reference": { "message_id": "m0" } }));
        assert_eq!(reply.quotes[0].replied.as_ref().unwrap().id.as_deref(), Some("m0"));
        assert_ne!(sequence_of("a.0"), sequence_of("a.1"));
    }
}
