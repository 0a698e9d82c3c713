//! Telegram, through the Bot API (<https://core.telegram.org/bots/api>).
//!
//! `getUpdates` is called with the position after the last update, which confirms all updates before it; an update that
//! is not confirmed within a day is lost at the service. The service recognises no repetition: a part that is sent while the
//! process is killed is sent again. If two polls use one token, the service ends one of them with status 409. The
//! token is a part of the address, so errors name the method only.

mod api;
mod update;

use super::press::BUTTONS;
use super::service_client::MAX_SERVICE_TIMEOUT;
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    AttachmentKind, Batch, Channel, ChannelResult, Chat, Destination, Identity, InboundMessage,
    LoginDialog, LoginOutcome, MenuCommand, Part, PollRequest, RemoteFile,
};
use anyhow::Result;
use api::{Api, ApiError, ApiRefusal};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Updates of one response; the service's maximum.
const MAX_UPDATES: usize = 100;
/// Time in which the messages of an album arrive.
const ALBUM_DELAY: Duration = Duration::from_secs(1);
/// Largest file that a bot can download (Bot API, `getFile`).
const MAX_DOWNLOAD_BYTES: u64 = 20_000_000;

/// Largest upload (Bot API, "Sending files").
const MAX_UPLOAD_BYTES: u64 = 50_000_000;
/// Largest photo; a larger image is sent as a document.
const MAX_PHOTO_BYTES: usize = 10_000_000;

struct Telegram {
    api: Api,
    quotes_answered_message: bool,
    reaction: Option<String>,
}

/// Opens the channel.
///
/// # Errors
/// Status 78 without a token, or with an unusable address or proxy.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let quotes_answered_message = config.flag("replyToMessage");
    let reaction = config.text("reactEmoji");
    Ok(Box::new(Telegram { api: Api::new(setup)?, quotes_answered_message, reaction }))
}

impl Channel for Telegram {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { identity, cursor, wait, store_batch, move_chat, .. } = request;
        let mut offset = cursor.and_then(Value::as_i64).unwrap_or(0);
        let mut wait = wait.min(MAX_SERVICE_TIMEOUT);
        loop {
            let mut updates = self.api.updates(offset, wait, MAX_UPDATES)?;
            if updates.iter().any(|update| update::album_of(update).is_some()) {
                // The rest of the album follows within a second. A request with the same offset confirms no update.
                self.api.client.pause(ALBUM_DELAY)?;
                updates = self.api.updates(offset, Duration::ZERO, MAX_UPDATES)?;
            }
            // After a full response there is another one, which needs no wait.
            let is_full = updates.len() >= MAX_UPDATES;
            if is_full && let Some(album) = updates.last().and_then(update::album_of) {
                // The next response may have the rest of the last album.
                let is_of_last = |update: &Value| update::album_of(update) == Some(album);
                let start = updates.iter().position(is_of_last);
                if let Some(start) = start.filter(|start| *start > 0) {
                    updates.truncate(start);
                }
            }
            let ids = updates.iter().filter_map(|update| update["update_id"].as_i64());
            let Some(last) = ids.max() else {
                return Ok(());
            };
            offset = last + 1;
            update::moved_chats(&updates).iter().try_for_each(move_chat)?;
            store_batch(Batch {
                messages: update::to_messages(&updates, identity),
                cursor: offset.into(),
            })?;
            // The client of the person who has pressed waits for this.
            for id in updates.iter().filter_map(|update| update["callback_query"]["id"].as_str()) {
                self.api.notify("answerCallbackQuery", &json!({ "callback_query_id": id }));
            }
            if !is_full {
                return Ok(());
            }
            wait = Duration::ZERO;
        }
    }

    fn send(&self, destination: &Destination, part: &Part, _key: &str) -> ChannelResult<String> {
        let result = match &part.file {
            Some(path) => self.send_file(destination, &UploadFile::read(path, MAX_UPLOAD_BYTES)?),
            None => self.send_text(destination, part),
        };
        let message = result?;
        let id = message["message_id"].as_i64();
        id.map(|id| id.to_string()).ok_or_else(|| self.api.client.unexpected_response())
    }

    fn edit(&self, destination: &Destination, id: &str, part: &Part) -> ChannelResult<()> {
        let body = json!({ "chat_id": number(&destination.chat.id), "message_id": number(id) });
        match self.write_text("editMessageText", body, part) {
            Err(ApiError::Refused(refusal)) if refusal.is_about_unchanged_text() => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        if file.size_bytes.is_some_and(|size| size > MAX_DOWNLOAD_BYTES) {
            return Ok(false);
        }
        let response = self.api.call("getFile", &json!({ "file_id": file.id }))?;
        let path = response["file_path"].as_str().unwrap_or_default();
        self.api.download(path, writer, limit_bytes)
    }

    fn show_typing(&self, destination: &Destination) {
        let mut body = address(destination);
        body["action"] = "typing".into();
        self.api.notify("sendChatAction", &body);
    }

    fn mark_answered(&self, message: &InboundMessage) {
        if let Some(emoji) = &self.reaction {
            let body = json!({
                "chat_id": message.chat.id,
                "message_id": message.reply_facts["message_id"],
                "reaction": [{ "type": "emoji", "emoji": emoji }],
            });
            self.api.notify("setMessageReaction", &body);
        }
    }

    fn identity(&self) -> Result<Identity> {
        let bot = self.api.call("getMe", &json!({}))?;
        let id = bot["id"].as_i64();
        let id = id.ok_or_else(|| self.api.client.unexpected_response())?;
        Ok(Identity {
            id: id.to_string(),
            name: bot["username"].as_str().unwrap_or_default().to_owned(),
        })
    }

    fn login(&self, dialog: &mut dyn LoginDialog) -> Result<LoginOutcome> {
        let Identity { id, name } = self.identity()?;
        let commands = dialog.commands().into_iter().map(|MenuCommand { name, description }| {
            json!({ "command": name, "description": description })
        });
        let commands: Vec<Value> = commands.collect();
        self.api.call("setMyCommands", &json!({ "commands": commands }))?;
        Ok(LoginOutcome::of_message(format!("@{name} ({id}); the command menu is set")))
    }
}

