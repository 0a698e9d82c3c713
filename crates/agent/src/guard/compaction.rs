//! Guard that compacts a conversation before it exceeds the size that the model handles well.

use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Requests a compaction once the next request would have `threshold` tokens.
pub struct CompactionGuard {
    pub threshold: u64,
}

impl Guard for CompactionGuard {
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction {
        // If messages are a small part of the request, a summary would cost money and change nothing.
        if state.context_tokens >= self.threshold && state.message_tokens >= self.threshold / 4 {
            GuardAction::Compact { threshold: self.threshold }
        } else {
            GuardAction::Continue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CompactionGuard, Guard, GuardAction, TurnState};

    #[test]
    fn requires_enough_message_tokens() {
        let check = |context, said, expect: bool| {
            let state = TurnState {
                refused_calls: &[],
                iterations: 0,
                context_tokens: context,
                message_tokens: said,
                messages: &[],
                turn_messages: &[],
            };
            let verdict = CompactionGuard { threshold: 100 }.check(&state);
            assert_eq!(verdict == GuardAction::Compact { threshold: 100 }, expect);
        };
        check(99, 99, false);
        check(100, 25, true);
        check(200, 24, false);
    }
}
