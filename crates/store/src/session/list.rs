//! Session listing. Only the beginning and the end of each file are read, so that a long session costs no more than a
//! short one.

use super::integrity::{end_of_last_line, stat};
use super::layout::{SessionStore, key_from_name};
use super::line::{self, SessionLine};
use super::metadata::{SessionMetadata, SessionStats};
use super::tail_reader::MessageWindow;
use super::{files, tail_reader};
use anyhow::{Context, Result};
use jiff::civil::DateTime;
use jiff::{Timestamp, tz::TimeZone};
use nanobot_base::message::{Message, before_blocks, plain_text};
use nanobot_os::durable_file;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One session in a listing.
#[derive(Clone, Debug)]
pub struct SessionSummary {
    pub key: String,
    pub path: PathBuf,
    /// `None` if counting would require reading a large file.
    pub messages: Option<usize>,
    /// Local time, as stored in the session; empty if there is none.
    pub created: String,
    pub updated: String,
    /// Time of the last message, as far as it is known.
    pub last_used: Timestamp,
    pub bytes: u64,
    /// `None` if none were stored.
    pub stats: Option<SessionStats>,
    /// The beginning of the first user message, on one line.
    pub first_words: String,
    /// The title, if it has one.
    pub title: Option<String>,
    /// The working directory of its last turn, if it was recorded.
    pub directory: Option<PathBuf>,
    /// The session that it was copied from, if it was.
    pub fork_of: Option<String>,
    /// True if a newer release of this program wrote it, so that it is read-only.
    pub is_newer: bool,
}

/// All sessions, and the errors of those that could not be read.
#[derive(Debug, Default)]
pub struct SessionListing {
    /// Newest first.
    pub sessions: Vec<SessionSummary>,
    pub failures: Vec<anyhow::Error>,
}

/// Largest file, in bytes, whose messages are counted if another program wrote it last.
const MAX_COUNTED_BYTES: u64 = 8 << 20;
/// Bytes read from the beginning, for the key and the first words.
const HEAD_BYTES: usize = 8 << 10;
/// Maximum characters of the first words.
const MAX_FIRST_WORDS_CHARS: usize = 120;
/// Number of files from which on threads are used; below, the maximum number of threads.
const MIN_PARALLEL_FILES: usize = 64;
const MAX_THREADS: usize = 4;

/// Lists all sessions, newest first. If several files have the same key, only the one in use is listed.
pub fn list(store: &SessionStore) -> Result<SessionListing> {
    let mut listing = SessionListing::default();
    let mut paths = Vec::new();
    for dir in store.directories() {
        paths.extend(files::list_logs(dir)?);
    }
    let zone = store.clock.now().time_zone().clone();
    let mut keys = HashSet::new();
    for summary in summarize_all(&paths, &zone) {
        match summary {
            Ok(Some(summary)) if keys.insert(summary.key.clone()) => {
                listing.sessions.push(summary);
            }
            Ok(_) => {}
            Err(error) => listing.failures.push(error),
        }
    }
    listing.sessions.sort_by(|one, other| {
        let newest_first = other.last_used.cmp(&one.last_used);
        newest_first.then_with(|| one.key.cmp(&other.key))
    });
    Ok(listing)
}

/// Returns the summary of one session.
///
/// # Errors
/// Status 66 if there is no such session.
pub fn summarize(store: &SessionStore, key: &str) -> Result<SessionSummary> {
    let (path, _) = files::open(store, key)?;
    let zone = store.clock.now().time_zone().clone();
    summarize_file(&path, &zone)?.ok_or_else(|| files::not_found_error(store, key))
}

/// Summarizes each of `paths`, in order; `None` for a file that was removed meanwhile.
fn summarize_all(paths: &[PathBuf], zone: &TimeZone) -> Vec<Result<Option<SessionSummary>>> {
    let summarize_in_order = |paths: &[PathBuf]| -> Vec<Result<Option<SessionSummary>>> {
        paths.iter().map(|path| summarize_file(path, zone)).collect()
    };
    let threads =
        std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
    if paths.len() < MIN_PARALLEL_FILES || threads == 1 {
        return summarize_in_order(paths);
    }
    std::thread::scope(|scope| {
        let chunks = paths.chunks(paths.len().div_ceil(threads));
        let running: Vec<_> =
            chunks.map(|chunk| scope.spawn(move || summarize_in_order(chunk))).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().expect("reading a file does not panic"))
            .collect()
    })
}

