//! `cron run NAME --probe`: reports the environment of a job that cron starts. `status check` starts it like a crontab
//! line, and parses the JSON object that it prints.
//!
//! The settings, the key and the sandbox are the real ones. The job is temporary, in a folder that is deleted
//! afterwards, and takes all steps of a real job. The built-in demo replaces the model, so nothing is sent or paid for.

use crate::ops::context::Context;
use crate::ops::job_runs::scheduled_run::{ScheduledStart, run_if_due};
use crate::ops::jobs::resolved_job::resolve;
use crate::ops::model;
use anyhow::{Context as _, Result, anyhow};
use jiff::ToSpan;
use nanobot_base::error::{Exit, exit_for, fail, hint_for};
use nanobot_config::policy::Sandbox;
use nanobot_config::settings::Settings;
use nanobot_cron::expression::Expression;
use nanobot_cron::job::{Job, JobOptions};
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::{JobDir, RunRecord};
use nanobot_cron::schedule::Schedule;
use nanobot_model::provider::demo;
use nanobot_model::provider::registry::KeyLabel;
use nanobot_os::durable_file;
use nanobot_os::paths::Paths;
use nanobot_sandbox as sandbox;
use serde_json::{Value, json};
use std::path::Path;

/// Timeout of the temporary job, in seconds.
const JOB_TIMEOUT_SECS: u64 = 30;

/// Reports the environment of a job called `name`, part by part.
pub(crate) fn probe(ctx: &Context, name: &str) -> Result<Value> {
    let settings = &ctx.settings()?;
    let mut report = json!({
        "version": env!("CARGO_PKG_VERSION"), "config": ctx.paths.config.display().to_string(), "workspace": settings.workspace.display().to_string(),
    });
    for (part, probe) in [
        ("model", probe_model(ctx, settings)),
        ("sandbox", probe_sandbox(ctx)),
        ("run", probe_run(ctx, name)),
    ] {
        report[part] = probe.unwrap_or_else(|error| {
            json!({
                "error": format!("{error:#}"), "hint": hint_for(&error), "status": exit_for(&error).code(),
            })
        });
    }
    Ok(report)
}

/// The provider and model of a run. The key is resolved as before a request, but an expired login is not renewed.
fn probe_model(ctx: &Context, settings: &Settings) -> Result<Value> {
    let endpoint = model::resolve_endpoint(ctx, settings, &settings.models[0], true, true)?;
    let is_renewed = match endpoint.http_provider.key.resolve(&endpoint.http_provider.http) {
        Ok(_) => false,
        Err(error) if exit_for(&error) == Exit::Unavailable => true,
        Err(error) => return Err(error),
    };
    let key = endpoint.http_provider.key.is_configured().then_some(&endpoint.choice.key_label);
    Ok(json!({
        "provider": endpoint.choice.provider, "model": endpoint.choice.model, "key": key.map(KeyLabel::plain_text),
        "renewed": is_renewed,
    }))
}

/// The state of the sandbox for commands.
fn probe_sandbox(ctx: &Context) -> Result<Value> {
    let policy = resolve(ctx, &JobOptions::default())?.policy;
    let error = match policy.sandbox {
        Sandbox::Off => None,
        _ => sandbox::check_available().err(),
    };
    Ok(json!({
        "off": policy.sandbox == Sandbox::Off, "lack": error.map(|error| error.to_string()),
    }))
}

/// Creates a temporary job that is due, and runs it.
fn probe_run(ctx: &Context, name: &str) -> Result<Value> {
    let directory = tempfile::Builder::new()
        .prefix("nanobot-probe-")
        .tempdir()
        .context("create a directory for the probe")?;
    let ctx = redirected_context(ctx, directory.path())?;
    let settings = ctx.settings()?;
    let jobs = JobStore::new(&settings.workspace, &ctx.paths.root, false);
    let now = ctx.clock.timestamp();
    let created_at = now.checked_sub(5.minutes()).context("compute the probe's start time")?;
    let schedule = Expression::parse("* * * * *")
        .map_err(|error| anyhow!("parse the probe's schedule: {error}"))?;
    let job = Job {
        message: "What is here?".into(),
        options: Some(JobOptions {
            v: JobOptions::FORMAT_VERSION,
            policy: Some(resolve(&ctx, &JobOptions::default())?.policy.snapshot()),
            timeout: Some(JOB_TIMEOUT_SECS),
            quiet: true,
            ..JobOptions::default()
        }),
        ..Job::new(name, Ok(Schedule::Cron { expression: schedule, zone: None }), created_at)
    };
    jobs.add(&job, created_at, None)?;
    let job_dir = JobDir::new(jobs.job_dir(name)?);
    let exit = run_if_due(
        &ctx,
        settings,
        &jobs,
        &job,
        ScheduledStart {
            replay: Some(Path::new(demo::UNSHADOWED_PATH)),
            no_jitter: true,
            no_after: true,
            // A failure of the probe is part of its report.
            no_notify: true,
        },
    )?;
    let last: RunRecord =
        job_dir.last_records(1)?.pop().ok_or_else(|| fail(exit, "the due job was not run"))?;
    Ok(json!({ "status": last.status, "outcome": last.outcome, "error": last.error }))
}

/// The context with everything that is written redirected to `directory`.
fn redirected_context(ctx: &Context, directory: &Path) -> Result<Context> {
    // The config may name the user's own profiles.
    let profiles = ctx.paths.profiles();
    if profiles.is_dir() {
        std::os::unix::fs::symlink(profiles, directory.join("profiles"))
            .context("link the profiles")?;
    }
    let workspace = directory.join("workspace");
    durable_file::create_dir(&workspace)?;
    Ok(Context {
        workspace: Some(workspace),
        quiet: true,
        paths: Paths { root: directory.to_owned(), ..ctx.paths.clone() },
        ..ctx.clone()
    })
}
