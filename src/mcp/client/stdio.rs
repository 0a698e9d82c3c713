//! The stdio transport: servers that are local programs, with one message per line on standard input and output. Since
//! pipes block, threads do the reading and writing. Unread output stays in the pipe, lines have a maximum length, and
//! standard error goes to a small log file.

use super::grants::Walls;
use super::message;
use super::watch::{Watch, one_line};
use crate::mcp::offer::Failed;
use crate::sys::process::server::{self, Ended, ServerProcess, Spec};
use crate::sys::secret;
use crate::sys::store;
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::harmless;
use rmcp::RoleClient;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// The longest line, in bytes. An answer of 8 MiB of text and 16 MiB of bytes in Base64 fits. A longer line is never
/// held in memory as a whole.
const LINE: usize = 32 << 20;
/// Maximum of lines that are not messages: some servers print a greeting.
const STRAY_LINES: usize = 1000;
/// Maximum of bytes in such lines.
const STRAY_BYTES: usize = 1 << 20;
/// Capacity of the queue of received messages; each may be as long as [`LINE`].
const WAITING: usize = 8;
/// Capacity of the queue of unsent messages. A server that leaves so many unread has stopped reading.
const UNSENT: usize = 64;
/// The largest log file, in bytes. One older file of the same size is kept as well.
const LOG: usize = 128 << 10;
/// The longest line of a log, in bytes.
const LOG_LINE: usize = 8 << 10;
/// Amount of log output, in bytes, after which at most one line per [`BREATH`] is kept: searching all of it for secrets
/// would take longer than producing it.
const LOUD: usize = 1 << 20;
const BREATH: Duration = Duration::from_millis(100);

/// The running programs.
#[derive(Default)]
pub(super) struct Programs {
    running: Mutex<Vec<(u64, ServerProcess, Traces)>>,
    /// Threads that are ending programs, which may take a moment.
    ending: Mutex<Vec<JoinHandle<()>>>,
    count: std::sync::atomic::AtomicU64,
}

/// Files that a server may have left behind.
struct Traces {
    server: String,
    /// Paths that did not exist before the server started, and that the sandbox cannot keep it from creating.
    absent: Vec<PathBuf>,
    walls: Option<Arc<dyn Walls>>,
}

impl Traces {
    /// Reports paths that were created while the server ran. Another process may have created them, so they are not
    /// removed.
    fn tell(&self) {
        let mut made: Vec<&PathBuf> = Vec::new();
        for place in &self.absent {
            let is_told = made.iter().any(|other| place.starts_with(other));
            if !is_told && place.symlink_metadata().is_ok() {
                made.push(place);
            }
        }
        for place in made {
            let words = format!(
                "`{}` was created while MCP server `{}` was running: inspect it, because such files can run code later",
                place.display(),
                self.server
            );
            log::warn!(target: "mcp", "{words}");
            if let Some(walls) = &self.walls {
                walls.tell(&words);
            }
        }
    }
}

/// A running program, which is ended on drop.
struct Program {
    number: u64,
    programs: Arc<Programs>,
}

impl Programs {
    fn keep(self: &Arc<Self>, resident: ServerProcess, traces: Traces) -> Program {
        let number = self.count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut running = self.running.lock().ignore_poison();
        running.push((number, resident, traces));
        Program {
            number,
            programs: Arc::clone(self),
        }
    }

    /// Ends all programs in parallel.
    pub(super) fn end(&self) {
        let mut running = self.running.lock().ignore_poison();
        let all = running
            .drain(..)
            .map(|(_, resident, traces)| (resident, traces));
        let (all, traces): (Vec<ServerProcess>, Vec<Traces>) = all.unzip();
        drop(running);
        server::end_all(all);
        traces.iter().for_each(Traces::tell);
        let mut ending = self.ending.lock().ignore_poison();
        for thread in ending.drain(..) {
            drop(thread.join());
        }
    }
}

