//! Everything that a channel is created from.

use crate::settings::channels::ChannelConfig;
use crate::sys::clock::Clock;
use crate::sys::http::Network;
use std::path::PathBuf;

/// The config and the surroundings of a channel.
pub struct ChannelSetup {
    pub config: ChannelConfig,
    /// The proxy and the certificates of the config and the environment.
    pub network: Network,
    pub clock: Clock,
    /// Connect to loopback addresses only.
    pub offline: bool,
    /// The directory of the channel's files, `~/.nanobot/channels/NAME`. It may be missing.
    pub directory: PathBuf,
}
