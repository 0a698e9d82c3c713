//! WeChat as a personal account, through iLink: a bot that the owner links by scanning a QR code. The interface has no
//! public documentation; it is as the Python program's channel uses it.
//!
//! The service accepts a message only with the context token of a message of the same user, which expires within minutes. The last token of
//! each user is stored. It recognises a message that is sent again by the id that we give it.

use super::access::AccessRules;
use super::encrypted_file;
use super::service_client::{ServiceClient, ServiceRequest, TIMEOUTS, failure};
use super::setup::ChannelSetup;
use super::{
    AttachmentKind, Batch, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, LoginDialog, LoginOutcome, LoginValue, Part, PollRequest, QuotedText,
    RateLimit, RemoteFile, Sender,
};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_net::http::{HttpTimeouts, ResponseTimeout};
use nanobot_net::web_url::percent_encode;
use nanobot_os::clock::Clock;
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use nanobot_os::secret::{Secret, random_hex};
use nanobot_os::signal;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The version of the vendor's client that this program identifies as, as text and as a number.
const PROTOCOL_VERSION: &str = "2.4.6";
const PROTOCOL_NUMBER: &str = "132102";
const FILE_HOSTS: &[&str] = &["weixin.qq.com"];
/// Kinds of parts of a message.
const TEXT_ITEM: u64 = 1;
const IMAGE_ITEM: u64 = 2;
const VOICE_ITEM: u64 = 3;
const FILE_ITEM: u64 = 4;
const VIDEO_ITEM: u64 = 5;
/// The type and the state of a message of a bot that is complete.
const BOT_MESSAGE: u64 = 2;
const FINISHED_STATE: u64 = 2;
/// Codes of errors.
const EXPIRED_LOGIN: i64 = -14;
const RESTRICTED: i64 = -2;
/// The age in seconds after which a context token is replaced by a newer one.
const CONTEXT_AGE_SECS: i64 = 60;
/// The wait after a restricted message: the service counts the messages of five minutes.
const RATE_LIMIT_DELAY: Duration = Duration::from_secs(300);
/// Time for the first byte of a poll that does not wait: the service responds at once if there is something.
const SHORT_POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which a login checks whether the code was scanned, and the maximum number of codes that it shows.
const LOGIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_LOGIN_CODES: usize = 4;
const MAX_QUOTE_CHARS: usize = 500;

struct Weixin {
    client: ServiceClient,
    short_poll_client: ServiceClient,
    file_client: ServiceClient,
    file_base: String,
    token: Option<Secret>,
    /// The position that the Python program has stored, for the first poll.
    first_position: String,
    access: AccessRules,
    clock: Clock,
    /// The file with the last context token of each user.
    contexts: PathBuf,
    /// Tickets for typing notices, by user.
    tickets: Mutex<BTreeMap<String, Value>>,
}

/// Creates the channel. The token is that of the config, or that of the Python program.
///
/// # Errors
/// Status 78 for an unusable address.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let mut base = config.required_text("baseUrl", "URL")?;
    let file_base = config.required_text("cdnBaseUrl", "URL")?;
    let python_account = read_account(setup)?;
    let (mut token, mut first_position) = (config.secret("token")?.cloned(), String::new());
    let text = |name: &str| python_account[name].as_str().filter(|text| !text.is_empty());
    let of_python = text("token").map(Secret::new);
    if token.is_none() || token == of_python {
        token = token.or(of_python);
        first_position = text("get_updates_buf").unwrap_or_default().to_owned();
        base = text("base_url").unwrap_or(&base).to_owned();
    }
    if let Some(token) = &token {
        nanobot_os::secret::register(token);
    }
    let client = |timeouts| {
        let client = ServiceClient::with_timeouts(setup, &base, "baseUrl", "token", timeouts)?;
        let client = client
            .with_header("authorizationtype", "ilink_bot_token".to_owned())
            .with_header("ilink-app-id", "bot".to_owned())
            .with_header("ilink-app-clientversion", PROTOCOL_NUMBER.to_owned());
        let client = match config.value("routeTag") {
            Value::String(tag) if !tag.is_empty() => client.with_header("skroutetag", tag),
            Value::Number(tag) => client.with_header("skroutetag", tag.to_string()),
            _ => client,
        };
        Ok::<_, anyhow::Error>(match &token {
            Some(token) => client.with_bearer(token),
            None => client,
        })
    };
    Ok(Box::new(Weixin {
        client: client(TIMEOUTS)?,
        short_poll_client: client(HttpTimeouts { first_byte: SHORT_POLL_TIMEOUT, ..TIMEOUTS })?,
        file_client: ServiceClient::at(setup, &file_base, "cdnBaseUrl", "token")?
            .with_hosts(FILE_HOSTS),
        file_base,
        token,
        first_position,
        access: setup.access.clone(),
        clock: setup.clock.clone(),
        contexts: setup.paths.channels().join(config.name).join("contexts.json"),
        tickets: Mutex::default(),
    }))
}

