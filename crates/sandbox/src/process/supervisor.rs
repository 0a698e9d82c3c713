//! The supervisor of a child, which is an MCP server or a sandboxed command: this program, started again. It starts the child
//! in its sandbox and waits. It ends the child's whole process tree when the child ends, when ordered to, or when the
//! parent is gone, even after `kill -9`.
//!
//! It receives its launch description, together with the child's streams, over a socket whose other end only the
//! parent holds. Nothing therefore appears on a command line or in an environment. The end of that socket is the order
//! to end the child. Where the system allows it, the supervisor is the first process of new namespaces, whose other
//! processes end with it, however many they are. Elsewhere, processes that the child leaves behind in other groups and
//! sessions become children of the supervisor, and are ended one by one.

use super::helper::{ReceivedMessage, receive_message};
use super::resource_limits::{describe_start_error, set_own_limits, test_limits};
use crate::network::FailedAttempts;
use crate::self_test::{SelfTest, SelfTestResult};
use crate::{EmptyRoot, ProtectedPids, SandboxSpec, StartDirectory};
use nanobot_os::children::{KILL_TIMEOUT, SETTLE_TIMEOUT, TERM_GRACE, children, is_ending};
use nanobot_os::process_group::process_group;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, Read, Write};
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

/// The time that a child may take to end after its input has ended, and again after `SIGTERM`.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// The launch description of a child, sent as JSON, together with its three streams.
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

/// The kind of child that is supervised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LaunchKind {
    /// It ends when its input ends, and gets time to do so.
    Server,
    /// It ends at once if the parent is gone.
    Command,
    /// A command that ends as a server does.
    BackgroundCommand,
    /// Nothing is started. The sandbox is entered, and tested if there is a self test.
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
    /// It has ended: its exit status, or the signal that ended it. If it failed in a network namespace that only has loopback, with
    /// what processes there could not reach meanwhile.
    Ended {
        status: Option<i32>,
        signal: Option<i32>,
        failed_attempts: FailedAttempts,
    },
    /// The system does not allow the namespaces, or a part of what is done in them: the reason.
    NoNamespaces(String),
    /// It left processes behind.
    Leftovers,
    /// It has ended, and none of its processes is left.
    Finished,
    /// The sandbox could be entered; the results of its self test.
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
/// the child was left.
pub(super) fn become_supervisor() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != SUPERVISOR_ARG0) {
        return None;
    }
    let in_namespaces = arguments.next().is_some_and(|argument| argument == IN_NAMESPACES);
    close_fds::set_fds_cloexec(3, &[]);
    // Only the parent could receive an error, and it sees the end of the socket.
    Some(supervise(in_namespaces).unwrap_or(false))
}

/// Receives the launch description from standard input, and supervises the child until it has ended. Returns true if
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
    // Done before the launch description arrives, which a supervisor in standby waits for.
    let root = in_namespaces.then(EmptyRoot::enter);
    let (launch, streams) = receive_launch(&control)?;
    let kind = launch.kind;
    let network = launch.sandbox.as_ref().map(|sandbox| &sandbox.network);
    let has_loopback = in_namespaces && network.is_some_and(|network| network.shared().is_some());
    let earlier_attempts = has_loopback.then(FailedAttempts::count);
    let started = match kind {
        LaunchKind::Trial => try_sandbox(launch, root),
        LaunchKind::Server | LaunchKind::Command | LaunchKind::BackgroundCommand => {
            start_child(launch, streams, root)
        }
    };
    let report = started
        .unwrap_or_else(|error| SupervisorReport::Failed(error.raw_os_error(), error.to_string()));
    send_report(&mut control, &report);
    let SupervisorReport::Started(child) = report else {
        return Ok(true);
    };
    let mut supervisor = Supervisor {
        child: Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?,
        kind,
        has_ended: false,
        earlier_attempts,
        control,
        wake,
    };
    Ok(supervisor.run())
}

/// Sends a report to the parent.
pub(super) fn send_report(control: &mut UnixStream, report: &SupervisorReport) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // If the parent is gone, no report is needed.
    drop(control.write_all(&line));
}

