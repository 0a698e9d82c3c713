//! Polls services that send their messages over a connection, such as DingTalk, and have no request for them.
//!
//! The connection stays open from poll to poll. A message is acknowledged once it is on disk. Another thread may send a
//! request over the same connection: it interrupts the wait for messages, and queues those that it reads.

use super::service_client::next_json;
use super::{
    Batch, ChannelError, ChannelResult, Identity, InboundMessage, PollRequest, object_cursor,
};
use anyhow::Result;
use nanobot_net::http::WebSocket;
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::signal;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The silence after which a poll that does not wait ends, from the opening of the connection or the last message. By then
/// the service has sent all messages that it had queued.
const IDLE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum time to the response to a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection over which frames go both ways.
pub(super) trait FrameConnection: Send {
    /// Returns the next frame; `None` if there is none until `end`, on the clock of [`signal::now`]. After a
    /// cancellation the connection can still be used.
    ///
    /// # Errors
    /// The connection was closed or broke, or the run was cancelled.
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>>;

    /// Sends a frame.
    ///
    /// # Errors
    /// The connection broke, or the run was cancelled.
    fn send_frame(&mut self, frame: &Value) -> ChannelResult<()>;
}

impl FrameConnection for WebSocket {
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        next_json(self, end)
    }

    fn send_frame(&mut self, frame: &Value) -> ChannelResult<()> {
        let text = frame.to_string();
        self.send(&text).map_err(super::service_client::to_channel_error)
    }
}

/// The content of a frame of the service.
#[derive(Debug, Default)]
pub(super) struct FrameContent {
    pub(super) messages: Vec<InboundMessage>,
    /// The frame that acknowledges this one.
    pub(super) acknowledgement: Option<Value>,
}

impl FrameContent {
    /// The content of a frame that is not acknowledged.
    pub(super) fn from_message(message: Option<InboundMessage>) -> Self {
        Self { messages: message.into_iter().collect(), acknowledgement: None }
    }
}

/// The state of a poll, from which a frame is read.
pub(super) struct PollState<'a> {
    /// Our account.
    pub(super) identity: &'a Identity,
    /// The values that last from poll to poll.
    pub(super) cache: &'a mut Value,
}

/// A frame that is sent at an interval.
pub(super) struct Heartbeat {
    pub(super) interval: Duration,
    pub(super) frame: Value,
}