/// The account file of the Python program; null if there is none.
fn read_account(setup: &ChannelSetup) -> Result<Value> {
    let directory: PathBuf = match setup.config.text("stateDir") {
        Some(directory) => setup.paths.expand(&directory),
        None => setup.paths.expand("~/.nanobot/weixin"),
    };
    let text = durable_file::read(&directory.join("account.json"))?;
    Ok(serde_json::from_slice(&text.unwrap_or_default()).unwrap_or_default())
}

impl Channel for Weixin {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { cursor, wait, store_batch, .. } = request;
        let end = signal::now().saturating_add(wait);
        let mut position = match cursor {
            Some(cursor) => cursor["position"].as_str().unwrap_or_default().to_owned(),
            None => self.first_position.clone(),
        };
        loop {
            let time_left = end.saturating_sub(signal::now());
            let Some(response) = self.fetch_updates(&position, time_left)? else {
                return Ok(());
            };
            let messages: Vec<InboundMessage> =
                items(&response["msgs"]).filter_map(to_message).collect();
            let next = response["get_updates_buf"].as_str().filter(|position| !position.is_empty());
            let has_messages = !messages.is_empty();
            let is_moved = next.is_some_and(|next| next != position);
            position = next.unwrap_or(&position).to_owned();
            self.store_contexts(&messages)?;
            if has_messages || is_moved {
                let cursor = json!({ "position": position });
                store_batch(Batch { messages, cursor })?;
            }
            if has_messages || signal::now() >= end {
                return Ok(());
            }
        }
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        if part.file.is_some() {
            return Err(ChannelError::Undeliverable("files are not sent to WeChat".into()));
        }
        let user = &destination.chat.id;
        let facts = match &destination.reply_facts {
            Value::Null => self.read_contexts()?[user].clone(),
            facts => facts.clone(),
        };
        let Some(context) = facts["context"].as_str() else {
            let cause = "WeChat accepts a message only after one of the user";
            return Err(ChannelError::RecipientRefused(cause.to_owned()));
        };
        let age = self.clock.timestamp().as_second() - facts["at"].as_i64().unwrap_or_default();
        let context = if age > CONTEXT_AGE_SECS {
            self.refresh_context(user, context)?
        } else {
            context.to_owned()
        };
        let id = format!("nanobot-{}", &digest(key.as_bytes())[..20]);
        let item = json!({ "type": TEXT_ITEM, "text_item": { "text": part.plain } });
        let message = json!({
            "from_user_id": "", "to_user_id": user, "client_id": id, "message_type": BOT_MESSAGE,
            "message_state": FINISHED_STATE, "item_list": [item], "context_token": context,
        });
        self.post("/ilink/bot/sendmessage", json!({ "msg": message }))?;
        Ok(id)
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let (key, locator) = file.id.split_once(' ').unwrap_or_default();
        let url = if locator.contains("://") {
            locator.to_owned()
        } else {
            format!("{}/download?encrypted_query_param={locator}", self.file_base)
        };
        let file = RemoteFile { id: format!("{key} {url}"), ..file.clone() };
        encrypted_file::fetch(&self.file_client, &file, writer, limit_bytes)
    }

    fn show_typing(&self, destination: &Destination) {
        let user = &destination.chat.id;
        let cached = self.tickets.lock().get(user).cloned();
        let ticket = cached.or_else(|| {
            let context = destination.reply_facts["context"].as_str()?;
            let config = self.config_of(user, context).ok()?;
            Some(config["typing_ticket"].clone())
        });
        if let Some(ticket) = ticket.filter(Value::is_string) {
            let request = json!({ "ilink_user_id": user, "typing_ticket": ticket, "status": 1 });
            if let Err(error) = self.post("/ilink/bot/sendtyping", request) {
                log::debug!(target: "channel", "weixin: no typing notice: {error}");
            }
            self.tickets.lock().insert(user.clone(), ticket);
        }
    }

    /// Announces the bot to the service, which checks the token. There is no name.
    fn identity(&self) -> Result<Identity> {
        let Some(token) = &self.token else {
            return Err(fail(Exit::Config, "`channels.weixin.token` is not set")
                .with_hint("`nanobot channel login weixin`, which shows a QR code"));
        };
        self.post("/ilink/bot/msg/notifystart", json!({}))?;
        Ok(Identity {
            id: digest(token.expose().as_bytes())[..16].to_owned(),
            name: "the linked account".to_owned(),
        })
    }

    /// Shows a QR code until it was scanned, unless the token is accepted.
    fn login(&self, dialog: &mut dyn LoginDialog) -> Result<LoginOutcome> {
        if self.token.is_some() {
            match self.identity() {
                Ok(Identity { name, .. }) => return Ok(LoginOutcome::of_message(name)),
                Err(error) if nanobot_base::error::exit_for(&error) == Exit::Refused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.link(dialog)?)
    }
}

