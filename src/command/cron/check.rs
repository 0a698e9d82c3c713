//! `cron check`: reports the jobs that fail, are overdue or cannot run, and the channels that fail, for monitoring.

use super::list::{cell, format_utc};
use crate::ops::channel::health::{self, ChannelHealth, ChannelProblem};
use crate::ops::context::Context;
use crate::ops::jobs::job_status::{self, JobList, JobProblem, JobStatus};
use crate::ops::jobs::scheduler_problems::SchedulerProblem;
use crate::ops::jobs::time_format;
use anyhow::Result;
use jiff::Zoned;
use nanobot_base::error::Exit;
use serde_json::{Value, json};

/// Runs `cron check`. Returns status 1 if there is anything to report.
pub(super) fn run(ctx: &Context, as_json: bool) -> Result<Exit> {
    let JobList { jobs, problems, now } = job_status::check(ctx)?;
    let mut exit = Exit::Answered;
    for status in &jobs {
        let Some(problem) = status.problem() else {
            continue;
        };
        exit = Exit::Failed;
        if as_json {
            ctx.terminal.print_json(&problem_json(status, &problem))?;
        } else {
            ctx.terminal.print(&problem_line(status, &problem, &now))?;
        }
    }
    for SchedulerProblem { kind, text } in &problems {
        exit = Exit::Failed;
        if as_json {
            ctx.terminal.print_json(&json!({ "problem": kind.name(), "error": text }))?;
        } else {
            ctx.terminal.print(&format!("{text}\n"))?;
        }
    }
    for channel in &health::list(ctx)? {
        for problem in channel.problems(now.timestamp()) {
            exit = Exit::Failed;
            if as_json {
                ctx.terminal.print_json(&channel_json(channel, &problem))?;
            } else {
                let since = time_format::format_time(problem.since(), &now);
                let problem = cell(&problem.describe(&since));
                ctx.terminal.print(&format!("channel {}: {problem}\n", channel.name))?;
            }
        }
    }
    if exit == Exit::Answered && !as_json {
        ctx.explain_empty("no job and no channel has a problem");
    }
    Ok(exit)
}

/// The line about a job: the problem, since when it exists, how often it occurred, and its cause.
fn problem_line(status: &JobStatus, problem: &JobProblem, now: &Zoned) -> String {
    let format = |time| time_format::format_time(time, now);
    let history = &status.history;
    let description = match problem {
        JobProblem::Unusable(reason) => format!("never runs: {}", cell(reason)),
        JobProblem::Unwatched(reason) => cell(reason),
        JobProblem::Overdue(slot) => format!("overdue since {}", format(*slot)),
        JobProblem::ClockAhead(until) => {
            format!("does not run before {}: the clock was ahead at its last run", format(*until))
        }
        JobProblem::Failing => {
            let times = match history.failures {
                1 => String::new(),
                count => format!(" {count} times"),
            };
            let since = history.failing_since.map(|time| format!(" since {}", format(time)));
            let error = history.error.as_ref().map(|error| format!(": {}", cell(error)));
            let success = match history.last_success {
                Some(time) => format!("last success {}", format(time)),
                None => "never succeeded".to_owned(),
            };
            let (since, error) = (since.unwrap_or_default(), error.unwrap_or_default());
            format!("failed{times}{since}{error}; {success}")
        }
    };
    format!("{} ({}): {description}\n", cell(&status.job.name), cell(&status.job.id))
}

fn channel_json(channel: &ChannelHealth, problem: &ChannelProblem<'_>) -> Value {
    let (activity, error) = match problem {
        ChannelProblem::Failing(activity, failure) => (Some(activity.name()), Some(&failure.error)),
        ChannelProblem::Waiting(..) | ChannelProblem::NotPolled(_) => (None, None),
    };
    json!({
        "channel": channel.name, "problem": problem.name(), "since": format_utc(problem.since()),
        "waiting": channel.waiting, "activity": activity, "error": error,
    })
}

fn problem_json(status: &JobStatus, problem: &JobProblem) -> Value {
    let history = &status.history;
    let (since, error) = match problem {
        JobProblem::Unusable(reason) | JobProblem::Unwatched(reason) => (None, Some(reason)),
        JobProblem::Overdue(slot) => (Some(*slot), None),
        JobProblem::ClockAhead(_) => (None, None),
        JobProblem::Failing => (history.failing_since, history.error.as_ref()),
    };
    json!({
        "job": status.job.id, "name": status.job.name, "problem": problem.name(),
        "since": since.map(format_utc), "failures": history.failures,
        "last_success": history.last_success.map(format_utc), "error": error,
    })
}
