//! Guard that compacts a conversation before it exceeds the size that the model handles well.

use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Requests a compaction once the next request would have `threshold` tokens.
pub struct Compaction {
    pub threshold: u64,
}

impl Guard for Compaction {
    fn before(&mut self, state: &TurnState<'_>) -> GuardAction {
        // If messages are a small part of the request, a summary would cost money and change nothing.
        match state.context >= self.threshold && state.said >= self.threshold / 4 {
            true => GuardAction::Compact {
                threshold: self.threshold,
            },
            false => GuardAction::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Compaction, Guard, GuardAction, TurnState};

    #[test]
    fn only_messages_can_be_summed_up() {
        let check = |context, said, expect: bool| {
            let state = TurnState {
                denials: &[],
                iterations: 0,
                context,
                said,
                sent: &[],
                turn: &[],
            };
            let verdict = Compaction { threshold: 100 }.before(&state);
            assert_eq!(verdict == GuardAction::Compact { threshold: 100 }, expect);
        };
        check(99, 99, false);
        check(100, 25, true);
        check(200, 24, false);
    }
}
