//! Chat channels: inbound and outbound messages, and one file for each service.
//!
//! [`Channel`] is the interface of a service: it hands over new messages, and sends one part of an answer. The order of
//! writes is that of the program's `ops::inbound`. Each poll begins at a cursor on disk, so no state in memory is needed
//! between polls.
//!
//! The program decides which messages are answered, and by which turn. Start with [`Channel`] and [`table`]; a small
//! service is `ntfy`.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod access;
mod access_token;
pub mod approvals;
mod conversation_poll;
pub mod dialect;
mod dingtalk;
mod discord;
pub mod email;
mod encrypted_file;
mod feishu;
mod gateway;
pub mod inbox;
mod json_file;
mod matrix;
mod mattermost;
mod mention;
mod mochat;
#[cfg(test)]
mod named_hosts_tests;
mod ntfy;
pub mod pairing;
mod press;
mod program;
mod push_poll;
mod qq;
mod request_limits;
mod service_client;
pub mod settlement;
pub mod setup;
mod slack;
pub mod table;
mod telegram;
mod thread_context;
pub mod upload;
mod webhook;
mod wecom;
mod weixin;
mod whatsapp;
mod whatsapp_bridge;

use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::UserText;
use nanobot_net::webhook_request::{WebhookRequest, WebhookResponse};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// A service that carries messages. Methods may be called from several threads at once.
pub trait Channel: Send + Sync {
    /// Fetches new messages, and has them stored in batches. Returns after the first response with messages, and at the latest
    /// when the wait is over. Does nothing for a service that cannot be polled.
    ///
    /// # Errors
    /// The error carries the status of the run: 69 for a service that is down after all tries, 75 for a rate limit, 77 for a rejected
    /// token, 78 for a config that cannot work. Errors of [`PollRequest::store_batch`] are returned unchanged.
    fn poll(&self, _request: PollRequest<'_>) -> Result<()> {
        Ok(())
    }

    /// Checks a webhook request by its signature, and reads the messages in it. They are on disk before the response is
    /// sent.
    ///
    /// # Errors
    /// Status 78 if the service sends none, or a key for the signature is missing.
    fn receive(&self, _request: &WebhookRequest) -> Result<WebhookReceipt> {
        Err(fail(Exit::Config, "this channel does not receive webhooks"))
    }

    /// Sends one part. `key` is the same when a part is sent again, and no other part has it. Returns the service's id
    /// of the message. The implementation retries short failures itself (5xx, connection refused, a short rate limit).
    ///
    /// # Errors
    /// The part was not sent, or possibly not: [`ChannelError`] says what to do.
    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String>;

    /// Replaces a part that was sent, of which `id` is the service's id, and removes its buttons.
    ///
    /// # Errors
    /// The part is as it was, or possibly not. A service that does not change messages has no other outcome.
    fn edit(&self, _destination: &Destination, _id: &str, _part: &Part) -> ChannelResult<()> {
        Err(ChannelError::Undeliverable("the service does not change messages".into()))
    }

    /// Looks for a part that an earlier attempt may have sent. Returns the service's id of the message. For
    /// services that do not recognise a key by themselves.
    ///
    /// # Errors
    /// The errors of [`Self::send`]. The part is then not sent again until this search succeeds.
    fn find_sent(&self, _destination: &Destination, _key: &str) -> ChannelResult<Option<String>> {
        Ok(None)
    }

    /// Writes the content of an attachment, at most `limit` bytes of it. Returns false if it is longer.
    ///
    /// # Errors
    /// The attachment cannot be fetched, or `writer` cannot be written.
    fn fetch(&self, _file: &RemoteFile, _writer: &mut dyn Write, _limit: u64) -> Result<bool> {
        Err(fail(Exit::Config, "this channel hands over no files"))
    }

    /// Shows in the chat that an answer is being written. Called again every four seconds; failures are ignored.
    fn show_typing(&self, _destination: &Destination) {}

    /// Notes at the service that a message was answered, by a reaction or a flag. Best effort, after the answer.
    fn mark_answered(&self, _message: &InboundMessage) {}

    /// Asks the service for our own account. Called once a day, before a poll.
    ///
    /// # Errors
    /// The errors of [`Channel::poll`].
    fn identity(&self) -> Result<Identity>;

