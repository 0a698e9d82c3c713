//! Reads a log from its end, so that the cost of a turn does not depend on the length of the session.

use super::line::{self, MetadataLine, SessionLine};
use crate::history::compaction::CompactedHistory;
use crate::history::result_truncation;
use crate::message::Message;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at a time.
const BLOCK_BYTES: u64 = 64 << 10;
/// Maximum distance in bytes to search back for a closing line; beyond it, all messages are counted instead.
const MAX_WALK_BYTES: u64 = 8 << 20;
/// Longest line kept in memory, in bytes. No reply and no tool result comes near it.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 20;
/// Replacement for a longer line; it does not parse as a line.
const OVERLONG_LINE: &[u8] = b"too long";

/// The part of a log that a turn needs.
#[derive(Debug, Default)]
pub(super) struct LogTail {
    /// The last metadata line.
    pub(super) metadata: MetadataLine,
    /// Number of messages in the log.
    pub(super) count: usize,
    /// Index of the first message in the window.
    pub(super) start: usize,
    /// The summary of the messages before the window, if they were compacted.
    pub(super) summary: Option<CompactedHistory>,
    /// The messages in the window as stored, except that old long tool results are shortened.
    pub(super) messages: Vec<Message>,
    /// Index of the first message that is not shortened.
    pub(super) shortened_before: usize,
    /// True if a newer release stored provider state, which does not include our turn.
    pub(super) has_provider_state: bool,
    /// True if the last line is one of our closing lines, at the offset that it states.
    pub(super) is_closed: bool,
    /// Warnings about unexpected content.
    pub(super) notices: Vec<String>,
}

/// The index of the first message to send: at most `window` messages. It moves in steps of half a window, so that the
/// turns between two steps send the same prefix, which provider caches need.
pub(super) fn window_start(consolidated: usize, count: usize, window: usize) -> usize {
    let excess = count.saturating_sub(consolidated).saturating_sub(window);
    let step = (window / 2).max(1);
    consolidated + excess.div_ceil(step) * step
}

/// Reads the tail of `file`, which is `size` bytes long and ends with a newline.
pub(super) fn read(file: &File, path: &Path, size: u64, window: usize) -> Result<LogTail> {
    match walk(file, path, size, window)? {
        Some(tail) => Ok(tail),
        None => scan(file, path, window),
    }
}

/// Reads the tail without its messages; `None` if that would require reading the whole file.
pub(super) fn peek(file: &File, path: &Path, size: u64) -> Result<Option<LogTail>> {
    walk(file, path, size, 0)
}

/// Walks back to the last closing line that is at its stated offset, which holds the number of messages before it, and
/// then to the start of the window. After that line there are only lines of a killed turn or of another program.
fn walk(file: &File, path: &Path, size: u64, window: usize) -> Result<Option<LogTail>> {
    let mut lines = ReverseLines::from_end(file, path, size);
    let mut seen = TailState {
        window,
        ..TailState::default()
    };
    let trusted = loop {
        let Some((at, text)) = lines.next()? else {
            // The start of the file was reached.
            break None;
        };
        if let Some(count) = seen.add_line(at, &text) {
            break Some(count);
        }
        if size - at > MAX_WALK_BYTES {
            return Ok(None);
        }
    };
    let is_closed = seen.is_closed;
    if !is_closed {
        seen.merge_first(file, path)?;
    }
    let TailState {
        metadata,
        has_provider_state: provider_state,
        ..
    } = &mut seen;
    let (mut metadata, provider_state) = (
        metadata.take().unwrap_or_default(),
        provider_state.unwrap_or_default(),
    );
    let count = trusted.unwrap_or(0) + seen.count;
    // Without a trusted line another program may have rewritten the file, with fewer or other messages.
    let old = trusted.map_or(0, |_| {
        metadata.session_metadata().shortened_before.min(count)
    });
    let mut notices = Vec::new();
    let consolidated = clamp_metadata(&mut metadata, count, &mut notices);
    let (summary, base) = match window {
        0 => (None, consolidated),
        _ => read_summary(file, path, &mut metadata, count)?,
    };
    let wanted = count - window_start(base, count, window).min(count);
    let all = count - base;
    // A turn longer than the window is sent in full: without the user's message it is useless.
    let has_no_need = window == 0 || summary.is_some();
    let enough = |seen: &TailState| {
        let sent = seen.messages.iter().take(seen.count.min(all)).flatten();
        seen.count >= all || (seen.count >= wanted && (has_no_need || has_user(sent)))
    };
    while !enough(&seen) {
        let Some((at, text)) = lines.next()? else {
            break;
        };
        seen.add_line(at, &text);
    }
    // The walk to the closing line may have read more messages than needed.
    let mut messages = seen.messages;
    messages.truncate(all);
    let mut last = wanted.min(messages.len());
    while !has_no_need && last < messages.len() && !has_user(messages[..last].iter().flatten()) {
        last += 1;
    }
    messages.truncate(last);
    notices.extend(seen.notices);
    let start = count - messages.len();
    let messages = messages.into_iter().rev();
    Ok(Some(LogTail {
        messages: shorten_old(messages, start, old),
        shortened_before: old,
        metadata,
        count,
        start,
        summary,
        has_provider_state: provider_state,
        is_closed,
        notices,
    }))
}

