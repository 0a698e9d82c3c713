//! The jobs of a workspace: those of the job file, each with the terms that only this program keeps of it. The Python program
//! writes the job file too: what it has there and we do not know stays as it is.
//!
//! Releases up to 0.1.4.post5 keep it in the data directory, later ones in the workspace. Each job is changed where it lies.

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

/// The name of the file, in the workspace and in the data directory.
const FILE: &str = "cron/jobs.json";
/// The mark of another program's job that cron is to run.
const TAKEN: &str = "taken";

/// Whether a job was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Done,
    /// Runs have made as many as they may.
    Full,
}

/// The jobs of a workspace.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where the file may lie: in the workspace, and then where older releases have it.
    files: Vec<PathBuf>,
    /// Where a folder for each job holds what only this program knows.
    own: PathBuf,
}

impl Store {
    /// The jobs of `workspace`; `data` is our own directory. With `older` what older releases keep there counts too.
    pub fn new(workspace: &Path, data: &Path, older: bool) -> Self {
        let mut files = vec![workspace.join(FILE)];
        files.extend(older.then(|| data.join(FILE)));
        files.dedup();
        Self {
            files,
            own: data.join("cron"),
        }
    }

    /// Whether there are jobs where older releases have them.
    pub fn has_older(data: &Path) -> bool {
        data.join(FILE).exists()
    }

    /// The file that new jobs go to.
    pub fn file(&self) -> &Path {
        let found = self.files.iter().find(|path| path.exists());
        found.unwrap_or(&self.files[0])
    }

    /// The folder of what only this program knows of the job `id`.
    ///
    /// # Errors
    /// Status 78 where the id is no name of a folder: it would lead elsewhere.
    pub fn folder(&self, id: &str) -> Result<PathBuf> {
        match is_plain(id) {
            true => Ok(self.own.join(id)),
            false => Err(unusable(id)),
        }
    }

    /// Let cron run the job `id` of another program, from now on.
    pub fn take_over(&self, id: &str) -> Result<()> {
        let folder = self.folder(id)?;
        let mark = folder.join(TAKEN);
        if mark.exists() {
            return Ok(());
        }
        store::create_dir(&folder)?;
        store::open_log(&mark).map(drop)
    }

    /// Whether somebody said that cron is to run the job `id`, which another program made.
    pub fn is_taken_over(&self, id: &str) -> bool {
        self.folder(id)
            .is_ok_and(|folder| folder.join(TAKEN).is_file())
    }

    /// The directory of these folders.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// All jobs, in the order of the files; the heartbeat is the last.
    ///
    /// # Errors
    /// Status 78 where a file is no job file; it is copied aside.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let (mut jobs, mut ids) = (Vec::new(), HashSet::new());
        for path in &self.files {
            for value in entries(&load(path)?) {
                let id = text(value, "id");
                // That name is the heartbeat's, which stands in no file.
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

    /// What is odd about the files, in words.
    pub fn oddities(&self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for path in &self.files {
            if has(&load(path)?, HEARTBEAT) {
                let path = path.display();
                words.push(format!(
                    "`{path}` has a job with the id `{HEARTBEAT}`, which is passed over: that name is taken"
                ));
            }
            let places = path
                .is_file()
                .then(|| [Some(path.as_path()), path.parent()]);
            for place in places.into_iter().flatten().flatten() {
                if let Some(why) = store::changed_by_others(place) {
                    words.push(format!(
                        "`{}` {why}, who can so change what the jobs are told",
                        place.display()
                    ));
                }
            }
        }
        Ok(words)
    }

    /// The job `id`; `None` where there is none.
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

    /// Add a job that has an id of its own. What only we know of it is written first: a job never stands in the file
    /// without its limits.
    ///
    /// With `most`, only where runs have made fewer jobs than that.
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
            if let Some(most) = most {
                let jobs = self.jobs()?;
                let by_model = |job: &&Job| job.terms.as_ref().is_some_and(|terms| terms.by_model);
                if jobs.iter().filter(by_model).count() >= most {
                    return Ok(false);
                }
            }
            let jobs = file
                .entry("jobs")
                .or_insert_with(|| json!([]))
                .as_array_mut();
            let jobs = jobs.ok_or_else(|| damaged(&path, "its `jobs` is no list"))?;
            let mut value = json!({});
            fill(&mut value, job, now);
            jobs.push(value);
            Ok(true)
        });
        match is_done {
            Ok(true) => Ok(Added::Done),
            Ok(false) => self.remove_folder(&job.id).map(|()| Added::Full),
            // It may stand in the file all the same, where only the last call failed; then it keeps its limits.
            Err(error) if load(&path).map_or(true, |file| has(&file, &job.id)) => Err(error),
            // What could not be added leaves nothing behind, if that can be had.
            Err(error) => match self.remove_folder(&job.id) {
                Ok(()) => Err(error),
                Err(other) => Err(error.context(format!("{other:#}"))),
            },
        }
    }

    /// Change the job `id` where it lies, as it is by then. Whether there is one. Its terms are written only where `change`
    /// says so.
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

    /// Take the job `id` out of the file, and what it was granted with it: another program may put one back under its id.
    /// Whether there was one. What is left of its runs stays.
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

    /// Remove all that only this program keeps of the job `id`.
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
            None => Err("its terms name no time".into()),
        };
        Ok(Some(Job {
            schedule,
            terms: Some(terms),
            ..Job::heartbeat(made)
        }))
    }

    /// Whether there are terms of the job `id`.
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
            .map_err(|error| damaged(&path, &format!("it cannot be read: {error}")))?;
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
        let text = serde_json::to_vec_pretty(terms).context("write a job down")?;
        store::replace(&path, &text)
    }

    fn job_of(&self, value: &Value) -> Result<Job> {
        let mut job = job_entry::to_job(value);
        job.terms = self.terms(&job.id)?;
        if !is_plain(&job.id) {
            job.schedule = Err(format!("its id `{}` cannot be used", job.id));
        }
        Ok(job)
    }
}

/// Whether `id` can be the name of a folder and a word of a command line.
pub fn is_plain(id: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    (1..=64).contains(&id.len()) && !id.starts_with('-') && id.chars().all(letter)
}

/// What to say of a job whose id leads to no folder.
pub fn unusable(id: &str) -> anyhow::Error {
    fail_hint(
        Exit::Config,
        format!(
            "the job's id `{id}` cannot be used: it is no word of letters, digits, `_` and `-`"
        ),
        "another id in the job file, by hand",
    )
}
