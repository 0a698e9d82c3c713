//! Kernel locks: on a separate lock file for as long as a turn, a job or a change of a file takes, and on a file itself for
//! the microseconds of an append.

use crate::entry_mode::EntryMode;
use crate::signal::{self, Deadline};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, fail, fail_with_hint};
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

impl LockHolder {
    /// True if the process is stopped, by Ctrl-Z for example, and will not release the lock until it is continued.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| has_stopped_state(&stat))
    }
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

/// Interval between attempts to take a busy lock: short enough for short turns, long enough to cost nothing. A blocking
/// wait could not be cancelled.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

impl FileLock {
    /// Takes the lock at `path`, and waits up to `timeout` if it is busy; `on_busy` is then called once. `now` is
    /// recorded as the time of locking, for others that find it busy; `subject` names the locked object in errors.
    ///
    /// # Errors
    /// Status 75, with the holder, if it stays busy; 74 if the file system does not support locks.
    pub fn acquire(
        path: &Path,
        subject: &str,
        now: &str,
        timeout: Duration,
        on_busy: &mut dyn FnMut(Option<&LockHolder>),
    ) -> Result<Self> {
        let mut deadline = Deadline::after(timeout);
        let mut has_notified = false;
        loop {
            let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(nofollow);
            let mut file = match options.open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let mode = EntryMode::of_new(path).file;
                    options.create(true).mode(mode).open(path)
                }
                other => other,
            }
            .with_context(|| format!("open `{}`", path.display()))?;
            match file.try_lock() {
                Ok(()) => {
                    let context = || format!("stat `{}`", path.display());
                    let metadata = file.metadata().with_context(context)?;
                    if metadata.nlink() == 0 {
                        // The last holder removed the file, so this lock protects nothing.
                        continue;
                    }
                    // The note is only informative: a full disk must not prevent work.
                    drop(write_note(&mut file, metadata.len(), now));
                    return Ok(Self { file, path: path.to_owned() });
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(lock_error(path, &error)),
            }
            let holder = read_holder(&mut file);
            if deadline.is_expired() {
                let mut cause = format!("{subject} is in use");
                if let Some(holder) = holder {
                    let stopped = if holder.is_stopped() { ", which is stopped" } else { "" };
                    let LockHolder { pid, since } = holder;
                    cause += &format!(" by process {pid}{stopped} since {since}");
                }
                return Err(fail_with_hint(
                    Exit::TryAgain,
                    cause,
                    "again later, when it has ended",
                ));
            }
            if !std::mem::replace(&mut has_notified, true) {
                on_busy(holder.as_ref());
            }
            signal::sleep(LOCK_POLL_INTERVAL)?;
            deadline.subtract(LOCK_POLL_INTERVAL);
        }
    }

    /// True if a process holds the lock at `path`. Creates no file, and blocks others only for the duration of the
    /// check.
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
        // `1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF`
        let is_this_lock = |line: &&str| {
            let mut fields = line.split_whitespace().skip(4);
            let pid = fields.next().and_then(|pid| pid.parse().ok());
            let file = fields.next().and_then(|file| file.rsplit(':').next()?.parse().ok());
            file == Some(inode) && note.as_ref().is_some_and(|note| pid == Some(note.pid))
        };
        match (locks.lines().find(is_this_lock), note) {
            (Some(_), Some(note)) => Ok(Some(note.pid)),
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

fn lock_error(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let cause = format!("this file system cannot lock `{}`: {error}", path.display());
    fail_with_hint(Exit::Io, cause, "a workspace on a local disk")
}

/// The longest note of a holder that is read: a process id and a time.
const MAX_NOTE_BYTES: u64 = 200;

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
    acquire_lock(file, path, timeout, |interval| Ok(signal::sleep(interval)?))?;
    let output = work();
    drop(file.unlock());
    output
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
    acquire_lock(file, path, timeout, |interval| {
        std::thread::sleep(interval);
        Ok(())
    })?;
    let output = work();
    drop(file.unlock());
    output
}

/// Polls for the lock, at growing intervals, so that many waiting processes leave the CPU to the one that holds it.
fn acquire_lock(
    file: &File,
    path: &Path,
    timeout: Duration,
    pause: impl Fn(Duration) -> Result<()>,
) -> Result<()> {
    let end = signal::now().saturating_add(timeout);
    let mut interval = MIN_POLL_INTERVAL;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if signal::now() < end => {
                pause(interval)?;
                interval = (interval * 2).min(MAX_POLL_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => {
                let cause = format!("`{}` is locked by another process", path.display());
                return Err(fail_with_hint(Exit::TryAgain, cause, "again later"));
            }
            Err(TryLockError::Error(error)) => return Err(lock_error(path, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileLock;
    use nanobot_base::error::{Exit, exit_for};
    use std::time::Duration;

    #[test]
    fn a_lock_is_exclusive_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let take = || FileLock::acquire(&path, "`x`", "noon", Duration::ZERO, &mut |_| {});
        let lock = take().unwrap();
        let error = take().unwrap_err();
        assert_eq!(exit_for(&error), Exit::TryAgain);
        assert_eq!(
            error.to_string(),
            format!("`x` is in use by process {} since noon", std::process::id())
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
}
