//! File access confined to a directory, through file descriptors: neither `..`, nor a link, nor a concurrent swap leads
//! outside.
//!
//! Links are never followed. To follow one, the caller resolves it, checks where it leads, and calls again with that
//! path. `openat2` enforces this in the kernel (Linux 5.6); without it, each path component is opened in turn. One
//! thing cannot be prevented: a directory that is moved elsewhere while open remains the same directory.

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// An open directory, or a single file in it.
#[derive(Debug)]
pub struct RootDir {
    dir: OwnedFd,
    /// If the root is a file: its name, the only entry that can be reached.
    file_name: Option<OsString>,
    /// Open each component in turn even if the kernel has `openat2`.
    without_openat2: bool,
}

/// A change that is about to be made.
#[derive(Debug)]
pub enum PendingChange<'a> {
    /// This directory will be created; the path is relative to the root.
    Directory(&'a Path),
    /// The file will be written through `temp`, a name next to it; or removed, in which case `temp` is empty.
    File { old: ExistingEntry, temp: &'a str },
}

/// The existing entry at the path of a change.
#[derive(Debug)]
pub enum ExistingEntry {
    /// No entry.
    Missing,
    /// A regular file, open for reading.
    File(File),
    /// A symbolic link, with its target.
    Symlink(PathBuf),
    /// An empty directory, with its mode.
    Directory(u32),
}

/// Maximum attempts if the kernel returns `EAGAIN` because of a concurrent rename.
const MAX_ATTEMPTS: usize = 64;

impl RootDir {
    /// Opens `path`: a directory, or a single file. In the second case nothing else in its directory can be reached.
    pub fn open(path: &Path) -> io::Result<Self> {
        let open = |path: &Path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
        };
        let (dir, file_name) = match (open(path), path.parent(), path.file_name()) {
            (Err(Errno::NOTDIR), Some(parent), Some(name)) => {
                (open(parent)?, Some(name.to_owned()))
            }
            (dir, ..) => (dir?, None),
        };
        Ok(Self { dir, file_name, without_openat2: false })
    }

    /// Uses the fallback for systems without openat2(2). For tests.
    #[must_use]
    pub fn without_openat2(self) -> Self {
        Self { without_openat2: true, ..self }
    }

    /// Opens `path` for reading, without blocking. Fails with [`is_link`] if a link is on the way. An entry that is
    /// neither a file nor a directory is returned as an `O_PATH` descriptor, which can be inspected but not read:
    /// merely opening a device can have effects.
    pub fn open_for_reading(&self, path: &Path) -> io::Result<File> {
        let path = self.resolve_inner(path)?;
        let fd = self.open_at(path, OFlags::PATH)?;
        match file_type(&rustix::fs::fstat(&fd)?) {
            FileType::RegularFile | FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                Ok(self.open_at(path, flags)?.into())
            }
            _ => Ok(fd.into()),
        }
    }

    /// Returns the metadata of `path`. A link at its end is not followed.
    pub fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let fd = self.open_at(self.resolve_inner(path)?, OFlags::PATH | OFlags::NOFOLLOW)?;
        File::from(fd).metadata()
    }

    /// Returns the target of the link at `path`.
    pub fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let fd = self.open_at(self.resolve_inner(path)?, OFlags::PATH | OFlags::NOFOLLOW)?;
        let target = rustix::fs::readlinkat(&fd, "", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// Opens the directory at `path`, for example as a working directory.
    pub fn open_dir(&self, path: &Path) -> io::Result<File> {
        if self.file_name.is_some() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?.into())
    }

    /// Atomically replaces the content of the file at `path` with `bytes`, through a temporary file next to it. Missing
    /// directories are created. An existing file keeps its owner and its mode, except for the set-user-ID and
    /// set-group-ID bits. `on_change` is called with each upcoming change; an error from it prevents the change.
    /// `mode`, if given, sets the file's mode. Returns true if the file existed.
    ///
    /// # Errors
    /// There is a link, a directory or a device at `path`, the file is read-only, or it has several hard links, which a replacement would
    /// separate. [`is_race`] if the file was changed concurrently.
    pub fn write<E: From<io::Error>>(
        &self,
        path: &Path,
        bytes: &[u8],
        mode: Option<u32>,
        on_change: &mut dyn FnMut(PendingChange<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let path = self.resolve_inner(path)?;
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(ErrorKind::IsADirectory).into());
        };
        let parent = self.open_or_create_dir(parent_path, on_change)?;
        let old = open_replaceable(&parent, name)?;
        let stat = old.as_ref().map(|(_, stat)| *stat);
        let temp = format!(".{}.tmp", super::secret::random_hex(8));
        on_change(PendingChange::File {
            old: old.map_or(ExistingEntry::Missing, |(file, _)| ExistingEntry::File(file)),
            temp: &temp,
        })?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &temp, flags, Mode::from_raw_mode(0o666));
        let mut file: File = file.map_err(io::Error::from)?.into();
        let mut write_and_rename = || {
            if let Some(stat) = &stat {
                copy_owner(&file, stat)?;
                let mode_bits = Mode::from_raw_mode(stat.st_mode & 0o1777);
                rustix::fs::fchmod(&file, mode_bits)?;
            }
            file.write_all(bytes)?;
            if let Some(mode) = mode {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            }
            file.sync_all()?;
            self.check_unmoved(parent_path, &parent)?;
            check_unchanged(&parent, name, stat.as_ref())?;
            rename_temp(&parent, &temp, name, stat.is_some())
        };
        if let Err(error) = write_and_rename() {
            // A temporary file that cannot be removed is left behind; the original error matters more.
            let _: Result<_, _> = rustix::fs::unlinkat(&parent, &temp, AtFlags::empty());
            return Err(error.into());
        }
        Ok(stat.is_some())
    }

    /// Removes the file, the link or the empty directory at `path`. `on_change` is called first, as in [`Self::write`].
    ///
    /// # Errors
    /// The entry is missing or of another type, the file is read-only, or the file has several hard links.
    pub fn remove<E: From<io::Error>>(
        &self,
        path: &Path,
        on_change: &mut dyn FnMut(PendingChange<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = self.resolve_inner(path)?;
        let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("it is the root of the granted directory").into());
        };
        let parent = self.open_at(parent_path, OFlags::PATH | OFlags::DIRECTORY)?;
        let stat = stat_entry(&parent, name).map_err(io::Error::from)?;
        let (old, flags) = match file_type(&stat) {
            FileType::RegularFile => match open_replaceable(&parent, name)? {
                Some((file, _)) => (ExistingEntry::File(file), AtFlags::empty()),
                None => return Err(race_error().into()),
            },
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&parent, name, Vec::new());
                let target = target.map_err(io::Error::from)?.into_bytes();
                (ExistingEntry::Symlink(OsString::from_vec(target).into()), AtFlags::empty())
            }
            FileType::Directory => {
                let dir = self.open_dir(path)?;
                let entries = rustix::fs::Dir::read_from(&dir).map_err(io::Error::from)?;
                let mut names = entries.flatten().map(|entry| entry.file_name().to_owned());
                if names.any(|name| !matches!(name.to_bytes(), b"." | b"..")) {
                    return Err(io::Error::from(ErrorKind::DirectoryNotEmpty).into());
                }
                (ExistingEntry::Directory(stat.st_mode & 0o7777), AtFlags::REMOVEDIR)
            }
            _ => return Err(not_regular_file().into()),
        };
        on_change(PendingChange::File { old, temp: "" })?;
        self.check_unmoved(parent_path, &parent)?;
        check_unchanged(&parent, name, Some(&stat))?;
        rustix::fs::unlinkat(&parent, name, flags).map_err(io::Error::from)?;
        Ok(())
    }

    /// Creates a link at `path`, which must not exist.
    pub fn create_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let parent =
            self.open_or_create_dir(path.parent().unwrap_or(Path::new("")), &mut allow_all)?;
        let name = path.file_name().unwrap_or_default();
        Ok(rustix::fs::symlinkat(target, &parent, name)?)
    }

    /// Creates the directory at `path` if it is missing, and sets its mode.
    pub fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.open_or_create_dir(path, &mut allow_all)?;
        let dir = self.open_dir(path)?;
        Ok(rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode))?)
    }

    /// Sets the mode of the file at `path`.
    pub fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let file = self.open_for_reading(path)?;
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
    }

    /// Returns `path`, or the single file if the root is one.
    fn resolve_inner<'p>(&'p self, path: &'p Path) -> io::Result<&'p Path> {
        match &self.file_name {
            None => Ok(path),
            Some(name) if path.as_os_str().is_empty() => Ok(Path::new(name)),
            Some(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(open_beneath(&self.dir, path, flags, self.without_openat2)?)
    }

    /// Opens the directory at `path`; missing directories are created.
    fn open_or_create_dir<E: From<io::Error>>(
        &self,
        path: &Path,
        on_change: &mut dyn FnMut(PendingChange<'_>) -> Result<(), E>,
    ) -> Result<OwnedFd, E> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut dir = self.open_at(Path::new("."), flags)?;
        let mut dir_path = PathBuf::new();
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::from(Errno::XDEV).into());
            };
            dir_path.push(name);
            let open =
                |dir: &OwnedFd| open_beneath(dir, Path::new(name), flags, self.without_openat2);
            dir = match open(&dir) {
                Err(Errno::NOENT) => {
                    on_change(PendingChange::Directory(&dir_path))?;
                    match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(io::Error::from(error).into()),
                    }
                    open(&dir).map_err(io::Error::from)?
                }
                other => other.map_err(io::Error::from)?,
            };
        }
        Ok(dir)
    }

    /// Fails if `path` no longer refers to `dir`, so that nothing is written to a directory that was moved away.
    fn check_unmoved(&self, path: &Path, dir: &OwnedFd) -> io::Result<()> {
        let current_dir = self.open_at(path, OFlags::PATH | OFlags::DIRECTORY)?;
        let (current, expected) = (rustix::fs::fstat(&current_dir)?, rustix::fs::fstat(dir)?);
        if (current.st_dev, current.st_ino) == (expected.st_dev, expected.st_ino) {
            Ok(())
        } else {
            Err(race_error())
        }
    }
}

