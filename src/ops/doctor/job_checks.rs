//! Checks of jobs: the job file, schedules, model access, last runs, and delivery.

use super::check::{CheckContext, CheckResult, Severity, job_label, job_labels};
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
use nanobot_cron::job::{Job, JobState};
use nanobot_cron::job_store::{INVALID_ID_HINT, is_valid_id};
use nanobot_cron::run_record::{JobDir, RunOutcome};
use nanobot_sandbox::process;
use std::collections::BTreeSet;

/// Records that are searched for the last run.
const RECORDS_CHECKED: usize = 100;

/// Checks that the job file can be read.
pub(crate) fn check_job_file(input: &CheckContext) -> Vec<CheckResult> {
    let orphans =
        crontab_sync::orphans(input.store, input.crontab_lines.as_deref().unwrap_or_default());
    let finding = match &input.jobs {
        Err(error) => CheckResult::from_error(Severity::Failed, error),
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
            match input.enabled_jobs().count() {
                all if all == jobs.len() => {
                    CheckResult::ok(format!("{} in `{file}`", count_jobs(all)))
                }
                some => CheckResult::ok(format!(
                    "{} in `{file}`, {some} of them enabled",
                    count_jobs(jobs.len())
                )),
            }
        }
    };
    let results =
        input.all_jobs().iter().filter_map(|job| Some((job, job_status::tampered_notice(job)?)));
    let results = results.map(|(job, message)| CheckResult::failed(message).with_jobs([job]));
    // An unreadable file is already reported above.
    let odd = input.store.warnings().unwrap_or_default();
    let odd = odd.into_iter().map(CheckResult::warn);
    std::iter::once(finding).chain(results).chain(odd).collect()
}

/// Checks that every job has a valid schedule and can have a crontab line.
pub(crate) fn check_schedules(input: &CheckContext) -> Vec<CheckResult> {
    let line_context = match CronLineContext::new(input.ctx, input.settings, input.all_jobs()) {
        Ok(line_context) => line_context,
        Err(error) => return vec![CheckResult::from_error(Severity::Failed, &error)],
    };
    let mut findings = Vec::new();
    let mut lost = BTreeSet::new();
    for job in input.enabled_jobs() {
        match crontab_sync::job_lines(input.ctx, &line_context, job, None) {
            Ok((_, left_out)) => lost.extend(left_out),
            Err(why) => {
                let level = if input.store.is_managed(job) {
                    Severity::Failed
                } else {
                    // Another program runs it.
                    Severity::Warn
                };
                let message = format!("{} never runs: {why}", job_label(job));
                let hint = if is_valid_id(&job.id) {
                    format!("`nanobot cron edit {0}`, or `nanobot cron disable {0}`", job.id)
                } else {
                    INVALID_ID_HINT.to_owned()
                };
                let finding = CheckResult::new(level, message).with_exit(Exit::Config);
                findings.push(finding.with_hint(hint).with_jobs([job]));
            }
        }
    }
    if !lost.is_empty() {
        let lost: Vec<String> = lost.into_iter().collect();
        findings.push(
            CheckResult::warn(format!(
                "the PATH in the crontab omits, for lack of space: {}",
                lost.join(", ")
            ))
            .with_hint("absolute paths in the jobs' commands"),
        );
    }
    if findings.is_empty() && input.enabled_jobs().next().is_some() {
        findings.push(CheckResult::ok("every job has a valid schedule"));
    }
    findings
}

/// Checks that every job can reach a model when cron starts it.
pub(crate) fn check_model_access(input: &CheckContext) -> Vec<CheckResult> {
    // The same result for several jobs is reported once.
    let mut odd: Vec<(CheckResult, Vec<&Job>)> = Vec::new();
    for job in input.enabled_jobs() {
        let Some(finding) = model_access_problem(input, job) else {
            continue;
        };
        let mut others = odd.iter_mut();
        match others.find(|(other, _)| other.message == finding.message) {
            Some((_, jobs)) => jobs.push(job),
            None => odd.push((finding, vec![job])),
        }
    }
    if odd.is_empty() && input.enabled_jobs().next().is_some() {
        return vec![CheckResult::ok("every job can reach a model")];
    }
    let results = odd.into_iter().map(|(finding, jobs)| {
        let message = format!("{}: {}", job_labels(jobs.iter().copied()), finding.message);
        CheckResult { message, ..finding }.with_jobs(jobs)
    });
    results.collect()
}

