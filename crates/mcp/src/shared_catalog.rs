//! The MCP servers of this process: a handle that costs nothing until a server is needed. Consecutive turns of a
//! conversation share the running servers, if they need the same servers with the same configuration.

use super::catalog::ToolCatalog;
use super::client::ClientConfig;
use super::fingerprint;
use nanobot_config::settings::servers::McpServer;
use nanobot_os::clock::Clock;
use nanobot_os::sync::IgnorePoison;
use std::sync::{Arc, Mutex, MutexGuard};

/// The servers of this process.
#[derive(Clone, Default)]
pub struct SharedCatalog(Arc<Mutex<Option<CurrentCatalog>>>);

struct CurrentCatalog {
    /// The fingerprint of the servers and their configuration.
    fingerprint: String,
    catalog: ToolCatalog,
}

impl SharedCatalog {
    /// Returns the catalog for `servers` of the config. If it differs from the current one, the current servers are
    /// ended.
    pub fn for_servers(
        &self,
        servers: &[McpServer],
        clock: &Clock,
        config: ClientConfig,
    ) -> ToolCatalog {
        let mark = config_fingerprint(servers, &config);
        let mut standing = self.current();
        if let Some(standing) = standing.as_ref().filter(|it| it.fingerprint == mark) {
            return standing.catalog.clone();
        }
        if let Some(before) = standing.take() {
            before.catalog.shut_down();
        }
        let roster = ToolCatalog::new(servers, clock, config);
        *standing = Some(CurrentCatalog { fingerprint: mark, catalog: roster.clone() });
        roster
    }

    /// Ends all running servers.
    pub fn shut_down(&self) {
        let standing = self.current().take();
        if let Some(standing) = standing {
            standing.catalog.shut_down();
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<CurrentCatalog>> {
        self.0.lock().ignore_poison()
    }
}

/// Computes the fingerprint of these servers and their configuration.
fn config_fingerprint(servers: &[McpServer], config: &ClientConfig) -> String {
    let ClientConfig { env, network, paths, offline, elicitation: answers, sandboxes: _ } = config;
    let mut mark = format!("{} {offline} {network:?} {}", paths.root.display(), answers.is_some());
    for server in servers {
        let McpServer {
            name,
            transport: _,
            call_timeout,
            start_timeout,
            enabled_tools: enabled,
            is_required: required,
            is_disabled: disabled,
            read_paths: read,
            write_paths: write,
            is_unsandboxed: unfenced,
            is_trusted: trusted,
            sampling,
            unusable_reason: unusable,
        } = server;
        let reached = fingerprint::of_server(server, env);
        mark.push_str(&format!(
            "\n{name:?} {reached} {call_timeout:?} {start_timeout:?} {enabled:?} {required} {disabled} {read:?} {write:?} \
             {unfenced} {trusted} {sampling:?} {unusable:?}"
        ));
    }
    mark
}
