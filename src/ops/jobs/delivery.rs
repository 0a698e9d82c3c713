//! Delivery of a run's answer, and the user's commands. A shell runs the commands outside the sandbox, so they come from
//! our own data directory, never from the job file, which other programs write. They run in the home directory, as under
//! cron: a run can write to the job's working directory, so a program found there could come from a run.

use super::time_format::to_one_line;
use super::workspace_jobs::job_directory;
use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::channel::outbox::{self, OutboxMessage, SendOutcome};
use crate::ops::channel::recipients;
use crate::ops::context::Context;
use crate::ops::notify_target;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, fail};
use nanobot_channel::{MessageSource, table};
use nanobot_config::settings::Settings;
use nanobot_cron::job::{AnswerDestination, Delivery, Job, JobOptions};
use nanobot_cron::run_record::Trigger;
use nanobot_os::durable_file;
use nanobot_os::secret;
use nanobot_os::signal;
use nanobot_sandbox::process::{self, CommandSpec};
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of a command that receives an answer or a failure.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of its output that are kept for error messages.
const OUTPUT_LIMIT_BYTES: usize = 4 << 10;

/// The answer of a run.
pub(crate) struct RunAnswer<'a> {
    pub(crate) text: &'a str,
    /// The cause of the run.
    pub(crate) trigger: Trigger,
    /// The sender, for the session of a chat.
    pub(crate) source: MessageSource,
}

/// A message that a service cannot take now.
pub(crate) struct DelayedDelivery {
    pub(crate) error: anyhow::Error,
    pub(crate) channel: String,
}

#[derive(Default)]
pub(crate) struct DeliveryResult {
    pub(crate) destination: Option<String>,
    /// Set if the answer waits for the next message or poll of its channel.
    pub(crate) waiting: Option<DelayedDelivery>,
    /// The error, if the delivery failed.
    pub(crate) error: Option<anyhow::Error>,
}

/// Delivers the answer. An answer that cannot be delivered is printed, so it is not lost. An answer of a run that the schedule
/// started goes to `notify.target` of the config if it has no other destination.
pub(crate) fn deliver(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    options: &JobOptions,
    answer: RunAnswer<'_>,
) -> DeliveryResult {
    let RunAnswer { text, trigger, source } = answer;
    let print = || ctx.terminal.print(&format!("{text}\n")).err();
    let is_for_target = !options.quiet && trigger == Trigger::Schedule;
    let target = || if is_for_target { notify_target::find(settings) } else { None };
    // At the place of all jobs, a person needs to know which one it is.
    let named_text = || format!("job `{}`:\n\n{text}", to_one_line(&job.name));
    let own = find_destination(ctx, job).map(|destination| (destination, text.to_owned()));
    let Some((destination, text)) = own.or_else(|| Some((target()?, named_text()))) else {
        return if options.quiet {
            DeliveryResult::default()
        } else {
            DeliveryResult { error: print(), ..DeliveryResult::default() }
        };
    };
    let formatted = format_destination(&destination);
    let spec = |command: &str| shell_spec(ctx, settings, job, None, command, Some(&text));
    let outgoing = OutgoingText { text: &text, source, key: None, spec: &spec };
    match send(ctx, &destination, outgoing) {
        Ok(waiting) => {
            let state = if waiting.is_some() { " (waits)" } else { "" };
            let destination = Some(format!("{formatted}{state}"));
            DeliveryResult { destination, waiting, error: None }
        }
        Err(error) => {
            // If the run was cancelled, a short grace period remains to print the answer.
            signal::begin_shutdown_if_stopped();
            let error = error.context("the answer was not delivered");
            DeliveryResult {
                error: Some(match print() {
                    None => error,
                    Some(other) => {
                        error.context(format!("it could not be printed either: {other:#}"))
                    }
                }),
                ..DeliveryResult::default()
            }
        }
    }
}

