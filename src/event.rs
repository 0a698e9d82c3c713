//! Everything a watcher may learn about a turn, as one closed enum.
//!
//! The loop tells events to a sink and never prints. What becomes of them (the answer alone, a spinner, JSON lines,
//! nothing) is the sink's affair; see `report`.

use crate::message::{Reply, ToolCall, ToolResult, Usage, User};
use std::time::Duration;

/// One thing that happened in a turn. Deltas carry the id of the message or call they belong to.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The turn's message was accepted and is on disk.
    User(&'a User),
    /// A piece of the model's reasoning.
    Reasoning { message: &'a str, text: &'a str },
    /// A piece of the model's text. Whether it is answer or progress shows only when the reply has ended.
    Text { message: &'a str, text: &'a str },
    /// A reply has ended and is on disk. `last` when it is the turn's answer.
    Assistant { reply: &'a Reply, last: bool },
    /// A tool is about to run.
    ToolCall(&'a ToolCall),
    /// A piece of what a running tool says.
    ToolOutput { call: &'a str, text: &'a str },
    /// A tool has ended, or was not run.
    ToolResult {
        /// With [`Outcome::Denied`], what was refused, and the flag that would have granted it.
        denied: Option<(&'a str, Option<&'a str>)>,
        result: &'a ToolResult,
        outcome: Outcome,
        /// With [`Outcome::Ok`]: what was run has failed, which to the model is a result like any other.
        unsuccessful: bool,
        /// What became of a file, as a unified diff, for those who watch.
        changes: Option<&'a str>,
        duration: Duration,
    },
    /// A request failed and will be sent again after `wait`.
    Retry {
        attempt: u32,
        wait: Duration,
        cause: &'a str,
    },
    /// A model cannot be asked, and another one stands in for it.
    Fallback {
        from: &'a str,
        to: &'a str,
        cause: &'a str,
    },
    /// What was said is about to be summed up: it has so many tokens, of the threshold where there is one.
    CompactStart { tokens: u64, threshold: Option<u64> },
    /// It was, or could not be, and is as it was.
    CompactEnd {
        before: u64,
        after: u64,
        error: Option<&'a str>,
        duration: Duration,
    },
    /// Something the user should know that is no failure.
    Notice(&'a str),
    /// What one request cost, in tokens and in US dollars where that is known.
    Usage {
        message: &'a str,
        usage: Usage,
        cost: Option<f64>,
    },
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Failed,
    /// Not run: the policy forbids it.
    Denied,
    /// Not run: unknown tool, unusable arguments, or the turn was ending.
    Skipped,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    #[default]
    Answered,
    IterationLimit,
    OutputLimit,
    RepeatedFailure,
    /// The policy refused the same thing again and again.
    Refused,
    /// The model, or its provider's filter, would not say all of it.
    Declined,
    Failed,
}

/// A call that the policy forbade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub call: String,
    pub tool: String,
    /// What the model was told.
    pub words: String,
    /// The flag that would have granted it.
    pub grant: Option<String>,
}

/// Where events go. An error ends the turn: nobody is left to tell.
pub type Sink<'a> = dyn FnMut(Event<'_>) -> anyhow::Result<()> + 'a;
