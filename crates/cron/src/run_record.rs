//! The private state of a job's runs, in the job's directory: the last handled slot, the started run, and a record of
//! each run.
//!
//! The run state is synced to disk before a run starts and after it ends. A state that says started but not ended,
//! while the job's lock is free, means a run with an unknown outcome.
//!
//! Some keys and values of the files are shorter than the names here, which can be changed without a new format.

mod old_runs;

use anyhow::{Context, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::Origin;
use nanobot_os::durable_file;
use nanobot_os::file_lock::{self, FileLock, LockAttempt};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of the record file in bytes before rotation; one older file is kept.
const ROTATE_AT_BYTES: u64 = 1 << 20;
/// Maximum bytes read from the state file.
const MAX_STATE_BYTES: u64 = 64 << 10;
/// Maximum number of stored outputs of a job.
pub const MAX_STORED_OUTPUTS: usize = 50;

/// The directory of a job's private state.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
}

/// The state of a job's runs: its last handled slot and its started run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RunState {
    #[serde(rename = "v")]
    pub version: u32,
    /// The last slot that was run or skipped, in milliseconds since 1970.
    #[serde(rename = "handledMs")]
    pub last_slot_ms: Option<i64>,
    /// A run that was started and has not ended.
    pub started: Option<StartedRun>,
    /// The next try of a slot whose run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<PendingRetry>,
}

/// A retry that has not been started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PendingRetry {
    /// The slot, in milliseconds since 1970.
    pub slot_ms: i64,
    /// The earliest time of the retry, in milliseconds since 1970.
    pub at_ms: i64,
    /// The number of the retry, counted from 1.
    pub number: u32,
}

impl PendingRetry {
    /// Returns the slot; the epoch, which no job can be waiting for, if the number is out of range.
    pub fn slot(&self) -> Timestamp {
        Timestamp::from_millisecond(self.slot_ms).unwrap_or_default()
    }

    /// Returns the earliest time of the retry; the epoch, so that the retry is due, if the number is out of range.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_millisecond(self.at_ms).unwrap_or_default()
    }
}

/// A run that was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StartedRun {
    pub at_ms: i64,
    /// The run's slot; `None` for a manual run.
    pub slot_ms: Option<i64>,
    pub pid: u32,
    /// True until other jobs have ended, if only so many may run at once. Nothing was done yet.
    #[serde(rename = "waiting", skip_serializing_if = "std::ops::Not::not")]
    pub is_waiting: bool,
}

impl StartedRun {
    pub fn started_at(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.at_ms).ok()
    }
}

impl RunState {
    /// The version of this format.
    const FORMAT_VERSION: u32 = 1;

    pub fn last_slot(&self) -> Option<Timestamp> {
        self.last_slot_ms.and_then(|millis| Timestamp::from_millisecond(millis).ok())
    }
}

/// The cause of a job's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// The job was due.
    Schedule,
    /// A manual start.
    #[serde(rename = "hand")]
    Manual,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// The run gave an answer.
    Ok,
    /// The run had nothing to report.
    Nothing,
    /// The `--when` command reported that there is nothing to do.
    #[serde(rename = "no")]
    NotNeeded,
    Failed,
    /// The job was already running.
    Busy,
    /// The slot had passed before the job could run.
    Missed,
    /// Another program ran the job for that slot.
    Elsewhere,
    /// The run was started, and its outcome is unknown.
    Unknown,
}

impl RunOutcome {
    /// True if a model was to be asked in the run.
    pub fn has_input(self) -> bool {
        self.was_attempted() && self != Self::NotNeeded
    }

    /// Describes the outcome in one or two words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Nothing => "nothing to report",
            Self::NotNeeded => "not needed",
            Self::Failed => "failed",
            Self::Busy => "still running",
            Self::Missed => "missed",
            Self::Elsewhere => "run elsewhere",
            Self::Unknown => "outcome unknown",
        }
    }

    /// True if the run failed, or may have.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Unknown)
    }

    /// True if the job was started for this outcome, even if only its `--when` command ran. A start that was skipped
    /// says nothing about the job.
    pub fn was_attempted(self) -> bool {
        matches!(self, Self::Ok | Self::Nothing | Self::NotNeeded | Self::Failed | Self::Unknown)
    }
}

