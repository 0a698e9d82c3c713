//! Session files: listing a directory, and reading a whole file.

use super::integrity::end_of_last_line;
use super::layout::{SessionStore, key_from_name, read_key};
use super::line::{self, SessionLine};
use super::metadata::ModelChoice;
use super::tail_reader::{self, MessageWindow};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, UserAction, fail_with_parts};
use nanobot_base::message::Message;
use nanobot_os::durable_file;
use std::collections::HashSet;
use std::fs::{DirEntry, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Minimum similarity (0 to 1) for suggesting another key.
const MIN_SIMILARITY: f64 = 0.8;

/// Lists the session files of a directory.
pub(super) fn list_logs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = durable_file::list_dir(dir)?;
    // Opening a pipe or a device could block.
    let is_file = |entry: &&DirEntry| {
        let kind = entry.file_type();
        kind.is_ok_and(|kind| kind.is_file() || kind.is_symlink())
    };
    let paths = entries.iter().filter(is_file).map(DirEntry::path);
    Ok(paths.filter(|path| path.extension().is_some_and(|kind| kind == "jsonl")).collect())
}

/// One entry of a log that is read from its beginning.
#[derive(Debug)]
pub enum SessionEntry {
    Message(Box<LoggedMessage>),
    /// An unreadable line, and its byte offset.
    Invalid(u64),
}

/// A message in the log, with its metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedMessage {
    /// Its index: the number of messages before it.
    pub index: usize,
    /// Local time as written in the log; empty if there is none.
    pub time: String,
    /// The turn it belongs to; empty for messages of other programs.
    pub turn: String,
    pub message: Message,
}

/// Iterates over all entries of a session, oldest first.
///
/// # Errors
/// Status 66 if there is no such session.
pub fn read_entries(
    store: &SessionStore,
    key: &str,
) -> Result<impl Iterator<Item = Result<SessionEntry>>> {
    let (path, file) = open(store, key)?;
    Ok(iter_entries(file, path, 0))
}

/// Iterates over the last `count` messages of a session and the unreadable lines among them.
///
/// # Errors
/// Status 66 if there is no such session.
pub fn read_last_entries(
    store: &SessionStore,
    key: &str,
    count: usize,
) -> Result<impl Iterator<Item = Result<SessionEntry>>> {
    let (path, file) = open(store, key)?;
    let size = end_of_last_line(&file, &path)?;
    let tail = tail_reader::read(&file, &path, size, MessageWindow::default())?;
    Ok(iter_entries(file, path, tail.count.saturating_sub(count)))
}

/// The model that the user has chosen for the conversation of a session.
///
/// # Errors
/// The session cannot be read.
pub fn read_model_choice(store: &SessionStore, key: &str) -> Result<ModelChoice> {
    let path = store.find_path(key)?;
    let Some(file) = durable_file::open_existing(&path)? else {
        return Ok(ModelChoice::default());
    };
    let size = end_of_last_line(&file, &path)?;
    let tail = tail_reader::read(&file, &path, size, MessageWindow::default())?;
    Ok(tail.metadata.session_metadata().model_choice)
}

/// The ids of the turns of a session since its last `/new`; none if it is not stored yet. A fork has those that it was copied
/// with.
pub fn read_conversation_turns(store: &SessionStore, key: &str) -> Result<HashSet<String>> {
    let (mut text, mut turns) = (Vec::new(), HashSet::new());
    let path = store.find_path(key)?;
    let Some(file) = durable_file::open_existing(&path)? else {
        return Ok(turns);
    };
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, file);
    loop {
        let length = tail_reader::next_line(&mut reader, &mut text);
        if length.with_context(|| format!("read `{}`", path.display()))? == 0 {
            return Ok(turns);
        }
        if line::begins_conversation(&text) {
            turns.clear();
        } else {
            // A compaction has a line about its end, and no message.
            let (_, turn) = line::timestamp_and_turn(&text);
            turns.extend(Some(turn).filter(|turn| !turn.is_empty()));
        }
    }
}

/// Opens the file of a session for raw reading.
///
/// # Errors
/// Status 66 if there is no such session.
pub fn open_raw(store: &SessionStore, key: &str) -> Result<File> {
    Ok(open(store, key)?.1)
}

/// Opens the file of a session for reading.
///
/// # Errors
/// Status 66 if there is no such session, with the key that was probably meant.
pub(super) fn open(store: &SessionStore, key: &str) -> Result<(PathBuf, File)> {
    let path = store.find_path(key)?;
    match durable_file::open_existing(&path)? {
        Some(file) => Ok((path, file)),
        None => Err(not_found_error(store, key)),
    }
}

/// Iterates over the messages after the first `skip`, and the unreadable lines among them.
fn iter_entries(
    file: File,
    path: PathBuf,
    skip: usize,
) -> impl Iterator<Item = Result<SessionEntry>> {
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, file);
    let mut next_offset = 0;
    let mut count = 0;
    let mut text = Vec::new();
    std::iter::from_fn(move || {
        loop {
            let offset = next_offset;
            match tail_reader::next_line(&mut reader, &mut text) {
                Ok(0) => return None,
                Err(error) => {
                    return Some(Err(error).with_context(|| format!("read `{}`", path.display())));
                }
                Ok(length) => next_offset += length,
            }
            // Skipped messages are counted without full parsing.
            if count < skip && line::is_message(&text) {
                count += 1;
                continue;
            }
            match line::parse(&text) {
                SessionLine::Message(message) => {
                    count += 1;
                    if count <= skip {
                        continue;
                    }
                    let Some(message) = message else {
                        continue;
                    };
                    let (time, turn) = line::timestamp_and_turn(&text);
                    let logged = LoggedMessage { index: count - 1, time, turn, message };
                    return Some(Ok(SessionEntry::Message(Box::new(logged))));
                }
                SessionLine::Invalid if !text.is_empty() && count >= skip => {
                    return Some(Ok(SessionEntry::Invalid(offset)));
                }
                _ => {}
            }
        }
    })
}

/// Creates the error for a missing session, with a hint at a similar key.
pub fn not_found_error(store: &SessionStore, key: &str) -> anyhow::Error {
    let parts = match nearest_key(store, key) {
        // The key is listed, but its file is not where a lookup finds it.
        Some(nearest) if nearest == key => vec!["nanobot session repair --all --dry-run".into()],
        Some(nearest) => {
            vec![format!("`{nearest}`, or a key from ").into(), UserAction::ListSessions.into()]
        }
        None => vec!["nanobot session list".into()],
    };
    fail_with_parts(Exit::NoInput, format!("there is no session `{key}`"), parts)
}

/// The key most similar to `key`: one that contains it, or one with nearly the same spelling.
fn nearest_key(store: &SessionStore, key: &str) -> Option<String> {
    let mut best: Option<(f64, String)> = None;
    for dir in store.directories() {
        for path in list_logs(dir).unwrap_or_default() {
            let stored_key = read_key(&path).ok().flatten();
            let candidate = stored_key.unwrap_or_else(|| key_from_name(&path));
            let similarity = if !key.is_empty() && candidate.contains(key) {
                1.0
            } else {
                strsim::jaro_winkler(key, &candidate)
            };
            let is_better = best.as_ref().is_none_or(|(highest, _)| similarity > *highest);
            if similarity >= MIN_SIMILARITY && is_better {
                best = Some((similarity, candidate));
            }
        }
    }
    Some(best?.1)
}
