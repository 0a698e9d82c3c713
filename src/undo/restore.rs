//! Taking a turn back, and doing it again.
//!
//! First everything is looked at: where somebody else has changed a file since, nothing is done at all. Then what stands
//! there is kept aside, so that the way forward is open too, and then it is done. A stop in between leaves a journal
//! from which the same can be begun again. Times of files are not brought back: a program that goes by them, such as
//! `make`, must see that something changed.

use super::journal::{self, Entry, Line, State, Turn, digest};
use super::note;
use crate::error::{Exit, fail, fail_hint};
use crate::sys::beneath::{Before, Root, is_link};
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// No file of a turn's is larger.
const LARGEST: u64 = 256 << 20;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To what was before the turn.
    Back,
    /// To what was when it was taken back.
    Forth,
}

/// What is to be done to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Restore(PathBuf),
    Remove(PathBuf),
}

/// What is to be done, looked at and not begun.
#[derive(Debug)]
pub struct Plan<'a> {
    turn: &'a Turn,
    way: Way,
    root: Root,
    /// The journal, locked.
    journal: File,
    /// The entries that change: which, what stands there, and what is to stand there.
    moves: Vec<(usize, State, State)>,
    /// What somebody else has changed since the turn: the path, and what is there.
    pub conflicts: Vec<(PathBuf, &'static str)>,
    /// What cannot be changed at all for what stands there: the path, and what it is.
    pub blocked: Vec<(PathBuf, &'static str)>,
}

impl<'a> Plan<'a> {
    /// Look at what `turn` changed.
    ///
    /// # Errors
    /// Status 75 while the turn is under way; what cannot be read.
    pub fn of(turn: &'a Turn, way: Way) -> Result<Self> {
        let path = turn.dir.join(journal::NAME);
        let journal = store::open_log(&path)?;
        if let Err(TryLockError::WouldBlock) = journal.try_lock() {
            return Err(fail_hint(
                Exit::TryAgain,
                format!("turn {} is under way", turn.id),
                "the same again when it has ended",
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
                // It was as before already when the turn was taken back.
                (Way::Forth, None) => continue,
            };
            let now = match look(&plan.root, &entry.path) {
                Ok(now) => now,
                // A link that gives way to a directory, or has come back already.
                Err(error) if is_link(&error) && plan.is_below_ours(&entry.path) => State::Nothing,
                Err(error) => {
                    let there = if is_link(&error) {
                        "a link is on the way"
                    } else if error.kind() == ErrorKind::InvalidData {
                        "something else is there"
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

    /// Whether `path` is only reached by a link that is an entry of the turn itself.
    fn is_below_ours(&self, path: &Path) -> bool {
        let above = |entry: &&Entry| entry.path != path && path.starts_with(&entry.path);
        let is_known = |entry: &Entry| {
            look(&self.root, &entry.path)
                .is_ok_and(|now| matches!(now, State::Link { .. }) && self.knows(entry, &now))
        };
        self.turn.entries.iter().filter(above).any(is_known)
    }

    /// Whether what stands at a path is of the turn's own making, or what was there before it.
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

    /// What will be done, in the order of the turn.
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

    /// Do it. `time` is written down.
    ///
    /// # Errors
    /// What could not be done; begun again, it goes on from there.
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
                    // What the turn made goes below, when it is empty.
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

    /// Keep what stands there, and write down what it is.
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

    /// Remove what a killed run left of its writing, and the directories that were made, the deepest first. Those that
    /// hold something else stay.
    fn tidy(&self) {
        for temp in &self.turn.temps {
            let is_file = |about: std::fs::Metadata| about.is_file();
            if self.root.look(below(temp)).is_ok_and(is_file) {
                drop(self.root.remove(below(temp), &mut nobody));
            }
        }
        for dir in self.turn.made.iter().rev() {
            let is_dir = |about: std::fs::Metadata| about.is_dir();
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

    /// Where the content of an entry is kept.
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

/// `path`, which is absolute, beneath the top.
fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// What stands at `path`.
///
/// # Errors
/// Also of kind `InvalidData` for what is none of the kinds that are kept.
fn look(root: &Root, path: &Path) -> io::Result<State> {
    use std::os::unix::fs::PermissionsExt;
    let path = below(path);
    let about = match root.look(path) {
        Ok(about) => about,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return match is_link(&error) {
                true => Err(error),
                false => Ok(State::Nothing),
            };
        }
        Err(error) => return Err(error),
    };
    let mode = about.permissions().mode() & 0o7777;
    if about.is_symlink() {
        let target = root.link(path)?;
        Ok(State::Link { target })
    } else if about.is_dir() {
        Ok(State::Directory { mode })
    } else if about.is_file() && about.len() <= LARGEST {
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
