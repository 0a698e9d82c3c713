//! `nanobot cron`: manages jobs that the system's cron starts.

use crate::cli::cron::{CronAddArgs, CronCommand, CronEditArgs, CronLogsArgs};
use crate::ops::context::Context;
use crate::ops::jobs::job_edit::{self, JobDraft};
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::time_format::to_one_line;
use anyhow::Result;
use nanobot_base::error::Exit;
use saved_job::{describe_change, print_preview, print_saved};
use std::path::Path;

mod apply;
mod check;
pub(crate) mod export;
mod heartbeat;
mod list;
mod logs;
mod run;
mod run_details;
pub(super) mod saved_job;
mod show;
mod sync;

/// Runs `nanobot cron`.
pub fn run(ctx: &Context, command: &CronCommand) -> Result<Exit> {
    match command {
        CronCommand::Add(arguments) => add(ctx, arguments),
        CronCommand::Apply(arguments) => apply::run(ctx, arguments),
        CronCommand::List(arguments) => list::run(ctx, arguments),
        CronCommand::Check { json } => check::run(ctx, *json),
        CronCommand::Show { job, json } => show::run(ctx, job, *json),
        CronCommand::Edit(arguments) => edit(ctx, arguments),
        CronCommand::Run(arguments) => run::run(ctx, arguments),
        CronCommand::Enable { jobs, all, disable } => set_enabled(ctx, jobs, *all, !disable),
        CronCommand::Disable { jobs, all } => set_enabled(ctx, jobs, *all, false),
        CronCommand::Remove { jobs } => remove(ctx, jobs),
        CronCommand::Sync { dry_run } => sync::run(ctx, *dry_run),
        CronCommand::Rerun { run, json } => run::rerun(ctx, run, *json),
        CronCommand::Logs(CronLogsArgs { run: Some(run), output, json, .. }) => {
            run_details::run(ctx, run, *output, *json)
        }
        CronCommand::Logs(arguments) => logs::run(ctx, arguments),
        CronCommand::Export(arguments) => export::run(ctx, arguments),
        CronCommand::Heartbeat(arguments) => heartbeat::run(ctx, arguments),
    }
}

fn add(ctx: &Context, arguments: &CronAddArgs) -> Result<Exit> {
    let CronAddArgs { name, message, replace, dry_run, json, flags } = arguments;
    let ctx = &with_config(ctx, flags.config.as_deref());
    let settings = &flags.settings;
    let (name, message) = (name.as_deref(), message.as_deref());
    let draft = JobDraft { name, message, settings, enabled: None };
    if *dry_run {
        return print_preview(ctx, job_edit::preview(ctx, &draft, *replace)?);
    }
    let saved = job_edit::add(ctx, &draft, *replace)?;
    let change = describe_change(&saved.job, saved.change);
    print_saved(ctx, saved, &change, *json)
}

fn edit(ctx: &Context, arguments: &CronEditArgs) -> Result<Exit> {
    let CronEditArgs { job, name, message, json, flags } = arguments;
    let ctx = &with_config(ctx, flags.config.as_deref());
    let (name, message) = (name.as_deref(), message.as_deref());
    let saved = job_edit::edit(ctx, job, name, message, &flags.settings)?;
    let change = describe_change(&saved.job, saved.change);
    print_saved(ctx, saved, &change, *json)
}

fn set_enabled(ctx: &Context, jobs: &[String], all: bool, enabled: bool) -> Result<Exit> {
    let verb = if enabled { "enabled" } else { "disabled" };
    let jobs = if all { lifecycle::ids_to_set_enabled(ctx, enabled)? } else { jobs.to_vec() };
    lifecycle::set_enabled(ctx, &jobs, enabled, &mut |job| {
        let name = to_one_line(&job.name);
        ctx.terminal.print(&format!("✓ Job '{name}' {verb}\n"))
    })
}

fn remove(ctx: &Context, jobs: &[String]) -> Result<Exit> {
    lifecycle::remove(ctx, jobs, &mut |job| {
        let (id, name) = (to_one_line(&job.id), to_one_line(&job.name));
        let suffix = if name == id { String::new() } else { format!(" ('{name}')") };
        ctx.terminal.print(&format!("✓ Removed job {id}{suffix}\n"))
    })
}

/// The context with the config that `--config` after the command names: `-c` there is the schedule.
fn with_config(ctx: &Context, config: Option<&Path>) -> Context {
    let mut ctx = ctx.clone();
    if let Some(path) = config {
        ctx.paths.config = path.to_owned();
        ctx.config = Some(path.to_owned());
    }
    ctx
}
