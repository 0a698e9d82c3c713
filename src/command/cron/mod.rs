//! `nanobot cron`: jobs that the system's cron starts.

use crate::cli::cron::Cron;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::trigger;
use anyhow::Result;

pub(super) mod add;
mod edit;
mod export;
pub(super) mod list;
mod logs;
mod show;

pub fn run(ctx: &Context, command: &Cron) -> Result<Exit> {
    match command {
        Cron::Add(arguments) => add::run(&with_config(ctx, &arguments.flags.config), arguments),
        Cron::List(arguments) => list::run(ctx, arguments),
        Cron::Show { job, json } => show::run(ctx, job, *json),
        Cron::Edit(arguments) => edit::run(&with_config(ctx, &arguments.flags.config), arguments),
        Cron::Run(arguments) => trigger::run(ctx, arguments),
        Cron::Enable { jobs, disable } => lifecycle::switch(ctx, jobs, !disable),
        Cron::Disable { jobs } => lifecycle::switch(ctx, jobs, false),
        Cron::Remove { jobs } => lifecycle::remove(ctx, jobs),
        Cron::Sync { dry_run } => crontab_sync::run(ctx, *dry_run),
        Cron::Logs {
            job,
            follow,
            lines,
            output,
            json,
        } => logs::run(
            ctx,
            &ctx.settings()?,
            &logs::Wanted {
                job: job.as_deref(),
                follow: *follow,
                lines: *lines,
                output: *output,
                json: *json,
            },
        ),
        Cron::Export(arguments) => export::run(ctx, arguments),
    }
}

/// The world with the config that stands behind a command whose `-c` means something else.
fn with_config(ctx: &Context, config: &Option<std::path::PathBuf>) -> Context {
    let mut ctx = ctx.clone();
    if let Some(path) = config {
        ctx.paths.config.clone_from(path);
        ctx.config = Some(path.clone());
    }
    ctx
}
