//! The journal of a turn: a record of each change, written before the change is made.
//!
//! Because each line precedes its change, an interruption at any point leaves no change unrecorded. An incomplete last
//! line belongs to a change that was not made.
//!
//! Commands announce no change. That one runs is recorded, so that a killed run is known to have lost its changes; and so is each
//! change of a command that cannot be undone, so that no earlier turn is mistaken for the last one.

use anyhow::{Context, Result};
use nanobot_os::durable_file;
use nanobot_os::wire_paths;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::{Display, Formatter};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// The file name of a journal in the folder of its turn.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// The copy of the content that the path `index` had before the turn whose folder is `dir`.
pub(crate) fn copy_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("{index}.old"))
}

/// True if a live run is still writing the journal in `dir`.
pub fn is_running(dir: &Path) -> bool {
    let file = File::open(dir.join(JOURNAL_FILE));
    file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The turn that a journal belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInfo {
    /// The turn's id, as in sessions and events.
    pub turn: String,
    /// The session's key.
    pub session: String,
    /// The working directory of the turn.
    #[serde(with = "wire_paths::path")]
    pub directory: PathBuf,
    /// The directory in which the program was started.
    #[serde(rename = "from", with = "wire_paths::path")]
    pub started_in: PathBuf,
    /// Local time of the turn.
    pub time: String,
}

/// The content of a path, to the extent that it can be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestorableState {
    Nothing,
    File {
        /// See [`digest`].
        hash: String,
        mode: u32,
    },
    Link {
        #[serde(with = "wire_paths::path")]
        target: PathBuf,
    },
    Directory {
        mode: u32,
    },
}

impl RestorableState {
    /// True if both have the same content. Modes are ignored, since commands may change them without harm.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        match (self.file_hash(), other.file_hash()) {
            (Some(hash), Some(other_hash)) => hash == other_hash,
            _ if matches!(self, Self::Directory { .. }) => matches!(other, Self::Directory { .. }),
            _ => self == other,
        }
    }

    fn file_hash(&self) -> Option<&str> {
        match self {
            Self::File { hash, .. } => Some(hash),
            Self::Nothing | Self::Link { .. } | Self::Directory { .. } => None,
        }
    }
}

/// The state of a path before a turn changes it.
#[derive(Debug)]
pub enum PreviousState<'a> {
    Nothing,
    File { bytes: Cow<'a, [u8]>, mode: u32 },
    Link(Cow<'a, Path>),
    Directory { mode: u32 },
}

/// A change of a command that cannot be undone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JournalGap {
    /// The path that changed, or the directory whose changes are unknown.
    #[serde(with = "wire_paths::path")]
    pub path: PathBuf,
    /// A clause that says why.
    pub reason: String,
    /// True if git has moved its `HEAD`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_moved_head: bool,
}

impl JournalGap {
    pub(super) fn new(path: &Path, reason: &str) -> Self {
        Self { path: path.to_owned(), reason: reason.to_owned(), is_moved_head: false }
    }

    /// The gap of a turn in which git has moved the `HEAD` of the git directory `path`.
    pub(super) fn moved_head(path: &Path) -> Self {
        let reason =
            "git has moved `HEAD` (a commit, a reset or a checkout), which only git takes back";
        Self { is_moved_head: true, ..Self::new(path, reason) }
    }
}

