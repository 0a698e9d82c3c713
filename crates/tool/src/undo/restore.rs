//! Undoes a turn, and redoes it.
//!
//! All paths are checked first: if another program has changed any file since, the turn is not undone. Then the current contents are
//! saved, to allow the opposite operation later, and the changes are made. An interruption leaves a journal from which
//! the operation can be repeated. File times are not restored: programs that rely on them, such as `make`, must notice
//! the change.

use super::append_line;
use super::journal::{self, ChangedPath, JournalLine, RestorableState, UndoTurn};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use nanobot_os::rooted_fs::{PendingChange, RootDir, is_link};
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The largest file that is read back, in bytes; no saved file is larger.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The mode bits by which the owner may write a file, and use a directory.
const OWNER_WRITE: u32 = 0o200;
const OWNER_ACCESS: u32 = 0o700;

/// The direction of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreDirection {
    /// Undo: to the state before the turn.
    Undo,
    /// Redo: to the state at the time of the undo.
    Redo,
}

/// A change that will be made to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreStep {
    Restore(PathBuf),
    Remove(PathBuf),
}

impl RestoreStep {
    /// The path that changes.
    pub fn path(&self) -> &Path {
        match self {
            Self::Restore(path) | Self::Remove(path) => path,
        }
    }
}

/// A change of one path.
#[derive(Debug)]
struct PlannedRestore {
    /// The index of the path among the turn's changed paths.
    index: usize,
    current_state: RestorableState,
    target_state: RestorableState,
}

