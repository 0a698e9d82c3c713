//! Polls services whose conversations are read one after the other, such as Mattermost.
//!
//! Their messages have positions that grow with time over all conversations. The cursor has the position of the first poll, and one for
//! each conversation with messages since then. Nothing from before the first poll is read.

use super::service_client::ServiceClient;
use super::{
    Batch, ChannelError, ChannelResult, Identity, InboundMessage, PollRequest, object_cursor,
};
use anyhow::Result;
use nanobot_os::signal;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;

/// First and longest delay after a connection for events has failed for the second time.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The time after which a poll that listens to events reads all conversations nevertheless.
const MAX_FULL_READ_AGE: Duration = Duration::from_secs(300);

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
    /// True for the notice that we have entered the conversation. Messages from before are not for us.
    pub(super) is_own_entrance: bool,
}

/// The report of a connection for events.
#[derive(Debug)]
pub(super) enum ServiceEvent {
    /// A conversation has new messages.
    Messages(Conversation),
    /// A message has another text.
    Edit(Box<InboundMessage>),
    /// A button was pressed. Its message is stored, and then `acknowledgement` goes to [`ConversationService::acknowledge`].
    Press { message: Box<InboundMessage>, acknowledgement: Value },
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
        identity: &Identity,
        conversation: &Conversation,
        position: u64,
    ) -> ChannelResult<Vec<ConversationEntry>>;

    /// The pause between two reads of a poll that waits without a connection for events.
    const READ_INTERVAL: Duration;

    /// A connection over which the service reports new messages.
    type Connection: Send;

    /// Opens such a connection. `cache` is that of [`Self::conversations`]. `None` if the config does not provide for one.
    fn connect(&self, cache: &mut Value) -> ChannelResult<Option<Self::Connection>>;

    /// Waits for an event until `end`, on the clock of [`signal::now`].
    ///
    /// # Errors
    /// The connection cannot be used any longer.
    fn next_event(
        &self,
        connection: &mut Self::Connection,
        cache: &mut Value,
        identity: &Identity,
        end: Duration,
    ) -> ChannelResult<Option<ServiceEvent>>;

    /// Tells the service that a press is stored. Best effort: without it, the client of the person shows a failure.
    fn acknowledge(&self, _connection: &mut Self::Connection, _acknowledgement: &Value) {}

    fn client(&self) -> &ServiceClient;
}

/// The connection of a channel, which stays open from poll to poll.
pub(super) struct EventListener<C>(Mutex<ListenerState<C>>);

struct ListenerState<C> {
    connection: Option<C>,
    /// The time before which no connection is tried, on the clock of [`signal::now`].
    retry_at: Duration,
    /// The delay after the next failure.
    delay: Duration,
    /// The time of the last read of all conversations, if no event since then was missed.
    read_all_at: Option<Duration>,
}

