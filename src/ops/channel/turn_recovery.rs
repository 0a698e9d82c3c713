//! The end of a turn that a killed poll had begun, found in the session by the turn's id.

use crate::channel::inbox::BegunTurn;
use crate::history;
use crate::message::{FinishReason, Message, Reply};
use crate::ops::context::Context;
use crate::session::Session;
use crate::settings::Settings;
use anyhow::Result;

/// The state of a turn that was begun before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EarlierTurn {
    /// The session has no message of it, so it runs anew.
    NotStored,
    /// The session has its message, and no answer.
    Interrupted,
    /// The answer.
    Answered(String),
}

/// Finds the last of `turns` that the session has.
///
/// # Errors
/// The session cannot be read.
pub(crate) fn find(
    ctx: &Context,
    settings: &Settings,
    key: &str,
    turns: &[BegunTurn],
) -> Result<EarlierTurn> {
    let store = ctx.session_store(settings)?;
    let session = Session::read(&store, key, &mut |_| {})?;
    Ok(state_of(session.messages(), turns))
}

fn state_of(messages: &[Message], turns: &[BegunTurn]) -> EarlierTurn {
    let is_ours = |message: &Message| {
        message.begins_turn() && turns.iter().any(|turn| turn.turn == message.turn_id())
    };
    let Some(start) = messages.iter().rposition(is_ours) else {
        return EarlierTurn::NotStored;
    };
    let rest = &messages[start + 1..];
    let next = rest.iter().position(Message::begins_turn);
    let own = &rest[..next.unwrap_or(rest.len())];
    let answer = own.iter().rev().find_map(|message| match message {
        // A partial text is stored too when a turn is interrupted.
        Message::Assistant(reply)
            if reply.tool_calls.is_empty() && reply.finish_reason != FinishReason::Interrupted =>
        {
            Some(reply)
        }
        _ => None,
    });
    match (answer, next) {
        (Some(Reply { text, .. }), _) if !text.trim().is_empty() => {
            EarlierTurn::Answered(text.clone())
        }
        (_, None) if history::is_interrupted(messages) => EarlierTurn::Interrupted,
        _ => EarlierTurn::NotStored,
    }
}

#[cfg(test)]
mod tests {
    use super::{EarlierTurn, state_of};
    use crate::channel::inbox::BegunTurn;
    use crate::message::{FinishReason, Message, MessagePart, Reply, UserMessage};

    fn user(id: &str) -> Message {
        Message::User(UserMessage {
            id: id.into(),
            parts: vec![MessagePart::Text("hello".into())],
            ..UserMessage::default()
        })
    }

    fn reply(text: &str) -> Message {
        Message::Assistant(Reply {
            text: text.into(),
            ..Reply::default()
        })
    }

    #[test]
    fn an_earlier_turn_is_found_by_its_id() {
        let turns = ["aaa", "bbb"].map(|turn| BegunTurn {
            turn: turn.into(),
            ids: vec!["1".into()],
            at: 0,
            ended: false,
        });
        let check = |messages: &[Message], expect: EarlierTurn| {
            assert_eq!(state_of(messages, &turns), expect, "{messages:?}");
        };
        check(&[], EarlierTurn::NotStored);
        check(&[user("other-0"), reply("x")], EarlierTurn::NotStored);
        check(&[user("aaa-0")], EarlierTurn::Interrupted);
        check(
            &[user("aaa-0"), reply("x")],
            EarlierTurn::Answered("x".into()),
        );
        check(
            &[user("bbb-0"), reply("x"), user("later-0"), reply("y")],
            EarlierTurn::Answered("x".into()),
        );
        let partial = Message::Assistant(Reply {
            text: "half of it".into(),
            finish_reason: FinishReason::Interrupted,
            ..Reply::default()
        });
        check(&[user("aaa-0"), partial], EarlierTurn::Interrupted);
        // Another turn followed, so resuming would answer that one.
        check(&[user("aaa-0"), user("later-0")], EarlierTurn::NotStored);
    }
}
