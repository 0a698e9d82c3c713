//! Slack, through its Web API (<https://docs.slack.dev/apis/web-api>), and Socket Mode for events.
//!
//! Conversations are read by their history: the roots of threads in it say which have new replies. An event only names
//! the conversation, so it is acknowledged at once. A message that may have been sent already is searched for by its
//! metadata.

mod api;
mod mention;
mod message;
mod press;

use super::access::AccessRules;
use super::conversation_poll::{
    self, Conversation, ConversationEntry, ConversationService, EventListener, ServiceEvent,
};
use super::dialect::{self, Dialect};
use super::service_client::{ServiceClient, ServiceRequest, next_json, to_channel_error};
use super::setup::ChannelSetup;
use super::thread_context::{ThreadMessage, context_quotes, context_thread, max_context_messages};
use super::upload::UploadFile;
use super::{
    Channel, ChannelError, ChannelResult, Chat, Destination, Identity, InboundMessage, Part,
    PollRequest, RemoteFile, WebhookReceipt,
};
use anyhow::Result;
use api::WebApi;
use mention::without_mentions;
use message::{MessageReader, position_of, stamp_of};
use nanobot_base::error::{Exit, fail};
use nanobot_base::json_text::items;
use nanobot_net::http::WebSocket;
use nanobot_net::webhook_request::{WebhookRequest, WebhookResponse, is_signed};
use nanobot_os::clock::Clock;
use nanobot_os::secret::Secret;
use parking_lot::Mutex;
use press::{to_blocks, to_press};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use url::form_urlencoded;

/// The time for which the list of conversations is kept, in seconds.
const LIST_LIFETIME_SECS: i64 = 60;
/// The age after which a webhook request is rejected as a repeated one.
const MAX_REQUEST_AGE_SECS: i64 = 300;
/// Largest upload.
const MAX_UPLOAD_BYTES: u64 = 50_000_000;
/// The type of the metadata of our messages.
const METADATA_TYPE: &str = "nanobot_part";

struct Slack {
    api: WebApi,
    /// The API for Socket Mode, if it is used.
    app_api: Option<WebApi>,
    /// The key of the signatures of webhook requests.
    signing_secret: Option<Secret>,
    access: AccessRules,
    clock: Clock,
    settings: SlackSettings,
    events: EventListener<WebSocket>,
    /// Threads with new messages, as events have reported them: the conversation and the root.
    event_threads: Mutex<BTreeSet<(String, String)>>,
    /// The messages with the reaction for work in progress.
    reacted: Mutex<BTreeSet<(String, String)>>,
}

/// Keys of the config.
struct SlackSettings {
    replies_in_thread: bool,
    requires_mention: bool,
    max_context_messages: usize,
    react_emoji: Option<String>,
    done_emoji: Option<String>,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let bot_token = config.required_secret("botToken")?;
    let is_socket = config.text("mode").as_deref() == Some("socket");
    let app_token = if is_socket { config.secret("appToken")? } else { None };
    let app_api = app_token.map(|token| WebApi::new(setup, "appToken", token));
    let emoji = |key| {
        let name = config.text(key)?;
        Some(name.trim_matches(':').to_owned())
    };
    let settings = SlackSettings {
        replies_in_thread: config.flag("replyInThread"),
        requires_mention: config.flag("groupRequireMention"),
        max_context_messages: max_context_messages(config),
        react_emoji: emoji("reactEmoji"),
        done_emoji: emoji("doneEmoji"),
    };
    Ok(Box::new(Slack {
        api: WebApi::new(setup, "botToken", bot_token)?,
        app_api: app_api.transpose()?,
        signing_secret: config.secret("signingSecret")?.cloned(),
        access: setup.access.clone(),
        clock: setup.clock.clone(),
        settings,
        events: EventListener::default(),
        event_threads: Mutex::default(),
        reacted: Mutex::default(),
    }))
}

impl ConversationService for Slack {
    const OVERLAP: u64 = 0;
    /// Each read asks for the history of every conversation, and an app may do so 50 times in a minute (Slack, "Rate limits", tier 3).
    const READ_INTERVAL: Duration = Duration::from_secs(15);
    type Connection = WebSocket;

