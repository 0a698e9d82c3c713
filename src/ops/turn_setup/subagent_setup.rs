//! Builds the tools and the system prompt of a sub-agent.

use crate::ops::context::Context;
use crate::ops::system_prompt::{describe_extra_grants, describe_policy, platform};
use crate::ops::turn_setup::shared_state::SharedState;
use crate::ops::turn_setup::toolset::{all_tools, can_write};
use anyhow::{Context as _, Result};
use nanobot_agent::prompt::{self, DirectoryAccess, PromptInput};
use nanobot_config::policy::Policy;
use nanobot_config::policy::profile::Profile;
use nanobot_config::settings::Settings;
use nanobot_tool::Toolbox;
use std::sync::Arc;

/// Builds the tools and the system prompt of a sub-agent under `policy`: the tools of its parent that the policy offers.
pub(crate) fn build_subagent(
    ctx: &Context,
    settings: &Settings,
    policy: &Arc<Policy>,
    profile: Option<&Profile>,
    shared: &SharedState,
    tool_names: &[String],
    max_parallel: usize,
) -> Result<(Toolbox, String)> {
    let files = shared.files.with_policy(policy).context("open the granted directories")?;
    let shared = SharedState {
        files: Arc::new(files),
        // A command of the parent may have more permissions.
        background: Some(Arc::default()),
        hooks: shared.hooks.as_ref().map(|hooks| hooks.for_subagent()),
        ..shared.clone()
    };
    let mut tools = all_tools(ctx, settings, policy, &shared);
    tools.retain(|tool| {
        let name = &tool.spec().name;
        tool_names.contains(name) && policy.is_offered(name)
    });
    let hooks = shared.call_hooks();
    let toolbox = Toolbox::new(tools, max_parallel, Arc::clone(policy))
        .with_provenance(shared.provenance)
        .with_hooks(hooks);
    let prompt = profile.and_then(|profile| Some((profile, profile.prompt.as_deref()?)));
    let system = prompt::subagent_prompt(&PromptInput {
        own_text: None,
        platform: &platform(),
        workspace: &policy.file_scope.workspace,
        directory: &policy.file_scope.directory,
        directory_access: if can_write(policy) {
            DirectoryAccess::Write
        } else {
            DirectoryAccess::Read
        },
        may_write_workspace: !policy.reads_only,
        extra_directories: &describe_extra_grants(policy),
        is_interactive: false,
        has_tools: !toolbox.specs().is_empty(),
        policy: &describe_policy(policy, &toolbox, false),
        profile: prompt.map(|(profile, text)| (profile.name.as_str(), text)),
        bootstrap_files: &[],
        memory: None,
        active_skills: "",
        skills: "",
    });
    Ok((toolbox, system))
}
