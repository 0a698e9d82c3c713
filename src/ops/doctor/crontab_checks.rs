//! Checks of the crontab: its lines, the program that they start, and the cron daemon that reads it.

use super::check::{CheckInput, CheckResult, job_labels};
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::delivery;
use crate::ops::jobs::scheduler_problems;
use crate::ops::jobs::unseen_answers;
use anyhow::Result;
use nanobot_cron::command_line::ParsedCommand;
use nanobot_cron::job::Job;
use std::collections::{BTreeMap, BTreeSet};

const SYNC_HINT: &str = "`nanobot cron sync`";

/// Checks that there is a readable crontab.
pub(crate) fn check_crontab(input: &CheckInput) -> Result<Vec<CheckResult>> {
    Ok(vec![match &input.crontab_lines {
        Ok(lines) => {
            let lines = match lines.len() {
                0 => "no nanobot lines".into(),
                1 => "1 nanobot line".into(),
                lines => format!("{lines} nanobot lines"),
            };
            CheckResult::ok(format!("readable: {lines}"))
        }
        Err(error) => input.ok_unless_cron_needed(CheckResult::from_error(error)),
    }])
}

/// Checks that the crontab has no lines, because another scheduler starts the jobs.
pub(crate) fn check_unused(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let lines = input.crontab_lines.as_deref().unwrap_or_default();
    Ok(vec![if lines.is_empty() {
        CheckResult::ok("not used: `cron.scheduler` is `none`")
    } else {
        CheckResult::warn("it starts jobs too, though `cron.scheduler` is `none`")
            .with_hint(format!("{SYNC_HINT}, which removes its lines"))
    }])
}

/// Checks that the crontab lines match the jobs.
pub(crate) fn check_lines(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let (Ok(lines), Ok(jobs)) = (&input.crontab_lines, &input.jobs) else {
        return Ok(Vec::new());
    };
    let Ok(line_context) = CronLineContext::new(input.ctx, input.settings, jobs) else {
        return Ok(Vec::new());
    };
    let LineMismatches { missing, stale, not_taken_over } =
        compare_lines(input, &line_context, lines);
    let orphans = crontab_sync::find_orphans(input.store, lines);
    let has_job = |id: &str| {
        let is_enabled = input.enabled_jobs().any(|job| job.id == id);
        is_enabled || orphans.iter().any(|orphan| orphan == id)
    };
    let surplus: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| crontab_sync::job_id(line))
        .filter(|id| !has_job(id))
        .collect();
    let mut results = Vec::new();
    for (jobs, problem) in [(&missing, "not in the crontab"), (&stale, "outdated in the crontab")] {
        if !jobs.is_empty() {
            let message = format!("{problem}: {}", job_labels(jobs.iter().copied()));
            results.push(
                CheckResult::failed(message).with_hint(SYNC_HINT).with_jobs(jobs.iter().copied()),
            );
        }
    }
    if !surplus.is_empty() {
        let ids: Vec<&str> = surplus.into_iter().collect();
        let message = format!("lines of removed or disabled jobs: {}", ids.join(", "));
        results.push(CheckResult::failed(message).with_hint(SYNC_HINT));
    }
    if !not_taken_over.is_empty() {
        let message = format!(
            "owned by another program, which runs them itself: {}",
            job_labels(not_taken_over.iter().copied())
        );
        let hint = format!("{SYNC_HINT}, if cron should run them");
        results.push(CheckResult::warn(message).with_hint(hint).with_jobs(not_taken_over));
    }
    if results.is_empty() && orphans.is_empty() && !lines.is_empty() {
        results.push(CheckResult::ok("they match the jobs"));
    }
    Ok(results)
}

/// The jobs whose lines are wrong.
#[derive(Default)]
struct LineMismatches<'a> {
    missing: Vec<&'a Job>,
    stale: Vec<&'a Job>,
    /// Jobs of another program that were not taken over.
    not_taken_over: Vec<&'a Job>,
}

