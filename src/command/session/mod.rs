//! `nanobot session`: manages the stored sessions.

use crate::cli::session::SessionCommand;
use crate::ops::agent_turn;
use crate::ops::context::Context;
use crate::ops::session_title::DeferredTitle;
use crate::options::turn::{DryRunForm, TurnOptions};
use anyhow::Result;
use nanobot_agent::report::ReportFormat;
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize;
use nanobot_store::session::{self, SessionStore};
use serde_json::json;
use std::time::Duration;

mod export;
mod exported_message;
mod html;
mod import;
mod list;
mod remove;
mod repair;
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
            import::run(ctx, &store, file, new.as_deref(), *json)?;
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
            return repair::run(ctx, &store, keys, *dry_run, *json);
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