impl Telegram {
    fn send_text(&self, destination: &Destination, part: &Part) -> Result<Value, ApiError> {
        let mut body = self.message_body(destination);
        if let Some(question) = &part.question {
            let buttons = BUTTONS.iter().map(
                |button| json!({ "text": button.label, "callback_data": button.payload(question) }),
            );
            body["reply_markup"] = json!({ "inline_keyboard": [buttons.collect::<Vec<_>>()] });
        }
        self.write_text("sendMessage", body, part)
    }

    /// Calls a method with a text and its markup. Markup that the service cannot parse is sent as plain text.
    fn write_text(&self, method: &str, mut body: Value, part: &Part) -> Result<Value, ApiError> {
        body["link_preview_options"] = json!({ "is_disabled": true });
        let mut plain = body.clone();
        body["text"] = part.markup.clone().into();
        body["parse_mode"] = "HTML".into();
        match self.send_message(method, body) {
            Err(ApiError::Refused(refusal)) if refusal.is_about_markup() => {
                plain["text"] = part.plain.clone().into();
                self.send_message(method, plain)
            }
            other => other,
        }
    }

    /// Calls a send method. A group that became a supergroup has another id, which the service names.
    fn send_message(&self, method: &str, mut body: Value) -> Result<Value, ApiError> {
        match self.api.call(method, &body) {
            Err(ApiError::Refused(ApiRefusal { migrated_to: Some(chat), .. })) => {
                body["chat_id"] = chat.into();
                self.api.call(method, &body)
            }
            other => other,
        }
    }

    fn send_file(&self, destination: &Destination, file: &UploadFile) -> Result<Value, ApiError> {
        let (method, field) = match file.media_type() {
            (AttachmentKind::Image, _) if file.bytes.len() <= MAX_PHOTO_BYTES => {
                ("sendPhoto", "photo")
            }
            (AttachmentKind::Voice, _) => ("sendVoice", "voice"),
            (AttachmentKind::Audio, _) => ("sendAudio", "audio"),
            (AttachmentKind::Video, _) => ("sendVideo", "video"),
            (AttachmentKind::Image | AttachmentKind::File, _) => ("sendDocument", "document"),
        };
        let body = self.message_body(destination);
        self.api.upload(method, field, &body, file)
    }

    /// The members that every send method has.
    fn message_body(&self, destination: &Destination) -> Value {
        let mut body = address(destination);
        let answered_id = &destination.reply_facts["message_id"];
        let is_group = !destination.chat.is_direct;
        if (self.quotes_answered_message || is_group) && answered_id.is_number() {
            body["reply_parameters"] =
                json!({ "message_id": answered_id, "allow_sending_without_reply": true });
        }
        body
    }
}

/// The chat and the topic of a destination, as methods take them.
fn address(destination: &Destination) -> Value {
    let Chat { id, thread, .. } = &destination.chat;
    let mut body = json!({ "chat_id": number(id) });
    if let Some(thread) = thread {
        body["message_thread_id"] = number(thread);
    }
    body
}

/// The number that a text is, or else the text: a chat may have a name.
fn number(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let identity = Identity { id: "99".into(), name: "bot".into() };
    update::to_messages(std::slice::from_ref(value), &identity).pop()
}
