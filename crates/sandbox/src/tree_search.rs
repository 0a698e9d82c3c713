//! The search of a writable directory for project files and git repositories. A directory that has not changed since an
//! earlier search of the run is not read again.

use super::directory_cache::{
    CachedDirectory, DirectoryCache, DirectoryContents, DirectoryVersion,
};
use super::files_beneath;
use super::git_repository::{self, REPOSITORY_NAMES, RepositoryNames, RepositoryPath};
use super::project_file_rules::ProjectFiles;
use super::writable_roots::WritableRoots;
use nanobot_os::clock::{FileTime, current_file_time, file_time};
use nanobot_os::paths::is_generated_dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum directory levels beneath a writable directory that are searched.
const MAX_SEARCH_DEPTH: usize = 64;
/// Maximum entries of a writable directory that are searched.
const MAX_SEARCH_ENTRIES: usize = 1_000_000;
/// The size of the buffer for the names of a directory, in bytes.
const BUFFER_BYTES: usize = 32 << 10;

/// The paths that are found beneath a directory, relative to it.
#[derive(Debug, Default)]
pub(super) struct FoundPaths {
    /// The project files.
    pub(super) files: BTreeSet<PathBuf>,
    /// The directories that are repositories.
    pub(super) repositories: Vec<RepositoryPath>,
}

/// Searches each of the `roots` for a command that started at `start_time`.
pub(super) fn search_roots(
    project_files: &ProjectFiles,
    roots: &WritableRoots,
    start_time: FileTime,
) -> Vec<FoundPaths> {
    let mut cache = project_files.cache.lock();
    let mut found_paths = Vec::new();
    for (path, fd) in roots.paths.iter().zip(&roots.fds) {
        let search = TreeSearch::new(project_files, path, &roots.paths, start_time, &mut cache);
        found_paths.push(search.run(fd));
    }
    found_paths
}

/// A search of one writable directory.
struct TreeSearch<'a> {
    project_files: &'a ProjectFiles,
    root: &'a Path,
    /// All writable directories.
    roots: &'a [PathBuf],
    /// The paths in it that are not searched.
    skipped: Vec<&'a Path>,
    /// The start of the command.
    start_time: FileTime,
    entries_left: usize,
    cache: &'a mut DirectoryCache,
    found: FoundPaths,
    /// The first bytes of the names that are searched for, in lower case. Most other names begin with another byte.
    first_bytes: [bool; 256],
}

/// A directory that is searched.
struct SearchedDirectory {
    path: PathBuf,
    /// The directory has one of the names, or is in such a directory: all files in it are project files.
    is_named: bool,
    /// It is a directory of dependencies, or in one: only new files in it are project files.
    is_generated: bool,
    /// True if repositories in it are searched for.
    has_repositories: bool,
    depth: usize,
}

impl<'a> TreeSearch<'a> {
    fn new(
        project_files: &'a ProjectFiles,
        root: &'a Path,
        roots: &'a [PathBuf],
        start_time: FileTime,
        cache: &'a mut DirectoryCache,
    ) -> Self {
        let mut first_bytes = [false; 256];
        let files = project_files.names.iter().map(|name| name.rsplit('/').next().unwrap_or(name));
        let names = files.chain(REPOSITORY_NAMES);
        for first in names.filter_map(|name| name.bytes().next()) {
            first_bytes[usize::from(first.to_ascii_lowercase())] = true;
        }
        Self {
            project_files,
            root,
            roots,
            skipped: (project_files.skipped.iter())
                .filter_map(|path| path.strip_prefix(root).ok())
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            start_time,
            entries_left: MAX_SEARCH_ENTRIES,
            cache,
            found: FoundPaths::default(),
            first_bytes,
        }
    }

    /// Searches the directory, which is open as `root`.
    fn run(mut self, root: &OwnedFd) -> FoundPaths {
        if self.project_files.git_dirs.iter().any(|git_dir| git_dir == self.root) {
            self.found.repositories.push(RepositoryPath::GitDir(PathBuf::new()));
            return self.found;
        }
        let top = SearchedDirectory {
            path: PathBuf::new(),
            is_named: false,
            is_generated: false,
            has_repositories: true,
            depth: 0,
        };
        self.walk(root.as_fd(), OsStr::new("."), &top);
        self.found
    }

