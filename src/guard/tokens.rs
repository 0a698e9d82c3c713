//! The token budget of a turn: no further request once it is spent. One request can pass it, since only the answer tells
//! what it cost.

use super::{Guard, State, Verdict};
use crate::turn::ending::Cause;

/// Ends a turn that has used `limit` tokens, input and output together.
pub struct Tokens {
    pub limit: u64,
}

impl Guard for Tokens {
    fn before(&mut self, state: &State<'_>) -> Verdict {
        match state.usage.input + state.usage.output >= self.limit {
            true => Verdict::Stop(Cause::TokenBudget),
            false => Verdict::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tokens;
    use crate::guard::{Guard, State, Verdict};
    use crate::message::Usage;
    use crate::turn::ending::Cause;

    #[test]
    fn a_spent_budget_stops() {
        let check = |input, output, expect| {
            let usage = Usage {
                input,
                output,
                ..Usage::default()
            };
            let state = State {
                iterations: 1,
                usage,
                turn: &[],
            };
            assert_eq!(
                Tokens { limit: 10 }.before(&state),
                expect,
                "{input} {output}"
            );
        };
        check(0, 0, Verdict::GoOn);
        check(5, 4, Verdict::GoOn);
        check(5, 5, Verdict::Stop(Cause::TokenBudget));
        check(50, 0, Verdict::Stop(Cause::TokenBudget));
    }
}
