//! The parameters for the creation of a channel.

use super::access::AccessRules;
use nanobot_config::settings::channels::ChannelConfig;
use nanobot_net::http::Network;
use nanobot_os::clock::Clock;
use nanobot_os::paths::Paths;

/// The config of a channel, and the state that it depends on.
pub struct ChannelSetup {
    pub config: ChannelConfig,
    /// The rules for senders, as of now.
    pub access: AccessRules,
    /// The proxy and the certificates of the config and the environment.
    pub network: Network,
    pub clock: Clock,
    /// The environment of commands of the config.
    pub command_env: Vec<(String, String)>,
    pub paths: Paths,
    /// Attempts at a request that fails for a temporary cause, at least one.
    pub max_attempts: u32,
}
