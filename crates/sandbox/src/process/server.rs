//! Servers: long-running children that communicate over their streams. Each has a [`supervisor`], which ends the
//! server's whole process tree when the server ends, when ordered to, or when this process is gone.
//!
//! [`supervisor`]: super::supervisor

use super::namespaced_supervisor::{
    are_namespaces_available, namespace_command, remember_namespaces, start_namespaced,
};
use super::own_program::helper_executable;
use super::supervisor::{self, LaunchDirectory, LaunchKind, LaunchSpec, SupervisorReport};
use super::supervisor_connection::{SupervisorConnection, SupervisorProcess};
use crate::{self as sandbox, PathSnapshot, ProtectedPids, SandboxSpec, StartDirectory};
use nanobot_os::children::{KILL_TIMEOUT, detached, has_no_commands, kill_leftovers, prepare};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub use supervisor::SHUTDOWN_GRACE;

/// The longest time that it takes to end any number of servers, including ones that ignore all requests to end.
pub const SHUTDOWN_TIMEOUT: Duration =
    SHUTDOWN_GRACE.saturating_mul(2).saturating_add(KILL_TIMEOUT);

/// A server to start.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Its name in the config file.
    pub name: String,
    /// A path, or a name that is searched in the `PATH` of `env`.
    pub program: PathBuf,
    /// Its arguments, without `argv[0]`.
    pub arguments: Vec<String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Its entire environment.
    pub env: Vec<(String, String)>,
    /// The sandbox. `None` for no restrictions.
    pub sandbox: Option<SandboxSpec>,
}

/// A running server. Dropping this ends it and all processes that it started.
#[derive(Debug)]
pub struct ServerProcess {
    /// Its standard input, to be taken by the client. While this is held, the server's input does not end.
    pub input: Option<PipeWriter>,
    /// Its standard output.
    pub output: Option<PipeReader>,
    /// Its standard error. It must be read too, or the server blocks when the pipe is full. `None` if it goes to standard output, as for
    /// commands.
    pub errors: Option<PipeReader>,
    /// Protected paths of its sandbox that did not exist at the start. The sandbox does not prevent the server from creating
    /// them, so the caller has to check for them at the end and report them to the user.
    pub absent_protected: Vec<PathBuf>,
    /// The files that its sandbox names as project files, as they were at the start, for the same purpose.
    pub snapshot: Option<PathSnapshot>,
    connection: SupervisorConnection,
    exit: Option<ServerExit>,
    supervisor: Child,
    server: Pid,
    is_finished: bool,
}

/// The way a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerExit {
    /// The exit status.
    Status(i32),
    /// The number of the signal that ended it.
    Signal(i32),
    /// Unknown, because its supervisor was killed.
    Unknown,
}

impl std::fmt::Display for ServerExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "it exited with status {status}"),
            Self::Signal(signal) => write!(f, "it was killed by signal {signal}"),
            Self::Unknown => f.write_str("it ended together with its supervisor"),
        }
    }
}

/// Starts a server.
///
/// # Errors
/// The server cannot be started: [`io::ErrorKind::NotFound`] if there is no such program or directory,
/// [`io::ErrorKind::Unsupported`] if a sandbox is required and none is available, [`io::ErrorKind::Interrupted`] if the
/// run is cancelled.
pub fn start(spec: &ServerSpec) -> io::Result<ServerProcess> {
    require_sandbox(spec)?;
    start_with(supervisor_command()?, spec, LaunchKind::Server)
}

/// Starts a command that runs in the background: in the sandbox of commands, and with standard error in its standard
/// output. Its directory is opened at once, whatever its path leads to later.
///
/// # Errors
/// The errors of [`start`]. If a required sandbox is unavailable, the error contains a [`sandbox::SandboxError`].
pub(super) fn start_command(spec: &ServerSpec) -> io::Result<ServerProcess> {
    if spec.sandbox.is_some() {
        sandbox::check_available().map_err(io::Error::other)?;
    }
    start_with(supervisor_command()?, spec, LaunchKind::BackgroundCommand)
}

/// The ignored test of the program of unit tests that calls [`supervise_in_test`], if there is one.
#[cfg(feature = "test-hooks")]
static TEST_SUPERVISOR: std::sync::OnceLock<&str> = std::sync::OnceLock::new();

