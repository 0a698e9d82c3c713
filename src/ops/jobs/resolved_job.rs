//! The settings, profile and permissions that a job has with the current config file, for editing, showing and checking it.
//! A run does not use them: its context comes from `job_context`, and its permissions from the turn that it starts.

use crate::ops::context::Context;
use crate::ops::jobs::job_context::with_config;
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::Policy;
use nanobot_config::policy::profile::Profile;
use nanobot_config::settings::{DefaultDirectory, FlagOverrides, Settings};
use nanobot_cron::job::JobOptions;

/// The settings and permissions that a run of the job would have now.
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
            fail(Exit::Config, format!("the stored permissions of the job's creator {error}"))
                .with_hint(if options.by_model {
                    "`nanobot cron edit JOB --profile default` to set its permissions yourself"
                } else {
                    "`nanobot cron edit JOB` to store its permissions again"
                })
        })?;
        policy = policy.intersection(&creator_policy);
    }
    Ok(ResolvedJob { grants, settings, profile, policy, is_taken_over: false })
}
