//! `nanobot serve`: answers programs, editors, MCP clients and web servers.

use super::{acp, pipe};
use crate::cli::serve::ServeCommand;
use crate::ops::context::Context;
use crate::ops::inbound::listen;
use crate::ops::mcp_server;
use anyhow::{Context as _, Result};
use nanobot_base::error::Exit;
use nanobot_os::signal;

/// Runs `nanobot serve`.
pub fn run(ctx: &Context, command: &ServeCommand) -> Result<Exit> {
    match command {
        ServeCommand::Pipe(arguments) => pipe::run(ctx, arguments),
        ServeCommand::Acp(arguments) => acp::run(ctx, arguments),
        ServeCommand::Mcp(arguments) => mcp_server::serve(ctx, &arguments.turns.to_turn_options()),
        ServeCommand::Webhook { name } => {
            signal::install(None).context("wait for signals")?;
            listen::listen(ctx, name)
        }
    }
}
