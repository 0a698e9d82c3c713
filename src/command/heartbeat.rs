//! `nanobot heartbeat`: one look at HEARTBEAT.md.

use super::cron::heartbeat::FILE;
use super::cron::run::look;
use super::cron::sync::{self, Which};
use super::cron::{add, notice, settings, store, switch, terms};
use crate::World;
use crate::cli::heartbeat::{Command, Enable, Heartbeat};
use crate::cron::job::{HEARTBEAT, Job, PERIOD};
use crate::cron::schedule;
use crate::error::{Exit, fail};
use anyhow::Result;

pub fn run(world: &World, arguments: &Heartbeat) -> Result<Exit> {
    match &arguments.command {
        None => look(world),
        Some(Command::Enable(arguments)) => enable(world, arguments),
        Some(Command::Disable) => disable(world),
    }
}

fn enable(world: &World, arguments: &Enable) -> Result<Exit> {
    let Enable {
        every,
        terms: flags,
        grants,
    } = arguments;
    let settings = settings(world)?;
    let store = store(world, &settings);
    let now = world.clock.timestamp();
    let period = every.as_deref().map(schedule::every).transpose();
    let period = period.map_err(|words| fail(Exit::Usage, format!("`--every`: {words}")))?;
    let there = store.job(HEARTBEAT)?;
    let is_new = there.is_none();
    let mut job = there.unwrap_or_else(|| Job::heartbeat(now));
    if let Some(period) = period.or(is_new.then_some(PERIOD)) {
        add::begin_every(&mut job, period, now);
    }
    let before = job.terms.as_ref().map(terms::grants_of).transpose()?;
    let given = terms::put(world, &mut job, flags, None, grants)?;
    store.add(&job, now, None)?;
    let mut notices = terms::consequences(world, &job, grants, &given);
    if let Some(before) = before {
        notices.extend(terms::replaced(&before, grants, &given)?);
    }
    let path = settings.workspace.join(FILE);
    if !path.exists() {
        let path = world.paths.display(&path);
        notices.push(format!(
            "what there is to do is to stand in `{path}`, which is not there yet"
        ));
    }
    add::answer(
        world,
        &settings,
        &store,
        &job,
        "✓ Heartbeat enabled",
        notices,
    )
}

fn disable(world: &World) -> Result<Exit> {
    let settings = settings(world)?;
    let store = store(world, &settings);
    let Some(job) = store.job(HEARTBEAT)? else {
        notice(world, "the heartbeat was not enabled");
        return Ok(Exit::Answered);
    };
    store.remove(HEARTBEAT)?;
    switch::clear(world, &settings, &store, &job)?;
    let projected = sync::project(world, &settings, &store, Which::Known);
    world.terminal.print("✓ Heartbeat disabled\n")?;
    Ok(sync::tell(
        world,
        projected,
        "the heartbeat is disabled all the same: a line of its that is left starts nothing",
    ))
}
