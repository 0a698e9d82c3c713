//! Jobs in processes of their own: those that are due together, and those that run after another one.

use crate::ops::context::{Context, report_error};
use crate::ops::job_runs::job_runner::JobRunner;
use crate::ops::jobs::timing::{self, StartTime};
use crate::ops::jobs::workspace_jobs;
use anyhow::{Context as _, Result};
use nanobot_base::error::Exit;
use nanobot_cron::job::Job;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::JobDir;
use nanobot_sandbox::process;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Maximum number of jobs that run at the same time.
const MAX_PARALLEL_JOBS: usize = 8;

/// A job to be started, and how.
pub(super) struct JobStart {
    pub(super) job: Job,
    /// Its place among the jobs.
    pub(super) index: usize,
    /// This process sends its notices to `notify.target` of the config, together with those of others.
    pub(super) no_notify: bool,
}

/// Starts the jobs that run after that of `runner` and are due, and waits for them. `exit` is the status of its run: nothing follows a
/// run that was stopped from outside. The failures of the others do not change it. The process that sends the notices of
/// that job also sends those of the others with the same config.
pub(super) fn start_followers(runner: &JobRunner, exit: Exit) {
    let job = runner.job;
    if was_stopped(exit) {
        return;
    }
    // Each has its own config, which its process finds as from its crontab line.
    let ctx = &Context {
        config: None,
        workspace: Some(runner.settings.workspace.clone()),
        ..runner.ctx.clone()
    };
    match due_followers(ctx, runner.store, job) {
        Ok(followers) => {
            let has_same_config = |follower: &Job| {
                let config = |job: &Job| job.options.as_ref()?.config.clone();
                runner.ctx.config.is_none() && config(follower) == config(job)
            };
            let starts = followers.into_iter().enumerate();
            let starts = starts.map(|(index, follower)| JobStart {
                no_notify: has_same_config(&follower),
                job: follower,
                index,
            });
            start_processes(ctx, starts.collect(), runner.prints_answer);
        }
        Err(error) => {
            let error = error.context(format!("start the jobs after `{}` ({})", job.name, job.id));
            report_error(&error, ctx.terminal);
        }
    }
}

/// True if a run with this status was stopped from outside, or by its time limit.
pub(super) fn was_stopped(exit: Exit) -> bool {
    matches!(exit, Exit::Timeout | Exit::HangUp | Exit::Interrupted | Exit::Terminated)
}

/// The jobs that run after `job` and are due.
fn due_followers(ctx: &Context, store: &JobStore, job: &Job) -> Result<Vec<Job>> {
    let mut due = Vec::new();
    for follower in workspace_jobs::followers(&store.jobs()?, &job.id) {
        let state = JobDir::new(store.job_dir(&follower.id)?).read_state()?;
        if timing::due_state(ctx, follower, &state, StartTime::new(ctx, follower))?.needs_start() {
            due.push(follower.clone());
        }
    }
    Ok(due)
}

/// Starts jobs as separate processes, several in parallel, and waits for them. Returns their statuses. Without `prints_answers`, what
/// they print on standard output is dropped.
pub(super) fn start_processes(
    ctx: &Context,
    starts: Vec<JobStart>,
    prints_answers: bool,
) -> BTreeMap<usize, Exit> {
    let count = starts.len();
    let (queue, exits) = (Mutex::new(starts.into_iter()), Mutex::new(BTreeMap::new()));
    let next = || queue.lock().next();
    let work = || {
        while let Some(start) = next() {
            let exit = start_process(ctx, &start, prints_answers).unwrap_or_else(|error| {
                let Job { name, id, .. } = &start.job;
                report_error(&error.context(format!("job `{name}` ({id})")), ctx.terminal)
            });
            let mut exits = exits.lock();
            exits.insert(start.index, exit);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..count.min(MAX_PARALLEL_JOBS) {
            scope.spawn(work);
        }
    });
    exits.into_inner()
}

/// Starts a job like a crontab line does, and waits for its end.
fn start_process(ctx: &Context, start: &JobStart, prints_answer: bool) -> Result<Exit> {
    let mut arguments: Vec<OsString> = Vec::new();
    for (flag, path) in [("--config", &ctx.config), ("--workspace", &ctx.workspace)] {
        arguments.extend(path.iter().flat_map(|path| [flag.into(), path.into()]));
    }
    if ctx.quiet {
        arguments.push("--quiet".into());
    }
    arguments.extend(["cron", "run", start.job.id.as_str(), "--scheduled"].map(OsString::from));
    if start.no_notify {
        arguments.push("--no-notify".into());
    }
    let mut child = process::spawn_self(&arguments, prints_answer).context("start the process")?;
    let status = child.wait().context("wait for the process")?;
    Ok(status.code().map_or(Exit::Failed, Exit::from_code))
}
