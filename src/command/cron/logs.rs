//! `nanobot cron logs`: prints the outcomes of runs.

use super::list::{self, outcome, run_line};
use crate::cron::record::{Folder, Outcome, Record};
use crate::cron::store::Store;
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::job_store;
use crate::ops::jobs::run_log;
use crate::ops::jobs::time_format;
use crate::ops::jobs::time_zone;
use crate::report::columns::{Side, aligned};
use crate::settings::Settings;
use crate::sys::signal;
use crate::sys::terminal::harmless;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::time::Duration;

/// Interval between checks for new records.
const LOOK: Duration = Duration::from_millis(250);

/// The filters on what is printed.
pub(super) struct Wanted<'a> {
    pub(super) job: Option<&'a str>,
    pub(super) follow: bool,
    pub(super) lines: usize,
    pub(super) output: bool,
    pub(super) json: bool,
}

/// Runs `cron logs`.
pub(super) fn run(ctx: &Context, settings: &Settings, wanted: &Wanted<'_>) -> Result<Exit> {
    let store = job_store::open(ctx, settings);
    let ids = match wanted.job {
        Some(word) => vec![run_log::find_id(&store, word)?],
        None => run_log::all_ids(&store)?,
    };
    if wanted.output {
        return output(ctx, &store, &ids[0]);
    }
    let mut records = run_log::records(&store, &ids, usize::MAX)?;
    let mut last = records.last().map(|record| record.end.clone());
    let had_any = !records.is_empty();
    let shown = records.split_off(records.len().saturating_sub(wanted.lines));
    if wanted.json {
        for record in &shown {
            ctx.terminal.print_json(&run_line(record))?;
        }
    } else {
        let mut rows: Vec<Vec<String>> = shown.iter().map(|record| row(ctx, record)).collect();
        if wanted.lines > 0 {
            rows.extend(begun(ctx, &store, &ids)?);
        }
        if rows.is_empty() && !had_any && !wanted.follow {
            ctx.terminal.print("No runs yet.\n")?;
        }
        for line in aligned(COLUMNS, &rows) {
            ctx.terminal.print(&format!("{line}\n"))?;
        }
    }
    if !wanted.follow {
        return Ok(Exit::Answered);
    }
    signal::arm(None).context("wait for signals")?;
    loop {
        signal::pause(LOOK)?;
        let ids = match wanted.job {
            Some(_) => ids.clone(),
            None => run_log::all_ids(&store)?,
        };
        let new = run_log::records(&store, &ids, usize::MAX)?;
        for record in new
            .iter()
            .filter(|record| is_after(record, last.as_deref()))
        {
            match wanted.json {
                true => ctx.terminal.print_json(&run_line(record))?,
                false => ctx
                    .terminal
                    .print(&format!("{}\n", row(ctx, record).join("  ")))?,
            }
        }
        last = new.last().map(|record| record.end.clone()).or(last);
    }
}

const COLUMNS: &[(&str, Side)] = &[
    ("STARTED", Side::Left),
    ("JOB", Side::Left),
    ("OUTCOME", Side::Left),
    ("TOOK", Side::Right),
    ("TOKENS", Side::Right),
    ("COST", Side::Right),
    ("CAUSE OR DELIVERY", Side::Left),
];

/// The runs that have begun and left no record yet, as rows.
fn begun(ctx: &Context, store: &Store, ids: &[String]) -> Result<Vec<Vec<String>>> {
    let runs = run_log::unfinished(store, ids)?.into_iter();
    let rows = runs.map(|run| {
        let mut row = vec![String::new(); COLUMNS.len()];
        row[0] = time_format::moment(run.start, &time_zone::now(ctx));
        row[1] = called(&run.job_name, &run.job_id);
        row[2] = list::begun(run.is_running).into();
        row
    });
    Ok(rows.collect())
}

/// A job's name and id.
fn called(name: &str, id: &str) -> String {
    match name == id {
        true => list::cell(id),
        false => format!("{} ({})", list::cell(name), list::cell(id)),
    }
}

/// A run as a row.
fn row(ctx: &Context, record: &Record) -> Vec<String> {
    let Record {
        spent, name, job, ..
    } = record;
    let plain = |text: &str| harmless(text).replace(['\n', '\t'], " ");
    let tokens = spent.input_tokens + spent.output_tokens;
    let took = match (time(&record.start), time(&record.end)) {
        (Some(start), Some(end))
            if record.outcome.is_run() && record.outcome != Outcome::Unknown =>
        {
            duration(end.duration_since(start).unsigned_abs())
        }
        _ => String::new(),
    };
    let mut about = record.error.as_deref().map(plain).unwrap_or_default();
    if let Some(place) = &record.delivered {
        about = plain(place);
    }
    vec![
        time(&record.start).map_or_else(
            || plain(&record.start),
            |time| time_format::moment(time, &time_zone::now(ctx)),
        ),
        called(name, job),
        outcome(record),
        took,
        match tokens {
            0 => String::new(),
            tokens => tokens.to_string(),
        },
        match (spent.cost_usd, tokens) {
            (Some(usd), tokens) if tokens > 0 => format!("${usd:.4}"),
            _ => String::new(),
        },
        about,
    ]
}

/// Formats a duration in its shortest form.
fn duration(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1}s", took.as_secs_f64()),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn is_after(record: &Record, last: Option<&str>) -> bool {
    last.is_none_or(|last| time(&record.end) > time(last))
}

/// Prints the output of the last run.
fn output(ctx: &Context, store: &Store, id: &str) -> Result<Exit> {
    let records = Folder::new(store.folder(id)?).records(usize::MAX)?;
    let last = records.iter().rfind(|record| record.outcome.is_run());
    let no_output = last.filter(|record| record.output.is_none()).map(|record| {
        let start = time(&record.start);
        let start = start.map(|time| time_format::moment(time, &time_zone::now(ctx)));
        let when = start.unwrap_or_else(|| record.start.clone());
        format!("the last run ({}, {when}) had no output", outcome(record))
    });
    let path = records
        .iter()
        .rev()
        .find_map(|record| record.output.clone());
    let path = path.ok_or_else(|| {
        let cause = no_output.clone();
        let cause = cause.unwrap_or_else(|| "no run of this job has any output yet".into());
        let hint = match no_output {
            Some(_) => format!("`nanobot cron logs {id}`"),
            None => format!("`nanobot cron run {id}`"),
        };
        fail_hint(Exit::NoInput, cause, hint)
    })?;
    if let Some(words) = no_output {
        ctx.notice(&format!("{words}; this is from an earlier run"));
    }
    let text = std::fs::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => fail_hint(
            Exit::NoInput,
            format!(
                "`{}` no longer exists: only the last 50 answers are kept",
                path.display()
            ),
            "`nanobot cron logs` for the list of runs",
        ),
        _ => anyhow::Error::new(error).context(format!("read `{}`", path.display())),
    })?;
    let text = String::from_utf8_lossy(&text);
    ctx.terminal.print(&format!("{text}\n"))?;
    Ok(Exit::Answered)
}

#[cfg(test)]
mod tests {
    use super::duration;
    use std::time::Duration;

    #[test]
    fn durations_are_short() {
        let check = |millis: u64, expect: &str| {
            assert_eq!(duration(Duration::from_millis(millis)), expect);
        };
        check(0, "0.0s");
        check(1250, "1.2s");
        check(59_940, "59.9s");
        check(61_000, "1m01s");
        check(3_600_000, "1h00m");
        check(5_430_000, "1h30m");
    }
}