/// A checked plan of changes, not yet carried out.
#[derive(Debug)]
pub struct RestorePlan<'a> {
    turn: &'a UndoTurn,
    direction: RestoreDirection,
    root: RootDir,
    /// The journal, locked.
    journal: File,
    changes: Vec<PlannedRestore>,
    /// Paths that another program has changed since the turn, and their current state.
    pub conflicts: Vec<(PathBuf, &'static str)>,
    /// Paths that cannot be changed because of their current state, and the obstacle.
    pub blocked: Vec<(PathBuf, &'static str)>,
}

impl<'a> RestorePlan<'a> {
    /// Checks the current state of everything that `turn` changed. `turns` are all turns of the journal.
    ///
    /// # Errors
    /// Status 75 while the turn is running, or if another process has changed the journal since `turn` was read. A file cannot be
    /// read.
    pub fn new(
        turn: &'a UndoTurn,
        turns: &[UndoTurn],
        direction: RestoreDirection,
    ) -> Result<Self> {
        let path = turn.dir.join(journal::JOURNAL_FILE);
        let journal = durable_file::open_append(&path)?;
        if let Err(TryLockError::WouldBlock) = journal.try_lock() {
            return Err(fail(Exit::TryAgain, format!("turn {} is still running", turn.id))
                .with_hint("again when it has ended"));
        }
        // The turn may have ended just now, or another process may have undone it.
        if durable_file::size(&journal, &path)? != turn.journal_bytes {
            let cause = format!("turn {} was changed by another process", turn.id);
            return Err(fail(Exit::TryAgain, cause));
        }
        let mut plan = Self {
            turn,
            direction,
            root: RootDir::open(Path::new("/")).context("open `/`")?,
            journal,
            changes: Vec::new(),
            conflicts: Vec::new(),
            blocked: Vec::new(),
        };
        let later_changes = later_changes(turn, turns, direction);
        for (index, changed_path) in turn.changed_paths.iter().enumerate() {
            let target_state = match (direction, &changed_path.at_undo) {
                (RestoreDirection::Undo, _) => &changed_path.before,
                (RestoreDirection::Redo, Some(after)) => after,
                // The path already had its earlier state when the turn was undone.
                (RestoreDirection::Redo, None) => continue,
            };
            let current_state = match read_state(&plan.root, &changed_path.path) {
                Ok(current_state) => current_state,
                // A link that will be replaced by a directory, or was already restored.
                Err(error) if is_link(&error) && plan.is_below_own_link(&changed_path.path) => {
                    RestorableState::Nothing
                }
                Err(error) => {
                    let Some(obstacle) = find_obstacle(&error) else {
                        return Err(error)
                            .with_context(|| format!("read `{}`", changed_path.path.display()));
                    };
                    plan.blocked.push((changed_path.path.clone(), obstacle));
                    continue;
                }
            };
            if current_state == *target_state {
                continue;
            }
            if !plan.is_recorded_state(changed_path, &current_state) {
                let change = match current_state {
                    RestorableState::Nothing => "it was removed",
                    _ => "it was changed",
                };
                plan.conflicts.push((changed_path.path.clone(), change));
            } else if later_changes
                .get(changed_path.path.as_path())
                .is_some_and(|earlier| earlier.iter().any(|state| **state != current_state))
            {
                plan.conflicts.push((changed_path.path.clone(), "a later turn changed it"));
            }
            plan.changes.push(PlannedRestore {
                index,
                current_state,
                target_state: target_state.clone(),
            });
        }
        Ok(plan)
    }

    /// True if `path` is reached only through a link that is itself an entry of the turn.
    fn is_below_own_link(&self, path: &Path) -> bool {
        let is_parent = |changed_path: &&ChangedPath| {
            changed_path.path != path && path.starts_with(&changed_path.path)
        };
        let is_own_link = |changed_path: &ChangedPath| {
            read_state(&self.root, &changed_path.path).is_ok_and(|state| {
                matches!(state, RestorableState::Link { .. })
                    && self.is_recorded_state(changed_path, &state)
            })
        };
        self.turn.changed_paths.iter().filter(is_parent).any(is_own_link)
    }

    /// True if the current state is recorded: from before the turn, from the turn itself, or from its undo.
    fn is_recorded_state(&self, changed_path: &ChangedPath, state: &RestorableState) -> bool {
        if changed_path.before.has_same_content(state)
            || changed_path.at_undo.as_ref().is_some_and(|after| after.has_same_content(state))
        {
            return true;
        }
        match (state, self.direction) {
            (_, RestoreDirection::Redo) => false,
            (RestorableState::File { hash, .. }, _) => changed_path.has_written(hash),
            (RestorableState::Nothing, _) => changed_path.written_digests.contains(&None),
            (RestorableState::Directory { .. }, _) => {
                self.turn.created_dirs.contains(&changed_path.path)
            }
            (RestorableState::Link { target }, _) => {
                changed_path.has_written(&digest(target.as_os_str().as_encoded_bytes()))
            }
        }
    }

    /// Lists the planned changes, in the order of the turn.
    pub fn steps(&self) -> Vec<RestoreStep> {
        let step = |change: &PlannedRestore| {
            let path = self.turn.changed_paths[change.index].path.clone();
            match change.target_state {
                RestorableState::Nothing => RestoreStep::Remove(path),
                _ => RestoreStep::Restore(path),
            }
        };
        let steps: Vec<RestoreStep> = self.changes.iter().map(step).collect();
        if !self.turn.changed_paths.is_empty() || self.direction == RestoreDirection::Redo {
            return steps;
        }
        // With a file in them, the file alone is named.
        let is_removable = |dir: &&PathBuf| {
            std::fs::read_dir(dir).is_ok_and(|entries| {
                entries.flatten().all(|entry| self.turn.created_dirs.contains(&entry.path()))
            })
        };
        let dirs = self.turn.created_dirs.iter().rev().filter(is_removable);
        dirs.cloned().map(RestoreStep::Remove).collect()
    }

    /// Carries out the plan. `time` is recorded in the journal.
    ///
    /// # Errors
    /// A change failed. The operation can be repeated, and continues from there.
    pub fn execute(self, time: &str) -> Result<()> {
        let path = self.turn.dir.join(journal::JOURNAL_FILE);
        if self.direction == RestoreDirection::Undo {
            self.save_current(&path)?;
        }
        for PlannedRestore { index, current_state, .. } in &self.changes {
            let path = self.relative_path(*index);
            self.make_writable(path, current_state)
                .with_context(|| format!("change the mode of `/{}`", path.display()))?;
        }
        for dir in &self.turn.created_dirs {
            if let Ok(state) = read_state(&self.root, dir) {
                self.make_writable(relative_to_root(dir), &state)
                    .with_context(|| format!("change the mode of `{}`", dir.display()))?;
            }
        }
        for PlannedRestore { index, current_state, target_state } in &self.changes {
            let path = self.relative_path(*index);
            let is_kept = match (current_state, target_state) {
                (RestorableState::Nothing, _)
                | (RestorableState::File { .. }, RestorableState::File { .. }) => true,
                (RestorableState::Directory { .. }, _) => {
                    // Directories that the turn created are removed later, if they are empty.
                    matches!(target_state, RestorableState::Directory { .. })
                        || self.turn.created_dirs.contains(&self.turn.changed_paths[*index].path)
                }
                _ => false,
            };
            if !is_kept {
                self.root
                    .remove(path, &mut allow)
                    .with_context(|| format!("remove `/{}`", path.display()))?;
            }
        }
        let recreated_dirs = match self.direction {
            RestoreDirection::Undo => {
                self.remove_leftovers();
                Vec::new()
            }
            RestoreDirection::Redo => self.create_removed_dirs()?,
        };
        for PlannedRestore { index, target_state, .. } in &self.changes {
            let path = self.relative_path(*index);
            self.restore_path(*index, path, target_state)
                .with_context(|| format!("restore `/{}`", path.display()))?;
        }
        // A directory that is read-only gets its mode when its content is back.
        let restored_dirs = self.changes.iter().filter_map(|change| match change.target_state {
            RestorableState::Directory { mode } => Some((self.relative_path(change.index), mode)),
            _ => None,
        });
        let dirs: Vec<(&Path, u32)> = recreated_dirs.into_iter().chain(restored_dirs).collect();
        for (path, mode) in dirs.into_iter().rev() {
            self.root
                .create_dir(path, mode)
                .with_context(|| format!("restore `/{}`", path.display()))?;
        }
        let line = match self.direction {
            RestoreDirection::Undo => JournalLine::Undone(time.to_owned()),
            RestoreDirection::Redo => JournalLine::Redone(time.to_owned()),
        };
        append_line(&self.journal, &path, &line)?;
        durable_file::sync(&self.journal, &path)
    }

    /// Saves the current contents and records them in the journal.
    fn save_current(&self, path: &Path) -> Result<()> {
        for PlannedRestore { index, current_state, .. } in &self.changes {
            if let RestorableState::File { .. } = current_state {
                let relative = self.relative_path(*index);
                let bytes = read_file(&self.root, relative)
                    .with_context(|| format!("read `/{}`", relative.display()))?;
                durable_file::replace(&self.copy_path(*index, RestoreDirection::Redo), &bytes)?;
            }
        }
        let states = self.changes.iter().map(|change| (change.index, change.current_state.clone()));
        append_line(&self.journal, path, &JournalLine::Undoing(states.collect()))?;
        let dirs = self.turn.created_dirs.iter().enumerate();
        let dirs = dirs.filter_map(|(number, dir)| match read_state(&self.root, dir) {
            Ok(RestorableState::Directory { mode }) => Some((number, mode)),
            // Anything but a directory stays when the turn is undone.
            _ => None,
        });
        let line = JournalLine::RemovingDirectories(dirs.collect());
        append_line(&self.journal, path, &line)?;
        durable_file::sync(&self.journal, path)
    }

    /// Removes temporary files left by a killed run, and the directories that the turn created, deepest first.
    /// Directories that hold other files stay.
    fn remove_leftovers(&self) {
        for temp in &self.turn.temp_files {
            let is_file = |metadata: std::fs::Metadata| metadata.is_file();
            if self.root.metadata(relative_to_root(temp)).is_ok_and(is_file) {
                drop(self.root.remove(relative_to_root(temp), &mut allow));
            }
        }
        for dir in self.turn.created_dirs.iter().rev() {
            let is_dir = |metadata: std::fs::Metadata| metadata.is_dir();
            if self.root.metadata(relative_to_root(dir)).is_ok_and(is_dir) {
                drop(self.root.remove(relative_to_root(dir), &mut allow));
            }
        }
    }

    /// Creates the directories again that the undo removed, parents first. Empty ones would not come back with their files. Returns
    /// their modes, which let the owner write until they are set.
    fn create_removed_dirs(&self) -> Result<Vec<(&Path, u32)>> {
        let mut created = Vec::new();
        for (number, mode) in &self.turn.removed_dirs {
            let Some(dir) = self.turn.created_dirs.get(*number) else {
                continue;
            };
            let path = relative_to_root(dir);
            let result = match read_state(&self.root, dir) {
                Ok(RestorableState::Nothing) => {
                    created.push((path, *mode));
                    self.root.create_dir(path, mode | OWNER_ACCESS)
                }
                state => state.map(drop),
            };
            result.with_context(|| format!("restore `{}`", dir.display()))?;
        }
        Ok(created)
    }

    fn restore_path(
        &self,
        index: usize,
        path: &Path,
        target_state: &RestorableState,
    ) -> Result<()> {
        match target_state {
            RestorableState::Nothing => {}
            RestorableState::Link { target } => self.root.create_link(path, target)?,
            RestorableState::Directory { mode } => {
                self.root.create_dir(path, *mode | OWNER_ACCESS)?;
            }
            RestorableState::File { hash, mode } => {
                let copy = self.copy_path(index, self.direction);
                let bytes = durable_file::read(&copy)?.unwrap_or_default();
                if digest(&bytes) != *hash {
                    return Err(fail(
                        Exit::Io,
                        format!("the copy `{}` is damaged", copy.display()),
                    ));
                }
                self.root.write(path, &bytes, Some(*mode), &mut allow)?;
            }
        }
        Ok(())
    }

    /// Lets the owner of an existing file or directory change it.
    fn make_writable(&self, path: &Path, state: &RestorableState) -> io::Result<()> {
        match state {
            RestorableState::File { mode, .. } if mode & 0o222 == 0 => {
                self.root.set_mode(path, mode | OWNER_WRITE)
            }
            RestorableState::Directory { mode } if mode & OWNER_ACCESS != OWNER_ACCESS => {
                self.root.create_dir(path, mode | OWNER_ACCESS)
            }
            _ => Ok(()),
        }
    }

    /// The path of the saved content of an entry.
    fn copy_path(&self, index: usize, direction: RestoreDirection) -> PathBuf {
        match direction {
            RestoreDirection::Undo => journal::copy_path(&self.turn.dir, index),
            RestoreDirection::Redo => self.turn.dir.join(format!("{index}.new")),
        }
    }

    fn relative_path(&self, index: usize) -> &Path {
        relative_to_root(&self.turn.changed_paths[index].path)
    }
}

/// The states that paths had before later turns changed them, for example their modes alone. If the current state is another one, it still has
/// such a change. For a redo, turns are later that were made after the undo, which has overwritten those before.
fn later_changes<'t>(
    turn: &UndoTurn,
    turns: &'t [UndoTurn],
    direction: RestoreDirection,
) -> HashMap<&'t Path, Vec<&'t RestorableState>> {
    let is_later = |later: &&UndoTurn| {
        let is_after_undo = || turn.undone_at.as_ref().is_some_and(|time| later.info.time > *time);
        later.id > turn.id
            && later.undone_at.is_none()
            && (direction == RestoreDirection::Undo || is_after_undo())
    };
    let mut changes: HashMap<&Path, Vec<&RestorableState>> = HashMap::new();
    for change in turns.iter().filter(is_later).flat_map(|later| &later.changed_paths) {
        changes.entry(&change.path).or_default().push(&change.before);
    }
    changes
}