impl Program {
    /// Returns how the program ended, if it has.
    fn ended(&self) -> Option<Ended> {
        let running = &self.programs.running;
        let mut running = running.lock().ignore_poison();
        let found = running
            .iter_mut()
            .find(|(number, ..)| *number == self.number);
        found.and_then(|(_, resident, _)| resident.ended())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut running = self.programs.running.lock().ignore_poison();
        let Some(at) = running
            .iter()
            .position(|(number, ..)| *number == self.number)
        else {
            return;
        };
        let (_, resident, traces) = running.swap_remove(at);
        drop(running);
        // Ending a program takes a moment, which must not delay the answers of other servers.
        let thread = std::thread::Builder::new().name("mcp-end".into());
        let end = move || {
            drop(resident);
            traces.tell();
        };
        if let Ok(thread) = thread.spawn(end) {
            let ending = &self.programs.ending;
            let mut ending = ending.lock().ignore_poison();
            ending.retain(|thread| !thread.is_finished());
            ending.push(thread);
        }
    }
}

type Written = oneshot::Sender<Result<(), Failed>>;

/// The streams of a program.
pub(super) struct Streams {
    input: Option<SyncSender<(Vec<u8>, Written)>>,
    output: mpsc::Receiver<ServerJsonRpcMessage>,
    program: Option<Program>,
    watch: Arc<Watch>,
}

impl Streams {
    /// Starts a program. `log` is the path for its standard error. The program is added to `programs`, which also hold
    /// the receiver of warnings about files it left behind.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(
        spec: &Spec,
        log: PathBuf,
        (programs, walls): (&Arc<Programs>, Option<Arc<dyn Walls>>),
        watch: &Arc<Watch>,
    ) -> Result<Self, Failed> {
        let what = |error: std::io::Error| match error.kind() {
            // No sandbox is available.
            std::io::ErrorKind::Unsupported => Failed::Unusable(error.to_string()),
            _ => Failed::Unreachable(error.to_string()),
        };
        let mut resident = server::start(spec).map_err(what)?;
        let traces = Traces {
            server: spec.name.clone(),
            absent: std::mem::take(&mut resident.absent),
            walls,
        };
        let streams = (
            resident.input.take(),
            resident.output.take(),
            resident.errors.take(),
        );
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(Failed::Unreachable(
                "its standard streams are missing".into(),
            ));
        };
        let program = programs.keep(resident, traces);
        let (unsent, to_write) = sync_channel(UNSENT);
        let (heard, incoming) = mpsc::channel(WAITING);
        let (watch_out, watch_err) = (Arc::clone(watch), Arc::clone(watch));
        spawn("mcp-write", move || write_all(input, &to_write)).map_err(what)?;
        spawn("mcp-read", move || read_all(output, &heard, &watch_out)).map_err(what)?;
        let read_log = move || {
            keep_log(errors, &log, &watch_err);
            watch_err.is_log_read.store(true, Ordering::SeqCst);
        };
        spawn("mcp-log", read_log).map_err(what)?;
        Ok(Self {
            input: Some(unsent),
            output: incoming,
            program: Some(program),
            watch: Arc::clone(watch),
        })
    }
}

/// Waits until the server's standard error has been read to its end, which comes slightly later than the end of its
/// other streams. Waits at most 1 s, since child processes may hold it open.
async fn until_log_is_read(watch: &Watch) {
    for _ in 0..100 {
        if watch.is_log_read.load(Ordering::SeqCst) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(work).map(drop)
}

fn write_all(mut input: PipeWriter, to_write: &Receiver<(Vec<u8>, Written)>) {
    while let Ok((line, written)) = to_write.recv() {
        let done = input
            .write_all(&line)
            .map_err(|_| Failed::Broken("it closed its standard input".into()));
        drop(written.send(done));
    }
}

/// Reads messages until the end of the stream, or until too many lines are not messages.
fn read_all(output: PipeReader, heard: &mpsc::Sender<ServerJsonRpcMessage>, watch: &Watch) {
    let mut output = BufReader::with_capacity(64 << 10, output);
    let (mut strays, mut stray_bytes) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut output)
            .take(LINE as u64 + 1)
            .read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() > LINE => {
                let words = format!("it wrote a line longer than {} MiB", LINE >> 20);
                return watch.over(Failed::Broken(words));
            }
            Ok(_) => {}
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match message::read(&line) {
            Some(message) => {
                if heard.blocking_send(message).is_err() {
                    return;
                }
            }
            None => {
                strays += 1;
                stray_bytes += line.len();
                let start = &line[..line.len().min(LOG_LINE)];
                let words = one_line(&String::from_utf8_lossy(start));
                log::debug!(target: "mcp", "not an MCP message: {words}");
                if strays > STRAY_LINES || stray_bytes > STRAY_BYTES {
                    let words = format!("its output is not MCP: {words}");
                    return watch.over(Failed::Broken(words));
                }
            }
        }
        // The memory of one large answer must not stay allocated until the end.
        line.shrink_to(1 << 20);
    }
}

