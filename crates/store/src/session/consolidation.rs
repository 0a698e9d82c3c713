//! Consolidation of a session into memory: which messages are due, a snapshot of them, and the pointer to the first
//! message that is not consolidated.
//!
//! Nothing here takes a turn's lock. A snapshot is read from the log as it is, and the pointer moves by an appended
//! metadata line, which a running turn detects. The pointer only moves forward, and only if it is still where the
//! snapshot began.

use super::Session;
use super::files::LoggedMessage;
use super::integrity::{end_of_last_line, refuse_newer};
use super::layout::SessionStore;
use super::line::{self, MetadataLine, SessionLine};
use super::metadata::{RecordedOrigin, SessionMetadata};
use super::metadata_update::update_metadata;
use super::tail_reader::{self, MessageWindow, ReverseLines};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::message::Message;
use nanobot_base::message::token_estimate;
use nanobot_os::durable_file;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

/// Thresholds for consolidating a session. It is due as soon as one of them is reached; messages up to half of each
/// threshold stay in the window.
#[derive(Clone, Copy, Debug)]
pub struct ConsolidationThresholds {
    /// Number of messages.
    pub window: usize,
    /// Estimated number of tokens.
    pub tokens: u64,
}

impl ConsolidationThresholds {
    fn kept_messages(&self) -> usize {
        self.window / 2
    }

    fn kept_tokens(&self) -> u64 {
        self.tokens / 2
    }
}

/// The next range of messages to consolidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsolidationRange {
    /// Index of its first message.
    pub from: usize,
    /// Index of the first message after it: the start of a turn, or the end of a range left by `/new`.
    pub end: usize,
    /// Number of attempts so far.
    pub attempts: u32,
}

/// A snapshot of a part of a session.
#[derive(Clone, Debug)]
pub struct SessionSnapshot {
    pub from: usize,
    /// Index of the first message after it.
    pub to: usize,
    pub messages: Vec<LoggedMessage>,
    /// The recorded origin of the conversation, if it is known.
    pub origin: Option<RecordedOrigin>,
}

impl Session {
    /// True if part of the session is due for consolidation. Reads no file.
    pub fn is_due(&self, thresholds: &ConsolidationThresholds) -> bool {
        let Some(log) = &self.log else {
            return false;
        };
        let unconsolidated = log.count.saturating_sub(log.metadata.last_consolidated);
        let ranges = log.metadata.session_metadata().ranges_left_by_new;
        ranges.iter().any(|(from, to)| is_in_log(*from, *to, log.count))
            || unconsolidated >= thresholds.window
            || self.estimated_tokens >= thresholds.tokens
    }
}

/// True if a range left by `/new` is still in the log; another program may have shortened the log.
fn is_in_log(from: usize, to: usize, count: usize) -> bool {
    from < to && to <= count
}

/// Returns the next range of the session `key`: first those left by `/new`, then messages that are due. With
/// `include_not_due`, the range need not be due. `None` if there is no such range or session.
///
/// # Errors
/// Status 78 if a newer release wrote the session.
pub fn next_range(
    store: &SessionStore,
    key: &str,
    thresholds: &ConsolidationThresholds,
    include_not_due: bool,
) -> Result<Option<ConsolidationRange>> {
    let path = store.find_path(key)?;
    let Some(file) = durable_file::open_existing(&path)? else {
        return Ok(None);
    };
    let size = end_of_last_line(&file, &path)?;
    let tail = tail_reader::read(&file, &path, size, MessageWindow::default())?;
    refuse_newer(tail.metadata.is_newer(), &path)?;
    let SessionMetadata { ranges_left_by_new, attempts, .. } = tail.metadata.session_metadata();
    let mut ranges = ranges_left_by_new.into_iter();
    if let Some((from, end)) = ranges.find(|(from, to)| is_in_log(*from, *to, tail.count)) {
        return Ok(Some(ConsolidationRange { from, end, attempts }));
    }
    let from = tail.metadata.last_consolidated;
    let boundary = find_boundary(&file, &path, size, from, tail.count, thresholds)?;
    if boundary.first_kept <= from || !(include_not_due || boundary.is_due) {
        return Ok(None);
    }
    Ok(Some(ConsolidationRange { from, end: boundary.first_kept, attempts }))
}

/// The boundary of a consolidation.
struct ConsolidationBoundary {
    /// The index of the first message that stays in the window.
    first_kept: usize,
    /// True if a threshold is reached.
    is_due: bool,
}

