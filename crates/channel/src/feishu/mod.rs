//! Feishu, and Lark as it is called abroad: events come over a long connection, and are sent again until they are
//! acknowledged; answers are requests (<https://open.feishu.cn/document/server-docs>).
//!
//! The service recognises a message that is sent again within an hour by its `uuid`.

mod frame;
mod message;
mod registration;
mod webhook;

use super::access::{AccessDecision, AccessRules};
use super::access_token::{AccessToken, IssuedToken};
use super::mention::without_pings;
use super::push_poll::{
    FrameConnection, FrameContent, Heartbeat, PollState, PushListener, PushService,
};
use super::service_client::{ServiceClient, ServiceRequest, ServiceResponse};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    AttachmentKind, Channel, ChannelError, ChannelResult, Destination, Identity, InboundMessage,
    LoginDialog, LoginOutcome, Part, PollRequest, QuotedText, RemoteFile, WebhookReceipt,
};
use anyhow::Result;
use frame::FeishuConnection;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_net::web_url::percent_encode;
use nanobot_net::webhook_request::WebhookRequest;
use nanobot_os::clock::Clock;
use nanobot_os::digest::digest;
use nanobot_os::secret::Secret;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;
use webhook::{WebhookContent, WebhookSecrets};

/// Hosts of connections.
const HOSTS: &[&str] = &["feishu.cn", "larksuite.com"];
/// The service that creates apps of Lark.
const LARK_ACCOUNTS: &str = "https://accounts.larksuite.com";
/// The method of frames with events; other frames control the connection.
const DATA_METHOD: u64 = 1;
/// Largest upload: files may have 30 MB, images 10 MB.
const MAX_UPLOAD_BYTES: u64 = 30_000_000;
/// The longest answer that is sent as text: others are cards, which show Markdown.
const MAX_TEXT_CHARS: usize = 200;
/// Bounds of the interval of heartbeats. The service usually asks for two minutes.
const MIN_PING_SECS: u64 = 1;
const MAX_PING_SECS: u64 = 600;
/// The start of marks that notify people.
const MENTION_MARKS: &[&str] = &["<at"];
/// Error codes (Feishu, "Generic error codes" and those of messages and connections): too many requests or messages.
const RATE_LIMIT_CODES: [i64; 4] = [11_232, 11_233, 230_020, 99_991_400];
/// Wrong credentials of the app.
const CREDENTIAL_CODES: [i64; 6] = [403, 514, 10_003, 10_014, 10_015, 1_000_040_344];
/// An invalid access token.
const TOKEN_CODES: RangeInclusive<i64> = 99_991_660..=99_991_670;
/// A missing permission of the app.
const SCOPE_CODES: [i64; 2] = [99_991_672, 230_027];
/// A recipient who cannot be reached, or a chat in which the app may not write.
const RECIPIENT_CODES: [i64; 6] = [230_002, 230_006, 230_013, 230_018, 230_029, 230_035];
/// A failure of the service.
const FAILURE_CODES: [i64; 2] = [1, 1_000_040_343];

struct Feishu {
    client: ServiceClient,
    accounts_client: ServiceClient,
    lark_accounts_client: ServiceClient,
    app_id: String,
    app_secret: Option<Secret>,
    access: AccessRules,
    settings: FeishuSettings,
    webhook_secrets: WebhookSecrets,
    clock: Clock,
    token: AccessToken,
    listener: PushListener,
    /// The messages with the reaction for work in progress.
    reacted: Mutex<BTreeSet<String>>,
}

const MEDIA_TYPE: &str = "application/json; charset=utf-8";
/// The type of a message that is a card.
const CARD: &str = "interactive";

/// Keys of the config.
struct FeishuSettings {
    has_topics: bool,
    has_connection: bool,
    quotes_question: bool,
    /// Drafts change, and of all messages only cards can change as often as they do.
    sends_cards: bool,
    react_emoji: Option<String>,
    done_emoji: Option<String>,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let is_lark = config.text("domain").as_deref() == Some("lark");
    let (api, accounts) = if is_lark {
        ("https://open.larksuite.com", LARK_ACCOUNTS)
    } else {
        ("https://open.feishu.cn", "https://accounts.feishu.cn")
    };
    let base = config.text("apiBase").unwrap_or_else(|| api.to_owned());
    let client = ServiceClient::at(setup, &base, "apiBase", "appSecret")?;
    let accounts_client = |default: &str| {
        let base = config.text("accountsBase").unwrap_or_else(|| default.to_owned());
        ServiceClient::at(setup, &base, "accountsBase", "appSecret")
    };
    Ok(Box::new(Feishu {
        client: client.with_hosts(HOSTS),
        accounts_client: accounts_client(accounts)?,
        lark_accounts_client: accounts_client(LARK_ACCOUNTS)?,
        app_id: config.text("appId").unwrap_or_default(),
        app_secret: config.secret("appSecret")?.cloned(),
        access: setup.access.clone(),
        settings: FeishuSettings {
            has_topics: config.flag("topicIsolation"),
            has_connection: config.flag("longConnection"),
            quotes_question: config.flag("replyToMessage"),
            sends_cards: config.flag("streaming"),
            react_emoji: config.text("reactEmoji"),
            done_emoji: config.text("doneEmoji"),
        },
        webhook_secrets: WebhookSecrets {
            encrypt_key: config.secret("encryptKey")?.cloned(),
            verification_token: config.secret("verificationToken")?.cloned(),
        },
        clock: setup.clock.clone(),
        token: AccessToken::default(),
        listener: PushListener::default(),
        reacted: Mutex::default(),
    }))
}

