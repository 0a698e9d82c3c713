//! The child processes of this run: which of them we started, and which are leftovers of those.
//!
//! We are a subreaper: what a child leaves behind, in whatever group or session, becomes our child, and is ended.

use crate::sys::sync::IgnorePoison;
use rustix::process::{Pid, Signal, WaitOptions};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// How long a process that was killed may take to be gone.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The process groups of the commands that run: a child in none of them is a leftover. It is locked while a command starts.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Children that go on by themselves, and supervisors: they are no leftovers. It is locked while one starts.
static DETACHED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

pub(super) fn groups() -> MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().ignore_poison()
}

pub(super) fn detached() -> MutexGuard<'static, Vec<Pid>> {
    DETACHED.lock().ignore_poison()
}

/// True if no command runs.
pub(in crate::sys) fn is_alone() -> bool {
    groups().is_empty()
}

/// Prepare this process for children, once.
pub(super) fn prepare() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // If our parent had it ignored, the system would reap our children before we can.
        static ENDED: AtomicBool = AtomicBool::new(false);
        drop(signal_hook::flag::register(
            signal_hook::consts::SIGCHLD,
            &ENDED,
        ));
        // Where the system has no subreapers, leftovers are not ended.
        let _: Result<_, _> = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
}

/// End every child of ours that we did not start. True if there was one.
pub(super) fn end_leftovers() -> bool {
    let mut found = false;
    // Ending one can hand us its children in turn.
    for _ in 0..16 {
        let mut leftovers: Vec<Pid> = {
            // Locked while they are listed: a command that starts meanwhile is none.
            let known = groups();
            let all = children().into_iter();
            all.filter(|pid| !is_known(*pid, &known) && !reaped(*pid))
                .collect()
        };
        if leftovers.is_empty() {
            break;
        }
        found = true;
        for pid in &leftovers {
            let _: Result<_, _> = rustix::process::kill_process(*pid, Signal::KILL);
        }
        let killed = Instant::now();
        loop {
            leftovers.retain(|pid| !reaped(*pid));
            if leftovers.is_empty() {
                break;
            }
            if killed.elapsed() >= KILL_TIMEOUT {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    found
}

/// Reap leftovers that have ended by themselves.
pub(super) fn reap() {
    let known = groups();
    for pid in children().into_iter().filter(|pid| !is_known(*pid, &known)) {
        reaped(pid);
    }
}

fn reaped(pid: Pid) -> bool {
    matches!(
        rustix::process::waitpid(Some(pid), WaitOptions::NOHANG),
        Ok(Some(_))
    )
}

/// True if `pid` is a child that we started, or in the group of one.
fn is_known(pid: Pid, known: &[Pid]) -> bool {
    let group = rustix::process::getpgid(Some(pid));
    detached().contains(&pid)
        || known.contains(&pid)
        || group.is_ok_and(|group| known.contains(&group))
}

/// Our children: those of every thread.
pub(super) fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .filter_map(Pid::from_raw)
        .collect()
}
