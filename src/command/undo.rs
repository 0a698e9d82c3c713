//! `nanobot undo`: reverts the changes that a turn made with its file tools, and redoes them.

use crate::cli::undo::Undo as Arguments;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::report::columns::{Side, aligned};
use crate::sys::terminal::harmless;
use crate::undo::Undo;
use crate::undo::journal::Turn;
use crate::undo::restore::{Plan, Step, Way};
use anyhow::Result;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Runs `nanobot undo`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    go(ctx, arguments, None)
}

/// As [`run`], but within the conversation `session`: the turn of another one is reverted only if its number is given.
pub(super) fn within(ctx: &Context, arguments: &Arguments, session: Option<&str>) -> Result<Exit> {
    let owns = |turn: &Turn| match session {
        Some(session) if turn.about.session == session => Ok(()),
        _ => Err(fail_hint(
            Exit::NoInput,
            format!(
                "nothing was done, because the turn belongs to another session: {}",
                told(turn)
            ),
            format!("`/undo {}` to choose that turn", turn.id),
        )),
    };
    go(ctx, arguments, Some(&owns))
}

/// Checks that a turn without a given number may be chosen.
type Owns<'a> = &'a dyn Fn(&Turn) -> Result<()>;

fn go(ctx: &Context, arguments: &Arguments, owns: Option<Owns<'_>>) -> Result<Exit> {
    let Arguments {
        turn,
        list,
        json,
        dry_run,
        redo,
        force,
    } = *arguments;
    let mut odd = |id: u64, error: &anyhow::Error| {
        ctx.notice(&format!("skipped turn {id}: {error:#}"));
    };
    let turns = Undo::new(ctx.paths.undo()).turns(&mut odd)?;
    if list {
        ctx.terminal.print(&listed(ctx, &turns, json))?;
        return Ok(Exit::Answered);
    }
    let way = if redo { Way::Forth } else { Way::Back };
    let is_found = turn.is_none();
    let turn = chosen(ctx, &turns, turn, way)?;
    if let Some(owns) = owns.filter(|_| is_found) {
        owns(turn)?;
    }
    let plan = Plan::of(turn, way)?;
    let mut wrong: Vec<String> = plan.blocked.iter().map(objection).collect();
    if !force {
        wrong.extend(plan.conflicts.iter().map(objection));
    }
    if !wrong.is_empty() {
        let cause = format!(
            "nothing was done, because files have changed since turn {}: {}",
            turn.id,
            wrong.join("; ")
        );
        return Err(match plan.blocked.is_empty() {
            true => fail_hint(Exit::Failed, cause, "`--force` to overwrite these changes"),
            false => fail(Exit::Failed, cause),
        });
    }
    let steps = plan.steps();
    if is_found {
        // The last turn may only have run commands, so say which turn was chosen.
        ctx.notice(&told(turn));
    }
    if !dry_run {
        plan.carry_out(&ctx.clock.stamp())?;
    }
    let line = |step: &Step| {
        let (verb, path) = match (step, dry_run) {
            (Step::Restore(path), false) => ("restored", path),
            (Step::Restore(path), true) => ("would restore", path),
            (Step::Remove(path), false) => ("removed", path),
            (Step::Remove(path), true) => ("would remove", path),
        };
        format!("{verb} {}\n", shown(path))
    };
    let text: String = steps.iter().map(line).collect();
    if text.is_empty() {
        ctx.notice(&format!("nothing to change for turn {}", turn.id));
    }
    ctx.terminal.print(&text)?;
    Ok(Exit::Answered)
}

/// Describes the turn for a user who gave no number.
fn told(turn: &Turn) -> String {
    let time: String = turn.about.time.replace('T', " ").chars().take(16).collect();
    let files = match turn.entries.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let session = harmless(&turn.about.session).replace('\n', "?");
    format!(
        "turn {} of {time} in `{session}`, {files}; changes by commands are not included",
        turn.id
    )
}