/// The record of a run: one line of `runs.jsonl`. Times are in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// The version of this format.
    pub version: u32,
    /// Eight hexadecimal digits that name the run; empty in records of earlier releases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(rename = "job")]
    pub job_id: String,
    /// The job's name at the time of the run.
    pub name: String,
    /// The machine and the release of the program, for records of many machines in one place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release: String,
    pub trigger: Trigger,
    /// The slot for which the job ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The number of the retry; 0 for the first try.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry: u32,
    pub start: String,
    pub end: String,
    pub outcome: RunOutcome,
    /// The exit status; `cause` is its name.
    pub status: u8,
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub usage: RunUsage,
    /// True if `--when` printed the input of the run, false if it printed nothing; `None` if it did not come to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_input: Option<bool>,
    /// The file that contains the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// The destination of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<String>,
    /// The origin of what the run has read, and so of its answer; `None` if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The session and the turn of a run, its usage, and the tool calls it was denied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RunUsage {
    pub session: String,
    pub turn: String,
    pub model: String,
    pub iterations: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// US dollars; `None` if the price is unknown.
    pub cost_usd: Option<f64>,
    /// Names of the denied tools, one entry per denial.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

/// The last run of a job, and if its runs succeed.
#[derive(Clone, Debug, Default)]
pub struct RunHistory {
    /// The record of the last run.
    pub last: Option<RunRecord>,
    /// Number of runs that failed since the last success.
    pub failures: usize,
    /// Start of the first of these runs.
    pub failing_since: Option<Timestamp>,
    /// The error of the last failure.
    pub error: Option<String>,
    /// Start of the last run that did not fail.
    pub last_success: Option<Timestamp>,
}

