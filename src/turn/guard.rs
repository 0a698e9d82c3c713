//! The interface between a turn and its guards: what a guard is shown, and what it may decide.

use crate::event::{Denial, StopReason};
use crate::message::Message;

/// Something that watches a turn.
pub trait Guard {
    /// Called before each request to the model.
    fn before(&mut self, state: &TurnState<'_>) -> GuardAction;
}

/// What a guard may look at.
#[derive(Clone, Copy, Debug)]
pub struct TurnState<'a> {
    /// Requests made so far in this turn.
    pub iterations: u32,
    /// Tokens that the next request would have, by our estimate.
    pub context: u64,
    /// Those of them that are of messages, and not of the system text and the tools.
    pub said: u64,
    /// All that would be sent.
    pub sent: &'a [Message],
    /// The messages of this turn, the user's first.
    pub turn: &'a [Message],
    /// What was refused in this turn.
    pub denials: &'a [Denial],
}

/// What a guard decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardAction {
    Continue,
    /// Say this in the user's place first, under an id that ends in `mark`.
    Inject {
        mark: &'static str,
        words: String,
    },
    /// Make room first: what is sent has reached so many tokens.
    Compact {
        threshold: u64,
    },
    /// Ask once more, without tools and with these words, print what comes, and end with this cause.
    Finish {
        cause: StopReason,
        words: String,
    },
}
