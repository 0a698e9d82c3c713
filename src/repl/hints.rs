//! Error reports within a conversation. Hints name the slash command for what has a flag or a command on the command line.

use anyhow::Error;
use nanobot_base::error::{HintPart, UserAction, hint_parts};
use nanobot_os::terminal::Terminal;

/// Prints an error as [`nanobot_agent::report`] does, with a hint that works in the REPL.
pub(crate) fn report_error(error: &Error, terminal: Terminal) {
    let hint = repl_hint(&hint_parts(error));
    crate::ops::context::report_error_with_hint(error, hint.as_deref(), terminal);
}

/// The text of a hint; `None` if it has no parts.
fn repl_hint(parts: &[HintPart]) -> Option<String> {
    let text = |part: &HintPart| match part {
        HintPart::Text(text) => text.clone(),
        HintPart::Action(action) => action_text(action),
    };
    (!parts.is_empty()).then(|| parts.iter().map(text).collect())
}

fn action_text(action: &UserAction) -> String {
    let text = match action {
        UserAction::ResumeTurn => "`/retry`",
        UserAction::StartConversation => "`/new`",
        UserAction::RepeatLater => "`/retry` later",
        UserAction::SendMessage => "a new message",
        UserAction::ListSessions => "`/session`",
        UserAction::ListSkills => "`/skills`",
        UserAction::ListModels => "`/model`",
        UserAction::Undo(arguments) => return format!("`/undo {arguments}`"),
        UserAction::PlayDemo => "`nanobot repl --replay demo`",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::repl_hint;
    use nanobot_base::error::{
        Exit, HintPart, NextStep, UserAction, fail, fail_with_step, hint_parts,
    };

    #[test]
    fn actions_are_commands_here() {
        let error = fail_with_step(Exit::BadInput, "full", NextStep::ShortenInput);
        let hint = "a shorter input, `/new`, or a model with a larger context window";
        assert_eq!(repl_hint(&hint_parts(&error)).as_deref(), Some(hint));
        let undo: [HintPart; 2] =
            [UserAction::Undo("--list".into()).into(), ", and `--force`".into()];
        assert_eq!(repl_hint(&undo).as_deref(), Some("`/undo --list`, and `--force`"));
        assert_eq!(repl_hint(&hint_parts(&fail(Exit::Failed, "x"))), None);
    }
}
