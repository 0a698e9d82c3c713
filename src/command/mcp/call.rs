//! `mcp call`: calls a tool of a server, or reads one of its resources.

use super::show;
use crate::command::config;
use crate::error::{Exit, Stop, fail, fail_hint};
use crate::mcp::offer::{Answer, Piece};
use crate::mcp::roster::{Missed, Roster};
use crate::mcp::words;
use crate::ops::mcp_servers::{self, McpContext, failure};
use crate::settings::servers::Server;
use crate::sys::secret::{hide, hide_json};
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;

/// The call, as it was typed.
pub(super) struct Call<'a> {
    pub(super) server: &'a str,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a str,
    pub(super) json: bool,
    pub(super) timeout: Option<Duration>,
}

/// Runs `mcp call`.
pub(super) fn run(desk: &McpContext<'_>, call: &Call<'_>) -> Result<Exit> {
    let server = desk.server(call.server)?;
    let arguments = match call.arguments {
        "-" => config::piped()?,
        text => text.to_owned(),
    };
    let arguments: Value = serde_json::from_str(&arguments)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| {
            fail_hint(
                Exit::Usage,
                "the arguments are not a JSON object",
                format!("nanobot mcp show {} {}", call.server, call.tool),
            )
        })?;
    let mut server = server.clone();
    if let Some(timeout) = call.timeout {
        server.call_timeout = timeout;
    }
    let clock = &desk.ctx.clock;
    let roster = Roster::new(std::slice::from_ref(&server), clock, desk.ground.clone());
    let done = ask(desk, &roster, &server, call.tool, &arguments);
    roster.end();
    let answer = done?;
    match call.json {
        true => desk.ctx.terminal.print_json(&object(&answer))?,
        false => print(desk, &answer)?,
    }
    match answer.is_error {
        false => Ok(Exit::Answered),
        // The answer itself explains the failure.
        true => Err(Stop(Exit::Failed).into()),
    }
}

fn ask(
    desk: &McpContext<'_>,
    roster: &Roster,
    server: &Server,
    tool: &str,
    arguments: &Value,
) -> Result<Answer> {
    if let Some(words) = &server.unusable {
        return Err(mcp_servers::cannot(server, words));
    }
    let done = match tool.contains("://") {
        true => roster.read(&server.name, tool),
        false => {
            // Accept our own name of the tool too.
            let look = roster.look(&server.name);
            let look = look.map_err(|failed| failure(server, &failed))?;
            let tool = &show::find(server, &look.offer, tool)?.name;
            let mut say = |text: &str| desk.ctx.notice(text);
            roster.call(&server.name, tool, arguments, &mut say)
        }
    };
    done.map_err(|missed| told(server, tool, missed))
}

fn told(server: &Server, tool: &str, missed: Missed) -> anyhow::Error {
    let name = &server.name;
    match missed {
        Missed::Changed => fail_hint(
            Exit::Refused,
            format!("`{tool}` of MCP server `{name}` has changed since it was accepted"),
            format!("nanobot mcp accept {name}"),
        ),
        Missed::Gone => fail(
            Exit::NoInput,
            format!("MCP server `{name}` no longer has the tool `{tool}`"),
        ),
        Missed::Failed(failed) => failure(server, &failed),
    }
}

/// Prints the answer. A single piece of binary data is written unchanged, unless standard output is a terminal.
fn print(desk: &McpContext<'_>, answer: &Answer) -> Result<()> {
    let terminal = desk.ctx.terminal;
    if let [Piece::Image { bytes, .. } | Piece::Blob { bytes, .. }] = answer.pieces.as_slice()
        && !terminal.out
    {
        return terminal.print_bytes(bytes);
    }
    let mut text = String::new();
    for piece in &answer.pieces {
        text.push_str(&match piece {
            Piece::Text(text) | Piece::Resource { text, .. } => text.clone(),
            Piece::Said { role, text } => format!("{role}: {text}"),
            Piece::Image { kind, bytes } => {
                format!("[image: {}, {} bytes]", words::line(kind, 80), bytes.len())
            }
            Piece::Audio { kind, bytes } => {
                format!("[audio: {}, {bytes} bytes]", words::line(kind, 80))
            }
            Piece::Blob { uri, bytes, .. } => {
                format!("[{}: {} bytes]", words::line(uri, 300), bytes.len())
            }
            Piece::Link { uri, name, .. } => {
                format!("[{}: {}]", words::line(name, 200), words::line(uri, 300))
            }
        });
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if answer.pieces.is_empty()
        && let Some(value) = &answer.structured
    {
        text = format!("{value:#}\n");
    }
    terminal.print(&hide(&text))
}

fn object(answer: &Answer) -> Value {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => json!({ "type": "text", "text": hide(text) }),
        Piece::Said { role, text } => {
            json!({ "type": "message", "role": role, "text": hide(text) })
        }
        Piece::Image { kind, bytes } => {
            json!({ "type": "image", "kind": kind, "base64": STANDARD.encode(bytes) })
        }
        Piece::Audio { kind, bytes } => json!({ "type": "audio", "kind": kind, "bytes": bytes }),
        Piece::Resource { uri, kind, text } => {
            json!({ "type": "resource", "uri": uri, "kind": kind, "text": hide(text) })
        }
        Piece::Blob { uri, kind, bytes } => {
            json!({ "type": "blob", "uri": uri, "kind": kind, "base64": STANDARD.encode(bytes) })
        }
        Piece::Link {
            uri,
            name,
            description,
        } => {
            json!({ "type": "link", "uri": hide(uri), "name": hide(name), "description": hide(description) })
        }
    };
    let pieces: Vec<Value> = answer.pieces.iter().map(piece).collect();
    let structured = answer.structured.as_ref().map(hide_json);
    json!({ "is_error": answer.is_error, "content": pieces, "structured": structured })
}
