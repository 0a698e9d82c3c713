//! `nanobot undo`: reverts the changes that a turn made with its file tools, and redoes them.

use crate::cli::undo::UndoArgs as Arguments;
use crate::error::{Exit, fail, fail_with_hint};
use crate::format::on_one_line;
use crate::ops::context::Context;
use crate::report::columns::{Column, Side, format_table};
use crate::session;
use crate::sys::terminal::sanitize;
use crate::undo::UndoStore;
use crate::undo::journal::UndoTurn;
use crate::undo::restore::{RestoreDirection, RestorePlan, RestoreStep};
use anyhow::Result;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Runs `nanobot undo`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    undo_or_redo(ctx, arguments, None)
}

/// As [`run`], but within the conversation `session`: the turn of another one is reverted only if its number is given.
pub(super) fn run_in_session(
    ctx: &Context,
    arguments: &Arguments,
    session: Option<&str>,
) -> Result<Exit> {
    let owns = |turn: &UndoTurn| match session {
        Some(session) if turn.info.session == session => Ok(()),
        _ => Err(fail_with_hint(
            Exit::NoInput,
            format!(
                "this session changed no files that can be restored; the last change here is of another session: {}",
                describe_turn(turn)
            ),
            format!("`/undo {}` to undo that turn, `/undo --list` for all", turn.id),
        )),
    };
    undo_or_redo(ctx, arguments, Some(&owns))
}

/// Checks that a turn without a given number may be chosen.
type TurnCheck<'a> = &'a dyn Fn(&UndoTurn) -> Result<()>;

fn undo_or_redo(ctx: &Context, arguments: &Arguments, owns: Option<TurnCheck<'_>>) -> Result<Exit> {
    let Arguments { turn, list, json, dry_run, redo, force } = arguments;
    let (dry_run, redo, force) = (*dry_run, *redo, *force);
    let mut odd = |id: u64, error: &anyhow::Error| {
        ctx.notice(&format!("skipped turn {id}: {error:#}"));
    };
    let turns = UndoStore::new(ctx.paths.undo()).turns(&mut odd)?;
    if *list {
        print_turns(ctx, &turns, *json)?;
        return Ok(Exit::Answered);
    }
    let way = if redo { RestoreDirection::Redo } else { RestoreDirection::Undo };
    let is_found = turn.is_none();
    let turn = choose_turn(ctx, &turns, turn.as_deref(), way)?;
    if let Some(owns) = owns.filter(|_| is_found) {
        owns(turn)?;
    }
    let plan = RestorePlan::new(turn, way)?;
    let mut wrong: Vec<String> = plan.blocked.iter().map(describe_conflict).collect();
    if !force {
        wrong.extend(plan.conflicts.iter().map(describe_conflict));
    }
    if !wrong.is_empty() {
        let cause = format!(
            "nothing was done, because files have changed since turn {}: {}",
            turn.id,
            wrong.join("; ")
        );
        return Err(if plan.blocked.is_empty() {
            fail_with_hint(Exit::Failed, cause, "`--force` to overwrite these changes")
        } else {
            fail(Exit::Failed, cause)
        });
    }
    let steps = plan.steps();
    if is_found {
        // The last turn may only have run commands, so say which turn was chosen.
        ctx.notice(&describe_turn(turn));
    }
    let during_command: Vec<String> = turn
        .changed_paths
        .iter()
        .filter(|entry| entry.during_command && steps.iter().any(|step| step.path() == entry.path))
        .map(|entry| format!("`{}`", display_path(&entry.path)))
        .collect();
    if way == RestoreDirection::Undo && !during_command.is_empty() {
        ctx.notice(&format!(
            "{} changed while a command ran; what you wrote there meanwhile is undone too, and `nanobot undo --redo {}` brings it back",
            list_some(&during_command),
            turn.id
        ));
    }
    if !dry_run {
        plan.execute(&ctx.clock.local_timestamp())?;
        tell_model(ctx, turn, way, &steps);
    }
    let line = |step: &RestoreStep| {
        let (verb, path) = match (step, dry_run) {
            (RestoreStep::Restore(path), false) => ("restored", path),
            (RestoreStep::Restore(path), true) => ("would restore", path),
            (RestoreStep::Remove(path), false) => ("removed", path),
            (RestoreStep::Remove(path), true) => ("would remove", path),
        };
        format!("{verb} {}\n", display_path(path))
    };
    let text: String = steps.iter().map(line).collect();
    if text.is_empty() {
        ctx.notice(&format!("nothing to change for turn {}", turn.id));
    }
    ctx.terminal.print(&text)?;
    Ok(Exit::Answered)
}

/// Maximum number of paths that a line names.
const MAX_LISTED_PATHS: usize = 8;

fn list_some(items: &[String]) -> String {
    let more = match items.len().saturating_sub(MAX_LISTED_PATHS) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    items[..items.len().min(MAX_LISTED_PATHS)].join(", ") + &more
}

/// Leaves a line for the next message of the conversation that changed the files, which else goes on from a wrong state.
fn tell_model(ctx: &Context, turn: &UndoTurn, way: RestoreDirection, steps: &[RestoreStep]) {
    let name = |step: &RestoreStep| {
        let path = step.path().strip_prefix(&turn.info.directory).unwrap_or(step.path());
        format!("`{}`", on_one_line(path))
    };
    let names: Vec<String> = steps.iter().map(name).collect();
    if names.is_empty() {
        return;
    }
    let what = match way {
        RestoreDirection::Undo => {
            "has undone file changes of this conversation; as before them again"
        }
        RestoreDirection::Redo => {
            "has redone undone file changes of this conversation; changed again"
        }
    };
    let note = format!("[The user {what}: {}]", list_some(&names));
    let told = ctx
        .settings()
        .and_then(|settings| ctx.session_store(&settings))
        .and_then(|store| session::add_undo_note(&store, &turn.info.session, &note));
    if let Err(error) = told {
        ctx.notice(&format!("the conversation is not told about it: {error:#}"));
    }
}

