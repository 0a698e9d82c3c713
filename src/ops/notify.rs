//! Notifications of what needs a person: failures of jobs and channels, each once, and their ends. `notify.target` of the config
//! says where they go. Without it they are printed on standard error, which cron mails.

use crate::ops::context::{Context, report_error};
use crate::ops::jobs::delivery::{self, OutgoingText};
use crate::ops::notify_target;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Origin;
use nanobot_channel::MessageSource;
use nanobot_config::settings::Settings;

/// Sends `text` to the place that the config names. If that is not possible now, it is printed on standard error, with the reason.
pub(crate) fn send_or_print(ctx: &Context, settings: &Settings, text: &str) {
    if let Err(error) = send(ctx, settings, text) {
        report_error(&error.context("`notify.target`"), ctx.terminal);
        ctx.terminal.eprint_failure(text);
    }
}

fn send(ctx: &Context, settings: &Settings, text: &str) -> Result<()> {
    let target = notify_target::find(settings)
        .ok_or_else(|| fail(Exit::Config, "it is not the name of a place"))?;
    // An error may quote what a service or a command said.
    let source = MessageSource { name: "nanobot".to_owned(), origin: Origin::External };
    let spec = |command: &str| delivery::user_command(ctx, command, Some(text));
    let outgoing = OutgoingText { text, source, spec: &spec };
    match delivery::send(ctx, &target, outgoing)? {
        None => Ok(()),
        Some(waiting) => Err(waiting.error),
    }
}
