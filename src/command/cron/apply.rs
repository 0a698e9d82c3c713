//! `cron apply`: creates and changes the jobs that a file lists. Each item of the file becomes the flags of `cron add`,
//! so both accept the same options.

use super::saved_job::{describe_change, saved_json};
use crate::cli::cron::{CronAddArgs, CronApplyArgs};
use crate::command::usage_error;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::job_apply::{self, AppliedList, JobListItem};
use crate::ops::jobs::job_edit::{JobDraft, PlannedJob};
use crate::ops::jobs::time_format::to_one_line;
use anyhow::Result;
use clap::{Args, FromArgMatches};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::keys::nearest;
use nanobot_cron::job::Job;
use nanobot_os::input;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Maximum size of the file in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Runs `cron apply`. All items are checked, and all jobs are saved, before anything is printed.
pub(super) fn run(ctx: &Context, arguments: &CronApplyArgs) -> Result<Exit> {
    let CronApplyArgs { file, prune, json } = arguments;
    let items = read_items(file)?;
    let position = |index: usize| format!("item {} of `{}`", index + 1, file.display());
    let mut listed: Vec<(CronAddArgs, Option<bool>)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let to_error = |cause| fail(Exit::BadInput, format!("{}: {cause}", position(index)));
        let (mut add, enabled) = parse_item(item).map_err(to_error)?;
        if listed.iter().any(|(other, _)| other.name == add.name) {
            return Err(to_error("an earlier item has the same name".into()));
        }
        add.flags.settings.applied = true;
        listed.push((add, enabled));
    }
    let listed = listed.iter().enumerate().map(|(index, (add, enabled))| JobListItem {
        draft: JobDraft {
            name: add.name.as_deref(),
            message: add.message.as_deref(),
            settings: &add.flags.settings,
            enabled: *enabled,
        },
        position: position(index),
    });
    let AppliedList { jobs, removed, now, crontab, exit } =
        job_apply::apply(ctx, &listed.collect::<Vec<_>>(), *prune)?;
    for PlannedJob { job, change, .. } in &jobs {
        if *json {
            ctx.terminal.print_json(&saved_json(ctx, job, *change, &now))?;
        } else {
            let line = to_one_line(&describe_change(job, *change));
            ctx.terminal.print(&format!("{line}\n"))?;
        }
    }
    for Job { id, name, .. } in &removed {
        if *json {
            let line = json!({ "id": id, "name": name, "change": "removed", "schedule": null, "next": null });
            ctx.terminal.print_json(&line)?;
        } else {
            let name = to_one_line(name);
            ctx.terminal.print(&format!("✓ Removed job '{name}' ({id})\n"))?;
        }
    }
    // A notice about many jobs is printed once.
    let mut notices: Vec<&String> = Vec::new();
    for notice in jobs.iter().flat_map(|job| &job.notices) {
        if !notices.contains(&notice) {
            ctx.notice(notice);
            notices.push(notice);
        }
    }
    let saved_message = "the jobs are saved, but cron does not start them";
    let crontab_exit = crontab_sync::report_change(ctx, crontab, saved_message);
    Ok(if crontab_exit == Exit::Answered { exit } else { crontab_exit })
}

/// Reads the list of jobs.
fn read_items(file: &Path) -> Result<Vec<Value>> {
    let name = file.display().to_string();
    let text = input::read_file_or_stdin(file, MAX_BYTES)?;
    let value = parse_yaml(&text)
        .map_err(|error| fail(Exit::BadInput, format!("`{name}` is not YAML or JSON: {error}")))?;
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(fail(Exit::BadInput, format!("`{name}` is not a list of jobs")).with_hint(
            "a list of maps, without a key above it; `nanobot cron apply --help` has an example",
        )),
    }
}

/// Parses YAML. Only `true` and `false` are booleans: a message may be `y`.
fn parse_yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

/// Converts a value to a boolean. The words of YAML 1.1 are accepted too.
fn to_boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "y" | "on" => Some(true),
            "false" | "no" | "n" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Parses an item as `cron add` parses its flags. Also returns the value of the key `enabled`, which is not a flag.
