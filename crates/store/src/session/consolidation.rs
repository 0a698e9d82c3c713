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
        let open = log.count.saturating_sub(log.metadata.last_consolidated);
        let left = log.metadata.session_metadata().ranges_left_by_new;
        left.iter().any(|range| is_in_log(range, log.count))
            || open >= limits.window
            || self.estimated_tokens >= limits.tokens
    }
}

/// True if a range left by `/new` is still in the log; another program may have shortened the log.
fn is_in_log((from, to): &(usize, usize), count: usize) -> bool {
    from < to && *to <= count
}

/// Returns the next range of the session `key`: first those left by `/new`, then messages that are due. With `all`, the
/// range need not be due. `None` if there is no such range or session.
///
/// # Errors
/// Status 78 if a newer release wrote the session.
pub fn next_range(
    store: &SessionStore,
    key: &str,
    limits: &ConsolidationLimits,
    all: bool,
) -> Result<Option<ConsolidationRange>> {
    let path = store.find_path(key)?;
    let Some(file) = durable_file::open_existing(&path)? else {
        return Ok(None);
    };
    let size = end_of_last_line(&file, &path)?;
    let tail = tail_reader::read(&file, &path, size, MessageWindow::default())?;
    refuse_newer(tail.metadata.is_newer(), &path)?;
    let kept = tail.metadata.session_metadata();
    let mut left = kept.ranges_left_by_new.into_iter();
    let left = left.find(|range| is_in_log(range, tail.count));
    if let Some((from, limit)) = left {
        return Ok(Some(ConsolidationRange {
            from,
            limit,
            is_left_by_new: true,
            attempts: kept.attempts,
        }));
    }
    let from = tail.metadata.last_consolidated;
    let border = find_boundary(&file, &path, size, from, tail.count, limits)?;
    let limit = match border {
        ConsolidationBoundary { is_due: false, .. } if !all => return Ok(None),
        ConsolidationBoundary { limit, .. } => limit,
    };
    Ok((limit > from).then_some(ConsolidationRange {
        from,
        limit,
        is_left_by_new: false,
        attempts: kept.attempts,
    }))
}

/// The boundary of a consolidation: the index of the first message to keep (`limit`), and `is_due`, true if a threshold
/// is reached.
struct ConsolidationBoundary {
    limit: usize,
    is_due: bool,
}

/// Walks back from the end over the messages to keep, then to the start of that turn, and on until it is known if
/// anything is due. If no turn starts between `from` and there, the limit is the start of the next turn. Kept messages
/// always begin with a user message, because nothing before the first one would be sent again.
fn find_boundary(
    file: &File,
    path: &Path,
    size: u64,
    from: usize,
    count: usize,
    limits: &ConsolidationLimits,
) -> Result<ConsolidationBoundary> {
    let mut due = count - from >= limits.window;
    let (mut number, mut tokens) = (count, 0);
    // The limit regardless of turns; then the last start of a turn at or before it, and the first one after it.
    let mut wanted = (limits.window < 2).then_some(count);
    let (mut before, mut after) = (None, None);
    let mut lines = ReverseLines::from_end(file, path, size);
    while number > from && !(due && before.is_some()) {
        let Some((_, text)) = lines.next()? else {
            break;
        };
        let SessionLine::Message(message) = line::parse(text) else {
            continue;
        };
        tokens += message.as_ref().map_or(0, token_estimate::for_message);
        if tokens > limits.tokens / 2 {
            wanted.get_or_insert(number);
        }
        number -= 1;
        if count - number == limits.window / 2 {
            wanted.get_or_insert(number);
        }
        due |= tokens >= limits.tokens;
        if before.is_none() && number > from && message.as_ref().is_some_and(Message::begins_turn) {
            match wanted {
                Some(wanted) if number <= wanted => before = Some(number),
                _ => after = Some(number),
            }
        }
    }
    let wanted = wanted.filter(|wanted| *wanted > from);
    // If nothing is due, do not take more than the limit allows: otherwise each call would find one more turn.
    let limit = wanted.and_then(|_| before.or(after.filter(|_| due)));
    Ok(ConsolidationBoundary { limit: limit.unwrap_or(from), is_due: due })
}