fn summarize_file(path: &Path, zone: &TimeZone) -> Result<Option<SessionSummary>> {
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(None);
    };
    let file_metadata = stat(&file, path)?;
    let head = FileHead::read(&file, path)?;
    let end = end_of_last_line(&file, path)?;
    let tail = tail_reader::peek(&file, path, end)?;
    let is_counted = tail.is_some() || end <= MAX_COUNTED_BYTES;
    let tail = match tail {
        Some(tail) => tail,
        None if is_counted => tail_reader::read(&file, path, end, MessageWindow::default())?,
        None => tail_reader::LogTail::default(),
    };
    let metadata = tail.metadata;
    let is_newer = metadata.is_newer();
    let SessionMetadata { stats, fork_of, directory, .. } = metadata.session_metadata();
    let title = metadata.title();
    let modified =
        file_metadata.modified().with_context(|| format!("stat `{}`", path.display()))?;
    let modified = Timestamp::try_from(modified).unwrap_or_default();
    // A copied file has the modification time of the copy; our closing line is more accurate if nothing follows it.
    let closed = if tail.is_closed { metadata.updated_at.as_deref() } else { None };
    let last_used = closed.and_then(|time| parse_local_time(time, zone));
    Ok(Some(SessionSummary {
        key: head.key.or(metadata.key).unwrap_or_else(|| key_from_name(path)),
        path: path.to_owned(),
        messages: is_counted.then_some(tail.count),
        created: metadata.created_at.or(head.created).unwrap_or_default(),
        updated: metadata.updated_at.unwrap_or_default(),
        last_used: last_used.unwrap_or(modified),
        bytes: file_metadata.len(),
        stats: (stats != SessionStats::default()).then_some(stats),
        first_words: head.first_words,
        title,
        directory: Some(directory).filter(|path| !path.is_empty()).map(PathBuf::from),
        fork_of: Some(fork_of).filter(|key| !key.is_empty()),
        is_newer,
    }))
}

/// Converts a local time of a session file to a timestamp.
fn parse_local_time(time: &str, zone: &TimeZone) -> Option<Timestamp> {
    let time: DateTime = time.parse().ok()?;
    Some(time.to_zoned(zone.clone()).ok()?.timestamp())
}

/// Data from the beginning of a file.
#[derive(Debug, Default)]
struct FileHead {
    key: Option<String>,
    created: Option<String>,
    first_words: String,
}

impl FileHead {
    fn read(file: &File, path: &Path) -> Result<Self> {
        let mut block = vec![0; HEAD_BYTES];
        let mut length = 0;
        while length < block.len() {
            let count = file.read_at(&mut block[length..], length as u64);
            match count.with_context(|| format!("read `{}`", path.display()))? {
                0 => break,
                count => length += count,
            }
        }
        Ok(Self::parse(&block[..length], length == HEAD_BYTES))
    }

    /// Parses `block`; `is_cut` is true if the file continues after it.
    fn parse(block: &[u8], is_cut: bool) -> Self {
        let mut head = Self::default();
        let mut lines = block.split(|byte| *byte == b'\n').enumerate().peekable();
        while let Some((number, text)) = lines.next() {
            let line = match lines.peek() {
                None if is_cut => line::parse_truncated(text),
                _ => line::parse(text),
            };
            match line {
                SessionLine::Metadata(metadata) if number == 0 => {
                    head.key = metadata.key;
                    head.created = metadata.created_at;
                }
                SessionLine::Message(Some(Message::User(user))) => {
                    head.first_words = first_words(before_blocks(&plain_text(&user.parts)));
                    if !head.first_words.is_empty() {
                        break;
                    }
                }
                _ => {}
            }
        }
        head
    }
}

/// The first words of a user message; empty for text that was not written by a user.
fn first_words(text: &str) -> String {
    // Marks of texts that older releases of the Python program inserted as user messages.
    if ["[System: ", "[Runtime Context"].iter().any(|mark| text.starts_with(mark)) {
        return String::new();
    }
    let mut first_words = String::new();
    for word in text.split_whitespace() {
        if !first_words.is_empty() {
            first_words.push(' ');
        }
        first_words.push_str(word);
        if let Some((end, _)) = first_words.char_indices().nth(MAX_FIRST_WORDS_CHARS) {
            first_words.truncate(end);
            first_words.push('…');
            break;
        }
    }
    first_words
}

#[cfg(test)]
mod tests {
    use super::FileHead;

    #[test]
    fn first_words_come_from_a_user_message() {
        let check = |text: &str, is_cut: bool, expect: &str| {
            assert_eq!(FileHead::parse(text.as_bytes(), is_cut).first_words, expect, "{text}");
        };
        let user = |text: &str| format!("{{\"role\": \"user\", \"content\": \"{text}\"}}\n");
        check("", false, "");
        check(&user("one\\n  two"), false, "one two");
        check(&(user("[System: cron] x") + &user("y")), false, "y");
        check("{\"role\": \"assistant\", \"content\": \"a\"}\n", false, "");
        let command = "{\"role\": \"user\", \"content\": \"/x\", \"_command\": true}\n";
        check(&format!("{command}{}", user("y")), false, "y");
        // The line is longer than the part that was read, wherever it is cut.
        let whole = "{\"role\": \"user\", \"content\": \"caf\\u00e9 au \\\"lait\\\" ";
        check(whole, true, "café au \"lait\"");
        check(&whole[..41], true, "café au");
        check(&whole[..36], true, "caf");
        let parts = "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"look at";
        check(parts, true, "look at");
        check(whole, false, "");
        let long = "word ".repeat(40);
        let first_words = FileHead::parse(user(&long).as_bytes(), false).first_words;
        assert_eq!(first_words.chars().count(), 121);
    }
}
