//! Matrix without encryption (Matrix specification, client-server API).
//!
//! The position is the `next_batch` of `/sync`. A part is sent with its key as the transaction id, by which the server
//! recognises a part that is sent again by the same device. Encrypted rooms cannot be read, and one notice in the room
//! says so, unless `homeserver` is a proxy that decrypts them.

use super::access::{AccessDecision, AccessRules};
use super::pairing::{CODE_LIFETIME_SECS, MAX_PENDING_CODES};
use super::press::BUTTONS;
use super::service_client::{
    Download, MAX_SERVICE_TIMEOUT, ServiceClient, ServiceRequest, ServiceResponse,
};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    Batch, Channel, ChannelError, ChannelResult, Destination, Identity, InboundMessage, Part,
    PollRequest, RemoteFile, object_cursor,
};
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_net::web_url::percent_encode;
use nanobot_os::clock::Clock;
use nanobot_os::signal;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use sync::{RoomEntry, RoomReader, RoomUpdate};

mod sync;

/// The part of `/sync` that is needed. Presence, typing and read marks of others are not.
const SYNC_FILTER: &str = r#"{"presence":{"types":[]},"account_data":{"types":[]},"room":{"timeline":{"limit":50,"lazy_load_members":true},"state":{"types":["m.room.member"],"lazy_load_members":true},"ephemeral":{"types":[]},"account_data":{"types":[]}}}"#;

/// The status of an event that is too large (RFC 9110).
const PAYLOAD_TOO_LARGE: u16 = 413;

/// Messages of a page of a room's history.
const HISTORY_PAGE_MESSAGES: usize = 100;

/// The pause after an empty response that came before the requested wait was over.
const EMPTY_SYNC_PAUSE: Duration = Duration::from_secs(1);

/// Members of a direct chat: the sender and we.
const MAX_DIRECT_MEMBERS: u64 = 2;

/// The time after which the server ends a typing notice.
const TYPING_TIMEOUT: Duration = Duration::from_secs(6);

const ENCRYPTION_NOTICE: &str = "I cannot read this room, because it is encrypted. Please write to me in a room without encryption.";

struct Matrix {
    client: ServiceClient,
    /// Our user id, which is requested once.
    user_id: OnceLock<String>,
    access: AccessRules,
    clock: Clock,
    allows_room_mentions: bool,
    max_media_bytes: u64,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let token = config.required_secret("accessToken")?;
    let client = ServiceClient::new(setup, "homeserver", "accessToken")?;
    Ok(Box::new(Matrix {
        client: client.with_bearer(token),
        user_id: OnceLock::new(),
        access: setup.access.clone(),
        clock: setup.clock.clone(),
        allows_room_mentions: config.flag("allowRoomMentions"),
        max_media_bytes: config.count("maxMediaBytes").unwrap_or(u64::MAX),
    }))
}

