//! Undo for the changes that a turn makes with the file tools.
//!
//! Each turn that changes files gets a folder with a journal and the content of each file before its first change. Both
//! are on disk before the change is made. The folders are numbered; the newest has the highest number. Changes made by
//! shell commands are not recorded.

use crate::sys::store;
use anyhow::{Context, Result, anyhow};
use journal::Line;
use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub mod journal;
mod path_text;
pub mod restore;

use journal::{About, State, Turn, digest};

/// Maximum of bytes saved in one turn. A change that would exceed it is refused.
const OF_A_TURN: u64 = 256 << 20;
/// Maximum of bytes kept for all turns, not counting the current one.
const IN_ALL: u64 = 1 << 30;
/// Maximum number of turns kept.
const TURNS: usize = 100;
/// How long turns are kept. Users who want something back mostly notice within a day.
const AGE: Duration = Duration::from_secs(7 * 86_400);

/// The folder that holds the undo data of all turns.
#[derive(Clone, Debug)]
pub struct Undo {
    dir: PathBuf,
}

impl Undo {
    /// Opens the folder `dir`, which need not exist.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Lists the numbers of the turns, newest first.
    fn ids(&self) -> Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("read `{}`", self.dir.display()));
            }
        };
        let number = |name: &str| name.parse::<u64>().ok();
        let mut ids: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().and_then(number))
            .collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        Ok(ids)
    }

    fn folder(&self, id: u64) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Reads the turns that changed something, newest first. Unreadable ones are reported to `odd` and skipped.
    pub fn turns(&self, odd: &mut dyn FnMut(u64, &anyhow::Error)) -> Result<Vec<Turn>> {
        let mut turns = Vec::new();
        for id in self.ids()? {
            match Turn::read(&self.folder(id), id) {
                Ok(turn) => turns.extend(turn.filter(|turn| !turn.entries.is_empty())),
                Err(error) => odd(id, &error),
            }
        }
        Ok(turns)
    }

    /// Creates the folder of a new turn, removes old ones, and returns the new number.
    fn make(&self) -> Result<u64> {
        store::create_dir(&self.dir)?;
        let mut id = self.ids()?.first().map_or(1, |id| id + 1);
        loop {
            let path = self.folder(id);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break,
                // Another run took this number first.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => id += 1,
                Err(error) => {
                    return Err(error).with_context(|| format!("create `{}`", path.display()));
                }
            }
        }
        self.prune(id)?;
        Ok(id)
    }

    /// Removes turns that exceed the limits on age, number and size, except for `newest`.
    fn prune(&self, newest: u64) -> Result<()> {
        let changed = |folder: &Path| {
            std::fs::metadata(folder.join(journal::NAME))
                .or_else(|_| std::fs::metadata(folder))
                .and_then(|metadata| metadata.modified())
        };
        // The folder was created just now, so its time is the current one.
        let now = changed(&self.folder(newest)).context("stat the new undo folder")?;
        let mut bytes = 0;
        for (number, id) in self
            .ids()?
            .into_iter()
            .filter(|id| *id < newest)
            .enumerate()
        {
            let folder = self.folder(id);
            bytes += weight(&folder);
            let age = changed(&folder).map(|then| now.duration_since(then).unwrap_or_default());
            let is_old = age.is_ok_and(|age| age > AGE);
            if (is_old || number + 1 >= TURNS || bytes > IN_ALL) && !is_under_way(&folder) {
                // Another run may be pruning too; what remains is removed next time.
                drop(std::fs::remove_dir_all(&folder));
            }
        }
        Ok(())
    }
}

