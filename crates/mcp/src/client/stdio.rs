//! The stdio transport: servers that are local programs, with one message per line on standard input and output. Since
//! pipes block, threads do the reading and writing. Unread output stays in the pipe, lines have a maximum length, and
//! standard error goes to a small log file.

use super::connection::{Outgoing, Transport};
use super::connection_state::{ConnectionState, one_line};
use super::decode;
use super::grants::SandboxFactory;
use super::inbox::Inbox;
use crate::protocol::McpError;
use nanobot_os::durable_file;
use nanobot_os::secret;
use nanobot_os::signal;
use nanobot_os::terminal::sanitize;
use nanobot_sandbox::PathSnapshot;
use nanobot_sandbox::process::server::{self, ServerExit, ServerProcess, ServerSpec};
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, error::TrySendError};

/// The longest line, in bytes. An answer of 8 MiB of text and 16 MiB of bytes in Base64 fits. A longer line is never
/// held in memory as a whole.
const MAX_LINE_BYTES: usize = 32 << 20;
/// Maximum of lines that are not messages: some servers print a greeting.
const MAX_STRAY_LINES: usize = 1000;
/// Maximum of bytes in such lines.
const MAX_STRAY_BYTES: usize = 1 << 20;
/// Interval of the checks for the exit status and the last log lines of a program that has just ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of checks for the exit status: 200 ms.
const EXIT_POLLS: usize = 20;
/// Maximum number of checks for the end of the log: 1 s, since child processes may keep it open.
const LOG_POLLS: usize = 100;
/// Capacity of the queue of unsent messages. A server that leaves so many unread has stopped reading.
const OUTGOING_QUEUE_LEN: usize = 64;
/// The largest log file, in bytes. One older file of the same size is kept as well.
const MAX_LOG_BYTES: usize = 128 << 10;
/// The longest line of a log, in bytes.
const MAX_LOG_LINE_BYTES: usize = 8 << 10;
/// Amount of log output, in bytes, after which at most one line per [`LOG_THROTTLE_INTERVAL`] is kept: searching all of it for secrets
/// would take longer than producing it.
const LOG_THROTTLE_BYTES: usize = 1 << 20;
const LOG_THROTTLE_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct RunningPrograms {
    running: Mutex<Vec<RunningProgram>>,
    /// Threads that are ending programs, which may take a moment.
    ending: Mutex<Vec<JoinHandle<()>>>,
    next_id: std::sync::atomic::AtomicU64,
}

struct RunningProgram {
    id: u64,
    process: ServerProcess,
    leftovers: LeftoverFiles,
}

/// Files that a server may have left behind.
struct LeftoverFiles {
    server: String,
    /// Paths that did not exist before the server started, and that the sandbox cannot keep it from creating.
    absent_paths: Vec<PathBuf>,
    /// The start-up and instruction files before the server started.
    snapshot: Option<PathSnapshot>,
    sandboxes: Option<Arc<dyn SandboxFactory>>,
}

impl LeftoverFiles {
    /// Reports paths that were created or changed while the server ran. Another process may have done it, so the change is not undone.
    fn report(&self) {
        let mut created: Vec<PathBuf> = Vec::new();
        let is_below = |path: &Path, created: &[PathBuf]| {
            created.iter().any(|directory| path.starts_with(directory))
        };
        for path in &self.absent_paths {
            if !is_below(path, &created) && path.symlink_metadata().is_ok() {
                created.push(path.clone());
            }
        }
        for path in &created {
            self.warn(path, "created");
        }
        let changed = self.snapshot.as_ref().map(PathSnapshot::changed_project_files);
        for path in changed.into_iter().flatten() {
            if !is_below(&path, &created) {
                self.warn(&path, "changed");
            }
        }
    }

    fn warn(&self, path: &Path, change: &str) {
        let message = format!(
            "`{}` was {change} while MCP server `{}` was running: inspect it, because such files can run code later",
            path.display(),
            self.server
        );
        log::warn!(target: "mcp", "{message}");
        if let Some(sandboxes) = &self.sandboxes {
            sandboxes.warn(&message);
        }
    }
}

/// A running program, which is ended on drop.
struct ProgramGuard {
    id: u64,
    programs: Arc<RunningPrograms>,
}

impl RunningPrograms {
    fn add(self: &Arc<Self>, process: ServerProcess, leftovers: LeftoverFiles) -> ProgramGuard {
        let id = self.next_id.fetch_add(1, Ordering::SeqCst);
        self.running.lock().push(RunningProgram { id, process, leftovers });
        ProgramGuard { id, programs: Arc::clone(self) }
    }

    /// True if no program is running, and none is being ended.
    pub(super) fn is_empty(&self) -> bool {
        self.running.lock().is_empty() && self.ending.lock().is_empty()
    }

