//! Builds the tools and the system prompt of a sub-agent.

use crate::ops::context::Context;
use crate::ops::shared_state::SharedState;
use crate::ops::system_prompt::{describe_extra_grants, describe_policy, platform};
use crate::ops::toolset::{all_tools, may_write};
use crate::policy::Policy;
use crate::policy::profile::Profile;
use crate::prompt::{self, Brief};
use crate::settings::Settings;
use crate::tool::Toolbox;
use anyhow::{Context as _, Result};
use std::sync::Arc;

/// Builds the tools and the system prompt of a sub-agent under `policy`: those tools of its parent that the policy
/// offers.
pub(crate) fn prepare_subagent(
    ctx: &Context,
    settings: &Settings,
    policy: &Arc<Policy>,
    profile: Option<&Profile>,
    shared: &SharedState,
    (names, parallel): (&[String], usize),
) -> Result<(Toolbox, String)> {
    let files = shared.files.beside(policy.reach.clone());
    let shared = SharedState {
        files: Arc::new(files.context("open the granted directories")?),
        ..shared.clone()
    };
    let mut tools = all_tools(ctx, settings, policy, &shared);
    tools.retain(|tool| {
        let name = &tool.spec().name;
        names.contains(name) && policy.offers(name)
    });
    let toolbox = Toolbox::new(tools, parallel, Arc::clone(policy)).seeing(shared.seen);
    let prompt = profile.and_then(|profile| Some((profile, profile.prompt.as_deref()?)));
    let system = prompt::subagent(&Brief {
        platform: &platform(),
        workspace: &policy.reach.workspace,
        directory: &policy.reach.directory,
        may_write: may_write(policy),
        may_note: !policy.reads_only,
        grants: &describe_extra_grants(policy),
        attended: false,
        has_tools: !toolbox.specs().is_empty(),
        policy: &describe_policy(policy, &toolbox, false),
        profile: prompt.map(|(profile, text)| (profile.name.as_str(), text)),
        bootstrap: &[],
        memory: None,
        active_skills: "",
        skills: "",
    });
    Ok((toolbox, system))
}