/// A callback of [`RootDir::write`] that allows every change.
fn allow_all(_: PendingChange<'_>) -> io::Result<()> {
    Ok(())
}

/// Opens the file `name` for reading if it may be replaced or removed; `None` if there is no such entry.
fn open_replaceable(parent: &OwnedFd, name: &OsStr) -> io::Result<Option<(File, Stat)>> {
    let stat = match stat_entry(parent, name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match file_type(&stat) {
        FileType::RegularFile if stat.st_nlink == 1 => {}
        FileType::RegularFile => {
            return Err(io::Error::other(
                "the file has several hard links, which a change would separate",
            ));
        }
        FileType::Symlink => return Err(Errno::LOOP.into()),
        FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
        _ => return Err(not_regular_file()),
    }
    // Replacing a file requires no write permission on it, but a read-only mode is respected as the owner's intention.
    let access = rustix::fs::accessat(parent, name, Access::WRITE_OK, AtFlags::EACCESS);
    if stat.st_mode & 0o222 == 0 || access.is_err() {
        let mode = stat.st_mode & 0o7777;
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("the file is read-only (mode {mode:o})"),
        ));
    }
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = rustix::fs::openat(parent, name, flags, Mode::empty())?.into();
    let metadata = file.metadata()?;
    if (metadata.dev(), metadata.ino()) == (stat.st_dev, stat.st_ino) {
        Ok(Some((file, stat)))
    } else {
        Err(race_error())
    }
}

