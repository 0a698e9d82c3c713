//! `mcp list`: lists the servers with the stored facts about each. No server is started.

use crate::command::name_pattern::single_line;
use crate::ops::mcp_servers::McpContext;
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_agent::report::short_text::count_noun;
use nanobot_base::message::token_estimate;
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_mcp::cache::CachedResult;
use nanobot_mcp::protocol::ServerFeatures;
use nanobot_mcp::{sanitize, schema, tool_name};
use nanobot_net::web_url;
use serde_json::{Value, json};

/// The stored facts about one server.
struct ServerRow<'s> {
    server: &'s McpServer,
    features: Option<ServerFeatures>,
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
pub(super) fn run(mcp: &McpContext<'_>, as_json: bool) -> Result<()> {
    let rows: Vec<ServerRow<'_>> =
        mcp.servers.iter().map(|server| inspect(mcp, server)).collect::<Result<_>>()?;
    if as_json {
        return mcp.ctx.terminal.print_json_lines(rows.iter().map(server_json));
    }
    if rows.is_empty() {
        mcp.ctx.explain_empty("there are no MCP servers; see `nanobot mcp add --help`");
        return Ok(());
    }
    let count =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let columns: [Column<'_, ServerRow<'_>>; 6] = [
        ("SERVER", Side::Left, &|row| single_line(&row.server.name)),
        ("BY", Side::Left, &|row| transport_name(row.server).into()),
        ("TOOLS", Side::Right, &|row| count(row.tool_count)),
        ("TOKENS", Side::Right, &|row| count(row.tool_tokens)),
        ("IS", Side::Left, &|row| single_line(&command_or_url(row.server))),
        ("STATE", Side::Left, &describe_state),
    ];
    mcp.ctx.terminal.print(&format_table(&rows, &columns, mcp.ctx.terminal.stdout_width()))
}

fn inspect<'s>(mcp: &McpContext<'_>, server: &'s McpServer) -> Result<ServerRow<'s>> {
    let (features, error) = match mcp.cache.get_latest(server) {
        Some(CachedResult::Features(features)) => (Some(features), None),
        Some(CachedResult::Failed { message, .. }) => (None, Some(message)),
        None => (None, None),
    };
    let checks = match &features {
        Some(features) => mcp.pins.check(&[(server, features)])?,
        None => Vec::new(),
    };
    let pin_check = checks.into_iter().next().unwrap_or_default();
    let tokens = features.as_ref().map(|features| offered_tool_tokens(server, features));
    Ok(ServerRow {
        server,
        tool_count: tokens.as_ref().map(|tokens| tokens.len() as u64),
        tool_tokens: tokens.map(|tokens| tokens.iter().sum()),
        changed: pin_check.changed.into_iter().map(|change| change.name).collect(),
        unaccepted: pin_check.unaccepted.into_iter().collect(),
        error: server.unusable_reason.clone().or(error),
        features,
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

/// The tokens that each tool takes in a request, for the tools of the server that are offered to the model.
fn offered_tool_tokens(server: &McpServer, features: &ServerFeatures) -> Vec<u64> {
    let tools = tool_name::for_tools(&server.name, &features.tools).into_iter();
    let enabled = tools.filter(|(tool, name)| server.is_tool_enabled([&tool.name, name]));
    let tokens = enabled.map(|(tool, name)| {
        let title = tool.title.as_deref();
        let description = sanitize::tool_description(&server.name, title, &tool.description);
        token_estimate::for_text(&name)
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
    let ServerRow { server, features, unaccepted, error, .. } = row;
    if server.is_disabled {
        return "disabled".into();
    }
    let state = match (error, features) {
        (Some(error), _) => sanitize::single_line(error, 200),
        (None, None) => "not contacted yet".into(),
        (None, Some(_)) => describe_changes(row).unwrap_or_else(|| match unaccepted.len() {
            0 => "ok".into(),
            count => format!("{count} not accepted yet: `{}`", accept_command(server)),
        }),
    };
    let counts = features.as_ref().map(describe_content).unwrap_or_default();
    let no_sandbox = if server.is_unsandboxed { "; no sandbox" } else { "" };
    let trusted = if server.is_trusted { "; trusted" } else { "" };
    format!("{state}{counts}{no_sandbox}{trusted}")
}

/// A phrase about the resources and the prompts of a server; empty if there are none.
fn describe_content(features: &ServerFeatures) -> String {
    let resources = features.resources.len() + features.templates.len();
    [(resources, "resource"), (features.prompts.len(), "prompt")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| format!("; {}", count_noun(count, noun)))
        .collect()
}

/// A phrase about the tools that have changed; `None` if none has.
fn describe_changes(row: &ServerRow<'_>) -> Option<String> {
    match row.changed.len() {
        0 => None,
        count => Some(format!("{count} changed: `{}`", accept_command(row.server))),
    }
}

fn accept_command(server: &McpServer) -> String {
    format!("nanobot mcp accept {}", quote(&single_line(&server.name)))
}

fn server_json(row: &ServerRow<'_>) -> Value {
    let ServerRow { server, features, tool_count, tool_tokens, changed, unaccepted, error } = row;
    json!({
        "name": server.name, "by": transport_name(server), "place": command_or_url(server), "disabled": server.is_disabled, "required": server.is_required,
        "sandbox": if server.is_unsandboxed { "off" } else { "auto" }, "trusted": server.is_trusted,
        "tools": tool_count, "tokens": tool_tokens,
        "resources": features.as_ref().map(|features| features.resources.len() + features.templates.len()),
        "prompts": features.as_ref().map(|features| features.prompts.len()),
        "protocol": features.as_ref().map(|features| &features.protocol), "server": features.as_ref().map(|features| &features.server),
        "changed": changed, "unaccepted": unaccepted,
        "error": error.clone().or_else(|| describe_changes(row).filter(|_| !server.is_disabled)),
    })
}

#[cfg(test)]
mod tests {
    use super::{ServerRow, describe_state, server_json};
    use nanobot_config::settings::servers::McpServer;
    use nanobot_mcp::protocol::ServerFeatures;
    use serde_json::Value;

    #[test]
    fn changed_tools_are_an_error_of_a_server_in_use() {
        let check = |is_disabled: bool, state: &str, error: Value| {
            let server = McpServer {
                name: "My Server".into(),
                is_disabled,
                is_trusted: true,
                ..McpServer::default()
            };
            let row = ServerRow {
                server: &server,
                features: Some(ServerFeatures::default()),
                tool_count: Some(1),
                tool_tokens: Some(1),
                changed: vec!["look".into()],
                unaccepted: Vec::new(),
                error: None,
            };
            assert_eq!(describe_state(&row), state);
            assert_eq!(server_json(&row)["error"], error);
        };
        let changed = "1 changed: `nanobot mcp accept 'My Server'`";
        check(false, &format!("{changed}; trusted"), changed.into());
        check(true, "disabled", Value::Null);
    }
}
