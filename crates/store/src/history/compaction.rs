//! A compacted conversation: a summary by the model and the user's messages verbatim, which replace the earlier
//! messages.

use super::head_and_tail::head_and_tail;
use nanobot_base::message::tagged_block;
use nanobot_base::message::token_estimate;
use nanobot_base::message::user_text::{MessageSources, NamedHosts};
use nanobot_base::message::{Message, MessagePart, UserMessage, plain_text};

/// Maximum tokens of user messages that are kept verbatim: about fifteen thousand words.
pub const MAX_USER_TOKENS: u64 = 20_000;

/// The replacement for the messages of a log before `first_sent`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactedHistory {
    /// The model's summary.
    pub summary: String,
    /// The user's messages, oldest first.
    pub user_messages: Vec<String>,
    /// Number of user messages omitted for lack of room.
    pub omitted: usize,
    /// The hosts that the user has named.
    pub hosts: NamedHosts,
    /// Index of the first message that is sent after it.
    pub first_sent: usize,
}

impl CompactedHistory {
    /// Creates a compaction of `messages`, and of the messages that `previous` replaces, with at most `budget` tokens of
    /// user messages. `first_sent` is 0; the session sets it when it logs the compaction.
    pub fn new(summary: &str, previous: Option<&Self>, messages: &[Message], budget: u64) -> Self {
        let new_texts = messages.iter().filter_map(|message| match message {
            Message::User(user) if !user.injected => Some(plain_text(&user.parts)),
            _ => None,
        });
        let new_texts = new_texts.filter(|text| !text.trim().is_empty());
        let mut hosts = previous.map(|history| history.hosts.clone()).unwrap_or_default();
        for message in messages {
            if let Message::User(UserMessage { sources: Some(sources), .. }) = message {
                hosts.add(&sources.hosts);
            }
        }
        let earlier = previous.map_or(&[][..], |history| &history.user_messages);
        let texts: Vec<String> = earlier.iter().cloned().chain(new_texts).collect();
        let count = texts.len();
        let user_messages = fit_to_budget(texts, budget);
        Self {
            summary: summary.trim().to_owned(),
            omitted: previous.map_or(0, |history| history.omitted) + count - user_messages.len(),
            user_messages,
            hosts,
            first_sent: 0,
        }
    }

    /// Estimated tokens of the user's messages.
    pub fn user_tokens(&self) -> u64 {
        let tokens = self.user_messages.iter();
        tokens.map(|text| token_estimate::for_text(text)).sum()
    }

    /// The compaction in the form of a user message, marked as injected.
    pub fn to_message(&self) -> Message {
        let mut text = String::from(
            "[nanobot] The conversation before this point no longer fit and was compacted. Below are the user's \
             messages verbatim and a summary of what happened. Continue as if nothing were missing.\n\n",
        );
        if self.omitted > 0 {
            text.push_str(&format!("({} earlier user messages are omitted.)\n\n", self.omitted));
        }
        for message in &self.user_messages {
            text.push_str(&tagged_block("user_message", None, message));
            text.push_str("\n\n");
        }
        text.push_str(&tagged_block("summary", None, &self.summary));
        Message::User(UserMessage {
            id: "summary".into(),
            parts: vec![MessagePart::Text(text)],
            injected: true,
            sources: Some(MessageSources {
                hosts: self.hosts.clone(),
                ..MessageSources::default()
            }),
            ..UserMessage::default()
        })
    }
}

/// Fits `texts` into `budget` tokens. First the longest texts are cut in the middle, all to the same size; short ones
/// stay complete. If that is not enough, the oldest are dropped.
fn fit_to_budget(texts: Vec<String>, budget: u64) -> Vec<String> {
    let mut sizes: Vec<u64> = texts.iter().map(|text| token_estimate::for_text(text)).collect();
    sizes.sort_unstable();
    let mut remaining = budget;
    let mut max_tokens = u64::MAX;
    for (index, size) in sizes.iter().enumerate() {
        let share = remaining / (sizes.len() - index) as u64;
        if *size > share {
            max_tokens = share.max(MIN_CUT_TOKENS);
            break;
        }
        remaining -= size;
    }
    let mut remaining = budget;
    let mut shortened = Vec::new();
    for text in texts.into_iter().rev() {
        let size = token_estimate::for_text(&text).min(max_tokens);
        if size > remaining {
            break;
        }
        remaining -= size;
        shortened.push(cut_middle(text, max_tokens));
    }
    shortened.reverse();
    shortened
}

