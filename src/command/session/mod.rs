//! `nanobot session`: manages the stored sessions.

use crate::cli::session::SessionCommand as Arguments;
use crate::ops::agent_turn;
use crate::ops::context::Context;
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
mod list;
mod remove;
mod repair;
mod search;
mod show;
mod transcript;

/// Maximum time that `compact` waits for a locked session.
const COMPACT_LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs `nanobot session`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let settings = ctx.settings()?;
    let place = ctx.session_store(&settings)?;
    match arguments {
        Arguments::List(arguments) => return list::run(ctx, &place, arguments),
        Arguments::Show(arguments) => show::run(ctx, &place, arguments)?,
        Arguments::Search(arguments) => {
            return search::run(ctx, &place, &settings.workspace, arguments);
        }
        Arguments::Export(arguments) => export::run(ctx, &place, arguments)?,
        Arguments::Fork { key, new, at, json } => {
            let count = session::fork(&place, key, new, *at)?;
            match json {
                true => ctx.terminal.print_json(&json!({ "session": new, "messages": count }))?,
                false => ctx.notice(&format!("copied to `{new}`: {count} messages")),
            }
        }
        Arguments::Context { key, json } => {
            require_session(&place, key)?;
            let form = match json {
                true => DryRunForm::TableJson,
                false => DryRunForm::Table,
            };
            let mut options = TurnOptions::default();
            options.session.key = Some(key.clone());
            options.recording.dry_run = Some(form);
            options.stdin.no_stdin = true;
            return Ok(agent_turn::run(ctx, &options, ReportFormat::Text));
        }
        Arguments::Compact { key, instructions } => {
            require_session(&place, key)?;
            let mut options = TurnOptions::default();
            options.input.set_typed_message(&format!("/compact {}", instructions.join(" ")));
            options.session.key = Some(key.clone());
            options.session.lock_timeout = COMPACT_LOCK_TIMEOUT;
            options.stdin.no_stdin = true;
            return Ok(agent_turn::run(ctx, &options, ReportFormat::Text));
        }
        Arguments::Rename { key, new } => {
            for older in session::rename(&place, key, new)? {
                let older = ctx.paths.display(&older);
                ctx.notice(&format!("an older session `{key}` is visible again, in `{older}`"));
            }
        }
        Arguments::Title { key, title, json } => {
            run_title(ctx, &place, key, title.as_deref(), *json)?;
        }
        Arguments::Remove { keys, for_good } => {
            remove::remove_sessions(ctx, &place, keys, *for_good)?;
        }
        Arguments::Restore { key, json } => {
            remove::restore(ctx, &place, key.as_deref(), *json)?;
        }
        Arguments::Prune(arguments) => return remove::prune(ctx, &place, arguments),
        Arguments::Repair { keys, all: _, dry_run, json } => {
            return repair::run(ctx, &place, keys, *dry_run, *json);
        }
    }
    Ok(Exit::Answered)
}

/// Sets the title of a session, or prints it.
fn run_title(
    ctx: &Context,
    place: &SessionStore,
    key: &str,
    title: Option<&str>,
    as_json: bool,
) -> Result<()> {
    if let Some(title) = title {
        return session::set_title(place, key, title.trim());
    }
    let found = session::summarize(place, key)?.title;
    if as_json {
        let object = json!({ "session": key, "title": found });
        return ctx.terminal.print_json(&object);
    }
    match found {
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
/// Status 66 when there is no session `key`.
fn require_session(place: &SessionStore, key: &str) -> Result<()> {
    session::read_entries(place, key).map(drop)
}
