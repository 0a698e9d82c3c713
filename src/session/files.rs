//! Sessions as files: found, and read whole.

use super::integrity::end_of_last_line;
use super::line::{self, Line};
use super::place::{Place, key_from_name, key_in};
use super::tail;
use crate::error::{Exit, fail_hint};
use crate::message::Message;
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::{DirEntry, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// How much alike two keys are when one is offered for the other, of 1.
const ALIKE: f64 = 0.8;

/// The session files of a directory.
pub(super) fn logs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read `{}`", dir.display())),
    };
    // To open a pipe or a device would mean to wait for it.
    let is_file = |entry: &DirEntry| {
        let kind = entry.file_type();
        kind.is_ok_and(|kind| kind.is_file() || kind.is_symlink())
    };
    let paths = entries.flatten().filter(is_file).map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
        .collect())
}

/// One entry of a log, read from its beginning.
#[derive(Debug)]
pub enum Entry {
    Message(Box<Logged>),
    /// A line that cannot be read, and where it begins.
    Bad(u64),
}

/// A message as it stands in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// How many messages are before it.
    pub number: usize,
    /// When it was said: local time, as written; empty where nothing is.
    pub time: String,
    /// The turn it belongs to; empty for those of other programs.
    pub turn: String,
    pub message: Message,
}

/// All of a session, oldest first.
///
/// # Errors
/// Status 66 when there is none.
pub fn entries(place: &Place, key: &str) -> Result<impl Iterator<Item = Result<Entry>>> {
    let (path, file) = open(place, key)?;
    Ok(entries_of(file, path, 0))
}

/// The last `count` messages of a session, and what cannot be read among them.
///
/// # Errors
/// Status 66 when there is none.
pub fn last_entries(
    place: &Place,
    key: &str,
    count: usize,
) -> Result<impl Iterator<Item = Result<Entry>>> {
    let (path, file) = open(place, key)?;
    let all = tail::read(&file, &path, end_of_last_line(&file, &path)?, 0)?.count;
    Ok(entries_of(file, path, all.saturating_sub(count)))
}

/// The file of a session, as it is.
///
/// # Errors
/// Status 66 when there is none.
pub fn raw(place: &Place, key: &str) -> Result<File> {
    Ok(open(place, key)?.1)
}

/// Open the file of a session to read.
///
/// # Errors
/// Status 66 when there is none, with the key that was probably meant.
pub(super) fn open(place: &Place, key: &str) -> Result<(PathBuf, File)> {
    let path = place.find(key)?;
    match store::open_existing(&path)? {
        Some(file) => Ok((path, file)),
        None => Err(none(place, key)),
    }
}

/// The messages from the one that has `skipped` before it, and the bad lines among them.
fn entries_of(file: File, path: PathBuf, skipped: usize) -> impl Iterator<Item = Result<Entry>> {
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let (mut at, mut number) = (0, 0);
    let mut text = Vec::new();
    std::iter::from_fn(move || {
        loop {
            let place = at;
            match tail::next_line(&mut reader, &mut text) {
                Ok(0) => return None,
                Err(error) => {
                    return Some(Err(error).with_context(|| format!("read `{}`", path.display())));
                }
                Ok(length) => at += length,
            }
            // Most that is passed over needs not be understood.
            if number < skipped && line::is_message(&text) {
                number += 1;
                continue;
            }
            match line::parse(&text) {
                Line::Message(message) => {
                    number += 1;
                    let Some(message) = message.filter(|_| number > skipped) else {
                        continue;
                    };
                    let (time, turn) = line::stamp(&text);
                    let logged = Logged {
                        number: number - 1,
                        time,
                        turn,
                        message,
                    };
                    return Some(Ok(Entry::Message(Box::new(logged))));
                }
                Line::Bad if !text.is_empty() && number >= skipped => {
                    return Some(Ok(Entry::Bad(place)));
                }
                _ => {}
            }
        }
    })
}

/// There is no session `key`; perhaps another was meant.
pub(super) fn none(place: &Place, key: &str) -> anyhow::Error {
    let hint = match nearest(place, key) {
        // It is listed, and lies where nobody looks for it.
        Some(meant) if meant == key => "nanobot session repair --all --dry-run".into(),
        Some(meant) => format!("`{meant}`, or what `nanobot session list` names"),
        None => "nanobot session list".into(),
    };
    fail_hint(Exit::NoInput, format!("there is no session `{key}`"), hint)
}

/// The key that is most like `key`: one that contains it, or one that is spelled nearly so.
fn nearest(place: &Place, key: &str) -> Option<String> {
    let mut best: Option<(f64, String)> = None;
    for dir in place.directories() {
        for path in logs(dir).unwrap_or_default() {
            let found = key_in(&path).ok().flatten();
            let found = found.unwrap_or_else(|| key_from_name(&path));
            let likeness = match !key.is_empty() && found.contains(key) {
                true => 1.0,
                false => strsim::jaro_winkler(key, &found),
            };
            if likeness >= ALIKE && best.as_ref().is_none_or(|(most, _)| likeness > *most) {
                best = Some((likeness, found));
            }
        }
    }
    Some(best?.1)
}
