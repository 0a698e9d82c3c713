//! Starts supervisors in namespaces of their own: this program starts itself, enters them, and starts itself once more as
//! their first process.

use super::children::groups;
use super::supervisor::{LaunchKind, LaunchSpec, SUPERVISOR_ARG0, SupervisorReport};
use super::supervisor_connection::SupervisorConnection;
use crate::sys::sandbox::{ProtectedPids, SandboxSpec, namespaces};
use rustix::process::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// The name (`argv[0]`) that makes this program enter namespaces.
const NAMESPACES_ARG0: &str = "nanobot-sandbox";
/// The argument that leaves out the namespace of the network.
const WITH_NETWORK: &str = "net";

/// Prepares a command that starts this program as a supervisor in new namespaces.
pub(super) fn namespace_command(sandbox: &SandboxSpec) -> io::Result<Command> {
    let mut command = Command::new(super::own_program::own_executable()?);
    command.arg0(NAMESPACES_ARG0);
    command.args(sandbox.net.then_some(WITH_NETWORK));
    Ok(command)
}

/// Enters new namespaces and runs a supervisor in them, if this program was started for that. Returns `None` if it was
/// not, and false if the supervisor failed or could not be started. In the latter case the parent sees the end of the
/// connection.
pub fn become_namespace_parent() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != NAMESPACES_ARG0) {
        return None;
    }
    let mut enter = || -> io::Result<bool> {
        close_fds::set_fds_cloexec(3, &[]);
        // A signal to the group is for the supervisor, which this process outlives.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        namespaces::enter(arguments.next().is_some_and(|word| word == WITH_NETWORK))?;
        let mut supervisor = Command::new(super::own_program::own_executable()?);
        Ok(supervisor.arg0(SUPERVISOR_ARG0).status()?.success())
    };
    Some(enter().unwrap_or(false))
}

/// True if commands with `sandbox` get namespaces of their own. Tried once.
pub fn has_namespaces(sandbox: &SandboxSpec) -> bool {
    // The test program does not become a supervisor.
    !cfg!(test) && sandbox.has_namespaces(|| try_namespaces(sandbox))
}

fn try_namespaces(sandbox: &SandboxSpec) -> bool {
    let launch = LaunchSpec {
        program: PathBuf::new(),
        arguments: Vec::new(),
        directory: "/".into(),
        env: Vec::new(),
        sandbox: Some(sandbox.clone()),
        in_namespaces: true,
        kind: LaunchKind::Trial,
        protected: ProtectedPids::default(),
    };
    let tried = || -> io::Result<()> {
        let null = || File::options().read(true).write(true).open("/dev/null");
        let streams = [null()?.into(), null()?.into(), null()?.into()];
        let mut supervisor = namespace_command(sandbox)?;
        supervisor.current_dir("/");
        let (mut child, mut connection) =
            SupervisorConnection::start(supervisor, &launch, streams, groups())?;
        let report = connection.wait_for_start();
        drop(connection);
        child.wait()?;
        groups().retain(|group| *group != Pid::from_child(&child));
        match report? {
            SupervisorReport::Failed(_, message) => Err(io::Error::other(message)),
            _ => Ok(()),
        }
    };
    tried()
        .inspect_err(|error| {
            log::info!(target: "sandbox", "commands get no namespaces of their own: {error}");
        })
        .is_ok()
}
