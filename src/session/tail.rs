//! Reading a log from its end, so that a turn costs the same whatever the session's age.

use super::line::{self, Line, Metadata};
use crate::message::Message;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is read at once.
const BLOCK: u64 = 64 << 10;

/// What a turn needs to know of a log.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The last metadata line.
    pub(super) metadata: Metadata,
    /// How many messages the log has.
    pub(super) count: usize,
    /// Those that are in the window, as stored.
    pub(super) messages: Vec<Message>,
    /// A newer release remembers something of its provider that ends before our turn.
    pub(super) provider_state: bool,
    /// What was odd.
    pub(super) notices: Vec<String>,
}

/// The index of the first message that is sent: `window` messages at most, and a start that moves in steps of half of
/// it, so that the turns between two steps send the same beginning.
pub(super) fn window_start(consolidated: usize, count: usize, window: usize) -> usize {
    let excess = count.saturating_sub(consolidated).saturating_sub(window);
    let step = (window / 2).max(1);
    consolidated + excess.div_ceil(step) * step
}

/// Read what is needed of `file`, which is `size` bytes long and ends in a newline.
pub(super) fn read(file: &File, path: &Path, size: u64, window: usize) -> Result<Tail> {
    let mut lines = Backwards {
        file,
        path,
        start: size,
        held: Vec::new(),
    };
    match closing(&mut lines)? {
        Some((metadata, count)) => window_of(lines, metadata, count, window),
        None => scan(file, path, window),
    }
}

/// Whether the last line tells how many messages there are.
pub(super) fn is_closed(file: &File, path: &Path, size: u64) -> Result<bool> {
    Ok(closing(&mut Backwards {
        file,
        path,
        start: size,
        held: Vec::new(),
    })?
    .is_some())
}

/// The last line, where it is a closing line that stands where it says, and its count.
fn closing(lines: &mut Backwards<'_>) -> Result<Option<(Metadata, usize)>> {
    let Some((at, last)) = lines.next()? else {
        return Ok(None);
    };
    let Line::Metadata(metadata) = line::parse(&last) else {
        return Ok(None);
    };
    let count = metadata.messages.filter(|_| metadata.at == Some(at));
    Ok(count.map(|count| (metadata, count)))
}

/// The messages of the window, read backwards from a closing line that can be trusted.
fn window_of(
    mut lines: Backwards<'_>,
    mut metadata: Metadata,
    count: usize,
    window: usize,
) -> Result<Tail> {
    let mut notices = Vec::new();
    let consolidated = within(&mut metadata, count, &mut notices);
    let wanted = count - window_start(consolidated, count, window).min(count);
    let mut messages = Vec::new();
    let mut seen = 0;
    let all = count - consolidated.min(count);
    // A turn that is longer than the window is sent whole: without the user's message it would be nothing.
    while seen < wanted || (window > 0 && seen < all && !has_user(&messages)) {
        let Some((at, text)) = lines.next()? else {
            break;
        };
        match line::parse(&text) {
            Line::Message(message) => {
                seen += 1;
                messages.extend(message);
            }
            Line::Metadata(_) | Line::ProviderState(_) | Line::Other => {}
            Line::Bad => note_bad(&text, at, &mut notices),
        }
    }
    messages.reverse();
    Ok(Tail {
        metadata,
        count,
        messages,
        provider_state: false,
        notices,
    })
}