/// Has the ignored test `name`, which calls [`supervise_in_test`], started for each supervisor.
#[cfg(feature = "test-hooks")]
pub fn use_test_as_supervisor(name: &'static str) {
    let _: Result<(), &str> = TEST_SUPERVISOR.set(name);
}

/// Runs as a supervisor, if a test was started as one.
#[cfg(feature = "test-hooks")]
pub fn supervise_in_test() {
    let is_one = rustix::net::sockopt::socket_type(rustix::stdio::stdin()).is_ok();
    assert!(
        !is_one
            || supervisor::supervise(false)
                .expect("a supervisor gets a description of what to launch")
    );
}

/// Prepares a command that starts this program as a supervisor.
fn supervisor_command() -> io::Result<Command> {
    #[cfg(feature = "test-hooks")]
    if let Some(test) = TEST_SUPERVISOR.get() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        return Ok(command);
    }
    let mut command = Command::new(helper_executable()?);
    let null = std::process::Stdio::null;
    command.arg0(supervisor::SUPERVISOR_ARG0).stdout(null()).stderr(null());
    Ok(command)
}

/// Starts a server, in namespaces of its own if the system allows them, otherwise with `supervisor` as the command that
/// becomes the supervisor.
fn start_with(
    supervisor: Command,
    spec: &ServerSpec,
    kind: LaunchKind,
) -> io::Result<ServerProcess> {
    prepare();
    if spec.sandbox.is_some()
        && are_namespaces_available() != Some(false)
        && let Some(server) = launch(namespace_command()?, spec, kind, true)?
    {
        return Ok(server);
    }
    launch(supervisor, spec, kind, false)?.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Starts a server. Returns `None` if the system allows no namespaces.
fn launch(
    mut supervisor: Command,
    spec: &ServerSpec,
    kind: LaunchKind,
    in_namespaces: bool,
) -> io::Result<Option<ServerProcess>> {
    let protected = spec.sandbox.iter().flat_map(|sandbox| &sandbox.protected).cloned();
    let absent_protected = protected.filter(|path| path.symlink_metadata().is_err()).collect();
    let is_command = kind == LaunchKind::BackgroundCommand;
    let guarded_sandbox =
        spec.sandbox.as_ref().filter(|sandbox| !is_command && sandbox.has_project_files());
    let snapshot = guarded_sandbox.map(SandboxSpec::take_snapshot).transpose()?;
    let mut sandbox = spec.sandbox.clone();
    if is_command && in_namespaces {
        sandbox = sandbox.map(SandboxSpec::for_own_root);
    }
    let launch = LaunchSpec {
        program: spec.program.clone(),
        arguments: spec.arguments.clone(),
        directory: if is_command {
            LaunchDirectory::Shared(StartDirectory::find(&spec.directory)?)
        } else {
            LaunchDirectory::Inside(spec.directory.clone())
        },
        env: spec.env.clone(),
        kind,
        self_test: None,
        sandbox,
        protected: ProtectedPids::current(),
    };
    if !is_command {
        supervisor.current_dir("/");
    }
    let (stdin, input) = io::pipe()?;
    let (output, stdout) = io::pipe()?;
    let (errors, stderr) = if is_command {
        (None, stdout.try_clone()?)
    } else {
        let (errors, stderr) = io::pipe()?;
        (Some(errors), stderr)
    };
    // Only the server holds its ends from then on, so each side sees when the other closes.
    let streams = [stdin.into(), stdout.into(), stderr.into()];
    let SupervisorProcess { process, mut connection } = match &launch.sandbox {
        Some(sandbox) if in_namespaces => start_namespaced(supervisor, sandbox, detached)?,
        _ => SupervisorProcess::start(supervisor, detached())?,
    };
    connection.launch(&launch, streams)?;
    let mut server = ServerProcess {
        input: Some(input),
        output: Some(output),
        errors,
        absent_protected,
        snapshot,
        connection,
        exit: None,
        server: Pid::from_child(&process),
        supervisor: process,
        is_finished: false,
    };
    match server.connection.wait_for_start()? {
        SupervisorReport::NoNamespaces(reason) => {
            match remember_namespaces(Err(reason.clone())) {
                // Other servers have namespaces, so the sandbox of this server is the cause.
                Ok(()) => Err(io::Error::other(format!("its sandbox: {reason}"))),
                Err(_) => Ok(None),
            }
        }
        SupervisorReport::Started(pid) => {
            if in_namespaces {
                drop(remember_namespaces(Ok(())));
            }
            server.server = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
            Ok(Some(server))
        }
        SupervisorReport::Failed(Some(number), _) => Err(start_error(spec, number)),
        other => Err(other.into_error()),
    }
}

/// Checks that a sandbox is available if the server needs one.
///
/// # Errors
/// The server must run in a sandbox, and none is available.
fn require_sandbox(spec: &ServerSpec) -> io::Result<()> {
    match spec.sandbox.as_ref().map(|_| sandbox::check_available()) {
        None | Some(Ok(())) => Ok(()),
        Some(Err(cause)) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "MCP servers need a sandbox, and none is available ({cause}); `tools.mcpServers.{}.sandbox: \"off\"` in the \
                 config runs this one without",
                spec.name
            ),
        )),
    }
}

