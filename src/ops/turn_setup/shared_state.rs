//! State shared by a turn and its sub-agents.

use crate::ops::hooks::Hooks;
use crate::ops::media_service::MediaAccount;
use crate::ops::native_search::TurnSearch;
use crate::ops::turn_setup::mcp_tools::McpTools;
use nanobot_agent::report::json::HostConnections;
use nanobot_config::policy::Policy;
use nanobot_config::policy::provenance::{AllowedHosts, ProvenanceTracker};
use nanobot_tool::call_hooks::CallHooks;
use nanobot_tool::exec::background_commands::BackgroundCommands;
use nanobot_tool::files::Files;
use nanobot_tool::host_proxy::{HostTraffic, HostUsage};
use nanobot_tool::program::ToolProgram;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// State shared by a turn and its sub-agents: open directories, provenance, and MCP servers.
#[derive(Clone)]
pub(crate) struct SharedState {
    /// The directories that file tools may use.
    pub(crate) files: Arc<Files>,
    /// The provenance of the content that the run has read.
    pub(crate) provenance: Arc<ProvenanceTracker>,
    /// Hosts that the config and the skills name.
    pub(crate) hosts: BTreeSet<String>,
    /// Connect to loopback addresses only.
    pub(crate) offline: bool,
    pub(crate) mcp_tools: McpTools,
    /// The search of the model's provider, if the config names it.
    pub(crate) native_search: Option<Arc<TurnSearch>>,
    /// Names that `--tools` and the profile list, for tools that are offered only if they are named.
    pub(crate) explicitly_named_tools: BTreeSet<String>,
    /// The commands in the background. `None` if none can be started, because they would continue after the end of their permission.
    pub(crate) background: Option<Arc<BackgroundCommands>>,
    /// The connections of commands to the hosts that the user has named.
    pub(crate) host_traffic: Arc<HostTraffic>,
    /// The programs that are tools.
    pub(crate) programs: Arc<[ToolProgram]>,
    /// The user's hooks, if there are any.
    pub(crate) hooks: Option<Arc<Hooks>>,
    /// The payer of the requests of tools to services, once the turn has begun.
    pub(crate) media_account: Arc<OnceLock<MediaAccount>>,
}

impl SharedState {
    /// The hooks, with the interface that the toolbox calls.
    pub(crate) fn call_hooks(&self) -> Option<Arc<dyn CallHooks>> {
        let hooks = self.hooks.as_ref().map(Arc::clone);
        hooks.map(|hooks| hooks as Arc<dyn CallHooks>)
    }

    /// The connections of commands to the hosts that the user has named, for the result.
    pub(crate) fn host_connections(&self) -> Vec<HostConnections> {
        let to_connections = |(host, usage): (String, HostUsage)| HostConnections {
            host,
            connections: usage.connections,
            sent_bytes: usage.sent_bytes,
            received_bytes: usage.received_bytes,
        };
        self.host_traffic.connected().into_iter().map(to_connections).collect()
    }

    /// The hosts that a run under `policy` may reach regardless of the content it has read.
    pub(crate) fn allowed_hosts(&self, policy: &Policy) -> AllowedHosts {
        AllowedHosts { net: policy.net.clone(), hosts: self.hosts.clone() }
    }
}