    /// Ends all programs in parallel.
    pub(super) fn end_all(&self) {
        let programs = std::mem::take(&mut *self.running.lock());
        let (processes, leftovers): (Vec<ServerProcess>, Vec<LeftoverFiles>) =
            programs.into_iter().map(|program| (program.process, program.leftovers)).unzip();
        server::end_all(processes);
        for files in leftovers {
            files.report();
        }
        // The lock is kept, so that a second caller waits for the threads too.
        for thread in self.ending.lock().drain(..) {
            drop(thread.join());
        }
    }
}

impl ProgramGuard {
    /// Returns the exit of the program, if it has ended.
    fn exit(&self) -> Option<ServerExit> {
        let mut running = self.programs.running.lock();
        let program = running.iter_mut().find(|program| program.id == self.id)?;
        program.process.exit()
    }
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        let mut running = self.programs.running.lock();
        let Some(index) = running.iter().position(|program| program.id == self.id) else {
            return;
        };
        let RunningProgram { process, leftovers, .. } = running.swap_remove(index);
        drop(running);
        // Ending a program takes a moment, which must not delay the answers of other servers.
        let thread = std::thread::Builder::new().name("mcp-end".into());
        let end = move || {
            drop(process);
            leftovers.report();
        };
        if let Ok(thread) = thread.spawn(end) {
            let mut ending = self.programs.ending.lock();
            ending.retain(|thread| !thread.is_finished());
            ending.push(thread);
        }
    }
}

/// The streams of a program.
pub(super) struct StdioTransport {
    input: Mutex<Option<mpsc::Sender<Outgoing>>>,
    program: Mutex<Option<ProgramGuard>>,
}

impl StdioTransport {
    /// Starts a program and adds it to `programs`. `log` is the path for its standard error. Files that it left behind are reported
    /// to `sandboxes`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(
        spec: &ServerSpec,
        log: PathBuf,
        programs: &Arc<RunningPrograms>,
        sandboxes: Option<Arc<dyn SandboxFactory>>,
        inbox: &Arc<Inbox>,
    ) -> Result<Arc<Self>, McpError> {
        let to_error = |error: std::io::Error| match error.kind() {
            // No sandbox is available.
            std::io::ErrorKind::Unsupported => McpError::Unusable(error.to_string()),
            _ => McpError::Unreachable(error.to_string()),
        };
        let mut process = server::start(spec).map_err(to_error)?;
        let leftovers = LeftoverFiles {
            server: spec.name.clone(),
            absent_paths: std::mem::take(&mut process.absent_protected),
            snapshot: process.snapshot.take(),
            sandboxes,
        };
        let streams = (process.input.take(), process.output.take(), process.errors.take());
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(McpError::Unreachable("its standard streams are missing".into()));
        };
        let program = programs.add(process, leftovers);
        let (sender, mut messages) = mpsc::channel(OUTGOING_QUEUE_LEN);
        let transport =
            Arc::new(Self { input: Mutex::new(Some(sender)), program: Mutex::new(Some(program)) });
        let state = Arc::clone(&inbox.state);
        spawn_thread("mcp-write", move || {
            write_messages(input, &mut messages, &state);
        })
        .map_err(to_error)?;
        let state = Arc::clone(&inbox.state);
        let is_sandboxed = spec.sandbox.is_some();
        let read_log = move || {
            write_log(errors, &log, &state, is_sandboxed);
            state.is_log_read.store(true, Ordering::SeqCst);
        };
        spawn_thread("mcp-log", read_log).map_err(to_error)?;
        let reader = Arc::clone(&transport);
        let inbox = Arc::clone(inbox);
        let read = move || {
            read_messages(output, &reader, &inbox);
            reader.report_end(&inbox.state);
            drop(reader.close());
        };
        spawn_thread("mcp-read", read).map_err(to_error)?;
        Ok(transport)
    }

    /// Ends the connection after the end of the program's output, with the reason.
    fn report_end(&self, state: &ConnectionState) {
        // The last log lines and the exit status arrive slightly later than the end of the output.
        let mut exit = None;
        for _ in 0..EXIT_POLLS {
            exit = self.program.lock().as_ref().and_then(ProgramGuard::exit);
            if exit.is_some() || state.is_closed() || signal::sleep(POLL_INTERVAL).is_err() {
                break;
            }
        }
        if !state.is_closed() {
            wait_for_log(state);
        }
        let cause = exit.map_or_else(|| "it exited".to_owned(), |exit| exit.to_string());
        state.end(McpError::Broken(format!("{cause}{}", state.stderr_suffix())));
    }
}

impl Transport for StdioTransport {
    fn send(self: Arc<Self>, mut message: Outgoing) {
        message.body.push(b'\n');
        let input = self.input.lock();
        let result = match input.as_ref() {
            Some(input) => input.try_send(message),
            None => Err(TrySendError::Closed(message)),
        };
        drop(input);
        let (message, cause) = match result {
            Ok(()) => return,
            Err(TrySendError::Full(message)) => (message, "it does not read its standard input"),
            Err(TrySendError::Closed(message)) => (message, "it has exited"),
        };
        (message.on_sent)(Err(McpError::Broken(cause.into())));
    }

