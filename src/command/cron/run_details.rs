//! `cron logs --run`: prints one run, with its tool calls and where its conversation is.

use super::list::{describe_outcome, run_json};
use super::logs;
use super::show::print_rows;
use crate::ops::context::Context;
use crate::ops::jobs::run_log::{self, RunToolCall};
use crate::ops::jobs::time_format::{format_duration, format_time, to_one_line};
use crate::ops::jobs::time_zone;
use crate::ops::jobs::workspace_jobs;
use anyhow::Result;
use jiff::{Timestamp, Zoned};
use nanobot_agent::report::columns::truncate;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::format::format_dollars;
use nanobot_base::shell_quote::quote;
use nanobot_cron::run_record::RunRecord;
use serde_json::{Value, json};

/// Maximum columns of the arguments of a call.
const MAX_ARGUMENT_COLUMNS: usize = 100;

/// Runs `cron logs --run`. With `prints_output`, it prints only the output of the run.
pub(super) fn run(ctx: &Context, run_id: &str, prints_output: bool, as_json: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    let record = run_log::find_run(&workspace_jobs::open(ctx, &settings), run_id)?;
    if prints_output {
        let Some(path) = &record.output else {
            let cause = format!("the run `{run_id}` ({}) had no output", describe_outcome(&record));
            let hint = format!("`nanobot cron logs --run {run_id}`");
            return Err(fail(Exit::NoInput, cause).with_hint(hint));
        };
        return logs::print_output(ctx, path);
    }
    let calls = run_log::tool_calls(&ctx.session_store(&settings)?, &record)?;
    if as_json {
        let mut line = run_json(&record);
        line["tool_calls"] = calls.iter().flatten().map(call_json).collect();
        ctx.terminal.print_json(&line)?;
    } else {
        let rows = rows(ctx, &record, calls.as_deref(), &time_zone::now(ctx, &settings));
        print_rows(ctx, &rows)?;
    }
    Ok(Exit::Answered)
}

fn call_json(RunToolCall { call, failed }: &RunToolCall) -> Value {
    json!({ "name": call.name, "arguments": call.arguments, "failed": failed })
}

fn rows(
    ctx: &Context,
    record: &RunRecord,
    calls: Option<&[RunToolCall]>,
    now: &Zoned,
) -> Vec<(&'static str, String)> {
    let RunRecord { usage, .. } = record;
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let mut rows = vec![
        ("run", record.id.clone()),
        ("job", format!("{} ({})", to_one_line(&record.name), record.job_id)),
        ("outcome", describe_outcome(record)),
    ];
    let mut add =
        |name: &'static str, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("cause", record.error.clone());
    add("slot", record.slot.as_deref().and_then(time).map(|slot| format_time(slot, now)));
    add("retry", (record.retry > 0).then(|| record.retry.to_string()));
    let (start, end) = (time(&record.start), time(&record.end));
    add("started", start.map(|start| format_time(start, now)));
    add("took", start.zip(end).map(|(start, end)| format_duration(end.duration_since(start))));
    if !usage.turn.is_empty() {
        let cost = match usage.cost_usd {
            Some(cost) => format!(", ${}", format_dollars(cost)),
            None if usage.has_unknown_cost() => ", cost unknown".into(),
            None => String::new(),
        };
        let tokens = usage.input_tokens + usage.output_tokens;
        add("used", Some(format!("{}, {tokens} tokens{cost}", usage.model)));
        let key = quote(&usage.session);
        add(
            "turn",
            Some(match calls {
                Some(_) => format!("nanobot session show {key} --turn {}", usage.turn),
                None => format!("no longer in the session {key}"),
            }),
        );
    }
    for RunToolCall { call, failed } in calls.unwrap_or_default() {
        let arguments =
            truncate(&to_one_line(&call.arguments.to_string()), Some(MAX_ARGUMENT_COLUMNS));
        let result = match failed {
            Some(true) => " ✗",
            Some(false) => "",
            None => " (no result)",
        };
        add("call", Some(format!("{} {arguments}{result}", call.name)));
    }
    add("denied", (!usage.denied.is_empty()).then(|| usage.denied.join(", ")));
    add("delivered", record.delivered.clone());
    add("output", record.output.as_ref().map(|path| ctx.paths.display(path)));
    rows
}
