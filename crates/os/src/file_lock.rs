//! Kernel locks: on a separate lock file for as long as a turn, a job or a change of a file takes, and on a file itself for
//! the microseconds of an append.

use crate::entry_mode::EntryMode;
use crate::signal::{self, Deadline};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id.
    pub pid: u32,
    /// The time at which it took the lock, as text.
    pub since: String,
}

/// The outcome of an attempt to take a lock.
#[derive(Debug)]
pub enum LockAttempt {
    Acquired(FileLock),
    /// Another process holds the lock; `None` if it has left no note.
    Busy(Option<LockHolder>),
}

impl LockHolder {
    /// True if the process is stopped, by Ctrl-Z for example, and will not release the lock until it is continued.
    pub fn is_stopped(&self) -> bool {
        is_stopped(self.pid)
    }
}

impl fmt::Display for LockHolder {
    /// Writes `process 12`, or `process 12, which is stopped`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if self.is_stopped() { f.write_str(", which is stopped") } else { Ok(()) }
    }
}

/// True if the process `pid` is stopped.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| has_stopped_state(&stat))
}

/// True if a line of proc_pid_stat(5), such as `1234 (name) T …`, is of a stopped process.
fn has_stopped_state(stat: &str) -> bool {
    let state = stat.rsplit(')').next();
    state.is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// A kernel lock on a separate lock file. It is released when the process ends, for any cause. The file remains and has
/// no meaning.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

/// Interval between attempts to take a busy lock: short enough for short turns, long enough to cost nothing. It need not
/// grow, since few processes wait for such a lock. A blocking wait could not be cancelled.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum attempts to take a lock that other processes only examine.
const MAX_SHARED_ATTEMPTS: u32 = 100;

impl FileLock {
    /// Takes the lock at `path`, and waits up to `timeout` if it is busy; `on_busy` is then called once. `now` is
    /// recorded as the time of locking, for others that find it busy; `None` records nothing. `subject` names the locked
    /// object in errors.
    ///
    /// # Errors
    /// Status 75, with the holder, if it stays busy; 74 if the file system does not support locks.
    pub fn acquire(
        path: &Path,
        subject: &str,
        now: Option<&str>,
        timeout: Duration,
        on_busy: &mut dyn FnMut(Option<&LockHolder>),
    ) -> Result<Self> {
        let mut deadline = Deadline::after(timeout);
        let mut has_notified = false;
        loop {
            let holder = match Self::try_acquire(path, now)? {
                LockAttempt::Acquired(lock) => return Ok(lock),
                LockAttempt::Busy(holder) => holder,
            };
            if deadline.is_expired() {
                let mut cause = format!("{subject} is in use");
                if let Some(holder) = holder {
                    // Without the fraction of a second.
                    let since = holder.since.split('.').next().unwrap_or_default();
                    cause += &format!(" since {since} by {holder}");
                }
                return Err(fail(Exit::TryAgain, cause).with_hint("again later, when it has ended"));
            }
            if !has_notified {
                has_notified = true;
                on_busy(holder.as_ref());
            }
            signal::sleep(LOCK_POLL_INTERVAL)?;
            deadline.subtract(LOCK_POLL_INTERVAL);
        }
    }

    /// Takes the lock at `path` if it is free. `now` is as in [`Self::acquire`].
    ///
    /// # Errors
    /// Status 74 if the file system does not support locks.
    pub fn try_acquire(path: &Path, now: Option<&str>) -> Result<LockAttempt> {
        let mut shared_attempts = 0;
        loop {
            let mut file = open_or_create(path)?;
            match file.try_lock() {
                Ok(()) => {}
                // Another process is in `is_locked`, for microseconds unless it is stopped. A job must not be skipped for that.
                Err(TryLockError::WouldBlock)
                    if shared_attempts < MAX_SHARED_ATTEMPTS && file.try_lock_shared().is_ok() =>
                {
                    drop(file.unlock());
                    shared_attempts += 1;
                    signal::sleep(MIN_POLL_INTERVAL)?;
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Ok(LockAttempt::Busy(read_holder(&mut file)));
                }
                Err(TryLockError::Error(error)) => return Err(lock_error(path, &error)),
            }
            let metadata = file.metadata().with_context(|| format!("stat `{}`", path.display()))?;
            // If the last holder removed the file, this lock protects nothing.
            if metadata.nlink() > 0 {
                if let Some(now) = now {
                    // The note is only informative: a full disk must not prevent work.
                    drop(write_note(&mut file, metadata.len(), now));
                }
                return Ok(LockAttempt::Acquired(Self { file, path: path.to_owned() }));
            }
        }
    }

    /// True if a process holds the lock at `path`. Creates no file. For the duration of the check the lock is shared, which
    /// [`Self::try_acquire`] waits for.
    pub fn is_locked(path: &Path) -> Result<bool> {
        let Some(file) = open_lock(path)? else {
            return Ok(false);
        };
        match file.try_lock_shared() {
            // Closing the file would release the lock too late if a child that was forked, but has not yet called exec,
            // shares it.
            Ok(()) => {
                drop(file.unlock());
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(lock_error(path, &error)),
        }
    }

    /// The process that holds the lock at `path`; `None` if it is free. The kernel's list of locks is checked, since a note
    /// may be left from an earlier holder.
    ///
    /// # Errors
    /// The file cannot be read, or the holder runs where it cannot be seen, such as in another container.
    pub fn holder(path: &Path) -> Result<Option<u32>> {
        let Some(mut file) = open_lock(path)? else {
            return Ok(None);
        };
        if !Self::is_locked(path)? {
            return Ok(None);
        }
        let inode = file.metadata().with_context(|| format!("stat `{}`", path.display()))?.ino();
        let note = read_holder(&mut file);
        let locks = std::fs::read_to_string("/proc/locks").context("read `/proc/locks`")?;
        match note {
            Some(note) if locks.lines().any(|line| is_lock_of(line, inode, note.pid)) => {
                Ok(Some(note.pid))
            }
            _ => Err(fail(
                Exit::TryAgain,
                format!("the process that holds `{}` is not known", path.display()),
            )),
        }
    }

    /// Removes the lock's file and releases the lock. Waiting processes notice this and create a new file.
    pub fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path)
            .with_context(|| format!("remove `{}`", self.path.display()))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread has forked, but that has not yet called exec, shares the
        // open file.
        drop(self.file.unlock());
    }
}

