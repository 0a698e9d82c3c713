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

/// The form in which a session that has these messages to send gets those that were delivered. `is_interrupted` is true
/// if its last turn was interrupted.
pub(super) fn to_messages(
    delivered: &[DeliveredMessage],
    messages: &[Message],
    is_interrupted: bool,
) -> Vec<Message> {
    // The end of an interrupted turn is still to be seen after them.
    let finish_reason = if is_interrupted { FinishReason::Interrupted } else { FinishReason::Stop };
    let mut before = match history::no_answer(messages) {
        Some(Message::Assistant(reply)) => format!("{}\n\n", reply.text),
        _ => String::new(),
    };
    let opening = messages.is_empty().then(|| {
        Message::User(UserMessage {
            id: format!("{}-{OPENING_SUFFIX}", delivered.first().map_or("", |it| &it.key)),
            parts: vec![MessagePart::Text(OPENING.into())],
            injected: true,
            ..UserMessage::default()
        })
    });
    let replies = delivered.iter().map(|message| {
        let DeliveredMessage { key, source, origin, text } = message;
        let before = std::mem::take(&mut before);
        Message::Assistant(Reply {
            id: key.clone(),
            text: format!(
                "{before}[sent to this chat by {source}; origin: {}]\n\n{text}",
                origin.name()
            ),
            finish_reason: finish_reason.clone(),
            ..Reply::default()
        })
    });
    opening.into_iter().chain(replies).collect()
}
