//! Starts supervisors in namespaces of their own: this program starts itself, enters them, and starts itself once more as
//! their first process.

use super::helper::MAX_DESCRIPTORS;
use super::memory_cgroup;
use super::own_program::{becomes_helpers, helper_executable};
use super::resource_limits::{describe_start_error, test_limits_of_child};
use super::supervisor::{
    IN_NAMESPACES, LaunchDirectory, LaunchKind, LaunchSpec, SUPERVISOR_ARG0, SupervisorReport,
    send_report,
};
use super::supervisor_connection::SupervisorProcess;
use crate::namespaces::{self, NewNetwork};
use crate::self_test::{SelfTest, SelfTestResult};
use crate::{NetworkNamespace, ProtectedPids, SandboxSpec};
use nanobot_os::children::{LockPids, groups};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// The name (`argv[0]`) that makes this program enter namespaces.
const NAMESPACES_ARG0: &str = "nanobot-sandbox";
/// The arguments that name its network: the network of the machine, a new one with loopback (the addresses to listen at follow), or an
/// existing one. The descriptor of an existing one is standard output, and the descriptor of its user namespace is standard error. Without
/// such an argument it has no network. An absolute path among the arguments is the cgroup that limits memory.
const MACHINE_NETWORK: &str = "machine";
const NEW_LOOPBACK: &str = "loopback";
const EXISTING_NETWORK: &str = "existing";

/// Prepares a command that starts this program as a supervisor in new namespaces.
pub(super) fn namespace_command() -> io::Result<Command> {
    let mut command = Command::new(helper_executable()?);
    command.arg0(NAMESPACES_ARG0).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Starts a supervisor with a [`namespace_command`], in the network of `sandbox`: the first supervisor in a shared network
/// namespace creates it. Its id is added to the list that `lock_pids` locks.
pub(super) fn start_namespaced(
    mut command: Command,
    sandbox: &SandboxSpec,
    lock_pids: LockPids,
) -> io::Result<SupervisorProcess> {
    command.args(sandbox.memory.as_ref().and_then(|memory| memory.cgroup.as_ref()));
    let Some(shared) = sandbox.network.shared() else {
        command.args(sandbox.network.is_machine().then_some(MACHINE_NETWORK));
        return SupervisorProcess::start(command, lock_pids());
    };
    let mut namespace = shared.lock();
    if let Some(existing) = &*namespace {
        command.arg(EXISTING_NETWORK);
        command.stdout(existing.network.try_clone()?).stderr(existing.user.try_clone()?);
        return SupervisorProcess::start(command, lock_pids());
    }
    command.arg(NEW_LOOPBACK);
    let addresses = shared.listeners().into_iter().flat_map(|listeners| &listeners.addresses);
    command.args(addresses.map(ToString::to_string));
    let mut supervisor = SupervisorProcess::start(command, lock_pids())?;
    // If this fails, the next supervisor creates a namespace.
    if let Ok(Some(network)) = supervisor.connection.receive_network() {
        *namespace = Some(network.namespace);
        if let Some(listeners) = shared.listeners() {
            (listeners.on_open)(network.listeners);
        }
    }
    Ok(supervisor)
}

/// The network that an argument of this process names.
fn named_network(argument: Option<&OsStr>) -> io::Result<NewNetwork> {
    Ok(match argument.and_then(OsStr::to_str) {
        Some(MACHINE_NETWORK) => NewNetwork::Machine,
        Some(NEW_LOOPBACK) => NewNetwork::Loopback,
        Some(EXISTING_NETWORK) => NewNetwork::Existing(NetworkNamespace {
            network: rustix::stdio::stdout().try_clone_to_owned()?,
            user: rustix::stdio::stderr().try_clone_to_owned()?,
        }),
        _ => NewNetwork::Nothing,
    })
}

/// Sends the parent the network namespace that this process has created, and sockets that listen in it at `addresses`.
fn send_network(addresses: impl Iterator<Item = OsString>) -> io::Result<()> {
    let addresses = addresses.filter_map(|address| address.to_str()?.parse::<SocketAddr>().ok());
    // A system may have no IPv6.
    let listeners: Vec<TcpListener> =
        addresses.filter_map(|address| TcpListener::bind(address).ok()).collect();
    let namespace = NetworkNamespace::current()?;
    let mut line = serde_json::to_vec(&SupervisorReport::Entered).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut descriptors = vec![namespace.network.as_fd(), namespace.user.as_fd()];
    descriptors.extend(listeners.iter().map(AsFd::as_fd));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&line)];
    rustix::net::sendmsg(rustix::stdio::stdin(), &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Enters new namespaces and runs a supervisor in them, if this program was started for that, and returns `None` otherwise.
/// Returns false if the supervisor failed. If it could not be started, this process reports that to the parent.
pub(super) fn become_namespace_parent() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != NAMESPACES_ARG0) {
        return None;
    }
    let (cgroups, network_arguments): (Vec<OsString>, Vec<OsString>) =
        arguments.partition(|argument| Path::new(argument).is_absolute());
    for cgroup in cgroups {
        if let Err(error) = memory_cgroup::join(Path::new(&cgroup)) {
            report(&SupervisorReport::Failed(None, error.to_string()));
            return Some(false);
        }
    }
    let enter = || -> io::Result<bool> {
        close_fds::set_fds_cloexec(3, &[]);
        // A signal to the group is for the supervisor, which this process outlives.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        let mut network_arguments = network_arguments.into_iter();
        let network = named_network(network_arguments.next().as_deref())?;
        namespaces::enter(&network)?;
        if matches!(network, NewNetwork::Loopback) {
            send_network(network_arguments)?;
        }
        let mut supervisor = Command::new(helper_executable()?);
        supervisor.arg0(SUPERVISOR_ARG0).arg(IN_NAMESPACES);
        supervisor.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(supervisor.status()?.success())
    };
    let entered = enter()
        .inspect_err(|error| report(&SupervisorReport::NoNamespaces(describe_start_error(error))));
    Some(entered.unwrap_or(false))
}

