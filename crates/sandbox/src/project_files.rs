//! Files anywhere beneath a writable path that programs and agents read on their own when they enter the directory that contains
//! them. They are both part of the work and start-up files, so no mount protects them: git replaces them when it checks out a
//! branch, and a mount point could not be replaced. A command's changes are found by comparison with a search before it, and undone unless
//! they are permitted. In directories of dependencies, only new entries are searched.

use super::git_history::CommandRecord;
use super::git_objects::{self, ObjectCache};
use super::project_file_rules::{ProjectFileAccess, ProjectFiles};
use super::protected_state::{RecordedContent, SNAPSHOT_LIMIT_BYTES, SnapshotState, read_state};
use super::tree_search::{FoundPaths, search_roots};
use super::undone_change::UndoneChange;
use super::writable_roots::{TreePath, WritableRoots};
use nanobot_os::clock::{FileTime, file_time};
use rustix::fs::AtFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The list of submodules, which git leaves empty where there are none.
const SUBMODULES: &str = ".gitmodules";

/// The state of project files before a command.
#[derive(Debug)]
pub(super) struct ProjectFileSnapshot {
    project_files: ProjectFiles,
    /// The indexes of the writable roots to search.
    roots: Vec<usize>,
    start_time: FileTime,
    /// Empty if all changes are permitted.
    before: BTreeMap<TreePath, SnapshotState>,
    /// It ends with the command. `None` unless only objects that git had before are accepted.
    record: Option<CommandRecord>,
}

impl ProjectFileSnapshot {
    /// Records the files among `found_paths`, the result of a search of the `roots`. A root within another one is searched with it, and a
    /// root that has such a name itself was granted by name.
    ///
    /// # Errors
    /// The objects of git cannot be recorded.
    pub(super) fn take(
        project_files: &ProjectFiles,
        roots: &WritableRoots,
        found_paths: Vec<FoundPaths>,
        start_time: FileTime,
    ) -> io::Result<Self> {
        let is_inner = |path: &Path| {
            let mut others = roots.paths.iter();
            others.any(|other| other != path && path.starts_with(other))
        };
        let numbered = roots.paths.iter().enumerate();
        let searched = numbered.filter(|(_, path)| {
            !project_files.is_granted(path)
                && !project_files.skipped.contains(path)
                && !is_inner(path)
        });
        let mut snapshot = Self {
            project_files: project_files.clone(),
            roots: searched.map(|(number, _)| number).collect(),
            start_time,
            before: BTreeMap::new(),
            record: None,
        };
        if project_files.stay_free() || project_files.names.is_empty() {
            return Ok(snapshot);
        }
        let object_dirs = object_directories(roots, &found_paths);
        let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
        for tree_path in snapshot.files(found_paths) {
            // A file that this user cannot read is not read by any program of this user.
            let state =
                read_tree_path(roots, &tree_path, &mut bytes_left).unwrap_or(SnapshotState::Other);
            snapshot.before.insert(tree_path, state);
        }
        // With network, a command can fetch anything.
        if matches!(
            project_files.access,
            ProjectFileAccess::FromHistory | ProjectFileAccess::Closed
        ) {
            let before = snapshot.before.iter();
            let contents = before
                .filter_map(|(tree_path, state)| Some((roots.path(tree_path), content(state)?)));
            let git_dirs = &project_files.git_dirs;
            snapshot.record = Some(project_files.git.begin(&object_dirs, git_dirs, contents)?);
        }
        Ok(snapshot)
    }

    /// Undoes the changes that are not permitted, and records the others. `found_paths` is the result of a search after the command.
    pub(super) fn restore(
        &self,
        roots: &WritableRoots,
        found_paths: Vec<FoundPaths>,
    ) -> Vec<UndoneChange> {
        if self.project_files.names.is_empty() {
            return Vec::new();
        }
        let access = self.project_files.current_access();
        let object_dirs = object_directories(roots, &found_paths);
        let mut tree_paths = self.files(found_paths);
        if access == ProjectFileAccess::Free {
            tree_paths.retain(|tree_path| is_changed_since(roots, tree_path, self.start_time));
            self.record_permitted(roots, &tree_paths);
            self.grant(roots, &tree_paths);
            return Vec::new();
        }
        tree_paths.extend(self.before.keys().cloned());
        tree_paths.retain(|tree_path| !self.is_granted_by_name(roots, tree_path));
        let mut undone = Vec::new();
        let mut permitted = BTreeSet::new();
        let object_cache = ObjectCache::default();
        // For all files together: their contents stay in memory until the user has decided, and a command can make any number of files that
        // take no space on disk. A file beyond the limit is undone, and cannot be allowed.
        let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
        for tree_path in tree_paths {
            let before = self.before.get(&tree_path).unwrap_or(&SnapshotState::Missing);
            let after = read_tree_path(roots, &tree_path, &mut bytes_left);
            let is_permitted = match &after {
                Ok(after) if after == before => continue,
                Err(_) if *before == SnapshotState::Other => continue,
                Ok(after) => {
                    self.is_permitted(roots, &tree_path, before, after, access, &object_cache)
                }
                Err(_) => false,
            };
            if is_permitted {
                permitted.insert(tree_path);
            } else {
                undone.push(undo(roots, &tree_path, before, after.ok()));
            }
        }
        self.record_permitted(roots, &permitted);
        if let Some(record) = &self.record {
            record.add_new(&object_dirs);
        }
        undone
    }

