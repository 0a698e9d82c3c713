//! Undo for the changes that a turn makes.
//!
//! Each turn that changes files gets a folder with a journal and the content of each file before its first change. For
//! the file tools, both are on disk before the change is made; [`command_changes`] are recorded once the command has
//! ended. The folders are numbered; the newest has the highest number.

use anyhow::{Context, Result, anyhow};
use journal::{JournalLine, PreviousState};
use nanobot_os::age::{Age, is_older};
use nanobot_os::deferred::Deferred;
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{DirBuilder, DirEntry, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub mod command_changes;
pub mod journal;
pub mod restore;

use command_changes::{CommandChange, DirectorySnapshot};
use journal::{JournalGap, RestorableState, TurnInfo, UndoTurn};

/// Maximum of bytes saved in one turn. A change that would exceed it is refused.
const MAX_TURN_BYTES: u64 = 256 << 20;
/// Maximum of bytes kept for all turns, not counting the current one.
const MAX_TOTAL_BYTES: u64 = 1 << 30;
/// Maximum number of turns kept.
const MAX_TURNS: usize = 100;

/// The folder that holds the undo data of all turns.
#[derive(Clone, Debug)]
pub struct UndoStore {
    dir: PathBuf,
    /// Older turns are removed.
    max_age: Age,
}

impl UndoStore {
    /// Opens the folder `dir`, which need not exist.
    pub fn new(dir: PathBuf, max_age: Age) -> Self {
        Self { dir, max_age }
    }

    /// Lists the numbers of the turns, newest first.
    fn ids(&self) -> Result<Vec<u64>> {
        let entries = durable_file::list_dir(&self.dir)?;
        let number = |entry: &DirEntry| entry.file_name().to_str()?.parse().ok();
        let mut ids: Vec<u64> = entries.iter().filter_map(number).collect();
        ids.sort_unstable_by(|first, second| second.cmp(first));
        Ok(ids)
    }

    fn turn_dir(&self, id: u64) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Reads the turns that changed something, or may have, newest first. Unreadable ones are reported to `on_unreadable` and skipped.
    pub fn turns(
        &self,
        on_unreadable: &mut dyn FnMut(u64, &anyhow::Error),
    ) -> Result<Vec<UndoTurn>> {
        let mut turns = Vec::new();
        for id in self.ids()? {
            match UndoTurn::read(&self.turn_dir(id), id) {
                Ok(turn) => turns.extend(turn.filter(|turn| {
                    turn.has_changes() || !turn.gaps.is_empty() || turn.is_running_commands
                })),
                Err(error) => on_unreadable(id, &error),
            }
        }
        Ok(turns)
    }

    /// Creates the folder of a new turn, removes old ones, and returns the new number.
    fn create_turn_dir(&self) -> Result<u64> {
        durable_file::create_dir(&self.dir)?;
        let mut id = self.ids()?.first().map_or(1, |id| id + 1);
        loop {
            let path = self.turn_dir(id);
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

    /// Removes the turns that are too old at `now`, except for those that run.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn remove_old_turns(&self, now: SystemTime) -> Result<()> {
        let Some(limit) = self.max_age.limit(now) else {
            return Ok(());
        };
        let folders = self.ids()?.into_iter().map(|id| self.turn_dir(id));
        for folder in folders.filter(|folder| is_old(folder, limit)) {
            if !journal::is_running(&folder) {
                remove_turn_dir(&folder);
            }
        }
        Ok(())
    }

    /// Removes turns that exceed the limits on age, number and size, except for `newest`.
    fn prune(&self, newest: u64) -> Result<()> {
        // The folder was created just now, so its time is the current one.
        let now = std::fs::metadata(self.turn_dir(newest)).and_then(|metadata| metadata.modified());
        let now = now.context("stat the new undo folder")?;
        let limit = self.max_age.limit(now);
        let mut bytes = 0;
        for (number, id) in self.ids()?.into_iter().filter(|id| *id < newest).enumerate() {
            let folder = self.turn_dir(id);
            bytes += dir_bytes(&folder);
            let is_old = limit.is_some_and(|limit| is_old(&folder, limit));
            if (is_old || number + 1 >= MAX_TURNS || bytes > MAX_TOTAL_BYTES)
                && !journal::is_running(&folder)
            {
                remove_turn_dir(&folder);
            }
        }
        Ok(())
    }
}

/// True if the journal in the folder of a turn, or else the folder, was last changed before `limit`.
fn is_old(folder: &Path, limit: SystemTime) -> bool {
    let journal = folder.join(journal::JOURNAL_FILE);
    let entry = if journal.exists() { &journal } else { folder };
    is_older(entry, limit)
}

fn remove_turn_dir(folder: &Path) {
    // Another run may be removing it too; what remains is removed next time.
    drop(std::fs::remove_dir_all(folder));
}

/// The number of bytes in a folder.
fn dir_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Saves the state of each path before a turn changes it.
#[derive(Debug)]
pub struct ChangeRecorder {
    undo: UndoStore,
    turn_info: Deferred<TurnInfo>,
    /// The paths of nanobot's own state. The run itself changes it, not its commands.
    own_state: Deferred<Vec<PathBuf>>,
    /// Present from the first change on.
    journal: Option<OpenJournal>,
    /// Present from the first command on that may change files.
    snapshot: Option<DirectorySnapshot>,
    /// The changes of commands that cannot be undone.
    gaps: BTreeSet<JournalGap>,
}

#[derive(Debug)]
struct OpenJournal {
    dir: PathBuf,
    /// Locked while the turn is running.
    file: File,
    /// The number of recorded changes of each path. A path's own number is that of the paths before it.
    change_counts: HashMap<PathBuf, usize>,
    /// The directories that the turn created.
    created_dirs: HashSet<PathBuf>,
    /// Bytes saved so far.
    saved_bytes: u64,
}

impl ChangeRecorder {
    /// Creates a recorder. No folder is created before the first change. Changes of commands in `own_state` are not recorded: these paths
    /// contain sessions, the ledger and other state.
    pub fn new(
        undo: UndoStore,
        turn_info: Deferred<TurnInfo>,
        own_state: Deferred<Vec<PathBuf>>,
    ) -> Self {
        Self { undo, turn_info, own_state, journal: None, snapshot: None, gaps: BTreeSet::new() }
    }

    /// Prepares for a command that may change the content of `writable`, absolute paths that are free of links.
    ///
    /// # Errors
    /// The files cannot be copied, so the command's changes cannot be undone.
    pub(crate) fn begin_command(&mut self, writable: &[PathBuf]) -> Result<()> {
        if self.snapshot.as_ref().is_some_and(|snapshot| snapshot.running > 0) {
            self.record_command_changes()?;
        } else {
            self.open_journal()?.append(&JournalLine::CommandsBegun)?;
        }
        if self.snapshot.is_none() {
            let snapshot = DirectorySnapshot::new(&self.undo.dir, self.own_state.to_vec())
                .context("create a temporary file")?;
            self.snapshot = Some(snapshot);
        }
        let snapshot = self.snapshot.as_mut().expect("it was created just now");
        let result = snapshot.refresh(writable);
        snapshot.running += 1;
        result.context("copy the files that a command may change")
    }

    /// Records the changes of a command that has ended.
    ///
    /// # Errors
    /// The changes cannot be saved, so they cannot be undone.
    pub(crate) fn end_command(&mut self) -> Result<()> {
        let Some(snapshot) = &mut self.snapshot else {
            return Ok(());
        };
        snapshot.running = snapshot.running.saturating_sub(1);
        let has_ended = snapshot.running == 0;
        self.record_command_changes()?;
        if has_ended { self.open_journal()?.append(&JournalLine::CommandsEnded) } else { Ok(()) }
    }

    /// Records the changes of all commands, which have ended, and ends the recording of the turn. Returns the changes that cannot be
    /// undone; moves of git's `HEAD` only beside changes that can, since a user who asked for nothing else takes them for granted.
    ///
    /// # Errors
    /// As for [`Self::end_command`].
    pub(crate) fn end_turn(&mut self) -> Result<BTreeSet<JournalGap>> {
        if let Some(snapshot) = &mut self.snapshot
            && snapshot.running > 0
        {
            snapshot.running = 1;
            self.end_command()?;
        }
        let has_changes = self.journal.as_ref().is_some_and(|journal| {
            !journal.change_counts.is_empty() || !journal.created_dirs.is_empty()
        });
        if let Some(journal) = &self.journal
            && self.gaps.is_empty()
            && !has_changes
        {
            std::fs::remove_dir_all(&journal.dir)
                .with_context(|| format!("remove `{}`", journal.dir.display()))?;
            self.journal = None;
        }
        let mut gaps = std::mem::take(&mut self.gaps);
        gaps.retain(|gap| has_changes || !gap.is_moved_head);
        Ok(gaps)
    }

    fn record_command_changes(&mut self) -> Result<()> {
        let Some(snapshot) = &mut self.snapshot else {
            return Ok(());
        };
        let changes = snapshot.take_changes();
        let gaps = std::mem::take(&mut snapshot.gaps);
        if changes.is_empty() && gaps.is_subset(&self.gaps) {
            return Ok(());
        }
        for gap in gaps {
            if self.gaps.insert(gap.clone()) {
                self.open_journal()?.append(&JournalLine::Gap(gap))?;
            }
        }
        for (path, change) in &changes {
            let (before, new) = match change {
                CommandChange::CreatedDirectory => {
                    self.record_directory(path)?;
                    continue;
                }
                CommandChange::Changed { before, digest } => (before, Some(digest.clone())),
                CommandChange::Removed { before } => (before, None),
            };
            self.append_change(path, before, new, None)?;
        }
        self.open_journal()?.sync()
    }

    /// Records that the directory `path` is about to be created.
    pub(crate) fn record_directory(&mut self, path: &Path) -> Result<()> {
        let journal = self.open_journal()?;
        journal.append(&JournalLine::CreatedDirectory(path.to_owned()))?;
        journal.created_dirs.insert(path.to_owned());
        Ok(())
    }

    /// Records that `path` is about to get the content `new` and `mode`, or to be removed if the content is `None`, through the temporary
    /// file `temp` beside it. False if the file stays as it is, so that there is nothing to record.
    ///
    /// # Errors
    /// The current state cannot be saved. The caller must not make the change then.
    pub(crate) fn record_change(
        &mut self,
        path: &Path,
        before: &PreviousState<'_>,
        new: Option<&[u8]>,
        new_mode: Option<u32>,
        temp: &str,
    ) -> Result<bool> {
        let is_first_change = |journal: &OpenJournal| !journal.change_counts.contains_key(path);
        if let (PreviousState::File { bytes, mode }, Some(new)) = (before, new)
            && **bytes == *new
            && new_mode.is_none_or(|new_mode| new_mode == *mode)
            && self.journal.as_ref().is_none_or(is_first_change)
        {
            return Ok(false);
        }
        let is_first = self.append_change(path, before, new.map(digest), Some(temp))?;
        if is_first {
            self.open_journal()?.sync()?;
        }
        // Later lines about a path only show who made the last change, so they need not be on disk at once.
        Ok(true)
    }

    /// Records that the last recorded change, that of `path`, was not made.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn cancel_change(&mut self, path: &Path) -> Result<()> {
        let journal = self.open_journal()?;
        journal.append(&JournalLine::Cancelled(path.to_owned()))?;
        let count = journal.change_counts.remove(path).unwrap_or_default();
        if count > 1 {
            journal.change_counts.insert(path.to_owned(), count - 1);
            return Ok(());
        }
        // The next path gets the number of this one.
        journal.remove_copy(journal.change_counts.len())
    }

    /// Like [`Self::record_change`], but without syncing the journal; `temp` is `None` for a change while a command ran. True if
    /// this is the first change of `path`.
    fn append_change(
        &mut self,
        path: &Path,
        before: &PreviousState<'_>,
        new_digest: Option<String>,
        temp: Option<&str>,
    ) -> Result<bool> {
        let journal = self.open_journal()?;
        let is_first = !journal.change_counts.contains_key(path);
        let number = journal.change_counts.len();
        let saved_bytes = journal.saved_bytes;
        let save = |journal: &mut OpenJournal| {
            let state = match before {
                _ if !is_first => None,
                // A directory that this turn created did not exist before it.
                PreviousState::Directory { .. } if journal.created_dirs.contains(path) => {
                    Some(RestorableState::Nothing)
                }
                before => Some(journal.save_state(number, before)?),
            };
            journal.append(&JournalLine::Change {
                path: path.to_owned(),
                before: state,
                new_digest,
                temp: temp.unwrap_or_default().to_owned(),
                during_command: temp.is_none(),
            })
        };
        if let Err(error) = save(journal) {
            journal.saved_bytes = saved_bytes;
            if is_first {
                // If this fails too, no copy can be written under this number, and such changes are refused.
                drop(journal.remove_copy(number));
            }
            return Err(error);
        }
        // The reader counts the lines, so only what has one counts.
        *journal.change_counts.entry(path.to_owned()).or_default() += 1;
        Ok(is_first)
    }

    fn open_journal(&mut self) -> Result<&mut OpenJournal> {
        if self.journal.is_none() {
            let id = self.undo.create_turn_dir()?;
            let dir = self.undo.turn_dir(id);
            let file = durable_file::open_append(&dir.join(journal::JOURNAL_FILE))?;
            // The file is new, so the lock cannot be contended. On file systems without locks, the turn merely looks
            // finished.
            drop(file.try_lock());
            let mut journal = OpenJournal {
                dir,
                file,
                change_counts: HashMap::new(),
                created_dirs: HashSet::new(),
                saved_bytes: 0,
            };
            journal.append(&JournalLine::Turn(TurnInfo::clone(&self.turn_info)))?;
            self.journal = Some(journal);
        }
        Ok(self.journal.as_mut().expect("it was opened just now"))
    }
}

impl OpenJournal {
    /// Saves the current state as entry `number`.
    fn save_state(&mut self, number: usize, before: &PreviousState<'_>) -> Result<RestorableState> {
        Ok(match before {
            PreviousState::Nothing => RestorableState::Nothing,
            PreviousState::Link(target) => RestorableState::Link { target: target.to_path_buf() },
            PreviousState::Directory { mode } => RestorableState::Directory { mode: *mode },
            PreviousState::File { bytes, mode } => {
                let size = bytes.len() as u64;
                if self.saved_bytes + size > MAX_TURN_BYTES {
                    return Err(anyhow!(
                        "this turn has already saved {} for `nanobot undo`, and this file would exceed the limit",
                        durable_file::format_size(self.saved_bytes)
                    ));
                }
                write_copy(&journal::copy_path(&self.dir, number), bytes)?;
                self.saved_bytes += size;
                RestorableState::File { hash: digest(bytes), mode: *mode }
            }
        })
    }

    /// Removes the copy of entry `number`, if there is one.
    fn remove_copy(&self, number: usize) -> Result<()> {
        let copy = journal::copy_path(&self.dir, number);
        match std::fs::remove_file(&copy) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove `{}`", copy.display()))
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self, line: &JournalLine) -> Result<()> {
        append_line(&self.file, &self.dir.join(journal::JOURNAL_FILE), line)
    }

    fn sync(&self) -> Result<()> {
        durable_file::sync(&self.file, &self.dir)
    }
}

fn append_line(journal: &File, path: &Path, line: &JournalLine) -> Result<()> {
    let mut text = serde_json::to_vec(line).context("serialize a line of the journal")?;
    text.push(b'\n');
    durable_file::append_to(journal, path, durable_file::size(journal, path)?, &text)
}

/// Writes a copy of `bytes` to `path`.
fn write_copy(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let result = file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()
    });
    result.with_context(|| format!("write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use super::journal::{JOURNAL_FILE, PreviousState};
    use super::restore::{RestoreDirection, RestorePlan};
    use super::{ChangeRecorder, UndoStore};
    use nanobot_os::age::Age;
    use nanobot_os::deferred::Deferred;
    use std::fs::File;

    #[test]
    fn a_change_whose_line_cannot_be_written_does_not_count() {
        let temp = tempfile::tempdir().unwrap();
        let store = UndoStore::new(temp.path().join("undo"), Age::Never);
        let mut recorder =
            ChangeRecorder::new(store.clone(), Deferred::default(), Deferred::default());
        let paths = ["a", "b", "c"].map(|name| temp.path().join(name));
        let record = |recorder: &mut ChangeRecorder, index: usize| {
            let old = format!("old {index}");
            std::fs::write(&paths[index], &old).unwrap();
            let before = PreviousState::File { bytes: old.as_bytes().into(), mode: 0o644 };
            recorder.record_change(&paths[index], &before, Some(b"new"), None, "temp")
        };
        record(&mut recorder, 0).unwrap();
        // A file that cannot be written stands for a full disk.
        let journal = recorder.journal.as_mut().unwrap();
        let read_only = File::open(journal.dir.join(JOURNAL_FILE)).unwrap();
        let writable = std::mem::replace(&mut journal.file, read_only);
        record(&mut recorder, 1).unwrap_err();
        recorder.journal.as_mut().unwrap().file = writable;
        record(&mut recorder, 2).unwrap();
        record(&mut recorder, 1).unwrap();
        for path in &paths {
            std::fs::write(path, "new").unwrap();
        }
        drop(recorder);
        let turn = store.turns(&mut |_, error| panic!("{error:#}")).unwrap().remove(0);
        RestorePlan::new(&turn, &[], RestoreDirection::Undo).unwrap().execute("now").unwrap();
        let contents = paths.map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(contents, ["old 0", "old 1", "old 2"]);
    }
}
