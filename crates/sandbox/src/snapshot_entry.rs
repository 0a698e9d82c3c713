//! A protected path whose state is recorded before a command, to be compared after it.

use super::new_repository::{self, FileId};
use super::project_file_rules::ProjectFiles;
use super::protected_state::{SNAPSHOT_LIMIT_BYTES, SnapshotState, read_state};
use super::writable_roots::{TreePath, WritableRoots};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A protected path with its state.
#[derive(Debug)]
pub(super) struct SnapshotEntry {
    pub(super) path: PathBuf,
    pub(super) place: TreePath,
    pub(super) before: SnapshotState,
    /// Identifies the file, if a mount protects it as long as it is there.
    mounted: Option<FileId>,
    /// It belongs to a nested repository, and may disappear together with that.
    pub(super) is_nested: bool,
    /// It belongs to a repository that was found only after the command.
    pub(super) is_found_later: bool,
    /// Identifies the git directory that contains it, if it is in a nested repository.
    git_dir: Option<FileId>,
}

impl SnapshotEntry {
    /// A place in a repository that a command of this run created.
    pub(super) fn new_in(path: &Path, place: TreePath) -> Self {
        Self {
            path: path.to_owned(),
            place,
            before: SnapshotState::Missing,
            mounted: None,
            is_nested: true,
            is_found_later: true,
            git_dir: None,
        }
    }

    /// The `.git` directory around it, if that is in the writable place.
    pub(super) fn repository(&self) -> Option<TreePath> {
        let relative = new_repository::enclosing_git_dir(&self.place.relative)?;
        Some(TreePath { root: self.place.root, relative })
    }

    /// True if the directory that contains the repository no longer exists and nothing has replaced it, or its whole git
    /// directory, as also that of a linked worktree, within another one.
    pub(super) fn is_repository_gone(&self, roots: &WritableRoots) -> bool {
        let repository = self.repository().map(|it| it.relative);
        let around = repository.as_deref().and_then(Path::parent);
        let inner = self.place.relative.parent().filter(|path| {
            let outer = new_repository::enclosing_git_dir(&self.path);
            outer.is_some() && repository.as_deref() != Some(path)
        });
        let is_gone = |relative: &Path| {
            let place = TreePath { root: self.place.root, relative: relative.to_owned() };
            let found = roots
                .open_parent(&place, false)
                .and_then(|(dir, name)| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW));
            found.err() == Some(Errno::NOENT)
        };
        let places = [around, repository.as_deref(), inner];
        places.into_iter().flatten().any(is_gone)
    }

    /// True if another repository is in the place of the one that was there, or the linked worktree may be elsewhere.
    pub(super) fn is_replaced(&self) -> bool {
        let now = new_repository::git_dir_id(&self.path);
        new_repository::is_place_of_worktree(&self.path)
            || self.git_dir.is_some() && now.is_some() && now != self.git_dir
    }

    /// True if a mount has protected the file all the time, or nothing is there any more.
    pub(super) fn is_still_mounted(&self, roots: &WritableRoots) -> bool {
        let now = || {
            let (dir, name) = roots.open_parent(&self.place, false).ok()?;
            new_repository::file_id(dir.as_fd(), &*name)
        };
        self.mounted.is_some_and(|mounted| now().is_none_or(|now| now == mounted))
    }
}

/// Records the state of the protected paths beneath the `roots`, except for directories that a mount protects. Each is given
/// with whether it belongs to a nested repository.
///
/// # Errors
/// A place exists and cannot be read.
pub(super) fn record_places<'p>(
    roots: &WritableRoots,
    given: impl Iterator<Item = (&'p PathBuf, bool)>,
    project_files: &ProjectFiles,
) -> io::Result<Vec<SnapshotEntry>> {
    let mut left = SNAPSHOT_LIMIT_BYTES;
    let mut places = Vec::new();
    for (path, is_nested) in given {
        let Some(place) = roots.locate(path) else {
            continue;
        };
        if is_nested && project_files.is_created(path) {
            places.push(SnapshotEntry::new_in(path, place));
            continue;
        }
        let mut mounted = None;
        let before = match roots.open_parent(&place, false) {
            Ok((dir, name)) if !is_nested && is_mountable(dir.as_fd(), &name) => {
                // A directory is hardly ever replaced. What cannot be read is not the command's either.
                let state = read_state(dir.as_fd(), &name, &mut SNAPSHOT_LIMIT_BYTES.clone());
                let Ok(state @ SnapshotState::File { .. }) = state else {
                    continue;
                };
                mounted = new_repository::file_id(dir.as_fd(), &*name);
                state
            }
            Ok((dir, name)) => match read_state(dir.as_fd(), &name, &mut left) {
                // A directory of another user that this one may not enter: the command cannot either.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && !is_own(dir.as_fd()) =>
                {
                    continue;
                }
                Err(error) => {
                    let cause = format!("record the state of `{}`: {error}", path.display());
                    return Err(io::Error::other(cause));
                }
                Ok(state) => state,
            },
            Err(Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => SnapshotState::Unreachable,
            Err(_) => SnapshotState::Missing,
        };
        places.push(SnapshotEntry {
            path: path.clone(),
            place,
            before,
            mounted,
            is_nested,
            is_found_later: false,
            git_dir: is_nested.then(|| new_repository::git_dir_id(path)).flatten(),
        });
    }
    Ok(places)
}

/// True if the directory belongs to this user.
fn is_own(dir: BorrowedFd<'_>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_uid == own)
}

/// True if a mount can protect what is at `name`.
fn is_mountable(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => true,
            FileType::Directory => name != ".git",
            _ => false,
        }
    })
}