    /// The files that differ from the record. `found_paths` is the result of a current search.
    pub(super) fn changed(
        &self,
        roots: &WritableRoots,
        found_paths: Vec<FoundPaths>,
    ) -> Vec<PathBuf> {
        let mut tree_paths = self.files(found_paths);
        tree_paths.extend(self.before.keys().cloned());
        tree_paths.retain(|tree_path| {
            let before = self.before.get(tree_path).unwrap_or(&SnapshotState::Missing);
            // No content stays in memory, so the limit is for each file.
            let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
            let after = read_tree_path(roots, tree_path, &mut bytes_left);
            !self.project_files.is_in_dependencies(&tree_path.relative)
                && !self.is_granted_by_name(roots, tree_path)
                && after.is_ok_and(|after| after != *before)
        });
        tree_paths.iter().map(|tree_path| roots.path(tree_path)).collect()
    }

    fn record_permitted(&self, roots: &WritableRoots, tree_paths: &BTreeSet<TreePath>) {
        let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
        for tree_path in tree_paths {
            let state = read_tree_path(roots, tree_path, &mut bytes_left).ok();
            let path = roots.path(tree_path);
            self.project_files.add_changed(&path, state.as_ref().and_then(content));
        }
    }

    /// Records that the user allowed the contents of these files.
    fn grant(&self, roots: &WritableRoots, tree_paths: &BTreeSet<TreePath>) {
        let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
        let states: Vec<SnapshotState> = tree_paths
            .iter()
            .filter_map(|tree_path| read_tree_path(roots, tree_path, &mut bytes_left).ok())
            .collect();
        if let Err(error) = self.project_files.git.grant(states.iter().filter_map(content)) {
            log::warn!(target: "sandbox", "record what the user allowed: {error}");
        }
    }

    /// True if a root that was granted by its name contains `tree_path`.
    fn is_granted_by_name(&self, roots: &WritableRoots, tree_path: &TreePath) -> bool {
        let path = roots.path(tree_path);
        let mut granted = roots.paths.iter().filter(|root| self.project_files.is_granted(root));
        granted.any(|root| path.starts_with(root))
    }

    /// True if the command may change `tree_path` from the state `before` to `after`: git has such a file, or the command
    /// moved it from elsewhere. Git must have a removed file, or its stash, unless the directory that it was for is gone too.
    fn is_permitted(
        &self,
        roots: &WritableRoots,
        tree_path: &TreePath,
        before: &SnapshotState,
        after: &SnapshotState,
        access: ProjectFileAccess,
        object_cache: &ObjectCache,
    ) -> bool {
        let path = roots.path(tree_path);
        // Other commands may have made permitted changes while this one ran in the background.
        let is_comparable = content(after).is_some() || matches!(after, SnapshotState::Missing);
        if self.project_files.is_in_dependencies(&tree_path.relative)
            || (is_comparable && self.project_files.was_changed_to(&path, content(after)))
        {
            return true;
        }
        let history = match access {
            ProjectFileAccess::Free => return true,
            ProjectFileAccess::Closed => return false,
            ProjectFileAccess::FromHistory => Some(&*self.project_files.git),
            ProjectFileAccess::FromGit => None,
        };
        let root = &roots.paths[tree_path.root];
        let is_in_git = |state: &SnapshotState| {
            content(state).is_some_and(|bytes| {
                git_objects::has_blob(root, &tree_path.relative, bytes, history, object_cache)
            })
        };
        match after {
            SnapshotState::Missing => {
                is_in_git(before)
                    || self.is_directory_gone(roots, tree_path)
                    || content(before)
                        .is_some_and(|bytes| self.project_files.is_stashed(&path, bytes))
            }
            // Git leaves an empty list when it has removed the last submodule.
            _ if tree_path.relative.ends_with(SUBMODULES)
                && content(after).is_some_and(|bytes| bytes.trim_ascii().is_empty()) =>
            {
                true
            }
            _ => {
                let name = tree_path.relative.file_name();
                let mut same_name =
                    self.before.iter().filter(|(other, _)| other.relative.file_name() == name);
                let was_on_disk =
                    |bytes: &[u8]| history.is_some_and(|it| it.was_on_disk(&path, bytes));
                same_name.any(|(_, state)| is_moved(state, after))
                    || (self.leads_to_project_file(after)
                        && (is_in_git(after) || content(after).is_some_and(was_on_disk)))
            }
        }
    }