impl RunHistory {
    fn new(records: &[RunRecord]) -> Self {
        let mut history = Self { last: records.last().cloned(), ..Self::default() };
        for record in records.iter().rev().filter(|record| record.outcome.was_attempted()) {
            let start = record.start.parse().ok();
            if !record.outcome.is_failure() {
                history.last_success = start;
                break;
            }
            history.failures += 1;
            history.failing_since = start;
            history.error = history.error.or_else(|| record.error.clone());
        }
        history
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RunRecord {
    pub const FORMAT_VERSION: u32 = 1;

    /// Returns the slot that the run is for the jobs that run after this one: its end, in the precision of the run state.
    pub fn slot_of_followers(&self) -> Option<Timestamp> {
        let end: Timestamp = self.end.parse().ok()?;
        Timestamp::from_millisecond(end.as_millisecond()).ok()
    }
}

impl RunUsage {
    /// True if a model was called whose price is unknown.
    pub fn has_unknown_cost(&self) -> bool {
        self.cost_usd.is_none() && self.input_tokens + self.output_tokens > 0
    }

    /// Adds the usage of an earlier part of the run. If this value has no tokens yet, the earlier cost is used
    /// unchanged. The session, the turn and the denials remain those of the last part.
    pub fn add(&mut self, before: &Self) {
        if self.model.is_empty() {
            self.model.clone_from(&before.model);
        }
        self.cost_usd = if self.input_tokens + self.output_tokens == 0 {
            before.cost_usd
        } else {
            self.cost_usd.zip(before.cost_usd).map(|(cost, earlier_cost)| cost + earlier_cost)
        };
        self.iterations += before.iterations;
        self.input_tokens += before.input_tokens;
        self.output_tokens += before.output_tokens;
    }
}

impl JobDir {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Acquires the job's lock, which is held for the whole run.
    ///
    /// # Errors
    /// Status 75 if the lock is held; the message names its holder.
    pub fn lock(&self, name: &str, now: &str) -> Result<FileLock> {
        durable_file::create_dir(&self.path)?;
        match FileLock::try_acquire(&self.path.join("lock"), Some(now))? {
            LockAttempt::Acquired(lock) => Ok(lock),
            LockAttempt::Busy(holder) => {
                let mut cause = format!("the job `{name}` is already running");
                if let Some(holder) = holder {
                    cause += &format!(" since {} in {holder}", holder.since);
                }
                let hint = "`nanobot cron logs`, to see its progress";
                Err(fail(Exit::TryAgain, cause).with_hint(hint))
            }
        }
    }

    /// Acquires the lock of a start that waits for its delay to end.
    ///
    /// # Errors
    /// Status 75 if another start waits.
    pub fn lock_start_delay(&self, name: &str, now: &str) -> Result<FileLock> {
        durable_file::create_dir(&self.path)?;
        let path = self.path.join("delay.lock");
        let what = format!("the delayed start of `{name}`");
        FileLock::acquire(&path, &what, Some(now), Duration::ZERO, &mut |_| {})
    }

    /// True if the job is running.
    pub fn is_running(&self) -> Result<bool> {
        FileLock::is_locked(&self.path.join("lock"))
    }

    /// Reads the run state.
    ///
    /// # Errors
    /// Status 78 if it cannot be read: without it a slot might run twice.
    pub fn read_state(&self) -> Result<RunState> {
        let path = self.path.join("state.json");
        let Some(bytes) = durable_file::read_limited(&path, MAX_STATE_BYTES)? else {
            return Ok(RunState::default());
        };
        let state: RunState = serde_json::from_slice(&bytes).map_err(|error| {
            fail(Exit::Config, format!("`{}` is invalid: {error}", path.display()))
                .with_hint("remove the file if the job may run again immediately")
        })?;
        if state.version > RunState::FORMAT_VERSION {
            Err(fail(Exit::Config, format!("`{}` was written by a newer release", path.display())))
        } else {
            Ok(state)
        }
    }

    /// Writes the run state and syncs it to disk.
    pub fn write_state(&self, state: &RunState) -> Result<()> {
        durable_file::create_dir(&self.path)?;
        let current = RunState { version: RunState::FORMAT_VERSION, ..*state };
        let text = serde_json::to_vec(&current).context("encode the run state")?;
        durable_file::replace(&self.path.join("state.json"), &text)
    }

    /// Returns the path of the record file.
    pub(crate) fn record_path(&self) -> PathBuf {
        self.path.join("runs.jsonl")
    }

    /// Appends a record and syncs it to disk.
    pub fn append_record(&self, record: &RunRecord) -> Result<()> {
        durable_file::create_dir(&self.path)?;
        let path = self.record_path();
        let mut line = serde_json::to_vec(record).context("encode the run record")?;
        line.push(b'\n');
        while !self.append_line(&durable_file::open_line_log(&path)?, &line)? {}
        Ok(())
    }

    /// Appends a line to `file`, which was opened as the record file, and rotates it if it is too large. Returns false, and
    /// writes nothing, if another process has rotated it since: to rename the new record file would replace the rotated
    /// one.
    fn append_line(&self, file: &File, line: &[u8]) -> Result<bool> {
        let path = self.record_path();
        file_lock::with_lock(file, &path, || {
            if !is_at(file, &path)? {
                return Ok(false);
            }
            let size = durable_file::size(file, &path)?;
            durable_file::append_to(file, &path, size, line)?;
            durable_file::sync(file, &path)?;
            if size > ROTATE_AT_BYTES {
                std::fs::rename(&path, self.rotated_path()).context("rotate the run records")?;
            }
            Ok(true)
        })
    }

    fn rotated_path(&self) -> PathBuf {
        self.path.join("runs.1.jsonl")
    }

    /// Returns the path of an output of the run that began at `start`, as [`Self::store_output`] stores it.
    pub fn output_path(&self, start: Timestamp, suffix: &str) -> PathBuf {
        let name = format!("{}{suffix}.txt", output_name(start));
        self.path.join("output").join(name)
    }

    /// Returns the last `count` records, oldest first. Invalid lines are skipped.
    pub fn last_records(&self, count: usize) -> Result<Vec<RunRecord>> {
        let mut records = Vec::new();
        for path in [self.rotated_path(), self.record_path()] {
            records.extend(read_records(&path)?);
        }
        let excess_count = records.len().saturating_sub(count);
        Ok(records.split_off(excess_count))
    }

    /// Returns the last run that gave an answer and ended at `until` or before.
    pub fn last_answered(&self, until: Timestamp) -> Result<Option<RunRecord>> {
        for path in [self.record_path(), self.rotated_path()] {
            let bytes = durable_file::read(&path)?.unwrap_or_default();
            // Starts of crontab lines do this, so only the last lines are parsed.
            let records = bytes.rsplit(|byte| *byte == b'\n').map(serde_json::from_slice);
            let mut records = records
                .filter_map(Result::<RunRecord, _>::ok)
                .filter(|record| record.outcome == RunOutcome::Ok);
            let is_in_time =
                |record: &RunRecord| record.slot_of_followers().is_some_and(|end| end <= until);
            if let Some(record) = records.find(is_in_time) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the last run, and if the runs succeed.
    pub fn history(&self) -> Result<RunHistory> {
        Ok(RunHistory::new(&self.last_records(usize::MAX)?))
    }

    /// Stores an output of the run that began at `start`, and removes the oldest ones of its kind. `suffix` tells it from the
    /// answer, which has none.
    pub fn store_output(&self, start: Timestamp, suffix: &str, bytes: &[u8]) -> Result<PathBuf> {
        let directory = self.path.join("output");
        durable_file::create_dir(&directory)?;
        let path = self.output_path(start, suffix);
        durable_file::replace(&path, bytes)?;
        let ending = format!("Z{suffix}.txt");
        let mut outputs: Vec<PathBuf> = std::fs::read_dir(&directory)
            .with_context(|| format!("read `{}`", directory.display()))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.ends_with(&ending))
            })
            .collect();
        outputs.sort();
        let excess_count = outputs.len().saturating_sub(MAX_STORED_OUTPUTS);
        for old in &outputs[..excess_count] {
            durable_file::remove(old)?;
        }
        Ok(path)
    }
}

/// The beginning of the names of the outputs of the run that began at `start`.
fn output_name(start: Timestamp) -> String {
    start.strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

fn read_records(path: &Path) -> Result<Vec<RunRecord>> {
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(Vec::new());
    };
    let lines = BufReader::new(file).split(b'\n');
    let mut records = Vec::new();
    for line in lines {
        let line = line.with_context(|| format!("read `{}`", path.display()))?;
        records.extend(serde_json::from_slice::<RunRecord>(&line));
    }
    Ok(records)
}

/// True if `path` still leads to the open `file`.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let context = || format!("stat `{}`", path.display());
    let open = file.metadata().with_context(context)?;
    match std::fs::metadata(path) {
        Ok(metadata) => Ok((metadata.dev(), metadata.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(context),
    }
}

#[cfg(test)]
mod tests {
    use super::{JobDir, MAX_STORED_OUTPUTS, ROTATE_AT_BYTES};
    use jiff::Timestamp;
    use nanobot_os::durable_file;

    #[test]
    fn a_file_that_another_process_has_rotated_is_not_rotated_again() {
        let dir = tempfile::tempdir().unwrap();
        let job_dir = JobDir::new(dir.path().to_owned());
        let path = job_dir.record_path();
        std::fs::write(&path, vec![b'\n'; usize::try_from(ROTATE_AT_BYTES).unwrap() + 1]).unwrap();
        let opened_before = durable_file::open_line_log(&path).unwrap();
        let open = || durable_file::open_line_log(&path).unwrap();
        assert!(job_dir.append_line(&open(), b"first\n").unwrap());
        assert!(!job_dir.append_line(&opened_before, b"no\n").unwrap(), "there is no new file");
        assert!(job_dir.append_line(&open(), b"second\n").unwrap());
        assert!(!job_dir.append_line(&opened_before, b"no\n").unwrap(), "there is a new file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second\n");
        assert!(std::fs::read_to_string(job_dir.rotated_path()).unwrap().ends_with("\nfirst\n"));
    }

    #[test]
    fn an_old_output_may_be_removed_by_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let job_dir = &JobDir::new(dir.path().to_owned());
        std::fs::create_dir(dir.path().join("output")).unwrap();
        for second in 0..1000 {
            let start = Timestamp::from_second(second).unwrap();
            std::fs::write(job_dir.output_path(start, ""), "old").unwrap();
        }
        std::thread::scope(|scope| {
            for second in 1000..1004 {
                let start = Timestamp::from_second(second).unwrap();
                scope.spawn(move || job_dir.store_output(start, "", b"new").unwrap());
            }
        });
        let count = std::fs::read_dir(dir.path().join("output")).unwrap().count();
        assert_eq!(count, MAX_STORED_OUTPUTS);
    }
}