fn allow(_: PendingChange<'_>) -> io::Result<()> {
    Ok(())
}

/// Returns `path`, which is absolute, relative to the root.
pub(crate) fn relative_to_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Reads the current state of `path`.
///
/// # Errors
/// The state cannot be read; kind `InvalidData` if the path is of a type that cannot be saved.
pub(crate) fn read_state(root: &RootDir, path: &Path) -> io::Result<RestorableState> {
    use std::os::unix::fs::PermissionsExt;
    let path = relative_to_root(path);
    let metadata = match root.metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return if is_link(&error) { Err(error) } else { Ok(RestorableState::Nothing) };
        }
        Err(error) => return Err(error),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_symlink() {
        let target = root.read_link(path)?;
        Ok(RestorableState::Link { target })
    } else if metadata.is_dir() {
        Ok(RestorableState::Directory { mode })
    } else if metadata.is_file() && metadata.len() <= MAX_FILE_BYTES {
        let hash = digest(&read_file(root, path)?);
        Ok(RestorableState::File { hash, mode })
    } else {
        Err(ErrorKind::InvalidData.into())
    }
}

/// Says what an error of [`read_state`] found in the place of a path; `None` if it is another one.
pub(crate) fn find_obstacle(error: &io::Error) -> Option<&'static str> {
    if is_link(error) {
        Some("its path contains a link")
    } else {
        (error.kind() == ErrorKind::InvalidData).then_some("another type of file is there")
    }
}

