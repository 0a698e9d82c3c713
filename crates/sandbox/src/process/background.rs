//! Commands in the background: each runs in the sandbox of other commands, with a pipe for its input, and a thread that reads
//! its output into bounded memory. Its supervisor ends it, with all its processes, as it does with servers.

use super::output::{CapturedText, TextOutput};
use super::run::CommandSpec;
use super::server::{self, SHUTDOWN_TIMEOUT, ServerExit, ServerProcess, ServerSpec};
use super::write_lock::{BackgroundLock, WriteLock};
use crate::UndoneChange;
use nanobot_os::signal::{self, Deadline};
use parking_lot::Mutex;
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The quiet time after which an output is treated as complete for now.
const QUIET_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum wait for a pause of the output.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum time from the end of the command to the end of its output.
const END_OF_OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);

/// A command in the background. Dropping this ends it and all processes that it started.
pub struct BackgroundProcess {
    server: ServerProcess,
    output: OutputReader,
    /// `None` if it may not write, and after its end.
    lock: Option<BackgroundLock>,
    exit: Option<ServerExit>,
}

/// Starts the command in the background, without a timeout: the timeout of `spec` limits only the wait for other commands. Long
/// outputs are kept in a directory in one of `output_parents`.
///
/// # Errors
/// The command cannot be started; [`io::ErrorKind::ResourceBusy`] if other commands that may change the same files do not finish in
/// time; [`io::ErrorKind::Interrupted`] if the run is cancelled.
pub fn start(spec: &CommandSpec, output_parents: &[PathBuf]) -> io::Result<BackgroundProcess> {
    let writing_sandbox = spec.sandbox.as_ref().filter(|sandbox| sandbox.may_change_shared());
    let lock_and_snapshot = match writing_sandbox {
        Some(sandbox) => {
            let lock = WriteLock::acquire(sandbox, Deadline::after(spec.timeout))?;
            Some((lock, sandbox.take_snapshot()?))
        }
        None => None,
    };
    let output = OutputReader::new(spec.capture_bytes, output_parents)?;
    let started = server::start_command(&ServerSpec {
        name: String::new(),
        program: spec.program.clone(),
        arguments: spec.arguments.clone(),
        directory: spec.directory.clone(),
        env: spec.env.clone(),
        sandbox: spec.sandbox.clone(),
    });
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            // The command may have run for a moment.
            if let Some((_, snapshot)) = &lock_and_snapshot {
                snapshot.restore();
            }
            return Err(error);
        }
    };
    let lock = lock_and_snapshot.map(|(lock, snapshot)| lock.leave_to_background(snapshot));
    let mut process = BackgroundProcess { server, output, lock, exit: None };
    if let Some(input) = &process.server.input {
        rustix::fs::fcntl_setfl(input, OFlags::NONBLOCK)?;
    }
    if let Some(pipe) = process.server.output.take() {
        process.output.start(pipe)?;
    }
    if let Some(input) = &spec.input
        && process.write(input, Deadline::after(spec.timeout))? < input.len()
    {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(process)
}

impl BackgroundProcess {
    /// The exit of the command, or `None` while any of its processes runs.
    pub fn exit(&mut self) -> Option<ServerExit> {
        if self.exit.is_none() && self.server.exit().is_some() {
            self.finish();
        }
        self.exit
    }

