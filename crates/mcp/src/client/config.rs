//! The configuration of the client, and the handler of elicitation requests.

use super::grants::SandboxFactory;
use nanobot_net::http::Network;
use nanobot_os::env::Env;
use nanobot_os::paths::Paths;
use nanobot_sandbox::process::server_environment::server_file_name;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;

/// The settings needed to start and reach servers.
#[derive(Clone)]
pub struct ClientConfig {
    /// The environment of the process.
    pub env: Env,
    /// The proxy and the CA certificates for remote servers.
    pub network: Network,
    /// The paths of the installation.
    pub paths: Paths,
    /// Offline mode: only addresses of this machine are reached.
    pub offline: bool,
    /// The handler of elicitation requests; `None` if no user can be asked.
    pub elicitation: Option<Arc<dyn ElicitationHandler>>,
    /// The provider of sandboxes for local servers. Without one, only servers that the config exempts from sandboxing can run.
    pub sandboxes: Option<Arc<dyn SandboxFactory>>,
}

/// Handles elicitation: requests of a server for user input during a call.
pub trait ElicitationHandler: Send + Sync {
    /// Asks the user to fill in `schema`, the JSON Schema of an object, and shows the message `message` of `server`.
    /// Returns `None` if the user declines.
    fn ask_user(&self, server: &str, message: &str, schema: &Value) -> Option<Map<String, Value>>;
}

/// The file with the standard error of a local server.
pub(super) fn log_path(paths: &Paths, server: &str) -> PathBuf {
    paths.mcp().join("logs").join(format!("{}.log", server_file_name(server)))
}
