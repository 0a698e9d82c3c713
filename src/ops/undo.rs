//! Undoes the changes of a turn, and redoes them.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, HintPart, UserAction, fail, fail_with_hint, fail_with_parts};
use nanobot_base::format::{list_first, on_one_line};
use nanobot_os::age::Age;
use nanobot_os::durable_file;
use nanobot_os::terminal::sanitize;
use nanobot_store::session;
use nanobot_tool::undo::UndoStore;
use nanobot_tool::undo::journal::UndoTurn;
use nanobot_tool::undo::restore::{RestoreDirection, RestorePlan, RestoreStep};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Unchanged lines around each change in a diff.
const DIFF_CONTEXT_LINES: usize = 3;

/// The turn to undo or redo.
pub(crate) struct UndoRequest<'a> {
    /// The number or the id of the turn; `None` for the last turn of the current directory.
    pub(crate) turn: Option<&'a str>,
    pub(crate) direction: RestoreDirection,
    pub(crate) is_dry_run: bool,
    /// True if later changes are overwritten.
    pub(crate) force: bool,
    /// Checks that a turn may be selected without its number.
    pub(crate) check_chosen: &'a dyn Fn(&UndoTurn) -> Result<()>,
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

/// Checks that `turn` belongs to the conversation `session`.
///
/// # Errors
/// Status 66 if it does not.
pub(crate) fn require_session(turn: &UndoTurn, session: Option<&str>) -> Result<()> {
    if session == Some(turn.info.session.as_str()) {
        return Ok(());
    }
    Err(fail_with_hint(
        Exit::NoInput,
        format!(
            "this session changed no files that can be restored; the last change here is of another session: {}",
            describe_turn(turn)
        ),
        format!("`/undo {}` to undo that turn, `/undo --list` for all", turn.id),
    ))
}

/// The files that a conversation has changed, as a unified diff from before its last turn with changes, or before its first
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
        return Err(fail_with_hint(
            Exit::NoInput,
            "this conversation has changed no files, or only some that cannot be restored",
            "`/undo --list` for all turns",
        ));
    }
    // The newest turn comes first, so the state before the oldest one stays.
    let mut first_changes = BTreeMap::new();
    for turn in &turns {
        for (index, entry) in turn.changed_paths.iter().enumerate() {
            first_changes.insert(&entry.path, (turn, index));
        }
    }
    let mut text = String::new();
    for (path, (turn, index)) in first_changes {
        let before = turn.read_before(index)?;
        let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
        let now = if is_file { durable_file::read(path)?.unwrap_or_default() } else { Vec::new() };
        text.push_str(&diff_file(path, &before, &now));
    }
    Ok(text)
}

/// The largest file of which a diff is made, in bytes.
const MAX_DIFF_BYTES: usize = 1 << 20;

fn diff_file(path: &Path, before: &[u8], now: &[u8]) -> String {
    let name = display_path(path);
    let texts = (std::str::from_utf8(before), std::str::from_utf8(now));
    match texts {
        (Ok(before), Ok(now)) if before.len().max(now.len()) <= MAX_DIFF_BYTES => {
            let header = |text: &str| if text.is_empty() { "/dev/null" } else { &name };
            let (old_name, new_name) = (header(before), header(now));
            Diff::new(before, now).unified_with_header(DIFF_CONTEXT_LINES, old_name, new_name)
        }
        _ if before == now => String::new(),
        _ => format!("{name}: changed, but large or not text\n"),
    }
}