/// Another program wrote last: count all messages once, then read the window.
fn scan(file: &File, path: &Path, window: usize) -> Result<Tail> {
    let what = || format!("read `{}`", path.display());
    let mut notices = Vec::new();
    let mut metadata: Option<Metadata> = None;
    let mut first: Option<Metadata> = None;
    let mut provider_state = false;
    // Where each message begins; 8 bytes for each, however long it is.
    let mut places = Vec::new();
    let mut reader = BufReader::with_capacity(256 << 10, file);
    reader.seek(SeekFrom::Start(0)).with_context(what)?;
    let mut text = Vec::new();
    let mut at = 0;
    loop {
        text.clear();
        let length = reader.read_until(b'\n', &mut text).with_context(what)?;
        if length == 0 {
            break;
        }
        match line::parse(text.trim_ascii_end()) {
            Line::Metadata(found) => {
                first.get_or_insert_with(|| found.clone());
                metadata = Some(found);
            }
            Line::Message(_) => places.push(at),
            Line::ProviderState(full) => provider_state = full,
            Line::Other => {}
            Line::Bad => note_bad(&text, at, &mut notices),
        }
        at += length as u64;
    }
    let mut metadata = metadata.unwrap_or_default();
    // A newer release gives a session its title in the first line alone.
    for (key, value) in first.into_iter().flat_map(|first| first.metadata) {
        // What we keep there ourselves is newest in the last line.
        if key != "nanobot" {
            metadata.metadata.insert(key, value);
        }
    }
    let count = places.len();
    let consolidated = within(&mut metadata, count, &mut notices);
    let start = window_start(consolidated, count, window).min(count);
    let mut messages = Vec::new();
    for place in &places[start..] {
        reader.seek(SeekFrom::Start(*place)).with_context(what)?;
        text.clear();
        reader.read_until(b'\n', &mut text).with_context(what)?;
        if let Line::Message(message) = line::parse(text.trim_ascii_end()) {
            messages.extend(message);
        }
    }
    for place in places[consolidated.min(start)..start].iter().rev() {
        if window == 0 || has_user(&messages) {
            break;
        }
        reader.seek(SeekFrom::Start(*place)).with_context(what)?;
        text.clear();
        reader.read_until(b'\n', &mut text).with_context(what)?;
        if let Line::Message(Some(message)) = line::parse(text.trim_ascii_end()) {
            messages.insert(0, message);
        }
    }
    Ok(Tail {
        metadata,
        count,
        messages,
        provider_state,
        notices,
    })
}

fn has_user(messages: &[Message]) -> bool {
    messages
        .iter()
        .any(|message| matches!(message, Message::User(_)))
}

/// How much is consolidated, which cannot be more than there is.
fn within(metadata: &mut Metadata, count: usize, notices: &mut Vec<String>) -> usize {
    if metadata.last_consolidated > count {
        notices.push(format!(
            "the session says that {} of its {count} messages are consolidated; all are sent",
            metadata.last_consolidated
        ));
        metadata.last_consolidated = 0;
    }
    metadata.last_consolidated
}

fn note_bad(text: &[u8], at: u64, notices: &mut Vec<String>) {
    if !text.trim_ascii().is_empty() {
        notices.push(format!(
            "the session's line at byte {at} cannot be read, and is left out"
        ));
    }
}

/// The lines of a file, last first, with the place where each begins.
struct Backwards<'a> {
    file: &'a File,
    path: &'a Path,
    /// Where `held` begins in the file.
    start: u64,
    held: Vec<u8>,
}

impl Backwards<'_> {
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        if self.held.is_empty() && self.start == 0 {
            return Ok(None);
        }
        // The newline that ends the line itself does not count.
        let mut searched = 0;
        loop {
            let body = self.held.len().saturating_sub(1);
            if let Some(found) = memchr::memrchr(b'\n', &self.held[..body.saturating_sub(searched)])
            {
                let line = self.held.split_off(found + 1);
                return Ok(Some((self.start + found as u64 + 1, trimmed(line))));
            }
            if self.start == 0 {
                return Ok(Some((0, trimmed(std::mem::take(&mut self.held)))));
            }
            // What has been searched needs not be searched again: a long line costs its length once.
            searched = body;
            let begin = self.start.saturating_sub(BLOCK.max(self.held.len() as u64));
            let mut block = vec![0; usize::try_from(self.start - begin).context("read back")?];
            let read = self.file.read_exact_at(&mut block, begin);
            read.with_context(|| format!("read `{}`", self.path.display()))?;
            block.append(&mut self.held);
            self.held = block;
            self.start = begin;
        }
    }
}

fn trimmed(mut line: Vec<u8>) -> Vec<u8> {
    line.truncate(line.trim_ascii_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::{Backwards, window_start};
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
    fn lines_come_last_first_whatever_their_length() {
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
            let mut back = Backwards {
                file: &file,
                path: "x".as_ref(),
                start: size,
                held: Vec::new(),
            };
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
}
