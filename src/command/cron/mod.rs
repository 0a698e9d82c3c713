//! `nanobot cron`: jobs that the system's cron starts.

use crate::World;
use crate::cli::Cron;
use crate::cron::job::{Job, Terms};
use crate::cron::store::Store;
use crate::error::{Exit, fail_hint};
use crate::settings::{Config, Overrides, Settings};
use anyhow::Result;
use std::path::PathBuf;

mod delivery;
mod heartbeat;
mod logs;
mod run;
mod sync;

pub fn run(world: &World, command: &Cron) -> Result<Exit> {
    match command {
        Cron::Run(arguments) => run::run(world, arguments),
        Cron::Logs {
            job,
            follow,
            lines,
            output,
            json,
        } => logs::run(
            world,
            &settings(world)?,
            &logs::Wanted {
                job: job.as_deref(),
                follow: *follow,
                lines: *lines,
                output: *output,
                json: *json,
            },
        ),
        _ => todo!(),
    }
}

/// Where a job works: in the workspace, unless it was told another place.
pub(in crate::command) fn directory(settings: &Settings, terms: &Terms) -> PathBuf {
    match terms.grants["directory"].as_str() {
        Some(path) => PathBuf::from(path),
        None => settings.workspace.clone(),
    }
}

/// The settings that all of these commands share.
pub(in crate::command) fn settings(world: &World) -> Result<Settings> {
    let config = Config::load(&world.paths.config)?;
    let flags = Overrides {
        workspace: world.shared.workspace.clone(),
        ..Overrides::default()
    };
    Settings::resolve(&config, &world.env, &flags, &world.paths)
}

/// The jobs of the workspace. What older releases keep in the data directory belongs to the workspace of the config.
pub(in crate::command) fn store(world: &World, settings: &Settings) -> Store {
    let older = world.shared.workspace.is_none();
    Store::new(&settings.workspace, &world.paths.root, older)
}

/// The job that `word` names: by its id, or by its name where one alone has it.
pub(in crate::command) fn find(store: &Store, word: &str) -> Result<Job> {
    let jobs = store.jobs()?;
    if let Some(job) = jobs.iter().find(|job| job.id == word) {
        return Ok(job.clone());
    }
    let named: Vec<&Job> = jobs.iter().filter(|job| job.name == word).collect();
    match named[..] {
        [job] => Ok(job.clone()),
        [] => Err(fail_hint(
            Exit::NoInput,
            format!("there is no job `{word}`"),
            "`nanobot cron list --all`, which prints their ids",
        )),
        _ => {
            let ids: Vec<&str> = named.iter().map(|job| job.id.as_str()).collect();
            Err(fail_hint(
                Exit::Usage,
                format!("{} jobs are called `{word}`", named.len()),
                format!("their ids instead: {}", ids.join(", ")),
            ))
        }
    }
}
