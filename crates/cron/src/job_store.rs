//! The jobs of a workspace: the entries of the job file, combined with the options that only this program stores. The
//! Python program writes the job file too, so keys that we do not know are preserved.
//!
//! Releases up to 0.1.4.post5 keep the file in the data directory, later ones in the workspace. Each job is changed
//! in the file that contains it.

use super::job::{HEARTBEAT_ID, Job, JobKind, JobOptions, Predecessor};
use super::job_chain::check_chain;
use super::job_entry::{self, get_text, has_id, parse_period, update_entry};
use super::job_file::{self, READ_LIMIT_BYTES, damaged_error, entries, entries_mut, has_job, load};
use super::run_record::JobDir;
use super::schedule::Schedule;
use anyhow::{Context, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The path of the file, relative to the workspace or the data directory.
const JOB_FILE: &str = "cron/jobs.json";
/// Marker file: cron is to run this job of another program.
const TAKEN_OVER_FILE: &str = "taken";

/// The result of adding a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddResult {
    Added,
    /// The limit on jobs created by runs is reached.
    LimitReached,
}

/// The jobs of a workspace.
#[derive(Clone, Debug)]
pub struct JobStore {
    /// Possible paths of the job file: in the workspace, then where older releases have it.
    job_files: Vec<PathBuf>,
    /// Directory with a directory per job for the data that only this program stores.
    data_dir: PathBuf,
}

impl JobStore {
    /// Opens the jobs of `workspace`; `data` is our own directory. With `with_legacy`, the job file of older releases
    /// is included.
    pub fn new(workspace: &Path, data: &Path, with_legacy: bool) -> Self {
        let mut job_files = vec![workspace.join(JOB_FILE)];
        job_files.extend(with_legacy.then(|| data.join(JOB_FILE)));
        job_files.dedup();
        Self { job_files, data_dir: data.join("cron") }
    }

    /// True if there is a job file of older releases.
    pub fn has_legacy_file(data: &Path) -> bool {
        data.join(JOB_FILE).exists()
    }

    /// Returns the file for new jobs.
    pub fn job_file(&self) -> &Path {
        let existing = self.job_files.iter().find(|path| path.exists());
        existing.unwrap_or(&self.job_files[0])
    }

    /// Returns the directory with our own data on the job `id`.
    ///
    /// # Errors
    /// Status 78 if the id is not a safe directory name, since it could lead elsewhere.
    pub fn job_dir(&self, id: &str) -> Result<PathBuf> {
        if is_valid_id(id) { Ok(self.data_dir.join(id)) } else { Err(invalid_id_error(id)) }
    }

    /// Lets cron run the job `id` of another program from now on.
    pub fn take_over(&self, id: &str) -> Result<()> {
        let job_dir = self.job_dir(id)?;
        let marker = job_dir.join(TAKEN_OVER_FILE);
        if marker.exists() {
            return Ok(());
        }
        durable_file::create_dir(&job_dir)?;
        durable_file::create_marker(&marker)
    }

    /// True if cron is to run the job `id`, which another program created.
    pub fn is_taken_over(&self, id: &str) -> bool {
        self.job_dir(id).is_ok_and(|job_dir| job_dir.join(TAKEN_OVER_FILE).is_file())
    }

    /// True if cron is to run `job`: it is ours, or it was taken over.
    pub fn is_managed(&self, job: &Job) -> bool {
        job.options.is_some() || self.is_taken_over(&job.id)
    }

