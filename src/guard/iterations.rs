//! The iteration limit: after a number of requests, a closing one without tools.

use crate::event::StopReason;
use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Ends a turn after `max_iterations` requests to the model.
pub struct Iterations {
    pub limit: u32,
}

impl Guard for Iterations {
    fn before(&mut self, state: &TurnState<'_>) -> GuardAction {
        if state.iterations < self.limit {
            return GuardAction::Continue;
        }
        GuardAction::Finish {
            cause: StopReason::IterationLimit,
            words: format!(
                "[nanobot] This turn has used all of its {} requests. Tools are no longer available. \
                 Answer now: report what you found or did, and what remains to be done.",
                self.limit
            ),
        }
    }
}
