//! Sessions as files: listed, read whole, removed, pruned.

use super::line::{self, Line};
use super::place::{Place, key_in};
use super::{lock_path, tail, whole_lines};
use crate::error::{Exit, fail_hint};
use crate::message::Message;
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a list says of a session.
#[derive(Clone, Debug)]
pub struct Summary {
    pub key: String,
    pub path: PathBuf,
    /// `None` where counting them would mean to read a large file.
    pub messages: Option<usize>,
    /// Local time, as the session has it.
    pub updated: String,
    pub bytes: u64,
    modified: SystemTime,
}

/// Files up to this size are counted when another program wrote them last.
const COUNT_LIMIT: u64 = 8 << 20;

/// All sessions, newest first.
pub fn list(place: &Place) -> Result<Vec<Summary>> {
    let mut found: Vec<Summary> = Vec::new();
    for dir in place.directories() {
        for path in logs(dir)?.into_iter().filter(|path| path.is_file()) {
            let Some(summary) = summary(&path)? else {
                continue;
            };
            if !found.iter().any(|other| other.key == summary.key) {
                found.push(summary);
            }
        }
    }
    found.sort_by(|one, other| {
        other
            .modified
            .cmp(&one.modified)
            .then_with(|| one.key.cmp(&other.key))
    });
    Ok(found)
}

fn logs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read `{}`", dir.display())),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
        .collect())
}

/// `None` for a file that is gone meanwhile.
fn summary(path: &Path) -> Result<Option<Summary>> {
    let Some(file) = store::open_existing(path)? else {
        return Ok(None);
    };
    let what = || format!("look at `{}`", path.display());
    let about = file.metadata().with_context(what)?;
    let end = whole_lines(&file, path)?;
    let peeked = tail::peek(&file, path, end)?;
    let known = peeked.is_some() || end <= COUNT_LIMIT;
    let tail = match peeked {
        Some(tail) => tail,
        None if known => tail::read(&file, path, end, 0)?,
        None => tail::Tail::default(),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Some(Summary {
        key: tail
            .metadata
            .key
            .unwrap_or_else(|| stem.replacen('_', ":", 1)),
        path: path.to_owned(),
        messages: known.then_some(tail.count),
        updated: tail.metadata.updated_at.unwrap_or_default(),
        bytes: about.len(),
        modified: about.modified().with_context(what)?,
    }))
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
    let path = place.find(key)?;
    let file = store::open_existing(&path)?.ok_or_else(|| none(key))?;
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let (mut at, mut number) = (0, 0);
    Ok(std::iter::from_fn(move || {
        loop {
            let mut text = Vec::new();
            match tail::next_line(&mut reader, &mut text) {
                Ok(0) => return None,
                Err(error) => {
                    return Some(Err(error).with_context(|| format!("read `{}`", path.display())));
                }
                Ok(length) => {
                    let place = at;
                    at += length;
                    match line::parse(&text) {
                        Line::Message(message) => {
                            number += 1;
                            let Some(message) = message else { continue };
                            let (time, turn) = line::stamp(&text);
                            let logged = Logged {
                                number: number - 1,
                                time,
                                turn,
                                message,
                            };
                            return Some(Ok(Entry::Message(Box::new(logged))));
                        }
                        Line::Bad if !text.is_empty() => {
                            return Some(Ok(Entry::Bad(place)));
                        }
                        _ => {}
                    }
                }
            }
        }
    }))
}

fn none(key: &str) -> anyhow::Error {
    fail_hint(
        Exit::NoInput,
        format!("there is no session `{key}`"),
        "nanobot session list",
    )
}

/// Remove a session for good, with what was kept aside of it.
///
/// # Errors
/// Status 66 when there is none, 75 when it is in use.
pub fn remove(place: &Place, key: &str) -> Result<()> {
    let path = place.find(key)?;
    store::open_existing(&path)?.ok_or_else(|| none(key))?;
    let what = format!("session `{key}`");
    let lock = Lock::take(
        &lock_path(&path),
        &what,
        &place.clock.stamp(),
        Duration::ZERO,
        &mut |_| {},
    )?;
    // What lies where other releases keep sessions would come back in its place.
    for copy in place.copies(key)? {
        remove_files(&copy)?;
    }
    lock.remove()
}

fn remove_files(path: &Path) -> Result<()> {
    let (dir, name) = (
        path.parent().unwrap_or(Path::new(".")),
        path.file_name().unwrap_or_default(),
    );
    let torn = format!("{}.torn-", name.to_string_lossy());
    let aside = std::fs::read_dir(dir)
        .with_context(|| format!("read `{}`", dir.display()))?
        .flatten();
    let aside = aside
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&torn))
        .map(|entry| entry.path());
    for path in aside.chain([path.to_owned()]) {
        std::fs::remove_file(&path).with_context(|| format!("remove `{}`", path.display()))?;
    }
    Ok(())
}

/// Fresh sessions of piped input are kept so long.
const PIPES_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// And so many are removed at a time: a run must not notice it.
const PRUNED_AT_ONCE: usize = 8;

/// Remove old sessions of piped input. One that is in use is left alone, and so is one that will not go.
pub fn prune(place: &Place) -> Result<()> {
    let Some(limit) = SystemTime::from(place.clock.timestamp()).checked_sub(PIPES_KEPT) else {
        return Ok(());
    };
    let is_pipe = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy())
            // The second is `pipe:` in the coded names of newer releases.
            .is_some_and(|name| name.starts_with("pipe_") || name.starts_with("cGlwZT"))
    };
    // The name is a hint only: a user's own key may look like it.
    let of_a_pipe = |path: &PathBuf| {
        key_in(path).is_ok_and(|key| key.is_some_and(|key| key.starts_with("pipe:")))
    };
    let is_old = |path: &PathBuf| {
        std::fs::metadata(path)
            .and_then(|about| about.modified())
            .is_ok_and(|modified| modified < limit)
    };
    for path in logs(place.home())?
        .into_iter()
        .filter(is_pipe)
        .filter(is_old)
        .filter(of_a_pipe)
        .take(PRUNED_AT_ONCE)
    {
        if let Ok(lock) = Lock::take(
            &lock_path(&path),
            "session",
            &place.clock.stamp(),
            Duration::ZERO,
            &mut |_| {},
        ) && is_old(&path)
            && remove_files(&path).is_ok()
        {
            drop(lock.remove());
        }
    }
    Ok(())
}