/// Sends a report to the parent instead of a supervisor.
fn report(report: &SupervisorReport) {
    if let Ok(control) = rustix::stdio::stdin().try_clone_to_owned() {
        send_report(&mut control.into(), report);
    }
}

/// `Ok` if commands get namespaces of their own, or the reason that they do not. The first attempt of the run decides:
/// nothing that a command does can change it afterwards.
static NAMESPACES: OnceLock<Result<(), String>> = OnceLock::new();

/// True if commands get namespaces of their own, false if they do not, and `None` if no command has tried yet.
pub(super) fn are_namespaces_available() -> Option<bool> {
    if becomes_helpers() { NAMESPACES.get().map(Result::is_ok) } else { Some(false) }
}

/// Stores whether a first command got namespaces of its own, or the reason that it did not. If another thread has stored a result before,
/// returns that one.
pub(super) fn remember_namespaces(result: Result<(), String>) -> Result<(), String> {
    if let Err(reason) = &result {
        log::info!(target: "sandbox", "commands get no namespaces of their own: {reason}");
    }
    NAMESPACES.get_or_init(|| result).clone()
}

/// Checks that commands get namespaces of their own: with `sandbox`, if no command has tried yet. Returns `Ok` too if the system
/// allows them and only this sandbox cannot be set up: its commands then fail with the reason.
///
/// # Errors
/// The commands get no namespaces, for this reason.
pub fn require_namespaces(sandbox: &SandboxSpec) -> Result<(), String> {
    NAMESPACES.get().cloned().unwrap_or_else(|| match check_namespaces(sandbox) {
        Ok(()) => remember_namespaces(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            remember_namespaces(Err(describe_start_error(&error)))
        }
        Err(_) => Ok(()),
    })
}

/// Checks that commands with `sandbox` get namespaces of their own.
///
/// # Errors
/// The system refuses the namespaces, or a part of the setup in them.
pub fn check_namespaces(sandbox: &SandboxSpec) -> io::Result<()> {
    enter_namespaces(sandbox, None).map(drop)
}

/// Tests `sandbox` from inside, in namespaces of its own if the system allows them: tries to create a file in each of
/// `outside`, to read each of `denied`, and to open sockets.
///
/// # Errors
/// The sandbox cannot be applied, or the files for the test cannot be created.
pub fn test_sandbox(
    sandbox: &SandboxSpec,
    outside: &[PathBuf],
    denied: &[PathBuf],
) -> io::Result<Vec<SelfTestResult>> {
    let (test, targets) = SelfTest::new(outside, denied, sandbox.network.is_machine())?;
    let mut results = if require_namespaces(sandbox).is_ok() {
        enter_namespaces(sandbox, Some(test))?
    } else {
        let mut results = sandbox.run_inside(&ProtectedPids::current(), || Ok(test.run()))?;
        results.extend(test_limits_of_child(sandbox)?);
        results
    };
    targets.check(&mut results);
    Ok(results)
}

/// Starts a supervisor that only enters the sandbox and runs the test.
fn enter_namespaces(
    sandbox: &SandboxSpec,
    self_test: Option<SelfTest>,
) -> io::Result<Vec<SelfTestResult>> {
    let launch = LaunchSpec {
        program: PathBuf::new(),
        arguments: Vec::new(),
        directory: LaunchDirectory::Inside("/".into()),
        env: Vec::new(),
        sandbox: Some(sandbox.clone()),
        kind: LaunchKind::Trial,
        self_test,
        protected: ProtectedPids::default(),
    };
    let null = || File::options().read(true).write(true).open("/dev/null");
    let streams = [null()?.into(), null()?.into(), null()?.into()];
    let mut command = namespace_command()?;
    command.current_dir("/");
    let SupervisorProcess { mut process, mut connection } =
        start_namespaced(command, sandbox, groups)?;
    let launched = connection.launch(&launch, streams);
    let report = launched.and_then(|()| connection.wait_for_start());
    drop(connection);
    process.wait()?;
    groups().retain(|group| *group != Pid::from_child(&process));
    match report? {
        SupervisorReport::Tested(results) => Ok(results),
        other => Err(other.into_error()),
    }
}
