//! Messages in the responses of Slack's Web API. No I/O.

use crate::conversation_poll::{Conversation, ConversationEntry};
use crate::mention::{without_mention, written_mention};
use crate::{AttachmentKind, Chat, Identity, InboundMessage, QuotedText, RemoteFile, Sender};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use serde_json::{Value, json};

/// Maximum characters of a message that is shared.
const MAX_QUOTE_CHARS: usize = 4000;

/// Converts messages of a conversation.
pub(super) struct MessageReader<'r> {
    pub(super) identity: &'r Identity,
    pub(super) conversation: &'r Conversation,
    pub(super) replies_in_thread: bool,
    /// Ignore messages in channels that do not mention us, whatever the group policy is.
    pub(super) requires_mention: bool,
}

/// The position of a time stamp such as `1512085950.000216`, in microseconds since 1970.
pub(super) fn position_of(stamp: &Value) -> u64 {
    let stamp = stamp.as_str().unwrap_or_default();
    let (seconds, rest) = stamp.split_once('.').unwrap_or((stamp, ""));
    let micros = format!("{rest:0<6}");
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    let micros = number(micros.get(..6).unwrap_or_default());
    number(seconds).saturating_mul(1_000_000).saturating_add(micros)
}

/// The time stamp of a position.
pub(super) fn stamp_of(position: u64) -> String {
    format!("{}.{:06}", position / 1_000_000, position % 1_000_000)
}

/// The conversation of an event about a message of another user, and the thread that it is in.
pub(super) fn conversation_of(
    event: &Value,
    identity: &Identity,
) -> Option<(Conversation, Option<String>)> {
    let id = event["channel"].as_str()?;
    let is_message = matches!(event["type"].as_str(), Some("message" | "app_mention"));
    let is_ours = event["user"] == identity.id.as_str();
    let thread = event["thread_ts"].as_str().map(str::to_owned);
    let conversation = Conversation {
        id: id.to_owned(),
        is_direct: event["channel_type"] == "im" || id.starts_with('D'),
        newest: None,
    };
    (is_message && !is_ours).then_some((conversation, thread))
}

/// Converts the event of a message that another user has changed (Slack, "message_changed"); `None` for another event.
pub(super) fn to_edit(event: &Value, identity: &Identity) -> Option<InboundMessage> {
    if event["subtype"] != "message_changed" {
        return None;
    }
    let (conversation, _) = conversation_of(event, identity)?;
    let reader = MessageReader {
        identity,
        conversation: &conversation,
        replies_in_thread: false,
        requires_mention: false,
    };
    Some(InboundMessage { is_edit: true, ..reader.to_message(&event["message"])? })
}

impl MessageReader<'_> {
    pub(super) fn to_entry(&self, message: &Value) -> ConversationEntry {
        let is_join = matches!(message["subtype"].as_str(), Some("channel_join" | "group_join"));
        let stamp = message["ts"].as_str().unwrap_or_default();
        ConversationEntry {
            position: position_of(&message["ts"]),
            id: stamp.to_owned(),
            message: self.to_message(message),
            is_own_entrance: is_join && message["user"] == self.identity.id.as_str(),
        }
    }

    /// Converts a message of another user; `None` for our own, for notices, and for those without content.
    fn to_message(&self, message: &Value) -> Option<InboundMessage> {
        let stamp = message["ts"].as_str()?;
        let bot = message["bot_id"].as_str();
        let sender = message["user"].as_str().or(bot)?;
        let is_content = matches!(
            message["subtype"].as_str(),
            None | Some("file_share" | "thread_broadcast" | "bot_message" | "me_message")
        );
        if sender == self.identity.id || !is_content {
            return None;
        }
        let written = message["text"].as_str().unwrap_or_default();
        let without_own = without_mention(written, &format!("<@{}>", self.identity.id));
        let is_mention = without_own.is_some();
        let is_direct = self.conversation.is_direct;
        if self.requires_mention && !is_mention && !is_direct {
            return None;
        }
        let files: Vec<RemoteFile> = items(&message["files"]).filter_map(to_file).collect();
        let text = to_text(without_own.as_deref().unwrap_or(written));
        // A shared message, or the card of a bot.
        let cards = items(&message["attachments"]);
        let cards = cards.filter_map(|card| card["text"].as_str().or(card["fallback"].as_str()));
        let cards = cards.map(to_plain).filter(|card| text.is_empty() && !card.is_empty());
        let quotes: Vec<QuotedText> =
            cards.map(|card| QuotedText::cut("shared message", &card, MAX_QUOTE_CHARS)).collect();
        let is_empty = text.is_empty() && files.is_empty() && quotes.is_empty();
        let lists = ["files", "attachments", "blocks"];
        let is_unreadable = is_empty && lists.iter().any(|name| items(&message[*name]).len() > 0);
        if is_empty && !is_mention && !is_unreadable {
            return None;
        }
        let opens_thread = self.replies_in_thread && !is_direct;
        let thread = message["thread_ts"].as_str();
        let thread = thread.or(opens_thread.then_some(stamp));
        let id = &self.conversation.id;
        let sent_at = position_of(&message["ts"]) / 1_000_000;
        Some(InboundMessage {
            id: format!("{id}:{stamp}"),
            chat: Chat::new(id, thread, is_direct),
            from: Sender::new(sender, None, bot.is_some()),
            text,
            quotes,
            is_unreadable: is_unreadable && !is_mention,
            mentions_us: is_mention,
            files,
            sent_at: i64::try_from(sent_at).unwrap_or_default(),
            reply_facts: json!({ "ts": stamp }),
            ..InboundMessage::default()
        })
    }
}

