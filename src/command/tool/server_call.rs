//! `tool run SERVER TOOL`: calls a tool of an MCP server, or reads one of its resources. The policy does not apply: the call is the
//! user's.

use crate::cli::policy::ToolRunArgs;
use crate::ops::mcp_servers::{self, McpContext};
use crate::ops::server_errors;
use anyhow::{Context as _, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, Stop, WithHint, fail};
use nanobot_base::json_text::{self, JSON_VERSION};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::servers::McpServer;
use nanobot_mcp::catalog::{CallError, ToolCatalog};
use nanobot_mcp::protocol::{ContentPart, ServerAnswer};
use nanobot_mcp::sanitize;
use nanobot_os::input::read_stdin_value;
use nanobot_os::secret::{redact_all, redact_all_json_text};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Runs `tool run SERVER TOOL`.
pub(super) fn run(mcp: &McpContext<'_>, run_args: &ToolRunArgs, tool: &str) -> Result<Exit> {
    let mut server = mcp.server(&run_args.name)?.clone();
    let arguments = match run_args.arguments.as_deref() {
        Some("-") => read_stdin_value()?,
        text => text.unwrap_or("{}").to_owned(),
    };
    let arguments = serde_json::from_str(&arguments).ok().filter(Value::is_object);
    let arguments = arguments.ok_or_else(|| {
        let hint = format!("nanobot mcp show {} {}", quote(&run_args.name), quote(tool));
        fail(Exit::Usage, "the arguments are not a JSON object").with_hint(hint)
    })?;
    server.call_timeout = run_args.timeout.unwrap_or(server.call_timeout);
    let clock = &mcp.ctx.clock;
    let catalog = ToolCatalog::new(std::slice::from_ref(&server), clock, mcp.client_config.clone());
    let result = call_server(mcp, &catalog, &server, tool, &arguments);
    catalog.shut_down();
    let answer = result?;
    if run_args.json {
        let json = serde_json::to_string(&to_result(&answer)?)?;
        mcp.ctx.terminal.print_json_text(&format!("{json}\n"))?;
    } else {
        print_result(mcp, &answer)?;
    }
    if answer.is_error {
        // The answer itself explains the failure.
        Err(Stop(Exit::Failed).into())
    } else {
        Ok(Exit::Answered)
    }
}

fn call_server(
    mcp: &McpContext<'_>,
    catalog: &ToolCatalog,
    server: &McpServer,
    tool: &str,
    arguments: &Value,
) -> Result<ServerAnswer> {
    if let Some(reason) = &server.unusable_reason {
        return Err(server_errors::unusable_error(server, reason));
    }
    let result = if tool.contains("://") {
        catalog.read_resource(&server.name, tool)
    } else {
        // The user may give the name that models see, too.
        let view =
            catalog.query(&server.name).map_err(|error| server_errors::to_error(server, &error))?;
        let tool = &mcp_servers::find_tool(server, &view.features, tool)?.0.name;
        let mut notice = |text: &str| mcp.ctx.notice(text);
        catalog.call(&server.name, tool, arguments, None, &mut notice)
    };
    result.map_err(|error| call_error(server, tool, error))
}

fn call_error(server: &McpServer, tool: &str, error: CallError) -> anyhow::Error {
    let name = &server.name;
    match error {
        CallError::Changed => {
            let cause =
                format!("`{tool}` of MCP server `{name}` has changed since it was accepted");
            fail(Exit::Refused, cause).with_hint(server.accept_command())
        }
        CallError::NotOffered => {
            fail(Exit::NoInput, format!("MCP server `{name}` no longer has the tool `{tool}`"))
        }
        CallError::Failed(error) => server_errors::to_error(server, &error),
    }
}

/// Prints the answer. A single piece of binary data is written unchanged, unless standard output is a terminal.
fn print_result(mcp: &McpContext<'_>, answer: &ServerAnswer) -> Result<()> {
    let terminal = mcp.ctx.terminal;
    if let [ContentPart::Image { bytes, .. } | ContentPart::Blob { bytes, .. }] =
        answer.parts.as_slice()
        && !terminal.stdout_is_tty
    {
        return terminal.print_bytes(bytes);
    }
    let mut text = String::new();
    for part in &answer.parts {
        text.push_str(&match part {
            ContentPart::Text(text) | ContentPart::Resource { text, .. } => text.clone(),
            ContentPart::PromptMessage { role, text } => format!("{role}: {text}"),
            ContentPart::Image { kind, bytes } => {
                format!("[image: {}, {} bytes]", sanitize::single_line(kind, 80), bytes.len())
            }
            ContentPart::Audio { kind, bytes } => {
                format!("[audio: {}, {bytes} bytes]", sanitize::single_line(kind, 80))
            }
            ContentPart::Blob { uri, bytes, .. } => {
                format!("[{}: {} bytes]", sanitize::single_line(uri, 300), bytes.len())
            }
            ContentPart::Link { uri, name, .. } => {
                format!(
                    "[{}: {}]",
                    sanitize::single_line(name, 200),
                    sanitize::single_line(uri, 300)
                )
            }
        });
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if answer.parts.is_empty()
        && let Some(json) = &answer.structured
    {
        text = format!("{}\n", json_text::indent(json).as_deref().unwrap_or(json));
    }
    terminal.print(&redact_all(&text))
}

/// The result of a call, for `--json`.
#[derive(Serialize)]
struct ServerResult {
    v: u32,
    is_error: bool,
    content: Vec<Value>,
    /// As the server wrote it, since a parsed number can lose digits.
    structured: Option<Box<RawValue>>,
}

fn to_result(answer: &ServerAnswer) -> Result<ServerResult> {
    let part_json = |part: &ContentPart| match part {
        ContentPart::Text(text) => json!({ "type": "text", "text": redact_all(text) }),
        ContentPart::PromptMessage { role, text } => {
            json!({ "type": "message", "role": role, "text": redact_all(text) })
        }
        ContentPart::Image { kind, bytes } => {
            json!({ "type": "image", "kind": kind, "base64": STANDARD.encode(bytes) })
        }
        ContentPart::Audio { kind, bytes } => {
            json!({ "type": "audio", "kind": kind, "bytes": bytes })
        }
        ContentPart::Resource { uri, kind, text } => {
            json!({ "type": "resource", "uri": uri, "kind": kind, "text": redact_all(text) })
        }
        ContentPart::Blob { uri, kind, bytes } => {
            json!({ "type": "blob", "uri": uri, "kind": kind, "base64": STANDARD.encode(bytes) })
        }
        ContentPart::Link { uri, name, description } => {
            json!({ "type": "link", "uri": redact_all(uri), "name": redact_all(name), "description": redact_all(description) })
        }
    };
    let structured = answer.structured.as_deref().map(|json| {
        let json = redact_all_json_text(json).into_owned();
        RawValue::from_string(json).context("redact the structured content")
    });
    Ok(ServerResult {
        v: JSON_VERSION,
        is_error: answer.is_error,
        content: answer.parts.iter().map(part_json).collect(),
        structured: structured.transpose()?,
    })
}
