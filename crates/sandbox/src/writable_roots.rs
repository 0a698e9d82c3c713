//! The writable paths of a command, opened before it starts: its changes beneath them are read and undone relative to these descriptors,
//! without following symbolic links.

use super::files_beneath::{self, OpenDir};
use super::landlock_rules::open_nofollow;
use super::protected_state::{SNAPSHOT_LIMIT_BYTES, SnapshotState, read_state};
use super::undone_change::{Remedy, UndoneChange, WithheldChange, put_back};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The writable files and directories, open and by path.
#[derive(Debug)]
pub(super) struct WritableRoots {
    pub(super) fds: Vec<OwnedFd>,
    pub(super) paths: Vec<PathBuf>,
}

/// A path beneath a writable root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreePath {
    /// The index of the root.
    pub(super) root: usize,
    pub(super) relative: PathBuf,
}

impl WritableRoots {
    /// Opens the `roots` that exist.
    pub(super) fn open(roots: &[PathBuf]) -> Self {
        let opened =
            roots.iter().filter_map(|path| Some((open_nofollow(path).ok()?, path.clone())));
        let (fds, paths) = opened.unzip();
        Self { fds, paths }
    }

    /// The path in the innermost root that contains `path`.
    pub(super) fn locate(&self, path: &Path) -> Option<TreePath> {
        let numbered = self.paths.iter().enumerate();
        let outer = numbered.filter(|(_, root)| path.starts_with(root) && path != *root);
        let (root, root_path) = outer.max_by_key(|(_, root)| root.as_os_str().len())?;
        Some(TreePath { root, relative: path.strip_prefix(root_path).ok()?.to_owned() })
    }

    pub(super) fn path(&self, tree_path: &TreePath) -> PathBuf {
        self.paths[tree_path.root].join(&tree_path.relative)
    }

    /// Opens the directory that contains `tree_path`; returns it with the file name. Missing directories are created if
    /// `create_missing`, and files and symbolic links in their place are renamed.
    pub(super) fn open_parent(
        &self,
        tree_path: &TreePath,
        create_missing: bool,
    ) -> Result<(OpenDir<'_>, OsString), Errno> {
        files_beneath::open_parent(&self.fds[tree_path.root], &tree_path.relative, create_missing)
    }

    /// Reads the state of `tree_path`.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub(super) fn read(&self, tree_path: &TreePath) -> io::Result<SnapshotState> {
        match self.open_parent(tree_path, false) {
            Ok((dir, name)) => read_state(dir.as_fd(), &name, &mut SNAPSHOT_LIMIT_BYTES.clone()),
            Err(Errno::NOENT) => Ok(SnapshotState::Missing),
            // A symbolic link or a file has replaced its directory.
            Err(Errno::LOOP | Errno::NOTDIR) => Ok(SnapshotState::Unreachable),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames the entry at `tree_path`.
    pub(super) fn set_aside(&self, tree_path: &TreePath) -> UndoneChange {
        let path = self.path(tree_path);
        let renamed = self
            .open_parent(tree_path, false)
            .and_then(|(dir, name)| files_beneath::set_aside(dir.as_fd(), &name));
        let remedy = renamed.map(|name| Remedy::SetAside(path.with_file_name(name)));
        let remedy = remedy.map_err(io::Error::from);
        UndoneChange { path, remedy, withheld: None }
    }

    /// Puts `tree_path` back from the state `after`, if that could be read, to the state `before`.
    pub(super) fn put_back(
        &self,
        tree_path: &TreePath,
        before: &SnapshotState,
        after: Option<&SnapshotState>,
    ) -> UndoneChange {
        let path = self.path(tree_path);
        let create_missing = !matches!(before, SnapshotState::Missing | SnapshotState::Unreachable);
        let opened = self.open_parent(tree_path, create_missing).map_err(io::Error::from);
        let remedy = opened.and_then(|(dir, _)| put_back(dir.as_fd(), &path, before, after));
        UndoneChange { path, remedy, withheld: None }
    }

    /// The undone change of `tree_path` from the state `before` to `after`, to be made after all if the user allows it. `None` if it
    /// is none of a file or a link, or is too large.
    pub(super) fn withheld(
        &self,
        tree_path: &TreePath,
        before: SnapshotState,
        after: SnapshotState,
    ) -> Option<WithheldChange> {
        let is_shown = match &after {
            SnapshotState::File { content, .. } => content.bytes.is_some(),
            SnapshotState::Link(_) | SnapshotState::Missing => true,
            _ => false,
        };
        let root = self.fds[tree_path.root].try_clone().ok().filter(|_| is_shown)?;
        Some(WithheldChange { root, relative: tree_path.relative.clone(), before, after })
    }
}
