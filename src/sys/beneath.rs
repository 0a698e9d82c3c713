//! Files beneath a directory, reached by descriptor: no `..`, no link and no swap in between leads out.
//!
//! Links are not followed at all; who wants to, resolves them first, decides again about where they lead, and comes back
//! with that path. `openat2` refuses them in the kernel (Linux 5.6); without it each component is opened in turn.

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

/// A directory that is held open.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
}

/// How often the kernel may ask to try again, when something was renamed meanwhile.
const TRIES: usize = 64;

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        let dir = rustix::fs::open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { dir })
    }

    /// Open what is at `path` for reading, without waiting for whatever it may be. A link is [`is_link`].
    pub fn read(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(open(&self.dir, path, flags)?.into())
    }

    /// Open the directory at `path`, such as to work in it.
    pub fn directory(&self, path: &Path) -> io::Result<File> {
        Ok(open(&self.dir, path, OFlags::RDONLY | OFlags::DIRECTORY)?.into())
    }

    /// Make `bytes` the whole of the file at `path`, by way of another file beside it. Missing directories are made; a
    /// file that exists keeps its mode. Whether the file was there.
    ///
    /// # Errors
    /// A link, a directory or a device at `path`, or a file that has other names too: those would change with it.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<bool> {
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (self.make(parent)?, name),
            _ => return Err(ErrorKind::IsADirectory.into()),
        };
        let old = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(stat) = &old {
            match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::RegularFile if stat.st_nlink == 1 => {}
                rustix::fs::FileType::RegularFile => {
                    return Err(io::Error::other("the file has other names (hard links)"));
                }
                rustix::fs::FileType::Symlink => return Err(Errno::LOOP.into()),
                rustix::fs::FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
                _ => return Err(io::Error::other("it is no regular file")),
            }
        }
        let temp = format!(".{}.tmp", super::secret::random_hex(8));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file: File =
            rustix::fs::openat(&parent, &temp, flags, Mode::from_raw_mode(0o666))?.into();
        let written = (|| {
            if let Some(stat) = &old {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
            }
            file.write_all(bytes)?;
            file.sync_all()?;
            Ok(rustix::fs::renameat(&parent, &temp, &parent, name)?)
        })();
        if written.is_err() {
            // What cannot be removed either stays as litter; the cause of the failure matters more.
            let _: Result<_, _> = rustix::fs::unlinkat(&parent, &temp, AtFlags::empty());
        }
        written.map(|()| old.is_some())
    }

    /// Open the directory at `path`; what is missing of it is made.
    fn make(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut dir = open(&self.dir, Path::new("."), flags)?;
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(Errno::XDEV.into());
            };
            dir = match open(&dir, Path::new(name), flags) {
                Err(Errno::NOENT) => {
                    match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    open(&dir, Path::new(name), flags)?
                }
                other => other?,
            };
        }
        Ok(dir)
    }
}

/// Whether an error means that a link is on the way.
pub fn is_link(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::XDEV))
}

fn open(dir: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return walk(dir, path, flags | OFlags::NOFOLLOW),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// The same without `openat2`.
fn walk(dir: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let names: Vec<&OsStr> = path
        .components()
        .filter(|part| !matches!(part, Component::CurDir))
        .map(|part| {
            if let Component::Normal(name) = part {
                Ok(name)
            } else {
                Err(Errno::XDEV)
            }
        })
        .collect::<Result<_, _>>()?;
    let Some((last, parents)) = names.split_last() else {
        return rustix::fs::openat(dir, ".", flags, Mode::empty());
    };
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = rustix::fs::openat(dir, ".", step, Mode::empty())?;
    for name in parents {
        here = rustix::fs::openat(&here, *name, step, Mode::empty())
            .map_err(|error| link_or(&here, name, error))?;
    }
    rustix::fs::openat(&here, *last, flags, Mode::empty())
        .map_err(|error| link_or(&here, last, error))
}

/// A link that is no directory says so only when asked.
fn link_or(dir: &OwnedFd, name: &OsStr, error: Errno) -> Errno {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let link =
        stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink());
    if link { Errno::LOOP } else { error }
}

#[cfg(test)]
mod tests {
    use super::{Root, is_link, walk};
    use rustix::fs::OFlags;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn nothing_leads_out() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("in");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::write(dir.join("sub/a"), "inside").unwrap();
        std::fs::write(temp.path().join("secret"), "outside").unwrap();
        symlink("../secret", dir.join("out")).unwrap();
        symlink(temp.path(), dir.join("up")).unwrap();
        symlink("sub/a", dir.join("link")).unwrap();
        let root = Root::open(&dir).unwrap();
        let mut text = String::new();
        root.read(Path::new("sub/a"))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "inside");
        for path in [
            "out",
            "up/secret",
            "../secret",
            "/etc/passwd",
            "sub/../../secret",
            "link",
        ] {
            let error = root.read(Path::new(path)).unwrap_err();
            assert!(is_link(&error), "{path}: {error}");
            assert!(
                walk(
                    &root.dir,
                    Path::new(path),
                    OFlags::RDONLY | OFlags::NOFOLLOW
                )
                .is_err(),
                "{path} by steps"
            );
            assert!(
                root.write(Path::new(path), b"x").is_err(),
                "{path} for writing"
            );
        }
        assert!(walk(&root.dir, Path::new("sub/a"), OFlags::RDONLY).is_ok());
        assert_eq!(
            std::fs::read(temp.path().join("secret")).unwrap(),
            b"outside"
        );
    }

    #[test]
    fn writing_makes_directories_and_keeps_modes() {
        let temp = tempfile::tempdir().unwrap();
        let root = Root::open(temp.path()).unwrap();
        assert!(!root.write(Path::new("a/b/c"), b"one").unwrap());
        let file = temp.path().join("a/b/c");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(root.write(Path::new("a/b/c"), b"two").unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777,
            0o750
        );
        assert_eq!(
            std::fs::read_dir(temp.path().join("a/b")).unwrap().count(),
            1
        );
        std::fs::hard_link(&file, temp.path().join("other")).unwrap();
        assert!(root.write(Path::new("a/b/c"), b"three").is_err());
        assert!(root.write(Path::new("a/b"), b"x").is_err());
    }

    #[test]
    fn a_swapped_directory_never_leads_out() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, outside) = (temp.path().join("in"), temp.path().join("outside"));
        std::fs::create_dir_all(dir.join("real")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let root = Root::open(&dir).unwrap();
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
            for _ in 0..2_000 {
                drop(root.write(Path::new("spot/x"), b"x"));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }
}
