//! The files that the policy hides, recognized under other names.

use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::secrets;
use nanobot_os::rooted_fs;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of files searched beneath the hidden paths to identify them by inode, and the maximum depth.
const MAX_HIDDEN_FILES: usize = 10_000;
const MAX_HIDDEN_DEPTH: usize = 4;

/// The hidden files, identified by inode, so that other names for them are recognised. Searched on first use, once for
/// each tool call.
pub(crate) struct HiddenFiles<'a> {
    file_scope: &'a FileScope,
    /// Device and inode numbers.
    inodes: OnceCell<HashSet<(u64, u64)>>,
}

impl<'a> HiddenFiles<'a> {
    /// The files that `file_scope` hides. Nothing is searched yet.
    pub(super) fn new(file_scope: &'a FileScope) -> Self {
        Self { file_scope, inodes: OnceCell::new() }
    }

    /// True if `file`, opened as `path`, is a hidden file under another name: a hard link, or procfs mounted in another
    /// place.
    pub(crate) fn contains(&self, file: &File, metadata: &Metadata, path: &Path) -> bool {
        if secrets::is_process_secret(path)
            && !path.starts_with("/proc")
            && rooted_fs::is_procfs(file)
        {
            return true;
        }
        metadata.is_file()
            && metadata.nlink() > 1
            && self.inodes.get_or_init(|| self.scan()).contains(&(metadata.dev(), metadata.ino()))
    }

    /// Finds the hidden files with more than one hard link. There are usually none.
    fn scan(&self) -> HashSet<(u64, u64)> {
        let mut inodes = HashSet::new();
        let is_closed = |path: &PathBuf| !self.file_scope.is_visible(path);
        let secrets_in_home = secrets::home_secrets(&self.file_scope.home).filter(is_closed);
        let mut pending: Vec<(PathBuf, usize)> = self
            .file_scope
            .hidden
            .iter()
            .cloned()
            .chain(secrets_in_home)
            .map(|path| (path, 0))
            .collect();
        let mut entry_count = 0;
        while let Some((path, depth)) = pending.pop() {
            let Ok(metadata) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            entry_count += 1;
            if metadata.is_file() && metadata.nlink() > 1 {
                inodes.insert((metadata.dev(), metadata.ino()));
            } else if metadata.is_dir()
                && depth < MAX_HIDDEN_DEPTH
                && entry_count < MAX_HIDDEN_FILES
            {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                pending.extend(entries.map(|entry| (entry.path(), depth + 1)));
            }
        }
        inodes
    }
}
