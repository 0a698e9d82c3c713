//! The tools of MCP servers as tools of ours: each goes by the name and the schema that [`crate::mcp::roster`] made for it,
//! and its server is started by the first call. Besides them there are two of our own, for what servers have to read and
//! for their prompts. What comes back is a stranger's word, see [`result`].

use super::{Effect, Failure, Output, Tool, arguments};
use crate::mcp::offer::{Answer, Failed};
use crate::mcp::roster::{Missed, Offers, Roster, Shown};
use crate::mcp::words;
use crate::message::ToolSpec;
use crate::policy::Refusal;
use crate::policy::seen::{Free, Seen};
use crate::shell_quote::quoted;
use crate::sys::env::Env;
use result::Limits;
use serde_json::Value;
use std::sync::Arc;

mod ours;
pub mod result;

/// Lines of progress that are passed on of one call; who floods is not listened to.
const PROGRESS: usize = 200;
/// Characters of such a line.
const LINE: usize = 200;

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

/// The tools for all that is offered.
pub fn tools(means: &Means, offers: &Offers) -> Vec<Box<dyn Tool>> {
    let means = Arc::new(means.clone());
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    for shown in &offers.tools {
        tools.push(Box::new(Foreign::new(&means, shown)));
    }
    if !offers.resources.is_empty() {
        tools.push(Box::new(ours::resources(&means, &offers.resources)));
    }
    if !offers.prompts.is_empty() {
        tools.push(Box::new(ours::prompts(&means, &offers.prompts)));
    }
    tools
}

/// A tool of a server's.
struct Foreign {
    spec: ToolSpec,
    shown: Shown,
    means: Arc<Means>,
}

impl Foreign {
    fn new(means: &Arc<Means>, shown: &Shown) -> Self {
        Self {
            spec: ToolSpec {
                name: shown.name.clone(),
                description: shown.description.clone(),
                parameters: shown.schema.clone(),
            },
            shown: shown.clone(),
            means: Arc::clone(means),
        }
    }
}

impl Tool for Foreign {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> Effect {
        match self.shown.reads_only {
            true => Effect::Reads,
            false => Effect::Writes,
        }
    }

    /// The server looks at them itself, and its own schema says more than what is left of it here.
    fn reading(&self, given: &Value) -> Result<Value, String> {
        arguments::mended(&self.spec.parameters, given)
    }

    fn foresee(&self, _: &Value) -> Result<(), Failure> {
        let Shown { server, tool, .. } = &self.shown;
        match self.shown.changed || self.means.roster.has_changed(server, tool) {
            true => Err(changed(server, tool).into()),
            false => Ok(()),
        }
    }

    fn run(&self, arguments: &Value, say: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        let Shown { server, tool, .. } = &self.shown;
        let Means {
            roster, seen, free, ..
        } = &*self.means;
        // What may change something, somebody has consented to.
        if self.shown.reads_only {
            seen.allows_sent(arguments, free)?;
        }
        let mut left = PROGRESS;
        let mut pass = |text: &str| {
            let line = words::line(text, LINE);
            if left > 0 && !line.is_empty() {
                left -= 1;
                say(&format!("{line}\n"));
            }
        };
        let answer = roster.call(server, tool, arguments, &mut pass);
        given(&self.means, server, Some(tool), answer)
    }
}

/// What became of a call, for the model.
fn given(
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
fn changed(server: &str, tool: &str) -> Refusal {
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