impl Weixin {
    /// Fetches the messages after `position`. `None` if there are none in time.
    fn fetch_updates(&self, position: &str, wait: Duration) -> ChannelResult<Option<Value>> {
        let body = json!({ "get_updates_buf": position });
        let request = to_request("/ilink/bot/getupdates", body).wait(wait);
        if !wait.is_zero() {
            let response = self.client.request(&request)?;
            return self.client.read_success(&response).and_then(check).map(Some);
        }
        match self.short_poll_client.request_once(&request) {
            Ok(response) => self.client.read_success(&response).and_then(check).map(Some),
            Err(error) if error.is::<ResponseTimeout>() => Ok(None),
            Err(error) => Err(ChannelError::Unavailable(failure(error)?)),
        }
    }

    fn post(&self, path: &str, body: Value) -> ChannelResult<Value> {
        check(self.client.exchange(&to_request(path, body))?)
    }

    fn config_of(&self, user: &str, context: &str) -> ChannelResult<Value> {
        let request = json!({ "ilink_user_id": user, "context_token": context });
        self.post("/ilink/bot/getconfig", request)
    }

    fn read_contexts(&self) -> Result<Value> {
        let text = durable_file::read(&self.contexts)?;
        let contexts: Value = serde_json::from_slice(&text.unwrap_or_default()).unwrap_or_default();
        // A damaged file is replaced by the next message.
        Ok(if contexts.is_object() { contexts } else { json!({}) })
    }

    /// Stores the context tokens of allowed senders.
    fn store_contexts(&self, messages: &[InboundMessage]) -> Result<()> {
        let is_allowed = |message: &&InboundMessage| self.access.allows(&message.from.id);
        let mut allowed = messages.iter().filter(is_allowed).peekable();
        if allowed.peek().is_none() {
            return Ok(());
        }
        let mut contexts = self.read_contexts()?;
        for message in allowed {
            contexts[&message.from.id] = message.reply_facts.clone();
        }
        durable_file::replace(&self.contexts, contexts.to_string().as_bytes())
    }

