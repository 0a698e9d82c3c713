//! Lists of the objects that git repositories had before the commands of a run, and of the objects that commands wrote while their
//! conversation had untrusted content.
//!
//! The name of an object is a digest of its content, so a list of names says what git had, however the repository is packed
//! later. The names of the objects that commands write are kept after the run: a later run must not accept an instruction file from git
//! that an earlier run put there. Objects that the user commits, fetches or packs between two runs are trusted.
//!
//! The file has one record on each line: `begin TIME ID` before a command; `in DIRECTORY`, a digest of the path of the
//! objects, and the name of each object that the command wrote there; `end ID` after it. `granted NAME` is for the content of
//! an instruction file that the user allowed. If a run is killed, the next one adds `killed ID TIME`: objects that appeared between these
//! times are treated as written by commands.

use super::git_object_list::{ObjectList, ObjectName, blob_name, format_name, parse_name};
use nanobot_os::clock::{FileTime, current_file_time};
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use parking_lot::Mutex;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The size of the file from which on no more names are added. Objects that are written later are recognised by their time.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The identifier of the record that is added then. It has no end.
const FULL: &str = "full";
/// Later than any file.
const NEVER: FileTime = (i64::MAX, 0);

/// The objects of the repositories that the commands of a run may write to.
#[derive(Debug)]
pub struct GitHistory {
    /// The start of the run: newer objects were written in it.
    started: FileTime,
    /// The file with the names of written objects. Without it, they are known in this run only.
    file: Option<PathBuf>,
    state: Mutex<HistoryState>,
}

#[derive(Debug, Default)]
struct HistoryState {
    is_loaded: bool,
    /// The objects that each directory had before the first command, by its real path.
    before: HashMap<PathBuf, ObjectList>,
    /// The names of the contents that the instruction files had before the first command. Commands such as `git stash` give
    /// them to git.
    on_disk: HashMap<PathBuf, ObjectName>,
    /// The names of the objects that commands wrote, by the digest of the directory.
    written: HashMap<String, HashSet<ObjectName>>,
    /// The names of contents of instruction files that were granted in this run.
    granted: HashSet<ObjectName>,
    /// The times in which runs wrote objects without a record of them.
    unrecorded: Vec<(FileTime, FileTime)>,
    /// True after the start of the first command.
    has_begun: bool,
    /// The number of commands under way.
    running: usize,
    /// True if the objects that a command wrote could not be recorded. Its record then gets no end, so that later runs recognise the
    /// objects by their time.
    has_failed: bool,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct CommandRecord(Arc<GitHistory>);

impl Default for GitHistory {
    fn default() -> Self {
        Self::new(None)
    }
}

impl GitHistory {
    /// The history of a run that starts now. It is kept in `file`.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { started: current_file_time(), file, state: Mutex::default() }
    }

    /// Records the objects that the object `directories` have before a command, and the `contents` of instruction files. File tools never
    /// write in a `.git` or in the `git_dirs`, so these show what git had.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) fn begin<'c>(
        self: &Arc<Self>,
        directories: &[PathBuf],
        git_dirs: &[PathBuf],
        contents: impl Iterator<Item = (PathBuf, &'c [u8])>,
    ) -> io::Result<CommandRecord> {
        let mut state = self.state.lock();
        if !state.is_loaded {
            self.load(&mut state)?;
        }
        let is_first = !std::mem::replace(&mut state.has_begun, true);
        if is_first {
            let contents = contents.map(|(path, content)| (path, blob_name(content)));
            state.on_disk = contents.collect();
        }
        for directory in directories {
            if state.before.contains_key(directory) {
                continue;
            }
            let is_older = |time: FileTime| {
                let mut unrecorded = state.unrecorded.iter();
                time <= self.started && !unrecorded.any(|(from, to)| *from <= time && time <= *to)
            };
            // Three kinds of repositories prove nothing: one that appears later, one that file tools can write to, and one that cannot be
            // read.
            let is_git = directory.iter().any(|part| part == ".git")
                || git_dirs.iter().any(|git_dir| directory.starts_with(git_dir));
            let list = if is_first && is_git {
                ObjectList::read(directory, None, &is_older).unwrap_or_default()
            } else {
                ObjectList::default()
            };
            state.before.insert(directory.clone(), list);
        }
        if state.running == 0 {
            let (seconds, nanoseconds) = current_file_time();
            self.append(&format!("begin {seconds}.{nanoseconds} {}\n", self.id()))?;
        }
        state.running += 1;
        Ok(CommandRecord(Arc::clone(self)))
    }

