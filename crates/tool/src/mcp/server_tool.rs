//! A tool that an MCP server offers.

use super::call::{McpToolContext, changed_refusal, to_output};
use super::guarded_call::guard_changes;
use crate::{Call, CallEffect, Tool, ToolError, ToolOutput, arguments};
use nanobot_base::message::ToolSpec;
use nanobot_mcp::client::sampling::Sampler;
use nanobot_mcp::sanitize;
use nanobot_mcp::tool_list::ToolView;
use serde_json::Value;
use std::sync::Arc;

/// Maximum lines of progress passed on for one call, as protection against a server that floods the output.
const MAX_PROGRESS_LINES: usize = 200;

/// Maximum characters of a progress line.
const MAX_LINE_CHARS: usize = 200;

/// A tool that an MCP server offers.
pub(super) struct ServerTool {
    spec: ToolSpec,
    view: ToolView,
    is_searched: bool,
    context: Arc<McpToolContext>,
}

impl ServerTool {
    /// Creates the tool.
    pub(super) fn new(context: &Arc<McpToolContext>, view: &ToolView, is_searched: bool) -> Self {
        Self {
            spec: ToolSpec {
                name: view.name.clone(),
                description: view.description.clone(),
                parameters: view.schema.clone().into(),
            },
            view: view.clone(),
            is_searched,
            context: Arc::clone(context),
        }
    }
}

impl Tool for ServerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn is_searched(&self) -> bool {
        self.is_searched
    }

    fn effect(&self, _: &Value) -> CallEffect {
        if self.view.reads_only { CallEffect::Reads } else { CallEffect::Writes }
    }

    /// Arguments are corrected but not checked: the server checks them itself, against a schema that is more detailed
    /// than our reduced copy.
    fn parse_arguments(&self, arguments: &Value) -> Result<Value, String> {
        arguments::repair(&self.spec.parameters, arguments)
    }

    fn check_call(&self, _: &Value) -> Result<(), ToolError> {
        let ToolView { server, tool, .. } = &self.view;
        if self.view.has_changed || self.context.catalog.has_changed(server, tool) {
            let accept = self.context.catalog.accept_command(server);
            Err(changed_refusal(server, tool, accept).into())
        } else {
            Ok(())
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let Call { arguments, on_output, charges, .. } = call;
        let ToolView { server, tool, .. } = &self.view;
        let McpToolContext { catalog, sampler, provenance, allowed_hosts, .. } = &*self.context;
        // A tool that may change something has the user's consent already; a read-only one must not send untrusted
        // content out.
        if self.view.reads_only {
            provenance.admit_arguments(arguments, allowed_hosts)?;
        }
        let mut remaining_lines = MAX_PROGRESS_LINES;
        let mut on_progress = |text: &str| {
            let line = sanitize::single_line(text, MAX_LINE_CHARS);
            if remaining_lines > 0 && !line.is_empty() {
                remaining_lines -= 1;
                on_output(&format!("{line}\n"));
            }
        };
        let result = guard_changes(&self.context, server, || {
            let sampler = sampler.as_deref().map(|sampler| sampler as &dyn Sampler);
            let answer = catalog.call(server, tool, arguments, sampler, &mut on_progress);
            to_output(&self.context, server, Some(tool), answer)
        });
        charges.extend(sampler.iter().flat_map(|sampler| sampler.take_charges()));
        result
    }
}
