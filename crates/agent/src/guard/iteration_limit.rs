//! The iteration limit: after a number of requests, a closing one without tools.

use crate::turn::guard::{Guard, GuardAction, TurnState};
use nanobot_base::event::StopReason;

/// Ends a turn after `max_iterations` requests to the model.
pub struct IterationLimit {
    pub max_iterations: u32,
}

impl Guard for IterationLimit {
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction {
        if state.iterations < self.max_iterations {
            return GuardAction::Continue;
        }
        GuardAction::Finish {
            stop_reason: StopReason::IterationLimit,
            text: format!(
                "[nanobot] This turn has used all of its {} requests. Tools are no longer available. \
                 Answer now: report what you found or did, and what remains to be done.",
                self.max_iterations
            ),
        }
    }
}
