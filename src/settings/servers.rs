//! The MCP servers of the config, each under `tools.mcpServers.NAME`, with the keys of the Python program and some of
//! our own. An error in one server is stored with that server and only matters when the server is used.

use super::values::{Values, not_blank};
use crate::policy::rule::Pattern;
use crate::sys::secret::Secret;
use anyhow::Result;
use serde_json::{Map, Value};
use std::time::Duration;

/// An MCP server as configured.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// The name as written; it is part of the names of the server's tools.
    pub name: String,
    pub reached: Reached,
    /// Timeout of a call, 30 s by default.
    pub call_timeout: Duration,
    /// Timeout of the server's start until it accepts requests, 30 s by default because some servers download
    /// themselves first.
    pub start_timeout: Duration,
    /// Names or patterns of the enabled tools; `*` enables all tools, resources and prompts.
    pub enabled: Vec<String>,
    /// True if a run must not start without the server.
    pub required: bool,
    /// True if the server is not used at all.
    pub disabled: bool,
    /// Paths, as written, that the server may read (`read`) or change (`write`) in addition to those in its command.
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// True if the server runs without a sandbox.
    pub unfenced: bool,
    /// The reason why the server cannot be used, such as an unset variable.
    pub unusable: Option<String>,
}

/// The transport of an MCP server.
#[derive(Clone, Debug)]
pub enum Reached {
    /// A local program (stdio).
    Program {
        command: String,
        arguments: Vec<String>,
        /// Environment variables in addition to the usual ones.
        env: Vec<(String, Secret)>,
        directory: Option<String>,
    },
    /// Streamable HTTP.
    Http(Remote),
    /// The older HTTP+SSE transport: one event stream, and messages sent by POST.
    Sse(Remote),
}

/// A remote MCP server.
#[derive(Clone, Debug)]
pub struct Remote {
    pub url: String,
    pub headers: Vec<(String, Secret)>,
}

impl Server {
    /// True if a tool with any of `names` is enabled: the server's own name for it, and ours.
    pub fn enables(&self, names: [&str; 2]) -> bool {
        let mut enabled = self.enabled.iter().map(Pattern::new);
        enabled.any(|pattern| names.iter().any(|name| pattern.matches(name)))
    }

    /// True if resources and prompts are enabled in addition to tools.
    pub fn enables_all(&self) -> bool {
        self.enabled.iter().any(|name| name == "*")
    }
}

impl Default for Reached {
    fn default() -> Self {
        Self::Http(Remote {
            url: String::new(),
            headers: Vec::new(),
        })
    }
}

