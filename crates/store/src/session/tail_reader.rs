//! Reads the end of a session's log, so that the cost of a turn does not depend on the length of the session.
//!
//! The window is the messages to send: those that are not consolidated, and at most a configured number of them if they
//! were not consolidated in time. A closing line is the metadata line that this program writes at the end of a turn: it
//! contains its own offset and the number of messages before it, so that those need not be counted. If another program
//! has rewritten the file, the offset no longer matches, and the line is ignored.

use super::line::{self, MetadataLine, SessionLine};
use crate::history::compaction::CompactedHistory;
use crate::history::result_truncation;
use anyhow::{Context, Result};
use nanobot_base::message::Message;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of the first read. Each further one is twice as large, up to [`MAX_BLOCK_BYTES`]: most windows are small.
const FIRST_BLOCK_BYTES: usize = 16 << 10;
const MAX_BLOCK_BYTES: usize = 64 << 10;
/// Buffer size for reading a file from its beginning: system calls of this size cost little more than the copying.
pub(super) const READ_BUFFER_BYTES: usize = 256 << 10;
/// Maximum distance in bytes that [`peek`] searches backwards for a closing line.
const MAX_PEEK_BYTES: u64 = 8 << 20;
/// Maximum length of a line in bytes. Replies and tool results are far shorter.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 20;
/// Upper limit of the messages sent while a consolidation is due, in windows: one that was consolidated too late, and
/// three turns of up to a window, because a failing model is asked after three turns.
const MAX_WINDOWS_SENT: usize = 4;
/// Replacement for a line longer than [`MAX_LINE_BYTES`]; it is not a valid line.
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
    /// True if a newer release of the Python program stored provider state, which does not include the turns of this
    /// program.
    pub(super) has_provider_state: bool,
    /// True if the last line is a closing line at the offset that it contains.
    pub(super) is_closed: bool,
    /// Warnings about unexpected content.
    pub(super) notices: Vec<String>,
}

/// The number of messages of a session that are sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageWindow {
    /// Number of messages that are sent if the session has more than `limit`; 0 to read none.
    size: usize,
    /// Up to this number, every message that is not consolidated is sent.
    limit: usize,
}

impl MessageWindow {
    /// A window of up to `size` messages, for a session that is consolidated only on request.
    pub fn of_size(size: usize) -> Self {
        Self { size, limit: size }
    }

    /// A window for sessions that are consolidated once they have `size` messages. Messages beyond it are sent until
    /// the consolidation is committed: before that, the memory does not have them. A session with far more messages
    /// than the turns of a slow or failing consolidation add was not consolidated for another reason, and gets a window
    /// of `size`.
    pub fn until_consolidated(size: usize) -> Self {
        let limit = size.saturating_mul(MAX_WINDOWS_SENT);
        Self { size, limit }
    }

    /// Returns the index of the first of `count` messages to send; none of the first `consolidated` ones is sent. Beyond
    /// the limit the index moves in steps of half a window, so that the turns between two steps send the same prefix,
    /// which prompt caching requires.
    fn start(self, consolidated: usize, count: usize) -> usize {
        let open = count.saturating_sub(consolidated);
        if open <= self.limit {
            return consolidated;
        }
        let step = (self.size / 2).max(1);
        consolidated + (open - self.size).div_ceil(step) * step
    }
}

/// Reads the tail of `file`, which is `size` bytes long and ends with a newline. The first read after another program
/// has rewritten the file counts all its messages.
pub(super) fn read(file: &File, path: &Path, size: u64, window: MessageWindow) -> Result<LogTail> {
    read_lines(ReverseLines::from_end(file, path, size), window)
}

/// Like [`read`], from an unread iterator over the `lines` of a file.
pub(super) fn read_lines(lines: ReverseLines<'_>, window: MessageWindow) -> Result<LogTail> {
    let tail = read_backwards(lines, window, u64::MAX)?;
    tail.context("a search without a limit ended at its limit")
}

/// Reads the tail without its messages; `None` if that would require reading a large file.
pub(super) fn peek(file: &File, path: &Path, size: u64) -> Result<Option<LogTail>> {
    let lines = ReverseLines::from_end(file, path, size);
    read_backwards(lines, MessageWindow::default(), MAX_PEEK_BYTES)
}

