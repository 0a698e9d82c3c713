//! A supervisor in namespaces of its own that waits for the next command. Its start takes longer than the start of the command in
//! it, so it is started in advance, while an earlier command runs.

use super::namespaced_supervisor::{namespace_command, start_namespaced};
use super::supervisor_connection::SupervisorConnection;
use crate::{NetworkAccess, SandboxSpec};
use nanobot_os::children::{detached, groups};
use nanobot_os::sync::IgnorePoison;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::io;
use std::process::Child;
use std::sync::{Mutex, MutexGuard};

/// A supervisor that has nothing to launch yet.
struct Standby {
    process: Child,
    connection: SupervisorConnection,
    network: NetworkAccess,
}

static STANDBY: Mutex<Option<Standby>> = Mutex::new(None);

/// Starts a supervisor for the command after this one, in the network of `sandbox`. There is one at most.
pub(super) fn start_next(sandbox: &SandboxSpec) {
    let mut standby = STANDBY.lock().ignore_poison();
    if standby.is_none() {
        // The next command then starts its own, and reports why that fails.
        *standby = start(sandbox, detached)
            .inspect_err(|error| log::debug!(target: "sandbox", "no supervisor waits: {error}"))
            .ok();
    }
}

/// Returns a supervisor for a command in `sandbox`, which counts as a running command from then on: the one that waits, if it
/// still runs in the right network, and a new one otherwise.
///
/// # Errors
/// None can be started.
pub(super) fn take_or_start(sandbox: &SandboxSpec) -> io::Result<(Child, SupervisorConnection)> {
    let standby = STANDBY.lock().ignore_poison().take();
    if let Some(mut standby) = standby {
        if standby.network.is_same(&sandbox.network)
            && matches!(standby.process.try_wait(), Ok(None))
        {
            let pid = Pid::from_child(&standby.process);
            groups().push(pid);
            detached().retain(|other| *other != pid);
            return Ok((standby.process, standby.connection));
        }
        standby.end();
    }
    start(sandbox, groups).map(|standby| (standby.process, standby.connection))
}

/// Ends the supervisor that waits, if there is one.
pub fn end_standby() {
    let standby = STANDBY.lock().ignore_poison().take();
    if let Some(standby) = standby {
        standby.end();
    }
}

fn start(
    sandbox: &SandboxSpec,
    pids: fn() -> MutexGuard<'static, Vec<Pid>>,
) -> io::Result<Standby> {
    let (process, connection) = start_namespaced(namespace_command()?, sandbox, pids)?;
    Ok(Standby { process, connection, network: sandbox.network.clone() })
}

impl Standby {
    fn end(self) {
        let pid = Pid::from_child(&self.process);
        // An error means that it has ended.
        let _: Result<_, _> = rustix::process::kill_process_group(pid, Signal::KILL);
        // Reaps both of its processes: the supervisor becomes our child when the process that created the namespaces ends.
        while !matches!(rustix::process::waitpgid(pid, WaitOptions::empty()), Err(Errno::CHILD)) {}
        detached().retain(|other| *other != pid);
    }
}
