//! Rooms, invitations and messages in the responses of a Matrix server. No I/O.

use crate::mention::with_names;
use crate::{AttachmentKind, Chat, InboundMessage, QuotedText, RemoteFile, Sender};
use mail_parser::decoders::html::html_to_text;
use nanobot_base::message::user_text::UserText;
use serde_json::{Value, json};

/// The new events of a room.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RoomUpdate {
    /// The room's id.
    pub(super) room_id: String,
    /// The events, oldest first.
    pub(super) events: Vec<Value>,
    /// The position before the events, if the server has left out events there.
    pub(super) gap_end: Option<String>,
    /// The number of members, if it has changed.
    pub(super) members: Option<u64>,
}

/// The facts about a room that are needed to read its messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomReader<'r> {
    /// The room's id.
    pub(super) room_id: &'r str,
    /// Our user id.
    pub(super) user: &'r str,
    pub(super) is_direct: bool,
    pub(super) allows_room_mentions: bool,
}

/// Returns the rooms that we are in and that have new events.
pub(super) fn joined_rooms(sync: &Value) -> Vec<RoomUpdate> {
    let rooms = sync["rooms"]["join"].as_object();
    let updates = rooms.into_iter().flatten().map(|(room_id, update)| {
        let timeline = &update["timeline"];
        let summary = &update["summary"];
        let members = |key: &str| summary[key].as_u64();
        let has_gap = timeline["limited"] == true;
        let gap_end = if has_gap { timeline["prev_batch"].as_str() } else { None };
        RoomUpdate {
            room_id: room_id.clone(),
            events: timeline["events"].as_array().cloned().unwrap_or_default(),
            gap_end: gap_end.map(str::to_owned),
            members: members("m.joined_member_count")
                .map(|joined| joined + members("m.invited_member_count").unwrap_or(0)),
        }
    });
    updates.filter(|update| !update.events.is_empty()).collect()
}

/// Returns the rooms of `rooms.invite`, as messages without text by those who invited us.
pub(super) fn invitations(rooms: &Value, user: &str) -> Vec<InboundMessage> {
    let rooms = rooms.as_object().into_iter().flatten();
    let invitations = rooms.filter_map(|(room_id, update)| {
        let events = update["invite_state"]["events"].as_array()?;
        let invitation = events.iter().find(|event| membership(event, user) == Some("invite"))?;
        Some(InboundMessage {
            chat: Chat {
                id: room_id.clone(),
                thread: None,
                is_direct: invitation["content"]["is_direct"] == true,
            },
            from: Sender { id: invitation["sender"].as_str()?.to_owned(), ..Sender::default() },
            mentions_us: true,
            ..InboundMessage::default()
        })
    });
    invitations.collect()
}

/// The beginning of the events that are for us: messages from before our invitation are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomEntry {
    /// The index of our invitation.
    Invited(usize),
    /// The index of our entry. The invitation for it is not among the events.
    Joined(usize),
}

impl RoomEntry {
    /// Finds the last entry.
    pub(super) fn find(events: &[Value], user: &str) -> Option<Self> {
        let is_invitation = |event: &Value| membership(event, user) == Some("invite");
        let is_entry =
            |event: &Value| membership(event, user) == Some("join") && !was_joined(event);
        let invited = events.iter().rposition(is_invitation).map(Self::Invited);
        invited.or_else(|| events.iter().rposition(is_entry).map(Self::Joined))
    }

    /// The events from our entry on; all of them if it is not among them.
    pub(super) fn events_since<'e>(events: &'e [Value], user: &str) -> &'e [Value] {
        match Self::find(events, user) {
            Some(Self::Invited(start) | Self::Joined(start)) => &events[start..],
            None => events,
        }
    }
}

/// True if the membership was `join` before this event. The event then only changes a name or a picture.
fn was_joined(event: &Value) -> bool {
    // Older servers have the member outside of `unsigned`.
    let before = [&event["unsigned"]["prev_content"], &event["prev_content"]];
    before.iter().any(|before| before["membership"] == "join")
}

/// The membership that an event gives to a user.
fn membership<'e>(event: &'e Value, user: &str) -> Option<&'e str> {
    let is_ours = event["type"] == "m.room.member" && event["state_key"] == user;
    is_ours.then(|| event["content"]["membership"].as_str())?
}

/// The types of events that people send, with the polls of clients before version 1.7 of the specification.
const MESSAGE_TYPES: [&str; 4] =
    ["m.room.message", "m.sticker", "m.poll.start", "org.matrix.msc3381.poll.start"];

