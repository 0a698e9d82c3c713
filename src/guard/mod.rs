//! What may stop or bend a turn. Each guard looks at the turn before every request to the model; the turn asks them in
//! order and knows none by name.

use crate::message::Message;
use crate::turn::ending::{Cause, Denial};

pub mod compaction;
pub mod iterations;
pub mod lost;
pub mod plan;
pub mod repeats;
pub mod warning;

/// Something that watches a turn.
pub trait Guard {
    /// Called before each request to the model.
    fn before(&mut self, state: &State<'_>) -> Verdict;
}

/// What a guard may look at.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
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
pub enum Verdict {
    GoOn,
    /// Say this in the user's place first, under an id that ends in `mark`.
    Add {
        mark: &'static str,
        words: String,
    },
    /// Make room first: what is sent has reached so many tokens.
    Compact {
        threshold: u64,
    },
    /// Ask once more, without tools and with these words, print what comes, and end with this cause.
    Close {
        cause: Cause,
        words: String,
    },
}