/// Reads backwards to the last valid closing line, and then to the start of the window. After that line there are only
/// lines of a killed turn or of another program. Returns `None` if it is more than `search_limit` bytes from the end.
fn read_backwards(
    mut lines: ReverseLines<'_>,
    window: MessageWindow,
    search_limit: u64,
) -> Result<Option<LogTail>> {
    let file = lines.file;
    let path = lines.path;
    let size = lines.end();
    let mut state = TailState { window: window.limit, ..TailState::default() };
    let search_end = size.saturating_sub(search_limit);
    let closed_count = match find_closing_line(&mut lines, &mut state, search_end)? {
        ClosingSearch::Found { count } => Some(count),
        ClosingSearch::Missing => None,
        ClosingSearch::TooFar => return Ok(None),
    };
    let is_closed = state.is_closed;
    if !is_closed {
        state.merge_first_line(file, path)?;
    }
    let mut metadata = state.metadata.take().unwrap_or_default();
    let has_provider_state = state.has_provider_state.unwrap_or_default();
    let count = closed_count.unwrap_or(0) + state.count;
    // Without a valid closing line, another program may have rewritten the file, with fewer or other messages.
    let shortened_before =
        closed_count.map_or(0, |_| metadata.session_metadata().shortened_before.min(count));
    let mut notices = Vec::new();
    let consolidated = clamp_metadata(&mut metadata, count, &mut notices);
    let (summary, history_start) = match window.size {
        0 => (None, consolidated),
        _ => read_summary(file, path, &mut metadata, count)?,
    };
    let window_count = count - window.start(history_start, count).min(count);
    let available_count = count - history_start;
    // A turn longer than the window is sent in full: without the user's message it is useless.
    let needs_no_user_message = window.size == 0 || summary.is_some();
    let is_complete = |state: &TailState| {
        let sent = state.messages.iter().take(state.count.min(available_count)).flatten();
        state.count >= available_count
            || (state.count >= window_count && (needs_no_user_message || has_user_message(sent)))
    };
    while !is_complete(&state) {
        let Some((offset, text)) = lines.next()? else {
            break;
        };
        // The last metadata line was read; it replaces the earlier ones.
        if !line::is_metadata(text) {
            state.add_line(offset, text);
        }
    }
    let mut messages = state.messages;
    messages.truncate(available_count);
    drop_before_window(&mut messages, window_count, needs_no_user_message);
    notices.extend(state.notices);
    let start = count - messages.len();
    let messages = messages.into_iter().rev();
    Ok(Some(LogTail {
        messages: shorten_old(messages, start, shortened_before),
        shortened_before,
        metadata,
        count,
        start,
        summary,
        has_provider_state,
        is_closed,
        notices,
    }))
}

/// Drops the messages before the window, which the search for the closing line may have read. `messages` are newest
/// first. Those back to a user message are kept, unless none is needed.
fn drop_before_window(
    messages: &mut Vec<Option<Message>>,
    window_count: usize,
    needs_no_user_message: bool,
) {
    let mut sent_count = window_count.min(messages.len());
    while !needs_no_user_message
        && sent_count < messages.len()
        && !has_user_message(messages[..sent_count].iter().flatten())
    {
        sent_count += 1;
    }
    messages.truncate(sent_count);
}

/// The result of the search for the last valid closing line.
enum ClosingSearch {
    /// Found, with its number of messages.
    Found { count: usize },
    /// The file has none.
    Missing,
    /// None between `search_end` and the end of the file.
    TooFar,
}

/// Reads back to the last valid closing line, or to the offset `search_end`.
fn find_closing_line(
    lines: &mut ReverseLines<'_>,
    state: &mut TailState,
    search_end: u64,
) -> Result<ClosingSearch> {
    while let Some((offset, text)) = lines.next()? {
        if let Some(count) = state.add_line(offset, text) {
            return Ok(ClosingSearch::Found { count });
        }
        if offset < search_end {
            return Ok(ClosingSearch::TooFar);
        }
    }
    Ok(ClosingSearch::Missing)
}

/// Drops messages that are not sent, and shortens long tool results in messages before index `shortened_before`. The
/// first of `messages` has index `start`.
fn shorten_old(
    messages: impl ExactSizeIterator<Item = Option<Message>>,
    start: usize,
    shortened_before: usize,
) -> Vec<Message> {
    let mut sent = Vec::with_capacity(messages.len());
    for (index, message) in messages.enumerate() {
        let Some(mut message) = message else { continue };
        if start + index < shortened_before {
            result_truncation::truncate_result(&mut message);
        }
        sent.push(message);
    }
    sent
}

