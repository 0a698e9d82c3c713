//! Posts in the responses of a Mattermost server. No I/O.

use crate::access::GroupPolicy;
use crate::conversation_poll::{Conversation, ConversationEntry};
use crate::mention::without_mention;
use crate::thread_context::{ThreadMessage, context_quotes};
use crate::{AttachmentKind, Chat, Identity, InboundMessage, QuotedText, RemoteFile, Sender};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use serde_json::{Value, json};

/// Converts posts of a channel.
pub(super) struct PostReader<'r> {
    pub(super) identity: &'r Identity,
    pub(super) conversation: &'r Conversation,
    pub(super) replies_in_thread: bool,
    pub(super) policy_in_thread: GroupPolicy,
}

/// The posts of a list, in the order of their creation, without deleted ones.
pub(super) fn in_order(list: &Value) -> Vec<Value> {
    let posts = list["posts"].as_object().into_iter().flatten();
    let posts = posts.map(|(_, post)| post);
    let mut posts: Vec<Value> = posts.filter(|post| is_visible(post)).cloned().collect();
    sort(&mut posts);
    posts
}

/// The posts that were asked for, with deleted ones, in the order of the list: the newest first. Others of their threads, which the server
/// adds to a list, are left out.
pub(super) fn listed(list: &Value) -> Vec<Value> {
    items(&list["order"]).filter_map(|id| list["posts"].get(id.as_str()?)).cloned().collect()
}

/// Sorts posts by their creation.
pub(super) fn sort(posts: &mut [Value]) {
    posts.sort_by_key(|post| {
        let id = post["id"].as_str().unwrap_or_default();
        (created_at(post), id.to_owned())
    });
}

/// True if the post was not deleted.
pub(super) fn is_visible(post: &Value) -> bool {
    post["delete_at"].as_u64().unwrap_or_default() == 0
}

/// The time of a post, in milliseconds since 1970.
pub(super) fn created_at(post: &Value) -> u64 {
    post["create_at"].as_u64().unwrap_or_default()
}

/// The conversation of an event about a post of another user.
pub(super) fn conversation_of(event: &Value, identity: &Identity) -> Option<Conversation> {
    let post: Value = serde_json::from_str(event["data"]["post"].as_str()?).ok()?;
    let is_new = event["event"] == "posted" && post["user_id"] != identity.id.as_str();
    is_new.then(|| {
        Some(Conversation {
            id: post["channel_id"].as_str()?.to_owned(),
            is_direct: event["data"]["channel_type"] == "D",
            newest: None,
        })
    })?
}

