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
        io::ErrorKind::WouldBlock => "the limit of processes (`ulimit -u`) is reached".into(),
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
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    // One field is `RUNNING/TASKS` (proc_loadavg(5)).
    let tasks =
        load.split_whitespace().find_map(|field| field.split_once('/')?.1.parse::<u64>().ok());
    limits.extend(tasks.map(|tasks| ResourceLimit {
        resource: Resource::Nproc,
        maximum: tasks + MAX_TASKS,
        name: "Max processes",
        operation: "start processes without a limit of their number",
        ulimit_options: &["-u", "-p"],
        ulimit_unit: 1,
    }));
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
        let soft_limit = soft_limit(&table, limit.name);
        let counts_tasks = limit.resource == Resource::Nproc;
        let outcome = match soft_limit {
            None => "there is no limit".to_owned(),
            Some(count) if counts_tasks && is_root => {
                format!("limited to {count}, but the kernel exempts root")
            }
            Some(count) if counts_tasks => format!("limited to {count}"),
            Some(bytes) => format!("limited to {} MiB", bytes >> 20),
        };
        // The number of the system's tasks may have changed since the limit was set.
        let tolerance = if counts_tasks { MAX_TASKS } else { 0 };
        let is_refused = soft_limit.is_some_and(|value| value <= limit.maximum + tolerance);
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

/// The limit in force in a table of `/proc/PID/limits`; `None` if there is none.
fn soft_limit(table: &str, name: &str) -> Option<u64> {
    let mut values = table.lines().filter_map(|line| line.strip_prefix(name));
    values.next()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::soft_limit;

    #[test]
    fn limits_are_read_from_the_table() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max file size             1024                 unlimited            bytes     \n\
                     Max processes             unlimited            unlimited            processes \n";
        assert_eq!(soft_limit(table, "Max file size"), Some(1024));
        assert_eq!(soft_limit(table, "Max processes"), None);
        assert_eq!(soft_limit(table, "Max address space"), None);
    }
}