    fn conversations(&self, cache: &mut Value) -> ChannelResult<Vec<Conversation>> {
        let now = self.clock.timestamp().as_second();
        let age = now - cache["listed_at"].as_i64().unwrap_or_default();
        if !(0..LIST_LIFETIME_SECS).contains(&age) {
            let types = "im,mpim,public_channel,private_channel";
            let arguments = [("types", types), ("exclude_archived", "true")];
            let channels =
                self.api.read_pages("users.conversations", &arguments, "channels", &|_| false)?;
            let ids = |is_direct: bool| -> Vec<&Value> {
                let is_match = |channel: &&Value| (channel["is_im"] == true) == is_direct;
                channels.iter().filter(is_match).map(|channel| &channel["id"]).collect()
            };
            *cache = json!({ "listed_at": now, "direct": ids(true), "channels": ids(false) });
        }
        let conversations = [("direct", true), ("channels", false)].map(|(member, is_direct)| {
            let ids = items(&cache[member]).filter_map(Value::as_str);
            ids.map(move |id| Conversation { id: id.to_owned(), is_direct, newest: None })
        });
        Ok(conversations.into_iter().flatten().collect())
    }

    fn newest(&self, conversation: &Conversation) -> ChannelResult<u64> {
        let arguments = [("channel", conversation.id.as_str()), ("limit", "1")];
        let history = match self.api.read("conversations.history", &arguments) {
            Ok(history) => history,
            // We may have been removed from it since it was listed.
            Err(ChannelError::Undeliverable(_)) => return Ok(0),
            Err(error) => return Err(error),
        };
        Ok(position_of(&history["messages"][0]["ts"]))
    }

    fn entries_after(
        &self,
        identity: &Identity,
        conversation: &Conversation,
        position: u64,
    ) -> ChannelResult<Vec<ConversationEntry>> {
        let threads = self.take_event_threads(&conversation.id);
        let result = self.read_entries(identity, conversation, position, &threads);
        let is_final = matches!(
            result,
            Ok(_) | Err(ChannelError::RecipientRefused(_) | ChannelError::Undeliverable(_))
        );
        if !is_final {
            // The read is repeated. The roots of these threads may be too old to show that they have new replies.
            let threads = threads.into_iter().map(|thread| (conversation.id.clone(), thread));
            self.event_threads.lock().extend(threads);
        }
        result
    }

    fn connect(&self, _cache: &mut Value) -> ChannelResult<Option<WebSocket>> {
        let Some(api) = &self.app_api else {
            return Ok(None);
        };
        let response = api.write("apps.connections.open", &json!({}))?;
        let url = api.client.own_socket(&response["url"])?;
        api.client.open_websocket(url).map(Some)
    }

    fn next_event(
        &self,
        socket: &mut WebSocket,
        _cache: &mut Value,
        identity: &Identity,
        end: Duration,
    ) -> ChannelResult<Option<ServiceEvent>> {
        while let Some(envelope) = next_json(socket, end)? {
            if envelope["type"] == "disconnect" {
                let cause = "the service asks for a new connection";
                return Err(ChannelError::Unavailable(cause.to_owned()));
            }
            let acknowledgement = json!({ "envelope_id": envelope["envelope_id"] });
            if let Some(message) = to_press(&envelope["payload"]) {
                let message = Box::new(message);
                return Ok(Some(ServiceEvent::Press { message, acknowledgement }));
            }
            if envelope["envelope_id"].is_string() {
                socket.send(&acknowledgement.to_string()).map_err(to_channel_error)?;
            }
            let event = &envelope["payload"]["event"];
            if let Some(message) = message::to_edit(event, identity) {
                return Ok(Some(ServiceEvent::Edit(Box::new(message))));
            }
            if let Some((conversation, thread)) = message::conversation_of(event, identity) {
                let thread = thread.map(|thread| (conversation.id.clone(), thread));
                self.event_threads.lock().extend(thread);
                return Ok(Some(ServiceEvent::Messages(conversation)));
            }
        }
        Ok(None)
    }

    fn acknowledge(&self, socket: &mut WebSocket, acknowledgement: &Value) {
        if let Err(error) = socket.send(&acknowledgement.to_string()) {
            log::debug!(target: "channel", "slack: a press was not acknowledged: {error:#}");
        }
    }

    fn client(&self) -> &ServiceClient {
        &self.api.client
    }
}

