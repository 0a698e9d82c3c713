//! What is odd about a session's file, and what can be done about it without touching what was said: a torn end is kept
//! aside as by every turn, wrong numbers are corrected by a further line, and the file is made its owner's alone.

use super::integrity::{end_of_last_line, is_newer, stat};
use super::line::{self, Closing, Line, Metadata};
use super::lock::{lock_path, try_lock, with_retry_hint};
use super::log::Log;
use super::place::{Place, key_from_name, key_in};
use super::{files, tail};
use crate::message::Message;
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::{File, Permissions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Something odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    /// What is done about it, as `kept aside`; `None` where there is nothing to do, or nothing that may be done.
    pub cure: Option<String>,
}

/// What is done about a file that others may use.
const CLOSED: &str = "made 0600";

impl Finding {
    /// It is about who may use the file, and not about what is in it.
    pub fn is_of_mode(&self) -> bool {
        self.cure.as_deref() == Some(CLOSED)
    }

    fn told(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            cure: None,
        }
    }

    fn cured(what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            cure: Some(cure.into()),
        }
    }
}

/// How many places of a kind are named.
const NAMED: usize = 5;

/// The session files of all places, each with the key that it says it has.
pub fn every(place: &Place) -> Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for dir in place.directories() {
        for path in files::logs(dir)? {
            // One that cannot be read is told of when it is looked at.
            let key = key_in(&path).ok().flatten();
            all.push((key.unwrap_or_else(|| key_from_name(&path)), path));
        }
    }
    all.sort();
    Ok(all)
}

/// Tell what is odd about the session `key` at `path`, and mend what can be mended if it is to be. Cures are told as if
/// they had been done.
///
/// # Errors
/// Status 75 when it is in use.
pub fn repair(place: &Place, key: &str, path: &Path, mends: bool) -> Result<Vec<Finding>> {
    if is_newer(path)? {
        let what = "a newer nanobot wrote it, and this one only reads it";
        return Ok(vec![Finding::told(what)]);
    }
    let used = place.find(key)?;
    if used != path {
        // To open it as the session's would bring the used one there.
        let what = match used.exists() {
            true => format!("it is not used: `{key}` is in `{}`", used.display()),
            false => format!(
                "it is not found: the file of `{key}` would be `{}`",
                used.display()
            ),
        };
        return Ok(vec![Finding::told(what)]);
    }
    let was_locked_once = lock_path(path).exists();
    let lock = try_lock(place, key, path)?;
    let file =
        store::open_existing(path)?.with_context(|| format!("`{}` is gone", path.display()))?;
    let mut findings: Vec<Finding> = end(&file, path)?.into_iter().collect();
    let is_torn = !findings.is_empty();
    let mut examined = examine(&file, path)?;
    findings.append(&mut examined.findings);
    let is_written = mends && (is_torn || examined.is_miscounted);
    match is_written {
        true => {
            drop(lock);
            mend(place, key, path, &examined)?;
        }
        // Looking at it leaves nothing behind.
        false if !was_locked_once => lock.remove()?,
        false => drop(lock),
    }
    let mode = stat(&file, path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("others than its owner may use the file ({mode:04o})");
        findings.push(Finding::cured(what, CLOSED));
        if mends {
            file.set_permissions(Permissions::from_mode(0o600))
                .with_context(|| format!("change `{}`", path.display()))?;
        }
    }
    Ok(findings)
}

/// Open the file as a turn does, which mends its end, and write a closing line with the right numbers if one is wanted.
fn mend(place: &Place, key: &str, path: &Path, examined: &Examined) -> Result<()> {
    let opened = Log::open(place, key, path.to_owned(), Duration::ZERO, &mut |_| {});
    let (mut log, _) = opened.map_err(with_retry_hint)?;
    if !examined.is_miscounted || log.file.is_none() {
        return Ok(());
    }
    log.count = examined.count;
    let closing = Closing {
        turn: "",
        ending: "repaired",
        summary: None,
    };
    log.close(key, &closing, &|metadata, count| {
        if metadata.last_consolidated > count {
            metadata.consolidated(0);
        }
        metadata.change(|kept| kept.cut(count));
    })
}

/// What is odd about the end of a file.
fn end(file: &File, path: &Path) -> Result<Option<Finding>> {
    let (end, size) = (end_of_last_line(file, path)?, stat(file, path)?.len());
    if end == size {
        return Ok(None);
    }
    let length = size - end;
    let mut last = Vec::new();
    if length <= tail::LINE_LIMIT {
        let mut reader = BufReader::new(file);
        reader
            .seek(SeekFrom::Start(end))
            .and_then(|_| reader.take(length).read_to_end(&mut last))
            .with_context(|| format!("read `{}`", path.display()))?;
    }
    Ok(Some(match line::parse(&last) {
        Line::Bad => {
            let what = format!("the last line is torn, {length} bytes at byte {end}");
            Finding::cured(what, "kept aside")
        }
        _ => Finding::cured("the last line has no end", "ended"),
    }))
}

