//! The MCP client: the connections of a run to its servers, which are started as needed. Calls block the caller until the
//! answer, the deadline or the end of the run. Threads read from and write to the servers.
//!
//! [`slot`] holds the connection to one server, with its features, which [`listing`] requests. [`connection`] sends
//! requests, whose callers wait with [`reply`]; [`inbox`] receives, [`elicitation`] answers questions to the user, and
//! [`sampling`] passes requests for the model on to the caller's turn.
//! They share the [`connection_state`]. The transports are [`stdio`] for a [`program`], and [`http`] and [`sse`], both
//! over [`http_exchange`]. Messages are parsed by [`nanobot_base::json_rpc`] and [`decode`].

use super::protocol::{McpError, ServerAnswer, ServerFeatures};
pub use config::{ClientConfig, ElicitationHandler};
use connection::ServerRequest;
pub use grants::{ChangeablePaths, FileGrant, SandboxFactory, SandboxedSpec};
pub use named_files::{UnmakeableFile, unmakeable_files};
use nanobot_config::settings::servers::{McpServer, SamplingMode};
use nanobot_os::cancel;
use nanobot_os::paths::Paths;
use nanobot_os::signal::Deadline;
use reply::Wait;
use sampling::Sampler;
use serde_json::{Map, Value};
use slot::ConnectionSlot;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdio::RunningPrograms;

mod config;
mod connection;
mod connection_state;
mod decode;
mod elicitation;
mod grants;
mod http;
mod http_exchange;
mod inbox;
mod interpreter;
mod listing;
mod named_files;
mod program;
mod reply;
pub mod sampling;
pub mod sandbox_refusal;
mod slot;
mod sse;
mod stdio;

/// Timeout for closing the sessions of remote servers. Local programs are ended in parallel, with their own timeout.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1000);

/// Removes the state and the logs of a local server.
///
/// # Errors
/// A file cannot be removed.
pub fn remove_server_files(paths: &Paths, server: &str) -> io::Result<()> {
    let log = config::log_path(paths, server);
    let ignore_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    for log in [log.with_extension("log.old"), log] {
        ignore_missing(std::fs::remove_file(log))?;
    }
    ignore_missing(std::fs::remove_dir_all(named_files::state_dir(paths, server)))
}

/// The servers of a run. They are ended when the last clone is dropped.
#[derive(Clone)]
pub struct ClientPool(Arc<ClientPoolInner>);

struct ClientPoolInner {
    servers: Vec<McpServer>,
    slots: Vec<ConnectionSlot>,
    config: ClientConfig,
    programs: Arc<RunningPrograms>,
}

impl ClientPool {
    /// Creates the pool of all `servers` that are not disabled. Nothing is started.
    pub fn new(servers: &[McpServer], config: ClientConfig) -> Self {
        let servers: Vec<McpServer> =
            servers.iter().filter(|server| !server.is_disabled).cloned().collect();
        Self(Arc::new(ClientPoolInner {
            slots: servers.iter().cloned().map(ConnectionSlot::new).collect(),
            servers,
            config,
            programs: Arc::default(),
        }))
    }

    /// Returns the servers of the config that are in use.
    pub fn servers(&self) -> &[McpServer] {
        &self.0.servers
    }

    /// Returns the features of `server` as last fetched in this run. It may have announced a change since.
    pub fn features(&self, server: &str) -> Option<Arc<ServerFeatures>> {
        self.0.slot(server).ok()?.features()
    }

    /// Returns the file with the standard error of `server`, for people, if it has written any.
    pub fn log(&self, server: &str) -> Option<String> {
        let paths = &self.0.config.paths;
        let path = config::log_path(paths, server);
        let is_written = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
        is_written.then(|| paths.display(&path))
    }

    /// Returns the files that the entry of `server` names and that it cannot make or replace.
    pub fn unmakeable_files(&self, server: &McpServer) -> Vec<UnmakeableFile> {
        unmakeable_files(server, &self.0.config.paths)
    }

    /// Returns the path that the sandbox of `server` refused since this was last called, according to its standard error.
    pub(crate) fn take_refused_path(&self, server: &str) -> Option<String> {
        self.0.slot(server).ok()?.take_refused_path()
    }

    /// Fetches the current features of `server`, which is started if it is not running.
    ///
    /// # Errors
    /// The server cannot be used, or does not list its tools.
    pub fn fetch_features(&self, server: &str) -> Result<Arc<ServerFeatures>, McpError> {
        self.0.fetch_features(server)
    }

