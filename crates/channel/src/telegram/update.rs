//! Conversion of a Bot API `Message` to an [`InboundMessage`]. Pure.

use crate::press::with_payload;
use crate::{
    AttachmentKind, Chat, Identity, InboundMessage, MovedChat, QuotedText, RemoteFile, Sender,
    location_text, poll_text,
};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use serde_json::{Value, json};
use std::ops::Range;

/// Characters of a quoted text that the model receives.
const MAX_QUOTE_CHARS: usize = 4000;

/// Converts the messages of updates. Those of an album are one message, since only one of them has the caption, and
/// with it the mention.
pub(super) fn to_messages(updates: &[Value], identity: &Identity) -> Vec<InboundMessage> {
    let mut messages: Vec<InboundMessage> = Vec::new();
    // The ids of albums, with the indexes of their messages in `messages`.
    let mut albums: Vec<(&str, usize)> = Vec::new();
    for update in updates {
        let message = to_inbound(&update["message"], identity);
        let message = message
            .or_else(|| to_edit(&update["edited_message"], identity))
            .or_else(|| to_press(&update["callback_query"]));
        let Some(message) = message else {
            continue;
        };
        let album = album_of(update);
        let first = albums.iter().find(|(id, index)| {
            Some(*id) == album
                && messages[*index].chat == message.chat
                && messages[*index].from == message.from
        });
        if let Some(&(_, index)) = first {
            merge(&mut messages[index], message);
        } else {
            albums.extend(album.map(|id| (id, messages.len())));
            messages.push(message);
        }
    }
    messages
}

/// The id of the album that the message of an update belongs to.
pub(super) fn album_of(update: &Value) -> Option<&str> {
    update["message"]["media_group_id"].as_str()
}

/// The groups that became supergroups, which have other ids. The notices stand in the group and in the supergroup.
pub(super) fn moved_chats(updates: &[Value]) -> Vec<MovedChat> {
    let mut moved_chats = Vec::new();
    for update in updates {
        let message = &update["message"];
        let id = message["chat"]["id"].as_i64();
        let old_id = message["migrate_from_chat_id"].as_i64().or(id);
        let new_id = message["migrate_to_chat_id"].as_i64().or(id);
        if let (Some(old_id), Some(new_id)) = (old_id, new_id)
            && old_id != new_id
        {
            let moved = MovedChat { from: old_id.to_string(), to: new_id.to_string() };
            if !moved_chats.contains(&moved) {
                moved_chats.push(moved);
            }
        }
    }
    moved_chats
}

/// Adds another message of the same album.
fn merge(message: &mut InboundMessage, other: InboundMessage) {
    if !message.text.is_empty() && !other.text.is_empty() {
        message.text.push(&UserText::label("\n"));
    }
    message.text.push(&other.text);
    for quote in other.quotes {
        if !message.quotes.contains(&quote) {
            message.quotes.push(quote);
        }
    }
    message.mentions_us |= other.mentions_us;
    message.files.extend(other.files);
}

/// Kinds of content that cannot be represented.
const UNREADABLE_KINDS: [&str; 5] = ["sticker", "game", "story", "paid_media", "checklist"];

/// Converts a message. `None` if the update has no message, if the message has no sender, as a post of a channel, or if it
/// has no content, as the notice of a new member.
fn to_inbound(message: &Value, identity: &Identity) -> Option<InboundMessage> {
    let from = to_sender(&message["from"])?;
    let chat = to_chat(message)?;
    let message_id = message["message_id"].as_i64()?;
    let mut text = written_text(message, identity);
    let mut quotes = to_quotes(message, identity);
    if let Some(label) = others_label(message)
        && !text.is_empty()
    {
        quotes.push(to_quote(label, &std::mem::take(&mut text)));
    }
    let files = to_files(message);
    let has_quoted_content = quotes.iter().any(|quote| quote.replied.is_none());
    let is_unreadable = UNREADABLE_KINDS.iter().any(|kind| message.get(*kind).is_some())
        && text.is_empty()
        && files.is_empty();
    if text.is_empty() && !has_quoted_content && files.is_empty() && !is_unreadable {
        return None;
    }
    Some(InboundMessage {
        id: format!("{}:{message_id}", chat.id),
        mentions_us: mentions(message, identity),
        chat,
        from,
        text,
        quotes,
        files,
        is_unreadable,
        sent_at: message["date"].as_i64().unwrap_or(0),
        reply_facts: json!({ "message_id": message_id }),
        ..InboundMessage::default()
    })
}

