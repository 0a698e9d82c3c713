//! The repository of git that contains a directory, as `sandbox::find_repository` finds it.

use super::wire_paths;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The repository that contains a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Repository {
    /// The top of the working tree.
    #[serde(with = "wire_paths::path")]
    pub top: PathBuf,
    /// The directories in which git keeps the repository; empty if a pointer to them is not trusted. The directory of a linked worktree is
    /// in the directory of its repository.
    #[serde(with = "wire_paths::list")]
    pub git_dirs: Vec<PathBuf>,
    /// The object directories of other repositories that it uses (alternates).
    #[serde(with = "wire_paths::list")]
    pub objects: Vec<PathBuf>,
    /// The pointers that are trusted only once the user has pinned them.
    #[serde(skip)]
    pub unpinned: Vec<GitPointer>,
}

/// A file or link of git that names another path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitPointer {
    /// The path of the file.
    pub file: PathBuf,
    /// The path that it names, without links.
    pub target: PathBuf,
}

impl Repository {
    /// The directories outside of the working tree that belong to the repository.
    pub fn outside(&self) -> impl Iterator<Item = &PathBuf> {
        self.git_dirs.iter().chain(&self.objects).filter(|path| !path.starts_with(&self.top))
    }
}