/// Describes the turn for a user who gave no number.
fn describe_turn(turn: &UndoTurn) -> String {
    let time: String = turn.info.time.replace('T', " ").chars().take(16).collect();
    let files = match turn.changed_paths.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let session = sanitize(&turn.info.session).replace('\n', "?");
    format!("turn {} of {time} in `{session}`, {files}", turn.id)
}

/// True if `turn` ran in the directory `here` or in one around it, or changed files beneath `here`. Directories around
/// it that contain the home directory do not count, since they are not one project.
fn concerns(turn: &UndoTurn, here: &Path, home: &Path) -> bool {
    let about = &turn.info;
    let is_inside = here.starts_with(&about.directory) && !home.starts_with(&about.directory);
    let is_touched = || turn.changed_paths.iter().any(|entry| entry.path.starts_with(here));
    about.directory == here || about.started_in == here || is_inside || is_touched()
}

fn describe_conflict((path, what): &(PathBuf, &'static str)) -> String {
    format!("`{}`: {what}", display_path(path))
}

/// A path, relative to the current directory if it is beneath it.
fn display_path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(here).unwrap_or(path);
    // A line break in a name must not start a new line.
    sanitize(&path.display().to_string()).replace('\n', "?")
}

/// The turn to revert or redo.
fn choose_turn<'a>(
    ctx: &Context,
    turns: &'a [UndoTurn],
    name: Option<&str>,
    way: RestoreDirection,
) -> Result<&'a UndoTurn> {
    if let Some(name) = name {
        // A number is at most as long as the id of a turn, which may have only digits.
        let is_named = |turn: &&UndoTurn| name == turn.info.turn || name.parse() == Ok(turn.id);
        let turn = turns.iter().find(is_named).ok_or_else(|| {
            fail_with_hint(
                Exit::NoInput,
                format!("there is no turn {name} to undo"),
                "`nanobot undo --list`",
            )
        })?;
        return match (way, turn.undone_at.is_some()) {
            (RestoreDirection::Redo, false) => {
                let cause = format!("turn {} is not undone", turn.id);
                Err(fail_with_hint(Exit::NoInput, cause, "`nanobot undo --list`"))
            }
            (RestoreDirection::Undo, true) => Err(fail_with_hint(
                Exit::NoInput,
                format!("turn {} is already undone", turn.id),
                format!("`nanobot undo --redo {}`, which takes that back", turn.id),
            )),
            _ => Ok(turn),
        };
    }
    let here = std::env::current_dir().map_err(|error| {
        fail_with_hint(
            Exit::NoInput,
            format!("the current directory cannot be found: {error}"),
            "`nanobot undo --list`, and `nanobot undo TURN`, which work in any directory",
        )
    })?;
    // The journal contains resolved paths.
    let home = &ctx.paths.home;
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.clone());
    let mut ours = turns.iter().filter(|turn| concerns(turn, &here, &home));
    let (found, what) = match way {
        RestoreDirection::Undo => (ours.find(|turn| turn.undone_at.is_none()), "undo"),
        // The turn reverted last; of several reverted at the same instant, the oldest.
        RestoreDirection::Redo => (
            ours.filter(|turn| turn.undone_at.is_some()).max_by(|one, other| {
                one.undone_at.cmp(&other.undone_at).then(other.id.cmp(&one.id))
            }),
            "redo",
        ),
    };
    found.ok_or_else(|| {
        let cause = format!("there is nothing to {what} in this directory");
        if turns.is_empty() {
            fail(Exit::NoInput, cause)
        } else {
            fail_with_hint(
                Exit::NoInput,
                cause,
                "`nanobot undo --list`, and `nanobot undo TURN` for a turn in another directory",
            )
        }
    })
}

fn print_turns(ctx: &Context, turns: &[UndoTurn], as_json: bool) -> Result<()> {
    if as_json {
        return ctx.terminal.print_json_lines(turns.iter().map(|turn| {
            let paths: Vec<String> =
                turn.changed_paths.iter().map(|entry| entry.path.display().to_string()).collect();
            json!({
                "id": turn.id, "turn": turn.info.turn, "session": turn.info.session,
                "time": ctx.clock.to_rfc3339(&turn.info.time), "directory": turn.info.directory.display().to_string(),
                "paths": paths, "undone": turn.undone_at.as_deref().map(|time| ctx.clock.to_rfc3339(time)),
            })
        }));
    }
    if turns.is_empty() {
        ctx.explain_empty("no turn has changed a file");
    }
    let columns: [Column<'_, UndoTurn>; 6] = [
        ("TURN", Side::Right, &|turn| turn.id.to_string()),
        ("TIME", Side::Left, &|turn| turn.info.time.replace('T', " ").chars().take(16).collect()),
        ("FILES", Side::Right, &|turn| turn.changed_paths.len().to_string()),
        ("", Side::Left, &|turn| turn.undone_at.as_ref().map_or("", |_| "undone").to_owned()),
        ("SESSION", Side::Left, &|turn| sanitize(&turn.info.session)),
        ("DIRECTORY", Side::Left, &|turn| sanitize(&ctx.paths.display(&turn.info.directory))),
    ];
    ctx.terminal.print(&format_table(turns, &columns, None))
}