    /// Like [`Self::identity`], and checks what else the channel needs, such as a login for sending.
    ///
    /// # Errors
    /// The errors of [`Channel::poll`].
    fn test(&self) -> Result<Identity> {
        self.identity()
    }

    /// Logs in: checks a token, exchanges it for another one, or gets one for a code that the user scans.
    ///
    /// # Errors
    /// The errors of [`Channel::poll`].
    fn login(&self, _dialog: &mut dyn LoginDialog) -> Result<LoginOutcome> {
        let Identity { id, name } = self.identity()?;
        Ok(LoginOutcome::of_message(format!("{name} ({id})")))
    }
}

/// The arguments of [`Channel::poll`].
pub struct PollRequest<'a> {
    /// Our account, as [`Channel::identity`] returned it within the last day.
    pub identity: &'a Identity,
    /// The last value of [`Batch::cursor`]: the messages after it are fetched. `None` on first contact: a service that
    /// keeps a queue for us delivers it, another one only its position.
    pub cursor: Option<&'a Value>,
    /// Maximum time to wait for the first message, if the service can wait. With zero, no request waits.
    pub wait: Duration,
    /// Stores a batch. When it returns, the batch is on disk, and only then may it be acknowledged at the service.
    pub store_batch: &'a mut dyn FnMut(Batch) -> Result<()>,
    /// Tells the owner, in one line, of a message that cannot be handed over.
    pub report: &'a dyn Fn(&str),
    /// Carries over what belongs to the id of a chat that has another one now, before the messages under that are stored.
    pub move_chat: &'a dyn Fn(&MovedChat) -> Result<()>,
}

/// A chat to which the service has given another id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedChat {
    pub from: String,
    pub to: String,
}

/// A cursor that is an object, without those of its `members` that are no objects though they should be: a file that something has
/// damaged must not end the program. `None` if it is missing, or is no object.
fn object_cursor(cursor: Option<&Value>, members: &[&str]) -> Option<Value> {
    let mut object = cursor?.as_object()?.clone();
    object.retain(|name, value| value.is_object() || !members.contains(&name.as_str()));
    Some(Value::Object(object))
}

/// The user at a login.
pub trait LoginDialog {
    /// Shows a QR code of an address, with what to do with it.
    ///
    /// # Errors
    /// There is no terminal to show it on.
    fn show_code(&mut self, url: &str, text: &str) -> Result<()>;

    /// Asks for a text.
    ///
    /// # Errors
    /// There is no terminal, or the user leaves.
    fn ask(&mut self, question: &str) -> Result<String>;

    /// The commands of chats, in the order of their help.
    fn commands(&self) -> Vec<MenuCommand>;
}

/// A command of chats, for the menu of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MenuCommand {
    pub name: &'static str,
    pub description: &'static str,
}

/// The end of a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginOutcome {
    /// One line for the user.
    pub message: String,
    /// Values to be stored in the config.
    pub values: Vec<LoginValue>,
}

impl LoginOutcome {
    fn of_message(message: String) -> Self {
        Self { message, values: Vec::new() }
    }
}

/// The value of a config key that a login sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginValue {
    /// The rest of the config key, after the channel's name.
    pub key: &'static str,
    pub value: Value,
}

/// Our account at a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub id: String,
    /// The user name, as others mention it.
    pub name: String,
}

/// Messages, and the position after them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub messages: Vec<InboundMessage>,
    /// The position after the messages, as the service's adapter writes and reads it.
    pub cursor: Value,
}

/// The outcome of a webhook request.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookReceipt {
    pub response: WebhookResponse,
    pub messages: Vec<InboundMessage>,
    /// True if the request only says that a poll will find something.
    pub is_for_poll: bool,
}

impl WebhookReceipt {
    /// The receipt of a request without messages, whose response has no content.
    fn empty(status: u16) -> Self {
        Self::without_messages(WebhookResponse::empty(status))
    }

    /// The receipt of a request without messages.
    fn without_messages(response: WebhookResponse) -> Self {
        Self { response, messages: Vec::new(), is_for_poll: false }
    }
}

/// A chat, room, topic or address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chat {
    pub id: String,
    /// The topic or thread in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// True if only the sender and we are in it.
    #[serde(default)]
    pub is_direct: bool,
}

impl Chat {
    fn new(id: &str, thread: Option<&str>, is_direct: bool) -> Self {
        Self { id: id.to_owned(), thread: thread.map(str::to_owned), is_direct }
    }

