//! Sub-agents end with the run that started them. If that run was killed, their reports never arrive; the model is
//! informed once, so that it neither waits for them nor invents them.

use crate::turn::guard::{Guard, GuardAction, TurnState};
use nanobot_store::history::subagent_refs::{SPAWN_TOOL, unreported};

/// Reports the lost sub-agents of an earlier run. Checks once, before this run has started any.
#[derive(Default)]
pub struct OrphanedSubagents {
    has_checked: bool,
}

impl Guard for OrphanedSubagents {
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction {
        if self.has_checked {
            return GuardAction::Continue;
        }
        self.has_checked = true;
        let lost = unreported(state.messages).into_iter();
        let lost: Vec<String> = lost.map(|number| format!("`{SPAWN_TOOL}{number}`")).collect();
        if lost.is_empty() {
            GuardAction::Continue
        } else {
            GuardAction::Inject {
                id_suffix: "lost",
                text: format!(
                    "[nanobot] The run that started {} was killed, and its sub-agents with it: they will not report. Their work \
                 may be partly done. Start again what is still needed.",
                    lost.join(", ")
                ),
            }
        }
    }
}
