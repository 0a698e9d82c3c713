//! Checks of the enabled chat channels.

use super::check::{CheckContext, CheckResult, Severity};
use crate::ops::channel::overview;
use anyhow::Result;

/// Age of the last poll above which messages probably wait, in milliseconds: 10 minutes.
const MAX_POLL_AGE_MILLIS: i64 = 600_000;

/// Checks the token, the senders, and the last poll of each enabled channel.
pub(crate) fn check_channels(input: &CheckContext) -> Vec<CheckResult> {
    let names = input.settings.channels.iter();
    let results = names.flat_map(|name| match check_channel(input, name) {
        Ok(results) => results,
        Err(error) => vec![CheckResult::from_error(Severity::Failed, &error)],
    });
    results.collect()
}

fn check_channel(input: &CheckContext, name: &str) -> Result<Vec<CheckResult>> {
    let (files, inbox) = overview::show(input.ctx, name)?;
    let mut results = Vec::new();
    if !input.offline {
        let account = overview::test(input.ctx, name)?;
        results.push(CheckResult::ok(format!("{name}: {}", account.name)));
    }
    let waiting = inbox.waiting();
    if waiting > 0 {
        let message = format!("{name}: {waiting} messages wait");
        let hint = format!("`nanobot channel inbox {name}` shows them");
        results.push(CheckResult::warn(message).with_hint(hint));
    }
    if !files.kind.receives {
        return Ok(results);
    }
    if !files.access_rules(input.ctx)?.admits_any_sender() {
        let message = format!("{name}: no sender is allowed");
        let hint = format!("your id in `channels.{name}.allowFrom`");
        results.push(CheckResult::warn(message).with_hint(hint));
    }
    let now = input.ctx.clock.timestamp().as_millisecond();
    let last = files.last_poll()?;
    if last.is_none_or(|last| now - last > MAX_POLL_AGE_MILLIS) {
        let message = match last {
            None => format!("{name}: it was never polled"),
            Some(last) => {
                let minutes = (now - last) / 60_000;
                format!("{name}: the last poll was {minutes} minutes ago")
            }
        };
        let hint = "a crontab line: `* * * * * nanobot channel poll --wait 60`";
        results.push(CheckResult::warn(message).with_hint(hint));
    }
    Ok(results)
}
