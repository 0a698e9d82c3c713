//! Past and unfinished runs of jobs, from their records.

use crate::cron::job::Job;
use crate::cron::job_store::{JobStore, is_valid_id};
use crate::cron::run_record::{JobDir, RunRecord};
use crate::ops::jobs::job_status;
use crate::ops::jobs::workspace_jobs;
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
pub(crate) fn unfinished_runs(store: &JobStore, ids: &[String]) -> Result<Vec<UnfinishedRun>> {
    let jobs: Vec<Job> = store.jobs()?;
    let mut runs = Vec::new();
    for id in ids {
        let folder = JobDir::new(store.job_dir(id)?);
        let (stamps, is_running) = job_status::read_run_state(&folder)?;
        let Some(start) = stamps.started.and_then(|started| started.started_at()) else {
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
pub(crate) fn find_id(store: &JobStore, name_or_id: &str) -> Result<String> {
    if let Ok(job) = workspace_jobs::find(store, name_or_id) {
        return Ok(job.id);
    }
    if store.job_dir(name_or_id).is_ok_and(|folder| folder.is_dir()) {
        return Ok(name_or_id.to_owned());
    }
    for id in all_ids(store)? {
        let last = JobDir::new(store.job_dir(&id)?).last_records(1)?;
        if last.iter().any(|record| record.name == name_or_id) {
            return Ok(id);
        }
    }
    workspace_jobs::find(store, name_or_id).map(|job| job.id)
}

/// The ids of all jobs that have data.
pub(crate) fn all_ids(store: &JobStore) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(store.data_dir()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries
            .with_context(|| format!("read the directory `{}`", store.data_dir().display()))?,
    };
    let mut ids: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_valid_id(name))
        .collect();
    ids.sort();
    Ok(ids)
}

/// The last `count` records of each job in `ids`, in the order in which the runs ended.
pub(crate) fn records(store: &JobStore, ids: &[String], count: usize) -> Result<Vec<RunRecord>> {
    let mut records = Vec::new();
    for id in ids {
        records.extend(JobDir::new(store.job_dir(id)?).last_records(count)?);
    }
    records.sort_by_key(end_time);
    Ok(records)
}

/// The time at which a run ended.
pub(crate) fn end_time(record: &RunRecord) -> Option<Timestamp> {
    record.end.parse().ok()
}
