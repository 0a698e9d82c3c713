//! The contents of directories, as earlier searches of the run have read them.

use super::git_repository::RepositoryNames;
use nanobot_os::clock::FileTime;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The directories that were read, by their absolute paths.
pub(super) type DirectoryCache = BTreeMap<PathBuf, CachedDirectory>;

/// A directory as it was when it was read.
#[derive(Debug)]
pub(super) struct CachedDirectory {
    pub(super) version: DirectoryVersion,
    pub(super) contents: DirectoryContents,
}

/// A directory for which these are unchanged has the same entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DirectoryVersion {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// The time of the last change.
    pub(super) changed: FileTime,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DirectoryContents {
    /// The number of all entries.
    pub(super) entries: usize,
    /// The directories among them.
    pub(super) directories: Vec<OsString>,
    /// The symbolic links among them.
    pub(super) links: Vec<OsString>,
    /// The project files among them.
    pub(super) files: Vec<OsString>,
    /// The names among them by which git recognises a repository.
    pub(super) repository_names: RepositoryNames,
}