/// Drops messages that are not sent; those before index `aged` get long results shortened. The first has index `start`.
fn shorten_old(
    messages: impl Iterator<Item = Option<Message>>,
    start: usize,
    aged: usize,
) -> Vec<Message> {
    let mut sent = Vec::new();
    for (number, message) in messages.enumerate() {
        let Some(mut message) = message else { continue };
        if start + number < aged {
            result_truncation::truncate_result(&mut message);
        }
        sent.push(message);
    }
    sent
}

/// The summary of compacted messages and the index of the first message after it. Once those are consolidated: no
/// summary, and the index of the first message that is not consolidated.
fn read_summary(
    file: &File,
    path: &Path,
    metadata: &mut MetadataLine,
    count: usize,
) -> Result<(Option<CompactedHistory>, usize)> {
    let consolidated = metadata.last_consolidated;
    let Some(at) = metadata.summary_offset else {
        return Ok((None, consolidated));
    };
    let text = read_line_at(file, path, at)?;
    let summary = line::parse_summary(&text, at)
        .filter(|summary| summary.first_sent >= consolidated && summary.first_sent <= count);
    if summary.is_none() {
        metadata.summary_offset = None;
    }
    let base = summary
        .as_ref()
        .map_or(consolidated, |summary| summary.first_sent);
    Ok((summary, base))
}

/// Reads the line that begins at offset `at`.
fn read_line_at(file: &File, path: &Path, at: u64) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut reader = BufReader::new(file);
    reader
        .seek(SeekFrom::Start(at))
        .and_then(|_| next_line(&mut reader, &mut text))
        .with_context(|| format!("read `{}`", path.display()))?;
    Ok(text)
}

/// Lines read so far, from the end of a log.
#[derive(Default)]
struct TailState {
    /// The last metadata line.
    metadata: Option<MetadataLine>,
    /// True if the last line of the file is one of our closing lines.
    is_closed: bool,
    has_provider_state: Option<bool>,
    /// The largest possible window, back to a user message; newest first. `None` for messages that are not sent.
    messages: Vec<Option<Message>>,
    window: usize,
    has_user: bool,
    count: usize,
    lines: usize,
    notices: Vec<String>,
}