    /// True unless the file is a link to a file of another kind: git may have its target as the content of any file.
    fn leads_to_project_file(&self, state: &SnapshotState) -> bool {
        match state {
            SnapshotState::Link(target) => self.project_files.is_file_name(Path::new(target)),
            _ => true,
        }
    }

    /// True if the directory that reads the file is gone.
    fn is_directory_gone(&self, roots: &WritableRoots, tree_path: &TreePath) -> bool {
        // The file, or the outermost directory with one of the names that contains it.
        let mut ancestors = tree_path.relative.ancestors();
        let outermost = ancestors.find(|path| {
            let parent = path.parent().unwrap_or(Path::new(""));
            !parent.iter().any(|part| self.project_files.is_name(part))
        });
        let directory = outermost.and_then(Path::parent).unwrap_or(Path::new(""));
        let root = &roots.fds[tree_path.root];
        !directory.as_os_str().is_empty()
            && rustix::fs::statat(root, directory, AtFlags::SYMLINK_NOFOLLOW).is_err()
    }

    /// The files of the searched roots.
    fn files(&self, found_paths: Vec<FoundPaths>) -> BTreeSet<TreePath> {
        let mut tree_paths = BTreeSet::new();
        for (root, found_paths) in found_paths.into_iter().enumerate() {
            if self.roots.contains(&root) {
                let files = found_paths.files.into_iter();
                tree_paths.extend(files.map(|relative| TreePath { root, relative }));
            }
        }
        tree_paths
    }

    /// The names of the files to search for, and the changes that commands may make.
    pub(super) fn project_files(&self) -> &ProjectFiles {
        &self.project_files
    }

    /// Searches the `roots` as they are now.
    pub(super) fn search(&self, roots: &WritableRoots) -> Vec<FoundPaths> {
        search_roots(&self.project_files, roots, self.start_time)
    }
}

/// The directories of git objects beneath the writable roots.
fn object_directories(roots: &WritableRoots, found_paths: &[FoundPaths]) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for (root, found_paths) in roots.paths.iter().zip(found_paths) {
        directories.extend(git_objects::object_directories(root, &found_paths.repositories));
    }
    directories
}

/// True if a move of a file in the state `other` explains the state `after`.
fn is_moved(other: &SnapshotState, after: &SnapshotState) -> bool {
    let is_link = |state: &SnapshotState| matches!(state, SnapshotState::Link(_));
    is_link(other) == is_link(after) && content(after).is_some() && content(other) == content(after)
}

/// The content of a file, or the target of a link, as git stores it.
fn content(state: &SnapshotState) -> Option<&[u8]> {
    match state {
        SnapshotState::File { content: RecordedContent { bytes: Some(bytes), .. }, .. } => {
            Some(bytes)
        }
        SnapshotState::Link(target) => Some(target.as_bytes()),
        _ => None,
    }
}

fn read_tree_path(
    roots: &WritableRoots,
    tree_path: &TreePath,
    bytes_left: &mut u64,
) -> io::Result<SnapshotState> {
    match roots.open_parent(tree_path, false) {
        Ok((dir, name)) => read_state(dir.as_fd(), &name, bytes_left),
        // A file or a link has replaced a parent directory, or that is gone.
        Err(_) => Ok(SnapshotState::Missing),
    }
}

/// True if the file was created or changed after `start_time`.
fn is_changed_since(roots: &WritableRoots, tree_path: &TreePath, start_time: FileTime) -> bool {
    let root = &roots.fds[tree_path.root];
    let stat = rustix::fs::statat(root, &tree_path.relative, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| file_time(&stat) >= start_time)
}

/// Puts a file back, or renames a new one. `after` is the state that the command left, if it could be read.
fn undo(
    roots: &WritableRoots,
    tree_path: &TreePath,
    before: &SnapshotState,
    after: Option<SnapshotState>,
) -> UndoneChange {
    let mut undone = match before {
        SnapshotState::Missing | SnapshotState::Other => roots.set_aside(tree_path),
        _ => roots.put_back(tree_path, before, after.as_ref()),
    };
    undone.withheld = after.and_then(|after| roots.withheld(tree_path, before.clone(), after));
    undone
}
