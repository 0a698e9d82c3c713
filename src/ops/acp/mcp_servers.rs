//! The MCP servers that an editor adds to those of the config, as it describes them.

use nanobot_base::json_rpc::ErrorObject;
use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
use nanobot_os::secret::LazySecret;
use serde_json::Value;
use std::time::Duration;

/// The timeouts of an editor's MCP servers. They equal the defaults of servers in the config.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Parses `servers`, the list of a request that opens a session.
///
/// # Errors
/// An entry is incomplete or malformed. A server without a part of its entry would do something else than the editor asked for.
pub(super) fn parse(servers: &Value) -> Result<Vec<McpServer>, ErrorObject> {
    let servers = list(servers).ok_or_else(|| invalid("`mcpServers` is not a list"))?;
    servers.iter().map(parse_server).collect()
}

fn parse_server(server: &Value) -> Result<McpServer, ErrorObject> {
    let transport = match &server["type"] {
        Value::Null => ServerTransport::Program {
            command: text(server, "command")?,
            arguments: texts(server, "args")?,
            env: pairs(server, "env")?,
            directory: None,
        },
        kind if kind == "http" => ServerTransport::Http(parse_endpoint(server)?),
        kind if kind == "sse" => ServerTransport::Sse(parse_endpoint(server)?),
        kind => return Err(invalid(format!("an MCP server has the unknown `type` {kind}"))),
    };
    Ok(McpServer {
        name: text(server, "name")?,
        transport,
        call_timeout: SERVER_TIMEOUT,
        start_timeout: SERVER_TIMEOUT,
        enabled_tools: vec!["*".into()],
        ..McpServer::default()
    })
}

fn parse_endpoint(server: &Value) -> Result<RemoteEndpoint, ErrorObject> {
    Ok(RemoteEndpoint {
        url: text(server, "url")?,
        headers: pairs(server, "headers")?,
        uses_login: false,
    })
}

fn text(server: &Value, key: &str) -> Result<String, ErrorObject> {
    let text = server[key].as_str().map(str::to_owned);
    text.ok_or_else(|| invalid(format!("an MCP server has no `{key}`")))
}

fn texts(server: &Value, key: &str) -> Result<Vec<String>, ErrorObject> {
    let texts = list(&server[key]).and_then(|items| {
        items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| invalid(format!("`{key}` of an MCP server is not a list of texts")))
}

/// The `name` and the `value` of each item.
fn pairs(server: &Value, key: &str) -> Result<Vec<(String, LazySecret)>, ErrorObject> {
    let pair = |item: &Value| {
        Some((item["name"].as_str()?.to_owned(), LazySecret::new(item["value"].as_str()?)))
    };
    let pairs =
        list(&server[key]).and_then(|items| items.iter().map(pair).collect::<Option<Vec<_>>>());
    pairs.ok_or_else(|| {
        invalid(format!("`{key}` of an MCP server is not a list of names and values"))
    })
}

/// The items of a list, which may be missing. `None` if it is something else.
fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn invalid(message: impl Into<String>) -> ErrorObject {
    ErrorObject::invalid_params(message)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use serde_json::{Value, json};

    #[test]
    fn a_malformed_entry_is_an_error() {
        let check = |server: Value, expect: &str| {
            let result = parse(&json!([server]));
            let cause = result.err().map(|error| error.message).unwrap_or_default();
            assert_eq!(cause, expect, "{server}");
        };
        let program = |key: &str, value: Value| {
            let mut server = json!({ "name": "s", "command": "c", "args": ["a"], "env": [] });
            server[key] = value;
            server
        };
        let remote = |kind: &str, headers: Value| json!({ "name": "s", "type": kind, "url": "http://x", "headers": headers });
        check(program("env", json!([{ "name": "A", "value": "b" }])), "");
        check(json!({ "name": "s", "command": "c" }), "");
        check(program("name", json!(null)), "an MCP server has no `name`");
        check(program("command", json!(5)), "an MCP server has no `command`");
        let texts = "`args` of an MCP server is not a list of texts";
        check(program("args", json!(["--root", 5])), texts);
        check(program("args", json!("--root")), texts);
        let env = "`env` of an MCP server is not a list of names and values";
        check(program("env", json!({ "A": "b" })), env);
        check(remote("http", json!([])), "");
        check(remote("sse", json!([{ "name": "a", "value": "b" }])), "");
        let headers = "`headers` of an MCP server is not a list of names and values";
        check(remote("http", json!([{ "name": "authorization" }])), headers);
        check(remote("tcp", json!([])), "an MCP server has the unknown `type` \"tcp\"");
    }
}
