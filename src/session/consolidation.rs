//! Consolidation of a session into memory: which messages are due, a snapshot of them, and the pointer to the first
//! message that is not consolidated.
//!
//! Nothing here takes a turn's lock. A snapshot is read from the log as it is, and the pointer moves by an appended
//! metadata line, which a running turn detects. The pointer only moves forward, and only if it is still where the
//! snapshot began.

use super::Session;
use super::files::Logged;
use super::integrity::{MAX_ATTEMPTS, end_of_last_line, is_newer, refuse_newer, repair_end, stat};
use super::line::{self, Closing, Line, Metadata};
use super::log::Known;
use super::place::{Place, Sync};
use super::tail::{self, Backwards};
use crate::error::{Exit, exit_of};
use crate::message::Message;
use crate::message::token_estimate;
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

/// Thresholds for consolidating a session.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Size of the window in messages; half of them remain when the rest is consolidated.
    pub window: usize,
    /// Limit in tokens, whichever is reached first; half of them remain.
    pub tokens: u64,
}

/// The next range of messages to consolidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Index of its first message.
    pub from: usize,
    /// Upper limit of its end (exclusive): the start of a turn, or the end of a range left by `/new`.
    pub limit: usize,
    /// True for a range left by `/new`, of which no message is held back.
    pub left: bool,
    /// Number of attempts so far.
    pub tries: u32,
}

/// A snapshot of a part of a session.
#[derive(Clone, Debug)]
pub struct Piece {
    pub from: usize,
    /// Index of the first message after it.
    pub to: usize,
    pub messages: Vec<Logged>,
}

impl Session {
    /// True if part of the session is due for consolidation. Reads no file.
    pub fn is_due(&self, terms: &Terms) -> bool {
        let Some(log) = &self.log else {
            return false;
        };
        let open = log.count.saturating_sub(log.metadata.last_consolidated);
        let left = log.metadata.kept().left;
        left.iter().any(|range| is_there(range, log.count))
            || open >= terms.window
            || self.weight >= terms.tokens
    }
}

/// True if a range left by `/new` is still in the log; another program may have shortened the log.
fn is_there((from, to): &(usize, usize), count: usize) -> bool {
    from < to && *to <= count
}

/// Returns the next range of the session `key`: first those left by `/new`, then messages that are due. With `all`, the
/// range need not be due. `None` if there is no such range or session.
///
/// # Errors
/// Status 78 if a newer release wrote the session.
pub fn next(place: &Place, key: &str, terms: &Terms, all: bool) -> Result<Option<Next>> {
    let path = place.find(key)?;
    let Some(file) = store::open_existing(&path)? else {
        return Ok(None);
    };
    let size = end_of_last_line(&file, &path)?;
    let tail = tail::read(&file, &path, size, 0)?;
    refuse_newer(tail.metadata.is_newer(), &path)?;
    let kept = tail.metadata.kept();
    let mut left = kept.left.into_iter();
    let left = left.find(|range| is_there(range, tail.count));
    if let Some((from, limit)) = left {
        return Ok(Some(Next {
            from,
            limit,
            left: true,
            tries: kept.tries,
        }));
    }
    let from = tail.metadata.last_consolidated;
    let border = border(&file, &path, size, from, tail.count, terms)?;
    let limit = match border {
        Border { due: false, .. } if !all => return Ok(None),
        Border { limit, .. } => limit,
    };
    Ok((limit > from).then_some(Next {
        from,
        limit,
        left: false,
        tries: kept.tries,
    }))
}

/// The boundary of a consolidation: the index of the first message to keep (`limit`), and `is_due`, true if a threshold
/// is reached.
struct Border {
    limit: usize,
    due: bool,
}

/// True if a turn begins with this message.
fn begins_turn(message: Option<&Message>) -> bool {
    matches!(message, Some(Message::User(user)) if !user.injected)
}

