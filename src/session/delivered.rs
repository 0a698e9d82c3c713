//! Messages that a job, a command or another run has sent to the chat of a session.

use super::line::{self, ClosingLine};
use super::{KnownDeliveries, Session};
use crate::history;
use crate::message::{FinishReason, Message, MessagePart, Origin, Reply, UserMessage};
use anyhow::Result;

/// Value of `ending` in the line after such messages.
const DELIVERED: &str = "delivered";
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

impl Session {
    /// The messages of others to this chat that the log has.
    pub fn known_deliveries(&self) -> &KnownDeliveries {
        &self.known_deliveries
    }

    /// Appends messages that others have sent to this chat, with their origin and `known`, in one write. They have the
    /// form of replies, since the user has seen them as such.
    ///
    /// # Errors
    /// The log cannot be written; it is then as before.
    pub fn append_delivered(
        &mut self,
        delivered: &[DeliveredMessage],
        known: KnownDeliveries,
    ) -> Result<()> {
        // Without a recorded origin, that of the earlier messages is still unknown.
        let is_closed = self.is_origin_complete() && self.origin.is_some();
        let added = self.delivered_messages(delivered);
        for message in delivered.iter().filter(|it| it.origin > Origin::User) {
            self.record_origin(message.origin, &format!("a message of {}", message.source));
        }
        self.known_deliveries = known;
        let (origin, known) = (&self.origin, &self.known_deliveries);
        match &mut self.log {
            Some(log) => {
                let now = log.clock.local_timestamp();
                let lines = added.iter().map(|it| line::format_message(it, "", &now));
                let lines: Vec<String> = lines.collect();
                let ending = if is_closed { DELIVERED } else { line::OPEN };
                let closing = ClosingLine { turn: "", ending, summary: None };
                log.write_closing_line(&self.key, &lines, &closing, &|metadata, _| {
                    metadata.update_session_metadata(|kept| {
                        kept.origin.clone_from(origin);
                        kept.known_deliveries.clone_from(known);
                    });
                })?;
            }
            None => self.window.count += added.len(),
        }
        self.is_closed = is_closed;
        self.left_out.clear();
        self.messages.extend(added);
        self.prepare_messages();
        Ok(())
    }

    fn delivered_messages(&self, delivered: &[DeliveredMessage]) -> Vec<Message> {
        // The end of an interrupted turn is still to be seen after them.
        let finish_reason = match self.is_interrupted() {
            true => FinishReason::Interrupted,
            false => FinishReason::Stop,
        };
        let mut before = match history::no_answer(&self.messages) {
            Some(Message::Assistant(reply)) => format!("{}\n\n", reply.text),
            _ => String::new(),
        };
        let opening = self.messages.is_empty().then(|| {
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
}
