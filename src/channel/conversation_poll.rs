//! Polls services that are asked for one conversation after the other, such as Mattermost.
//!
//! Their messages have positions that grow with time over all conversations. The cursor has the position of the first
//! look, before which nothing is read, and one for each conversation that had news since.

use super::{Batch, Identity, InboundMessage, SendError};
use crate::sys::signal;
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;

/// A conversation that we take part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) id: String,
    /// True if only the sender and we are in it.
    pub(super) is_direct: bool,
    /// The position of its newest message, if the list of conversations has it.
    pub(super) newest: Option<u64>,
}

/// An entry of a conversation: a message, or something that only has a position.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ConversationEntry {
    pub(super) position: u64,
    pub(super) id: String,
    pub(super) message: Option<InboundMessage>,
    /// True for the notice that we have entered the conversation. What was written before is not for us.
    pub(super) is_own_entrance: bool,
}

/// A service with conversations.
pub(super) trait ConversationService {
    /// The distance of positions within which messages may appear out of order.
    const OVERLAP: u64;

    /// All conversations. `cache` is kept from poll to poll.
    fn conversations(&self, cache: &mut Value) -> Result<Vec<Conversation>, SendError>;

    /// The position of the newest message of a conversation.
    fn newest(&self, conversation: &Conversation) -> Result<u64, SendError> {
        Ok(conversation.newest.unwrap_or_default())
    }

    /// The entries of a conversation after a position, in order.
    fn entries_after(
        &self,
        account: &Identity,
        conversation: &Conversation,
        position: u64,
    ) -> Result<Vec<ConversationEntry>, SendError>;

    /// Waits for news until `end`, on the clock of [`signal::now`], or for a while.
    fn wait_for_news(&self, end: Duration) -> Result<(), SendError>;
}

/// Does what [`super::Channel::poll`] promises.
pub(super) fn poll<S: ConversationService>(
    service: &S,
    account: &Identity,
    cursor: Option<&Value>,
    wait: Duration,
    deliver: &mut dyn FnMut(Batch) -> Result<()>,
) -> Result<()> {
    let end = signal::now().saturating_add(wait);
    let Some(cursor) = cursor else {
        let cursor = first_cursor(service).map_err(SendError::into_error)?;
        let messages = Vec::new();
        return deliver(Batch { messages, cursor });
    };
    let mut reader = ConversationReader {
        service,
        account,
        cursor: cursor.clone(),
        deliver,
    };
    while !reader.read_all()? && signal::now() < end {
        service.wait_for_news(end).map_err(SendError::into_error)?;
    }
    Ok(())
}

/// The cursor of the first look: all that is there now was written before.
fn first_cursor(service: &impl ConversationService) -> Result<Value, SendError> {
    let mut cache = json!({});
    let mut started = 0;
    for conversation in service.conversations(&mut cache)? {
        started = started.max(service.newest(&conversation)?);
    }
    Ok(json!({ "started": started, "positions": {}, "cache": cache }))
}

struct ConversationReader<'p, S> {
    service: &'p S,
    account: &'p Identity,
    cursor: Value,
    deliver: &'p mut dyn FnMut(Batch) -> Result<()>,
}

impl<S: ConversationService> ConversationReader<'_, S> {
    /// Hands on the new messages of all conversations. Returns true if there were any.
    fn read_all(&mut self) -> Result<bool> {
        let mut cache = self.cursor["cache"].take();
        let before = cache.clone();
        let listed = self.service.conversations(&mut cache);
        let is_cache_changed = cache != before;
        self.cursor["cache"] = cache;
        let mut has_messages = false;
        for conversation in listed.map_err(SendError::into_error)? {
            has_messages |= self.read_new(&conversation)?;
        }
        if is_cache_changed && !has_messages {
            self.hand_on(Vec::new())?;
        }
        Ok(has_messages)
    }

    /// Hands on the new messages of a conversation. Returns true if there were any.
    fn read_new(&mut self, conversation: &Conversation) -> Result<bool> {
        let position = self.position_of(&conversation.id);
        if conversation
            .newest
            .is_some_and(|newest| newest <= position.at)
        {
            return Ok(false);
        }
        let after = position.at.saturating_sub(S::OVERLAP).max(position.started);
        let read = self
            .service
            .entries_after(self.account, conversation, after);
        let entries = match read {
            Ok(entries) => entries,
            // We may have been removed from it meanwhile. The other conversations go on.
            Err(SendError::RecipientRefused(cause) | SendError::Undeliverable(cause)) => {
                log::warn!(target: "channel", "conversation {}: {cause}", conversation.id);
                return Ok(false);
            }
            Err(error) => return Err(error.into_error()),
        };
        // The list may count what is no entry.
        let last = entries.iter().map(|entry| entry.position).max();
        let at = last.max(conversation.newest).unwrap_or(0).max(position.at);
        if at == position.at && entries.iter().all(|entry| !position.is_before(entry)) {
            return Ok(false);
        }
        let near = entries
            .iter()
            .filter(|entry| S::OVERLAP > 0 && entry.position + S::OVERLAP > at);
        let near: Vec<Value> = near.map(|entry| entry.id.as_str().into()).collect();
        self.cursor["positions"][&conversation.id] = [vec![json!(at)], near].concat().into();
        let entrance = entries.iter().rposition(|entry| entry.is_own_entrance);
        let entries = entries.into_iter().skip(entrance.unwrap_or(0));
        let new = entries.filter(|entry| position.is_before(entry));
        let messages: Vec<InboundMessage> = new.filter_map(|entry| entry.message).collect();
        let has_messages = !messages.is_empty();
        self.hand_on(messages)?;
        Ok(has_messages)
    }

    fn hand_on(&mut self, messages: Vec<InboundMessage>) -> Result<()> {
        let cursor = self.cursor.clone();
        (self.deliver)(Batch { messages, cursor })
    }

    fn position_of(&self, conversation: &str) -> Position {
        let started = self.cursor["started"].as_u64().unwrap_or_default();
        let stored = self.cursor["positions"][conversation].as_array();
        let (at, ids) = match stored.and_then(|stored| stored.split_first()) {
            Some((at, ids)) => (at.as_u64(), ids.to_vec()),
            None => (None, Vec::new()),
        };
        Position {
            started,
            at: at.unwrap_or(started).max(started),
            ids,
            overlap: S::OVERLAP,
        }
    }
}

/// The position in a conversation.
struct Position {
    /// That of the first look.
    started: u64,
    /// That of the last entry that was read.
    at: u64,
    /// The ids of the entries that were read within `overlap` before it.
    ids: Vec<Value>,
    overlap: u64,
}

impl Position {
    /// True if the entry was not read yet.
    fn is_before(&self, entry: &ConversationEntry) -> bool {
        let is_near = || {
            entry.position + self.overlap > self.at
                && !self.ids.iter().any(|id| *id == entry.id.as_str())
        };
        entry.position > self.started && (entry.position > self.at || self.overlap > 0 && is_near())
    }
}