/// True if `turn` ran in the directory `here` or in one around it, or changed files beneath `here`. Directories around
/// it that contain the home directory do not count, since they are not one project.
fn concerns(turn: &Turn, here: &Path, home: &Path) -> bool {
    let about = &turn.about;
    let is_inside = here.starts_with(&about.directory) && !home.starts_with(&about.directory);
    let is_touched = || {
        turn.entries
            .iter()
            .any(|entry| entry.path.starts_with(here))
    };
    about.directory == here || about.from == here || is_inside || is_touched()
}

fn objection((path, what): &(PathBuf, &'static str)) -> String {
    format!("`{}`: {what}", shown(path))
}

/// A path, relative to the current directory if it is beneath it.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(here).unwrap_or(path);
    // A line break in a name must not start a new line.
    harmless(&path.display().to_string()).replace('\n', "?")
}

/// The turn to revert or redo.
fn chosen<'a>(ctx: &Context, turns: &'a [Turn], id: Option<u64>, way: Way) -> Result<&'a Turn> {
    if let Some(id) = id {
        let turn = turns.iter().find(|turn| turn.id == id).ok_or_else(|| {
            fail_hint(
                Exit::NoInput,
                format!("there is no turn {id} to undo"),
                "`nanobot undo --list`",
            )
        })?;
        return match (way, turn.undone.is_some()) {
            (Way::Forth, false) => {
                let cause = format!("turn {id} is not undone");
                Err(fail_hint(Exit::NoInput, cause, "nanobot undo --list"))
            }
            _ => Ok(turn),
        };
    }
    let here = std::env::current_dir().unwrap_or_default();
    // The journal contains resolved paths.
    let home = &ctx.paths.home;
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.clone());
    let mut ours = turns.iter().filter(|turn| concerns(turn, &here, &home));
    let (found, what) = match way {
        Way::Back => (ours.find(|turn| turn.undone.is_none()), "undo"),
        // The turn reverted last; of several reverted at the same instant, the oldest.
        Way::Forth => (
            ours.filter(|turn| turn.undone.is_some())
                .max_by(|one, other| one.undone.cmp(&other.undone).then(other.id.cmp(&one.id))),
            "redo",
        ),
    };
    found.ok_or_else(|| {
        let cause = format!("there is nothing to {what} in this directory");
        match turns.is_empty() {
            true => fail(Exit::NoInput, cause),
            false => fail_hint(
                Exit::NoInput,
                cause,
                "`nanobot undo --list`, and `nanobot undo TURN` for a turn in another directory",
            ),
        }
    })
}

fn listed(ctx: &Context, turns: &[Turn], as_json: bool) -> String {
    if as_json {
        let line = |turn: &Turn| {
            let paths: Vec<String> = turn
                .entries
                .iter()
                .map(|entry| entry.path.display().to_string())
                .collect();
            let line = json!({
                "id": turn.id,
                "turn": turn.about.turn,
                "session": turn.about.session,
                "time": turn.about.time,
                "directory": turn.about.directory.display().to_string(),
                "paths": paths,
                "undone": turn.undone,
            });
            format!("{line}\n")
        };
        return turns.iter().map(line).collect();
    }
    if turns.is_empty() {
        ctx.notice("no turn has changed a file");
    }
    let columns = [
        ("TURN", Side::Right),
        ("TIME", Side::Left),
        ("FILES", Side::Right),
        ("", Side::Left),
        ("SESSION", Side::Left),
        ("DIRECTORY", Side::Left),
    ];
    let row = |turn: &Turn| {
        let time = turn.about.time.replace('T', " ");
        vec![
            turn.id.to_string(),
            time.chars().take(16).collect(),
            turn.entries.len().to_string(),
            turn.undone.as_ref().map_or("", |_| "undone").to_owned(),
            harmless(&turn.about.session),
            harmless(&ctx.paths.display(&turn.about.directory)),
        ]
    };
    let rows: Vec<Vec<String>> = turns.iter().map(row).collect();
    aligned(&columns, &rows)
        .into_iter()
        .map(|line| format!("{line}\n"))
        .collect()
}
