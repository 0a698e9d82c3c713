//! `cron sync`: updates the crontab and prints the lines that change.

use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_config::settings::JobStarter;

/// Runs `cron sync`.
pub(super) fn run(ctx: &Context, dry_run: bool) -> Result<Exit> {
    let change = crontab_sync::sync(ctx, dry_run)?;
    if ctx.quiet {
        return Ok(Exit::Answered);
    }
    let text = if change.removed.is_empty() && change.added.is_empty() {
        match ctx.settings()?.job_starter {
            JobStarter::Crontab => "The crontab is up to date.\n".into(),
            JobStarter::Other => "No line is needed: `cron.scheduler` is `none`.\n".into(),
        }
    } else if !dry_run && change.is_path_only() {
        match change.added.len() {
            1 => "1 line changed (PATH)\n".into(),
            count => format!("{count} lines changed (PATH)\n"),
        }
    } else {
        let removed = change.removed.iter().map(|line| format!("- {line}\n"));
        removed.chain(change.added.iter().map(|line| format!("+ {line}\n"))).collect()
    };
    ctx.terminal.print(&text)?;
    Ok(Exit::Answered)
}