impl Values<'_> {
    /// Returns all servers, by name.
    pub(super) fn servers(&self) -> Vec<Server> {
        let names = self.0.names(&["tools", "mcpServers"]);
        let server = |name: String| {
            let read = self.server(&name);
            read.unwrap_or_else(|error| Server {
                unusable: Some(format!("{error:#}")),
                name,
                ..Server::default()
            })
        };
        names.into_iter().map(server).collect()
    }

    fn server(&self, name: &str) -> Result<Server> {
        let get = |key: &str| self.get_at(&["tools", "mcpServers", name, key]);
        let text =
            |key: &str| -> Result<Option<String>> { Ok(get(key)?.as_str().and_then(not_blank)) };
        let texts = |key: &str| -> Result<Vec<String>> {
            let list = get(key)?;
            let items = list.as_array().into_iter().flatten();
            Ok(items.filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let secrets = |key: &str| -> Result<Vec<(String, Secret)>> {
            let members = match get(key)? {
                Value::Object(members) => members,
                _ => Map::new(),
            };
            let pair = |(name, value): (String, Value)| Some((name, Secret::new(value.as_str()?)));
            Ok(members.into_iter().filter_map(pair).collect())
        };
        let seconds = |key: &str| -> Result<Duration> {
            Ok(Duration::from_secs(get(key)?.as_u64().unwrap_or_default()))
        };
        let is = |key: &str| -> Result<bool> { Ok(get(key)? == Value::Bool(true)) };
        let command = text("command")?;
        let url = text("url")?;
        let kind = text("type")?.map(|kind| kind.to_lowercase());
        let remote = || -> Result<Remote> {
            Ok(Remote {
                url: url.clone().unwrap_or_default(),
                headers: secrets("headers")?,
            })
        };
        let ends_as_sse = |url: &String| url.trim_end_matches('/').ends_with("/sse");
        let mut unusable = match text("auth")? {
            Some(way) if way != "none" => Some(format!(
                "its `auth` is `{way}`: login is not supported; put a token in `headers`"
            )),
            _ => None,
        };
        let reached = match (kind.as_deref(), command) {
            (None | Some("stdio" | "local"), Some(command)) => Reached::Program {
                command,
                arguments: texts("args")?,
                env: secrets("env")?,
                directory: text("cwd")?,
            },
            (Some("stdio" | "local"), None) => {
                unusable.get_or_insert_with(|| "it has no `command`".into());
                Reached::default()
            }
            (Some("sse"), _) => Reached::Sse(remote()?),
            (None, None) if url.as_ref().is_some_and(ends_as_sse) => Reached::Sse(remote()?),
            (None | Some("http" | "streamablehttp" | "streamable-http" | "streamable_http"), _) => {
                Reached::Http(remote()?)
            }
            (Some(other), _) => {
                unusable.get_or_insert_with(|| {
                    format!("its `type` is `{other}`, expected stdio, streamableHttp or sse")
                });
                Reached::default()
            }
        };
        if let Reached::Http(Remote { url, .. }) | Reached::Sse(Remote { url, .. }) = &reached
            && url.is_empty()
        {
            unusable.get_or_insert_with(|| "it has neither a `command` nor a `url`".into());
        }
        Ok(Server {
            name: name.to_owned(),
            reached,
            call_timeout: seconds("toolTimeout")?,
            start_timeout: seconds("startTimeout")?,
            enabled: texts("enabledTools")?,
            required: is("required")?,
            disabled: is("disabled")?,
            read: texts("read")?,
            write: texts("write")?,
            unfenced: get("sandbox")? == Value::String("off".into()),
            unusable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Reached;
    use crate::settings::{Config, Overrides, Settings};
    use crate::sys::env::Env;
    use crate::sys::paths::Paths;
    use std::path::Path;

    #[test]
    fn servers_are_read_as_the_python_program_reads_them() {
        let check = |server: &str, expect: &str| {
            let text = format!(r#"{{"tools": {{"mcpServers": {{"My_s": {server}}}}}}}"#);
            let env: Env = [("HOME", "/home/u"), ("TOKEN", "abc")]
                .into_iter()
                .collect();
            let paths = Paths::resolve(&env, None).unwrap();
            let config = Config::parse(Path::new("c.json"), &text).unwrap();
            let settings = Settings::resolve(&config, &env, &Overrides::default(), &paths).unwrap();
            let server = &settings.servers[0];
            assert_eq!(server.name, "My_s");
            let words = match (&server.unusable, &server.reached) {
                (Some(words), _) => format!("unusable: {words}"),
                (
                    None,
                    Reached::Program {
                        command,
                        arguments,
                        env,
                        ..
                    },
                ) => {
                    format!(
                        "{command} {arguments:?} {:?} {:?}",
                        env.first().map(|it| it.1.expose()),
                        server.call_timeout
                    )
                }
                (None, Reached::Http(remote)) => {
                    format!(
                        "http {} {:?}",
                        remote.url,
                        remote.headers.first().map(|it| it.1.expose())
                    )
                }
                (None, Reached::Sse(remote)) => format!("sse {}", remote.url),
            };
            assert_eq!(words, expect, "{server:?}");
        };
        check(
            r#"{"command": "npx", "args": ["-y", "x"]}"#,
            r#"npx ["-y", "x"] None 30s"#,
        );
        check(
            r#"{"command": "a", "env": {"K": "${TOKEN}"}, "tool_timeout": 5}"#,
            r#"a [] Some("abc") 5s"#,
        );
        check(
            r#"{"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#,
            r#"http https://a.example/mcp Some("Bearer abc")"#,
        );
        check(
            r#"{"url": "https://a.example/sse"}"#,
            "sse https://a.example/sse",
        );
        check(
            r#"{"url": "https://a.example/sse", "type": "streamableHttp"}"#,
            "http https://a.example/sse None",
        );
        check(
            r#"{"url": "https://a.example/x", "type": "sse"}"#,
            "sse https://a.example/x",
        );
        check(r#"{}"#, "unusable: it has neither a `command` nor a `url`");
        check(r#"{"type": "stdio"}"#, "unusable: it has no `command`");
        check(
            r#"{"url": "https://a.example", "auth": "oauth"}"#,
            "unusable: its `auth` is `oauth`: login is not supported; put a token in `headers`",
        );
    }
}
