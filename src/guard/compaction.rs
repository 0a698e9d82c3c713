//! A conversation that grows beyond what the model works well with is made smaller before it is sent.

use super::{Guard, State, Verdict};

/// Asks for room once what would be sent reaches `threshold` tokens.
pub struct Compaction {
    pub threshold: u64,
}

impl Guard for Compaction {
    fn before(&mut self, state: &State<'_>) -> Verdict {
        match state.context >= self.threshold {
            true => Verdict::Compact {
                threshold: self.threshold,
            },
            false => Verdict::GoOn,
        }
    }
}