/// Walks back from the end over the messages to keep, then to the start of that turn, and on until it is known if
/// anything is due. If no turn starts between `from` and there, the limit is the start of the next turn. Kept messages
/// always begin with a user message, because nothing before the first one would be sent again.
fn border(
    file: &File,
    path: &Path,
    size: u64,
    from: usize,
    count: usize,
    terms: &Terms,
) -> Result<Border> {
    let mut due = count - from >= terms.window;
    let (mut number, mut tokens) = (count, 0);
    // The limit regardless of turns; then the last start of a turn at or before it, and the first one after it.
    let mut wanted = (terms.window < 2).then_some(count);
    let (mut before, mut after) = (None, None);
    let mut lines = Backwards::from(file, path, size);
    while number > from && !(due && before.is_some()) {
        let Some((_, text)) = lines.next()? else {
            break;
        };
        let Line::Message(message) = line::parse(&text) else {
            continue;
        };
        tokens += message.as_ref().map_or(0, token_estimate::of_message);
        if tokens > terms.tokens / 2 {
            wanted.get_or_insert(number);
        }
        number -= 1;
        if count - number == terms.window / 2 {
            wanted.get_or_insert(number);
        }
        due |= tokens >= terms.tokens;
        if before.is_none() && number > from && begins_turn(message.as_ref()) {
            match wanted {
                Some(wanted) if number <= wanted => before = Some(number),
                _ => after = Some(number),
            }
        }
    }
    let wanted = wanted.filter(|wanted| *wanted > from);
    // If nothing is due, do not take more than the limit allows: otherwise each call would find one more turn.
    let limit = wanted.and_then(|_| before.or(after.filter(|_| due)));
    Ok(Border {
        limit: limit.unwrap_or(from),
        due,
    })
}

/// Reads the range `next` of the session `key`, turn by turn, until `has_room` returns false for a message; the first
/// turn is always read in full. `None` if the session has changed.
pub fn read(
    place: &Place,
    key: &str,
    next: &Next,
    has_room: &mut dyn FnMut(&Logged) -> bool,
) -> Result<Option<Piece>> {
    let path = place.find(key)?;
    let Some(file) = store::open_existing(&path)? else {
        return Ok(None);
    };
    let what = || format!("read `{}`", path.display());
    let Some(start) = offset(&file, &path, next.from)? else {
        return Ok(None);
    };
    let mut reader = BufReader::with_capacity(256 << 10, &file);
    reader.seek(SeekFrom::Start(start)).with_context(what)?;
    let mut messages: Vec<Logged> = Vec::new();
    let (mut number, mut to) = (next.from, None);
    let mut text = Vec::new();
    let mut full = false;
    while number < next.limit && tail::next_line(&mut reader, &mut text).with_context(what)? > 0 {
        let Line::Message(message) = line::parse(&text) else {
            continue;
        };
        if number > next.from && begins_turn(message.as_ref()) {
            to = Some(number);
        }
        if let Some(message) = message {
            let (time, turn) = line::stamp(&text);
            let logged = Logged {
                number,
                time,
                turn,
                message,
            };
            full |= !has_room(&logged);
            messages.push(logged);
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
        messages.retain(|logged| logged.number < to);
        Piece {
            from: next.from,
            to,
            messages,
        }
    }))
}

