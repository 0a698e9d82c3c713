//! `status check --fix`: corrects the absolute paths of jobs and crontab lines after the home directory was moved.
//!
//! The earlier home is recognised by the block of its workspace in the crontab, or by paths of jobs that no longer exist
//! and exist beneath the new home. A path is only changed if the earlier home no longer exists. Trust is not moved: a
//! directory is trusted at its path.

use super::check::CheckResult;
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::time_format::count_jobs;
use crate::ops::jobs::workspace_jobs;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_config::policy::Policy;
use nanobot_config::settings::{Config, Settings};
use nanobot_cron::crontab::Crontab;
use nanobot_cron::crontab_block;
use nanobot_cron::job::{AnswerDestination, Job, JobOptions};
use nanobot_cron::job_store::JobStore;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Corrects the paths of jobs and, unless `no_crontab` is set, the crontab.
///
/// # Errors
/// A job or the crontab cannot be read or written.
pub(crate) fn correct_paths(ctx: &Context, no_crontab: bool) -> Result<Vec<CheckResult>> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let jobs = store.jobs()?;
    let home = &ctx.paths.home;
    let Some(old) = earlier_home(ctx, &settings, &jobs) else {
        return Ok(vec![CheckResult::ok("no job has a path of an earlier home")]);
    };
    let count = correct_jobs(ctx, &store, &jobs, &old)?;
    let mut results = vec![CheckResult::ok(format!(
        "{}: paths beneath `{}` are beneath `{}` now",
        count_jobs(count),
        old.display(),
        home.display()
    ))];
    if !no_crontab && let Err(error) = correct_crontab(ctx, &settings, &store, &old) {
        results.push(CheckResult::from_error(&error));
    }
    let config = Config::load(&ctx.paths)?;
    let old_path = format!("{}/", old.display());
    if config.files().iter().any(|file| file.text().contains(&old_path)) {
        results.push(
            CheckResult::warn(format!("the config has paths beneath `{}`", old.display()))
                .with_hint("`nanobot config edit`"),
        );
    }
    Ok(results)
}

/// The earlier home, if jobs or the crontab still have paths in it. `None` if it still exists.
fn earlier_home(ctx: &Context, settings: &Settings, jobs: &[Job]) -> Option<PathBuf> {
    let home = &ctx.paths.home;
    let workspace = settings.workspace.strip_prefix(home).ok();
    let table = Crontab::new(&ctx.env, &ctx.paths).read().unwrap_or_default();
    let of_blocks = crontab_block::block_names(&table).into_iter().filter_map(|name| {
        let old = name.strip_suffix(workspace?.to_str()?)?.trim_end_matches('/');
        Some(PathBuf::from(old))
    });
    let options = jobs.iter().filter_map(|job| job.options.as_ref());
    let of_jobs = options.flat_map(paths).filter_map(|path| root_of_moved(&path, home));
    of_blocks.chain(of_jobs).find(|old| old.is_absolute() && !old.exists())
}

/// The part of a missing `path` whose rest exists beneath `home`.
fn root_of_moved(path: &Path, home: &Path) -> Option<PathBuf> {
    if path.exists() {
        return None;
    }
    let mut roots = path.ancestors().skip(1);
    let root =
        roots.find(|root| path.strip_prefix(root).is_ok_and(|rest| home.join(rest).exists()))?;
    (root != Path::new("/")).then(|| root.to_owned())
}

/// The absolute paths of a job.
fn paths(options: &JobOptions) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut options = options.clone();
    let mut add = |text: &mut String| paths.push(PathBuf::from(&*text));
    for_each_path(&mut options, &mut add);
    for_each_text(options.policy.get_or_insert_default(), &mut add);
    paths.retain(|path| path.is_absolute());
    paths
}

/// Passes the texts that are or may be paths to `visit`, apart from those of the policy.
fn for_each_path(options: &mut JobOptions, visit: &mut dyn FnMut(&mut String)) {
    for_each_text(&mut options.grants, visit);
    let file = match &mut options.destination {
        Some(AnswerDestination::File(path)) => Some(path),
        _ => None,
    };
    for path in [options.config.as_mut(), file].into_iter().flatten() {
        // A path that is not UTF-8 is left unchanged.
        if let Some(mut text) = path.to_str().map(str::to_owned) {
            visit(&mut text);
            *path = text.into();
        }
    }
}

/// Passes each string within `value` to `visit`.
fn for_each_text(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(values) => values.iter_mut().for_each(|value| for_each_text(value, visit)),
        Value::Object(fields) => fields.values_mut().for_each(|value| for_each_text(value, visit)),
        _ => {}
    }
}

/// Moves the paths of jobs from beneath `old` to beneath the home. Returns the number of jobs that had such paths.
fn correct_jobs(ctx: &Context, store: &JobStore, jobs: &[Job], old: &Path) -> Result<usize> {
    let mut count = 0;
    let has_old_path = |job: &&Job| {
        let options = job.options.as_ref();
        options.is_some_and(|options| paths(options).iter().any(|path| path.starts_with(old)))
    };
    let mut move_text = |text: &mut String| {
        if let Ok(rest) = Path::new(&*text).strip_prefix(old)
            && let Some(new) = ctx.paths.home.join(rest).to_str()
        {
            *text = new.trim_end_matches('/').to_owned();
        }
    };
    for job in jobs.iter().filter(has_old_path) {
        count += 1;
        let mut error = None;
        store.update(&job.id, ctx.clock.timestamp(), |job| {
            let Some(options) = &mut job.options else {
                return false;
            };
            let policy = options.policy.as_ref().map(|policy| {
                Policy::edit_snapshot(policy, &mut |value| for_each_text(value, &mut move_text))
            });
            match policy.transpose() {
                Ok(policy) => options.policy = policy,
                Err(cause) => {
                    error = Some(cause);
                    return false;
                }
            }
            for_each_path(options, &mut move_text);
            true
        })?;
        if let Some(cause) = error {
            let cause = format!("the permissions of the job `{}`: {cause}", job.name);
            return Err(fail(Exit::Config, cause));
        }
    }
    Ok(count)
}

/// Removes the block of the workspace in the earlier home, and writes the block of the one in the new home.
fn correct_crontab(ctx: &Context, settings: &Settings, store: &JobStore, old: &Path) -> Result<()> {
    if let Ok(workspace) = settings.workspace.strip_prefix(&ctx.paths.home)
        && let Some(name) = old.join(workspace).to_str()
    {
        let crontab = Crontab::new(&ctx.env, &ctx.paths);
        crontab.change(&mut |table| crontab_block::without_block(table, name))?;
    }
    crontab_sync::write_crontab(ctx, settings, store, JobFilter::Managed).map(drop)
}
