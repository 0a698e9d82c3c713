//! Rooms, invitations and messages in the responses of a Matrix server. No I/O.

use crate::mention::{with_names, without_mention};
use crate::press::with_reaction;
use crate::{AttachmentKind, Chat, InboundMessage, QuotedText, RemoteFile, Sender};
use mail_parser::decoders::html::html_to_text;
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_net::web_url::percent_encode;
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
    /// The number of joined and invited users, if the server says it.
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
            // A count that has not changed may be missing, so one of them alone says nothing.
            members: members("m.joined_member_count")
                .zip(members("m.invited_member_count"))
                .map(|(joined, invited)| joined + invited),
        }
    });
    updates.filter(|update| !update.events.is_empty() || update.gap_end.is_some()).collect()
}

/// Returns the rooms of `rooms.invite`, as messages without text by those who invited us.
pub(super) fn invitations(rooms: &Value, user: &str) -> Vec<InboundMessage> {
    let rooms = rooms.as_object().into_iter().flatten();
    let invitations = rooms.filter_map(|(room_id, update)| {
        let events = update["invite_state"]["events"].as_array()?;
        let invitation = events.iter().find(|event| membership(event, user) == Some("invite"))?;
        Some(InboundMessage {
            chat: Chat::new(room_id, None, invitation["content"]["is_direct"] == true),
            from: Sender::new(invitation["sender"].as_str()?, None, false),
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
    /// Finds our last invitation; our last entry, if no invitation is among the events. An entry follows its invitation, and the
    /// messages between them are for us. If we have left since, and come back without an invitation, the messages that the
    /// server shows us from that time are read too.
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
        // The forms are in the order of preference: the last is the plainest.
        let new = value["m.text"].as_array().and_then(|forms| forms.last()?["body"].as_str());
        let text = new.or(value["org.matrix.msc1767.text"].as_str()).or(value["body"].as_str());
        text.unwrap_or_default().to_owned()
    };
    let forms = [&content["m.poll"], &content["org.matrix.msc3381.poll.start"]];
    let poll = forms.into_iter().find(|poll| poll.is_object())?;
    Some(crate::poll_text(&text(&poll["question"]), items(&poll["answers"]).map(text)))
}

/// Converts a reaction that answers a question; `None` for another event. A reaction that was taken back has no content.
pub(super) fn to_press(event: &Value, room_id: &str, user: &str) -> Option<InboundMessage> {
    let relation = &event["content"]["m.relates_to"];
    let is_reaction = event["type"] == "m.reaction" && relation["rel_type"] == "m.annotation";
    if !is_reaction || event["sender"] == user {
        return None;
    }
    let question_message = relation["event_id"].as_str()?;
    let message = InboundMessage {
        id: event["event_id"].as_str()?.to_owned(),
        chat: Chat::new(room_id, None, false),
        from: Sender::new(event["sender"].as_str()?, None, false),
        sent_at: event["origin_server_ts"].as_i64().unwrap_or_default() / 1000,
        reply_facts: json!({ "event_id": question_message }),
        ..InboundMessage::default()
    };
    with_reaction(message, relation["key"].as_str()?, question_message)
}

impl RoomReader<'_> {
    /// Converts an event: a message, or the new text of one. Notices, which bots send, are not messages.
    pub(super) fn to_message(self, event: &Value) -> Option<InboundMessage> {
        let content = &event["content"];
        let relation = &content["m.relates_to"];
        if relation["rel_type"] == "m.replace" {
            return self.to_edit(event);
        }
        let poll = poll_text(content);
        let kind = match event["type"].as_str() {
            Some("m.sticker") => "m.sticker",
            _ => content["msgtype"].as_str().or(poll.as_ref().map(|_| "poll"))?,
        };
        if !is_from_others(event, self.user) || kind == "m.notice" {
            return None;
        }
        let id = event["event_id"].as_str()?;
        let body = content["body"].as_str().unwrap_or_default();
        let replied = relation["m.in_reply_to"]["event_id"].as_str();
        let (quote, typed) = if replied.is_some() { split_reply(body) } else { ("", body) };
        let attachment_kind = attachment_kind(kind, content);
        let file = attachment_kind.and_then(|kind| to_file(kind, content));
        // For other clients, a message of a thread seems to reply to the last one.
        let replied = if relation["is_falling_back"] == true { None } else { replied };
        // The body of a file is its name, unless there is a caption.
        let is_caption = content["filename"].as_str().is_some_and(|name| name != body);
        let text = match poll {
            Some(poll) => UserText::label(poll),
            None if attachment_kind.is_some() && !is_caption => UserText::default(),
            None if attachment_kind.is_some() || matches!(kind, "m.text" | "m.emote") => {
                self.typed_text(content, typed, replied.is_some())
            }
            // The client has written the text, such as that of a location.
            None => UserText::label(typed),
        };
        let is_thread = relation["rel_type"] == "m.thread";
        let thread = if is_thread { relation["event_id"].as_str() } else { None };
        // The quoted text is as the sender's client gives it; current clients give none.
        let quotes = replied.map(|id| QuotedText::replied(quote, quote.len(), Some(id), false));
        // The file is from an encrypted room, or there is no file.
        let is_unreadable = text.is_empty() && file.is_none();
        Some(InboundMessage {
            id: id.to_owned(),
            chat: Chat::new(self.room_id, thread, self.is_direct),
            from: Sender::new(event["sender"].as_str()?, None, false),
            text,
            quotes: quotes.into_iter().collect(),
            mentions_us: self.mentions_us(content, typed),
            files: file.into_iter().collect(),
            is_unreadable,
            sent_at: event["origin_server_ts"].as_i64().unwrap_or_default() / 1000,
            reply_facts: json!({ "event_id": id }),
            ..InboundMessage::default()
        })
    }

    /// Converts the event that gives a message another content (Matrix specification, "Event replacements").
    fn to_edit(self, event: &Value) -> Option<InboundMessage> {
        let content = &event["content"];
        let new_content = content["m.new_content"].as_object()?;
        let mut edited = event.clone();
        edited["event_id"] = content["m.relates_to"]["event_id"].clone();
        edited["content"] = Value::Object(new_content.clone());
        // It has no relations of its own.
        edited["content"]["m.relates_to"] = Value::Null;
        Some(InboundMessage { is_edit: true, ..self.to_message(&edited)? })
    }

    /// The text that the sender typed. The client has inserted the names of the users that it mentions, each with a link in
    /// the markup. A text in which one of the names is not found is a label: nothing tells it from what was typed.
    fn typed_text(self, content: &Value, text: &str, is_reply: bool) -> UserText {
        let markup = content["formatted_body"].as_str().unwrap_or_default();
        let links = user_links(markup);
        let is_linked = |user: &&str| links.iter().any(|link| link.leads_to(user));
        let mentioned = items(&content["m.mentions"]["user_ids"]).filter_map(Value::as_str);
        let unlinked: Vec<&str> = mentioned.filter(|user| !is_linked(user)).collect();
        let others = unlinked.iter().filter(|user| **user != self.user).count();
        // A reply mentions the user that it replies to, without a name in the text.
        let has_all_links = others == 0 || (is_reply && unlinked.len() == 1);
        let is_found = |link: &UserLink| link.leads_to(self.user) || text.contains(&link.name);
        if !has_all_links || !links.iter().all(is_found) {
            return UserText::label(text);
        }
        let names = links.into_iter().map(|link| (link.name.clone(), link.name));
        with_names(text, &names.collect::<Vec<_>>())
    }

    fn mentions_us(self, content: &Value, typed: &str) -> bool {
        let mentions = &content["m.mentions"];
        if !mentions.is_object() {
            // Clients before version 1.7 of the specification.
            return without_mention(typed, self.user).is_some();
        }
        items(&mentions["user_ids"]).any(|user| user == self.user)
            || (self.allows_room_mentions && mentions["room"] == true)
    }
}

/// A link to a user in the markup of a text.
struct UserLink {
    /// The id of the user, which may be percent-encoded.
    user_id: String,
    /// The name that the client shows, without markup.
    name: String,
}

impl UserLink {
    fn leads_to(&self, user_id: &str) -> bool {
        self.user_id == user_id || self.user_id.eq_ignore_ascii_case(&percent_encode(user_id))
    }
}

/// The links to users in the markup of a text, without those of the message to which it replies.
fn user_links(markup: &str) -> Vec<UserLink> {
    let markup = markup.rsplit_once("</mx-reply>").map_or(markup, |(_, typed)| typed);
    let links = markup.split("<a ").skip(1);
    let links = links.filter_map(|link| {
        let (attributes, rest) = link.split_once('>')?;
        let name = rest.split_once("</a>").map_or(rest, |(name, _)| name);
        let user_id = linked_user(attributes)?;
        Some(UserLink { user_id, name: html_to_text(name).trim().to_owned() })
    });
    links.collect()
}

/// The id of the user that a link with these attributes leads to (Matrix specification, appendix on URIs).
fn linked_user(attributes: &str) -> Option<String> {
    let (sigil, id) = match attributes.split_once("matrix.to/#/") {
        Some((_, id)) => ("", id),
        None => ("@", attributes.split_once("matrix:u/")?.1),
    };
    let end = id.find(['"', '\'', '?', ' ']).unwrap_or(id.len());
    let id = format!("{sigil}{}", &id[..end]);
    ["@", "%40"].iter().any(|start| id.starts_with(start)).then_some(id)
}

/// Splits the body of a reply into the text that the client quoted, and the text that the sender typed.
fn split_reply(body: &str) -> (&str, &str) {
    let lines = body.split_inclusive('\n');
    let quoted = lines.take_while(|line| line.starts_with("> ") || line.trim_end() == ">");
    let length = quoted.map(str::len).sum();
    let (quote, typed) = body.split_at(length);
    (quote.trim_end(), typed.trim_start_matches('\n'))
}

/// The kind of file in an event of this type; `None` if there is none. It may be missing: encrypted rooms have others.
fn attachment_kind(kind: &str, content: &Value) -> Option<AttachmentKind> {
    Some(match kind {
        "m.image" | "m.sticker" => AttachmentKind::Image,
        "m.audio" if content["org.matrix.msc3245.voice"].is_object() => AttachmentKind::Voice,
        "m.audio" => AttachmentKind::Audio,
        "m.video" => AttachmentKind::Video,
        "m.file" => AttachmentKind::File,
        _ => return None,
    })
}

fn to_file(kind: AttachmentKind, content: &Value) -> Option<RemoteFile> {
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
    use super::{RoomEntry, RoomReader, invitations, joined_rooms, split_reply, user_links};
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
        check(text("@bot:home hello"), Some(("@bot:home hello", &[], None, false)));
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
        // A name of a file is no text, also if the file is encrypted.
        for kind in ["m.image", "m.file", "m.audio", "m.video"] {
            let encrypted = json!({ "msgtype": kind, "body": "evil.com.png", "file": {} });
            check("m.room.message", encrypted, "", &[], true);
        }
        check("m.sticker", json!({ "body": "evil.com", "file": {} }), "", &[], true);
        let caption =
            json!({ "msgtype": "m.image", "body": "look", "filename": "a.png", "file": {} });
        check("m.room.message", caption, "look", &[], false);
    }

    #[test]
    fn members_are_counted_if_both_counts_are_there() {
        let check = |summary: Value, expect: Option<u64>| {
            let update = json!({ "timeline": { "events": [{}] }, "summary": summary });
            let rooms = joined_rooms(&json!({ "rooms": { "join": { "!r:h": update } } }));
            assert_eq!(rooms[0].members, expect, "{summary}");
        };
        check(json!({ "m.joined_member_count": 2, "m.invited_member_count": 0 }), Some(2));
        check(json!({ "m.joined_member_count": 2, "m.invited_member_count": 1 }), Some(3));
        check(json!({ "m.joined_member_count": 2 }), None);
        check(json!({ "m.invited_member_count": 1 }), None);
        check(json!({}), None);
    }

    #[test]
    fn events_that_the_server_left_out_are_read_even_if_no_other_follows() {
        let timeline = json!({ "limited": true, "prev_batch": "p", "events": [] });
        let sync = json!({ "rooms": { "join": { "!r:h": { "timeline": timeline } } } });
        assert_eq!(joined_rooms(&sync)[0].gap_end.as_deref(), Some("p"));
    }

    #[test]
    fn links_to_users_are_found() {
        let check = |markup: &str, expect: &[(&str, &str)]| {
            let links = user_links(markup);
            let links = links.iter().map(|link| (link.user_id.as_str(), link.name.as_str()));
            assert_eq!(links.collect::<Vec<_>>(), expect, "{markup}");
        };
        check(
            "hi <a href=\"https://matrix.to/#/@ann:h\">Ann</a> <a class='x' href='https://matrix.to/#/%40bob%3Ah?via=h'>Bob</a>",
            &[("@ann:h", "Ann"), ("%40bob%3Ah", "Bob")],
        );
        check("<a href=\"matrix:u/ann:h?action=chat\">Ann</a>", &[("@ann:h", "Ann")]);
        check(
            "<a href=\"https://matrix.to/#/!r:h/$e\">In reply to</a> <a href=\"https://a.example/\">x</a>",
            &[],
        );
        check("<mx-reply><a href=\"https://matrix.to/#/@eve:h\">@eve:h</a></mx-reply>hi", &[]);
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