    /// The chat of a recipient that is an id, or an id and a thread after `thread_mark`.
    fn of_recipient(recipient: &str, thread_mark: Option<&str>) -> Self {
        match thread_mark.and_then(|mark| recipient.split_once(mark)) {
            Some((id, thread)) => Self::new(id, Some(thread), true),
            None => Self::new(recipient, None, true),
        }
    }
}

/// The sender of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// The id, which the service has verified unless `is_unverified`.
    pub id: String,
    /// The user name without `@`, which can change hands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True for a bot.
    #[serde(default)]
    pub is_bot: bool,
    /// True if the owner of a mail address has published that its mails are authenticated, and this one is (DMARC).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed_dmarc: bool,
    /// True if it is not verified that the message is from this sender.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unverified: bool,
}

impl Sender {
    fn new(id: &str, name: Option<&str>, is_bot: bool) -> Self {
        Self { id: id.to_owned(), name: name.map(str::to_owned), is_bot, ..Self::default() }
    }

    /// True if messages of both are from the same person, as far as that is verified.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.is_unverified == other.is_unverified
    }
}

/// A message from a service. It is stored in the inbox in this form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// The message's id, unique in the channel.
    pub id: String,
    pub chat: Chat,
    pub from: Sender,
    /// The text of the message itself, with the parts of it that the sender typed.
    #[serde(flatten)]
    pub text: UserText,
    /// Text by others, or of unknown origin: quotes, forwards, link previews, names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotes: Vec<QuotedText>,
    /// True if a group message addresses us: a mention, a command with our name, or a reply to our message.
    #[serde(default)]
    pub mentions_us: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RemoteFile>,
    /// True if it is the new text of the message with this id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_edit: bool,
    /// Set if a button or a reaction has made the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub press: Option<Press>,
    /// True for content that has no form here, such as a sticker. The answer says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unreadable: bool,
    /// Time of sending, in seconds since 1970; 0 if unknown.
    #[serde(default)]
    pub sent_at: i64,
    /// Facts that the answer needs, such as the id to reply to; only the adapter reads them.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_facts: Value,
}

impl InboundMessage {
    /// The destination of its answer.
    pub fn destination(&self) -> Destination {
        Destination { chat: self.chat.clone(), reply_facts: self.reply_facts.clone() }
    }
}

/// The mark of a message that a button, or a reaction, below a question about a call has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Press {
    /// The id of the question that the button names; `None` for a reaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

/// Text in a message that its sender did not type. It is untrusted content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotedText {
    /// A short name for the model, such as `quoted message` or `forwarded message`.
    pub label: String,
    pub text: String,
    /// The message that this one replies to, if the quote is of that message. The text is empty where the service gives only the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replied: Option<RepliedMessage>,
}

/// A message that another one replies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepliedMessage {
    /// The service's id; `None` if it gives only the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// True if the service states that we have sent exactly the quoted text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ours: bool,
}

impl QuotedText {
    /// The mark for the rest of a text that is too long.
    pub const CUT_MARK: &str = " […]";

    /// A quote of at most `max_chars` characters of a text.
    pub fn cut(label: &str, text: &str, max_chars: usize) -> Self {
        let mut cut: String = text.chars().take(max_chars).collect();
        if cut.len() < text.len() {
            cut.push_str(Self::CUT_MARK);
        }
        Self::new(label, cut)
    }

    fn new(label: &str, text: String) -> Self {
        Self { label: label.to_owned(), text, replied: None }
    }

    /// The text of a message that is replied to.
    fn replied(text: &str, max_chars: usize, id: Option<&str>, is_ours: bool) -> Self {
        let replied = RepliedMessage { id: id.map(str::to_owned), is_ours };
        Self { replied: Some(replied), ..Self::cut("quoted message", text, max_chars) }
    }
}

/// The text of a message that is a poll.
fn poll_text(question: &str, answers: impl Iterator<Item = impl fmt::Display>) -> String {
    let answers: Vec<String> = answers.map(|answer| format!("\n- {answer}")).collect();
    format!("[poll]\n{question}{}", answers.concat())
}

/// The text of a message that is a location.
fn location_text(location: &Value) -> Option<String> {
    let (latitude, longitude) = (location["latitude"].as_f64()?, location["longitude"].as_f64()?);
    Some(format!("[location: latitude {latitude}, longitude {longitude}]"))
}

