//! The settings, profile and permissions of a job, resolved from the current config file when it runs.

use crate::ops::context::Context;
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_config::policy::Policy;
use nanobot_config::policy::profile::Profile;
use nanobot_config::settings::{DefaultDirectory, FlagOverrides, Settings};
use nanobot_cron::job::{Job, JobOptions};

/// The inputs of a job's run.
pub(crate) struct ResolvedJob {
    pub(crate) grants: Grants,
    /// Includes the model of the job or of its profile. The working directory is the workspace, unless the grants name
    /// another.
    pub(crate) settings: Settings,
    pub(crate) profile: Profile,
    pub(crate) policy: Policy,
    /// True if a model created the job and the user has just taken it over.
    pub(crate) is_taken_over: bool,
}

/// Resolves `options` with the current config file. The permissions are limited to those of the job's creator.
pub(crate) fn resolve(ctx: &Context, options: &JobOptions) -> Result<ResolvedJob> {
    let ctx = &with_config(ctx, options);
    let grants = stored_grants(options)?;
    let overrides = FlagOverrides { model: options.model.clone(), ..FlagOverrides::default() };
    let (mut settings, profile) = permissions::settings_with_profile(ctx, &grants, overrides)?;
    // Cron does not start jobs in the directory in which the command was typed.
    settings.directory = DefaultDirectory::Workspace;
    let workspace = WorkspacePlace::find(&settings.workspace);
    let mut policy = permissions::build_policy(ctx, &grants, &settings, &profile, &workspace)?;
    if let Some(snapshot) = &options.policy {
        let creator_policy = Policy::from_snapshot(snapshot).map_err(|error| {
            fail_with_hint(
                Exit::Config,
                format!("the stored permissions of the job's creator {error}"),
                if options.by_model {
                    "`nanobot cron edit JOB --profile default` to set its permissions yourself"
                } else {
                    "`nanobot cron edit JOB` to store its permissions again"
                },
            )
        })?;
        policy = policy.intersection(&creator_policy);
    }
    Ok(ResolvedJob { grants, settings, profile, policy, is_taken_over: false })
}

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
