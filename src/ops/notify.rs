//! Notifications of what needs a person: failures of jobs and channels, each once, and their ends. `notify.target` of the config
//! says where they go. Without it they are printed on standard error, which cron mails.

use crate::ops::context::{Context, report_error};
use crate::ops::jobs::delivery::{self, OutgoingText};
use crate::ops::notices::{self, Failure, Notice};
use crate::ops::notify_target;
use anyhow::Result;
use nanobot_base::error::{Exit, Stop, fail};
use nanobot_base::message::Origin;
use nanobot_channel::MessageSource;
use nanobot_config::settings::Settings;
use nanobot_os::file_lock::{FileLock, LockAttempt};

/// The words before an error of this module.
const CONTEXT: &str = "`notify.target`";

/// Records a failure, of which [`send_waiting`] tells once. If that is not possible, its text is printed.
pub(crate) fn record_failure(ctx: &Context, failure: Failure<'_>) {
    let text = failure.text.clone();
    print_unrecorded(ctx, &text, notices::record_failure(ctx, failure));
}

/// Records a text, which [`send_waiting`] sends. If that is not possible, it is printed.
pub(crate) fn record_event(ctx: &Context, text: &str) {
    print_unrecorded(ctx, text, notices::record_event(ctx, text.to_owned()));
}

fn print_unrecorded(ctx: &Context, text: &str, result: Result<()>) {
    if let Err(error) = result {
        report_error(&error.context(CONTEXT), ctx.terminal);
        ctx.terminal.eprint_failure(text);
    }
}

/// Sends what was recorded, by this process or others, to the place that the config names, as one message. What cannot be sent now is
/// printed on standard error, with the reason.
pub(crate) fn send_waiting(ctx: &Context, settings: &Settings) {
    if settings.notify_target.is_none() {
        return;
    }
    if let Err(error) = try_send_waiting(ctx, settings)
        && !error.is::<Stop>()
    {
        report_error(&error.context(CONTEXT), ctx.terminal);
    }
}

fn try_send_waiting(ctx: &Context, settings: &Settings) -> Result<()> {
    while notices::are_waiting(ctx)? {
        let LockAttempt::Acquired(lock) = FileLock::try_acquire(&ctx.paths.notices_lock(), None)?
        else {
            // The process that holds it looks for further notices afterwards.
            return Ok(());
        };
        while let Some(notice) = notices::next(ctx)? {
            match send(ctx, settings, &notice) {
                // The next process sends it.
                Err(error) if error.is::<Stop>() => return Err(error),
                result => print_unrecorded(ctx, &notice.text, result),
            }
            notices::remove(ctx, &notice)?;
        }
        drop(lock);
    }
    Ok(())
}

fn send(ctx: &Context, settings: &Settings, notice: &Notice) -> Result<()> {
    let Notice { text, key, .. } = notice;
    let target = notify_target::find(settings)
        .ok_or_else(|| fail(Exit::Config, "it is not the name of a place"))?;
    // An error may quote what a service or a command said.
    let source = MessageSource { name: "nanobot".to_owned(), origin: Origin::External, job: None };
    let spec = |command: &str| delivery::user_command(ctx, command, Some(text));
    let outgoing = OutgoingText { text, source, key: key.clone(), spec: &spec };
    match delivery::send(ctx, &target, outgoing)? {
        None => Ok(()),
        Some(waiting) => Err(waiting.error),
    }
}