impl PushService for Feishu {
    fn connect(&self, cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>> {
        let request = json!({ "AppID": self.app_id, "AppSecret": self.secret()? });
        let response = self.exchange(&to_post("/callback/ws/endpoint", &request), None)?;
        let url = self.client.own_socket(&response["data"]["URL"])?;
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let service = query.split('&').find_map(|pair| pair.strip_prefix("service_id="));
        let service: u64 = service.and_then(|text| text.parse().ok()).unwrap_or_default();
        let interval = &response["data"]["ClientConfig"]["PingInterval"];
        *cache = json!({ "service": service, "ping_secs": interval });
        let socket = self.client.open_websocket(url)?;
        Ok(Box::new(FeishuConnection::new(socket)))
    }

    fn read_frame(&self, frame: &Value, poll: &mut PollState<'_>) -> ChannelResult<FrameContent> {
        if frame["method"] != DATA_METHOD {
            return Ok(FrameContent::default());
        }
        let mut acknowledgement = frame.clone();
        acknowledgement["payload"] = json!({ "code": 200 }).to_string().into();
        let payload = frame["payload"].as_str().unwrap_or_default();
        let payload: Value = serde_json::from_str(payload).unwrap_or_default();
        Ok(FrameContent {
            messages: self.to_message(&payload, poll.identity).into_iter().collect(),
            acknowledgement: Some(acknowledgement),
        })
    }

    fn heartbeat(&self, cache: &Value) -> Option<Heartbeat> {
        let seconds = cache["ping_secs"].as_u64().unwrap_or(MAX_PING_SECS);
        let seconds = seconds.clamp(MIN_PING_SECS, MAX_PING_SECS);
        let service = cache["service"].as_u64().unwrap_or_default();
        Some(Heartbeat { interval: Duration::from_secs(seconds), frame: frame::ping(service) })
    }
}

impl Channel for Feishu {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        if self.settings.has_connection { self.listener.poll(self, request) } else { Ok(()) }
    }

    fn receive(&self, request: &WebhookRequest) -> Result<WebhookReceipt> {
        let now = self.clock.timestamp().as_second();
        let event = match self.webhook_secrets.read(request, now)? {
            WebhookContent::Event(event) => event,
            WebhookContent::Response(response) => {
                return Ok(WebhookReceipt::without_messages(response));
            }
        };
        let mut receipt = WebhookReceipt::empty(200);
        if is_message(&event) {
            receipt.messages.extend(self.to_message(&event, &self.identity()?));
        }
        Ok(receipt)
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let (kind, content) = match &part.file {
            Some(path) => self.upload(path)?,
            None if self.settings.sends_cards => (CARD, card_of(part)),
            None => content_of(part),
        };
        let mut request = json!({
            "msg_type": kind, "content": content.to_string(),
            // Up to 50 characters.
            "uuid": &digest(key.as_bytes())[..32],
        });
        let Destination { chat, reply_facts } = destination;
        let question = reply_facts["id"].as_str();
        let is_reply = self.settings.quotes_question || chat.thread.is_some();
        let quoted = if is_reply { question } else { None };
        let path = match quoted.or(chat.thread.as_deref()) {
            Some(message) => {
                request["reply_in_thread"] = reply_facts["topic"].is_string().into();
                format!("/open-apis/im/v1/messages/{}/reply", percent_encode(message))
            }
            None => {
                request["receive_id"] = chat.id.as_str().into();
                let kind = if chat.id.starts_with("oc_") { "chat_id" } else { "open_id" };
                format!("/open-apis/im/v1/messages?receive_id_type={kind}")
            }
        };
        let response = self.post(&path, &request)?;
        self.client.text_of(&response["data"]["message_id"])
    }

