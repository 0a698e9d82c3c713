//! The turn limit: so many requests, then a closing one without tools.

use super::{Guard, State, Verdict};
use crate::turn::ending::Cause;

/// Ends a turn after `limit` requests to the model.
pub struct Iterations {
    pub limit: u32,
}

impl Guard for Iterations {
    fn before(&mut self, state: &State<'_>) -> Verdict {
        if state.iterations < self.limit {
            return Verdict::GoOn;
        }
        Verdict::Close {
            cause: Cause::IterationLimit,
            words: format!(
                "[nanobot] This turn has used all of its {} requests, and no tool can be called any more. \
                 Answer now: what you found or did, and what is left to do.",
                self.limit
            ),
        }
    }
}