    /// The directory that contains the directories of the jobs.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Returns all jobs in file order, followed by the heartbeat. A job whose options cannot be read has no schedule:
    /// without its limits it must not run, and the other jobs do not depend on it.
    ///
    /// # Errors
    /// Status 78 if a file is not a valid job file; it is copied aside.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let (mut jobs, mut ids) = (Vec::new(), HashSet::new());
        for path in &self.job_files {
            for value in entries(&load(path)?) {
                let id = get_text(value, "id");
                // This id is reserved for the heartbeat, which is not in any file.
                if id.as_deref() == Some(HEARTBEAT_ID) {
                    continue;
                }
                if id.is_none_or(|id| ids.insert(id)) {
                    let job = job_entry::to_job(value);
                    jobs.push(self.with_options(job.clone()).unwrap_or_else(unusable(job)));
                }
            }
        }
        let heartbeat = self.heartbeat().or_else(|error| {
            let job = Job::heartbeat(Timestamp::default());
            anyhow::Ok(Some(unusable(Job { options: None, ..job })(error)))
        });
        jobs.extend(heartbeat?);
        Ok(jobs)
    }

    /// Describes anything unusual about the files.
    pub fn warnings(&self) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for path in &self.job_files {
            if has_job(&load(path)?, HEARTBEAT_ID) {
                let path = path.display();
                warnings.push(format!(
                    "`{path}` has a job with the id `{HEARTBEAT_ID}`, which is ignored: the id is reserved"
                ));
            }
            let mut ids = HashSet::new();
            for id in entries(&load(path)?).filter_map(|value| get_text(value, "id")) {
                if !ids.insert(id.clone()) {
                    let path = path.display();
                    warnings.push(format!(
                        "`{path}` has two jobs with the id `{id}`; only the first one runs: give the other another id"
                    ));
                }
            }
            if !path.is_file() {
                continue;
            }
            for path in [Some(path.as_path()), path.parent()].into_iter().flatten() {
                if let Some(cause) = durable_file::unsafe_permissions(path) {
                    warnings.push(format!(
                        "`{}` {cause}, so other users can change the jobs' messages",
                        path.display()
                    ));
                }
            }
        }
        Ok(warnings)
    }

    /// Returns the job `id`; `None` if there is none.
    ///
    /// # Errors
    /// Status 78 if the job file or the job's options are damaged.
    pub fn job(&self, id: &str) -> Result<Option<Job>> {
        if id == HEARTBEAT_ID {
            return self.heartbeat();
        }
        let value = self.find_entry(id)?;
        value.map(|value| self.with_options(job_entry::to_job(&value))).transpose()
    }

    /// Adds a job with a unique id, or replaces the heartbeat.
    ///
    /// With `limit`, the job is only added if runs have created fewer jobs than that.
    pub fn add(&self, job: &Job, now: Timestamp, limit: Option<usize>) -> Result<AddResult> {
        let mut job = job.clone();
        job.bind_options();
        if job.id == HEARTBEAT_ID {
            return self.write_options(&job).map(|()| AddResult::Added);
        }
        let path = self.job_file().to_owned();
        let is_added = self.change(&path, |file, replaced| {
            if let Some(limit) = limit {
                let jobs = self.jobs()?;
                let by_model =
                    |job: &&Job| job.options.as_ref().is_some_and(|options| options.by_model);
                if jobs.iter().filter(by_model).count() >= limit {
                    return Ok(false);
                }
            }
            self.replace_options(&job, replaced)?;
            add_entry(file, &path, &job, now).map(|()| true)
        })?;
        Ok(if is_added { AddResult::Added } else { AddResult::LimitReached })
    }

    /// Changes the current state of the job `id` in its file; returns true if it exists. The options are only written
    /// if `change` says so.
    pub fn update(
        &self,
        id: &str,
        now: Timestamp,
        mut change: impl FnMut(&mut Job) -> bool,
    ) -> Result<bool> {
        if id == HEARTBEAT_ID {
            let Some(mut job) = self.heartbeat()? else {
                return Ok(false);
            };
            if change(&mut job) {
                self.write_options(&job)?;
            }
            return Ok(true);
        }
        for path in &self.job_files {
            let exists = self.change(path, |file, replaced| {
                let Some(value) = entries_mut(file).find(|value| has_id(value, id)) else {
                    return Ok(false);
                };
                let mut job = self.with_options(job_entry::to_job(value))?;
                if change(&mut job) {
                    // Another job may have changed since the caller has checked its own.
                    if job.follows().is_some() {
                        check_chain(&self.jobs()?, &job)?;
                    }
                    self.replace_options(&job, replaced)?;
                }
                update_entry(value, &job, now);
                Ok(true)
            })?;
            if exists {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the job `id` from the file together with its grants, since another program may reuse the id. Returns
    /// true if it existed. The data of its runs is kept.
    pub fn remove(&self, id: &str) -> Result<bool> {
        if id == HEARTBEAT_ID {
            let existed = self.heartbeat()?.is_some();
            self.remove_options(id)?;
            return Ok(existed);
        }
        let mut existed = false;
        for path in &self.job_files {
            existed |= job_file::update(path, |file| {
                let Some(jobs) = file.get_mut("jobs").and_then(Value::as_array_mut) else {
                    return Ok(false);
                };
                let count_before = jobs.len();
                jobs.retain(|value| !has_id(value, id));
                Ok(jobs.len() < count_before)
            })?;
        }
        if is_valid_id(id) {
            self.remove_options(id)?;
        }
        Ok(existed)
    }

    /// Adds `saved_jobs`, or changes the jobs with their ids as [`Job::apply_edit`] does, and removes the jobs with the ids
    /// `removed_ids`, in one change of each file that contains some of them.
    ///
    /// # Errors
    /// A job or a file cannot be written, or a job would run after itself; then that file and its options are as before.
    pub fn save(&self, saved_jobs: &[&Job], removed_ids: &[&str], now: Timestamp) -> Result<()> {
        let new_file = self.job_file().to_owned();
        for path in &self.job_files {
            self.change(path, |file, replaced| {
                self.check_chains(saved_jobs)?;
                let other_paths = self.job_files.iter().filter(|other| *other != path);
                let other_files = other_paths.map(|path| load(path)).collect::<Result<Vec<_>>>()?;
                let is_elsewhere = |id: &str| other_files.iter().any(|file| has_job(file, id));
                let mut is_changed = false;
                for saved_job in saved_jobs {
                    if let Some(value) =
                        entries_mut(file).find(|value| has_id(value, &saved_job.id))
                    {
                        let mut job = self.with_options(job_entry::to_job(value))?;
                        job.apply_edit(saved_job);
                        self.replace_options(&job, replaced)?;
                        update_entry(value, &job, now);
                    } else if *path == new_file && !is_elsewhere(&saved_job.id) {
                        let mut job = (*saved_job).clone();
                        job.bind_options();
                        self.replace_options(&job, replaced)?;
                        add_entry(file, path, &job, now)?;
                    } else {
                        continue;
                    }
                    is_changed = true;
                }
                let is_removed = |value: &Value| removed_ids.iter().any(|id| has_id(value, id));
                if entries(file).any(is_removed)
                    && let Some(jobs) = file.get_mut("jobs").and_then(Value::as_array_mut)
                {
                    jobs.retain(|value| !is_removed(value));
                    is_changed = true;
                }
                Ok(is_changed)
            })?;
        }
        removed_ids.iter().try_for_each(|id| self.remove_options(id))
    }

    /// Returns the entry of the job `id` in the first file that contains it.
    fn find_entry(&self, id: &str) -> Result<Option<Value>> {
        for path in &self.job_files {
            if let Some(value) = job_file::find_entry(path, id)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Changes the job file at `path`, and the options of its jobs, under the lock of the file. It is written only if `change` returns
    /// true. Returns the same.
    ///
    /// Options are written before the file, so that a job is never in the file without its limits. If the file cannot be
    /// written, those in the list that `change` gets are restored before the lock is free: another process may change
    /// them from then on.
    fn change(
        &self,
        path: &Path,
        change: impl FnOnce(&mut Map<String, Value>, &mut Vec<ReplacedOptions>) -> Result<bool>,
    ) -> Result<bool> {
        let _lock = job_file::lock(path)?;
        // The file is replaced by another one.
        let inode = || std::fs::metadata(path).ok().map(|metadata| metadata.ino());
        let inode_before = inode();
        let mut replaced = Vec::new();
        let result = job_file::update_locked(path, |file| change(file, &mut replaced));
        // The file may be written even if only the last system call failed; then its jobs keep their options.
        if result.is_err() && inode() == inode_before {
            for ReplacedOptions { id, bytes } in replaced.iter().rev() {
                let restored = match bytes {
                    Some(bytes) => durable_file::replace(&self.options_path(id)?, bytes),
                    None => self.remove_job_dir(id),
                };
                if let Err(other) = restored {
                    return result.context(format!("{other:#}"));
                }
            }
        }
        result
    }

    /// Checks that none of `saved_jobs` will run after itself. The file is locked.
    fn check_chains(&self, saved_jobs: &[&Job]) -> Result<()> {
        if saved_jobs.iter().all(|job| job.follows().is_none()) {
            return Ok(());
        }
        let mut jobs = self.jobs()?;
        for saved_job in saved_jobs {
            jobs.retain(|job| job.id != saved_job.id);
            jobs.push((*saved_job).clone());
        }
        saved_jobs.iter().try_for_each(|job| check_chain(&jobs, job))
    }

    fn remove_options(&self, id: &str) -> Result<()> {
        durable_file::remove(&self.options_path(id)?).map(drop)
    }

    /// Removes all data that only this program stores of the job `id`.
    pub fn remove_job_dir(&self, id: &str) -> Result<()> {
        let job_dir = self.job_dir(id)?;
        match std::fs::remove_dir_all(&job_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove `{}`", job_dir.display()))
            }
            _ => Ok(()),
        }
    }

    fn heartbeat(&self) -> Result<Option<Job>> {
        let options = self.read_options(HEARTBEAT_ID)?;
        let Some(options) = options.filter(|options| options.kind == JobKind::Heartbeat) else {
            return Ok(None);
        };
        let created = Timestamp::from_millisecond(options.since_ms).unwrap_or_default();
        let schedule = match options.every_ms {
            Some(millis) => parse_period(millis),
            None => Err("its options have no interval".into()),
        };
        Ok(Some(Job { schedule, options: Some(options), ..Job::heartbeat(created) }))
    }

    /// Checks that the options of the job `id` can be read.
    ///
    /// # Errors
    /// Status 78 if the id is invalid or the options are damaged.
    pub fn check_options(&self, id: &str) -> Result<()> {
        self.job_dir(id)?;
        self.read_options(id).map(drop)
    }

    /// True if the job `id` has stored options.
    pub fn has_options(&self, id: &str) -> Result<bool> {
        Ok(is_valid_id(id) && self.options_path(id)?.exists())
    }

    fn options_path(&self, id: &str) -> Result<PathBuf> {
        Ok(self.job_dir(id)?.join("job.json"))
    }

    fn read_options(&self, id: &str) -> Result<Option<JobOptions>> {
        if !is_valid_id(id) {
            return Ok(None);
        }
        let path = self.options_path(id)?;
        let Some(bytes) = durable_file::read_limited(&path, READ_LIMIT_BYTES)? else {
            return Ok(None);
        };
        let options: JobOptions = serde_json::from_slice(&bytes)
            .map_err(|error| damaged_error(&path, &format!("it is invalid: {error}")))?;
        if options.v > JobOptions::FORMAT_VERSION {
            return Err(fail(
                Exit::Config,
                format!("`{}` was written by a newer release", path.display()),
            ));
        }
        Ok(Some(options))
    }

    fn write_options(&self, job: &Job) -> Result<()> {
        let Some(options) = &job.options else {
            return Ok(());
        };
        let path = self.options_path(&job.id)?;
        durable_file::create_dir(&self.job_dir(&job.id)?)?;
        let text = serde_json::to_vec_pretty(options).context("encode the job options")?;
        durable_file::replace(&path, &text)
    }

    /// Writes the options of `job`, and adds those that they replace to `replaced`.
    fn replace_options(&self, job: &Job, replaced: &mut Vec<ReplacedOptions>) -> Result<()> {
        if job.options.is_some() {
            let bytes = durable_file::read(&self.options_path(&job.id)?)?;
            replaced.push(ReplacedOptions { id: job.id.clone(), bytes });
        }
        self.write_options(job)
    }

    /// Adds the options that only this program stores.
    fn with_options(&self, mut job: Job) -> Result<Job> {
        job.options = self.read_options(&job.id)?;
        if job.follows().is_some() {
            let after = job.options.as_ref().and_then(|options| options.after.clone());
            job.predecessor = after.as_deref().map(|id| self.predecessor(id)).transpose()?;
            job.schedule =
                after.map(Schedule::After).ok_or("the job that it runs after is unknown".into());
        }
        if !is_valid_id(&job.id) {
            job.schedule = Err(format!("its id `{}` is invalid", job.id));
        }
        Ok(job)
    }

    /// Reads the job `id` as one that another job runs after.
    fn predecessor(&self, id: &str) -> Result<Predecessor> {
        let job = if id == HEARTBEAT_ID {
            self.heartbeat()?
        } else {
            self.find_entry(id)?.as_ref().map(job_entry::to_job)
        };
        let record = JobDir::new(self.job_dir(id)?).last_answered(Timestamp::MAX)?;
        Ok(Predecessor {
            id: id.to_owned(),
            enabled: job.as_ref().is_some_and(|job| job.enabled),
            name: job.map(|job| job.name),
            last_end: record.and_then(|record| record.slot_of_followers()),
        })
    }
}

/// The options of a job that are to be restored if a change fails.
struct ReplacedOptions {
    id: String,
    /// The content of their file; `None` if there was none.
    bytes: Option<Vec<u8>>,
}

/// Adds an entry for `job` to the file at `path`.
fn add_entry(file: &mut Map<String, Value>, path: &Path, job: &Job, now: Timestamp) -> Result<()> {
    let jobs = file.entry("jobs").or_insert_with(|| json!([])).as_array_mut();
    let jobs = jobs.ok_or_else(|| damaged_error(path, "its `jobs` is not a list"))?;
    let mut value = json!({});
    update_entry(&mut value, job, now);
    jobs.push(value);
    Ok(())
}

/// Turns an error into the reason why `job` never runs.
fn unusable(job: Job) -> impl FnOnce(anyhow::Error) -> Job {
    move |error| Job { schedule: Err(format!("its options are unreadable: {error:#}")), ..job }
}

/// The next step for a job with an invalid id, which no command can change.
pub const INVALID_ID_HINT: &str = "change the id in the job file by hand";

/// True if `id` is safe as a directory name and as a command-line word.
pub fn is_valid_id(id: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    (1..=64).contains(&id.len()) && !id.starts_with('-') && id.chars().all(letter)
}

/// Builds the error for a job whose id is not a valid directory name.
pub fn invalid_id_error(id: &str) -> anyhow::Error {
    fail(
        Exit::Config,
        format!("the job's id `{id}` is invalid: only letters, digits, `_` and `-` are allowed"),
    )
    .with_hint(INVALID_ID_HINT)
}

#[cfg(test)]
mod tests {
    use super::JobStore;
    use crate::job::{Job, JobOptions};
    use crate::schedule::Schedule;
    use jiff::Timestamp;
    use std::path::Path;
    use std::time::Duration;

    fn open_store(folder: &Path) -> JobStore {
        JobStore::new(&folder.join("workspace"), folder, false)
    }

    fn job(id: &str, schedule: Schedule) -> Job {
        Job {
            id: id.to_owned(),
            name: id.to_owned(),
            message: "x".to_owned(),
            schedule: Ok(schedule),
            options: Some(JobOptions::default()),
            ..Job::heartbeat(NOW)
        }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const HOURLY: Schedule = Schedule::Every(Duration::from_hours(1));

    /// Two processes may change two jobs at the same time, each of which is right as the other was.
    #[test]
    fn a_change_that_closes_a_chain_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(folder.path());
        store.add(&job("a", HOURLY), NOW, None).unwrap();
        store.add(&job("b", Schedule::After("a".to_owned())), NOW, None).unwrap();
        let run_after = |id: &str| {
            store.update("a", NOW, |job| {
                job.schedule = Ok(Schedule::After(id.to_owned()));
                job.bind_options();
                true
            })
        };
        let error = run_after("b").unwrap_err().to_string();
        assert_eq!(error, "`a` runs after `b` would run after itself");
        assert_eq!(store.job("a").unwrap().unwrap().follows(), None);
        store.remove("b").unwrap();
        assert!(run_after("b").unwrap());
    }

    /// Another process changes a job after this one has read it.
    #[test]
    fn a_change_that_fails_leaves_the_jobs_as_others_have_changed_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(folder.path());
        let jobs = ["a", "b"].map(|id| job(id, HOURLY));
        for job in &jobs {
            store.add(job, NOW, None).unwrap();
        }
        let model = || store.job("a").unwrap().unwrap().options.unwrap().model;
        let set_model = |job: &mut Job| {
            job.options.as_mut().unwrap().model = Some("other".to_owned());
            true
        };
        assert!(store.update("a", NOW, set_model).unwrap());
        let options_path = store.options_path("b").unwrap();
        let options = std::fs::read(&options_path).unwrap();
        std::fs::write(&options_path, "damaged").unwrap();
        let file = std::fs::read(store.job_file()).unwrap();
        let new_job = job("c", HOURLY);
        store.save(&[&jobs[0], &new_job, &jobs[1]], &[], NOW).unwrap_err();
        assert_eq!(std::fs::read(store.job_file()).unwrap(), file);
        assert_eq!(model().as_deref(), Some("other"));
        assert!(!store.job_dir("c").unwrap().exists());
        // One that succeeds saves also a job that was removed meanwhile.
        std::fs::write(&options_path, options).unwrap();
        store.remove("b").unwrap();
        store.save(&[&jobs[0], &new_job, &jobs[1]], &[], NOW).unwrap();
        assert_eq!(model(), None);
        let ids: Vec<String> = store.jobs().unwrap().into_iter().map(|job| job.id).collect();
        assert_eq!(ids, ["a", "c", "b"]);
    }
}
