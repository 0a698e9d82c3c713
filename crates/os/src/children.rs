//! The child processes of this run: the ones that it started, and the processes that these left behind.
//!
//! This process is a subreaper: any process that a child leaves behind, in whatever group or session, becomes its child
//! and is ended.

use crate::process_group::process_group;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The time that a killed process may take to disappear.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time that is spent to end processes that commands left behind.
const LEFTOVERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a child may take to end after `SIGTERM`.
pub const TERM_GRACE: Duration = Duration::from_millis(200);
/// The time that processes may take to end by themselves after the command that left them behind, such as one of bash's
/// `<(…)`, which it does not wait for.
pub const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);

/// The process groups of running commands. A child in none of them is a leftover. Locked while a command starts.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Detached children and supervisors, which are not leftovers. Locked while one starts.
static DETACHED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Locks a list of children: [`groups`] or [`detached`]. The list stays locked while the child starts, and no longer.
pub type LockPids = fn() -> MutexGuard<'static, Vec<Pid>>;

pub fn groups() -> MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock()
}

pub fn detached() -> MutexGuard<'static, Vec<Pid>> {
    DETACHED.lock()
}

/// True if no command runs.
pub fn has_no_commands() -> bool {
    groups().is_empty()
}

/// Prepares this process for children, once.
pub fn prepare() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // If our parent ignored `SIGCHLD`, the system would reap our children before we can.
        static ENDED: AtomicBool = AtomicBool::new(false);
        drop(signal_hook::flag::register(signal_hook::consts::SIGCHLD, &ENDED));
        // Without subreaper support, leftovers are not ended.
        let _: Result<_, _> = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
}

/// Ends every child that this run did not start. Returns true if there was one.
///
/// A process that ends leaves its children to us, so that some are found only after others have ended. The search is
/// over when no child is left, and at the latest after [`LEFTOVERS_TIMEOUT`].
pub fn kill_leftovers() -> bool {
    let mut had_leftovers = false;
    let started = Instant::now();
    while started.elapsed() < LEFTOVERS_TIMEOUT {
        let mut leftovers: Vec<Pid> = {
            // Locked while listing, so that a command that is being started is not mistaken for a leftover.
            let groups = groups();
            children().into_iter().filter(|pid| !is_in_group_or_detached(*pid, &groups)).collect()
        };
        if leftovers.is_empty() {
            break;
        }
        had_leftovers |= leftovers.iter().any(|pid| !is_ending(*pid));
        for pid in &leftovers {
            let _: Result<_, _> = rustix::process::kill_process(*pid, Signal::KILL);
        }
        let killed = Instant::now();
        loop {
            leftovers.retain(|pid| !try_reap(*pid));
            if leftovers.is_empty() {
                break;
            }
            if killed.elapsed() >= KILL_TIMEOUT {
                return had_leftovers;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    had_leftovers
}

/// The supervisors of commands that have ended. They only tear down their namespaces. This is not waited for.
static ENDING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Leaves the supervisor of a command, in a group of its own, to end by itself.
pub fn leave_to_end(supervisor: Pid) {
    detached().push(supervisor);
    ENDING.lock().push(supervisor);
    groups().retain(|group| *group != supervisor);
}

/// Reaps the supervisors that have ended since.
pub fn reap_ending() {
    let mut ending = ENDING.lock();
    ending.retain(|supervisor| {
        let has_ended = try_reap(*supervisor);
        if has_ended {
            detached().retain(|pid| pid != supervisor);
        }
        !has_ended
    });
}

/// True if a process of this group still runs after its leader has ended. Waits up to `limit` for processes that are
/// exiting, and up to [`SETTLE_TIMEOUT`] for others.
pub fn is_group_alive(group: Pid, limit: Duration) -> bool {
    let started = Instant::now();
    while rustix::process::test_kill_process_group(group).is_ok() {
        if reap_group(group) {
            continue;
        }
        let mut members =
            children().into_iter().filter(|pid| process_group(Some(*pid)) == Some(group));
        let waited = started.elapsed();
        if waited >= limit || (waited >= SETTLE_TIMEOUT && members.any(|pid| !is_ending(pid))) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// True if `pid` has ended, is exiting, or was killed and has not run since. A parent may end as soon as such a process
/// has closed its files, as bash does after `diff <(a) <(b)`; such a process was not left running.
pub fn is_ending(pid: Pid) -> bool {
    /// `PF_EXITING` in the kernel's `include/linux/sched.h`.
    const PF_EXITING: u64 = 4;
    let path = format!("/proc/{}/stat", pid.as_raw_pid());
    let Ok(stat) = std::fs::read_to_string(path) else {
        return true;
    };
    // The fields of proc_pid_stat(5) from the third on: the second is a name that can contain any character.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let bits = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
    let state = fields.first();
    let flags = bits(9).unwrap_or_default();
    let pending = bits(31).unwrap_or_default();
    matches!(state, None | Some(&("Z" | "X")))
        || flags & PF_EXITING != 0
        // The kernel sets SIGKILL for every signal that ends the process.
        || pending & 1 << (Signal::KILL.as_raw() - 1) != 0
}

/// Reaps a process of this group. Returns true if one had ended.
pub fn reap_group(group: Pid) -> bool {
    matches!(rustix::process::waitpgid(group, WaitOptions::NOHANG), Ok(Some(_)))
}

/// Reaps `pid` if it has ended. Returns true if it is no longer a child.
fn try_reap(pid: Pid) -> bool {
    matches!(
        rustix::process::waitpid(Some(pid), WaitOptions::NOHANG),
        Ok(Some(_)) | Err(Errno::CHILD)
    )
}

/// True if `pid` is in the group of a running command, or is a detached child.
fn is_in_group_or_detached(pid: Pid, groups: &[Pid]) -> bool {
    let group = process_group(Some(pid));
    detached().contains(&pid)
        || groups.contains(&pid)
        || group.is_some_and(|group| groups.contains(&group))
}

/// The children of all threads of this process.
pub fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
        })
        .filter_map(Pid::from_raw)
        .collect()
}

/// Serialises tests that start processes: they share one process, so the leftovers of one test would be counted in another.
#[cfg(feature = "test-hooks")]
pub fn serialize_tests() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}
