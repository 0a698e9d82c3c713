//! Two tools for all MCP servers: one reads resources, one fills in prompts. Both list what is available if the call names
//! nothing.

use super::call::{McpToolContext, to_output};
use super::result::{
    MAX_DESCRIPTION_CHARS, MAX_MEDIA_TYPE_CHARS, MAX_NAME_CHARS, MAX_TITLE_CHARS, MAX_URI_CHARS,
};
use crate::call_result::max_text_chars;
use crate::function_tool::FunctionTool;
use crate::{CallEffect, ToolError, ToolOutput};
use nanobot_base::message::ToolSpec;
use nanobot_config::policy::Refusal;
use nanobot_mcp::protocol::{PromptInfo, ResourceInfo};
use nanobot_mcp::sanitize::{single_line, truncate};
use nanobot_mcp::tool_name::{GET_PROMPT, READ_RESOURCE};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum number of arguments of a prompt in a list, and of characters of each name.
const MAX_ARGUMENTS: usize = 50;
const MAX_ARGUMENT_NAME_CHARS: usize = 60;

/// Builds the tool that reads the resources of servers.
pub(super) fn resource_tool(context: &Arc<McpToolContext>, servers: &[String]) -> FunctionTool {
    let properties = json!({
        "server": { "type": "string", "enum": servers },
        "uri": { "type": "string", "description": "omit to list the resources" },
    });
    let description = "Read a resource of an MCP server, or list them";
    let spec = spec(READ_RESOURCE, description, &properties);
    for_servers(spec, context, servers, read_resource)
}

/// Builds the tool that fills in the prompts of servers.
pub(super) fn prompt_tool(context: &Arc<McpToolContext>, servers: &[String]) -> FunctionTool {
    let properties = json!({
        "server": { "type": "string", "enum": servers },
        "name": { "type": "string", "description": "omit to list the prompts" },
        "arguments": { "type": "object", "description": "texts by argument name" },
    });
    let description = "Get a filled-in prompt of an MCP server, or list them";
    let spec = spec(GET_PROMPT, description, &properties);
    for_servers(spec, context, servers, get_prompt)
}

fn spec(name: &str, description: &str, properties: &Value) -> ToolSpec {
    let parameters = json!({ "type": "object", "required": ["server"], "properties": properties });
    ToolSpec::new(name, description, parameters)
}

/// Builds a tool whose calls name one of `servers`; `run` answers them.
fn for_servers(
    spec: ToolSpec,
    context: &Arc<McpToolContext>,
    servers: &[String],
    run: fn(&McpToolContext, &str, &Value) -> Result<ToolOutput, ToolError>,
) -> FunctionTool {
    let (context, servers) = (Arc::clone(context), servers.to_vec());
    FunctionTool::new(spec, CallEffect::Reads, move |arguments| {
        run(&context, find_server(&servers, arguments)?, arguments)
    })
}

fn read_resource(
    context: &McpToolContext,
    server: &str,
    arguments: &Value,
) -> Result<ToolOutput, ToolError> {
    match arguments["uri"].as_str().filter(|uri| !uri.is_empty()) {
        Some(uri) => {
            check_uri(context, server, uri)?;
            to_output(context, server, None, context.catalog.read_resource(server, uri))
        }
        None => {
            let features = context.catalog.features(server);
            let resources = features.resources.iter().chain(&features.templates);
            Ok(format_list(context, server, resources.map(format_resource)).into())
        }
    }
}

fn get_prompt(
    context: &McpToolContext,
    server: &str,
    arguments: &Value,
) -> Result<ToolOutput, ToolError> {
    match arguments["name"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => {
            let no_arguments = Map::new();
            let prompt_arguments = arguments["arguments"].as_object().unwrap_or(&no_arguments);
            context.provenance.admit_arguments(&arguments["arguments"], &context.allowed_hosts)?;
            let answer = context.catalog.get_prompt(server, name, prompt_arguments);
            to_output(context, server, None, answer)
        }
        None => {
            let features = context.catalog.features(server);
            Ok(format_list(context, server, features.prompts.iter().map(format_prompt)).into())
        }
    }
}

/// The server that the arguments name.
fn find_server<'a>(servers: &[String], arguments: &'a Value) -> Result<&'a str, ToolError> {
    let name = arguments["server"].as_str().unwrap_or_default();
    if servers.iter().any(|server| server == name) {
        Ok(name)
    } else {
        Err(format!("there is no server `{name}`").into())
    }
}

/// Checks that `uri` of `server` may be read. Once the context holds untrusted content, the URI must be one that the
/// server lists, or match one of its templates and contain no data that must not be sent out.
fn check_uri(context: &McpToolContext, server: &str, uri: &str) -> Result<(), Refusal> {
    let Some(untrusted) = context.provenance.untrusted_content() else {
        return Ok(());
    };
    let features = context.catalog.features(server);
    if features.resources.iter().any(|resource| resource.uri == uri) {
        return Ok(());
    }
    if features.templates.iter().any(|template| matches_template(&template.uri, uri)) {
        return context.provenance.admit_arguments(&json!(uri), &context.allowed_hosts);
    }
    Err(Refusal::new(format!(
        "the conversation contains untrusted content ({untrusted}), so only resources that `{}` lists may be read",
        single_line(server, MAX_NAME_CHARS)
    )))
}

/// True if `uri` is `template` with its placeholders filled in.
fn matches_template(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let Some(mut rest) = uri.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some((_, literal)) = part.split_once('}') else {
            return false;
        };
        is_open = literal.is_empty();
        match rest.find(literal) {
            Some(index) => rest = &rest[index + literal.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

/// The `lines` of `server`, cut to the limit for a result.
fn format_list(
    context: &McpToolContext,
    server: &str,
    lines: impl Iterator<Item = String>,
) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        format!("server `{}` lists nothing", single_line(server, MAX_NAME_CHARS))
    } else {
        truncate(&lines.join("\n"), max_text_chars(context.limits.max_result_chars))
    }
}

fn format_resource(resource: &ResourceInfo) -> String {
    let ResourceInfo { uri, name, description, kind } = resource;
    let kind = kind.as_ref().map(|kind| format!(" ({})", single_line(kind, MAX_MEDIA_TYPE_CHARS)));
    let text =
        single_line(if description.is_empty() { name } else { description }, MAX_DESCRIPTION_CHARS);
    format!("{}{}: {text}", single_line(uri, MAX_URI_CHARS), kind.unwrap_or_default())
}

fn format_prompt(prompt: &PromptInfo) -> String {
    let PromptInfo { name, description, arguments } = prompt;
    let arguments = arguments.iter().take(MAX_ARGUMENTS).map(|argument| {
        let name = single_line(&argument.name, MAX_ARGUMENT_NAME_CHARS);
        if argument.required { name } else { format!("{name}?") }
    });
    let arguments: Vec<String> = arguments.collect();
    let name = single_line(name, MAX_TITLE_CHARS);
    format!("{name}({}): {}", arguments.join(", "), single_line(description, MAX_DESCRIPTION_CHARS))
}

#[cfg(test)]
mod tests {
    use super::matches_template;

    #[test]
    fn uris_match_templates() {
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
            assert_eq!(matches_template(template, uri), expect, "{template} {uri}");
        }
    }
}
