//! `nanobot mcp`: manages MCP servers.

use crate::cli::mcp::McpCommand;
use crate::ops::context::Context;
use crate::ops::mcp_servers::McpContext;
use crate::ops::server_errors::unknown_server_error;
use anyhow::{Context as _, Result};
use nanobot_base::error::Exit;
use nanobot_mcp::client;
use nanobot_os::signal;

mod accept;
mod add;
mod check;
mod list;
mod login;
mod show;

/// Runs `nanobot mcp`. Signals stop the command.
pub fn run(ctx: &Context, command: &McpCommand) -> Result<Exit> {
    signal::install(None).context("wait for signals")?;
    // An error ends the command. Waits have to work again for a moment, so that it can be printed.
    dispatch(ctx, command).inspect_err(|_| signal::begin_shutdown_if_stopped())
}

/// Runs the command without changing how signals are handled: the REPL handles them itself.
pub(super) fn dispatch(ctx: &Context, command: &McpCommand) -> Result<Exit> {
    match command {
        McpCommand::List { json } => list::run(&McpContext::open(ctx)?, *json)?,
        McpCommand::Show { server, tool, json, files } => {
            let mcp = McpContext::open_with(ctx, files)?;
            show::run(&mcp, server, tool.as_deref(), *json)?;
        }
        McpCommand::Check { servers, json, files } => {
            return check::run(&McpContext::open_with(ctx, files)?, servers, *json);
        }
        McpCommand::Login(arguments) => login::run(ctx, arguments)?,
        McpCommand::Logout { server } => login::log_out(ctx, server)?,
        McpCommand::Add(arguments) => {
            if let Some(rule) = add::add_server(ctx, arguments)? {
                ctx.notice(&format!("added `{rule}` to `tools.allow`"));
            }
            // With `--untested`, settings that cannot be used yet are no failure.
            let servers = ctx.settings().map(|settings| settings.servers).unwrap_or_default();
            for server in servers.iter().filter(|server| server.name == arguments.name) {
                let files = client::unmakeable_files(server, &ctx.paths).into_iter();
                for file in files.filter(|file| !file.exists) {
                    ctx.notice(&file.explanation);
                }
            }
            if !arguments.untested {
                return check::test_added_server(&McpContext::open(ctx)?, arguments);
            }
        }
        McpCommand::Remove { server } => {
            let mcp = McpContext::open(ctx)?;
            if !add::remove_server(&mcp, server)? {
                return Err(unknown_server_error(&mcp.servers, server));
            }
        }
        McpCommand::Accept { server, tools, prompt, yes, files } => {
            let mcp = McpContext::open_with(ctx, files)?;
            match prompt {
                Some(prompt) => accept::accept_prompt(&mcp, server, prompt, *yes)?,
                None => accept::run(&mcp, server, tools, *yes)?,
            }
        }
    }
    Ok(Exit::Answered)
}
