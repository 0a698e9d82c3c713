//! `nanobot config`: prints the location and the effective values, changes them, and reports problems.

use crate::cli::config::ConfigCommand;
use crate::cli::json_table;
use crate::command::memory::run_external_editor;
use crate::command::question::{Cancelled, ask_choice};
use crate::ops::config_edit::{check_edit, move_added_keys, replace_text};
use crate::ops::config_keys::{self, ConfigValue};
use crate::ops::context::{Context, report_error};
use crate::ops::usable_config;
use crate::repl::editor::external_editor;
use anyhow::{Context as _, Result};
use nanobot_agent::report::json::SCHEMA;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::check::ConfigSeverity;
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_config::settings::schema;
use nanobot_os::terminal::{Terminal, stderr_width, wrap_words};
use nanobot_os::{durable_file, signal};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::NamedTempFile;

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
            return match edit(ctx)? {
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

/// The answers to the question about a text that cannot be used.
const CHOICES: [&str; 3] = ["edit", "keep", "discard"];

/// The outcome of editing a file.
enum EditOutcome {
    /// The user changed nothing.
    Unchanged,
    /// The file has the edited text.
    Saved,
    /// The file was not replaced, and the edited text is in a file of its own.
    SavedElsewhere,
    /// The file was not replaced, and the edited text is gone.
    Discarded,
}

/// Runs `config edit`. Our own file is edited after the shared one, unless the user gave that edit up. Returns the outcome of both
/// together: if one was saved and the edit of the other discarded, something was saved.
fn edit(ctx: &Context) -> Result<EditOutcome> {
    if !Terminal::is_interactive() {
        return Err(fail(Exit::Usage, "an editor needs a terminal")
            .with_hint("`nanobot config set KEY VALUE`"));
    }
    let shared_path = &ctx.paths.config;
    let own_path = own_file_path(shared_path);
    // If keys that were added to the shared file create it, it need not be edited at once.
    let has_own_file = own_path.exists();
    let original = durable_file::read(shared_path)?.unwrap_or_default();
    let outcome = edit_file(ctx, shared_path, &original)?;
    match outcome {
        EditOutcome::Unchanged => {}
        EditOutcome::Saved => move_added_keys(ctx, &original)?,
        EditOutcome::SavedElsewhere | EditOutcome::Discarded => return Ok(outcome),
    }
    if !has_own_file {
        return Ok(outcome);
    }
    ctx.notice(&format!(
        "next: {}, which has the keys that only this program reads",
        ctx.paths.display(&own_path)
    ));
    let original = durable_file::read(&own_path)?.unwrap_or_default();
    let own_outcome = edit_file(ctx, &own_path, &original)?;
    Ok(match (outcome, own_outcome) {
        (EditOutcome::Saved, EditOutcome::Discarded) => EditOutcome::Saved,
        (_, own_outcome) => own_outcome,
    })
}

/// Opens a copy of the file at `path` in the editor. The copy is kept if the edited text is not saved, unless the user
/// discards it.
fn edit_file(ctx: &Context, path: &Path, original: &[u8]) -> Result<EditOutcome> {
    let copy = durable_file::create_temp_named(original, ".json").context("make a copy to edit")?;
    let outcome = edit_copy(ctx, path, original, copy.path());
    if matches!(outcome, Ok(EditOutcome::SavedElsewhere) | Err(_))
        && let Err(error) = keep_if_edited(ctx, path, copy, original)
    {
        if outcome.is_ok() {
            return Err(error);
        }
        // The error of the edit is the status.
        report_error(&error, ctx.terminal);
    }
    outcome
}

/// Lets the user edit the copy at `copy_path` until the text can be used, and replaces the text of the file at `path`.
fn edit_copy(ctx: &Context, path: &Path, original: &[u8], copy_path: &Path) -> Result<EditOutcome> {
    let unchanged = format!("{} is unchanged", ctx.paths.display(path));
    loop {
        run_external_editor(external_editor(&ctx.env), copy_path, &unchanged)?;
        let edited = durable_file::read(copy_path)?.unwrap_or_default();
        if edited == original {
            return Ok(EditOutcome::Unchanged);
        }
        match check_edit(ctx, path, original, &edited) {
            Ok(()) => {
                replace_text(ctx, path, original, &edited)?;
                return Ok(EditOutcome::Saved);
            }
            Err(error) => {
                report_error(&error, ctx.terminal);
            }
        }
        let question =
            format!("{unchanged}; [e]dit again, [k]eep the text elsewhere, [d]iscard it? [e] ");
        let question = wrap_words(&question, stderr_width(), 0);
        match ask_choice(ctx.terminal, &question, "edit", &CHOICES) {
            Ok("keep") => return Ok(EditOutcome::SavedElsewhere),
            Ok("discard") => {
                ctx.notice(&unchanged);
                return Ok(EditOutcome::Discarded);
            }
            Ok(_) => {}
            Err(error) if error.is::<Cancelled>() => return Ok(EditOutcome::SavedElsewhere),
            Err(error) => return Err(error),
        }
    }
}

/// Keeps the edited text of the file at `path` if it differs from the original, and says where.
fn keep_if_edited(ctx: &Context, path: &Path, copy: NamedTempFile, original: &[u8]) -> Result<()> {
    if durable_file::read(copy.path())?.unwrap_or_default() == original {
        return Ok(());
    }
    let (_, kept_path) = copy.keep().context("keep the edited text")?;
    // After a signal, the message would not be written otherwise.
    signal::begin_shutdown_if_stopped();
    ctx.terminal.eprint(&format!(
        "nanobot: {} was not replaced; the edited text is in {}",
        ctx.paths.display(path),
        kept_path.display()
    ));
    Ok(())
}
