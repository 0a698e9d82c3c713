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

/// Bytes of a chunk, which one thread processes at a time.
const CHUNK_BYTES: u64 = 4 << 20;
/// Bytes that are read at a time of a line that extends beyond its chunk.
const LAST_LINE_BLOCK_BYTES: u64 = 64 << 10;
/// Maximum number of threads; more do not make disk or memory faster.
const MAX_THREADS: usize = 8;

/// A chunk of a session file: the lines that begin in it.
#[derive(Clone, Copy, Debug)]
struct FileChunk {
    /// Index of the session.
    session: usize,
    begin: u64,
    end: u64,
    /// True for the last chunk of its session.
    is_last: bool,
}

/// The search result of one chunk.
#[derive(Debug, Default)]
struct ChunkMatches {
    /// Matching messages, numbered within the chunk.
    matches: Vec<MessageMatch>,
    /// Number of messages in the chunk; valid if another chunk of the session follows, or if there are matches.
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
    let chunks = split_into_chunks(sessions);
    let next = AtomicUsize::new(0);
    let threads =
        std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(2 * threads);
        for _ in 0..threads.min(chunks.len()) {
            let sender = sender.clone();
            let next = &next;
            let chunks = &chunks;
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(chunk) = chunks.get(index) else {
                        return;
                    };
                    let path = &sessions[chunk.session].path;
                    let result = search_chunk(path, chunk, pattern, context);
                    if sender.send((index, result)).is_err() {
                        // The receiver was dropped: the search was stopped.
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut collector = MatchCollector::new(sessions, on_match);
        // Results that arrived before those of an earlier chunk.
        let mut early = BTreeMap::new();
        let mut next_index = 0;
        // The loop owns the receiver: when it ends, sending fails and the threads stop.
        for (index, result) in receiver {
            signal::check()?;
            early.insert(index, result);
            while let Some(result) = early.remove(&next_index) {
                collector.add(&chunks[next_index], result)?;
                next_index += 1;
            }
        }
        Ok(collector.failures)
    })
}

fn split_into_chunks(sessions: &[SessionSummary]) -> Vec<FileChunk> {
    let mut chunks = Vec::new();
    for (session, summary) in sessions.iter().enumerate() {
        let mut begin = 0;
        while begin < summary.bytes {
            let end = summary.bytes.min(begin + CHUNK_BYTES);
            chunks.push(FileChunk { session, begin, end, is_last: end == summary.bytes });
            begin = end;
        }
    }
    chunks
}

/// Combines the results of the chunks in order.
struct MatchCollector<'a> {
    sessions: &'a [SessionSummary],
    on_match: &'a mut dyn FnMut(&SessionSummary, MessageMatch) -> Result<bool>,
    /// Index of the current session.
    session: usize,
    /// Number of messages in its earlier chunks.
    messages_before: usize,
    /// True if more matches of this session are to be passed on.
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

    fn add(&mut self, chunk: &FileChunk, result: Result<ChunkMatches>) -> Result<()> {
        if chunk.session != self.session {
            self.session = chunk.session;
            self.messages_before = 0;
            self.is_active = true;
        }
        let ChunkMatches { matches, count } = match result {
            Ok(matches) => matches,
            Err(error) => {
                if self.is_active {
                    self.is_active = false;
                    self.failures.push(error);
                }
                return Ok(());
            }
        };
        for mut message in matches {
            message.index += self.messages_before;
            if self.is_active {
                self.is_active = (self.on_match)(&self.sessions[self.session], message)?;
            }
        }
        self.messages_before += count;
        Ok(())
    }
}

/// Searches the lines that begin in `chunk` for `pattern`.
fn search_chunk(
    path: &Path,
    chunk: &FileChunk,
    pattern: &SearchPattern,
    context: usize,
) -> Result<ChunkMatches> {
    let mut chunk_matches = ChunkMatches::default();
    // A file that was removed meanwhile has no matches.
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(chunk_matches);
    };
    let bytes = read_lines(&file, path, chunk)?;
    let mut counted = 0;
    let mut position = 0;
    while let Some(candidate) = pattern.next_candidate(&bytes, position) {
        let begin = memchr::memrchr(b'\n', &bytes[..candidate]).map_or(0, |at| at + 1);
        let end = memchr::memchr(b'\n', &bytes[candidate..])
            .map_or(bytes.len(), |length| candidate + length);
        position = (end + 1).min(bytes.len());
        let text = &bytes[begin..end];
        if let Some(message) = match_line(text, pattern, context) {
            chunk_matches.count += count_messages(&bytes[counted..begin]);
            counted = begin;
            let index = chunk_matches.count;
            chunk_matches.matches.push(MessageMatch { index, ..message });
        }
        if position == bytes.len() {
            break;
        }
    }
    if !chunk.is_last {
        chunk_matches.count += count_messages(&bytes[counted..]);
    }
    Ok(chunk_matches)
}

/// Reads the lines that begin in `chunk`.
fn read_lines(file: &File, path: &Path, chunk: &FileChunk) -> Result<Vec<u8>> {
    let what = || format!("read `{}`", path.display());
    // Include the byte before the chunk: if it is a newline, a line begins at the start of the chunk.
    let from = chunk.begin.saturating_sub(1);
    let size = durable_file::size(file, path)?;
    let read = |from: u64, to: u64, bytes: &mut Vec<u8>| -> Result<()> {
        let length = to.min(size).saturating_sub(from);
        let old_length = bytes.len();
        bytes.resize(old_length + usize::try_from(length).with_context(what)?, 0);
        file.read_exact_at(&mut bytes[old_length..], from).with_context(what)
    };
    let mut bytes = Vec::new();
    read(from, chunk.end, &mut bytes)?;
    if chunk.begin > 0 {
        match memchr::memchr(b'\n', &bytes) {
            Some(end) if from + end as u64 + 1 < chunk.end => drop(bytes.drain(..=end)),
            _ => return Ok(Vec::new()),
        }
    }
    // The last line may extend beyond the chunk. An overlong one is dropped, as everywhere.
    let mut end = chunk.end;
    let last = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
    while !bytes.ends_with(b"\n") && end < size {
        let old_length = bytes.len();
        read(end, end + LAST_LINE_BLOCK_BYTES, &mut bytes)?;
        end += LAST_LINE_BLOCK_BYTES;
        if let Some(newline) = memchr::memchr(b'\n', &bytes[old_length..]) {
            bytes.truncate(old_length + newline + 1);
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
