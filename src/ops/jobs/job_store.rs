//! The job store of a workspace, and the jobs that a person names.

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

/// Where a job works: in the workspace, unless it was told another place.
pub(crate) fn job_directory(settings: &Settings, terms: &Terms) -> PathBuf {
    match terms.grants["directory"].as_str() {
        Some(path) => PathBuf::from(path),
        None => settings.workspace.clone(),
    }
}

/// The jobs of the workspace. What older releases keep in the data directory belongs to the workspace of the config,
/// however that was come to.
pub(crate) fn open(ctx: &Context, settings: &Settings) -> Store {
    // Most have none, and need not be asked whose it would be.
    let older = Store::has_older(&ctx.paths.root) && {
        let usual = cron_environment::workspace(ctx, &ctx.paths.config);
        usual == Some(cron_environment::real(&settings.workspace))
    };
    Store::new(&settings.workspace, &ctx.paths.root, older)
}

/// The job that `word` names: by its id, or by its name where one alone has it.
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
                format!("{} jobs are called `{word}`", named.len()),
                format!("their ids instead: {}", ids.join(", ")),
            ))
        }
    }
}

pub(crate) fn unknown_job(jobs: &[Job], word: &str) -> anyhow::Error {
    let names = jobs.iter().flat_map(|job| [&*job.name, &*job.id]);
    let list = "`nanobot cron list --all`, which prints their ids";
    let hint = match nearest(word, names) {
        Some(meant) => format!("`{meant}`, or {list}"),
        None => list.to_owned(),
    };
    fail_hint(Exit::NoInput, format!("there is no job `{word}`"), hint)
}

/// An id that no job has, nor had: a record may be left of it. A file that cannot be read is told here, before anything is
/// written.
pub(crate) fn unused_id(store: &Store) -> Result<String> {
    let jobs = store.jobs()?;
    loop {
        let id = random_hex(4);
        if jobs.iter().all(|job| job.id != id) && !store.folder(&id)?.exists() {
            return Ok(id);
        }
    }
}