impl PostReader<'_> {
    pub(super) fn to_entry(&self, post: &Value) -> ConversationEntry {
        let own_id = self.identity.id.as_str();
        let props = &post["props"];
        ConversationEntry {
            position: created_at(post),
            id: post["id"].as_str().unwrap_or_default().to_owned(),
            message: self.to_message(post),
            is_own_entrance: match post["type"].as_str() {
                Some("system_join_channel") => post["user_id"] == own_id,
                Some("system_add_to_channel") => props["addedUserId"] == own_id,
                _ => false,
            },
        }
    }

    /// Converts a post of another user; `None` for our own posts, for posts of the system, and for posts without content.
    fn to_message(&self, post: &Value) -> Option<InboundMessage> {
        let kind = post["type"].as_str().unwrap_or_default();
        let id = post["id"].as_str()?;
        let sender = post["user_id"].as_str()?;
        if sender == self.identity.id || kind.starts_with("system_") {
            return None;
        }
        let written = post["message"].as_str().unwrap_or_default();
        let mention = format!("@{}", self.identity.name);
        let without_own = without_mention(written, &mention);
        let is_mention = without_own.is_some();
        let root = post["root_id"].as_str().filter(|root| !root.is_empty());
        let is_direct = self.conversation.is_direct;
        let is_addressed = match self.policy_in_thread {
            GroupPolicy::Open | GroupPolicy::Allowlist => true,
            GroupPolicy::Mention => is_mention || is_direct,
        };
        if root.is_some() && !is_addressed {
            return None;
        }
        let opens_thread = self.replies_in_thread && !is_direct;
        let thread = root.or(opens_thread.then_some(id));
        let files: Vec<RemoteFile> =
            items(&post["metadata"]["files"]).filter_map(to_file).collect();
        let text = without_own.unwrap_or_else(|| written.to_owned());
        let is_empty = text.is_empty() && files.is_empty() && !is_mention;
        // The post has content of a plugin, or a file that the server does not describe.
        let is_unreadable = is_empty
            && (kind.starts_with("custom_")
                || items(&post["file_ids"]).len() > 0
                || items(&post["props"]["attachments"]).len() > 0);
        if is_empty && !is_unreadable {
            return None;
        }
        let is_prop = |name: &str| post["props"][name] == "true";
        Some(InboundMessage {
            is_unreadable,
            id: id.to_owned(),
            chat: Chat::new(&self.conversation.id, thread, is_direct),
            from: Sender::new(sender, None, is_prop("from_bot") || is_prop("from_webhook")),
            text: UserText::typed(text),
            mentions_us: is_mention
                || (root.is_some() && self.policy_in_thread == GroupPolicy::Open),
            files,
            sent_at: i64::try_from(created_at(post) / 1000).unwrap_or_default(),
            reply_facts: json!({ "account": self.identity.id }),
            ..InboundMessage::default()
        })
    }

    /// Up to `max_posts` posts of a thread before the post `id`, since our last one.
    pub(super) fn thread_context(
        &self,
        thread: &[Value],
        id: &str,
        max_posts: usize,
    ) -> Vec<QuotedText> {
        let before = thread.iter().take_while(|post| post["id"] != id);
        let messages = before.map(|post| ThreadMessage {
            id: post["id"].as_str().unwrap_or_default().to_owned(),
            is_own: post["user_id"] == self.identity.id.as_str(),
            text: post["message"].as_str().unwrap_or_default().to_owned(),
        });
        context_quotes(messages, max_posts)
    }
}

fn to_file(info: &Value) -> Option<RemoteFile> {
    let media_type = info["mime_type"].as_str().unwrap_or_default();
    Some(RemoteFile {
        id: info["id"].as_str()?.to_owned(),
        name: info["name"].as_str().unwrap_or_default().to_owned(),
        kind: AttachmentKind::of_media_type(media_type),
        size_bytes: info["size"].as_u64(),
        seconds: None,
    })
}

#[cfg(test)]
mod tests {
    use crate::mattermost::decode;
    use serde_json::{Value, json};

    #[test]
    fn what_a_user_sends_is_read_or_said() {
        // The text, the number of files, and if it cannot be read.
        let check = |members: Value, expect: Option<(&str, usize, bool)>| {
            let mut post = members;
            (post["id"], post["user_id"]) = (json!("p"), json!("ann"));
            let actual = decode(&post);
            let actual = actual
                .as_ref()
                .map(|message| (message.text.as_str(), message.files.len(), message.is_unreadable));
            assert_eq!(actual, expect);
        };
        check(json!({ "message": "hi" }), Some(("hi", 0, false)));
        check(json!({ "message": "waves", "type": "me" }), Some(("waves", 0, false)));
        let described = json!({ "files": [{ "id": "f", "name": "a.txt" }] });
        check(
            json!({ "message": "", "file_ids": ["f"], "metadata": described }),
            Some(("", 1, false)),
        );
        check(json!({ "message": "", "file_ids": ["f"] }), Some(("", 0, true)));
        check(json!({ "message": "", "type": "custom_voice" }), Some(("", 0, true)));
        let card = json!({ "attachments": [{ "text": "a" }] });
        check(json!({ "message": "", "props": card }), Some(("", 0, true)));
        check(json!({ "message": "" }), None);
        check(json!({ "message": "joined", "type": "system_join_channel" }), None);
    }
}
