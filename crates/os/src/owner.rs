//! The owners of files, and the names of users.

use super::entry_mode::EntryMode;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum depth that is searched below a directory.
const MAX_DEPTH: usize = 4;

/// Returns the effective user ID of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the name of a user; `None` if the local database has none.
pub fn user_name(id: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, user_id) = (fields.next()?, fields.next()?, fields.next()?);
        (user_id.parse() == Ok(id)).then(|| name.to_owned())
    })
}

/// Lists the files and directories below `root` that do not belong to the user `id`, with their owners, in order. Entries below a listed
/// directory, entries of a directory that is shared with a group, and unreadable ones are left out.
pub fn entries_of_others(root: &Path, id: u32) -> Vec<(PathBuf, u32)> {
    let mut entries = Vec::new();
    search(root, id, MAX_DEPTH, &mut entries);
    entries.sort();
    entries
}

/// Adds to `entries` the entries of other users than `id` at `path`, and at most `depth` levels below.
fn search(path: &Path, id: u32, depth: usize, entries: &mut Vec<(PathBuf, u32)>) {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return;
    };
    if metadata.uid() != id {
        if EntryMode::of_new(path) == EntryMode::PRIVATE {
            entries.push((path.to_owned(), metadata.uid()));
        }
        return;
    }
    if !metadata.is_dir() || depth == 0 {
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        search(&entry.path(), id, depth - 1, entries);
    }
}