/// What the lines of a file tell.
#[derive(Debug, Default)]
struct Examined {
    findings: Vec<Finding>,
    count: usize,
    /// A line with the right numbers is wanted at the end.
    is_miscounted: bool,
}

/// What was met so far.
#[derive(Debug, Default)]
struct Met {
    count: usize,
    bad: Vec<String>,
    orphans: Vec<String>,
    unanswered: Vec<String>,
    /// Calls whose results may still come: the message's number, and their ids.
    open: Vec<(usize, String)>,
    last: Option<Metadata>,
    /// What the last closing line that stands where it says tells, and what is so.
    told: Option<(usize, usize)>,
    has_first: bool,
}

fn examine(file: &File, path: &Path) -> Result<Examined> {
    let size = end_of_last_line(file, path)?;
    let mut reader = BufReader::with_capacity(256 << 10, file);
    reader
        .rewind()
        .with_context(|| format!("read `{}`", path.display()))?;
    let mut reader = reader.take(size);
    let (mut met, mut text, mut at) = (Met::default(), Vec::new(), 0);
    loop {
        let length = tail::next_line(&mut reader, &mut text);
        let length = length.with_context(|| format!("read `{}`", path.display()))?;
        if length == 0 {
            break;
        }
        met.take(&text, at);
        at += length;
    }
    Ok(met.judged(size))
}

impl Met {
    fn take(&mut self, text: &[u8], at: u64) {
        match line::parse(text) {
            Line::Message(message) => {
                self.count += 1;
                self.take_message(message.as_ref());
            }
            Line::Metadata(metadata) => {
                self.has_first |= at == 0;
                if let (Some(told), true) = (metadata.messages, metadata.at == Some(at)) {
                    self.told = Some((told, self.count));
                }
                self.last = Some(metadata);
            }
            Line::Bad if !text.is_empty() => self.bad.push(at.to_string()),
            _ => {}
        }
    }

    fn take_message(&mut self, message: Option<&Message>) {
        if let Some(Message::Tool(result)) = message {
            match self.open.iter().position(|(_, id)| *id == result.call) {
                Some(place) => drop(self.open.remove(place)),
                None => self.orphans.push(self.count.to_string()),
            }
            return;
        }
        self.close();
        if let Some(Message::Assistant(reply)) = message {
            let calls = reply.calls.iter().map(|call| (self.count, call.id.clone()));
            self.open = calls.collect();
        }
    }

    /// No more results can come.
    fn close(&mut self) {
        let left = std::mem::take(&mut self.open);
        self.unanswered
            .extend(left.iter().map(|(number, _)| number.to_string()));
    }

    fn judged(mut self, size: u64) -> Examined {
        self.close();
        let mut findings = Vec::new();
        let mut is_miscounted = false;
        let mut tell = |what: &str, places: &[String], then: &str| {
            if !places.is_empty() {
                findings.push(Finding::told(format!("{what} {}; {then}", named(places))));
            }
        };
        tell(
            "what cannot be read stands at byte",
            &self.bad,
            "it is left out",
        );
        tell(
            "results without their calls: message",
            &self.orphans,
            "they are not sent",
        );
        tell(
            "calls without their results: message",
            &self.unanswered,
            "they are sent as interrupted",
        );
        if size > 0 && !self.has_first {
            let what = "its first line is no metadata: other releases do not list it";
            findings.push(Finding::told(what));
        }
        if let Some((told, is)) = self.told.filter(|(told, is)| told != is) {
            let what = format!("its closing line counts {told} messages where there are {is}");
            findings.push(Finding::cured(what, "counted again"));
            is_miscounted = true;
        }
        if let Some(last) = &self.last {
            if last.last_consolidated > self.count {
                let (pointer, count) = (last.last_consolidated, self.count);
                let what = format!("{pointer} of its {count} messages are said to be consolidated");
                findings.push(Finding::cured(what, "set to 0, so that all are sent"));
                is_miscounted = true;
            }
            let mut kept = last.kept();
            let before = kept.clone();
            kept.cut(self.count);
            if kept != before {
                let what = "what is kept of it speaks of messages that are not there";
                findings.push(Finding::cured(what, "cut to those that are"));
                is_miscounted = true;
            }
        }
        Examined {
            findings,
            count: self.count,
            is_miscounted,
        }
    }
}

/// Some of many.
fn named(places: &[String]) -> String {
    let first = places[..places.len().min(NAMED)].join(", ");
    match places.len() - places.len().min(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
