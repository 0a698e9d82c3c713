//! `nanobot cron heartbeat`: runs one check of HEARTBEAT.md.

use super::logs;
use super::saved_job::print_saved;
use crate::cli::cron::{HeartbeatArgs, HeartbeatCommand, HeartbeatEnableArgs};
use crate::ops::context::Context;
use crate::ops::job_runs::start;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::heartbeat_job;
use crate::options::job::{JobSettings, ScheduleFlags};
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_cron::job::HEARTBEAT_ID;

/// Runs `nanobot cron heartbeat`.
pub(super) fn run(ctx: &Context, arguments: &HeartbeatArgs) -> Result<Exit> {
    match &arguments.command {
        None if arguments.json => {
            let exit = start::run_heartbeat(ctx, false)?;
            logs::print_last_run(ctx, HEARTBEAT_ID)?;
            Ok(exit)
        }
        None => start::run_heartbeat(ctx, true),
        Some(HeartbeatCommand::Enable(arguments)) => enable(ctx, arguments),
        Some(HeartbeatCommand::Disable) => disable(ctx),
    }
}

fn enable(ctx: &Context, arguments: &HeartbeatEnableArgs) -> Result<Exit> {
    let HeartbeatEnableArgs { every, json, flags, grants } = arguments.clone();
    let schedule = ScheduleFlags { every, ..ScheduleFlags::default() };
    let settings = JobSettings { schedule, flags, grants, ..JobSettings::default() };
    let saved = heartbeat_job::enable(ctx, &settings)?;
    print_saved(ctx, saved, "✓ Heartbeat enabled", json)
}

fn disable(ctx: &Context) -> Result<Exit> {
    let Some(disabled) = heartbeat_job::disable(ctx)? else {
        ctx.notice("the heartbeat was not enabled");
        return Ok(Exit::Answered);
    };
    ctx.terminal.print("✓ Heartbeat disabled\n")?;
    Ok(crontab_sync::report_change(
        ctx,
        disabled.crontab,
        "the heartbeat is disabled anyway: a crontab line that is left starts nothing",
    ))
}
