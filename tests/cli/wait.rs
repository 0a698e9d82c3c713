//! Waiting for other processes: by an event if there is one, otherwise by polling. The deadline only ends a test that would
//! wait forever; no test depends on durations.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Far longer than anything takes on the slowest machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// Poll interval for conditions without an event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `path` exists.
#[track_caller]
pub(crate) fn until_exists(path: &Path) {
    until_change_in(path.parent().unwrap(), || path.exists());
}

/// Waits until `condition` is true. It may only depend on files in `dir`, or in its first existing parent.
#[track_caller]
pub(crate) fn until_change_in(dir: &Path, mut condition: impl FnMut() -> bool) {
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
        // There was no event for changes before the directory was watched.
        if watched != nearest() {
            continue;
        }
        if condition() {
            return;
        }
        let remaining = end.saturating_duration_since(Instant::now());
        assert!(!remaining.is_zero(), "nothing happened in {}", dir.display());
        let remaining = Timespec::try_from(remaining).unwrap();
        poll(&mut [PollFd::new(&changes, PollFlags::IN)], Some(&remaining)).unwrap();
        while rustix::io::read(&changes, &mut [0; 4096]).is_ok() {}
    }
}

/// Waits until `condition` is true, for conditions without an event: processes, terminal settings.
#[track_caller]
pub(crate) fn until(event: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "{event}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The next connection of `listener`. Reading from it has the same deadline.
#[track_caller]
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let deadline = Timespec::try_from(DEADLINE).unwrap();
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&deadline)).unwrap();
    assert_eq!(ready, 1, "nothing connected to {}", listener.local_addr().unwrap());
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}
