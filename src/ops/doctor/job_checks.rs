//! Checks of jobs: the job file, schedules, model access, last runs, and delivery.

use super::check::{CheckInput, CheckResult, Severity, job_label, job_labels};
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::job_notices;
use crate::ops::jobs::job_status;
use crate::ops::jobs::resolved_job;
use crate::ops::jobs::time_format::{count_jobs, format_time, to_one_line};
use crate::ops::jobs::time_zone;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_base::error::Exit;
use nanobot_cron::job::{Job, JobKind, JobState};
use nanobot_cron::job_store::{INVALID_ID_HINT, is_valid_id};
use nanobot_cron::run_record::{JobDir, RunOutcome};
use nanobot_sandbox::process;
use std::collections::BTreeSet;

/// Records that are searched for the last run.
const RECORDS_CHECKED: usize = 100;

/// Checks that the job file can be read.
pub(crate) fn check_job_file(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let orphans =
        crontab_sync::find_orphans(input.store, input.crontab_lines.as_deref().unwrap_or_default());
    let summary = match &input.jobs {
        Err(error) => CheckResult::from_error(error),
        Ok(_) if !orphans.is_empty() => CheckResult {
            jobs: orphans.clone(),
            ..CheckResult::failed(crontab_sync::missing_file_message(&orphans))
                .with_exit(Exit::Config)
        }
        .with_hint(format!(
            "restore `{}`; or `nanobot cron remove ID …` to remove the jobs",
            input.ctx.paths.display(input.store.job_file())
        )),
        Ok(jobs) if jobs.is_empty() => CheckResult::ok("no jobs"),
        Ok(jobs) => {
            let file = input.ctx.paths.display(input.store.job_file());
            let count = count_jobs(jobs.len());
            let enabled = input.enabled_jobs().count();
            CheckResult::ok(if enabled == jobs.len() {
                format!("{count} in `{file}`")
            } else {
                format!("{count} in `{file}`, {enabled} of them enabled")
            })
        }
    };
    let mut results = vec![summary];
    for job in input.all_jobs() {
        let notice = job_status::tampered_notice(job);
        results.extend(notice.map(|message| CheckResult::failed(message).with_jobs([job])));
    }
    // An unreadable file is already reported above.
    let warnings = input.store.warnings().unwrap_or_default();
    results.extend(warnings.into_iter().map(CheckResult::warn));
    Ok(results)
}

/// Checks that every job has a valid schedule and can have a crontab line.
pub(crate) fn check_schedules(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let line_context = CronLineContext::new(input.ctx, input.settings, input.all_jobs())?;
    let mut results = Vec::new();
    let mut omitted = BTreeSet::new();
    for job in input.enabled_jobs() {
        match crontab_sync::job_lines(input.ctx, &line_context, job, None) {
            Ok((_, directories)) => omitted.extend(directories),
            Err(reason) => {
                let severity = if input.store.is_managed(job) {
                    Severity::Failed
                } else {
                    // Another program runs it.
                    Severity::Warn
                };
                let message = format!("{} never runs: {reason}", job_label(job));
                let hint = if is_valid_id(&job.id) {
                    format!("`nanobot cron edit {0}`, or `nanobot cron disable {0}`", job.id)
                } else {
                    INVALID_ID_HINT.to_owned()
                };
                let result = CheckResult::new(severity, message).with_exit(Exit::Config);
                results.push(result.with_hint(hint).with_jobs([job]));
            }
        }
    }
    if !omitted.is_empty() {
        let omitted: Vec<String> = omitted.into_iter().collect();
        let omitted = omitted.join(", ");
        let message = format!("the PATH in the crontab omits, for lack of space: {omitted}");
        let hint = "absolute paths in the jobs' commands";
        results.push(CheckResult::warn(message).with_hint(hint));
    }
    if results.is_empty() && input.enabled_jobs().next().is_some() {
        results.push(CheckResult::ok("every job has a valid schedule"));
    }
    Ok(results)
}

/// Checks that every job can reach a model when cron starts it.
pub(crate) fn check_model_access(input: &CheckInput) -> Result<Vec<CheckResult>> {
    // The same result for several jobs is reported once.
    let mut problems: Vec<(CheckResult, Vec<&Job>)> = Vec::new();
    for job in input.enabled_jobs().filter(|job| job.kind() != JobKind::Command) {
        let Some(problem) = model_access_problem(input, job) else {
            continue;
        };
        let mut others = problems.iter_mut();
        match others.find(|(other, _)| other.message == problem.message) {
            Some((_, jobs)) => jobs.push(job),
            None => problems.push((problem, vec![job])),
        }
    }
    if problems.is_empty() && input.enabled_jobs().next().is_some() {
        return Ok(vec![CheckResult::ok("every job can reach a model")]);
    }
    let results = problems.into_iter().map(|(problem, jobs)| {
        let message = format!("{}: {}", job_labels(jobs.iter().copied()), problem.message);
        CheckResult { message, ..problem }.with_jobs(jobs)
    });
    Ok(results.collect())
}

