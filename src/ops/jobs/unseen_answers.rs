//! Unseen answers: a job printed them under cron on a machine without a mailer, so cron dropped them. The next `status`, or
//! the next run on a terminal, reports them.

use super::delivery;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_config::settings::{JobStarter, Settings};
use nanobot_cron::job::Job;
use nanobot_cron::run_record::{RunRecord, Trigger};
use nanobot_os::durable_file;
use nanobot_os::paths;
use nanobot_os::test_hooks;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file, in the directory of the job records.
const FILE_NAME: &str = "unseen.jsonl";
/// Size of the file from which only the newest entries are kept, and their number.
const MAX_FILE_BYTES: u64 = 64 << 10;
const MAX_ENTRIES: usize = 20;
/// Where cron looks for the program that sends mail, apart from `PATH`.
const MAILER_DIRS: &str = "/usr/sbin:/usr/lib:/sbin";

/// An answer that the user has not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnseenAnswer {
    pub(crate) v: u32,
    pub(crate) job: String,
    pub(crate) name: String,
    /// The start of the run, as in its record.
    pub(crate) start: String,
}

fn file(ctx: &Context) -> PathBuf {
    ctx.paths.cron().join(FILE_NAME)
}

/// True if cron can mail the output of jobs.
pub(crate) fn has_mailer(ctx: &Context) -> bool {
    match test_hooks::MAILER.get(&ctx.env) {
        Some(answer) => answer == "yes",
        None => {
            let dirs = format!("{}:{MAILER_DIRS}", ctx.env.get("PATH").unwrap_or_default());
            paths::find_program("sendmail", &dirs).is_some()
        }
    }
}

/// Remembers the answer of the run in `record`, if cron drops it.
pub(crate) fn remember(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    record: &RunRecord,
) -> Result<()> {
    let is_lost = record.trigger == Trigger::Schedule
        && record.output.is_some()
        && settings.job_starter == JobStarter::Crontab
        && delivery::is_printed(ctx, settings, job)
        && !ctx.terminal.stdout_is_tty
        && !has_mailer(ctx);
    if !is_lost {
        return Ok(());
    }
    let answer = UnseenAnswer {
        v: 1,
        job: job.id.clone(),
        name: job.name.clone(),
        start: record.start.clone(),
    };
    let line = to_line(&answer)?;
    let path = file(ctx);
    durable_file::with_line_log(&path, |log| {
        let size = durable_file::size(log, &path)?;
        if size <= MAX_FILE_BYTES {
            return durable_file::append_to(log, &path, size, line.as_bytes());
        }
        let answers = read(&path)?;
        let kept_answers = &answers[answers.len().saturating_sub(MAX_ENTRIES)..];
        let lines = kept_answers.iter().map(to_line).collect::<Result<String>>()?;
        durable_file::replace(&path, (lines + &line).as_bytes())
    })
}

fn to_line(answer: &UnseenAnswer) -> Result<String> {
    Ok(serde_json::to_string(answer).context("encode the answer")? + "\n")
}

/// The unseen answers, oldest first.
pub(crate) fn list(ctx: &Context) -> Result<Vec<UnseenAnswer>> {
    read(&file(ctx))
}

/// Marks `answers` as seen, after they were shown: a process that is killed before that reports them again. Those that came since stay.
pub(crate) fn mark_seen(ctx: &Context, answers: &[UnseenAnswer]) -> Result<()> {
    if answers.is_empty() { Ok(()) } else { retain(ctx, |answer| !answers.contains(answer)) }
}

/// Forgets the answers of the job `id`, which was removed with them.
pub(crate) fn forget(ctx: &Context, id: &str) -> Result<()> {
    if file(ctx).exists() { retain(ctx, |answer| answer.job != id) } else { Ok(()) }
}

fn retain(ctx: &Context, is_kept: impl Fn(&UnseenAnswer) -> bool) -> Result<()> {
    let path = file(ctx);
    durable_file::with_line_log(&path, |_| {
        let mut unseen = read(&path)?;
        unseen.retain(&is_kept);
        if unseen.is_empty() {
            return durable_file::remove(&path).map(drop);
        }
        let lines = unseen.iter().map(to_line).collect::<Result<String>>()?;
        durable_file::replace(&path, lines.as_bytes())
    })
}

/// Reports the unseen answers to a user at a terminal.
pub(crate) fn report(ctx: &Context) {
    if !ctx.terminal.stderr_is_tty || ctx.quiet {
        return;
    }
    let result = list(ctx).and_then(|answers| {
        if let Some(notice) = describe(&answers) {
            ctx.notice(&notice);
        }
        mark_seen(ctx, &answers)
    });
    if let Err(error) = result {
        ctx.notice(&format!("{error:#}"));
    }
}

fn read(path: &Path) -> Result<Vec<UnseenAnswer>> {
    let bytes = durable_file::read_limited(path, 2 * MAX_FILE_BYTES)?.unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n');
    // A line that a crash cut off is skipped.
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// A line for people about `answers`; `None` if there are none.
pub(crate) fn describe(answers: &[UnseenAnswer]) -> Option<String> {
    let last = answers.last()?;
    let name = super::time_format::to_one_line(&last.name);
    let hint = format!("`nanobot cron logs {} --output` prints it", last.job);
    Some(match answers.len() {
        1 => format!("the answer of job `{name}` ({}) was not mailed: {hint}", last.start),
        count => format!(
            "{count} answers of jobs were not mailed, the last of `{name}` ({}): {hint}; `nanobot cron logs` lists the runs",
            last.start
        ),
    })
}
