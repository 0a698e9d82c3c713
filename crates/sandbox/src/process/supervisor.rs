//! The supervisor of a server or of a sandboxed command, which is called a server here too: this program, started again.
//! It starts the server in its sandbox and waits. It ends the server's whole process tree when the server ends, when
//! ordered to, or when the parent is gone, even after `kill -9`.
//!
//! It receives its launch description, together with the server's streams, over a socket whose other end only the
//! parent holds. Nothing therefore appears on a command line or in an environment. The end of that socket is the order
//! to end the server. Where the system allows it, the supervisor is the first process of new namespaces, whose other
//! processes end with it, however many they are. Elsewhere, processes that the server leaves behind in other groups and
//! sessions become children of the supervisor, and are ended one by one.

use super::resource_limits::{describe_start_error, set_own_limits, test_limits};
use crate::self_test::{SelfTest, SelfTestResult};
use crate::{EmptyRoot, ProtectedPids, SandboxSpec, StartDirectory};
use nanobot_os::children::{KILL_TIMEOUT, SETTLE_TIMEOUT, TERM_GRACE, children, is_ending};
use nanobot_os::process_group::process_group;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The name (`argv[0]`) that makes this program a supervisor.
pub(super) const SUPERVISOR_ARG0: &str = "nanobot-supervisor";
/// The argument that tells a supervisor that it is the first process of new namespaces.
pub(super) const IN_NAMESPACES: &str = "namespaces";

/// The time that a server may take to end after its input has ended, and again after `SIGTERM`.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// The launch description of a server, sent as JSON. Its length precedes it, in eight bytes (little-endian); the three
/// streams are attached to these.
#[derive(Serialize, Deserialize)]
pub(super) struct LaunchSpec {
    #[serde(with = "nanobot_os::wire_paths::path")]
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) directory: LaunchDirectory,
    pub(super) env: Vec<(String, String)>,
    pub(super) sandbox: Option<SandboxSpec>,
    pub(super) kind: LaunchKind,
    /// The operations to try, if it is a trial.
    pub(super) self_test: Option<SelfTest>,
    /// The processes that start it; it cannot signal them from within its sandbox.
    pub(super) protected: ProtectedPids,
}

/// The working directory of what is launched.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LaunchDirectory {
    /// That of the supervisor too, which enters it.
    Shared(StartDirectory),
    /// A path that means what it means in the sandbox.
    Inside(#[serde(with = "nanobot_os::wire_paths::path")] PathBuf),
}

/// The kind of program that is supervised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LaunchKind {
    /// It ends when its input ends, and gets time to do so.
    Server,
    /// It ends at once if the parent is gone.
    Command,
    /// A command that ends as a server does.
    BackgroundCommand,
    /// Nothing is started. The sandbox is entered, and tested if asked for.
    Trial,
}

/// A report to the parent: one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SupervisorReport {
    /// It is in new namespaces.
    Entered,
    Started(i32),
    /// It could not be started: the `errno` if there is one, and a message.
    Failed(Option<i32>, String),
    /// It has ended: its exit status, or the signal that ended it.
    Ended(Option<i32>, Option<i32>),
    /// The system does not allow the namespaces, or a part of what is done in them: the reason.
    NoNamespaces(String),
    /// It left processes behind.
    Leftovers,
    /// It has ended, and none of its processes is left.
    Finished,
    /// The sandbox could be entered; what its test found.
    Tested(Vec<SelfTestResult>),
}

impl SupervisorReport {
    /// The error that a report other than the expected one stands for.
    pub(super) fn into_error(self) -> io::Error {
        match self {
            Self::Failed(Some(number), _) => io::Error::from_raw_os_error(number),
            Self::Failed(None, message) => io::Error::other(message),
            Self::NoNamespaces(message) => io::Error::new(io::ErrorKind::Unsupported, message),
            _ => io::ErrorKind::InvalidData.into(),
        }
    }
}

/// Runs as a supervisor if this program was started as one, and returns `None` otherwise. Returns true if no process of
/// the server was left.
pub(super) fn become_supervisor() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != SUPERVISOR_ARG0) {
        return None;
    }
    let in_namespaces = arguments.next().is_some_and(|word| word == IN_NAMESPACES);
    close_fds::set_fds_cloexec(3, &[]);
    // Only the parent could receive an error, and it sees the end of the socket.
    Some(supervise(in_namespaces).unwrap_or(false))
}