/// Logs the server's standard error: the latest part of it, without secrets.
fn keep_log(errors: PipeReader, path: &Path, watch: &Watch) {
    let mut errors = BufReader::new(errors);
    let mut file = Log::begin(path);
    let mut keep = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let text = harmless(&secret::hide(text.trim_end_matches('\n')));
        if !text.trim().is_empty() {
            watch.note_line(&text);
        }
        // Reading continues even if the log cannot be written: the server must not block on the pipe.
        if let Some(log) = &mut file
            && log.push(&text).is_err()
        {
            file = None;
        }
    };
    let (mut line, mut passed_over) = (Vec::new(), Vec::new());
    let (mut said, mut kept) = (0, Instant::now());
    loop {
        line.clear();
        let read = (&mut errors)
            .take(LOG_LINE as u64)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            if !passed_over.is_empty() {
                // The skipped line turned out to be the last one.
                keep(&passed_over);
            }
            return;
        }
        said += line.len();
        if said > LOUD && kept.elapsed() < BREATH {
            std::mem::swap(&mut line, &mut passed_over);
            continue;
        }
        keep(&line);
        passed_over.clear();
        kept = Instant::now();
    }
}

/// A log file that is rotated at a maximum size; one older file is kept.
struct Log {
    path: PathBuf,
    file: std::fs::File,
    size: usize,
}

impl Log {
    fn begin(path: &Path) -> Option<Self> {
        store::create_dir(path.parent()?).ok()?;
        let file = store::open_log(path).ok()?;
        file.set_len(0).ok()?;
        Some(Self {
            path: path.to_owned(),
            file,
            size: 0,
        })
    }

    fn push(&mut self, line: &str) -> anyhow::Result<()> {
        if self.size + line.len() > LOG {
            std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
            self.file = store::open_log(&self.path)?;
            self.size = 0;
        }
        self.size += line.len() + 1;
        Ok(self.file.write_all(format!("{line}\n").as_bytes())?)
    }
}

impl Transport<RoleClient> for Streams {
    type Error = Failed;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Failed>> + Send + 'static {
        let (written, done) = oneshot::channel();
        let gone = || Failed::Broken("it has exited".into());
        let queued = serde_json::to_vec(&item)
            .map_err(|error| Failed::Unusable(format!("serialize the message: {error}")))
            .and_then(|mut line| {
                line.push(b'\n');
                let input = self.input.as_ref().ok_or_else(gone)?;
                let queued = input.try_send((line, written));
                queued.map_err(|_| Failed::Broken("it does not read its standard input".into()))
            });
        let watch = Arc::clone(&self.watch);
        async move {
            queued?;
            let sent = done.await.map_err(|_| gone())?;
            match sent {
                Err(Failed::Broken(words)) => {
                    until_log_is_read(&watch).await;
                    Err(Failed::Broken(format!("{words}{}", watch.last_words())))
                }
                sent => sent,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        if let Some(message) = self.output.recv().await {
            return Some(message);
        }
        // The last log lines and the exit status arrive slightly later than the end of the output.
        let mut status = None;
        for _ in 0..20 {
            status = self.program.as_ref().and_then(Program::ended);
            if status.is_some() || self.watch.why().is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if self.watch.why().is_none() {
            until_log_is_read(&self.watch).await;
        }
        let how = status.map_or_else(|| "it exited".to_owned(), |ended| ended.to_string());
        let words = format!("{how}{}", self.watch.last_words());
        self.watch.over(Failed::Broken(words));
        None
    }

    async fn close(&mut self) -> Result<(), Failed> {
        self.input = None;
        self.program = None;
        Ok(())
    }
}
