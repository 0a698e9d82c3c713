//! Past and unfinished runs of jobs, from their records.

use crate::cron::job::Job;
use crate::cron::record::{Folder, Record};
use crate::cron::store::{Store, is_plain};
use crate::ops::jobs::job_status;
use crate::ops::jobs::job_store;
use anyhow::{Context as _, Result};
use jiff::Timestamp;

/// A run that has begun and has no record yet.
pub(crate) struct UnfinishedRun {
    pub(crate) job_id: String,
    /// The name, or the id if the job no longer exists.
    pub(crate) job_name: String,
    pub(crate) start: Timestamp,
    /// True if the run is still in progress; false if it was interrupted.
    pub(crate) is_running: bool,
}

/// The runs of `ids` that have begun and have no record yet.
pub(crate) fn unfinished(store: &Store, ids: &[String]) -> Result<Vec<UnfinishedRun>> {
    let jobs: Vec<Job> = store.jobs()?;
    let mut runs = Vec::new();
    for id in ids {
        let folder = Folder::new(store.folder(id)?);
        let (stamps, is_running) = job_status::run_state(&folder)?;
        let Some(start) = stamps.started.and_then(|started| started.at()) else {
            continue;
        };
        let job = jobs.iter().find(|job| job.id == *id);
        runs.push(UnfinishedRun {
            job_id: id.clone(),
            job_name: job.map_or(id, |job| &job.name).clone(),
            start,
            is_running,
        });
    }
    Ok(runs)
}

/// The id of the job that `name_or_id` names: an existing job, or a removed one with records.
pub(crate) fn find_id(store: &Store, word: &str) -> Result<String> {
    if let Ok(job) = job_store::find(store, word) {
        return Ok(job.id);
    }
    if store.folder(word).is_ok_and(|folder| folder.is_dir()) {
        return Ok(word.to_owned());
    }
    for id in all_ids(store)? {
        let last = Folder::new(store.folder(&id)?).records(1)?;
        if last.iter().any(|record| record.name == word) {
            return Ok(id);
        }
    }
    job_store::find(store, word).map(|job| job.id)
}

/// The ids of all jobs that have data.
pub(crate) fn all_ids(store: &Store) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(store.own()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => {
            entries.with_context(|| format!("read the directory `{}`", store.own().display()))?
        }
    };
    let mut ids: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_plain(name))
        .collect();
    ids.sort();
    Ok(ids)
}

/// The last `count` records of each job in `ids`, in the order in which the runs ended.
pub(crate) fn records(store: &Store, ids: &[String], count: usize) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for id in ids {
        records.extend(Folder::new(store.folder(id)?).records(count)?);
    }
    records.sort_by_key(end);
    Ok(records)
}

/// The time at which a run ended.
pub(crate) fn end(record: &Record) -> Option<Timestamp> {
    record.end.parse().ok()
}
