//! Sessions as a list: what the beginning and the end of each file tell, so that a long conversation costs no more than a
//! short one.

use super::integrity::{end_of_last_line, stat};
use super::kept::Stats;
use super::line::{self, Line};
use super::place::{Place, key_from_name};
use super::{files, tail};
use crate::message::{Message, plain_text};
use crate::sys::store;
use anyhow::{Context, Result};
use jiff::civil::DateTime;
use jiff::{Timestamp, tz::TimeZone};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a list says of a session.
#[derive(Clone, Debug)]
pub struct Summary {
    pub key: String,
    pub path: PathBuf,
    /// `None` where counting them would mean to read a large file.
    pub messages: Option<usize>,
    /// Local time, as the session has it; empty where it has none.
    pub created: String,
    pub updated: String,
    /// When something was said last, as far as that is known.
    pub used: Timestamp,
    pub bytes: u64,
    /// `None` where none were kept.
    pub stats: Option<Stats>,
    /// How the first thing that was asked begins, on one line.
    pub first_words: String,
    /// It was written by a newer release of this program, and is only read.
    pub is_newer: bool,
}

/// What there is, and what of it could not be read.
#[derive(Debug, Default)]
pub struct Listing {
    /// Newest first.
    pub sessions: Vec<Summary>,
    pub failures: Vec<anyhow::Error>,
}

/// Files up to this size are counted when another program wrote them last.
const COUNT_LIMIT: u64 = 8 << 20;
/// The bytes at the beginning that are looked at for the key and the first words.
const HEAD: usize = 8 << 10;
/// Characters of the first words.
const WORDS: usize = 120;
/// From so many files on, they are shared among threads, and among so many.
const SHARED_FROM: usize = 64;
const THREADS: usize = 4;

/// All sessions, newest first. Of several files of one key, the one that is used.
pub fn list(place: &Place) -> Result<Listing> {
    let mut listing = Listing::default();
    let mut paths = Vec::new();
    for dir in place.directories() {
        paths.extend(files::logs(dir)?);
    }
    let zone = place.clock.now().time_zone().clone();
    let mut keys = HashSet::new();
    for summary in summaries(&paths, &zone) {
        match summary {
            Ok(Some(summary)) if keys.insert(summary.key.clone()) => {
                listing.sessions.push(summary);
            }
            Ok(_) => {}
            Err(error) => listing.failures.push(error),
        }
    }
    listing.sessions.sort_by(|one, other| {
        let newest_first = other.used.cmp(&one.used);
        newest_first.then_with(|| one.key.cmp(&other.key))
    });
    Ok(listing)
}

/// One session.
///
/// # Errors
/// Status 66 when there is none.
pub fn look(place: &Place, key: &str) -> Result<Summary> {
    let (path, _) = files::open(place, key)?;
    let zone = place.clock.now().time_zone().clone();
    summary(&path, &zone)?.ok_or_else(|| files::none(place, key))
}

/// A summary for each of `paths`, in their order; `None` for a file that is gone meanwhile.
fn summaries(paths: &[PathBuf], zone: &TimeZone) -> Vec<Result<Option<Summary>>> {
    let one_by_one = |paths: &[PathBuf]| -> Vec<Result<Option<Summary>>> {
        paths.iter().map(|path| summary(path, zone)).collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS));
    if paths.len() < SHARED_FROM || threads == 1 {
        return one_by_one(paths);
    }
    std::thread::scope(|scope| {
        let shares = paths.chunks(paths.len().div_ceil(threads));
        let running: Vec<_> = shares
            .map(|share| scope.spawn(move || one_by_one(share)))
            .collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().expect("reading a file does not panic"))
            .collect()
    })
}

