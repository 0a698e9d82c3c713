//! A conversation that grows beyond what the model works well with is made smaller before it is sent.

use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Asks for room once what would be sent reaches `threshold` tokens.
pub struct Compaction {
    pub threshold: u64,
}

impl Guard for Compaction {
    fn before(&mut self, state: &TurnState<'_>) -> GuardAction {
        // Where the messages are little of it, a summary would be paid for and change nothing.
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
