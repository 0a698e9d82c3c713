//! `mcp show`: prints the offer of a server, from the stored copy; without one, the server is contacted.

use crate::ops::mcp_servers::{McpContext, find_tool};
use crate::ops::server_prompts;
use anyhow::Result;
use console::Style;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_config::settings::servers::McpServer;
use nanobot_mcp::cache::CachedResult;
use nanobot_mcp::protocol::{ServerFeatures, ToolInfo};
use nanobot_mcp::{sanitize, tool_name};
use nanobot_os::terminal::StdoutWriter;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum characters of a description in the list of tools.
const MAX_DESCRIPTION_CHARS: usize = 160;

/// Runs `mcp show`.
pub(super) fn run(
    mcp: &McpContext<'_>,
    server: &str,
    tool: Option<&str>,
    as_json: bool,
) -> Result<()> {
    let server = mcp.server(server)?;
    let (features, changes) = match mcp.cache.get(server) {
        Some(CachedResult::Features(features)) => {
            let checks = mcp.pins.check(&[(server, &features)])?;
            (Arc::new(features), checks.into_iter().flat_map(|check| check.changed).collect())
        }
        Some(CachedResult::Failed { .. }) | None => {
            let view = mcp.query(server)?;
            (view.features, view.changed)
        }
    };
    mcp.catalog.shut_down();
    let changed: Vec<String> = changes.into_iter().map(|change| change.name).collect();
    match tool {
        None if as_json => mcp.ctx.terminal.print_json(&catalog_json(server, &features, &changed)),
        None => print_server(mcp, server, &features, &changed),
        Some(name) => {
            let (tool, model_name) = find_tool(server, &features, name)?;
            let is_changed = changed.contains(&tool.name);
            if as_json {
                mcp.ctx.terminal.print_json(&tool_json(server, tool, &model_name, is_changed))
            } else {
                print_tool(mcp, tool, &model_name, is_changed)
            }
        }
    }
}

/// The state of a tool that is offered to the model: changed, or the hints that the server gives about it.
fn describe_state(tool: &ToolInfo, is_changed: bool) -> &'static str {
    if is_changed {
        return "changed, and denied until you accept it";
    }
    match (tool.hints.reads_only, tool.hints.destructive) {
        (Some(true), Some(true)) => "contradictory hints",
        (Some(true), _) => "read-only, it claims",
        (_, Some(false)) => "not destructive, it claims",
        _ => "may make changes",
    }
}

fn print_server(
    mcp: &McpContext<'_>,
    server: &McpServer,
    features: &ServerFeatures,
    changed: &[String],
) -> Result<()> {
    let bold = Style::new().bold();
    let width = mcp.ctx.terminal.stdout_width();
    let mut writer = StdoutWriter::new(mcp.ctx.terminal);
    writer.write_styled(&sanitize::single_line(&server.name, 80), &bold)?;
    writer.write(&format!(
        ": {}, MCP {}\n",
        sanitize::single_line(&features.server, 80),
        sanitize::single_line(&features.protocol, 20)
    ))?;
    for (tool, model_name) in tool_name::for_tools(&server.name, &features.tools) {
        let state = if server.is_tool_enabled([&tool.name, &model_name]) {
            describe_state(tool, changed.contains(&tool.name))
        } else {
            "not offered (`enabledTools`)"
        };
        writer.write("\n")?;
        writer.write_styled(&model_name, &bold)?;
        writer.write(&format!("  ({state})\n"))?;
        let description = sanitize::single_line(&tool.description, MAX_DESCRIPTION_CHARS);
        if !description.is_empty() {
            writer.write(&format!("{}\n", hanging_indent("    ", &description, width)))?;
        }
        let names = argument_names(&tool.schema);
        if !names.is_empty() {
            let line = hanging_indent("    arguments: ", &names.join(", "), width);
            writer.write(&format!("{line}\n"))?;
        }
    }
    let mut list = |head: &str, rows: &mut dyn Iterator<Item = String>| -> Result<()> {
        let rows: Vec<String> = rows.collect();
        if !rows.is_empty() {
            writer.write("\n")?;
            writer.write_styled(head, &bold)?;
            writer.write("\n")?;
            for row in rows {
                writer.write(&format!("{}\n", hanging_indent("    ", &row, width)))?;
            }
        }
        Ok(())
    };
    let mut resources = features.resources.iter().chain(&features.templates).map(|resource| {
        let has_description = !resource.description.is_empty();
        let text = if has_description { &resource.description } else { &resource.name };
        name_and_description(&resource.uri, text)
    });
    let name = sanitize::single_line(&server.name, 80);
    list(&format!("resources, for `-a mcp:{name}:…` and `@{name}:…`"), &mut resources)?;
    let mut prompts = features.prompts.iter().map(|prompt| {
        let usage = server_prompts::usage(&server.name, prompt);
        name_and_description(&usage, &prompt.description)
    });
    list("prompts, as messages", &mut prompts)?;
    writer.finish()
}

fn name_and_description(name: &str, description: &str) -> String {
    let name = sanitize::single_line(name, 200);
    let description = sanitize::single_line(description, MAX_DESCRIPTION_CHARS);
    if description.is_empty() || description == name {
        name
    } else {
        format!("{name}  {description}")
    }
}

/// The names of the arguments; optional ones end with `?`.
fn argument_names(schema: &Value) -> Vec<String> {
    let required = schema["required"].as_array();
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, _)| {
            let is_required =
                required.is_some_and(|names| names.iter().any(|required| required == name));
            let name = sanitize::single_line(name, 60);
            if is_required { name } else { format!("{name}?") }
        })
        .collect()
}

fn print_tool(
    mcp: &McpContext<'_>,
    tool: &ToolInfo,
    model_name: &str,
    is_changed: bool,
) -> Result<()> {
    let mut writer = StdoutWriter::new(mcp.ctx.terminal);
    writer.write_styled(model_name, &Style::new().bold())?;
    writer.write(&format!("  ({})\n\n", describe_state(tool, is_changed)))?;
    let width = mcp.ctx.terminal.stdout_width();
    for line in sanitize::clean(tool.description.trim()).lines() {
        writer.write(&format!("{}\n", hanging_indent("", line, width)))?;
    }
    writer.write("\n")?;
    writer.write(&format!("{:#}\n", tool.schema))?;
    writer.finish()
}

fn tool_json(server: &McpServer, tool: &ToolInfo, model_name: &str, is_changed: bool) -> Value {
    json!({
        "name": model_name, "tool": tool.name, "title": tool.title, "description": tool.description, "parameters": tool.schema,
        "hints": tool.hints, "offered": server.is_tool_enabled([&tool.name, model_name]), "changed": is_changed,
    })
}

fn catalog_json(server: &McpServer, features: &ServerFeatures, changed: &[String]) -> Value {
    let tools = tool_name::for_tools(&server.name, &features.tools).into_iter();
    let tools: Vec<Value> = tools
        .map(|(tool, model_name)| {
            tool_json(server, tool, &model_name, changed.contains(&tool.name))
        })
        .collect();
    json!({
        "name": server.name, "server": features.server, "protocol": features.protocol, "instructions": features.instructions,
        "tools": tools, "resources": features.resources, "templates": features.templates, "prompts": features.prompts,
    })
}
