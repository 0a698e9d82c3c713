//! The names by which git recognises that a directory is a repository.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The names in a directory by which git recognises a repository, in the order of [`RepositoryNames`].
pub(super) const REPOSITORY_NAMES: [&str; 5] = [".git", "HEAD", "commondir", "objects", "refs"];

/// The names in a git directory by which git recognises it, or that name what git runs.
const GIT_DIR_NAMES: [&str; 8] =
    ["HEAD", "commondir", "objects", "refs", "config", "config.worktree", "gitdir", "hooks"];

/// The first bytes of a bundle, before the number of its version.
const BUNDLE_START: &[u8; 3] = b"# v";

/// Maximum bytes of a small file of a repository that are read.
const MAX_SMALL_FILE_BYTES: u64 = 64 << 10;

/// Large directories that contain no repositories that a user works in.
pub(super) const SKIPPED_DIRECTORIES: &[&str] =
    &[".git", "node_modules", "target", ".venv", ".cache"];

/// A directory that git uses as a repository.
#[derive(Debug)]
pub(super) enum RepositoryPath {
    /// It contains `.git`.
    Worktree(PathBuf),
    /// It is a git directory itself.
    GitDir(PathBuf),
}

/// True if no repository that a user works in is in a directory of this name.
pub(super) fn is_skipped(name: &OsStr) -> bool {
    SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped)
}

/// The names in a directory by which git recognises a repository.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepositoryNames {
    pub(super) has_git: bool,
    has_head: bool,
    has_common_dir: bool,
    has_objects: bool,
    has_refs: bool,
}

/// True if `path` belongs to a git directory other than `.git`, or would make its directory one.
pub fn is_in_git_dir(path: &Path) -> bool {
    path.ancestors().skip(1).any(|directory| {
        let relative = path.strip_prefix(directory).unwrap_or(path);
        let first = relative.iter().next().unwrap_or_default();
        if !GIT_DIR_NAMES.iter().any(|name| first.eq_ignore_ascii_case(name)) {
            return false;
        }
        let mut names = RepositoryNames::in_directory(directory);
        names.add(first);
        names.are_of_git_dir()
    })
}

/// True if the file at `path` begins as a bundle of git does.
pub(super) fn is_bundle(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
        return false;
    };
    let mut start = [0; BUNDLE_START.len()];
    File::from(file).read_exact(&mut start).is_ok() && start == *BUNDLE_START
}

/// The text of a small regular file that is not a symbolic link.
pub(super) fn read_small(path: &Path) -> Option<String> {
    String::from_utf8(read_regular(path, MAX_SMALL_FILE_BYTES)?).ok()
}

/// The content of a regular file that is not a symbolic link, up to this size.
pub(super) fn read_regular(path: &Path, max_bytes: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok().filter(Metadata::is_file)?;
    file.take(max_bytes).read_to_end(&mut content).ok()?;
    Some(content)
}

impl RepositoryNames {
    /// The names that are in `directory`.
    pub(super) fn in_directory(directory: &Path) -> Self {
        let mut names = Self::default();
        for name in REPOSITORY_NAMES {
            if directory.join(name).symlink_metadata().is_ok() {
                names.add(OsStr::new(name));
            }
        }
        names
    }

    /// Adds a name that is in the directory, if it is one of these. Compared without case, because some file systems are.
    pub(super) fn add(&mut self, name: &OsStr) {
        let flags = [
            &mut self.has_git,
            &mut self.has_head,
            &mut self.has_common_dir,
            &mut self.has_objects,
            &mut self.has_refs,
        ];
        for (repository_name, flag) in REPOSITORY_NAMES.iter().zip(flags) {
            *flag |= name.eq_ignore_ascii_case(repository_name);
        }
    }

    /// True if git uses the directory as a repository when it is started in it.
    pub(super) fn are_of_git_dir(self) -> bool {
        (self.has_common_dir && self.has_head) || self.has_own_objects()
    }

    /// True if it is one that needs no other git directory.
    pub(super) fn has_own_objects(self) -> bool {
        self.has_head && self.has_objects && self.has_refs
    }
}
