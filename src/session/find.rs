//! Text search in sessions. Threads read the files in blocks and search the raw bytes; only lines that may match are
//! parsed, so a search costs little more than reading the files.

use super::line::{self, Line};
use super::list::Summary;
use super::needle::{FoundLine, Needle};
use super::tail;
use crate::message::{Message, plain_text};
use crate::sys::{signal, store};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

/// A message with matching lines.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its index: the number of messages before it in its session.
    pub number: usize,
    /// Local time, as written; empty if there is none.
    pub time: String,
    pub role: &'static str,
    pub lines: Vec<FoundLine>,
}

/// Bytes that one thread processes at a time.
const BLOCK: u64 = 4 << 20;
/// Maximum number of threads; more do not make disk or memory faster.
const THREADS: usize = 8;

/// A part of a session file: the lines that begin in it.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Index of the session.
    session: usize,
    begin: u64,
    end: u64,
    /// True for the last part of its session.
    is_last: bool,
}

/// The search result of one part.
#[derive(Debug, Default)]
struct Harvest {
    /// Matching messages, numbered within the part.
    found: Vec<Found>,
    /// Number of messages in the part; valid if another part follows or a message was found.
    count: usize,
}

/// Passes each message of `sessions` that matches `pattern` to `on_match`, in order, with `context` lines around each
/// match. `on_match` returns false to skip the rest of that session. Returns the read errors.
pub fn find(
    sessions: &[Summary],
    needle: &Needle,
    context: usize,
    each: &mut dyn FnMut(&Summary, Found) -> Result<bool>,
) -> Result<Vec<anyhow::Error>> {
    let parts = parts(sessions);
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS));
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
                    let harvest = look(path, part, needle, context);
                    if sender.send((number, harvest)).is_err() {
                        // The receiver is gone: the search was stopped.
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut tally = Tally::new(sessions, each);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        // The loop owns the receiver: when it ends, sending fails and the threads stop.
        for (number, harvest) in receiver {
            signal::check()?;
            early.insert(number, harvest);
            while let Some(harvest) = early.remove(&wanted) {
                tally.take(&parts[wanted], harvest)?;
                wanted += 1;
            }
        }
        Ok(tally.failures)
    })
}

fn parts(sessions: &[Summary]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (session, summary) in sessions.iter().enumerate() {
        let mut begin = 0;
        while begin < summary.bytes {
            let end = summary.bytes.min(begin + BLOCK);
            parts.push(Part {
                session,
                begin,
                end,
                is_last: end == summary.bytes,
            });
            begin = end;
        }
    }
    parts
}

/// Combines the results of the parts in order.
struct Tally<'a> {
    sessions: &'a [Summary],
    each: &'a mut dyn FnMut(&Summary, Found) -> Result<bool>,
    /// The current session; below, the number of messages in its earlier parts, and if more of it is wanted.
    session: usize,
    before: usize,
    is_wanted: bool,
    failures: Vec<anyhow::Error>,
}

impl<'a> Tally<'a> {
    fn new(
        sessions: &'a [Summary],
        each: &'a mut dyn FnMut(&Summary, Found) -> Result<bool>,
    ) -> Self {
        Self {
            sessions,
            each,
            session: 0,
            before: 0,
            is_wanted: true,
            failures: Vec::new(),
        }
    }

    fn take(&mut self, part: &Part, harvest: Result<Harvest>) -> Result<()> {
        if part.session != self.session {
            (self.session, self.before, self.is_wanted) = (part.session, 0, true);
        }
        let Harvest { found, count } = match harvest {
            Ok(harvest) => harvest,
            Err(error) => {
                if std::mem::take(&mut self.is_wanted) {
                    self.failures.push(error);
                }
                return Ok(());
            }
        };
        for mut found in found {
            found.number += self.before;
            if self.is_wanted {
                self.is_wanted = (self.each)(&self.sessions[self.session], found)?;
            }
        }
        self.before += count;
        Ok(())
    }
}

/// Searches the lines that begin in `part` for `pattern`.
fn look(path: &Path, part: &Part, needle: &Needle, context: usize) -> Result<Harvest> {
    let mut harvest = Harvest::default();
    // A file that was removed meanwhile has no matches.
    let Some(file) = store::open_existing(path)? else {
        return Ok(harvest);
    };
    let bytes = lines_of(&file, path, part)?;
    let mut counted = 0;
    let mut position = 0;
    while let Some(hit) = needle.candidate(&bytes, position) {
        let begin = memchr::memrchr(b'\n', &bytes[..hit]).map_or(0, |at| at + 1);
        let end = memchr::memchr(b'\n', &bytes[hit..]).map_or(bytes.len(), |at| hit + at);
        position = (end + 1).min(bytes.len());
        let text = &bytes[begin..end];
        if let Some(found) = understand(text, needle, context) {
            harvest.count += messages(&bytes[counted..begin]);
            counted = begin;
            let number = harvest.count;
            harvest.found.push(Found { number, ..found });
        }
        if position == bytes.len() {
            break;
        }
    }
    if !part.is_last {
        harvest.count += messages(&bytes[counted..]);
    }
    Ok(harvest)
}

/// Reads the lines that begin in `part`.
fn lines_of(file: &File, path: &Path, part: &Part) -> Result<Vec<u8>> {
    let what = || format!("read `{}`", path.display());
    // Include the byte before the part: if it is a newline, a line begins at the start of the part.
    let from = part.begin.saturating_sub(1);
    let size = store::size(file, path)?;
    let read = |from: u64, to: u64, bytes: &mut Vec<u8>| -> Result<()> {
        let (to, old) = (to.min(size), bytes.len());
        let more = usize::try_from(to.saturating_sub(from)).with_context(what)?;
        bytes.resize(old + more, 0);
        file.read_exact_at(&mut bytes[old..], from)
            .with_context(what)
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
        } else if (bytes.len() - last) as u64 > tail::LINE_LIMIT {
            bytes.truncate(last);
            break;
        }
    }
    Ok(bytes)
}

/// Counts the messages among these lines.
fn messages(bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
        count += usize::from(begin < end && line::counts(&bytes[begin..end]));
        begin = end + 1;
    }
    count
}

/// Parses a line and returns the matching lines of its message, if there are any.
fn understand(text: &[u8], needle: &Needle, context: usize) -> Option<Found> {
    // If the content is a string, only it can match, and parsing the rest of the line is most of the work.
    if line::plain_content(text).is_some_and(|content| !needle.is_in(&content)) {
        return None;
    }
    let Line::Message(Some(message)) = line::parse(text) else {
        return None;
    };
    let (role, content) = match &message {
        Message::User(user) => ("user", plain_text(&user.parts)),
        Message::Assistant(reply) => ("assistant", reply.text.clone()),
        Message::Tool(result) => ("tool", plain_text(&result.parts)),
    };
    let lines = needle.lines(&content, context);
    if lines.is_empty() {
        return None;
    }
    let (time, _) = line::stamp(text);
    Some(Found {
        number: 0,
        time,
        role,
        lines,
    })
}
