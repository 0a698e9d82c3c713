//! WeCom, by its bots with a long connection (<https://developer.work.weixin.qq.com/document/path/101463>): messages come and
//! answers go over one WebSocket. A new connection of the same bot ends the earlier one.
//!
//! In groups, the service passes on only messages that mention the bot.

use super::encrypted_file;
use super::mention::without_pings;
use super::push_poll::{
    FrameConnection, FrameContent, Heartbeat, PollState, PushListener, PushService,
};
use super::service_client::{ServiceClient, http_url};
use super::setup::ChannelSetup;
use super::{
    AttachmentKind, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, Part, PollRequest, QuotedText, RemoteFile, Sender,
};
use crate::mention::typed_text;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_base::json_text::items;
use nanobot_os::digest::digest;
use nanobot_os::secret::Secret;
use nanobot_os::signal;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Hosts of attachments, which need no token.
const FILE_HOSTS: &[&str] = &["work.weixin.qq.com", "myqcloud.com"];
/// Marks of Markdown that notify people.
const MENTION_MARKS: &[&str] = &["<@"];
/// Time for the answer to a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval of heartbeats, as in the vendor's client.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
const MAX_QUOTE_CHARS: usize = 500;
/// Error codes of rate limits: of an app, and of a chat.
const TOO_MANY_CALLS: i64 = 45_009;
const TOO_MANY_PARALLEL_CALLS: i64 = 45_033;
const TOO_MANY_MESSAGES: i64 = 846_607;

struct WeCom {
    client: ServiceClient,
    bot_id: String,
    secret: Secret,
    listener: PushListener,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let bot_id = config.required_text("botId", "ID")?;
    let secret = config.required_secret("secret")?.clone();
    let url = config.required_text("wsUrl", "URL")?;
    Ok(Box::new(WeCom {
        client: ServiceClient::at(setup, &http_url(&url), "wsUrl", "secret")?
            .with_hosts(FILE_HOSTS),
        bot_id,
        secret,
        listener: PushListener::default(),
    }))
}

impl PushService for WeCom {
    fn connect(&self, _cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>> {
        let mut socket = self.client.open_websocket("/")?;
        let id = "aibot_subscribe_1";
        let credentials = json!({ "bot_id": self.bot_id, "secret": self.secret.expose() });
        socket.send_frame(&json!({ "cmd": "aibot_subscribe", "headers": { "req_id": id },
            "body": credentials }))?;
        let end = signal::now() + LOGIN_TIMEOUT;
        while let Some(frame) = socket.next_frame(end)? {
            if frame["headers"]["req_id"] == id {
                return match check_response(&frame) {
                    Err(ChannelError::Undeliverable(cause)) => {
                        Err(self.client.token_rejected(&cause))
                    }
                    Err(error) => Err(error),
                    Ok(()) => Ok(Box::new(socket)),
                };
            }
        }
        Err(self.client.unexpected_response())
    }

    fn read_frame(&self, frame: &Value, _poll: &mut PollState<'_>) -> ChannelResult<FrameContent> {
        let event = &frame["body"]["event"];
        let event = event["eventtype"].as_str().or(event["event_type"].as_str());
        if event == Some("disconnected_event") {
            let cause = "another connection of this bot has replaced ours";
            return Err(ChannelError::Other(fail(Exit::TryAgain, cause)));
        }
        Ok(FrameContent::from_message(to_message(frame)))
    }

    fn heartbeat(&self, _cache: &Value) -> Option<Heartbeat> {
        let frame = json!({ "cmd": "ping", "headers": { "req_id": "ping_1" } });
        Some(Heartbeat { interval: HEARTBEAT_INTERVAL, frame })
    }
}

impl Channel for WeCom {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        self.listener.poll(self, request)
    }

