//! ntfy: a topic to read, and a topic for answers (<https://docs.ntfy.sh/subscribe/api>).
//!
//! A message has no sender. Everything in the topic is treated as written by the user, so the config must have
//! `allowFrom: ["*"]` and an access token. Answers in the same topic carry a tag by which we skip them.

use super::service_client::{MAX_SERVICE_TIMEOUT, ServiceClient, ServiceRequest, ServiceResponse};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    AttachmentKind, Batch, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, Part, PollRequest, RemoteFile, Sender,
};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, Stop, WithHint, fail};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_net::http::body_error_message;
use nanobot_os::signal;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// The tag of our own messages.
const OWN_TAG: &str = "nanobot";

/// Maximum characters of a topic's name.
const MAX_TOPIC_CHARS: usize = 64;

/// The pause before a stream that broke off is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Maximum bytes of an attachment, with the default settings of the server.
const MAX_UPLOAD_BYTES: u64 = 15_000_000;

const MEDIA_TYPE: &str = "text/plain; charset=utf-8";

/// Maximum bytes of one line of a stream. A message has at most 4,096.
const MAX_LINE_BYTES: usize = 256 << 10;

struct Ntfy {
    client: ServiceClient,
    topic: String,
    answer_topic: String,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let topic = config.required_text("topic", "TOPIC")?;
    let token = config.required_secret("token")?;
    if !config.list("allowFrom").iter().any(|entry| entry == "*") {
        return Err(fail(Exit::Config, "ntfy does not tell who sends a message, and `channels.ntfy.allowFrom` does not contain `*`")
            .with_hint("`nanobot config set channels.ntfy.allowFrom '[\"*\"]'`"));
    }
    let answer_topic = config.text("answerTopic").unwrap_or_else(|| topic.clone());
    for topic in [&topic, &answer_topic] {
        if !is_topic(topic) {
            let cause = format!("`{topic}` is not a valid topic of ntfy");
            return Err(fail(Exit::Config, cause));
        }
    }
    let client = ServiceClient::new(setup, "server", "token")?;
    let client = client.with_bearer(token);
    Ok(Box::new(Ntfy { client, topic, answer_topic }))
}

impl Channel for Ntfy {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { cursor, wait, store_batch, .. } = request;
        let wait = wait.min(MAX_SERVICE_TIMEOUT);
        let end = signal::now() + wait;
        let Some(since) = cursor.and_then(|cursor| cursor["since"].as_str()) else {
            // Everything that the server still has is from before the first contact.
            let last = self.cached("all", wait)?.last().map(|line| line["id"].clone());
            let cursor = json!({ "since": last.unwrap_or_else(|| json!("all")) });
            return store_batch(Batch { messages: Vec::new(), cursor });
        };
        let lines = self.cached(since, wait)?;
        if !lines.is_empty() {
            return self.store_lines(&lines, store_batch);
        }
        while signal::now() < end {
            let lines = self.stream(since, end)?;
            if !lines.is_empty() {
                return self.store_lines(&lines, store_batch);
            }
            if signal::now() + RECONNECT_PAUSE < end {
                self.client.pause(RECONNECT_PAUSE)?;
            } else {
                break;
            }
        }
        Ok(())
    }

    fn send(&self, destination: &Destination, part: &Part, _key: &str) -> ChannelResult<String> {
        let topic = if destination.chat.id == self.topic {
            &self.answer_topic
        } else {
            &destination.chat.id
        };
        if !is_topic(topic) {
            let cause = format!("`{topic}` is not a valid topic of ntfy");
            return Err(ChannelError::Undeliverable(cause));
        }
        let path = format!("/{topic}");
        let mut request = ServiceRequest::post(&path).once();
        if *topic == self.topic {
            request = request.header("x-tags", OWN_TAG);
        }
        let request = match &part.file {
            Some(path) => {
                let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
                let request = request.header("x-filename", encode_header(&file.name));
                request.body(MEDIA_TYPE, file.bytes)
            }
            None => request.body(MEDIA_TYPE, part.markup.as_bytes()),
        };
        let response = self.client.request(&request)?;
        match response.status {
            200 => self.client.text_of(&response.json()["id"]),
            403 => Err(ChannelError::TokenRejected(response.describe())),
            _ => Err(ChannelError::Undeliverable(response.describe())),
        }
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        if !self.client.owns(&file.id) {
            let cause = "the attachment is not on the server `channels.ntfy.server`";
            return Err(fail(Exit::Refused, cause));
        }
        self.client.download(&file.id, writer, limit_bytes)
    }

    fn identity(&self) -> Result<Identity> {
        self.cached("none", Duration::ZERO)?;
        Ok(Identity { id: self.topic.clone(), name: self.topic.clone() })
    }
}

