//! The state of jobs in the crontab, for commands that only read it.

use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::scheduler_problems::{ProblemKind, SchedulerProblem};
use anyhow::Result;
use nanobot_config::settings::{JobStarter, Settings};
use nanobot_cron::job::Job;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::PendingRetry;
use std::collections::{BTreeMap, BTreeSet};

/// The state of a job's crontab lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineState {
    /// Present and up to date.
    Present,
    /// Present, but with an outdated schedule.
    Stale,
    /// Expected, but absent from the crontab.
    Missing,
    /// Absent, because the job belongs to another program and was not taken over.
    NotTakenOver,
    /// Absent as expected: the job is disabled, or never runs.
    None,
    /// Unknown, because the crontab cannot be read.
    Unknown,
}

impl LineState {
    /// The state's name in JSON output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Present => "there",
            Self::Stale => "stale",
            Self::Missing => "missing",
            Self::NotTakenOver => "foreign",
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// The crontab lines of each job, or the reason why they cannot be read.
pub(crate) struct CrontabStatus {
    lines: Result<BTreeMap<String, Vec<String>>>,
    starter: JobStarter,
    /// The problem that the lines start at the times of another zone.
    shifted: Option<String>,
    /// The ids of jobs whose job file is gone.
    orphans: Vec<String>,
}

impl CrontabStatus {
    /// Reads the crontab.
    pub(crate) fn new(ctx: &Context, settings: &Settings, store: &JobStore) -> Self {
        let starter = settings.job_starter;
        let mut shifted = None;
        let lines = match crontab_sync::read_block(ctx, settings) {
            Ok(block) => {
                if !block.lines.is_empty() {
                    let zone = block.zone_variable.as_deref();
                    shifted = crontab_sync::shifted_lines_message(ctx, zone);
                }
                Ok(block.lines)
            }
            // A machine whose jobs another scheduler starts need not have a crontab.
            Err(_) if starter == JobStarter::Other => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        Self {
            orphans: crontab_sync::find_orphans(store, lines.as_deref().unwrap_or_default()),
            lines: lines.map(group_by_job),
            starter,
            shifted,
        }
    }

    /// The lines of all jobs.
    pub(crate) fn all_lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter().flatten().flat_map(|(_, lines)| lines)
    }

    /// The lines of `job`.
    pub(crate) fn lines(&self, job: &Job) -> &[String] {
        let lines = self.lines.as_ref().ok().and_then(|lines| lines.get(&job.id));
        lines.map_or(&[], Vec::as_slice)
    }

    /// The state of `job`, which waits for `retry`.
    pub(crate) fn line_state(
        &self,
        ctx: &Context,
        job: &Job,
        retry: Option<PendingRetry>,
    ) -> LineState {
        if self.lines.is_err() {
            return LineState::Unknown;
        }
        let present_fields: Vec<&str> =
            self.lines(job).iter().map(|line| crontab_sync::time_fields(line)).collect();
        let expected_fields = match crontab_sync::line_fields(ctx, job, retry) {
            Ok(fields) if job.enabled && self.starter == JobStarter::Crontab => fields,
            // The lines of an unusable job are left alone.
            Err(_) if job.enabled && !present_fields.is_empty() => return LineState::Present,
            _ => Vec::new(),
        };
        match (present_fields.is_empty(), expected_fields.is_empty()) {
            (true, true) => LineState::None,
            (true, false) if job.options.is_none() => LineState::NotTakenOver,
            (true, false) => LineState::Missing,
            _ if present_fields == expected_fields => LineState::Present,
            _ => LineState::Stale,
        }
    }

    /// Problems with the crontab to show to the user. `jobs` are all jobs, each with the state of its lines.
    pub(crate) fn problems(&self, jobs: &[(&str, LineState)]) -> Vec<SchedulerProblem> {
        let problem = |text: String| SchedulerProblem::new(ProblemKind::Crontab, text);
        let lines = match &self.lines {
            Ok(lines) => lines,
            Err(_) if jobs.is_empty() => return Vec::new(),
            Err(error) => return vec![problem(format!("cannot read the crontab: {error:#}"))],
        };
        if !self.orphans.is_empty() {
            return vec![problem(crontab_sync::missing_file_message(&self.orphans))];
        }
        if self.starter == JobStarter::Other {
            let text = "the crontab starts jobs too, though `cron.scheduler` is `none`; `nanobot cron sync` removes its lines";
            return (!lines.is_empty()).then(|| problem(text.into())).into_iter().collect();
        }
        let mut problems = Vec::new();
        let has_any = |states: &[LineState]| jobs.iter().any(|(_, state)| states.contains(state));
        let ids: BTreeSet<&str> = jobs.iter().map(|(id, _)| *id).collect();
        let is_obsolete = |id: &String| !ids.contains(id.as_str());
        if has_any(&[LineState::Missing, LineState::Stale]) || lines.keys().any(is_obsolete) {
            problems.push(problem(
                "the crontab does not match the jobs; run `nanobot cron sync`".into(),
            ));
        }
        if has_any(&[LineState::NotTakenOver]) {
            problems.push(problem(
                "some jobs belong to another program; `nanobot cron sync` adds them to the crontab"
                    .into(),
            ));
        }
        problems.extend(
            self.shifted.iter().map(|text| SchedulerProblem::new(ProblemKind::TimeZone, text)),
        );
        problems
    }
}

/// The lines by the id of their job.
fn group_by_job(lines: Vec<String>) -> BTreeMap<String, Vec<String>> {
    let mut lines_by_id: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        if let Some(id) = crontab_sync::job_id(&line) {
            lines_by_id.entry(id.to_owned()).or_default().push(line);
        }
    }
    lines_by_id
}
