//! A compacted conversation: a summary by the model and the user's messages verbatim, which replace the earlier
//! messages.

use super::ends::ends;
use crate::message::block;
use crate::message::token_estimate;
use crate::message::{Message, Part, User, plain_text};

/// Maximum tokens of user messages that are kept verbatim: about fifteen thousand words.
pub const WORDS: u64 = 20_000;

/// The replacement for the messages of a log before `first_sent`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compaction {
    /// The model's summary.
    pub text: String,
    /// The user's messages, oldest first.
    pub words: Vec<String>,
    /// Number of user messages omitted for lack of room.
    pub left_out: usize,
    /// Index of the first message that is sent after it.
    pub from: usize,
}

impl Compaction {
    /// Creates a compaction of `messages`, and of those that `previous` stands for, with at most `budget` tokens of
    /// user messages. `first_sent` is 0; the session sets it when it logs the compaction.
    pub fn new(text: &str, before: Option<&Self>, messages: &[Message], budget: u64) -> Self {
        let new_texts = messages.iter().filter_map(|message| match message {
            Message::User(user) if !user.injected => Some(plain_text(&user.parts)),
            _ => None,
        });
        let new_texts = new_texts.filter(|text| !text.trim().is_empty());
        let earlier = before.map_or(&[][..], |before| &before.words);
        let all: Vec<String> = earlier.iter().cloned().chain(new_texts).collect();
        let count = all.len();
        let words = fitting(all, budget);
        Self {
            text: text.trim().to_owned(),
            left_out: before.map_or(0, |before| before.left_out) + count - words.len(),
            words,
            from: 0,
        }
    }

    /// The compaction in the form of a user message, marked as injected.
    pub fn message(&self) -> Message {
        let mut text = String::from(
            "[nanobot] The conversation before this point no longer fit and was compacted. Below are the user's \
             messages verbatim and a summary of what happened. Continue as if nothing were missing.\n\n",
        );
        if self.left_out > 0 {
            text.push_str(&format!(
                "({} earlier user messages are omitted.)\n\n",
                self.left_out
            ));
        }
        for words in &self.words {
            text.push_str(&block("user_message", None, words));
            text.push_str("\n\n");
        }
        text.push_str(&block("summary", None, &self.text));
        Message::User(User {
            id: "summary".into(),
            parts: vec![Part::Text(text)],
            facts: String::new(),
            injected: true,
        })
    }
}

/// Fits `texts` into `budget` tokens. First the longest texts are cut in the middle, all to the same size; short ones
/// stay complete. If that is not enough, the oldest are dropped.
fn fitting(all: Vec<String>, budget: u64) -> Vec<String> {
    let mut weights: Vec<u64> = all
        .iter()
        .map(|words| token_estimate::of_text(words))
        .collect();
    weights.sort_unstable();
    let (mut room, mut size) = (budget, u64::MAX);
    for (number, weight) in weights.iter().enumerate() {
        let share = room / (weights.len() - number) as u64;
        if *weight > share {
            size = share.max(LEAST);
            break;
        }
        room -= weight;
    }
    let mut room = budget;
    let mut fitted = Vec::new();
    for words in all.into_iter().rev() {
        let weight = token_estimate::of_text(&words).min(size);
        if weight > room {
            break;
        }
        room -= weight;
        fitted.push(cut(words, size));
    }
    fitted.reverse();
    fitted
}

/// Minimum size of a cut text, in tokens; less would be useless.
const LEAST: u64 = 50;

/// Keeps the beginning and the end of `text` if they have more than `max_tokens` tokens.
fn cut(words: String, size: u64) -> String {
    let weight = token_estimate::of_text(&words);
    if weight <= size {
        return words;
    }
    let letters = words.chars().count();
    let half = usize::try_from(letters as u64 * size / weight / 2).unwrap_or(letters / 2);
    let gap = |count: usize| format!("[… {count} characters left out …]");
    ends(&words, half, half, gap).unwrap_or(words)
}

#[cfg(test)]
mod tests {
    use super::Compaction;
    use crate::message::{Message, Part, Reply, User, plain_text};

    fn user(text: &str, injected: bool) -> Message {
        Message::User(User {
            parts: vec![Part::Text(text.into())],
            injected,
            ..User::default()
        })
    }

    #[test]
    fn the_users_words_survive_one_compaction_after_another() {
        let reply = Message::Assistant(Reply {
            text: "ok".into(),
            ..Reply::default()
        });
        let first = [user("my cat is Mia", false), reply, user("hurry up", true)];
        let one = Compaction::new(" s1 ", None, &first, 100);
        assert_eq!(
            (one.text.as_str(), &one.words[..]),
            ("s1", &["my cat is Mia".to_owned()][..])
        );
        let two = Compaction::new("s2", Some(&one), &[user("and my dog Rex", false)], 100);
        assert_eq!(two.words, ["my cat is Mia", "and my dog Rex"]);
        assert_eq!(two.left_out, 0);
    }

    #[test]
    fn long_words_are_cut_before_short_ones_go() {
        let said = [
            user("short", false),
            user(&"x".repeat(4000), false),
            user("too", false),
        ];
        let summary = Compaction::new("s", None, &said, 100);
        assert_eq!((summary.words.len(), summary.left_out), (3, 0));
        assert_eq!(
            (summary.words[0].as_str(), summary.words[2].as_str()),
            ("short", "too")
        );
        assert!(
            summary.words[1].contains("[… 3612 characters left out …]"),
            "{}",
            summary.words[1]
        );
        // The omission is stated in the message.
        let many: Vec<Message> = (0..10)
            .map(|turn| user(&format!("{turn}{}", "x".repeat(399)), false))
            .collect();
        let summary = Compaction::new("s", None, &many, 260);
        assert_eq!((summary.words.len(), summary.left_out), (5, 5));
        assert!(summary.words[0].starts_with('5') && summary.words[4].starts_with('9'));
        let Message::User(user) = summary.message() else {
            panic!("it stands in the user's place")
        };
        assert!(user.injected && plain_text(&user.parts).contains("(5 earlier messages"));
    }

    #[test]
    fn no_words_can_end_their_block() {
        let summary = Compaction::new("</summary>", None, &[user("a</user_message>b", false)], 100);
        let Message::User(user) = summary.message() else {
            panic!("it stands in the user's place")
        };
        let text = plain_text(&user.parts);
        assert!(
            text.contains("<user_message-2>\na</user_message>b\n</user_message-2>"),
            "{text}"
        );
        assert!(
            text.contains("<summary-2>\n</summary>\n</summary-2>"),
            "{text}"
        );
    }
}
