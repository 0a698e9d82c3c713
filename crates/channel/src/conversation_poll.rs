//! Polls services that are asked for one conversation after the other, such as Mattermost.
//!
//! Their messages have positions that grow with time over all conversations. The cursor has the position of the first
//! look, before which nothing is read, and one for each conversation that had news since.

use super::{Batch, ChannelError, ChannelResult, Identity, InboundMessage, PollRequest};
use anyhow::Result;
use nanobot_os::signal;
use nanobot_os::sync::IgnorePoison;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;

/// First and longest delay after a connection for events has failed twice.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The time after which a poll that listens to events looks at all conversations nevertheless.
const MAX_LOOK_AGE: Duration = Duration::from_secs(300);

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
    fn conversations(&self, cache: &mut Value) -> ChannelResult<Vec<Conversation>>;

    /// The position of the newest message of a conversation.
    fn newest(&self, conversation: &Conversation) -> ChannelResult<u64> {
        Ok(conversation.newest.unwrap_or_default())
    }

    /// The entries of a conversation after a position, in order.
    fn entries_after(
        &self,
        account: &Identity,
        conversation: &Conversation,
        position: u64,
    ) -> ChannelResult<Vec<ConversationEntry>>;

    /// The pause between two looks of a poll that waits without a connection for events.
    const LOOK_INTERVAL: Duration;

    /// A connection over which the service tells of new messages.
    type Connection: Send;

    /// Opens such a connection. `cache` is that of [`Self::conversations`]. `None` if the config does not provide for one.
    fn connect(&self, cache: &mut Value) -> ChannelResult<Option<Self::Connection>>;

    /// Waits for a message until `end`, on the clock of [`signal::now`]. Returns its conversation.
    ///
    /// # Errors
    /// The connection cannot be used any longer.
    fn next_conversation(
        &self,
        connection: &mut Self::Connection,
        cache: &mut Value,
        account: &Identity,
        end: Duration,
    ) -> ChannelResult<Option<Conversation>>;

    /// Waits between two looks.
    fn pause(&self, duration: Duration) -> ChannelResult<()>;
}

/// The connection of a channel, which stays open from poll to poll.
pub(super) struct EventListener<C>(Mutex<ListenerState<C>>);

struct ListenerState<C> {
    connection: Option<C>,
    /// The time before which no connection is tried, on the clock of [`signal::now`], and the delay after a failure.
    retry_at: Duration,
    delay: Duration,
    /// The time of the last look at all conversations, if none of the events since then was missed.
    looked_at: Option<Duration>,
}

impl<C> Default for EventListener<C> {
    fn default() -> Self {
        Self(Mutex::new(ListenerState {
            connection: None,
            retry_at: Duration::ZERO,
            delay: Duration::ZERO,
            looked_at: None,
        }))
    }
}

impl<C> ListenerState<C> {
    /// Opens the connection, unless the last failure was just before.
    fn connect<S: ConversationService<Connection = C>>(
        &mut self,
        service: &S,
        cache: &mut Value,
    ) -> ChannelResult<()> {
        if self.connection.is_some() || signal::now() < self.retry_at {
            return Ok(());
        }
        self.looked_at = None;
        match service.connect(cache) {
            Ok(connection) => self.connection = connection,
            Err(error) => self.give_up(error)?,
        }
        Ok(())
    }

