//! The jobs of a workspace: the entries of the job file, combined with the options that only this program stores. The
//! Python program writes the job file too, so keys that we do not know are preserved.
//!
//! Releases up to 0.1.4.post5 keep the file in the data directory, later ones in the workspace. Each job is changed
//! in the file that contains it.

use super::job::{HEARTBEAT, Job, Kind, Terms};
use super::job_entry::{self, every, fill, is, text};
use super::job_file::{READ_LIMIT_BYTES, change, damaged, entries, entries_mut, entry, has, load};
use crate::error::{Exit, fail, fail_hint};
use crate::sys::store;
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The path of the file, relative to the workspace or the data directory.
const FILE: &str = "cron/jobs.json";
/// Marker file: cron is to run this job of another program.
const TAKEN: &str = "taken";

/// The result of adding a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Done,
    /// The limit on jobs created by runs is reached.
    Full,
}

/// The jobs of a workspace.
#[derive(Clone, Debug)]
pub struct Store {
    /// Possible paths of the job file: in the workspace, then where older releases have it.
    files: Vec<PathBuf>,
    /// Directory with a directory per job for the data that only this program stores.
    own: PathBuf,
}

impl Store {
    /// Opens the jobs of `workspace`; `data` is our own directory. With `with_legacy`, the job file of older releases
    /// is included.
    pub fn new(workspace: &Path, data: &Path, older: bool) -> Self {
        let mut files = vec![workspace.join(FILE)];
        files.extend(older.then(|| data.join(FILE)));
        files.dedup();
        Self {
            files,
            own: data.join("cron"),
        }
    }

    /// True if there is a job file of older releases.
    pub fn has_older(data: &Path) -> bool {
        data.join(FILE).exists()
    }

    /// Returns the file for new jobs.
    pub fn file(&self) -> &Path {
        let found = self.files.iter().find(|path| path.exists());
        found.unwrap_or(&self.files[0])
    }

    /// Returns the directory with our own data on the job `id`.
    ///
    /// # Errors
    /// Status 78 if the id is not a safe directory name, since it could lead elsewhere.
    pub fn folder(&self, id: &str) -> Result<PathBuf> {
        match is_plain(id) {
            true => Ok(self.own.join(id)),
            false => Err(unusable(id)),
        }
    }

    /// Lets cron run the job `id` of another program from now on.
    pub fn take_over(&self, id: &str) -> Result<()> {
        let folder = self.folder(id)?;
        let mark = folder.join(TAKEN);
        if mark.exists() {
            return Ok(());
        }
        store::create_dir(&folder)?;
        store::open_log(&mark).map(drop)
    }

    /// True if cron was asked to run the job `id`, which another program created.
    pub fn is_taken_over(&self, id: &str) -> bool {
        self.folder(id)
            .is_ok_and(|folder| folder.join(TAKEN).is_file())
    }

