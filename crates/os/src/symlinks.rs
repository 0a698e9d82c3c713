//! The symbolic links that a path leads through, and its real path without them.

use rustix::fs::{Mode, OFlags};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links that one path may lead through, as in the kernel.
pub const MAX_LINKS: usize = 40;

/// The symbolic links that a path leads through, and its end. A name that does not exist is followed as if it were a
/// directory.
#[derive(Debug)]
pub struct LinkTrace {
    /// The real paths of the links with their targets, in the order in which the path leads through them. At most
    /// [`MAX_LINKS`].
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The real path.
    pub end: PathBuf,
}

/// Follows the links of an absolute path.
pub fn trace_links(path: &Path) -> LinkTrace {
    let mut rest = VecDeque::from(components(path));
    let (mut end, mut links) = (PathBuf::from("/"), Vec::new());
    while let Some(component) = rest.pop_front() {
        match Path::new(&component).components().next() {
            Some(Component::ParentDir) => _ = end.pop(),
            Some(Component::Normal(_)) => {
                let next = end.join(&component);
                match std::fs::read_link(&next) {
                    Ok(target) if links.len() < MAX_LINKS => {
                        for component in components(&target).into_iter().rev() {
                            rest.push_front(component);
                        }
                        links.push((next, target));
                    }
                    _ => end = next,
                }
            }
            Some(Component::RootDir) => end = PathBuf::from("/"),
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    LinkTrace { links, end }
}

/// Resolves paths like `canonicalize`, but also for files that do not exist. Shared parents are resolved once and
/// cached.
#[derive(Debug, Default)]
pub struct PathResolver {
    /// The real paths, by the paths.
    resolved: HashMap<PathBuf, PathBuf>,
}

impl PathResolver {
    /// Creates a resolver that already knows `real`, a path without links.
    pub fn with_real_path(real: &Path) -> Self {
        let ancestors = real.ancestors();
        Self { resolved: ancestors.map(|path| (path.to_owned(), path.to_owned())).collect() }
    }

    /// Returns `path`, which must be absolute, with all links in its existing part resolved.
    pub fn resolve(&mut self, path: &Path) -> PathBuf {
        if let Some(real) = self.resolved.get(path) {
            return real.clone();
        }
        let real = match (path.parent(), path.components().next_back()) {
            (Some(parent), Some(Component::ParentDir)) => {
                let real_parent = self.resolve(parent);
                real_parent.parent().map_or_else(|| real_parent.clone(), Path::to_owned)
            }
            (Some(parent), Some(Component::Normal(name))) => {
                let joined = self.resolve(parent).join(name);
                if joined.is_symlink() { trace_links(&joined).end } else { joined }
            }
            _ => path.to_owned(),
        };
        self.resolved.insert(path.to_owned(), real.clone());
        real
    }
}

/// The real path of the directory `path`, which the kernel knows, in the same few system calls however deep it is. `None`
/// if there is no such directory, or if the kernel cannot name it.
pub fn real_directory(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let real = std::fs::read_link(link).ok()?;
    real.is_absolute().then_some(real)
}

fn components(path: &Path) -> Vec<OsString> {
    path.components().map(|component| component.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{PathResolver, real_directory};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn resolved_paths_match_canonicalize() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
        symlink("a/b", dir.join("short")).unwrap();
        symlink(dir.join("short/c"), dir.join("a/far")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        let mut real = PathResolver::default();
        for name in
            ["a", "a/b/c", "short", "short/c", "a/far", "short/..", "a/far/../..", "a/./b", ""]
        {
            let path = dir.join(name);
            assert_eq!(real.resolve(&path), std::fs::canonicalize(&path).unwrap(), "{name}");
            assert_eq!(real_directory(&path), Some(real.resolve(&path)), "{name}");
        }
        assert_eq!(real.resolve(&dir.join("short/new/file")), dir.join("a/b/new/file"));
        assert_eq!(real.resolve(&dir.join("loop")), dir.join("loop"));
        assert_eq!(real_directory(&dir.join("loop")), None);
        assert_eq!(real_directory(&dir.join("new")), None);
        assert_eq!(real.resolve("/".as_ref()), Path::new("/"));
    }
}