fn receive_launch(control: &UnixStream) -> io::Result<(LaunchSpec, [OwnedFd; 3])> {
    let ReceivedMessage { message, descriptors } = receive_message(control)?;
    let streams = <[OwnedFd; 3]>::try_from(descriptors);
    let streams = streams.map_err(|_| io::ErrorKind::UnexpectedEof)?;
    Ok((serde_json::from_slice(&message).map_err(io::Error::other)?, streams))
}

/// Starts the child. It then holds the only copies of its ends of the streams, so what it closes is closed.
fn start_child(
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
        // Done only now, since creating namespaces needs access to our own entry in `/proc`. It prevents the child from
        // tracing us, and from reading the launch description in our memory.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // The child inherits them. A sandboxed thread can set no limits of other processes.
        if let Some(sandbox) = &launch.sandbox {
            set_own_limits(sandbox, in_namespaces)?;
        }
        let child = Pid::from_child(&command.spawn()?);
        Ok(SupervisorReport::Started(child.as_raw_pid()))
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
    // The command sees no process but its own and this one, the first of its namespace, which it cannot kill.
    let protected = ProtectedPids::default();
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
    let entered = filled.and_then(|sandbox| {
        sandbox.run_inside(&protected, || {
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
    /// The child's process id, which is also that of its group.
    child: Pid,
    kind: LaunchKind,
    /// True if it was reaped; its id may then belong to another process.
    has_ended: bool,
    /// Those before it was started, if its network namespace only has loopback.
    earlier_attempts: Option<FailedAttempts>,
    control: UnixStream,
    wake: SignalPipe,
}

impl Supervisor {
    /// Waits for the child's end and ends its process tree. Returns true if no process is left.
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
        // On an order, as opposed to a signal, the child's input has ended too.
        if is_ordered {
            self.wait_until(SHUTDOWN_GRACE, |supervisor| {
                supervisor.reap();
                supervisor.has_ended
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

    /// Asks the processes that a command has left behind to end. Those that do not will end with the namespace. Returns true
    /// if none is left.
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

    /// True if a process still runs. Waits for those that are exiting, and shortly for others, which may be about to exit, as
    /// a daemon after a request to stop.
    fn has_leftovers(&mut self) -> bool {
        let started = Instant::now();
        while !self.reap() {
            let is_running = || children().into_iter().any(|pid| !is_ending(pid));
            let waited = started.elapsed();
            if waited >= TERM_GRACE || (waited >= SETTLE_TIMEOUT && is_running()) {
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
                // A process that its parent traces is also reported when it stops.
                Ok(Some((_, status))) if status.stopped() || status.continued() => {}
                Ok(Some((pid, status))) if pid == self.child && !self.has_ended => {
                    self.has_ended = true;
                    let has_failed = status.exit_status() != Some(0);
                    let earlier_attempts = self.earlier_attempts.filter(|_| has_failed);
                    let ended = SupervisorReport::Ended {
                        status: status.exit_status(),
                        signal: status.terminating_signal(),
                        failed_attempts: earlier_attempts
                            .map(|earlier| FailedAttempts::count().since(earlier))
                            .unwrap_or_default(),
                    };
                    send_report(&mut self.control, &ended);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Signals the child's group, and all children outside of it.
    fn signal(&self, signal: Signal) {
        let group = (!self.has_ended).then_some(self.child);
        // Errors mean that no process is left to signal, or that we lack permission.
        if let Some(group) = group {
            let _: Result<_, _> = rustix::process::kill_process_group(group, signal);
        }
        for pid in children() {
            if group.is_none() || process_group(Some(pid)) != group {
                let _: Result<_, _> = rustix::process::kill_process(pid, signal);
            }
        }
    }

    fn wait_until(&mut self, limit: Duration, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant::now() + limit;
        loop {
            if is_done(self) {
                return true;
            }
            let time_left = end.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return false;
            }
            self.wait(Some(time_left), false);
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
        let is_control_ready = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        self.wake.drain();
        // The parent orders the end by closing its side of the connection.
        is_control_ready && !self.control.read(&mut [0]).is_ok_and(|count| count > 0)
    }
}
