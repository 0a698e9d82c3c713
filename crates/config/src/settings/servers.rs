//! The MCP servers of the config, each under `tools.mcpServers.NAME`, with the keys of the Python program and some of
//! our own. An error in one server is stored with that server and only matters when the server is used.

use super::key_spelling::format_path;
use super::typed_reader::{TypedReader, not_blank};
use crate::policy::rule::Pattern;
use anyhow::Result;
use nanobot_base::shell_quote::quote;
use nanobot_os::secret::LazySecret;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// An MCP server as configured.
#[derive(Clone, Debug, Default)]
pub struct McpServer {
    /// The name as written; it is part of the names of the server's tools.
    pub name: String,
    pub transport: ServerTransport,
    /// Timeout of a call.
    pub call_timeout: Duration,
    /// Timeout of the server's start until it accepts requests. The default is long, because some servers download themselves first.
    pub start_timeout: Duration,
    /// Names or patterns of the enabled tools; `*` enables all tools, resources and prompts.
    pub enabled_tools: Vec<String>,
    /// True if a run must not start without the server.
    pub is_required: bool,
    /// True if the server is not used at all.
    pub is_disabled: bool,
    /// Paths, as written, that the server may read (`read`) or change (`write`) in addition to those in its command.
    pub read_paths: Vec<String>,
    pub write_paths: Vec<String>,
    /// True if the server runs without a sandbox.
    pub is_unsandboxed: bool,
    /// True if the user trusts the results of the server.
    pub is_trusted: bool,
    /// The server's access to the model.
    pub sampling: SamplingMode,
    /// The reason why the server cannot be used, such as an unset variable.
    pub unusable_reason: Option<String>,
    /// The file that it comes from, if it is not of the config.
    pub file: Option<PathBuf>,
}

/// The access of an MCP server to the model, during calls of its tools (sampling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplingMode {
    #[default]
    Off,
    /// The user is asked for each reply.
    Ask,
    On,
}

impl SamplingMode {
    fn from_config(value: &Value) -> Self {
        match value.as_str() {
            Some("on") => Self::On,
            Some("ask") => Self::Ask,
            _ => Self::Off,
        }
    }
}

/// The transport of an MCP server.
#[derive(Clone, Debug)]
pub enum ServerTransport {
    /// A local program (stdio).
    Program {
        command: String,
        arguments: Vec<String>,
        /// Environment variables in addition to the usual ones.
        env: Vec<(String, LazySecret)>,
        directory: Option<String>,
    },
    /// Streamable HTTP.
    Http(RemoteEndpoint),
    /// The older HTTP+SSE transport: one event stream, and messages sent by POST.
    Sse(RemoteEndpoint),
}

/// A remote MCP server.
#[derive(Clone, Debug)]
pub struct RemoteEndpoint {
    pub url: String,
    pub headers: Vec<(String, LazySecret)>,
    /// True if requests carry the token of a login (OAuth).
    pub uses_login: bool,
}

impl McpServer {
    /// The command that shows and accepts the changes of its tools.
    pub fn accept_command(&self) -> String {
        let command = format!("nanobot mcp accept {}", quote(&self.name));
        match &self.file {
            Some(file) => format!("{command} --mcp {}", quote(&file.display().to_string())),
            None => command,
        }
    }

    /// True if a tool with any of `names` is enabled: the server's own name for it, and ours.
    pub fn is_tool_enabled(&self, names: [&str; 2]) -> bool {
        let mut enabled = self.enabled_tools.iter().map(Pattern::new);
        enabled.any(|pattern| names.iter().any(|name| pattern.matches(name)))
    }

    /// True if resources and prompts are enabled in addition to tools.
    pub fn is_everything_enabled(&self) -> bool {
        self.enabled_tools.iter().any(|name| name == "*")
    }
}

/// The path of a key of the entry of the server `name`, as a word of a shell command; `members` are the names below the entry.
pub fn quoted_key(name: &str, members: &[&str]) -> String {
    let path: Vec<&str> =
        ["tools", "mcpServers", name].into_iter().chain(members.iter().copied()).collect();
    quote(&format_path(&path))
}

impl Default for ServerTransport {
    fn default() -> Self {
        Self::Http(RemoteEndpoint { url: String::new(), headers: Vec::new(), uses_login: false })
    }
}

