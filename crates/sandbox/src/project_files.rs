//! Files anywhere in a writable place that programs and agents read on their own when they enter a directory around them.
//! They are work as much as they are start-up files, so no mount protects them: git replaces them when it checks out a
//! branch, and a mount point could not be replaced. What a command did to them is found by comparison with a search before
//! it, and undone unless it is permitted. Folders of dependencies are not searched, but for what is new in them.

use super::git_history::CommandRecord;
use super::git_objects::{self, ReadObjects};
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
    rules: ProjectFiles,
    /// The numbers of the writable places to search.
    roots: Vec<usize>,
    started: FileTime,
    /// Empty if all changes are permitted.
    before: BTreeMap<TreePath, SnapshotState>,
    /// Ends with the command. There is one if only what git had before counts.
    record: Option<CommandRecord>,
}

impl ProjectFileSnapshot {
    /// Records the files that are found beneath the `roots`. A place within another one is searched with that, and one that
    /// has such a name itself was granted by name.
    ///
    /// # Errors
    /// The objects of git cannot be recorded.
    pub(super) fn take(
        rules: &ProjectFiles,
        roots: &WritableRoots,
        found: Vec<FoundPaths>,
        started: FileTime,
    ) -> io::Result<Self> {
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
            started,
            before: BTreeMap::new(),
            record: None,
        };
        if rules.stay_free() || rules.names.is_empty() {
            return Ok(snapshot);
        }
        let objects = object_directories(roots, &found);
        let mut left = SNAPSHOT_LIMIT_BYTES;
        for place in snapshot.files(found) {
            // What this user cannot read, no program of this user reads.
            let state = read_place(roots, &place, &mut left).unwrap_or(SnapshotState::Other);
            snapshot.before.insert(place, state);
        }
        // With network, a command can fetch anything.
        if matches!(rules.access, ProjectFileAccess::FromHistory | ProjectFileAccess::Closed) {
            let before = snapshot.before.iter();
            let contents =
                before.filter_map(|(place, state)| Some((roots.path(place), content(state)?)));
            snapshot.record = Some(rules.git.begin(&objects, &rules.git_dirs, contents)?);
        }
        Ok(snapshot)
    }

    /// Undoes the changes that are not permitted, and records the others. `found` is what there is now.
    pub(super) fn restore(
        &self,
        roots: &WritableRoots,
        found: Vec<FoundPaths>,
    ) -> Vec<UndoneChange> {
        if self.rules.names.is_empty() {
            return Vec::new();
        }
        let access = self.rules.current_access();
        let objects = object_directories(roots, &found);
        let mut places = self.files(found);
        if access == ProjectFileAccess::Free {
            places.retain(|place| is_changed_since(roots, place, self.started));
            self.record_permitted(roots, &places);
            self.grant(roots, &places);
            return Vec::new();
        }
        places.extend(self.before.keys().cloned());
        places.retain(|place| !self.is_granted_by_name(roots, place));
        let mut undone = Vec::new();
        let mut permitted = BTreeSet::new();
        let read = ReadObjects::default();
        for place in places {
            let was = self.before.get(&place).unwrap_or(&SnapshotState::Missing);
            let is = read_place(roots, &place, &mut SNAPSHOT_LIMIT_BYTES.clone());
            match &is {
                Ok(is) if is == was => {}
                Err(_) if *was == SnapshotState::Other => {}
                Ok(is) if self.is_permitted(roots, &place, (was, is), (access, &read)) => {
                    permitted.insert(place);
                }
                _ => undone.push(undo(roots, &place, was, is.ok())),
            }
        }
        self.record_permitted(roots, &permitted);
        if let Some(record) = &self.record {
            record.add_new(&objects);
        }
        undone
    }

    /// The files that differ from what was recorded. `found` is what there is now.
    pub(super) fn changed(&self, roots: &WritableRoots, found: Vec<FoundPaths>) -> Vec<PathBuf> {
        let mut places = self.files(found);
        places.extend(self.before.keys().cloned());
        places.retain(|place| {
            let was = self.before.get(place).unwrap_or(&SnapshotState::Missing);
            let is = read_place(roots, place, &mut SNAPSHOT_LIMIT_BYTES.clone());
            !self.rules.is_in_dependencies(&place.relative)
                && !self.is_granted_by_name(roots, place)
                && is.is_ok_and(|is| is != *was)
        });
        places.iter().map(|place| roots.path(place)).collect()
    }

    fn record_permitted(&self, roots: &WritableRoots, places: &BTreeSet<TreePath>) {
        for place in places {
            let state = read_place(roots, place, &mut SNAPSHOT_LIMIT_BYTES.clone()).ok();
            let path = roots.path(place);
            self.rules.add_changed(&path, state.as_ref().and_then(content));
        }
    }

    /// Records that the user allowed the contents of these files.
    fn grant(&self, roots: &WritableRoots, places: &BTreeSet<TreePath>) {
        let states: Vec<SnapshotState> = places
            .iter()
            .filter_map(|place| read_place(roots, place, &mut SNAPSHOT_LIMIT_BYTES.clone()).ok())
            .collect();
        if let Err(error) = self.rules.git.grant(states.iter().filter_map(content)) {
            log::warn!(target: "sandbox", "record what the user allowed: {error}");
        }
    }

    /// True if a writable place that was granted by its name contains `place`.
    fn is_granted_by_name(&self, roots: &WritableRoots, place: &TreePath) -> bool {
        let path = roots.path(place);
        let mut granted = roots.paths.iter().filter(|root| self.rules.is_granted(root));
        granted.any(|root| path.starts_with(root))
    }

    /// True if the command may have changed `place` from one state to the other: git has such a file, or it was moved from
    /// elsewhere. A removed file must be known to git or stashed, unless the directory that it was for is gone too.
    fn is_permitted(
        &self,
        roots: &WritableRoots,
        place: &TreePath,
        (was, is): (&SnapshotState, &SnapshotState),
        (access, read): (ProjectFileAccess, &ReadObjects),
    ) -> bool {
        let path = roots.path(place);
        // A command in the background finds what others were permitted to change meanwhile.
        let is_known = content(is).is_some() || matches!(is, SnapshotState::Missing);
        if self.rules.is_in_dependencies(&place.relative)
            || is_known && self.rules.was_changed_to(&path, content(is))
        {
            return true;
        }
        let history = match access {
            ProjectFileAccess::Free => return true,
            ProjectFileAccess::Closed => return false,
            ProjectFileAccess::FromHistory => Some(&*self.rules.git),
            ProjectFileAccess::FromGit => None,
        };
        let root = &roots.paths[place.root];
        let is_in_git = |state: &SnapshotState| {
            content(state).is_some_and(|bytes| {
                git_objects::has_blob(root, &place.relative, bytes, (history, read))
            })
        };
        match is {
            SnapshotState::Missing => {
                is_in_git(was)
                    || self.is_directory_gone(roots, place)
                    || content(was).is_some_and(|bytes| self.rules.is_stashed(&path, bytes))
            }
            // A list of no submodules, as git leaves it.
            _ if place.relative.ends_with(SUBMODULES)
                && content(is).is_some_and(|bytes| bytes.trim_ascii().is_empty()) =>
            {
                true
            }
            _ => {
                let name = place.relative.file_name();
                let mut same_name =
                    self.before.iter().filter(|(other, _)| other.relative.file_name() == name);
                let was_here =
                    |bytes: &[u8]| history.is_some_and(|it| it.was_on_disk(&path, bytes));
                same_name.any(|(_, state)| is_moved(state, is))
                    || self.leads_to_project_file(is)
                        && (is_in_git(is) || content(is).is_some_and(was_here))
            }
        }
    }

    /// True unless the file is a link to a file of another kind: git may have its target as the content of any file.
    fn leads_to_project_file(&self, state: &SnapshotState) -> bool {
        match state {
            SnapshotState::Link(target) => self.rules.is_file_name(Path::new(target)),
            _ => true,
        }
    }

    /// True if the directory that reads the file is gone.
    fn is_directory_gone(&self, roots: &WritableRoots, place: &TreePath) -> bool {
        let mut above = place.relative.ancestors();
        let named = above.find(|path| {
            let parent = path.parent().unwrap_or(Path::new(""));
            !parent.iter().any(|part| self.rules.is_name(part))
        });
        let around = named.and_then(Path::parent).unwrap_or(Path::new(""));
        !around.as_os_str().is_empty()
            && rustix::fs::statat(&roots.fds[place.root], around, AtFlags::SYMLINK_NOFOLLOW)
                .is_err()
    }

    /// The files of the searched places.
    fn files(&self, found: Vec<FoundPaths>) -> BTreeSet<TreePath> {
        let numbered = found.into_iter().enumerate();
        let searched = numbered.filter(|(root, _)| self.roots.contains(root));
        let files = searched.map(|(root, found)| {
            found.files.into_iter().map(move |relative| TreePath { root, relative })
        });
        files.flatten().collect()
    }

    /// The rules for the files.
    pub(super) fn rules(&self) -> &ProjectFiles {
        &self.rules
    }

    /// Searches the `roots` as they are now.
    pub(super) fn search(&self, roots: &WritableRoots) -> Vec<FoundPaths> {
        search_roots(&self.rules, roots, self.started)
    }
}

