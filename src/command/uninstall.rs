//! `nanobot uninstall`: lists what this program left on the machine, and removes it.

use super::completions::script_of;
use super::question::confirm_at_terminal;
use crate::cli::uninstall::UninstallArgs as Arguments;
use crate::ops::context::Context;
use crate::ops::uninstall::{Installation, find_installation};
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::shell::UserShell;
use nanobot_os::terminal::sanitize;

/// Runs `nanobot uninstall`.
pub fn run(ctx: &Context, arguments: Arguments) -> Result<Exit> {
    let Arguments { dry_run, yes } = arguments;
    let shells = [UserShell::Bash, UserShell::Zsh, UserShell::Fish];
    let scripts = shells.map(|shell| {
        let path = shell.completion_path(&ctx.env, &ctx.paths);
        (path, script_of(shell))
    });
    let found = find_installation(ctx, &scripts)?;
    if !dry_run {
        found.check_unused(ctx)?;
    }
    let is_nothing = found.crontab_lines.is_empty() && found.owned.is_empty();
    if !yes || dry_run {
        ctx.terminal.print(&list(&found, "would remove"))?;
    }
    if is_nothing {
        ctx.notice("there is nothing to remove");
        return Ok(Exit::Answered);
    }
    if dry_run {
        return Ok(Exit::Answered);
    }
    let hint = "`--yes`, or `--dry-run` to list them only";
    if !(yes || confirm_at_terminal(ctx, "Remove these permanently?", hint)?) {
        ctx.notice("nothing was removed");
        return Ok(Exit::Failed);
    }
    found.remove(ctx)?;
    if !ctx.quiet {
        ctx.terminal.print(&list(&found, "removed"))?;
    }
    Ok(Exit::Answered)
}

/// One line for each place: what is removed, then what is kept.
fn list(found: &Installation, verb: &str) -> String {
    let lines = found.crontab_lines.len();
    let crontab = match lines {
        0 => None,
        1 => Some(format!("{verb} crontab: 1 line")),
        _ => Some(format!("{verb} crontab: {lines} lines")),
    };
    let owned = found.owned.iter().map(|group| {
        let size = group.describe_size();
        format!("{verb} {}: {size}", group.place)
    });
    let kept = found.preserved.iter().map(|(place, why)| format!("kept {place}: {why}"));
    let lines = crontab.into_iter().chain(owned).chain(kept);
    // A line break in a name must not start a new line.
    lines.map(|line| sanitize(&line).replace('\n', "?") + "\n").collect()
}
