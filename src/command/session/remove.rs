//! `session remove`, `restore` and `prune`: move sessions to the trash, and back.

use super::list::{report_failures, session_json, table};
use crate::cli::session::PruneArgs;
use crate::command::name_pattern::{NamePattern, has_wildcard, single_line};
use crate::command::question::confirm_at_terminal;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use nanobot_agent::report::Bar;
use nanobot_base::error::{Exit, exit_for, fail_with_hint};
use nanobot_base::shell_quote::quote;
use nanobot_os::signal;
use nanobot_store::session::{
    self, SessionListing, SessionStore, SessionSummary, TRASH_DAYS, TrashBatch, TrashedSession,
};
use serde_json::json;
use std::ops::Range;

/// Moves `keys` to the trash, or removes them permanently.
pub(super) fn remove_sessions(
    ctx: &Context,
    place: &SessionStore,
    keys: &[String],
    for_good: bool,
) -> Result<()> {
    for key in keys {
        let to_error = |error: anyhow::Error| {
            if has_wildcard(key) && exit_for(&error) == Exit::NoInput {
                fail_with_hint(
                    Exit::NoInput,
                    format!("{error:#}"),
                    format!("nanobot session prune {} --older-than 0d", quote(key)),
                )
            } else {
                error
            }
        };
        if for_good {
            session::remove(place, key).map_err(to_error)?;
            continue;
        }
        session::move_to_trash(place, key, &|_| true).map_err(to_error)?;
        ctx.notice(&format!(
            "moved `{key}` to the trash; `nanobot session restore {key}` restores it"
        ));
    }
    Ok(())
}

/// Restores `key`, or lists the sessions that can be restored.
pub(super) fn restore(
    ctx: &Context,
    place: &SessionStore,
    key: Option<&str>,
    as_json: bool,
) -> Result<()> {
    if let Some(key) = key {
        session::restore(place, key)?;
        return if as_json {
            ctx.terminal.print_json(&json!({ "session": key }))
        } else {
            ctx.notice(&format!("restored session `{key}`"));
            Ok(())
        };
    }
    let discarded = session::list_trash(place)?;
    let time = |discarded: &TrashedSession| {
        let stamp = discarded.deleted_at.as_str();
        let part = |range: Range<usize>| stamp.get(range).unwrap_or_default();
        let day = format!("{}-{}-{}", part(0..4), part(4..6), part(6..8));
        format!("{day} {}:{}", part(8..10), part(10..12))
    };
    if as_json {
        return ctx.terminal.print_json_lines(discarded.iter().map(|discarded| {
            json!({ "session": discarded.key, "deleted": ctx.clock.to_rfc3339(&time(discarded)) })
        }));
    }
    if discarded.is_empty() {
        ctx.explain_empty("the trash is empty");
    }
    let line = |discarded| format!("{}  {}\n", time(discarded), single_line(&discarded.key));
    ctx.terminal.print(&discarded.iter().map(line).collect::<String>())
}

/// Moves sessions that were not used for a long time to the trash.
pub(super) fn prune(ctx: &Context, place: &SessionStore, arguments: &PruneArgs) -> Result<Exit> {
    let PruneArgs { pattern, older_than, empty, yes, dry_run, json } = arguments;
    let now = ctx.clock.timestamp();
    let limit = older_than.map(|time| {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        now.checked_sub(time).unwrap_or(Timestamp::MIN)
    });
    let is_old = |session: &SessionSummary| {
        limit.is_none_or(|limit| session.last_used < limit)
            && (!empty || session.messages == Some(0))
    };
    let SessionListing { mut sessions, failures } = session::list(place)?;
    let keys = NamePattern(pattern.as_deref());
    sessions.retain(|session| keys.matches(&session.key) && is_old(session));
    let newer = sessions.extract_if(.., |session| session.is_newer);
    for session in newer {
        let key = session.key;
        ctx.notice(&format!("kept `{key}`: written by a newer nanobot"));
    }
    list(ctx, &sessions, now, *json)?;
    if *dry_run || !(sessions.is_empty() || *yes || confirm(ctx, sessions.len())?) {
        return Ok(report_failures(ctx, &failures));
    }
    signal::install(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, sessions.len());
    let mut batch = TrashBatch::new(place);
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
    let moved = move_all();
    batch.sync()?;
    moved?;
    drop(bar);
    if count > 0 {
        ctx.notice(&format!(
            "moved to the trash: {count}; `nanobot session restore KEY` restores one"
        ));
    }
    let gone = session::empty_trash(place)?;
    if gone > 0 {
        ctx.notice(&format!("removed from the trash after {TRASH_DAYS} days: {gone}"));
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
    let table = table(sessions, now, ctx.terminal.stdout_width());
    ctx.terminal.print(&table)
}

/// Asks the user to confirm the removal of `count` sessions.
fn confirm(ctx: &Context, count: usize) -> Result<bool> {
    let question = format!("Move {count} to the trash?");
    let hint = "`--yes`, or `--dry-run` to list them only";
    confirm_at_terminal(ctx, &question, hint)
}
