//! `nanobot session`: manages the stored sessions.

use crate::cli::session::SessionCommand;
use crate::command::name_pattern::single_line;
use crate::command::session::list::report_failures;
use crate::ops::agent_turn;
use crate::ops::context::Context;
use crate::ops::session_title::DeferredTitle;
use crate::options::turn::{DryRunForm, TurnOptions};
use anyhow::{Context as _, Result};
use nanobot_agent::report::{Bar, ReportFormat};
use nanobot_base::error::{Exit, exit_for, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::terminal::{StdoutWriter, sanitize};
use nanobot_os::{input, signal};
use nanobot_store::session::{self, RepairFinding, SessionStore};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod export;
mod exported_message;
mod html;
mod list;
mod remove;
mod search;
mod show;
mod transcript;

/// Maximum time that `compact` waits for a locked session.
const COMPACT_LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs `nanobot session`.
pub fn run(ctx: &Context, command: &SessionCommand) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = ctx.session_store(&settings)?;
    match command {
        SessionCommand::List(arguments) => return list::run(ctx, &store, arguments),
        SessionCommand::Show(arguments) => show::run(ctx, &store, arguments)?,
        SessionCommand::Search(arguments) => {
            return search::run(ctx, &store, &settings.workspace, arguments);
        }
        SessionCommand::Export(arguments) => export::run(ctx, &store, arguments)?,
        SessionCommand::Fork { key, new, at, json } => {
            let count = session::fork(&store, key, new, *at)?;
            if *json {
                ctx.terminal.print_json(&json!({ "session": new, "messages": count }))?;
            } else {
                ctx.notice(&format!("copied to `{new}`: {count} messages"));
            }
        }
        SessionCommand::Import { file, new, json } => {
            import(ctx, &store, file, new.as_deref(), *json)?;
        }
        SessionCommand::Context { key, json } => {
            require_session(&store, key)?;
            let form = if *json { DryRunForm::TableJson } else { DryRunForm::Table };
            let mut options = TurnOptions::default();
            options.session.key = Some(key.clone());
            options.recording.dry_run = Some(form);
            options.stdin.no_stdin = true;
            return Ok(agent_turn::run(ctx, &options, ReportFormat::Text));
        }
        SessionCommand::Compact { key, instructions } => {
            require_session(&store, key)?;
            let mut options = TurnOptions::default();
            options.input.set_typed_message(&format!("/compact {}", instructions.join(" ")));
            options.session.key = Some(key.clone());
            options.session.lock_timeout = COMPACT_LOCK_TIMEOUT;
            options.stdin.no_stdin = true;
            return Ok(agent_turn::run(ctx, &options, ReportFormat::Text));
        }
        SessionCommand::Rename { key, new } => {
            for path in session::rename(&store, key, new)? {
                let path = ctx.paths.display(&path);
                ctx.notice(&format!("an older session `{key}` is visible again, in `{path}`"));
            }
        }
        SessionCommand::Title { key, title: _, json: _, detached: true } => {
            let title = DeferredTitle { key: key.clone(), ..DeferredTitle::default() };
            // No one reads its output, and nothing depends on a title.
            if let Err(error) = title.run(ctx) {
                log::info!(target: "session", "`{key}` got no title: {error:#}");
            }
        }
        SessionCommand::Title { key, title, json, detached: false } => {
            run_title(ctx, &store, key, title.as_deref(), *json)?;
        }
        SessionCommand::Remove { keys, for_good } => {
            remove::remove_sessions(ctx, &store, keys, *for_good)?;
        }
        SessionCommand::Restore { key, json } => {
            remove::restore(ctx, &store, key.as_deref(), *json)?;
        }
        SessionCommand::Prune(arguments) => {
            return remove::prune(ctx, &store, settings.retention.trash, arguments);
        }
        SessionCommand::Repair { keys, all: _, dry_run, json } => {
            return repair(ctx, &store, keys, *dry_run, *json);
        }
    }
    Ok(Exit::Answered)
}

