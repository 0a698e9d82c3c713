//! The job store of a workspace, and the lookup of jobs by name or id.

use super::cron_environment;
use crate::cron::job::{Job, Terms};
use crate::cron::store::Store;
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::sys::secret::random_hex;
use anyhow::Result;
use std::path::PathBuf;

/// The working directory of a job: the workspace, unless the job has another one.
pub(crate) fn job_directory(settings: &Settings, terms: &Terms) -> PathBuf {
    match terms.grants["directory"].as_str() {
        Some(path) => PathBuf::from(path),
        None => settings.workspace.clone(),
    }
}

/// Opens the job store of the workspace. Jobs that older releases keep in the data directory belong to the workspace of
/// the config file.
pub(crate) fn open(ctx: &Context, settings: &Settings) -> Store {
    // Most users have no such jobs, so the config file need not be read.
    let older = Store::has_older(&ctx.paths.root) && {
        let usual = cron_environment::workspace(ctx, &ctx.paths.config);
        usual == Some(cron_environment::real(&settings.workspace))
    };
    Store::new(&settings.workspace, &ctx.paths.root, older)
}

/// The job that `name_or_id` names: by its id, or by its name if the name is unique.
pub(crate) fn find(store: &Store, word: &str) -> Result<Job> {
    let jobs = store.jobs()?;
    if let Some(job) = jobs.iter().find(|job| job.id == word) {
        return Ok(job.clone());
    }
    let named: Vec<&Job> = jobs.iter().filter(|job| job.name == word).collect();
    match named[..] {
        [job] => Ok(job.clone()),
        [] => Err(unknown_job(&jobs, word)),
        _ => {
            let ids: Vec<&str> = named.iter().map(|job| job.id.as_str()).collect();
            Err(fail_hint(
                Exit::Usage,
                format!("{} jobs are named `{word}`", named.len()),
                format!("an id: {}", ids.join(", ")),
            ))
        }
    }
}

/// The error for a job that does not exist.
pub(crate) fn unknown_job(jobs: &[Job], word: &str) -> anyhow::Error {
    let names = jobs.iter().flat_map(|job| [&*job.name, &*job.id]);
    let list = "`nanobot cron list --all` for the ids";
    let hint = match nearest(word, names) {
        Some(meant) => format!("`{meant}`, or {list}"),
        None => list.to_owned(),
    };
    fail_hint(Exit::NoInput, format!("there is no job `{word}`"), hint)
}

/// A new id that no job has or had: a deleted job may have left records. Fails before anything is written if the job
/// file cannot be read.
pub(crate) fn unused_id(store: &Store) -> Result<String> {
    let jobs = store.jobs()?;
    loop {
        let id = random_hex(4);
        if jobs.iter().all(|job| job.id != id) && !store.folder(&id)?.exists() {
            return Ok(id);
        }
    }
}
