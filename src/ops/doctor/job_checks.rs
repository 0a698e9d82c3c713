//! Checks of jobs: the job file, schedules, model access, last runs, and delivery.

use super::check::{CheckContext, CheckResult, Level, job_label, job_labels};
use crate::cron::job::{Job, State};
use crate::cron::record::{Folder, Outcome};
use crate::cron::store::is_plain;
use crate::error::Exit;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::job_notices;
use crate::ops::jobs::job_status;
use crate::ops::jobs::resolved_job;
use crate::ops::jobs::time_format::{count_jobs, moment, one_line};
use crate::ops::jobs::time_zone;
use crate::sys::process;
use anyhow::Result;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Records that are searched for the last run.
const RECORDS_CHECKED: usize = 100;

/// Checks that the job file can be read.
pub(crate) fn jobs(look: &CheckContext) -> Vec<CheckResult> {
    let orphans = crontab_sync::orphans(look.store, look.lines.as_deref().unwrap_or_default());
    let finding = match &look.jobs {
        Err(error) => CheckResult::of_error(Level::Failed, error),
        Ok(_) if !orphans.is_empty() => CheckResult {
            jobs: orphans.clone(),
            ..CheckResult::failed(crontab_sync::missing_file_message(&orphans)).exit(Exit::Config)
        }
        .hint(format!(
            "restore `{}`; or `nanobot cron remove ID …` to remove the jobs",
            look.ctx.paths.display(look.store.file())
        )),
        Ok(jobs) if jobs.is_empty() => CheckResult::ok("no jobs"),
        Ok(jobs) => {
            let file = look.ctx.paths.display(look.store.file());
            match look.enabled().count() {
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
    let results = look
        .all()
        .iter()
        .filter_map(|job| Some((job, job_status::tampered_notice(job)?)));
    let results = results.map(|(job, message)| CheckResult::failed(message).about([job]));
    // An unreadable file is already reported above.
    let odd = look.store.oddities().unwrap_or_default();
    let odd = odd.into_iter().map(CheckResult::warn);
    std::iter::once(finding).chain(results).chain(odd).collect()
}

/// Checks that every job has a valid schedule and can have a crontab line.
pub(crate) fn schedules(look: &CheckContext) -> Vec<CheckResult> {
    let line_context = match CronLineContext::of(look.ctx, look.settings, look.all()) {
        Ok(line_context) => line_context,
        Err(error) => return vec![CheckResult::of_error(Level::Failed, &error)],
    };
    let mut findings = Vec::new();
    let mut lost = BTreeSet::new();
    for job in look.enabled() {
        match crontab_sync::lines_of(look.ctx, &line_context, job) {
            Ok((_, left_out)) => lost.extend(left_out),
            Err(why) => {
                let level = match job.terms {
                    Some(_) => Level::Failed,
                    // Another program runs it.
                    None => Level::Warn,
                };
                let message = format!("{} never runs: {why}", job_label(job));
                let hint = format!("`nanobot cron edit {}`, or `nanobot cron disable`", job.id);
                let finding = CheckResult::new(level, message).exit(Exit::Config);
                findings.push(finding.hint(hint).about([job]));
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
            .hint("absolute paths in the jobs' commands"),
        );
    }
    if findings.is_empty() && look.enabled().next().is_some() {
        findings.push(CheckResult::ok("every job has a valid schedule"));
    }
    findings
}

/// Checks that every job can reach a model when cron starts it.
pub(crate) fn keys(look: &CheckContext) -> Vec<CheckResult> {
    // The same result for several jobs is reported once.
    let mut odd: Vec<(CheckResult, Vec<&Job>)> = Vec::new();
    for job in look.enabled() {
        let Some(finding) = key(look, job) else {
            continue;
        };
        let mut others = odd.iter_mut();
        match others.find(|(other, _)| other.words == finding.words) {
            Some((_, jobs)) => jobs.push(job),
            None => odd.push((finding, vec![job])),
        }
    }
    if odd.is_empty() && look.enabled().next().is_some() {
        return vec![CheckResult::ok("every job can reach a model")];
    }
    let results = odd.into_iter().map(|(finding, jobs)| {
        let message = format!("{}: {}", job_labels(jobs.iter().copied()), finding.words);
        CheckResult {
            words: message,
            ..finding
        }
        .about(jobs)
    });
    results.collect()
}

/// The problem with the key of `job`, if any.
fn key(look: &CheckContext, job: &Job) -> Option<CheckResult> {
    let terms = job.terms.clone().unwrap_or_default();
    let resolved = match resolved_job::resolve(look.ctx, &terms) {
        Ok(resolved) => resolved,
        Err(error) => return Some(CheckResult::of_error(Level::Failed, &error)),
    };
    let mismatch = cron_environment::endpoint_mismatch(look.ctx, job, &resolved)?;
    let level = match mismatch.fails {
        true => Level::Failed,
        false => Level::Warn,
    };
    Some(CheckResult {
        hint: mismatch.fix,
        ..CheckResult::new(level, mismatch.message).exit(Exit::Config)
    })
}

/// Checks the last runs of the jobs.
pub(crate) fn runs(look: &CheckContext) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    for job in look.all().iter().filter(|job| job.enabled || job.is_once()) {
        match last_run(look, job) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let hint = format!("`nanobot cron logs {}`", job.id);
                let message = format!("{} {message}", job_label(job));
                findings.push(CheckResult::warn(message).hint(hint).about([job]));
            }
            Err(error) => findings.push(CheckResult::of_error(Level::Failed, &error).about([job])),
        }
    }
    if findings.is_empty() && !look.all().is_empty() {
        findings.push(CheckResult::ok("no job failed in its last run"));
    }
    findings
}

/// The problem of the last run of `job`, phrased to follow the job's name.
fn last_run(look: &CheckContext, job: &Job) -> Result<Option<String>> {
    let now = time_zone::now(look.ctx);
    let time = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => moment(time, &now),
        Err(_) => text.to_owned(),
    };
    if !is_plain(&job.id) {
        return Ok(None);
    }
    let folder = Folder::new(look.store.folder(&job.id)?);
    if let Some(started) = folder.stamps()?.started {
        if process::is_alive(started.pid) {
            return Ok(None);
        }
        let at = Timestamp::from_millisecond(started.at_ms).unwrap_or_default();
        return Ok(Some(format!(
            "was interrupted: its run began {} and left no result",
            moment(at, &now)
        )));
    }
    let mut records = folder.records(RECORDS_CHECKED)?;
    records.retain(|record| record.outcome.is_run() || record.outcome == Outcome::Missed);
    let Some(last) = records.pop() else {
        let State {
            last_run,
            last_status,
            last_error,
            ..
        } = &job.state;
        let failed = last_status.as_deref() == Some("error");
        return Ok(last_run.filter(|_| failed).map(|time| {
            let why = last_error.as_deref().unwrap_or("no error recorded");
            format!(
                "failed in another program, {}: {}",
                moment(time, &now),
                one_line(why)
            )
        }));
    };
    let why = || one_line(last.error.as_deref().unwrap_or(&last.cause));
    Ok(match last.outcome {
        Outcome::Failed => Some(format!("failed, {}: {}", time(&last.start), why())),
        Outcome::Unknown => Some(format!("was interrupted, {}: {}", time(&last.start), why())),
        Outcome::Missed => {
            let slot = last.slot.as_deref().unwrap_or(&last.start);
            Some(format!("missed its slot, {}", time(slot)))
        }
        _ => None,
    })
}

/// Checks that this version can deliver the jobs' answers.
pub(crate) fn delivery(look: &CheckContext) -> Vec<CheckResult> {
    let message = |job| Some((job, job_notices::unsupported_channel(job)?));
    let results = look.enabled().filter_map(message);
    results
        .map(|(job, message)| CheckResult::warn(message).about([job]))
        .collect()
}
