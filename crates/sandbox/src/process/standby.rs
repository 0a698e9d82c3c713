//! A supervisor in namespaces of its own that waits for the next command. Its start takes longer than the start of the command in
//! it, so it is started in advance, while an earlier command runs.

use super::namespaced_supervisor::{namespace_command, start_namespaced};
use super::supervisor_connection::SupervisorProcess;
use crate::{NetworkAccess, SandboxSpec};
use nanobot_os::children::{LockPids, detached, groups};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::io;

/// A supervisor that has nothing to launch yet.
struct Standby {
    supervisor: SupervisorProcess,
    network: NetworkAccess,
}

static STANDBY: Mutex<Option<Standby>> = Mutex::new(None);

/// Starts a supervisor for the command after this one, in the network of `sandbox`. There is one at most.
pub(super) fn start_next(sandbox: &SandboxSpec) {
    let mut standby = STANDBY.lock();
    if standby.is_some() {
        return;
    }
    match start(sandbox, detached) {
        Ok(supervisor) => {
            *standby = Some(Standby { supervisor, network: sandbox.network.clone() });
        }
        // The next command then starts its own, and reports why that fails.
        Err(error) => {
            log::debug!(target: "sandbox", "cannot start a standby supervisor: {error}");
        }
    }
}

/// Returns a supervisor for a command in `sandbox`, which counts as a running command from then on: the one that waits, if it
/// still runs in the right network, and a new one otherwise.
///
/// # Errors
/// The supervisor cannot be started.
pub(super) fn take_or_start(sandbox: &SandboxSpec) -> io::Result<SupervisorProcess> {
    let standby = STANDBY.lock().take();
    if let Some(standby) = standby {
        if standby.is_running() && standby.network.is_same(&sandbox.network) {
            let pid = standby.pid();
            // In this order: a child that is in neither list counts as a leftover of a command.
            groups().push(pid);
            detached().retain(|other| *other != pid);
            return Ok(standby.supervisor);
        }
        standby.end();
    }
    start(sandbox, groups)
}

/// Ends the supervisor that waits, if there is one.
pub fn end_standby() {
    let standby = STANDBY.lock().take();
    if let Some(standby) = standby {
        standby.end();
    }
}

fn start(sandbox: &SandboxSpec, lock_pids: LockPids) -> io::Result<SupervisorProcess> {
    start_namespaced(namespace_command()?, sandbox, lock_pids)
}

impl Standby {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.supervisor.process)
    }

    /// True if it has not ended. Does not reap it, so that no other process gets its id before [`Standby::end`] sends a signal.
    fn is_running(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(rustix::process::waitid(WaitId::Pid(self.pid()), options), Ok(None))
    }

    fn end(self) {
        let pid = self.pid();
        // An error means that it has ended.
        let _: Result<_, _> = rustix::process::kill_process_group(pid, Signal::KILL);
        // Reaps both of its processes: the supervisor becomes our child when the process that created the namespaces ends.
        // Any other error means that none is left.
        while let Ok(_) | Err(Errno::INTR) = rustix::process::waitpgid(pid, WaitOptions::empty()) {}
        detached().retain(|other| *other != pid);
    }
}
