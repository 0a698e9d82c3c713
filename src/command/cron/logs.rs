//! `nanobot cron logs`: prints the outcomes of runs.

use crate::cli::cron::CronLogsArgs;
use crate::command::cron::list::{self, describe_outcome, run_json};
use crate::command::cron::show::{describe_usage, print_rows};
use crate::command::name_pattern::single_line;
use crate::ops::context::Context;
use crate::ops::jobs::run_log::{self, RunToolCall};
use crate::ops::jobs::time_format::{self, format_time, to_one_line};
use crate::ops::jobs::{time_zone, workspace_jobs};
use crate::ops::since::SinceFilter;
use anyhow::{Context as _, Result};
use jiff::{Timestamp, Zoned};
use nanobot_agent::report::columns::{Side, align_columns, truncate};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::format::format_dollars;
use nanobot_base::shell_quote::quote;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::{JobDir, MAX_STORED_OUTPUTS, RunOutcome, RunRecord};
use nanobot_os::signal;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Interval between checks for new records.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The filters on the printed runs.
struct RunLogFilter<'a> {
    arguments: &'a CronLogsArgs,
    since: Option<SinceFilter>,
    /// The current time in the user's zone.
    now: Zoned,
}

impl RunLogFilter<'_> {
    /// The records of the jobs `ids` that pass the filter.
    fn records(&self, store: &JobStore, ids: &[String]) -> Result<Vec<RunRecord>> {
        let mut records = run_log::records(store, ids, usize::MAX, self.now.timestamp())?;
        records.retain(|record| {
            let is_recent = |since: SinceFilter| {
                run_log::end_time(record).is_some_and(|end| {
                    let day = end.to_zoned(self.now.time_zone().clone()).date();
                    since.includes(end, day)
                })
            };
            (!self.arguments.failed || record.outcome.is_failure())
                && self.since.is_none_or(is_recent)
        });
        Ok(records)
    }

    /// The line about no record that passes the filter. `has_others` is true if there are records that do not.
    fn describe_no_records(&self, has_others: bool) -> &'static str {
        match (self.arguments.failed, self.since.is_some()) {
            _ if !has_others => "No runs yet.\n",
            (true, true) => "No failed runs since then.\n",
            (true, false) => "No failed runs.\n",
            (false, _) => "No runs since then.\n",
        }
    }
}

/// Runs `cron logs`.
pub(super) fn run(ctx: &Context, arguments: &CronLogsArgs) -> Result<()> {
    let settings = &ctx.settings()?;
    let now = time_zone::now(ctx, settings);
    let since = arguments.since.map(|since| SinceFilter::new(since, &now));
    let filter = RunLogFilter { arguments, since, now };
    let store = workspace_jobs::open(ctx, settings);
    let ids = match &arguments.job {
        Some(job) => vec![run_log::find_id(&store, job)?],
        None => run_log::all_ids(&store)?,
    };
    if arguments.output {
        return print_last_output(ctx, &store, &ids[0], &filter.now);
    }
    let mut records = filter.records(&store, &ids)?;
    let mut known_runs: HashSet<_> = records.iter().map(id_and_start).collect();
    let has_records = !records.is_empty();
    records.drain(..records.len().saturating_sub(arguments.lines));
    if arguments.json {
        for record in &records {
            ctx.terminal.print_json(&run_json(record))?;
        }
    } else {
        let mut rows: Vec<Vec<String>> =
            records.iter().map(|record| run_row(record, &filter.now)).collect();
        if arguments.lines > 0 {
            rows.extend(unfinished_rows(&store, &ids, &filter.now)?);
        }
        if rows.is_empty() && !has_records && !arguments.follow {
            let all_records = run_log::records(&store, &ids, usize::MAX, filter.now.timestamp())?;
            ctx.terminal.print(filter.describe_no_records(!all_records.is_empty()))?;
        }
        for line in align_columns(COLUMNS, &rows) {
            ctx.terminal.print(&format!("{line}\n"))?;
        }
    }
    if !arguments.follow {
        return Ok(());
    }
    signal::install(None).context("wait for signals")?;
    loop {
        signal::sleep(POLL_INTERVAL)?;
        let ids = match arguments.job {
            Some(_) => ids.clone(),
            None => run_log::all_ids(&store)?,
        };
        for record in &filter.records(&store, &ids)? {
            if !known_runs.insert(id_and_start(record)) {
                continue;
            }
            if arguments.json {
                ctx.terminal.print_json(&run_json(record))?;
            } else {
                ctx.terminal.print(&format!("{}\n", run_row(record, &filter.now).join("  ")))?;
            }
        }
    }
}