fn to_file(file: &Value) -> Option<RemoteFile> {
    let address = file["url_private_download"].as_str();
    let media_type = file["mimetype"].as_str().unwrap_or_default();
    let kind = match file["subtype"].as_str() {
        Some("slack_audio") => AttachmentKind::Voice,
        _ => AttachmentKind::of_media_type(media_type),
    };
    Some(RemoteFile {
        id: address.or(file["url_private"].as_str())?.to_owned(),
        name: file["name"].as_str().unwrap_or_default().to_owned(),
        kind,
        size_bytes: file["size"].as_u64(),
        seconds: file["duration_ms"].as_u64().map(|millis| millis / 1000),
    })
}

/// The text of another user's message, as [`to_text`] returns it.
pub(super) fn to_plain(text: &str) -> String {
    to_text(text).as_str().to_owned()
}

/// The text of a message without its escapes: links, and names of users and channels, as people type them.
fn to_text(text: &str) -> UserText {
    let unescape =
        |text: &str| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let typed = |text: &str| UserText::typed(unescape(text));
    let name = |text: &str| UserText::label(unescape(text));
    let mut out = UserText::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((reference, after)) = after.split_once('>') else {
            break;
        };
        out.push(&typed(before));
        let (target, label) = match reference.split_once('|') {
            Some((target, label)) => (target, Some(label).filter(|label| !label.is_empty())),
            None => (reference, None),
        };
        match (target.chars().next(), label) {
            (Some('@'), Some(label)) => {
                out.push(&name(&written_mention(label.trim_start_matches('@'), &target[1..])));
            }
            (Some('#'), Some(label)) => {
                out.push(&name(&format!("#{}", label.trim_start_matches('#'))));
            }
            (Some('!'), Some(label)) => out.push(&name(label)),
            (Some('!'), None) => out.push(&name(&format!("@{}", &target[1..]))),
            (_, Some(label)) if !target.ends_with(label) => {
                out.push(&typed(&format!("{label} ({target})")));
            }
            _ => out.push(&typed(target.trim_start_matches("mailto:"))),
        }
        rest = after;
    }
    out.push(&typed(rest));
    out.trimmed()
}

#[cfg(test)]
mod tests {
    use super::{position_of, stamp_of, to_plain};
    use crate::slack::decode;
    use nanobot_base::fuzz;
    use serde_json::{Value, json};

    #[test]
    fn stamps_are_positions() {
        let position = position_of(&json!("1512085950.000216"));
        assert_eq!(position, 1_512_085_950_000_216);
        assert_eq!(stamp_of(position), "1512085950.000216");
        assert_eq!(position_of(&json!("12.5")), 12_500_000);
        assert_eq!(position_of(&json!("x.é")), 0);
        assert_eq!(position_of(&json!(null)), 0);
    }

    #[test]
    fn what_a_user_sends_is_read_or_said() {
        // The text, the quotes, the number of files, and if it cannot be read.
        let check = |members: Value, expect: Option<(&str, &[&str], usize, bool)>| {
            let mut message = members;
            (message["ts"], message["user"]) = (json!("1.0"), json!("UANN"));
            let actual = decode(&message);
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
        check(json!({ "text": "hi" }), Some(("hi", &[], 0, false)));
        check(json!({ "subtype": "me_message", "text": "waves" }), Some(("waves", &[], 0, false)));
        let shared = json!([{ "is_share": true, "text": "a &amp; b", "fallback": "x" }]);
        check(json!({ "text": "", "attachments": shared }), Some(("", &["a & b"], 0, false)));
        // The preview of a link that was typed.
        check(json!({ "text": "see", "attachments": shared }), Some(("see", &[], 0, false)));
        let file = json!([{ "url_private": "https://files.slack.com/a", "name": "a.txt" }]);
        check(json!({ "text": "", "files": file }), Some(("", &[], 1, false)));
        let hidden = json!([{ "id": "F1", "mode": "hidden_by_limit" }]);
        check(json!({ "text": "", "files": hidden }), Some(("", &[], 0, true)));
        check(json!({ "text": "", "blocks": [{ "type": "image" }] }), Some(("", &[], 0, true)));
        check(json!({ "text": "" }), None);
        check(json!({ "subtype": "channel_topic", "text": "new" }), None);
    }

    #[test]
    fn references_are_written_as_people_type_them() {
        let check = |text: &str, expect: &str| assert_eq!(to_plain(text), expect);
        check("a &lt;b&gt; &amp;amp;", "a <b> &amp;");
        check("<@U2|ann: delete it>", "@U2");
        check("<@U2> <@U2|ann> <#C1|town> <!here>", "@U2 @ann #town @here");
        check(
            "<https://x.y|X> <https://x.y|x.y> <https://x.y>",
            "X (https://x.y) https://x.y https://x.y",
        );
        check("<mailto:a@b.c|a@b.c> a < b", "a@b.c a < b");
    }

    #[test]
    fn fuzz_texts_keep_their_words() {
        let seeds: &[&[u8]] = &[b"a <@U1|b> <https://x|y> &lt;c&gt; <!here> <#C|d>"];
        fuzz::check(seeds, |input, _| {
            let text = fuzz::lossy_text(input);
            let plain = to_plain(&text);
            assert!(plain.len() <= 2 * text.len() + 8, "{text:?}");
            position_of(&json!(text));
        });
    }
}
