//! Converts the events and the result of a run to JSON, for `--output-format json` and `stream-json`. The format is
//! published as a JSON Schema in `events.v1.json`, so a field here may differ in name from the type it comes from.

use crate::turn::ending::{Ending, Round, ToolCallCounts};
use nanobot_base::error::{Exit, exit_for, hint_for};
use nanobot_base::event::{Denial, Event, ToolOutcome};
use nanobot_base::message::{Origin, ToolCall, plain_text};
use nanobot_model::ledger::round_usd;
use nanobot_os::clock::Clock;
use nanobot_os::host;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

/// The version of both formats. Within a version, fields may be added, but the meaning of a field never changes.
const FORMAT_VERSION: u32 = 1;

/// The published JSON Schema of both formats.
pub const SCHEMA: &str = include_str!("events.v1.json");

/// The fields that every line has in common.
#[derive(Clone, Debug, Default)]
pub struct EventEnvelope {
    pub session: String,
    pub turn: String,
    pub clock: Clock,
}

/// Converts `event` to a JSON object.
pub(crate) fn event_json(event: &Event<'_>, envelope: &EventEnvelope) -> Value {
    let (event_type, fields) = match event {
        Event::User(user) => ("user", json!({ "id": user.id, "text": plain_text(&user.parts) })),
        Event::Reasoning { message_id, text } => {
            ("reasoning", json!({ "id": message_id, "text": text }))
        }
        Event::Text { message_id, text } => ("text", json!({ "id": message_id, "text": text })),
        Event::Assistant { reply, is_final } => {
            let calls: Vec<Value> = reply.tool_calls.iter().map(tool_call_json).collect();
            (
                "assistant",
                json!({ "id": reply.id, "text": reply.text, "tool_calls": calls, "last": is_final }),
            )
        }
        Event::ToolCall(tool_call) => ("tool_call", tool_call_json(tool_call)),
        Event::ToolOutput { call_id, text } => {
            ("tool_output", json!({ "id": call_id, "text": text }))
        }
        Event::ToolResult {
            result,
            outcome,
            duration,
            denial: _,
            command_failed: _,
            refused_part: _,
            diff: _,
            was_asked: _,
        } => {
            let text = plain_text(&result.parts);
            let fields = json!({ "id": result.call_id, "name": result.name, "outcome": outcome_name(*outcome), "text": text,
                               "duration_ms": to_millis(*duration) });
            ("tool_result", fields)
        }
        Event::Retry { attempt, wait, cause } => {
            ("retry", json!({ "attempt": attempt, "wait_ms": to_millis(*wait), "cause": cause }))
        }
        Event::Wait { wait, cause } => {
            ("wait", json!({ "wait_ms": wait.map(to_millis), "cause": cause }))
        }
        Event::CompactStart { tokens, threshold } => {
            ("compact_start", json!({ "tokens": tokens, "threshold": threshold }))
        }
        Event::CompactEnd { before, after, error, duration } => (
            "compact_end",
            json!({ "tokens_before": before, "tokens_after": after, "error": error,
                    "duration_ms": to_millis(*duration) }),
        ),
        Event::Notice(text) => ("notice", json!({ "text": text })),
        Event::Fallback { from, to, cause } => {
            ("fallback", json!({ "from": from, "to": to, "cause": cause }))
        }
        Event::Usage { message_id, usage, cost } => {
            ("usage", json!({ "id": message_id, "usage": usage, "cost_usd": cost.map(round_usd) }))
        }
    };
    with_envelope(event_type, envelope, fields)
}

/// The name of an outcome in the schema.
fn outcome_name(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Ok => "ok",
        ToolOutcome::Failed => "error",
        ToolOutcome::Denied => "denied",
        ToolOutcome::Skipped => "skipped",
    }
}

/// The fields of the result that do not come from the [`Ending`] of the turn.
#[derive(Clone, Debug, Default)]
pub struct RunMetadata {
    pub provider: String,
    pub model: String,
    pub duration: Duration,
    pub max_iterations: u32,
    /// True if the answer was requested with a JSON schema. The field `data` of the result is then the parsed answer.
    pub has_schema: bool,
    /// The code of the answer, if it was requested and there is any.
    pub code: Option<String>,
    /// The patch of a run that works on a copy.
    pub patch: Option<String>,
    /// The connections of commands to the hosts that the user has named.
    pub hosts: Vec<HostConnections>,
    /// Instruction files that were found but not read, because their directory is not trusted.
    pub ignored_files: Vec<PathBuf>,
    /// The origin of the conversation at the end of the turn; not a field of the result.
    pub origin: Option<Origin>,
}