/// Reads the range `next` of the session `key`, turn by turn, until `has_room` returns false for a message; the first
/// turn is always read in full. What a provider rejected is left out: it would be rejected here too. `None` if the
/// session has changed.
pub fn read_range(
    store: &SessionStore,
    key: &str,
    next: &ConsolidationRange,
    has_room: &mut dyn FnMut(&LoggedMessage) -> bool,
) -> Result<Option<SessionSnapshot>> {
    let path = store.find_path(key)?;
    let Some(file) = durable_file::open_existing(&path)? else {
        return Ok(None);
    };
    let what = || format!("read `{}`", path.display());
    let size = end_of_last_line(&file, &path)?;
    let tail = tail_reader::read(&file, &path, size, MessageWindow::default())?;
    let SessionMetadata {
        rejected_turns: rejected,
        ranges_left_by_new: left,
        origin,
        origin_left_by_new,
        ..
    } = tail.metadata.session_metadata();
    let origin =
        if left.iter().any(|(_, end)| next.from < *end) { origin_left_by_new } else { origin };
    let Some(start) = find_message_offset(&file, &path, size, tail.count, next.from)? else {
        return Ok(None);
    };
    let mut reader = BufReader::with_capacity(256 << 10, &file);
    reader.seek(SeekFrom::Start(start)).with_context(what)?;
    let mut messages: Vec<LoggedMessage> = Vec::new();
    let (mut number, mut to) = (next.from, None);
    let mut text = Vec::new();
    let mut full = false;
    while number < next.limit
        && tail_reader::next_line(&mut reader, &mut text).with_context(what)? > 0
    {
        let SessionLine::Message(message) = line::parse(&text) else {
            continue;
        };
        if number > next.from && message.as_ref().is_some_and(Message::begins_turn) {
            to = Some(number);
        }
        if let Some(message) = message {
            let (time, turn) = line::timestamp_and_turn(&text);
            let logged = LoggedMessage { index: number, time, turn, message };
            if !rejected.contains(&logged.turn) {
                full |= !has_room(&logged);
                messages.push(logged);
            }
        }
        if full && to.is_some() {
            break;
        }
        number += 1;
    }
    if number == next.limit {
        to = Some(number);
    }
    Ok(to.map(|to| {
        messages.retain(|logged| logged.index < to);
        SessionSnapshot { from: next.from, to, messages, origin }
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
        while let Some((at, text)) = lines.next()? {
            number -= usize::from(line::is_counted(text));
            if number == index {
                return Ok(Some(at));
            }
        }
        return Ok(None);
    }
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let what = || format!("read `{}`", path.display());
    reader.seek(SeekFrom::Start(0)).with_context(what)?;
    let (mut at, mut number, mut text) = (0, 0, Vec::new());
    loop {
        let length = tail_reader::next_line(&mut reader, &mut text).with_context(what)?;
        if length == 0 {
            return Ok(None);
        }
        if line::is_counted(&text) {
            if number == index {
                return Ok(Some(at));
            }
            number += 1;
        }
        at += length;
    }
}

/// Records an attempt to consolidate `next`. Returns false, and writes nothing, if it is no longer next.
pub fn record_attempt(store: &SessionStore, key: &str, next: &ConsolidationRange) -> Result<bool> {
    update_metadata(store, key, &mut |metadata, _| {
        let is_next = is_next(metadata, next.from);
        if is_next {
            metadata.update_session_metadata(|kept| kept.attempts += 1);
        }
        is_next
    })
}

/// Takes back a recorded attempt for which no model was called.
pub fn withdraw_attempt(
    store: &SessionStore,
    key: &str,
    next: &ConsolidationRange,
) -> Result<bool> {
    update_metadata(store, key, &mut |metadata, _| {
        let is_next = is_next(metadata, next.from) && metadata.session_metadata().attempts > 0;
        if is_next {
            metadata.update_session_metadata(|kept| kept.attempts -= 1);
        }
        is_next
    })
}

/// Moves the pointer past the consolidated messages `from` to `to`. Returns false if the session has changed since it
/// was read.
pub fn advance_pointer(store: &SessionStore, key: &str, from: usize, to: usize) -> Result<bool> {
    let moved = update_metadata(store, key, &mut |metadata, count| {
        if to > count || from >= to {
            return false;
        }
        let mut kept = metadata.session_metadata();
        if let Some(range) = kept.ranges_left_by_new.iter_mut().find(|range| range.0 == from) {
            range.0 = to;
            kept.ranges_left_by_new.retain(|range| range.0 < range.1);
        } else if metadata.last_consolidated == from {
            metadata.set_consolidated(to);
        } else {
            return false;
        }
        kept.attempts = 0;
        metadata.set_session_metadata(&kept);
        true
    });
    match moved {
        // A newer release has continued the session. Its messages are in memory already; this must not block further
        // work.
        Err(error) if exit_for(&error) == Exit::Config => Ok(false),
        moved => moved,
    }
}

/// True if message `from` begins the next range, or a range that `/new` has left since.
fn is_next(metadata: &MetadataLine, from: usize) -> bool {
    let left = metadata.session_metadata().ranges_left_by_new;
    if left.is_empty() {
        metadata.last_consolidated == from
    } else {
        left.iter().any(|range| range.0 == from)
    }
}
