//! `cron apply`: creates and changes the jobs that a file lists. Each item of the file becomes the flags of `cron add`,
//! so both accept the same options.

use super::saved_job::{describe_change, finish_saved, print_saved_json};
use crate::cli::cron::{CronAddArgs, CronApplyArgs};
use crate::command::arguments::job_settings;
use crate::error::{Exit, fail, fail_with_hint, outside_turn};
use crate::ops::context::Context;
use crate::ops::jobs::job_edit;
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::time_format::to_one_line;
use crate::ops::jobs::workspace_jobs;
use crate::sys::input::{self, StdinMode};
use anyhow::Result;
use clap::{Args, FromArgMatches};
use serde_json::{Map, Value};
use std::path::Path;

/// Maximum size of the file in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Runs `cron apply`. The flags and names of all items are checked before the first job is changed. What depends on the
/// system, such as a path that is granted, is checked job by job; an error names its item.
pub(super) fn run(ctx: &Context, arguments: &CronApplyArgs) -> Result<Exit> {
    let CronApplyArgs { file, prune, json } = arguments;
    let items = read_items(file)?;
    let position = |index: usize| format!("item {} of `{}`", index + 1, file.display());
    let mut listed: Vec<CronAddArgs> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = |words| fail(Exit::BadInput, format!("{}: {words}", position(index)));
        let add = parse_item(item).map_err(at)?;
        if listed.iter().any(|other| other.name == add.name) {
            return Err(at("an earlier item has the same name".into()));
        }
        listed.push(add);
    }
    let mut exit = Exit::Answered;
    for (index, add) in listed.iter().enumerate() {
        let mut settings = job_settings(&add.flags);
        settings.flags.applied = true;
        let saved = job_edit::add(ctx, add.name.as_deref(), &add.message, &settings, true)
            .map_err(|error| outside_turn(error, &position(index)))?;
        let done = match json {
            true => print_saved_json(ctx, saved)?,
            false => {
                ctx.terminal.print(&format!("{}\n", to_one_line(&describe_change(&saved))))?;
                finish_saved(ctx, saved)?
            }
        };
        if done != Exit::Answered {
            exit = done;
        }
    }
    if *prune {
        let removed = remove_others(ctx, &listed, *json)?;
        exit = if exit == Exit::Answered { removed } else { exit };
    }
    Ok(exit)
}

/// Removes the jobs that an earlier run of the command created and that are not `listed` any more.
fn remove_others(ctx: &Context, listed: &[CronAddArgs], as_json: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    let jobs = workspace_jobs::open(ctx, &settings).jobs()?;
    let is_other = |name: &str| listed.iter().all(|add| add.name.as_deref() != Some(name));
    let others = jobs.iter().filter(|job| {
        job.options.as_ref().is_some_and(|options| options.applied) && is_other(&job.name)
    });
    let ids: Vec<String> = others.map(|job| job.id.clone()).collect();
    if ids.is_empty() {
        return Ok(Exit::Answered);
    }
    lifecycle::remove(ctx, &ids, &mut |job| match as_json {
        true => ctx.terminal.print_json(&serde_json::json!({
            "id": job.id, "name": job.name, "change": "removed",
        })),
        false => {
            let name = to_one_line(&job.name);
            ctx.terminal.print(&format!("✓ Removed job '{name}' ({})\n", job.id))
        }
    })
}

/// Reads the list of jobs.
fn read_items(file: &Path) -> Result<Vec<Value>> {
    let name = file.display().to_string();
    let bytes = match name.as_str() {
        "-" => input::read_stdin(StdinMode::Always, input::DEFAULT_IDLE_TIMEOUT, &mut |_| {})?
            .unwrap_or_default(),
        _ => input::read_file(file, &name, MAX_BYTES)?,
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| fail(Exit::BadInput, format!("`{name}` is not UTF-8")))?;
    let read: Value = serde_saphyr::from_str(&text)
        .map_err(|error| fail(Exit::BadInput, format!("`{name}` is not YAML or JSON: {error}")))?;
    match read {
        Value::Array(items) => Ok(items),
        _ => Err(fail_with_hint(
            Exit::BadInput,
            format!("`{name}` is not a list of jobs"),
            "`nanobot cron apply --help` for an example",
        )),
    }
}

/// Parses an item as `cron add` parses its flags.
fn parse_item(item: &Value) -> Result<CronAddArgs, String> {
    let Value::Object(keys) = item else {
        return Err("it is not a map of flags".into());
    };
    let command = CronAddArgs::augment_args(clap::Command::new("job").no_binary_name(true));
    let matches = command
        .try_get_matches_from(to_flags(keys)?)
        .map_err(|error| first_line(&error.to_string()))?;
    let add =
        CronAddArgs::from_arg_matches(&matches).map_err(|error| first_line(&error.to_string()))?;
    match (&add.name, add.message.as_str()) {
        (None, _) => Err("it has no `name`".into()),
        (_, "-") => Err("its message cannot come from standard input".into()),
        _ if add.json || add.replace || add.flags.config.is_some() => {
            Err("`json`, `replace` and `config` are flags of the command, not of a job".into())
        }
        _ => Ok(add),
    }
}

/// The first line of an error of the flag parser, without its prefix.
fn first_line(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Converts the keys of an item to flags. `true` is a flag without a value, `false` no flag, a list a repeated flag.
fn to_flags(keys: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut flags = Vec::new();
    for (key, value) in keys {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match value {
                Value::Bool(false) | Value::Null => {}
                Value::Bool(true) => flags.push(format!("--{key}")),
                Value::String(text) => flags.push(format!("--{key}={text}")),
                Value::Number(number) => flags.push(format!("--{key}={number}")),
                _ => {
                    return Err(format!("the value of `{key}` is not a text, a number or a list"));
                }
            }
        }
    }
    Ok(flags)
}
