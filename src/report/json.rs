//! Events and the result as JSON: the private shapes behind `--output-format json` and `stream-json`, version 1.

use crate::error::{Exit, exit_for, hint_for};
use crate::event::Denial;
use crate::event::{Event, ToolOutcome};
use crate::message::{ToolCall, Usage, plain_text};
use crate::sys::clock::Clock;
use crate::turn::ending::{Ending, ToolCallCounts};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The version of both formats. Fields may be added within a version; their meaning never changes.
const VERSION: u32 = 1;

/// The published JSON Schema of both formats.
pub const SCHEMA: &str = include_str!("events.v1.json");

/// The fields that every line carries.
#[derive(Clone, Debug, Default)]
pub struct EventStamp {
    pub session: String,
    pub turn: String,
    pub clock: Clock,
}

/// Converts `event` to a JSON object.
pub fn event_json(event: &Event<'_>, stamp: &EventStamp) -> Value {
    let (kind, rest) = match event {
        Event::User(user) => (
            "user",
            json!({ "id": user.id, "text": plain_text(&user.parts) }),
        ),
        Event::Reasoning {
            message_id: message,
            text,
        } => ("reasoning", json!({ "id": message, "text": text })),
        Event::Text {
            message_id: message,
            text,
        } => ("text", json!({ "id": message, "text": text })),
        Event::Assistant {
            reply,
            is_final: last,
        } => {
            let calls: Vec<Value> = reply.tool_calls.iter().map(call_json).collect();
            (
                "assistant",
                json!({ "id": reply.id, "text": reply.text, "tool_calls": calls, "last": last }),
            )
        }
        Event::ToolCall(tool_call) => ("tool_call", call_json(tool_call)),
        Event::ToolOutput {
            call_id: call,
            text,
        } => ("tool_output", json!({ "id": call, "text": text })),
        Event::ToolResult {
            result,
            outcome,
            duration,
            denied: _,
            command_failed: _,
            diff: _,
        } => {
            let outcome = match outcome {
                ToolOutcome::Ok => "ok",
                ToolOutcome::Failed => "error",
                ToolOutcome::Denied => "denied",
                ToolOutcome::Skipped => "skipped",
            };
            let text = plain_text(&result.parts);
            let rest = json!({ "id": result.call_id, "name": result.name, "outcome": outcome, "text": text,
                               "duration_ms": millis(*duration) });
            ("tool_result", rest)
        }
        Event::Retry {
            attempt,
            wait,
            cause,
        } => (
            "retry",
            json!({ "attempt": attempt, "wait_ms": millis(*wait), "cause": cause }),
        ),
        Event::CompactStart { tokens, threshold } => (
            "compact_start",
            json!({ "tokens": tokens, "threshold": threshold }),
        ),
        Event::CompactEnd {
            before,
            after,
            error,
            duration,
        } => (
            "compact_end",
            json!({ "tokens_before": before, "tokens_after": after, "error": error,
                    "duration_ms": millis(*duration) }),
        ),
        Event::Notice(text) => ("notice", json!({ "text": text })),
        Event::Fallback { from, to, cause } => (
            "fallback",
            json!({ "from": from, "to": to, "cause": cause }),
        ),
        Event::Usage {
            message_id: message,
            usage,
            cost,
        } => (
            "usage",
            json!({ "id": message, "usage": usage_json(*usage), "cost_usd": cost.map(dollars) }),
        ),
    };
    with_stamp(kind, stamp, rest)
}

/// The data of a run in addition to its ending.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    pub provider: String,
    pub model: String,
    pub duration: Duration,
    pub max_iterations: u32,
    /// True if the answer is JSON and included in the result as such.
    pub has_schema: bool,
    /// Instruction files for the agent that were found but not read.
    pub ignored: Vec<PathBuf>,
}

/// Builds the result object: the whole output of `json`, and the last line of `stream-json`.
pub fn result_json(ending: &Ending, exit: Exit, run: &RunInfo, stamp: &EventStamp) -> Value {
    let Ending {
        stop_reason: _,
        text,
        is_partial: partial,
        stats: tally,
        error,
    } = ending;
    let tools: Vec<Value> = tally
        .tools
        .iter()
        .map(|(name, calls)| {
            let ToolCallCounts {
                count,
                failed,
                denied,
                skipped: _,
            } = calls;
            json!({ "name": name, "count": count, "failed": failed, "denied": denied })
        })
        .collect();
    let denials: Vec<Value> = tally.denials.iter().map(denial_json).collect();
    let model = if tally.model.is_empty() {
        &run.model
    } else {
        &tally.model
    };
    let error = error.as_ref().filter(|_| exit != Exit::Answered).map(|error| {
        json!({ "message": format!("{error:#}"), "cause": exit_for(error).name(), "hint": hint_for(error) })
    });
    let data = match run.has_schema && exit == Exit::Answered {
        true => serde_json::from_str(text).unwrap_or(Value::Null),
        false => Value::Null,
    };
    let stats = tally.to_session_stats();
    let mut usage = usage_json(tally.usage);
    usage["tokens_per_second"] = tally.tokens_per_second().into();
    let rest = json!({
        "text": text,
        "partial": partial,
        "data": data,
        "status": { "name": exit.name(), "number": exit.code() },
        "error": error,
        "model": model,
        "provider": run.provider,
        "iterations": tally.iterations,
        "tools": tools,
        "denials": denials,
        "ignored": run.ignored,
        "usage": usage,
        "cost_usd": tally.cost.map(dollars),
        "calls": { "agreed": stats.allowed, "rejected": stats.denied, "failed": stats.failed,
                   "succeeded": stats.succeeded },
        "context_tokens": stats.context,
        "duration_ms": millis(run.duration),
    });
    with_stamp("result", stamp, rest)
}

fn with_stamp(kind: &str, stamp: &EventStamp, rest: Value) -> Value {
    let mut object = Map::new();
    object.insert("v".into(), VERSION.into());
    object.insert("type".into(), kind.into());
    object.insert("session".into(), stamp.session.as_str().into());
    object.insert("turn".into(), stamp.turn.as_str().into());
    object.insert("time".into(), stamp.clock.timestamp().to_string().into());
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    Value::Object(object)
}

fn call_json(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}

fn usage_json(usage: Usage) -> Value {
    let Usage {
        input,
        cached,
        cache_write,
        output,
        reasoning,
        estimated,
    } = usage;
    json!({ "input": input, "cached": cached, "cache_write": cache_write, "output": output, "reasoning": reasoning,
            "estimated": estimated })
}

/// Rounds to 1e-8 dollars, because sums of floats accumulate noise.
fn dollars(usd: f64) -> f64 {
    (usd * 1e8).round() / 1e8
}

fn denial_json(denial: &Denial) -> Value {
    let Denial {
        call_id: call,
        tool_name: tool,
        message: words,
        suggested_flag: grant,
    } = denial;
    json!({ "id": call, "tool": tool, "text": words, "grant": grant })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