    /// Does the same as [`Self::fetch_features`] for all `servers`, in parallel. The results are in their order.
    pub fn fetch_all_features(
        &self,
        servers: &[&str],
    ) -> Vec<Result<Arc<ServerFeatures>, McpError>> {
        if let [server] = servers {
            return vec![self.fetch_features(server)];
        }
        let token = cancel::current();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for server in servers {
                let token = token.clone();
                let fetch = move || cancel::scope(token, || self.fetch_features(server));
                threads.push(scope.spawn(fetch));
            }
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a panic ends the process"))
                .collect()
        })
    }

    /// The paths that the server may change, if it is a local program in the sandbox.
    pub fn changeable_paths(&self, server: &str) -> Option<ChangeablePaths> {
        let slot = self.0.slot(server).ok().filter(|slot| !slot.server.is_unsandboxed)?;
        ChangeablePaths::of_server(&slot.server, &self.0.config.paths)
    }

    /// Calls a tool, by the server's own name for it, if `features`, which [`Self::fetch_features`] returned, are still the
    /// newest ones. `sampler` answers requests of the server for the model, if its config allows them. `on_progress` receives the
    /// server's progress messages.
    ///
    /// # Errors
    /// The request fails as [`McpError`] describes. A failure reported by the tool itself is an answer, not an error.
    pub fn call_tool(
        &self,
        server: &str,
        features: &Arc<ServerFeatures>,
        tool: &str,
        arguments: &Value,
        sampler: Option<&dyn Sampler>,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<ServerAnswer, McpError> {
        let allows_sampling = self.0.slot(server)?.server.sampling != SamplingMode::Off;
        let sampler = if allows_sampling { sampler } else { None };
        let arguments = match arguments {
            Value::Object(members) => members.clone(),
            Value::Null => Map::new(),
            _ => {
                return Err(McpError::Refused("the arguments are not a JSON object".into()));
            }
        };
        let request = ServerRequest::Call {
            tool: tool.to_owned(),
            arguments,
            features: Arc::clone(features),
            sampler,
        };
        self.0.send(server, &request, on_progress)
    }

    /// Reads the resource at `uri`.
    ///
    /// # Errors
    /// The request fails as [`McpError`] describes.
    pub fn read_resource(&self, server: &str, uri: &str) -> Result<ServerAnswer, McpError> {
        self.0.send(server, &ServerRequest::Read(uri.to_owned()), &mut |_| {})
    }

    /// Requests a prompt of the server, filled in.
    ///
    /// # Errors
    /// The request fails as [`McpError`] describes.
    pub fn get_prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<ServerAnswer, McpError> {
        let request = ServerRequest::Prompt(name.to_owned(), arguments.clone());
        self.0.send(server, &request, &mut |_| {})
    }

    /// Ends all running servers in parallel, including their child processes. A server that is needed later is started
    /// again.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }
}

impl ClientPoolInner {
    fn slot(&self, name: &str) -> Result<&ConnectionSlot, McpError> {
        let slot = self.slots.iter().find(|slot| slot.server.name == name);
        slot.ok_or_else(|| McpError::Unusable("no such server".into()))
    }

    fn fetch_features(&self, name: &str) -> Result<Arc<ServerFeatures>, McpError> {
        let slot = self.slot(name)?;
        let limit = slot.server.start_timeout;
        let mut wait = Wait { deadline: Deadline::after_or_never(limit), on_progress: &mut |_| {} };
        match slot.fetch_features(&self.config, &self.programs, &mut wait) {
            Err(McpError::TimedOut(_)) => Err(McpError::Unreachable(format!(
                "it did not start within {} s{}",
                limit.as_secs(),
                slot.stderr_suffix()
            ))),
            result => result,
        }
    }

    fn send(
        &self,
        name: &str,
        request: &ServerRequest<'_>,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<ServerAnswer, McpError> {
        self.fetch_features(name)?;
        let slot = self.slot(name)?;
        let limit = slot.server.call_timeout;
        let mut wait = Wait { deadline: Deadline::after_or_never(limit), on_progress };
        match slot.send(&self.config, &self.programs, request, &mut wait) {
            Err(McpError::TimedOut(_)) => {
                Err(McpError::TimedOut(format!("timed out after {} s", limit.as_secs())))
            }
            result => result,
        }
    }

    fn shut_down(&self) {
        if self.programs.is_empty() {
            self.close_connections();
        } else {
            let programs = Arc::clone(&self.programs);
            // If no thread can be started, the programs are ended below, after the remote servers.
            let thread = std::thread::Builder::new().name("mcp-end".into());
            let thread = thread.spawn(move || programs.end_all());
            self.close_connections();
            drop(thread.map(std::thread::JoinHandle::join));
        }
        // The first pass misses a program that another thread is about to end.
        self.programs.end_all();
    }

    /// Closes all connections in parallel, within the timeout.
    fn close_connections(&self) {
        let receivers: Vec<_> = self.slots.iter().filter_map(ConnectionSlot::close).collect();
        let end = Instant::now() + SHUTDOWN_TIMEOUT;
        for closed in receivers {
            // The channel is disconnected once the session is closed.
            closed.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        }
    }
}