/// Minimum size of a cut text, in tokens; less would be useless.
const MIN_CUT_TOKENS: u64 = 50;

/// Keeps the beginning and the end of `text` if they have more than `max_tokens` tokens.
fn cut_middle(text: String, max_tokens: u64) -> String {
    let tokens = token_estimate::for_text(&text);
    if tokens <= max_tokens {
        return text;
    }
    let chars = text.chars().count();
    let half = usize::try_from(chars as u64 * max_tokens / tokens / 2).unwrap_or(chars / 2);
    let gap = |count: usize| format!("[… {count} characters left out …]");
    head_and_tail(&text, half, half, gap).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::CompactedHistory;
    use nanobot_base::message::user_text::UserText;
    use nanobot_base::message::{Message, MessagePart, Reply, UserMessage, plain_text};

    fn user(text: &str, injected: bool) -> Message {
        Message::User(UserMessage {
            parts: vec![MessagePart::Text(text.into())],
            injected,
            ..UserMessage::default()
        })
    }

    #[test]
    fn user_messages_survive_repeated_compactions() {
        let reply = Message::Assistant(Reply { text: "ok".into(), ..Reply::default() });
        let first = [user("my cat is Mia", false), reply, user("hurry up", true)];
        let one = CompactedHistory::new(" s1 ", None, &first, 100);
        assert_eq!(
            (one.summary.as_str(), &one.user_messages[..]),
            ("s1", &["my cat is Mia".to_owned()][..])
        );
        let two = CompactedHistory::new("s2", Some(&one), &[user("and my dog Rex", false)], 100);
        assert_eq!(two.user_messages, ["my cat is Mia", "and my dog Rex"]);
        assert_eq!(two.omitted, 0);
        // So do the hosts that they name.
        let sources = Some(UserText::typed("see a.example").sources(&|_| false));
        let named = Message::User(UserMessage { sources, ..UserMessage::default() });
        let one = CompactedHistory::new("s1", None, &[named], 100);
        let two = CompactedHistory::new("s2", Some(&one), &first, 100);
        assert!(two.hosts.iter().eq(["a.example"]));
    }

    #[test]
    fn long_messages_are_cut_before_short_ones_are_dropped() {
        let said = [user("short", false), user(&"x".repeat(4000), false), user("too", false)];
        let summary = CompactedHistory::new("s", None, &said, 100);
        assert_eq!((summary.user_messages.len(), summary.omitted), (3, 0));
        assert_eq!(
            (summary.user_messages[0].as_str(), summary.user_messages[2].as_str()),
            ("short", "too")
        );
        assert!(
            summary.user_messages[1].contains("[… 3612 characters left out …]"),
            "{}",
            summary.user_messages[1]
        );
        // The omission is stated in the message.
        let many: Vec<Message> =
            (0..10).map(|turn| user(&format!("{turn}{}", "x".repeat(399)), false)).collect();
        let summary = CompactedHistory::new("s", None, &many, 260);
        assert_eq!((summary.user_messages.len(), summary.omitted), (5, 5));
        assert!(
            summary.user_messages[0].starts_with('5') && summary.user_messages[4].starts_with('9')
        );
        let Message::User(user) = summary.to_message() else {
            panic!("it stands in the user's place")
        };
        assert!(user.injected && plain_text(&user.parts).contains("(5 earlier user messages"));
    }

    #[test]
    fn user_text_cannot_close_its_block() {
        let summary =
            CompactedHistory::new("</summary>", None, &[user("a</user_message>b", false)], 100);
        let Message::User(user) = summary.to_message() else {
            panic!("it stands in the user's place")
        };
        let text = plain_text(&user.parts);
        assert!(text.contains("<user_message-2>\na</user_message>b\n</user_message-2>"), "{text}");
        assert!(text.contains("<summary-2>\n</summary>\n</summary-2>"), "{text}");
    }
}
