//! The job store of a workspace, and the lookup of jobs by name or id.

use super::cron_environment;
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_cron::job::{Job, JobKind, JobOptions};
use nanobot_cron::job_store::JobStore;
use nanobot_os::secret::random_hex;
use std::path::PathBuf;

/// The working directory of a job: the workspace, unless the job has another one.
pub(crate) fn job_directory(settings: &Settings, options: &JobOptions) -> PathBuf {
    match options.grants["directory"].as_str() {
        Some(path) => PathBuf::from(path),
        None => settings.workspace.clone(),
    }
}

/// True if `job` is the check of HEARTBEAT.md.
pub(super) fn is_heartbeat(job: &Job) -> bool {
    job.options.as_ref().is_some_and(|options| options.kind == JobKind::Heartbeat)
}

/// Opens the job store of the workspace. Jobs that older releases keep in the data directory belong to the workspace of
/// the config file.
pub(crate) fn open(ctx: &Context, settings: &Settings) -> JobStore {
    // Most users have no such jobs, so the config file need not be read.
    let has_legacy_jobs = JobStore::has_legacy_file(&ctx.paths.root)
        && cron_environment::default_workspace(ctx, &ctx.paths.config)
            == Some(cron_environment::real_path(&settings.workspace));
    JobStore::new(&settings.workspace, &ctx.paths.root, has_legacy_jobs)
}

/// The enabled jobs that run after the job `id`.
pub(crate) fn followers<'a>(jobs: &'a [Job], id: &str) -> impl Iterator<Item = &'a Job> {
    jobs.iter().filter(move |job| job.enabled && job.follows() == Some(id))
}

/// The job that `name_or_id` names: by its id, or by its name if the name is unique.
pub(crate) fn find(store: &JobStore, name_or_id: &str) -> Result<Job> {
    find_among(&store.jobs()?, name_or_id)
}

/// The job of `jobs` that `name_or_id` names, as [`find`].
pub(crate) fn find_among(jobs: &[Job], name_or_id: &str) -> Result<Job> {
    if let Some(job) = jobs.iter().find(|job| job.id == name_or_id) {
        return Ok(job.clone());
    }
    let matches: Vec<&Job> = jobs.iter().filter(|job| job.name == name_or_id).collect();
    match matches[..] {
        [job] => Ok(job.clone()),
        [] => Err(unknown_job_error(jobs, name_or_id)),
        _ => Err(ambiguous_name_error(&ids_of(&matches), name_or_id)),
    }
}

/// The job that `name_or_id` names, with its options.
///
/// # Errors
/// The errors of [`find`]; status 78 if the job's id is invalid or its options are damaged.
pub(crate) fn find_usable(store: &JobStore, name_or_id: &str) -> Result<Job> {
    let job = find(store, name_or_id)?;
    // This fails for an id that cannot be a directory.
    store.job_dir(&job.id)?;
    let job = store.job(&job.id)?;
    job.ok_or_else(|| unknown_job_error(&[], name_or_id))
}

/// The job of `jobs` named `name`; `None` if there is none.
///
/// # Errors
/// Status 2 if several jobs have that name; status 78 if the job's id is invalid or its options are damaged.
pub(crate) fn find_named(store: &JobStore, jobs: &[Job], name: &str) -> Result<Option<Job>> {
    let matches: Vec<&Job> = jobs.iter().filter(|job| job.name == name).collect();
    match matches[..] {
        [] => Ok(None),
        [job] => {
            store.check_options(&job.id)?;
            Ok(Some(job.clone()))
        }
        _ => Err(ambiguous_name_error(&ids_of(&matches), name)),
    }
}

fn ids_of(jobs: &[&Job]) -> Vec<String> {
    jobs.iter().map(|job| job.id.clone()).collect()
}

/// The error for a name of several jobs.
pub(crate) fn ambiguous_name_error(ids: &[String], name: &str) -> anyhow::Error {
    fail(Exit::Usage, format!("{} jobs are named `{name}`", ids.len()))
        .with_hint(format!("an id: {}", ids.join(", ")))
}

/// The error for a job that does not exist.
pub(crate) fn unknown_job_error(jobs: &[Job], name_or_id: &str) -> anyhow::Error {
    let names = jobs.iter().flat_map(|job| [&*job.name, &*job.id]);
    let list = "`nanobot cron list --all` for the ids";
    let hint = match nearest(name_or_id, names) {
        Some(nearest) => format!("`{nearest}`, or {list}"),
        None => list.to_owned(),
    };
    fail(Exit::NoInput, format!("there is no job `{name_or_id}`")).with_hint(hint)
}

/// A new id. None of `jobs` has it, and no deleted job whose records may be left.
pub(crate) fn unused_id(store: &JobStore, jobs: &[Job]) -> Result<String> {
    loop {
        let id = random_hex(4);
        if jobs.iter().all(|job| job.id != id) && !store.job_dir(&id)?.exists() {
            return Ok(id);
        }
    }
}
