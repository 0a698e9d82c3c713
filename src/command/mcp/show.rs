//! `mcp show`: prints what a server offers, from the stored copy; without one, the server is contacted.

use crate::error::{Exit, fail_hint};
use crate::mcp::cache::Known;
use crate::mcp::offer::{Offer, Offered};
use crate::mcp::{name, words};
use crate::ops::mcp_servers::McpContext;
use crate::report::columns::hanging_indent;
use crate::settings::keys::nearest;
use crate::settings::servers::Server;
use crate::sys::terminal::Page;
use anyhow::Result;
use console::Style;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum characters of a description in the list of tools.
const SHORT: usize = 160;

/// Runs `mcp show`.
pub(super) fn run(
    desk: &McpContext<'_>,
    server: &str,
    tool: Option<&str>,
    as_json: bool,
) -> Result<Exit> {
    let server = desk.server(server)?;
    let (offer, changes) = match desk.cache.get(server) {
        Some(Known::Offers(offer)) => {
            let checks = desk.pins.changed(&[(server, &offer)])?;
            (
                Arc::new(offer),
                checks.into_iter().flat_map(|check| check.changed).collect(),
            )
        }
        Some(Known::Failed { .. }) | None => {
            let look = desk.reach(server)?;
            (look.offer, look.changed)
        }
    };
    desk.roster.end();
    let changed: Vec<String> = changes.into_iter().map(|change| change.tool).collect();
    match tool {
        None if as_json => desk
            .ctx
            .terminal
            .print_json(&all(server, &offer, &changed))?,
        None => page(desk, server, &offer, &changed)?,
        Some(given) => {
            let found = find(server, &offer, given)?;
            let is_changed = changed.contains(&found.name);
            match as_json {
                true => {
                    let object = object(server, found, is_changed);
                    desk.ctx.terminal.print_json(&object)?;
                }
                false => one(desk, server, found, is_changed)?,
            }
        }
    }
    Ok(Exit::Answered)
}

/// Finds a tool by the server's name for it or by ours.
pub(super) fn find<'o>(server: &Server, offer: &'o Offer, given: &str) -> Result<&'o Offered> {
    let is_it =
        |tool: &&Offered| tool.name == given || name::wrapped(&server.name, &tool.name) == given;
    offer.tools.iter().find(is_it).ok_or_else(|| {
        let names = offer.tools.iter().map(|tool| tool.name.as_str());
        let hint = match nearest(given, names) {
            Some(meant) => format!("`{}`", words::line(meant, 80)),
            None => format!("nanobot mcp show {}", server.name),
        };
        let cause = format!("MCP server `{}` has no tool `{given}`", server.name);
        fail_hint(Exit::NoInput, cause, hint)
    })
}

/// The hints that the server gives about a tool.
fn claims(tool: &Offered) -> &'static str {
    match (tool.hints.reads_only, tool.hints.destructive) {
        (Some(true), Some(true)) => "contradictory hints",
        (Some(true), _) => "read-only, it claims",
        (_, Some(false)) => "not destructive, it claims",
        _ => "may make changes",
    }
}

fn page(desk: &McpContext<'_>, server: &Server, offer: &Offer, changed: &[String]) -> Result<()> {
    let bold = Style::new().bold();
    let width = desk.ctx.terminal.width();
    let mut page = Page::on(desk.ctx.terminal);
    page.paint(&words::line(&server.name, 80), &bold)?;
    page.put(&format!(
        ": {}, MCP {}\n",
        words::line(&offer.server, 80),
        words::line(&offer.protocol, 20)
    ))?;
    for tool in &offer.tools {
        let ours = name::wrapped(&server.name, &tool.name);
        let state = match (
            server.enables([&tool.name, &ours]),
            changed.contains(&tool.name),
        ) {
            (false, _) => "not offered (`enabledTools`)",
            (true, true) => "changed, and denied until you accept it",
            (true, false) => claims(tool),
        };
        page.put("\n")?;
        page.paint(&ours, &bold)?;
        page.put(&format!("  ({state})\n"))?;
        let about = words::line(&tool.description, SHORT);
        if !about.is_empty() {
            page.put(&format!("{}\n", hanging_indent("    ", &about, width)))?;
        }
        let names = arguments(&tool.schema);
        if !names.is_empty() {
            let line = hanging_indent("    arguments: ", &names.join(", "), width);
            page.put(&format!("{line}\n"))?;
        }
    }
    let mut list = |head: &str, rows: &mut dyn Iterator<Item = String>| -> Result<()> {
        let rows: Vec<String> = rows.collect();
        if !rows.is_empty() {
            page.put("\n")?;
            page.paint(head, &bold)?;
            page.put("\n")?;
            for row in rows {
                page.put(&format!("{}\n", hanging_indent("    ", &row, width)))?;
            }
        }
        Ok(())
    };
    let about = |name: &str, words: &str| {
        let name = words::line(name, 200);
        match words::line(words, SHORT) {
            words if words.is_empty() || words == name => name,
            words => format!("{name}  {words}"),
        }
    };
    let resources = offer.resources.iter().chain(&offer.templates);
    list(
        "resources",
        &mut resources.map(|it| {
            about(
                &it.uri,
                match it.description.is_empty() {
                    true => &it.name,
                    false => &it.description,
                },
            )
        }),
    )?;
    let prompts = offer.prompts.iter();
    list(
        "prompts",
        &mut prompts.map(|it| about(&it.name, &it.description)),
    )?;
    page.end()
}

/// The names of the arguments; optional ones end with `?`.
fn arguments(schema: &Value) -> Vec<String> {
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
    let members = schema["properties"].as_object().into_iter().flatten();
    members
        .map(|(name, _)| {
            let shown = words::line(name, 60);
            match is_required(name) {
                true => shown,
                false => format!("{shown}?"),
            }
        })
        .collect()
}

fn one(desk: &McpContext<'_>, server: &Server, tool: &Offered, is_changed: bool) -> Result<()> {
    let ours = name::wrapped(&server.name, &tool.name);
    let mut page = Page::on(desk.ctx.terminal);
    page.paint(&ours, &Style::new().bold())?;
    let state = match is_changed {
        true => "changed, and denied until you accept it",
        false => claims(tool),
    };
    page.put(&format!("  ({state})\n\n"))?;
    let width = desk.ctx.terminal.width();
    for line in words::clean(tool.description.trim()).lines() {
        page.put(&format!("{}\n", hanging_indent("", line, width)))?;
    }
    page.put("\n")?;
    page.put(&format!("{:#}\n", tool.schema))?;
    page.end()
}

fn object(server: &Server, tool: &Offered, is_changed: bool) -> Value {
    let ours = name::wrapped(&server.name, &tool.name);
    json!({
        "name": ours, "tool": tool.name, "title": tool.title, "description": tool.description, "parameters": tool.schema,
        "hints": tool.hints, "offered": server.enables([&tool.name, &ours]), "changed": is_changed,
    })
}

fn all(server: &Server, offer: &Offer, changed: &[String]) -> Value {
    let tools = offer.tools.iter();
    let tools: Vec<Value> = tools
        .map(|tool| object(server, tool, changed.contains(&tool.name)))
        .collect();
    json!({
        "name": server.name, "server": offer.server, "protocol": offer.protocol, "instructions": offer.instructions,
        "tools": tools, "resources": offer.resources, "templates": offer.templates, "prompts": offer.prompts,
    })
}