/// Sets the title of a session, or prints it.
fn run_title(
    ctx: &Context,
    store: &SessionStore,
    key: &str,
    title: Option<&str>,
    as_json: bool,
) -> Result<()> {
    if let Some(title) = title {
        return session::set_title(store, key, title.trim());
    }
    let title = session::summarize(store, key)?.title;
    if as_json {
        let object = json!({ "session": key, "title": title });
        return ctx.terminal.print_json(&object);
    }
    match title {
        Some(title) => ctx.terminal.print(&format!("{}\n", sanitize(&title))),
        None => {
            ctx.explain_empty("the session has no title");
            Ok(())
        }
    }
}

/// Checks that the session exists.
///
/// # Errors
/// Status 66 if there is no session `key`.
fn require_session(store: &SessionStore, key: &str) -> Result<()> {
    session::read_entries(store, key).map(drop)
}

/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: usize = 256 << 20;
/// Maximum number of characters of a file's name that a key has.
const MAX_NAME_CHARS: usize = 64;

fn import(
    ctx: &Context,
    store: &SessionStore,
    file: &Path,
    key: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let name = file.display().to_string();
    let bytes = if name == "-" {
        input::read_file_or_stdin(file, MAX_FILE_BYTES)?.into_bytes()
    } else {
        input::read_file(file, &name, MAX_FILE_BYTES)?
    };
    let conversation = session::parse_conversation(&bytes)
        .map_err(|error| fail(exit_for(&error), format!("`{name}`: {error:#}")))?;
    let key = key.map_or_else(|| default_key(file), str::to_owned);
    let count = session::import(store, &key, &conversation)?;
    let program = conversation.format.program();
    if as_json {
        let object = json!({ "session": key, "messages": count, "format": program });
        return ctx.terminal.print_json(&object);
    }
    ctx.notice(&format!(
        "imported {count} messages of {program} as `{key}`; `nanobot agent -s {}` continues it",
        quote(&key)
    ));
    Ok(())
}

/// The key of a session that is made of `file`.
fn default_key(file: &Path) -> String {
    let file = if file == Path::new("-") { Path::new("stdin") } else { file };
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let letters = stem.chars().map(|letter| if is_plain(letter) { letter } else { '-' });
    format!("import:{}", letters.take(MAX_NAME_CHARS).collect::<String>())
}

/// Checks `keys`, or every file, and repairs what it can, unless it is a dry repair.
fn repair(
    ctx: &Context,
    store: &SessionStore,
    keys: &[String],
    is_dry_run: bool,
    as_json: bool,
) -> Result<Exit> {
    let files: Vec<(String, PathBuf)> = if keys.is_empty() {
        session::list_files(store)?
    } else {
        let path = |key: &String| Ok((key.clone(), session::summarize(store, key)?.path));
        keys.iter().map(path).collect::<Result<_>>()?
    };
    let mut writer = StdoutWriter::new(ctx.terminal);
    let mut failures = Vec::new();
    let (mut defective, mut has_loss) = (0, false);
    signal::install(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, files.len());
    for (key, path) in &files {
        signal::check()?;
        bar.set_item(key);
        match session::repair(store, key, path, !is_dry_run) {
            Ok(findings) => {
                defective += usize::from(!findings.is_empty());
                has_loss |= findings.iter().any(|finding| finding.is_loss);
                for finding in findings {
                    if as_json {
                        let object = json!({ "session": key, "problem": finding.problem, "repair": finding.repair });
                        writer.write_json(&object)?;
                    } else {
                        let description = describe_finding(&finding, is_dry_run);
                        writer.write(&format!("{}: {description}\n", single_line(key)))?;
                    }
                }
            }
            Err(error) if keys.len() == 1 => return Err(error),
            Err(error) => failures.push(error),
        }
        bar.advance(1);
    }
    drop(bar);
    writer.finish()?;
    let checked = files.len() - failures.len();
    ctx.notice(&format!("sessions checked: {checked}, ok: {}", checked - defective));
    Ok(match report_failures(ctx, &failures) {
        Exit::Answered if has_loss => Exit::Failed,
        exit => exit,
    })
}

fn describe_finding(finding: &RepairFinding, is_dry_run: bool) -> String {
    let RepairFinding { problem, repair, .. } = finding;
    match repair {
        None => problem.clone(),
        Some(repair) if is_dry_run => format!("{problem}; would be {repair}"),
        Some(repair) => format!("{problem}; {repair}"),
    }
}
