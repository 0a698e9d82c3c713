//! The state that a call to an MCP server needs, and the conversion of its result for the model.

use super::result::{self, MAX_NAME_CHARS, ResultLimits};
use crate::files::Files;
use crate::{ToolError, ToolOutput};
use nanobot_base::message::Usage;
use nanobot_config::policy::Refusal;
use nanobot_config::policy::provenance::{AllowedHosts, ProvenanceTracker};
use nanobot_mcp::catalog::{CallError, ToolCatalog};
use nanobot_mcp::client::sampling::Sampler;
use nanobot_mcp::protocol::{McpError, ServerAnswer};
use nanobot_mcp::sanitize;
use nanobot_os::env::Env;
use std::sync::Arc;

/// Maximum characters of the error of a call.
const MAX_ERROR_CHARS: usize = 1_000;

/// The servers of a run and the limits of their tools.
#[derive(Clone)]
pub struct McpToolContext {
    pub catalog: ToolCatalog,
    pub limits: ResultLimits,
    /// Answers requests of servers for the model; `None` if no server may make any.
    pub sampler: Option<Arc<dyn ChargedSampler>>,
    pub env: Env,
    /// The provenance of the run's content.
    pub provenance: Arc<ProvenanceTracker>,
    /// The hosts that stay reachable despite untrusted content.
    pub allowed_hosts: AllowedHosts,
    pub files: Arc<Files>,
}

/// A sampler that counts the cost of its replies.
pub trait ChargedSampler: Sampler {
    /// Returns the usage of the replies since the last call, each with its cost in US dollars if that is known.
    fn take_charges(&self) -> Vec<(Usage, Option<f64>)>;
}

/// Converts the outcome of a call for the model.
pub(super) fn to_output(
    context: &McpToolContext,
    server: &str,
    tool: Option<&str>,
    answer: Result<ServerAnswer, CallError>,
) -> Result<ToolOutput, ToolError> {
    let name = sanitize::single_line(server, MAX_NAME_CHARS);
    let log = || match context.catalog.log(server) {
        Some(log) => format!("\n(for the user: the log of the server is `{log}`)"),
        None => String::new(),
    };
    let error = match answer {
        Ok(answer) => {
            let output = result::convert_answer(&name, answer, context.limits, &context.env);
            return output.map_err(|failure| format!("{failure}{}", log()).into());
        }
        Err(CallError::Changed) => {
            let accept = context.catalog.accept_command(server);
            return Err(changed_refusal(server, tool.unwrap_or_default(), accept).into());
        }
        Err(CallError::NotOffered) => {
            return Err(
                format!("server `{name}` no longer has this tool; continue without it").into()
            );
        }
        Err(CallError::Failed(error)) => error,
    };
    let message = sanitize::single_line(&error.to_string(), MAX_ERROR_CHARS);
    let next = match error {
        McpError::TimedOut(_) => "; the call may have taken effect",
        McpError::Unusable(_) | McpError::Unreachable(_) | McpError::Login(_) => {
            "; continue without it"
        }
        _ => "",
    };
    Err(format!("server `{name}`: {message}{next}{}", log()).into())
}

/// The refusal to call a tool whose description has changed. `accept` is the command that accepts the change.
pub(super) fn changed_refusal(server: &str, tool: &str, accept: String) -> Refusal {
    let tool = sanitize::single_line(tool, MAX_NAME_CHARS);
    Refusal {
        message: format!(
            "MCP server `{}` changed the description of its tool `{tool}`; `{accept}` shows the difference",
            sanitize::single_line(server, MAX_NAME_CHARS)
        ),
        suggested_flag: Some(accept),
        names_flag: true,
    }
}
