//! `nanobot cron`: manages jobs that the system's cron starts.

use crate::cli::cron::{
    CronAddArgs, CronCommand, CronEditArgs, CronLogsArgs, CronRunArgs, HeartbeatArgs,
    HeartbeatCommand, HeartbeatEnableArgs,
};
use crate::ops::context::Context;
use crate::ops::job_runs::probe;
use crate::ops::job_runs::scheduled_run::ScheduledStart;
use crate::ops::job_runs::start::{self, StartMode};
use crate::ops::jobs::job_edit::{self, JobDraft};
use crate::ops::jobs::time_format::to_one_line;
use crate::ops::jobs::{crontab_sync, heartbeat_job, lifecycle, run_log, workspace_jobs};
use crate::options::job::{JobSettings, ScheduleFlags};
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_config::settings::JobStarter;
use nanobot_cron::job::HEARTBEAT_ID;
use saved_job::{describe_change, print_preview, print_saved};
use std::path::Path;

mod apply;
mod check;
pub(crate) mod export;
mod list;
mod logs;
pub(super) mod saved_job;
mod show;

/// Runs `nanobot cron`.
pub fn run(ctx: &Context, command: &CronCommand) -> Result<Exit> {
    match command {
        CronCommand::Add(arguments) => add(ctx, arguments),
        CronCommand::Apply(arguments) => apply::run(ctx, arguments),
        CronCommand::List(arguments) => list::run(ctx, arguments).map(|()| Exit::Answered),
        CronCommand::Check { json } => check::run(ctx, *json),
        CronCommand::Show { job, json } => show::run(ctx, job, *json).map(|()| Exit::Answered),
        CronCommand::Edit(arguments) => edit(ctx, arguments),
        CronCommand::Run(arguments) => run_job(ctx, arguments),
        CronCommand::Enable { jobs, all, disable } => set_enabled(ctx, jobs, *all, !disable),
        CronCommand::Disable { jobs, all } => set_enabled(ctx, jobs, *all, false),
        CronCommand::Remove { jobs } => remove(ctx, jobs),
        CronCommand::Sync { dry_run } => sync(ctx, *dry_run),
        CronCommand::Rerun { run, json } => rerun(ctx, run, *json),
        CronCommand::Logs(CronLogsArgs { run: Some(run), output, json, .. }) => {
            logs::show_run(ctx, run, *output, *json).map(|()| Exit::Answered)
        }
        CronCommand::Logs(arguments) => logs::run(ctx, arguments).map(|()| Exit::Answered),
        CronCommand::Export(arguments) => export::run(ctx, arguments),
        CronCommand::Heartbeat(arguments) => heartbeat(ctx, arguments),
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

/// Runs `cron run_job`.
fn run_job(ctx: &Context, arguments: &CronRunArgs) -> Result<Exit> {
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
        (true, _) => StartMode::Scheduled(ScheduledStart {
            no_jitter: arguments.no_jitter,
            no_after: arguments.no_after,
            no_notify: arguments.no_notify,
            replay: None,
        }),
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
fn rerun(ctx: &Context, run_id: &str, as_json: bool) -> Result<Exit> {
    let store = workspace_jobs::open(ctx, &ctx.settings()?);
    let exit = start::rerun(ctx, run_id, !as_json)?;
    if as_json {
        logs::print_last_run(ctx, &run_log::find_run(&store, run_id)?.job_id)?;
    }
    Ok(exit)
}

/// Runs `nanobot cron heartbeat`.
fn heartbeat(ctx: &Context, arguments: &HeartbeatArgs) -> Result<Exit> {
    match &arguments.command {
        None if arguments.json => {
            let exit = start::run_heartbeat(ctx, false)?;
            logs::print_last_run(ctx, HEARTBEAT_ID)?;
            Ok(exit)
        }
        None => start::run_heartbeat(ctx, true),
        Some(HeartbeatCommand::Enable(arguments)) => enable_heartbeat(ctx, arguments),
        Some(HeartbeatCommand::Disable) => disable_heartbeat(ctx),
    }
}

fn enable_heartbeat(ctx: &Context, arguments: &HeartbeatEnableArgs) -> Result<Exit> {
    let HeartbeatEnableArgs { every, json, flags, grants } = arguments.clone();
    let schedule = ScheduleFlags { every, ..ScheduleFlags::default() };
    let settings = JobSettings { schedule, flags, grants, ..JobSettings::default() };
    let saved = heartbeat_job::enable(ctx, &settings)?;
    print_saved(ctx, saved, "✓ Heartbeat enabled", json)
}

fn disable_heartbeat(ctx: &Context) -> Result<Exit> {
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

/// Runs `cron sync`.
fn sync(ctx: &Context, dry_run: bool) -> Result<Exit> {
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
