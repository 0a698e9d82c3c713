//! Undoes the changes of a turn, and redoes them.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, HintPart, UserAction, WithHint, fail, fail_with_parts};
use nanobot_base::format::{list_first, on_one_line};
use nanobot_os::age::Age;
use nanobot_os::terminal::sanitize_line;
use nanobot_store::session;
use nanobot_tool::git_patch::turn_diff::format_path_diff;
use nanobot_tool::undo::UndoStore;
use nanobot_tool::undo::journal::UndoTurn;
use nanobot_tool::undo::restore::{RestoreDirection, RestorePlan, RestoreStep};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The turn to undo or redo.
pub(crate) struct UndoRequest<'a> {
    /// The number or the id of the turn; `None` for the last turn of the current directory.
    pub(crate) turn: Option<&'a str>,
    pub(crate) direction: RestoreDirection,
    pub(crate) is_dry_run: bool,
    /// True if later changes are overwritten.
    pub(crate) force: bool,
    /// The session whose last turn it is; `None` for that of any session. A number names a turn of any.
    pub(crate) session: Option<&'a str>,
    /// Reports which turn was selected without its number, and that a turn needs no change.
    pub(crate) report: &'a dyn Fn(&str) -> Result<()>,
}

/// The turns that have changed files, or may have, the last one first.
///
/// # Errors
/// The journal cannot be read. A turn that cannot be read is reported and left out.
pub(crate) fn list_turns(ctx: &Context) -> Result<Vec<UndoTurn>> {
    // Only a turn removes old ones.
    let store = UndoStore::new(ctx.paths.undo(), Age::Never);
    store.turns(&mut |id: u64, error: &anyhow::Error| {
        ctx.notice(&format!("skipped turn {id}: {error:#}"));
    })
}

/// The files that a conversation has changed, as a patch of git from before its last turn with changes, or before its first
/// one, to now. Turns that were undone do not count.
///
/// # Errors
/// Status 66 if no turn of it has changed files that can be restored. A file cannot be read.
pub(crate) fn diff(
    ctx: &Context,
    conversation_turns: &HashSet<String>,
    begins_with_first: bool,
) -> Result<String> {
    let mut turns = list_turns(ctx)?;
    turns.retain(|turn| {
        conversation_turns.contains(&turn.info.turn)
            && turn.undone_at.is_none()
            && !turn.changed_paths.is_empty()
    });
    turns.truncate(if begins_with_first { usize::MAX } else { 1 });
    if turns.is_empty() {
        let cause = "this conversation has changed no files, or only some that cannot be restored";
        return Err(fail(Exit::NoInput, cause).with_hint("`/undo --list` for all turns"));
    }
    // The newest turn comes first, so the state before the oldest one stays.
    let mut first_changes = BTreeMap::new();
    for turn in &turns {
        for (index, entry) in turn.changed_paths.iter().enumerate() {
            first_changes.insert(&entry.path, (turn, index));
        }
    }
    let mut text = String::new();
    let directory = std::env::current_dir().unwrap_or_default();
    for (path, (turn, index)) in first_changes {
        let name = path.strip_prefix(&directory).unwrap_or(path);
        text.push_str(&format_path_diff(turn, index, name)?);
    }
    Ok(text)
}

