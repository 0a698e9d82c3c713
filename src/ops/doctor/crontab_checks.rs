//! Checks of the crontab: its lines, the program that they start, and the cron daemon that reads it.

use super::check::{CheckContext, CheckResult, Severity, job_labels};
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::delivery;
use crate::ops::jobs::scheduler_problems;
use crate::ops::jobs::unseen_answers;
use nanobot_cron::command_line::ParsedCommand;
use nanobot_cron::job::Job;
use std::collections::{BTreeMap, BTreeSet};

const SYNC_HINT: &str = "`nanobot cron sync`";

/// Checks that there is a readable crontab.
pub(crate) fn check_crontab(input: &CheckContext) -> Vec<CheckResult> {
    let finding = match &input.crontab_lines {
        Ok(lines) => {
            let lines = match lines.len() {
                0 => "no nanobot lines".into(),
                1 => "1 nanobot line".into(),
                lines => format!("{lines} nanobot lines"),
            };
            CheckResult::ok(format!("readable: {lines}"))
        }
        Err(error) => input.ok_unless_cron_needed(CheckResult::from_error(Severity::Failed, error)),
    };
    vec![finding]
}

/// Checks that the crontab has no lines, because another scheduler starts the jobs.
pub(crate) fn check_unused(input: &CheckContext) -> Vec<CheckResult> {
    let lines = input.crontab_lines.as_deref().unwrap_or_default();
    vec![if lines.is_empty() {
        CheckResult::ok("not used: `cron.scheduler` is `none`")
    } else {
        CheckResult::warn("it starts jobs too, though `cron.scheduler` is `none`")
            .with_hint(format!("{SYNC_HINT}, which removes its lines"))
    }]
}

/// Checks that the crontab lines match the jobs.
pub(crate) fn check_lines(input: &CheckContext) -> Vec<CheckResult> {
    let (Ok(there), Ok(jobs)) = (&input.crontab_lines, &input.jobs) else {
        return Vec::new();
    };
    let Ok(line_context) = CronLineContext::new(input.ctx, input.settings, jobs) else {
        return Vec::new();
    };
    let LineMismatches { missing, stale, not_taken_over: foreign } =
        compare_lines(input, &line_context, there);
    let orphans = crontab_sync::orphans(input.store, there);
    let stands = |id: &str| {
        let is_wanted = input.enabled_jobs().any(|job| job.id == id);
        is_wanted || orphans.iter().any(|orphan| orphan == id)
    };
    let surplus: BTreeSet<&str> = there
        .iter()
        .filter_map(|line| crontab_sync::job_id(line))
        .filter(|id| !stands(id))
        .collect();
    let mut findings = Vec::new();
    for (jobs, what) in [(&missing, "not in the crontab"), (&stale, "outdated in the crontab")] {
        if !jobs.is_empty() {
            let message = format!("{what}: {}", job_labels(jobs.iter().copied()));
            findings.push(
                CheckResult::failed(message).with_hint(SYNC_HINT).with_jobs(jobs.iter().copied()),
            );
        }
    }
    if !surplus.is_empty() {
        let ids: Vec<&str> = surplus.into_iter().collect();
        let message = format!("lines of removed or disabled jobs: {}", ids.join(", "));
        findings.push(CheckResult::failed(message).with_hint(SYNC_HINT));
    }
    if !foreign.is_empty() {
        let message = format!(
            "owned by another program, which runs them itself: {}",
            job_labels(foreign.iter().copied())
        );
        let hint = format!("{SYNC_HINT}, if cron should run them");
        findings.push(CheckResult::warn(message).with_hint(hint).with_jobs(foreign));
    }
    if findings.is_empty() && orphans.is_empty() && !there.is_empty() {
        findings.push(CheckResult::ok("they match the jobs"));
    }
    findings
}

/// The jobs whose lines are wrong.
#[derive(Default)]
struct LineMismatches<'a> {
    missing: Vec<&'a Job>,
    stale: Vec<&'a Job>,
    /// Jobs of another program that were not taken over.
    not_taken_over: Vec<&'a Job>,
}

/// Compares the present lines with those that the jobs should have.
fn compare_lines<'a>(
    input: &'a CheckContext,
    line_context: &CronLineContext,
    present: &[String],
) -> LineMismatches<'a> {
    let mut found = LineMismatches::default();
    let mut by_id: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in present {
        if let Some(id) = crontab_sync::job_id(line) {
            by_id.entry(id).or_default().push(without_path_and_program(line));
        }
    }
    for job in input.enabled_jobs() {
        let retry = crontab_sync::pending_retry(input.store, job);
        let wanted = crontab_sync::job_lines(input.ctx, line_context, job, retry);
        // A job that never runs should have no line.
        let wanted = wanted.map_or_else(|_| Vec::new(), |(lines, _)| lines);
        let its = by_id.get(job.id.as_str()).cloned().unwrap_or_default();
        let wanted: Vec<_> = wanted.iter().map(|line| without_path_and_program(line)).collect();
        match its.is_empty() {
            _ if its == wanted => {}
            true if !input.store.is_managed(job) => found.not_taken_over.push(job),
            true => found.missing.push(job),
            false => found.stale.push(job),
        }
    }
    found
}

/// The fields and the command of a line without PATH and program. PATH comes from the shell that wrote the line, and
/// the program has a check of its own.
fn without_path_and_program(line: &str) -> Option<(&str, ParsedCommand)> {
    let (fields, mut started) = crontab_sync::without_path_variable(line)?;
    started.argv.remove(0);
    Some((fields, started))
}

/// Checks that the program in the lines exists and is this release.
pub(crate) fn check_program(input: &CheckContext) -> Vec<CheckResult> {
    let lines = input.crontab_lines.as_deref().unwrap_or_default();
    let programs = scheduler_problems::programs(lines);
    let own = format!("nanobot {}", env!("CARGO_PKG_VERSION"));
    let judged = programs.iter().map(|path| match scheduler_problems::program_version(path) {
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
    judged.collect()
}

/// Checks that a cron daemon is running.
pub(crate) fn check_daemon(input: &CheckContext) -> Vec<CheckResult> {
    let finding = match crontab_sync::is_cron_running(input.ctx) {
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
    };
    vec![finding]
}

/// Checks that cron can mail the answers of jobs that print them.
pub(crate) fn check_mailer(input: &CheckContext) -> Vec<CheckResult> {
    let prints = |job: &&Job| input.store.is_managed(job) && delivery::is_printed(input.ctx, job);
    let jobs: Vec<&Job> = input.enabled_jobs().filter(prints).collect();
    match (jobs.is_empty(), unseen_answers::has_mailer(input.ctx)) {
        (true, _) => Vec::new(),
        (false, true) => vec![CheckResult::ok("cron can mail what jobs print")],
        (false, false) => {
            let names = job_labels(jobs.iter().copied());
            vec![
                CheckResult::warn(format!(
                    "there is no mailer (`sendmail`), so cron drops what jobs print: {names}"
                ))
                .with_hint("`nanobot cron edit JOB --channel …`, or a mailer such as `msmtp-mta`")
                .with_jobs(jobs),
            ]
        }
    }
}

/// Checks for environment variables that change the settings here but not in jobs.
pub(crate) fn check_variables(input: &CheckContext) -> Vec<CheckResult> {
    let lacking =
        input.enabled_jobs().next().and_then(|_| cron_environment::missing_variables(input.ctx));
    lacking.map(CheckResult::warn).into_iter().collect()
}
