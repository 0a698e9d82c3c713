//! `mcp show`: prints what a server offers, from the stored copy; without one, the server is contacted.

use crate::ops::mcp_servers::McpContext;
use anyhow::Result;
use console::Style;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_config::settings::keys::nearest;
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
) -> Result<Exit> {
    let server = mcp.server(server)?;
    let (offer, changes) = match mcp.cache.get(server) {
        Some(CachedResult::Features(offer)) => {
            let checks = mcp.pins.check(&[(server, &offer)])?;
            (Arc::new(offer), checks.into_iter().flat_map(|check| check.changed).collect())
        }
        Some(CachedResult::Failed { .. }) | None => {
            let look = mcp.query(server)?;
            (look.features, look.changed)
        }
    };
    mcp.catalog.shut_down();
    let changed: Vec<String> = changes.into_iter().map(|change| change.name).collect();
    match tool {
        None if as_json => mcp.ctx.terminal.print_json(&catalog_json(server, &offer, &changed))?,
        None => print_server(mcp, server, &offer, &changed)?,
        Some(given) => {
            let (found, ours) = find_tool(server, &offer, given)?;
            let found = (found, ours.as_str());
            let is_changed = changed.contains(&found.0.name);
            if as_json {
                let object = tool_json(server, found, is_changed);
                mcp.ctx.terminal.print_json(&object)?;
            } else {
                print_tool(mcp, found, is_changed)?;
            }
        }
    }
    Ok(Exit::Answered)
}

/// Finds a tool by the server's name for it or by ours, which is returned too.
pub(super) fn find_tool<'o>(
    server: &McpServer,
    offer: &'o ServerFeatures,
    given: &str,
) -> Result<(&'o ToolInfo, String)> {
    let mut tools = tool_name::for_tools(&server.name, &offer.tools).into_iter();
    let found = tools.find(|(tool, ours)| tool.name == given || ours == given);
    found.ok_or_else(|| {
        let names = offer.tools.iter().map(|tool| tool.name.as_str());
        let hint = match nearest(given, names) {
            Some(meant) => format!("`{}`", sanitize::single_line(meant, 80)),
            None => format!("nanobot mcp show {}", server.name),
        };
        let cause = format!("MCP server `{}` has no tool `{given}`", server.name);
        fail_with_hint(Exit::NoInput, cause, hint)
    })
}

/// The hints that the server gives about a tool.
fn describe_hints(tool: &ToolInfo) -> &'static str {
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
    offer: &ServerFeatures,
    changed: &[String],
) -> Result<()> {
    let bold = Style::new().bold();
    let width = mcp.ctx.terminal.stdout_width();
    let mut page = StdoutWriter::new(mcp.ctx.terminal);
    page.write_styled(&sanitize::single_line(&server.name, 80), &bold)?;
    page.write(&format!(
        ": {}, MCP {}\n",
        sanitize::single_line(&offer.server, 80),
        sanitize::single_line(&offer.protocol, 20)
    ))?;
    for (tool, ours) in tool_name::for_tools(&server.name, &offer.tools) {
        let state =
            match (server.is_tool_enabled([&tool.name, &ours]), changed.contains(&tool.name)) {
                (false, _) => "not offered (`enabledTools`)",
                (true, true) => "changed, and denied until you accept it",
                (true, false) => describe_hints(tool),
            };
        page.write("\n")?;
        page.write_styled(&ours, &bold)?;
        page.write(&format!("  ({state})\n"))?;
        let about = sanitize::single_line(&tool.description, MAX_DESCRIPTION_CHARS);
        if !about.is_empty() {
            page.write(&format!("{}\n", hanging_indent("    ", &about, width)))?;
        }
        let names = argument_names(&tool.schema);
        if !names.is_empty() {
            let line = hanging_indent("    arguments: ", &names.join(", "), width);
            page.write(&format!("{line}\n"))?;
        }
    }
    let mut list = |head: &str, rows: &mut dyn Iterator<Item = String>| -> Result<()> {
        let rows: Vec<String> = rows.collect();
        if !rows.is_empty() {
            page.write("\n")?;
            page.write_styled(head, &bold)?;
            page.write("\n")?;
            for row in rows {
                page.write(&format!("{}\n", hanging_indent("    ", &row, width)))?;
            }
        }
        Ok(())
    };
    let about = |name: &str, words: &str| {
        let name = sanitize::single_line(name, 200);
        match sanitize::single_line(words, MAX_DESCRIPTION_CHARS) {
            words if words.is_empty() || words == name => name,
            words => format!("{name}  {words}"),
        }
    };
    let resources = offer.resources.iter().chain(&offer.templates);
    list(
        "resources",
        &mut resources.map(|it| {
            about(&it.uri, if it.description.is_empty() { &it.name } else { &it.description })
        }),
    )?;
    let prompts = offer.prompts.iter();
    list("prompts", &mut prompts.map(|it| about(&it.name, &it.description)))?;
    page.finish()
}

/// The names of the arguments; optional ones end with `?`.
fn argument_names(schema: &Value) -> Vec<String> {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
    let members = schema["properties"].as_object().into_iter().flatten();
    members
        .map(|(name, _)| {
            let shown = sanitize::single_line(name, 60);
            if is_required(name) { shown } else { format!("{shown}?") }
        })
        .collect()
}

fn print_tool(
    mcp: &McpContext<'_>,
    (tool, ours): (&ToolInfo, &str),
    is_changed: bool,
) -> Result<()> {
    let mut page = StdoutWriter::new(mcp.ctx.terminal);
    page.write_styled(ours, &Style::new().bold())?;
    let state =
        if is_changed { "changed, and denied until you accept it" } else { describe_hints(tool) };
    page.write(&format!("  ({state})\n\n"))?;
    let width = mcp.ctx.terminal.stdout_width();
    for line in sanitize::clean(tool.description.trim()).lines() {
        page.write(&format!("{}\n", hanging_indent("", line, width)))?;
    }
    page.write("\n")?;
    page.write(&format!("{:#}\n", tool.schema))?;
    page.finish()
}

fn tool_json(server: &McpServer, (tool, ours): (&ToolInfo, &str), is_changed: bool) -> Value {
    json!({
        "name": ours, "tool": tool.name, "title": tool.title, "description": tool.description, "parameters": tool.schema,
        "hints": tool.hints, "offered": server.is_tool_enabled([&tool.name, ours]), "changed": is_changed,
    })
}

fn catalog_json(server: &McpServer, offer: &ServerFeatures, changed: &[String]) -> Value {
    let tools = tool_name::for_tools(&server.name, &offer.tools).into_iter();
    let tools: Vec<Value> = tools
        .map(|(tool, ours)| tool_json(server, (tool, &ours), changed.contains(&tool.name)))
        .collect();
    json!({
        "name": server.name, "server": offer.server, "protocol": offer.protocol, "instructions": offer.instructions,
        "tools": tools, "resources": offer.resources, "templates": offer.templates, "prompts": offer.prompts,
    })
}