/// Undoes or redoes the changes of a turn, and adds a note to its conversation. Returns the steps, which a dry run does not
/// execute.
///
/// # Errors
/// There is no such turn, nothing of it can be taken back, or files have changed since.
pub(crate) fn undo(ctx: &Context, request: &UndoRequest<'_>) -> Result<Vec<RestoreStep>> {
    let turns = list_turns(ctx)?;
    let turn = choose_turn(ctx, &turns, request)?;
    let plan = RestorePlan::new(turn, &turns, request.direction)?;
    let gaps: Vec<String> = turn.gaps.iter().map(|gap| sanitize_line(&gap.to_string())).collect();
    if request.direction == RestoreDirection::Undo && !turn.has_changes() {
        let cause = format!(
            "{} cannot be taken back: {}",
            name_turn(turn),
            list_first(&gaps, MAX_LISTED_PATHS)
        );
        return Err(match find_older(ctx, &turns, turn, request.session) {
            Some(older) => fail_with_parts(
                Exit::Failed,
                cause,
                [
                    UserAction::Undo(older.id.to_string()).into(),
                    format!(" to take back {}", describe_turn(older)).into(),
                ],
            ),
            None => fail(Exit::Failed, cause),
        });
    }
    let conflicts = plan.blocked.iter().chain(plan.conflicts.iter().filter(|_| !request.force));
    let conflicts: Vec<String> =
        conflicts.map(|(path, problem)| format!("`{}`: {problem}", display_path(path))).collect();
    if !conflicts.is_empty() {
        let conflicts = conflicts.join("; ");
        let cause = format!(
            "nothing was done, because files have changed since turn {}: {conflicts}",
            turn.id
        );
        let error = fail(Exit::Failed, cause);
        let may_force = plan.blocked.is_empty();
        let hint = "`--force` to overwrite these changes";
        return Err(if may_force { error.with_hint(hint) } else { error });
    }
    let steps = plan.steps();
    if request.turn.is_none() {
        // The last turn may have changed no files, so say which turn was selected.
        (request.report)(&describe_turn(turn))?;
    }
    if request.direction == RestoreDirection::Undo && !gaps.is_empty() {
        ctx.notice(&format!("not taken back: {}", list_first(&gaps, MAX_LISTED_PATHS)));
    }
    let during_command: Vec<String> = turn
        .changed_paths
        .iter()
        .filter(|entry| entry.during_command && steps.iter().any(|step| step.path() == entry.path))
        .map(|entry| format!("`{}`", display_path(&entry.path)))
        .collect();
    if request.direction == RestoreDirection::Undo && !during_command.is_empty() {
        ctx.notice(&format!(
            "{}: changed by a command; if you wrote there at the same time, that is undone too, and `{}undo --redo {}` brings it back",
            list_first(&during_command, MAX_LISTED_PATHS),
            if request.session.is_some() { "/" } else { "nanobot " },
            turn.id
        ));
    }
    if !request.is_dry_run {
        plan.execute(&ctx.clock.local_timestamp())?;
        add_note(ctx, turn, request.direction, &steps);
    }
    if steps.is_empty() {
        (request.report)(&format!("nothing to change for turn {}", turn.id))?;
    }
    Ok(steps)
}

/// The turn to undo or redo.
fn choose_turn<'a>(
    ctx: &Context,
    turns: &'a [UndoTurn],
    request: &UndoRequest<'_>,
) -> Result<&'a UndoTurn> {
    let direction = request.direction;
    if let Some(name) = request.turn {
        // A number is at most as long as the id of a turn, which may have only digits.
        let is_named = |turn: &&UndoTurn| name == turn.info.turn || name.parse() == Ok(turn.id);
        let turn = turns.iter().find(is_named).ok_or_else(|| {
            fail_with_parts(
                Exit::NoInput,
                format!("there is no turn {name} to undo"),
                [list_action()],
            )
        })?;
        return match (direction, turn.undone_at.is_some()) {
            (RestoreDirection::Redo, false) => {
                let cause = format!("turn {} is not undone", turn.id);
                Err(fail_with_parts(Exit::NoInput, cause, [list_action()]))
            }
            (RestoreDirection::Undo, true) => Err(fail_with_parts(
                Exit::NoInput,
                format!("turn {} is already undone", turn.id),
                [
                    UserAction::Undo(format!("--redo {}", turn.id)).into(),
                    ", which takes that back".into(),
                ],
            )),
            _ => Ok(turn),
        };
    }
    let directory = std::env::current_dir().map_err(|error| {
        fail_with_parts(
            Exit::NoInput,
            format!("the current directory cannot be found: {error}"),
            list_or_turn(", which work in any directory"),
        )
    })?;
    let home = real_home(ctx);
    let here: Vec<&UndoTurn> =
        turns.iter().filter(|turn| concerns(turn, &directory, &home)).collect();
    let (own, of_others): (Vec<&UndoTurn>, Vec<&UndoTurn>) =
        here.into_iter().partition(|turn| is_of_session(turn, request.session));
    if let Some(turn) = last_turn(&own, direction) {
        return Ok(turn);
    }
    let verb = match direction {
        RestoreDirection::Undo => "undo",
        RestoreDirection::Redo => "redo",
    };
    if let Some(other) = last_turn(&of_others, direction) {
        let flag = if direction == RestoreDirection::Redo { "--redo " } else { "" };
        let (turn, id) = (describe_turn(other), other.id);
        let cause = format!(
            "this session has nothing to {verb} here; the last turn that has is of another session: {turn}"
        );
        return Err(fail(Exit::NoInput, cause)
            .with_hint(format!("`/undo {flag}{id}` to {verb} that turn, `/undo --list` for all")));
    }
    let cause = format!("there is nothing to {verb} in this directory");
    Err(if turns.is_empty() {
        fail(Exit::NoInput, cause)
    } else {
        fail_with_parts(Exit::NoInput, cause, list_or_turn(" for a turn in another directory"))
    })
}