fn parse_item(item: &Value) -> Result<(CronAddArgs, Option<bool>), String> {
    let Value::Object(keys) = item else {
        return Err("it is not a map of flags".into());
    };
    let mut keys = keys.clone();
    let enabled = match keys.remove("enabled") {
        None | Some(Value::Null) => None,
        Some(value) => Some(to_boolean(&value).ok_or("`enabled` is `true` or `false`")?),
    };
    let mut command = CronAddArgs::augment_args(clap::Command::new("job").no_binary_name(true));
    command.build();
    let flags = to_flags(&command, &keys)?;
    let matches =
        command.try_get_matches_from(flags).map_err(|error| usage_error::cause(&error))?;
    let add =
        CronAddArgs::from_arg_matches(&matches).map_err(|error| usage_error::cause(&error))?;
    match (&add.name, add.message.as_deref()) {
        (None, _) => Err("it has no `name`".into()),
        (_, Some("-")) => Err("its message cannot come from standard input".into()),
        _ if add.json || add.replace || add.flags.config.is_some() => {
            Err("`json`, `replace` and `config` are flags of the command, not of a job".into())
        }
        _ => Ok((add, enabled)),
    }
}

/// Converts the keys of an item to flags. `true` becomes a flag without a value, `false` no flag, and a list a repeated flag. If
/// the flag needs a value, `true` and `false` are text.
fn to_flags(command: &clap::Command, keys: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut flags = Vec::new();
    for (key, value) in keys {
        let has_name = |argument: &&clap::Arg| {
            let names = argument.get_long_and_visible_aliases().unwrap_or_default();
            names.contains(&key.as_str())
        };
        // The value does not matter here: a misspelled key with `false` would silently do nothing.
        let Some(argument) = command.get_arguments().find(has_name) else {
            let names = command.get_arguments().filter_map(clap::Arg::get_long);
            let hint = nearest(key, names).map(|name| format!("; `{name}` is one"));
            return Err(format!("there is no key `{key}`{}", hint.unwrap_or_default()));
        };
        let needs_value = argument.get_num_args().is_some_and(|count| count.min_values() > 0);
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            let boolean = if needs_value { None } else { to_boolean(value) };
            match (boolean, value) {
                (Some(false), _) | (None, Value::Null) => {}
                (Some(true), _) => flags.push(format!("--{key}")),
                (None, Value::String(text)) => flags.push(format!("--{key}={text}")),
                (None, Value::Bool(_) | Value::Number(_)) => flags.push(format!("--{key}={value}")),
                _ => {
                    return Err(format!("the value of `{key}` is not a text, a number or a list"));
                }
            }
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::{parse_item, parse_yaml};

    /// Parses an item with these lines. Returns its message, if it is delivered, and if it is enabled.
    fn parse(lines: &str) -> Result<(String, bool, Option<bool>), String> {
        let item = parse_yaml(&format!("name: job\nevery: 1h\n{lines}")).unwrap();
        parse_item(&item)
            .map(|(add, enabled)| (add.message.unwrap(), add.flags.settings.flags.deliver, enabled))
    }

    #[test]
    fn a_word_is_text_or_a_boolean_as_its_flag_needs() {
        let on = [("y", true), ("yes", true), ("on", true), ("On", true), ("true", true)];
        let off = [("n", false), ("no", false), ("off", false), ("NO", false), ("false", false)];
        for (word, expect) in on.into_iter().chain(off) {
            let item =
                parse(&format!("message: {word}\ndeliver: {word}\nenabled: {word}")).unwrap();
            assert_eq!(item, (word.to_owned(), expect, Some(expect)));
        }
        assert_eq!(parse("message: ask\ndeliver: maybe").unwrap_err().lines().count(), 1);
        assert!(parse("message: ask\nenabled: maybe").is_err());
        assert!(parse("message: ask\nqiet: false").is_err());
        assert_eq!(parse("message: 12\ndeliver: null").unwrap(), ("12".to_owned(), false, None));
        assert_eq!(parse("message: \"no\"").unwrap().0, "no");
    }
}