impl TypedReader<'_> {
    /// Returns all servers, by name.
    pub(super) fn servers(&self) -> Vec<McpServer> {
        let names = self.0.names(&["tools", "mcpServers"]);
        let server = |name: String| {
            self.server(&name).unwrap_or_else(|error| McpServer {
                unusable_reason: Some(format!("{error:#}")),
                name,
                ..McpServer::default()
            })
        };
        names.into_iter().map(server).collect()
    }

    fn server(&self, name: &str) -> Result<McpServer> {
        let get = |key: &str| self.get_at(&["tools", "mcpServers", name, key]);
        let text =
            |key: &str| -> Result<Option<String>> { Ok(get(key)?.as_str().and_then(not_blank)) };
        let texts = |key: &str| -> Result<Vec<String>> {
            let list = get(key)?;
            let items = list.as_array().into_iter().flatten();
            Ok(items.filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let secrets = |key: &str| -> Result<Vec<(String, LazySecret)>> {
            self.secrets_at(&["tools", "mcpServers", name, key])
        };
        let seconds = |key: &str| -> Result<Duration> {
            Ok(Duration::from_secs(get(key)?.as_u64().unwrap_or_default()))
        };
        let boolean = |key: &str| -> Result<bool> { Ok(get(key)? == Value::Bool(true)) };
        let command = text("command")?;
        let url = text("url")?;
        let kind = text("type")?.map(|kind| kind.to_lowercase());
        let remote = || -> Result<RemoteEndpoint> {
            Ok(RemoteEndpoint {
                url: url.clone().unwrap_or_default(),
                headers: secrets("headers")?,
                uses_login: text("auth")?.as_deref() == Some("oauth"),
            })
        };
        let is_sse = (url.as_ref()).is_some_and(|url| url.trim_end_matches('/').ends_with("/sse"));
        let mut unusable_reason = text("auth")?.and_then(|auth| unsupported_login(&auth));
        let transport = match (kind.as_deref(), command) {
            (None | Some("stdio" | "local"), Some(command)) => ServerTransport::Program {
                command,
                arguments: texts("args")?,
                env: secrets("env")?,
                directory: text("cwd")?,
            },
            (Some("stdio" | "local"), None) => {
                unusable_reason.get_or_insert_with(|| "it has no `command`".into());
                ServerTransport::default()
            }
            (Some("sse"), _) => ServerTransport::Sse(remote()?),
            (None, None) if is_sse => ServerTransport::Sse(remote()?),
            (None | Some("http" | "streamablehttp" | "streamable-http" | "streamable_http"), _) => {
                ServerTransport::Http(remote()?)
            }
            (Some(other), _) => {
                unusable_reason.get_or_insert_with(|| {
                    format!("its `type` is `{other}`, expected stdio, streamableHttp or sse")
                });
                ServerTransport::default()
            }
        };
        if let ServerTransport::Http(RemoteEndpoint { url, .. })
        | ServerTransport::Sse(RemoteEndpoint { url, .. }) = &transport
            && url.is_empty()
        {
            unusable_reason.get_or_insert_with(|| "it has neither a `command` nor a `url`".into());
        }
        Ok(McpServer {
            name: name.to_owned(),
            transport,
            call_timeout: seconds("toolTimeout")?,
            start_timeout: seconds("startTimeout")?,
            enabled_tools: texts("enabledTools")?,
            is_required: boolean("required")?,
            is_disabled: boolean("disabled")?,
            read_paths: texts("read")?,
            write_paths: texts("write")?,
            is_unsandboxed: get("sandbox")? == Value::String("off".into()),
            is_trusted: boolean("trusted")?,
            sampling: SamplingMode::from_config(&get("sampling")?),
            unusable_reason,
            file: None,
        })
    }
}

/// The reason why a server with this value of `auth` cannot be used.
fn unsupported_login(auth: &str) -> Option<String> {
    let is_supported = ["oauth", "none"].contains(&auth);
    (!is_supported).then(|| format!("its `auth` is `{auth}`, expected oauth or none"))
}

#[cfg(test)]
mod tests {
    use super::ServerTransport;
    use crate::settings::{Config, FlagOverrides, Settings};
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use std::path::Path;

    #[test]
    fn servers_are_read_as_the_python_program_reads_them() {
        let check = |server: &str, expect: &str| {
            let text = format!(r#"{{"tools": {{"mcpServers": {{"My_s": {server}}}}}}}"#);
            let env: Env = [("HOME", "/home/u"), ("TOKEN", "abc")].into_iter().collect();
            let paths = Paths::resolve(&env, None).unwrap();
            let config = Config::parse(Path::new("c.json"), &text).unwrap();
            let settings =
                Settings::resolve(&config, &env, &FlagOverrides::default(), &paths).unwrap();
            let server = &settings.servers[0];
            assert_eq!(server.name, "My_s");
            let text = match (&server.unusable_reason, &server.transport) {
                (Some(text), _) => format!("unusable: {text}"),
                (None, ServerTransport::Program { command, arguments, env, .. }) => {
                    format!(
                        "{command} {arguments:?} {:?} {:?}",
                        env.first().map(|(_, secret)| secret.identity()),
                        server.call_timeout
                    )
                }
                (None, ServerTransport::Http(remote)) => {
                    format!(
                        "http {} {:?}",
                        remote.url,
                        remote.headers.first().map(|(_, secret)| secret.identity())
                    )
                }
                (None, ServerTransport::Sse(remote)) => format!("sse {}", remote.url),
            };
            assert_eq!(text, expect, "{server:?}");
        };
        check(r#"{"command": "npx", "args": ["-y", "x"]}"#, r#"npx ["-y", "x"] None 30s"#);
        check(
            r#"{"command": "a", "env": {"K": "${TOKEN}"}, "tool_timeout": 5}"#,
            r#"a [] Some("abc") 5s"#,
        );
        check(
            r#"{"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#,
            r#"http https://a.example/mcp Some("Bearer abc")"#,
        );
        check(r#"{"url": "https://a.example/sse"}"#, "sse https://a.example/sse");
        check(
            r#"{"url": "https://a.example/sse", "type": "streamableHttp"}"#,
            "http https://a.example/sse None",
        );
        check(r#"{"url": "https://a.example/x", "type": "sse"}"#, "sse https://a.example/x");
        check(r#"{}"#, "unusable: it has neither a `command` nor a `url`");
        check(r#"{"type": "stdio"}"#, "unusable: it has no `command`");
        check(
            r#"{"url": "https://a.example", "auth": "basic"}"#,
            "unusable: its `auth` is `basic`, expected oauth or none",
        );
    }
}