/// True if a line of proc_locks(5), such as `1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF`, is of a lock that this
/// process has on this inode.
fn is_lock_of(line: &str, inode: u64, pid: u32) -> bool {
    let mut fields = line.split_whitespace().skip(4);
    let line_pid = fields.next().and_then(|pid| pid.parse().ok());
    let line_inode = fields.next().and_then(|id| id.rsplit(':').next()?.parse().ok());
    line_pid == Some(pid) && line_inode == Some(inode)
}

pub(crate) fn lock_error(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let cause = format!("this file system cannot lock `{}`: {error}", path.display());
    fail(Exit::Io, cause).with_hint("a workspace on a local disk")
}

/// The longest note of a holder that is read: a process id and a time.
const MAX_NOTE_BYTES: u64 = 200;

/// Opens the lock file at `path`, and creates it if it does not exist.
pub(crate) fn open_or_create(path: &Path) -> Result<File> {
    // A symbolic link could make this program create a file elsewhere, or write its note into one.
    // Reading a FIFO would wait for a writer.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = flags.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    let file = match options.open(path) {
        // The mode of a new file depends on its directory, which is read only if it is needed.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            options.create(true).mode(EntryMode::of_new(path).file).open(path)
        }
        other => other,
    };
    file.with_context(|| format!("open `{}`", path.display()))
}

/// Opens the lock file at `path`; `None` if it does not exist.
fn open_lock(path: &Path) -> Result<Option<File>> {
    // Opening a FIFO would wait for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        file => file.map(Some).with_context(|| format!("open `{}`", path.display())),
    }
}