/// A service that sends its messages over a connection.
pub(super) trait PushService: Sync {
    /// Opens a connection, and logs in. `cache` is that of the poll, which is kept from poll to poll. It is empty and
    /// dropped afterwards if the connection is opened for a request or a check, so only the [`heartbeat`](Self::heartbeat)
    /// may depend on what is stored in it here.
    fn connect(&self, cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>>;

    /// Reads a frame.
    ///
    /// # Errors
    /// The service has ended the connection by this frame.
    fn read_frame(&self, frame: &Value, poll: &mut PollState<'_>) -> ChannelResult<FrameContent>;

    /// The heartbeat that keeps the new connection open, if the service needs one. `cache` is that of
    /// [`connect`](Self::connect).
    fn heartbeat(&self, _cache: &Value) -> Option<Heartbeat> {
        None
    }
}

/// The connection of a channel.
#[derive(Default)]
pub(super) struct PushListener {
    state: Mutex<PushState>,
    senders: Mutex<WaitingSenders>,
    /// Notified when a sender is done.
    sender_done: Condvar,
}

#[derive(Default)]
struct PushState {
    connection: Option<Box<dyn FrameConnection>>,
    /// Frames that a request has read.
    backlog: VecDeque<Value>,
    /// The heartbeat of the connection.
    heartbeat: Option<Heartbeat>,
    /// The time of the next heartbeat, on the clock of [`signal::now`].
    heartbeat_at: Duration,
}

#[derive(Default)]
struct WaitingSenders {
    count: usize,
    /// Ends the wait for messages.
    interrupt: Option<Arc<CancelToken>>,
}

impl PushListener {
    /// Implements [`super::Channel::poll`]. A poll that does not wait takes the messages that the service sends at once
    /// when the connection is open.
    pub(super) fn poll(&self, service: &dyn PushService, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { identity, cursor, wait, store_batch, .. } = request;
        let mut cache = object_cursor(cursor, &[]).unwrap_or_else(|| json!({}));
        let mut stored_cursor = cursor.cloned();
        let mut store_messages = |messages: Vec<InboundMessage>, cache: &Value| {
            let cursor = cache.clone();
            store_batch(Batch { messages, cursor })
        };
        let mut end = signal::now().saturating_add(wait.max(IDLE_TIMEOUT));
        let mut has_reconnected = false;
        let ending = loop {
            let frame = match self.next_frame(service, &mut cache, &mut end) {
                Ok(Some(frame)) => frame,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let poll = &mut PollState { identity, cache: &mut cache };
            let content = match service.read_frame(&frame, poll) {
                Ok(content) => content,
                Err(error) => {
                    self.state.lock().connection = None;
                    // A service may ask for a new connection by a frame. A second one in a poll is a failure.
                    let is_reconnect = matches!(error, ChannelError::Unavailable(_));
                    if !is_reconnect || std::mem::replace(&mut has_reconnected, true) {
                        break Err(error);
                    }
                    continue;
                }
            };
            let has_messages = !content.messages.is_empty();
            if has_messages {
                store_messages(content.messages, &cache)?;
                stored_cursor = Some(cache.clone());
            }
            if let Some(acknowledgement) = content.acknowledgement {
                self.acknowledge(&acknowledgement);
            }
            if has_messages {
                if !wait.is_zero() {
                    break Ok(());
                }
                end = signal::now() + IDLE_TIMEOUT;
            }
        };
        if stored_cursor.as_ref() != Some(&cache) {
            store_messages(Vec::new(), &cache)?;
        }
        Ok(ending?)
    }

    /// Sends a request, and returns the response to it.
    ///
    /// # Errors
    /// There is no response. The request may have been carried out.
    pub(super) fn request(
        &self,
        service: &dyn PushService,
        request: &Value,
        is_response: &dyn Fn(&Value) -> bool,
    ) -> ChannelResult<Value> {
        let mut senders = self.senders.lock();
        senders.count += 1;
        if let Some(interrupt) = &senders.interrupt {
            interrupt.cancel();
        }
        drop(senders);
        let mut state = self.state.lock();
        let response = state.exchange(service, request, is_response);
        if response.is_err() {
            state.connection = None;
        }
        drop(state);
        self.senders.lock().count -= 1;
        self.sender_done.notify_all();
        response
    }

    /// Connects, unless there is a connection, and waits a moment for the service to reject it.
    ///
    /// # Errors
    /// The service cannot be reached, or rejects the token.
    pub(super) fn check(&self, service: &dyn PushService) -> ChannelResult<()> {
        let mut state = self.state.lock();
        if state.connection.is_none() {
            state.connect(service, &mut json!({}))?;
        }
        let Some(connection) = &mut state.connection else {
            return Ok(());
        };
        match connection.next_frame(signal::now() + IDLE_TIMEOUT) {
            Ok(frame) => state.backlog.extend(frame),
            Err(error) => {
                state.connection = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Acknowledges a frame. If that fails, the service sends it again, and it is recognised by its id.
    fn acknowledge(&self, acknowledgement: &Value) {
        let mut state = self.state.lock();
        let Some(connection) = &mut state.connection else {
            return;
        };
        if let Err(error) = connection.send_frame(acknowledgement) {
            log::info!(target: "channel", "a message is not acknowledged: {error}");
            state.connection = None;
        }
    }

    /// Waits for the next frame until `end`, but at least for [`IDLE_TIMEOUT`] after a connection was opened: `end` is set
    /// to that time. A connection that breaks is opened again, once.
    fn next_frame(
        &self,
        service: &dyn PushService,
        cache: &mut Value,
        end: &mut Duration,
    ) -> ChannelResult<Option<Value>> {
        loop {
            let interrupt = self.wait_for_senders()?;
            let mut state = self.state.lock();
            let was_open = state.connection.is_some();
            if !was_open {
                state.connect(service, cache)?;
                *end = (*end).max(signal::now() + IDLE_TIMEOUT);
            }
            let token = Some(Arc::clone(&interrupt));
            let next = cancel::scope(token, || state.next_frame(*end));
            match next {
                Err(ChannelError::Unavailable(cause)) if was_open => {
                    log::info!(target: "channel", "{cause}; connecting again");
                    state.connection = None;
                }
                // Not a failure: a sender has ended the wait. It sends over the same connection, then the wait goes on.
                Err(_) if interrupt.is_cancelled() && signal::check().is_ok() => {}
                Err(error) => {
                    state.connection = None;
                    return Err(error);
                }
                Ok(frame) => return Ok(frame),
            }
        }
    }

    /// Waits until no other thread wants to send. Returns the token by which a sender ends the wait for messages.
    fn wait_for_senders(&self) -> ChannelResult<Arc<CancelToken>> {
        let mut senders = self.senders.lock();
        while senders.count > 0 {
            self.sender_done.wait(&mut senders);
        }
        let unused = senders.interrupt.take().filter(|token| !token.is_cancelled());
        let interrupt = match unused {
            Some(token) => token,
            None => CancelToken::new().map_err(|error| ChannelError::Other(error.into()))?,
        };
        senders.interrupt = Some(Arc::clone(&interrupt));
        Ok(interrupt)
    }
}

impl PushState {
    fn connect(&mut self, service: &dyn PushService, cache: &mut Value) -> ChannelResult<()> {
        self.connection = Some(service.connect(cache)?);
        self.heartbeat = service.heartbeat(cache);
        let interval =
            self.heartbeat.as_ref().map_or(Duration::MAX, |heartbeat| heartbeat.interval);
        self.heartbeat_at = signal::now().saturating_add(interval);
        Ok(())
    }

    /// Returns the next frame; `None` if there is none until `end`. Sends the heartbeats that are due meanwhile.
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        if let Some(frame) = self.backlog.pop_front() {
            return Ok(Some(frame));
        }
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        loop {
            let next = connection.next_frame(end.min(self.heartbeat_at))?;
            if next.is_some() || signal::now() >= end {
                return Ok(next);
            }
            if signal::now() >= self.heartbeat_at
                && let Some(Heartbeat { interval, frame }) = &self.heartbeat
            {
                connection.send_frame(frame)?;
                self.heartbeat_at = signal::now() + *interval;
            }
        }
    }

    /// Sends a request over the connection, which is opened if there is none, and waits for the response to it. Other
    /// frames go to the backlog.
    fn exchange(
        &mut self,
        service: &dyn PushService,
        request: &Value,
        is_response: &dyn Fn(&Value) -> bool,
    ) -> ChannelResult<Value> {
        if self.connection.is_none() {
            self.connect(service, &mut json!({}))?;
        }
        let end = signal::now() + RESPONSE_TIMEOUT;
        let Some(connection) = &mut self.connection else {
            return Err(no_response());
        };
        connection.send_frame(request)?;
        while let Some(frame) = connection.next_frame(end)? {
            if is_response(&frame) {
                return Ok(frame);
            }
            self.backlog.push_back(frame);
        }
        Err(no_response())
    }
}

fn no_response() -> ChannelError {
    let seconds = RESPONSE_TIMEOUT.as_secs();
    ChannelError::Unavailable(format!("no response within {seconds} s"))
}
