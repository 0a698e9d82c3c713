//! The context in which a job runs: its config file, and the workspace in which it was found.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_config::settings::Settings;
use nanobot_cron::job::{Job, JobOptions};

/// The context with the job's config file, unless `--config` was given.
pub(crate) fn with_config(ctx: &Context, options: &JobOptions) -> Context {
    let mut ctx = ctx.clone();
    if let (None, Some(path)) = (&ctx.config, &options.config) {
        ctx.paths.config.clone_from(path);
    }
    ctx
}

/// The context with the job's config file, and the workspace in which the job was found.
pub(crate) fn job_context(
    ctx: &Context,
    settings: Settings,
    job: &Job,
) -> Result<(Context, Settings)> {
    let Some(options) = job.options.as_ref().filter(|options| options.config.is_some()) else {
        return Ok((ctx.clone(), settings));
    };
    let mut ctx = with_config(ctx, options);
    ctx.workspace.get_or_insert(settings.workspace);
    let settings = ctx.settings()?;
    Ok((ctx, settings))
}
