//! Files anywhere in a writable place that programs and agents read on their own when they enter a directory around them.
//! They are work as much as they are start-up files, so no mount protects them: git replaces them when it checks out a
//! branch, and a mount point could not be replaced. What a command did to them is found by comparison with a search before
//! it, and undone unless it is permitted. Folders of dependencies are not searched, but for what is new in them.

use super::files_beneath::{open_parent, set_aside};
use super::git_objects::{self, TrustedObjects};
use super::protected_state::{
    RecordedContent, SNAPSHOT_LIMIT_BYTES, SnapshotState, read_state, restore_state,
};
use super::undone_change::{Remedy, UndoneChange};
use crate::sys::clock::{FileTime, current_file_time, file_time};
use crate::sys::paths::is_generated_dir;
use crate::sys::sync::IgnorePoison;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Maximum directory levels beneath a writable place that are searched.
const MAX_SEARCH_DEPTH: usize = 64;
/// Maximum entries of a writable place that are searched.
const MAX_SEARCH_ENTRIES: usize = 1_000_000;
/// The size of the buffer for the names of a directory, in bytes.
const BUFFER_BYTES: usize = 32 << 10;

/// The files to look for, and what commands may do with them.
#[derive(Clone, Debug, Default)]
pub struct ProjectFiles {
    /// The names of the files, and of directories with such files, compared without case. If there are none, nothing is
    /// searched.
    pub names: Vec<&'static str>,
    /// The private directories of the run, which are not searched.
    pub skipped: Vec<PathBuf>,
    pub access: ProjectFileAccess,
    /// The files that commands changed, and were permitted to.
    pub changed: ChangedPaths,
}

/// Paths that commands changed, shared by all commands of a run.
pub type ChangedPaths = Arc<Mutex<BTreeSet<PathBuf>>>;

/// The changes of project files that a command may make.
#[derive(Clone, Copy, Debug, Default)]
pub enum ProjectFileAccess {
    /// All changes.
    #[default]
    Free,
    /// Those by which a file becomes what git has in one of these objects.
    FromGit(TrustedObjects),
    /// None.
    Closed,
}

/// The place of a file: the number of the writable place, and the path beneath it.
type FilePlace = (usize, PathBuf);

/// The state of project files before a command.
#[derive(Debug)]
pub(super) struct ProjectFileSnapshot {
    rules: ProjectFiles,
    /// The numbers of the writable places to search.
    roots: Vec<usize>,
    started: FileTime,
    /// Empty if all changes are permitted.
    before: BTreeMap<FilePlace, SnapshotState>,
}

/// The writable places, open and by path.
pub(super) struct WritableRoots<'a> {
    pub(super) fds: &'a [OwnedFd],
    pub(super) paths: &'a [PathBuf],
}

impl ProjectFileSnapshot {
    /// Searches the `roots`. A place within another one is searched with that, and one that has such a name itself was
    /// granted by name.
    pub(super) fn take(rules: &ProjectFiles, roots: &WritableRoots<'_>) -> Self {
        let is_inner = |path: &Path| {
            let mut others = roots.paths.iter();
            others.any(|other| other != path && path.starts_with(other))
        };
        let numbered = roots.paths.iter().enumerate();
        let searched = numbered.filter(|(_, path)| {
            !rules.is_granted(path) && !rules.skipped.contains(path) && !is_inner(path)
        });
        let mut snapshot = Self {
            rules: rules.clone(),
            roots: searched.map(|(number, _)| number).collect(),
            started: current_file_time(),
            before: BTreeMap::new(),
        };
        if matches!(rules.access, ProjectFileAccess::Free) || rules.names.is_empty() {
            return snapshot;
        }
        let mut left = SNAPSHOT_LIMIT_BYTES;
        for place in snapshot.find(roots) {
            // What this user cannot read, no program of this user reads.
            let state = read_place(roots, &place, &mut left).unwrap_or(SnapshotState::Other);
            snapshot.before.insert(place, state);
        }
        snapshot
    }

    /// Undoes the changes that are not permitted, and records the others.
    pub(super) fn restore(&self, roots: &WritableRoots<'_>) -> Vec<UndoneChange> {
        if self.rules.names.is_empty() {
            return Vec::new();
        }
        let mut places = self.find(roots);
        if matches!(self.rules.access, ProjectFileAccess::Free) {
            places.retain(|place| is_changed_since(roots, place, self.started));
            self.record_permitted(roots, &places);
            return Vec::new();
        }
        places.extend(self.before.keys().cloned());
        places.retain(|place| !self.is_granted_by_name(roots, place));
        let mut undone = Vec::new();
        let mut permitted = BTreeSet::new();
        for place in places {
            let was = self.before.get(&place).unwrap_or(&SnapshotState::Missing);
            let is = read_place(roots, &place, &mut SNAPSHOT_LIMIT_BYTES.clone());
            match &is {
                Ok(is) if is == was => {}
                Err(_) if *was == SnapshotState::Other => {}
                Ok(is) if self.is_permitted(roots, &place, was, is) => {
                    permitted.insert(place);
                }
                _ => undone.push(undo(roots, &place, was)),
            }
        }
        self.record_permitted(roots, &permitted);
        undone
    }

