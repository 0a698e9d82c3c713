//! A tool that an MCP server offers.

use super::call::{Means, changed, given};
use crate::mcp::tool_list::ToolView;
use crate::mcp::words;
use crate::message::ToolSpec;
use crate::tool::{Effect, Failure, Output, Tool, arguments};
use serde_json::Value;
use std::sync::Arc;

/// Maximum lines of progress passed on for one call, as protection against a server that floods the output.
const PROGRESS: usize = 200;

/// Maximum characters of a progress line.
const LINE: usize = 200;

/// A tool that an MCP server offers.
pub(super) struct ServerTool {
    spec: ToolSpec,
    shown: ToolView,
    means: Arc<Means>,
}

impl ServerTool {
    /// Creates the tool.
    pub(super) fn new(means: &Arc<Means>, shown: &ToolView) -> Self {
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

impl Tool for ServerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> Effect {
        match self.shown.reads_only {
            true => Effect::Reads,
            false => Effect::Writes,
        }
    }

    /// Arguments are corrected but not checked: the server checks them itself, against a schema that is more detailed
    /// than our reduced copy.
    fn reading(&self, given: &Value) -> Result<Value, String> {
        arguments::mended(&self.spec.parameters, given)
    }

    fn foresee(&self, _: &Value) -> Result<(), Failure> {
        let ToolView { server, tool, .. } = &self.shown;
        match self.shown.changed || self.means.roster.has_changed(server, tool) {
            true => Err(changed(server, tool).into()),
            false => Ok(()),
        }
    }

    fn run(&self, arguments: &Value, say: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        let ToolView { server, tool, .. } = &self.shown;
        let Means {
            roster, seen, free, ..
        } = &*self.means;
        // A tool that may change something has the user's consent already; a read-only one must not send untrusted
        // content out.
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
