//! A job with its status: its crontab lines, its last run, and its next runs.

use super::crontab_status::{CrontabStatus, LineState};
use super::job_store;
use super::time_format;
use super::timing::{effective_schedule, upcoming_runs};
use crate::cron::job::Job;
use crate::cron::record::{Folder, Outcome, Record, Stamps};
use crate::cron::schedule::{Schedule, Verdict};
use crate::cron::store::Store;
use crate::ops::context::Context;
use anyhow::Result;
use jiff::Timestamp;

/// Maximum number of listed next runs.
const UPCOMING_RUNS: usize = 5;

/// A job with its status.
pub(crate) struct JobStatus {
    pub(crate) job: Job,
    pub(crate) line_state: LineState,
    /// The record of the last run.
    pub(crate) last: Option<Record>,
    pub(crate) stamps: Stamps,
    /// True if a run is in progress.
    pub(crate) is_running: bool,
    /// The slot that should have run by now.
    pub(crate) due: Option<Timestamp>,
    /// The times of the next runs.
    pub(crate) next: Vec<Timestamp>,
}

impl JobStatus {
    /// Reads the status of `job`.
    pub(crate) fn of(
        ctx: &Context,
        store: &Store,
        crontab: &CrontabStatus,
        job: Job,
    ) -> Result<Self> {
        let (mut last, mut stamps, mut is_running) = (None, Stamps::default(), false);
        if let Ok(folder) = store.folder(&job.id).map(Folder::new) {
            last = folder.records(1)?.pop();
            // If this job's state cannot be read, the other jobs are still listed.
            match run_state(&folder) {
                Ok(found) => (stamps, is_running) = found,
                Err(error) => ctx.notice(&format!("{error:#}")),
            }
        }
        let now = ctx.clock.timestamp();
        let (mut due, mut next) = (None, Vec::new());
        if let (true, Ok((schedule, zone))) = (job.enabled, effective_schedule(ctx, &job)) {
            let timetable = job.timetable(schedule, &zone);
            let verdict = timetable.due(stamps.handled(), now);
            if let (Verdict::Due { slot }, true) = (verdict, job.terms.is_some()) {
                due = Some(slot);
            }
            next = upcoming_runs(ctx, &job, now, UPCOMING_RUNS);
        }
        Ok(Self {
            line_state: crontab.of_job(ctx, &job),
            last,
            stamps,
            is_running,
            due,
            next,
            job,
        })
    }

    /// True if this is a one-time job that failed: it will never run again.
    pub(crate) fn is_lost(&self) -> bool {
        let failed = |last: &Record| matches!(last.outcome, Outcome::Failed | Outcome::Unknown);
        let is_once = matches!(self.job.schedule, Ok(Schedule::At(_)));
        is_once && !self.job.enabled && self.last.as_ref().is_some_and(failed)
    }
}

/// All jobs, and the problems of the crontab.
pub(crate) struct JobList {
    pub(crate) jobs: Vec<JobStatus>,
    /// Problems with the crontab, as messages for the user.
    pub(crate) problems: Vec<String>,
}

/// All jobs of the workspace.
pub(crate) fn list(ctx: &Context) -> Result<JobList> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let crontab = CrontabStatus::of(ctx, &settings, &store);
    let jobs = store.jobs()?.into_iter();
    let jobs = jobs.map(|job| JobStatus::of(ctx, &store, &crontab, job));
    let jobs: Vec<JobStatus> = jobs.collect::<Result<_>>()?;
    let states: Vec<_> = jobs
        .iter()
        .map(|status| (status.job.id.as_str(), status.line_state))
        .collect();
    let problems = crontab.problems(&states);
    Ok(JobList { jobs, problems })
}

/// One job with its crontab lines and its records.
pub(crate) struct JobDetails {
    pub(crate) status: JobStatus,
    /// The job's lines in the crontab.
    pub(crate) lines: Vec<String>,
    store: Store,
}

impl JobDetails {
    /// The job that `name_or_id` names.
    pub(crate) fn find(ctx: &Context, word: &str) -> Result<Self> {
        let settings = ctx.settings()?;
        let store = job_store::open(ctx, &settings);
        let job = job_store::find(&store, word)?;
        let crontab = CrontabStatus::of(ctx, &settings, &store);
        let status = JobStatus::of(ctx, &store, &crontab, job)?;
        Ok(Self {
            lines: crontab.lines(&status.job).to_vec(),
            status,
            store,
        })
    }

    /// The records of its runs; `None` if the job cannot have any.
    pub(crate) fn records(&self) -> Result<Option<Vec<Record>>> {
        let folder = self.store.folder(&self.status.job.id).ok().map(Folder::new);
        folder.map(|it| it.records(usize::MAX)).transpose()
    }
}

/// The notice about a job that no longer runs because another program changed its message.
pub(crate) fn tampered_notice(job: &Job) -> Option<String> {
    job.is_altered().then(|| {
        format!(
            "`{}` does not run: {}; `nanobot cron edit {}` accepts it as it is now",
            time_format::one_line(&job.name),
            super::job_run::JOB_TAMPERED,
            job.id
        )
    })
}

/// The stamps of a job, and true if a run is in progress. The lock is tested only if a run has begun: testing it takes
/// it for a moment, and a run that begins at that moment must not find it taken.
pub(crate) fn run_state(folder: &Folder) -> Result<(Stamps, bool)> {
    let stamps = folder.stamps()?;
    let is_running = stamps.started.is_some() && folder.is_running()?;
    Ok((stamps, is_running))
}
