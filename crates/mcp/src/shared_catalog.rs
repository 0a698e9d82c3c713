//! The MCP servers of this process: a handle that costs nothing until a server is needed. Consecutive turns of a
//! conversation share the running servers, if they need the same servers with the same configuration.

use super::catalog::ToolCatalog;
use super::client::ClientConfig;
use super::fingerprint;
use nanobot_config::settings::servers::McpServer;
use nanobot_os::clock::Clock;
use parking_lot::Mutex;
use std::sync::Arc;

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
        let fingerprint = config_fingerprint(servers, &config);
        let mut current = self.0.lock();
        if let Some(current) = current.as_ref().filter(|it| it.fingerprint == fingerprint) {
            return current.catalog.clone();
        }
        if let Some(previous) = current.take() {
            previous.catalog.shut_down();
        }
        let catalog = ToolCatalog::new(servers, clock, config);
        *current = Some(CurrentCatalog { fingerprint, catalog: catalog.clone() });
        catalog
    }

    /// Ends all running servers.
    pub fn shut_down(&self) {
        let current = self.0.lock().take();
        if let Some(current) = current {
            current.catalog.shut_down();
        }
    }
}

/// Computes the fingerprint of these servers and their configuration.
fn config_fingerprint(servers: &[McpServer], config: &ClientConfig) -> String {
    let ClientConfig { env, network, paths, offline, elicitation, sandboxes } = config;
    let root = paths.root.display();
    let sandboxes = sandboxes.as_ref().map(|sandboxes| sandboxes.fingerprint());
    let mut text = format!("{root} {offline} {network:?} {} {sandboxes:?}", elicitation.is_some());
    for server in servers {
        let McpServer {
            name,
            transport: _,
            call_timeout,
            start_timeout,
            enabled_tools,
            is_required,
            is_disabled,
            read_paths,
            write_paths,
            is_unsandboxed,
            is_trusted,
            sampling,
            unusable_reason,
            file: _,
        } = server;
        let server_fingerprint = fingerprint::of_server(server, env);
        text.push_str(&format!(
            "\n{name:?} {server_fingerprint} {call_timeout:?} {start_timeout:?} {enabled_tools:?} {is_required} {is_disabled} \
             {read_paths:?} {write_paths:?} {is_unsandboxed} {is_trusted} {sampling:?} {unusable_reason:?}"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::SharedCatalog;
    use crate::client::{ClientConfig, FileGrant, SandboxFactory, SandboxedSpec};
    use nanobot_net::http::Network;
    use nanobot_os::clock::Clock;
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use std::io;
    use std::sync::Arc;

    struct Rules(&'static str);

    impl SandboxFactory for Rules {
        fn create(&self, _: &FileGrant) -> io::Result<SandboxedSpec> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn fingerprint(&self) -> String {
            self.0.to_owned()
        }

        fn warn(&self, _: &str) {}
    }

    #[test]
    fn servers_in_sandboxes_with_other_rules_are_others() {
        let shared = SharedCatalog::default();
        let env: Env = [("HOME", "/home/u")].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        let clock = Clock::Fixed("2026-01-02T03:04:05Z".parse().unwrap());
        let with_rules = |rules| {
            let config = ClientConfig {
                env: env.clone(),
                paths: paths.clone(),
                network: Network::default(),
                offline: false,
                elicitation: None,
                sandboxes: Some(Arc::new(Rules(rules))),
            };
            shared.for_servers(&[], &clock, config).0
        };
        let first = with_rules("a");
        assert!(Arc::ptr_eq(&first, &with_rules("a")));
        assert!(!Arc::ptr_eq(&first, &with_rules("b")));
    }
}