impl TailState {
    /// Adds a line. Returns the number of messages before it if it is a closing line that can be trusted.
    fn add_line(&mut self, at: u64, text: &[u8]) -> Option<usize> {
        self.lines += 1;
        // Messages before the window are counted without full parsing.
        if self.is_full() && line::is_message(text) {
            self.count += 1;
            return None;
        }
        match line::parse(text) {
            SessionLine::Message(message) => {
                self.count += 1;
                if !self.is_full() {
                    self.has_user |= has_user(&message);
                    self.messages.push(message);
                }
            }
            SessionLine::Metadata(found) => {
                let before = found.message_count.filter(|_| found.offset == Some(at));
                self.is_closed |= self.lines == 1 && before.is_some();
                self.metadata.get_or_insert(found);
                return before;
            }
            SessionLine::ProviderState(full) => drop(self.has_provider_state.get_or_insert(full)),
            SessionLine::Other => {}
            SessionLine::Invalid => add_unreadable_notice(text, at, &mut self.notices),
        }
        None
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= self.window && (self.has_user || self.window == 0)
    }

    /// Merges the first line's metadata: a newer release stores a session's title only there.
    fn merge_first(&mut self, file: &File, path: &Path) -> Result<()> {
        if let SessionLine::Metadata(first) = line::parse(&read_line_at(file, path, 0)?) {
            merge_first_line(self.metadata.get_or_insert_default(), first);
        }
        Ok(())
    }
}

/// Adds to the last metadata line what only the first one has. Our own entry is up to date in the last line.
fn merge_first_line(last: &mut MetadataLine, first: MetadataLine) {
    for (key, value) in first.metadata {
        if key != "nanobot" {
            last.metadata.insert(key, value);
        }
    }
}

/// The result of reading every line of a log.
#[derive(Default)]
struct LogScan {
    /// The last metadata line, merged with the first one.
    metadata: MetadataLine,
    /// Number of messages in the log.
    count: usize,
    /// Byte offsets of the last messages, at most a window of them.
    offsets: VecDeque<u64>,
    has_provider_state: bool,
    notices: Vec<String>,
}

/// Reads every line of a log from `reader`, which must be at the start of the file.
fn scan_lines(reader: &mut impl BufRead, path: &Path, window: usize) -> Result<LogScan> {
    let mut counted = LogScan::default();
    let mut first: Option<MetadataLine> = None;
    let (mut text, mut at) = (Vec::new(), 0);
    loop {
        let length = next_line(reader, &mut text);
        let length = length.with_context(|| format!("read `{}`", path.display()))?;
        if length == 0 {
            break;
        }
        // Most lines are messages, which are counted without full parsing.
        if line::is_message(&text) {
            counted.add_message(at, window);
        } else {
            match line::parse(&text) {
                SessionLine::Metadata(last) => {
                    first.get_or_insert_with(|| last.clone());
                    counted.metadata = last;
                }
                SessionLine::Message(_) => counted.add_message(at, window),
                SessionLine::ProviderState(full) => counted.has_provider_state = full,
                SessionLine::Other => {}
                SessionLine::Invalid => add_unreadable_notice(&text, at, &mut counted.notices),
            }
        }
        at += length;
    }
    if let Some(first) = first {
        merge_first_line(&mut counted.metadata, first);
    }
    Ok(counted)
}

impl LogScan {
    /// Counts a message that begins at offset `at`.
    fn add_message(&mut self, at: u64, window: usize) {
        self.count += 1;
        self.offsets.push_back(at);
        if self.offsets.len() > window {
            self.offsets.pop_front();
        }
    }
}

