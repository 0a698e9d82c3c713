//! Messages that a job, a command or another run has sent to the chat of a session.

use crate::history;
use nanobot_base::message::{FinishReason, Message, MessagePart, Origin, Reply, UserMessage};

/// The suffix of the id of [`OPENING`].
const OPENING_SUFFIX: &str = "opening";
/// The message before one with which a conversation begins: in a request, the user speaks first.
const OPENING: &str = "[the conversation begins with a message that was sent to this chat]";

/// A message that was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// Its key in the outbox.
    pub key: String,
    /// The sender, as a phrase.
    pub source: String,
    pub origin: Origin,
    pub text: String,
}

/// Converts the `delivered` messages to replies. A session adds them to `messages`, the messages that it sends. `is_interrupted`
/// is true if its last turn was interrupted.
pub(super) fn to_messages(
    delivered: &[DeliveredMessage],
    messages: &[Message],
    is_interrupted: bool,
) -> Vec<Message> {
    // After these replies, it must still be visible that the turn was interrupted.
    let finish_reason = if is_interrupted { FinishReason::Interrupted } else { FinishReason::Stop };
    let mut prefix = match history::no_answer(messages) {
        Some(Message::Assistant(reply)) => format!("{}\n\n", reply.text),
        _ => String::new(),
    };
    let opening = messages.is_empty().then(|| {
        Message::User(UserMessage {
            id: format!(
                "{}-{OPENING_SUFFIX}",
                delivered.first().map_or("", |message| &message.key)
            ),
            parts: vec![MessagePart::Text(OPENING.into())],
            injected: true,
            ..UserMessage::default()
        })
    });
    let replies = delivered.iter().map(|message| {
        let DeliveredMessage { key, source, origin, text } = message;
        let prefix = std::mem::take(&mut prefix);
        Message::Assistant(Reply {
            id: key.clone(),
            text: format!(
                "{prefix}[sent to this chat by {source}; origin: {}]\n\n{text}",
                origin.name()
            ),
            finish_reason: finish_reason.clone(),
            ..Reply::default()
        })
    });
    opening.into_iter().chain(replies).collect()
}
