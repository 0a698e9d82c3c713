//! `status --check`: tests if the configured setup works. Each check is a function in a table, and all of them run,
//! regardless of the others' results. The provider check runs concurrently, since it takes the longest.

use super::check::{CheckContext, CheckResult, Level};
use super::{crontab_checks as crontab, job_checks as jobs, probe_check, run_checks as run};
use crate::ops::context::Context;
use crate::ops::jobs::{crontab_sync, job_store};
use crate::sys::signal;
use anyhow::{Context as _, Result};

/// A check: inspects one area, and returns its results.
type Check = fn(&CheckContext) -> Vec<CheckResult>;

/// The checks, in the order in which they are reported: likely causes first.
const CHECKS: &[(&str, Check)] = &[
    ("config", run::config),
    ("places", run::places),
    ("others", run::others),
    ("sessions", run::sessions),
    ("memory", run::memory),
    ("trust", run::trust),
    ("skills", run::skills),
    ("sandbox", run::sandbox),
    ("provider", run::provider),
    ("servers", run::servers),
    ("completions", run::completions),
    ("gateway", run::gateway),
    ("jobs", jobs::jobs),
    ("schedules", jobs::schedules),
];

/// The checks of the crontab and of the program that it starts.
const OF_CRONTAB: &[(&str, Check)] = &[
    ("crontab", crontab::crontab),
    ("lines", crontab::lines),
    ("program", crontab::program),
    ("cron", crontab::daemon),
    ("variables", crontab::variables),
    ("keys", jobs::keys),
    ("probe", probe_check::probe),
];

/// The checks of past runs and deliveries.
const AFTERWARDS: &[(&str, Check)] = &[("runs", jobs::runs), ("delivery", jobs::delivery)];

/// The name of the check that waits for a server.
const SLOW: &str = "provider";

/// Runs all checks. `report` gets the name and the results of each.
pub(crate) fn run_all(
    ctx: &Context,
    offline: bool,
    no_crontab: bool,
    report: &mut dyn FnMut(&str, Vec<CheckResult>) -> Result<()>,
) -> Result<()> {
    signal::arm(None).context("wait for signals")?;
    let settings = match ctx.settings() {
        Ok(settings) => settings,
        // Without a valid config there is nothing else to check.
        Err(error) => {
            return report("config", vec![CheckResult::of_error(Level::Failed, &error)]);
        }
    };
    let store = job_store::open(ctx, &settings);
    let input = CheckContext {
        ctx,
        settings: &settings,
        store: &store,
        jobs: store.jobs(),
        lines: crontab_sync::lines(ctx, &settings),
        offline,
    };
    let of_crontab = if no_crontab { &[] } else { OF_CRONTAB };
    std::thread::scope(|scope| {
        let mut slow = Some(scope.spawn(|| run::provider(&input)));
        for (name, check) in [CHECKS, of_crontab, AFTERWARDS].concat() {
            let waited = slow.take_if(|_| name == SLOW);
            let results = match waited {
                Some(thread) => thread.join().expect("a check does not panic"),
                None => check(&input),
            };
            signal::check()?;
            report(name, results)?;
        }
        anyhow::Ok(())
    })?;
    if no_crontab {
        let message = "skipped, with the checks that depend on it (--no-crontab)";
        report("crontab", vec![CheckResult::ok(message)])?;
    }
    Ok(())
}
