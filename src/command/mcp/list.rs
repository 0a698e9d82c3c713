//! `mcp list`: lists the servers and what is stored about each. No server is started.

use crate::error::Exit;
use crate::mcp::cache::Known;
use crate::mcp::offer::Offer;
use crate::mcp::{name, schema, words};
use crate::message::token_estimate;
use crate::ops::mcp_servers::McpContext;
use crate::report::columns::{Side, aligned, clipped};
use crate::settings::servers::{Reached, Server};
use crate::sys::terminal::{Page, harmless};
use crate::sys::web_url;
use anyhow::Result;
use serde_json::{Value, json};

/// The stored facts about one server.
struct Row<'s> {
    server: &'s Server,
    offer: Option<Offer>,
    /// Tools that have changed since they were accepted.
    changed: Vec<String>,
    /// Tools that no person has accepted.
    unaccepted: Vec<String>,
    /// The server's problem, if any.
    error: Option<String>,
}

/// Runs `mcp list`.
pub(super) fn run(desk: &McpContext<'_>, as_json: bool) -> Result<Exit> {
    let rows: Vec<Row<'_>> = desk
        .servers
        .iter()
        .map(|server| look(desk, server))
        .collect::<Result<_>>()?;
    if as_json {
        for row in &rows {
            desk.ctx
                .terminal
                .print_json_text(&format!("{}\n", object(row)))?;
        }
        return Ok(Exit::Answered);
    }
    if rows.is_empty() {
        desk.ctx
            .notice("there are no MCP servers; see `nanobot mcp add --help`");
    }
    let columns = [
        ("SERVER", Side::Left),
        ("BY", Side::Left),
        ("TOOLS", Side::Right),
        ("TOKENS", Side::Right),
        ("STATE", Side::Left),
        ("IS", Side::Left),
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let mut page = Page::on(desk.ctx.terminal);
    for line in aligned(&columns, &cells) {
        page.put(&format!("{}\n", clipped(&line, desk.ctx.terminal.width())))?;
    }
    page.end()?;
    Ok(Exit::Answered)
}

fn look<'s>(desk: &McpContext<'_>, server: &'s Server) -> Result<Row<'s>> {
    let (offer, failed) = match desk.cache.get(server) {
        Some(Known::Offers(offer)) => (Some(offer), None),
        Some(Known::Failed { words, .. }) => (None, Some(words)),
        None => (None, None),
    };
    let checks = match &offer {
        Some(offer) => desk.pins.changed(&[(server, offer)])?,
        None => Vec::new(),
    };
    let pin_check = checks.into_iter().next().unwrap_or_default();
    let changed = pin_check.changed.into_iter();
    Ok(Row {
        server,
        changed: changed.map(|change| change.tool).collect(),
        unaccepted: pin_check.unaccepted.into_iter().collect(),
        error: server.unusable.clone().or(failed),
        offer,
    })
}

/// The transport of a server.
pub(super) fn way(server: &Server) -> &'static str {
    match &server.reached {
        Reached::Program { .. } => "stdio",
        Reached::Http(_) => "http",
        Reached::Sse(_) => "sse",
    }
}

/// The number of its tools that are offered to the model, and the tokens they take in each request.
fn told(server: &Server, offer: &Offer) -> (usize, u64) {
    let mut count = 0;
    let mut tokens = 0;
    for tool in &offer.tools {
        let ours = name::wrapped(&server.name, &tool.name);
        if server.enables([&tool.name, &ours]) {
            let words = words::description(&server.name, tool.title.as_deref(), &tool.description);
            count += 1;
            tokens += token_estimate::of_text(&ours)
                + token_estimate::of_text(&words)
                + token_estimate::of_value(&schema::fit(&tool.schema));
        }
    }
    (count, tokens)
}

/// The server's program or address, without arguments and parameters, which may be secret.
fn place(server: &Server) -> String {
    match &server.reached {
        Reached::Program { command, .. } => command.clone(),
        Reached::Http(remote) | Reached::Sse(remote) => web_url::redacted(&remote.url),
    }
}

fn state(row: &Row<'_>) -> String {
    let Row {
        server,
        offer,
        changed,
        unaccepted,
        error,
    } = row;
    if server.disabled {
        return "disabled".into();
    }
    match (error, offer, changed.len()) {
        (Some(words), ..) => words::line(words, 200),
        (None, None, _) => "not contacted yet".into(),
        (None, Some(_), 0) if unaccepted.is_empty() => "ok".into(),
        (None, Some(_), 0) => {
            let count = unaccepted.len();
            format!(
                "{count} not accepted yet: `nanobot mcp accept {}`",
                server.name
            )
        }
        (None, Some(_), count) => format!("{count} changed: `nanobot mcp accept {}`", server.name),
    }
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let (count, tokens) = match &row.offer {
        Some(offer) => {
            let (count, tokens) = told(row.server, offer);
            (count.to_string(), tokens.to_string())
        }
        None => ("-".into(), "-".into()),
    };
    let name = harmless(&row.server.name).replace(['\n', '\t'], " ");
    let place = harmless(&place(row.server)).replace(['\n', '\t'], " ");
    vec![
        name,
        way(row.server).into(),
        count,
        tokens,
        state(row),
        place,
    ]
}

fn object(row: &Row<'_>) -> Value {
    let Row {
        server,
        offer,
        changed,
        unaccepted,
        error,
    } = row;
    let counts = offer.as_ref().map(|offer| told(server, offer));
    json!({
        "name": server.name, "by": way(server), "place": place(server), "disabled": server.disabled, "required": server.required,
        "tools": counts.map(|counts| counts.0), "tokens": counts.map(|counts| counts.1),
        "resources": offer.as_ref().map(|offer| offer.resources.len() + offer.templates.len()),
        "prompts": offer.as_ref().map(|offer| offer.prompts.len()),
        "protocol": offer.as_ref().map(|offer| &offer.protocol), "server": offer.as_ref().map(|offer| &offer.server),
        "changed": changed, "unaccepted": unaccepted,
        "error": error.clone().or_else(|| (!changed.is_empty()).then(|| state(row))),
    })
}