/// Converts a message that its sender has changed.
fn to_edit(message: &Value, identity: &Identity) -> Option<InboundMessage> {
    Some(InboundMessage { is_edit: true, ..to_inbound(message, identity)? })
}

/// Converts the `CallbackQuery` of a press. Its sender is the user who has pressed; that of its message is of no importance.
fn to_press(query: &Value) -> Option<InboundMessage> {
    let question_message = query["message"]["message_id"].as_i64()?;
    let message = InboundMessage {
        id: format!("press:{}", query["id"].as_str()?),
        chat: to_chat(&query["message"])?,
        from: to_sender(&query["from"])?,
        reply_facts: json!({ "message_id": question_message }),
        ..InboundMessage::default()
    };
    with_payload(message, query["data"].as_str()?, &question_message.to_string())
}

fn to_sender(user: &Value) -> Option<Sender> {
    let id = user["id"].as_i64()?.to_string();
    Some(Sender::new(&id, user["username"].as_str(), user["is_bot"] == true))
}

/// The label of a message whose content the sender passes on and did not write.
fn others_label(message: &Value) -> Option<&'static str> {
    if message.get("forward_origin").is_some() {
        Some("forwarded message")
    } else if message.get("via_bot").is_some() {
        // The bot composed the text, and the sender picked it from the bot's suggestions.
        Some("text of a bot")
    } else {
        None
    }
}

/// The text of a message, or the description of other content.
fn written_text(message: &Value, identity: &Identity) -> UserText {
    let forms = [("text", "entities"), ("caption", "caption_entities")];
    let forms = forms.map(|(text, entities)| (message[text].as_str(), &message[entities]));
    if let Some((text, entities)) = forms.into_iter().find_map(|(text, all)| Some((text?, all))) {
        return typed_text(text, entities, identity);
    }
    // A sticker stands for its emoji.
    let emoji = message["sticker"]["emoji"].as_str().map(str::to_owned);
    UserText::label(emoji.or_else(|| describe(message)).unwrap_or_default())
}

/// The text of a message. The service inserts the name of a mentioned user who has no user name; such a name does not count
/// as typed by the sender.
fn typed_text(text: &str, entities: &Value, identity: &Identity) -> UserText {
    let without_name = without_own_name(text, &identity.name);
    let units: Vec<u16> = without_name.encode_utf16().collect();
    // Our name is removed from the command at the start, so every name that the service inserted is after it.
    let removed_units = text.encode_utf16().count() - units.len();
    let units_text = |start: usize, end: usize| String::from_utf16_lossy(&units[start..end]);
    let mut typed = UserText::default();
    let mut end_of_last = 0;
    for entity in items(entities) {
        if entity["type"] != "text_mention" {
            continue;
        }
        let Some(range) = entity_range(entity) else {
            continue;
        };
        let clamp = |at: usize| at.saturating_sub(removed_units).min(units.len()).max(end_of_last);
        let start = clamp(range.start);
        let end = clamp(range.end);
        typed.push(&UserText::typed(units_text(end_of_last, start)));
        typed.push(&UserText::label(units_text(start, end)));
        end_of_last = end;
    }
    typed.push(&UserText::typed(units_text(end_of_last, units.len())));
    typed
}

/// The range of an entity, which counts UTF-16 code units.
fn entity_range(entity: &Value) -> Option<Range<usize>> {
    let number = |name: &str| usize::try_from(entity[name].as_u64()?).ok();
    let start = number("offset")?;
    Some(start..start.checked_add(number("length")?)?)
}

