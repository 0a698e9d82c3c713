//! What a call to a server needs, and the conversion of its result for the model.

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

/// The servers of a run, as their tools need them.
#[derive(Clone)]
pub struct Means {
    pub roster: Roster,
    pub limits: Limits,
    pub env: Env,
    /// What the run has seen, and the hosts that it may reach all the same.
    pub seen: Arc<Seen>,
    pub free: Free,
}

/// What became of a call, for the model.
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
            return Err(format!("server `{name}` has this tool no more; go on without it").into());
        }
        Err(Missed::Failed(failed)) => failed,
    };
    let words = words::line(&failed.to_string(), 1_000);
    let next = match failed {
        Failed::Late(_) => "; what it was to do may have happened",
        Failed::Unusable(_) | Failed::Unreachable(_) | Failed::Login(_) => "; go on without it",
        _ => "",
    };
    Err(format!("server `{name}`: {words}{next}").into())
}

/// No to a call of a tool that is not what it was.
pub(super) fn changed(server: &str, tool: &str) -> Refusal {
    let tool = words::line(tool, 64);
    let accept = format!("nanobot mcp accept {}", quoted(server));
    Refusal {
        words: format!(
            "what MCP server `{}` says of its tool `{tool}` is not what it said at first; `{accept}` shows the difference",
            words::line(server, 64)
        ),
        grant: Some(accept),
    }
}
