//! Undoes a turn, and redoes it.
//!
//! All paths are checked first: if any file was changed by others since, nothing is done. Then the current contents are
//! saved, to allow the opposite operation later, and the changes are made. An interruption leaves a journal from which
//! the operation can be repeated. File times are not restored: programs that rely on them, such as `make`, must notice
//! the change.

use super::journal::{self, Entry, Line, State, Turn, digest};
use super::note;
use crate::error::{Exit, fail, fail_hint};
use crate::sys::beneath::{Before, Root, is_link};
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The largest file that is read back, in bytes; no saved file is larger.
const LARGEST: u64 = 256 << 20;

/// The direction of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Undo: to the state before the turn.
    Back,
    /// Redo: to the state at the time of the undo.
    Forth,
}

/// A change that will be made to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Restore(PathBuf),
    Remove(PathBuf),
}

/// A checked plan of changes, not yet carried out.
#[derive(Debug)]
pub struct Plan<'a> {
    turn: &'a Turn,
    way: Way,
    root: Root,
    /// The journal, locked.
    journal: File,
    /// The entries that change: index, current state, wanted state.
    moves: Vec<(usize, State, State)>,
    /// Paths that were changed by others since the turn, and their current state.
    pub conflicts: Vec<(PathBuf, &'static str)>,
    /// Paths that cannot be changed because of what is there now, and its kind.
    pub blocked: Vec<(PathBuf, &'static str)>,
}

impl<'a> Plan<'a> {
    /// Checks the current state of everything that `turn` changed.
    ///
    /// # Errors
    /// Status 75 while the turn is running; a file that cannot be read.
    pub fn of(turn: &'a Turn, way: Way) -> Result<Self> {
        let path = turn.dir.join(journal::NAME);
        let journal = store::open_log(&path)?;
        if let Err(TryLockError::WouldBlock) = journal.try_lock() {
            return Err(fail_hint(
                Exit::TryAgain,
                format!("turn {} is still running", turn.id),
                "again when it has ended",
            ));
        }
        let mut plan = Self {
            turn,
            way,
            root: Root::open(Path::new("/")).context("open `/`")?,
            journal,
            moves: Vec::new(),
            conflicts: Vec::new(),
            blocked: Vec::new(),
        };
        for (number, entry) in turn.entries.iter().enumerate() {
            let wanted = match (way, &entry.after) {
                (Way::Back, _) => &entry.was,
                (Way::Forth, Some(after)) => after,
                // The path already had its earlier state when the turn was undone.
                (Way::Forth, None) => continue,
            };
            let now = match look(&plan.root, &entry.path) {
                Ok(now) => now,
                // A link that will be replaced by a directory, or was already restored.
                Err(error) if is_link(&error) && plan.is_below_ours(&entry.path) => State::Nothing,
                Err(error) => {
                    let there = if is_link(&error) {
                        "its path contains a link"
                    } else if error.kind() == ErrorKind::InvalidData {
                        "another type of file is there"
                    } else {
                        return Err(error)
                            .with_context(|| format!("read `{}`", entry.path.display()));
                    };
                    plan.blocked.push((entry.path.clone(), there));
                    continue;
                }
            };
            if now == *wanted {
                continue;
            }
            if !plan.knows(entry, &now) {
                let there = match now {
                    State::Nothing => "it was removed",
                    _ => "it was changed",
                };
                plan.conflicts.push((entry.path.clone(), there));
            }
            plan.moves.push((number, now, wanted.clone()));
        }
        Ok(plan)
    }

    /// True if `path` is reached only through a link that is itself an entry of the turn.
    fn is_below_ours(&self, path: &Path) -> bool {
        let above = |entry: &&Entry| entry.path != path && path.starts_with(&entry.path);
        let is_known = |entry: &Entry| {
            look(&self.root, &entry.path)
                .is_ok_and(|now| matches!(now, State::Link { .. }) && self.knows(entry, &now))
        };
        self.turn.entries.iter().filter(above).any(is_known)
    }

    /// True if the current state is a recorded one: from before the turn, from the turn itself, or from its undo.
    fn knows(&self, entry: &Entry, now: &State) -> bool {
        if entry.was.is_like(now) || entry.after.as_ref().is_some_and(|after| after.is_like(now)) {
            return true;
        }
        match (now, self.way) {
            (_, Way::Forth) => false,
            (State::File { hash, .. }, _) => {
                entry.left.iter().any(|left| left.as_ref() == Some(hash))
            }
            (State::Nothing, _) => entry.left.contains(&None),
            (State::Directory { .. }, _) => self.turn.made.contains(&entry.path),
            (State::Link { .. }, _) => false,
        }
    }

    /// Lists the planned changes, in the order of the turn.
    pub fn steps(&self) -> Vec<Step> {
        let step = |(number, _, wanted): &(usize, State, State)| {
            let path = self.turn.entries[*number].path.clone();
            match wanted {
                State::Nothing => Step::Remove(path),
                _ => Step::Restore(path),
            }
        };
        self.moves.iter().map(step).collect()
    }

    /// Carries out the plan. `time` is recorded in the journal.
    ///
    /// # Errors
    /// A change that failed. The operation can be repeated and continues from there.
    pub fn carry_out(self, time: &str) -> Result<()> {
        let path = self.turn.dir.join(journal::NAME);
        if self.way == Way::Back {
            self.keep_all(&path)?;
        }
        for (number, now, wanted) in &self.moves {
            let path = self.path(*number);
            let stays = match (now, wanted) {
                (State::Nothing, _) | (State::File { .. }, State::File { .. }) => true,
                (State::Directory { .. }, _) => {
                    // Directories that the turn created are removed later, if they are empty.
                    matches!(wanted, State::Directory { .. })
                        || self.turn.made.contains(&self.turn.entries[*number].path)
                }
                _ => false,
            };
            if !stays {
                let removed = self.root.remove(path, &mut nobody);
                removed.with_context(|| format!("remove `/{}`", path.display()))?;
            }
        }
        if self.way == Way::Back {
            self.tidy();
        }
        for (number, _, wanted) in &self.moves {
            let path = self.path(*number);
            self.put(*number, path, wanted)
                .with_context(|| format!("restore `/{}`", path.display()))?;
        }
        let line = match self.way {
            Way::Back => Line::Undone(time.to_owned()),
            Way::Forth => Line::Redone(time.to_owned()),
        };
        note(&self.journal, &path, &line)?;
        store::sync(&self.journal, &path)
    }

    /// Saves the current contents and records them in the journal.
    fn keep_all(&self, path: &Path) -> Result<()> {
        for (number, now, _) in &self.moves {
            if let State::File { .. } = now {
                let place = self.path(*number);
                let bytes = read(&self.root, place)
                    .with_context(|| format!("read `/{}`", place.display()))?;
                store::replace(&self.copy(*number, Way::Forth), &bytes)?;
            }
        }
        let states = self.moves.iter();
        let states = states.map(|(number, now, _)| (*number, now.clone()));
        note(&self.journal, path, &Line::Undoing(states.collect()))?;
        store::sync(&self.journal, path)
    }

    /// Removes temporary files left by a killed run, and the directories that the turn created, deepest first.
    /// Directories that hold other files stay.
    fn tidy(&self) {
        for temp in &self.turn.temps {
            let is_file = |metadata: std::fs::Metadata| metadata.is_file();
            if self.root.look(below(temp)).is_ok_and(is_file) {
                drop(self.root.remove(below(temp), &mut nobody));
            }
        }
        for dir in self.turn.made.iter().rev() {
            let is_dir = |metadata: std::fs::Metadata| metadata.is_dir();
            if self.root.look(below(dir)).is_ok_and(is_dir) {
                drop(self.root.remove(below(dir), &mut nobody));
            }
        }
    }

    fn put(&self, number: usize, path: &Path, wanted: &State) -> Result<()> {
        match wanted {
            State::Nothing => {}
            State::Link { target } => self.root.make_link(path, target)?,
            State::Directory { mode } => self.root.make_directory(path, *mode)?,
            State::File { hash, mode } => {
                let copy = self.copy(number, self.way);
                let bytes = store::read(&copy)?.unwrap_or_default();
                if digest(&bytes) != *hash {
                    return Err(fail(
                        Exit::Io,
                        format!("the copy `{}` is damaged", copy.display()),
                    ));
                }
                self.root.write(path, &bytes, Some(*mode), &mut nobody)?;
            }
        }
        Ok(())
    }

    /// The path of the saved content of an entry.
    fn copy(&self, number: usize, way: Way) -> PathBuf {
        let kind = match way {
            Way::Back => "old",
            Way::Forth => "new",
        };
        self.turn.dir.join(format!("{number}.{kind}"))
    }

    fn path(&self, number: usize) -> &Path {
        below(&self.turn.entries[number].path)
    }
}

fn nobody(_: Before<'_>) -> io::Result<()> {
    Ok(())
}

/// Returns `path`, which is absolute, relative to the root.
fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Reads the current state of `path`.
///
/// # Errors
/// Also kind `InvalidData` if the path is of a type that cannot be saved.
fn look(root: &Root, path: &Path) -> io::Result<State> {
    use std::os::unix::fs::PermissionsExt;
    let path = below(path);
    let metadata = match root.look(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return match is_link(&error) {
                true => Err(error),
                false => Ok(State::Nothing),
            };
        }
        Err(error) => return Err(error),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_symlink() {
        let target = root.link(path)?;
        Ok(State::Link { target })
    } else if metadata.is_dir() {
        Ok(State::Directory { mode })
    } else if metadata.is_file() && metadata.len() <= LARGEST {
        let hash = digest(&read(root, path)?);
        Ok(State::File { hash, mode })
    } else {
        Err(ErrorKind::InvalidData.into())
    }
}

fn read(root: &Root, path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    root.read(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
