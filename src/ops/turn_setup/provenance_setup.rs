//! The provenance tracker of a run: what it must know about the run to judge what the run reads.

use crate::ops::turn_setup::mcp_tools::McpTools;
use nanobot_config::policy::net::Net;
use nanobot_config::policy::provenance::{ProvenanceTracker, TrustContext};
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_sandbox::private_tmp;
use nanobot_store::skill::BUILT_IN_SKILLS;
use nanobot_tool::host_proxy::HostTraffic;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tracker of a run under `policy` that has read nothing yet.
pub(super) fn new_provenance_tracker(
    settings: &Settings,
    policy: &Policy,
    mcp_tools: &McpTools,
    host_traffic: &Arc<HostTraffic>,
) -> Arc<ProvenanceTracker> {
    let has_commands =
        settings.exec.enabled && policy.is_offered("exec") || !settings.tools.programs.is_empty();
    let host_traffic = Arc::clone(host_traffic);
    Arc::new(ProvenanceTracker::new(TrustContext {
        file_scope: policy.file_scope.clone(),
        workspace: policy.file_scope.workspace.clone(),
        commands_write_anywhere: has_commands && policy.sandbox == Sandbox::Off,
        commands_have_network: policy.sandbox == Sandbox::Off || policy.net == Net::Any,
        hosts_have_sent: Box::new(move || host_traffic.may_have_carried()),
        trusted_tools: mcp_tools.trusted_tools(settings),
        skill_hosts: skill_hosts(&policy.file_scope.workspace),
        is_private: private_tmp::is_private,
        resolve_real_path: Box::new(|path| {
            std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
        }),
    }))
}

/// The built-in skills that have hosts: the path that each would have in the workspace, and its hosts. If there is a file at that
/// path, it takes the place of the built-in skill, which is left out.
fn skill_hosts(workspace: &Path) -> Vec<(PathBuf, &'static [&'static str])> {
    let skills = BUILT_IN_SKILLS.iter().filter(|skill| !skill.hosts.is_empty());
    let skill_files = skills.map(|skill| {
        let folder = workspace.join("skills").join(skill.name);
        (folder.join("SKILL.md"), skill.hosts)
    });
    skill_files.filter(|(path, _)| !path.exists()).collect()
}