/// The number of bytes in a folder.
fn weight(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// True if a live run is still writing this journal.
fn is_under_way(folder: &Path) -> bool {
    let file = File::open(folder.join(journal::NAME));
    file.is_ok_and(|file| matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
}

/// The current state of a path that a turn is about to change.
#[derive(Debug)]
pub enum Was<'a> {
    Nothing,
    File { bytes: &'a [u8], mode: u32 },
    Link(&'a Path),
    Directory { mode: u32 },
}

/// Saves the state of each path before a turn changes it.
#[derive(Debug)]
pub struct Keeper {
    undo: Undo,
    about: About,
    /// Present from the first change on.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    dir: PathBuf,
    /// Locked while the turn is running.
    journal: File,
    /// The entry numbers of the changed paths.
    known: HashMap<PathBuf, usize>,
    /// The directories that the turn created.
    made: HashSet<PathBuf>,
    /// Bytes saved so far.
    kept: u64,
}

impl Keeper {
    /// Creates a keeper. No folder is created before the first change.
    pub fn new(undo: Undo, about: About) -> Self {
        Self {
            undo,
            about,
            open: None,
        }
    }

    /// Records that the directory `path` is about to be created.
    pub fn making(&mut self, path: &Path) -> Result<()> {
        let open = self.open()?;
        open.note(&Line::Made(path.to_owned()), false)?;
        open.made.insert(path.to_owned());
        Ok(())
    }

    /// Records that `path` is about to become `becomes`, or to be removed if that is `None`, through the file `temp`
    /// beside it.
    ///
    /// # Errors
    /// The current state cannot be saved. The caller must not make the change then.
    pub fn changing(
        &mut self,
        path: &Path,
        was: &Was<'_>,
        becomes: Option<&[u8]>,
        temp: &str,
    ) -> Result<()> {
        let open = self.open()?;
        let is_first = !open.known.contains_key(path);
        let mut line = Line::Change {
            path: path.to_owned(),
            was: None,
            becomes: becomes.map(digest),
            temp: temp.to_owned(),
        };
        if is_first {
            let number = open.known.len();
            let state = match was {
                // A directory that this turn created did not exist before it.
                Was::Directory { .. } if open.made.contains(path) => State::Nothing,
                was => open.keep(number, was)?,
            };
            open.known.insert(path.to_owned(), number);
            if let Line::Change { was, .. } = &mut line {
                *was = Some(state);
            }
        }
        open.note(&line, is_first)
    }

    fn open(&mut self) -> Result<&mut Open> {
        if self.open.is_none() {
            let id = self.undo.make()?;
            let dir = self.undo.folder(id);
            let path = dir.join(journal::NAME);
            let journal = store::open_log(&path)?;
            // The file is new, so the lock cannot be contended. On file systems without locks, the turn merely looks
            // finished.
            drop(journal.try_lock());
            let mut open = Open {
                dir,
                journal,
                known: HashMap::new(),
                made: HashSet::new(),
                kept: 0,
            };
            open.note(&Line::Turn(self.about.clone()), false)?;
            self.open = Some(open);
        }
        Ok(self.open.as_mut().expect("it was opened just now"))
    }
}

impl Open {
    /// Saves the current state as entry `number`.
    fn keep(&mut self, number: usize, was: &Was<'_>) -> Result<State> {
        Ok(match was {
            Was::Nothing => State::Nothing,
            Was::Link(target) => State::Link {
                target: (*target).to_owned(),
            },
            Was::Directory { mode } => State::Directory { mode: *mode },
            Was::File { bytes, mode } => {
                let size = bytes.len() as u64;
                if self.kept + size > OF_A_TURN {
                    return Err(anyhow!(
                        "this turn has already saved {} for `nanobot undo`, and this file would exceed the limit",
                        store::size_in_words(self.kept)
                    ));
                }
                copy(&self.dir.join(format!("{number}.old")), bytes)?;
                self.kept += size;
                State::File {
                    hash: digest(bytes),
                    mode: *mode,
                }
            }
        })
    }

    /// Writes a line. With `safe`, it is synced to disk before this returns. Later lines about a path do not need that:
    /// they only serve to tell who changed a file last.
    fn note(&mut self, line: &Line, safe: bool) -> Result<()> {
        note(&self.journal, &self.dir.join(journal::NAME), line)?;
        if safe {
            store::sync(&self.journal, &self.dir)?;
        }
        Ok(())
    }
}

fn note(journal: &File, path: &Path, line: &Line) -> Result<()> {
    let mut text = serde_json::to_vec(line).context("serialize a line of the journal")?;
    text.push(b'\n');
    store::append_to(journal, path, store::size(journal, path)?, &text)
}

/// Writes a copy of `bytes` to `path`.
fn copy(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = File::options();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()
    });
    written.with_context(|| format!("write `{}`", path.display()))
}