/// Counts all messages, then reads the window. Needed once after another program has written a lot since our last turn.
fn scan(file: &File, path: &Path, window: usize) -> Result<LogTail> {
    let what = || format!("read `{}`", path.display());
    let mut reader = BufReader::with_capacity(256 << 10, file);
    reader.seek(SeekFrom::Start(0)).with_context(what)?;
    let LogScan {
        mut metadata,
        count,
        offsets: mut places,
        has_provider_state: provider_state,
        mut notices,
    } = scan_lines(&mut reader, path, window)?;
    let consolidated = clamp_metadata(&mut metadata, count, &mut notices);
    let (summary, base) = match window {
        0 => (None, consolidated),
        _ => read_summary(file, path, &mut metadata, count)?,
    };
    let mut start = window_start(base, count, window).min(count);
    places.drain(..places.len().saturating_sub(count - start));
    let (mut messages, mut text) = (Vec::new(), Vec::new());
    for place in &places {
        reader.seek(SeekFrom::Start(*place)).with_context(what)?;
        next_line(&mut reader, &mut text).with_context(what)?;
        if let SessionLine::Message(message) = line::parse(&text) {
            messages.push(message);
        }
    }
    let mut lines = ReverseLines::from_end(file, path, places.front().copied().unwrap_or_default());
    let has_no_need = window == 0 || summary.is_some();
    while start > base && !has_no_need && !has_user(messages.iter().flatten()) {
        let Some((_, text)) = lines.next()? else {
            break;
        };
        if let SessionLine::Message(message) = line::parse(&text) {
            start -= 1;
            messages.insert(0, message);
        }
    }
    Ok(LogTail {
        messages: messages.into_iter().flatten().collect(),
        shortened_before: 0,
        metadata,
        count,
        start,
        summary,
        has_provider_state: provider_state,
        is_closed: false,
        notices,
    })
}

/// Reads the next line into `text`, without its newline, and returns its length. [`OVERLONG_LINE`] replaces an overlong
/// line.
pub(super) fn next_line(reader: &mut impl BufRead, text: &mut Vec<u8>) -> std::io::Result<u64> {
    text.clear();
    let mut length = 0;
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let found = memchr::memchr(b'\n', buffer);
        let count = found.map_or(buffer.len(), |at| at + 1);
        if length + count as u64 <= MAX_LINE_BYTES {
            text.extend_from_slice(&buffer[..count]);
        }
        reader.consume(count);
        length += count as u64;
        if found.is_some() || count == 0 {
            break;
        }
    }
    match length > MAX_LINE_BYTES {
        true => OVERLONG_LINE.clone_into(text),
        false => text.truncate(text.trim_ascii_end().len()),
    }
    Ok(length)
}

fn has_user<'a>(messages: impl IntoIterator<Item = &'a Message>) -> bool {
    messages
        .into_iter()
        .any(|message| matches!(message, Message::User(_)))
}

/// Limits the consolidated count to the number of messages, and the other stored values likewise: a program that starts
/// the file anew carries them over unchanged. Returns the consolidated count.
fn clamp_metadata(metadata: &mut MetadataLine, count: usize, notices: &mut Vec<String>) -> usize {
    if metadata.last_consolidated > count {
        notices.push(format!(
            "{} of the session's {count} messages are marked as consolidated; all are sent",
            metadata.last_consolidated
        ));
        metadata.last_consolidated = 0;
    }
    metadata.clamp(count);
    metadata.last_consolidated
}

/// Adds a warning about an unreadable line. An empty line is ignored.
fn add_unreadable_notice(text: &[u8], at: u64, notices: &mut Vec<String>) {
    if !text.is_empty() {
        notices.push(format!(
            "skipped an unreadable line of the session at byte {at}"
        ));
    }
}

