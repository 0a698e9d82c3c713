//! `nanobot heartbeat`: one look at HEARTBEAT.md.

use super::cron::add;
use crate::cli::heartbeat::{Command, Enable, Heartbeat};
use crate::command::arguments::{grants as from_flags, job_flags};
use crate::cron::job::{HEARTBEAT, Job, PERIOD};
use crate::cron::schedule;
use crate::error::{Exit, fail};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::crontab_sync::JobFilter;
use crate::ops::jobs::heartbeat::FILE;
use crate::ops::jobs::job_options;
use crate::ops::jobs::job_store;
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::timing;
use crate::ops::jobs::trigger::look;
use anyhow::Result;

pub fn run(ctx: &Context, arguments: &Heartbeat) -> Result<Exit> {
    match &arguments.command {
        None => look(ctx),
        Some(Command::Enable(arguments)) => enable(ctx, arguments),
        Some(Command::Disable) => disable(ctx),
    }
}

fn enable(ctx: &Context, arguments: &Enable) -> Result<Exit> {
    let Enable {
        every,
        terms: flags,
        grants,
    } = arguments;
    let grants = &from_flags(grants);
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let now = ctx.clock.timestamp();
    let period = every.as_deref().map(schedule::every).transpose();
    let period = period.map_err(|words| fail(Exit::Usage, format!("`--every`: {words}")))?;
    let there = store.job(HEARTBEAT)?;
    let is_new = there.is_none();
    let mut job = there.unwrap_or_else(|| Job::heartbeat(now));
    if let Some(period) = period.or(is_new.then_some(PERIOD)) {
        timing::begin_every(&mut job, period, now);
    }
    let before = job.terms.as_ref().map(job_options::grants_of).transpose()?;
    let given = job_options::put(ctx, &mut job, &job_flags(flags), None, grants)?;
    store.add(&job, now, None)?;
    let mut notices = job_options::consequences(ctx, &job, grants, &given);
    if let Some(before) = before {
        notices.extend(job_options::replaced(&before, grants, &given)?);
    }
    let path = settings.workspace.join(FILE);
    if !path.exists() {
        let path = ctx.paths.display(&path);
        notices.push(format!(
            "what there is to do is to stand in `{path}`, which is not there yet"
        ));
    }
    add::answer(ctx, &settings, &store, &job, "✓ Heartbeat enabled", notices)
}

fn disable(ctx: &Context) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let Some(job) = store.job(HEARTBEAT)? else {
        ctx.notice("the heartbeat was not enabled");
        return Ok(Exit::Answered);
    };
    store.remove(HEARTBEAT)?;
    lifecycle::clear(ctx, &settings, &store, &job)?;
    let projected = crontab_sync::project(ctx, &settings, &store, JobFilter::Known);
    ctx.terminal.print("✓ Heartbeat disabled\n")?;
    Ok(crontab_sync::tell(
        ctx,
        projected,
        "the heartbeat is disabled all the same: a line of its that is left starts nothing",
    ))
}