impl Display for JournalGap {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "`{}`: {}", self.path.display(), self.reason)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalLine {
    Turn(TurnInfo),
    /// This directory is about to be created.
    #[serde(rename = "made")]
    CreatedDirectory(#[serde(with = "wire_paths::path")] PathBuf),
    Change {
        #[serde(with = "wire_paths::path")]
        path: PathBuf,
        /// The state of the path before this turn's first change of it; present only in the first line about the path.
        #[serde(rename = "was", skip_serializing_if = "Option::is_none")]
        before: Option<RestorableState>,
        /// The digest of the new content; `None` if the path is removed.
        #[serde(rename = "becomes")]
        new_digest: Option<String>,
        /// The temporary file in the same directory, through which the content is written.
        temp: String,
        /// True if it changed while a command ran.
        #[serde(rename = "command", default, skip_serializing_if = "std::ops::Not::not")]
        during_command: bool,
    },
    /// The last change that was announced, of this path, was not made.
    Cancelled(#[serde(with = "wire_paths::path")] PathBuf),
    /// Commands run from here on.
    CommandsBegun,
    /// No command runs anymore, and their changes are recorded.
    CommandsEnded,
    Gap(JournalGap),
    /// The turn is about to be undone. Holds the current state of each entry that will change.
    Undoing(Vec<(usize, RestorableState)>),
    /// The turn is about to be undone. Holds the existing directories of the turn, by number, with their modes.
    #[serde(rename = "removing")]
    RemovingDirectories(Vec<(usize, u32)>),
    /// The turn was undone, at this time.
    Undone(String),
    /// The turn was redone, at this time.
    Redone(String),
}

/// A path that a turn changed.
#[derive(Clone, Debug)]
pub struct ChangedPath {
    /// The absolute path.
    pub path: PathBuf,
    /// The state before the turn's first change.
    pub before: RestorableState,
    /// The digests of the contents that the turn left, in order; `None` for a removal.
    pub(crate) written_digests: Vec<Option<String>>,
    /// True if it changed while a command ran, so that another process may have changed it.
    pub during_command: bool,
    /// The state of the path when the turn was undone.
    pub(crate) at_undo: Option<RestorableState>,
}

impl ChangedPath {
    /// True if the turn wrote content with this digest. The content of a link is its target.
    pub(super) fn has_written(&self, digest: &str) -> bool {
        let mut written = self.written_digests.iter().flatten();
        written.any(|written_digest| written_digest == digest)
    }
}

/// A turn that changed something, or may have.
#[derive(Clone, Debug)]
pub struct UndoTurn {
    /// The number of the turn's folder; newer turns have higher numbers.
    pub id: u64,
    /// The folder of the turn.
    pub dir: PathBuf,
    /// The origin of the turn.
    pub info: TurnInfo,
    /// Directories that the turn created, parents first.
    pub(crate) created_dirs: Vec<PathBuf>,
    /// The number and the mode of each created directory that was there when the turn was undone.
    pub(crate) removed_dirs: Vec<(usize, u32)>,
    /// The changed paths, in the order of their first change.
    pub changed_paths: Vec<ChangedPath>,
    /// The changes that cannot be undone.
    pub gaps: Vec<JournalGap>,
    /// True if a command of the turn runs.
    pub(super) is_running_commands: bool,
    /// Temporary files of the turn's writes. They no longer exist unless the run was killed.
    pub(crate) temp_files: Vec<PathBuf>,
    /// The time at which the turn was undone, if it was.
    pub undone_at: Option<String>,
    /// The size of the journal that was read.
    pub(super) journal_bytes: u64,
}

impl UndoTurn {
    /// Reads the turn in `dir`; `None` if its journal is still empty.
    pub(super) fn read(dir: &Path, id: u64) -> Result<Option<Self>> {
        let path = dir.join(JOURNAL_FILE);
        let Some(bytes) = durable_file::read(&path)? else {
            return Ok(None);
        };
        let mut turn: Option<Self> = None;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            let line: JournalLine = serde_json::from_slice(line)
                .with_context(|| format!("read line {} of `{}`", number + 1, path.display()))?;
            match (line, &mut turn) {
                (JournalLine::Turn(info), None) => {
                    turn = Some(Self {
                        id,
                        dir: dir.to_owned(),
                        info,
                        created_dirs: Vec::new(),
                        removed_dirs: Vec::new(),
                        changed_paths: Vec::new(),
                        gaps: Vec::new(),
                        is_running_commands: false,
                        temp_files: Vec::new(),
                        undone_at: None,
                        journal_bytes: bytes.len() as u64,
                    });
                }
                (line, Some(turn)) => turn.apply_line(line),
                (_, None) => return Ok(None),
            }
        }
        if let Some(turn) = &mut turn
            && turn.is_running_commands
            && !is_running(dir)
        {
            turn.is_running_commands = false;
            let reason = "the run was killed while a command ran, so its changes are unknown";
            turn.gaps.push(JournalGap::new(&turn.info.directory, reason));
        }
        Ok(turn)
    }

    /// True if the turn made a change that can be undone.
    pub fn has_changes(&self) -> bool {
        !self.changed_paths.is_empty() || !self.created_dirs.is_empty()
    }

    fn apply_line(&mut self, line: JournalLine) {
        match line {
            JournalLine::Turn(_) => {}
            JournalLine::CreatedDirectory(path) => self.created_dirs.push(path),
            JournalLine::Change { path, before, new_digest, temp, during_command } => {
                if !temp.is_empty() {
                    self.temp_files.push(path.with_file_name(temp));
                }
                if let Some(before) = before {
                    self.changed_paths.push(ChangedPath {
                        path,
                        before,
                        written_digests: vec![new_digest],
                        during_command,
                        at_undo: None,
                    });
                } else if let Some(entry) =
                    self.changed_paths.iter_mut().find(|entry| entry.path == path)
                {
                    entry.written_digests.push(new_digest);
                    entry.during_command |= during_command;
                }
            }
            JournalLine::Cancelled(path) => {
                let changed = |entry: &ChangedPath| entry.path == path;
                if let Some(index) = self.changed_paths.iter().position(changed) {
                    let entry = &mut self.changed_paths[index];
                    entry.written_digests.pop();
                    // The first change of a path is the last entry then, and the next path gets its number.
                    if entry.written_digests.is_empty() {
                        self.changed_paths.remove(index);
                    }
                }
            }
            JournalLine::CommandsBegun => self.is_running_commands = true,
            JournalLine::CommandsEnded => self.is_running_commands = false,
            JournalLine::Gap(gap) => self.gaps.push(gap),
            JournalLine::Undoing(states) => {
                for (number, state) in states {
                    if let Some(entry) = self.changed_paths.get_mut(number) {
                        entry.at_undo = Some(state);
                    }
                }
            }
            // An undo that was interrupted has removed some of them before it was repeated.
            JournalLine::RemovingDirectories(dirs) => self.removed_dirs.extend(dirs),
            JournalLine::Undone(time) => self.undone_at = Some(time),
            JournalLine::Redone(_) => {
                self.undone_at = None;
                self.removed_dirs.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JournalLine, RestorableState, TurnInfo};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn non_utf8_paths_survive_a_round_trip() {
        let odd = OsString::from_vec(b"/a\xff/b\n".to_vec());
        for path in [odd, "/plain".into()] {
            let line = JournalLine::Change {
                path: path.clone().into(),
                before: Some(RestorableState::Link { target: path.clone().into() }),
                new_digest: None,
                temp: String::new(),
                during_command: false,
            };
            let text = serde_json::to_string(&line).unwrap();
            assert!(!text.contains('\n'));
            match serde_json::from_str(&text).unwrap() {
                JournalLine::Change {
                    path: read,
                    before: Some(RestorableState::Link { target }),
                    ..
                } => {
                    assert_eq!((read.as_os_str(), target.as_os_str()), (&*path, &*path));
                }
                other => panic!("{other:?}"),
            }
        }
        let turn_info = serde_json::to_string(&TurnInfo::default()).unwrap();
        assert_eq!(serde_json::from_str::<TurnInfo>(&turn_info).unwrap(), TurnInfo::default());
    }
}