    /// A younger token for the chat, if the service gives one.
    fn refresh_context(&self, user: &str, context: &str) -> ChannelResult<String> {
        let config = match self.config_of(user, context) {
            // The current token may still be valid.
            Err(ChannelError::Undeliverable(_) | ChannelError::RateLimited(..)) => Value::Null,
            config => config?,
        };
        let newer = config["context_token"].as_str().filter(|token| !token.is_empty());
        Ok(newer.unwrap_or(context).to_owned())
    }

    /// Shows codes until one was scanned and confirmed.
    fn link(&self, dialog: &mut dyn LoginDialog) -> ChannelResult<LoginOutcome> {
        for _ in 0..MAX_LOGIN_CODES {
            let request = json!({ "local_token_list": [] });
            let code = self.post("/ilink/bot/get_bot_qrcode?bot_type=3", request)?;
            let Some(id) = code["qrcode"].as_str() else {
                return Err(self.client.unexpected_response());
            };
            let url = code["qrcode_img_content"].as_str().unwrap_or(id);
            dialog.show_code(url, "scan this with WeChat, and confirm")?;
            if let Some(outcome) = self.wait_for_scan(id, dialog)? {
                return Ok(outcome);
            }
        }
        let cause = "no code was scanned in time";
        Err(ChannelError::Other(fail(Exit::Refused, cause)))
    }

    /// Waits until a code was confirmed. `None` if it has expired.
    fn wait_for_scan(
        &self,
        id: &str,
        dialog: &mut dyn LoginDialog,
    ) -> ChannelResult<Option<LoginOutcome>> {
        let mut host = String::new();
        let mut verification = String::new();
        loop {
            let mut path =
                format!("{host}/ilink/bot/get_qrcode_status?qrcode={}", percent_encode(id));
            if !verification.is_empty() {
                path += &format!("&verify_code={}", percent_encode(&verification));
            }
            let request = ServiceRequest::get(&path).wait(LOGIN_INTERVAL);
            let state = self.client.exchange(&request.header(UIN_HEADER, random_uin()))?;
            let text = |name: &str| state[name].as_str().unwrap_or_default().to_owned();
            match text("status").as_str() {
                "confirmed" => {
                    let token = text("bot_token").into();
                    let mut values = vec![LoginValue { key: "token", value: token }];
                    let base = text("baseurl");
                    if !base.is_empty() {
                        values.push(LoginValue { key: "baseUrl", value: base.into() });
                    }
                    return Ok(Some(LoginOutcome {
                        message: "the account is linked".to_owned(),
                        values,
                    }));
                }
                "scaned_but_redirect" => {
                    let redirect = text("redirect_host");
                    let redirect = redirect.trim_start_matches("https://");
                    let url = format!("https://{redirect}");
                    if self.client.owns(&url) {
                        host = url;
                    }
                }
                "need_verifycode" => {
                    verification = dialog.ask("Number that WeChat shows")?;
                    continue;
                }
                "expired" | "verify_code_blocked" => return Ok(None),
                _ => {}
            }
            self.client.pause(LOGIN_INTERVAL)?;
        }
    }
}

/// The header with a number of our choice.
const UIN_HEADER: &str = "x-wechat-uin";

fn random_uin() -> String {
    let number = u32::from_str_radix(&random_hex(4), 16).unwrap_or_default();
    STANDARD.encode(number.to_string())
}

/// A request with the members that each has.
fn to_request(path: &str, mut body: Value) -> ServiceRequest<'_> {
    body["base_info"] = json!({ "channel_version": PROTOCOL_VERSION,
        "bot_agent": concat!("nanobot/", env!("CARGO_PKG_VERSION")) });
    ServiceRequest::post(path).json(&body).header(UIN_HEADER, random_uin())
}