/// The problem with the key of `job`, if any.
fn model_access_problem(input: &CheckInput, job: &Job) -> Option<CheckResult> {
    let options = job.options.clone().unwrap_or_default();
    let resolved = match resolved_job::resolve(input.ctx, &options) {
        Ok(resolved) => resolved,
        Err(error) => return Some(CheckResult::from_error(&error)),
    };
    let mismatch = cron_environment::endpoint_mismatch(input.ctx, job, &resolved)?;
    let severity = if mismatch.is_fatal { Severity::Failed } else { Severity::Warn };
    Some(CheckResult {
        hint: mismatch.fix_command,
        ..CheckResult::new(severity, mismatch.message).with_exit(Exit::Config)
    })
}

/// Checks the last runs of the jobs.
pub(crate) fn check_last_runs(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let mut results = Vec::new();
    for job in input.all_jobs().iter().filter(|job| job.enabled || job.is_once()) {
        match last_run_problem(input, job) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let hint = format!("`nanobot cron logs {}`", job.id);
                let message = format!("{} {message}", job_label(job));
                results.push(CheckResult::warn(message).with_hint(hint).with_jobs([job]));
            }
            Err(error) => results.push(CheckResult::from_error(&error).with_jobs([job])),
        }
    }
    if results.is_empty() && !input.all_jobs().is_empty() {
        results.push(CheckResult::ok("no job failed in its last run"));
    }
    Ok(results)
}

/// The problem of the last run of `job`, phrased to follow the job's name.
fn last_run_problem(input: &CheckInput, job: &Job) -> Result<Option<String>> {
    let now = time_zone::now(input.ctx, input.settings);
    let time = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => format_time(time, &now),
        Err(_) => text.to_owned(),
    };
    if !is_valid_id(&job.id) {
        return Ok(None);
    }
    let job_dir = JobDir::new(input.store.job_dir(&job.id)?);
    if let Some(started) = job_dir.read_state()?.started {
        if process::is_alive(started.pid) {
            return Ok(None);
        }
        let at = Timestamp::from_millisecond(started.at_ms).unwrap_or_default();
        return Ok(Some(format!(
            "was interrupted: its run began {} and left no result",
            format_time(at, &now)
        )));
    }
    let mut records = job_dir.last_records(RECORDS_CHECKED)?;
    records.retain(|record| record.outcome.was_attempted() || record.outcome == RunOutcome::Missed);
    let Some(last) = records.pop() else {
        let JobState { last_run, last_status, last_error, .. } = &job.state;
        if last_status.as_deref() != Some("error") {
            return Ok(None);
        }
        return Ok(last_run.map(|time| {
            let reason = last_error.as_deref().unwrap_or("no error recorded");
            format!(
                "failed in another program, {}: {}",
                format_time(time, &now),
                to_one_line(reason)
            )
        }));
    };
    let reason = || to_one_line(last.error.as_deref().unwrap_or(&last.cause));
    Ok(match last.outcome {
        RunOutcome::Failed => Some(format!("failed, {}: {}", time(&last.start), reason())),
        RunOutcome::Unknown => {
            Some(format!("was interrupted, {}: {}", time(&last.start), reason()))
        }
        RunOutcome::Missed => {
            let slot = last.slot.as_deref().unwrap_or(&last.start);
            Some(format!("missed its slot, {}", time(slot)))
        }
        _ => None,
    })
}

/// Checks that the jobs' answers can be delivered, and their pings sent.
pub(crate) fn check_delivery(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let (ctx, settings) = (input.ctx, input.settings);
    let results = input.enabled_jobs().flat_map(|job| {
        let delivery = job_notices::unsupported_channel_notice(ctx, job)
            .or_else(|| job_notices::chat_error_notice(ctx, job));
        let ping = job_notices::find_ping_error(ctx, settings, job)
            .map(|error| format!("{}: {error}", job_label(job)));
        let messages = delivery.into_iter().chain(ping);
        messages.map(move |message| CheckResult::warn(message).with_jobs([job]))
    });
    Ok(results.collect())
}
