//! Past and unfinished runs of jobs, from their records.

use crate::ops::jobs::job_status;
use crate::ops::jobs::workspace_jobs;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_base::message::{Message, ToolCall};
use nanobot_cron::job::Job;
use nanobot_cron::job_store::{JobStore, is_valid_id};
use nanobot_cron::run_record::{JobDir, RunRecord, RunUsage, StartedRun};
use nanobot_os::durable_file;
use nanobot_store::session::{self, SessionEntry, SessionStore};

/// A run that has begun and has no record yet.
pub(crate) struct UnfinishedRun {
    pub(crate) job_id: String,
    /// The name, or the id if the job no longer exists.
    pub(crate) job_name: String,
    pub(crate) started: StartedRun,
    pub(crate) start: Timestamp,
    /// True if the run is still in progress; false if it was interrupted.
    pub(crate) is_running: bool,
}

/// The runs of `ids` that have begun and have no record yet.
pub(crate) fn unfinished_runs(store: &JobStore, ids: &[String]) -> Result<Vec<UnfinishedRun>> {
    let jobs: Vec<Job> = store.jobs()?;
    let mut runs = Vec::new();
    for id in ids {
        let job_dir = JobDir::new(store.job_dir(id)?);
        let (state, is_running) = job_status::read_run_state(&job_dir)?;
        let Some(started) = state.started else {
            continue;
        };
        let Some(start) = started.started_at() else {
            continue;
        };
        let job = jobs.iter().find(|job| job.id == *id);
        runs.push(UnfinishedRun {
            job_id: id.clone(),
            job_name: job.map_or(id, |job| &job.name).clone(),
            started,
            start,
            is_running,
        });
    }
    Ok(runs)
}

/// The id of the job that `name_or_id` names: an existing job, or a removed one with records.
pub(crate) fn find_id(store: &JobStore, name_or_id: &str) -> Result<String> {
    let error = match workspace_jobs::find(store, name_or_id) {
        Ok(job) => return Ok(job.id),
        Err(error) if exit_for(&error) == Exit::NoInput => error,
        Err(error) => return Err(error),
    };
    if store.job_dir(name_or_id).is_ok_and(|path| path.is_dir()) {
        return Ok(name_or_id.to_owned());
    }
    let mut ids = Vec::new();
    for id in all_ids(store)? {
        let last = JobDir::new(store.job_dir(&id)?).last_records(1)?;
        if last.iter().any(|record| record.name == name_or_id) {
            ids.push(id);
        }
    }
    match &ids[..] {
        [] => Err(error),
        [id] => Ok(id.clone()),
        _ => Err(workspace_jobs::ambiguous_name_error(&ids, name_or_id)),
    }
}

/// The record of the run `run_id`, of any job.
///
/// # Errors
/// Status 66 if there is none.
pub(crate) fn find_run(store: &JobStore, run_id: &str) -> Result<RunRecord> {
    // Runs of earlier releases have no id.
    let is_meant = |record: &RunRecord| record.id == run_id && !run_id.is_empty();
    for id in all_ids(store)? {
        let records = JobDir::new(store.job_dir(&id)?).last_records(usize::MAX)?;
        if let Some(record) = records.into_iter().find(is_meant) {
            return Ok(record);
        }
    }
    let cause = format!("there is no run `{run_id}`");
    Err(fail(Exit::NoInput, cause).with_hint("`nanobot cron logs` for the runs"))
}

/// A tool call of a run.
pub(crate) struct RunToolCall {
    pub(crate) call: ToolCall,
    /// True if it failed or was denied; `None` if it has no result.
    pub(crate) failed: Option<bool>,
}

/// The tool calls of the run in `record`; `None` if its conversation is no longer stored.
pub(crate) fn tool_calls(
    store: &SessionStore,
    record: &RunRecord,
) -> Result<Option<Vec<RunToolCall>>> {
    let RunUsage { session, turn, .. } = &record.usage;
    let entries = match session::read_entries(store, session) {
        Err(error) if exit_for(&error) == Exit::NoInput => return Ok(None),
        entries => entries?,
    };
    let mut calls: Option<Vec<RunToolCall>> = None;
    for entry in entries {
        let SessionEntry::Message(logged) = entry? else {
            continue;
        };
        if turn.is_empty() || logged.turn != *turn {
            continue;
        }
        let calls = calls.get_or_insert_default();
        match logged.message {
            Message::Assistant(reply) => calls.extend(
                reply.tool_calls.into_iter().map(|call| RunToolCall { call, failed: None }),
            ),
            Message::Tool(result) => {
                let mut open_calls = calls.iter_mut().filter(|call| call.failed.is_none());
                if let Some(call) = open_calls.find(|call| call.call.id == result.call_id) {
                    call.failed = Some(result.failed);
                }
            }
            Message::User(_) => {}
        }
    }
    Ok(calls)
}

/// The ids of all jobs that have data.
pub(crate) fn all_ids(store: &JobStore) -> Result<Vec<String>> {
    let mut ids: Vec<String> = durable_file::list_dir(store.data_dir())?
        .into_iter()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_valid_id(name))
        .collect();
    ids.sort();
    Ok(ids)
}

/// The last `count` records of each job in `ids`, in the order in which the runs ended. The records of one job stay in the
/// order in which they were written, even if the clock was wrong.
pub(crate) fn records(
    store: &JobStore,
    ids: &[String],
    count: usize,
    now: Timestamp,
) -> Result<Vec<RunRecord>> {
    let mut records = Vec::new();
    for id in ids {
        let job_records = JobDir::new(store.job_dir(id)?).last_records(count)?;
        let ends: Vec<_> = job_records.iter().map(end_time).collect();
        records.extend(plausible_times(&ends, now).into_iter().zip(job_records));
    }
    records.sort_by_key(|(end, _)| *end);
    Ok(records.into_iter().map(|(_, record)| record).collect())
}

/// The times of a log, in its order. They are corrected where the clock was wrong: no time is in the future or before an earlier one.
fn plausible_times(times: &[Option<Timestamp>], now: Timestamp) -> Vec<Timestamp> {
    let mut next = now;
    let mut plausible: Vec<Timestamp> = times
        .iter()
        .rev()
        .map(|time| {
            next = time.filter(|time| *time <= now).unwrap_or(next);
            next
        })
        .collect();
    plausible.reverse();
    for index in 1..plausible.len() {
        plausible[index] = plausible[index].max(plausible[index - 1]);
    }
    plausible
}

/// The time at which a run ended.
pub(crate) fn end_time(record: &RunRecord) -> Option<Timestamp> {
    record.end.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::plausible_times;
    use jiff::Timestamp;

    #[test]
    fn a_wrong_clock_does_not_change_the_order_of_a_log() {
        let check = |times: &[i64], expect: &[i64]| {
            let time = |second: &i64| Timestamp::from_second(*second).unwrap();
            let times: Vec<_> = times.iter().map(|second| Some(time(second))).collect();
            let plausible = plausible_times(&times, time(&100));
            assert_eq!(plausible, expect.iter().map(time).collect::<Vec<_>>(), "{times:?}");
        };
        check(&[], &[]);
        check(&[10, 20, 100], &[10, 20, 100]);
        // The clock was ahead, once, or until now.
        check(&[10, 900, 30], &[10, 30, 30]);
        check(&[10, 900, 901], &[10, 100, 100]);
        // It was behind.
        check(&[10, 1, 30], &[10, 10, 30]);
    }
}