/// Compares `lines` of the crontab with those that the jobs should have.
fn compare_lines<'a>(
    input: &'a CheckInput,
    line_context: &CronLineContext,
    lines: &[String],
) -> LineMismatches<'a> {
    let mut mismatches = LineMismatches::default();
    let mut lines_by_id: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in lines {
        if let Some(id) = crontab_sync::job_id(line) {
            lines_by_id.entry(id).or_default().push(without_path_and_program(line));
        }
    }
    for job in input.enabled_jobs() {
        let retry = crontab_sync::pending_retry(input.store, job);
        let expected = crontab_sync::job_lines(input.ctx, line_context, job, retry);
        // A job that never runs should have no line.
        let expected = expected.map_or_else(|_| Vec::new(), |(lines, _)| lines);
        let expected: Vec<_> = expected.iter().map(|line| without_path_and_program(line)).collect();
        let actual = lines_by_id.get(job.id.as_str()).cloned().unwrap_or_default();
        if actual == expected {
            continue;
        }
        if !actual.is_empty() {
            mismatches.stale.push(job);
        } else if input.store.is_managed(job) {
            mismatches.missing.push(job);
        } else {
            mismatches.not_taken_over.push(job);
        }
    }
    mismatches
}

/// The fields and the command of a line without PATH and program. PATH comes from the shell that wrote the line, and
/// the program has a check of its own.
fn without_path_and_program(line: &str) -> Option<(&str, ParsedCommand)> {
    let (fields, mut command) = crontab_sync::without_path_variable(line)?;
    command.argv.remove(0);
    Some((fields, command))
}

/// Checks that the program in the lines exists and is this release.
pub(crate) fn check_program(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let lines = input.crontab_lines.as_deref().unwrap_or_default();
    let programs = scheduler_problems::programs(lines);
    let own = format!("nanobot {}", env!("CARGO_PKG_VERSION"));
    let results = programs.iter().map(|path| match scheduler_problems::program_version(path) {
        Ok(version) if version == own => CheckResult::ok(format!("`{path}`, {version}")),
        Ok(version) => CheckResult::warn(format!(
            "the lines start `{path}`, which is {version}; this is {own}"
        ))
        .with_hint(format!("{SYNC_HINT} with the release that should run the jobs")),
        Err(error) => {
            let message = format!("the lines start `{path}`, which cannot be run: {error:#}");
            CheckResult::failed(message)
                .with_hint(format!("{SYNC_HINT}, which writes this program's path"))
        }
    });
    Ok(results.collect())
}

/// Checks that a cron daemon is running.
pub(crate) fn check_daemon(input: &CheckInput) -> Result<Vec<CheckResult>> {
    Ok(vec![match crontab_sync::is_cron_running(input.ctx) {
        Some(true) => CheckResult::ok("running"),
        Some(false) => input.ok_unless_cron_needed(
            CheckResult::failed("no cron daemon is running: nothing starts the jobs")
                .with_hint("start it (`systemctl enable --now cron`, `service cron start`); or run \
                       `nanobot cron run --due` once a minute from another scheduler, and use `--no-crontab` here"),
        ),
        None => input.ok_unless_cron_needed(
            CheckResult::warn("cannot detect whether a cron daemon is running")
                .with_hint("`nanobot cron logs` in a few minutes"),
        ),
    }])
}

/// Checks that cron can mail the answers of jobs that print them.
pub(crate) fn check_mailer(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let prints = |job: &&Job| {
        input.store.is_managed(job) && delivery::is_printed(input.ctx, input.settings, job)
    };
    let jobs: Vec<&Job> = input.enabled_jobs().filter(prints).collect();
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    if unseen_answers::has_mailer(input.ctx) {
        return Ok(vec![CheckResult::ok("cron can mail what jobs print")]);
    }
    let names = job_labels(jobs.iter().copied());
    let message =
        format!("there is no mailer (`sendmail`), so cron drops what jobs print: {names}");
    let hint = "`notify.target` of the config, `nanobot cron edit JOB --channel …`, or a mailer such as `msmtp-mta`";
    Ok(vec![CheckResult::warn(message).with_hint(hint).with_jobs(jobs)])
}

/// Checks for environment variables that change the settings here but not in jobs.
pub(crate) fn check_variables(input: &CheckInput) -> Result<Vec<CheckResult>> {
    if input.enabled_jobs().next().is_none() {
        return Ok(Vec::new());
    }
    let message = cron_environment::missing_variables(input.ctx);
    Ok(message.map(CheckResult::warn).into_iter().collect())
}
