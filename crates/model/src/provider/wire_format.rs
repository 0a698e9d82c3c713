//! The traits that each wire format implements, for its requests and for its replies.

use super::request_body::BodyWriter;
use super::{DeltaSink, Request};
use nanobot_base::message::Reply;
use nanobot_net::sse::EventTooLarge;
use serde_json::Value;

/// Maximum size of an event. A tool call with a whole file in it stays far below.
pub(super) const MAX_EVENT_BYTES: usize = 32 << 20;

/// A wire format, configured for one server and model. No I/O.
pub trait WireFormat: Send + Sync {
    /// The path of the endpoint, appended to the base URL.
    fn path(&self) -> &str;
    /// The path of the list of models, appended to the base URL.
    fn models_path(&self) -> &'static str {
        "/models"
    }
    /// Headers that the format requires.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The default header for the key.
    fn key_header(&self) -> &'static str {
        "authorization"
    }
    /// Writes the request body to `body`. Its last field is the one that grows during a conversation.
    fn body(&self, request: &Request<'_>, stream: bool, body: BodyWriter<'_>) -> Vec<u8>;
    /// A builder of the reply to `request`.
    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn ReplyBuilder>;
}

/// A reply under construction, in one wire format.
pub trait ReplyBuilder {
    /// Processes an event that only adds text to the reply, as nearly all events do, without building a JSON value. Any
    /// other event is left to [`ReplyBuilder::add_event`], with `false`.
    fn add_text_event(&mut self, event: &str, on_delta: &mut DeltaSink<'_>) -> ReplyResult<bool>;
    /// Processes an event of a stream.
    fn add_event(&mut self, event: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()>;
    /// Processes a complete response.
    fn add_response(&mut self, response: &Value, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()>;
    /// Processes the stream's closing mark, if the format has one in addition to its events.
    fn close(&mut self) {}
    /// True once the response is complete, whatever follows.
    fn is_done(&self) -> bool;
    /// Ends the response: passes on the buffered text, and reports missing parts.
    fn finish(&mut self, on_delta: &mut DeltaSink<'_>) -> ReplyResult<()>;
    /// Returns the finished reply.
    fn into_reply(self: Box<Self>) -> ReplyResult<Reply>;
}

/// The result of reading a response.
pub type ReplyResult<T> = Result<T, ReplyError>;

/// The reason why a response is unusable.
#[derive(Debug)]
pub enum ReplyError {
    /// The receiver cancelled the exchange.
    Cancelled(anyhow::Error),
    /// The response ended before it was complete.
    Truncated(String),
    /// The response has no known form.
    Malformed(String),
    /// The server reports a failure within a successful response.
    Server(Value),
}

impl From<EventTooLarge> for ReplyError {
    fn from(_: EventTooLarge) -> Self {
        Self::Malformed(format!("an event larger than {} MiB", MAX_EVENT_BYTES >> 20))
    }
}
