//! `nanobot serve`: answers programs, editors, MCP clients and web servers.

use crate::cli::serve::{PipeArgs, ServeCommand};
use crate::ops::acp;
use crate::ops::context::Context;
use crate::ops::inbound::listen;
use crate::ops::mcp_server;
use crate::ops::pipe::{self, PipeOptions};
use crate::options::turn::DEFAULT_LOCK_TIMEOUT;
use anyhow::{Context as _, Result};
use nanobot_base::error::Exit;
use nanobot_os::signal;

/// Runs `nanobot serve`.
pub fn run(ctx: &Context, command: &ServeCommand) -> Result<Exit> {
    match command {
        ServeCommand::Pipe(arguments) => serve_pipe(ctx, arguments),
        ServeCommand::Acp(arguments) => acp::serve(ctx, &arguments.turns.to_turn_options()),
        ServeCommand::Mcp(arguments) => mcp_server::serve(ctx, &arguments.turns.to_turn_options()),
        ServeCommand::Webhook { name } => {
            signal::install(None).context("wait for signals")?;
            listen::listen(ctx, name)
        }
    }
}

fn serve_pipe(ctx: &Context, arguments: &PipeArgs) -> Result<Exit> {
    let PipeArgs { jobs, name, any_session, approvals, turns } = arguments;
    let mut turn_options = turns.to_turn_options();
    if turn_options.grants.directory.is_none() {
        turn_options.grants.directory = Some(ctx.settings()?.workspace);
    }
    turn_options.session.lock_timeout = DEFAULT_LOCK_TIMEOUT;
    let pipe_options = PipeOptions {
        jobs: *jobs as usize,
        name: name.clone(),
        any_session: *any_session,
        has_approvals: *approvals,
    };
    pipe::run(ctx, &turn_options, &pipe_options)
}