/// True for a message of another user.
pub(super) fn is_from_others(event: &Value, user: &str) -> bool {
    MESSAGE_TYPES.iter().any(|kind| event["type"] == *kind) && event["sender"] != user
}

/// The question of a poll and its answers; `None` for other content.
fn poll_text(content: &Value) -> Option<String> {
    let text = |value: &Value| {
        let new = value["m.text"].as_array().and_then(|forms| forms.last()?["body"].as_str());
        let text = new.or(value["org.matrix.msc1767.text"].as_str()).or(value["body"].as_str());
        text.unwrap_or_default().to_owned()
    };
    let forms = [&content["m.poll"], &content["org.matrix.msc3381.poll.start"]];
    let poll = forms.into_iter().find(|poll| poll.is_object())?;
    let answers = poll["answers"].as_array().into_iter().flatten();
    let answers: Vec<String> = answers.map(|answer| format!("\n- {}", text(answer))).collect();
    Some(format!("[poll]\n{}{}", text(&poll["question"]), answers.concat()))
}

impl RoomReader<'_> {
    /// Converts an event. Notices, which bots send, and edits are not messages.
    pub(super) fn to_message(self, event: &Value) -> Option<InboundMessage> {
        let content = &event["content"];
        let relation = &content["m.relates_to"];
        let poll = poll_text(content);
        let kind = match event["type"].as_str() {
            Some("m.sticker") => "m.sticker",
            _ => content["msgtype"].as_str().or(poll.as_ref().map(|_| "poll"))?,
        };
        if !is_from_others(event, self.user)
            || kind == "m.notice"
            || relation["rel_type"] == "m.replace"
        {
            return None;
        }
        let id = event["event_id"].as_str()?;
        let body = content["body"].as_str().unwrap_or_default();
        let replied = relation["m.in_reply_to"]["event_id"].as_str();
        let (quote, typed) = if replied.is_some() { split_reply(body) } else { ("", body) };
        let file = to_file(kind, content);
        // The body of a file is its name, unless there is a caption.
        let is_caption = content["filename"].as_str().is_some_and(|name| name != body);
        let text = match poll {
            Some(poll) => UserText::label(poll),
            // The client has written the text of a location.
            None if kind == "m.location" => UserText::label(typed),
            None if file.is_none() || is_caption => self.typed_text(content, typed),
            None => UserText::default(),
        };
        let is_thread = relation["rel_type"] == "m.thread";
        let thread = if is_thread { relation["event_id"].as_str() } else { None };
        // For other clients, a message of a thread seems to reply to the last one.
        let replied = if relation["is_falling_back"] == true { None } else { replied };
        // The quoted text is as the sender's client gives it; current clients give none.
        let quotes = replied.map(|id| QuotedText::replied(quote, quote.len(), Some(id), false));
        // The file is from an encrypted room, or there is no file.
        let is_unreadable = text.is_empty() && file.is_none();
        Some(InboundMessage {
            id: id.to_owned(),
            chat: Chat {
                id: self.room_id.to_owned(),
                thread: thread.map(str::to_owned),
                is_direct: self.is_direct,
            },
            from: Sender { id: event["sender"].as_str()?.to_owned(), ..Sender::default() },
            text,
            quotes: quotes.into_iter().collect(),
            mentions_us: self.mentions_us(content, typed),
            files: file.into_iter().collect(),
            is_unreadable,
            sent_at: event["origin_server_ts"].as_i64().unwrap_or_default() / 1000,
            reply_facts: json!({ "event_id": id }),
        })
    }

    /// The text that the sender typed. The client has inserted the names of the users that it mentions.
    fn typed_text(self, content: &Value, text: &str) -> UserText {
        let mentioned = content["m.mentions"]["user_ids"].as_array().into_iter().flatten();
        let others = mentioned.filter(|user| **user != self.user).count();
        let markup = content["formatted_body"].as_str().unwrap_or_default();
        let names = user_names(markup);
        if others > names.len() {
            // The names cannot be distinguished from the typed text.
            return UserText::label(text);
        }
        with_names(text, &names.into_iter().map(|name| (name.clone(), name)).collect::<Vec<_>>())
    }

    fn mentions_us(self, content: &Value, typed: &str) -> bool {
        let mentions = &content["m.mentions"];
        if !mentions.is_object() {
            // Clients before version 1.7 of the specification.
            return typed.contains(self.user);
        }
        let users = mentions["user_ids"].as_array();
        users.is_some_and(|users| users.iter().any(|user| user == self.user))
            || (self.allows_room_mentions && mentions["room"] == true)
    }
}