/// Reads the summary of compacted messages. Returns it with the index of the first message after those that it
/// summarizes. Without a summary, or once its messages are consolidated, returns `None` with the index of the first
/// message that is not consolidated.
fn read_summary(
    file: &File,
    path: &Path,
    metadata: &mut MetadataLine,
    count: usize,
) -> Result<(Option<CompactedHistory>, usize)> {
    let consolidated = metadata.last_consolidated;
    let Some(offset) = metadata.summary_offset else {
        return Ok((None, consolidated));
    };
    let text = read_line_at(file, path, offset)?;
    let summary = line::parse_summary(&text, offset)
        .filter(|summary| summary.first_sent >= consolidated && summary.first_sent <= count);
    if summary.is_none() {
        metadata.summary_offset = None;
    }
    let history_start = summary.as_ref().map_or(consolidated, |summary| summary.first_sent);
    Ok((summary, history_start))
}

/// Reads the line that begins at `offset`.
fn read_line_at(file: &File, path: &Path, offset: u64) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    next_line(&mut BufReader::new(PositionedReader { file, offset }), &mut text)
        .with_context(|| format!("read `{}`", path.display()))?;
    Ok(text)
}

/// Reads a file from an offset on, and leaves the position of its descriptor as it is: the caller may read the file from its beginning.
struct PositionedReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// The state of reading a log backwards: the contents of the lines read so far.
#[derive(Default)]
struct TailState {
    /// The last metadata line.
    metadata: Option<MetadataLine>,
    /// True if the last line of the file is a valid closing line.
    is_closed: bool,
    has_provider_state: Option<bool>,
    /// The messages of the window, newest first, and those before it back to a user message. `None` for messages that
    /// are not sent.
    messages: Vec<Option<Message>>,
    /// Number of messages after which messages are parsed only if a user message comes after them.
    window: usize,
    has_user_message: bool,
    /// Number of messages read.
    count: usize,
    /// Number of lines read.
    lines: usize,
    notices: Vec<String>,
}

impl TailState {
    /// Adds the line that begins at `offset`. If it is a valid closing line, returns the number of messages before it.
    fn add_line(&mut self, offset: u64, text: &[u8]) -> Option<usize> {
        self.lines += 1;
        // Messages before the window are counted without parsing.
        if self.is_full() && line::is_counted(text) {
            self.count += 1;
            return None;
        }
        match line::parse(text) {
            SessionLine::Message(message) => {
                self.count += 1;
                if !self.is_full() {
                    self.has_user_message |= has_user_message(&message);
                    self.messages.push(message);
                }
            }
            SessionLine::Metadata(metadata) => {
                let is_at_offset = metadata.offset == Some(offset);
                // A line with more messages than bytes before it is damaged.
                let count_before =
                    metadata.message_count.filter(|count| is_at_offset && *count as u64 <= offset);
                self.is_closed |= self.lines == 1 && count_before.is_some();
                self.metadata.get_or_insert(metadata);
                return count_before;
            }
            SessionLine::ProviderState(has_state) => {
                self.has_provider_state.get_or_insert(has_state);
            }
            SessionLine::Other => {}
            SessionLine::Invalid => add_unreadable_notice(text, offset, &mut self.notices),
        }
        None
    }

    /// True if all messages of the window were read, and a user message among or before them.
    fn is_full(&self) -> bool {
        self.messages.len() >= self.window && (self.has_user_message || self.window == 0)
    }

    /// Adds the metadata of the first line of the file: a newer release stores the title of the session only there.
    fn merge_first_line(&mut self, file: &File, path: &Path) -> Result<()> {
        if let SessionLine::Metadata(first) = line::parse(&read_line_at(file, path, 0)?) {
            merge_metadata(self.metadata.get_or_insert_default(), first);
        }
        Ok(())
    }
}

/// Adds the entries of the first metadata line to the last one, except the entry of this program: the last line has the
/// current one.
fn merge_metadata(last: &mut MetadataLine, first: MetadataLine) {
    for (key, value) in first.metadata {
        if key != "nanobot" {
            last.metadata.insert(key, value);
        }
    }
}

