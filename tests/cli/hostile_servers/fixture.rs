//! A story with one hostile server, and the checks that apply to every run with it.

use crate::requirements::require;
use crate::server::{Request, calls, says};
use crate::story::{RunResult, Story};
use crate::wait::until;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The name of the server's tool for the model.
pub(super) const TOOL_NAME: &str = "mcp_hostile_work";

/// The timeout of a call, in seconds.
const CALL_TIMEOUT_SECS: u64 = 3;

/// Maximum memory of our process in MiB, whatever a server sends.
const MAX_MEMORY_MIB: u64 = 160;

/// A key that only our program and the provider may see.
pub(super) const CANARY: &str = "sk-canary-0a1b2c3d4e5f60718293a4b5c6d7e8f9";

pub(super) struct HostileServer {
    pub(super) story: Story,
    /// An argument of the server and of all its children.
    marker: String,
    /// A file that the server may write.
    pub(super) state_file: PathBuf,
    arguments: Value,
    remote: Option<RemoteServer>,
    /// Processes observed during the runs so far.
    observed: Arc<Mutex<Vec<Process>>>,
}

/// An HTTP server, which ends when its standard input is closed.
struct RemoteServer(Child);

/// The output of a turn.
pub(super) struct TurnOutput {
    pub(super) answer: String,
    pub(super) stderr: String,
    /// The tool results that were sent to the model.
    pub(super) results: Vec<String>,
    /// The names of the tools in the first request.
    pub(super) tools: Vec<String>,
    /// The bodies of the requests.
    pub(super) request_bodies: Vec<String>,
}

impl TurnOutput {
    /// The tool was called, and its result contains `phrase`.
    #[track_caller]
    pub(super) fn result_has(self, phrase: &str) -> Self {
        self.result_has_any(&[phrase])
    }

    /// The tool was called, and its result contains one of `phrases`.
    #[track_caller]
    pub(super) fn result_has_any(self, phrases: &[&str]) -> Self {
        assert_eq!(self.answer, "Done.\n", "{}", self.stderr);
        let has_any = |text: &String| phrases.iter().any(|phrase| text.contains(phrase));
        assert!(
            self.results.iter().any(has_any),
            "none of {phrases:?} in {:.3000?}; stderr:\n{}",
            self.results,
            self.stderr
        );
        self
    }

    /// The tool was not offered, and standard error contains `message`.
    #[track_caller]
    pub(super) fn tool_is_missing(self, message: &str) -> Self {
        assert_eq!(self.answer, "There is no such tool.\n");
        assert!(
            self.stderr.contains("hostile") && self.stderr.contains(message),
            "no {message:?} in {}",
            self.stderr
        );
        self
    }
}

