//! The table of channels.

use super::Channel;
use crate::settings::channels::ChannelConfig;
use crate::sys::clock::Clock;
use crate::sys::env::Env;
use anyhow::Result;
use std::path::PathBuf;

/// A row of the table: what differs between services apart from the wire format.
pub struct ChannelKind {
    /// The name in the config, on the command line, and in keys of sessions.
    pub name: &'static str,
    /// True if the queue that waits at the service on first contact is answered. Otherwise the first poll only takes
    /// the position.
    pub answers_backlog: bool,
    /// True if unknown senders of direct messages may get a pairing code.
    pub pairs: bool,
    /// True if user names, which can change hands, are matched with `allowFrom` besides ids.
    pub matches_names: bool,
    /// Creates the channel from its config.
    pub open: fn(ChannelSetup) -> Result<Box<dyn Channel>>,
}

/// Everything that a channel is created from.
pub struct ChannelSetup {
    pub config: ChannelConfig,
    pub env: Env,
    pub clock: Clock,
    /// Connect to loopback addresses only.
    pub offline: bool,
    /// The directory of the channel's files, `~/.nanobot/channels/NAME`. It may be missing.
    pub directory: PathBuf,
}

/// All channels, in the order of help and lists.
pub const CHANNELS: &[ChannelKind] = &[];

/// The channel named `name`.
pub fn find(name: &str) -> Option<&'static ChannelKind> {
    CHANNELS.iter().find(|kind| kind.name == name)
}
