//! What a turn and its sub-agents share.

use crate::ops::mcp_tools::McpTools;
use crate::policy::Policy;
use crate::policy::seen::{Free, Seen};
use crate::tool::files::Files;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a turn and its sub-agents share: open places, provenance, and MCP servers.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) files: Arc<Files>,
    pub(crate) seen: Arc<Seen>,
    /// Hosts that the config and the skills name.
    pub(crate) hosts: BTreeSet<String>,
    /// Reach no address but loopback.
    pub(crate) offline: bool,
    pub(crate) mcp_tools: McpTools,
}

impl SharedState {
    /// What a run under `policy` may reach, whatever it has read.
    pub(crate) fn allowed_hosts(&self, policy: &Policy) -> Free {
        Free {
            net: policy.net.clone(),
            hosts: self.hosts.clone(),
        }
    }
}