/// Explains why it could not be started, for the system's error `number`.
fn start_error(spec: &ServerSpec, number: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(number);
    let program = spec.program.display();
    let message = match error.kind() {
        io::ErrorKind::NotFound if !spec.directory.is_dir() => {
            format!("no such directory: `{}`", spec.directory.display())
        }
        io::ErrorKind::NotFound => format!("program not found: `{program}`"),
        io::ErrorKind::PermissionDenied if spec.sandbox.is_some() => {
            format!("`{program}`: permission denied, by its mode or by the sandbox")
        }
        _ => format!("`{program}`: {error}"),
    };
    io::Error::new(error.kind(), message)
}

impl ServerProcess {
    /// The server's process id, in its own namespace if it has one.
    pub fn pid(&self) -> u32 {
        self.server.as_raw_pid().unsigned_abs()
    }

    /// True if no report of its end has arrived and its supervisor is alive.
    pub fn is_alive(&mut self) -> bool {
        self.exit().is_none()
    }

    /// The exit of the server, or `None` while it runs.
    pub fn exit(&mut self) -> Option<ServerExit> {
        let has_more = self.connection.read_reports();
        while let Some(report) = self.connection.next_report() {
            if let SupervisorReport::Ended { status, signal, .. } = report {
                let signalled = signal.map_or(ServerExit::Unknown, ServerExit::Signal);
                self.exit = Some(status.map_or(signalled, ServerExit::Status));
            }
        }
        if !has_more {
            self.exit.get_or_insert(ServerExit::Unknown);
        }
        self.exit
    }

    /// The descriptor that becomes readable when it ends.
    pub(super) fn end_fd(&self) -> BorrowedFd<'_> {
        self.connection.control.as_fd()
    }

    /// Closes the server's input and orders the supervisor to end.
    pub(super) fn request_shutdown(&mut self) {
        self.input = None;
        self.connection.order_end();
    }

    /// Waits until the supervisor has finished or `end` is reached. In the latter case the supervisor is killed, and
    /// the server's processes, which then become ours, are ended.
    pub(super) fn wait_or_kill(&mut self, end: Instant) {
        if self.is_finished {
            return;
        }
        self.is_finished = true;
        let is_done = loop {
            if !self.connection.read_reports() {
                break true;
            }
            let time_left = end.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(time_left) else {
                break false;
            };
            if time_left.is_zero() {
                break false;
            }
            let mut fds = [PollFd::new(&self.connection.control, PollFlags::IN)];
            // Signals do not end this wait, which is short. If the wait fails, the next iteration checks again.
            let _: Result<_, _> = poll(&mut fds, Some(&timeout));
        };
        if !is_done {
            drop(self.supervisor.kill());
        }
        let has_succeeded = self.supervisor.wait().is_ok_and(|status| status.success());
        let pid = Pid::from_child(&self.supervisor);
        detached().retain(|other| *other != pid);
        // While commands run, they end leftovers themselves.
        if !has_succeeded && has_no_commands() {
            kill_leftovers();
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.request_shutdown();
        self.wait_or_kill(Instant::now() + SHUTDOWN_TIMEOUT);
    }
}

