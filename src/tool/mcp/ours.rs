//! Our own two tools for MCP servers: one reads resources, one fills in prompts. Both list what is available if the
//! call names nothing.

use super::call::{Means, given};
use crate::mcp::name::{PROMPT, RESOURCE};
use crate::mcp::offer::{Prompt, Resource};
use crate::mcp::words::{line, short};
use crate::message::ToolSpec;
use crate::policy::Refusal;
use crate::tool::function_tool::FunctionTool;
use crate::tool::{Effect, Failure, Output};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Builds the tool that reads the resources of servers.
pub(super) fn resources(means: &Arc<Means>, servers: &[String]) -> FunctionTool {
    let properties = json!({
        "server": { "type": "string", "enum": servers },
        "uri": { "type": "string", "description": "omit to list the resources" },
    });
    let description = "Read a resource of an MCP server, or list them";
    let spec = spec(RESOURCE, description, &properties);
    for_servers(spec, means, servers, read_resource)
}

/// Builds the tool that fills in the prompts of servers.
pub(super) fn prompts(means: &Arc<Means>, servers: &[String]) -> FunctionTool {
    let properties = json!({
        "server": { "type": "string", "enum": servers },
        "name": { "type": "string", "description": "omit to list the prompts" },
        "arguments": { "type": "object", "description": "texts by argument name" },
    });
    let description = "Get a filled-in prompt of an MCP server, or list them";
    let spec = spec(PROMPT, description, &properties);
    for_servers(spec, means, servers, get_prompt)
}

fn spec(name: &str, description: &str, properties: &Value) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: description.into(),
        parameters: json!({ "type": "object", "required": ["server"], "properties": properties }),
    }
}

/// Builds a tool whose calls name one of `servers`; `run` answers them.
fn for_servers(
    spec: ToolSpec,
    means: &Arc<Means>,
    servers: &[String],
    run: fn(&Means, &str, &Value) -> Result<Output, Failure>,
) -> FunctionTool {
    let (means, servers) = (Arc::clone(means), servers.to_vec());
    FunctionTool::new(spec, Effect::Reads, move |arguments| {
        run(&means, known(&servers, arguments)?, arguments)
    })
}

fn read_resource(means: &Means, server: &str, arguments: &Value) -> Result<Output, Failure> {
    match arguments["uri"].as_str().filter(|uri| !uri.is_empty()) {
        Some(uri) => {
            allowed(means, server, uri)?;
            given(means, server, None, means.roster.read(server, uri))
        }
        None => {
            let offer = means.roster.known(server);
            let all = offer.resources.iter().chain(&offer.templates);
            Ok(listed(means, server, all.map(resource)).into())
        }
    }
}

fn get_prompt(means: &Means, server: &str, arguments: &Value) -> Result<Output, Failure> {
    match arguments["name"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => {
            let none = Map::new();
            let filled = arguments["arguments"].as_object().unwrap_or(&none);
            means
                .seen
                .allows_sent(&arguments["arguments"], &means.free)?;
            let answer = means.roster.prompt(server, name, filled);
            given(means, server, None, answer)
        }
        None => {
            let offer = means.roster.known(server);
            Ok(listed(means, server, offer.prompts.iter().map(prompt)).into())
        }
    }
}

/// The server that the arguments name.
fn known<'a>(servers: &[String], arguments: &'a Value) -> Result<&'a str, Failure> {
    let name = arguments["server"].as_str().unwrap_or_default();
    match servers.iter().any(|server| server == name) {
        true => Ok(name),
        false => Err(format!("there is no server `{name}`").into()),
    }
}

/// Checks that `uri` of `server` may be read. Once the context holds untrusted content, the URI must be one that the
/// server lists, or match one of its templates and contain nothing that must not be sent out.
fn allowed(means: &Means, server: &str, uri: &str) -> Result<(), Refusal> {
    let Some(what) = means.seen.untrusted() else {
        return Ok(());
    };
    let offer = means.roster.known(server);
    if offer.resources.iter().any(|listed| listed.uri == uri) {
        return Ok(());
    }
    if offer.templates.iter().any(|it| fills(&it.uri, uri)) {
        return means.seen.allows_sent(&json!(uri), &means.free);
    }
    Err(Refusal::of(format!(
        "the conversation contains untrusted content ({what}), so only resources that `{}` lists may be read",
        line(server, 64)
    )))
}

/// True if `uri` is `template` with its placeholders filled in.
fn fills(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let Some(mut rest) = uri.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some((_, plain)) = part.split_once('}') else {
            return false;
        };
        is_open = plain.is_empty();
        match rest.find(plain) {
            Some(at) => rest = &rest[at + plain.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

/// The `lines` of `server`, cut to the limit for a result.
fn listed(means: &Means, server: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.collect();
    match lines.is_empty() {
        true => format!("server `{}` lists nothing", line(server, 64)),
        false => short(&lines.join("\n"), means.limits.result / 16 * 15),
    }
}

fn resource(resource: &Resource) -> String {
    let Resource {
        uri,
        name,
        description,
        kind,
    } = resource;
    let kind = kind.as_ref().map(|kind| format!(" ({})", line(kind, 40)));
    let words = match description.is_empty() {
        true => line(name, 200),
        false => line(description, 200),
    };
    format!("{}{}: {words}", line(uri, 500), kind.unwrap_or_default())
}

fn prompt(prompt: &Prompt) -> String {
    let Prompt {
        name,
        description,
        arguments,
    } = prompt;
    let argument = |argument: &crate::mcp::offer::Argument| match argument.required {
        true => line(&argument.name, 60),
        false => format!("{}?", line(&argument.name, 60)),
    };
    let arguments: Vec<String> = arguments.iter().take(50).map(argument).collect();
    let name = line(name, 100);
    format!(
        "{name}({}): {}",
        arguments.join(", "),
        line(description, 200)
    )
}

#[cfg(test)]
mod tests {
    use super::fills;

    #[test]
    fn templates_have_room_for_some() {
        for (template, uri, expect) in [
            ("x://a", "x://a", true),
            ("x://a", "x://ab", false),
            ("x://{name}", "x://ab/c", true),
            ("x://{name}/log", "x://ab/log", true),
            ("x://{name}/log", "x://ab/log/more", false),
            ("x://{a}/{b}", "x://ab", false),
            ("x://{name}", "https://evil.example", false),
            ("x://{name", "x://ab", false),
        ] {
            assert_eq!(fills(template, uri), expect, "{template} {uri}");
        }
    }
}
