//! The task of a proxy as the run sends it, and the counts that the proxy answers with.

use super::grants::CommandHosts;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The name (`argv[0]`) that makes this program a proxy.
pub(super) const PROXY_ARG0: &str = "nanobot-proxy";

/// The task of a proxy.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProxyTask {
    pub(super) hosts: CommandHosts,
    /// The address of the proxy itself; it also listens at the forwarded addresses.
    pub(super) proxy: SocketAddr,
}

/// The connections of commands to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUsage {
    pub connections: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Requests that were refused because the host is not granted.
    pub refused: u64,
}