    /// Writes `bytes` to its standard input, while `deadline` lasts. Returns the number of bytes written.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] if the command does not read any more; [`io::ErrorKind::Interrupted`] if the run is cancelled.
    pub fn write(&mut self, bytes: &[u8], mut deadline: Deadline) -> io::Result<usize> {
        self.output.clear_wake();
        let input = self.server.input.as_mut();
        let input = input.ok_or(io::ErrorKind::BrokenPipe)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match input.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match signal::wait_writable(&*input, &mut deadline) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(_) => return Err(io::ErrorKind::Interrupted.into()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Waits until there is output and it pauses, until the command ends, or until `limit` is over. Output that arrived before the last
    /// [`Self::write`] ends the wait only if `counts_earlier`.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] if the run is cancelled.
    pub fn wait(&mut self, limit: Duration, counts_earlier: bool) -> io::Result<()> {
        let end = signal::now().saturating_add(limit);
        let mut has_output = counts_earlier && self.output.has_unread();
        let mut settle_end = None;
        loop {
            has_output |= self.output.clear_wake();
            if self.exit().is_some() {
                return Ok(());
            }
            let now = signal::now();
            let until = if has_output {
                let settle_end = *settle_end.get_or_insert(now + SETTLE_TIMEOUT);
                settle_end.min(now + QUIET_INTERVAL).min(end)
            } else {
                end
            };
            let mut fds = vec![(self.server.end_fd(), PollFlags::IN)];
            // After the end of the output the pipe would wake this at once.
            if !self.output.has_ended() {
                fds.push((self.output.wake_rx.as_fd(), PollFlags::IN));
            }
            match signal::wait(&fds, &mut Deadline::until(until)) {
                Ok(Some(_)) if now < until => {}
                Ok(_) => return Ok(()),
                Err(_) => return Err(io::ErrorKind::Interrupted.into()),
            }
        }
    }

    /// Takes the output since the last call.
    pub fn take_output(&mut self) -> CapturedText {
        self.output.take()
    }

    /// Ends the command: closes its input, then signals it, then kills it. Takes up to [`SHUTDOWN_TIMEOUT`].
    pub fn end(&mut self) {
        self.server.request_shutdown();
        self.finish();
    }

    /// Undoes the changes of background commands to protected paths. After the end of the command, no further call is needed.
    pub fn restore_protected(&mut self) -> Vec<UndoneChange> {
        match (&self.exit, self.lock.take()) {
            (_, None) => Vec::new(),
            (Some(_), Some(lock)) => lock.finish(),
            (None, Some(lock)) => self.lock.insert(lock).restore(),
        }
    }

    /// Waits for the end of all its processes, and of its output.
    fn finish(&mut self) {
        self.server.wait_or_kill(Instant::now() + SHUTDOWN_TIMEOUT);
        self.exit = self.server.exit().or(Some(ServerExit::Unknown));
        self.output.wait_for_end();
    }
}

/// Ends all commands in parallel, within [`SHUTDOWN_TIMEOUT`]. Returns the changes of protected paths that were undone.
pub fn end_all(processes: Vec<BackgroundProcess>) -> Vec<UndoneChange> {
    let (servers, locks): (Vec<_>, Vec<_>) =
        processes.into_iter().map(|process| (process.server, process.lock)).unzip();
    server::end_all(servers);
    let mut undone = Vec::new();
    for lock in locks.into_iter().flatten() {
        undone.extend(lock.finish());
    }
    undone
}

/// Reads the output of a command on a thread.
struct OutputReader {
    unread: Arc<Mutex<UnreadOutput>>,
    /// Readable when output has arrived since the last [`Self::clear_wake`], and after the end of the output.
    wake_rx: PipeReader,
    /// Taken by the thread.
    wake_tx: Option<PipeWriter>,
}

struct UnreadOutput {
    output: TextOutput,
    is_empty: bool,
    /// The wake pipe has a byte.
    is_awake: bool,
    has_ended: bool,
}

impl OutputReader {
    fn new(limit: usize, parents: &[PathBuf]) -> io::Result<Self> {
        let (wake_rx, wake_tx) = io::pipe()?;
        rustix::fs::fcntl_setfl(&wake_rx, OFlags::NONBLOCK)?;
        let unread = UnreadOutput {
            output: TextOutput::new(limit, parents),
            is_empty: true,
            is_awake: false,
            has_ended: false,
        };
        Ok(Self { unread: Arc::new(Mutex::new(unread)), wake_rx, wake_tx: Some(wake_tx) })
    }

    /// Starts the thread, which ends with the output.
    fn start(&mut self, pipe: PipeReader) -> io::Result<()> {
        let Some(wake_tx) = self.wake_tx.take() else {
            return Ok(());
        };
        let unread = Arc::clone(&self.unread);
        let thread = std::thread::Builder::new().name("command-output".into());
        thread.spawn(move || read_all(pipe, &unread, &wake_tx))?;
        Ok(())
    }

    /// Empties the wake pipe. Returns true if it had a byte.
    fn clear_wake(&self) -> bool {
        let mut unread = self.unread.lock();
        let was_awake = std::mem::take(&mut unread.is_awake);
        // The pipe has a byte then, and reading it never blocks.
        was_awake && (&self.wake_rx).read(&mut [0; 1]).is_ok()
    }

    fn has_unread(&self) -> bool {
        !self.unread.lock().is_empty
    }

    fn has_ended(&self) -> bool {
        self.unread.lock().has_ended
    }

    fn take(&self) -> CapturedText {
        let mut unread = self.unread.lock();
        unread.is_empty = true;
        unread.output.take()
    }

    /// Waits until the output has ended, as it does once no process holds the pipe.
    fn wait_for_end(&self) {
        let mut deadline = Deadline::after(END_OF_OUTPUT_TIMEOUT);
        while !self.has_ended() {
            self.clear_wake();
            // A cancelled run needs no more output.
            if !matches!(signal::wait_readable(&self.wake_rx, &mut deadline), Ok(true)) {
                return;
            }
        }
    }
}

/// Reads `pipe` to its end.
fn read_all(mut pipe: PipeReader, unread: &Mutex<UnreadOutput>, mut wake_tx: &PipeWriter) {
    let mut block = vec![0; 64 << 10];
    loop {
        let count = match pipe.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let mut unread = unread.lock();
        unread.is_empty &= unread.output.feed(&block[..count]).is_empty();
        if !std::mem::replace(&mut unread.is_awake, true) {
            // One byte at a time fits in the pipe. The receiver may be gone.
            drop(wake_tx.write(b"!"));
        }
    }
    let mut unread = unread.lock();
    unread.is_empty &= unread.output.end().is_empty();
    unread.has_ended = true;
}