    /// Searches the directory `name` in `parent`. A directory that cannot be opened cannot be changed by a command either, unless the
    /// command itself closed it.
    fn walk(&mut self, parent: BorrowedFd<'_>, name: &OsStr, directory: &SearchedDirectory) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(parent, name, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::ACCESS) if self.make_readable(parent, name) => open(),
            opened => opened,
        };
        let Ok(fd) = opened else {
            return;
        };
        self.make_searchable(&fd);
        let contents = if directory.is_generated && !directory.has_repositories {
            if !self.is_changed(&fd) {
                return;
            }
            self.read(&fd, directory)
        } else {
            self.cached_contents(&fd, directory)
        };
        let Some(entries_left) = self.entries_left.checked_sub(contents.entries) else {
            self.entries_left = 0;
            return;
        };
        self.entries_left = entries_left;
        if directory.has_repositories {
            self.add_repositories(contents.repository_names, &directory.path);
            for name in &contents.links {
                if self.leads_to_skipped(&fd, name) {
                    let worktree = RepositoryPath::Worktree(directory.path.join(name));
                    self.found.repositories.push(worktree);
                }
            }
        }
        for name in &contents.files {
            if !directory.is_generated || self.is_new(fd.as_fd(), name) {
                self.found.files.insert(directory.path.join(name));
            }
        }
        if directory.depth >= MAX_SEARCH_DEPTH {
            return;
        }
        for name in contents.directories {
            let is_named = directory.is_named
                || self.project_files.is_name(&name)
                || self.project_files.is_name_in(directory.path.file_name(), &name);
            let inner = SearchedDirectory {
                path: directory.path.join(&name),
                is_named,
                is_generated: directory.is_generated
                    || (!is_named && is_generated_dir(Path::new(&name))),
                has_repositories: directory.has_repositories && !git_repository::is_skipped(&name),
                depth: directory.depth + 1,
            };
            if !self.skipped.contains(&inner.path.as_path()) {
                self.walk(fd.as_fd(), &name, &inner);
            }
        }
    }

    /// True if the link `name` leads into a directory of dependencies or of build results, which is not searched: the target is treated as
    /// a repository at the path of the link.
    fn leads_to_skipped(&self, dir: &OwnedFd, name: &OsStr) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(target) = rustix::fs::openat(dir, name, flags, Mode::empty()) else {
            return false;
        };
        let target = format!("/proc/self/fd/{}", target.as_raw_fd());
        let target = std::fs::read_link(target).unwrap_or_default();
        let mut relative = self.roots.iter().filter_map(|root| target.strip_prefix(root).ok());
        relative.any(|path| {
            let mut parts = path.iter();
            parts.any(|part| git_repository::is_skipped(part) || is_generated_dir(Path::new(part)))
        })
    }

    fn add_repositories(&mut self, names: RepositoryNames, path: &Path) {
        let is_root = path.as_os_str().is_empty();
        if names.has_git && !is_root {
            let worktree = RepositoryPath::Worktree(path.to_owned());
            self.found.repositories.push(worktree);
        }
        if names.are_of_git_dir() {
            let git_dir = RepositoryPath::GitDir(path.to_owned());
            self.found.repositories.push(git_dir);
        }
    }

    /// The contents of an open directory: those in the cache, or else read and added to the cache. A directory that changed
    /// just now is not cached, since it may change again within the same tick of the clock.
    fn cached_contents(
        &mut self,
        fd: &OwnedFd,
        directory: &SearchedDirectory,
    ) -> DirectoryContents {
        let path = self.root.join(&directory.path);
        let now = current_file_time();
        let version = rustix::fs::fstat(fd).map(|stat| DirectoryVersion {
            device: stat.st_dev,
            inode: stat.st_ino,
            changed: file_time(&stat),
        });
        match (self.cache.get(&path), version) {
            (Some(cached), Ok(version)) if cached.version == version => cached.contents.clone(),
            (_, Ok(version)) if version.changed < now => {
                let contents = self.read(fd, directory);
                if contents.entries <= self.entries_left {
                    let cached = CachedDirectory { version, contents: contents.clone() };
                    self.cache.insert(path, cached);
                }
                contents
            }
            _ => self.read(fd, directory),
        }
    }

    /// Reads an open directory, up to the maximum number of entries of the search.
    fn read(&self, fd: &OwnedFd, directory: &SearchedDirectory) -> DirectoryContents {
        let mut contents = DirectoryContents::default();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(fd, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            contents.entries += 1;
            if contents.entries > self.entries_left {
                break;
            }
            let first = name.as_bytes().first().map_or(0, u8::to_ascii_lowercase);
            let may_count = self.first_bytes[usize::from(first)];
            if may_count {
                contents.repository_names.add(name);
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(fd.as_fd(), name),
                kind => kind,
            };
            if kind == FileType::Symlink {
                contents.links.push(name.to_owned());
            }
            match kind {
                FileType::Directory if name == ".git" => {}
                FileType::Directory => contents.directories.push(name.to_owned()),
                _ if directory.is_named
                    || (may_count
                        && (self.project_files.is_name(name)
                            || self
                                .project_files
                                .is_name_in(directory.path.file_name(), name))) =>
                {
                    contents.files.push(name.to_owned());
                }
                _ => {}
            }
        }
        contents
    }

    /// Lets the user read a directory that the command has changed: programs can open a name in it even if they cannot list it.
    /// Returns false if it is unchanged.
    fn make_readable(&self, parent: BorrowedFd<'_>, name: &OsStr) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.is_new(parent, name)
            && rustix::fs::openat(parent, name, flags, Mode::empty())
                .is_ok_and(|fd| files_beneath::make_accessible(fd.as_fd()).is_ok())
    }

    /// Lets the user enter an open directory that the command has changed.
    fn make_searchable(&self, fd: &OwnedFd) {
        if self.is_changed(fd) {
            // If that fails, other programs of this user cannot open its entries either.
            drop(files_beneath::make_accessible(fd.as_fd()));
        }
    }

    fn is_changed(&self, fd: &OwnedFd) -> bool {
        rustix::fs::fstat(fd).is_ok_and(|stat| file_time(&stat) >= self.start_time)
    }

    fn is_new(&self, dir: BorrowedFd<'_>, name: &OsStr) -> bool {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| file_time(&stat) >= self.start_time)
    }
}

