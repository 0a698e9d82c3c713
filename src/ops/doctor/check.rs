//! What a check looks at, and what it found.

use crate::cron::job::Job;
use crate::cron::store::Store;
use crate::error::{Exit, exit_of, hint_of};
use crate::ops::context::Context;
use crate::ops::jobs::time_format::one_line;
use crate::settings::Settings;
use anyhow::Result;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Ok,
    Warn,
    Failed,
}

/// What a check found.
#[derive(Debug)]
pub(crate) struct CheckResult {
    pub(crate) level: Level,
    pub(crate) words: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// The jobs that it is about.
    pub(crate) jobs: Vec<String>,
    /// What a run would end with for it.
    pub(crate) exit: Exit,
}

impl CheckResult {
    pub(crate) fn new(level: Level, words: impl Into<String>) -> Self {
        Self {
            level,
            words: words.into(),
            hint: None,
            jobs: Vec::new(),
            exit: Exit::Failed,
        }
    }

    pub(crate) fn ok(words: impl Into<String>) -> Self {
        Self::new(Level::Ok, words)
    }

    pub(crate) fn warn(words: impl Into<String>) -> Self {
        Self::new(Level::Warn, words)
    }

    pub(crate) fn failed(words: impl Into<String>) -> Self {
        Self::new(Level::Failed, words)
    }

    /// As a failure tells of itself.
    pub(crate) fn of_error(level: Level, error: &anyhow::Error) -> Self {
        Self {
            hint: hint_of(error).map(str::to_owned),
            exit: exit_of(error),
            ..Self::new(level, format!("{error:#}"))
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub(crate) fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn about<'a>(self, jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        Self {
            jobs: jobs.into_iter().map(|job| job.id.clone()).collect(),
            ..self
        }
    }
}

/// What the checks look at.
pub(crate) struct CheckContext<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) jobs: Result<Vec<Job>>,
    /// The lines of our block in the crontab.
    pub(crate) lines: Result<Vec<String>>,
    /// No provider is asked.
    pub(crate) offline: bool,
}

impl CheckContext<'_> {
    pub(super) fn all(&self) -> &[Job] {
        self.jobs.as_deref().unwrap_or_default()
    }

    pub(super) fn enabled(&self) -> impl Iterator<Item = &Job> {
        self.all().iter().filter(|job| job.enabled)
    }

    /// Whether there is a job that is to be started.
    pub(super) fn needs_cron(&self) -> bool {
        self.enabled().any(|job| job.terms.is_some())
    }

    /// What was found of what starts the jobs: nothing is the matter while there are none.
    pub(super) fn of_cron(&self, result: CheckResult) -> CheckResult {
        match self.needs_cron() {
            true => result,
            false => CheckResult::ok(format!(
                "not needed, since no job waits for it ({})",
                result.words
            )),
        }
    }
}

/// A job by its name and its id.
pub(super) fn job_label(job: &Job) -> String {
    format!("`{}` ({})", one_line(&job.name), one_line(&job.id))
}

pub(super) fn job_labels<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> String {
    let names: Vec<String> = jobs.into_iter().map(job_label).collect();
    names.join(", ")
}
