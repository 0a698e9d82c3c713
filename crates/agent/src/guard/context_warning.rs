//! Warns the model when its context reaches half of the size at which it is compacted, so that it spends the rest with more care.

use crate::turn::guard::{Guard, GuardAction, TurnState};
use nanobot_base::message::Message;

/// Suffix of the id of the warning message.
const ID_SUFFIX: &str = "warning";

/// Warns once when the context reaches half of `threshold`, the number of tokens at which it will be compacted. A
/// compaction removes the warning, so it may be repeated afterwards.
pub struct ContextWarning {
    pub threshold: u64,
}

impl Guard for ContextWarning {
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction {
        // Without a reply the context is one long message. The model is already aware of its length.
        let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
        let is_half = state.context_tokens.saturating_mul(2) >= self.threshold;
        if !is_half || state.messages.iter().any(is_warning) || !state.messages.iter().any(is_reply)
        {
            return GuardAction::Continue;
        }
        GuardAction::Inject {
            id_suffix: ID_SUFFIX,
            text: format!(
                "[nanobot] This conversation has about {} tokens; at {} it is compacted to a summary. Read only what you \
                 need, in parts, and write down what must not be lost. Do not reply to this notice; continue.",
                state.context_tokens, self.threshold
            ),
        }
    }
}

fn is_warning(message: &Message) -> bool {
    let Message::User(user) = message else {
        return false;
    };
    user.injected && user.id.ends_with(ID_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::{ContextWarning, Guard, GuardAction, TurnState};
    use nanobot_base::message::{Message, Reply, UserMessage};

    #[test]
    fn warns_once_at_half_of_the_threshold() {
        let check = |context, ids: &[&str], expect: bool| {
            let message = |id: &&str| match *id {
                "reply" => Message::Assistant(Reply::default()),
                id => Message::User(UserMessage {
                    id: id.into(),
                    injected: id.contains('-'),
                    ..UserMessage::default()
                }),
            };
            let sent: Vec<Message> = ids.iter().map(message).collect();
            let state = TurnState {
                refused_calls: &[],
                iterations: 0,
                context_tokens: context,
                message_tokens: context,
                messages: &sent,
                turn_messages: &[],
            };
            let action = ContextWarning { threshold: 100 }.check(&state);
            assert_eq!(matches!(action, GuardAction::Inject { .. }), expect, "{context} {ids:?}");
        };
        check(49, &["reply"], false);
        check(50, &["reply"], true);
        check(50, &["warning", "reply"], true);
        check(90, &["reply", "a-warning"], false);
        check(90, &["long"], false);
    }
}
