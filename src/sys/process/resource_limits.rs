//! The resource limits of sandboxed commands and servers, and the error of the one that the user set.

use rustix::process::{Pid, Resource, Rlimit};
use std::io;

/// The largest file that a sandboxed command may write, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// The number of tasks that a sandboxed command may start in addition to those that the whole system has when it
/// starts.
const MAX_TASKS: u64 = 4096;

/// The reason why no process can be started: the system's error, or the limit behind it.
pub fn describe_start_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock => "the limit of processes (`ulimit -u`) is reached".into(),
        _ => error.to_string(),
    }
}

/// Sets the resource limits of a child. They belong to a process, so it cannot inherit them from the thread that starts
/// it. They are set right after its start, before a shell could have read its command, and guard only against
/// accidents.
pub(super) fn set_resource_limits(child: Pid) {
    let set = |resource, most: u64| {
        let now = rustix::process::getrlimit(resource);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit { current: least(now.current), maximum: least(now.maximum) };
        // The child may have ended already.
        let _: Result<_, _> = rustix::process::prlimit(Some(child), resource, limit);
    };
    set(Resource::Fsize, MAX_FILE_BYTES);
    // The limit counts the user's other processes too, and does not apply to root.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let tasks =
        load.split_whitespace().find_map(|word| word.split_once('/')?.1.parse::<u64>().ok());
    if let Some(tasks) = tasks {
        set(Resource::Nproc, tasks + MAX_TASKS);
    }
}
