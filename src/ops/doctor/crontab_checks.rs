//! Checks of the crontab: its lines, the program that they start, and the cron daemon that reads it.

use super::check::{CheckContext, CheckResult, Level, job_labels};
use crate::cron::command::Started;
use crate::cron::job::Job;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync::{self, CronLineContext};
use crate::ops::jobs::time_format::one_line;
use crate::sys::process::{self, Spec};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SYNC: &str = "`nanobot cron sync`";
/// Timeout for a program that prints its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the program's output that are kept.
const OUTPUT_LIMIT_BYTES: usize = 64 << 10;

/// Checks that there is a readable crontab.
pub(crate) fn crontab(look: &CheckContext) -> Vec<CheckResult> {
    let finding = match &look.lines {
        Ok(lines) => {
            let lines = match lines.len() {
                0 => "no nanobot lines".into(),
                1 => "1 nanobot line".into(),
                lines => format!("{lines} nanobot lines"),
            };
            CheckResult::ok(format!("readable: {lines}"))
        }
        Err(error) => look.of_cron(CheckResult::of_error(Level::Failed, error)),
    };
    vec![finding]
}

/// Checks that the crontab lines match the jobs.
pub(crate) fn lines(look: &CheckContext) -> Vec<CheckResult> {
    let (Ok(there), Ok(jobs)) = (&look.lines, &look.jobs) else {
        return Vec::new();
    };
    let Ok(line_context) = CronLineContext::of(look.ctx, look.settings, jobs) else {
        return Vec::new();
    };
    let LineMismatches {
        missing,
        stale,
        foreign,
    } = compare_lines(look, &line_context, there);
    let orphans = crontab_sync::orphans(look.store, there);
    let stands = |id: &str| {
        let is_wanted = look.enabled().any(|job| job.id == id);
        is_wanted || orphans.iter().any(|orphan| orphan == id)
    };
    let surplus: BTreeSet<&str> = there
        .iter()
        .filter_map(|line| crontab_sync::id_of(line))
        .filter(|id| !stands(id))
        .collect();
    let mut findings = Vec::new();
    for (jobs, what) in [
        (&missing, "not in the crontab"),
        (&stale, "outdated in the crontab"),
    ] {
        if !jobs.is_empty() {
            let message = format!("{what}: {}", job_labels(jobs.iter().copied()));
            findings.push(
                CheckResult::failed(message)
                    .hint(SYNC)
                    .about(jobs.iter().copied()),
            );
        }
    }
    if !surplus.is_empty() {
        let ids: Vec<&str> = surplus.into_iter().collect();
        let message = format!("lines of removed or disabled jobs: {}", ids.join(", "));
        findings.push(CheckResult::failed(message).hint(SYNC));
    }
    if !foreign.is_empty() {
        let message = format!(
            "owned by another program, which runs them itself: {}",
            job_labels(foreign.iter().copied())
        );
        let hint = format!("{SYNC}, if cron should run them");
        findings.push(CheckResult::warn(message).hint(hint).about(foreign));
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
    foreign: Vec<&'a Job>,
}

/// Compares the present lines with those that the jobs should have.
fn compare_lines<'a>(
    look: &'a CheckContext,
    line_context: &CronLineContext,
    there: &[String],
) -> LineMismatches<'a> {
    let mut found = LineMismatches::default();
    let mut by_id: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in there {
        if let Some(id) = crontab_sync::id_of(line) {
            by_id
                .entry(id)
                .or_default()
                .push(without_path_and_program(line));
        }
    }
    for job in look.enabled() {
        let wanted = crontab_sync::lines_of(look.ctx, line_context, job);
        // A job that never runs should have no line.
        let wanted = wanted.map_or_else(|_| Vec::new(), |(lines, _)| lines);
        let its = by_id.get(job.id.as_str()).cloned().unwrap_or_default();
        let wanted: Vec<_> = wanted
            .iter()
            .map(|line| without_path_and_program(line))
            .collect();
        match its.is_empty() {
            _ if its == wanted => {}
            true if job.terms.is_none() => found.foreign.push(job),
            true => found.missing.push(job),
            false => found.stale.push(job),
        }
    }
    found
}

/// The fields and the command of a line without PATH and program. PATH comes from the shell that wrote the line, and
/// the program has a check of its own.
fn without_path_and_program(line: &str) -> Option<(&str, Started)> {
    let (fields, mut started) = crontab_sync::without_path_variable(line)?;
    started.words.remove(0);
    Some((fields, started))
}

/// Checks that the program in the lines exists and is this release.
pub(crate) fn program(look: &CheckContext) -> Vec<CheckResult> {
    let lines = look.lines.as_deref().unwrap_or_default();
    let programs: BTreeSet<String> = lines
        .iter()
        .filter_map(|line| Started::of(line.get(crontab_sync::fields_of(line).len() + 1..)?))
        .filter_map(|started| started.words.into_iter().next())
        .collect();
    let own = format!("nanobot {}", env!("CARGO_PKG_VERSION"));
    let judged = programs.iter().map(|path| match version(path) {
        Ok(version) if version == own => CheckResult::ok(format!("`{path}`, {version}")),
        Ok(version) => CheckResult::warn(format!(
            "the lines start `{path}`, which is {version}; this is {own}"
        ))
        .hint(format!("{SYNC} with the release that should run the jobs")),
        Err(error) => {
            let message = format!("the lines start `{path}`, which cannot be run: {error:#}");
            CheckResult::failed(message).hint(format!("{SYNC}, which writes this program's path"))
        }
    });
    judged.collect()
}

/// The version that the program at `path` prints.
fn version(path: &str) -> Result<String> {
    let finished = process::run(
        &Spec {
            program: path.into(),
            arguments: vec!["--version".into()],
            directory: "/".into(),
            env: Vec::new(),
            timeout: VERSION_TIMEOUT,
            keep: OUTPUT_LIMIT_BYTES,
            fence: None,
            input: None,
        },
        &mut |_| {},
    )?;
    let output = one_line(&String::from_utf8_lossy(&finished.head));
    match finished.status {
        Some(status) if status.success() => Ok(output),
        Some(status) => Err(anyhow::anyhow!("{status}: {output}")),
        None => Err(anyhow::anyhow!("no answer to `--version`")),
    }
}

/// Checks that a cron daemon is running.
pub(crate) fn daemon(look: &CheckContext) -> Vec<CheckResult> {
    let finding = match crontab_sync::is_cron_running(look.ctx) {
        Some(true) => CheckResult::ok("running"),
        Some(false) => look.of_cron(
            CheckResult::failed("no cron daemon is running: nothing starts the jobs")
                .hint("start it (`systemctl enable --now cron`, `service cron start`); or run \
                       `nanobot cron run --due` once a minute from another scheduler, and use `--no-crontab` here"),
        ),
        None => look.of_cron(
            CheckResult::warn("cannot detect whether a cron daemon is running")
                .hint("`nanobot cron logs` in a few minutes"),
        ),
    };
    vec![finding]
}

/// Checks for environment variables that change the settings here but not in jobs.
pub(crate) fn variables(look: &CheckContext) -> Vec<CheckResult> {
    let lacking = look
        .enabled()
        .next()
        .and_then(|_| cron_environment::missing_variables(look.ctx));
    lacking.map(CheckResult::warn).into_iter().collect()
}
