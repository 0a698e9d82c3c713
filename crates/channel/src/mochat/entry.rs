//! A message of a session or a panel of Mochat. No I/O.

use crate::mention::with_unmarked_names;
use crate::{Chat, InboundMessage, QuotedText, Sender};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use serde::Deserialize;
use serde_json::{Value, json};

/// A message of a session or a panel.
pub(super) struct PanelEntry {
    pub(super) id: String,
    pub(super) author: String,
    pub(super) name: String,
    pub(super) text: UserText,
    pub(super) group: Option<String>,
    pub(super) is_mention: bool,
    pub(super) sent_at: i64,
}

impl PanelEntry {
    /// Reads a message of another user.
    pub(super) fn read(payload: &Value, time: &Value, agent: &str) -> Option<Self> {
        let text = |name: &str| payload[name].as_str().filter(|text| !text.is_empty());
        let (id, author) = (text("messageId")?, text("author")?);
        if author == agent {
            return None;
        }
        let content = match &payload["content"] {
            Value::String(content) => with_unmarked_names(content.trim()),
            Value::Null => return None,
            content => UserText::label(content.to_string()),
        };
        let info = &payload["authorInfo"];
        let sent_at = time.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Some(Self {
            id: id.to_owned(),
            author: author.to_owned(),
            name: info["nickname"].as_str().unwrap_or(author).to_owned(),
            is_mention: is_mention(payload, &content, agent),
            text: content,
            group: text("groupId").map(str::to_owned),
            sent_at: sent_at.map_or(0, jiff::Timestamp::as_second),
        })
        .filter(|entry| !entry.text.is_empty())
    }

    /// The form in which it is stored while it is delayed.
    pub(super) fn to_json(&self) -> Value {
        json!({ "id": self.id, "author": self.author, "name": self.name, "text": self.text,
            "group": self.group, "at": self.sent_at })
    }

    /// Reads that form.
    pub(super) fn from_json(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Self {
            id: text("id"),
            author: text("author"),
            name: text("name"),
            text: match &value["text"] {
                // The form of earlier releases.
                Value::String(text) => UserText::label(text.as_str()),
                text => UserText::deserialize(text).unwrap_or_default(),
            },
            group: value["group"].as_str().map(str::to_owned),
            is_mention: false,
            sent_at: value["at"].as_i64().unwrap_or_default(),
        }
    }

    /// The inbound message, with quotes of other users.
    pub(super) fn to_message(
        &self,
        chat: &str,
        is_direct: bool,
        quotes: Vec<QuotedText>,
    ) -> InboundMessage {
        InboundMessage {
            id: self.id.clone(),
            chat: Chat::new(chat, None, is_direct),
            from: Sender::new(&self.author, Some(&self.name), false),
            text: self.text.clone(),
            quotes,
            sent_at: self.sent_at,
            reply_facts: json!({ "id": self.id, "group": self.group }),
            ..InboundMessage::default()
        }
    }
}

/// True if a message mentions the agent, by its data or in its text.
fn is_mention(payload: &Value, content: &str, agent: &str) -> bool {
    let meta = &payload["meta"];
    if meta["mentioned"] == true || meta["wasMentioned"] == true {
        return true;
    }
    if agent.is_empty() {
        return false;
    }
    let lists = ["mentions", "mentionIds", "mentionedUserIds", "mentionedUsers"];
    let mut mentions = lists.iter().flat_map(|name| items(&meta[name]));
    let is_agent = |mention: &Value| {
        let ids = [mention, &mention["id"], &mention["userId"], &mention["_id"]];
        ids.iter().any(|id| **id == agent)
    };
    mentions.any(is_agent) || content.contains(&format!("@{agent}"))
}