    fn record_permitted(&self, roots: &WritableRoots<'_>, places: &BTreeSet<FilePlace>) {
        let paths = places
            .iter()
            .map(|(root, relative)| roots.paths[*root].join(relative));
        self.rules.changed.lock().ignore_poison().extend(paths);
    }

    /// True if a writable place that was granted by its name contains `place`.
    fn is_granted_by_name(&self, roots: &WritableRoots<'_>, place: &FilePlace) -> bool {
        let path = roots.paths[place.0].join(&place.1);
        let mut granted = roots
            .paths
            .iter()
            .filter(|root| self.rules.is_granted(root));
        granted.any(|root| path.starts_with(root))
    }

    /// True if the command may have changed `place` from one state to the other: git has such a file, or it was moved from
    /// elsewhere. A removed file must be known to git, unless the directory that it was for is gone too.
    fn is_permitted(
        &self,
        roots: &WritableRoots<'_>,
        place: &FilePlace,
        was: &SnapshotState,
        is: &SnapshotState,
    ) -> bool {
        if self.rules.is_in_dependencies(&place.1) {
            return true;
        }
        let ProjectFileAccess::FromGit(objects) = self.rules.access else {
            return false;
        };
        let root = &roots.paths[place.0];
        let is_in_git = |state: &SnapshotState| {
            content(state).is_some_and(|bytes| {
                git_objects::has_blob(root, roots.paths, &place.1, bytes, objects)
            })
        };
        match is {
            SnapshotState::Missing => is_in_git(was) || self.is_directory_gone(roots, place),
            _ => {
                let name = place.1.file_name();
                let mut same_name = self
                    .before
                    .iter()
                    .filter(|((_, other), _)| other.file_name() == name);
                let is_moved = |state: &SnapshotState| {
                    content(state).is_some() && content(state) == content(is)
                };
                same_name.any(|(_, state)| is_moved(state)) || is_in_git(is)
            }
        }
    }

    /// True if the directory that reads the file is gone.
    fn is_directory_gone(&self, roots: &WritableRoots<'_>, (root, relative): &FilePlace) -> bool {
        let mut above = relative.ancestors();
        let named = above.find(|path| {
            let parent = path.parent().unwrap_or(Path::new(""));
            !parent.iter().any(|part| self.rules.is_name(part))
        });
        let around = named.and_then(Path::parent).unwrap_or(Path::new(""));
        !around.as_os_str().is_empty()
            && rustix::fs::statat(&roots.fds[*root], around, AtFlags::SYMLINK_NOFOLLOW).is_err()
    }

    fn find(&self, roots: &WritableRoots<'_>) -> BTreeSet<FilePlace> {
        let mut found = BTreeSet::new();
        for root in &self.roots {
            let skipped = self.rules.skipped.iter();
            let skipped = skipped.filter_map(|path| path.strip_prefix(&roots.paths[*root]).ok());
            let mut search = Search {
                rules: &self.rules,
                skipped: skipped.collect(),
                started: self.started,
                entries_left: MAX_SEARCH_ENTRIES,
                found: BTreeSet::new(),
            };
            let top = SearchedDirectory {
                path: PathBuf::new(),
                is_named: false,
                is_generated: false,
                depth: 0,
            };
            search.walk(roots.fds[*root].as_fd(), OsStr::new("."), &top);
            found.extend(search.found.into_iter().map(|path| (*root, path)));
        }
        found
    }
}

impl ProjectFiles {
    fn is_name(&self, name: &OsStr) -> bool {
        let mut names = self.names.iter();
        names.any(|known| name.eq_ignore_ascii_case(known))
    }

    /// True if the file belongs to a dependency or to a build result.
    fn is_in_dependencies(&self, relative: &Path) -> bool {
        let mut parts = relative.iter();
        parts
            .find(|part| self.is_name(part) || is_generated_dir(Path::new(part)))
            .is_some_and(|part| !self.is_name(part))
    }

    /// True if the writable place `root` has such a name itself: the user granted it by name.
    fn is_granted(&self, root: &Path) -> bool {
        root.file_name().is_some_and(|name| self.is_name(name))
    }
}