const COLUMNS: &[(&str, Side)] = &[
    ("RUN", Side::Left),
    ("STARTED", Side::Left),
    ("JOB", Side::Left),
    ("OUTCOME", Side::Left),
    ("TOOK", Side::Right),
    ("TOKENS", Side::Right),
    ("COST", Side::Right),
    ("CAUSE OR DELIVERY", Side::Left),
];

/// The runs that have begun and left no record yet, as rows.
fn unfinished_rows(store: &JobStore, ids: &[String], now: &Zoned) -> Result<Vec<Vec<String>>> {
    let runs = run_log::unfinished_runs(store, ids)?.into_iter();
    let rows = runs.map(|run| {
        let mut row = vec![String::new(); COLUMNS.len()];
        row[1] = format_time(run.start, now);
        row[2] = name_and_id(&run.job_name, &run.job_id);
        row[3] = list::describe_unfinished(run.started, run.is_running).into();
        row
    });
    Ok(rows.collect())
}

/// A job's name and id.
fn name_and_id(name: &str, id: &str) -> String {
    if name == id { list::cell(id) } else { format!("{} ({})", list::cell(name), list::cell(id)) }
}

fn run_row(record: &RunRecord, now: &Zoned) -> Vec<String> {
    let RunRecord { usage, name, job_id, .. } = record;
    let tokens = usage.input_tokens + usage.output_tokens;
    let duration = match (parse_time(&record.start), parse_time(&record.end)) {
        (Some(start), Some(end))
            if record.outcome.was_attempted() && record.outcome != RunOutcome::Unknown =>
        {
            format_short_duration(end.duration_since(start).unsigned_abs())
        }
        _ => String::new(),
    };
    let remark = record.delivered.as_ref().or(record.error.as_ref());
    vec![
        list::cell(&record.id),
        parse_time(&record.start)
            .map_or_else(|| single_line(&record.start), |time| format_time(time, now)),
        name_and_id(name, job_id),
        describe_outcome(record),
        duration,
        match tokens {
            0 => String::new(),
            tokens => tokens.to_string(),
        },
        match usage.cost_usd {
            Some(usd) if tokens > 0 => format!("${}", format_dollars(usd)),
            None if tokens > 0 => "unknown".into(),
            _ => String::new(),
        },
        remark.map(|text| single_line(text)).unwrap_or_default(),
    ]
}

/// Formats a duration in its shortest form.
fn format_short_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1}s", duration.as_secs_f64()),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The id and the start of a run, since runs of earlier releases have no id. A new run cannot be found by its end: two jobs may end at
/// the same time, and a clock may be set back.
fn id_and_start(record: &RunRecord) -> (String, String) {
    (record.id.clone(), record.start.clone())
}

/// Prints the last run of the job `id` as JSON. Prints nothing for a one-time job that has succeeded, since it is removed then.
pub(in crate::command) fn print_last_run(ctx: &Context, id: &str) -> Result<()> {
    let store = workspace_jobs::open(ctx, &ctx.settings()?);
    for record in JobDir::new(store.job_dir(id)?).last_records(1)? {
        ctx.terminal.print_json(&run_json(&record))?;
    }
    Ok(())
}

/// Prints the output of the last run.
fn print_last_output(ctx: &Context, store: &JobStore, id: &str, now: &Zoned) -> Result<()> {
    let records = JobDir::new(store.job_dir(id)?).last_records(usize::MAX)?;
    let last = records.iter().rfind(|record| record.outcome.was_attempted());
    let no_output = last.filter(|record| record.output.is_none()).map(|record| {
        let start = parse_time(&record.start)
            .map_or_else(|| record.start.clone(), |time| format_time(time, now));
        format!("the last run ({}, {start}) had no output", describe_outcome(record))
    });
    let Some(path) = records.iter().rev().find_map(|record| record.output.as_ref()) else {
        return Err(match no_output {
            Some(cause) => {
                fail(Exit::NoInput, cause).with_hint(format!("`nanobot cron logs {id}`"))
            }
            None => fail(Exit::NoInput, "no run of this job has any output yet")
                .with_hint(format!("`nanobot cron run {id}`")),
        });
    };
    if let Some(cause) = no_output {
        ctx.notice(&format!("{cause}; this is from an earlier run"));
    }
    print_output(ctx, path)
}

