//! Recovery of a turn that a killed poll had begun: the session has its messages, under the turn's id.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_agent::turn::ending::{Ending, incomplete_answer_error};
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::message::{FinishReason, Message};
use nanobot_channel::inbox::BegunTurn;
use nanobot_config::settings::Settings;
use nanobot_store::history::{self, NO_MORE_TEXT};
use nanobot_store::session::Session;

/// A turn that was begun before, as the session has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundTurn {
    pub(crate) state: EarlierTurn,
    /// The labels of the messages that it has taken while it ran.
    pub(crate) taken_labels: Vec<String>,
}

/// The state of a turn that was begun before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EarlierTurn {
    /// There is nothing to continue, so the turn runs again: the session has no message of it, its end has no text, or it was
    /// interrupted and another turn followed.
    NotResumable,
    /// The session ends with its messages, without an answer: the turn can be resumed.
    Interrupted,
    /// The answer, and the finish reason of its last part.
    Answered(String, FinishReason),
}

/// The state of the last of `turns` that the session `key` has.
///
/// # Errors
/// The session cannot be read.
pub(crate) fn find(
    ctx: &Context,
    settings: &Settings,
    key: &str,
    turns: &[BegunTurn],
) -> Result<FoundTurn> {
    let store = ctx.session_store(settings)?;
    let session = Session::read(&store, key, &mut |_| {})?;
    Ok(state_of(session.messages(), turns))
}

fn state_of(messages: &[Message], turns: &[BegunTurn]) -> FoundTurn {
    let begins_one_of_turns = |message: &Message| {
        message.begins_turn() && turns.iter().any(|turn| turn.turn == message.turn_id())
    };
    let Some(start) = messages.iter().rposition(begins_one_of_turns) else {
        return FoundTurn { state: EarlierTurn::NotResumable, taken_labels: Vec::new() };
    };
    let later_messages = &messages[start + 1..];
    let next_turn = later_messages.iter().position(Message::begins_turn);
    let turn = &later_messages[..next_turn.unwrap_or(later_messages.len())];
    let label_of = |message: &Message| match message {
        Message::User(user) => user.steering_label().map(str::to_owned),
        Message::Assistant(_) | Message::Tool(_) => None,
    };
    let taken_labels = turn.iter().filter_map(label_of).collect();
    let state = if !history::is_interrupted(&messages[..=start + turn.len()]) {
        to_answer(turn).unwrap_or(EarlierTurn::NotResumable)
    } else if next_turn.is_none() {
        EarlierTurn::Interrupted
    } else {
        // Resuming the session would answer the turn that followed.
        EarlierTurn::NotResumable
    };
    FoundTurn { state, taken_labels }
}

/// The answer that ends the turn, including the parts before it that the output limit has cut.
fn to_answer(turn: &[Message]) -> Option<EarlierTurn> {
    let [before @ .., Message::Assistant(last)] = turn else {
        return None;
    };
    let mut text = match last.text.as_str() {
        NO_MORE_TEXT => String::new(),
        text => text.to_owned(),
    };
    let mut rest = before;
    while let [before @ .., Message::Assistant(part), Message::User(user)] = rest
        && user.injected
        && part.finish_reason == FinishReason::Length
        && part.tool_calls.is_empty()
    {
        text.insert_str(0, &part.text);
        rest = before;
    }
    // Only a turn that has answered with a tool ends without a text.
    let is_complete = !text.trim().is_empty() || last.text == NO_MORE_TEXT;
    is_complete.then(|| EarlierTurn::Answered(text, last.finish_reason.clone()))
}

/// The ending of a turn with this answer, and its status.
pub(crate) fn to_ending(text: String, finish_reason: &FinishReason) -> (Ending, Exit) {
    let is_incomplete = !matches!(finish_reason, FinishReason::Stop);
    let error = is_incomplete.then(|| incomplete_answer_error(finish_reason));
    let exit = error.as_ref().map_or(Exit::Answered, exit_for);
    let ending = Ending { is_delivered: text.is_empty(), text, error, ..Ending::default() };
    (ending, exit)
}

#[cfg(test)]
mod tests {
    use super::{EarlierTurn, state_of};
    use nanobot_base::message::{FinishReason, Message, MessagePart, Reply, UserMessage};
    use nanobot_channel::inbox::BegunTurn;

    fn user(id: &str) -> Message {
        Message::User(UserMessage {
            id: id.into(),
            parts: vec![MessagePart::Text("hello".into())],
            ..UserMessage::default()
        })
    }

    fn reply(text: &str, finish_reason: FinishReason) -> Message {
        Message::Assistant(Reply { text: text.into(), finish_reason, ..Reply::default() })
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
            assert_eq!(state_of(messages, &turns).state, expect, "{messages:?}");
        };
        let answered = |text: &str| EarlierTurn::Answered(text.into(), FinishReason::Stop);
        let says = |text: &str| reply(text, FinishReason::Stop);
        check(&[], EarlierTurn::NotResumable);
        check(&[user("other-0"), says("x")], EarlierTurn::NotResumable);
        check(&[user("aaa-0")], EarlierTurn::Interrupted);
        check(&[user("aaa-0"), says("x")], answered("x"));
        check(&[user("bbb-0"), says("x"), user("later-0"), says("y")], answered("x"));
        let taken = |messages: &[Message]| state_of(messages, &turns).taken_labels;
        assert_eq!(taken(&[user("aaa-0"), user("bbb-steer1.x"), user("bbb-steer2.y")]), ["x", "y"]);
        assert_eq!(taken(&[user("aaa-0"), user("aaa-steer1")]), [""; 0]);
        assert_eq!(taken(&[user("aaa-0"), user("later-0"), user("later-steer1.x")]), [""; 0]);
        check(&[user("aaa-0"), user("aaa-steer1.x")], EarlierTurn::Interrupted);
        check(&[user("aaa-0"), user("aaa-steer1.x"), says("x")], answered("x"));
        // Another turn followed, so resuming would answer that one.
        check(&[user("aaa-0"), user("later-0")], EarlierTurn::NotResumable);

        // The beginning of a reply is no answer.
        let injected = || {
            Message::User(UserMessage {
                id: "aaa-c1".into(),
                parts: vec![MessagePart::Text("go on".into())],
                injected: true,
                ..UserMessage::default()
            })
        };
        let half = || reply("half of it", FinishReason::Interrupted);
        check(&[user("aaa-0"), half()], EarlierTurn::Interrupted);
        check(&[user("aaa-0"), half(), injected(), says("y")], answered("y"));
        check(&[user("aaa-0"), half(), user("later-0"), says("y")], EarlierTurn::NotResumable);

        // The parts that the output limit has cut belong together.
        let cut = |text: &str| reply(text, FinishReason::Length);
        check(&[user("aaa-0"), cut("x"), injected()], EarlierTurn::Interrupted);
        check(&[user("aaa-0"), cut("x"), injected(), says("y")], answered("xy"));
        check(&[user("aaa-0"), cut("x"), injected(), says("[no more text]")], answered("x"));
        check(
            &[user("aaa-0"), cut("x"), injected(), cut("y")],
            EarlierTurn::Answered("xy".into(), FinishReason::Length),
        );
    }
}
