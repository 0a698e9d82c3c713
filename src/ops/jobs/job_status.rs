//! A job with its status: its crontab lines, its last run, and its next runs.

use super::crontab_status::{CrontabStatus, LineState};
use super::job_grants::stored_grants;
use super::job_notices::{find_chat_error, find_ping_error};
use super::retry;
use super::scheduler_problems::{self, SchedulerProblem};
use super::time_format;
use super::time_zone;
use super::timing::{self, effective_schedule, upcoming_runs};
use super::workspace_jobs;
use crate::ops::context::Context;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp, Zoned};
use nanobot_config::policy::Policy;
use nanobot_config::policy::net::Net;
use nanobot_config::settings::Settings;
use nanobot_cron::job::Job;
use nanobot_cron::job_chain::find_loop;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::{JobDir, PendingRetry, RunHistory, RunRecord, RunState};
use nanobot_cron::schedule::DueState;

/// The reason why a job does not run after another program changed its message.
pub(crate) const JOB_TAMPERED: &str = "another program changed the job's message";
/// Maximum number of listed next runs.
const UPCOMING_RUNS: usize = 5;
/// The delay after which a job that has not started is overdue: cron starts jobs within a minute.
const OVERDUE_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// A job with its status.
pub(crate) struct JobStatus {
    pub(crate) job: Job,
    /// The reason why the job never runs.
    pub(crate) schedule_error: Option<String>,
    /// The reason why its answers cannot be sent, so that it does not run. Only [`check`] finds it.
    chat_error: Option<String>,
    /// The reason why its pings cannot be sent. Only [`check`] finds it.
    ping_error: Option<String>,
    pub(crate) line_state: LineState,
    pub(crate) history: RunHistory,
    pub(crate) run_state: RunState,
    /// True if a run is in progress.
    pub(crate) is_running: bool,
    /// The slot that should have run by now.
    pub(crate) due_slot: Option<Timestamp>,
    /// The first slot that did not run, although it is over.
    pub(crate) overdue_slot: Option<Timestamp>,
    /// The time before which the job does not run, because the clock was ahead at its last run.
    held_until: Option<Timestamp>,
    /// The retry that the job waits for.
    pub(crate) retry: Option<PendingRetry>,
    /// The times of the next runs, with that of the retry.
    pub(crate) next_runs: Vec<Timestamp>,
}

impl JobStatus {
    /// Reads the status of `job`.
    pub(crate) fn new(
        ctx: &Context,
        store: &JobStore,
        crontab: &CrontabStatus,
        job: Job,
    ) -> Result<Self> {
        let mut history = RunHistory::default();
        let mut run_state = RunState::default();
        let mut is_running = false;
        if let Ok(job_dir) = store.job_dir(&job.id).map(JobDir::new) {
            // If this job's records or state cannot be read, the other jobs are still listed.
            let state_result = job_dir.history().and_then(|job_history| {
                history = job_history;
                read_run_state(&job_dir)
            });
            match state_result {
                Ok(state) => (run_state, is_running) = state,
                Err(error) => ctx.notice(&format!("{error:#}")),
            }
        }
        let now = ctx.clock.timestamp();
        let mut due_slot = None;
        let mut overdue_slot = None;
        let mut held_until = None;
        let mut next_runs = Vec::new();
        let mut schedule_error = None;
        match effective_schedule(ctx, &job) {
            Ok((schedule, zone)) if job.enabled => {
                let timetable = job.timetable(schedule, &zone, timing::start_delay(&job));
                let due_state = timetable.due_state(run_state.last_slot(), now);
                if job.options.is_some()
                    && let DueState::Due { slot } = due_state
                {
                    due_slot = Some(slot);
                }
                // A job of another program has a last slot here if it was taken over.
                if job.options.is_some() || run_state.last_slot().is_some() {
                    let last_run =
                        history.last.as_ref().filter(|last| last.outcome.was_attempted());
                    let last_run = last_run.and_then(|last| last.start.parse().ok());
                    let last_run = last_run.max(job.state.last_run).max(run_state.last_slot());
                    overdue_slot = timetable.overdue_slot(last_run, now, OVERDUE_GRACE);
                }
                held_until = timetable.held_until(run_state.last_slot(), now);
                let from = held_until.unwrap_or(now);
                next_runs = upcoming_runs(ctx, &job, from, UPCOMING_RUNS);
            }
            Ok(_) => {}
            Err(reason) => schedule_error = Some(reason),
        }
        let retry = if job.enabled { retry::pending(&job, &run_state) } else { None };
        if let Some(retry) = retry {
            next_runs.insert(0, retry.at());
            next_runs.truncate(UPCOMING_RUNS);
        }
        Ok(Self {
            line_state: crontab.line_state(ctx, &job, retry),
            schedule_error,
            chat_error: None,
            ping_error: None,
            retry,
            history,
            run_state,
            is_running,
            due_slot,
            overdue_slot,
            held_until,
            next_runs,
            job,
        })
    }

