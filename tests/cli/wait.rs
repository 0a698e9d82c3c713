//! Waiting for what other processes do: by an event where there is one, else by looking again. The deadline only ends a test
//! that would wait for ever; no test depends on how long something takes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::path::Path;
use std::time::{Duration, Instant};

/// Far more than anything takes on the slowest machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// How often something is looked at that has no event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Wait until `path` exists.
#[track_caller]
pub(crate) fn until_exists(path: &Path) {
    until_changed(path.parent().unwrap(), || path.exists());
}

/// Wait until `holds`, which can change only with the files in `dir`, or in the first directory above it that exists.
#[track_caller]
pub(crate) fn until_changed(dir: &Path, mut holds: impl FnMut() -> bool) {
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    let kinds = WatchFlags::CREATE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::MODIFY;
    let nearest = || dir.ancestors().find(|dir| dir.is_dir()).unwrap();
    let end = Instant::now() + DEADLINE;
    loop {
        let watched = nearest();
        inotify::add_watch(&changes, watched, kinds).unwrap();
        // What was made in a directory before that was watched had no event.
        if watched != nearest() {
            continue;
        }
        if holds() {
            return;
        }
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nothing happened in {}", dir.display());
        let left = Timespec::try_from(left).unwrap();
        poll(&mut [PollFd::new(&changes, PollFlags::IN)], Some(&left)).unwrap();
        while rustix::io::read(&changes, &mut [0; 4096]).is_ok() {}
    }
}

/// Wait until `holds`, for what has no event: other processes' state, a terminal's settings.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