    /// The first part of an answer is the response to the question, under an id of its own; further parts, and messages
    /// that answer none, are sent to the chat.
    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        if part.file.is_some() {
            return Err(ChannelError::Undeliverable("files are not sent to WeCom".into()));
        }
        let id = digest(key.as_bytes())[..24].to_owned();
        let text = without_pings(&part.markup, MENTION_MARKS);
        let question = destination.reply_facts["req_id"].as_str();
        if key.ends_with(".0")
            && let Some(question) = question
        {
            let stream = json!({ "id": id, "finish": true, "content": text });
            let body = json!({ "msgtype": "stream", "stream": stream });
            match self.request("aibot_respond_msg", question, &body) {
                // The service may have closed the question meanwhile.
                Err(ChannelError::Undeliverable(cause)) => {
                    log::info!(target: "channel", "wecom: {cause}; sending to the chat");
                }
                result => return result.map(|()| id),
            }
        }
        let body = json!({ "chatid": destination.chat.id, "msgtype": "markdown",
            "markdown": { "content": text } });
        let request = format!("aibot_send_msg_{id}");
        self.request("aibot_send_msg", &request, &body)?;
        Ok(id)
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        encrypted_file::fetch(&self.client, file, writer, limit_bytes)
    }

    fn identity(&self) -> Result<Identity> {
        self.listener.check(self)?;
        Ok(Identity { id: self.bot_id.clone(), name: self.bot_id.clone() })
    }
}

impl WeCom {
    fn request(&self, command: &str, id: &str, body: &Value) -> ChannelResult<()> {
        let request = json!({ "cmd": command, "headers": { "req_id": id }, "body": body });
        let is_response =
            |frame: &Value| frame["headers"]["req_id"] == id && frame["errcode"].is_i64();
        let response = self.listener.request(self, &request, &is_response)?;
        check_response(&response)
    }
}

fn check_response(response: &Value) -> ChannelResult<()> {
    let code = response["errcode"].as_i64().unwrap_or_default();
    let cause = response["errmsg"].as_str().unwrap_or("no reason");
    let cause = format!("error {code}: {cause}");
    match code {
        0 => Ok(()),
        TOO_MANY_CALLS | TOO_MANY_PARALLEL_CALLS | TOO_MANY_MESSAGES => {
            Err(ChannelError::rate_limited(cause))
        }
        _ => Err(ChannelError::Undeliverable(cause)),
    }
}

/// An encrypted file; `None` if its key is missing.
fn to_file(item: &Value, kind: &str) -> Option<RemoteFile> {
    let (url, key) = (item["url"].as_str()?, item["aeskey"].as_str()?);
    let (kind, name) = match kind {
        "image" => (AttachmentKind::Image, "image.png"),
        "video" => (AttachmentKind::Video, "video.mp4"),
        _ => (AttachmentKind::File, "file"),
    };
    Some(RemoteFile {
        id: encrypted_file::to_id(key, url)?,
        name: item["name"].as_str().unwrap_or(name).to_owned(),
        kind,
        ..RemoteFile::default()
    })
}

