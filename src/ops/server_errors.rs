//! The servers that a user names, and errors about them: a server that is not configured, cannot be used, or does not answer.

use anyhow::{Result, anyhow};
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::servers::{self, McpServer};
use nanobot_mcp::catalog::CallError;
use nanobot_mcp::protocol::McpError;
use nanobot_mcp::sanitize;

/// Maximum length of the error message of a server, in characters.
pub(super) const MAX_ERROR_CHARS: usize = 2000;

/// The server `name` of `servers`.
///
/// # Errors
/// Status 66: there is none.
pub(crate) fn find_configured<'s>(servers: &'s [McpServer], name: &str) -> Result<&'s McpServer> {
    let server = servers.iter().find(|server| server.name == name);
    server.ok_or_else(|| unknown_server_error(servers, name))
}

/// The error for a server that is not among `servers`.
pub(crate) fn unknown_server_error(servers: &[McpServer], name: &str) -> anyhow::Error {
    let names = servers.iter().map(|server| server.name.as_str());
    let hint = match (nearest(name, names), servers.is_empty()) {
        (Some(nearest), _) => format!("`{nearest}`"),
        (None, false) => "nanobot mcp list".into(),
        (None, true) => "nanobot mcp add".into(),
    };
    fail(Exit::NoInput, format!("there is no server `{name}`")).with_hint(hint)
}

/// Checks that the entry of `server` lets it be used.
///
/// # Errors
/// Status 78: it is disabled, or invalid.
pub(crate) fn check_usable(server: &McpServer) -> Result<()> {
    match &server.unusable_reason {
        Some(reason) => Err(unusable_error(server, reason)),
        None if server.is_disabled => Err(unusable_error(server, "it is disabled")),
        None => Ok(()),
    }
}

/// The error for a server that cannot be used.
pub(crate) fn unusable_error(server: &McpServer, reason: &str) -> anyhow::Error {
    let name = &server.name;
    let cause = format!("MCP server `{name}` cannot be used: {reason}");
    let key = servers::quoted_key(name, &[]);
    fail(Exit::Config, cause).with_hint(format!("nanobot config get {key}"))
}

/// Converts the error of a request for a resource or a prompt into an error for the user.
pub(crate) fn to_failure(server: &McpServer, error: CallError) -> anyhow::Error {
    match error {
        CallError::Failed(error) => to_error(server, &error),
        // They are about tools.
        CallError::Changed | CallError::NotOffered => anyhow!("the request names no tool"),
    }
}

/// Converts the error of a server into an error for the user.
pub(crate) fn to_error(server: &McpServer, error: &McpError) -> anyhow::Error {
    let name = &server.name;
    let message = sanitize::single_line(&error.to_string(), MAX_ERROR_CHARS);
    match error {
        McpError::Stopped(stop) => (*stop).into(),
        McpError::Unusable(_) => unusable_error(server, &message),
        McpError::Login(_) => fail(Exit::Config, format!("MCP server `{name}`: {message}")),
        McpError::Refused(_) => fail(Exit::Failed, format!("MCP server `{name}`: {message}")),
        McpError::Unreachable(_)
        | McpError::Broken(_)
        | McpError::TimedOut(_)
        | McpError::FeaturesChanged => {
            fail(Exit::Unavailable, format!("MCP server `{name}`: {message}"))
        }
    }
}
