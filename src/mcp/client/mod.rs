//! The MCP client: the connections of a run to its servers, which are started as needed. Calls block the caller until the
//! answer, the deadline or the end of the run. Threads read from and write to the servers.
//!
//! [`slot`] holds the connection to one server, with its features, which [`listing`] requests. [`connection`] sends
//! requests, whose callers wait with [`reply`]; [`inbox`] receives, [`elicitation`] answers questions to the user, and
//! [`sampling`] passes requests for the model on to the caller's turn.
//! They share the [`connection_state`]. The transports are [`stdio`] for a [`program`], and [`http`] and [`sse`], both
//! over [`http_exchange`]. Messages are parsed by [`crate::json_rpc`] and [`decode`].

use super::protocol::{McpError, ServerAnswer, ServerFeatures};
use crate::settings::servers::{McpServer, SamplingMode};
use crate::sys::cancel;
use crate::sys::paths::Paths;
use crate::sys::process::server_environment::server_file_name;
use crate::sys::signal::Deadline;
pub use config::{ClientConfig, ElicitationHandler};
use connection::ServerRequest;
pub use grants::{FileGrant, SandboxFactory, SandboxedSpec};
pub use named_files::{UnmakeableFile, unmakeable_files};
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
pub(super) mod sandbox_refusal;
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
    let (root, log) = (paths.mcp(), config::log_path(paths, server));
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    for log in [log.with_extension("log.old"), log] {
        gone(std::fs::remove_file(log))?;
    }
    gone(std::fs::remove_dir_all(root.join("state").join(server_file_name(server))))
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
        let used = servers.iter().filter(|server| !server.is_disabled);
        let servers: Vec<McpServer> = used.cloned().collect();
        let slots = servers.iter().cloned().map(ConnectionSlot::new);
        Self(Arc::new(ClientPoolInner {
            slots: slots.collect(),
            servers,
            config,
            programs: Arc::default(),
        }))
    }

    /// Returns the servers of the config that are in use.
    pub fn servers(&self) -> &[McpServer] {
        &self.0.servers
    }

    /// Returns what `server` offered when it was last asked in this run. It may have announced a change since.
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
    pub(super) fn unmakeable_files(&self, server: &McpServer) -> Vec<UnmakeableFile> {
        unmakeable_files(server, &self.0.config.paths)
    }

    /// Returns the path that the sandbox of `server` refused since this was last called, as far as its standard error
    /// tells.
    pub fn take_refused_path(&self, server: &str) -> Option<String> {
        self.0.slot(server).ok()?.take_refused_path()
    }

    /// Returns what each of the servers `names` offers now. Servers that are not running are started in parallel.
    pub fn fetch_features(
        &self,
        names: &[&str],
    ) -> Vec<(String, Result<Arc<ServerFeatures>, McpError>)> {
        let token = cancel::current();
        let one = |name: &str| (name.to_owned(), self.0.fetch_features(name));
        if let [name] = names {
            return vec![one(name)];
        }
        std::thread::scope(|scope| {
            let reaching: Vec<_> = names
                .iter()
                .map(|name| {
                    let token = token.clone();
                    let one = &one;
                    let thread = scope.spawn(move || cancel::scope(token, || one(name)));
                    (*name, thread)
                })
                .collect();
            let joined = reaching.into_iter().map(|(name, thread)| {
                let defect = || McpError::Broken("internal error".into());
                thread.join().unwrap_or_else(|_| (name.to_owned(), Err(defect())))
            });
            joined.collect()
        })
    }

    /// Calls a tool, by the server's own name for it, if the server still offers what [`Self::fetch_features`] returned as
    /// `features`. `sampler` answers requests of the server for the model, if its config allows them. `on_progress` receives the
    /// server's progress messages.
    ///
    /// # Errors
    /// See [`McpError`]. A failure reported by the tool itself is an answer, not an error.
    pub fn call_tool(
        &self,
        server: &str,
        features: &Arc<ServerFeatures>,
        tool: &str,
        arguments: &Value,
        sampler: Option<&dyn Sampler>,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<ServerAnswer, McpError> {
        let allows = self.0.slot(server)?.server.sampling != SamplingMode::Off;
        let sampler = sampler.filter(|_| allows);
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
    /// See [`McpError`].
    pub fn read_resource(&self, server: &str, uri: &str) -> Result<ServerAnswer, McpError> {
        self.0.send(server, &ServerRequest::Read(uri.to_owned()), &mut |_| {})
    }

    /// Requests a prompt of the server, filled in.
    ///
    /// # Errors
    /// See [`McpError`].
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
        let mut all = self.slots.iter();
        let found = all.find(|slot| slot.server.name == name);
        found.ok_or_else(|| McpError::Unusable("no such server".into()))
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
            done => done,
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
            done => done,
        }
    }

    fn shut_down(&self) {
        if !self.programs.is_empty() {
            let programs = Arc::clone(&self.programs);
            // If no thread can be started, the programs are ended below, after the remote servers.
            let thread = std::thread::Builder::new().name("mcp-end".into());
            let ending = thread.spawn(move || programs.end_all());
            self.close_connections();
            drop(ending.map(std::thread::JoinHandle::join));
        } else {
            self.close_connections();
        }
        // A server that was being handed over to another thread for ending during the first pass was missed by it.
        self.programs.end_all();
    }

    /// Closes all connections in parallel, within the timeout.
    fn close_connections(&self) {
        let closing: Vec<_> = self.slots.iter().filter_map(ConnectionSlot::close).collect();
        let end = Instant::now() + SHUTDOWN_TIMEOUT;
        for closed in closing {
            // The channel is disconnected once the session is closed.
            let left = end.saturating_duration_since(Instant::now());
            closed.recv_timeout(left).ok();
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
    use crate::mcp::protocol::ContentPart;
    use crate::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use crate::settings::{Config, FlagOverrides, Settings};
    use crate::sys::cancel::{self, CancelToken};
    use crate::sys::env::Env;
    use crate::sys::http::Network;
    use crate::sys::paths::Paths;
    use crate::sys::process::tests::serialize;
    use serde_json::{Map, Value, json};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// A server that does what the names of its tools say, with a few faults on demand.
    const FAKE: &str = r#"
import json, os, sys, time
habit = sys.argv[1] if len(sys.argv) > 1 else ""
def out(message):
    sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
def told(words):
    with open(os.environ["TOLD"], "a") as file: file.write(words + "\n")
told("start")
if habit == "mute": time.sleep(600)
if habit == "dies": sys.stderr.write("no such luck\n"); sys.exit(3)
if habit == "greets": print("hello\nI am a server")
if habit == "babbles":
    while True: print("la la la")
names = ["echo", "die", "sleep", "long", "flood", "wrong", "more"]
for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    answer = lambda result: out({"jsonrpc": "2.0", "id": number, "result": result})
    text = lambda words: answer({"content": [{"type": "text", "text": words}]})
    if method == "initialize":
        answer({"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "fake", "version": "1"}})
    elif method == "tools/list":
        answer({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names] + [{"description": "no name"}, {"name": "odd", "inputSchema": 7}], "nextCursor": "again" if habit == "endless" else None})
    elif method == "notifications/cancelled":
        told("cancelled " + params.get("reason", ""))
    elif method == "tools/call":
        name = params["name"]
        token = params.get("_meta", {}).get("progressToken")
        if name == "echo":
            out({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2, "message": "half\x1b[31m"}})
            time.sleep(0.05)
            text(json.dumps(params.get("arguments")))
        elif name == "die": sys.exit(7)
        elif name == "long": sys.stdout.write('{"x":"' + "x" * (40 << 20)); sys.stdout.flush(); text("")
        elif name == "flood":
            while True: out({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        elif name == "wrong":
            out({"jsonrpc": "2.0", "id": 4711, "result": {}})
            out({"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": "no,\nnever"}})
            out({"jsonrpc": "2.0", "id": number, "result": {}})
        elif name in ("ask", "lend"):
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            ask = ("elicitation/create", {"message": "who?", "requestedSchema": form}) if name == "ask" else ("sampling/createMessage", {"messages": [], "maxTokens": 1})
            out({"jsonrpc": "2.0", "id": "q1", "method": ask[0], "params": ask[1]})
            answered = json.loads(sys.stdin.readline())
            text(json.dumps(answered.get("result", answered.get("error"))))
        elif name == "more":
            names.append("new")
            out({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            time.sleep(0.05)
            text("ok")
"#;

    struct ClientFixture {
        clients: ClientPool,
        folder: tempfile::TempDir,
    }

    impl ClientFixture {
        fn new(habit: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let script = folder.path().join("fake.py");
            std::fs::write(&script, FAKE).unwrap();
            let told = folder.path().join("told").display().to_string();
            let server = McpServer {
                name: "fake".into(),
                transport: ServerTransport::Program {
                    command: "python3".into(),
                    arguments: vec![script.display().to_string(), habit.into()],
                    env: vec![("TOLD".into(), crate::sys::secret::LazySecret::new(told))],
                    directory: None,
                },
                call_timeout: Duration::from_secs(60),
                start_timeout: Duration::from_secs(60),
                is_unsandboxed: true,
                is_trusted: false,
                ..McpServer::default()
            };
            Self { clients: client_pool(vec![server], folder.path()), folder }
        }

        fn with_timeouts(habit: &str, start: Duration, call: Duration) -> Self {
            let mut trial = Self::new(habit);
            let mut server = trial.clients.servers()[0].clone();
            (server.start_timeout, server.call_timeout) = (start, call);
            trial.clients = client_pool(vec![server], trial.folder.path());
            trial
        }

        fn call(&self, tool: &str) -> Result<String, McpError> {
            let offer = self.clients.fetch_features(&["fake"]).remove(0).1?;
            let arguments = json!({"a": 1});
            let answer =
                self.clients.call_tool("fake", &offer, tool, &arguments, None, &mut |_| {})?;
            match &answer.parts[..] {
                [ContentPart::Text(text)] => Ok(text.clone()),
                other => panic!("{other:?}"),
            }
        }

        fn server_log(&self) -> Vec<String> {
            let told = std::fs::read_to_string(self.folder.path().join("told"));
            told.unwrap_or_default().lines().map(str::to_owned).collect()
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

    #[test]
    fn tools_are_listed_and_called() {
        let _alone = serialize();
        let trial = ClientFixture::new("greets");
        assert!(trial.server_log().is_empty() && trial.clients.features("fake").is_none());
        let mut reached = trial.clients.fetch_features(&["fake"]);
        let offer = reached.remove(0).1.unwrap();
        assert_eq!((offer.server.as_str(), offer.tools.len(), offer.left_out), ("fake 1", 8, 1));
        let mut said = Vec::new();
        let arguments = json!({"a": "\u{e9}\n"});
        let mut say = |words: &str| said.push(words.to_owned());
        let answer = trial.clients.call_tool("fake", &offer, "echo", &arguments, None, &mut say);
        let ContentPart::Text(text) = &answer.unwrap().parts[0] else { panic!() };
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
        assert_eq!(said, ["1/2 half\\u{1b}[31m"]);
        // In parallel, with one server.
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| trial.call("echo"))).collect();
            for call in calls {
                assert_eq!(call.join().unwrap().unwrap(), r#"{"a": 1}"#);
            }
        });
        assert_eq!(trial.server_log(), ["start"]);
        trial.clients.shut_down();
        trial.clients.shut_down();
        // A server that is needed again is started again.
        assert!(trial.call("echo").is_ok());
        assert_eq!(trial.server_log(), ["start", "start"]);
        assert!(matches!(
            trial.clients.call_tool("other", &offer, "x", &json!({}), None, &mut |_| {}),
            Err(McpError::Unusable(_))
        ));
    }

    #[test]
    fn elicitation_needs_a_user_and_pauses_the_timeout() {
        struct SlowUser;
        impl super::ElicitationHandler for SlowUser {
            fn ask_user(
                &self,
                server: &str,
                words: &str,
                form: &Value,
            ) -> Option<Map<String, Value>> {
                assert_eq!((server, words), ("fake", "who?"));
                assert_eq!(form["properties"]["name"]["type"], "string");
                std::thread::sleep(Duration::from_millis(900));
                json!({"name": "Ann"}).as_object().cloned()
            }
        }
        let _alone = serialize();
        let mut trial = ClientFixture::new("");
        assert_eq!(trial.call("ask").unwrap(), r#"{"action": "decline"}"#);
        let mut server = trial.clients.servers()[0].clone();
        server.call_timeout = Duration::from_millis(600);
        let mut ground = trial.clients.0.config.clone();
        ground.elicitation = Some(Arc::new(SlowUser));
        trial.clients = ClientPool::new(&[server], ground);
        let answer = trial.call("ask").unwrap();
        assert_eq!(answer, r#"{"action": "accept", "content": {"name": "Ann"}}"#);
        assert!(trial.call("lend").unwrap().contains("may not use the model"));
    }

    #[test]
    fn no_program_runs_without_a_sandbox_unless_configured() {
        let folder = tempfile::tempdir().unwrap();
        let trial = ClientFixture::new("");
        let mut server = trial.clients.servers()[0].clone();
        server.is_unsandboxed = false;
        let failed = client_pool(vec![server], folder.path()).fetch_features(&["fake"]).remove(0).1;
        assert!(matches!(failed, Err(McpError::Unusable(_))), "{failed:?}");
        assert!(trial.server_log().is_empty());
    }

    #[test]
    fn a_call_that_killed_the_server_is_not_repeated() {
        let _alone = serialize();
        let trial = ClientFixture::new("");
        let words = trial.call("die").unwrap_err();
        assert!(
            matches!(&words, McpError::Broken(words) if words.contains("may have taken effect")),
            "{words:?}"
        );
        assert!(trial.call("echo").is_ok());
        assert_eq!(trial.server_log(), ["start", "start"]);
    }

    #[test]
    fn protocol_violations_end_the_connection() {
        let _alone = serialize();
        let trial = ClientFixture::new("");
        let words = trial.call("long").unwrap_err();
        assert!(matches!(&words, McpError::Broken(words) if words.contains("32 MiB")), "{words:?}");
        let words = trial.call("flood").unwrap_err();
        assert!(
            matches!(&words, McpError::Broken(words) if words.contains("notifications")),
            "{words:?}"
        );
        let words = trial.call("wrong").unwrap_err();
        assert_eq!(words, McpError::Refused("no, never".into()));
        let trial = ClientFixture::new("babbles");
        let words = trial.call("echo").unwrap_err();
        assert!(
            matches!(&words, McpError::Unreachable(words) if words.contains("la la la")),
            "{words:?}"
        );
    }

    #[test]
    fn changed_lists_are_fetched_again_and_are_limited() {
        let _alone = serialize();
        let trial = ClientFixture::new("");
        let before = trial.clients.fetch_features(&["fake"]).remove(0).1.unwrap();
        assert_eq!(trial.call("more").unwrap(), "ok");
        // A caller with an outdated offer cannot call anything.
        let none = json!({});
        let call = |offer: &Arc<_>| {
            trial.clients.call_tool("fake", offer, "echo", &none, None, &mut |_| {})
        };
        assert_eq!(call(&before), Err(McpError::FeaturesChanged));
        let offer = trial.clients.fetch_features(&["fake"]).remove(0).1.unwrap();
        assert_eq!(offer.tools.len(), 9);
        assert!(call(&offer).is_ok());
        let trial = ClientFixture::new("endless");
        assert_eq!(trial.clients.fetch_features(&["fake"]).remove(0).1.unwrap().tools.len(), 16);
    }

    #[test]
    fn timeouts_are_enforced_and_reported() {
        let _alone = serialize();
        let (short, long) = (Duration::from_millis(700), Duration::from_secs(60));
        let trial = ClientFixture::with_timeouts("mute", short, long);
        assert!(matches!(trial.call("echo"), Err(McpError::Unreachable(_))));
        let trial = ClientFixture::with_timeouts("", long, short);
        trial.clients.fetch_features(&["fake"]);
        assert!(matches!(trial.call("sleep"), Err(McpError::TimedOut(_))));
        // The server survives, and has received the cancellation by the time it answers again.
        assert!(trial.call("echo").is_ok());
        assert_eq!(trial.server_log(), ["start", "cancelled the request timed out"]);
        let trial = ClientFixture::with_timeouts("dies", long, long);
        let words = trial.call("echo").unwrap_err();
        assert!(
            matches!(&words, McpError::Unreachable(words) if words.contains("no such luck")),
            "{words:?}"
        );
    }

    #[test]
    fn cancellation_ends_a_call_and_notifies_the_server() {
        let _alone = serialize();
        let trial = ClientFixture::new("");
        trial.clients.fetch_features(&["fake"]);
        let leash = CancelToken::new().unwrap();
        std::thread::scope(|scope| {
            let held = Some(leash.clone());
            let call = scope.spawn(|| cancel::scope(held, || trial.call("sleep")));
            leash.cancel();
            assert!(matches!(call.join().unwrap(), Err(McpError::Stopped(_))));
        });
        assert!(trial.call("echo").is_ok());
    }

    #[test]
    fn unusable_urls_are_rejected() {
        let check = |url: &str, header: Option<&str>, offline: bool, expect: &str| {
            let folder = tempfile::tempdir().unwrap();
            let headers =
                header.map(|value| ("x".to_owned(), crate::sys::secret::LazySecret::new(value)));
            let remote = RemoteEndpoint {
                url: url.into(),
                headers: headers.into_iter().collect(),
                uses_login: false,
            };
            for reached in [ServerTransport::Http(remote.clone()), ServerTransport::Sse(remote)] {
                let server = McpServer {
                    name: "far".into(),
                    transport: reached,
                    start_timeout: Duration::from_secs(20),
                    ..McpServer::default()
                };
                let mut fleet = client_pool(vec![server], folder.path());
                let mut ground = fleet.0.config.clone();
                ground.offline = offline;
                fleet = ClientPool::new(fleet.servers(), ground);
                let failed = fleet.fetch_features(&["far"]).remove(0).1.unwrap_err();
                assert!(format!("{failed:?}").contains(expect), "{url}: {failed:?}");
            }
        };
        check("ftp://a.example", None, false, "Unusable(\"`ftp://a.example` is not an HTTP URL");
        check("http://a.example/mcp", Some("k"), false, "unencrypted");
        check("https://a.example/mcp", Some("a\nb"), false, "invalid header");
        check("https://a.example/mcp", None, true, "`--offline` forbids");
        check("http://127.0.0.1:1/mcp", None, false, "Unreachable(\"connection refused");
    }

    /// Prints what a real server offers and answers, for manual inspection: the variable TRY holds its config entry,
    /// with `calls` and the path of the `report` file.
    #[test]
    #[ignore = "needs a server in the variable TRY"]
    fn a_real_server() {
        let entry: Value = serde_json::from_str(&std::env::var("TRY").unwrap()).unwrap();
        let calls = entry["calls"].as_array().cloned().unwrap_or_default();
        let report = entry["report"].as_str().unwrap().to_owned();
        let text = json!({"tools": {"mcpServers": {"it": entry}}}).to_string();
        let folder = tempfile::tempdir().unwrap();
        let env: Env = [("HOME", folder.path().to_str().unwrap())].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        let config = Config::parse(Path::new("c.json"), &text).unwrap();
        let settings = Settings::resolve(&config, &env, &FlagOverrides::default(), &paths);
        let fleet = client_pool(settings.unwrap().servers, folder.path());
        let mut lines = Vec::new();
        let started = Instant::now();
        let offer = fleet.fetch_features(&["it"]).remove(0).1;
        let count = |offer: &crate::mcp::protocol::ServerFeatures| {
            let (tools, others) = (offer.tools.len(), offer.resources.len());
            let (templates, prompts) = (offer.templates.len(), offer.prompts.len());
            format!("{} {} {tools} {others} {templates} {prompts}", offer.protocol, offer.server)
        };
        lines.push(format!("{:?} {:?}", offer.as_deref().map(count), started.elapsed()));
        for call in calls {
            let started = Instant::now();
            let name = call[1].as_str().unwrap();
            let answer = match call[0].as_str().unwrap() {
                "read" => fleet.read_resource("it", name),
                "prompt" => fleet.get_prompt("it", name, call[2].as_object().unwrap()),
                _ => {
                    let offer = fleet.fetch_features(&["it"]).remove(0).1.unwrap();
                    fleet.call_tool("it", &offer, name, &call[2], None, &mut |words| {
                        lines.push(words.to_owned());
                    })
                }
            };
            let words: String = format!("{answer:?}").chars().take(600).collect();
            lines.push(format!("{words} {:?}", started.elapsed()));
        }
        let started = Instant::now();
        fleet.shut_down();
        lines.push(format!("ended {:?}\n", started.elapsed()));
        std::fs::write(report, lines.join("\n")).unwrap();
    }
}
