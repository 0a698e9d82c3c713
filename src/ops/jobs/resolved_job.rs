//! What a job works with when it runs: settings, profile and permissions, by the config as it is now.

use crate::cron::job::{Job, Terms};
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::permissions::{self, Grants};
use crate::policy::Policy;
use crate::policy::profile::Profile;
use crate::settings::{Directory, Overrides, Settings};
use crate::sys::paths::Real;
use anyhow::Result;

/// What a job works with.
pub(crate) struct ResolvedJob {
    pub(crate) grants: Grants,
    /// With the job's model, or its profile's; the directory is the workspace, unless the grants name one.
    pub(crate) settings: Settings,
    pub(crate) profile: Profile,
    pub(crate) policy: Policy,
    /// The job was a run's, and is a person's from now on.
    pub(crate) taken_over: bool,
}

/// What a job with these `terms` works with: by the config as it is now, and no more than its creator might do.
pub(crate) fn resolve(ctx: &Context, terms: &Terms) -> Result<ResolvedJob> {
    let ctx = &with_config(ctx, terms);
    let grants = stored_grants(terms)?;
    let overrides = Overrides {
        model: terms.model.clone(),
        ..Overrides::default()
    };
    let (mut settings, profile) = permissions::settings_with_profile(ctx, &grants, overrides)?;
    // Where a command happened to be typed means nothing to cron.
    settings.directory = Directory::Workspace;
    let workspace = Real::default().of(&permissions::absolute(&settings.workspace));
    let mut policy = permissions::policy(ctx, &grants, &settings, &profile, &workspace)?;
    if let Some(snapshot) = &terms.policy {
        let then = Policy::restored(snapshot).map_err(|words| {
            fail_hint(
                Exit::Config,
                format!("what the job's creator might do {words}"),
                match terms.by_model {
                    true => "`nanobot cron edit JOB --profile default`, which makes it yours",
                    false => "`nanobot cron edit JOB`, which fixes anew what it may do",
                },
            )
        })?;
        policy = policy.and(&then);
    }
    Ok(ResolvedJob {
        grants,
        settings,
        profile,
        policy,
        taken_over: false,
    })
}

/// The context with the config of a job, unless another was typed.
pub(crate) fn with_config(ctx: &Context, terms: &Terms) -> Context {
    let mut ctx = ctx.clone();
    if let (None, Some(path)) = (&ctx.config, &terms.config) {
        ctx.paths.config.clone_from(path);
    }
    ctx
}

/// The context with the config that the job was made with, and the workspace that it was found in.
pub(crate) fn job_context(
    ctx: &Context,
    settings: Settings,
    job: &Job,
) -> Result<(Context, Settings)> {
    let Some(terms) = job.terms.as_ref().filter(|terms| terms.config.is_some()) else {
        return Ok((ctx.clone(), settings));
    };
    let mut ctx = with_config(ctx, terms);
    let workspace = &mut ctx.workspace;
    workspace.get_or_insert(settings.workspace);
    let settings = ctx.settings()?;
    Ok((ctx, settings))
}
