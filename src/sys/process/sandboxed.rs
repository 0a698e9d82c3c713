//! Commands in a sandbox with mounts of its own: this program starts itself, makes the mounts, and becomes the command.
//! Also the resource limits of commands in any sandbox.

use crate::sys::sandbox::{Fence, Ours};
use rustix::process::{Pid, Resource, Rlimit};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The largest file that a sandboxed command may write, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// How many tasks a sandboxed command may start beside those that the whole system has when it starts.
const MAX_TASKS: u64 = 4096;

/// The name (`argv[0]`) that tells this program to enter the sandbox and become a command.
const NAME: &str = "nanobot-fence";

/// What it reads from its standard input.
#[derive(Serialize, Deserialize)]
pub(super) struct SandboxedCommand {
    pub(super) fence: Fence,
    /// Who starts it.
    pub(super) ours: Ours,
    /// What it becomes. Empty for nothing: then it only tries.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

pub(super) fn command(order: &SandboxedCommand) -> io::Result<Command> {
    let (reader, mut writer) = io::pipe()?;
    let bytes = serde_json::to_vec(order).map_err(io::Error::other)?;
    // Nobody reads yet: what is more than a pipe holds would be waited for without end.
    rustix::pipe::fcntl_setpipe_size(&writer, bytes.len().max(1 << 16))?;
    writer.write_all(&bytes)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).stdin(reader);
    Ok(command)
}

/// Whether commands behind `fence` get mounts of their own. It is tried once.
pub fn lets_mount(fence: &Fence) -> bool {
    fence.has_mounts(|| try_mounts(fence))
}

/// Whether this system lets commands have the mounts that `fence` is better kept by.
fn try_mounts(fence: &Fence) -> bool {
    let order = SandboxedCommand {
        fence: fence.clone(),
        ours: Ours::now(),
        program: PathBuf::new(),
        arguments: Vec::new(),
    };
    let tried = command(&order).and_then(|mut command| {
        command.env_clear().stdout(Stdio::null());
        command.stderr(Stdio::null()).status()
    });
    tried.is_ok_and(|status| status.success())
}

/// First of all in `main`: whether this program was started by itself to become a command in mounts of its own, and then
/// why it did not become it. `Ok` where it was only to try.
pub fn become_command() -> Option<io::Result<()>> {
    let name = std::env::args_os().next();
    if name.is_none_or(|name| name != NAME) {
        return None;
    }
    let enter = || {
        close_fds::set_fds_cloexec(3, &[]);
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        let order: SandboxedCommand = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        order.fence.close_with_mounts(&order.ours)?;
        match order.program.as_os_str().is_empty() {
            true => Ok(()),
            false => Err(Command::new(order.program).args(order.arguments).exec()),
        }
    };
    Some(enter())
}

/// Set the child's limits: they are a process's and not a thread's, so that it cannot inherit them from the thread that
/// starts it. It is in its first instant, before a shell could have read its command; and they guard against accidents.
pub(super) fn limit(child: Pid) {
    let set = |resource, most: u64| {
        let now = rustix::process::getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit {
            current: least(now.current),
            maximum: least(now.maximum),
        };
        // It may have ended already.
        let _: Result<_, _> = rustix::process::prlimit(Some(child), resource, limit);
    };
    set(Resource::Fsize, MAX_FILE_BYTES);
    // The user's other processes count too. (Root's are not limited by this at all.)
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let tasks = load
        .split_whitespace()
        .find_map(|word| word.split_once('/')?.1.parse::<u64>().ok());
    if let Some(tasks) = tasks {
        set(Resource::Nproc, tasks + MAX_TASKS);
    }
}
