//! `nanobot serve acp`: the agent of an editor.

use crate::options::turn::ServedTurnOptions;
use clap::Args;

/// Serve an editor that speaks the Agent Client Protocol
///
/// An editor starts this process and talks to it on standard input and output. Each of its conversations is a session of its own in
/// the directory that the editor names; profiles are the modes, and the editor asks its user what needs approval. MCP servers that
/// the editor names are used in addition to those of the config.
///
/// The process ends when its input ends; turns under way are then cancelled, and kept as far as they came.
#[derive(Args, Clone, Debug, Default)]
pub struct AcpArgs {
    #[command(flatten)]
    pub turns: ServedTurnOptions,
}
