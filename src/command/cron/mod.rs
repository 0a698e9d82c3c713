//! `nanobot cron`: manages jobs that the system's cron starts.

use crate::cli::cron::{CronAddArgs, CronCommand, CronEditArgs};
use crate::command::arguments::{job_settings, since_filter};
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::job_edit::{self, JobChange, SavedJob};
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::time_format::{format_times, to_one_line};
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use anyhow::Result;
use serde_json::json;
use std::path::PathBuf;

mod apply;
mod check;
mod export;
mod list;
mod logs;
mod run;
mod show;
mod sync;

/// Number of upcoming runs printed for a job that was made or changed.
const UPCOMING_RUNS: usize = 3;

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
        CronCommand::Enable { jobs, disable } => set_enabled(ctx, jobs, !disable),
        CronCommand::Disable { jobs } => set_enabled(ctx, jobs, false),
        CronCommand::Remove { jobs } => remove(ctx, jobs),
        CronCommand::Sync { dry_run } => sync::run(ctx, *dry_run),
        CronCommand::Logs {
            job,
            follow,
            lines,
            output,
            failed,
            since,
            json,
        } => logs::run(
            ctx,
            &ctx.settings()?,
            &logs::RunLogFilter {
                job: job.as_deref(),
                follow: *follow,
                lines: *lines,
                output: *output,
                failed: *failed,
                since: since.map(|since| since_filter(since, &ctx.clock.now())),
                json: *json,
            },
        ),
        CronCommand::Export(arguments) => export::run(ctx, arguments),
    }
}

fn add(ctx: &Context, add: &CronAddArgs) -> Result<Exit> {
    let CronAddArgs {
        name,
        message,
        replace,
        json,
        flags,
    } = add;
    let ctx = &with_config(ctx, &flags.config);
    let settings = job_settings(flags);
    let saved = job_edit::add(ctx, name.as_deref(), message, &settings, *replace)?;
    match json {
        true => print_saved_json(ctx, saved),
        false => {
            let done = describe_change(&saved);
            print_saved(ctx, saved, &done)
        }
    }
}

/// What was done with a job, for people.
fn describe_change(saved: &SavedJob) -> String {
    let SavedJob { job, change, .. } = saved;
    match change {
        JobChange::Added => format!("✓ Added job '{}' ({})", job.name, job.id),
        JobChange::Changed => format!("✓ Changed job '{}' ({})", job.name, job.id),
        JobChange::Unchanged => format!("✓ Job '{}' ({}) is unchanged", job.name, job.id),
    }
}

/// Prints what was done with a job as one JSON object, and its notices.
fn print_saved_json(ctx: &Context, saved: SavedJob) -> Result<Exit> {
    let SavedJob { job, change, .. } = &saved;
    let next = timing::upcoming_runs(ctx, job, ctx.clock.timestamp(), 1);
    let change = match change {
        JobChange::Added => "added",
        JobChange::Changed => "changed",
        JobChange::Unchanged => "unchanged",
    };
    ctx.terminal.print_json(&json!({
        "id": job.id, "name": job.name, "change": change,
        "schedule": timing::describe_schedule(ctx, job), "next": next.first().copied().map(list::format_utc),
    }))?;
    finish_saved(ctx, saved)
}

fn edit(ctx: &Context, edit: &CronEditArgs) -> Result<Exit> {
    let CronEditArgs {
        job,
        name,
        message,
        flags,
    } = edit;
    let ctx = &with_config(ctx, &flags.config);
    let (name, message) = (name.as_deref(), message.as_deref());
    let saved = job_edit::edit(ctx, job, name, message, &job_settings(flags))?;
    let done = describe_change(&saved);
    print_saved(ctx, saved, &done)
}

/// Prints what was done with a job, its upcoming runs, and any notes about it.
pub(super) fn print_saved(ctx: &Context, saved: SavedJob, done: &str) -> Result<Exit> {
    let job = &saved.job;
    let now = time_zone::now(ctx);
    let mut text = format!(
        "{}\n{}\n",
        to_one_line(done),
        timing::describe_schedule(ctx, job)
    );
    let times = timing::upcoming_runs(ctx, job, now.timestamp(), UPCOMING_RUNS);
    if job.enabled && !times.is_empty() {
        text.push_str(&format!("next: {}\n", format_times(&times, &now)));
    }
    ctx.terminal.print(&text)?;
    finish_saved(ctx, saved)
}

/// Prints the notices about a saved job, and the change of the crontab.
fn finish_saved(ctx: &Context, saved: SavedJob) -> Result<Exit> {
    for notice in saved.notices {
        ctx.notice(&notice);
    }
    Ok(crontab_sync::report_change(
        ctx,
        saved.crontab,
        "the job is saved, but cron does not start it",
    ))
}

fn set_enabled(ctx: &Context, jobs: &[String], enabled: bool) -> Result<Exit> {
    let word = if enabled { "enabled" } else { "disabled" };
    lifecycle::set_enabled(ctx, jobs, enabled, &mut |job| {
        let name = to_one_line(&job.name);
        ctx.terminal.print(&format!("✓ Job '{name}' {word}\n"))
    })
}

fn remove(ctx: &Context, jobs: &[String]) -> Result<Exit> {
    lifecycle::remove(ctx, jobs, &mut |job| {
        let (id, name) = (to_one_line(&job.id), to_one_line(&job.name));
        let suffix = match name == id {
            true => String::new(),
            false => format!(" ('{name}')"),
        };
        ctx.terminal.print(&format!("✓ Removed job {id}{suffix}\n"))
    })
}

/// The context with the config named after a command whose `-c` has another meaning.
fn with_config(ctx: &Context, config: &Option<PathBuf>) -> Context {
    let mut ctx = ctx.clone();
    if let Some(path) = config {
        ctx.paths.config.clone_from(path);
        ctx.config = Some(path.clone());
    }
    ctx
}