/// Replaces the note of the last holder, which is usually as long as ours.
fn write_note(file: &mut File, size: u64, now: &str) -> std::io::Result<()> {
    let note = format!("{} {now}\n", std::process::id());
    file.write_all(note.as_bytes())?;
    if size > note.len() as u64 { file.set_len(note.len() as u64) } else { Ok(()) }
}

fn read_holder(file: &mut File) -> Option<LockHolder> {
    let mut note = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(MAX_NOTE_BYTES).read_to_string(&mut note).ok()?;
    let (pid, since) = note.trim().split_once(' ')?;
    Some(LockHolder { pid: pid.parse().ok()?, since: since.into() })
}

/// Timeout for the lock of a file that is locked for the microseconds of an append. A process that was stopped in the
/// middle of an append can hold it for longer.
const APPEND_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Polling intervals for a lock: the first one, and the maximum after doubling.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(64);

/// Runs `work` while holding the kernel's lock on `file`, for the microseconds of an append.
///
/// # Errors
/// Status 75 if another process keeps the lock; 74 if the file system does not support locks.
pub fn with_lock<T>(file: &File, path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    with_lock_timeout(file, path, APPEND_LOCK_TIMEOUT, work)
}

/// Like [`with_lock`], for work that takes longer than an append.
///
/// # Errors
/// As [`with_lock`].
pub fn with_lock_timeout<T>(
    file: &File,
    path: &Path,
    timeout: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    run_locked(file, path, timeout, |interval| Ok(signal::sleep(interval)?), work)
}

/// Like [`with_lock`], but waits for the lock even while the run is being cancelled, since the data must not be lost.
///
/// # Errors
/// As [`with_lock`].
pub fn with_lock_ignoring_signals<T>(
    file: &File,
    path: &Path,
    timeout: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let pause = |interval| {
        std::thread::sleep(interval);
        Ok(())
    };
    run_locked(file, path, timeout, pause, work)
}

/// Polls for the lock, at growing intervals, so that many waiting processes leave the CPU to the one that holds it, and
/// runs `work` while holding it.
fn run_locked<T>(
    file: &File,
    path: &Path,
    timeout: Duration,
    pause: impl Fn(Duration) -> Result<()>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let mut deadline = Deadline::after(timeout);
    let mut interval = MIN_POLL_INTERVAL;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if !deadline.is_expired() => {
                pause(interval)?;
                deadline.subtract(interval);
                interval = (interval * 2).min(MAX_POLL_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => {
                let cause = format!("`{}` is locked by another process", path.display());
                return Err(fail(Exit::TryAgain, cause).with_hint("again later"));
            }
            Err(TryLockError::Error(error)) => return Err(lock_error(path, &error)),
        }
    }
    let output = work();
    drop(file.unlock());
    output
}

#[cfg(test)]
mod tests {
    use super::{FileLock, LockAttempt};
    use nanobot_base::error::{Exit, exit_for};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_lock_is_exclusive_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let take = || FileLock::acquire(&path, "`x`", Some("noon"), Duration::ZERO, &mut |_| {});
        let lock = take().unwrap();
        let error = take().unwrap_err();
        assert_eq!(exit_for(&error), Exit::TryAgain);
        assert_eq!(
            error.to_string(),
            format!("`x` is in use since noon by process {}", std::process::id())
        );
        let holder = |pid: u32| super::LockHolder { pid, since: "noon".into() };
        assert!(!holder(std::process::id()).is_stopped());
        assert!(!holder(0).is_stopped());
        assert!(super::has_stopped_state("12 (a) T) T 1 12 0"));
        assert!(!super::has_stopped_state("12 (a) T) S 1 12 0"));
        drop(lock);
        take().unwrap().remove().unwrap();
        assert!(!path.exists());
        take().unwrap();
    }

    #[test]
    fn an_examined_lock_is_not_busy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let is_over = AtomicBool::new(false);
        let is_acquired =
            || matches!(FileLock::try_acquire(&path, None), Ok(LockAttempt::Acquired(_)));
        assert!(is_acquired());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    FileLock::is_locked(&path).unwrap();
                    std::thread::yield_now();
                }
            });
            let busy_count = (0..2000).filter(|_| !is_acquired()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(busy_count, 0);
        });
    }
}