/// The names of users in the markup of a text: those of links to users.
fn user_names(markup: &str) -> Vec<String> {
    let links = markup.split("<a ").skip(1);
    let names = links.filter_map(|link| {
        let (attributes, rest) = link.split_once('>')?;
        let user_links = ["matrix.to/#/@", "matrix.to/#/%40", "matrix:u/"];
        let name = rest.split_once("</a>").map_or(rest, |(name, _)| name);
        let is_user = user_links.iter().any(|link| attributes.contains(link));
        is_user.then(|| html_to_text(name).trim().to_owned())
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Splits the body of a reply into the text that the client quoted, and the text that the sender typed.
fn split_reply(body: &str) -> (&str, &str) {
    let lines = body.split_inclusive('\n');
    let quoted = lines.take_while(|line| line.starts_with("> ") || line.trim_end() == ">");
    let length = quoted.map(str::len).sum();
    let (quote, typed) = body.split_at(length);
    (quote.trim_end(), typed.trim_start_matches('\n'))
}

fn to_file(kind: &str, content: &Value) -> Option<RemoteFile> {
    let kind = match kind {
        "m.image" | "m.sticker" => AttachmentKind::Image,
        "m.audio" if content["org.matrix.msc3245.voice"].is_object() => AttachmentKind::Voice,
        "m.audio" => AttachmentKind::Audio,
        "m.video" => AttachmentKind::Video,
        "m.file" => AttachmentKind::File,
        _ => return None,
    };
    let name = content["filename"].as_str().or(content["body"].as_str());
    Some(RemoteFile {
        id: content["url"].as_str()?.to_owned(),
        name: name.unwrap_or_default().to_owned(),
        kind,
        size_bytes: content["info"]["size"].as_u64(),
        seconds: content["info"]["duration"].as_u64().map(|millis| millis / 1000),
    })
}

/// The `msgtype` of a file.
pub(super) fn message_type(kind: AttachmentKind) -> &'static str {
    match kind {
        AttachmentKind::Image => "m.image",
        AttachmentKind::Voice | AttachmentKind::Audio => "m.audio",
        AttachmentKind::Video => "m.video",
        AttachmentKind::File => "m.file",
    }
}

#[cfg(test)]
mod tests {
    use super::{RoomEntry, RoomReader, invitations, split_reply};
    use serde_json::{Value, json};

    /// Checks the message of an event with this content in a room: its text, its quotes, its thread, and if it
    /// mentions us.
    #[track_caller]
    fn check(content: Value, expect: Option<(&str, &[&str], Option<&str>, bool)>) {
        let reader = RoomReader {
            room_id: "!r:h",
            user: "@bot:h",
            is_direct: false,
            allows_room_mentions: true,
        };
        let event = json!({ "type": "m.room.message", "event_id": "$1", "sender": "@ann:h",
            "origin_server_ts": 7_000, "content": content });
        let message = reader.to_message(&event);
        let quotes: Vec<&str> = message
            .iter()
            .flat_map(|message| &message.quotes)
            .map(|quote| quote.text.as_str())
            .collect();
        let actual = message.as_ref().map(|message| {
            (
                message.text.as_str(),
                quotes.as_slice(),
                message.chat.thread.as_deref(),
                message.mentions_us,
            )
        });
        assert_eq!(actual, expect);
    }

    #[test]
    fn events_become_messages() {
        let text = |body: &str| json!({ "msgtype": "m.text", "body": body });
        let with = |mut content: Value, key: &str, value: Value| {
            content[key] = value;
            content
        };
        check(text("hello"), Some(("hello", &[], None, false)));
        check(text("@bot:h hello"), Some(("@bot:h hello", &[], None, true)));
        check(json!({ "msgtype": "m.notice", "body": "x" }), None);
        check(json!({}), None);
        check(with(text("* b"), "m.relates_to", json!({ "rel_type": "m.replace" })), None);
        let mention = json!({ "user_ids": ["@bot:h"] });
        check(with(text("hi"), "m.mentions", mention), Some(("hi", &[], None, true)));
        check(with(text("@bot:h"), "m.mentions", json!({})), Some(("@bot:h", &[], None, false)));
        check(
            with(text("hi"), "m.mentions", json!({ "room": true })),
            Some(("hi", &[], None, true)),
        );
        let thread = json!({ "rel_type": "m.thread", "event_id": "$0" });
        check(with(text("hi"), "m.relates_to", thread), Some(("hi", &[], Some("$0"), false)));
        let reply = json!({ "m.in_reply_to": { "event_id": "$0" } });
        check(
            with(text("> <@eve:h> do evil\n> now\n\nno"), "m.relates_to", reply),
            Some(("no", &["> <@eve:h> do evil\n> now"], None, false)),
        );
        check(
            json!({ "msgtype": "m.image", "body": "a.png", "url": "mxc://h/1" }),
            Some(("", &[], None, false)),
        );
        check(
            json!({ "msgtype": "m.image", "body": "look", "filename": "a.png", "url": "mxc://h/1" }),
            Some(("look", &[], None, false)),
        );
    }

    #[test]
    fn stickers_and_polls_are_read_or_said() {
        let check = |kind: &str, content: Value, text: &str, files: &[&str], is_unreadable| {
            let reader = RoomReader {
                room_id: "!r:h",
                user: "@bot:h",
                is_direct: true,
                allows_room_mentions: false,
            };
            let event =
                json!({ "type": kind, "event_id": "$1", "sender": "@ann:h", "content": content });
            let message = reader.to_message(&event).unwrap();
            let names: Vec<&str> = message.files.iter().map(|file| file.name.as_str()).collect();
            assert_eq!((message.text.as_str(), names.as_slice()), (text, files), "{kind}");
            assert_eq!(message.is_unreadable, is_unreadable, "{kind}");
        };
        let sticker = json!({ "body": "wave", "url": "mxc://h/1", "info": { "size": 5 } });
        check("m.sticker", sticker, "", &["wave"], false);
        check("m.sticker", json!({ "body": "", "file": {} }), "", &[], true);
        let text = |text: &str| json!({ "m.text": [{ "mimetype": "text/html", "body": "x" }, { "body": text }] });
        let poll = json!({ "question": text("Tea?"), "answers": [text("yes"), text("no")] });
        check("m.poll.start", json!({ "m.poll": poll }), "[poll]\nTea?\n- yes\n- no", &[], false);
        let old = |text: &str| json!({ "org.matrix.msc1767.text": text });
        let poll = json!({ "question": old("Tea?"), "answers": [old("yes")] });
        check(
            "org.matrix.msc3381.poll.start",
            json!({ "org.matrix.msc3381.poll.start": poll }),
            "[poll]\nTea?\n- yes",
            &[],
            false,
        );
        let place = json!({ "msgtype": "m.location", "body": "At the mill", "geo_uri": "geo:1,2" });
        check("m.room.message", place, "At the mill", &[], false);
        let encrypted = json!({ "msgtype": "m.image", "body": "", "file": {} });
        check("m.room.message", encrypted, "", &[], true);
    }

    #[test]
    fn quotes_of_replies_are_split_off() {
        assert_eq!(split_reply("> a\n> b\n\nc\n> d"), ("> a\n> b", "c\n> d"));
        assert_eq!(split_reply("c"), ("", "c"));
        assert_eq!(split_reply("> a"), ("> a", ""));
    }

    #[test]
    fn only_events_since_the_invitation_are_read() {
        let member = |kind: &str| {
            json!({ "type": "m.room.member", "state_key": "@bot:h",
            "sender": "@ann:h", "content": { "membership": kind } })
        };
        let text = |body: &str| json!({ "type": "m.room.message", "content": { "body": body } });
        let events = [text("1"), member("invite"), text("2"), member("join"), text("3")];
        let check = |events: &[Value], expect: &[Value]| {
            assert_eq!(RoomEntry::events_since(events, "@bot:h"), expect);
        };
        check(&events, &events[1..]);
        check(&events[2..], &events[3..]);
        check(&events[..1], &events[..1]);
        let mut renamed = events;
        renamed[3]["unsigned"] = json!({ "prev_content": { "membership": "join" } });
        check(&renamed[2..], &renamed[2..]);
        let rooms =
            json!({ "!r:h": { "invite_state": { "events": [member("invite")] } }, "!s:h": {} });
        let actual = invitations(&rooms, "@bot:h");
        assert_eq!((actual[0].chat.id.as_str(), actual[0].from.id.as_str()), ("!r:h", "@ann:h"));
        assert_eq!(actual.len(), 1);
    }
}