/// The message of a frame.
fn to_message(frame: &Value) -> Option<InboundMessage> {
    let body = &frame["body"];
    let kind = body["msgtype"].as_str()?;
    let (id, sender) = (body["msgid"].as_str()?, body["from"]["userid"].as_str()?);
    let is_group = body["chattype"] == "group";
    let (mut quotes, mut files) = (Vec::new(), Vec::new());
    let mut typed = String::new();
    let mut add = |item: &Value, kind: &str| match kind {
        "text" | "voice" => {
            typed += item[kind]["content"].as_str().unwrap_or_default();
        }
        "image" | "file" | "video" => match to_file(&item[kind], kind) {
            Some(file) => files.push(file),
            None => {
                let text = format!("a file of the kind {kind}, which cannot be read");
                quotes.push(QuotedText::new("attachment", text));
            }
        },
        _ => {}
    };
    if kind == "mixed" {
        for item in items(&body["mixed"]["msg_item"]) {
            add(item, item["msgtype"].as_str().unwrap_or_default());
        }
    } else {
        add(body, kind);
    }
    let quote = &body["quote"];
    let quoted = quote["text"]["content"].as_str().or(quote["content"].as_str());
    // The quoted message may have no text, such as a picture.
    let quoted = quoted.or(quote.is_object().then_some(""));
    quotes.extend(quoted.map(|text| QuotedText::replied(text, MAX_QUOTE_CHARS, None, false)));
    // The mention comes first, under the bot's name.
    let typed = match typed.trim_start().strip_prefix('@') {
        Some(rest) if is_group => rest.split_once(char::is_whitespace).map_or("", |(_, text)| text),
        _ => &typed,
    };
    let typed = typed_text(typed.trim(), is_group);
    let is_unreadable = typed.is_empty() && quotes.is_empty() && files.is_empty();
    if is_unreadable && ["text", "voice", "mixed", "event"].contains(&kind) {
        return None;
    }
    let group_chat = if is_group { body["chatid"].as_str() } else { None };
    Some(InboundMessage {
        id: id.to_owned(),
        chat: Chat::new(group_chat.unwrap_or(sender), None, !is_group),
        from: Sender::new(sender, None, false),
        text: typed,
        quotes,
        mentions_us: true,
        files,
        is_unreadable,
        sent_at: body["create_time"].as_i64().unwrap_or_default(),
        reply_facts: json!({ "req_id": frame["headers"]["req_id"] }),
        ..InboundMessage::default()
    })
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message(value)
}

#[cfg(test)]
mod tests {
    use super::to_message;
    use serde_json::json;

    #[test]
    fn kinds_of_messages() {
        let check = |body: serde_json::Value, expect: Option<(&str, usize)>| {
            let mut body = body;
            (body["msgid"], body["from"]["userid"]) = (json!("1"), json!("ann"));
            let message = to_message(&json!({ "headers": { "req_id": "r" }, "body": body }));
            let actual =
                message.as_ref().map(|message| (message.text.as_str(), message.quotes.len()));
            assert_eq!(actual, expect);
        };
        let text = json!({ "content": "@Robot hi there" });
        check(
            json!({ "msgtype": "text", "text": text, "chattype": "group", "chatid": "g" }),
            Some(("hi there", 0)),
        );
        check(
            json!({ "msgtype": "text", "text": text, "chattype": "single" }),
            Some(("@Robot hi there", 0)),
        );
        check(json!({ "msgtype": "image", "image": { "url": "u" } }), Some(("", 1)));
        check(json!({ "msgtype": "voice", "voice": { "content": "said" } }), Some(("said", 0)));
        let items =
            json!([{ "msgtype": "text", "text": { "content": "see" } }, { "msgtype": "image" }]);
        check(json!({ "msgtype": "mixed", "mixed": { "msg_item": items } }), Some(("see", 1)));
        check(json!({ "msgtype": "event" }), None);
        let quote = json!({ "msgtype": "text", "text": { "content": "earlier" } });
        let text = json!({ "content": "this" });
        check(json!({ "msgtype": "text", "text": text, "quote": quote }), Some(("this", 1)));
        let picture = json!({ "msgtype": "image", "image": { "url": "u" } });
        check(json!({ "msgtype": "text", "text": text, "quote": picture }), Some(("this", 1)));
        // Kinds without a form here are said.
        let is_unreadable = |body: serde_json::Value| {
            let mut body = body;
            (body["msgid"], body["from"]["userid"]) = (json!("1"), json!("ann"));
            to_message(&json!({ "body": body })).map(|message| message.is_unreadable)
        };
        assert_eq!(is_unreadable(json!({ "msgtype": "location" })), Some(true));
        assert_eq!(is_unreadable(json!({ "msgtype": "text", "text": text })), Some(false));
        assert_eq!(is_unreadable(json!({ "msgtype": "text", "text": {} })), None);
    }
}
