//! Text search in sessions. Threads read the files in blocks and search the raw bytes; only lines that may match are
//! parsed, so a search costs little more than reading the files.

use super::line::{self, SessionLine};
use super::list::SessionSummary;
use super::search_pattern::{MatchLine, SearchPattern};
use super::tail_reader;
use anyhow::{Context, Result};
use nanobot_base::message::{Message, plain_text};
use nanobot_os::durable_file;
use nanobot_os::signal;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

/// A message with matching lines.
#[derive(Clone, Debug)]
pub struct MessageMatch {
    /// Its index: the number of messages before it in its session.
    pub index: usize,
    /// Local time, as written; empty if there is none.
    pub time: String,
    pub role: &'static str,
    pub lines: Vec<MatchLine>,
}

/// Bytes that one thread processes at a time.
const CHUNK_BYTES: u64 = 4 << 20;
/// Maximum number of threads; more do not make disk or memory faster.
const MAX_THREADS: usize = 8;

/// A part of a session file: the lines that begin in it.
#[derive(Clone, Copy, Debug)]
struct FileChunk {
    /// Index of the session.
    session: usize,
    begin: u64,
    end: u64,
    /// True for the last part of its session.
    is_last: bool,
}

/// The search result of one part.
#[derive(Debug, Default)]
struct ChunkMatches {
    /// Matching messages, numbered within the part.
    matches: Vec<MessageMatch>,
    /// Number of messages in the part; valid if another part follows or a message was found.
    count: usize,
}

/// Passes each message of `sessions` that matches `pattern` to `on_match`, in order, with `context` lines around each
/// match. `on_match` returns false to skip the rest of that session. Returns the read errors.
pub fn search(
    sessions: &[SessionSummary],
    pattern: &SearchPattern,
    context: usize,
    on_match: &mut dyn FnMut(&SessionSummary, MessageMatch) -> Result<bool>,
) -> Result<Vec<anyhow::Error>> {
    let parts = split_into_chunks(sessions);
    let next = AtomicUsize::new(0);
    let threads =
        std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(2 * threads);
        for _ in 0..threads.min(parts.len()) {
            let (sender, next, parts) = (sender.clone(), &next, &parts);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(part) = parts.get(number) else {
                        return;
                    };
                    let path = &sessions[part.session].path;
                    let harvest = search_chunk(path, part, pattern, context);
                    if sender.send((number, harvest)).is_err() {
                        // The receiver is gone: the search was stopped.
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut tally = MatchCollector::new(sessions, on_match);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        // The loop owns the receiver: when it ends, sending fails and the threads stop.
        for (number, harvest) in receiver {
            signal::check()?;
            early.insert(number, harvest);
            while let Some(harvest) = early.remove(&wanted) {
                tally.add(&parts[wanted], harvest)?;
                wanted += 1;
            }
        }
        Ok(tally.failures)
    })
}

fn split_into_chunks(sessions: &[SessionSummary]) -> Vec<FileChunk> {
    let mut parts = Vec::new();
    for (session, summary) in sessions.iter().enumerate() {
        let mut begin = 0;
        while begin < summary.bytes {
            let end = summary.bytes.min(begin + CHUNK_BYTES);
            parts.push(FileChunk { session, begin, end, is_last: end == summary.bytes });
            begin = end;
        }
    }
    parts
}

/// Combines the results of the parts in order.
struct MatchCollector<'a> {
    sessions: &'a [SessionSummary],
    on_match: &'a mut dyn FnMut(&SessionSummary, MessageMatch) -> Result<bool>,
    /// The current session; below, the number of messages in its earlier parts, and if more of it is wanted.
    session: usize,
    messages_before: usize,
    is_active: bool,
    failures: Vec<anyhow::Error>,
}

impl<'a> MatchCollector<'a> {
    fn new(
        sessions: &'a [SessionSummary],
        on_match: &'a mut dyn FnMut(&SessionSummary, MessageMatch) -> Result<bool>,
    ) -> Self {
        Self {
            sessions,
            on_match,
            session: 0,
            messages_before: 0,
            is_active: true,
            failures: Vec::new(),
        }
    }

