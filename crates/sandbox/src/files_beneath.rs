//! Files beneath an open directory, without following symbolic links.

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Maximum levels of directories that are recorded, or removed one by one.
pub(super) const MAX_TREE_DEPTH: usize = 32;

/// An open directory: a writable root itself, or one beneath it.
pub(super) enum OpenDir<'a> {
    Root(&'a OwnedFd),
    Nested(OwnedFd),
}

impl AsFd for OpenDir<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(root) => root.as_fd(),
            Self::Nested(inner) => inner.as_fd(),
        }
    }
}

/// Opens the directory that contains `relative`; returns it with the file name. If `create_missing`, missing
/// directories are created, and symbolic links and files in their place are renamed.
pub(super) fn open_parent<'a>(
    root: &'a OwnedFd,
    relative: &Path,
    create_missing: bool,
) -> Result<(OpenDir<'a>, OsString), Errno> {
    let name = relative.file_name().ok_or(Errno::INVAL)?.to_owned();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = OpenDir::Root(root);
    for part in relative.parent().into_iter().flat_map(Path::components) {
        let part = part.as_os_str();
        let open = |dir: &OpenDir<'_>| {
            rustix::fs::openat(dir.as_fd(), part, flags, Mode::empty()).map(OpenDir::Nested)
        };
        dir = match open(&dir) {
            Err(error) if create_missing => {
                if error != Errno::NOENT {
                    set_aside(dir.as_fd(), part)?;
                }
                rustix::fs::mkdirat(dir.as_fd(), part, Mode::from_raw_mode(0o755))?;
                open(&dir)?
            }
            other => other?,
        };
    }
    Ok((dir, name))
}

/// The names in a directory.
pub(super) fn entry_names(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Renames `name`, so that git does not find it. It is not removed, since it may be the user's own file, which the command
/// has moved here from a directory that is not searched. Returns its new name.
pub(super) fn set_aside(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OsString, Errno> {
    let mut new_name = name.to_owned();
    new_name.push(format!(".set-aside-{}", nanobot_os::secret::random_hex(4)));
    rustix::fs::renameat(dir, name, dir, &new_name)?;
    Ok(new_name)
}

/// Gives the owner of an open directory all access to it, if it lacks any. Uses the descriptor, since a background command could
/// replace the path by a link.
pub(super) fn make_accessible(directory: BorrowedFd<'_>) -> io::Result<()> {
    let mode = rustix::fs::fstat(directory)?.st_mode;
    if mode & 0o700 == 0o700 {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mode = Mode::from_raw_mode(mode | 0o700);
    Ok(rustix::fs::chmodat(CWD, path, mode, AtFlags::empty())?)
}

/// Removes `name` and everything beneath it, or renames it if that fails, as with very many levels of directories.
pub(super) fn remove(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    remove_at(dir, name, 0).or_else(|_| Ok(set_aside(dir, name).map(drop)?))
}

fn remove_at(dir: BorrowedFd<'_>, name: &OsStr, depth: usize) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    if depth >= MAX_TREE_DEPTH {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    // Makes an unreadable directory accessible first. It cannot be swapped for another, since no process of the command
    // is left.
    let _: Result<_, _> =
        rustix::fs::chmodat(dir, name, Mode::from_raw_mode(0o700), AtFlags::empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    for name in entry_names(&inner)? {
        remove_at(inner.as_fd(), &name, depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}
