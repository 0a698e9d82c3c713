//! The resource limits of sandboxed commands and servers, and the error at the user's limit of processes.

use super::memory_cgroup;
use crate::self_test::SelfTestResult;
use crate::{ProtectedPids, SandboxSpec};
use nanobot_os::children::prepare;
use rustix::process::{Pid, Resource, Rlimit};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// The largest file that a sandboxed command may write, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// The number of tasks that a sandboxed command may start in addition to those that the whole system has when it
/// starts.
const MAX_TASKS: u64 = 4096;

/// The reason why no process can be started: the system's error, or the limit behind it.
pub fn describe_start_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            "the limit of processes (`ulimit -u`, or that of a container) is reached".into()
        }
        _ => error.to_string(),
    }
}

/// A resource limit of sandboxed processes.
struct ResourceLimit {
    resource: Resource,
    maximum: u64,
    /// Its name in `/proc/PID/limits`.
    name: &'static str,
    /// The operation that it prevents.
    operation: &'static str,
    /// The options of `ulimit` that set it; each shell has one of them.
    ulimit_options: &'static [&'static str],
    /// The unit of these options: a number of bytes or of tasks.
    ulimit_unit: u64,
}

/// The resource limits of processes in `sandbox`. A lower limit of this process takes precedence.
fn resource_limits(sandbox: &SandboxSpec, in_namespaces: bool) -> Vec<ResourceLimit> {
    let mut limits = vec![ResourceLimit {
        resource: Resource::Fsize,
        maximum: MAX_FILE_BYTES,
        name: "Max file size",
        operation: "write a file without a limit of its size",
        ulimit_options: &["-f"],
        ulimit_unit: 512,
    }];
    // The limit counts the user's other processes too, and does not apply to root.
    limits.push(ResourceLimit {
        resource: Resource::Nproc,
        maximum: max_tasks(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default()),
        name: "Max processes",
        operation: "start processes without a limit of their number",
        ulimit_options: &["-u", "-p"],
        ulimit_unit: 1,
    });
    let memory = sandbox.memory.as_ref().filter(|memory| {
        // A process with namespaces of its own is in the cgroup.
        !in_namespaces || memory.cgroup.is_none()
    });
    limits.extend(memory.map(|memory| ResourceLimit {
        resource: Resource::As,
        maximum: memory.bytes,
        name: "Max address space",
        operation: "use memory without a limit",
        ulimit_options: &["-v"],
        ulimit_unit: 1024,
    }));
    for limit in &mut limits {
        let inherited = rustix::process::getrlimit(limit.resource);
        for value in inherited.current.into_iter().chain(inherited.maximum) {
            limit.maximum = limit.maximum.min(value);
        }
    }
    limits
}

/// The largest number of tasks, from the text of `/proc/loadavg`. A container may hide that file; it has few tasks then.
fn max_tasks(load: &str) -> u64 {
    // One field is `RUNNING/TASKS` (proc_loadavg(5)).
    let tasks =
        load.split_whitespace().find_map(|field| field.split_once('/')?.1.parse::<u64>().ok());
    tasks.unwrap_or_default() + MAX_TASKS
}

/// Sets the resource limits of this process, a supervisor. Its children inherit them: the system call filter does not let a sandboxed
/// thread set others.
///
/// # Errors
/// The system refuses it.
pub(super) fn set_own_limits(sandbox: &SandboxSpec, in_namespaces: bool) -> io::Result<()> {
    for ResourceLimit { resource, maximum, name, .. } in resource_limits(sandbox, in_namespaces) {
        let limit = Rlimit { current: Some(maximum), maximum: Some(maximum) };
        rustix::process::setrlimit(resource, limit)
            .map_err(|error| io::Error::other(format!("cannot set `{name}`: {error}")))?;
    }
    Ok(())
}

/// A command that limits itself and becomes `program`, for a sandbox without a supervisor: the limits of a child could only
/// be set after it has started.
pub(super) fn limited_command(sandbox: &SandboxSpec, program: &Path) -> Command {
    let mut script_parts = Vec::new();
    for limit in resource_limits(sandbox, false) {
        let value = limit.maximum / limit.ulimit_unit;
        let options = limit.ulimit_options.iter();
        let attempts: Vec<String> =
            options.map(|option| format!("ulimit {option} {value}")).collect();
        script_parts.push(format!("{{ {}; }}", attempts.join(" 2>/dev/null || ")));
    }
    let set_limits = script_parts.join(" && ");
    let fail = "echo 'nanobot: the limits of the sandbox cannot be set' >&2; exit 126";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("{set_limits} || {{ {fail}; }}; exec \"$0\" \"$@\"")]);
    command.arg(program);
    command
}

