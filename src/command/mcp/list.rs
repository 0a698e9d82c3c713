//! `mcp list`: lists the servers and what is stored about each. No server is started.

use crate::error::Exit;
use crate::mcp::cache::CachedResult;
use crate::mcp::protocol::ServerFeatures;
use crate::mcp::{sanitize, schema, tool_name};
use crate::message::token_estimate;
use crate::ops::mcp_servers::McpContext;
use crate::report::columns::{Side, align_columns, truncate};
use crate::settings::servers::{McpServer, ServerTransport};
use crate::sys::terminal::{StdoutWriter, sanitize};
use crate::sys::web_url;
use anyhow::Result;
use serde_json::{Value, json};

/// The stored facts about one server.
struct ServerRow<'s> {
    server: &'s McpServer,
    offer: Option<ServerFeatures>,
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
        for row in &rows {
            mcp.ctx.terminal.print_json_text(&format!("{}\n", server_json(row)))?;
        }
        return Ok(Exit::Answered);
    }
    if rows.is_empty() {
        mcp.ctx.explain_empty("there are no MCP servers; see `nanobot mcp add --help`");
        return Ok(Exit::Answered);
    }
    let columns = [
        ("SERVER", Side::Left),
        ("BY", Side::Left),
        ("TOOLS", Side::Right),
        ("TOKENS", Side::Right),
        ("STATE", Side::Left),
        ("IS", Side::Left),
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let mut page = StdoutWriter::new(mcp.ctx.terminal);
    for line in align_columns(&columns, &cells) {
        page.write(&format!("{}\n", truncate(&line, mcp.ctx.terminal.stdout_width())))?;
    }
    page.finish()?;
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
    Ok(ServerRow {
        server,
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

/// The number of its tools that are offered to the model, and the tokens they take in each request.
fn count_tools_and_tokens(server: &McpServer, offer: &ServerFeatures) -> (usize, u64) {
    let mut count = 0;
    let mut tokens = 0;
    for (tool, ours) in tool_name::for_tools(&server.name, &offer.tools) {
        if server.is_tool_enabled([&tool.name, &ours]) {
            let words =
                sanitize::tool_description(&server.name, tool.title.as_deref(), &tool.description);
            count += 1;
            tokens += token_estimate::for_text(&ours)
                + token_estimate::for_text(&words)
                + token_estimate::for_value(&schema::convert(&tool.schema));
        }
    }
    (count, tokens)
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
    let ServerRow { server, offer, changed, unaccepted, error } = row;
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

fn cells(row: &ServerRow<'_>) -> Vec<String> {
    let (count, tokens) = match &row.offer {
        Some(offer) => {
            let (count, tokens) = count_tools_and_tokens(row.server, offer);
            (count.to_string(), tokens.to_string())
        }
        None => ("-".into(), "-".into()),
    };
    let name = sanitize(&row.server.name).replace(['\n', '\t'], " ");
    let place = sanitize(&command_or_url(row.server)).replace(['\n', '\t'], " ");
    vec![name, transport_name(row.server).into(), count, tokens, describe_state(row), place]
}

fn server_json(row: &ServerRow<'_>) -> Value {
    let ServerRow { server, offer, changed, unaccepted, error } = row;
    let counts = offer.as_ref().map(|offer| count_tools_and_tokens(server, offer));
    json!({
        "name": server.name, "by": transport_name(server), "place": command_or_url(server), "disabled": server.is_disabled, "required": server.is_required,
        "sandbox": if server.is_unsandboxed { "off" } else { "auto" }, "trusted": server.is_trusted,
        "tools": counts.map(|counts| counts.0), "tokens": counts.map(|counts| counts.1),
        "resources": offer.as_ref().map(|offer| offer.resources.len() + offer.templates.len()),
        "prompts": offer.as_ref().map(|offer| offer.prompts.len()),
        "protocol": offer.as_ref().map(|offer| &offer.protocol), "server": offer.as_ref().map(|offer| &offer.server),
        "changed": changed, "unaccepted": unaccepted,
        "error": error.clone().or_else(|| (!changed.is_empty()).then(|| describe_state(row))),
    })
}
