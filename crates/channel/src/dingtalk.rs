//! DingTalk, in stream mode: the service sends messages to bots of an organisation's own apps over a WebSocket
//! (<https://open.dingtalk.com/document/development/stream>), and sends them again until they are acknowledged.
//!
//! In groups it passes on only messages that mention the bot. Answers go through the API for robots.

use super::access_token::{AccessToken, IssuedToken};
use super::push_poll::{FrameConnection, FrameContent, PollState, PushListener, PushService};
use super::service_client::{ServiceClient, ServiceRequest, ServiceResponse};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    AttachmentKind, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, Part, PollRequest, QuotedText, RemoteFile, Sender,
};
use crate::mention::typed_text;
use anyhow::Result;
use nanobot_base::json_text::items;
use nanobot_net::web_url::percent_encode;
use nanobot_os::secret::Secret;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Hosts of connections and of files.
const HOSTS: &[&str] = &["dingtalk.com", "aliyuncs.com"];
/// The topic of messages to the bot.
const MESSAGE_TOPIC: &str = "/v1.0/im/bot/messages/get";
/// The prefix of the ids of groups, as the Python program writes them.
const GROUP_PREFIX: &str = "group:";
/// The type of a conversation of several users, in messages.
const GROUP_CONVERSATION: &str = "2";
/// Largest upload: 20 MB (DingTalk, "Upload media files").
const MAX_UPLOAD_BYTES: u64 = 20_000_000;
/// Maximum characters of a text that is quoted.
const MAX_QUOTE_CHARS: usize = 500;
/// Maximum characters of the title, which notifications show.
const MAX_TITLE_CHARS: usize = 40;

struct DingTalk {
    client: ServiceClient,
    upload_client: ServiceClient,
    client_id: String,
    client_secret: Secret,
    has_user_sessions: bool,
    token: AccessToken,
    listener: PushListener,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let client_id = config.required_text("clientId", "ID")?;
    let client_secret = config.required_secret("clientSecret")?.clone();
    Ok(Box::new(DingTalk {
        client: ServiceClient::new(setup, "apiBase", "clientSecret")?.with_hosts(HOSTS),
        upload_client: ServiceClient::new(setup, "uploadBase", "clientSecret")?,
        client_id,
        client_secret,
        has_user_sessions: config.flag("groupUserIsolation"),
        token: AccessToken::default(),
        listener: PushListener::default(),
    }))
}

impl PushService for DingTalk {
    fn connect(&self, _cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>> {
        let request = json!({
            "clientId": self.client_id, "clientSecret": self.client_secret.expose(),
            "subscriptions": [{ "type": "CALLBACK", "topic": MESSAGE_TOPIC }],
            "ua": concat!("nanobot/", env!("CARGO_PKG_VERSION")),
        });
        let response = self.post("/v1.0/gateway/connections/open", &request, None)?;
        let endpoint = self.client.own_socket(&response["endpoint"])?;
        let ticket = self.client.text_of(&response["ticket"])?;
        let url = format!("{endpoint}?ticket={}", percent_encode(&ticket));
        Ok(Box::new(self.client.open_websocket(&url)?))
    }

    fn read_frame(&self, frame: &Value, _poll: &mut PollState<'_>) -> ChannelResult<FrameContent> {
        let headers = &frame["headers"];
        let topic = headers["topic"].as_str().unwrap_or_default();
        let acknowledge = |data: &Value| {
            Some(json!({
                "code": 200, "message": "OK", "data": data,
                "headers": { "messageId": headers["messageId"], "contentType": "application/json" },
            }))
        };
        match frame["type"].as_str() {
            Some("SYSTEM") if topic == "disconnect" => {
                let cause = "the service asks for a new connection";
                Err(ChannelError::Unavailable(cause.to_owned()))
            }
            Some("SYSTEM") => Ok(FrameContent {
                acknowledgement: acknowledge(&frame["data"]),
                ..FrameContent::default()
            }),
            Some("CALLBACK") => {
                let data = frame["data"].as_str().unwrap_or_default();
                let data: Value = serde_json::from_str(data).unwrap_or_default();
                let message = (topic == MESSAGE_TOPIC)
                    .then(|| to_message(&data, self.has_user_sessions))
                    .flatten();
                Ok(FrameContent {
                    messages: message.into_iter().collect(),
                    acknowledgement: acknowledge(&json!({ "response": null }).to_string().into()),
                })
            }
            _ => Ok(FrameContent::default()),
        }
    }
}

impl Channel for DingTalk {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        self.listener.poll(self, request)
    }