    fn close(&self) -> Option<Receiver<()>> {
        drop(self.input.lock().take());
        drop(self.program.lock().take());
        None
    }
}

/// Waits until the server's standard error has been read to its end, which comes slightly later than the end of its
/// other streams.
fn wait_for_log(state: &ConnectionState) {
    for _ in 0..LOG_POLLS {
        if state.is_log_read.load(Ordering::SeqCst) || signal::sleep(POLL_INTERVAL).is_err() {
            return;
        }
    }
}

fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(work).map(drop)
}

fn write_messages(
    mut input: PipeWriter,
    messages: &mut mpsc::Receiver<Outgoing>,
    state: &ConnectionState,
) {
    while let Some(Outgoing { body, on_sent, .. }) = messages.blocking_recv() {
        on_sent(input.write_all(&body).map_err(|_| {
            wait_for_log(state);
            let suffix = state.stderr_suffix();
            McpError::Broken(format!("it closed its standard input{suffix}"))
        }));
    }
}

/// Reads messages until the end of the stream or of the connection, or until there were too many lines that are not messages.
fn read_messages(output: PipeReader, transport: &Arc<StdioTransport>, inbox: &Arc<Inbox>) {
    let state = &inbox.state;
    let transport: Arc<dyn Transport> = Arc::<StdioTransport>::clone(transport);
    let mut output = BufReader::with_capacity(64 << 10, output);
    let mut stray_lines = 0;
    let mut stray_bytes = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut output).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() > MAX_LINE_BYTES => {
                let cause = format!("it wrote a line longer than {} MiB", MAX_LINE_BYTES >> 20);
                return state.end(McpError::Broken(cause));
            }
            Ok(_) => {}
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match decode::message(&line) {
            Some(message) => {
                if !inbox.receive(message, &transport) {
                    return;
                }
            }
            None => {
                stray_lines += 1;
                stray_bytes += line.len();
                let start = &line[..line.len().min(MAX_LOG_LINE_BYTES)];
                let text = one_line(&String::from_utf8_lossy(start));
                log::debug!(target: "mcp", "not an MCP message: {text}");
                if stray_lines > MAX_STRAY_LINES || stray_bytes > MAX_STRAY_BYTES {
                    let cause = format!("its output is not MCP: {text}");
                    return state.end(McpError::Broken(cause));
                }
            }
        }
        // The memory of one large answer must not stay allocated until the end.
        line.shrink_to(1 << 20);
    }
}

/// Logs the server's standard error: the latest part of it, without secrets.
fn write_log(stderr: PipeReader, path: &Path, state: &ConnectionState, is_sandboxed: bool) {
    let mut errors = BufReader::new(stderr);
    let mut file = ServerLog::create(path);
    let mut keep = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let text = sanitize(&secret::redact_all(text.trim_end_matches('\n')));
        if !text.trim().is_empty() {
            state.set_last_line(&text);
            if is_sandboxed {
                state.note_refusal(&text);
            }
        }
        // Reading continues even if the log cannot be written: the server must not block on the pipe.
        if let Some(log) = &mut file
            && log.push(&text).is_err()
        {
            file = None;
        }
    };
    let mut line = Vec::new();
    let mut skipped_line = Vec::new();
    let mut read_bytes = 0;
    let mut last_kept = Instant::now();
    loop {
        line.clear();
        let read = (&mut errors).take(MAX_LOG_LINE_BYTES as u64).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            if !skipped_line.is_empty() {
                // The skipped line turned out to be the last one.
                keep(&skipped_line);
            }
            return;
        }
        read_bytes += line.len();
        if read_bytes > LOG_THROTTLE_BYTES && last_kept.elapsed() < LOG_THROTTLE_INTERVAL {
            std::mem::swap(&mut line, &mut skipped_line);
            continue;
        }
        keep(&line);
        skipped_line.clear();
        last_kept = Instant::now();
    }
}

/// A log file that is rotated at a maximum size; one older file is kept.
struct ServerLog {
    path: PathBuf,
    file: std::fs::File,
    size_bytes: usize,
}

impl ServerLog {
    fn create(path: &Path) -> Option<Self> {
        durable_file::create_dir(path.parent()?).ok()?;
        let file = durable_file::open_append(path).ok()?;
        file.set_len(0).ok()?;
        Some(Self { path: path.to_owned(), file, size_bytes: 0 })
    }

    fn push(&mut self, line: &str) -> anyhow::Result<()> {
        if self.size_bytes + line.len() > MAX_LOG_BYTES {
            std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
            self.file = durable_file::open_append(&self.path)?;
            self.size_bytes = 0;
        }
        self.size_bytes += line.len() + 1;
        Ok(self.file.write_all(format!("{line}\n").as_bytes())?)
    }
}