/// An attachment that is still at the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// The service's id or address of the content.
    pub id: String,
    /// The file name as the sender gave it; untrusted.
    #[serde(default)]
    pub name: String,
    pub kind: AttachmentKind,
    /// The size that the service states.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// The duration of a recording that the service states, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The kind of an attachment, as far as services treat kinds differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttachmentKind {
    Image,
    /// Recorded by the sender for this message.
    Voice,
    Audio,
    Video,
    #[default]
    File,
}

impl AttachmentKind {
    /// The kind of a media type.
    fn of_media_type(media_type: &str) -> Self {
        match media_type.split('/').next() {
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            _ => Self::File,
        }
    }
}

/// The place to which a part is sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Destination {
    pub chat: Chat,
    /// [`InboundMessage::reply_facts`] of the answered message; null for a message that answers none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub reply_facts: Value,
}

/// One part of an outbound message, in the form that the service takes. It is stored in the inbox in this form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The text in the markup of the service.
    #[serde(default)]
    pub markup: String,
    /// The same text without markup, for services that take both, and for markup that the service rejects.
    #[serde(default)]
    pub plain: String,
    /// A file to send; the text is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Files that go along with the text, where the service takes both in one message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<PathBuf>,
    /// The id of the question about a call that the text puts: buttons that answer it stand below it, where the service has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

/// The sender of a message that was not written by a turn of the chat's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSource {
    /// A phrase, such as "job `digest`".
    pub name: String,
    /// The origin of the text.
    pub origin: Origin,
    /// The job whose answer it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<SourceJob>,
}

/// The job that has sent a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceJob {
    pub id: String,
    /// Its text, if it is removed after its run: a snoozed reminder repeats it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The time after which a service takes requests again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate limit of {} s", .0.as_secs())]
pub struct RateLimit(pub Duration);

/// The result of an exchange with a service.
pub type ChannelResult<T> = Result<T, ChannelError>;

/// The failure of an exchange with a service.
///
/// It converts into the error of a run by `?`, with its status, and with the [`RateLimit`] of a rate limit. It does not
/// implement [`std::error::Error`], since such errors convert without a status.
#[derive(Debug)]
pub enum ChannelError {
    /// A rate limit that is longer than the adapter waits: status 75. The message waits in the journal.
    RateLimited(RateLimit, String),
    /// The service is down after all tries, or the connection broke: status 69. The part may have been sent.
    Unavailable(String),
    /// The service rejects our token: status 77. The message waits in the journal.
    TokenRejected(String),
    /// The recipient has blocked us, or does not accept messages: status 77. It is given up.
    RecipientRefused(String),
    /// The chat does not exist, or the part cannot be made to fit: status 65. It is given up.
    Undeliverable(String),
    /// The config cannot work: status 78. The message waits in the journal.
    Misconfigured(String),
    /// The run was cancelled, or a file cannot be read.
    Other(anyhow::Error),
}

/// The wait after a rate limit if the service names none.
const UNNAMED_RATE_LIMIT_DELAY: Duration = Duration::from_secs(60);

impl ChannelError {
    /// A rate limit without a wait named by the service.
    fn rate_limited(cause: String) -> Self {
        Self::RateLimited(RateLimit(UNNAMED_RATE_LIMIT_DELAY), cause)
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RateLimited(limit, cause) => write!(formatter, "{limit}: {cause}"),
            Self::Unavailable(cause)
            | Self::TokenRejected(cause)
            | Self::RecipientRefused(cause)
            | Self::Undeliverable(cause)
            | Self::Misconfigured(cause) => formatter.write_str(cause),
            Self::Other(error) => error.fmt(formatter),
        }
    }
}

impl From<anyhow::Error> for ChannelError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<ChannelError> for anyhow::Error {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::RateLimited(limit, cause) => fail(Exit::TryAgain, cause).context(limit),
            ChannelError::Unavailable(cause) => fail(Exit::Unavailable, cause),
            ChannelError::TokenRejected(cause) | ChannelError::RecipientRefused(cause) => {
                fail(Exit::Refused, cause)
            }
            ChannelError::Undeliverable(cause) => fail(Exit::BadInput, cause),
            ChannelError::Misconfigured(cause) => fail(Exit::Config, cause),
            ChannelError::Other(error) => error,
        }
    }
}