fn to_chat(message: &Value) -> Option<Chat> {
    let chat = &message["chat"];
    // Replies outside of topics have a thread id too.
    let thread =
        message["message_thread_id"].as_i64().filter(|_| message["is_topic_message"] == true);
    Some(Chat {
        id: chat["id"].as_i64()?.to_string(),
        thread: thread.map(|id| id.to_string()),
        is_direct: chat["type"] == "private",
    })
}

/// The text of others in a message: what it replies to, and the part that it quotes.
fn to_quotes(message: &Value, identity: &Identity) -> Vec<QuotedText> {
    let replied = &message["reply_to_message"];
    let whole = replied["text"].as_str().or(replied["caption"].as_str());
    let text = message["quote"]["text"].as_str().or(whole);
    let replied_kinds = ["reply_to_message", "external_reply", "reply_to_story"];
    // A message of a topic seems to reply to the notice of its creation.
    let is_reply = replied_kinds.iter().any(|kind| message[*kind].is_object())
        && replied["forum_topic_created"].is_null();
    let mut quotes = Vec::new();
    // The message that is replied to may have no text, such as a photo. The reply is still not about our last message.
    if let Some(text) = text.or(is_reply.then_some("")) {
        // A quote can be of another message than the one that is replied to.
        let is_part = whole.unwrap_or_default().contains(text);
        let is_ours = is_part && is_own_user(&replied["from"], identity);
        let id = if is_part { replied["message_id"].as_i64() } else { None };
        let id = id.map(|id| id.to_string());
        quotes.push(QuotedText::replied(text, MAX_QUOTE_CHARS, id.as_deref(), is_ours));
    }
    let venue = &message["venue"];
    if venue.is_object() {
        quotes.push(to_quote("venue", &join_texts(venue, &["title", "address"])));
    }
    let contact = &message["contact"];
    if contact.is_object() {
        let names = ["first_name", "last_name", "phone_number"];
        quotes.push(to_quote("contact", &join_texts(contact, &names)));
    }
    quotes
}

/// The texts of these members, in one line.
fn join_texts(value: &Value, names: &[&str]) -> String {
    let texts = names.iter().filter_map(|name| value[*name].as_str());
    texts.collect::<Vec<_>>().join(", ")
}

/// The description of content that the sender has chosen instead of typing: a location, a poll, a throw of dice.
fn describe(message: &Value) -> Option<String> {
    let location = location_text(&message["location"]);
    if location.is_some() {
        return location;
    }
    let poll = &message["poll"];
    if let Some(question) = poll["question"].as_str() {
        let options = items(&poll["options"]).filter_map(|option| option["text"].as_str());
        return Some(poll_text(question, options));
    }
    let dice = &message["dice"];
    let value = dice["value"].as_i64()?;
    Some(format!("[{}: {value}]", dice["emoji"].as_str().unwrap_or("dice")))
}

/// True if a `User` object is ours.
fn is_own_user(user: &Value, identity: &Identity) -> bool {
    user["id"].is_number() && user["id"].as_i64() == identity.id.parse().ok()
}

fn to_quote(label: &str, text: &str) -> QuotedText {
    QuotedText::cut(label, text, MAX_QUOTE_CHARS)
}

/// True if the message names us, is a command for us, or replies to our message.
fn mentions(message: &Value, identity: &Identity) -> bool {
    if is_own_user(&message["reply_to_message"]["from"], identity) {
        return true;
    }
    let own = format!("@{}", identity.name).to_lowercase();
    let check = |text: &Value, entities: &Value| {
        let units: Vec<u16> = text.as_str().unwrap_or_default().encode_utf16().collect();
        items(entities).any(|entity| {
            let text = entity_range(entity)
                .and_then(|range| units.get(range))
                .map(|units| String::from_utf16_lossy(units).to_lowercase())
                .unwrap_or_default();
            match entity["type"].as_str() {
                Some("mention") => text == own,
                Some("bot_command") => text.ends_with(&own),
                Some("text_mention") => is_own_user(&entity["user"], identity),
                _ => false,
            }
        })
    };
    check(&message["text"], &message["entities"])
        || check(&message["caption"], &message["caption_entities"])
}

