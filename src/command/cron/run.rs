//! `cron run` and `cron rerun`: run a job now, all jobs that are due, or a run again.

use super::logs;
use crate::cli::cron::CronRunArgs;
use crate::ops::context::Context;
use crate::ops::job_runs::probe;
use crate::ops::job_runs::start::{self, StartMode};
use crate::ops::jobs::run_log;
use crate::ops::jobs::workspace_jobs;
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `cron run`.
pub(super) fn run(ctx: &Context, arguments: &CronRunArgs) -> Result<Exit> {
    let CronRunArgs { job, as_cron, scheduled, due, json, probe, .. } = arguments;
    if *due {
        return start::run_due(ctx);
    }
    let job = job.as_deref().expect("clap requires a job without `--due`");
    if *probe {
        ctx.terminal.print_json(&probe::probe(ctx, job)?)?;
        return Ok(Exit::Answered);
    }
    let mode = match (scheduled, as_cron) {
        (true, _) => StartMode::Scheduled {
            no_jitter: arguments.no_jitter,
            no_after: arguments.no_after,
            no_notify: arguments.no_notify,
        },
        (false, true) => StartMode::AsCron,
        (false, false) => StartMode::Now,
    };
    if !json {
        return start::run(ctx, job, mode, true);
    }
    let store = workspace_jobs::open(ctx, &ctx.settings()?);
    let id = workspace_jobs::find_usable(&store, job)?.id;
    let exit = start::run(ctx, &id, mode, false)?;
    logs::print_last_run(ctx, &id)?;
    Ok(exit)
}

/// Runs `cron rerun`.
pub(super) fn rerun(ctx: &Context, run_id: &str, as_json: bool) -> Result<Exit> {
    let store = workspace_jobs::open(ctx, &ctx.settings()?);
    let exit = start::rerun(ctx, run_id, !as_json)?;
    if as_json {
        logs::print_last_run(ctx, &run_log::find_run(&store, run_id)?.job_id)?;
    }
    Ok(exit)
}
