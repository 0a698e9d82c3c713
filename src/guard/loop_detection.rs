//! Stops a model that repeats the same failing call, and earlier one that repeats the same denied action: it costs
//! money and leads nowhere.

use crate::event::{Denial, StopReason};
use crate::message::{Message, ToolCall};
use crate::turn::guard::{Guard, GuardAction, TurnState};

/// Number of consecutive identical failures that ends the turn. Two repeats can be a sensible retry, for example after
/// a timeout; a fifth attempt never is.
const MAX_REPEATED_FAILURES: usize = 5;

/// Number of identical denials that ends the turn. A denial says that it is final, so a third attempt is no retry.
const MAX_REPEATED_DENIALS: usize = 3;

/// Ends a turn whose latest call has failed [`MAX_REPEATED_FAILURES`] times in a row with the same arguments, or was
/// denied [`MAX_REPEATED_DENIALS`] times.
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
        match repeated_failure(state.turn_messages) {
            Some((call, times)) if times >= MAX_REPEATED_FAILURES => GuardAction::Finish {
                stop_reason: StopReason::RepeatedFailure,
                text: format!(
                    "[nanobot] The call of `{}` failed {times} times with the same arguments. Tools are no longer \
                     available. Answer now: report what you found or did, and what failed.",
                    call.name
                ),
            },
            _ => GuardAction::Continue,
        }
    }
}

/// The tool of the latest denial, if at least [`MAX_REPEATED_DENIALS`] replies asked for the same: for the same reason, the
/// same file whatever was to be done to it, or else the same arguments. Parallel calls in one reply count once.
fn repeatedly_denied_tool<'a>(denials: &'a [Denial], turn: &[Message]) -> Option<&'a str> {
    let last = denials.last()?;
    let subject = |denial: &Denial| {
        let call = calls_of(turn).find(|call| call.id == denial.call_id)?;
        Some(call.arguments.get("path").unwrap_or(&call.arguments))
    };
    let same = |denial: &&Denial| {
        denial.tool_name == last.tool_name
            && denial.message == last.message
            && subject(denial) == subject(last)
    };
    let ids: Vec<&str> =
        denials.iter().filter(same).map(|denial| denial.call_id.as_str()).collect();
    let asks = |message: &&Message| match message {
        Message::Assistant(reply) => {
            reply.tool_calls.iter().any(|call| ids.contains(&call.id.as_str()))
        }
        _ => false,
    };
    (turn.iter().filter(asks).count() >= MAX_REPEATED_DENIALS).then_some(&last.tool_name)
}

/// The calls of a turn, in order.
fn calls_of(turn: &[Message]) -> impl Iterator<Item = &ToolCall> {
    let replies = turn.iter().filter_map(|message| match message {
        Message::Assistant(reply) => Some(&reply.tool_calls),
        _ => None,
    });
    replies.flatten()
}

/// The latest call, if it failed, and the number of its identical failures in a row.
fn repeated_failure(turn: &[Message]) -> Option<(&ToolCall, usize)> {
    let calls: Vec<&ToolCall> = calls_of(turn).collect();
    let failed = |call: &ToolCall| {
        turn.iter().any(|message| matches!(message, Message::Tool(result) if result.call_id == call.id && result.failed))
    };
    let last = calls.last()?;
    let same = |call: &&&ToolCall| {
        call.name == last.name && call.arguments == last.arguments && failed(call)
    };
    let times = calls.iter().rev().take_while(same).count();
    (times > 0).then_some((last, times))
}

#[cfg(test)]
mod tests {
    use super::repeated_failure;
    use crate::message::{Message, Reply, ResultSource, ToolCall, ToolResult};
    use serde_json::json;

    fn check(calls: &[(&str, bool)], expect: usize) {
        let mut turn = Vec::new();
        for (number, (path, failed)) in calls.iter().enumerate() {
            let id = format!("call_{number}");
            let call = ToolCall {
                id: id.clone(),
                name: "read_file".into(),
                arguments: json!({ "path": path }),
            };
            turn.push(Message::Assistant(Reply { tool_calls: vec![call], ..Reply::default() }));
            let result = ToolResult {
                call_id: id,
                name: "read_file".into(),
                parts: Vec::new(),
                failed: *failed,
                source: ResultSource::Unspecified,
            };
            turn.push(Message::Tool(result));
        }
        assert_eq!(repeated_failure(&turn).map_or(0, |(_, times)| times), expect, "{calls:?}");
    }

    #[test]
    fn counts_consecutive_identical_failures() {
        check(&[], 0);
        check(&[("a", false)], 0);
        check(&[("a", true)], 1);
        check(&[("a", true), ("a", true), ("a", true)], 3);
        check(&[("a", true), ("b", true), ("a", true)], 1);
        check(&[("a", true), ("a", false), ("a", true)], 1);
        check(&[("a", true), ("a", true), ("a", false)], 0);
    }
}
