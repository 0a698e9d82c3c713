//! `session remove`, `restore` and `prune`: move sessions to the trash, and back.

use super::list::{self, report_failures, session_json};
use crate::cli::session::PruneArgs;
use crate::command::name_pattern::{NamePattern, has_wildcard, single_line};
use crate::command::question::confirm_at_terminal;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use nanobot_agent::report::Bar;
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::age::Age;
use nanobot_os::signal;
use nanobot_store::session::{
    self, SessionListing, SessionStore, SessionSummary, TrashBatch, TrashedSession,
};
use serde_json::json;
use std::ops::Range;

/// Moves `keys` to the trash, or removes them permanently.
pub(super) fn remove_sessions(
    ctx: &Context,
    store: &SessionStore,
    keys: &[String],
    for_good: bool,
) -> Result<()> {
    for key in keys {
        let to_error = |error: anyhow::Error| {
            if has_wildcard(key) && exit_for(&error) == Exit::NoInput {
                fail(Exit::NoInput, format!("{error:#}"))
                    .with_hint(format!("nanobot session prune {} --older-than 0d", quote(key)))
            } else {
                error
            }
        };
        if for_good {
            session::remove(store, key).map_err(to_error)?;
            continue;
        }
        session::move_to_trash(store, key).map_err(to_error)?;
        ctx.notice(&format!(
            "moved `{key}` to the trash; `nanobot session restore {}` restores it",
            quote(key)
        ));
    }
    Ok(())
}

/// Restores `key`, or lists the sessions that can be restored.
pub(super) fn restore(
    ctx: &Context,
    store: &SessionStore,
    key: Option<&str>,
    as_json: bool,
) -> Result<()> {
    if let Some(key) = key {
        session::restore(store, key)?;
        return if as_json {
            ctx.terminal.print_json(&json!({ "session": key }))
        } else {
            ctx.notice(&format!("restored session `{key}`"));
            Ok(())
        };
    }
    let sessions = session::list_trash(store)?;
    if as_json {
        return ctx.terminal.print_json_lines(sessions.iter().map(|session| {
            let time = ctx.clock.to_rfc3339(&deletion_time(session));
            json!({ "session": session.key, "deleted": time })
        }));
    }
    if sessions.is_empty() {
        ctx.explain_empty("the trash is empty");
    }
    let lines = sessions
        .iter()
        .map(|session| format!("{}  {}\n", deletion_time(session), single_line(&session.key)));
    ctx.terminal.print(&lines.collect::<String>())
}

/// The time at which a session was deleted. In the trash it is written without separators, since it is part of a file name.
fn deletion_time(session: &TrashedSession) -> String {
    let part = |range: Range<usize>| session.deleted_at.get(range).unwrap_or_default();
    let date = format!("{}-{}-{}", part(0..4), part(4..6), part(6..8));
    format!("{date} {}:{}", part(8..10), part(10..12))
}

/// Moves sessions that were not used for a long time to the trash.
pub(super) fn prune(
    ctx: &Context,
    store: &SessionStore,
    trash_age: Age,
    arguments: &PruneArgs,
) -> Result<Exit> {
    let PruneArgs { pattern, older_than, empty, yes, dry_run, json } = arguments;
    let now = ctx.clock.timestamp();
    let limit = older_than.map(|age| {
        let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
        now.checked_sub(age).unwrap_or(Timestamp::MIN)
    });
    let is_old = |session: &SessionSummary| {
        limit.is_none_or(|limit| session.last_used < limit)
            && (!empty || session.messages == Some(0))
    };
    let SessionListing { mut sessions, failures } = session::list(store)?;
    let keys = NamePattern(pattern.as_deref());
    sessions.retain(|session| keys.matches(&session.key) && is_old(session));
    for session in sessions.extract_if(.., |session| session.is_newer) {
        ctx.notice(&format!("kept `{}`: written by a newer nanobot", session.key));
    }
    list(ctx, &sessions, now, *json)?;
    if *dry_run || !(sessions.is_empty() || *yes || confirm(ctx, sessions.len())?) {
        return Ok(report_failures(ctx, &failures));
    }
    signal::install(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, sessions.len());
    let mut batch = TrashBatch::new(store);
    let mut count = 0;
    let mut move_all = || {
        for session in &sessions {
            signal::check()?;
            let key = &session.key;
            bar.set_item(key);
            match batch.add(key, &is_old) {
                Ok(true) => count += 1,
                Ok(false) => ctx.notice(&format!("kept `{key}`: it was just used")),
                Err(error) if [Exit::TryAgain, Exit::NoInput].contains(&exit_for(&error)) => {
                    ctx.notice(&format!("kept `{key}`: {error:#}"));
                }
                Err(error) => return Err(error),
            }
            bar.advance(1);
        }
        Ok(())
    };
    let result = move_all();
    // Sessions that were moved before an error are synced too.
    batch.sync()?;
    result?;
    drop(bar);
    if count > 0 {
        ctx.notice(&format!(
            "moved to the trash: {count}; `nanobot session restore KEY` restores one"
        ));
    }
    let removed = session::remove_expired_trash(store, trash_age)?;
    if removed > 0 {
        ctx.notice(&format!("removed from the trash after {trash_age}: {removed}"));
    }
    Ok(report_failures(ctx, &failures))
}

/// Lists the sessions that are to be moved.
fn list(ctx: &Context, sessions: &[SessionSummary], now: Timestamp, as_json: bool) -> Result<()> {
    if as_json {
        let lines = sessions.iter().map(|session| session_json(&ctx.clock, session));
        return ctx.terminal.print_json_lines(lines);
    }
    if sessions.is_empty() {
        ctx.explain_empty("no session matches");
    }
    let table = list::table(sessions, now, ctx.terminal.stdout_width());
    ctx.terminal.print(&table)
}

/// Asks the user to confirm the removal of `count` sessions.
fn confirm(ctx: &Context, count: usize) -> Result<bool> {
    let question = format!("Move {count} to the trash?");
    let hint = "`--yes`, or `--dry-run` to list them only";
    confirm_at_terminal(ctx, &question, hint)
}
