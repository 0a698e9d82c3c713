//! `nanobot uninstall`: lists this program's files and crontab lines, and removes them.

use super::completions::script_of;
use super::question::confirm_at_terminal;
use crate::cli::uninstall::UninstallArgs;
use crate::ops::context::Context;
use crate::ops::uninstall::{Installation, find_installation};
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::shell::UserShell;
use nanobot_os::terminal::sanitize_line;

/// Runs `nanobot uninstall`.
pub fn run(ctx: &Context, arguments: UninstallArgs) -> Result<Exit> {
    let UninstallArgs { dry_run, yes } = arguments;
    let shells = [UserShell::Bash, UserShell::Zsh, UserShell::Fish];
    let scripts = shells.map(|shell| {
        let path = shell.completion_path(&ctx.env, &ctx.paths);
        (path, script_of(shell))
    });
    let installation = find_installation(ctx, &scripts)?;
    if !dry_run {
        installation.check_unused(ctx)?;
    }
    let is_empty = installation.crontab_lines.is_empty() && installation.owned.is_empty();
    if !yes || dry_run {
        ctx.terminal.print(&list(&installation, "would remove"))?;
    }
    if is_empty {
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
    installation.remove(ctx)?;
    if !ctx.quiet {
        ctx.terminal.print(&list(&installation, "removed"))?;
    }
    Ok(Exit::Answered)
}

/// One line for each place: those that are removed, then those that are kept.
fn list(installation: &Installation, verb: &str) -> String {
    let crontab = match installation.crontab_lines.len() {
        0 => None,
        1 => Some(format!("{verb} crontab: 1 line")),
        count => Some(format!("{verb} crontab: {count} lines")),
    };
    let owned = installation.owned.iter().map(|group| {
        let size = group.describe_size();
        format!("{verb} {}: {size}", group.location)
    });
    let preserved = installation.preserved.iter().map(|(path, why)| format!("kept {path}: {why}"));
    let lines = crontab.into_iter().chain(owned).chain(preserved);
    lines.map(|line| sanitize_line(&line) + "\n").collect()
}