    /// Changes a card (Feishu, "Update message card").
    fn edit(&self, _destination: &Destination, id: &str, part: &Part) -> ChannelResult<()> {
        let path = format!("/open-apis/im/v1/messages/{}", percent_encode(id));
        let body = json!({ "content": card_of(part).to_string() }).to_string().into_bytes();
        self.exchange_with_token(&ServiceRequest::patch(&path).body(MEDIA_TYPE, body)).map(drop)
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let mut ids = file.id.split('/').map(percent_encode);
        let mut next = || ids.next().unwrap_or_default();
        let path =
            format!("/open-apis/im/v1/messages/{}/resources/{}?type={}", next(), next(), next());
        let bytes = self.token.with(&|| self.fetch_token(), &|token| {
            let response = self.client.request(&with_token(ServiceRequest::get(&path), token))?;
            if response.is_success() && response.json()["code"].is_null() {
                Ok(response.body)
            } else {
                Err(to_error(&response))
            }
        })?;
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        writer.write_all(&bytes[..bytes.len().min(limit)])?;
        Ok(bytes.len() <= limit)
    }

    /// A reaction, since bots cannot show that they type.
    fn show_typing(&self, destination: &Destination) {
        let message = destination.reply_facts["id"].as_str();
        if let (Some(emoji), Some(message)) = (&self.settings.react_emoji, message)
            && self.reacted.lock().insert(message.to_owned())
        {
            self.react(message, emoji);
        }
    }

    fn mark_answered(&self, message: &InboundMessage) {
        self.reacted.lock().remove(&message.id);
        if let Some(emoji) = &self.settings.done_emoji {
            self.react(&message.id, emoji);
        }
    }

    fn identity(&self) -> Result<Identity> {
        let response = self.get("/open-apis/bot/v3/info")?;
        let bot = &response["bot"];
        Ok(self.client.identity_of(&bot["open_id"], &bot["app_name"])?)
    }

    /// Checks the app, or creates one.
    fn login(&self, dialog: &mut dyn LoginDialog) -> Result<LoginOutcome> {
        if self.secret().is_ok() {
            let Identity { id, name } = self.identity()?;
            return Ok(LoginOutcome::of_message(format!("{name} ({id})")));
        }
        Ok(registration::register(&self.accounts_client, &self.lark_accounts_client, dialog)?)
    }
}

/// True for the event of a message.
fn is_message(event: &Value) -> bool {
    event["header"]["event_type"] == "im.message.receive_v1"
}

impl Feishu {
    /// The message of an event, with the one that it replies to. `None` if the event has none.
    fn to_message(&self, event: &Value, identity: &Identity) -> Option<InboundMessage> {
        let message = is_message(event)
            .then(|| message::to_message(&event["event"], identity, self.settings.has_topics));
        message.flatten().map(|message| self.with_quote(message))
    }

    /// The secret of the app.
    ///
    /// # Errors
    /// The secret or the id of the app is not set.
    fn secret(&self) -> ChannelResult<&str> {
        match &self.app_secret {
            Some(secret) if !self.app_id.is_empty() => Ok(secret.expose()),
            _ => Err(ChannelError::Other(
                fail(Exit::Config, "`channels.feishu.appId` and `appSecret` are not set")
                    .with_hint("`nanobot channel login feishu`, which creates an app"),
            )),
        }
    }

    fn fetch_token(&self) -> ChannelResult<IssuedToken> {
        let request = json!({ "app_id": self.app_id, "app_secret": self.secret()? });
        let path = "/open-apis/auth/v3/tenant_access_token/internal";
        let response = self.exchange(&to_post(path, &request), None)?;
        Ok(IssuedToken {
            text: self.client.text_of(&response["tenant_access_token"])?,
            lifetime_secs: response["expire"].as_u64().unwrap_or_default(),
        })
    }

    fn get(&self, path: &str) -> ChannelResult<Value> {
        self.exchange_with_token(&ServiceRequest::get(path))
    }

    /// Posts JSON that has a `uuid`, so that it may be sent again.
    fn post(&self, path: &str, body: &Value) -> ChannelResult<Value> {
        self.exchange_with_token(&to_post(path, body))
    }

    fn exchange_with_token(&self, request: &ServiceRequest<'_>) -> ChannelResult<Value> {
        let fetch = || self.fetch_token();
        self.token.with(&fetch, &|token| self.exchange(request, Some(token)))
    }

    fn exchange(&self, request: &ServiceRequest<'_>, token: Option<&str>) -> ChannelResult<Value> {
        let request = request.clone();
        let request = match token {
            Some(token) => with_token(request, token),
            None => request,
        };
        read(&self.client.request(&request)?)
    }

