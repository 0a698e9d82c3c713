//! Resolves symbolic links in the paths that a sandbox names.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Resolves symbolic links as [`std::fs::canonicalize`] does. Most paths are missing or lead through no link: one system call finds that
/// out. For other paths, each component is read.
///
/// # Errors
/// The errors of [`std::fs::canonicalize`].
pub(super) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    if !path.is_absolute() || has_parent {
        return std::fs::canonicalize(path);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Drops the components that the kernel ignores: `.` and repeated slashes.
        Ok(_) => Ok(path.components().collect()),
        Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)) => Err(error.into()),
        Err(_) => std::fs::canonicalize(path),
    }
}

#[cfg(test)]
mod tests {
    use super::real_path;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_resolved_as_the_standard_library_does() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("file"), "").unwrap();
        symlink("a", dir.join("link")).unwrap();
        symlink(dir.join("link/b"), dir.join("far")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        symlink("missing", dir.join("broken")).unwrap();
        for name in [
            "a/b",
            "a//b/.",
            "a/b/",
            "a/../a",
            "file",
            "file/",
            "file/x",
            "link",
            "link/b",
            "far",
            "round",
            "broken",
            "missing",
            "missing/x",
            "link/missing",
        ] {
            let path = dir.join(name);
            let expect = std::fs::canonicalize(&path).map_err(|error| error.kind());
            let actual = real_path(&path).map_err(|error| error.kind());
            assert_eq!(actual, expect, "{name}");
        }
        assert_eq!(real_path(".".as_ref()).unwrap(), std::fs::canonicalize(".").unwrap());
    }
}