/// The content of a file, or the target of a link, as git stores it.
fn content(state: &SnapshotState) -> Option<&[u8]> {
    match state {
        SnapshotState::File {
            content: RecordedContent::Bytes(bytes),
            ..
        } => Some(bytes),
        SnapshotState::Link(target) => Some(target.as_bytes()),
        _ => None,
    }
}

fn read_place(
    roots: &WritableRoots<'_>,
    (root, relative): &FilePlace,
    bytes_left: &mut u64,
) -> io::Result<SnapshotState> {
    match open_parent(&roots.fds[*root], relative, false) {
        Ok((dir, name)) => read_state(dir.as_fd(), &name, bytes_left),
        // Whatever took the place of a directory on the way is no file of this name.
        Err(_) => Ok(SnapshotState::Missing),
    }
}

/// True if the file was made or changed after `started`.
fn is_changed_since(
    roots: &WritableRoots<'_>,
    (root, relative): &FilePlace,
    started: FileTime,
) -> bool {
    let stat = rustix::fs::statat(&roots.fds[*root], relative, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| file_time(&stat) >= started)
}

/// Puts a file back, or renames a new one.
fn undo(
    roots: &WritableRoots<'_>,
    (root, relative): &FilePlace,
    was: &SnapshotState,
) -> UndoneChange {
    let is_new = matches!(was, SnapshotState::Missing | SnapshotState::Other);
    let path = roots.paths[*root].join(relative);
    let opened = open_parent(&roots.fds[*root], relative, !is_new).map_err(io::Error::from);
    let remedy = opened.and_then(|(dir, name)| match is_new {
        true => Ok(Remedy::SetAside(
            path.with_file_name(set_aside(dir.as_fd(), &name)?),
        )),
        false => restore_state(dir.as_fd(), &name, was).map(|()| Remedy::Restored),
    });
    UndoneChange { path, remedy }
}

/// A search for project files.
struct Search<'a> {
    rules: &'a ProjectFiles,
    skipped: Vec<&'a Path>,
    started: FileTime,
    entries_left: usize,
    found: BTreeSet<PathBuf>,
}

/// A directory that is searched.
struct SearchedDirectory {
    path: PathBuf,
    /// It has one of the names, or is in such a directory: all files in it count.
    is_named: bool,
    /// It is a folder of dependencies, or in one: only what is new in it counts.
    is_generated: bool,
    depth: usize,
}

impl Search<'_> {
    /// Searches the directory `name` in `parent`. What cannot be opened cannot be changed by a command either, unless the
    /// command itself made it so.
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
        if directory.is_generated
            && !rustix::fs::fstat(&fd).is_ok_and(|stat| file_time(&stat) >= self.started)
        {
            return;
        }
        let mut inner = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&fd, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let Some(rest) = self.entries_left.checked_sub(1) else {
                return;
            };
            self.entries_left = rest;
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(fd.as_fd(), name),
                kind => kind,
            };
            let is_named = directory.is_named || self.rules.is_name(name);
            match kind {
                FileType::Directory if name == ".git" => {}
                FileType::Directory => inner.push((name.to_owned(), is_named)),
                _ if is_named => {
                    let path = directory.path.join(name);
                    if !directory.is_generated || self.is_new(fd.as_fd(), name) {
                        self.found.insert(path);
                    }
                }
                _ => {}
            }
        }
        if directory.depth >= MAX_SEARCH_DEPTH {
            return;
        }
        for (name, is_named) in inner {
            let found = SearchedDirectory {
                path: directory.path.join(&name),
                is_named,
                is_generated: directory.is_generated
                    || !is_named && is_generated_dir(Path::new(&name)),
                depth: directory.depth + 1,
            };
            if !self.skipped.contains(&found.path.as_path()) {
                self.walk(fd.as_fd(), &name, &found);
            }
        }
    }

    /// Lets the user read a directory that the command has changed: a name in it can be opened without that. Returns false
    /// if it is unchanged, or all changes are permitted.
    fn make_readable(&self, parent: BorrowedFd<'_>, name: &OsStr) -> bool {
        let is_checked = !matches!(self.rules.access, ProjectFileAccess::Free);
        let mode = Mode::from_raw_mode(0o700);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        is_checked
            && self.is_new(parent, name)
            && rustix::fs::openat(parent, name, flags, Mode::empty()).is_ok_and(|fd| {
                // Through the descriptor: a background command could put a link in its place.
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                rustix::fs::chmodat(CWD, path, mode, AtFlags::empty()).is_ok()
            })
    }

    fn is_new(&self, dir: BorrowedFd<'_>, name: &OsStr) -> bool {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| file_time(&stat) >= self.started)
    }
}

fn kind_of(dir: BorrowedFd<'_>, name: &OsStr) -> FileType {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}