/// Reads back the limits that were set for `sandbox`: of this process, or of `child`, which has no namespaces.
///
/// # Errors
/// `/proc` cannot be read.
pub(super) fn test_limits(
    child: Option<Pid>,
    sandbox: &SandboxSpec,
) -> io::Result<Vec<SelfTestResult>> {
    let process = child.map_or("self".to_owned(), |pid| pid.as_raw_pid().to_string());
    let table = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
    let is_root = rustix::process::geteuid().is_root();
    let mut results = Vec::new();
    for limit in resource_limits(sandbox, child.is_none()) {
        let limit_in_force = limit_in_force(&table, limit.name);
        let counts_tasks = limit.resource == Resource::Nproc;
        let outcome = match limit_in_force {
            None => "there is no limit".to_owned(),
            Some(count) if counts_tasks && is_root => {
                format!("limited to {count}, but the kernel exempts root")
            }
            Some(count) if counts_tasks => format!("limited to {count}"),
            Some(bytes) => format!("limited to {} MiB", bytes >> 20),
        };
        // The number of the system's tasks may have changed since the limit was set.
        let tolerance = if counts_tasks { MAX_TASKS } else { 0 };
        let is_refused = limit_in_force.is_some_and(|value| value <= limit.maximum + tolerance);
        results.push(SelfTestResult { operation: limit.operation.into(), is_refused, outcome });
    }
    let cgroup = sandbox.memory.as_ref().and_then(|memory| memory.cgroup.as_deref());
    if child.is_none()
        && let Some(cgroup) = cgroup
    {
        let limit = memory_cgroup::own_limit(cgroup)?;
        results.push(SelfTestResult {
            operation: "use memory without a limit".into(),
            is_refused: limit.is_some(),
            outcome: match limit {
                Some(bytes) => format!("limited to {} MiB by a cgroup", bytes >> 20),
                None => "there is no limit".into(),
            },
        });
    }
    Ok(results)
}

/// Like [`test_limits`], for a process of a sandbox without namespaces, which is started for it.
///
/// # Errors
/// The process cannot be started, and the errors of [`test_limits`].
pub(super) fn test_limits_of_child(sandbox: &SandboxSpec) -> io::Result<Vec<SelfTestResult>> {
    prepare();
    let mut command = limited_command(sandbox, Path::new("/bin/sh"));
    command
        .args(["-c", "echo; read line"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = sandbox.run_inside(&ProtectedPids::current(), || command.spawn())?;
    // The line break that the child prints shows that its limits are set.
    let started = match child.stdout.take() {
        Some(mut output) => output.read_exact(&mut [0]),
        None => Ok(()),
    };
    let results = started.and_then(|()| test_limits(Some(Pid::from_child(&child)), sandbox));
    drop(child.stdin.take());
    child.wait()?;
    results
}

/// The limit that a process cannot raise, in a table of `/proc/PID/limits`; `None` if there is none. It can raise its soft
/// limit, the first one, to the hard one.
fn limit_in_force(table: &str, name: &str) -> Option<u64> {
    let values = table.lines().find_map(|line| line.strip_prefix(name))?;
    values.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{MAX_TASKS, limit_in_force, max_tasks};

    #[test]
    fn limits_are_read_from_the_table() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max file size             1024                 2048                 bytes     \n\
                     Max processes             1024                 unlimited            processes \n";
        assert_eq!(limit_in_force(table, "Max file size"), Some(2048));
        assert_eq!(limit_in_force(table, "Max processes"), None);
        assert_eq!(limit_in_force(table, "Max address space"), None);
    }

    #[test]
    fn there_is_always_a_limit_of_tasks() {
        assert_eq!(max_tasks("0.20 0.18 0.12 1/80 11206\n"), 80 + MAX_TASKS);
        for load in ["", "0.20 0.18\n", "0.20 0.18 0.12 1/x 11206\n"] {
            assert_eq!(max_tasks(load), MAX_TASKS);
        }
    }
}
