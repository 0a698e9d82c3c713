//! The events of a turn, as one closed enum.
//!
//! The turn loop emits events to a sink and never prints. The sink decides how to present them (the answer alone, a
//! spinner, JSON lines, nothing); see `report`.

use crate::message::{Reply, ToolCall, ToolResult, Usage, UserMessage};
use std::time::Duration;

/// One event of a turn. Deltas carry the id of the message or tool call they belong to.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The turn's user message was accepted and is on disk.
    User(&'a UserMessage),
    /// A delta of the model's reasoning.
    Reasoning { message_id: &'a str, text: &'a str },
    /// A delta of the model's text. Only the end of the reply shows whether it is the answer or interim text.
    Text { message_id: &'a str, text: &'a str },
    /// A reply has ended and is on disk. `is_final` is true if it is the turn's answer.
    Assistant { reply: &'a Reply, is_final: bool },
    /// A tool is about to run.
    ToolCall(&'a ToolCall),
    /// A delta of the output of a running tool.
    ToolOutput { call_id: &'a str, text: &'a str },
    /// A tool call has ended or was skipped.
    ToolResult {
        result: &'a ToolResult,
        outcome: ToolOutcome,
        /// Present with [`ToolOutcome::Denied`], unless the user declined, and for a command that failed because the sandbox
        /// refused something.
        denial: Option<&'a Denial>,
        /// With [`ToolOutcome::Ok`]: the command failed, which the model receives as an ordinary result.
        command_failed: bool,
        /// The part of a command that the sandbox refused, although the command succeeded; for display only.
        refused_part: Option<&'a str>,
        /// The change to a file as a unified diff, for display only.
        diff: Option<&'a str>,
        /// True if the user was asked about the call, and so has seen the change.
        was_asked: bool,
        duration: Duration,
    },
    /// A request failed and will be retried after `wait`.
    Retry { attempt: u32, wait: Duration, cause: &'a str },
    /// A request waits until others have ended, or for `wait` if that is known.
    Wait { wait: Option<Duration>, cause: &'a str },
    /// A model is unavailable, and another one replaces it.
    Fallback { from: &'a str, to: &'a str, cause: &'a str },
    /// Compaction starts: the context has `tokens` tokens; `threshold` is the limit that triggered it, if any.
    CompactStart { tokens: u64, threshold: Option<u64> },
    /// Compaction has ended. With `error`, the context is unchanged.
    CompactEnd { before: u64, after: u64, error: Option<&'a str>, duration: Duration },
    /// Information for the user that is not a failure.
    Notice(&'a str),
    /// Tokens of one request, and its cost in US dollars if known.
    Usage { message_id: &'a str, usage: Usage, cost: Option<f64> },
}

/// Outcome of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOutcome {
    Ok,
    Failed,
    /// Denied by the policy, a hook or the user. A command may have run before, and its changes were undone.
    Denied,
    /// Not run: unknown tool, invalid arguments, or the turn was ending.
    Skipped,
}

/// The reason a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    #[default]
    Answered,
    IterationLimit,
    OutputLimit,
    /// The command of `--until` failed after the last permitted answer.
    RoundLimit,
    RepeatedFailure,
    /// The model made the same call again and again, and got the same result.
    RepeatedCall,
    /// The policy denied the same action repeatedly.
    RepeatedDenial,
    /// The model, or its provider's content filter, declined to answer in full.
    Declined,
    Failed,
}

/// A tool call that the policy denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The id of the call.
    pub call_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// The error text returned to the model.
    pub message: String,
    /// The flag that would have granted the call.
    pub suggested_flag: Option<String>,
    /// True if the message says itself how that flag grants it.
    pub names_flag: bool,
}

/// The receiver of events. An error ends the turn, because its output can no longer be delivered.
pub type EventSink<'a> = dyn FnMut(Event<'_>) -> anyhow::Result<()> + 'a;
