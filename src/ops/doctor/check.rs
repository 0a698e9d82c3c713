//! The input and the result of a check.

use crate::ops::context::Context;
use crate::ops::jobs::time_format::to_one_line;
use anyhow::Result;
use nanobot_base::error::{Exit, exit_for, hint_for};
use nanobot_config::settings::Settings;
use nanobot_cron::job::Job;
use nanobot_cron::job_store::JobStore;

/// The severity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Ok,
    Warn,
    Failed,
}

#[derive(Debug)]
pub(crate) struct CheckResult {
    pub(crate) severity: Severity,
    pub(crate) message: String,
    /// The suggested next step.
    pub(crate) hint: Option<String>,
    /// The ids of the affected jobs.
    pub(crate) jobs: Vec<String>,
    /// The exit status of a run that has this problem.
    pub(crate) exit: Exit,
}

impl CheckResult {
    /// A result with the given severity.
    pub(crate) fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self { severity, message: message.into(), hint: None, jobs: Vec::new(), exit: Exit::Failed }
    }

    /// A result without a problem.
    pub(crate) fn ok(message: impl Into<String>) -> Self {
        Self::new(Severity::Ok, message)
    }

    /// A warning.
    pub(crate) fn warn(message: impl Into<String>) -> Self {
        Self::new(Severity::Warn, message)
    }

    /// A failure.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Severity::Failed, message)
    }

    /// Builds a failure from an error: its message, its hint and its status.
    pub(crate) fn from_error(error: &anyhow::Error) -> Self {
        Self {
            hint: hint_for(error).map(str::to_owned),
            exit: exit_for(error),
            ..Self::failed(format!("{error:#}"))
        }
    }

    /// Sets the suggested next step.
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Sets the exit status.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Sets the affected jobs.
    pub(crate) fn with_jobs<'a>(self, jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        Self { jobs: jobs.into_iter().map(|job| job.id.clone()).collect(), ..self }
    }
}

pub(crate) struct CheckInput<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a JobStore,
    /// All jobs, or the error that prevented reading them.
    pub(crate) jobs: Result<Vec<Job>>,
    /// The lines of this workspace's block in the crontab.
    pub(crate) crontab_lines: Result<Vec<String>>,
    /// True if no provider may be contacted.
    pub(crate) offline: bool,
}

impl CheckInput<'_> {
    pub(super) fn all_jobs(&self) -> &[Job] {
        self.jobs.as_deref().unwrap_or_default()
    }

    pub(super) fn enabled_jobs(&self) -> impl Iterator<Item = &Job> {
        self.all_jobs().iter().filter(|job| job.enabled)
    }

    /// True if there is an enabled job that cron has to start.
    pub(super) fn needs_cron(&self) -> bool {
        self.enabled_jobs().any(|job| self.store.is_managed(job))
    }

    /// Returns `result`, which is about cron, or turns it into a result without a problem if no job needs cron.
    pub(super) fn ok_unless_cron_needed(&self, result: CheckResult) -> CheckResult {
        if self.needs_cron() {
            result
        } else {
            CheckResult::ok(format!("not needed: no enabled job uses cron ({})", result.message))
        }
    }
}

/// The name and the id of a job.
pub(super) fn job_label(job: &Job) -> String {
    format!("`{}` ({})", to_one_line(&job.name), to_one_line(&job.id))
}

pub(super) fn job_labels<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> String {
    let names: Vec<String> = jobs.into_iter().map(job_label).collect();
    names.join(", ")
}
