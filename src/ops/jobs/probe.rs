//! `cron run NAME --probe`: reports what a job would find when cron starts it. `status --check` runs it the way a
//! crontab line is run, and parses the JSON object that it prints.
//!
//! The settings, the key and the sandbox are the real ones. The job is temporary, in a folder that is deleted
//! afterwards, and takes all steps of a real job. The built-in demo replaces the model, so nothing is sent or paid for.

use crate::cron::expression::Expression;
use crate::cron::job::{Delivery, Job, State, Terms};
use crate::cron::record::{Folder, Record};
use crate::cron::schedule::Schedule;
use crate::cron::store::Store;
use crate::error::{Exit, exit_of, fail, hint_of};
use crate::ops::context::Context;
use crate::ops::jobs::resolved_job::resolve;
use crate::ops::jobs::scheduled_run::run_if_due;
use crate::ops::model;
use crate::policy::Sandbox;
use crate::provider::demo;
use crate::settings::Settings;
use crate::sys::paths::Paths;
use crate::sys::{sandbox, store};
use anyhow::{Context as _, Result, anyhow};
use jiff::ToSpan;
use serde_json::{Value, json};
use std::path::Path;

/// Timeout of the temporary job, in seconds.
const LIMIT: u64 = 30;

/// Reports the environment of a job called `name`, part by part.
pub(crate) fn probe(ctx: &Context, name: &str) -> Result<Value> {
    let settings = &ctx.settings()?;
    let mut found = json!({
        "version": env!("CARGO_PKG_VERSION"), "config": ctx.paths.config, "workspace": settings.workspace,
    });
    for (part, look) in [
        ("model", asked(ctx, settings)),
        ("sandbox", fence(ctx)),
        ("run", job(ctx, name)),
    ] {
        found[part] = look.unwrap_or_else(|error| {
            json!({
                "error": format!("{error:#}"), "hint": hint_of(&error), "status": exit_of(&error).code(),
            })
        });
    }
    Ok(found)
}

/// The provider and model of a run. The key is resolved as before a request, but an expired login is not renewed.
fn asked(ctx: &Context, settings: &Settings) -> Result<Value> {
    let way = model::resolve_endpoint(ctx, settings, &settings.asked[0], true, true)?;
    let is_renewed = match way.wire.key.access(&way.wire.http) {
        Ok(_) => false,
        Err(error) if exit_of(&error) == Exit::Unavailable => true,
        Err(error) => return Err(error),
    };
    let key = way.wire.key.is_some().then_some(&way.choice.key_place);
    Ok(json!({
        "provider": way.choice.provider, "model": way.choice.model, "key": key.map(|place| place.replace('`', "")),
        "renewed": is_renewed,
    }))
}

/// The state of the sandbox for commands.
fn fence(ctx: &Context) -> Result<Value> {
    let policy = resolve(ctx, &Terms::default())?.policy;
    let lack = match policy.sandbox {
        Sandbox::Off => None,
        _ => sandbox::available().err(),
    };
    Ok(json!({ "off": policy.sandbox == Sandbox::Off, "lack": lack.map(|lack| lack.to_string()) }))
}

/// Creates a temporary job that is due, and runs it.
fn job(ctx: &Context, name: &str) -> Result<Value> {
    let place = tempfile::Builder::new().prefix("nanobot-probe-").tempdir();
    let place = place.context("create a directory for the probe")?;
    let ctx = context_in(ctx, place.path())?;
    let settings = ctx.settings()?;
    let jobs = Store::new(&settings.workspace, &ctx.paths.root, false);
    let now = ctx.clock.timestamp();
    let created_at = now
        .checked_sub(5.minutes())
        .context("compute the probe's start time")?;
    let schedule = Expression::parse("* * * * *")
        .map_err(|words| anyhow!("parse the probe's schedule: {words}"))?;
    let job = Job {
        id: name.to_owned(),
        name: name.to_owned(),
        enabled: true,
        schedule: Ok(Schedule::Cron {
            expression: schedule,
            zone: None,
        }),
        message: "What is here?".into(),
        delivery: Delivery::default(),
        session: None,
        created: created_at,
        state: State::default(),
        delete_after_run: false,
        terms: Some(Terms {
            v: Terms::V,
            policy: Some(resolve(&ctx, &Terms::default())?.policy.snapshot()),
            timeout: Some(LIMIT),
            quiet: true,
            ..Terms::default()
        }),
    };
    jobs.add(&job, created_at, None)?;
    let folder = Folder::new(jobs.folder(name)?);
    let exit = run_if_due(&ctx, settings, &jobs, &job, Some(Path::new(demo::ALWAYS)))?;
    let last: Record = folder
        .records(1)?
        .pop()
        .ok_or_else(|| fail(exit, "the due job was not run"))?;
    Ok(json!({ "status": last.status, "outcome": last.outcome, "error": last.error }))
}

/// The context with everything that is written redirected to `directory`.
fn context_in(ctx: &Context, place: &Path) -> Result<Context> {
    // The config may name the user's own profiles.
    let own = ctx.paths.profiles();
    if own.is_dir() {
        std::os::unix::fs::symlink(own, place.join("profiles")).context("link the profiles")?;
    }
    let workspace = place.join("workspace");
    store::create_dir(&workspace)?;
    Ok(Context {
        workspace: Some(workspace),
        quiet: true,
        paths: Paths {
            root: place.to_owned(),
            ..ctx.paths.clone()
        },
        ..ctx.clone()
    })
}