    fn add(&mut self, part: &FileChunk, harvest: Result<ChunkMatches>) -> Result<()> {
        if part.session != self.session {
            (self.session, self.messages_before, self.is_active) = (part.session, 0, true);
        }
        let ChunkMatches { matches: found, count } = match harvest {
            Ok(harvest) => harvest,
            Err(error) => {
                if std::mem::take(&mut self.is_active) {
                    self.failures.push(error);
                }
                return Ok(());
            }
        };
        for mut found in found {
            found.index += self.messages_before;
            if self.is_active {
                self.is_active = (self.on_match)(&self.sessions[self.session], found)?;
            }
        }
        self.messages_before += count;
        Ok(())
    }
}

/// Searches the lines that begin in `part` for `pattern`.
fn search_chunk(
    path: &Path,
    part: &FileChunk,
    pattern: &SearchPattern,
    context: usize,
) -> Result<ChunkMatches> {
    let mut harvest = ChunkMatches::default();
    // A file that was removed meanwhile has no matches.
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(harvest);
    };
    let bytes = read_lines(&file, path, part)?;
    let mut counted = 0;
    let mut position = 0;
    while let Some(hit) = pattern.next_candidate(&bytes, position) {
        let begin = memchr::memrchr(b'\n', &bytes[..hit]).map_or(0, |at| at + 1);
        let end = memchr::memchr(b'\n', &bytes[hit..]).map_or(bytes.len(), |at| hit + at);
        position = (end + 1).min(bytes.len());
        let text = &bytes[begin..end];
        if let Some(found) = match_line(text, pattern, context) {
            harvest.count += count_messages(&bytes[counted..begin]);
            counted = begin;
            let number = harvest.count;
            harvest.matches.push(MessageMatch { index: number, ..found });
        }
        if position == bytes.len() {
            break;
        }
    }
    if !part.is_last {
        harvest.count += count_messages(&bytes[counted..]);
    }
    Ok(harvest)
}

/// Reads the lines that begin in `part`.
fn read_lines(file: &File, path: &Path, part: &FileChunk) -> Result<Vec<u8>> {
    let what = || format!("read `{}`", path.display());
    // Include the byte before the part: if it is a newline, a line begins at the start of the part.
    let from = part.begin.saturating_sub(1);
    let size = durable_file::size(file, path)?;
    let read = |from: u64, to: u64, bytes: &mut Vec<u8>| -> Result<()> {
        let (to, old) = (to.min(size), bytes.len());
        let more = usize::try_from(to.saturating_sub(from)).with_context(what)?;
        bytes.resize(old + more, 0);
        file.read_exact_at(&mut bytes[old..], from).with_context(what)
    };
    let mut bytes = Vec::new();
    read(from, part.end, &mut bytes)?;
    if part.begin > 0 {
        match memchr::memchr(b'\n', &bytes) {
            Some(end) if from + end as u64 + 1 < part.end => drop(bytes.drain(..=end)),
            _ => return Ok(Vec::new()),
        }
    }
    // The last line may extend beyond the part. An overlong one is dropped, as everywhere.
    let mut end = part.end;
    let last = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
    while !bytes.ends_with(b"\n") && end < size {
        let old = bytes.len();
        read(end, end + (64 << 10), &mut bytes)?;
        end += 64 << 10;
        if let Some(found) = memchr::memchr(b'\n', &bytes[old..]) {
            bytes.truncate(old + found + 1);
        } else if (bytes.len() - last) as u64 > tail_reader::MAX_LINE_BYTES {
            bytes.truncate(last);
            break;
        }
    }
    Ok(bytes)
}

/// Counts the messages among these lines.
fn count_messages(bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
        count += usize::from(begin < end && line::is_counted(&bytes[begin..end]));
        begin = end + 1;
    }
    count
}

/// Parses a line and returns the matching lines of its message, if there are any.
fn match_line(text: &[u8], pattern: &SearchPattern, context: usize) -> Option<MessageMatch> {
    // If the content is a string, only it can match, and parsing the rest of the line is most of the work.
    if line::plain_content(text).is_some_and(|content| !pattern.is_match(&content)) {
        return None;
    }
    let SessionLine::Message(Some(message)) = line::parse(text) else {
        return None;
    };
    let (role, content) = match &message {
        Message::User(user) => ("user", plain_text(&user.parts)),
        Message::Assistant(reply) => ("assistant", reply.text.clone()),
        Message::Tool(result) => ("tool", plain_text(&result.parts)),
    };
    let lines = pattern.matching_lines(&content, context);
    if lines.is_empty() {
        return None;
    }
    let (time, _) = line::timestamp_and_turn(text);
    Some(MessageMatch { index: 0, time, role, lines })
}