/// Iterator over the lines of a file, last first, with the byte offset at which each begins.
pub(super) struct ReverseLines<'a> {
    file: &'a File,
    path: &'a Path,
    /// File offset of the start of `buffer`.
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> ReverseLines<'a> {
    /// Starts at offset `end`, which is the end of a line.
    pub(super) fn from_end(file: &'a File, path: &'a Path, end: u64) -> Self {
        Self {
            file,
            path,
            start: end,
            buffer: Vec::new(),
        }
    }

    /// Returns the offset of the next line back and its text without the newline; `None` at the start of the file.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        if self.buffer.is_empty() && self.start == 0 {
            return Ok(None);
        }
        // The line's own trailing newline is not a separator.
        let mut searched = 0;
        loop {
            let body = self.buffer.len().saturating_sub(1);
            if let Some(found) =
                memchr::memrchr(b'\n', &self.buffer[..body.saturating_sub(searched)])
            {
                let line = self.buffer.split_off(found + 1);
                return Ok(Some((self.start + found as u64 + 1, trim_line(line))));
            }
            if self.start == 0 {
                return Ok(Some((0, trim_line(std::mem::take(&mut self.buffer)))));
            }
            if self.buffer.len() as u64 > MAX_LINE_BYTES {
                return self.skip().map(Some);
            }
            // Do not search the same bytes again, so that a long line is scanned only once.
            searched = body;
            self.read_block(self.buffer.len() as u64)?;
        }
    }

    /// Reads the bytes before `buffer`: one block, or `min_bytes` bytes if that is more.
    fn read_block(&mut self, min_bytes: u64) -> Result<()> {
        let begin = self.start.saturating_sub(BLOCK_BYTES.max(min_bytes));
        let mut block = vec![0; usize::try_from(self.start - begin).context("read backwards")?];
        let read = self.file.read_exact_at(&mut block, begin);
        read.with_context(|| format!("read `{}`", self.path.display()))?;
        block.append(&mut self.buffer);
        self.buffer = block;
        self.start = begin;
        Ok(())
    }

    /// Skips a line that is too long to keep.
    fn skip(&mut self) -> Result<(u64, Vec<u8>)> {
        loop {
            self.buffer.clear();
            if self.start == 0 {
                return Ok((0, OVERLONG_LINE.into()));
            }
            self.read_block(BLOCK_BYTES)?;
            if let Some(found) = memchr::memrchr(b'\n', &self.buffer) {
                self.buffer.truncate(found + 1);
                return Ok((self.start + found as u64 + 1, OVERLONG_LINE.into()));
            }
        }
    }
}

