//! `session rm`, `restore` and `prune`: move sessions to the trash, and back.

use super::keys::{Keys, single_line};
use super::list::{table, tell};
use crate::cli::session::Prune;
use crate::error::{Exit, exit_of, fail_hint};
use crate::ops::context::Context;
use crate::report::Bar;
use crate::session::{self, Listing, Place, Summary};
use crate::sys::signal;
use anyhow::{Context as _, Result};
use console::Term;
use jiff::{SignedDuration, Timestamp};
use std::io::IsTerminal;

/// Days for which the trash keeps a session.
const KEPT: i64 = 30;

/// Moves `keys` to the trash, or removes them permanently.
pub(super) fn rm(ctx: &Context, place: &Place, keys: &[String], for_good: bool) -> Result<()> {
    for key in keys {
        if for_good {
            session::remove(place, key)?;
            continue;
        }
        session::discard(place, key, &|_| true)?;
        ctx.notice(&format!(
            "moved `{key}` to the trash; `nanobot session restore {key}` restores it"
        ));
    }
    Ok(())
}

/// Restores `key`, or lists the sessions that can be restored.
pub(super) fn restore(ctx: &Context, place: &Place, key: Option<&str>) -> Result<()> {
    if let Some(key) = key {
        return session::restore(place, key);
    }
    let line = |discarded: &session::Discarded| {
        let stamp = discarded.stamp.as_str();
        let part = |range: std::ops::Range<usize>| stamp.get(range).unwrap_or_default();
        let day = format!("{}-{}-{}", part(0..4), part(4..6), part(6..8));
        let key = single_line(&discarded.key);
        format!("{day} {}:{}  {key}\n", part(8..10), part(10..12))
    };
    let text: String = session::trash(place)?.iter().map(line).collect();
    ctx.terminal.print(&text)
}

/// Moves sessions that were not used for a long time to the trash.
pub(super) fn prune(ctx: &Context, place: &Place, arguments: &Prune) -> Result<Exit> {
    let Prune {
        pattern,
        older_than,
        empty,
        yes,
        dry_run,
    } = arguments;
    let now = ctx.clock.timestamp();
    let limit = older_than.map(|time| {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        now.checked_sub(time).unwrap_or(Timestamp::MIN)
    });
    let is_old = |session: &Summary| {
        limit.is_none_or(|limit| session.used < limit) && (!empty || session.messages == Some(0))
    };
    let Listing {
        mut sessions,
        failures,
    } = session::list(place)?;
    let keys = Keys(pattern.as_deref());
    sessions.retain(|session| keys.have(&session.key) && is_old(session));
    let newer = sessions.extract_if(.., |session| session.is_newer);
    for session in newer {
        let key = session.key;
        ctx.notice(&format!("kept `{key}`: written by a newer nanobot"));
    }
    let table = table(&sessions, now, ctx.terminal.width());
    ctx.terminal.print(&table)?;
    if *dry_run || !(sessions.is_empty() || *yes || agreed(sessions.len())?) {
        return Ok(tell(ctx, &failures));
    }
    signal::arm(None).context("wait for signals")?;
    let bar = Bar::new(ctx.terminal, ctx.quiet, sessions.len());
    let mut count = 0;
    for session in &sessions {
        signal::check()?;
        let key = &session.key;
        bar.at(key);
        match session::discard(place, key, &is_old) {
            Ok(true) => count += 1,
            Ok(false) => ctx.notice(&format!("kept `{key}`: it was just used")),
            Err(error) if [Exit::TryAgain, Exit::NoInput].contains(&exit_of(&error)) => {
                ctx.notice(&format!("kept `{key}`: {error:#}"));
            }
            Err(error) => return Err(error),
        }
        bar.add(1);
    }
    drop(bar);
    if count > 0 {
        ctx.notice(&format!(
            "moved to the trash: {count}; `nanobot session restore KEY` restores one"
        ));
    }
    let gone = session::empty_trash(place, KEPT)?;
    if gone > 0 {
        ctx.notice(&format!("removed from the trash after {KEPT} days: {gone}"));
    }
    Ok(tell(ctx, &failures))
}

/// Asks the user to confirm the removal of `count` sessions.
///
/// # Errors
/// Status 2 if there is no terminal to ask at.
fn agreed(count: usize) -> Result<bool> {
    let term = Term::stderr();
    if !(std::io::stdin().is_terminal() && term.features().is_attended()) {
        return Err(fail_hint(
            Exit::Usage,
            "cannot ask for confirmation without a terminal",
            "`--yes`, or `--dry-run` to list them only",
        ));
    }
    let asking = "ask on the terminal";
    term.write_str(&format!("Move {count} to the trash? [y/N] "))
        .context(asking)?;
    let answer = term.read_line().context(asking)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
