//! The permissions of new files and directories: for their owner only, unless their directory is shared with a group.
//!
//! A directory is shared if it is writable by its group and has the setgid bit, as `chmod g+ws` makes it: a user who sets
//! both wants the members of the group to work on the same files. New entries in it follow the umask. Any other
//! directory can be open to a group by accident, through the umask of the program that made it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Setgid, and writable by the group.
const SHARED_BITS: u32 = 0o2020;

/// The permissions of the entries of a directory, before the umask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryMode {
    pub file: u32,
    pub directory: u32,
}

impl EntryMode {
    /// For the owner only.
    pub const PRIVATE: Self = Self { file: 0o600, directory: 0o700 };
    /// For the owner and the group.
    const SHARED: Self = Self { file: 0o660, directory: 0o770 };

    /// Returns the permissions of a new entry `path`, from the nearest directory above it that exists.
    pub fn of_new(path: &Path) -> Self {
        let mut parents = path
            .ancestors()
            .skip(1)
            .map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
        let metadata = parents.find_map(|dir| std::fs::metadata(dir).ok());
        if metadata.is_some_and(|metadata| metadata.mode() & SHARED_BITS == SHARED_BITS) {
            Self::SHARED
        } else {
            Self::PRIVATE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EntryMode;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_shared_directory_has_shared_entries() {
        let temp = tempfile::tempdir().unwrap();
        let check = |mode: u32, expect: EntryMode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(temp.path(), permissions).unwrap();
            assert_eq!(EntryMode::of_new(&temp.path().join("a")), expect, "{mode:o}");
            let deep = temp.path().join("a/b/c");
            assert_eq!(EntryMode::of_new(&deep), expect, "{mode:o}");
        };
        check(0o700, EntryMode::PRIVATE);
        check(0o775, EntryMode::PRIVATE);
        check(0o2755, EntryMode::PRIVATE);
        check(0o1777, EntryMode::PRIVATE);
        check(0o2770, EntryMode::SHARED);
        check(0o2775, EntryMode::SHARED);
    }
}