    /// Adds the names of the new objects in the object `directories` to the file.
    fn add_new(&self, state: &mut HistoryState, directories: &[PathBuf]) -> io::Result<()> {
        let mut new_names: BTreeMap<String, BTreeSet<ObjectName>> = BTreeMap::new();
        let mut result = Ok(());
        for directory in directories {
            let before = state.before.get(directory);
            let after = match ObjectList::read(directory, before, &|_| true) {
                Ok(after) => after,
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            let key = directory_key(directory);
            let is_new = |name: &&ObjectName| {
                let written = state.written.get(&key);
                let mut on_disk = state.on_disk.values();
                !written.is_some_and(|names| names.contains(*name))
                    && !on_disk.any(|other| other == *name)
                    && !state.before.keys().any(|other| state.had(other, name))
            };
            let names: BTreeSet<ObjectName> =
                after.names_in_new_files(before).filter(is_new).copied().collect();
            if !names.is_empty() {
                new_names.insert(key, names);
            }
        }
        let mut text = String::new();
        for (key, names) in &new_names {
            text.push_str(&format!("in {key}\n"));
            for name in names {
                text.push_str(&format_name(name));
                text.push('\n');
            }
        }
        let is_full = |file: &PathBuf| {
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            size + text.len() as u64 > MAX_FILE_BYTES
        };
        if !text.is_empty() && self.file.as_ref().is_some_and(is_full) {
            let (seconds, nanoseconds) = self.started;
            text = format!("begin {seconds}.{nanoseconds} {FULL}\n");
        }
        self.append(&text)?;
        for (key, names) in new_names {
            state.written.entry(key).or_default().extend(names);
        }
        result
    }

    /// True if one of the object `directories` had `name` before the commands of this run, and no earlier run wrote it.
    pub(super) fn had(&self, directories: &[PathBuf], name: &ObjectName) -> bool {
        let state = self.state.lock();
        directories.iter().any(|path| state.had(path, name))
    }

    /// True if the instruction file at `path` had this content before the commands of this run.
    pub(super) fn was_on_disk(&self, path: &Path, content: &[u8]) -> bool {
        let state = self.state.lock();
        state.on_disk.get(path) == Some(&blob_name(content))
    }

    /// Records that instruction files may have these `contents`, whichever run wrote them into git.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn grant<'c>(&self, contents: impl Iterator<Item = &'c [u8]>) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut text = String::new();
        for name in contents.map(blob_name) {
            if !state.is_loaded {
                self.load(&mut state)?;
            }
            state.granted.insert(name);
            if state.forget(&name) {
                text.push_str(&format!("granted {}\n", format_name(&name)));
            }
        }
        self.append(&text)
    }

    fn load(&self, state: &mut HistoryState) -> io::Result<()> {
        let Some(file) = &self.file else {
            state.is_loaded = true;
            return Ok(());
        };
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|error| {
                io::Error::new(error.kind(), format!("read `{}`: {error}", file.display()))
            })?,
        };
        // The commands whose records have no end yet, by their runs, with the time of their start.
        let mut open: BTreeMap<&str, FileTime> = BTreeMap::new();
        let mut key = "";
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields[..] {
                ["begin", time, id] => {
                    // If there are several records without an end, the earliest one is used.
                    open.entry(id).or_insert_with(|| parse_time(time));
                }
                ["end", id] => {
                    open.remove(id);
                }
                ["killed", id, time] => {
                    let from = open.remove(id).unwrap_or_default();
                    state.unrecorded.push((from, parse_time(time)));
                }
                ["granted", name] => {
                    if let Some(name) = parse_name(name) {
                        state.forget(&name);
                    }
                }
                ["in", directory] => key = directory,
                [name] => {
                    let written = state.written.entry(key.to_owned()).or_default();
                    written.extend(parse_name(name));
                }
                _ => {}
            }
        }
        let (seconds, nanoseconds) = current_file_time();
        for (id, from) in open {
            let to = if is_running(id) {
                NEVER
            } else {
                self.append(&format!("killed {id} {seconds}.{nanoseconds}\n"))?;
                (seconds, nanoseconds)
            };
            state.unrecorded.push((from, to));
        }
        state.is_loaded = true;
        Ok(())
    }

    /// Appends complete lines. Several runs write to the file at once, and one that was killed may have left an incomplete line.
    fn append(&self, text: &str) -> io::Result<()> {
        match &self.file {
            Some(file) if !text.is_empty() => {
                durable_file::append_line(file, text.as_bytes()).map_err(io::Error::other)
            }
            _ => Ok(()),
        }
    }

    /// Identifies this run: its process, and its start.
    fn id(&self) -> String {
        let (seconds, nanoseconds) = self.started;
        format!("{}-{seconds}.{nanoseconds}", std::process::id())
    }
}

impl HistoryState {
    /// True if the object `directory` had `name` before, and no earlier run wrote it there, or if it is granted.
    fn had(&self, directory: &Path, name: &ObjectName) -> bool {
        let written = self.written.get(&directory_key(directory));
        let list = self.before.get(directory);
        self.granted.contains(name)
            || (list.is_some_and(|list| list.contains(name))
                && !written.is_some_and(|names| names.contains(name)))
    }

    /// Forgets that commands wrote `name`. Returns true if they did.
    fn forget(&mut self, name: &ObjectName) -> bool {
        let mut was_written = false;
        for names in self.written.values_mut() {
            was_written |= names.remove(name);
        }
        was_written
    }
}

impl CommandRecord {
    /// Records the objects that the command has written into the object `directories`.
    pub(super) fn add_new(&self, directories: &[PathBuf]) {
        let mut state = self.0.state.lock();
        if let Err(error) = self.0.add_new(&mut state, directories) {
            log::warn!(target: "sandbox", "record what a command wrote into git: {error}");
            state.has_failed = true;
        }
    }
}

impl Drop for CommandRecord {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        if state.running == 0 && !state.has_failed {
            // If this fails, the objects that the command wrote are recognised by their time.
            drop(self.0.append(&format!("end {}\n", self.0.id())));
        }
    }
}

/// True if the run of this identifier still runs, or if it is [`FULL`], whose record has no end.
fn is_running(id: &str) -> bool {
    let pid = id.split('-').next().and_then(|pid| pid.parse().ok());
    id == FULL
        || pid
            .and_then(Pid::from_raw)
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

fn directory_key(directory: &Path) -> String {
    digest(directory.as_os_str().as_encoded_bytes())
}

fn parse_time(text: &str) -> FileTime {
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    (seconds.parse().unwrap_or_default(), nanoseconds.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::GitHistory;

    #[test]
    fn an_incomplete_record_is_ended() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("history");
        std::fs::write(&file, "in 12").unwrap();
        GitHistory::new(Some(file.clone())).append("begin 1.2 3-4.5\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "in 12\nbegin 1.2 3-4.5\n");
    }
}