/// The problem with the key of `job`, if any.
fn model_access_problem(input: &CheckContext, job: &Job) -> Option<CheckResult> {
    let terms = job.options.clone().unwrap_or_default();
    let resolved = match resolved_job::resolve(input.ctx, &terms) {
        Ok(resolved) => resolved,
        Err(error) => return Some(CheckResult::from_error(Severity::Failed, &error)),
    };
    let mismatch = cron_environment::endpoint_mismatch(input.ctx, job, &resolved)?;
    let level = if mismatch.is_fatal { Severity::Failed } else { Severity::Warn };
    Some(CheckResult {
        hint: mismatch.fix_command,
        ..CheckResult::new(level, mismatch.message).with_exit(Exit::Config)
    })
}

/// Checks the last runs of the jobs.
pub(crate) fn check_last_runs(input: &CheckContext) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    for job in input.all_jobs().iter().filter(|job| job.enabled || job.is_once()) {
        match last_run_problem(input, job) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let hint = format!("`nanobot cron logs {}`", job.id);
                let message = format!("{} {message}", job_label(job));
                findings.push(CheckResult::warn(message).with_hint(hint).with_jobs([job]));
            }
            Err(error) => {
                findings.push(CheckResult::from_error(Severity::Failed, &error).with_jobs([job]));
            }
        }
    }
    if findings.is_empty() && !input.all_jobs().is_empty() {
        findings.push(CheckResult::ok("no job failed in its last run"));
    }
    findings
}

/// The problem of the last run of `job`, phrased to follow the job's name.
fn last_run_problem(input: &CheckContext, job: &Job) -> Result<Option<String>> {
    let now = time_zone::now(input.ctx, input.settings);
    let time = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => format_time(time, &now),
        Err(_) => text.to_owned(),
    };
    if !is_valid_id(&job.id) {
        return Ok(None);
    }
    let folder = JobDir::new(input.store.job_dir(&job.id)?);
    if let Some(started) = folder.read_state()?.started {
        if process::is_alive(started.pid) {
            return Ok(None);
        }
        let at = Timestamp::from_millisecond(started.at_ms).unwrap_or_default();
        return Ok(Some(format!(
            "was interrupted: its run began {} and left no result",
            format_time(at, &now)
        )));
    }
    let mut records = folder.last_records(RECORDS_CHECKED)?;
    records.retain(|record| record.outcome.is_run() || record.outcome == RunOutcome::Missed);
    let Some(last) = records.pop() else {
        let JobState { last_run, last_status, last_error, .. } = &job.state;
        let failed = last_status.as_deref() == Some("error");
        return Ok(last_run.filter(|_| failed).map(|time| {
            let why = last_error.as_deref().unwrap_or("no error recorded");
            format!("failed in another program, {}: {}", format_time(time, &now), to_one_line(why))
        }));
    };
    let why = || to_one_line(last.error.as_deref().unwrap_or(&last.cause));
    Ok(match last.outcome {
        RunOutcome::Failed => Some(format!("failed, {}: {}", time(&last.start), why())),
        RunOutcome::Unknown => Some(format!("was interrupted, {}: {}", time(&last.start), why())),
        RunOutcome::Missed => {
            let slot = last.slot.as_deref().unwrap_or(&last.start);
            Some(format!("missed its slot, {}", time(slot)))
        }
        _ => None,
    })
}

/// Checks that this version can deliver the jobs' answers.
pub(crate) fn check_delivery(input: &CheckContext) -> Vec<CheckResult> {
    let message = |job| Some((job, job_notices::unsupported_channel_notice(input.ctx, job)?));
    let results = input.enabled_jobs().filter_map(message);
    results.map(|(job, message)| CheckResult::warn(message).with_jobs([job])).collect()
}