/// Reads the next line into `text`, without its newline, and returns its length with the newline; 0 at the end of the
/// file. If the line is longer than [`MAX_LINE_BYTES`], `text` is [`OVERLONG_LINE`].
pub(super) fn next_line(reader: &mut impl BufRead, text: &mut Vec<u8>) -> std::io::Result<u64> {
    text.clear();
    let mut length = 0;
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let newline = memchr::memchr(b'\n', buffer);
        let count = newline.map_or(buffer.len(), |at| at + 1);
        if length + count as u64 <= MAX_LINE_BYTES {
            text.extend_from_slice(&buffer[..count]);
        }
        reader.consume(count);
        length += count as u64;
        if newline.is_some() || count == 0 {
            break;
        }
    }
    if length > MAX_LINE_BYTES {
        OVERLONG_LINE.clone_into(text);
    } else {
        text.truncate(text.trim_ascii_end().len());
    }
    Ok(length)
}

fn has_user_message<'a>(messages: impl IntoIterator<Item = &'a Message>) -> bool {
    messages.into_iter().any(|message| matches!(message, Message::User(_)))
}

/// Limits the stored counts to the number of messages, because a program that rewrites the file with fewer messages may
/// copy them unchanged. Returns the number of consolidated messages.
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
fn add_unreadable_notice(text: &[u8], offset: u64, notices: &mut Vec<String>) {
    if !text.is_empty() {
        notices.push(format!("skipped an unreadable line of the session at byte {offset}"));
    }
}

/// An iterator over the lines of a file, last first, with the byte offset at which each begins.
pub(super) struct ReverseLines<'a> {
    file: &'a File,
    path: &'a Path,
    /// File offset of the start of `buffer`.
    start: u64,
    buffer: Vec<u8>,
    /// Length of the part of `buffer` that is not returned yet; it ends with a newline.
    unread: usize,
    /// Bytes to read next time.
    block_bytes: usize,
}

impl<'a> ReverseLines<'a> {
    /// Starts at offset `end`, which is the end of a line, unless [`Self::ends_with_newline`] says otherwise.
    pub(super) fn from_end(file: &'a File, path: &'a Path, end: u64) -> Self {
        Self {
            file,
            path,
            start: end,
            buffer: Vec::new(),
            unread: 0,
            block_bytes: FIRST_BLOCK_BYTES,
        }
    }

    /// The offset of the end of the lines that are not returned yet.
    fn end(&self) -> u64 {
        self.start + self.unread as u64
    }

    /// True if the offset at which it started is the start of the file or the end of a line.
    pub(super) fn ends_with_newline(&mut self) -> Result<bool> {
        if self.start > 0 {
            self.read_block()?;
        }
        Ok(self.buffer.last().is_none_or(|last| *last == b'\n'))
    }

