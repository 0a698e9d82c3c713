//! The state that a call to an MCP server needs, and the conversion of its result for the model.

use super::result::{self, Limits};
use crate::mcp::offer::{Answer, Failed};
use crate::mcp::roster::{Missed, Roster};
use crate::mcp::words;
use crate::policy::Refusal;
use crate::policy::seen::{Free, Seen};
use crate::shell_quote::quoted;
use crate::sys::env::Env;
use crate::tool::{Failure, Output};
use std::sync::Arc;

/// The servers of a run and the limits of their tools.
#[derive(Clone)]
pub struct Means {
    pub roster: Roster,
    pub limits: Limits,
    pub env: Env,
    /// The provenance of the run's content. `free` are the hosts that stay reachable despite untrusted content.
    pub seen: Arc<Seen>,
    pub free: Free,
}

/// Converts the outcome of a call for the model.
pub(super) fn given(
    means: &Means,
    server: &str,
    tool: Option<&str>,
    answer: Result<Answer, Missed>,
) -> Result<Output, Failure> {
    let name = words::line(server, 64);
    let failed = match answer {
        Ok(answer) => return result::output(&name, answer, means.limits, &means.env),
        Err(Missed::Changed) => return Err(changed(server, tool.unwrap_or_default()).into()),
        Err(Missed::Gone) => {
            return Err(
                format!("server `{name}` no longer has this tool; continue without it").into(),
            );
        }
        Err(Missed::Failed(failed)) => failed,
    };
    let message = words::line(&failed.to_string(), 1_000);
    let next = match failed {
        Failed::Late(_) => "; the call may have taken effect",
        Failed::Unusable(_) | Failed::Unreachable(_) | Failed::Login(_) => "; continue without it",
        _ => "",
    };
    Err(format!("server `{name}`: {message}{next}").into())
}

/// The refusal to call a tool whose description has changed.
pub(super) fn changed(server: &str, tool: &str) -> Refusal {
    let tool = words::line(tool, 64);
    let accept = format!("nanobot mcp accept {}", quoted(server));
    Refusal {
        words: format!(
            "MCP server `{}` changed the description of its tool `{tool}`; `{accept}` shows the difference",
            words::line(server, 64)
        ),
        grant: Some(accept),
    }
}