/// A text that is sent.
pub(crate) struct OutgoingText<'a> {
    pub(crate) text: &'a str,
    /// The sender, for the session of a chat.
    pub(crate) source: MessageSource,
    /// A key under which a chat gets it once.
    pub(crate) key: Option<String>,
    /// Makes the specification of the command that a destination names.
    pub(crate) spec: &'a dyn Fn(&str) -> CommandSpec,
}

/// Sends a text. Returns the reason if it waits for the next message or poll of its channel.
///
/// # Errors
/// The text was not sent.
pub(crate) fn send(
    ctx: &Context,
    destination: &AnswerDestination,
    outgoing: OutgoingText,
) -> Result<Option<DelayedDelivery>> {
    match destination {
        AnswerDestination::File(path) => {
            let line = format!("{}\n", outgoing.text);
            durable_file::append_nofollow(path, line.as_bytes()).map(|()| None)
        }
        AnswerDestination::Command(command) => run_command(&(outgoing.spec)(command)).map(|_| None),
        AnswerDestination::Chat { channel, to } => send_to_chat(ctx, channel, to, outgoing),
    }
}

/// True if cron gets the answers of `job`, which it mails.
pub(crate) fn is_printed(ctx: &Context, settings: &Settings, job: &Job) -> bool {
    let is_quiet = job.options.as_ref().is_some_and(|options| options.quiet);
    !is_quiet && settings.notify_target.is_none() && find_destination(ctx, job).is_none()
}

/// The destination of the answers of a job: the one that the user chose, or a chat in the job file with which the user has
/// a conversation already. Other programs also write the job file.
pub(crate) fn find_destination(ctx: &Context, job: &Job) -> Option<AnswerDestination> {
    if let Some(destination) = job.options.as_ref().and_then(|options| options.destination.clone())
    {
        return Some(destination);
    }
    let Delivery { deliver, channel, to } = &job.delivery;
    let (channel, to) = (channel.as_ref()?, to.as_ref()?);
    if !deliver || table::find(channel).is_none() {
        return None;
    }
    match recipients::is_known(ctx, channel, to) {
        Ok(true) => Some(AnswerDestination::Chat { channel: channel.clone(), to: to.clone() }),
        Ok(false) => None,
        Err(error) => {
            log::warn!(target: "cron", "{}: {error:#}", job.id);
            None
        }
    }
}

/// Checks that the config of the chat service that gets the answers of `job` is complete. Nothing is sent.
///
/// # Errors
/// Status 78 if it is not.
pub(crate) fn check_chat_service(ctx: &Context, job: &Job) -> Result<()> {
    if let Some(AnswerDestination::Chat { channel, .. }) = find_destination(ctx, job) {
        let network = ctx.settings()?.network.offline();
        ChannelFiles::load(ctx, &channel)?.open(ctx, network)?;
    }
    Ok(())
}

fn send_to_chat(
    ctx: &Context,
    channel: &str,
    to: &str,
    outgoing: OutgoingText,
) -> Result<Option<DelayedDelivery>> {
    let message = OutboxMessage {
        is_offline: false,
        is_in_conversation: false,
        channel: channel.to_owned(),
        to: to.to_owned(),
        markdown: outgoing.text.to_owned(),
        key: outgoing.key,
        source: Some(outgoing.source),
        ..OutboxMessage::default()
    };
    Ok(match outbox::send(ctx, message)? {
        SendOutcome::Sent(_) => None,
        SendOutcome::Waits(error) => Some(DelayedDelivery { error, channel: channel.to_owned() }),
    })
}

/// The destination of answers, phrased to follow `Your answer`.
pub(crate) fn describe_destination(options: &JobOptions) -> String {
    match (&options.destination, options.quiet) {
        (Some(AnswerDestination::File(path)), _) => {
            format!("is appended to the file {}", path.display())
        }
        (Some(AnswerDestination::Command(_)), _) => "is passed to a command of the user".into(),
        (Some(AnswerDestination::Chat { channel, .. }), _) => {
            format!("is sent to the user's chat on {channel}")
        }
        (None, true) => "is stored, but not shown".into(),
        (None, false) => "is printed, and cron may mail it to the user".into(),
    }
}

