//! `nanobot config`: prints the location and the effective values, changes them, and reports problems.

mod edit;

use crate::cli::config::ConfigCommand as Arguments;
use crate::ops::config_keys::{self, ConfigValue};
use crate::ops::context::Context;
use crate::ops::usable_config;
use anyhow::Result;
use nanobot_agent::report::json::SCHEMA;
use nanobot_base::error::Exit;
use nanobot_config::settings::check::ConfigSeverity;
use nanobot_config::settings::schema;
use serde_json::{Value, json};

/// Runs `nanobot config`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::Path { key } => {
            let path = match key {
                Some(key) => {
                    ctx.load_config()?.file_of(&config_keys::canonical_path(key)?).path().to_owned()
                }
                None => ctx.paths.config.clone(),
            };
            ctx.terminal.print(&format!("{}\n", path.display()))?;
        }
        Arguments::Get { key: Some(key), origin, json } => get(ctx, key, *origin, *json)?,
        Arguments::Get { key: None, origin, json } | Arguments::List { origin, json } => {
            list(ctx, *origin, *json)?;
        }
        Arguments::Set { key, value: Some(value), unset: _ } => config_keys::set(ctx, key, value)?,
        Arguments::Set { key, value: None, .. } | Arguments::Unset { key } => {
            config_keys::unset(ctx, key)?;
        }
        Arguments::Edit => {
            return match edit::run(ctx)? {
                Some(exit) => Ok(exit),
                None => check(ctx, false, false),
            };
        }
        Arguments::Check { strict, json, fix } => {
            if *fix {
                config_keys::move_misplaced_keys(ctx)?;
            }
            return check(ctx, *strict, *json);
        }
        Arguments::Schema { events: true } => ctx.terminal.print(SCHEMA)?,
        Arguments::Schema { events: false } => {
            ctx.terminal.print(&format!("{:#}\n", schema::schema()))?;
        }
    }
    Ok(Exit::Answered)
}

fn get(ctx: &Context, key: &str, origin: bool, as_json: bool) -> Result<()> {
    let found = config_keys::value_of(ctx, key)?;
    if as_json {
        return ctx.terminal.print_json_lines([found]);
    }
    let text = match &found.value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    ctx.terminal.print(&format!("{text}{}\n", origin_column(&found, origin)))
}

/// Prints every key in use and its value.
fn list(ctx: &Context, origin: bool, as_json: bool) -> Result<()> {
    let values = config_keys::all_values(ctx)?;
    if as_json {
        return ctx.terminal.print_json_lines(values);
    }
    let line =
        |it: &ConfigValue| format!("{} = {}{}\n", it.key, it.value, origin_column(it, origin));
    ctx.terminal.print(&values.iter().map(line).collect::<String>())
}

fn origin_column(value: &ConfigValue, is_shown: bool) -> String {
    if is_shown { format!("\t{}", value.origin) } else { String::new() }
}

fn check(ctx: &Context, is_strict: bool, as_json: bool) -> Result<Exit> {
    let config = ctx.load_config()?;
    let found = usable_config::findings(ctx, &config, is_strict);
    if as_json {
        ctx.terminal.print_json_lines(
            found.iter().map(
                |finding| json!({ "severity": finding.severity.name(), "text": finding.text }),
            ),
        )?;
    } else {
        let lines = found.iter().map(|finding| format!("{finding}\n"));
        let mut text: String = lines.collect();
        if !config.exists() {
            text.push_str(&format!(
                "{}: no such file; the defaults apply\n",
                config.path().display()
            ));
        } else if found.is_empty() {
            text.push_str(&format!("{}: no problems found\n", config.path().display()));
        }
        ctx.terminal.print(&text)?;
    }
    let wrong = found.iter().any(|finding| match finding.severity {
        ConfigSeverity::Error => true,
        ConfigSeverity::Warning => is_strict,
        ConfigSeverity::Note => false,
    });
    Ok(if wrong { Exit::Config } else { Exit::Answered })
}