/// Finds the boundary for the messages from `from` on, and reads no more of the log than that takes:
///
/// - The natural boundary is where the messages that stay reach half of a threshold.
/// - The boundary is the last start of a turn at or before it: nothing before the first user message would be sent again.
/// - If no turn starts there, it is the next start of a turn, but only if a threshold is reached. Otherwise each call would
///   find one more turn.
/// - If there is none either, or the natural boundary is not after `from`, nothing is consolidated.
fn find_boundary(
    file: &File,
    path: &Path,
    size: u64,
    from: usize,
    count: usize,
    thresholds: &ConsolidationThresholds,
) -> Result<ConsolidationBoundary> {
    let mut is_due = count - from >= thresholds.window;
    let mut index = count;
    let mut tokens = 0;
    let mut natural_boundary = (thresholds.kept_messages() == 0).then_some(count);
    let mut turn_before = None;
    let mut turn_after = None;
    let mut lines = ReverseLines::from_end(file, path, size);
    while index > from && !(is_due && turn_before.is_some()) {
        let Some((_, text)) = lines.next()? else {
            break;
        };
        let SessionLine::Message(message) = line::parse(text) else {
            continue;
        };
        tokens += message.as_ref().map_or(0, token_estimate::for_message);
        if natural_boundary.is_none() && tokens > thresholds.kept_tokens() {
            natural_boundary = Some(index);
        }
        index -= 1;
        if natural_boundary.is_none() && count - index == thresholds.kept_messages() {
            natural_boundary = Some(index);
        }
        is_due |= tokens >= thresholds.tokens;
        let begins_turn = index > from && message.as_ref().is_some_and(Message::begins_turn);
        if begins_turn && turn_before.is_none() {
            if natural_boundary.is_some_and(|boundary| index <= boundary) {
                turn_before = Some(index);
            } else {
                turn_after = Some(index);
            }
        }
    }
    let turn_start = if is_due { turn_before.or(turn_after) } else { turn_before };
    let first_kept = match natural_boundary {
        Some(boundary) if boundary > from => turn_start.unwrap_or(from),
        _ => from,
    };
    Ok(ConsolidationBoundary { first_kept, is_due })
}

/// Reads `range` of the session `key`, turn by turn, until `accept` returns false for a message; the first
/// turn is always read in full. What a provider rejected is left out: it would be rejected here too. `None` if the
/// session has changed.
///
/// # Errors
/// The log cannot be read.
pub fn read_range(
    store: &SessionStore,
    key: &str,
    range: &ConsolidationRange,
    accept: &mut dyn FnMut(&LoggedMessage) -> bool,
) -> Result<Option<SessionSnapshot>> {
    let path = store.find_path(key)?;
    let Some(file) = durable_file::open_existing(&path)? else {
        return Ok(None);
    };
    let what = || format!("read `{}`", path.display());
    let size = end_of_last_line(&file, &path)?;
    let tail = tail_reader::read(&file, &path, size, MessageWindow::default())?;
    let SessionMetadata { rejected_turns, ranges_left_by_new, origin, origin_left_by_new, .. } =
        tail.metadata.session_metadata();
    // Decided now, since `/new` may have left the range after it was determined.
    let is_left_by_new = ranges_left_by_new.iter().any(|(_, to)| range.from < *to);
    let origin = if is_left_by_new { origin_left_by_new } else { origin };
    let Some(start) = find_message_offset(&file, &path, size, tail.count, range.from)? else {
        return Ok(None);
    };
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, &file);
    reader.seek(SeekFrom::Start(start)).with_context(what)?;
    let mut messages: Vec<LoggedMessage> = Vec::new();
    let mut index = range.from;
    let mut to = None;
    let mut text = Vec::new();
    let mut is_full = false;
    while index < range.end
        && tail_reader::next_line(&mut reader, &mut text).with_context(what)? > 0
    {
        let SessionLine::Message(message) = line::parse(&text) else {
            continue;
        };
        if index > range.from && message.as_ref().is_some_and(Message::begins_turn) {
            to = Some(index);
        }
        if let Some(message) = message {
            let (time, turn) = line::timestamp_and_turn(&text);
            let logged = LoggedMessage { index, time, turn, message };
            if !rejected_turns.contains(&logged.turn) {
                is_full |= !accept(&logged);
                messages.push(logged);
            }
        }
        if is_full && to.is_some() {
            break;
        }
        index += 1;
    }
    if index == range.end {
        to = Some(index);
    }
    Ok(to.map(|to| {
        messages.retain(|logged| logged.index < to);
        SessionSnapshot { from: range.from, to, messages, origin }
    }))
}

/// The offset at which message `index` begins, searched from the nearer end of the file, which is `size` bytes long and
/// has `count` messages.
fn find_message_offset(
    file: &File,
    path: &Path,
    size: u64,
    count: usize,
    index: usize,
) -> Result<Option<u64>> {
    if index >= count {
        return Ok(None);
    }
    if count - index < index {
        find_offset_from_end(file, path, size, count, index)
    } else {
        find_offset_from_start(file, path, index)
    }
}