/// The text of a command without our name: `/new@name` is `/new`.
fn without_own_name(text: &str, name: &str) -> String {
    let (command, arguments) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    match command.split_once('@') {
        Some((command, addressee))
            if command.starts_with('/')
                && !name.is_empty()
                && addressee.eq_ignore_ascii_case(name) =>
        {
            format!("{command}{arguments}")
        }
        _ => text.to_owned(),
    }
}

fn to_files(message: &Value) -> Vec<RemoteFile> {
    let mut files = Vec::new();
    let mut add = |value: &Value, kind, default: &str| {
        if let Some(id) = value["file_id"].as_str() {
            files.push(RemoteFile {
                id: id.to_owned(),
                name: value["file_name"].as_str().unwrap_or(default).to_owned(),
                kind,
                size_bytes: value["file_size"].as_u64(),
                seconds: value["duration"].as_u64(),
            });
        }
    };
    // The last size is the largest.
    if let Some(largest) = items(&message["photo"]).last() {
        add(largest, AttachmentKind::Image, "photo.jpg");
    }
    // The voice is the sender's only if the sender wrote the message.
    let voice =
        if others_label(message).is_some() { AttachmentKind::Audio } else { AttachmentKind::Voice };
    add(&message["voice"], voice, "voice.ogg");
    add(&message["audio"], AttachmentKind::Audio, "audio.mp3");
    add(&message["video"], AttachmentKind::Video, "video.mp4");
    add(&message["video_note"], AttachmentKind::Video, "video.mp4");
    add(&message["document"], AttachmentKind::File, "document");
    files
}

#[cfg(test)]
mod tests {
    use super::{to_inbound, without_own_name};
    use crate::Identity;
    use serde_json::{Value, json};

    fn account() -> Identity {
        Identity { id: "99".into(), name: "the_bot".into() }
    }

    fn message(members: Value) -> Value {
        let mut message = json!({
            "message_id": 5, "date": 1000, "from": { "id": 7, "username": "ann" },
            "chat": { "id": -3, "type": "supergroup" },
        });
        for (name, value) in members.as_object().unwrap() {
            message[name] = value.clone();
        }
        message
    }

    #[test]
    fn mentions_are_found_by_utf16_offsets() {
        let check = |members: Value, expect: bool| {
            let inbound = to_inbound(&message(members.clone()), &account()).unwrap();
            assert_eq!(inbound.mentions_us, expect, "{members}");
        };
        let mention = |offset: usize, length: usize, text: &str| json!({ "text": text, "entities": [{ "type": "mention", "offset": offset, "length": length }] });
        check(mention(3, 8, "🐈 @the_bot hi"), true);
        check(mention(3, 9, "🐈 @the_bots"), false);
        check(mention(90, 8, "@the_bot"), false);
        check(json!({ "text": "@the_bot without an entity" }), false);
        check(
            json!({ "text": "/new@The_Bot", "entities": [{ "type": "bot_command", "offset": 0, "length": 12 }] }),
            true,
        );
        check(
            json!({ "text": "you", "entities": [{ "type": "text_mention", "offset": 0, "length": 3, "user": { "id": 99 } }] }),
            true,
        );
        check(
            json!({ "text": "yes", "reply_to_message": { "from": { "id": 99 }, "text": "?" } }),
            true,
        );
        check(
            json!({ "text": "yes", "reply_to_message": { "from": { "id": 8 }, "text": "@the_bot" } }),
            false,
        );
    }