fn summary(path: &Path, zone: &TimeZone) -> Result<Option<Summary>> {
    let Some(file) = store::open_existing(path)? else {
        return Ok(None);
    };
    let about = stat(&file, path)?;
    let head = Head::read(&file, path)?;
    let end = end_of_last_line(&file, path)?;
    let peeked = tail::peek(&file, path, end)?;
    let known = peeked.is_some() || end <= COUNT_LIMIT;
    let tail = match peeked {
        Some(tail) => tail,
        None if known => tail::read(&file, path, end, 0)?,
        None => tail::Tail::default(),
    };
    let metadata = tail.metadata;
    let is_newer = metadata.is_newer();
    let stats = metadata.kept().stats;
    let modified = about
        .modified()
        .with_context(|| format!("look at `{}`", path.display()))?;
    let modified = Timestamp::try_from(modified).unwrap_or_default();
    // A file that was copied has the time of the copy; what we wrote last tells better, where nothing follows it.
    let closed = metadata.updated_at.as_deref().filter(|_| tail.is_closed);
    let used = closed.and_then(|time| moment(time, zone));
    Ok(Some(Summary {
        key: head
            .key
            .or(metadata.key)
            .unwrap_or_else(|| key_from_name(path)),
        path: path.to_owned(),
        messages: known.then_some(tail.count),
        created: metadata.created_at.or(head.created).unwrap_or_default(),
        updated: metadata.updated_at.unwrap_or_default(),
        used: used.unwrap_or(modified),
        bytes: about.len(),
        stats: (stats != Stats::default()).then_some(stats),
        first_words: head.words,
        is_newer,
    }))
}

/// A local time of a session file as a moment.
fn moment(time: &str, zone: &TimeZone) -> Option<Timestamp> {
    let time: DateTime = time.parse().ok()?;
    Some(time.to_zoned(zone.clone()).ok()?.timestamp())
}

/// What the beginning of a file tells.
#[derive(Debug, Default)]
struct Head {
    key: Option<String>,
    created: Option<String>,
    words: String,
}

impl Head {
    fn read(file: &File, path: &Path) -> Result<Self> {
        let mut block = vec![0; HEAD];
        let mut length = 0;
        while length < block.len() {
            let count = file.read_at(&mut block[length..], length as u64);
            match count.with_context(|| format!("read `{}`", path.display()))? {
                0 => break,
                count => length += count,
            }
        }
        Ok(Self::of(&block[..length], length == HEAD))
    }

    /// `is_cut` when the file goes on after `block`.
    fn of(block: &[u8], is_cut: bool) -> Self {
        let mut head = Self::default();
        let mut lines = block.split(|byte| *byte == b'\n').enumerate().peekable();
        while let Some((number, text)) = lines.next() {
            let line = match lines.peek() {
                None if is_cut => line::begun(text),
                _ => line::parse(text),
            };
            match line {
                Line::Metadata(metadata) if number == 0 => {
                    (head.key, head.created) = (metadata.key, metadata.created_at);
                }
                Line::Message(Some(Message::User(user))) => {
                    head.words = words(&plain_text(&user.parts));
                    if !head.words.is_empty() {
                        break;
                    }
                }
                _ => {}
            }
        }
        head
    }
}

/// The first words of a person's message; empty for what only looks like one.
fn words(text: &str) -> String {
    // What older releases of the Python program put between the user's messages.
    if ["[System: ", "[Runtime Context"]
        .iter()
        .any(|mark| text.starts_with(mark))
    {
        return String::new();
    }
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
        if let Some((at, _)) = words.char_indices().nth(WORDS) {
            words.truncate(at);
            words.push('…');
            break;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::Head;

    #[test]
    fn the_first_words_are_those_of_a_person() {
        let check = |text: &str, is_cut: bool, expect: &str| {
            assert_eq!(Head::of(text.as_bytes(), is_cut).words, expect, "{text}");
        };
        let user = |text: &str| format!("{{\"role\": \"user\", \"content\": \"{text}\"}}\n");
        check("", false, "");
        check(&user("one\\n  two"), false, "one two");
        check(&(user("[System: cron] x") + &user("y")), false, "y");
        check("{\"role\": \"assistant\", \"content\": \"a\"}\n", false, "");
        let command = "{\"role\": \"user\", \"content\": \"/x\", \"_command\": true}\n";
        check(&format!("{command}{}", user("y")), false, "y");
        // The line is longer than what was read of it, wherever it was cut.
        let whole = "{\"role\": \"user\", \"content\": \"caf\\u00e9 au \\\"lait\\\" ";
        check(whole, true, "café au \"lait\"");
        check(&whole[..41], true, "café au");
        check(&whole[..36], true, "caf");
        let parts = "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"look at";
        check(parts, true, "look at");
        check(whole, false, "");
        let long = "word ".repeat(40);
        let words = Head::of(user(&long).as_bytes(), false).words;
        assert_eq!(words.chars().count(), 121);
    }
}