impl HostileServer {
    /// A server with this behavior; `None` if Python is missing.
    pub(super) fn new(behaviour: &str) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        if !require("python3") {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("hostile-{}-{number}-{behaviour}", std::process::id());
        let story = Story::new()
            .file("hostile.py", include_bytes!("../../servers/hostile.py").as_slice())
            .file("state", "")
            .env("OPENAI_API_KEY", CANARY)
            .env("SOME_VARIABLE", "of ours")
            // All tools are offered, however many there are.
            .set("tools.mcpBudgetTokens", json!(1_000_000))
            .set("tools.permissions", json!({ TOOL_NAME: "always" }));
        let path = |name: &str| story.dir().join(name).to_str().unwrap().to_owned();
        let (script, state) = (path("hostile.py"), path("state"));
        let is_remote = behaviour.starts_with("http-") || behaviour.starts_with("sse-");
        let mut hostile_server = Self {
            state_file: state.clone().into(),
            arguments: json!({}),
            remote: None,
            observed: Arc::default(),
            marker: mark,
            story,
        };
        let reached = if is_remote {
            let (server, port) = hostile_server.start_http_server(behaviour);
            hostile_server.remote = Some(RemoteServer(server));
            let kind = ["streamableHttp", "sse"][usize::from(behaviour.starts_with("sse-"))];
            json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "type": kind,
                    "headers": { "Authorization": format!("Bearer {CANARY}"), "X-Own": CANARY } })
        } else {
            json!({ "command": "python3", "args": [script, behaviour, hostile_server.marker, state], "write": [state],
                         "env": { "GIVEN": "by the config" } })
        };
        let mut hostile_server = hostile_server.with_server(reached);
        hostile_server = hostile_server.set("toolTimeout", json!(CALL_TIMEOUT_SECS));
        Some(hostile_server.set("startTimeout", json!(20)))
    }

    /// Starts an HTTP server; returns it and its port.
    fn start_http_server(&self, behaviour: &str) -> (Child, u16) {
        let mut server = Command::new("python3")
            .arg(self.story.dir().join("hostile.py"))
            .args(["--http", behaviour, "remote"])
            .arg(&self.state_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = server.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        (server, line.trim().parse().unwrap())
    }

    fn with_server(mut self, server: Value) -> Self {
        self.story = self.story.set("tools.mcpServers.hostile", server);
        self
    }

    /// Sets a key of the server's config.
    pub(super) fn set(mut self, key: &str, value: Value) -> Self {
        let pointer = format!("tools.mcpServers.hostile.{key}");
        self.story = self.story.set(&pointer, value);
        self
    }

    /// Sets the arguments of the call.
    pub(super) fn with_arguments(mut self, arguments: Value) -> Self {
        self.arguments = arguments;
        self
    }

    /// A turn in which the model calls the tool once, if it is offered.
    pub(super) fn turn(&self) -> TurnOutput {
        self.turn_with_calls(1)
    }

    /// A turn in which the model calls the tool `count` times, if it is offered.
    pub(super) fn turn_with_calls(&self, count: usize) -> TurnOutput {
        let pid = Arc::new(OnceLock::<u32>::new());
        let memory = Arc::new(AtomicU64::new(0));
        let (their_pid, max_memory, observed, arguments) = (
            Arc::clone(&pid),
            Arc::clone(&memory),
            Arc::clone(&self.observed),
            self.arguments.clone(),
        );
        self.story.server().always(Box::new(move |request| {
            // At this point the server has done its work and waits for the model.
            max_memory.fetch_max(peak_memory_kib(*their_pid.wait()), Ordering::Relaxed);
            observed.lock().unwrap().extend(descendants(*their_pid.wait()));
            let results = request.tool_results().len();
            let is_offered = request.tool_names().iter().any(|name| name == TOOL_NAME);
            if is_offered && results < count {
                calls(TOOL_NAME, arguments.clone())(request)
            } else if is_offered || results > 0 {
                says("Done.")(request)
            } else {
                says("There is no such tool.")(request)
            }
        }));
        let before = self.story.requests().len();
        let child = self.agent_command().spawn().unwrap();
        pid.set(child.id()).unwrap();
        let result = self.story.wait(child);
        let requests = self.story.requests()[before..].to_vec();
        let output = TurnOutput {
            answer: result.text(),
            stderr: result.error_text(),
            results: requests.last().map(Request::tool_results).unwrap_or_default(),
            tools: requests.first().map(Request::tool_names).unwrap_or_default(),
            request_bodies: requests.into_iter().map(|request| request.raw).collect(),
        };
        assert_eq!(result.code(), 0, "{}", output.stderr);
        let memory = memory.load(Ordering::Relaxed) >> 10;
        assert!(memory < MAX_MEMORY_MIB, "it needed {memory} MiB");
        self.assert_clean(&output.stderr, false);
        for raw in &output.request_bodies {
            self.assert_sanitized(raw);
            assert!(raw.len() < 1 << 20, "{} bytes to the model", raw.len());
        }
        self.assert_no_processes();
        output
    }

    /// The command that runs a turn.
    pub(super) fn agent_command(&self) -> Command {
        self.story.command(["agent", "-m", "do the work", "--new"])
    }

    /// `nanobot mcp` with these arguments.
    pub(super) fn mcp(&self, arguments: &[&str]) -> (i32, String, String) {
        let result: RunResult = self.story.run([&["mcp"], arguments].concat());
        let (output, complaints) = (result.text(), result.error_text());
        // A pipe gets the output unchanged; terminals have their own story.
        if arguments[0] != "call" {
            self.assert_clean(&output, true);
        }
        self.assert_clean(&complaints, false);
        let code = result.code();
        self.assert_no_processes();
        (code, output, complaints)
    }

    /// The text is safe for a terminal and not too long, and no line imitates our own messages.
    #[track_caller]
    fn assert_clean(&self, text: &str, may_be_long: bool) {
        self.assert_sanitized(text);
        assert!(text.len() < 8000 || may_be_long, "{text:.2000}");
        let is_odd = |char: &char| char.is_control() && !"\n\t".contains(*char);
        assert_eq!(text.chars().find(is_odd), None, "{text:.2000}");
        assert!(!text.lines().any(|line| line.starts_with("nanobot: lie")), "{text:.2000}");
    }

    /// The text has no bidirectional or invisible characters, no escape sequence, and no key.
    #[track_caller]
    fn assert_sanitized(&self, text: &str) {
        let is_odd = |char: &char| matches!(*char, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' | '\u{1b}' | '\u{9b}');
        assert_eq!(text.chars().find(is_odd), None, "{text:.2000}");
        assert!(!text.contains("\\u001b"), "{text:.2000}");
        assert!(!text.contains(CANARY), "{text:.2000}");
    }

    /// No process of the server or of its supervisor is left.
    #[track_caller]
    pub(super) fn assert_no_processes(&self) {
        assert_eq!(self.remaining_processes(), [""; 0], "it is left");
    }

    /// Like [`Self::assert_no_processes`], for runs that were killed before they could clean up.
    #[track_caller]
    pub(super) fn wait_for_no_processes(&self) {
        until("nothing is left", || self.remaining_processes().is_empty());
    }

    /// Records the processes that a run has started so far.
    pub(super) fn observe_processes(&self, child: &Child) {
        self.observed.lock().unwrap().extend(descendants(child.id()));
    }

    /// Processes with the marker among their arguments or the story's home in their environment, and all observed
    /// descendants of a run, such as the supervisor of a server.
    pub(super) fn remaining_processes(&self) -> Vec<String> {
        let home = format!("HOME={}\0", self.story.home().display());
        let processes = self.observed.lock().unwrap().clone();
        let processes = processes.into_iter().filter(Process::is_alive);
        let processes = processes.map(|process| format!("{} {}", process.pid, process.name));
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let marked = all.filter_map(|entry| {
            let read = |name: &str| {
                let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let line = read("cmdline");
            let is_ours = line.contains(&format!("{}\0", self.marker));
            // A zombie process has neither.
            (is_ours || read("environ").contains(&home)).then(|| line.replace('\0', " "))
        });
        marked.chain(processes).collect()
    }

    /// Sends a signal to a child process.
    pub(super) fn send_signal(child: &Child, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// A process, identified beyond the reuse of its PID.
#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    name: String,
    /// Start time by the kernel's clock.
    started: String,
}

impl Process {
    fn from_pid(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (start, rest) = text.rsplit_once(')')?;
        Some(Self {
            pid,
            name: start.split_once('(')?.1.to_owned(),
            started: rest.split_whitespace().nth(19)?.to_owned(),
        })
    }

    fn is_alive(&self) -> bool {
        Self::from_pid(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// All descendants of this process.
fn descendants(pid: u32) -> Vec<Process> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<u32> = lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        })
        .collect();
    let below =
        pids.into_iter().flat_map(|pid| Process::from_pid(pid).into_iter().chain(descendants(pid)));
    below.collect()
}

/// Peak memory of the process in KiB.
fn peak_memory_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
