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

/// Thresholds for consolidating a session.
#[derive(Clone, Copy, Debug)]
pub struct ConsolidationLimits {
    /// Size of the window in messages; half of them remain when the rest is consolidated.
    pub window: usize,
    /// Limit in tokens, whichever is reached first; half of them remain.
    pub tokens: u64,
}

/// The next range of messages to consolidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsolidationRange {
    /// Index of its first message.
    pub from: usize,
    /// Upper limit of its end (exclusive): the start of a turn, or the end of a range left by `/new`.
    pub limit: usize,
    /// True for a range left by `/new`, of which no message is held back.
    pub(crate) is_left_by_new: bool,
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
    pub fn is_due(&self, limits: &ConsolidationLimits) -> bool {
        let Some(log) = &self.log else {
            return false;
        };
        let unconsolidated = log.count.saturating_sub(log.metadata.last_consolidated);
        let ranges = log.metadata.session_metadata().ranges_left_by_new;
        ranges.iter().any(|(from, to)| is_in_log(*from, *to, log.count))
            || unconsolidated >= limits.window
            || self.estimated_tokens >= limits.tokens
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
    limits: &ConsolidationLimits,
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
    if let Some((from, limit)) = ranges.find(|(from, to)| is_in_log(*from, *to, tail.count)) {
        return Ok(Some(ConsolidationRange { from, limit, is_left_by_new: true, attempts }));
    }
    let from = tail.metadata.last_consolidated;
    let boundary = find_boundary(&file, &path, size, from, tail.count, limits)?;
    if boundary.limit <= from || !(include_not_due || boundary.is_due) {
        return Ok(None);
    }
    Ok(Some(ConsolidationRange { from, limit: boundary.limit, is_left_by_new: false, attempts }))
}

/// The boundary of a consolidation.
struct ConsolidationBoundary {
    /// The index of the first message that stays in the window.
    limit: usize,
    /// True if a threshold is reached.
    is_due: bool,
}

/// Walks back from the end over the messages that stay, then to the start of their first turn, and on until it is clear
/// if a threshold is reached. If no turn starts between `from` and there, the limit is the start of the next turn. The
/// messages that stay always begin with a user message, because nothing before the first one would be sent again.
fn find_boundary(
    file: &File,
    path: &Path,
    size: u64,
    from: usize,
    count: usize,
    limits: &ConsolidationLimits,
) -> Result<ConsolidationBoundary> {
    let mut is_due = count - from >= limits.window;
    let (mut index, mut tokens) = (count, 0);
    // The limit regardless of turns; then the last start of a turn at or before it, and the first one after it.
    let mut limit = (limits.window < 2).then_some(count);
    let (mut turn_before, mut turn_after) = (None, None);
    let mut lines = ReverseLines::from_end(file, path, size);
    while index > from && !(is_due && turn_before.is_some()) {
        let Some((_, text)) = lines.next()? else {
            break;
        };
        let SessionLine::Message(message) = line::parse(text) else {
            continue;
        };
        tokens += message.as_ref().map_or(0, token_estimate::for_message);
        if tokens > limits.tokens / 2 {
            limit.get_or_insert(index);
        }
        index -= 1;
        if count - index == limits.window / 2 {
            limit.get_or_insert(index);
        }
        is_due |= tokens >= limits.tokens;
        let begins_turn = index > from && message.as_ref().is_some_and(Message::begins_turn);
        if begins_turn && turn_before.is_none() {
            if limit.is_some_and(|limit| index <= limit) {
                turn_before = Some(index);
            } else {
                turn_after = Some(index);
            }
        }
    }
    // If nothing is due, do not take more than the limit allows: otherwise each call would find one more turn.
    let limit = match limit {
        Some(limit) if limit > from => turn_before.or(turn_after.filter(|_| is_due)),
        _ => None,
    };
    Ok(ConsolidationBoundary { limit: limit.unwrap_or(from), is_due })
}

/// Reads `range` of the session `key`, turn by turn, until `has_room` returns false for a message; the first
/// turn is always read in full. What a provider rejected is left out: it would be rejected here too. `None` if the
/// session has changed.
pub fn read_range(
    store: &SessionStore,
    key: &str,
    range: &ConsolidationRange,
    has_room: &mut dyn FnMut(&LoggedMessage) -> bool,
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
    let is_left_by_new = ranges_left_by_new.iter().any(|(_, to)| range.from < *to);
    let origin = if is_left_by_new { origin_left_by_new } else { origin };
    let Some(start) = find_message_offset(&file, &path, size, tail.count, range.from)? else {
        return Ok(None);
    };
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, &file);
    reader.seek(SeekFrom::Start(start)).with_context(what)?;
    let mut messages: Vec<LoggedMessage> = Vec::new();
    let (mut index, mut to) = (range.from, None);
    let mut text = Vec::new();
    let mut is_full = false;
    while index < range.limit
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
                is_full |= !has_room(&logged);
                messages.push(logged);
            }
        }
        if is_full && to.is_some() {
            break;
        }
        index += 1;
    }
    if index == range.limit {
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
        let mut lines = ReverseLines::from_end(file, path, size);
        let mut number = count;
        while let Some((offset, text)) = lines.next()? {
            number -= usize::from(line::is_counted(text));
            if number == index {
                return Ok(Some(offset));
            }
        }
        return Ok(None);
    }
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, file);
    let what = || format!("read `{}`", path.display());
    reader.seek(SeekFrom::Start(0)).with_context(what)?;
    let (mut offset, mut number, mut text) = (0, 0, Vec::new());
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
pub fn record_attempt(store: &SessionStore, key: &str, range: &ConsolidationRange) -> Result<bool> {
    update_metadata(store, key, &mut |metadata, _| {
        let is_next = is_next(metadata, range.from);
        if is_next {
            metadata.update_session_metadata(|session_metadata| session_metadata.attempts += 1);
        }
        is_next
    })
}

/// Takes back a recorded attempt for which no model was called.
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
pub fn advance_pointer(store: &SessionStore, key: &str, from: usize, to: usize) -> Result<bool> {
    let is_moved = update_metadata(store, key, &mut |metadata, count| {
        if to > count || from >= to {
            return false;
        }
        let mut session_metadata = metadata.session_metadata();
        if let Some(range) =
            session_metadata.ranges_left_by_new.iter_mut().find(|range| range.0 == from)
        {
            range.0 = to;
            session_metadata.ranges_left_by_new.retain(|range| range.0 < range.1);
        } else if metadata.last_consolidated == from {
            metadata.set_consolidated(to);
        } else {
            return false;
        }
        session_metadata.attempts = 0;
        metadata.set_session_metadata(&session_metadata);
        true
    });
    match is_moved {
        // A newer release has continued the session. Its messages are in memory already; this must not block further
        // work.
        Err(error) if exit_for(&error) == Exit::Config => Ok(false),
        is_moved => is_moved,
    }
}

/// True if message `from` begins the next range, or a range that `/new` has left since.
fn is_next(metadata: &MetadataLine, from: usize) -> bool {
    let ranges = metadata.session_metadata().ranges_left_by_new;
    if ranges.is_empty() {
        metadata.last_consolidated == from
    } else {
        ranges.iter().any(|range| range.0 == from)
    }
}