/// Receives the launch description from standard input, and supervises the server until it has ended. Returns true if
/// none of its processes is left.
///
/// # Errors
/// The launch description cannot be read, or no descriptors are left.
pub(super) fn supervise(in_namespaces: bool) -> io::Result<bool> {
    let mut control = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let wake = SignalPipe::new()?;
    if in_namespaces {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    // Done before it is known what to launch, which may take a while.
    let root = in_namespaces.then(EmptyRoot::enter);
    let (launch, streams) = receive_launch(&mut control)?;
    let kind = launch.kind;
    let started = match kind {
        LaunchKind::Trial => try_sandbox(launch, root),
        LaunchKind::Server | LaunchKind::Command | LaunchKind::BackgroundCommand => {
            start_server(launch, streams, root)
        }
    };
    let report = started
        .unwrap_or_else(|error| SupervisorReport::Failed(error.raw_os_error(), error.to_string()));
    send_report(&mut control, &report);
    let SupervisorReport::Started(server) = report else {
        return Ok(true);
    };
    let mut watch = Supervisor {
        server: Pid::from_raw(server).ok_or(io::ErrorKind::InvalidData)?,
        kind,
        has_ended: false,
        control,
        wake,
    };
    Ok(watch.run())
}

/// Sends a report to the parent.
pub(super) fn send_report(control: &mut UnixStream, report: &SupervisorReport) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // If the parent is gone, no report is needed.
    drop(control.write_all(&line));
}

fn receive_launch(control_socket: &mut UnixStream) -> io::Result<(LaunchSpec, [OwnedFd; 3])> {
    let mut length = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let received =
        rustix::net::recvmsg(&*control_socket, &mut parts, &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let streams: Vec<OwnedFd> = with
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(streams) => Some(streams),
            _ => None,
        })
        .flatten()
        .collect();
    let streams = <[OwnedFd; 3]>::try_from(streams);
    let (8, Ok(streams)) = (received.bytes, streams) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    control_socket.read_exact(&mut bytes)?;
    let launch = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    Ok((launch, streams))
}

/// Starts the server. It then holds the only copies of its ends of the streams, so what it closes is closed.
fn start_server(
    launch: LaunchSpec,
    [input, output, errors]: [OwnedFd; 3],
    root: Option<io::Result<EmptyRoot>>,
) -> io::Result<SupervisorReport> {
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).env_clear().envs(launch.env).process_group(0);
    command.stdin(input).stdout(output).stderr(errors);
    let directory = match launch.directory {
        LaunchDirectory::Shared(directory) => Some(directory),
        LaunchDirectory::Inside(path) => {
            command.current_dir(path);
            None
        }
    };
    let in_namespaces = root.is_some();
    let mut start = || {
        // Done only now, since creating namespaces needs access to our own entry in `/proc`. It prevents the server from
        // tracing us, and from reading the launch description in our memory.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // The server inherits them. Of others than itself, a sandboxed thread cannot set any.
        if let Some(sandbox) = &launch.sandbox {
            set_own_limits(sandbox, in_namespaces)?;
        }
        let server = Pid::from_child(&command.spawn()?);
        Ok(SupervisorReport::Started(server.as_raw_pid()))
    };
    if let Some((sandbox, root)) = launch.sandbox.as_ref().zip(root) {
        let is_long_lived = launch.kind == LaunchKind::Server;
        return run_in_root(root, sandbox, directory.as_ref(), is_long_lived, start);
    }
    if let Some(directory) = directory {
        directory.enter()?;
    }
    match &launch.sandbox {
        None => start(),
        Some(sandbox) => {
            let protected = launch.protected.merged(&ProtectedPids::current());
            sandbox.clone().without_root().run_inside(&protected, start)
        }
    }
}

/// Enters the sandbox of new namespaces, and runs the test in it.
fn try_sandbox(
    launch: LaunchSpec,
    root: Option<io::Result<EmptyRoot>>,
) -> io::Result<SupervisorReport> {
    let root = root.unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()));
    let sandbox = launch.sandbox.unwrap_or_default();
    run_in_root(root, &sandbox, None, false, || {
        let Some(test) = launch.self_test else {
            return Ok(SupervisorReport::Tested(Vec::new()));
        };
        set_own_limits(&sandbox, true)?;
        let mut results = test.run();
        results.extend(test_limits(None, &sandbox)?);
        Ok(SupervisorReport::Tested(results))
    })
}

/// Runs `work` in the sandbox of new namespaces, whose root is `root`, and in `directory`. If the system does not allow it,
/// reports so.
fn run_in_root(
    root: io::Result<EmptyRoot>,
    sandbox: &SandboxSpec,
    directory: Option<&StartDirectory>,
    is_long_lived: bool,
    work: impl FnOnce() -> io::Result<SupervisorReport> + Send,
) -> io::Result<SupervisorReport> {
    let mut result = None;
    // It sees no process but its own, and the first one accepts no signal that could end it.
    let alone = ProtectedPids::default();
    let filled = match root {
        Ok(root) => match sandbox.clone().fill_root(root, directory, is_long_lived) {
            // The system has namespaces, but what was granted cannot be mounted.
            Err(error) if !is_refused_by_system(&error) => {
                return Err(io::Error::other(format!("its sandbox cannot be set up: {error}")));
            }
            filled => filled,
        },
        Err(error) => Err(error),
    };
    let entered = filled.and_then(|left| {
        left.run_inside(&alone, || {
            result = Some(work());
            Ok(())
        })
    });
    match (entered, result) {
        (_, Some(result)) => result,
        (Err(error), None) => Ok(SupervisorReport::NoNamespaces(describe_start_error(&error))),
        (Ok(()), None) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// True if the system does not allow a call at all, as a container may not.
fn is_refused_by_system(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::PERM | Errno::NOSYS))
}

