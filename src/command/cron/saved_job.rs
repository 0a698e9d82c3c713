//! Prints a job that was created or changed.

use super::list::format_utc;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::job_edit::{JobChange, SavedJob};
use crate::ops::jobs::time_format::{format_times, to_one_line};
use crate::ops::jobs::timing;
use anyhow::Result;
use serde_json::json;

/// Number of upcoming runs printed for a job.
const UPCOMING_RUNS: usize = 3;

/// Describes the change made to a job.
pub(super) fn describe_change(saved: &SavedJob) -> String {
    let SavedJob { job, change, .. } = saved;
    match change {
        JobChange::Added => format!("✓ Added job '{}' ({})", job.name, job.id),
        JobChange::Changed => format!("✓ Changed job '{}' ({})", job.name, job.id),
        JobChange::Unchanged => format!("✓ Job '{}' ({}) is unchanged", job.name, job.id),
    }
}

/// Prints the change made to a job as one JSON object, and its notices.
pub(super) fn print_saved_json(ctx: &Context, saved: SavedJob) -> Result<Exit> {
    let SavedJob { job, change, .. } = &saved;
    let next = timing::upcoming_runs(ctx, job, ctx.clock.timestamp(), 1);
    let change = match change {
        JobChange::Added => "added",
        JobChange::Changed => "changed",
        JobChange::Unchanged => "unchanged",
    };
    ctx.terminal.print_json(&json!({
        "id": job.id, "name": job.name, "change": change,
        "schedule": timing::describe_schedule(ctx, job, saved.now.time_zone()), "next": next.first().copied().map(format_utc),
    }))?;
    finish_saved(ctx, saved)
}

/// Prints what was done with a job, its upcoming runs, and any notes about it; or the same as JSON.
pub(in crate::command) fn print_saved(
    ctx: &Context,
    saved: SavedJob,
    done: &str,
    as_json: bool,
) -> Result<Exit> {
    if as_json {
        return print_saved_json(ctx, saved);
    }
    let job = &saved.job;
    let now = &saved.now;
    let schedule = timing::describe_schedule(ctx, job, now.time_zone());
    let mut text = format!("{}\n{schedule}\n", to_one_line(done));
    let times = timing::upcoming_runs(ctx, job, now.timestamp(), UPCOMING_RUNS);
    if job.enabled && !times.is_empty() {
        text.push_str(&format!("next: {}\n", format_times(&times, now)));
    }
    ctx.terminal.print(&text)?;
    finish_saved(ctx, saved)
}

/// Prints the notices about a saved job, and the change of the crontab.
pub(super) fn finish_saved(ctx: &Context, saved: SavedJob) -> Result<Exit> {
    for notice in saved.notices {
        ctx.notice(&notice);
    }
    Ok(crontab_sync::report_change(
        ctx,
        saved.crontab,
        "the job is saved, but cron does not start it",
    ))
}
