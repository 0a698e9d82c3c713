//! `cron apply`: creates and changes the jobs that a file lists. Each item of the file becomes the flags of `cron add`,
//! so both accept the same options.

use super::saved_job::{describe_change, saved_json};
use crate::cli::cron::{CronAddArgs, CronApplyArgs};
use crate::command::arguments::job_settings;
use crate::cron::job::Job;
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::job_apply::{self, AppliedJob, AppliedList, JobListItem};
use crate::ops::jobs::job_edit::{JobDraft, JobSettings};
use crate::ops::jobs::time_format::to_one_line;
use crate::sys::input::{self, StdinMode};
use anyhow::Result;
use clap::{Args, FromArgMatches};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Maximum size of the file in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Runs `cron apply`. All items are checked, and all jobs are saved, before anything is printed.
pub(super) fn run(ctx: &Context, arguments: &CronApplyArgs) -> Result<Exit> {
    let CronApplyArgs { file, prune, json } = arguments;
    let items = read_items(file)?;
    let position = |index: usize| format!("item {} of `{}`", index + 1, file.display());
    let mut listed: Vec<(CronAddArgs, Option<bool>, JobSettings)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = |words| fail(Exit::BadInput, format!("{}: {words}", position(index)));
        let (add, enabled) = parse_item(item).map_err(at)?;
        if listed.iter().any(|(other, ..)| other.name == add.name) {
            return Err(at("an earlier item has the same name".into()));
        }
        let mut settings = job_settings(&add.flags);
        settings.flags.applied = true;
        listed.push((add, enabled, settings));
    }
    let listed = listed.iter().enumerate().map(|(index, (add, enabled, settings))| JobListItem {
        draft: JobDraft {
            name: add.name.as_deref(),
            message: &add.message,
            settings,
            enabled: *enabled,
        },
        position: position(index),
    });
    let applied = job_apply::apply(ctx, &listed.collect::<Vec<_>>(), *prune)?;
    let AppliedList { jobs, removed, now, crontab, exit } = applied;
    for AppliedJob { job, change, .. } in &jobs {
        if *json {
            ctx.terminal.print_json(&saved_json(ctx, job, *change, &now))?;
        } else {
            let done = to_one_line(&describe_change(job, *change));
            ctx.terminal.print(&format!("{done}\n"))?;
        }
    }
    for Job { id, name, .. } in &removed {
        if *json {
            let line = json!({ "id": id, "name": name, "change": "removed" });
            ctx.terminal.print_json(&line)?;
        } else {
            let name = to_one_line(name);
            ctx.terminal.print(&format!("✓ Removed job '{name}' ({id})\n"))?;
        }
    }
    jobs.iter().flat_map(|job| &job.notices).for_each(|notice| ctx.notice(notice));
    let saved_message = "the jobs are saved, but cron does not start them";
    let crontab = crontab_sync::report_change(ctx, crontab, saved_message);
    Ok(if crontab == Exit::Answered { exit } else { crontab })
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

/// Parses an item as `cron add` parses its flags. Returns the value of its `enabled` too, which is no flag.
fn parse_item(item: &Value) -> Result<(CronAddArgs, Option<bool>), String> {
    let Value::Object(keys) = item else {
        return Err("it is not a map of flags".into());
    };
    let mut keys = keys.clone();
    let enabled = match keys.remove("enabled") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(enabled)) => Some(enabled),
        Some(_) => return Err("`enabled` is `true` or `false`".into()),
    };
    let command = CronAddArgs::augment_args(clap::Command::new("job").no_binary_name(true));
    let is_known = |key: &str| {
        command.get_arguments().any(|argument| {
            let names = argument.get_long_and_visible_aliases().unwrap_or_default();
            names.contains(&key)
        })
    };
    // The value does not matter: a misspelled `false` would silently do nothing.
    if let Some(key) = keys.keys().find(|key| !is_known(key)) {
        return Err(format!("unexpected argument '--{key}' found"));
    }
    let matches = command
        .try_get_matches_from(to_flags(&keys)?)
        .map_err(|error| first_line(&error.to_string()))?;
    let add =
        CronAddArgs::from_arg_matches(&matches).map_err(|error| first_line(&error.to_string()))?;
    match (&add.name, add.message.as_str()) {
        (None, _) => Err("it has no `name`".into()),
        (_, "-") => Err("its message cannot come from standard input".into()),
        _ if add.json || add.replace || add.flags.config.is_some() => {
            Err("`json`, `replace` and `config` are flags of the command, not of a job".into())
        }
        _ => Ok((add, enabled)),
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