/// The wake pipe of the supervisor: readable after a signal.
struct SignalPipe(UnixStream);

/// True after a signal requested the end.
static SHUTDOWN_REQUESTED: AtomicBool = AtomicBool::new(false);

impl SignalPipe {
    fn new() -> io::Result<Self> {
        let (wake_rx, wake_tx) = UnixStream::pair()?;
        wake_rx.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, &SHUTDOWN_REQUESTED)?;
        }
        for signal in [SIGCHLD, SIGTERM, SIGINT, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, wake_tx.try_clone()?)?;
        }
        Ok(Self(wake_rx))
    }

    fn drain(&mut self) {
        let mut block = [0; 64];
        while self.0.read(&mut block).is_ok_and(|count| count > 0) {}
    }
}

struct Supervisor {
    /// The server's process id, which is also that of its group.
    server: Pid,
    kind: LaunchKind,
    /// True if it was reaped; its id may then belong to another process.
    has_ended: bool,
    control: UnixStream,
    wake: SignalPipe,
}

impl Supervisor {
    /// Waits for the server's end and ends its process tree. Returns true if no process is left.
    fn run(&mut self) -> bool {
        let mut is_ordered = false;
        loop {
            self.reap();
            if self.has_ended || SHUTDOWN_REQUESTED.load(Ordering::SeqCst) || is_ordered {
                break;
            }
            is_ordered = self.wait(None, true);
        }
        if self.kind == LaunchKind::Command {
            if self.finish_command(is_ordered) {
                send_report(&mut self.control, &SupervisorReport::Finished);
            }
            return true;
        }
        // On an order, as opposed to a signal, the server's input has ended too.
        if is_ordered {
            self.wait_until(SHUTDOWN_GRACE, |watch| {
                watch.reap();
                watch.has_ended
            });
        }
        if self.reap() {
            return true;
        }
        self.signal(Signal::TERM);
        if self.wait_until(SHUTDOWN_GRACE, Self::reap) {
            return true;
        }
        // Ending a process can make its children ours.
        let killed = Instant::now();
        while killed.elapsed() < KILL_TIMEOUT {
            self.signal(Signal::KILL);
            if self.wait_until(Duration::from_millis(10), Self::reap) {
                return true;
            }
        }
        false
    }

    /// Asks what a command leaves behind to end. The rest ends with the namespace. Returns true if there is none.
    fn finish_command(&mut self, is_parent_gone: bool) -> bool {
        if is_parent_gone {
            return false;
        }
        if self.has_ended && !self.has_leftovers() {
            return true;
        }
        if self.has_ended {
            send_report(&mut self.control, &SupervisorReport::Leftovers);
        }
        self.signal(Signal::TERM);
        self.wait_until(TERM_GRACE, Self::reap)
    }

    /// True if a process still runs. Waits for those that are exiting, and a little for those that are about to, as a
    /// daemon is that was told to end.
    fn has_leftovers(&mut self) -> bool {
        let started = Instant::now();
        while !self.reap() {
            let is_running = || children().into_iter().any(|pid| !is_ending(pid));
            let waited = started.elapsed();
            if waited >= TERM_GRACE || waited >= SETTLE_TIMEOUT && is_running() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Reaps all processes that have ended. Returns true if no child is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                // A process that asked to be traced by its parent is reported when it stops, too.
                Ok(Some((_, status))) if status.stopped() || status.continued() => {}
                Ok(Some((pid, status))) if pid == self.server && !self.has_ended => {
                    self.has_ended = true;
                    let ended =
                        SupervisorReport::Ended(status.exit_status(), status.terminating_signal());
                    send_report(&mut self.control, &ended);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Signals the server's group, and all children outside of it.
    fn signal(&self, signal: Signal) {
        let group = (!self.has_ended).then_some(self.server);
        // Errors mean that no process is left to signal, or that we lack permission.
        if let Some(group) = group {
            let _: Result<_, _> = rustix::process::kill_process_group(group, signal);
        }
        for child in children() {
            if group.is_none() || process_group(Some(child)) != group {
                let _: Result<_, _> = rustix::process::kill_process(child, signal);
            }
        }
    }

    fn wait_until(&mut self, limit: Duration, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            if is_done(self) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.wait(Some(left), false);
        }
    }

    /// Waits up to `limit` for a signal or, if `watches_control`, for the parent. Returns true if `watches_control` and
    /// the end was ordered.
    fn wait(&mut self, limit: Option<Duration>, watches_control: bool) -> bool {
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::from_borrowed_fd(self.wake.0.as_fd(), PollFlags::IN)];
        if watches_control {
            fds.push(PollFd::new(&self.control, PollFlags::IN));
        }
        // If interrupted, the caller checks again.
        let _: Result<_, _> = poll(&mut fds, timeout.as_ref());
        let is_spoken_to = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        self.wake.drain();
        let mut word = [0; 1];
        is_spoken_to && !self.control.read(&mut word).is_ok_and(|count| count > 0)
    }
}
