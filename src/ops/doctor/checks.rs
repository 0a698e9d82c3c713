//! `status check`: tests whether the configured setup works. Each check is a function in a table, and all of them run,
//! regardless of the others' results. The provider check runs concurrently, since it takes the longest.

use crate::ops::channel::health::{ChannelHealth, ChannelProblem};
use crate::ops::channel::overview;
use crate::ops::context::Context;
use crate::ops::doctor::check::{CheckInput, CheckResult};
use crate::ops::doctor::{
    crontab_checks as crontab, job_checks as jobs, probe_check, run_checks as run,
};
use crate::ops::jobs::time_format::format_time;
use crate::ops::jobs::{crontab_sync, workspace_jobs};
use anyhow::{Context as _, Result};
use nanobot_config::settings::JobStarter;
use nanobot_os::signal;

/// A check: inspects one area, and returns its results. An error is reported as a failure.
type CheckFn = fn(&CheckInput) -> Result<Vec<CheckResult>>;

/// The checks, in the order in which they are reported: likely causes first.
const SETUP_CHECKS: &[(&str, CheckFn)] = &[
    ("config", run::check_config),
    ("places", run::check_directories),
    ("others", run::check_private_directories),
    ("owners", run::check_owners),
    ("sessions", run::check_sessions),
    ("memory", run::check_memory),
    ("trust", run::check_trust),
    ("skills", run::check_skills),
    ("tools", run::check_programs),
    ("sandbox", run::check_sandbox),
    ("provider", run::check_provider),
    ("servers", run::check_servers),
    ("channels", check_channels),
    ("completions", run::check_completions),
    ("gateway", run::check_gateway),
    ("jobs", jobs::check_job_file),
    ("schedules", jobs::check_schedules),
];

/// The checks of the crontab and of the program that it starts.
const CRONTAB_CHECKS: &[(&str, CheckFn)] = &[
    ("crontab", crontab::check_crontab),
    ("lines", crontab::check_lines),
    ("program", crontab::check_program),
    ("cron", crontab::check_daemon),
    ("mail", crontab::check_mailer),
    ("variables", crontab::check_variables),
    ("keys", jobs::check_model_access),
    ("probe", probe_check::check_probe),
];

/// The checks of a crontab that starts no jobs, because `cron.scheduler` is `none`.
const UNUSED_CRONTAB_CHECKS: &[(&str, CheckFn)] = &[("crontab", crontab::check_unused)];

/// The checks of past runs and deliveries.
const HISTORY_CHECKS: &[(&str, CheckFn)] =
    &[("runs", jobs::check_last_runs), ("delivery", jobs::check_delivery)];

/// The name of the check that waits for a server.
const SLOW_CHECK: &str = "provider";

/// Runs all checks. `report` receives the name and the results of each.
pub(crate) fn run_all(
    ctx: &Context,
    offline: bool,
    no_crontab: bool,
    report: &mut dyn FnMut(&str, Vec<CheckResult>) -> Result<()>,
) -> Result<()> {
    signal::install(None).context("wait for signals")?;
    let settings = match ctx.settings() {
        Ok(settings) => settings,
        // Without a valid config, no other check is possible.
        Err(error) => {
            return report("config", vec![CheckResult::from_error(&error)]);
        }
    };
    let store = workspace_jobs::open(ctx, &settings);
    let input = CheckInput {
        ctx,
        settings: &settings,
        store: &store,
        jobs: store.jobs(),
        crontab_lines: crontab_sync::read_lines(ctx, &settings),
        offline,
    };
    let crontab_checks = if no_crontab {
        &[]
    } else if settings.job_starter == JobStarter::Other {
        UNUSED_CRONTAB_CHECKS
    } else {
        CRONTAB_CHECKS
    };
    std::thread::scope(|scope| {
        let mut slow_check = Some(scope.spawn(|| run::check_provider(&input)));
        for (name, check) in [SETUP_CHECKS, crontab_checks, HISTORY_CHECKS].concat() {
            let results = match slow_check.take_if(|_| name == SLOW_CHECK) {
                Some(thread) => thread.join().expect("a check does not panic"),
                None => check(&input),
            };
            signal::check()?;
            report(name, results.unwrap_or_else(|error| vec![CheckResult::from_error(&error)]))?;
        }
        anyhow::Ok(())
    })?;
    if no_crontab {
        let message = "skipped, with the checks that depend on it (--no-crontab)";
        report("crontab", vec![CheckResult::ok(message)])?;
    }
    Ok(())
}

const POLL_HINT: &str = "a crontab line: `* * * * * nanobot channel poll --wait 60`";

/// Checks the token, the senders, and the last poll of each enabled channel.
fn check_channels(input: &CheckInput) -> Result<Vec<CheckResult>> {
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