impl Channel for Slack {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        conversation_poll::poll(self, &self.events, request)
    }

    /// Events only name the conversation, so a poll does the rest. A press has all that is needed.
    fn receive(&self, request: &WebhookRequest) -> Result<WebhookReceipt> {
        let Some(secret) = &self.signing_secret else {
            let cause = "`channels.slack.signingSecret` is not set";
            return Err(fail(Exit::Config, cause));
        };
        let refused = || Ok(WebhookReceipt::empty(401));
        let sent_at = request.header("x-slack-request-timestamp");
        let Some(sent_at) = sent_at.and_then(|text| text.parse::<i64>().ok()) else {
            return refused();
        };
        let age = self.clock.timestamp().as_second().saturating_sub(sent_at);
        let message = [format!("v0:{sent_at}:").as_bytes(), &request.body].concat();
        let signature = request.header("x-slack-signature").unwrap_or_default();
        let signature = signature.strip_prefix("v0=").unwrap_or_default();
        let is_recent = age.abs() <= MAX_REQUEST_AGE_SECS;
        if !is_signed(secret.expose(), &message, signature) || !is_recent {
            return refused();
        }
        // The payload of a press is the field of a form (Slack, "Handling user interaction"). An event is JSON, and its texts are of
        // anyone: one that holds such a field is no form.
        let mut fields = form_urlencoded::parse(&request.body);
        if request.body.starts_with(b"payload=")
            && let Some((_, payload)) = fields.next()
        {
            let payload = serde_json::from_str(&payload).unwrap_or_default();
            return Ok(WebhookReceipt {
                messages: to_press(&payload).into_iter().collect(),
                ..WebhookReceipt::empty(200)
            });
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let challenge = if body["type"] == "url_verification" {
            body["challenge"].as_str().unwrap_or_default()
        } else {
            ""
        };
        let response = WebhookResponse { status: 200, body: challenge.to_owned() };
        Ok(WebhookReceipt {
            is_for_poll: body["type"] == "event_callback",
            ..WebhookReceipt::without_messages(response)
        })
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let Chat { id, thread, .. } = &destination.chat;
        let channel = self.channel_of(id)?;
        if let Some(file) = &part.file {
            return self.upload(&channel, thread.as_deref(), file);
        }
        let mut body = json!({
            "channel": channel, "unfurl_links": false, "unfurl_media": false,
            "metadata": { "event_type": METADATA_TYPE, "event_payload": { "key": key } },
        });
        if let Some(thread) = thread {
            body["thread_ts"] = thread.as_str().into();
        }
        let mut mrkdwn_body = body.clone();
        let markdown = without_mentions(&part.markup);
        let question = part.question.as_deref().filter(|_| self.hears_presses());
        if question.is_some() {
            body["blocks"] = to_blocks(&markdown, question);
            body["text"] = to_mrkdwn(&markdown).into();
        } else {
            body["markdown_text"] = markdown.as_str().into();
        }
        let message = match self.api.write("chat.postMessage", &body) {
            // A service without these arguments takes mrkdwn.
            Err(ChannelError::Undeliverable(cause))
                if ["no_text", "invalid_arguments", "invalid_blocks"].contains(&&*cause) =>
            {
                mrkdwn_body["text"] = to_mrkdwn(&markdown).into();
                self.api.write("chat.postMessage", &mrkdwn_body)
            }
            other => other,
        };
        self.api.client.text_of(&message?["ts"])
    }

    fn edit(&self, destination: &Destination, id: &str, part: &Part) -> ChannelResult<()> {
        let channel = self.channel_of(&destination.chat.id)?;
        let markdown = without_mentions(&part.markup);
        let no_question = None;
        let body = json!({
            "channel": channel, "ts": id, "text": to_mrkdwn(&markdown),
            "blocks": to_blocks(&markdown, no_question),
        });
        self.api.write("chat.update", &body).map(drop)
    }

    fn find_sent(&self, destination: &Destination, key: &str) -> ChannelResult<Option<String>> {
        let Chat { id, thread, .. } = &destination.chat;
        let channel = self.channel_of(id)?;
        let mut arguments = vec![("channel", channel.as_str()), ("include_all_metadata", "true")];
        let method = match thread {
            Some(thread) => {
                arguments.push(("ts", thread));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        // A history begins with the newest messages, so its first page is enough. A thread ends with them.
        let is_enough = |_: &[Value]| thread.is_none();
        let messages = match self.api.read_pages(method, &arguments, "messages", &is_enough) {
            Ok(messages) => messages,
            // The attempt to send reports the cause.
            Err(ChannelError::Undeliverable(_) | ChannelError::Misconfigured(_)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_sent = |message: &&Value| {
            let metadata = &message["metadata"];
            metadata["event_type"] == METADATA_TYPE && metadata["event_payload"]["key"] == key
        };
        let sent = messages.iter().find(is_sent);
        Ok(sent.and_then(|sent| Some(sent["ts"].as_str()?.to_owned())))
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let mut content = Vec::new();
        let client = &self.api.client;
        let is_complete = client.download_own("Slack", &file.id, &mut content, limit_bytes)?;
        // Slack sends its login page instead of a file that the token may not read.
        let is_page = content.trim_ascii_start().starts_with(b"<!DOCTYPE html");
        if is_page && !file.name.ends_with(".html") {
            let cause = "the app cannot read files: it needs the scope `files:read`";
            return Err(fail(Exit::Config, cause));
        }
        writer.write_all(&content)?;
        Ok(is_complete)
    }

    /// A reaction, since bots cannot show that they type.
    fn show_typing(&self, destination: &Destination) {
        let chat = &destination.chat.id;
        let stamp = destination.reply_facts["ts"].as_str();
        if let (Some(emoji), Some(stamp)) = (&self.settings.react_emoji, stamp) {
            let message = (chat.clone(), stamp.to_owned());
            let is_new = self.reacted.lock().insert(message);
            if is_new {
                self.react("reactions.add", chat, stamp, emoji);
            }
        }
    }

    fn mark_answered(&self, message: &InboundMessage) {
        let chat = &message.chat.id;
        let stamp = message.reply_facts["ts"].as_str().unwrap_or_default();
        let reacted = (chat.clone(), stamp.to_owned());
        let is_shown = self.reacted.lock().remove(&reacted);
        if let Some(emoji) = &self.settings.done_emoji {
            if is_shown && let Some(reaction) = &self.settings.react_emoji {
                self.react("reactions.remove", chat, stamp, reaction);
            }
            self.react("reactions.add", chat, stamp, emoji);
        }
    }

    fn identity(&self) -> Result<Identity> {
        let response = self.api.write("auth.test", &json!({}))?;
        Ok(self.api.client.identity_of(&response["user_id"], &response["user"])?)
    }
}

impl Slack {
    /// True if the service can tell us of a press.
    fn hears_presses(&self) -> bool {
        self.app_api.is_some() || self.signing_secret.is_some()
    }

    /// Takes the threads of a conversation that events have reported since the last read.
    fn take_event_threads(&self, channel: &str) -> BTreeSet<String> {
        let mut event_threads = self.event_threads.lock();
        let reported = event_threads.extract_if(.., |(conversation, _)| conversation == channel);
        reported.map(|(_, thread)| thread).collect()
    }

    /// Reads the entries after a position. `event_threads` are read too, however old their roots are.
    fn read_entries(
        &self,
        identity: &Identity,
        conversation: &Conversation,
        position: u64,
        event_threads: &BTreeSet<String>,
    ) -> ChannelResult<Vec<ConversationEntry>> {
        let messages = self.messages_after(&conversation.id, position, event_threads)?;
        let reader = MessageReader {
            identity,
            conversation,
            replies_in_thread: self.settings.replies_in_thread,
            requires_mention: self.settings.requires_mention,
        };
        let entries = messages.iter().map(|message| reader.to_entry(message));
        let mut entries: Vec<ConversationEntry> = entries.collect();
        for entry in &mut entries {
            if let Some(message) = &mut entry.message {
                self.add_context(identity, &entry.id, message)?;
            }
        }
        Ok(entries)
    }

    /// The messages of a conversation after a position, with those of its threads: of `event_threads`, and of those whose root
    /// says that they have new replies. In order.
    fn messages_after(
        &self,
        channel: &str,
        position: u64,
        event_threads: &BTreeSet<String>,
    ) -> ChannelResult<Vec<Value>> {
        let arguments = [("channel", channel)];
        // The newest come first. A page is read even if it has nothing new, for the roots of threads in it.
        let is_enough = |page: &[Value]| {
            let oldest = page.last().map(|message| position_of(&message["ts"]));
            oldest.is_none_or(|oldest| oldest <= position)
        };
        let mut messages =
            self.api.read_pages("conversations.history", &arguments, "messages", &is_enough)?;
        let is_new = |message: &Value| position_of(&message["ts"]) > position;
        let has_new_replies = |message: &&Value| position_of(&message["latest_reply"]) > position;
        let roots = messages.iter().filter(has_new_replies);
        let mut threads: BTreeSet<String> =
            roots.filter_map(|root| root["ts"].as_str().map(str::to_owned)).collect();
        threads.extend(event_threads.iter().cloned());
        messages.retain(is_new);
        let oldest = stamp_of(position);
        for thread in threads {
            let arguments =
                [("channel", channel), ("ts", thread.as_str()), ("oldest", oldest.as_str())];
            let replies =
                self.api.read_pages("conversations.replies", &arguments, "messages", &|_| false)?;
            // The root comes with them.
            let replies = replies.into_iter().filter(|reply| reply["ts"] != thread);
            messages.extend(replies.filter(is_new));
        }
        messages.sort_by_key(|message| position_of(&message["ts"]));
        messages.dedup_by(|left, right| left["ts"] == right["ts"]);
        Ok(messages)
    }

    /// Adds the messages of other users in the thread of a message since our last message in it.
    fn add_context(
        &self,
        identity: &Identity,
        stamp: &str,
        message: &mut InboundMessage,
    ) -> ChannelResult<()> {
        let max_messages = self.settings.max_context_messages;
        let Some(root) = context_thread(message, stamp, &self.access).filter(|_| max_messages > 0)
        else {
            return Ok(());
        };
        let arguments =
            [("channel", message.chat.id.as_str()), ("ts", root.as_str()), ("latest", stamp)];
        let thread =
            self.api.read_pages("conversations.replies", &arguments, "messages", &|_| false)?;
        let others = thread.iter().filter(|other| other["ts"] != stamp);
        let others = others.map(|other| ThreadMessage {
            id: other["ts"].as_str().unwrap_or_default().to_owned(),
            is_own: other["user"] == identity.id.as_str(),
            text: message::to_plain(other["text"].as_str().unwrap_or_default()),
        });
        message.quotes = context_quotes(others, max_messages);
        Ok(())
    }

    /// The channel of a recipient, who may be a user.
    fn channel_of(&self, recipient: &str) -> ChannelResult<String> {
        if !recipient.starts_with(['U', 'W']) {
            return Ok(recipient.to_owned());
        }
        let response = self.api.write("conversations.open", &json!({ "users": recipient }))?;
        self.api.client.text_of(&response["channel"]["id"])
    }

    /// Uploads a file into a conversation; returns its id.
    fn upload(&self, channel: &str, thread: Option<&str>, path: &Path) -> ChannelResult<String> {
        let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
        let length = file.bytes.len().to_string();
        let arguments = [("filename", file.name.as_str()), ("length", &length)];
        let response = self.api.read("files.getUploadURLExternal", &arguments)?;
        let text = |name: &str| response[name].as_str().unwrap_or_default();
        let (url, id) = (text("upload_url"), text("file_id"));
        if !self.api.client.owns(url) {
            return Err(self.api.client.unexpected_response());
        }
        let (_, media_type) = file.media_type();
        let request = ServiceRequest::post(url).body(media_type, &file.bytes);
        let upload_response = self.api.client.request(&request)?;
        if !upload_response.is_success() {
            return Err(ChannelError::Undeliverable(upload_response.describe()));
        }
        let mut body =
            json!({ "files": [{ "id": id, "title": file.name }], "channel_id": channel });
        if let Some(thread) = thread {
            body["thread_ts"] = thread.into();
        }
        self.api.write("files.completeUploadExternal", &body)?;
        Ok(id.to_owned())
    }

    fn react(&self, method: &str, channel: &str, stamp: &str, emoji: &str) {
        let body = json!({ "channel": channel, "timestamp": stamp, "name": emoji });
        self.api.client.notify(&format!("/{method}"), &body);
    }
}

/// Converts Markdown to the form of `text`.
fn to_mrkdwn(markdown: &str) -> String {
    let parts = dialect::render(markdown, Dialect::SlackText).into_iter();
    parts.map(|part| part.markup).collect::<Vec<_>>().join("\n")
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let identity = Identity { id: "UBOT".into(), name: "bot".into() };
    let conversation = Conversation { id: "D1".into(), is_direct: true, newest: None };
    let reader = MessageReader {
        identity: &identity,
        conversation: &conversation,
        replies_in_thread: false,
        requires_mention: false,
    };
    reader.to_entry(value).message
}
