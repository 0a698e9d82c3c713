//! Messages in the responses of Discord's API. No I/O.

use crate::conversation_poll::ConversationEntry;
use crate::mention::{with_names, without_mention, written_mention};
use crate::press::{BUTTONS, with_payload};
use crate::{
    AttachmentKind, Chat, Identity, InboundMessage, QuotedText, RemoteFile, Sender, poll_text,
};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use serde_json::{Value, json};

/// The position of the time in an id, in bits (Discord, "Snowflakes").
const ID_TIME_SHIFT: u32 = 22;
/// The beginning of the time of ids, in milliseconds since 1970.
const ID_EPOCH_MILLIS: u64 = 1_420_070_400_000;
/// Characters of a quoted text that the model receives.
const MAX_QUOTE_CHARS: usize = 4000;
/// Types of messages that people write: usual ones, and replies.
const USUAL_TYPE: u64 = 0;
const REPLY_TYPE: u64 = 19;
/// The type of a notice that a user has joined.
const JOIN_TYPE: u64 = 7;
/// The flag of a voice message.
const VOICE_FLAG: u64 = 0x2000;
/// Types of components (Discord, "Component Types").
const ACTION_ROW: u64 = 1;
const BUTTON: u64 = 2;
/// The style of a button of no special meaning (Discord, "Button Styles").
const SECONDARY_STYLE: u64 = 2;

/// The number of an id; ids grow with time.
pub(super) fn number_of(id: &Value) -> u64 {
    let text = id.as_str().unwrap_or_default();
    text.parse().unwrap_or_default()
}

/// Converts a message in `chat`.
pub(super) fn to_entry(message: &Value, chat: &Chat, identity: &Identity) -> ConversationEntry {
    let id = &message["id"];
    let is_own = message["author"]["id"] == identity.id.as_str();
    ConversationEntry {
        position: number_of(id),
        id: id.as_str().unwrap_or_default().to_owned(),
        message: if is_own { None } else { to_message(message, chat, identity) },
        is_own_entrance: is_own && message["type"] == JOIN_TYPE,
    }
}

/// Converts a message that another user has changed; `None` for our own.
pub(super) fn to_edit(message: &Value, identity: &Identity) -> Option<InboundMessage> {
    let id = message["channel_id"].as_str()?;
    let chat = Chat::new(id, None, message["guild_id"].is_null());
    let edited = to_entry(message, &chat, identity).message?;
    Some(InboundMessage { is_edit: true, ..edited })
}

/// Converts a message; `None` for notices, and for messages without content.
fn to_message(message: &Value, chat: &Chat, identity: &Identity) -> Option<InboundMessage> {
    let kind = message["type"].as_u64()?;
    if ![USUAL_TYPE, REPLY_TYPE].contains(&kind) {
        return None;
    }
    let id = message["id"].as_str()?;
    let author = &message["author"];
    let sender = author["id"].as_str()?;
    let mut mentions = items(&message["mentions"]);
    let mut text = message["content"].as_str().unwrap_or_default().to_owned();
    for mention in [format!("<@{}>", identity.id), format!("<@!{}>", identity.id)] {
        text = without_mention(&text, &mention).unwrap_or(text);
    }
    let names = mentions.clone().filter_map(|user| {
        let (id, name) = (user["id"].as_str()?, user["username"].as_str()?);
        Some((format!("<@{id}>"), written_mention(name, id)))
    });
    let mut text = with_names(&text, &names.collect::<Vec<_>>());
    let replied = &message["referenced_message"];
    let is_reply_to_us = replied["author"]["id"] == identity.id.as_str();
    let is_mention = mentions.any(|user| user["id"] == identity.id.as_str());
    let forwarded = items(&message["message_snapshots"]).map(|forward| &forward["message"]);
    let texts = forwarded.clone().filter_map(|forwarded| {
        let text = forwarded["content"].as_str()?;
        (!text.is_empty()).then(|| QuotedText::cut("forwarded message", text, MAX_QUOTE_CHARS))
    });
    let mut quotes: Vec<QuotedText> = texts.collect();
    let mut parts = std::iter::once(message).chain(forwarded);
    let files: Vec<RemoteFile> = parts.clone().flat_map(to_files).collect();
    let poll = &message["poll"];
    if text.is_empty()
        && let Some(question) = poll["question"]["text"].as_str()
    {
        let answers =
            items(&poll["answers"]).filter_map(|answer| answer["poll_media"]["text"].as_str());
        text = UserText::label(poll_text(question, answers));
    }
    let is_empty = text.is_empty() && files.is_empty() && quotes.is_empty();
    let is_unreadable = is_empty && parts.any(|part| items(&part["sticker_items"]).len() > 0);
    if is_empty && !is_mention && !is_unreadable {
        return None;
    }
    if kind == REPLY_TYPE {
        // The message that is replied to may have no text, or be deleted.
        let text = replied["content"].as_str().unwrap_or_default();
        let replied_id = message["message_reference"]["message_id"].as_str();
        let replied_id = replied_id.or(replied["id"].as_str());
        quotes.insert(0, QuotedText::replied(text, MAX_QUOTE_CHARS, replied_id, is_reply_to_us));
    }
    Some(InboundMessage {
        id: id.to_owned(),
        chat: chat.clone(),
        from: Sender::new(
            sender,
            author["username"].as_str(),
            author["bot"] == true || message["webhook_id"].is_string(),
        ),
        text,
        quotes,
        mentions_us: is_mention || is_reply_to_us,
        files,
        is_unreadable,
        sent_at: sent_at(&message["id"]),
        reply_facts: json!({ "message_id": id }),
        ..InboundMessage::default()
    })
}

