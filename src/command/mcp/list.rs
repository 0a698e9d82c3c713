//! `mcp list`: lists the servers and what is stored about each. No server is started.

use crate::command::name_pattern::single_line;
use crate::ops::mcp_servers::McpContext;
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_base::error::Exit;
use nanobot_base::message::token_estimate;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_mcp::cache::CachedResult;
use nanobot_mcp::protocol::ServerFeatures;
use nanobot_mcp::{sanitize, schema, tool_name};
use nanobot_net::web_url;
use serde_json::{Value, json};

/// The stored facts about one server.
struct ServerRow<'s> {
    server: &'s McpServer,
    offer: Option<ServerFeatures>,
    /// The number of its tools that are offered to the model, and the tokens they take in each request.
    tool_count: Option<u64>,
    tool_tokens: Option<u64>,
    /// Tools that have changed since they were accepted.
    changed: Vec<String>,
    /// Tools that no person has accepted.
    unaccepted: Vec<String>,
    /// The server's problem, if any.
    error: Option<String>,
}

/// Runs `mcp list`.
pub(super) fn run(mcp: &McpContext<'_>, as_json: bool) -> Result<Exit> {
    let rows: Vec<ServerRow<'_>> =
        mcp.servers.iter().map(|server| inspect(mcp, server)).collect::<Result<_>>()?;
    if as_json {
        mcp.ctx.terminal.print_json_lines(rows.iter().map(server_json))?;
        return Ok(Exit::Answered);
    }
    if rows.is_empty() {
        mcp.ctx.explain_empty("there are no MCP servers; see `nanobot mcp add --help`");
        return Ok(Exit::Answered);
    }
    let count =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let columns: [Column<'_, ServerRow<'_>>; 6] = [
        ("SERVER", Side::Left, &|row| single_line(&row.server.name)),
        ("BY", Side::Left, &|row| transport_name(row.server).into()),
        ("TOOLS", Side::Right, &|row| count(row.tool_count)),
        ("TOKENS", Side::Right, &|row| count(row.tool_tokens)),
        ("STATE", Side::Left, &describe_state),
        ("IS", Side::Left, &|row| single_line(&command_or_url(row.server))),
    ];
    mcp.ctx.terminal.print(&format_table(&rows, &columns, mcp.ctx.terminal.stdout_width()))?;
    Ok(Exit::Answered)
}

fn inspect<'s>(mcp: &McpContext<'_>, server: &'s McpServer) -> Result<ServerRow<'s>> {
    let (offer, failed) = match mcp.cache.get(server) {
        Some(CachedResult::Features(offer)) => (Some(offer), None),
        Some(CachedResult::Failed { message: words, .. }) => (None, Some(words)),
        None => (None, None),
    };
    let checks = match &offer {
        Some(offer) => mcp.pins.check(&[(server, offer)])?,
        None => Vec::new(),
    };
    let pin_check = checks.into_iter().next().unwrap_or_default();
    let changed = pin_check.changed.into_iter();
    let tokens = offer.as_ref().map(|offer| offered_tool_tokens(server, offer));
    Ok(ServerRow {
        server,
        tool_count: tokens.as_ref().map(|tokens| tokens.len() as u64),
        tool_tokens: tokens.map(|tokens| tokens.iter().sum()),
        changed: changed.map(|change| change.name).collect(),
        unaccepted: pin_check.unaccepted.into_iter().collect(),
        error: server.unusable_reason.clone().or(failed),
        offer,
    })
}

/// The transport of a server.
pub(super) fn transport_name(server: &McpServer) -> &'static str {
    match &server.transport {
        ServerTransport::Program { .. } => "stdio",
        ServerTransport::Http(_) => "http",
        ServerTransport::Sse(_) => "sse",
    }
}

/// The tokens that each of its tools that are offered to the model takes in a request.
fn offered_tool_tokens(server: &McpServer, offer: &ServerFeatures) -> Vec<u64> {
    let tools = tool_name::for_tools(&server.name, &offer.tools).into_iter();
    let offered = tools.filter(|(tool, ours)| server.is_tool_enabled([&tool.name, ours]));
    let tokens = offered.map(|(tool, ours)| {
        let title = tool.title.as_deref();
        let description = sanitize::tool_description(&server.name, title, &tool.description);
        token_estimate::for_text(&ours)
            + token_estimate::for_text(&description)
            + token_estimate::for_value(&schema::convert(&tool.schema))
    });
    tokens.collect()
}

/// The server's program or address, without arguments and parameters, which may be secret.
fn command_or_url(server: &McpServer) -> String {
    match &server.transport {
        ServerTransport::Program { command, .. } => command.clone(),
        ServerTransport::Http(remote) | ServerTransport::Sse(remote) => {
            web_url::redact_url(&remote.url)
        }
    }
}

fn describe_state(row: &ServerRow<'_>) -> String {
    let ServerRow { server, offer, changed, unaccepted, error, .. } = row;
    if server.is_disabled {
        return "disabled".into();
    }
    let state = match (error, offer, changed.len()) {
        (Some(words), ..) => sanitize::single_line(words, 200),
        (None, None, _) => "not contacted yet".into(),
        (None, Some(_), 0) if unaccepted.is_empty() => "ok".into(),
        (None, Some(_), 0) => {
            let count = unaccepted.len();
            format!("{count} not accepted yet: `nanobot mcp accept {}`", server.name)
        }
        (None, Some(_), count) => format!("{count} changed: `nanobot mcp accept {}`", server.name),
    };
    let marks = [(server.is_unsandboxed, "no sandbox"), (server.is_trusted, "trusted")];
    let marks = marks.iter().filter(|(holds, _)| *holds);
    marks.fold(state, |state, (_, mark)| format!("{state}; {mark}"))
}

fn server_json(row: &ServerRow<'_>) -> Value {
    let ServerRow { server, offer, tool_count, tool_tokens, changed, unaccepted, error } = row;
    json!({
        "name": server.name, "by": transport_name(server), "place": command_or_url(server), "disabled": server.is_disabled, "required": server.is_required,
        "sandbox": if server.is_unsandboxed { "off" } else { "auto" }, "trusted": server.is_trusted,
        "tools": tool_count, "tokens": tool_tokens,
        "resources": offer.as_ref().map(|offer| offer.resources.len() + offer.templates.len()),
        "prompts": offer.as_ref().map(|offer| offer.prompts.len()),
        "protocol": offer.as_ref().map(|offer| &offer.protocol), "server": offer.as_ref().map(|offer| &offer.server),
        "changed": changed, "unaccepted": unaccepted,
        "error": error.clone().or_else(|| (!changed.is_empty()).then(|| describe_state(row))),
    })
}