    /// The directory of the job folders.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Returns all jobs in file order, followed by the heartbeat.
    ///
    /// # Errors
    /// Status 78 if a file is not a valid job file; it is copied aside.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let (mut jobs, mut ids) = (Vec::new(), HashSet::new());
        for path in &self.files {
            for value in entries(&load(path)?) {
                let id = text(value, "id");
                // This id is reserved for the heartbeat, which is not in any file.
                if id.as_deref() == Some(HEARTBEAT) {
                    continue;
                }
                if id.is_none_or(|id| ids.insert(id)) {
                    jobs.push(self.job_of(value)?);
                }
            }
        }
        jobs.extend(self.heartbeat()?);
        Ok(jobs)
    }

    /// Describes anything unusual about the files.
    pub fn oddities(&self) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for path in &self.files {
            if has(&load(path)?, HEARTBEAT) {
                let path = path.display();
                warnings.push(format!(
                    "`{path}` has a job with the id `{HEARTBEAT}`, which is ignored: the id is reserved"
                ));
            }
            let places = path
                .is_file()
                .then(|| [Some(path.as_path()), path.parent()]);
            for place in places.into_iter().flatten().flatten() {
                if let Some(why) = store::changed_by_others(place) {
                    warnings.push(format!(
                        "`{}` {why}, so others can change the jobs' messages",
                        place.display()
                    ));
                }
            }
        }
        Ok(warnings)
    }

    /// Returns the job `id`; `None` if there is none.
    pub fn job(&self, id: &str) -> Result<Option<Job>> {
        if id == HEARTBEAT {
            return self.heartbeat();
        }
        for path in &self.files {
            if let Some(value) = entry(path, id)? {
                return self.job_of(&value).map(Some);
            }
        }
        Ok(None)
    }

    /// Adds a job with a unique id. Our own data is written first, so a job is never in the file without its limits.
    ///
    /// With `limit`, the job is only added if runs have created fewer jobs than that.
    pub fn add(&self, job: &Job, now: Timestamp, most: Option<usize>) -> Result<Added> {
        let mut job = job.clone();
        job.bind();
        let job = &job;
        self.write_terms(job)?;
        if job.id == HEARTBEAT {
            return Ok(Added::Done);
        }
        let path = self.file().to_owned();
        let is_done = change(&path, |file| {
            if let Some(limit) = most {
                let jobs = self.jobs()?;
                let by_model = |job: &&Job| job.terms.as_ref().is_some_and(|terms| terms.by_model);
                if jobs.iter().filter(by_model).count() >= limit {
                    return Ok(false);
                }
            }
            let jobs = file
                .entry("jobs")
                .or_insert_with(|| json!([]))
                .as_array_mut();
            let jobs = jobs.ok_or_else(|| damaged(&path, "its `jobs` is not a list"))?;
            let mut value = json!({});
            fill(&mut value, job, now);
            jobs.push(value);
            Ok(true)
        });
        match is_done {
            Ok(true) => Ok(Added::Done),
            Ok(false) => self.remove_folder(&job.id).map(|()| Added::Full),
            // The job may be in the file even if only the last system call failed; then it keeps its limits.
            Err(error) if load(&path).map_or(true, |file| has(&file, &job.id)) => Err(error),
            // A job that was not added leaves nothing behind, if cleanup succeeds.
            Err(error) => match self.remove_folder(&job.id) {
                Ok(()) => Err(error),
                Err(other) => Err(error.context(format!("{other:#}"))),
            },
        }
    }

    /// Changes the current state of the job `id` in its file; returns true if it exists. The options are only written
    /// if `change` says so.
    pub fn update(
        &self,
        id: &str,
        now: Timestamp,
        mut alter: impl FnMut(&mut Job) -> bool,
    ) -> Result<bool> {
        if id == HEARTBEAT {
            let Some(mut job) = self.heartbeat()? else {
                return Ok(false);
            };
            if alter(&mut job) {
                self.write_terms(&job)?;
            }
            return Ok(true);
        }
        for path in &self.files {
            let found = change(path, |file| {
                let Some(value) = entries_mut(file).find(|value| is(value, id)) else {
                    return Ok(false);
                };
                let mut job = self.job_of(value)?;
                if alter(&mut job) {
                    self.write_terms(&job)?;
                }
                fill(value, &job, now);
                Ok(true)
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the job `id` from the file together with its grants, since another program may reuse the id. Returns
    /// true if it existed. The data of its runs is kept.
    pub fn remove(&self, id: &str) -> Result<bool> {
        if id == HEARTBEAT {
            let is_there = self.heartbeat()?.is_some();
            self.forget_terms(id)?;
            return Ok(is_there);
        }
        let mut found = false;
        for path in &self.files {
            found |= change(path, |file| {
                let Some(jobs) = file.get_mut("jobs").and_then(Value::as_array_mut) else {
                    return Ok(false);
                };
                let before = jobs.len();
                jobs.retain(|value| !is(value, id));
                Ok(jobs.len() < before)
            })?;
        }
        if is_plain(id) {
            self.forget_terms(id)?;
        }
        Ok(found)
    }

    fn forget_terms(&self, id: &str) -> Result<()> {
        let path = self.terms_path(id)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove `{}`", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Removes all data that only this program stores of the job `id`.
    pub fn remove_folder(&self, id: &str) -> Result<()> {
        let folder = self.folder(id)?;
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove `{}`", folder.display()))
            }
            _ => Ok(()),
        }
    }

    fn heartbeat(&self) -> Result<Option<Job>> {
        let terms = self.terms(HEARTBEAT)?;
        let Some(terms) = terms.filter(|terms| terms.kind == Kind::Heartbeat) else {
            return Ok(None);
        };
        let made = Timestamp::from_millisecond(terms.since_ms).unwrap_or_default();
        let schedule = match terms.every_ms {
            Some(millis) => every(millis),
            None => Err("its options have no interval".into()),
        };
        Ok(Some(Job {
            schedule,
            terms: Some(terms),
            ..Job::heartbeat(made)
        }))
    }

    /// True if the job `id` has stored options.
    pub fn has_terms(&self, id: &str) -> Result<bool> {
        Ok(is_plain(id) && self.terms_path(id)?.exists())
    }

    fn terms_path(&self, id: &str) -> Result<PathBuf> {
        Ok(self.folder(id)?.join("job.json"))
    }

    fn terms(&self, id: &str) -> Result<Option<Terms>> {
        if !is_plain(id) {
            return Ok(None);
        }
        let path = self.terms_path(id)?;
        let Some(bytes) = store::read_at_most(&path, READ_LIMIT_BYTES)? else {
            return Ok(None);
        };
        let terms: Terms = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(&path, &format!("it is invalid: {error}")))?;
        if terms.v > Terms::V {
            return Err(fail(
                Exit::Config,
                format!("`{}` was written by a newer release", path.display()),
            ));
        }
        Ok(Some(terms))
    }

    fn write_terms(&self, job: &Job) -> Result<()> {
        let Some(terms) = &job.terms else {
            return Ok(());
        };
        let path = self.terms_path(&job.id)?;
        store::create_dir(&self.folder(&job.id)?)?;
        let text = serde_json::to_vec_pretty(terms).context("encode the job options")?;
        store::replace(&path, &text)
    }

    fn job_of(&self, value: &Value) -> Result<Job> {
        let mut job = job_entry::to_job(value);
        job.terms = self.terms(&job.id)?;
        if !is_plain(&job.id) {
            job.schedule = Err(format!("its id `{}` is invalid", job.id));
        }
        Ok(job)
    }
}

/// True if `id` is safe as a directory name and as a command-line word.
pub fn is_plain(id: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    (1..=64).contains(&id.len()) && !id.starts_with('-') && id.chars().all(letter)
}

/// Builds the error for a job whose id is not a valid directory name.
pub fn unusable(id: &str) -> anyhow::Error {
    fail_hint(
        Exit::Config,
        format!("the job's id `{id}` is invalid: only letters, digits, `_` and `-` are allowed"),
        "change the id in the job file by hand",
    )
}
