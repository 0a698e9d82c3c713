//! `nanobot serve`: answers programs, editors, MCP clients and web servers.

use super::{acp, pipe};
use crate::cli::serve::{McpServeArgs, ServeCommand};
use crate::ops::context::Context;
use crate::ops::inbound::listen;
use crate::ops::mcp_server;
use crate::options::turn::{OutputOptions, TurnLimits, TurnOptions};
use anyhow::{Context as _, Result};
use nanobot_base::error::Exit;
use nanobot_os::signal;

/// Runs `nanobot serve`.
pub fn run(ctx: &Context, command: &ServeCommand) -> Result<Exit> {
    match command {
        ServeCommand::Pipe(arguments) => pipe::run(ctx, arguments),
        ServeCommand::Acp(arguments) => acp::run(ctx, arguments),
        ServeCommand::Mcp(arguments) => serve_mcp(ctx, arguments),
        ServeCommand::Webhook { name } => {
            signal::install(None).context("wait for signals")?;
            listen::listen(ctx, name)
        }
    }
}

/// Runs `nanobot serve mcp`.
fn serve_mcp(ctx: &Context, arguments: &McpServeArgs) -> Result<Exit> {
    let McpServeArgs { verbose, model, grants, offline } = arguments;
    let options = TurnOptions {
        grants: grants.clone(),
        output: OutputOptions { verbose: *verbose, ..OutputOptions::default() },
        model: model.clone(),
        limits: TurnLimits { offline: *offline, ..TurnLimits::default() },
        ..TurnOptions::default()
    };
    mcp_server::serve(ctx, &options)
}