fn find_offset_from_end(
    file: &File,
    path: &Path,
    size: u64,
    count: usize,
    index: usize,
) -> Result<Option<u64>> {
    let mut lines = ReverseLines::from_end(file, path, size);
    let mut number = count;
    while let Some((offset, text)) = lines.next()? {
        number -= usize::from(line::is_counted(text));
        if number == index {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

fn find_offset_from_start(file: &File, path: &Path, index: usize) -> Result<Option<u64>> {
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, file);
    let what = || format!("read `{}`", path.display());
    reader.seek(SeekFrom::Start(0)).with_context(what)?;
    let mut offset = 0;
    let mut number = 0;
    let mut text = Vec::new();
    loop {
        let length = tail_reader::next_line(&mut reader, &mut text).with_context(what)?;
        if length == 0 {
            return Ok(None);
        }
        if line::is_counted(&text) {
            if number == index {
                return Ok(Some(offset));
            }
            number += 1;
        }
        offset += length;
    }
}

/// Records an attempt to consolidate `range`. Returns false, and writes nothing, if it is no longer next.
///
/// # Errors
/// Status 78 if a newer release wrote the session. The log cannot be read or written.
pub fn record_attempt(store: &SessionStore, key: &str, range: &ConsolidationRange) -> Result<bool> {
    update_metadata(store, key, &mut |metadata, _| {
        let is_next = is_next(metadata, range.from);
        if is_next {
            metadata.update_session_metadata(|session_metadata| session_metadata.attempts += 1);
        }
        is_next
    })
}

/// Takes back a recorded attempt for which no model was called. Returns false, and writes nothing, if `range` is no longer
/// next or has no attempt.
///
/// # Errors
/// Those of [`record_attempt`].
pub fn withdraw_attempt(
    store: &SessionStore,
    key: &str,
    range: &ConsolidationRange,
) -> Result<bool> {
    update_metadata(store, key, &mut |metadata, _| {
        let is_next = is_next(metadata, range.from) && metadata.session_metadata().attempts > 0;
        if is_next {
            metadata.update_session_metadata(|session_metadata| session_metadata.attempts -= 1);
        }
        is_next
    })
}

/// Moves the pointer past the consolidated messages `from` to `to`. Returns false if the session has changed since it
/// was read.
///
/// # Errors
/// The log cannot be read or written.
pub fn advance_pointer(store: &SessionStore, key: &str, from: usize, to: usize) -> Result<bool> {
    let result = update_metadata(store, key, &mut |metadata, count| {
        to <= count && from < to && move_pointer(metadata, from, to)
    });
    match result {
        // A newer release has continued the session. Its messages are in memory already; this must not block further
        // work.
        Err(error) if exit_for(&error) == Exit::Config => Ok(false),
        result => result,
    }
}

/// Moves the pointer, or the start of a range left by `/new`, from `from` to `to`. Returns false if neither is at `from`.
fn move_pointer(metadata: &mut MetadataLine, from: usize, to: usize) -> bool {
    let mut session_metadata = metadata.session_metadata();
    let ranges = &mut session_metadata.ranges_left_by_new;
    if let Some((start, _)) = ranges.iter_mut().find(|(start, _)| *start == from) {
        *start = to;
        ranges.retain(|(start, end)| start < end);
    } else if metadata.last_consolidated == from {
        metadata.set_consolidated(to);
    } else {
        return false;
    }
    session_metadata.attempts = 0;
    metadata.set_session_metadata(&session_metadata);
    true
}

/// True if message `from` begins the next range, or a range that `/new` has left since.
fn is_next(metadata: &MetadataLine, from: usize) -> bool {
    let ranges = metadata.session_metadata().ranges_left_by_new;
    if ranges.is_empty() {
        metadata.last_consolidated == from
    } else {
        ranges.iter().any(|(start, _)| *start == from)
    }
}

#[cfg(test)]
mod tests {
    use super::{ConsolidationThresholds, find_boundary};
    use std::fs::File;

    #[test]
    fn a_boundary_is_the_start_of_a_turn() {
        // Messages of the user (`u`) and of the assistant (`a`).
        let check = |roles: &str,
                     window: usize,
                     tokens: u64,
                     from: usize,
                     expect: (usize, bool)| {
            let line = |role: char| match role {
                'u' => "{\"role\": \"user\", \"content\": \"x\"}\n",
                _ => "{\"role\": \"assistant\", \"content\": \"x\"}\n",
            };
            let text: String = roles.chars().map(line).collect();
            let temp = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(temp.path(), &text).unwrap();
            let file = File::open(temp.path()).unwrap();
            let thresholds = ConsolidationThresholds { window, tokens };
            let size = text.len() as u64;
            let boundary =
                find_boundary(&file, temp.path(), size, from, roles.len(), &thresholds).unwrap();
            assert_eq!((boundary.first_kept, boundary.is_due), expect, "{roles} {window} {from}");
        };
        const MANY: u64 = 1_000_000;
        // Half of the window stays.
        check("uaua", 4, MANY, 0, (2, true));
        check("uaaaua", 4, MANY, 0, (4, true));
        check("uauaua", 4, MANY, 2, (4, true));
        // The last turn that begins before that.
        check("uauaaa", 4, MANY, 0, (2, true));
        // If there is none, the next one, but only if a threshold is reached.
        check("uaaaau", 6, MANY, 0, (5, true));
        check("uaaaau", 8, MANY, 0, (0, false));
        check("ua", 4, MANY, 0, (0, false));
        check("", 4, MANY, 0, (0, false));
        // Tokens.
        check("uaua", 100, 1, 0, (2, true));
        // All of it, up to the last turn.
        check("uaua", 0, MANY, 0, (2, true));
    }
}
