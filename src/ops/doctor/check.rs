//! The input and the result of a check.

use crate::cron::job::Job;
use crate::cron::store::Store;
use crate::error::{Exit, exit_of, hint_of};
use crate::ops::context::Context;
use crate::ops::jobs::time_format::one_line;
use crate::settings::Settings;
use anyhow::Result;

/// The severity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Ok,
    Warn,
    Failed,
}

/// The result of a check.
#[derive(Debug)]
pub(crate) struct CheckResult {
    pub(crate) level: Level,
    /// The message.
    pub(crate) words: String,
    /// The suggested next step.
    pub(crate) hint: Option<String>,
    /// The ids of the affected jobs.
    pub(crate) jobs: Vec<String>,
    /// The exit status of a run that has this problem.
    pub(crate) exit: Exit,
}

impl CheckResult {
    /// A result with the given severity.
    pub(crate) fn new(level: Level, words: impl Into<String>) -> Self {
        Self {
            level,
            words: words.into(),
            hint: None,
            jobs: Vec::new(),
            exit: Exit::Failed,
        }
    }

    /// A result without a problem.
    pub(crate) fn ok(words: impl Into<String>) -> Self {
        Self::new(Level::Ok, words)
    }

    /// A warning.
    pub(crate) fn warn(words: impl Into<String>) -> Self {
        Self::new(Level::Warn, words)
    }

    /// A failure.
    pub(crate) fn failed(words: impl Into<String>) -> Self {
        Self::new(Level::Failed, words)
    }

    /// Builds a result from an error: its message, its hint and its status.
    pub(crate) fn of_error(level: Level, error: &anyhow::Error) -> Self {
        Self {
            hint: hint_of(error).map(str::to_owned),
            exit: exit_of(error),
            ..Self::new(level, format!("{error:#}"))
        }
    }

    /// Sets the suggested next step.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Sets the exit status.
    pub(crate) fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Sets the affected jobs.
    pub(crate) fn about<'a>(self, jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        Self {
            jobs: jobs.into_iter().map(|job| job.id.clone()).collect(),
            ..self
        }
    }
}

/// The input of the checks.
pub(crate) struct CheckContext<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    /// All jobs, or the error that prevented reading them.
    pub(crate) jobs: Result<Vec<Job>>,
    /// The lines of this workspace's block in the crontab.
    pub(crate) lines: Result<Vec<String>>,
    /// True if no provider may be contacted.
    pub(crate) offline: bool,
}

impl CheckContext<'_> {
    pub(super) fn all(&self) -> &[Job] {
        self.jobs.as_deref().unwrap_or_default()
    }

    pub(super) fn enabled(&self) -> impl Iterator<Item = &Job> {
        self.all().iter().filter(|job| job.enabled)
    }

    /// True if there is an enabled job of ours, which cron has to start.
    pub(super) fn needs_cron(&self) -> bool {
        self.enabled().any(|job| job.terms.is_some())
    }

    /// Returns `result`, which is about cron, or turns it into a result without a problem if no job needs cron.
    pub(super) fn of_cron(&self, result: CheckResult) -> CheckResult {
        match self.needs_cron() {
            true => result,
            false => CheckResult::ok(format!(
                "not needed: no enabled job uses cron ({})",
                result.words
            )),
        }
    }
}

/// The name and the id of a job.
pub(super) fn job_label(job: &Job) -> String {
    format!("`{}` ({})", one_line(&job.name), one_line(&job.id))
}

pub(super) fn job_labels<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> String {
    let names: Vec<String> = jobs.into_iter().map(job_label).collect();
    names.join(", ")
}
