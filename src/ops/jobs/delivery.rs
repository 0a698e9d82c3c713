//! Delivery of a run's answer, and notification of failures. The commands belong to the user: a shell runs them outside
//! the sandbox, and they come from our own folder, never from the job file. They run in the home directory, as under
//! cron: runs can write to a job's working directory, so a program found there could be theirs.

use super::job_store::job_directory as directory;
use crate::cron::job::{Job, Sink, Terms};
use crate::cron::record::Record;
use crate::error::{Exit, fail};
use crate::ops::context::Context;
use crate::settings::Settings;
use crate::sys::process::{self, Spec};
use crate::sys::{secret, signal, store};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a command that receives an answer or a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// Bytes of its output that are kept for error messages.
const KEEP: usize = 4 << 10;

/// The result of a delivery.
#[derive(Default)]
pub(crate) struct DeliveryResult {
    /// The destination.
    pub(crate) to: Option<String>,
    /// The error, if the delivery failed.
    pub(crate) error: Option<anyhow::Error>,
}

/// Delivers the answer. An answer that cannot be delivered is printed, so it is not lost.
pub(crate) fn deliver(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    terms: &Terms,
    text: &str,
) -> DeliveryResult {
    let print = || ctx.terminal.print(&format!("{text}\n")).err();
    let Some(sink) = &terms.sink else {
        return match terms.quiet {
            true => DeliveryResult::default(),
            false => DeliveryResult {
                to: None,
                error: print(),
            },
        };
    };
    let done = match sink {
        Sink::File(path) => append(path, text),
        Sink::Command(command) => pipe(ctx, settings, job, command, text),
    };
    match done {
        Ok(()) => DeliveryResult {
            to: Some(shown(sink)),
            error: None,
        },
        Err(error) => {
            // If the run was cancelled, a short grace period remains to print the answer.
            signal::last_words();
            let error = error.context("the answer was not delivered");
            DeliveryResult {
                to: None,
                error: Some(match print() {
                    None => error,
                    Some(other) => {
                        error.context(format!("it could not be printed either: {other:#}"))
                    }
                }),
            }
        }
    }
}

/// The destination of answers, phrased to follow `Your answer`.
pub(crate) fn describe_destination(terms: &Terms) -> String {
    match (&terms.sink, terms.quiet) {
        (Some(Sink::File(path)), _) => format!("is appended to the file {}", path.display()),
        (Some(Sink::Command(_)), _) => "is passed to a command of the user".into(),
        (None, true) => "is stored, but not shown".into(),
        (None, false) => "is printed, and cron may mail it to the user".into(),
    }
}

/// A short description of a sink. The text of a command is omitted, because it may contain keys.
fn shown(sink: &Sink) -> String {
    match sink {
        Sink::File(path) => format!("file:{}", path.display()),
        Sink::Command(command) => format!("command:{}", secret::hide(command)),
    }
}

/// Runs the command that is notified of failures.
pub(crate) fn tell_failure(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    terms: &Terms,
    record: &Record,
) {
    let Some(command) = &terms.on_failure else {
        return;
    };
    let words = record.error.clone().unwrap_or_default();
    let slot = record.slot.as_deref().and_then(|slot| slot.parse().ok());
    let mut spec = shell(
        ctx,
        settings,
        job,
        slot,
        command,
        Some(format!("{words}\n").into_bytes()),
    );
    spec.env.extend([
        ("NANOBOT_STATUS".to_owned(), record.status.to_string()),
        ("NANOBOT_CAUSE".to_owned(), record.cause.clone()),
    ]);
    if let Err(error) = finish(&spec) {
        let error = error.context(format!("`--on-failure` of job `{}`", job.name));
        crate::ops::context::report_error(&error, ctx.terminal);
    }
}

/// A shell command of the user. It gets our environment, and variables that identify the job.
pub(crate) fn shell(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    slot: Option<Timestamp>,
    command: &str,
    input: Option<Vec<u8>>,
) -> Spec {
    let mut env: Vec<(String, String)> = ctx
        .env
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    env.extend([
        ("NANOBOT_JOB".to_owned(), job.id.clone()),
        ("NANOBOT_JOB_NAME".to_owned(), job.name.clone()),
    ]);
    let works_in = directory(settings, &job.terms.clone().unwrap_or_default());
    // A directory that is not valid UTF-8 is not passed on.
    let works_in = works_in.to_str().map(str::to_owned);
    env.extend(works_in.map(|path| ("NANOBOT_DIRECTORY".to_owned(), path)));
    env.extend(slot.map(|slot| ("NANOBOT_SLOT".to_owned(), slot.to_string())));
    Spec {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), command.to_owned()],
        directory: home(ctx),
        env,
        timeout: LIMIT,
        keep: KEEP,
        fence: None,
        input,
    }
}

/// The directory in which the user's commands run.
fn home(ctx: &Context) -> PathBuf {
    match &ctx.paths.home {
        home if home.is_absolute() && home.is_dir() => home.clone(),
        _ => "/".into(),
    }
}

/// True if a shell would look for the program of `command` relative to its working directory.
pub(crate) fn is_relative(command: &str) -> bool {
    let is_setting = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            name.chars()
                .all(|letter| letter.is_alphanumeric() || letter == '_')
        })
    };
    let mut words = command.split_whitespace();
    let program = words.find(|word| *word != "!" && !is_setting(word));
    let program = program
        .unwrap_or_default()
        .trim_start_matches(['\'', '"', '(', '{']);
    program.contains('/') && !program.starts_with(['/', '~', '$'])
}

fn append(path: &Path, text: &str) -> Result<()> {
    store::append_at(path, format!("{text}\n").as_bytes())
}

fn pipe(ctx: &Context, settings: &Settings, job: &Job, command: &str, text: &str) -> Result<()> {
    let input = Some(format!("{text}\n").into_bytes());
    finish(&shell(ctx, settings, job, None, command, input))
}

/// Runs a command to its end.
///
/// # Errors
/// Every end except success, with the command's output.
fn finish(spec: &Spec) -> Result<()> {
    let command = secret::hide(spec.arguments.last().map_or("", String::as_str));
    let finished = process::run(spec, &mut |_| {}).with_context(|| format!("run `{command}`"))?;
    if let Some(stop) = finished.stopped {
        return Err(stop.into());
    }
    let how = match (finished.status, finished.signal()) {
        (Some(status), _) if status.success() => return Ok(()),
        (_, Some(number)) => format!("was killed by signal {number}"),
        (Some(status), None) => format!("failed with exit status {}", status.code().unwrap_or(-1)),
        (None, None) => "timed out".to_owned(),
    };
    let output = String::from_utf8_lossy(&finished.head).trim().to_owned();
    let output = secret::hide(&output);
    let colon = if output.is_empty() { "" } else { ": " };
    Err(fail(
        Exit::Failed,
        format!("`{command}` {how}{colon}{output}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::is_relative;

    #[test]
    fn what_is_looked_for_where_it_runs() {
        let check =
            |command: &str, expect: bool| assert_eq!(is_relative(command), expect, "{command}");
        check("./check", true);
        check("bin/check -v", true);
        check("! ./check", true);
        check("MODE=a/b ./check", true);
        check("'./a check'", true);
        check("(./check)", true);
        check("/usr/bin/check", false);
        check("~/bin/check", false);
        check("$HOME/bin/check", false);
        check("\"$HOME/bin/check\"", false);
        check("ping -c1 a/b", false);
        check("MODE=a/b check", false);
        check("", false);
    }
}
