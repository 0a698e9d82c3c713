//! A counting semaphore between processes, in order of arrival: so many of them have a permit at once, and the others wait.
//!
//! Each process that has a permit or waits for one locks one byte of a file, its place in the queue, through an open descriptor of its own
//! (open file description locks, fcntl_locking(2)). The first places have the permits. The kernel frees the place of a process that ends, for
//! any cause, so there is nothing to clean up, and nothing is stored: the content of the file has no part in it.
//!
//! The offset of a place names its process, so that one that is stopped, by Ctrl-Z for example, is left out of the count: it would keep all
//! others waiting for as long as it is. When it is continued, there may be one permit more than the limit for a while.

use crate::file_lock::{is_stopped, lock_error, open_or_create};
use crate::signal;
use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, c_int, flock, off_t};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The number of offsets of a queue. They begin anew whenever the queue is empty.
const QUEUE_LENGTH: off_t = 1 << 55;
/// The number of offsets for each number of a place, one for each process: the kernel's limit of process ids (`PID_MAX_LIMIT`).
const PROCESS_IDS: off_t = 1 << 22;
/// Interval at which the next process in the queue looks for a free permit. The second one looks half as often, and so on, so that many
/// waiting processes cost little. The order of the queue does not depend on it.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of polls after which it is checked again which processes are stopped.
const POLLS_PER_CHECK: u32 = 10;

/// A permit of a semaphore. It is given back when it is dropped, and when the process ends.
#[derive(Debug)]
pub struct Permit {
    file: File,
    /// The place in the queue.
    offset: off_t,
}

impl Permit {
    /// The longest time between the moment at which a permit is free and that at which a waiting process has it.
    pub const MAX_DELAY: Duration = MAX_POLL_INTERVAL;

    /// The number of queues of a file.
    pub const QUEUES: u8 = 255;

    /// Waits until fewer than `limit` processes that are not stopped are before this one in a queue of the file at `path`, which is created
    /// if it is missing. `queue` is one of [`Self::QUEUES`]. While the process waits, `on_wait` is called again and again; its error ends
    /// the wait.
    ///
    /// # Errors
    /// Status 74 if the file system does not support locks; the errors of `on_wait` and of [`signal::check`].
    pub fn acquire(
        path: &Path,
        queue: u8,
        limit: u32,
        on_wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let file = open_or_create(path)?;
        let start = QUEUE_LENGTH * off_t::from(queue);
        let to_error = |error: Errno| lock_error(path, &error.into());
        let offset = enter(&file, start..start + QUEUE_LENGTH).map_err(to_error)?;
        let permit = Self { file, offset };
        for poll in 0_u32.. {
            let mut offsets = locked_offsets(&permit.file, start..offset).map_err(to_error)?;
            if offsets.len() >= limit as usize && poll.is_multiple_of(POLLS_PER_CHECK) {
                offsets.retain(|offset| !is_stopped(process_at(*offset)));
            }
            let count = u32::try_from(offsets.len()).unwrap_or(u32::MAX);
            let Some(waiting_before) = count.checked_sub(limit) else {
                return Ok(permit);
            };
            on_wait()?;
            let interval = POLL_INTERVAL.saturating_mul(waiting_before.saturating_add(1));
            signal::sleep(interval.min(MAX_POLL_INTERVAL))?;
        }
        unreachable!("a wait has fewer polls than there are numbers");
    }

    /// True if another process has a place in any queue of the file.
    ///
    /// # Errors
    /// The file system does not support locks.
    pub fn is_shared(&self) -> Result<bool> {
        let offsets = locked_offsets(&self.file, 0..QUEUE_LENGTH * off_t::from(Self::QUEUES));
        Ok(offsets?.into_iter().any(|offset| process_at(offset) != std::process::id()))
    }

    /// The file of the semaphore, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread has forked, but that has not yet called exec, shares the open file.
        let _: Result<_, _> = set_lock(&self.file, F_UNLCK, self.offset);
    }
}

