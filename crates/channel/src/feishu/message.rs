//! The messages of Feishu, as events and as requests have them. No I/O.

use crate::mention::{with_names, without_mention};
use crate::{AttachmentKind, Chat, Identity, InboundMessage, QuotedText, RemoteFile, Sender};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use serde_json::{Value, json};

/// Maximum characters of a text that is quoted.
const MAX_QUOTE_CHARS: usize = 500;
/// The key of a mention of everybody.
const MENTION_OF_ALL: &str = "@_all";

/// The message of an event of the type `im.message.receive_v1`.
pub(super) fn to_message(
    event: &Value,
    identity: &Identity,
    has_topics: bool,
) -> Option<InboundMessage> {
    let (message, sender) = (&event["message"], &event["sender"]);
    let text = |name: &str| message[name].as_str().filter(|text| !text.is_empty());
    let (id, chat) = (text("message_id")?, text("chat_id")?);
    let from = sender["sender_id"]["open_id"].as_str()?;
    let is_direct = message["chat_type"] == "p2p";
    let content = text("content").unwrap_or_default();
    let mentions = &message["mentions"];
    let body = MessageBody::read(text("message_type")?, content, id);
    let typed = resolve_mentions(&body.text, mentions, identity);
    let millis = text("create_time").and_then(|text| text.parse::<i64>().ok());
    let root = text("root_id").unwrap_or(id);
    let quotes = body.shared.map(|text| QuotedText::cut("shared content", &text, MAX_QUOTE_CHARS));
    if typed.is_empty() && body.files.is_empty() && quotes.is_none() {
        return None;
    }
    Some(InboundMessage {
        id: id.to_owned(),
        chat: if is_direct {
            Chat::new(from, None, true)
        } else {
            Chat::new(chat, has_topics.then_some(root), false)
        },
        from: Sender::new(from, None, sender["sender_type"] != "user"),
        text: typed,
        quotes: quotes.into_iter().collect(),
        mentions_us: is_mentioned(mentions, identity) || content.contains(MENTION_OF_ALL),
        files: body.files,
        sent_at: millis.unwrap_or_default() / 1000,
        reply_facts: json!({ "id": id, "parent": message["parent_id"], "topic": message["thread_id"] }),
        ..InboundMessage::default()
    })
}

/// The quote of a message that another one replies to, as a request returns it.
pub(super) fn to_quote(message: &Value, app_id: &str) -> Option<QuotedText> {
    let content = message["body"]["content"].as_str()?;
    let body = MessageBody::read(message["msg_type"].as_str()?, content, "");
    let text = if body.text.is_empty() { body.shared? } else { body.text };
    let id = message["message_id"].as_str();
    // Our messages are sent by the app itself.
    let is_ours = message["sender"]["id"] == app_id && message["sender"]["sender_type"] == "app";
    Some(QuotedText::replied(&text, MAX_QUOTE_CHARS, id, is_ours))
}

#[derive(Default)]
struct MessageBody {
    text: String,
    files: Vec<RemoteFile>,
    /// Content that the sender did not type, such as a card.
    shared: Option<String>,
}

impl MessageBody {
    /// Reads the content of a message by its type.
    fn read(kind: &str, content: &str, message: &str) -> Self {
        let value: Value = serde_json::from_str(content).unwrap_or_default();
        let file = |key: &str, name: &str, kind: AttachmentKind| {
            let resource = if key == "image_key" { "image" } else { "file" };
            let key = value[key].as_str()?;
            Some(RemoteFile {
                id: format!("{message}/{key}/{resource}"),
                name: value["file_name"].as_str().unwrap_or(name).to_owned(),
                kind,
                size_bytes: None,
                seconds: value["duration"].as_u64().map(|millis| millis / 1000),
            })
        };
        let with_file = |file: Option<RemoteFile>| Self {
            files: file.into_iter().collect(),
            ..Self::default()
        };
        match kind {
            "text" => Self {
                text: value["text"].as_str().unwrap_or_default().to_owned(),
                ..Self::default()
            },
            "post" => read_post(&value, message),
            "image" => with_file(file("image_key", "image.png", AttachmentKind::Image)),
            "audio" => with_file(file("file_key", "voice.opus", AttachmentKind::Voice)),
            "media" => with_file(file("file_key", "video.mp4", AttachmentKind::Video)),
            "file" => with_file(file("file_key", "file", AttachmentKind::File)),
            _ => Self {
                shared: (!content.is_empty()).then(|| content.to_owned()),
                ..Self::default()
            },
        }
    }
}