/// The buttons of a question.
pub(super) fn to_components(question: &str) -> Value {
    let buttons = BUTTONS.iter().map(|button| {
        json!({
            "type": BUTTON, "style": SECONDARY_STYLE, "label": button.label,
            "custom_id": button.payload(question),
        })
    });
    json!([{ "type": ACTION_ROW, "components": buttons.collect::<Vec<_>>() }])
}

/// Converts the interaction of a press (Discord, "Interaction Object"); `None` for another one.
pub(super) fn to_press(interaction: &Value) -> Option<InboundMessage> {
    let channel = interaction["channel_id"].as_str()?;
    let question_message = interaction["message"]["id"].as_str()?;
    // In a server, the user is a part of the member.
    let users = [&interaction["member"]["user"], &interaction["user"]];
    let user = users.into_iter().find(|user| user.is_object())?;
    let message = InboundMessage {
        id: format!("press:{}", interaction["id"].as_str()?),
        chat: Chat::new(channel, None, false),
        from: Sender::new(user["id"].as_str()?, user["username"].as_str(), user["bot"] == true),
        sent_at: sent_at(&interaction["id"]),
        reply_facts: json!({ "message_id": question_message }),
        ..InboundMessage::default()
    };
    with_payload(message, interaction["data"]["custom_id"].as_str()?, question_message)
}

/// The time in an id, in seconds since 1970.
fn sent_at(id: &Value) -> i64 {
    let millis = (number_of(id) >> ID_TIME_SHIFT) + ID_EPOCH_MILLIS;
    i64::try_from(millis / 1000).unwrap_or_default()
}

/// The attachments of a message, or of a forwarded one.
fn to_files(message: &Value) -> impl Iterator<Item = RemoteFile> {
    let is_voice = message["flags"].as_u64().unwrap_or_default() & VOICE_FLAG != 0;
    items(&message["attachments"]).filter_map(move |attachment| to_file(attachment, is_voice))
}

fn to_file(attachment: &Value, is_voice: bool) -> Option<RemoteFile> {
    let media_type = attachment["content_type"].as_str().unwrap_or_default();
    let seconds = attachment["duration_secs"].as_f64();
    let seconds = seconds.filter(|seconds| (0.0..1e6).contains(seconds));
    Some(RemoteFile {
        id: attachment["url"].as_str()?.to_owned(),
        name: attachment["filename"].as_str().unwrap_or_default().to_owned(),
        kind: if is_voice {
            AttachmentKind::Voice
        } else {
            AttachmentKind::of_media_type(media_type)
        },
        size_bytes: attachment["size"].as_u64(),
        seconds: seconds.map(|seconds| std::time::Duration::from_secs_f64(seconds).as_secs()),
    })
}

#[cfg(test)]
mod tests {
    use super::to_message;
    use crate::{Chat, Identity};
    use serde_json::{Value, json};

    #[test]
    fn what_a_user_sends_is_read_or_said() {
        let account = Identity { id: "8".into(), name: "bot".into() };
        // The text, the quotes, the number of files, and if it cannot be read.
        let check = |members: Value, expect: Option<(&str, &[&str], usize, bool)>| {
            let mut message = members;
            (message["id"], message["author"]) = (json!("1"), json!({ "id": "7" }));
            if message["type"].is_null() {
                message["type"] = 0.into();
            }
            let actual = to_message(&message, &Chat::default(), &account);
            let actual = actual.as_ref().map(|message| {
                let quotes: Vec<&str> =
                    message.quotes.iter().map(|quote| quote.text.as_str()).collect();
                (message.text.as_str(), quotes, message.files.len(), message.is_unreadable)
            });
            let expect = expect.map(|(text, quotes, files, unreadable)| {
                (text, quotes.to_vec(), files, unreadable)
            });
            assert_eq!(actual, expect);
        };
        check(json!({ "content": "hi" }), Some(("hi", &[], 0, false)));
        let poll = json!({ "question": { "text": "Tea?" }, "answers": [
            { "poll_media": { "text": "yes" } }, { "poll_media": { "text": "no" } }] });
        check(
            json!({ "content": "", "poll": poll }),
            Some(("[poll]\nTea?\n- yes\n- no", &[], 0, false)),
        );
        let sticker = json!([{ "id": "5", "name": "wave" }]);
        check(json!({ "content": "", "sticker_items": sticker }), Some(("", &[], 0, true)));
        check(json!({ "content": "hi", "sticker_items": sticker }), Some(("hi", &[], 0, false)));
        let file = json!([{ "url": "https://x", "filename": "a.txt" }]);
        check(json!({ "content": "", "attachments": file }), Some(("", &[], 1, false)));
        let forward = |forwarded: Value| json!({ "content": "", "message_snapshots": [{ "message": forwarded }] });
        check(forward(json!({ "content": "", "attachments": file })), Some(("", &[], 1, false)));
        check(
            forward(json!({ "content": "x", "attachments": file })),
            Some(("", &["x"], 1, false)),
        );
        check(
            forward(json!({ "content": "", "sticker_items": sticker })),
            Some(("", &[], 0, true)),
        );
        check(forward(json!({ "content": "" })), None);
        let ours = json!({ "id": "2", "author": { "id": "8" }, "content": "Call Bob." });
        let reply = |content: &str| json!({ "type": 19, "content": content, "referenced_message": ours, "sticker_items": sticker });
        check(reply("done"), Some(("done", &["Call Bob."], 0, false)));
        check(reply(""), Some(("", &["Call Bob."], 0, true)));
        let deleted = json!({ "type": 19, "content": "yes", "referenced_message": null,
            "message_reference": { "message_id": "2" } });
        check(deleted, Some(("yes", &[""], 0, false)));
        check(json!({ "content": "" }), None);
    }
}