/// Locks the place behind the last one of the queue, and returns its offset.
fn enter(file: &File, queue: Range<off_t>) -> Result<off_t, Errno> {
    loop {
        let mut unlocked_from = queue.start;
        while let Some(locked) = find_locked(file, unlocked_from..queue.end)? {
            unlocked_from = locked + 1;
        }
        let number = (unlocked_from - queue.start + PROCESS_IDS - 1) / PROCESS_IDS;
        let process = off_t::from(std::process::id()) % PROCESS_IDS;
        let offset = queue.start + number * PROCESS_IDS + process;
        // Another process may have entered meanwhile, and those before it may have left. A place before it would be wrong.
        match set_lock(file, F_WRLCK, offset) {
            Ok(()) if find_locked(file, offset + 1..queue.end)?.is_none() => return Ok(offset),
            Ok(()) => set_lock(file, F_UNLCK, offset)?,
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The offsets of the places that others have locked. The kernel reports locks in no order.
fn locked_offsets(file: &File, range: Range<off_t>) -> Result<Vec<off_t>, Errno> {
    let mut offsets = Vec::new();
    let mut ranges = vec![range];
    while let Some(range) = ranges.pop() {
        if let Some(locked) = find_locked(file, range.clone())? {
            offsets.push(locked);
            ranges.extend([range.start..locked, locked + 1..range.end]);
        }
    }
    Ok(offsets)
}

/// The id of the process whose place is at `offset`. Each queue begins at a multiple of the number of ids.
fn process_at(offset: off_t) -> u32 {
    u32::try_from(offset % PROCESS_IDS).expect("process ids are small numbers")
}

/// The offset of one of the places that others have locked, if there is any.
fn find_locked(file: &File, range: Range<off_t>) -> Result<Option<off_t>, Errno> {
    // A length of zero would mean all bytes up to the largest offset.
    if range.is_empty() {
        return Ok(None);
    }
    let mut lock = lock_of(F_WRLCK, range);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok((c_int::from(lock.l_type) != F_UNLCK).then_some(lock.l_start))
}

fn set_lock(file: &File, kind: c_int, offset: off_t) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock_of(kind, offset..offset + 1))).map(drop)
}

fn lock_of(kind: c_int, range: Range<off_t>) -> flock {
    flock {
        l_type: kind.try_into().expect("the kinds of locks are small numbers"),
        l_whence: SEEK_SET.try_into().expect("it is zero"),
        l_start: range.start,
        l_len: range.end - range.start,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Permit, open_or_create, set_lock};
    use anyhow::bail;
    use nix::libc::{F_WRLCK, off_t};
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::path::Path;

    /// A permit, if one is free.
    fn try_acquire(path: &Path, queue: u8, limit: u32) -> Option<Permit> {
        Permit::acquire(path, queue, limit, &mut || bail!("it would wait")).ok()
    }

    #[test]
    fn so_many_have_a_permit_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("queue");
        let first = try_acquire(path, 0, 2).unwrap();
        let second = try_acquire(path, 0, 2).unwrap();
        assert!(try_acquire(path, 0, 2).is_none());
        assert!(try_acquire(path, 1, 1).is_some());
        drop(first);
        let third = try_acquire(path, 0, 2).unwrap();
        assert!(try_acquire(path, 0, 2).is_none());
        drop((second, third));
        assert!(try_acquire(path, 0, 1).is_some());
    }

    #[test]
    fn waiting_ones_come_in_the_order_of_their_arrival() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("queue");
        let order = parking_lot::Mutex::new(Vec::new());
        let first = try_acquire(path, 0, 1).unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (entered_tx, entered_rx) = std::sync::mpsc::channel();
                let order = &order;
                scope.spawn(move || {
                    let permit = Permit::acquire(path, 0, 1, &mut || {
                        let _: Result<_, _> = entered_tx.send(());
                        Ok(())
                    });
                    order.lock().push(number);
                    drop(permit);
                });
                entered_rx.recv().unwrap();
            }
            drop(first);
        });
        assert_eq!(order.into_inner(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn the_place_of_a_stopped_process_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("queue");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let file = open_or_create(path).unwrap();
        set_lock(&file, F_WRLCK, off_t::from(child.id())).unwrap();
        assert!(try_acquire(path, 0, 1).is_none());
        let permit = try_acquire(path, 0, 2).unwrap();
        assert!(permit.is_shared().unwrap());
        drop(permit);
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        let permit = try_acquire(path, 0, 1).unwrap();
        drop(file);
        assert!(!permit.is_shared().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn many_threads_never_have_more_permits_than_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("queue");
        let counts = parking_lot::Mutex::new((0, 0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let permit = Permit::acquire(path, 0, 3, &mut || Ok(())).unwrap();
                        let mut guard = counts.lock();
                        guard.0 += 1;
                        guard.1 = guard.1.max(guard.0);
                        drop(guard);
                        std::thread::yield_now();
                        counts.lock().0 -= 1;
                        drop(permit);
                    }
                });
            }
        });
        let (left, most) = counts.into_inner();
        assert!(left == 0 && most <= 3, "{most} at once");
    }
}