    /// Returns the line before the previous result: its offset, and its text without the newline. `None` at the start
    /// of the file.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        let Some(line) = self.find_next()? else {
            return Ok(None);
        };
        let offset = self.start + line.start as u64;
        self.unread = line.start;
        let text = if line.is_empty() { OVERLONG_LINE } else { self.buffer[line].trim_ascii_end() };
        Ok(Some((offset, text)))
    }

    /// The range of the next line in `buffer`, with its newline; empty if the line is longer than [`MAX_LINE_BYTES`].
    fn find_next(&mut self) -> Result<Option<Range<usize>>> {
        let mut searched = 0;
        loop {
            // The last byte is the newline of the line itself.
            let body_length = self.unread.saturating_sub(1);
            if let Some(newline) =
                memchr::memrchr(b'\n', &self.buffer[..body_length.saturating_sub(searched)])
            {
                return Ok(Some(newline + 1..self.unread));
            }
            if self.start == 0 {
                return Ok((self.unread > 0).then_some(0..self.unread));
            }
            if self.unread as u64 > MAX_LINE_BYTES {
                return self.skip_overlong_line().map(Some);
            }
            // Do not search the same bytes again, so that a long line is scanned only once.
            searched = body_length;
            self.read_block()?;
        }
    }

    /// Reads the bytes before `buffer`: one block, or as many as it contains if that is more.
    fn read_block(&mut self) -> Result<()> {
        let length = self.block_bytes.max(self.unread);
        let length = usize::try_from(self.start).map_or(length, |start| length.min(start));
        let filled = length + self.unread;
        if self.buffer.len() < filled {
            // Zeroed memory costs less than a resized buffer.
            let mut larger = vec![0; filled];
            larger[length..].copy_from_slice(&self.buffer[..self.unread]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(..self.unread, length);
        }
        self.start -= length as u64;
        let result = self.file.read_exact_at(&mut self.buffer[..length], self.start);
        result.with_context(|| format!("read `{}`", self.path.display()))?;
        self.unread = filled;
        self.block_bytes = (self.block_bytes * 2).min(MAX_BLOCK_BYTES);
        Ok(())
    }

    /// Skips a line that is longer than [`MAX_LINE_BYTES`].
    fn skip_overlong_line(&mut self) -> Result<Range<usize>> {
        loop {
            self.unread = 0;
            if self.start == 0 {
                return Ok(0..0);
            }
            self.read_block()?;
            if let Some(newline) = memchr::memrchr(b'\n', &self.buffer[..self.unread]) {
                return Ok(newline + 1..newline + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LogTail, MessageWindow, ReverseLines};
    use crate::session::line::{self, SessionLine};
    use std::io::Write;

    #[test]
    fn the_window_moves_in_steps() {
        let check = |consolidated, count, window, expect| {
            assert_eq!(
                MessageWindow::of_size(window).start(consolidated, count),
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
    fn the_window_waits_for_the_consolidation_up_to_a_limit() {
        let check = |consolidated, count, expect| {
            let window = MessageWindow::until_consolidated(100);
            assert_eq!(window.start(consolidated, count), expect, "{consolidated} {count}");
        };
        check(0, 101, 0);
        check(0, 400, 0);
        check(0, 401, 350);
        check(70, 470, 70);
        check(70, 471, 420);
    }

    #[test]
    fn reverse_lines_may_have_any_length() {
        let check = |lines: &[usize]| {
            let text: Vec<Vec<u8>> = lines
                .iter()
                .enumerate()
                .map(|(index, length)| vec![b'a' + index as u8; *length])
                .collect();
            let mut file = tempfile::tempfile().unwrap();
            let mut offsets = Vec::new();
            let mut size = 0_u64;
            for line in &text {
                offsets.push(size);
                file.write_all(line).unwrap();
                file.write_all(b"\n").unwrap();
                size += line.len() as u64 + 1;
            }
            let mut reverse_lines = ReverseLines::from_end(&file, "x".as_ref(), size);
            let mut actual = Vec::new();
            while let Some((offset, line)) = reverse_lines.next().unwrap() {
                actual.push((offset, line.to_vec()));
            }
            actual.reverse();
            let expect: Vec<(u64, Vec<u8>)> = offsets.into_iter().zip(text).collect();
            assert!(actual == expect, "{lines:?}");
        };
        check(&[]);
        check(&[0]);
        check(&[3]);
        check(&[3, 0, 5]);
        check(&[10, 65_536, 1, 200_000, 65_535, 2]);
        check(&[65_535, 65_535]);
    }

    #[test]
    fn a_closing_line_with_an_impossible_count_is_ignored() {
        let message = "{\"role\": \"user\", \"content\": \"u\"}\n";
        let check = |count: u64, is_closed: bool| {
            let mut file = tempfile::tempfile().unwrap();
            let closing = format!(
                "{{\"_type\": \"metadata\", \"messages\": {count}, \"at\": {}}}\n",
                message.len()
            );
            let text = format!("{message}{closing}");
            file.write_all(text.as_bytes()).unwrap();
            let window = MessageWindow::of_size(9);
            let tail = super::read(&file, "x".as_ref(), text.len() as u64, window).unwrap();
            assert_eq!((tail.count, tail.is_closed), (1, is_closed), "{count}");
            file.write_all(message.as_bytes()).unwrap();
            let size = (text.len() + message.len()) as u64;
            assert_eq!(super::read(&file, "x".as_ref(), size, window).unwrap().count, 2, "{count}");
        };
        check(1, true);
        check(u64::MAX, false);
    }

    /// A random log, as several programs may write it: turns with and without a closing line, lines of other programs,
    /// and unreadable lines.
    fn random_log(mut random: impl FnMut(u64) -> u64) -> Vec<u8> {
        let mut log = Vec::new();
        let (mut count, mut has_state) = (0, false);
        let first = "{\"_type\": \"metadata\", \"key\": \"k\", \"metadata\": {\"title\": \"t\"}}\n";
        log.extend_from_slice(first.as_bytes());
        for number in 0..random(60) {
            let at = log.len();
            let mut append = |line: String| log.extend_from_slice(line.as_bytes());
            match random(12) {
                0..4 => append(format!("{{\"role\": \"user\", \"content\": \"u{number}\"}}\n")),
                4 => append(format!("{{\"role\": \"assistant\", \"content\": \"a{number}\"}}\n")),
                5 => append(format!(
                    "{{\"role\": \"tool\", \"tool_call_id\": \"{number}\", \"content\": \"\\ud83d\"}}\n"
                )),
                6 => {
                    append(
                        "{\"role\": \"user\", \"content\": \"/x\", \"_command\": true}\n".into(),
                    );
                }
                7 => append(
                    ["{\"role\": \"user\", \"cont\n", "\n", "[1]\n", "\0\0\n"][random(4) as usize]
                        .into(),
                ),
                8 => {
                    has_state = random(2) == 0;
                    let state = if has_state { "1" } else { "null" };
                    append(format!("{{\"_type\": \"provider_state\", \"state\": {state}}}\n"));
                }
                9 => append(format!(
                    "{{\"_type\": \"metadata\", \"key\": \"k\", \"last_consolidated\": {}}}\n",
                    random(count + 1)
                )),
                line_type => {
                    let mut at = at;
                    if std::mem::take(&mut has_state) {
                        append("{\"_type\": \"provider_state\", \"state\": null}\n".into());
                        at = log.len();
                    }
                    // A closing line with a wrong offset is ignored.
                    let (at, stated_count) =
                        if line_type == 11 { (at + 1, 99) } else { (at, count) };
                    let line = format!(
                        "{{\"_type\": \"metadata\", \"key\": \"k\", \"metadata\": {{\"title\": \"t\"}}, \
                        \"messages\": {stated_count}, \"at\": {at}, \"last_consolidated\": {}}}\n",
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

    /// The tail of `log` as all its lines say.
    fn read_all_lines(log: &[u8], window: MessageWindow) -> LogTail {
        let (mut messages, mut metadata_lines) = (Vec::new(), Vec::new());
        let mut tail = LogTail::default();
        for text in log.split(|byte| *byte == b'\n') {
            match line::parse(text) {
                SessionLine::Message(message) => messages.push(message),
                SessionLine::Metadata(metadata) => metadata_lines.push(metadata),
                SessionLine::ProviderState(has_state) => tail.has_provider_state = has_state,
                SessionLine::Other | SessionLine::Invalid => {}
            }
        }
        tail.count = messages.len();
        tail.metadata = metadata_lines.last().unwrap().clone();
        super::merge_metadata(&mut tail.metadata, metadata_lines.swap_remove(0));
        let consolidated = super::clamp_metadata(&mut tail.metadata, tail.count, &mut Vec::new());
        tail.start = window.start(consolidated, tail.count);
        while window.size > 0
            && tail.start > consolidated
            && !super::has_user_message(messages[tail.start..].iter().flatten())
        {
            tail.start -= 1;
        }
        tail.messages = messages.split_off(tail.start).into_iter().flatten().collect();
        tail
    }

    #[test]
    fn the_tail_is_what_all_lines_say() {
        let mut state = 1_u64;
        let mut random = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit.max(1)
        };
        for round in 0..nanobot_base::fuzz::by_depth(100, 400) {
            let log = random_log(&mut random);
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&log).unwrap();
            let sizes = [0, 1, 4, 10, 100];
            let fixed = sizes.map(MessageWindow::of_size).into_iter();
            for window in fixed.chain(sizes.map(MessageWindow::until_consolidated)) {
                let tail = super::read(&file, "x".as_ref(), log.len() as u64, window).unwrap();
                let expect = read_all_lines(&log, window);
                let log_text = String::from_utf8_lossy(&log);
                let case = format!("{round} {window:?}\n{log_text}");
                assert_eq!((tail.count, tail.start), (expect.count, expect.start), "{case}");
                assert_eq!(tail.messages, expect.messages, "{case}");
                assert_eq!(tail.metadata, expect.metadata, "{case}");
                assert_eq!(tail.has_provider_state, expect.has_provider_state, "{case}");
            }
        }
    }

    #[test]
    fn fuzz_any_log_can_be_read() {
        let mut seeds = Vec::new();
        let mut state = 3_u64;
        for _ in 0..8 {
            seeds.push(random_log(|limit| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % limit.max(1)
            }));
        }
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        let mut file = tempfile::tempfile().unwrap();
        nanobot_base::fuzz::check(&seeds, |input, random| {
            std::io::Seek::rewind(&mut file).unwrap();
            file.set_len(0).unwrap();
            file.write_all(input).unwrap();
            file.write_all(b"\n").unwrap();
            let size = input.len() as u64 + 1;
            let tail =
                super::read(&file, "x".as_ref(), size, MessageWindow::of_size(random.below(20)))
                    .unwrap();
            assert!(tail.messages.len() <= tail.count);
            crate::history::to_sendable(tail.messages);
        });
    }
}
