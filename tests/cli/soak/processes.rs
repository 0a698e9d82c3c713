//! The processes of a PID namespace, in which there are only the test, its first process, and what the test starts.

use crate::wait::DEADLINE;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) id: u32,
    parent: u32,
    command: String,
    /// True if it has ended, and its parent has not asked for its status.
    pub(super) is_zombie: bool,
}

/// All processes that the test has started, or that these have started.
pub(super) fn all() -> Vec<Process> {
    let this = std::process::id();
    let entries = std::fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(|id| ![1, this].contains(id)).filter_map(read).collect()
}

/// `None` if the process has ended meanwhile.
fn read(id: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (name, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let is_zombie = fields.next()? == "Z";
    let parent = fields.next()?.parse().ok()?;
    let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let command = if line.is_empty() { name.to_owned() } else { line };
    Some(Process { id, parent, command, is_zombie })
}

/// Helpers that have ended are asked for their status when the next command starts: so many may wait for that.
const MAX_ENDED_HELPERS: usize = 8;

/// Those that are neither in `expected` nor helpers of these, and ended ones whose parents do not ask for the status.
pub(super) fn unexpected(expected: &BTreeSet<u32>) -> Vec<Process> {
    let all = all();
    let parents: BTreeMap<u32, u32> =
        all.iter().map(|process| (process.id, process.parent)).collect();
    let is_expected = |process: &Process| {
        let ancestors = std::iter::successors(Some(process.id), |id| parents.get(id).copied());
        ancestors.take(parents.len() + 1).any(|id| expected.contains(&id))
    };
    let (expected, mut unexpected): (Vec<Process>, Vec<Process>) =
        all.into_iter().partition(is_expected);
    let ended: Vec<Process> = expected.into_iter().filter(|process| process.is_zombie).collect();
    if ended.len() > MAX_ENDED_HELPERS {
        unexpected.extend(ended);
    }
    unexpected
}

/// Waits until `list` is empty.
pub(super) fn wait_until_gone(list: impl Fn() -> Vec<Process>) {
    let end = Instant::now() + DEADLINE;
    loop {
        let left = list();
        if left.is_empty() {
            return;
        }
        let commands: Vec<&str> = left.iter().map(|process| process.command.as_str()).collect();
        assert!(Instant::now() < end, "these are left: {commands:?}, {left:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// True if the process has not ended.
pub(super) fn is_alive(id: u32) -> bool {
    read(id).is_some_and(|process| !process.is_zombie)
}

/// The number of open files of a process.
pub(super) fn count_open_files(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
}

/// The resident memory of a process that no file backs, in KiB.
pub(super) fn anonymous_memory(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    value.unwrap_or_default()
}