    /// True if this is a one-time job that failed, or a job after such a job: it will never run again.
    pub(crate) fn has_failed_for_good(&self) -> bool {
        let failed = |last: &RunRecord| last.outcome.is_failure();
        let is_over = self.job.is_over_after_run() && !self.job.enabled;
        is_over && self.history.last.as_ref().is_some_and(failed)
    }

    /// The problem of the job; `None` if it has none, or is disabled.
    pub(crate) fn problem(&self) -> Option<JobProblem> {
        if !self.job.enabled && !self.has_failed_for_good() {
            return None;
        }
        if let Some(reason) = &self.schedule_error {
            return Some(JobProblem::Unusable(reason.clone()));
        }
        if self.job.is_altered() {
            return Some(JobProblem::Unusable(JOB_TAMPERED.into()));
        }
        if let Some(reason) = &self.chat_error {
            return Some(JobProblem::Unusable(reason.clone()));
        }
        if self.history.failures > 0 {
            return Some(JobProblem::Failing);
        }
        if self.is_running {
            return None;
        }
        if let Some(reason) = self.job.predecessor_problem().filter(|_| self.due_slot.is_none()) {
            return Some(JobProblem::Unusable(reason));
        }
        let clock_problem = self.held_until.map(JobProblem::ClockAhead);
        let ping_problem = || self.ping_error.clone().map(JobProblem::Unwatched);
        clock_problem.or(self.overdue_slot.map(JobProblem::Overdue)).or_else(ping_problem)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobProblem {
    /// It never runs.
    Unusable(String),
    /// The last run of the job failed.
    Failing,
    /// The job should have run for this slot.
    Overdue(Timestamp),
    /// The clock was ahead at the last run, so the job does not run before this time.
    ClockAhead(Timestamp),
    /// Its pings cannot be sent, for this reason: a service that waits for them learns nothing of its runs.
    Unwatched(String),
}

impl JobProblem {
    /// The name in JSON.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unusable(_) => "unusable",
            Self::Failing => "failing",
            Self::Overdue(_) => "overdue",
            Self::ClockAhead(_) => "clock",
            Self::Unwatched(_) => "unwatched",
        }
    }
}

/// All jobs, and the problems of the crontab.
pub(crate) struct JobList {
    pub(crate) jobs: Vec<JobStatus>,
    /// The problems that concern all jobs.
    pub(crate) problems: Vec<SchedulerProblem>,
    /// The current time in the user's zone.
    pub(crate) now: Zoned,
}

/// All jobs of the workspace.
pub(crate) fn list(ctx: &Context) -> Result<JobList> {
    read_jobs(ctx, &|_, _| Vec::new())
}

/// All jobs of the workspace, with the problems that are found only by trying: see [`scheduler_problems::find`].
pub(crate) fn check(ctx: &Context) -> Result<JobList> {
    let mut list = read_jobs(ctx, &|settings, crontab| {
        scheduler_problems::find(ctx, settings, crontab.all_lines())
    })?;
    let settings = ctx.settings()?;
    for status in list.jobs.iter_mut().filter(|status| status.job.enabled) {
        status.chat_error = find_chat_error(ctx, &status.job);
        status.ping_error = find_ping_error(ctx, &settings, &status.job);
    }
    Ok(list)
}

