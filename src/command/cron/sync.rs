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
    let sign = |sign: &'static str| move |line: &String| format!("{sign} {line}\n");
    let mut text: String = change.removed.iter().map(sign("-")).collect();
    text.extend(change.added.iter().map(sign("+")));
    if !dry_run && change.is_path_only() {
        text = match change.added.len() {
            1 => "1 line changed (PATH)\n".into(),
            lines => format!("{lines} lines changed (PATH)\n"),
        };
    }
    if text.is_empty() {
        text = match ctx.settings()?.job_starter {
            JobStarter::Crontab => "The crontab is up to date.\n".into(),
            JobStarter::Other => "No line is needed: `cron.scheduler` is `none`.\n".into(),
        };
    }
    ctx.terminal.print(&text)?;
    Ok(Exit::Answered)
}