    fn send(&self, destination: &Destination, part: &Part, _key: &str) -> ChannelResult<String> {
        let (kind, content) = match &part.file {
            Some(path) => self.upload(path)?,
            None => {
                let title = part.plain.lines().find(|line| !line.trim().is_empty());
                let title: String = title.unwrap_or("…").chars().take(MAX_TITLE_CHARS).collect();
                let content = json!({ "title": title, "text": with_hard_breaks(&part.markup) });
                ("sampleMarkdown", content)
            }
        };
        let mut request = json!({
            "robotCode": self.client_id, "msgKey": kind, "msgParam": content.to_string(),
        });
        let chat = &destination.chat.id;
        let path = match chat.strip_prefix(GROUP_PREFIX) {
            Some(group) => {
                request["openConversationId"] = group.into();
                "/v1.0/robot/groupMessages/send"
            }
            None => {
                request["userIds"] = json!([chat]);
                "/v1.0/robot/oToMessages/batchSend"
            }
        };
        let response = self.post_with_token(path, &request)?;
        let is_listed = |name: &str| items(&response[name]).len() > 0;
        if is_listed("invalidStaffIdList") {
            let cause = format!("`{chat}` is not a user of the organisation");
            return Err(ChannelError::Undeliverable(cause));
        }
        if is_listed("flowControlledStaffIdList") {
            let cause = "the user has received too many messages".to_owned();
            return Err(ChannelError::rate_limited(cause));
        }
        self.client.text_of(&response["processQueryKey"])
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let request = json!({ "downloadCode": file.id, "robotCode": self.client_id });
        let response = self.post_with_token("/v1.0/robot/messageFiles/download", &request)?;
        let url = response["downloadUrl"].as_str().unwrap_or_default();
        self.client.download_own("DingTalk", url, writer, limit_bytes)
    }

    /// Checks the id and the secret by fetching a token. The service has no name for the bot.
    fn identity(&self) -> Result<Identity> {
        self.token.with(&|| self.fetch_token(), &|_| Ok(()))?;
        Ok(Identity { id: self.client_id.clone(), name: self.client_id.clone() })
    }
}

/// The chat of a recipient, as the Python program writes it.
pub(super) fn parse_chat(recipient: &str, thread_mark: Option<&str>) -> Chat {
    match recipient.strip_prefix(GROUP_PREFIX) {
        Some(group) => {
            let chat = Chat::of_recipient(group, thread_mark);
            Chat { id: format!("{GROUP_PREFIX}{}", chat.id), is_direct: false, ..chat }
        }
        None => Chat::of_recipient(recipient, thread_mark),
    }
}

impl DingTalk {
    fn fetch_token(&self) -> ChannelResult<IssuedToken> {
        let request = json!({ "appKey": self.client_id, "appSecret": self.client_secret.expose() });
        let response = self.post("/v1.0/oauth2/accessToken", &request, None)?;
        Ok(IssuedToken {
            text: self.client.text_of(&response["accessToken"])?,
            lifetime_secs: response["expireIn"].as_u64().unwrap_or_default(),
        })
    }

    fn post_with_token(&self, path: &str, request: &Value) -> ChannelResult<Value> {
        self.token.with(&|| self.fetch_token(), &|token| self.post(path, request, Some(token)))
    }