/// The directories of git objects in the writable places.
fn object_directories(roots: &WritableRoots, found: &[FoundPaths]) -> Vec<PathBuf> {
    let each = roots.paths.iter().zip(found);
    each.flat_map(|(root, found)| git_objects::object_directories(root, &found.repositories))
        .collect()
}

/// True if a file of the `other` state may have become this one by a move.
fn is_moved(other: &SnapshotState, is: &SnapshotState) -> bool {
    let are_links = [other, is].map(|state| matches!(state, SnapshotState::Link(_)));
    are_links[0] == are_links[1] && content(is).is_some() && content(other) == content(is)
}

/// The content of a file, or the target of a link, as git stores it.
fn content(state: &SnapshotState) -> Option<&[u8]> {
    match state {
        SnapshotState::File { content: RecordedContent::Bytes(bytes), .. } => Some(bytes),
        SnapshotState::Link(target) => Some(target.as_bytes()),
        _ => None,
    }
}

fn read_place(
    roots: &WritableRoots,
    place: &TreePath,
    bytes_left: &mut u64,
) -> io::Result<SnapshotState> {
    match roots.open_parent(place, false) {
        Ok((dir, name)) => read_state(dir.as_fd(), &name, bytes_left),
        // Whatever took the place of a directory on the way is no file of this name.
        Err(_) => Ok(SnapshotState::Missing),
    }
}

/// True if the file was made or changed after `started`.
fn is_changed_since(roots: &WritableRoots, place: &TreePath, started: FileTime) -> bool {
    let root = &roots.fds[place.root];
    let stat = rustix::fs::statat(root, &place.relative, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| file_time(&stat) >= started)
}

/// Puts a file back, or renames a new one. `is` is the state that the command left, if it could be read.
fn undo(
    roots: &WritableRoots,
    place: &TreePath,
    was: &SnapshotState,
    is: Option<SnapshotState>,
) -> UndoneChange {
    let mut undone = match was {
        SnapshotState::Missing | SnapshotState::Other => roots.set_aside(place),
        _ => roots.put_back(place, was, is.as_ref()),
    };
    undone.withheld = is.and_then(|state| roots.withheld(place, state));
    undone
}