/// The offset at which message `index` begins, searched from the nearer end of the file.
fn offset(file: &File, path: &Path, wanted: usize) -> Result<Option<u64>> {
    let size = end_of_last_line(file, path)?;
    let is_message =
        |text: &[u8]| line::is_message(text) || matches!(line::parse(text), Line::Message(_));
    let count = tail::read(file, path, size, 0)?.count;
    if wanted >= count {
        return Ok(None);
    }
    if count - wanted < wanted {
        let mut lines = Backwards::from(file, path, size);
        let mut number = count;
        while let Some((at, text)) = lines.next()? {
            number -= usize::from(is_message(&text));
            if number == wanted {
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
        let length = tail::next_line(&mut reader, &mut text).with_context(what)?;
        if length == 0 {
            return Ok(None);
        }
        if is_message(&text) {
            if number == wanted {
                return Ok(Some(at));
            }
            number += 1;
        }
        at += length;
    }
}

/// Records an attempt to consolidate `next`. Returns false, and writes nothing, if it is no longer next.
pub fn count_try(place: &Place, key: &str, next: &Next) -> Result<bool> {
    amend(place, key, &mut |metadata, _| {
        let is_next = is_next(metadata, next.from);
        if is_next {
            metadata.change(|kept| kept.tries += 1);
        }
        is_next
    })
}

/// Takes back a recorded attempt for which no model was called.
pub fn take_back(place: &Place, key: &str, next: &Next) -> Result<bool> {
    amend(place, key, &mut |metadata, _| {
        let is_next = is_next(metadata, next.from) && metadata.kept().tries > 0;
        if is_next {
            metadata.change(|kept| kept.tries -= 1);
        }
        is_next
    })
}

/// Moves the pointer past the consolidated messages `from` to `to`. Returns false if the session has changed since it
/// was read.
pub fn advance(place: &Place, key: &str, from: usize, to: usize) -> Result<bool> {
    let moved = amend(place, key, &mut |metadata, count| {
        if to > count || from >= to {
            return false;
        }
        let mut kept = metadata.kept();
        if let Some(range) = kept.left.iter_mut().find(|range| range.0 == from) {
            range.0 = to;
            kept.left.retain(|range| range.0 < range.1);
        } else if metadata.last_consolidated == from {
            metadata.consolidated(to);
        } else {
            return false;
        }
        kept.tries = 0;
        metadata.keep(&kept);
        true
    });
    match moved {
        // A newer release has continued the session. Its messages are in memory already; this must not block further
        // work.
        Err(error) if exit_of(&error) == Exit::Config => Ok(false),
        moved => moved,
    }
}

/// True if message `from` begins the next range, or a range that `/new` has left since.
fn is_next(metadata: &Metadata, from: usize) -> bool {
    let left = metadata.kept().left;
    match left.is_empty() {
        true => metadata.last_consolidated == from,
        false => left.iter().any(|range| range.0 == from),
    }
}

/// Appends a metadata line after `change` has updated it. `change` receives the number of messages and returns false if
/// there is nothing to write. It is called again if another program has written meanwhile.
///
/// # Errors
/// Status 78 if a newer release wrote the session.
fn amend(
    place: &Place,
    key: &str,
    change: &mut dyn FnMut(&mut Metadata, usize) -> bool,
) -> Result<bool> {
    for _ in 0..MAX_ATTEMPTS {
        let path = place.find(key)?;
        let Some(file) = store::open_existing_log(&path)? else {
            return Ok(false);
        };
        refuse_newer(is_newer(&path)?, &path)?;
        // The same lock as in a turn: newer releases have one for all sessions of a store.
        let guard = File::open(path.with_file_name(".session-files.lock")).ok();
        let guard = guard.as_ref().unwrap_or(&file);
        repair_end(&file, guard, &path, &place.clock, &mut |_| {})?;
        let known = Known::from(&stat(&file, &path)?);
        let tail = tail::read(&file, &path, known.size, 0)?;
        let mut metadata = tail.metadata;
        if !change(&mut metadata, tail.count) {
            return Ok(false);
        }
        metadata.key.get_or_insert_with(|| key.to_owned());
        // Without these times, the Python program cannot read the session.
        for time in [&mut metadata.created_at, &mut metadata.updated_at] {
            time.get_or_insert_with(|| place.clock.stamp());
        }
        (metadata.messages, metadata.at) = (Some(tail.count), Some(known.size));
        let closing = Closing {
            turn: "",
            // A line in mid-turn stays marked as such.
            ending: match metadata.is_compaction {
                true => line::COMPACTED,
                false => "consolidation",
            },
            summary: None,
        };
        let line = line::of_metadata(&metadata, Some(&closing));
        let written = store::with_lock(guard, &path, || {
            let is_known = std::fs::metadata(&path).is_ok_and(|now| Known::from(&now) == known);
            if is_known {
                store::append_to(&file, &path, known.size, line.as_bytes())?;
            }
            Ok(is_known)
        })?;
        if written {
            if place.sync == Sync::Turn {
                store::sync(&file, &path)?;
            }
            return Ok(true);
        }
    }
    // Another program keeps writing; this can be done later.
    Ok(false)
}
