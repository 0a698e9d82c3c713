//! The writable places of a command, opened before it starts: what it did in them is read and put back relative to these
//! descriptors, without following symbolic links.

use super::files_beneath::{self, OpenDir};
use super::landlock_rules::open_nofollow;
use super::protected_state::{SNAPSHOT_LIMIT_BYTES, SnapshotState, read_state};
use super::undone_change::{Remedy, UndoneChange, WithheldChange, put_back};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The writable places, open and by path.
#[derive(Debug)]
pub(super) struct WritableRoots {
    pub(super) fds: Vec<OwnedFd>,
    pub(super) paths: Vec<PathBuf>,
}

/// A path beneath a writable place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreePath {
    /// The number of the place.
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

    /// The place of `path` in the innermost root around it.
    pub(super) fn locate(&self, path: &Path) -> Option<TreePath> {
        let numbered = self.paths.iter().enumerate();
        let around = numbered.filter(|(_, root)| path.starts_with(root) && path != *root);
        let (root, root_path) = around.max_by_key(|(_, root)| root.as_os_str().len())?;
        Some(TreePath { root, relative: path.strip_prefix(root_path).ok()?.to_owned() })
    }

    pub(super) fn path(&self, place: &TreePath) -> PathBuf {
        self.paths[place.root].join(&place.relative)
    }

    /// Opens the directory that contains `place`; returns it with the file name. Missing directories are created if
    /// `create_missing`, and what is in their place is removed.
    pub(super) fn open_parent(
        &self,
        place: &TreePath,
        create_missing: bool,
    ) -> Result<(OpenDir<'_>, OsString), Errno> {
        files_beneath::open_parent(&self.fds[place.root], &place.relative, create_missing)
    }

    /// Reads the state of `place`.
    ///
    /// # Errors
    /// It exists and cannot be read.
    pub(super) fn read(&self, place: &TreePath) -> io::Result<SnapshotState> {
        match self.open_parent(place, false) {
            Ok((dir, name)) => read_state(dir.as_fd(), &name, &mut SNAPSHOT_LIMIT_BYTES.clone()),
            Err(Errno::NOENT) => Ok(SnapshotState::Missing),
            // A symbolic link or a file has replaced its directory.
            Err(Errno::LOOP | Errno::NOTDIR) => Ok(SnapshotState::Unreachable),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames what is at `place`.
    pub(super) fn set_aside(&self, place: &TreePath) -> UndoneChange {
        let path = self.path(place);
        let renamed = self
            .open_parent(place, false)
            .map_err(io::Error::from)
            .and_then(|(dir, name)| files_beneath::set_aside(dir.as_fd(), &name));
        let remedy = renamed.map(|name| Remedy::SetAside(path.with_file_name(name)));
        UndoneChange { path, remedy, withheld: None }
    }

    /// Puts `place` back from the state `is`, if that could be read, to the state `was`.
    pub(super) fn put_back(
        &self,
        place: &TreePath,
        was: &SnapshotState,
        is: Option<&SnapshotState>,
    ) -> UndoneChange {
        let path = self.path(place);
        let is_there = !matches!(was, SnapshotState::Missing | SnapshotState::Unreachable);
        let opened = self.open_parent(place, is_there).map_err(io::Error::from);
        let kept = opened.and_then(|(dir, name)| put_back(dir.as_fd(), &name, was, is));
        let remedy = kept.map(|kept| Remedy::Restored(kept.map(|name| path.with_file_name(name))));
        UndoneChange { path, remedy, withheld: None }
    }

    /// The change of `place` to `state`, to be made after all if the user allows it.
    pub(super) fn withheld(
        &self,
        place: &TreePath,
        state: SnapshotState,
    ) -> Option<WithheldChange> {
        let root = self.fds[place.root].try_clone().ok()?;
        Some(WithheldChange { root, relative: place.relative.clone(), state })
    }
}
