//! Ends a turn in which the model repeats itself, which costs money and leads nowhere: after a number of calls with the same
//! result, after fewer calls that fail, and after even fewer calls that are denied.

use crate::turn::guard::{Guard, GuardAction, RefusedCall, TurnState};
use nanobot_base::event::StopReason;
use nanobot_base::message::{Message, ToolCall, ToolResult};
use serde_json::Value;
use std::collections::BTreeSet;

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
        if let Some(tool) = repeatedly_denied_tool(state.refused_calls) {
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

/// The tool of the latest refused call, if calls of at least [`MAX_REPEATED_DENIALS`] replies were refused for the same reason and are
/// alike: they have the same file, whatever was to be done to it, or else the same arguments. Parallel calls in one reply count once.
fn repeatedly_denied_tool(refused_calls: &[RefusedCall]) -> Option<&str> {
    fn subject(refused: &RefusedCall) -> &Value {
        let arguments = &refused.call.arguments;
        arguments.get("path").unwrap_or(arguments)
    }
    let last = refused_calls.last()?;
    let is_same = |refused: &&RefusedCall| {
        refused.call.name == last.call.name
            && refused.message == last.message
            && subject(refused) == subject(last)
    };
    let iterations: BTreeSet<u32> =
        refused_calls.iter().filter(is_same).map(|refused| refused.iteration).collect();
    (iterations.len() >= MAX_REPEATED_DENIALS).then_some(&last.call.name)
}

/// The latest call, and the number of times in a row that it was made with the same result. Errors are all the same.
struct Repetition<'a> {
    call: &'a ToolCall,
    times: usize,
    is_failing: bool,
}

/// The latest call of a turn that has a result.
fn latest_repetition(turn: &[Message]) -> Option<Repetition<'_>> {
    let calls = calls_with_results(turn);
    let last = calls.last()?;
    let is_same = |other: &&CallWithResult<'_>| {
        other.call.name == last.call.name
            && other.call.arguments == last.call.arguments
            && other.result.failed == last.result.failed
            && (other.result.failed || other.result.parts == last.result.parts)
    };
    let times = calls.iter().rev().take_while(is_same).count();
    Some(Repetition { call: last.call, times, is_failing: last.result.failed })
}

/// A call and its result.
struct CallWithResult<'a> {
    call: &'a ToolCall,
    result: &'a ToolResult,
}

/// The calls of a turn that have results, in order. A result belongs to a call of the reply before it: an id is unique only within a
/// reply, because some servers number the calls of each reply anew.
fn calls_with_results(turn: &[Message]) -> Vec<CallWithResult<'_>> {
    let mut calls = Vec::new();
    let mut open_calls: Vec<&ToolCall> = Vec::new();
    for message in turn {
        match message {
            Message::Assistant(reply) => open_calls = reply.tool_calls.iter().collect(),
            Message::Tool(result) => {
                let index = open_calls.iter().position(|call| call.id == result.call_id);
                let call = index.map(|index| open_calls.remove(index));
                calls.extend(call.map(|call| CallWithResult { call, result }));
            }
            Message::User(_) => {}
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::{RefusedCall, latest_repetition, repeatedly_denied_tool};
    use nanobot_base::message::{Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult};
    use serde_json::json;

    fn read_call(id: String, path: &str) -> ToolCall {
        ToolCall { id, name: "read_file".into(), arguments: json!({ "path": path }) }
    }

    /// Checks calls, each with its path and its result, against the number of repetitions of the last one. Servers give each call another
    /// id, or number the calls of each reply anew.
    fn check(calls: &[(&str, Result<&str, &str>)], expect: Option<(usize, bool)>) {
        for has_unique_ids in [true, false] {
            let mut turn = Vec::new();
            for (number, (path, result)) in calls.iter().enumerate() {
                let id = format!("call_{}", if has_unique_ids { number } else { 0 });
                let call = read_call(id.clone(), path);
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
            let repetition = latest_repetition(&turn);
            let actual = repetition.map(|repetition| (repetition.times, repetition.is_failing));
            assert_eq!(actual, expect, "{calls:?}, unique ids: {has_unique_ids}");
        }
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

    #[test]
    fn counts_replies_with_the_same_refused_call() {
        /// Checks calls, each with the number of its reply, its path and the reason of its refusal.
        fn check(calls: &[(u32, &str, &str)], expect: Option<&str>) {
            let refused_calls: Vec<RefusedCall> = calls
                .iter()
                .map(|(iteration, path, message)| RefusedCall {
                    iteration: *iteration,
                    call: read_call("call_0".into(), path),
                    message: (*message).to_owned(),
                })
                .collect();
            assert_eq!(repeatedly_denied_tool(&refused_calls), expect, "{calls:?}");
        }
        check(&[], None);
        check(&[(1, "a", "no"), (2, "a", "no"), (4, "a", "no")], Some("read_file"));
        check(&[(1, "a", "no"), (2, "b", "no"), (3, "a", "no")], None);
        check(&[(1, "a", "no"), (2, "a", "never"), (3, "a", "no")], None);
        check(&[(1, "a", "no"), (1, "a", "no"), (2, "a", "no")], None);
    }
}