    fn post(&self, path: &str, body: &Value, token: Option<&str>) -> ChannelResult<Value> {
        let mut request = ServiceRequest::post(path).json(body).once();
        if let Some(token) = token {
            request = request.header("x-acs-dingtalk-access-token", token);
        }
        let response = self.client.request(&request)?;
        if response.is_success() {
            self.client.read_success(&response)
        } else {
            Err(self.to_error(&response))
        }
    }

    /// Uploads a file; returns the kind and the content of its message.
    fn upload(&self, path: &Path) -> ChannelResult<(&'static str, Value)> {
        let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
        let is_image = matches!(file.media_type(), (AttachmentKind::Image, _));
        let kind = if is_image { "image" } else { "file" };
        let (form_type, form) = file.to_form::<&str>(&[], "media");
        let response = self.token.with(&|| self.fetch_token(), &|token| {
            let token = percent_encode(token);
            let path = format!("/media/upload?access_token={token}&type={kind}");
            self.upload_client.exchange(&ServiceRequest::post(&path).body(&form_type, &form))
        })?;
        let Some(id) = response["media_id"].as_str() else {
            let cause = response["errmsg"].as_str().unwrap_or("the upload failed");
            return Err(ChannelError::Undeliverable(cause.to_owned()));
        };
        let extension = file.name.rsplit_once('.').map_or("bin", |(_, extension)| extension);
        Ok(if is_image {
            ("sampleImageMsg", json!({ "photoURL": id }))
        } else {
            ("sampleFile", json!({ "mediaId": id, "fileName": file.name, "fileType": extension }))
        })
    }

    /// The error of a response, by the service's code.
    fn to_error(&self, response: &ServiceResponse) -> ChannelError {
        let (body, cause) = (response.json(), response.describe());
        match body["code"].as_str().unwrap_or_default() {
            "invalidClientIdOrSecret" | "authFailed" | "InvalidAuthentication" => {
                self.client.token_rejected(&cause)
            }
            code if code.starts_with("Throttling") => ChannelError::rate_limited(cause),
            code if code.starts_with("Forbidden.AccessDenied") => ChannelError::Misconfigured(
                format!("{cause}; give the app this permission in DingTalk's developer console"),
            ),
            _ if response.status == 403 => ChannelError::RecipientRefused(cause),
            _ => ChannelError::Undeliverable(cause),
        }
    }
}

/// The message of an event.
fn to_message(data: &Value, has_user_sessions: bool) -> Option<InboundMessage> {
    let text = |name: &str| data[name].as_str().filter(|text| !text.is_empty());
    let (id, sender) = (text("msgId")?, text("senderStaffId").or(text("senderId"))?);
    let is_group = data["conversationType"] == GROUP_CONVERSATION;
    let content = &data["content"];
    let mut files = Vec::new();
    let mut add_file = |item: &Value, kind: AttachmentKind, name: &str| {
        if let Some(code) = item["downloadCode"].as_str() {
            files.push(RemoteFile {
                id: code.to_owned(),
                name: item["fileName"].as_str().unwrap_or(name).to_owned(),
                kind,
                ..RemoteFile::default()
            });
        }
    };
    let mut typed = String::new();
    let kind = text("msgtype")?;
    match kind {
        "text" => typed += data["text"]["content"].as_str().unwrap_or_default(),
        "picture" => add_file(content, AttachmentKind::Image, "picture.png"),
        "file" => add_file(content, AttachmentKind::File, "file"),
        "video" => add_file(content, AttachmentKind::Video, "video.mp4"),
        // The service has transcribed what the sender said.
        "audio" => typed += content["recognition"].as_str().unwrap_or_default(),
        "richText" => {
            for item in items(&content["richText"]) {
                typed += item["text"].as_str().unwrap_or_default();
                add_file(item, AttachmentKind::Image, "picture.png");
            }
        }
        _ => {}
    }
    let typed = typed_text(typed.trim(), is_group);
    let is_unreadable = typed.is_empty() && files.is_empty();
    if is_unreadable && ["text", "richText"].contains(&kind) {
        return None;
    }
    let replied_message = &data["text"]["repliedMsg"];
    // The message that is replied to may have no text, such as a picture.
    let quoted = replied_message.is_object().then(|| {
        let text = replied_message["content"]["text"].as_str().unwrap_or_default();
        QuotedText::replied(text, MAX_QUOTE_CHARS, replied_message["msgId"].as_str(), false)
    });
    let chat = if is_group {
        format!("{GROUP_PREFIX}{}", text("conversationId")?)
    } else {
        sender.to_owned()
    };
    Some(InboundMessage {
        id: id.to_owned(),
        chat: Chat::new(&chat, (is_group && has_user_sessions).then_some(sender), !is_group),
        from: Sender::new(sender, text("senderNick"), false),
        text: typed,
        quotes: quoted.into_iter().collect(),
        mentions_us: data["isInAtList"] == true,
        files,
        is_unreadable,
        sent_at: data["createAt"].as_i64().unwrap_or_default() / 1000,
        reply_facts: json!({ "id": id }),
        ..InboundMessage::default()
    })
}