impl Channel for Matrix {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { identity, cursor, wait, store_batch, .. } = request;
        self.user_id.get_or_init(|| identity.id.clone());
        let end = signal::now() + wait;
        let mut cursor = object_cursor(cursor, &[]).unwrap_or_else(|| json!({}));
        loop {
            let started_at = signal::now();
            let time_left = end.saturating_sub(started_at).min(MAX_SERVICE_TIMEOUT);
            let since = cursor["since"].as_str().map(str::to_owned);
            let sync = self.sync(since.as_deref(), time_left)?;
            self.join_invited(&sync, &mut cursor)?;
            // The first response only gives the position: its messages were written before we listened.
            let messages = match &since {
                Some(since) => self.read_rooms(&sync, since, &mut cursor, store_batch)?,
                None => Vec::new(),
            };
            let has_messages = !messages.is_empty();
            let is_first = since.is_none();
            let is_moved = sync["next_batch"] != cursor["since"];
            cursor["since"] = sync["next_batch"].clone();
            if is_moved {
                let cursor = cursor.clone();
                store_batch(Batch { messages, cursor })?;
            }
            if has_messages || is_first || signal::now() >= end {
                return Ok(());
            }
            if !is_moved && signal::now() < started_at + time_left {
                let pause = EMPTY_SYNC_PAUSE.min(end.saturating_sub(signal::now()));
                self.client.pause(pause)?;
            }
        }
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let room_id = &destination.chat.id;
        if !room_id.starts_with('!') {
            let cause = format!("`{room_id}` is not a room id: those begin with `!`");
            return Err(ChannelError::Undeliverable(cause));
        }
        let mut content = match &part.file {
            Some(file) => self.upload(file)?,
            None => json!({ "msgtype": "m.text", "body": part.plain }),
        };
        // The text mentions no user, even if it has a user's name.
        content["m.mentions"] = json!({});
        if let Some(thread) = &destination.chat.thread {
            let answered_id = destination.reply_facts["event_id"].as_str().unwrap_or(thread);
            content["m.relates_to"] = json!({
                "rel_type": "m.thread", "event_id": thread, "is_falling_back": true,
                "m.in_reply_to": { "event_id": answered_id },
            });
        }
        let response = if part.file.is_some() {
            self.put_event(room_id, key, &content)?
        } else {
            let mut formatted = content.clone();
            formatted["format"] = json!("org.matrix.custom.html");
            formatted["formatted_body"] = json!(part.markup);
            let response = self.put_event(room_id, key, &formatted)?;
            // An event that is too large is sent without its markup. The server has not taken it, so the key is free.
            if response.status == PAYLOAD_TOO_LARGE {
                self.put_event(room_id, key, &content)?
            } else {
                response
            }
        };
        let event = self.client.read_success(&response)?;
        let id = self.client.text_of(&event["event_id"])?;
        if part.question.is_some() {
            self.offer_reactions(room_id, &id, key);
        }
        Ok(id)
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let media = file.id.strip_prefix("mxc://");
        let Some((server, id)) = media.and_then(|media| media.split_once('/')) else {
            let cause = "the attachment has no `mxc://` address";
            return Err(fail(Exit::BadInput, cause));
        };
        let limit = limit_bytes.min(self.max_media_bytes);
        let media = format!("{}/{}", percent_encode(server), percent_encode(id));
        let path = format!("/_matrix/client/v1/media/download/{media}");
        let download = self.client.try_download(&path, writer, limit)?;
        // Servers before version 1.11 of the specification.
        if let Download::Refused(response) = &download
            && response.json()["errcode"] == "M_UNRECOGNIZED"
        {
            let path = format!("/_matrix/media/v3/download/{media}");
            return self.client.download(&path, writer, limit);
        }
        download.into_result()
    }

    fn show_typing(&self, destination: &Destination) {
        let Ok(user) = self.user_id() else { return };
        let room_id = percent_encode(&destination.chat.id);
        let path = format!("/_matrix/client/v3/rooms/{room_id}/typing/{}", percent_encode(user));
        let timeout = u64::try_from(TYPING_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let body = json!({ "typing": true, "timeout": timeout });
        self.client.try_once(&ServiceRequest::put(&path).json(&body));
    }

    fn identity(&self) -> Result<Identity> {
        let user = self.user_id()?;
        Ok(Identity { id: user.to_owned(), name: user.to_owned() })
    }
}

impl Matrix {
    fn user_id(&self) -> ChannelResult<&str> {
        if let Some(user) = self.user_id.get() {
            return Ok(user);
        }
        let whoami = self.client.get("/_matrix/client/v3/account/whoami")?;
        let user = self.client.text_of(&whoami["user_id"])?;
        Ok(self.user_id.get_or_init(|| user))
    }

    fn sync(&self, since: Option<&str>, wait: Duration) -> Result<Value> {
        let mut path = format!(
            "/_matrix/client/v3/sync?timeout={}&filter={}",
            wait.as_millis(),
            percent_encode(SYNC_FILTER)
        );
        if let Some(since) = since {
            path += &format!("&since={}", percent_encode(since));
        }
        let response = self.client.request(&ServiceRequest::get(&path).wait(wait))?;
        if response.status == 403 {
            return Err(fail(Exit::Refused, response.describe()));
        }
        if !response.is_success() {
            let cause = format!("`channels.matrix.homeserver`: {}", response.describe());
            return Err(fail(Exit::Config, cause));
        }
        let body = response.json();
        self.client.text_of(&body["next_batch"])?;
        Ok(body)
    }

    /// Joins the rooms that allowed users have invited us to, and some rooms of unknown users, who can be paired there.
    fn join_invited(&self, sync: &Value, cursor: &mut Value) -> Result<()> {
        let rooms = &sync["rooms"]["invite"];
        if rooms.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        let user = self.user_id()?;
        for invitation in sync::invitations(rooms, user) {
            let room_id = invitation.chat.id.clone();
            let inviter = &invitation.from.id;
            let decision = self.access.decide(&invitation);
            let is_accepted = match decision {
                AccessDecision::Answer => true,
                AccessDecision::Pair => self.may_join_unknown_user(inviter, cursor),
                AccessDecision::Refuse | AccessDecision::Ignore => false,
            };
            if !is_accepted {
                log::info!(target: "channel", "matrix: an invitation of {inviter} to {room_id} is not accepted");
                continue;
            }
            let path = format!("/_matrix/client/v3/join/{}", percent_encode(&room_id));
            let request = ServiceRequest::post(&path).json(&json!({}));
            let cause = match self.client.request(&request) {
                Ok(response) if response.is_success() => continue,
                Ok(response) => response.describe(),
                // The room of an unknown sender on a server that is down must not end the poll.
                Err(ChannelError::Unavailable(cause)) if decision == AccessDecision::Pair => cause,
                Err(error) => return Err(error.into()),
            };
            log::warn!(target: "channel", "matrix: cannot join {room_id}: {cause}");
        }
        Ok(())
    }

