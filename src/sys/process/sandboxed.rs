//! Starts commands in a sandbox with mounts of its own: this program starts itself, creates the mounts, and becomes the
//! command. Also sets the resource limits of all sandboxed commands.

use crate::sys::sandbox::{ProtectedPids, SandboxSpec};
use rustix::process::{Pid, Resource, Rlimit};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The largest file that a sandboxed command may write, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// The number of tasks that a sandboxed command may start in addition to those that the whole system has when it
/// starts.
const MAX_TASKS: u64 = 4096;

/// The name (`argv[0]`) that makes this program enter the sandbox and become a command.
const SANDBOX_ARG0: &str = "nanobot-sandbox";

/// The command description that it reads from standard input, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct SandboxedCommand {
    pub(super) sandbox: SandboxSpec,
    /// The processes that start it.
    pub(super) protected: ProtectedPids,
    /// The program to become. Empty to test the sandbox only.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

pub(super) fn self_command(launch: &SandboxedCommand) -> io::Result<Command> {
    let (reader, mut writer) = io::pipe()?;
    let bytes = serde_json::to_vec(launch).map_err(io::Error::other)?;
    // Nothing reads the pipe yet: writing more than it can hold would block forever.
    rustix::pipe::fcntl_setpipe_size(&writer, bytes.len().max(1 << 16))?;
    writer.write_all(&bytes)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(SANDBOX_ARG0).stdin(reader);
    Ok(command)
}

/// True if commands with `sandbox` get mounts of their own. Tried once.
pub fn can_mount(sandbox: &SandboxSpec) -> bool {
    sandbox.has_mounts(|| try_mounts(sandbox))
}

/// True if this system lets commands have the mounts that enforce `sandbox`.
fn try_mounts(sandbox: &SandboxSpec) -> bool {
    let launch = SandboxedCommand {
        sandbox: sandbox.clone(),
        protected: ProtectedPids::current(),
        program: PathBuf::new(),
        arguments: Vec::new(),
    };
    let tried = self_command(&launch).and_then(|mut command| {
        command.env_clear().stdout(Stdio::null());
        command.stderr(Stdio::null()).status()
    });
    tried.is_ok_and(|status| status.success())
}

/// Becomes a sandboxed command if this program was started for that; called first of all in `main`. Returns `None` if
/// it was not. Otherwise returns only on failure, or `Ok` after a test of the sandbox.
pub fn become_command() -> Option<io::Result<()>> {
    let name = std::env::args_os().next();
    if name.is_none_or(|name| name != SANDBOX_ARG0) {
        return None;
    }
    let enter = || {
        close_fds::set_fds_cloexec(3, &[]);
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        let launch: SandboxedCommand = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        launch.sandbox.restrict_process(&launch.protected)?;
        match launch.program.as_os_str().is_empty() {
            true => Ok(()),
            false => Err(Command::new(launch.program).args(launch.arguments).exec()),
        }
    };
    Some(enter())
}

/// Sets the resource limits of a child. They belong to a process, so it cannot inherit them from the thread that starts
/// it. They are set right after its start, before a shell could have read its command, and guard only against
/// accidents.
pub(super) fn set_resource_limits(child: Pid) {
    let set = |resource, most: u64| {
        let now = rustix::process::getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit {
            current: least(now.current),
            maximum: least(now.maximum),
        };
        // The child may have ended already.
        let _: Result<_, _> = rustix::process::prlimit(Some(child), resource, limit);
    };
    set(Resource::Fsize, MAX_FILE_BYTES);
    // The limit counts the user's other processes too, and does not apply to root.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let tasks = load
        .split_whitespace()
        .find_map(|word| word.split_once('/')?.1.parse::<u64>().ok());
    if let Some(tasks) = tasks {
        set(Resource::Nproc, tasks + MAX_TASKS);
    }
}