/// Ends each line of text with the two blanks that let the service break it. Code stays as it is.
fn with_hard_breaks(markup: &str) -> String {
    let mut is_code = false;
    let lines = markup.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() { line.to_owned() } else { format!("{line}  ") }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message(value, false)
}

#[cfg(test)]
mod tests {
    use super::{to_message, with_hard_breaks};
    use serde_json::json;

    #[test]
    fn lines_of_text_break() {
        assert_eq!(with_hard_breaks("a\nb\n\n```\nc\n```\nd"), "a  \nb  \n\n```\nc\n```\nd  ");
    }

    #[test]
    fn kinds_of_messages() {
        let check = |kind: &str, content, text: &str, files: usize| {
            let data = json!({ "msgId": "1", "senderStaffId": "ann", "conversationType": "1",
                "msgtype": kind, "content": content });
            let message = to_message(&data, false).unwrap();
            assert_eq!((message.text.as_str(), message.files.len()), (text, files), "{kind}");
        };
        check("picture", json!({ "downloadCode": "c" }), "", 1);
        check("file", json!({ "downloadCode": "c", "fileName": "a.pdf" }), "", 1);
        check("audio", json!({ "recognition": "hello" }), "hello", 0);
        let rich = json!({ "richText": [{ "text": "see " }, { "downloadCode": "c" }] });
        check("richText", rich, "see", 1);
        assert_eq!(to_message(&json!({ "msgId": "1" }), false), None);
        let of = |members: serde_json::Value| {
            let mut data = members;
            (data["msgId"], data["senderStaffId"]) = (json!("1"), json!("ann"));
            to_message(&data, false)
        };
        // Kinds without a form here are said.
        let is_unreadable = |members| of(members).map(|message| message.is_unreadable);
        assert_eq!(is_unreadable(json!({ "msgtype": "interactiveCard" })), Some(true));
        assert_eq!(
            is_unreadable(json!({ "msgtype": "text", "text": { "content": "a" } })),
            Some(false)
        );
        assert_eq!(is_unreadable(json!({ "msgtype": "text", "text": { "content": " " } })), None);
        for (content, expect) in [(json!({ "text": "earlier" }), "earlier"), (json!({}), "")] {
            let replied = json!({ "msgId": "0", "content": content });
            let text = json!({ "content": "this", "isReplyMsg": true, "repliedMsg": replied });
            let quote = of(json!({ "msgtype": "text", "text": text })).unwrap().quotes.remove(0);
            assert_eq!(
                (quote.text.as_str(), quote.replied.unwrap().id.as_deref()),
                (expect, Some("0"))
            );
        }
    }
}
