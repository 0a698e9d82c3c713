//! `nanobot cron`: jobs that the system's cron starts.

use crate::World;
use crate::cli::cron::Cron;
use crate::cron::job::{Job, Terms};
use crate::cron::store::Store;
use crate::error::{Exit, fail_hint};
use crate::settings::keys::nearest;
use crate::settings::{Config, Overrides, Settings};
use anyhow::Result;
use std::path::PathBuf;

pub(super) mod add;
mod delivery;
mod edit;
mod export;
pub(super) mod heartbeat;
pub(super) mod list;
mod logs;
pub(super) mod near;
pub(super) mod planner;
pub(super) mod probe;
pub(super) mod run;
mod show;
mod stand;
pub(super) mod switch;
pub(super) mod sync;
pub(super) mod terms;
pub(super) mod words;
mod work;
pub(super) mod zones;

pub fn run(world: &World, command: &Cron) -> Result<Exit> {
    match command {
        Cron::Add(arguments) => add::run(&with_config(world, &arguments.flags.config), arguments),
        Cron::List(arguments) => list::run(world, arguments),
        Cron::Show { job, json } => show::run(world, job, *json),
        Cron::Edit(arguments) => edit::run(&with_config(world, &arguments.flags.config), arguments),
        Cron::Run(arguments) => run::run(world, arguments),
        Cron::Enable { jobs, disable } => switch::switch(world, jobs, !disable),
        Cron::Disable { jobs } => switch::switch(world, jobs, false),
        Cron::Remove { jobs } => switch::remove(world, jobs),
        Cron::Sync { dry_run } => sync::run(world, *dry_run),
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
        Cron::Export(arguments) => export::run(world, arguments),
    }
}

/// The world with the config that stands behind a command whose `-c` means something else.
fn with_config(world: &World, config: &Option<std::path::PathBuf>) -> World {
    let mut world = world.clone();
    if let Some(path) = config {
        world.paths.config.clone_from(path);
        world.shared.config = Some(path.clone());
    }
    world
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

/// The jobs of the workspace. What older releases keep in the data directory belongs to the workspace of the config,
/// however that was come to.
pub(in crate::command) fn store(world: &World, settings: &Settings) -> Store {
    // Most have none, and need not be asked whose it would be.
    let older = Store::has_older(&world.paths.root) && {
        let usual = near::workspace(world, &world.paths.config);
        usual == Some(near::real(&settings.workspace))
    };
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
        [] => Err(nobody(&jobs, word)),
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

fn nobody(jobs: &[Job], word: &str) -> anyhow::Error {
    let names = jobs.iter().flat_map(|job| [&*job.name, &*job.id]);
    let list = "`nanobot cron list --all`, which prints their ids";
    let hint = match nearest(word, names) {
        Some(meant) => format!("`{meant}`, or {list}"),
        None => list.to_owned(),
    };
    fail_hint(Exit::NoInput, format!("there is no job `{word}`"), hint)
}

/// Tell what a person should know, unless nothing is to be said.
pub(in crate::command) fn notice(world: &World, text: &str) {
    if !world.shared.quiet {
        world
            .terminal
            .complain(&format!("nanobot: {}", text.replace('\n', " ")));
    }
}