impl Ntfy {
    /// The messages that the server has after `since`, in order, for a poll with this time left.
    fn cached(&self, since: &str, wait: Duration) -> Result<Vec<Value>> {
        let path = self.path(since, "poll=1&");
        let response = self.client.request(&ServiceRequest::get(&path).wait(wait))?;
        check_status(&response)?;
        let lines = response.body.split(|byte| *byte == b'\n');
        let mut messages = Vec::new();
        for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
            let event = parse_event(line).ok_or_else(|| self.client.unexpected_response())?;
            messages.extend(into_message(event));
        }
        Ok(messages)
    }

    /// Waits for messages after `since` until `end`. Empty if none came, or if the stream broke off.
    fn stream(&self, since: &str, end: Duration) -> Result<Vec<Value>> {
        let path = self.path(since, "");
        let wait = end.saturating_sub(signal::now());
        let request = ServiceRequest::get(&path).wait(wait);
        let mut response = match self.client.open(&request) {
            Err(error) if error.is::<Stop>() => return Err(error),
            Ok(response) if response.status == 200 => response,
            // The cached messages are requested instead, with retries.
            Ok(_) | Err(_) => return self.cached(since, wait),
        };
        let (mut pending, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let count = match response.read(&mut buffer, Some(end)) {
                Ok(count) => count,
                Err(_) if signal::now() >= end => 0,
                Err(error) => {
                    signal::check()?;
                    log::warn!(target: "channel", "ntfy: {}", body_error_message(&error));
                    0
                }
            };
            if count == 0 || pending.len() > MAX_LINE_BYTES {
                return Ok(Vec::new());
            }
            pending.extend_from_slice(&buffer[..count]);
            let complete = pending.iter().rposition(|byte| *byte == b'\n');
            let rest = pending.split_off(complete.map_or(0, |last| last + 1));
            let lines = pending.split(|byte| *byte == b'\n');
            let messages: Vec<Value> =
                lines.filter_map(parse_event).filter_map(into_message).collect();
            if !messages.is_empty() {
                return Ok(messages);
            }
            pending = rest;
        }
    }

    fn path(&self, since: &str, options: &str) -> String {
        format!("/{}/json?{options}since={since}", self.topic)
    }

    fn store_lines(
        &self,
        lines: &[Value],
        store_batch: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let Some(last) = lines.last() else {
            return Ok(());
        };
        let is_ours = |line: &&Value| items(&line["tags"]).any(|tag| tag == OWN_TAG);
        let others = lines.iter().filter(|line| !is_ours(line));
        store_batch(Batch {
            messages: others.map(|line| to_message(line, &self.topic)).collect(),
            cursor: json!({ "since": last["id"] }),
        })
    }
}

/// The message of a line.
fn to_message(line: &Value, topic: &str) -> InboundMessage {
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let attachment = &line["attachment"];
    let file = attachment["url"].as_str().map(|url| RemoteFile {
        id: url.to_owned(),
        name: attachment["name"].as_str().unwrap_or_default().to_owned(),
        kind: AttachmentKind::of_media_type(attachment["type"].as_str().unwrap_or_default()),
        size_bytes: attachment["size"].as_u64(),
        seconds: None,
    });
    let mut message = UserText::label(text("title"));
    if !message.is_empty() {
        message.push(&UserText::label("\n"));
    }
    message.push(&UserText::typed(text("message")));
    InboundMessage {
        id: text("id"),
        chat: Chat::new(topic, None, true),
        from: Sender::new(topic, None, false),
        text: message.trimmed(),
        mentions_us: true,
        files: file.into_iter().collect(),
        sent_at: line["time"].as_i64().unwrap_or_default(),
        ..InboundMessage::default()
    }
}

fn check_status(response: &ServiceResponse) -> Result<()> {
    match response.status {
        200 => Ok(()),
        403 => Err(fail(Exit::Refused, response.describe())),
        _ => Err(fail(Exit::Config, response.describe())),
    }
}

/// Returns the event of a line.
fn parse_event(line: &[u8]) -> Option<Value> {
    let line: Value = serde_json::from_slice(line).ok()?;
    line["event"].is_string().then_some(line)
}

/// Returns an event that is a message; `None` for others, such as keepalives.
fn into_message(event: Value) -> Option<Value> {
    (event["event"] == "message" && event["id"].is_string()).then_some(event)
}

/// True if `name` is the name of a topic. It is a part of addresses.
fn is_topic(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    (1..=MAX_TOPIC_CHARS).contains(&name.len()) && name.chars().all(is_allowed)
}

/// Encodes text for a header (RFC 2047).
fn encode_header(text: &str) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        text.to_owned()
    } else {
        format!("=?UTF-8?B?{}?=", STANDARD.encode(text))
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    Some(to_message(value, "topic"))
}
