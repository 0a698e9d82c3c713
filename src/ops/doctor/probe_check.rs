//! The check that runs a temporary job the way a crontab line would.

use super::check::{CheckContext, CheckResult, Level};
use crate::cron::job::{Delivery, Job, State, Terms};
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::resolved_job;
use crate::ops::jobs::time_format::{length, one_line};
use crate::ops::permissions;
use crate::shell_quote::quoted;
use crate::sys::process::{self, Spec};
use anyhow::Result;
use jiff::SignedDuration;
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
pub(crate) fn probe(look: &CheckContext) -> Vec<CheckResult> {
    let mut findings = match run_probe(look) {
        Ok(findings) => findings,
        Err(error) => vec![CheckResult::of_error(Level::Failed, &error)],
    };
    // Without jobs, a failure is only a warning.
    let is_needed = look.needs_cron();
    let failed = findings
        .iter_mut()
        .filter(|finding| finding.level == Level::Failed);
    failed
        .filter(|_| !is_needed)
        .for_each(|finding| finding.level = Level::Warn);
    findings
}

fn run_probe(look: &CheckContext) -> Result<Vec<CheckResult>> {
    let CheckContext { ctx, settings, .. } = look;
    let (command, env) = crontab_sync::as_cron(ctx, settings, &probe_job(ctx))?;
    let begun = ctx.clock.timestamp();
    let (finished, output) = process::run_split_stderr(&Spec {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), format!("{command} --probe")],
        directory: ctx.paths.home.clone(),
        env,
        timeout: PROBE_TIMEOUT,
        keep: OUTPUT_LIMIT_BYTES,
        fence: None,
        input: None,
    })?;
    if let Some(stop) = finished.stopped {
        return Err(stop.into());
    }
    let took = ctx.clock.timestamp().duration_since(begun);
    let found: Option<Value> = serde_json::from_slice(&finished.head).ok();
    let Some(found) = found else {
        let output = [output, finished.head].concat();
        let output = one_line(&String::from_utf8_lossy(&output));
        let how = match finished.status {
            None => format!("timed out after {} s", PROBE_TIMEOUT.as_secs()),
            Some(status) => format!("failed ({status})"),
        };
        let message = format!("a job started by cron {how}: {output}");
        let hint = format!(
            "`cd; {} /bin/sh -c {}`",
            cron_env(&ctx.paths.home),
            quoted(&command)
        );
        return Ok(vec![CheckResult::failed(message).hint(hint)]);
    };
    let mut findings = evaluate(&found, took);
    // Comparing with this environment gives a more specific message.
    if found["model"]["error"].is_string()
        && let Ok(resolved) = resolved_job::resolve(ctx, &Terms::default())
        && let Some(mismatch) = cron_environment::endpoint_mismatch(ctx, &probe_job(ctx), &resolved)
        && mismatch.fix.is_some()
    {
        findings[0] = CheckResult {
            hint: mismatch.fix,
            ..CheckResult::failed(mismatch.message).exit(Exit::Config)
        };
    }
    Ok(findings)
}

/// The `env` prefix that gives a shell command the environment of cron.
fn cron_env(home: &Path) -> String {
    format!(
        "env -i HOME={} PATH=/usr/bin:/bin",
        quoted(&home.display().to_string())
    )
}

/// A job whose crontab line looks like any other.
fn probe_job(ctx: &Context) -> Job {
    Job {
        id: PROBE_JOB.into(),
        name: PROBE_JOB.into(),
        enabled: true,
        schedule: Err("not used by the probe".into()),
        message: String::new(),
        delivery: Delivery::default(),
        session: None,
        created: ctx.clock.timestamp(),
        state: State::default(),
        delete_after_run: false,
        terms: Some(Terms {
            config: ctx.config.as_deref().map(permissions::absolute),
            ..Terms::default()
        }),
    }
}

/// Turns the probe's findings into check results.
fn evaluate(found: &Value, took: SignedDuration) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    for (part, what) in [
        ("model", "a job started by cron has no model"),
        ("sandbox", "a job started by cron is not allowed to run"),
        ("run", "a job started by cron fails"),
    ] {
        let Some(error) = found[part]["error"].as_str() else {
            continue;
        };
        let status = found[part]["status"]
            .as_i64()
            .and_then(|code| code.try_into().ok());
        let exit = status.map_or(Exit::Failed, Exit::of_code);
        let finding = CheckResult::failed(format!("{what}: {error}")).exit(exit);
        findings.push(match found[part]["hint"].as_str() {
            Some(hint) => finding.hint(hint),
            None => finding,
        });
    }
    if let Some(lack) = found["sandbox"]["lack"].as_str() {
        let message = format!("jobs cannot run commands, because no sandbox is available: {lack}");
        findings.push(CheckResult::warn(message));
    }
    if findings
        .iter()
        .all(|finding| finding.level != Level::Failed)
    {
        let model = &found["model"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = match model["key"].as_str() {
            Some(place) => format!("key from {place}"),
            None => "no key".into(),
        };
        findings.push(CheckResult::ok(format!(
            "a demo job ran in cron's environment in {}; real jobs use `{}` of {}, {key}",
            length(took),
            text(&model["model"]),
            text(&model["provider"]),
        )));
    }
    findings
}