    /// True if we may join a room on the invitation of an unknown user, who can be paired there. One room is joined for each
    /// user, and at most [`MAX_PENDING_CODES`] rooms within the lifetime of a pairing code, since more users would get no
    /// code. The cursor lists the users.
    fn may_join_unknown_user(&self, user: &str, cursor: &mut Value) -> bool {
        let now = self.clock.timestamp().as_second();
        let recent = (now - CODE_LIFETIME_SECS + 1)..=now;
        let mut unknown_users = cursor["unknown_users"].as_array().cloned().unwrap_or_default();
        unknown_users.retain(|joined| joined["at"].as_i64().is_some_and(|at| recent.contains(&at)));
        let is_new = unknown_users.iter().all(|joined| joined["user"] != user);
        let may_join = is_new && unknown_users.len() < MAX_PENDING_CODES;
        if may_join {
            unknown_users.push(json!({ "user": user, "at": now }));
        }
        cursor["unknown_users"] = json!(unknown_users);
        may_join
    }

    /// Reads the new messages of all rooms. Those that the server has left out are stored page by page, with the
    /// position of the last poll. The cursor lists the encrypted rooms that got a notice.
    fn read_rooms(
        &self,
        sync: &Value,
        since: &str,
        cursor: &mut Value,
        store_batch: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<Vec<InboundMessage>> {
        let mut messages = Vec::new();
        for mut update in sync::joined_rooms(sync) {
            let gap = self.gap_pages(&update, since)?;
            let pages = gap.iter().rev().map(Some).chain([None]);
            for (index, start) in pages.enumerate() {
                let page = match start {
                    Some(start) => self.history_page(&update.room_id, start, since)?.0,
                    None => std::mem::take(&mut update.events),
                };
                let is_first = index == 0;
                let page_messages = self.read_events(&mut update, &page, is_first, cursor)?;
                match start {
                    Some(_) if page_messages.is_empty() => {}
                    Some(_) => {
                        let cursor = cursor.clone();
                        store_batch(Batch { messages: page_messages, cursor })?;
                    }
                    None => messages.extend(page_messages),
                }
            }
        }
        Ok(messages)
    }

    /// Returns the starts of the pages of the events that the server has left out, back to `since` or to our invitation:
    /// the newest first. The pages are read again from the oldest on, so that only one is in memory.
    fn gap_pages(&self, update: &RoomUpdate, since: &str) -> Result<Vec<String>> {
        let mut starts = Vec::new();
        let mut next = update.gap_end.clone();
        if next.is_none() {
            return Ok(starts);
        }
        let user = self.user_id()?;
        let mut entry = RoomEntry::find(&update.events, user);
        let is_invitation = |entry| matches!(entry, Some(RoomEntry::Invited(_)));
        // The number of pages back to our entry.
        let mut joined = entry.map(|_| 0);
        while !is_invitation(entry)
            && let Some(start) = next
        {
            let (page, end) = self.history_page(&update.room_id, &start, since)?;
            next = end.filter(|end| *end != start);
            starts.push(start);
            entry = RoomEntry::find(&page, user);
            joined = joined.or(entry.map(|_| starts.len()));
        }
        if !is_invitation(entry) {
            starts.truncate(joined.unwrap_or(starts.len()));
        }
        Ok(starts)
    }

    /// Returns the events of a room before `start` and after `since`, in order, and the start of the page before them.
    fn history_page(
        &self,
        room_id: &str,
        start: &str,
        since: &str,
    ) -> Result<(Vec<Value>, Option<String>)> {
        let path = format!(
            "/_matrix/client/v3/rooms/{}/messages?dir=b&limit={HISTORY_PAGE_MESSAGES}&from={}&to={}",
            percent_encode(room_id),
            percent_encode(start),
            percent_encode(since)
        );
        let page = self.client.get(&path)?;
        let mut events = self.client.list_of(&page["chunk"])?.clone();
        events.reverse();
        Ok((events, page["end"].as_str().map(str::to_owned)))
    }

    /// Converts events of a room. `is_first` is true for the oldest page. Its events before our entry are not for us.
    fn read_events(
        &self,
        update: &mut RoomUpdate,
        events: &[Value],
        is_first: bool,
        cursor: &mut Value,
    ) -> Result<Vec<InboundMessage>> {
        let user = self.user_id()?;
        let events = if is_first { RoomEntry::events_since(events, user) } else { events };
        self.notice_encryption(&update.room_id, events, cursor)?;
        let has_messages = events.iter().any(|event| sync::is_from_others(event, user));
        let reader = RoomReader {
            is_direct: has_messages && self.is_direct(update)?,
            room_id: &update.room_id,
            user,
            allows_room_mentions: self.allows_room_mentions,
        };
        let messages = events.iter().filter_map(|event| {
            reader.to_message(event).or_else(|| sync::to_press(event, reader.room_id, user))
        });
        Ok(messages.collect())
    }

    /// True if only one other user is in the room or invited. The number of members is requested once.
    fn is_direct(&self, update: &mut RoomUpdate) -> Result<bool> {
        if let Some(members) = update.members {
            return Ok(members <= MAX_DIRECT_MEMBERS);
        }
        let room_path = format!("/_matrix/client/v3/rooms/{}", percent_encode(&update.room_id));
        let members = self.client.get(&format!("{room_path}/joined_members"))?;
        let Some(joined) = members["joined"].as_object() else {
            return Err(self.client.unexpected_response().into());
        };
        let mut count = joined.len() as u64;
        if count <= MAX_DIRECT_MEMBERS {
            let members = self.client.get(&format!("{room_path}/members?membership=invite"))?;
            count += self.client.list_of(&members["chunk"])?.len() as u64;
        }
        update.members = Some(count);
        Ok(count <= MAX_DIRECT_MEMBERS)
    }

    /// Says once in an encrypted room that we cannot read it, if an allowed user writes there.
    fn notice_encryption(&self, room_id: &str, events: &[Value], cursor: &mut Value) -> Result<()> {
        let is_encrypted = |event: &&Value| event["type"] == "m.room.encrypted";
        let mut senders = events.iter().filter(is_encrypted);
        let mut notified_rooms: Vec<Value> =
            cursor["encrypted"].as_array().cloned().unwrap_or_default();
        let is_notified = notified_rooms.iter().any(|id| id == room_id);
        let is_allowed =
            |event: &Value| self.access.allows(event["sender"].as_str().unwrap_or_default());
        if is_notified || !senders.any(is_allowed) {
            return Ok(());
        }
        log::warn!(target: "channel", "matrix: {room_id} is encrypted and cannot be read");
        let content = json!({ "msgtype": "m.notice", "body": ENCRYPTION_NOTICE, "m.mentions": {} });
        // The key is the same for the room, so that the notice is shown once even after a crash.
        let key = format!("encrypted-{room_id}");
        let response = self.put_event(room_id, &key, &content)?;
        if !response.is_success() {
            log::warn!(target: "channel", "matrix: no notice in {room_id}: {}", response.describe());
        }
        notified_rooms.push(json!(room_id));
        cursor["encrypted"] = json!(notified_rooms);
        Ok(())
    }

    /// Reacts to our question with the answers to it, so that a tap on one of them answers. Best effort: any client can react itself.
    fn offer_reactions(&self, room_id: &str, question_message: &str, key: &str) {
        for button in BUTTONS {
            let path = format!(
                "/_matrix/client/v3/rooms/{}/send/m.reaction/{}",
                percent_encode(room_id),
                percent_encode(&format!("{key}.{}", button.answer))
            );
            let relation = json!({
                "rel_type": "m.annotation", "event_id": question_message, "key": button.reaction,
            });
            let body = json!({ "m.relates_to": relation });
            self.client.try_once(&ServiceRequest::put(&path).json(&body));
        }
    }

    fn put_event(
        &self,
        room_id: &str,
        key: &str,
        content: &Value,
    ) -> ChannelResult<ServiceResponse> {
        let path = format!(
            "/_matrix/client/v3/rooms/{}/send/m.room.message/{}",
            percent_encode(room_id),
            percent_encode(key)
        );
        self.client.request(&ServiceRequest::put(&path).json(content))
    }

    /// Uploads a file; returns the content of its message.
    fn upload(&self, file: &Path) -> ChannelResult<Value> {
        let file = UploadFile::read(file, self.max_media_bytes)?;
        let (kind, media_type) = file.media_type();
        let path = format!("/_matrix/media/v3/upload?filename={}", percent_encode(&file.name));
        let request = ServiceRequest::post(&path).body(media_type, &file.bytes);
        let response = self.client.exchange(&request)?;
        let uri = self.client.text_of(&response["content_uri"])?;
        Ok(json!({
            "msgtype": sync::message_type(kind), "body": file.name, "filename": file.name,
            "url": uri,
            "info": { "mimetype": media_type, "size": file.bytes.len() },
        }))
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let reader =
        RoomReader { room_id: "!r:h", user: "@bot:h", is_direct: true, allows_room_mentions: true };
    reader.to_message(value)
}
