//! Ends a turn in which the model repeats itself, which costs money and leads nowhere: after a number of calls with the same
//! result, after fewer calls that fail, and after even fewer calls that are denied.

use crate::turn::guard::{Guard, GuardAction, TurnState};
use nanobot_base::event::{Denial, StopReason};
use nanobot_base::message::{Message, ToolCall};

/// Number of consecutive identical failures that ends the turn. Two repeats can be a sensible retry, for example after
/// a timeout; a fifth attempt never is.
const MAX_REPEATED_FAILURES: usize = 5;

/// Number of consecutive identical calls with the same result that ends the turn. It is higher, because a model may poll for a change that
/// it does not control.
const MAX_REPEATED_CALLS: usize = 10;

/// Number of identical denials that ends the turn. A denial says that it is final, so a third attempt is not a retry.
const MAX_REPEATED_DENIALS: usize = 3;

/// Ends a turn whose latest call has failed [`MAX_REPEATED_FAILURES`] times in a row with the same arguments, gave the
/// same result [`MAX_REPEATED_CALLS`] times in a row, or was denied [`MAX_REPEATED_DENIALS`] times.
pub struct LoopDetection;

impl Guard for LoopDetection {
    fn check(&mut self, state: &TurnState<'_>) -> GuardAction {
        if let Some(tool) = repeatedly_denied_tool(state.denials, state.turn_messages) {
            return GuardAction::Finish {
                stop_reason: StopReason::RepeatedDenial,
                text: format!(
                    "[nanobot] The same call of `{tool}` was denied {MAX_REPEATED_DENIALS} times. Tools are no longer available. \
                     Answer now: report what you found or did, and what was denied."
                ),
            };
        }
        match latest_repetition(state.turn_messages) {
            Some(Repetition { call, times, is_failing: true })
                if times >= MAX_REPEATED_FAILURES =>
            {
                GuardAction::Finish {
                    stop_reason: StopReason::RepeatedFailure,
                    text: format!(
                        "[nanobot] The call of `{}` failed {times} times with the same arguments. Tools are no longer \
                         available. Answer now: report what you found or did, and what failed.",
                        call.name
                    ),
                }
            }
            Some(Repetition { call, times, is_failing: false }) if times >= MAX_REPEATED_CALLS => {
                GuardAction::Finish {
                    stop_reason: StopReason::RepeatedCall,
                    text: format!(
                        "[nanobot] The call of `{}` gave the same result {times} times in a row. Tools are no longer \
                         available. Answer now: report what you found or did, and what remains to be done.",
                        call.name
                    ),
                }
            }
            _ => GuardAction::Continue,
        }
    }
}

/// The tool of the latest denial, if calls of at least [`MAX_REPEATED_DENIALS`] replies were denied for the same reason and are alike: they
/// have the same file, whatever was to be done to it, or else the same arguments. Parallel calls in one reply count once. A command
/// that ran, and was refused something, has a result and may be repeated.
fn repeatedly_denied_tool<'a>(denials: &'a [Denial], turn: &[Message]) -> Option<&'a str> {
    let has_result = |denial: &&Denial| {
        turn.iter().any(|message| {
            matches!(message, Message::Tool(result) if result.call_id == denial.call_id && !result.failed)
        })
    };
    let last = denials.last().filter(|denial| !has_result(denial))?;
    let subject = |denial: &Denial| {
        let call = calls_of(turn).find(|call| call.id == denial.call_id)?;
        Some(call.arguments.get("path").unwrap_or(&call.arguments))
    };
    let is_same = |denial: &&Denial| {
        denial.tool_name == last.tool_name
            && denial.message == last.message
            && subject(denial) == subject(last)
    };
    let call_ids: Vec<&str> =
        denials.iter().filter(is_same).map(|denial| denial.call_id.as_str()).collect();
    let asks_again = |message: &&Message| match message {
        Message::Assistant(reply) => {
            reply.tool_calls.iter().any(|call| call_ids.contains(&call.id.as_str()))
        }
        _ => false,
    };
    (turn.iter().filter(asks_again).count() >= MAX_REPEATED_DENIALS).then_some(&last.tool_name)
}

/// The calls of a turn, in order.
fn calls_of(turn: &[Message]) -> impl Iterator<Item = &ToolCall> {
    let replies = turn.iter().filter_map(|message| match message {
        Message::Assistant(reply) => Some(&reply.tool_calls),
        _ => None,
    });
    replies.flatten()
}

/// The latest call, and the number of times in a row that it was made with the same result. Errors are all the same.
struct Repetition<'a> {
    call: &'a ToolCall,
    times: usize,
    is_failing: bool,
}

/// The latest call of a turn, if it has a result.
fn latest_repetition(turn: &[Message]) -> Option<Repetition<'_>> {
    let calls: Vec<&ToolCall> = calls_of(turn).collect();
    let result_of = |call: &ToolCall| {
        turn.iter().find_map(|message| match message {
            Message::Tool(result) if result.call_id == call.id => Some(result),
            _ => None,
        })
    };
    let call = *calls.last()?;
    let result = result_of(call)?;
    let is_same = |other: &&&ToolCall| {
        other.name == call.name
            && other.arguments == call.arguments
            && result_of(other).is_some_and(|other| {
                other.failed == result.failed && (other.failed || other.parts == result.parts)
            })
    };
    let times = calls.iter().rev().take_while(is_same).count();
    Some(Repetition { call, times, is_failing: result.failed })
}

#[cfg(test)]
mod tests {
    use super::latest_repetition;
    use nanobot_base::message::{Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult};
    use serde_json::json;

    /// Checks calls, each with its path and its result, against the number of repetitions of the last one.
    fn check(calls: &[(&str, Result<&str, &str>)], expect: Option<(usize, bool)>) {
        let mut turn = Vec::new();
        for (number, (path, result)) in calls.iter().enumerate() {
            let id = format!("call_{number}");
            let call = ToolCall {
                id: id.clone(),
                name: "read_file".into(),
                arguments: json!({ "path": path }),
            };
            turn.push(Message::Assistant(Reply { tool_calls: vec![call], ..Reply::default() }));
            let (Ok(text) | Err(text)) = result;
            turn.push(Message::Tool(ToolResult {
                call_id: id,
                name: "read_file".into(),
                parts: vec![MessagePart::Text((*text).to_owned())],
                failed: result.is_err(),
                source: ResultSource::Unspecified,
            }));
        }
        let found = latest_repetition(&turn).map(|found| (found.times, found.is_failing));
        assert_eq!(found, expect, "{calls:?}");
    }

    #[test]
    fn counts_consecutive_identical_calls() {
        check(&[], None);
        check(&[("a", Ok("1"))], Some((1, false)));
        check(&[("a", Err("1"))], Some((1, true)));
        check(&[("a", Err("1")), ("a", Err("2")), ("a", Err("3"))], Some((3, true)));
        check(&[("a", Err("1")), ("b", Err("1")), ("a", Err("1"))], Some((1, true)));
        check(&[("a", Err("1")), ("a", Ok("1")), ("a", Err("1"))], Some((1, true)));
        check(&[("a", Ok("1")), ("a", Ok("1")), ("a", Ok("1"))], Some((3, false)));
        check(&[("a", Ok("1")), ("a", Ok("2")), ("a", Ok("2"))], Some((2, false)));
        check(&[("a", Ok("1")), ("b", Ok("1")), ("a", Ok("1"))], Some((1, false)));
        check(&[("a", Err("1")), ("a", Err("1")), ("a", Ok("1"))], Some((1, false)));
    }
}