fn trim_line(mut line: Vec<u8>) -> Vec<u8> {
    line.truncate(line.trim_ascii_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::{ReverseLines, window_start};
    use std::io::Write;

    #[test]
    fn the_window_moves_in_steps() {
        let check = |consolidated, count, window, expect| {
            assert_eq!(
                window_start(consolidated, count, window),
                expect,
                "{consolidated} {count} {window}"
            );
        };
        check(0, 0, 100, 0);
        check(0, 100, 100, 0);
        check(0, 101, 100, 50);
        check(0, 150, 100, 50);
        check(0, 151, 100, 100);
        check(20, 120, 100, 20);
        check(20, 121, 100, 70);
        check(0, 5, 1, 4);
        check(7, 7, 100, 7);
    }

    #[test]
    fn reverse_lines_of_any_length() {
        let check = |lines: &[usize]| {
            let text: Vec<Vec<u8>> = lines
                .iter()
                .enumerate()
                .map(|(number, length)| vec![b'a' + number as u8; *length])
                .collect();
            let mut file = tempfile::tempfile().unwrap();
            let mut places = Vec::new();
            let mut size = 0_u64;
            for line in &text {
                places.push(size);
                file.write_all(line).unwrap();
                file.write_all(b"\n").unwrap();
                size += line.len() as u64 + 1;
            }
            let mut back = ReverseLines::from_end(&file, "x".as_ref(), size);
            let mut found = Vec::new();
            while let Some(line) = back.next().unwrap() {
                found.push(line);
            }
            found.reverse();
            let expect: Vec<(u64, Vec<u8>)> = places.into_iter().zip(text).collect();
            assert!(found == expect, "{lines:?}");
        };
        check(&[]);
        check(&[0]);
        check(&[3]);
        check(&[3, 0, 5]);
        check(&[10, 65_536, 1, 200_000, 65_535, 2]);
        check(&[65_535, 65_535]);
    }

    /// A log written by many programs: closed and unclosed turns, lines of other programs, unreadable lines.
    fn log(mut random: impl FnMut(u64) -> u64) -> Vec<u8> {
        let mut log = Vec::new();
        let (mut count, mut full) = (0, false);
        let first = "{\"_type\": \"metadata\", \"key\": \"k\", \"metadata\": {\"title\": \"t\"}}\n";
        log.extend_from_slice(first.as_bytes());
        for number in 0..random(60) {
            let at = log.len();
            let mut put = |line: String| log.extend_from_slice(line.as_bytes());
            match random(12) {
                0..4 => put(format!(
                    "{{\"role\": \"user\", \"content\": \"u{number}\"}}\n"
                )),
                4 => put(format!(
                    "{{\"role\": \"assistant\", \"content\": \"a{number}\"}}\n"
                )),
                5 => put(format!(
                    "{{\"role\": \"tool\", \"tool_call_id\": \"{number}\", \"content\": \"\\ud83d\"}}\n"
                )),
                6 => put("{\"role\": \"user\", \"content\": \"/x\", \"_command\": true}\n".into()),
                7 => put(["{\"role\": \"user\", \"cont\n", "\n", "[1]\n", "\0\0\n"]
                    [random(4) as usize]
                    .into()),
                8 => {
                    full = random(2) == 0;
                    let state = if full { "1" } else { "null" };
                    put(format!(
                        "{{\"_type\": \"provider_state\", \"state\": {state}}}\n"
                    ));
                }
                9 => put(format!(
                    "{{\"_type\": \"metadata\", \"key\": \"k\", \"last_consolidated\": {}}}\n",
                    random(count + 1)
                )),
                kind => {
                    let mut at = at;
                    if std::mem::take(&mut full) {
                        put("{\"_type\": \"provider_state\", \"state\": null}\n".into());
                        at = log.len();
                    }
                    // A closing line at the wrong offset is not trusted.
                    let (at, told) = if kind == 11 {
                        (at + 1, 99)
                    } else {
                        (at, count)
                    };
                    let line = format!(
                        "{{\"_type\": \"metadata\", \"key\": \"k\", \"metadata\": {{\"title\": \"t\"}}, \
                        \"messages\": {told}, \"at\": {at}, \"last_consolidated\": {}}}\n",
                        random(count + 1)
                    );
                    log.extend_from_slice(line.as_bytes());
                }
            }
            count +=
                u64::from(log[at..].starts_with(b"{\"role\"") && !log[at..].ends_with(b"cont\n"));
        }
        log
    }

    #[test]
    fn tail_and_full_scan_agree() {
        let mut state = 1_u64;
        let mut random = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit.max(1)
        };
        for round in 0..400 {
            let log = log(&mut random);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&log).unwrap();
            for window in [0, 1, 4, 10, 100] {
                let walked = super::walk(&file, "x".as_ref(), log.len() as u64, window)
                    .unwrap()
                    .unwrap();
                let scanned = super::scan(&file, "x".as_ref(), window).unwrap();
                let shown = String::from_utf8_lossy(&log);
                assert_eq!(walked.count, scanned.count, "{round} {window}\n{shown}");
                assert_eq!(
                    walked.messages, scanned.messages,
                    "{round} {window}\n{shown}"
                );
                assert_eq!(
                    walked.metadata, scanned.metadata,
                    "{round} {window}\n{shown}"
                );
                assert_eq!(
                    walked.has_provider_state, scanned.has_provider_state,
                    "{round} {window}\n{shown}"
                );
            }
        }
    }

    #[test]
    fn fuzz_any_log_has_a_tail() {
        let mut seeds = Vec::new();
        let mut state = 3_u64;
        for _ in 0..8 {
            seeds.push(log(|limit| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % limit.max(1)
            }));
        }
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        let mut file = tempfile::tempfile().unwrap();
        crate::fuzz::check(&seeds, |input, random| {
            std::io::Seek::rewind(&mut file).unwrap();
            file.set_len(0).unwrap();
            file.write_all(input).unwrap();
            file.write_all(b"\n").unwrap();
            let size = input.len() as u64 + 1;
            let tail = super::read(&file, "x".as_ref(), size, random.below(20)).unwrap();
            assert!(tail.messages.len() <= tail.count);
            crate::history::to_sendable(tail.messages);
        });
    }
}