fn read_jobs(
    ctx: &Context,
    find_more: &dyn Fn(&Settings, &CrontabStatus) -> Vec<SchedulerProblem>,
) -> Result<JobList> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let crontab = CrontabStatus::new(ctx, &settings, &store);
    let all_jobs = store.jobs()?;
    let status = |job: &Job| {
        let mut status = JobStatus::new(ctx, &store, &crontab, job.clone())?;
        let reason =
            find_loop(&all_jobs, job).map(|names| format!("{names} would run after itself"));
        status.schedule_error = status.schedule_error.or(reason);
        Ok(status)
    };
    let jobs: Vec<JobStatus> = all_jobs.iter().map(status).collect::<Result<_>>()?;
    let states: Vec<_> =
        jobs.iter().map(|status| (status.job.id.as_str(), status.line_state)).collect();
    let mut problems = crontab.problems(&states);
    let is_started = |status: &JobStatus| status.job.enabled && store.is_managed(&status.job);
    if jobs.iter().any(is_started) {
        problems.extend(find_more(&settings, &crontab));
    }
    Ok(JobList { jobs, problems, now: time_zone::now(ctx, &settings) })
}

/// One job with its crontab lines and its records.
pub(crate) struct JobDetails {
    pub(crate) status: JobStatus,
    /// The job's lines in the crontab.
    pub(crate) lines: Vec<String>,
    /// The enabled jobs that run after it.
    pub(crate) followers: Vec<Job>,
    /// The current time in the user's zone.
    pub(crate) now: Zoned,
    store: JobStore,
}

impl JobDetails {
    /// The job that `name_or_id` names.
    pub(crate) fn find(ctx: &Context, name_or_id: &str) -> Result<Self> {
        let settings = ctx.settings()?;
        let store = workspace_jobs::open(ctx, &settings);
        let job = workspace_jobs::find(&store, name_or_id)?;
        let crontab = CrontabStatus::new(ctx, &settings, &store);
        let status = JobStatus::new(ctx, &store, &crontab, job)?;
        let jobs = store.jobs()?;
        Ok(Self {
            lines: crontab.lines(&status.job).to_vec(),
            followers: workspace_jobs::followers(&jobs, &status.job.id).cloned().collect(),
            now: time_zone::now(ctx, &settings),
            status,
            store,
        })
    }

    /// The records of its runs; `None` if the job cannot have any.
    pub(crate) fn records(&self) -> Result<Option<Vec<RunRecord>>> {
        let job_dir = self.store.job_dir(&self.status.job.id).ok().map(JobDir::new);
        job_dir.map(|job_dir| job_dir.last_records(usize::MAX)).transpose()
    }
}

/// The notice about a job that no longer runs because another program changed its message.
pub(crate) fn tampered_notice(job: &Job) -> Option<String> {
    job.is_altered().then(|| {
        format!(
            "`{}` does not run: {}; `nanobot cron edit {}` accepts it as it is now",
            time_format::to_one_line(&job.name),
            JOB_TAMPERED,
            job.id
        )
    })
}

/// The notice about a job that does not run because the one before it does not.
pub(crate) fn predecessor_notice(job: &Job) -> Option<String> {
    let reason = job.predecessor_problem().filter(|_| job.enabled)?;
    let name = time_format::to_one_line(&job.name);
    Some(format!("`{name}` does not run: {reason}; `nanobot cron edit {} --after …`", job.id))
}

/// The notice for a job whose permissions were stored when the hosts of `--net=HOSTS` were not for commands.
pub(crate) fn web_only_hosts_notice(job: &Job) -> Option<String> {
    let options = job.options.as_ref()?;
    let grants = stored_grants(options).ok()?;
    let policy = Policy::from_snapshot(options.policy.as_ref()?).ok()?;
    let has_hosts = grants.net.is_some_and(|hosts| !hosts.is_empty());
    let is_web_only = matches!(&policy.net, Net::Hosts { commands, .. } if commands.is_empty());
    (has_hosts && is_web_only).then(|| {
        format!(
            "the hosts of `{}` are not for commands, as it was when its permissions were stored; `nanobot cron edit {} \
             --net=HOSTS` stores them again",
            time_format::to_one_line(&job.name),
            job.id
        )
    })
}

/// The run state of a job, and true if a run is in progress. The lock is tested only if a run has begun: testing it takes
/// it for a moment, and a run that begins at that moment must not find it taken.
pub(crate) fn read_run_state(job_dir: &JobDir) -> Result<(RunState, bool)> {
    let state = job_dir.read_state()?;
    let is_running = state.started.is_some() && job_dir.is_running()?;
    Ok((state, is_running))
}
