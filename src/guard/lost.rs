//! Sub-agents end with the run that started them. If that run was killed, their reports never arrive; the model is
//! informed once, so that it neither waits for them nor invents them.

use crate::history::spawned::{TOOL, unheard};
use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Reports the lost sub-agents of an earlier run. Checks once, before this run has started any.
#[derive(Default)]
pub struct Lost {
    has_looked: bool,
}

impl Guard for Lost {
    fn before(&mut self, state: &TurnState<'_>) -> GuardAction {
        if std::mem::replace(&mut self.has_looked, true) {
            return GuardAction::Continue;
        }
        let lost = unheard(state.sent).into_iter();
        let lost: Vec<String> = lost.map(|number| format!("`{TOOL}{number}`")).collect();
        match lost.is_empty() {
            true => GuardAction::Continue,
            false => GuardAction::Inject {
                mark: "lost",
                words: format!(
                    "[nanobot] The run that started {} was killed, and its sub-agents with it: they will not report. Their work \
                     may be partly done. Start again what is still needed.",
                    lost.join(", ")
                ),
            },
        }
    }
}