/// Returns a response without an error code.
fn check(response: Value) -> ChannelResult<Value> {
    let codes = ["errcode", "ret"].map(|name| response[name].as_i64().unwrap_or_default());
    let Some(code) = codes.into_iter().find(|code| *code != 0) else {
        return Ok(response);
    };
    let cause = response["errmsg"].as_str().unwrap_or("no reason");
    let cause = format!("error {code}: {cause}");
    Err(match code {
        EXPIRED_LOGIN => ChannelError::TokenRejected(format!(
            "{cause}; the login has expired: `nanobot channel login weixin`"
        )),
        RESTRICTED => ChannelError::RateLimited(RateLimit(RATE_LIMIT_DELAY), cause),
        _ => ChannelError::Undeliverable(cause),
    })
}

/// The file of a part. Its id contains the key, and the address or the parameter for the address.
fn to_file(item: &Value) -> Option<RemoteFile> {
    let (member, kind, name) = match item["type"].as_u64()? {
        IMAGE_ITEM => ("image_item", AttachmentKind::Image, "image.jpg"),
        VOICE_ITEM => ("voice_item", AttachmentKind::Audio, "voice.silk"),
        FILE_ITEM => ("file_item", AttachmentKind::File, "file"),
        VIDEO_ITEM => ("video_item", AttachmentKind::Video, "video.mp4"),
        _ => return None,
    };
    let (item, media) = (&item[member], &item[member]["media"]);
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let key = text(&item["aeskey"]).or_else(|| text(&media["aes_key"]))?;
    let parameter = text(&media["encrypt_query_param"]).map(|text| percent_encode(&text));
    let locator = text(&media["full_url"]).or(parameter)?;
    Some(RemoteFile {
        id: encrypted_file::to_id(&key, &locator)?,
        name: text(&item["file_name"]).unwrap_or_else(|| name.to_owned()),
        kind,
        ..RemoteFile::default()
    })
}

/// The message of a user.
fn to_message(message: &Value) -> Option<InboundMessage> {
    let sender = message["from_user_id"].as_str().filter(|id| !id.is_empty())?;
    if message["message_type"] == BOT_MESSAGE {
        return None;
    }
    let number = ["message_id", "seq"].map(|name| &message[name]);
    let id = number.into_iter().find(|id| !id.is_null() && **id != "")?;
    let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    let (mut typed, mut quotes, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for item in items(&message["item_list"]) {
        let text = match item["type"].as_u64() {
            Some(TEXT_ITEM) => &item["text_item"]["text"],
            // The service has transcribed what the sender said.
            Some(VOICE_ITEM) => &item["voice_item"]["text"],
            _ => &Value::Null,
        };
        match (text.as_str(), to_file(item)) {
            (Some(text), _) => typed.push(text),
            (None, Some(file)) => files.push(file),
            (None, None) => {
                let text = "a file, which cannot be read".to_owned();
                quotes.push(QuotedText::new("attachment", text));
            }
        }
        let quoted = &item["ref_msg"];
        let quoted =
            quoted["message_item"]["text_item"]["text"].as_str().or(quoted["title"].as_str());
        // The quoted message may have no text, such as a picture.
        let quoted = quoted.or(item["ref_msg"].is_object().then_some(""));
        quotes.extend(quoted.map(|text| QuotedText::replied(text, MAX_QUOTE_CHARS, None, false)));
    }
    let text = typed.join("\n").trim().to_owned();
    if text.is_empty() && quotes.is_empty() && files.is_empty() {
        return None;
    }
    let sent_at = message["create_time_ms"].as_i64().unwrap_or_default() / 1000;
    Some(InboundMessage {
        id,
        chat: Chat::new(sender, None, !sender.ends_with("@chatroom")),
        from: Sender::new(sender, None, false),
        text: UserText::typed(text),
        quotes,
        files,
        sent_at,
        reply_facts: json!({ "context": message["context_token"], "at": sent_at }),
        ..InboundMessage::default()
    })
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message(value)
}
