//! `nanobot config`: prints the location and the effective values, changes them, and reports problems.

mod edit;

use crate::cli::config::ConfigCommand;
use crate::cli::json_table;
use crate::ops::config_keys::{self, ConfigValue};
use crate::ops::context::Context;
use crate::ops::usable_config;
use anyhow::Result;
use edit::EditOutcome;
use nanobot_agent::report::json::SCHEMA;
use nanobot_base::error::Exit;
use nanobot_config::settings::check::ConfigSeverity;
use nanobot_config::settings::schema;
use serde_json::{Value, json};
use std::path::Path;

/// Runs `nanobot config`.
pub fn run(ctx: &Context, command: &ConfigCommand) -> Result<Exit> {
    match command {
        ConfigCommand::Path { key } => {
            let path = match key {
                Some(key) => {
                    ctx.load_config()?.file_of(&config_keys::canonical_path(key)?).path().to_owned()
                }
                None => ctx.paths.config.clone(),
            };
            ctx.terminal.print(&format!("{}\n", path.display()))?;
        }
        ConfigCommand::Get { key: Some(key), origin, json } => get(ctx, key, *origin, *json)?,
        ConfigCommand::Get { key: None, origin, json }
        | ConfigCommand::List { all: true, origin, json } => {
            print_values(ctx, config_keys::all_values(ctx)?, *origin, *json)?;
        }
        ConfigCommand::List { all: false, origin, json } => {
            let values = config_keys::changed_values(ctx)?;
            if values.is_empty() {
                ctx.explain_empty("every key has its default; `--all` lists them");
            }
            print_values(ctx, values, *origin, *json)?;
        }
        ConfigCommand::Set { key, value: Some(value), unset: _ } => {
            config_keys::set(ctx, key, value)?;
        }
        ConfigCommand::Set { key, value: None, .. } | ConfigCommand::Unset { key } => {
            config_keys::unset(ctx, key)?;
        }
        ConfigCommand::Apply { file, dry_run, json } => apply(ctx, file, *dry_run, *json)?,
        ConfigCommand::Edit => {
            return match edit::run(ctx)? {
                EditOutcome::Unchanged | EditOutcome::Saved => check(ctx, false, false),
                EditOutcome::SavedElsewhere => Ok(Exit::Config),
                EditOutcome::Discarded => Ok(Exit::Answered),
            };
        }
        ConfigCommand::Check { strict, json, fix } => {
            if *fix {
                config_keys::move_misplaced_keys(ctx)?;
            }
            return check(ctx, *strict, *json);
        }
        ConfigCommand::Schema { events: true, .. } => ctx.terminal.print(SCHEMA)?,
        ConfigCommand::Schema { commands, .. } => {
            let schema = if *commands { json_table::schema() } else { schema::schema() };
            ctx.terminal.print(&format!("{schema:#}\n"))?;
        }
    }
    Ok(Exit::Answered)
}

fn get(ctx: &Context, key: &str, origin: bool, as_json: bool) -> Result<()> {
    let value = config_keys::value_of(ctx, key)?;
    if as_json {
        return ctx.terminal.print_json_lines([value]);
    }
    let text = match &value.value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    ctx.terminal.print(&format!("{text}{}\n", origin_column(&value, origin)))
}

fn apply(ctx: &Context, file: &Path, dry_run: bool, as_json: bool) -> Result<()> {
    let changes = config_keys::apply(ctx, file, dry_run)?;
    if as_json {
        return ctx.terminal.print_json_lines(changes);
    }
    let text = |value: &Value| if value.is_null() { "unset".into() } else { value.to_string() };
    let lines = changes
        .iter()
        .map(|change| format!("{}: {} → {}\n", change.key, text(&change.old), text(&change.new)));
    let lines: String = lines.collect();
    ctx.terminal.print(if lines.is_empty() { "The config is up to date.\n" } else { &lines })
}

/// Prints keys with their values.
fn print_values(
    ctx: &Context,
    values: Vec<ConfigValue>,
    origin: bool,
    as_json: bool,
) -> Result<()> {
    if as_json {
        return ctx.terminal.print_json_lines(values);
    }
    let lines = values
        .iter()
        .map(|value| format!("{} = {}{}\n", value.key, value.value, origin_column(value, origin)));
    ctx.terminal.print(&lines.collect::<String>())
}

fn origin_column(value: &ConfigValue, is_shown: bool) -> String {
    if is_shown { format!("\t{}", value.origin) } else { String::new() }
}

fn check(ctx: &Context, is_strict: bool, as_json: bool) -> Result<Exit> {
    let config = ctx.load_config()?;
    let findings = usable_config::findings(ctx, &config, is_strict);
    if as_json {
        ctx.terminal.print_json_lines(
            findings.iter().map(
                |finding| json!({ "severity": finding.severity.name(), "text": finding.text }),
            ),
        )?;
    } else {
        let lines = findings.iter().map(|finding| format!("{finding}\n"));
        let mut text: String = lines.collect();
        if !config.exists() {
            text.push_str(&format!(
                "{}: no such file; the defaults apply\n",
                config.path().display()
            ));
        } else if findings.is_empty() {
            text.push_str(&format!("{}: no problems found\n", config.path().display()));
        }
        ctx.terminal.print(&text)?;
    }
    let is_invalid = findings.iter().any(|finding| match finding.severity {
        ConfigSeverity::Error => true,
        ConfigSeverity::Warning => is_strict,
        ConfigSeverity::Note => false,
    });
    Ok(if is_invalid { Exit::Config } else { Exit::Answered })
}
