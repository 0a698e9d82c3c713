//! `nanobot mcp`: manages MCP servers and calls them by hand.

use crate::cli::mcp::McpCommand;
use crate::ops::context::Context;
use crate::ops::mcp_servers::McpContext;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, Stop, fail_with_hint};
use nanobot_mcp::client;
use nanobot_os::signal;

mod accept;
mod add;
mod call;
mod check;
mod list;
mod login;
mod show;

/// Runs `nanobot mcp`. Signals and `--timeout` stop the command.
pub fn run(ctx: &Context, command: &McpCommand) -> Result<Exit> {
    let timeout = match command {
        McpCommand::Call { timeout, .. } => *timeout,
        _ => None,
    };
    signal::install(timeout).context("wait for signals")?;
    dispatch(ctx, command).map_err(|error| {
        // The command is ending. Waits have to work again for a moment, so that the error can be printed.
        signal::begin_shutdown_if_stopped();
        match error.downcast_ref::<Stop>() {
            Some(Stop(Exit::Timeout)) => fail_with_hint(
                Exit::Timeout,
                "timed out before the server answered",
                "a longer `--timeout`",
            ),
            _ => error,
        }
    })
}

/// Runs the command without changing how signals are handled: the REPL handles them itself.
pub(super) fn dispatch(ctx: &Context, command: &McpCommand) -> Result<Exit> {
    match command {
        McpCommand::List { json } => list::run(&McpContext::open(ctx)?, *json),
        McpCommand::Show { server, tool, json } => {
            show::run(&McpContext::open(ctx)?, server, tool.as_deref(), *json)
        }
        McpCommand::Check { servers, json } => check::run(&McpContext::open(ctx)?, servers, *json),
        McpCommand::Login(arguments) => login::run(ctx, arguments),
        McpCommand::Logout { server } => login::log_out(ctx, server),
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
            if arguments.untested {
                Ok(Exit::Answered)
            } else {
                check::test_added_server(&McpContext::open(ctx)?, &arguments.name)
            }
        }
        McpCommand::Remove { server } => {
            let mcp = McpContext::open(ctx)?;
            let rules = add::remove_server(ctx, server, &mcp.servers)?;
            let had_data = mcp.catalog.remove(server)?;
            client::remove_server_files(&ctx.paths, server)
                .with_context(|| format!("remove the stored data of `{server}`"))?;
            for rule in rules.iter().flatten() {
                ctx.notice(&format!("removed the rule `{rule}` too"));
            }
            if rules.is_some() || had_data {
                Ok(Exit::Answered)
            } else {
                Err(mcp.unknown_server_error(server))
            }
        }
        McpCommand::Accept { server, tools, yes } => {
            accept::run(&McpContext::open(ctx)?, server, tools, *yes)
        }
        McpCommand::Call { server, tool, arguments, json, timeout } => {
            let call = call::McpCall { server, tool, arguments, json: *json, timeout: *timeout };
            call::run(&McpContext::open(ctx)?, &call)
        }
    }
}
