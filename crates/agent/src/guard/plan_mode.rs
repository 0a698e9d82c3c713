//! Tells the model when plan mode begins and ends. The current state is read from the conversation itself, so that no
//! separate record can disagree with it after a compaction, or after a run under another profile.

use crate::turn::guard::{Guard, GuardAction, TurnState};
use nanobot_base::message::{Message, plain_text};

/// Announces once that plan mode has begun or ended.
pub struct PlanMode {
    /// True if the profile of the run is read-only.
    pub reads_only: bool,
}

const STARTED_TEXT: &str = "[nanobot] Plan mode: you may read everything that your permissions allow, but change nothing: no files, \
                       no commands with lasting effects. Find out what you need, then answer with the plan: the steps in \
                       order, the files that they touch, the risks, and how to verify the result.";
const ENDED_TEXT: &str =
    "[nanobot] Plan mode is over: from now on you may act as your permissions allow.";
/// The beginnings that identify an announcement in a conversation, whatever release wrote it.
const STARTED_PREFIX: &str = "[nanobot] Plan mode:";
const ENDED_PREFIX: &str = "[nanobot] Plan mode is over:";

impl Guard for PlanMode {
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction {
        match (self.reads_only, is_plan_mode_announced(state.messages)) {
            (true, false) => GuardAction::Inject { id_suffix: "plan", text: STARTED_TEXT.into() },
            (false, true) => GuardAction::Inject { id_suffix: "plan", text: ENDED_TEXT.into() },
            _ => GuardAction::Continue,
        }
    }
}

/// True if the last announcement in the conversation was that plan mode has begun.
fn is_plan_mode_announced(messages: &[Message]) -> bool {
    let announcement = messages.iter().rev().find_map(|message| match message {
        Message::User(user) if user.injected => match plain_text(&user.parts) {
            text if text.starts_with(STARTED_PREFIX) => Some(true),
            text if text.starts_with(ENDED_PREFIX) => Some(false),
            _ => None,
        },
        _ => None,
    });
    announcement.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::{ENDED_TEXT, Guard, GuardAction, PlanMode, STARTED_TEXT, TurnState};
    use nanobot_base::message::{Message, MessagePart, UserMessage};

    #[test]
    fn announces_plan_mode_once() {
        let check = |reads_only: bool, texts: &[&str], expect: Option<&str>| {
            let message = |text: &&str| {
                Message::User(UserMessage {
                    parts: vec![MessagePart::Text((*text).into())],
                    injected: *text == STARTED_TEXT || *text == ENDED_TEXT,
                    ..UserMessage::default()
                })
            };
            let sent: Vec<Message> = texts.iter().map(message).collect();
            let state = TurnState {
                refused_calls: &[],
                iterations: 0,
                context_tokens: 0,
                message_tokens: 0,
                messages: &sent,
                turn_messages: &sent,
            };
            let injected_text = match (PlanMode { reads_only }).check(&state) {
                GuardAction::Inject { text, .. } => Some(text),
                _ => None,
            };
            assert_eq!(injected_text.as_deref(), expect, "{reads_only} {texts:?}");
        };
        check(false, &["hi"], None);
        check(true, &["hi"], Some(STARTED_TEXT));
        check(true, &["hi", STARTED_TEXT], None);
        check(true, &["hi", STARTED_TEXT, ENDED_TEXT, "again"], Some(STARTED_TEXT));
        check(false, &["hi", STARTED_TEXT, "go"], Some(ENDED_TEXT));
        check(false, &["hi", STARTED_TEXT, ENDED_TEXT], None);
    }
}