    #[test]
    fn text_of_others_is_kept_apart() {
        let check = |members: Value, text: &str, quotes: &[&str]| {
            let inbound = to_inbound(&message(members.clone()), &account()).unwrap();
            let actual: Vec<&str> =
                inbound.quotes.iter().map(|quote| quote.text.as_str()).collect();
            assert_eq!((inbound.text.as_str(), actual.as_slice()), (text, quotes), "{members}");
        };
        check(json!({ "text": "a" }), "a", &[]);
        check(json!({ "text": "a", "forward_origin": {} }), "", &["a"]);
        check(json!({ "text": "a", "via_bot": {} }), "", &["a"]);
        check(
            json!({ "text": "a", "reply_to_message": { "from": { "id": 8 }, "text": "b" } }),
            "a",
            &["b"],
        );
        check(
            json!({ "text": "a", "reply_to_message": { "from": { "id": 99 }, "text": "b" } }),
            "a",
            &["b"],
        );
        let photo = json!({ "message_id": 4, "from": { "id": 7 }, "photo": [{ "file_id": "s" }] });
        check(json!({ "text": "a", "reply_to_message": photo }), "a", &[""]);
        check(json!({ "text": "a", "external_reply": {} }), "a", &[""]);
        check(json!({ "text": "a", "reply_to_story": {} }), "a", &[""]);
        let creation = json!({ "message_id": 4, "forum_topic_created": { "name": "t" } });
        check(json!({ "text": "a", "reply_to_message": creation }), "a", &[]);
        check(
            json!({ "caption": "see", "photo": [{ "file_id": "s" }, { "file_id": "l" }] }),
            "see",
            &[],
        );
    }

    #[test]
    fn what_is_not_typed_becomes_text_or_is_marked() {
        let check = |members: Value, text: &str, quotes: &[&str], is_unreadable: bool| {
            let inbound = to_inbound(&message(members.clone()), &account()).unwrap();
            let actual: Vec<&str> =
                inbound.quotes.iter().map(|quote| quote.text.as_str()).collect();
            assert_eq!(
                (inbound.text.as_str(), actual.as_slice(), inbound.is_unreadable),
                (text, quotes, is_unreadable),
                "{members}"
            );
        };
        let place = json!({ "latitude": 52.5, "longitude": -13.25 });
        let words = "[location: latitude 52.5, longitude -13.25]";
        check(json!({ "location": place }), words, &[], false);
        let venue = json!({ "title": "Bar", "address": "Main St 1", "location": place });
        check(json!({ "location": place, "venue": venue }), words, &["Bar, Main St 1"], false);
        check(json!({ "location": place, "forward_origin": {} }), "", &[words], false);
        let contact = json!({ "first_name": "Bob", "phone_number": "+491" });
        check(json!({ "contact": contact }), "", &["Bob, +491"], false);
        let poll = json!({ "question": "Tea?", "options": [{ "text": "yes" }, { "text": "no" }] });
        check(json!({ "poll": poll }), "[poll]\nTea?\n- yes\n- no", &[], false);
        check(json!({ "dice": { "emoji": "🎲", "value": 3 } }), "[🎲: 3]", &[], false);
        check(json!({ "sticker": { "emoji": "👋" } }), "👋", &[], false);
        check(json!({ "sticker": {} }), "", &[], true);
        check(json!({ "game": { "title": "x" } }), "", &[], true);
        let service = message(json!({ "new_chat_members": [{ "id": 9 }] }));
        assert!(to_inbound(&service, &account()).is_none());
    }

    #[test]
    fn topics_and_commands() {
        let topic =
            message(json!({ "text": "a", "message_thread_id": 4, "is_topic_message": true }));
        assert_eq!(to_inbound(&topic, &account()).unwrap().chat.thread.as_deref(), Some("4"));
        let reply = message(json!({ "text": "a", "message_thread_id": 4 }));
        assert_eq!(to_inbound(&reply, &account()).unwrap().chat.thread, None);
        assert!(to_inbound(&Value::Null, &account()).is_none());
        for (text, expect) in [
            ("/new@the_bot", "/new"),
            ("/compact@the_bot keep names", "/compact keep names"),
            ("/new@other", "/new@other"),
            ("/new@the_bot2", "/new@the_bot2"),
            ("mail a@the_bot", "mail a@the_bot"),
            ("/", "/"),
        ] {
            assert_eq!(without_own_name(text, "the_bot"), expect);
        }
    }
}