pub(crate) fn read_file(root: &RootDir, path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    root.open_for_reading(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{RestoreDirection, RestorePlan};
    use crate::undo::journal::PreviousState;
    use crate::undo::{ChangeRecorder, UndoStore};
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_os::age::Age;
    use nanobot_os::deferred::Deferred;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    #[test]
    fn a_turn_that_another_process_has_undone_is_read_again() {
        let temp = tempfile::tempdir().unwrap();
        let store = UndoStore::new(temp.path().join("undo"), Age::Never);
        let file = temp.path().join("file");
        let mut recorder =
            ChangeRecorder::new(store.clone(), Deferred::default(), Deferred::default());
        let nothing = PreviousState::Nothing;
        assert!(recorder.record_change(&file, &nothing, Some(b"new"), None, "temp").unwrap());
        std::fs::write(&file, "new").unwrap();
        drop(recorder);
        let read = || store.turns(&mut |_, error| panic!("{error:#}")).unwrap().remove(0);
        let [first, second] = [read(), read()];
        RestorePlan::new(&first, &[], RestoreDirection::Undo).unwrap().execute("now").unwrap();
        assert!(!file.exists());
        let error = RestorePlan::new(&second, &[], RestoreDirection::Undo).unwrap_err();
        assert_eq!(exit_for(&error), Exit::TryAgain);
        RestorePlan::new(&read(), &[], RestoreDirection::Redo).unwrap().execute("now").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn a_redo_leaves_what_a_turn_after_the_undo_has_changed() {
        let temp = tempfile::tempdir().unwrap();
        let store = UndoStore::new(temp.path().join("undo"), Age::Never);
        let file = temp.path().join("file");
        let write = |mode: u32| {
            let mut recorder =
                ChangeRecorder::new(store.clone(), Deferred::default(), Deferred::default());
            let nothing = PreviousState::Nothing;
            assert!(recorder.record_change(&file, &nothing, Some(b"new"), None, "temp").unwrap());
            std::fs::write(&file, "new").unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        };
        let read = || store.turns(&mut |_, error| panic!("{error:#}")).unwrap();
        write(0o644);
        RestorePlan::new(&read()[0], &[], RestoreDirection::Undo).unwrap().execute("2026").unwrap();
        write(0o600);
        let mut turns = read();
        let mut check = |time: &str, expect: &[(PathBuf, &str)]| {
            turns[0].info.time = time.into();
            let plan = RestorePlan::new(&turns[1], &turns, RestoreDirection::Redo).unwrap();
            assert_eq!(plan.conflicts, expect, "{time}");
        };
        check("2027", &[(file.clone(), "a later turn changed it")]);
        check("2025", &[]);
    }
}