/// The connections of commands to one host.
#[derive(Clone, Debug)]
pub struct HostConnections {
    /// The host and its port.
    pub host: String,
    pub connections: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// Converts the result of a run to a JSON object: the whole output of `json`, and the last line of `stream-json`.
pub fn result_json(
    ending: &Ending,
    exit: Exit,
    run: &RunMetadata,
    envelope: &EventEnvelope,
) -> Value {
    let Ending {
        stop_reason: _,
        text,
        is_partial,
        is_left_out: _,
        is_delivered: _,
        is_unneeded: _,
        stats,
        rounds,
        error,
    } = ending;
    let tools: Vec<Value> = stats
        .tools
        .iter()
        .map(|(name, calls)| {
            let ToolCallCounts { count, failed, denied, skipped: _ } = calls;
            json!({ "name": name, "count": count, "failed": failed, "denied": denied })
        })
        .collect();
    let denials: Vec<Value> = stats.denials.iter().map(denial_json).collect();
    let model = if stats.model.is_empty() { &run.model } else { &stats.model };
    let error = if exit == Exit::Answered { None } else { error.as_ref() };
    let error = error.map(|error| {
        json!({ "message": format!("{error:#}"), "cause": exit_for(error).name(), "hint": hint_for(error) })
    });
    let data = if run.has_schema && exit == Exit::Answered {
        serde_json::from_str(text).unwrap_or(Value::Null)
    } else {
        Value::Null
    };
    let rounds: Vec<Value> = rounds.iter().map(round_json).collect();
    let hosts: Vec<Value> = run.hosts.iter().map(host_connections_json).collect();
    // A path need not be UTF-8, which JSON is.
    let ignored = run.ignored_files.iter().map(|path| path.to_string_lossy());
    let ignored: Vec<Cow<'_, str>> = ignored.collect();
    let session_stats = stats.to_session_stats();
    let mut usage = json!(stats.usage);
    usage["tokens_per_second"] = stats.tokens_per_second().into();
    let fields = json!({
        "text": text,
        "partial": is_partial,
        "data": data,
        "code": run.code,
        "patch": run.patch,
        "status": { "name": exit.name(), "number": exit.code() },
        "error": error,
        "model": model,
        "provider": run.provider,
        "iterations": stats.iterations,
        "tools": tools,
        "denials": denials,
        "ignored": ignored,
        "hosts": hosts,
        "rounds": rounds,
        "usage": usage,
        "cost_usd": stats.cost.map(round_usd),
        "calls": { "agreed": session_stats.allowed, "rejected": session_stats.denied,
                   "failed": session_stats.failed, "succeeded": session_stats.succeeded },
        "context_tokens": session_stats.context,
        "duration_ms": to_millis(run.duration),
        "host": host::name(),
        "release": env!("CARGO_PKG_VERSION"),
    });
    with_envelope("result", envelope, fields)
}

/// Returns `fields` as an object that begins with the version, the type and the fields of `envelope`.
fn with_envelope(event_type: &str, envelope: &EventEnvelope, fields: Value) -> Value {
    let mut object = Map::new();
    object.insert("v".into(), FORMAT_VERSION.into());
    object.insert("type".into(), event_type.into());
    object.insert("session".into(), envelope.session.as_str().into());
    object.insert("turn".into(), envelope.turn.as_str().into());
    object.insert("time".into(), envelope.clock.timestamp().to_string().into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

fn tool_call_json(call: &ToolCall) -> Value {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments })
}

fn round_json(round: &Round) -> Value {
    json!({ "failure": round.failure, "duration_ms": to_millis(round.duration) })
}

fn host_connections_json(connections: &HostConnections) -> Value {
    let HostConnections { host, connections, sent_bytes, received_bytes } = connections;
    json!({ "host": host, "connections": connections, "sent_bytes": sent_bytes, "received_bytes": received_bytes })
}

fn denial_json(denial: &Denial) -> Value {
    let Denial { call_id, tool_name, message, suggested_flag, names_flag: _ } = denial;
    json!({ "id": call_id, "tool": tool_name, "text": message, "grant": suggested_flag })
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{EventEnvelope, RunMetadata, result_json};
    use crate::turn::ending::Ending;
    use nanobot_base::error::Exit;
    use serde_json::json;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    #[test]
    fn the_path_of_an_ignored_file_need_not_be_utf8() {
        let path = PathBuf::from(OsStr::from_bytes(b"/d\xff/AGENTS.md"));
        let run = RunMetadata { ignored_files: vec![path], ..RunMetadata::default() };
        let result =
            result_json(&Ending::default(), Exit::Answered, &run, &EventEnvelope::default());
        assert_eq!(result["ignored"], json!(["/d\u{fffd}/AGENTS.md"]));
    }
}
