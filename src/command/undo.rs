//! `nanobot undo`: undoes the changes of a turn, and redoes them.

use crate::cli::undo::UndoArgs;
use crate::ops::context::Context;
use crate::ops::pager;
use crate::ops::undo::{self, UndoRequest, display_path};
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::Exit;
use nanobot_os::terminal::{StdoutWriter, sanitize, theme};
use nanobot_store::session;
use nanobot_tool::undo::journal::UndoTurn;
use nanobot_tool::undo::restore::{RestoreDirection, RestoreStep};
use serde_json::json;

/// Prints the changes of files by the conversation in the session `key`: of its last turn with changes, or of all turns.
pub(super) fn print_diff(ctx: &Context, key: &str, of_all_turns: bool) -> Result<()> {
    let sessions = ctx.session_store(&ctx.settings()?)?;
    let turns = session::read_conversation_turns(&sessions, key)?;
    let text = undo::diff(ctx, &turns, of_all_turns)?;
    if text.is_empty() {
        ctx.notice("the files are as they were before");
    }
    let mut writer = StdoutWriter::for_page(ctx.terminal);
    for line in text.split_inclusive('\n') {
        writer.write_styled(line, &theme::diff_line(line))?;
    }
    pager::show(&ctx.env, ctx.terminal, writer)
}

/// Runs `nanobot undo`; in the REPL within its `session`: the last turn is that of this session, a turn of another one is undone only if
/// its number is given, and the turn is a part of the result.
pub fn run(ctx: &Context, arguments: &UndoArgs, session: Option<&str>) -> Result<Exit> {
    let report = |text: &str| {
        if session.is_some() {
            return ctx.terminal.print(&format!("{text}\n"));
        }
        ctx.notice(text);
        Ok(())
    };
    let UndoArgs { turn, list, json, dry_run, redo, force } = arguments;
    if *list {
        print_turns(ctx, &undo::list_turns(ctx)?, *json)?;
        return Ok(Exit::Answered);
    }
    let request = UndoRequest {
        turn: turn.as_deref(),
        direction: if *redo { RestoreDirection::Redo } else { RestoreDirection::Undo },
        is_dry_run: *dry_run,
        force: *force,
        session,
        report: &report,
    };
    let steps = undo::undo(ctx, &request)?;
    let line = |step: &RestoreStep| {
        let verb = match (step, dry_run) {
            (RestoreStep::Restore(_), false) => "restored",
            (RestoreStep::Restore(_), true) => "would restore",
            (RestoreStep::Remove(_), false) => "removed",
            (RestoreStep::Remove(_), true) => "would remove",
        };
        format!("{verb} {}\n", display_path(step.path()))
    };
    ctx.terminal.print(&steps.iter().map(line).collect::<String>())?;
    Ok(Exit::Answered)
}

fn print_turns(ctx: &Context, turns: &[UndoTurn], as_json: bool) -> Result<()> {
    if as_json {
        return ctx.terminal.print_json_lines(turns.iter().map(|turn| {
            let paths: Vec<String> =
                turn.changed_paths.iter().map(|entry| entry.path.display().to_string()).collect();
            let gaps: Vec<String> = turn.gaps.iter().map(ToString::to_string).collect();
            json!({
                "id": turn.id, "turn": turn.info.turn, "session": turn.info.session,
                "time": ctx.clock.to_rfc3339(&turn.info.time), "directory": turn.info.directory.display().to_string(),
                "paths": paths, "gaps": gaps, "undone": turn.undone_at.as_deref().and_then(|time| ctx.clock.to_rfc3339(time)),
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
        ("", Side::Left, &|turn| state_of(turn).to_owned()),
        ("SESSION", Side::Left, &|turn| sanitize(&turn.info.session)),
        ("DIRECTORY", Side::Left, &|turn| sanitize(&ctx.paths.display(&turn.info.directory))),
    ];
    ctx.terminal.print(&format_table(turns, &columns, None))
}

/// A note about a turn that is undone, or cannot be.
fn state_of(turn: &UndoTurn) -> &'static str {
    if turn.undone_at.is_some() {
        "undone"
    } else if turn.gaps.is_empty() {
        ""
    } else if turn.has_changes() {
        "in part"
    } else {
        "cannot be undone"
    }
}