/// Reads rich text: paragraphs of elements, under a language in messages of other programs.
fn read_post(value: &Value, message: &str) -> MessageBody {
    let localized = value
        .as_object()
        .and_then(|languages| languages.values().find(|post| post["content"].is_array()));
    let post = if value["content"].is_array() { value } else { localized.unwrap_or(&Value::Null) };
    let mut body = MessageBody::default();
    let mut lines = vec![post["title"].as_str().unwrap_or_default().to_owned()];
    for paragraph in items(&post["content"]) {
        let mut line = String::new();
        for element in items(paragraph) {
            let text = element["text"].as_str().unwrap_or_default();
            match element["tag"].as_str() {
                Some("a") => {
                    let address = element["href"].as_str().unwrap_or_default();
                    line += &format!("{text} ({address})");
                }
                Some("at") => line += element["user_id"].as_str().unwrap_or_default(),
                Some("img") => {
                    if let Some(key) = element["image_key"].as_str() {
                        body.files.push(RemoteFile {
                            id: format!("{message}/{key}/image"),
                            name: "image.png".to_owned(),
                            kind: AttachmentKind::Image,
                            ..RemoteFile::default()
                        });
                    }
                }
                _ => line += text,
            }
        }
        lines.push(line);
    }
    body.text = lines.join("\n").trim().to_owned();
    body
}

fn is_mentioned(mentions: &Value, identity: &Identity) -> bool {
    items(mentions).any(|mention| mention["id"]["open_id"] == identity.id.as_str())
}

/// Removes the mentions of our account, and replaces the others by names. In the text, mentions are keys such as `@_user_1`.
fn resolve_mentions(text: &str, mentions: &Value, identity: &Identity) -> UserText {
    let mut text = text.to_owned();
    let keyed = items(mentions).filter_map(|mention| Some((mention["key"].as_str()?, mention)));
    let mut keyed: Vec<(&str, &Value)> = keyed.collect();
    // The key of the tenth contains that of the first.
    keyed.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
    let mut names = Vec::new();
    for (key, mention) in keyed {
        let open_id = mention["id"]["open_id"].as_str().unwrap_or_default();
        if open_id == identity.id {
            text = without_mention(&text, key).unwrap_or(text);
        } else {
            let name = mention["name"].as_str().unwrap_or_default();
            names.push((key.to_owned(), format!("@{name} ({open_id})")));
        }
    }
    with_names(&text, &names).trimmed()
}

#[cfg(test)]
mod tests {
    use super::{to_message, to_quote};
    use crate::Identity;
    use serde_json::{Value, json};

    fn read(kind: &str, content: &Value, mentions: Value) -> Option<crate::InboundMessage> {
        let account = Identity { id: "ou_bot".into(), name: "bot".into() };
        let event = json!({
            "sender": { "sender_id": { "open_id": "ou_ann" }, "sender_type": "user" },
            "message": { "message_id": "om_1", "chat_id": "oc_1", "chat_type": "group", "create_time": "5000",
                "message_type": kind, "content": content.to_string(), "mentions": mentions },
        });
        to_message(&event, &account, true)
    }

    #[test]
    fn mentions_are_resolved() {
        let mention =
            |key: &str, id: &str| json!({ "key": key, "id": { "open_id": id }, "name": "Eve" });
        let mentions = json!([mention("@_user_1", "ou_bot"), mention("@_user_10", "ou_eve")]);
        let message = read("text", &json!({ "text": "@_user_1 ask @_user_10" }), mentions).unwrap();
        assert_eq!(message.text.as_str(), "ask @Eve (ou_eve)");
        assert!(message.mentions_us);
        assert_eq!(message.chat.thread.as_deref(), Some("om_1"));
        assert_eq!(message.sent_at, 5);
    }

    #[test]
    fn kinds_of_messages() {
        let check = |kind: &str, content: Value, text: &str, files: &[&str], quotes: usize| {
            let message = read(kind, &content, Value::Null).unwrap();
            let ids: Vec<&str> = message.files.iter().map(|file| file.id.as_str()).collect();
            assert_eq!((message.text.as_str(), ids.as_slice()), (text, files));
            assert_eq!(message.quotes.len(), quotes);
        };
        check("image", json!({ "image_key": "k" }), "", &["om_1/k/image"], 0);
        check("audio", json!({ "file_key": "k", "duration": 2000 }), "", &["om_1/k/file"], 0);
        let post = json!({ "title": "T", "content": [[{ "tag": "text", "text": "see " },
            { "tag": "a", "text": "x", "href": "https://x" }], [{ "tag": "img", "image_key": "i" }]] });
        check("post", post.clone(), "T\nsee x (https://x)", &["om_1/i/image"], 0);
        check("post", json!({ "zh_cn": post }), "T\nsee x (https://x)", &["om_1/i/image"], 0);
        check("interactive", json!({ "title": "card" }), "", &[], 1);
        assert_eq!(read("text", &json!({ "text": " " }), Value::Null), None);
        let quoted = json!({ "msg_type": "text", "body": { "content": "{\"text\":\"earlier\"}" } });
        assert_eq!(to_quote(&quoted, "app").unwrap().text, "earlier");
    }
}
