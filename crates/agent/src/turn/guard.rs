//! The interface between a turn and its guards: the state that a guard receives, and the actions that it may return.

use nanobot_base::event::StopReason;
use nanobot_base::message::{Message, ToolCall};

/// A check that runs before each request of a turn.
pub trait Guard {
    /// Called before each request to the model.
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction;
}

/// The state of a turn, as passed to guards.
#[derive(Clone, Copy, Debug)]
pub struct TurnState<'a> {
    /// Requests made so far in this turn.
    pub iterations: u32,
    /// Estimated tokens of the next request.
    pub context_tokens: u64,
    /// The part of `context_tokens` that belongs to messages, not to the system prompt and the tools.
    pub(crate) message_tokens: u64,
    /// All messages of the next request.
    pub messages: &'a [Message],
    /// The messages of this turn, starting with the user's.
    pub turn_messages: &'a [Message],
    /// The calls of this turn that were denied, in order.
    pub refused_calls: &'a [RefusedCall],
}

/// A tool call that was denied. One that ran, and was refused something, has a result and is none.
#[derive(Clone, Debug)]
pub struct RefusedCall {
    /// The number of the request that the model answered with the call.
    pub iteration: u32,
    pub call: ToolCall,
    /// The reason.
    pub message: String,
}

/// The action that a guard requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardAction {
    Continue,
    /// Inject `text` as a user message first; its id ends with `id_suffix`.
    Inject {
        id_suffix: &'static str,
        text: String,
    },
    /// Compact first: the context has reached `threshold` tokens.
    Compact {
        threshold: u64,
    },
    /// Send a last request with `text` and without tools, print the reply, and end the turn with `stop_reason`.
    Finish {
        stop_reason: StopReason,
        text: String,
    },
}
