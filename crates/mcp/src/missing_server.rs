//! A server that is not available to a run: the reason, and the notice or the error that it becomes.

use super::protocol::McpError;
use super::sanitize;
use anyhow::Result;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_config::settings::servers::McpServer;

/// The reason why a server is missing.
pub(super) struct MissingServer {
    reason: String,
    exit: Exit,
    subcommand: &'static str,
}

impl MissingServer {
    pub(super) fn unusable(reason: &str) -> Self {
        Self { reason: format!("invalid config: {reason}"), exit: Exit::Config, subcommand: "show" }
    }

    pub(super) fn from_error(message: String, error: &McpError) -> Self {
        let exit = match error {
            McpError::Unusable(_) | McpError::Login(_) => Exit::Config,
            _ => Exit::Unavailable,
        };
        Self { reason: message, exit, subcommand: "test" }
    }

    pub(super) fn from_cached_failure(message: &str, age_secs: i64) -> Self {
        let ago = match age_secs {
            0..90 => format!("{age_secs} s"),
            _ => format!("{} min", (age_secs + 30) / 60),
        };
        Self {
            reason: format!("{message} (tried {ago} ago)"),
            exit: Exit::Unavailable,
            subcommand: "test",
        }
    }

    pub(super) fn not_cached() -> Self {
        Self {
            reason: "its tools are not known yet".into(),
            exit: Exit::Unavailable,
            subcommand: "test",
        }
    }

    /// Reports the missing server as a notice.
    ///
    /// # Errors
    /// The server is required.
    pub(super) fn report(self, server: &McpServer, notice: &mut dyn FnMut(&str)) -> Result<()> {
        let Self { reason, exit, subcommand } = self;
        let name = sanitize::single_line(&server.name, 80);
        let hint = format!("nanobot mcp {subcommand} {name}");
        if server.is_required {
            let cause = format!("MCP server `{name}` is required but not available: {reason}");
            return Err(fail_with_hint(exit, cause, hint));
        }
        notice(&format!("MCP server `{name}` is not available: {reason}; `{hint}`"));
        Ok(())
    }
}
