//! Prints a job that was created or changed.

use super::list::format_utc;
use super::show::{describe_delivery, permission_rows};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::delivery;
use crate::ops::jobs::job_edit::{JobChange, SavedJob};
use crate::ops::jobs::resolved_job;
use crate::ops::jobs::time_format::{format_times, to_one_line};
use crate::ops::jobs::timing;
use crate::ops::jobs::unseen_answers;
use anyhow::Result;
use jiff::Zoned;
use nanobot_base::error::Exit;
use nanobot_config::settings::JobStarter;
use nanobot_cron::job::{Job, JobKind};
use serde_json::{Value, json};

/// Number of upcoming runs printed for a job.
const UPCOMING_RUNS: usize = 3;

/// Describes the change made to a job.
pub(super) fn describe_change(job: &Job, change: JobChange) -> String {
    match change {
        JobChange::Added => format!("✓ Added job '{}' ({})", job.name, job.id),
        JobChange::Changed => format!("✓ Changed job '{}' ({})", job.name, job.id),
        JobChange::Unchanged => format!("✓ Job '{}' ({}) is unchanged", job.name, job.id),
    }
}

fn describe_preview(job: &Job, change: JobChange) -> String {
    match change {
        JobChange::Added => format!("would add job '{}'", job.name),
        JobChange::Changed => format!("would change job '{}' ({})", job.name, job.id),
        JobChange::Unchanged => format!("job '{}' ({}) would be unchanged", job.name, job.id),
    }
}

/// The change made to a job as one JSON object. `now` is in the user's zone.
pub(super) fn saved_json(ctx: &Context, job: &Job, change: JobChange, now: &Zoned) -> Value {
    let next = timing::upcoming_runs(ctx, job, now.timestamp(), 1);
    let next = if job.enabled { next.first().copied() } else { None };
    let change = match change {
        JobChange::Added => "added",
        JobChange::Changed => "changed",
        JobChange::Unchanged => "unchanged",
    };
    json!({
        "id": job.id, "name": job.name, "change": change,
        "schedule": timing::describe_schedule(ctx, job, now.time_zone()), "next": next.map(format_utc),
    })
}

/// Prints `change`, the upcoming runs of the job, and where its answer goes, or the same as JSON. Then it reports the notices and
/// the change of the crontab.
pub(in crate::command) fn print_saved(
    ctx: &Context,
    saved: SavedJob,
    change: &str,
    as_json: bool,
) -> Result<Exit> {
    if as_json {
        let line = saved_json(ctx, &saved.job, saved.change, &saved.now);
        ctx.terminal.print_json(&line)?;
    } else {
        ctx.terminal.print(&describe_saved(ctx, &saved, change)?)?;
    }
    for notice in saved.notices {
        ctx.notice(&notice);
    }
    Ok(crontab_sync::report_change(
        ctx,
        saved.crontab,
        "the job is saved, but cron does not start it",
    ))
}

/// Prints a job that is not saved: what [`print_saved`] prints, its permissions, and the change of the crontab.
pub(super) fn print_preview(ctx: &Context, saved_job: SavedJob) -> Result<Exit> {
    let change = describe_preview(&saved_job.job, saved_job.change);
    let mut text = describe_saved(ctx, &saved_job, &change)?;
    for (name, value) in permission_rows(ctx, &saved_job.job) {
        // The directory is in the lines above.
        if name != "directory" {
            text.push_str(&format!("{name}: {}\n", to_one_line(&value)));
        }
    }
    for (mark, lines) in
        saved_job.crontab.iter().flat_map(|change| [("-", &change.removed), ("+", &change.added)])
    {
        lines.iter().for_each(|line| text.push_str(&format!("{mark} {line}\n")));
    }
    ctx.terminal.print(&text)?;
    for notice in saved_job.notices {
        ctx.notice(&notice);
    }
    saved_job.crontab.map(|_| Exit::Answered)
}

fn describe_saved(ctx: &Context, saved: &SavedJob, change: &str) -> Result<String> {
    let SavedJob { job, now, .. } = saved;
    let schedule = timing::describe_schedule(ctx, job, now.time_zone());
    let mut text = format!("{}\n{schedule}\n", to_one_line(change));
    let times = timing::upcoming_runs(ctx, job, now.timestamp(), UPCOMING_RUNS);
    if job.enabled && !times.is_empty() {
        text.push_str(&format!("next: {}\n", format_times(&times, now)));
    }
    let settings = ctx.settings()?;
    let note = match (delivery::is_printed(ctx, &settings, job), settings.job_starter) {
        (true, JobStarter::Other) => ", for the scheduler that starts it",
        (true, JobStarter::Crontab) if unseen_answers::has_mailer(ctx) => {
            ", and cron mails it to you"
        }
        (true, JobStarter::Crontab) => {
            ", but this machine has no mailer (`sendmail`): the next `nanobot status` shows it; `--channel` sends it elsewhere"
        }
        (false, _) => "",
    };
    text.push_str(&format!("answer: {}{note}\n", to_one_line(&describe_delivery(ctx, job))));
    if job.kind() != JobKind::Command
        && let Ok(resolved) = resolved_job::resolve(ctx, &job.options.clone().unwrap_or_default())
    {
        let directory = &resolved.policy.file_scope.directory;
        let is_current = std::env::current_dir().is_ok_and(|current| current == *directory);
        let note = if is_current { "" } else { "; `-C DIR` sets another" };
        text.push_str(&format!(
            "directory: {}{note}\n",
            to_one_line(&ctx.paths.display(directory))
        ));
    }
    Ok(text)
}