fn stat_entry(parent: &OwnedFd, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Gives the new file the owner and group of the file that it replaces.
fn copy_owner(file: &File, stat: &Stat) -> io::Result<()> {
    let metadata = file.metadata()?;
    if (metadata.uid(), metadata.gid()) == (stat.st_uid, stat.st_gid) {
        return Ok(());
    }
    let (uid, gid) =
        (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
    if metadata.uid() != stat.st_uid {
        return rustix::fs::fchown(file, Some(uid), Some(gid))
            .map_err(|_| io::Error::other("the file belongs to another user"));
    }
    // The group cannot be kept if the user is no longer a member. Dropping it removes rights and grants none.
    let _: Result<_, _> = rustix::fs::fchown(file, None, Some(gid));
    Ok(())
}

/// Fails if `name` no longer has the status `expected`; `None` means that it does not exist.
fn check_unchanged(parent: &OwnedFd, name: &OsStr, expected: Option<&Stat>) -> io::Result<()> {
    let version = |stat: &Stat| {
        (
            (stat.st_dev, stat.st_ino, stat.st_size),
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        )
    };
    let current = match stat_entry(parent, name) {
        Ok(stat) => Some(version(&stat)),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    if current == expected.map(version) { Ok(()) } else { Err(race_error()) }
}

/// Renames `temp` to `name`.
fn rename_temp(parent: &OwnedFd, temp: &str, name: &OsStr, replaces: bool) -> io::Result<()> {
    if replaces {
        return Ok(rustix::fs::renameat(parent, temp, parent, name)?);
    }
    match rustix::fs::renameat_with(parent, temp, parent, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(race_error()),
        // Not every file system supports `RENAME_NOREPLACE`.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Ok(rustix::fs::renameat(parent, temp, parent, name)?)
        }
        Err(error) => Err(error.into()),
    }
}

fn not_regular_file() -> io::Error {
    io::Error::other("not a regular file")
}

fn race_error() -> io::Error {
    Errno::STALE.into()
}

/// True if the error means that the path was changed concurrently; nothing was done in that case.
pub fn is_race(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::STALE)
}

/// True if the file is on procfs, through which the kernel exposes processes.
pub fn is_procfs(file: &File) -> bool {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    rustix::fs::fstatfs(file).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(PROC_SUPER_MAGIC))
}

