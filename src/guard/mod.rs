//! What may stop or bend a turn. Each guard looks at the turn before every request to the model; the turn asks them in
//! order and knows none by name.

use crate::message::Message;
use crate::turn::ending::Cause;

pub mod iterations;
pub mod repeats;

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
    /// The messages of this turn, the user's first.
    pub turn: &'a [Message],
}

/// What a guard decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    /// Ask once more, without tools and with these words, print what comes, and end with this cause.
    Close {
        cause: Cause,
        words: String,
    },
}