/// The destination as the record of a run names it. The text of a command is omitted, because it may contain keys.
fn format_destination(destination: &AnswerDestination) -> String {
    match destination {
        AnswerDestination::File(path) => format!("file:{}", path.display()),
        AnswerDestination::Command(command) => format!("command:{}", secret::redact_all(command)),
        AnswerDestination::Chat { channel, to } => format!("{channel}:{to}"),
    }
}

/// A shell command of the user. It gets our environment, and variables that identify the job.
pub(crate) fn shell_spec(
    ctx: &Context,
    settings: &Settings,
    job: &Job,
    slot: Option<Timestamp>,
    command: &str,
    input: Option<&str>,
) -> CommandSpec {
    let mut spec = user_command(ctx, command, input);
    spec.env.extend([
        ("NANOBOT_JOB".to_owned(), job.id.clone()),
        ("NANOBOT_JOB_NAME".to_owned(), job.name.clone()),
    ]);
    let directory = job_directory(settings, &job.options.clone().unwrap_or_default());
    // A directory that is not valid UTF-8 is not passed on.
    spec.env
        .extend(directory.to_str().map(|path| ("NANOBOT_DIRECTORY".to_owned(), path.to_owned())));
    spec.env.extend(slot.map(|slot| ("NANOBOT_SLOT".to_owned(), slot.to_string())));
    spec
}

/// A shell command of the user, with `input` and a newline as its standard input.
pub(crate) fn user_command(ctx: &Context, command: &str, input: Option<&str>) -> CommandSpec {
    let env = ctx.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    CommandSpec {
        directory: command_directory(ctx),
        env,
        capture_bytes: OUTPUT_LIMIT_BYTES,
        input: input.map(|input| format!("{input}\n").into_bytes()),
        ..CommandSpec::shell(command, COMMAND_TIMEOUT)
    }
}

/// The directory in which the user's commands run.
fn command_directory(ctx: &Context) -> PathBuf {
    match &ctx.paths.home {
        home if home.is_absolute() && home.is_dir() => home.clone(),
        _ => "/".into(),
    }
}

/// True if a shell would look for the program of `command` relative to its working directory.
pub(crate) fn has_relative_program(command: &str) -> bool {
    let is_assignment = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
        })
    };
    let program = command.split_whitespace().find(|word| *word != "!" && !is_assignment(word));
    let program = program.unwrap_or_default().trim_start_matches(['\'', '"', '(', '{']);
    program.contains('/') && !program.starts_with(['/', '~', '$'])
}

/// Runs a command and waits for its end. Returns the beginning of its output, without secrets.
///
/// # Errors
/// The command did not succeed. The message contains its output.
pub(crate) fn run_command(spec: &CommandSpec) -> Result<String> {
    let command = secret::redact_all(spec.arguments.last().map_or("", String::as_str));
    let finished = process::run(spec, &mut |_| {}).with_context(|| format!("run `{command}`"))?;
    if let Some(stop) = finished.stop {
        return Err(stop.into());
    }
    let output = String::from_utf8_lossy(&finished.head).trim().to_owned();
    let output = secret::redact_all(&output).into_owned();
    let failure = match (finished.status, finished.signal()) {
        (Some(status), _) if status.success() => return Ok(output),
        (_, Some(number)) => format!("was killed by signal {number}"),
        (Some(status), None) => format!("failed with exit status {}", status.code().unwrap_or(-1)),
        (None, None) => "timed out".to_owned(),
    };
    let colon = if output.is_empty() { "" } else { ": " };
    Err(fail(Exit::Failed, format!("`{command}` {failure}{colon}{output}")))
}

#[cfg(test)]
mod tests {
    use super::has_relative_program;

    #[test]
    fn detects_relative_programs() {
        let check = |command: &str, expect: bool| {
            assert_eq!(has_relative_program(command), expect, "{command}");
        };
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
