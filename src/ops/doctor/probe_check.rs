//! The check that runs a temporary job the way a crontab line would.

use super::check::{CheckInput, CheckResult, Severity};
use crate::ops::context::Context;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::resolved_job;
use crate::ops::jobs::time_format::{format_duration, to_one_line};
use crate::ops::permissions;
use anyhow::Result;
use jiff::SignedDuration;
use nanobot_base::error::Exit;
use nanobot_base::shell_quote::quote;
use nanobot_cron::job::{Job, JobOptions};
use nanobot_sandbox::process::{self, CommandSpec};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The id of the temporary job.
pub(super) const PROBE_JOB: &str = "probe";
/// Timeout of the probe, including the command that prints the key.
const PROBE_TIMEOUT: Duration = Duration::from_secs(100);
/// Bytes of the probe's output that are kept.
const OUTPUT_LIMIT_BYTES: usize = 64 << 10;

/// Runs a temporary job the way a crontab line would.
pub(crate) fn check_probe(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let mut results =
        run_probe(input).unwrap_or_else(|error| vec![CheckResult::from_error(&error)]);
    // Without jobs, a failure is only a warning.
    let is_needed = input.needs_cron();
    for result in &mut results {
        if result.severity == Severity::Failed && !is_needed {
            result.severity = Severity::Warn;
        }
    }
    Ok(results)
}

fn run_probe(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let CheckInput { ctx, settings, .. } = input;
    let (command, env) = crontab_sync::cron_command(ctx, settings, &probe_job(ctx))?;
    let start = ctx.clock.timestamp();
    let (finished, output) = process::run_split_stderr(&CommandSpec {
        directory: ctx.paths.home.clone(),
        env,
        capture_bytes: OUTPUT_LIMIT_BYTES,
        ..CommandSpec::shell(format!("{command} --probe"), PROBE_TIMEOUT)
    })?;
    if let Some(stop) = finished.stop {
        return Err(stop.into());
    }
    let duration = ctx.clock.timestamp().duration_since(start);
    let Ok(probe_output) = serde_json::from_slice::<Value>(&finished.head) else {
        let output = [output, finished.head].concat();
        let output = to_one_line(&String::from_utf8_lossy(&output));
        let failure = match finished.status {
            None => format!("timed out after {} s", PROBE_TIMEOUT.as_secs()),
            Some(status) => format!("failed ({status})"),
        };
        let message = format!("a job started by cron {failure}: {output}");
        let hint = format!("`cd; {} /bin/sh -c {}`", cron_env(&ctx.paths.home), quote(&command));
        return Ok(vec![CheckResult::failed(message).with_hint(hint)]);
    };
    let mut results = evaluate(&probe_output, duration);
    // Comparing with this environment gives a more specific message.
    if probe_output["model"]["error"].is_string()
        && let Ok(resolved) = resolved_job::resolve(ctx, &JobOptions::default())
        && let Some(mismatch) = cron_environment::endpoint_mismatch(ctx, &probe_job(ctx), &resolved)
        && mismatch.fix_command.is_some()
    {
        results[0] = CheckResult {
            hint: mismatch.fix_command,
            ..CheckResult::failed(mismatch.message).with_exit(Exit::Config)
        };
    }
    Ok(results)
}

/// The `env` prefix that gives a shell command the environment of cron.
fn cron_env(home: &Path) -> String {
    format!("env -i HOME={} PATH=/usr/bin:/bin", quote(&home.display().to_string()))
}

/// A job whose crontab line looks like any other.
fn probe_job(ctx: &Context) -> Job {
    Job {
        options: Some(JobOptions {
            config: ctx.config.as_deref().map(permissions::absolute),
            ..JobOptions::default()
        }),
        ..Job::new(PROBE_JOB, Err("not used by the probe".into()), ctx.clock.timestamp())
    }
}

/// Turns the output of the probe into check results.
fn evaluate(probe_output: &Value, duration: SignedDuration) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for (part, problem) in [
        ("model", "a job started by cron has no model"),
        ("sandbox", "a job started by cron is not allowed to run"),
        ("run", "a job started by cron fails"),
    ] {
        let Some(error) = probe_output[part]["error"].as_str() else {
            continue;
        };
        let status = probe_output[part]["status"].as_i64().and_then(|code| code.try_into().ok());
        let exit = status.map_or(Exit::Failed, Exit::from_code);
        let result = CheckResult::failed(format!("{problem}: {error}")).with_exit(exit);
        results.push(match probe_output[part]["hint"].as_str() {
            Some(hint) => result.with_hint(hint),
            None => result,
        });
    }
    if let Some(reason) = probe_output["sandbox"]["lack"].as_str() {
        let message =
            format!("jobs cannot run commands, because no sandbox is available: {reason}");
        results.push(CheckResult::warn(message));
    }
    if results.iter().all(|result| result.severity != Severity::Failed) {
        let model = &probe_output["model"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = match model["key"].as_str() {
            Some(key_source) => format!("key from {key_source}"),
            None => "no key".into(),
        };
        results.push(CheckResult::ok(format!(
            "a demo job ran in cron's environment in {}; real jobs use `{}` of {}, {key}",
            format_duration(duration),
            text(&model["model"]),
            text(&model["provider"]),
        )));
    }
    results
}
