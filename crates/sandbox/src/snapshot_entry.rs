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
    pub(super) tree_path: TreePath,
    pub(super) before: SnapshotState,
    /// Identifies the file, if a mount protects it as long as it exists.
    pub(super) mounted: Option<FileId>,
    /// It belongs to a nested repository, and may disappear together with it.
    pub(super) is_nested: bool,
    /// It belongs to a repository that was found only after the command.
    pub(super) is_found_later: bool,
    /// Identifies the git directory that contains it, if it is in a nested repository.
    git_dir: Option<FileId>,
}

impl SnapshotEntry {
    /// A path in a repository that a command of this run created.
    pub(super) fn in_new_repository(path: &Path, tree_path: TreePath) -> Self {
        Self {
            path: path.to_owned(),
            tree_path,
            before: SnapshotState::Missing,
            mounted: None,
            is_nested: true,
            is_found_later: true,
            git_dir: None,
        }
    }

    /// The `.git` directory that contains it, if that is in the writable root.
    pub(super) fn repository(&self) -> Option<TreePath> {
        let relative = new_repository::enclosing_git_dir(&self.tree_path.relative)?;
        Some(TreePath { root: self.tree_path.root, relative })
    }

    /// True if nothing is left of the repository, and nothing has replaced it: neither the directory that contains it, nor its git
    /// directory, nor, within another git directory, the git directory of a submodule or a linked worktree.
    pub(super) fn is_repository_gone(&self, roots: &WritableRoots) -> bool {
        let git_dir = self.repository().map(|repository| repository.relative);
        let top = git_dir.as_deref().and_then(Path::parent);
        let inner_git_dir = self.tree_path.relative.parent().filter(|path| {
            let outer = new_repository::enclosing_git_dir(&self.path);
            outer.is_some() && git_dir.as_deref() != Some(path)
        });
        let is_gone = |relative: &Path| {
            let tree_path = TreePath { root: self.tree_path.root, relative: relative.to_owned() };
            let stat = roots
                .open_parent(&tree_path, false)
                .and_then(|(dir, name)| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW));
            stat.err() == Some(Errno::NOENT)
        };
        [top, git_dir.as_deref(), inner_git_dir].into_iter().flatten().any(is_gone)
    }

    /// True if another repository has replaced the one that was there, or the linked worktree may have moved.
    pub(super) fn is_replaced(&self) -> bool {
        let now = new_repository::git_dir_id(&self.path);
        new_repository::is_worktree_location(&self.path)
            || (self.git_dir.is_some() && now.is_some() && now != self.git_dir)
    }

    /// True if a mount has protected the file all the time, or the file is gone.
    pub(super) fn is_still_mounted(&self, roots: &WritableRoots) -> bool {
        let now = || {
            let (dir, name) = roots.open_parent(&self.tree_path, false).ok()?;
            new_repository::file_id(dir.as_fd(), &*name)
        };
        self.mounted.is_some_and(|mounted| now().is_none_or(|now| now == mounted))
    }
}

/// A protected path whose state is to be recorded.
pub(super) struct ProtectedPath<'p> {
    pub(super) path: &'p PathBuf,
    /// True if it belongs to a nested repository.
    pub(super) is_nested: bool,
}

/// Records the state of the `protected_paths` beneath the `roots`, except for directories that a mount protects.
///
/// # Errors
/// A path exists and cannot be read.
pub(super) fn record_states<'p>(
    roots: &WritableRoots,
    protected_paths: impl Iterator<Item = ProtectedPath<'p>>,
    project_files: &ProjectFiles,
) -> io::Result<Vec<SnapshotEntry>> {
    let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
    // Of files that a mount protects, and that only another program can replace.
    let mut mounted_bytes_left = SNAPSHOT_LIMIT_BYTES;
    let mut entries = Vec::new();
    for ProtectedPath { path, is_nested } in protected_paths {
        let Some(tree_path) = roots.locate(path) else {
            continue;
        };
        if is_nested && project_files.is_created(path) {
            entries.push(SnapshotEntry::in_new_repository(path, tree_path));
            continue;
        }
        let mut mounted = None;
        let before = match roots.open_parent(&tree_path, false) {
            Ok((dir, name)) if !is_nested && is_mountable(dir.as_fd(), &name) => {
                // A directory is hardly ever replaced. The command cannot change a directory that this process cannot read.
                let state = read_state(dir.as_fd(), &name, &mut mounted_bytes_left);
                let Ok(state @ SnapshotState::File { .. }) = state else {
                    continue;
                };
                mounted = new_repository::file_id(dir.as_fd(), &*name);
                state
            }
            Ok((dir, name)) => match read_state(dir.as_fd(), &name, &mut bytes_left) {
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
        entries.push(SnapshotEntry {
            path: path.clone(),
            tree_path,
            before,
            mounted,
            is_nested,
            is_found_later: false,
            git_dir: is_nested.then(|| new_repository::git_dir_id(path)).flatten(),
        });
    }
    Ok(entries)
}

/// True if the directory belongs to this user.
fn is_own(dir: BorrowedFd<'_>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_uid == own)
}

/// True if a mount can protect the entry `name`.
fn is_mountable(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => true,
            FileType::Directory => name != ".git",
            _ => false,
        }
    })
}