impl Drop for ClientPoolInner {
    fn drop(&mut self) {
        self.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientConfig, ClientPool, McpError};
    use crate::protocol::ContentPart;
    use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use nanobot_net::http::Network;
    use nanobot_os::children::serialize_tests;
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use nanobot_sandbox::process::server::{supervise_in_test, use_test_as_supervisor};
    use serde_json::{Map, Value, json};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// A server that asks the user in each call, and answers what it was answered.
    const FAKE: &str = r#"
import json, sys
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    answer = lambda result: send({"id": message["id"], "result": result})
    if method == "initialize":
        answer({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}})
    elif method == "tools/list":
        answer({"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        send({"id": "q1", "method": "elicitation/create", "params": {"message": "who?", "requestedSchema": form}})
        answer({"content": [{"type": "text", "text": json.dumps(json.loads(sys.stdin.readline())["result"])}]})
"#;

    fn call(clients: &ClientPool) -> Result<String, McpError> {
        let features = clients.fetch_features("fake")?;
        let answer = clients.call_tool("fake", &features, "ask", &json!({}), None, &mut |_| {})?;
        match &answer.parts[..] {
            [ContentPart::Text(text)] => Ok(text.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn client_pool(servers: Vec<McpServer>, home: &Path) -> ClientPool {
        let path = std::env::var("PATH").unwrap();
        let env: Env = [("HOME", home.to_str().unwrap()), ("PATH", &path)].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        ClientPool::new(
            &servers,
            ClientConfig {
                env,
                paths,
                network: Network::default(),
                offline: false,
                elicitation: None,
                sandboxes: None,
            },
        )
    }

    /// Not a test, but the supervisor of the server.
    #[test]
    #[ignore = "run as the supervisor by another test"]
    fn be_the_supervisor() {
        supervise_in_test();
    }

    #[test]
    fn elicitation_needs_a_user_and_pauses_the_timeout() {
        struct SlowUser;
        impl super::ElicitationHandler for SlowUser {
            fn ask_user(
                &self,
                server: &str,
                message: &str,
                form: &Value,
            ) -> Option<Map<String, Value>> {
                assert_eq!((server, message), ("fake", "who?"));
                assert_eq!(form["properties"]["name"]["type"], "string");
                std::thread::sleep(Duration::from_millis(900));
                json!({"name": "Ann"}).as_object().cloned()
            }
        }
        let _alone = serialize_tests();
        use_test_as_supervisor("client::tests::be_the_supervisor");
        let folder = tempfile::tempdir().unwrap();
        let server = |call_timeout| McpServer {
            name: "fake".into(),
            transport: ServerTransport::Program {
                command: "python3".into(),
                arguments: vec!["-c".into(), FAKE.into()],
                env: Vec::new(),
                directory: None,
            },
            call_timeout,
            start_timeout: Duration::from_secs(60),
            is_unsandboxed: true,
            ..McpServer::default()
        };
        let clients = client_pool(vec![server(Duration::from_secs(60))], folder.path());
        assert_eq!(call(&clients).unwrap(), r#"{"action": "decline"}"#);
        let mut config = clients.0.config.clone();
        config.elicitation = Some(Arc::new(SlowUser));
        let clients = ClientPool::new(&[server(Duration::from_millis(600))], config);
        let answer = r#"{"action": "accept", "content": {"name": "Ann"}}"#;
        assert_eq!(call(&clients).unwrap(), answer);
    }

    #[test]
    fn unusable_urls_are_rejected() {
        let check = |url: &str, header: Option<&str>, offline: bool, expect: &str| {
            let folder = tempfile::tempdir().unwrap();
            let headers =
                header.map(|value| ("x".to_owned(), nanobot_os::secret::LazySecret::new(value)));
            let remote = RemoteEndpoint {
                url: url.into(),
                headers: headers.into_iter().collect(),
                uses_login: false,
            };
            for transport in [ServerTransport::Http(remote.clone()), ServerTransport::Sse(remote)] {
                let server = McpServer {
                    name: "far".into(),
                    transport,
                    start_timeout: Duration::from_secs(20),
                    ..McpServer::default()
                };
                let clients = client_pool(vec![server], folder.path());
                let config = ClientConfig { offline, ..clients.0.config.clone() };
                let clients = ClientPool::new(clients.servers(), config);
                let error = clients.fetch_features("far").unwrap_err();
                assert!(format!("{error:?}").contains(expect), "{url}: {error:?}");
            }
        };
        check("ftp://a.example", None, false, "Unusable(\"`ftp://a.example` is not an HTTP URL");
        check("http://a.example/mcp", Some("k"), false, "unencrypted");
        check("https://a.example/mcp", Some("a\nb"), false, "invalid header");
        check("https://a.example/mcp", None, true, "`--offline` forbids");
        check("http://127.0.0.1:1/mcp", None, false, "Unreachable(\"connection refused");
    }
}