/// Undoes or redoes the changes of a turn, and adds a note to its conversation. Returns the steps, which a dry run does not
/// execute.
///
/// # Errors
/// There is no such turn, nothing of it can be taken back, or files have changed since.
pub(crate) fn undo(ctx: &Context, request: &UndoRequest<'_>) -> Result<Vec<RestoreStep>> {
    let turns = list_turns(ctx)?;
    let turn = choose_turn(ctx, &turns, request.turn, request.direction)?;
    if request.turn.is_none() {
        (request.check_chosen)(turn)?;
    }
    let plan = RestorePlan::new(turn, request.direction)?;
    let gaps: Vec<String> =
        turn.gaps.iter().map(|gap| sanitize(&gap.to_string()).replace('\n', "?")).collect();
    if request.direction == RestoreDirection::Undo && !turn.has_changes() {
        let cause = format!(
            "{} cannot be taken back: {}",
            name_turn(turn),
            list_first(&gaps, MAX_LISTED_PATHS)
        );
        return Err(match find_older(ctx, &turns, turn) {
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
    let mut conflicts: Vec<String> =
        plan.blocked.iter().map(|(path, problem)| describe_conflict(path, problem)).collect();
    if !request.force {
        conflicts
            .extend(plan.conflicts.iter().map(|(path, problem)| describe_conflict(path, problem)));
    }
    if !conflicts.is_empty() {
        let cause = format!(
            "nothing was done, because files have changed since turn {}: {}",
            turn.id,
            conflicts.join("; ")
        );
        return Err(if plan.blocked.is_empty() {
            fail_with_hint(Exit::Failed, cause, "`--force` to overwrite these changes")
        } else {
            fail(Exit::Failed, cause)
        });
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
            "{}: changed by a command; if you wrote there at the same time, that is undone too, and `nanobot undo --redo {}` brings it back",
            list_first(&during_command, MAX_LISTED_PATHS),
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
    name: Option<&str>,
    direction: RestoreDirection,
) -> Result<&'a UndoTurn> {
    if let Some(name) = name {
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
            [
                list_action(),
                ", and ".into(),
                UserAction::Undo("TURN".into()).into(),
                ", which work in any directory".into(),
            ],
        )
    })?;
    let home = real_home(ctx);
    let mut candidates = turns.iter().filter(|turn| concerns(turn, &directory, &home));
    let (turn, verb) = match direction {
        RestoreDirection::Undo => (candidates.find(|turn| turn.undone_at.is_none()), "undo"),
        // The turn reverted last; of several reverted at the same instant, the oldest.
        RestoreDirection::Redo => (
            candidates.filter(|turn| turn.undone_at.is_some()).max_by(|one, other| {
                one.undone_at.cmp(&other.undone_at).then(other.id.cmp(&one.id))
            }),
            "redo",
        ),
    };
    turn.ok_or_else(|| {
        let cause = format!("there is nothing to {verb} in this directory");
        if turns.is_empty() {
            fail(Exit::NoInput, cause)
        } else {
            fail_with_parts(
                Exit::NoInput,
                cause,
                [
                    list_action(),
                    ", and ".into(),
                    UserAction::Undo("TURN".into()).into(),
                    " for a turn in another directory".into(),
                ],
            )
        }
    })
}

/// The part of a hint that lists the turns.
fn list_action() -> HintPart {
    UserAction::Undo("--list".into()).into()
}

/// The last turn of the current directory before `turn` that can be undone.
fn find_older<'a>(ctx: &Context, turns: &'a [UndoTurn], turn: &UndoTurn) -> Option<&'a UndoTurn> {
    let directory = std::env::current_dir().ok()?;
    let home = real_home(ctx);
    turns.iter().find(|older| {
        older.id < turn.id
            && older.undone_at.is_none()
            && older.has_changes()
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
    let session = sanitize(&turn.info.session).replace('\n', "?");
    format!("turn {} of {time} in `{session}`", turn.id)
}

fn describe_conflict(path: &Path, problem: &str) -> String {
    format!("`{}`: {problem}", display_path(path))
}

/// A path, relative to the current directory if it is beneath it.
pub(crate) fn display_path(path: &Path) -> String {
    let directory = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(directory).unwrap_or(path);
    // A line break in a name must not start a new line.
    sanitize(&path.display().to_string()).replace('\n', "?")
}
