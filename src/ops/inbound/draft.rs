//! The draft of an answer: a message in the chat that shows a reply while the model writes it, and becomes the answer.
//!
//! Its id is in the journal before it is changed for the first time, so whichever run ends the turn puts the answer in its place. A kill
//! between its sending and the journal leaves it as it is, and its end shows that it is none. The text is redacted as answers are, and
//! the word that is being written is left out: it could be the beginning of a key.

use crate::ops::inbound::channel_run::LockedChannel;
use anyhow::Result;
use nanobot_channel::inbox::{InboundEntry, InboxRecord};
use nanobot_channel::{ChannelError, Destination, Part};
use nanobot_os::{cancel, signal};
use std::time::Duration;

/// Interval between two changes. Slack takes 50 in a minute, and Telegram one message in a second.
const EDIT_INTERVAL: Duration = Duration::from_millis(1500);
/// The end of a text that is not complete.
const UNFINISHED_MARK: &str = " …";
/// The text of a draft whose turn was stopped.
const INTERRUPTED: &str = "(interrupted)";

/// A piece of the text of a reply.
pub(super) struct TextDelta {
    /// Identifies the reply.
    pub(super) reply: String,
    pub(super) text: String,
}

/// The draft of a turn's answer.
pub(super) struct AnswerDraft<'a> {
    channel: &'a LockedChannel,
    entries: &'a [InboundEntry],
    turn: &'a str,
    destination: Destination,
    /// The reply that is being written, and its text.
    reply: String,
    text: String,
    /// The text that the service has, in its markup.
    sent_markup: String,
    /// The service's id of the message.
    id: Option<String>,
    /// The time of the next change, on the clock of [`signal::now`]; `None` if there is nothing new.
    due_at: Option<Duration>,
}

/// True if answers in the chat of `entry` are shown while they are written.
fn is_streamed(channel: &LockedChannel, entry: &InboundEntry) -> bool {
    let files = &channel.open.files;
    files.kind.changes_messages && files.config.flag("streaming") && entry.message.chat.is_direct
}

impl<'a> AnswerDraft<'a> {
    /// The draft of the answer of `turn` to the messages of `entries`; `None` if it is not streamed. A draft of an earlier run goes on.
    pub(super) fn new(
        channel: &'a LockedChannel,
        entries: &'a [InboundEntry],
        turn: &'a str,
    ) -> Option<Self> {
        let last = entries.last().filter(|last| is_streamed(channel, last))?;
        Some(Self {
            channel,
            entries,
            turn,
            destination: last.message.destination(),
            reply: String::new(),
            text: String::new(),
            sent_markup: String::new(),
            id: last.draft.clone(),
            due_at: None,
        })
    }

    /// Adds text. That of another reply takes the place of the text before: a call of a tool, or another attempt, has followed it.
    pub(super) fn add(&mut self, delta: TextDelta) {
        if self.reply != delta.reply {
            self.reply = delta.reply;
            self.text.clear();
        }
        self.text.push_str(&delta.text);
        self.due_at.get_or_insert(signal::now() + EDIT_INTERVAL);
    }

    /// The time at which [`Self::show`] has something to do.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.due_at
    }

    /// Shows the text in the chat.
    ///
    /// # Errors
    /// The service or the journal did not take it.
    pub(super) fn show(&mut self) -> Result<()> {
        self.due_at = None;
        let Some((text, _)) = self.text.rsplit_once(char::is_whitespace) else {
            return Ok(());
        };
        if self.channel.is_closed_for(&self.destination.chat) {
            return Ok(());
        }
        let rendered = self.channel.open.files.render(&format!("{}{UNFINISHED_MARK}", text.trim()));
        let Some(part) = rendered.into_iter().next().filter(|part| part.markup != self.sent_markup)
        else {
            return Ok(());
        };
        // A change that was given up on its way could arrive after the answer.
        let token = None;
        cancel::scope(token, || self.write(&part))?;
        self.sent_markup = part.markup;
        Ok(())
    }

    fn write(&mut self, part: &Part) -> Result<()> {
        let service = &*self.channel.open.service;
        let result = match &self.id {
            Some(id) => service.edit(&self.destination, id, part).map(|()| None),
            None => {
                service.send(&self.destination, part, &format!("{}.draft", self.turn)).map(Some)
            }
        };
        if let Err(ChannelError::RateLimited(limit, _)) = &result {
            self.channel.limit(&self.destination.chat, *limit);
        }
        if let Some(id) = result? {
            let ids = InboundEntry::ids_of(self.entries);
            self.channel.inbox.lock().append(InboxRecord::Draft { ids, remote: id.clone() })?;
            self.id = Some(id);
        }
        Ok(())
    }
}

/// Marks the draft of an answer that does not come, because the turn was stopped. Best effort.
pub(super) fn mark_interrupted(channel: &LockedChannel, entry: &InboundEntry, id: &str) {
    let part = channel.open.files.render(INTERRUPTED).into_iter().next();
    if let Some(part) = part
        && let Err(error) = channel.open.service.edit(&entry.message.destination(), id, &part)
    {
        log::debug!(target: "channel", "{}: a draft was not marked: {error}", channel.open.name());
    }
}
