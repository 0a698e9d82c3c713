//! The state of a protected path: how it is recorded before a command, and restored after it.

use super::files_beneath::{MAX_TREE_DEPTH, entry_names, remove};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

/// Maximum bytes of content that are recorded for all paths together. Content beyond it is compared by its stamp, and cannot be
/// restored.
pub(super) const SNAPSHOT_LIMIT_BYTES: u64 = 32 << 20;

/// The state of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SnapshotState {
    Missing,
    File {
        mode: u32,
        content: RecordedContent,
    },
    Link(OsString),
    Directory {
        mode: u32,
        entries: BTreeMap<OsString, Self>,
    },
    /// The `.git` directory itself; its contents are not compared.
    Repository,
    /// A symbolic link or a file is in the place of one of its parent directories, or this user may not enter one.
    Unreachable,
    /// A device, pipe or socket, or an entry beneath too many directories. It is not changed.
    Other,
}

/// The content of a file. It is compared by its bytes, or by its stamp if one side has no bytes.
#[derive(Clone, Debug)]
pub(super) struct RecordedContent {
    /// `None` if it is beyond the limit.
    pub(super) bytes: Option<Vec<u8>>,
    /// `None` if the content is not that of the file itself.
    stamp: Option<FileStamp>,
}

/// The attributes that change with the content of a file: inode number, size, change time in seconds and in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp(u64, u64, i64, u64);

impl RecordedContent {
    pub(super) fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes: Some(bytes), stamp: None }
    }
}

impl PartialEq for RecordedContent {
    fn eq(&self, other: &Self) -> bool {
        match (&self.bytes, &other.bytes) {
            (Some(bytes), Some(other_bytes)) => bytes == other_bytes,
            _ => self.stamp == other.stamp,
        }
    }
}

impl SnapshotState {
    /// True if [`restore_state`] can make this state from the state `current`.
    pub(super) fn is_restorable(&self, current: Option<&Self>) -> bool {
        match self {
            _ if Some(self) == current => true,
            Self::File { content, .. } => content.bytes.is_some(),
            Self::Directory { entries, .. } => {
                let current_entries = match current {
                    Some(Self::Directory { entries, .. }) => Some(entries),
                    _ => None,
                };
                entries.iter().all(|(name, entry)| {
                    entry.is_restorable(current_entries.and_then(|entries| entries.get(name)))
                })
            }
            _ => true,
        }
    }
}

/// Reads the state of `name`. `bytes_left` is the number of bytes of content that may still be recorded.
///
/// # Errors
/// The file exists and cannot be read.
pub(super) fn read_state(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    bytes_left: &mut u64,
) -> io::Result<SnapshotState> {
    read_state_at(dir, name, bytes_left, 0)
}

fn read_state_at(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    bytes_left: &mut u64,
    depth: usize,
) -> io::Result<SnapshotState> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        // A writable path can be a file, which has nothing beneath it.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(SnapshotState::Missing),
        other => other?,
    };
    let mode = stat.st_mode & 0o7777;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
            let mut bytes = None;
            if let Some(rest) = bytes_left.checked_sub(size) {
                *bytes_left = rest;
                File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?)
                    .take(size + 1)
                    .read_to_end(bytes.insert(Vec::new()))?;
            }
            let stamp = FileStamp(stat.st_ino, size, stat.st_ctime, stat.st_ctime_nsec);
            let content = RecordedContent { bytes, stamp: Some(stamp) };
            SnapshotState::File { mode, content }
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new())?;
            SnapshotState::Link(OsString::from_vec(target.into_bytes()))
        }
        FileType::Directory if name == ".git" => SnapshotState::Repository,
        FileType::Directory if depth >= MAX_TREE_DEPTH => SnapshotState::Other,
        FileType::Directory => {
            let inner = rustix::fs::openat(dir, name, flags | OFlags::DIRECTORY, Mode::empty())?;
            let mut entries = BTreeMap::new();
            for name in entry_names(&inner)? {
                let state = read_state_at(inner.as_fd(), &name, bytes_left, depth + 1)?;
                entries.insert(name, state);
            }
            SnapshotState::Directory { mode, entries }
        }
        _ => SnapshotState::Other,
    })
}

/// Restores `name` to `state`.
///
/// # Errors
/// The file cannot be changed, or its content was not recorded.
pub(super) fn restore_state(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    state: &SnapshotState,
) -> io::Result<()> {
    let is_directory = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    match state {
        SnapshotState::Missing | SnapshotState::Unreachable => remove(dir, name),
        SnapshotState::Other => Ok(()),
        SnapshotState::File { content: RecordedContent { bytes: None, .. }, .. } => {
            Err(io::Error::other("too large to be restored"))
        }
        SnapshotState::File { mode, content: RecordedContent { bytes: Some(bytes), .. } } => {
            if is_directory {
                remove(dir, name)?;
            }
            replace_file(dir, name, bytes, *mode)
        }
        SnapshotState::Repository if is_directory => Ok(()),
        SnapshotState::Repository => {
            remove(dir, name)?;
            Ok(rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))?)
        }
        SnapshotState::Link(target) => {
            remove(dir, name)?;
            Ok(rustix::fs::symlinkat(target, dir, name)?)
        }
        SnapshotState::Directory { mode, entries } => {
            if !is_directory {
                remove(dir, name)?;
                rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700))?;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            rustix::fs::fchmod(&inner, Mode::from_raw_mode(mode | 0o700))?;
            for name in entry_names(&inner)? {
                if !entries.contains_key(&name) {
                    remove(inner.as_fd(), &name)?;
                }
            }
            for (name, before) in entries {
                let after = read_state(inner.as_fd(), name, &mut SNAPSHOT_LIMIT_BYTES.clone());
                if after.ok().as_ref() != Some(before) {
                    restore_state(inner.as_fd(), name, before)?;
                }
            }
            Ok(rustix::fs::fchmod(&inner, Mode::from_raw_mode(*mode))?)
        }
    }
}

/// Writes `content` into the file `name` itself, since a rename would end the mounts of other commands over it. Where that is
/// not possible, replaces it. The file first grows with line breaks, and is cut last: a full disk is noticed before anything is
/// overwritten, and a program that is killed in between leaves empty lines at the end.
pub(super) fn overwrite_file(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    content: &[u8],
    mode: u32,
) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()) else {
        return replace_file(dir, name, content, mode);
    };
    let file = File::from(file);
    let old_length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut padded = content.to_vec();
    if content.len() < old_length {
        padded.resize(old_length, b'\n');
    } else {
        let growth = vec![b'\n'; content.len() - old_length];
        if let Err(error) = file.write_all_at(&growth, old_length as u64) {
            file.set_len(old_length as u64)?;
            return Err(error);
        }
    }
    file.write_all_at(&padded, 0)?;
    file.set_len(content.len() as u64)
}

/// Replaces the file `name`, in one step.
pub(super) fn replace_file(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    content: &[u8],
    mode: u32,
) -> io::Result<()> {
    let temp = format!(".{}.tmp", nanobot_os::secret::random_hex(8));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file: File = rustix::fs::openat(dir, &temp, flags, Mode::from_raw_mode(0o600))?.into();
    file.write_all(content)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(rustix::fs::renameat(dir, &temp, dir, name)?)
}