/// True if the error means that there is a link on the path, or that the path leads out of the root.
pub fn is_link(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::XDEV))
}

fn open_beneath(
    dir: &OwnedFd,
    path: &Path,
    flags: OFlags,
    without_openat2: bool,
) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC;
    if without_openat2 {
        return open_by_component(dir, path, flags);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MAX_ATTEMPTS {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_by_component(dir, path, flags),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens `path` without openat2(2), one component at a time.
fn open_by_component(dir: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let names: Vec<&OsStr> = path
        .components()
        .filter(|part| !matches!(part, Component::CurDir))
        .map(|part| if let Component::Normal(name) = part { Ok(name) } else { Err(Errno::XDEV) })
        .collect::<Result<_, _>>()?;
    let Some((last, parents)) = names.split_last() else {
        return rustix::fs::openat(dir, ".", flags, Mode::empty());
    };
    let parent_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parent = rustix::fs::openat(dir, ".", parent_flags, Mode::empty())?;
    for name in parents {
        parent = rustix::fs::openat(&parent, *name, parent_flags, Mode::empty())
            .map_err(|error| link_error_or(&parent, name, error))?;
    }
    let fd = rustix::fs::openat(&parent, *last, flags | OFlags::NOFOLLOW, Mode::empty())
        .map_err(|error| link_error_or(&parent, last, error))?;
    // With `O_PATH` and `O_NOFOLLOW`, `openat` opens the link itself.
    let wants_link = flags.contains(OFlags::PATH | OFlags::NOFOLLOW);
    if flags.contains(OFlags::PATH)
        && !wants_link
        && file_type(&rustix::fs::fstat(&fd)?) == FileType::Symlink
    {
        Err(Errno::LOOP)
    } else {
        Ok(fd)
    }
}

/// Returns `ELOOP` if `name` is a link: with `O_DIRECTORY`, openat(2) fails with another error.
fn link_error_or(dir: &OwnedFd, name: &OsStr, error: Errno) -> Errno {
    let is_symlink = stat_entry(dir, name).is_ok_and(|stat| file_type(&stat).is_symlink());
    if is_symlink { Errno::LOOP } else { error }
}

#[cfg(test)]
mod tests {
    use super::{ExistingEntry, PendingChange, RootDir, is_link, is_race};
    use std::io::{self, Read};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    fn write(root: &RootDir, path: &str, bytes: &[u8]) -> io::Result<bool> {
        root.write(Path::new(path), bytes, None, &mut super::allow_all)
    }

    fn remove(root: &RootDir, path: &str) -> io::Result<()> {
        root.remove(Path::new(path), &mut super::allow_all)
    }

    /// Opens a directory with `openat2` and with the fallback.
    fn both(dir: &Path) -> [RootDir; 2] {
        [RootDir::open(dir).unwrap(), RootDir::open(dir).unwrap().without_openat2()]
    }

    #[test]
    fn no_path_escapes_the_root() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("in");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::write(dir.join("sub/a"), "inside").unwrap();
        std::fs::write(temp.path().join("secret"), "outside").unwrap();
        symlink("../secret", dir.join("out")).unwrap();
        symlink(temp.path(), dir.join("up")).unwrap();
        symlink("sub/a", dir.join("link")).unwrap();
        for root in both(&dir) {
            let mut text = String::new();
            let mut file = root.open_for_reading(Path::new("sub/a")).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside");
            let absolute = temp.path().join("secret");
            let absolute = absolute.to_str().unwrap();
            for path in ["out", "up/secret", "../secret", absolute, "sub/../../secret", "link"] {
                let error = root.open_for_reading(Path::new(path)).unwrap_err();
                assert!(is_link(&error), "{path}: {error}");
                assert!(root.open_dir(Path::new(path)).is_err(), "{path}");
                assert!(write(&root, path, b"x").is_err(), "{path} for writing");
            }
            for path in ["up/secret", "../secret", absolute, "sub/../../secret"] {
                assert!(root.metadata(Path::new(path)).is_err(), "{path}");
                assert!(remove(&root, path).is_err(), "{path}");
            }
            assert!(root.metadata(Path::new("out")).unwrap().is_symlink());
            assert_eq!(root.read_link(Path::new("out")).unwrap(), Path::new("../secret"));
        }
        assert_eq!(std::fs::read(temp.path().join("secret")).unwrap(), b"outside");
    }

    #[test]
    fn a_file_root_reaches_no_other_file() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a"), "a").unwrap();
        std::fs::write(temp.path().join("b"), "b").unwrap();
        let root = RootDir::open(&temp.path().join("a")).unwrap();
        assert!(root.open_for_reading(Path::new("")).is_ok());
        for path in ["b", "a", "../b", "."] {
            assert!(root.open_for_reading(Path::new(path)).is_err(), "{path}");
            assert!(write(&root, path, b"x").is_err(), "{path}");
        }
        assert!(root.open_dir(Path::new("")).is_err());
        assert!(write(&root, "", b"new").unwrap());
        assert_eq!(std::fs::read(temp.path().join("a")).unwrap(), b"new");
    }

    #[test]
    fn write_creates_directories_and_preserves_modes() {
        let temp = tempfile::tempdir().unwrap();
        for (name, root) in ["a", "b"].into_iter().zip(both(temp.path())) {
            let path = format!("{name}/b/c");
            assert!(!write(&root, &path, b"one").unwrap());
            let file = temp.path().join(&path);
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4750)).unwrap();
            assert!(write(&root, &path, b"two").unwrap());
            assert_eq!(std::fs::read(&file).unwrap(), b"two");
            let mode = std::fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o750);
            let dir = temp.path().join(name).join("b");
            assert_eq!(std::fs::read_dir(dir).unwrap().count(), 1);
            let other = temp.path().join("other");
            std::fs::hard_link(&file, &other).unwrap();
            assert!(write(&root, &path, b"three").is_err());
            assert!(remove(&root, &path).is_err());
            std::fs::remove_file(other).unwrap();
            assert!(write(&root, &format!("{name}/b"), b"x").is_err());
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
            assert!(write(&root, &path, b"x").is_err());
            assert!(remove(&root, &path).is_err());
            assert!(remove(&root, &format!("{name}/b")).is_err());
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
            remove(&root, &path).unwrap();
            remove(&root, &format!("{name}/b")).unwrap();
            assert!(!temp.path().join(name).join("b").exists());
        }
    }

    #[test]
    fn callback_errors_and_races_prevent_the_change() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("a");
        std::fs::write(&file, "old").unwrap();
        let root = RootDir::open(temp.path()).unwrap();
        let mut changes = Vec::new();
        let mut no = |before: PendingChange<'_>| match before {
            PendingChange::Directory(path) => {
                changes.push(path.display().to_string());
                Ok(())
            }
            PendingChange::File { old: ExistingEntry::File(mut old), .. } => {
                let mut text = String::new();
                old.read_to_string(&mut text)?;
                changes.push(text);
                Err(io::Error::other("no"))
            }
            PendingChange::File { .. } => Err(io::Error::other("no")),
        };
        assert!(root.write(Path::new("a"), b"x", None, &mut no).is_err());
        assert!(root.remove(Path::new("a"), &mut no).is_err());
        assert!(root.write(Path::new("d/e/f"), b"x", None, &mut no).is_err());
        assert_eq!(changes, ["old", "old", "d", "d/e"]);
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        let mut meddles = |_: PendingChange<'_>| std::fs::write(&file, "theirs");
        let error = root.write(Path::new("a"), b"x", None, &mut meddles);
        assert!(is_race(&error.unwrap_err()));
        assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
        let new = temp.path().join("new");
        let mut meddles = |_: PendingChange<'_>| std::fs::write(&new, "theirs");
        let error = root.write(Path::new("new"), b"x", None, &mut meddles);
        assert!(is_race(&error.unwrap_err()));
        assert_eq!(std::fs::read(&new).unwrap(), b"theirs");
        let names = std::fs::read_dir(temp.path()).unwrap().count();
        assert_eq!(names, 3, "no temporary file is left");
    }

    #[test]
    fn a_device_is_inspected_but_not_opened() {
        for root in both(Path::new("/dev")) {
            let file = root.open_for_reading(Path::new("null")).unwrap();
            assert!(!file.metadata().unwrap().is_file());
            let mut one = [0];
            assert!((&file).read(&mut one).is_err());
            assert_eq!(file.metadata().unwrap().nlink(), 1);
        }
    }

    #[test]
    fn a_swapped_directory_never_escapes_the_root() {
        let temp = tempfile::tempdir().unwrap();
        for (name, steps) in [("whole", false), ("steps", true)] {
            let temp = temp.path().join(name);
            let (dir, outside) = (temp.join("in"), temp.join("outside"));
            std::fs::create_dir_all(dir.join("real")).unwrap();
            std::fs::create_dir(&outside).unwrap();
            let mut root = RootDir::open(&dir).unwrap();
            root.without_openat2 = steps;
            let stop = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (spot, aside) = (dir.join("spot"), dir.join("aside"));
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        drop(std::fs::rename(dir.join("real"), &spot));
                        drop(std::fs::rename(&spot, dir.join("real")));
                        drop(symlink(&outside, &aside));
                        drop(std::fs::rename(&aside, &spot));
                        drop(std::fs::remove_file(&spot));
                    }
                });
                for _ in 0..300 {
                    drop(write(&root, "spot/x", b"x"));
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        }
    }
}