    /// Adds the message that an allowed sender replies to. Those of other senders cost no request.
    fn with_quote(&self, mut message: InboundMessage) -> InboundMessage {
        let parent = message.reply_facts["parent"].as_str().map(str::to_owned);
        if let Some(parent) = parent
            && self.access.decide(&message) == AccessDecision::Answer
        {
            let path = format!("/open-apis/im/v1/messages/{}", percent_encode(&parent));
            let quote = match self.get(&path) {
                Ok(response) => message::to_quote(&response["data"]["items"][0], &self.app_id),
                Err(error) => {
                    log::info!(target: "channel", "feishu: no quoted message: {error}");
                    None
                }
            };
            // The message that is replied to may have no text, or be deleted.
            let without_text = || QuotedText::replied("", 0, Some(&parent), false);
            message.quotes.push(quote.unwrap_or_else(without_text));
        }
        message
    }

    fn react(&self, message: &str, emoji: &str) {
        let path = format!("/open-apis/im/v1/messages/{}/reactions", percent_encode(message));
        let request = json!({ "reaction_type": { "emoji_type": emoji } });
        if let Err(error) = self.post(&path, &request) {
            log::debug!(target: "channel", "feishu: no reaction: {error}");
        }
    }

    /// Uploads a file; returns the type and the content of its message.
    fn upload(&self, path: &Path) -> ChannelResult<(&'static str, Value)> {
        let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
        let (name, fields) = match file.media_type() {
            (AttachmentKind::Image, _) => ("image", vec![("image_type", "message")]),
            _ => ("file", vec![("file_type", "stream"), ("file_name", &file.name)]),
        };
        let (form_type, form) = file.to_form(&fields, name);
        let path = format!("/open-apis/im/v1/{name}s");
        let request = ServiceRequest::post(&path).body(&form_type, &form);
        let response = self.exchange_with_token(&request)?;
        let key = format!("{name}_key");
        Ok((name, json!({ &key: response["data"][&key] })))
    }
}

fn to_post<'r>(path: &'r str, body: &Value) -> ServiceRequest<'r> {
    ServiceRequest::post(path).body(MEDIA_TYPE, body.to_string().into_bytes())
}

fn with_token<'r>(request: ServiceRequest<'r>, token: &str) -> ServiceRequest<'r> {
    request.header("authorization", format!("Bearer {token}"))
}

/// The type and the content of a text: short ones without marks as they are, others as a card.
fn content_of(part: &Part) -> (&'static str, Value) {
    if part.markup == part.plain && part.plain.chars().count() <= MAX_TEXT_CHARS {
        let text = without_pings(&part.plain, MENTION_MARKS);
        return ("text", json!({ "text": text }));
    }
    (CARD, card_of(part))
}

/// The content of a card with a text in Markdown.
fn card_of(part: &Part) -> Value {
    let text = without_pings(&part.markup, MENTION_MARKS);
    let elements = json!([{ "tag": "markdown", "content": text }]);
    json!({ "schema": "2.0", "body": { "elements": elements } })
}

/// The JSON of a response without an error code.
fn read(response: &ServiceResponse) -> ChannelResult<Value> {
    let body = response.json();
    if response.is_success() && body["code"] == 0 { Ok(body) } else { Err(to_error(response)) }
}

/// The error of a response, by the service's code.
fn to_error(response: &ServiceResponse) -> ChannelError {
    let body = response.json();
    let code = body["code"].as_i64();
    let cause = match (code, body["msg"].as_str()) {
        (Some(code), Some(message)) => format!("error {code}: {message}"),
        _ => response.describe(),
    };
    let is_one_of = |codes: &[i64]| code.is_some_and(|code| codes.contains(&code));
    if is_one_of(&RATE_LIMIT_CODES) {
        ChannelError::rate_limited(cause)
    } else if is_one_of(&CREDENTIAL_CODES) {
        ChannelError::TokenRejected(format!(
            "{cause}; `channels.feishu.appId` and `appSecret` are not accepted"
        ))
    } else if code.is_some_and(|code| TOKEN_CODES.contains(&code)) {
        ChannelError::TokenRejected(cause)
    } else if is_one_of(&SCOPE_CODES) {
        ChannelError::Misconfigured(format!(
            "{cause}; give the app this scope in Feishu's developer console"
        ))
    } else if is_one_of(&RECIPIENT_CODES) {
        ChannelError::RecipientRefused(cause)
    } else if is_one_of(&FAILURE_CODES) {
        ChannelError::Unavailable(cause)
    } else {
        ChannelError::Undeliverable(cause)
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let identity = Identity { id: "ou_bot".into(), name: "bot".into() };
    message::to_message(value, &identity, false)
}