    /// Drops a connection that has failed. The messages that it does not tell of are looked for.
    fn give_up(&mut self, error: ChannelError) -> ChannelResult<()> {
        let is_temporary =
            matches!(error, ChannelError::Unavailable(_) | ChannelError::RateLimited(..));
        if !is_temporary {
            return Err(error);
        }
        log::info!(target: "channel", "no events: {error}; next attempt in {} s", self.delay.as_secs());
        (self.connection, self.looked_at) = (None, None);
        self.retry_at = signal::now() + self.delay;
        self.delay = (self.delay * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        Ok(())
    }

    /// True if a connection has told of all messages since the last look.
    fn is_current(&self) -> bool {
        let is_recent = |at: Duration| signal::now() < at + MAX_LOOK_AGE;
        self.connection.is_some() && self.looked_at.is_some_and(is_recent)
    }
}

/// Does what [`super::Channel::poll`] promises. A poll that waits listens to events; messages are always read by
/// requests, so that an event that is missed delays a message and loses none.
pub(super) fn poll<S: ConversationService>(
    service: &S,
    listener: &EventListener<S::Connection>,
    request: PollRequest<'_>,
) -> Result<()> {
    let PollRequest { account, cursor, wait, deliver } = request;
    let end = signal::now().saturating_add(wait);
    let Some(cursor) = cursor else {
        let cursor = first_cursor(service)?;
        let messages = Vec::new();
        return deliver(Batch { messages, cursor });
    };
    let mut reader = ConversationReader { service, account, cursor: cursor.clone(), deliver };
    if wait.is_zero() {
        return reader.read_all().map(drop);
    }
    let mut state = listener.0.lock().ignore_poison();
    loop {
        reader.with_cache(|cache| state.connect(service, cache))?;
        let has_messages = if state.is_current() {
            reader.wait_and_read(&mut state, end)?
        } else {
            let looked_at = signal::now();
            state.looked_at = None;
            let has_messages = reader.read_all()?;
            state.looked_at = Some(looked_at);
            has_messages
        };
        let left = end.saturating_sub(signal::now());
        if has_messages || left.is_zero() {
            return Ok(());
        }
        if state.connection.is_none() {
            let pause = S::LOOK_INTERVAL.min(left);
            service.pause(pause)?;
        }
    }
}

/// The cursor of the first look: all that is there now was written before.
fn first_cursor(service: &impl ConversationService) -> ChannelResult<Value> {
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
        let service = self.service;
        let listed = self.with_cache(|cache| service.conversations(cache))?;
        let mut has_messages = false;
        for conversation in listed {
            has_messages |= self.read_new(&conversation)?;
        }
        Ok(has_messages)
    }

    /// Waits until `end` for an event, and hands on the new messages of its conversation. Returns true if there were any.
    fn wait_and_read(
        &mut self,
        state: &mut ListenerState<S::Connection>,
        end: Duration,
    ) -> Result<bool> {
        let (service, account) = (self.service, self.account);
        let Some(connection) = &mut state.connection else {
            return Ok(false);
        };
        let event = self.with_cache(|cache| {
            match service.next_conversation(connection, cache, account, end) {
                Ok(event) => Ok(Ok(event)),
                Err(error) => Ok(Err(error)),
            }
        })?;
        match event {
            Ok(None) => {
                state.delay = Duration::ZERO;
                Ok(false)
            }
            Ok(Some(conversation)) => {
                state.delay = Duration::ZERO;
                // After a failure, all conversations are looked at.
                let looked_at = state.looked_at.take();
                let has_messages = self.read_new(&conversation)?;
                state.looked_at = looked_at;
                Ok(has_messages)
            }
            Err(error) => {
                state.give_up(error)?;
                Ok(false)
            }
        }
    }

    /// Runs `work` with the cache of the service, and stores the cache if it has changed.
    fn with_cache<T>(&mut self, work: impl FnOnce(&mut Value) -> ChannelResult<T>) -> Result<T> {
        let mut cache = self.cursor["cache"].take();
        let before = cache.clone();
        let outcome = work(&mut cache);
        let is_changed = cache != before;
        self.cursor["cache"] = cache;
        if is_changed {
            self.hand_on(Vec::new())?;
        }
        Ok(outcome?)
    }

    /// Hands on the new messages of a conversation. Returns true if there were any.
    fn read_new(&mut self, conversation: &Conversation) -> Result<bool> {
        let position = self.position_of(&conversation.id);
        if conversation.newest.is_some_and(|newest| newest <= position.at) {
            return Ok(false);
        }
        let after = position.at.saturating_sub(S::OVERLAP).max(position.started);
        let read = self.service.entries_after(self.account, conversation, after);
        let entries = match read {
            Ok(entries) => entries,
            // We may have been removed from it meanwhile. The other conversations go on.
            Err(ChannelError::RecipientRefused(cause) | ChannelError::Undeliverable(cause)) => {
                log::warn!(target: "channel", "conversation {}: {cause}", conversation.id);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        // The list may count what is no entry.
        let last = entries.iter().map(|entry| entry.position).max();
        let at = last.max(conversation.newest).unwrap_or(0).max(position.at);
        if at == position.at && entries.iter().all(|entry| !position.is_before(entry)) {
            return Ok(false);
        }
        let near = entries
            .iter()
            .filter(|entry| S::OVERLAP > 0 && entry.position.saturating_add(S::OVERLAP) > at);
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
        Position { started, at: at.unwrap_or(started).max(started), ids, overlap: S::OVERLAP }
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
            entry.position.saturating_add(self.overlap) > self.at
                && !self.ids.iter().any(|id| *id == entry.id.as_str())
        };
        entry.position > self.started && (entry.position > self.at || self.overlap > 0 && is_near())
    }
}
