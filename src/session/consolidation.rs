//! What of a conversation is to become memory: what is due, a snapshot of it, and the pointer behind it.
//!
//! Nothing here takes the lock of a turn: a piece is read as it stands, and the pointer moves by a metadata line, which a
//! running turn notices. It moves only forward, and only from where the snapshot found it.

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

/// When a conversation is to be consolidated.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// So many messages are sent again; half of them stay when the rest is consolidated.
    pub window: usize,
    /// So many tokens, whichever comes first; half of them stay.
    pub tokens: u64,
}

/// What is to be consolidated next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The number of its first message.
    pub from: usize,
    /// Where it ends at the latest: where a turn begins, or what was put behind ends.
    pub limit: usize,
    /// It was put behind, and nothing of it is kept back.
    pub left: bool,
    /// How often it was tried.
    pub tries: u32,
}

/// A piece of a conversation, as it stood when it was read.
#[derive(Clone, Debug)]
pub struct Piece {
    pub from: usize,
    /// The number of the first message behind it.
    pub to: usize,
    pub messages: Vec<Logged>,
}

impl Session {
    /// Whether something of it is to be consolidated, told without reading anything.
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

/// Whether what was put behind is still in the log: what another program made shorter has it not any more.
fn is_there((from, to): &(usize, usize), count: usize) -> bool {
    from < to && *to <= count
}

/// What of the session `key` comes next: what was put behind, then what is due; with `all` whatever may be consolidated,
/// due or not. `None` where there is nothing, or no such session.
///
/// # Errors
/// Status 78 where a newer release wrote it.
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

/// Where what is kept begins, and whether what is before it is due.
struct Border {
    limit: usize,
    due: bool,
}

/// Whether a turn begins with it.
fn begins_turn(message: Option<&Message>) -> bool {
    matches!(message, Some(Message::User(user)) if !user.injected)
}

/// Go back from the end as far as messages are kept, from there to the beginning of the turn, and on until it is known
/// whether anything is due. Where the turn begins no later than the piece does, all of it is taken: what is kept begins
/// with a user's message in any case, since nothing before the first of those would be sent again.
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
    // Where it would be if turns were of no matter; the last turn that begins before it, and the first after it.
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
    // What is not due is not taken beyond what is to stay: else the next look would find one more turn, and one more.
    let limit = wanted.and_then(|_| before.or(after.filter(|_| due)));
    Ok(Border {
        limit: limit.unwrap_or(from),
        due,
    })
}

/// Read what is next of the session `key`, turn by turn, for as long as `has_room` says so of each message; the first
/// turn is taken whole in any case. `None` where the session is not as it was.
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

/// Where message `wanted` begins in the file, from whichever end it is nearer.
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

/// Write down that what is next is tried. Whether it still is next; else nothing is written.
pub fn count_try(place: &Place, key: &str, next: &Next) -> Result<bool> {
    amend(place, key, &mut |metadata, _| {
        let is_next = is_next(metadata, next.from);
        if is_next {
            metadata.change(|kept| kept.tries += 1);
        }
        is_next
    })
}

/// Take back a try that was none: nobody was asked.
pub fn take_back(place: &Place, key: &str, next: &Next) -> Result<bool> {
    amend(place, key, &mut |metadata, _| {
        let is_next = is_next(metadata, next.from) && metadata.kept().tries > 0;
        if is_next {
            metadata.change(|kept| kept.tries -= 1);
        }
        is_next
    })
}

/// The messages from `from` to `to` are consolidated: move the pointer behind them. Whether it moved; it does not where
/// the session is not any more what was read.
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
        // A newer release has gone on with it meanwhile. What it became of is done, and must not be in the way of more.
        Err(error) if exit_of(&error) == Exit::Config => Ok(false),
        moved => moved,
    }
}

/// Whether message `from` begins what comes next, or what was put behind since.
fn is_next(metadata: &Metadata, from: usize) -> bool {
    let left = metadata.kept().left;
    match left.is_empty() {
        true => metadata.last_consolidated == from,
        false => left.iter().any(|range| range.0 == from),
    }
}

/// Append a metadata line, changed by `change`, which is told how many messages there are and says whether there is
/// anything to write. It is asked again where another program wrote meanwhile.
///
/// # Errors
/// Status 78 where a newer release wrote it.
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
        // As a turn does: the newer releases have one lock for all sessions of a store.
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
        // Where they are missing, the Python program would not read the session.
        for time in [&mut metadata.created_at, &mut metadata.updated_at] {
            time.get_or_insert_with(|| place.clock.stamp());
        }
        (metadata.messages, metadata.at) = (Some(tail.count), Some(known.size));
        let closing = Closing {
            turn: "",
            // What was in the middle of a turn is so still.
            ending: match metadata.is_compaction {
                true => line::COMPACTED,
                false => "consolidation",
            },
            summary: None,
        };
        let line = line::of_metadata(&metadata, Some(&closing));
        let written = store::while_locked(guard, &path, || {
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
    // Whoever writes that much is busy with it; this can be done later.
    Ok(false)
}