/// Prints a stored output.
fn print_output(ctx: &Context, path: &Path) -> Result<()> {
    let text = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let cause = format!(
                "`{}` no longer exists: only the last {MAX_STORED_OUTPUTS} answers are kept",
                path.display()
            );
            fail(Exit::NoInput, cause).with_hint("`nanobot cron logs` for the list of runs")
        }
        _ => anyhow::Error::new(error).context(format!("read `{}`", path.display())),
    })?;
    let text = String::from_utf8_lossy(&text);
    ctx.terminal.print(&format!("{text}\n"))
}

/// Maximum columns of the arguments of a call.
const MAX_ARGUMENT_COLUMNS: usize = 100;

/// Runs `cron logs --run`. With `prints_output`, it prints only the output of the run.
pub(super) fn show_run(
    ctx: &Context,
    run_id: &str,
    prints_output: bool,
    as_json: bool,
) -> Result<()> {
    let settings = ctx.settings()?;
    let record = run_log::find_run(&workspace_jobs::open(ctx, &settings), run_id)?;
    if prints_output {
        let Some(path) = &record.output else {
            let cause = format!("the run `{run_id}` ({}) had no output", describe_outcome(&record));
            let hint = format!("`nanobot cron logs --run {run_id}`");
            return Err(fail(Exit::NoInput, cause).with_hint(hint));
        };
        return print_output(ctx, path);
    }
    let calls = run_log::tool_calls(&ctx.session_store(&settings)?, &record)?;
    if as_json {
        let mut line = run_json(&record);
        line["tool_calls"] = calls.iter().flatten().map(call_json).collect();
        ctx.terminal.print_json(&line)
    } else {
        print_rows(ctx, &run_rows(ctx, &record, calls.as_deref(), &time_zone::now(ctx, &settings)))
    }
}

fn call_json(RunToolCall { call, failed }: &RunToolCall) -> Value {
    json!({ "name": call.name, "arguments": call.arguments, "failed": failed })
}

fn run_rows(
    ctx: &Context,
    record: &RunRecord,
    calls: Option<&[RunToolCall]>,
    now: &Zoned,
) -> Vec<(&'static str, String)> {
    let RunRecord { usage, .. } = record;
    let mut rows = vec![
        ("run", record.id.clone()),
        ("job", format!("{} ({})", to_one_line(&record.name), record.job_id)),
        ("outcome", describe_outcome(record)),
    ];
    let mut add =
        |name: &'static str, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("cause", record.error.clone());
    add("slot", record.slot.as_deref().and_then(parse_time).map(|slot| format_time(slot, now)));
    add("retry", (record.retry > 0).then(|| record.retry.to_string()));
    let (start, end) = (parse_time(&record.start), parse_time(&record.end));
    add("started", start.map(|start| format_time(start, now)));
    add(
        "took",
        start.zip(end).map(|(start, end)| time_format::format_duration(end.duration_since(start))),
    );
    if !usage.turn.is_empty() {
        let mut parts = vec![usage.model.clone(), describe_usage(usage)];
        parts.retain(|part| !part.is_empty());
        add("used", Some(parts.join(", ")));
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

#[cfg(test)]
mod tests {
    use super::format_short_duration;
    use std::time::Duration;

    #[test]
    fn durations_are_short() {
        let check = |millis: u64, expect: &str| {
            assert_eq!(format_short_duration(Duration::from_millis(millis)), expect);
        };
        check(0, "0.0s");
        check(1250, "1.2s");
        check(59_940, "59.9s");
        check(61_000, "1m01s");
        check(3_600_000, "1h00m");
        check(5_430_000, "1h30m");
    }
}