impl<C> Default for EventListener<C> {
    fn default() -> Self {
        Self(Mutex::new(ListenerState {
            connection: None,
            retry_at: Duration::ZERO,
            delay: Duration::ZERO,
            read_all_at: None,
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
        self.read_all_at = None;
        match service.connect(cache) {
            Ok(connection) => self.connection = connection,
            Err(error) => self.give_up(error)?,
        }
        Ok(())
    }

    /// Drops a connection that has failed. All conversations are read then, since events may have been missed.
    fn give_up(&mut self, error: ChannelError) -> ChannelResult<()> {
        if !matches!(error, ChannelError::Unavailable(_) | ChannelError::RateLimited(..)) {
            return Err(error);
        }
        log::info!(target: "channel", "no events: {error}; next attempt in {} s", self.delay.as_secs());
        (self.connection, self.read_all_at) = (None, None);
        self.retry_at = signal::now() + self.delay;
        self.delay = (self.delay * 2).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        Ok(())
    }

    /// True if a connection has reported all messages since the last read.
    fn is_current(&self) -> bool {
        let is_recent = |at: Duration| signal::now() < at + MAX_FULL_READ_AGE;
        self.connection.is_some() && self.read_all_at.is_some_and(is_recent)
    }
}

/// Implements [`super::Channel::poll`]. A poll that waits listens to events; messages are always read by requests, so that a
/// missed event delays a message and loses none.
pub(super) fn poll<S: ConversationService>(
    service: &S,
    listener: &EventListener<S::Connection>,
    request: PollRequest<'_>,
) -> Result<()> {
    let PollRequest { identity, cursor, wait, store_batch, .. } = request;
    let end = signal::now().saturating_add(wait);
    let Some(cursor) = object_cursor(cursor, &["positions", "cache"]) else {
        let cursor = first_cursor(service)?;
        let messages = Vec::new();
        return store_batch(Batch { messages, cursor });
    };
    let mut reader = ConversationReader { service, identity, cursor, store_batch };
    if wait.is_zero() {
        return reader.read_all().map(drop);
    }
    let mut state = listener.0.lock();
    loop {
        reader.with_cache(|cache| state.connect(service, cache))??;
        let has_messages = if state.is_current() {
            reader.wait_and_read(&mut state, end)?
        } else {
            // Unset during the read, so that a failed one is repeated.
            let read_all_at = signal::now();
            state.read_all_at = None;
            let has_messages = reader.read_all()?;
            state.read_all_at = Some(read_all_at);
            has_messages
        };
        let time_left = end.saturating_sub(signal::now());
        if has_messages || time_left.is_zero() {
            return Ok(());
        }
        if state.connection.is_none() {
            let pause = S::READ_INTERVAL.min(time_left);
            service.client().pause(pause)?;
        }
    }
}

/// The cursor of the first poll. Messages that are there by now are not read.
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
    identity: &'p Identity,
    cursor: Value,
    store_batch: &'p mut dyn FnMut(Batch) -> Result<()>,
}

impl<S: ConversationService> ConversationReader<'_, S> {
    /// Stores the new messages of all conversations. Returns true if there were any.
    fn read_all(&mut self) -> Result<bool> {
        let service = self.service;
        let conversations = self.with_cache(|cache| service.conversations(cache))??;
        let mut has_messages = false;
        for conversation in conversations {
            has_messages |= self.read_new(&conversation)?;
        }
        Ok(has_messages)
    }

    /// Waits until `end` for an event, and stores its press or edit, or the new messages of its conversation. Returns true if there were any.
    fn wait_and_read(
        &mut self,
        state: &mut ListenerState<S::Connection>,
        end: Duration,
    ) -> Result<bool> {
        let (service, identity) = (self.service, self.identity);
        let Some(connection) = &mut state.connection else {
            return Ok(false);
        };
        let event =
            self.with_cache(|cache| service.next_event(connection, cache, identity, end))?;
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                state.give_up(error)?;
                return Ok(false);
            }
        };
        state.delay = Duration::ZERO;
        match event {
            None => Ok(false),
            Some(ServiceEvent::Edit(message)) => {
                self.store_messages(vec![*message])?;
                Ok(true)
            }
            Some(ServiceEvent::Press { message, acknowledgement }) => {
                self.store_messages(vec![*message])?;
                service.acknowledge(connection, &acknowledgement);
                Ok(true)
            }
            Some(ServiceEvent::Messages(conversation)) => {
                // Unset during the read: after a failed one, all conversations are read.
                let read_all_at = state.read_all_at.take();
                let has_messages = self.read_new(&conversation)?;
                state.read_all_at = read_all_at;
                Ok(has_messages)
            }
        }
    }

    /// Runs `action` with the cache of the service, and stores the cache if it has changed, also if the action fails.
    fn with_cache<T>(&mut self, action: impl FnOnce(&mut Value) -> T) -> Result<T> {
        let mut cache = self.cursor["cache"].take();
        let original = cache.clone();
        let returned = action(&mut cache);
        let is_changed = cache != original;
        self.cursor["cache"] = cache;
        if is_changed {
            self.store_messages(Vec::new())?;
        }
        Ok(returned)
    }

    /// Stores the new messages of a conversation. Returns true if there were any.
    fn read_new(&mut self, conversation: &Conversation) -> Result<bool> {
        let position = self.position_of(&conversation.id);
        if conversation.newest.is_some_and(|newest| newest <= position.last_read) {
            return Ok(false);
        }
        let start = position.last_read.saturating_sub(S::OVERLAP).max(position.started);
        let entries = match self.service.entries_after(self.identity, conversation, start) {
            Ok(entries) => entries,
            // We may have been removed from it meanwhile. The other conversations are still read.
            Err(ChannelError::RecipientRefused(cause) | ChannelError::Undeliverable(cause)) => {
                log::warn!(target: "channel", "conversation {}: {cause}", conversation.id);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        // The newest position in the list of conversations may be that of something that is not an entry.
        let last = entries.iter().map(|entry| entry.position).max();
        let last_read = last.max(conversation.newest).unwrap_or(0).max(position.last_read);
        if last_read == position.last_read && !entries.iter().any(|entry| position.is_unread(entry))
        {
            return Ok(false);
        }
        let is_recent = |entry: &&ConversationEntry| {
            S::OVERLAP > 0 && entry.position.saturating_add(S::OVERLAP) > last_read
        };
        let mut stored = vec![json!(last_read)];
        stored.extend(entries.iter().filter(is_recent).map(|entry| json!(entry.id)));
        self.cursor["positions"][&conversation.id] = stored.into();
        let entrance = entries.iter().rposition(|entry| entry.is_own_entrance);
        let entries = entries.into_iter().skip(entrance.unwrap_or(0));
        let unread = entries.filter(|entry| position.is_unread(entry));
        let messages: Vec<InboundMessage> = unread.filter_map(|entry| entry.message).collect();
        let has_messages = !messages.is_empty();
        self.store_messages(messages)?;
        Ok(has_messages)
    }

    fn store_messages(&mut self, messages: Vec<InboundMessage>) -> Result<()> {
        let cursor = self.cursor.clone();
        (self.store_batch)(Batch { messages, cursor })
    }

    fn position_of(&self, conversation_id: &str) -> Position {
        let started = self.cursor["started"].as_u64().unwrap_or_default();
        let stored = self.cursor["positions"][conversation_id].as_array();
        let (last_read, recent_ids) = match stored.and_then(|stored| stored.split_first()) {
            Some((last_read, ids)) => (last_read.as_u64(), ids.to_vec()),
            None => (None, Vec::new()),
        };
        let last_read = last_read.unwrap_or(started).max(started);
        Position { started, last_read, recent_ids, overlap: S::OVERLAP }
    }
}

/// The position in a conversation.
struct Position {
    /// The position of the first poll.
    started: u64,
    /// The position of the last entry that was read.
    last_read: u64,
    /// The ids of the entries that were read within `overlap` before it.
    recent_ids: Vec<Value>,
    overlap: u64,
}

impl Position {
    /// True if the entry was not read. An entry within the overlap may have become visible late, so its id decides.
    fn is_unread(&self, entry: &ConversationEntry) -> bool {
        let is_late = || {
            entry.position.saturating_add(self.overlap) > self.last_read
                && !self.recent_ids.iter().any(|id| *id == entry.id.as_str())
        };
        entry.position > self.started
            && (entry.position > self.last_read || (self.overlap > 0 && is_late()))
    }
}