fn kind_of(dir: BorrowedFd<'_>, name: &OsStr) -> FileType {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

#[cfg(test)]
mod tests {
    use super::{DirectoryCache, RepositoryPath, TreeSearch};
    use crate::ProjectFiles;
    use nanobot_os::clock;
    use std::fs::File;
    use std::path::Path;

    /// Searches `root`; returns the paths of files, of repositories and of git directories.
    fn search(root: &Path, cache: &mut DirectoryCache) -> Vec<String> {
        let rules = ProjectFiles {
            names: vec!["AGENTS.md", ".vscode", ".x/config"],
            ..ProjectFiles::default()
        };
        let started = clock::current_file_time();
        let opened = File::open(root).unwrap().into();
        let found = TreeSearch::new(&rules, root, &[root.to_owned()], started, cache).run(&opened);
        let files = found.files.iter().map(|path| path.display().to_string());
        let repositories = found.repositories.iter().map(|repository| match repository {
            RepositoryPath::Worktree(path) => format!("{}: worktree", path.display()),
            RepositoryPath::GitDir(path) => format!("{}: git directory", path.display()),
        });
        let mut all: Vec<String> = files.chain(repositories).collect();
        all.sort();
        all
    }

    fn create(root: &Path, paths: &[&str]) {
        for path in paths {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        clock::wait_for_later_file_time().unwrap();
    }

    #[test]
    fn changed_directories_are_read_again() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        // A directory that changed in this moment is not remembered, so these come before the wait.
        std::os::unix::fs::symlink("node_modules/one", root.join("app")).unwrap();
        std::os::unix::fs::symlink("x", root.join("inside")).unwrap();
        create(
            root,
            &[
                "a/agents.MD",
                "a/b/c/d/e/f/.git/HEAD",
                "x/.vscode/deep/tasks.json",
                "x/.X/Config",
                "x/config",
                "bare/HEAD",
                "bare/objects/x",
                "bare/refs/x",
                "node_modules/one/.git/HEAD",
                "node_modules/one/AGENTS.md",
                "vendor/two/.git/HEAD",
                "vendor/two/AGENTS.md",
            ],
        );
        let mut cache = DirectoryCache::new();
        let expect = [
            "a/agents.MD",
            "a/b/c/d/e/f: worktree",
            "app: worktree",
            "bare: git directory",
            "vendor/two: worktree",
            "x/.X/Config",
            "x/.vscode/deep/tasks.json",
        ];
        assert_eq!(search(root, &mut cache), expect);
        let read = cache.len();
        assert_eq!(search(root, &mut cache), expect);
        assert_eq!(cache.len(), read);

        std::fs::rename(root.join("a/b"), root.join("x/b")).unwrap();
        std::fs::remove_file(root.join("bare/HEAD")).unwrap();
        create(root, &["a/c/AGENTS.md", "x/b/c/.git"]);
        let expect = [
            "a/agents.MD",
            "a/c/AGENTS.md",
            "app: worktree",
            "vendor/two: worktree",
            "x/.X/Config",
            "x/.vscode/deep/tasks.json",
            "x/b/c/d/e/f: worktree",
            "x/b/c: worktree",
        ];
        assert_eq!(search(root, &mut cache), expect);
    }
}