/// The turn made last of those that are not undone, or the one undone last; of several that were undone at the same instant, the
/// oldest.
fn last_turn<'a>(turns: &[&'a UndoTurn], direction: RestoreDirection) -> Option<&'a UndoTurn> {
    let mut turns = turns.iter().copied();
    match direction {
        RestoreDirection::Undo => turns.find(|turn| turn.undone_at.is_none()),
        RestoreDirection::Redo => turns
            .filter(|turn| turn.undone_at.is_some())
            .max_by(|one, other| one.undone_at.cmp(&other.undone_at).then(other.id.cmp(&one.id))),
    }
}

/// True if `turn` is one of `session`, or if any session will do.
fn is_of_session(turn: &UndoTurn, session: Option<&str>) -> bool {
    session.is_none_or(|session| turn.info.session == session)
}

/// The part of a hint that lists the turns.
fn list_action() -> HintPart {
    UserAction::Undo("--list".into()).into()
}

/// The hint that lists the turns, and names one of them.
fn list_or_turn(rest: &str) -> [HintPart; 4] {
    [list_action(), ", and ".into(), UserAction::Undo("TURN".into()).into(), rest.into()]
}

/// The last turn of the current directory before `turn` that can be undone.
fn find_older<'a>(
    ctx: &Context,
    turns: &'a [UndoTurn],
    turn: &UndoTurn,
    session: Option<&str>,
) -> Option<&'a UndoTurn> {
    let directory = std::env::current_dir().ok()?;
    let home = real_home(ctx);
    turns.iter().find(|older| {
        older.id < turn.id
            && older.undone_at.is_none()
            && older.has_changes()
            && is_of_session(older, session)
            && concerns(older, &directory, &home)
    })
}

/// The home directory as the journal has it, which contains resolved paths.
fn real_home(ctx: &Context) -> PathBuf {
    let home = &ctx.paths.home;
    std::fs::canonicalize(home).unwrap_or_else(|_| home.clone())
}

/// True if `turn` ran in `directory` or in a parent of it, or changed files beneath it. Parents that contain the home directory are left
/// out, because they are not a project.
fn concerns(turn: &UndoTurn, directory: &Path, home: &Path) -> bool {
    let info = &turn.info;
    info.directory == directory
        || info.started_in == directory
        || directory.starts_with(&info.directory) && !home.starts_with(&info.directory)
        || turn.changed_paths.iter().any(|entry| entry.path.starts_with(directory))
        || turn.gaps.iter().any(|gap| gap.path.starts_with(directory))
}

/// Adds a note to the next message of the conversation that changed the files. Without it, the model would assume that the files are
/// unchanged.
fn add_note(ctx: &Context, turn: &UndoTurn, direction: RestoreDirection, steps: &[RestoreStep]) {
    let name = |step: &RestoreStep| {
        let path = step.path().strip_prefix(&turn.info.directory).unwrap_or(step.path());
        format!("`{}`", on_one_line(path))
    };
    let names: Vec<String> = steps.iter().map(name).collect();
    if names.is_empty() {
        return;
    }
    let action = match direction {
        RestoreDirection::Undo => {
            "has undone file changes of this conversation; as before them again"
        }
        RestoreDirection::Redo => {
            "has redone undone file changes of this conversation; changed again"
        }
    };
    let note = format!("[The user {action}: {}]", list_first(&names, MAX_LISTED_PATHS));
    let result = ctx
        .settings()
        .and_then(|settings| ctx.session_store(&settings))
        .and_then(|store| session::add_undo_note(&store, &turn.info.session, &note));
    if let Err(error) = result {
        ctx.notice(&format!("the conversation has no note about it: {error:#}"));
    }
}

/// Maximum number of paths that a line names.
const MAX_LISTED_PATHS: usize = 8;

/// Describes the turn for a user who gave no number.
fn describe_turn(turn: &UndoTurn) -> String {
    let files = match turn.changed_paths.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    format!("{}, {files}", name_turn(turn))
}

fn name_turn(turn: &UndoTurn) -> String {
    let time: String = turn.info.time.replace('T', " ").chars().take(16).collect();
    let session = sanitize_line(&turn.info.session);
    format!("turn {} of {time} in `{session}`", turn.id)
}

/// A path, relative to the current directory if it is beneath it.
pub(crate) fn display_path(path: &Path) -> String {
    let directory = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(directory).unwrap_or(path);
    sanitize_line(&path.display().to_string())
}