/// Ends all servers in parallel. Their input ends first, unless the caller still holds it. A server that has not ended
/// within [`SHUTDOWN_GRACE`] gets `SIGTERM`; one that has not ended after the same time again is killed, with all that
/// it started. The total is at most [`SHUTDOWN_TIMEOUT`].
pub fn end_all(mut servers: Vec<ServerProcess>) {
    for server in &mut servers {
        server.request_shutdown();
    }
    let end = Instant::now() + SHUTDOWN_TIMEOUT;
    for server in &mut servers {
        server.wait_or_kill(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        LaunchKind, SHUTDOWN_TIMEOUT, ServerExit, ServerProcess, ServerSpec, end_all, start_with,
        supervise_in_test, supervisor_command, use_test_as_supervisor,
    };
    use crate::process::run::tests::is_process_running;
    use nanobot_os::children::serialize_tests;
    use std::io::{self, BufRead, BufReader, Read, Write};
    use std::time::{Duration, Instant};

    /// Not a test, but the supervisor of other tests.
    #[test]
    #[ignore = "run as the supervisor by other tests"]
    fn be_the_supervisor() {
        supervise_in_test();
    }

    fn spec(command: &str) -> ServerSpec {
        ServerSpec {
            name: "one".into(),
            program: "sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            sandbox: None,
        }
    }

    fn start(spec: &ServerSpec) -> io::Result<ServerProcess> {
        use_test_as_supervisor("process::server::tests::be_the_supervisor");
        start_with(supervisor_command()?, spec, LaunchKind::Server)
    }

    /// The first line of its output, without the line break.
    fn line(server: &mut ServerProcess) -> String {
        let mut line = String::new();
        let output = server.output.as_mut().unwrap();
        BufReader::with_capacity(1, output).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A number unique to this run: processes left behind by another run prove nothing.
    fn mark(number: u32) -> String {
        format!("{}.{number:02}", 300_000 + std::process::id())
    }

    fn is_sleeping(number: u32) -> bool {
        is_process_running(&format!("sleep\0{}", mark(number)))
    }

    /// Waits until each of the `sleep` commands of these numbers runs, or until none does.
    fn wait_for_sleep(runs: bool, numbers: &[u32]) {
        let begun = Instant::now();
        while !numbers.iter().all(|number| is_sleeping(*number) == runs) {
            assert!(begun.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_server_communicates_and_ends_with_its_input() {
        let _alone = serialize_tests();
        let mut server =
            start(&spec("read word; echo \"$word to you\"; echo no >&2; cat; exit 3")).unwrap();
        assert!(server.is_alive());
        let mut input = server.input.take().unwrap();
        input.write_all(b"good day\n").unwrap();
        assert_eq!(line(&mut server), "good day to you");
        drop(input);
        let mut rest = String::new();
        let (mut output, mut errors) =
            (server.output.take().unwrap(), server.errors.take().unwrap());
        output.read_to_string(&mut rest).unwrap();
        errors.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "no\n");
        server.wait_or_kill(Instant::now() + SHUTDOWN_TIMEOUT);
        assert_eq!(server.exit(), Some(ServerExit::Status(3)));
        end_all(vec![server, start(&spec("cat; exit 0")).unwrap()]);
    }

    #[test]
    fn start_errors_are_reported() {
        let _alone = serialize_tests();
        let check = |spec: ServerSpec, kind: io::ErrorKind, message: &str| {
            let error = start(&spec).unwrap_err();
            assert_eq!((error.kind(), error.to_string()), (kind, message.to_owned()));
        };
        let missing = io::ErrorKind::NotFound;
        check(
            ServerSpec { program: "no-such".into(), ..spec("") },
            missing,
            "program not found: `no-such`",
        );
        check(
            ServerSpec { directory: "/no-such".into(), ..spec("") },
            missing,
            "no such directory: `/no-such`",
        );
        check(
            ServerSpec { program: "/etc/passwd".into(), ..spec("") },
            io::ErrorKind::PermissionDenied,
            "`/etc/passwd`: Permission denied (os error 13)",
        );
    }

    #[test]
    fn running_commands_and_servers_are_not_leftovers() {
        let _alone = serialize_tests();
        let left = format!("setsid sleep {} & read word; echo \"$word\"; cat", mark(40));
        let mut server = start(&spec(&left)).unwrap();
        wait_for_sleep(true, &[40]);
        let command = crate::process::CommandSpec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "setsid sleep 60 & exit 0".into()],
            directory: "/".into(),
            env: spec("").env,
            timeout: Duration::from_secs(20),
            capture_bytes: 100,
            sandbox: None,
            input: None,
        };
        assert!(crate::process::run(&command, &mut |_| {}).unwrap().had_leftovers);
        assert!(is_sleeping(40));
        let mut input = server.input.take().unwrap();
        input.write_all(b"still here\n").unwrap();
        assert_eq!(line(&mut server), "still here");
    }
}
