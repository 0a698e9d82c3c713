//! Tells the model when plan mode begins and ends. The current state is read from the conversation itself, so that no
//! separate record can disagree with it after a compaction, or after a run under another profile.

use crate::message::{Message, plain_text};
use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Announces once that plan mode has begun or ended.
pub struct Plan {
    /// True if the profile of the run is read-only.
    pub reads_only: bool,
}

const ENTERED: &str = "[nanobot] Plan mode: you may read everything that your permissions allow, but change nothing: no files, \
                       no commands with lasting effects. Find out what you need, then answer with the plan: the steps in \
                       order, the files that they touch, the risks, and how to verify the result.";
const LEFT: &str =
    "[nanobot] Plan mode is over: from now on you may act as your permissions allow.";
/// The beginnings that identify an announcement in a conversation, whatever release wrote it.
const ENTERED_PREFIX: &str = "[nanobot] Plan mode:";
const LEFT_PREFIX: &str = "[nanobot] Plan mode is over:";

impl Guard for Plan {
    fn before(&mut self, state: &TurnState<'_>) -> GuardAction {
        match (self.reads_only, plans(state.sent)) {
            (true, false) => GuardAction::Inject {
                mark: "plan",
                words: ENTERED.into(),
            },
            (false, true) => GuardAction::Inject {
                mark: "plan",
                words: LEFT.into(),
            },
            _ => GuardAction::Continue,
        }
    }
}

/// True if the last announcement in the conversation was that plan mode has begun.
fn plans(sent: &[Message]) -> bool {
    let announced = sent.iter().rev().find_map(|message| match message {
        Message::User(user) if user.injected => match plain_text(&user.parts) {
            text if text.starts_with(ENTERED_PREFIX) => Some(true),
            text if text.starts_with(LEFT_PREFIX) => Some(false),
            _ => None,
        },
        _ => None,
    });
    announced.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::{ENTERED, Guard, GuardAction, LEFT, Plan, TurnState};
    use crate::message::{Message, Part, User};

    #[test]
    fn entering_and_leaving_are_told_once() {
        let check = |reads_only: bool, said: &[&str], expect: Option<&str>| {
            let message = |words: &&str| {
                Message::User(User {
                    parts: vec![Part::Text((*words).into())],
                    injected: *words == ENTERED || *words == LEFT,
                    ..User::default()
                })
            };
            let sent: Vec<Message> = said.iter().map(message).collect();
            let state = TurnState {
                denials: &[],
                iterations: 0,
                context: 0,
                said: 0,
                sent: &sent,
                turn: &sent,
            };
            let found = match (Plan { reads_only }).before(&state) {
                GuardAction::Inject { words, .. } => Some(words),
                _ => None,
            };
            assert_eq!(found.as_deref(), expect, "{reads_only} {said:?}");
        };
        check(false, &["hi"], None);
        check(true, &["hi"], Some(ENTERED));
        check(true, &["hi", ENTERED], None);
        check(true, &["hi", ENTERED, LEFT, "again"], Some(ENTERED));
        check(false, &["hi", ENTERED, "go"], Some(LEFT));
        check(false, &["hi", ENTERED, LEFT], None);
    }
}
