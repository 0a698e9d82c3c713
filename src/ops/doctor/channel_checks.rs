//! Checks of the enabled chat channels.

use super::check::{CheckInput, CheckResult};
use crate::ops::channel::health::{ChannelHealth, ChannelProblem};
use crate::ops::channel::overview;
use crate::ops::jobs::time_format::format_time;
use anyhow::Result;

const POLL_HINT: &str = "a crontab line: `* * * * * nanobot channel poll --wait 60`";

/// Checks the token, the senders, and the last poll of each enabled channel.
pub(crate) fn check_channels(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let names = input.settings.channels.iter();
    let results = names.flat_map(|name| {
        check_channel(input, name).unwrap_or_else(|error| vec![CheckResult::from_error(&error)])
    });
    Ok(results.collect())
}

fn check_channel(input: &CheckInput, name: &str) -> Result<Vec<CheckResult>> {
    let (files, _) = overview::show(input.ctx, name)?;
    let health = ChannelHealth::read(&files)?;
    let mut results = Vec::new();
    if !input.offline {
        let bot = overview::test(input.ctx, name)?;
        results.push(CheckResult::ok(format!("{name}: {}", bot.name)));
    }
    let now = input.ctx.clock.now();
    for problem in health.problems(now.timestamp()) {
        let since = format_time(problem.since(), &now);
        let message = format!("{name}: {}", problem.describe(&since));
        results.push(match problem {
            ChannelProblem::Failing(..) => CheckResult::failed(message)
                .with_hint(format!("`nanobot channel check {name}`, which asks the service")),
            ChannelProblem::Waiting(..) => CheckResult::warn(message)
                .with_hint(format!("`nanobot channel inbox {name}`, which lists them")),
            ChannelProblem::NotPolled(_) => CheckResult::warn(message).with_hint(POLL_HINT),
        });
    }
    if !files.kind.receives {
        return Ok(results);
    }
    if !files.access_rules(input.ctx)?.admits_any_sender() {
        let message = format!("{name}: no sender is allowed");
        let hint = format!("your id in `channels.{name}.allowFrom`");
        results.push(CheckResult::warn(message).with_hint(hint));
    }
    if health.last_poll.is_none() {
        let message = format!("{name}: it was never polled");
        results.push(CheckResult::warn(message).with_hint(POLL_HINT));
    }
    Ok(results)
}
