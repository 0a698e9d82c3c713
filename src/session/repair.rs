//! Diagnosis and repair of session files. No message is changed: an incomplete last line is moved to a side file as in
//! every turn, wrong counts are corrected by an appended line, and the file mode is restricted to the owner.

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

/// A problem in a session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    /// The repair, such as `moved to a side file`; `None` if there is nothing to do, or nothing that is safe to do.
    pub cure: Option<String>,
}

/// The repair of a file mode that grants access to other users.
const CLOSED: &str = "set to 0600";

impl Finding {
    /// True if the problem is the file's mode, not its content.
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

/// Maximum number of places listed per kind of problem.
const NAMED: usize = 5;

/// Lists the session files of all directories, each with its key.
pub fn every(place: &Place) -> Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for dir in place.directories() {
        for path in files::logs(dir)? {
            // An unreadable file is reported when it is examined.
            let key = key_in(&path).ok().flatten();
            all.push((key.unwrap_or_else(|| key_from_name(&path)), path));
        }
    }
    all.sort();
    Ok(all)
}

/// Examines the session `key` at `path`, and repairs it if `apply` is set. The findings name the repairs in either
/// case.
///
/// # Errors
/// Status 75 if the session is in use.
pub fn repair(place: &Place, key: &str, path: &Path, mends: bool) -> Result<Vec<Finding>> {
    if is_newer(path)? {
        let what = "written by a newer nanobot, read-only for this one";
        return Ok(vec![Finding::told(what)]);
    }
    let used = place.find(key)?;
    if used != path {
        // Opening it as the session `key` would move the file in use over it.
        let what = match used.exists() {
            true => format!("not in use: session `{key}` is in `{}`", used.display()),
            false => format!(
                "not found by its key: the file of session `{key}` would be `{}`",
                used.display()
            ),
        };
        return Ok(vec![Finding::told(what)]);
    }
    let was_locked_once = lock_path(path).exists();
    let lock = try_lock(place, key, path)?;
    let file = store::open_existing(path)?
        .with_context(|| format!("`{}` no longer exists", path.display()))?;
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
        // An examination alone leaves no lock file behind.
        false if !was_locked_once => lock.remove()?,
        false => drop(lock),
    }
    let mode = stat(&file, path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("other users can access the file (mode {mode:04o})");
        findings.push(Finding::cured(what, CLOSED));
        if mends {
            file.set_permissions(Permissions::from_mode(0o600))
                .with_context(|| format!("change the mode of `{}`", path.display()))?;
        }
    }
    Ok(findings)
}

/// Opens the file as a turn does, which repairs its end, and appends a closing line with the right counts if needed.
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

/// Finds a problem at the end of a file.
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
            let what = format!("the last line is incomplete ({length} bytes at byte {end})");
            Finding::cured(what, "moved to a side file")
        }
        _ => Finding::cured("the last line has no newline", "ended with one"),
    }))
}

/// The result of reading all lines of a file.
#[derive(Debug, Default)]
struct Examined {
    findings: Vec<Finding>,
    count: usize,
    /// True if a closing line with the right counts must be appended.
    is_miscounted: bool,
}

/// State while the lines are read.
#[derive(Debug, Default)]
struct Met {
    count: usize,
    bad: Vec<String>,
    orphans: Vec<String>,
    unanswered: Vec<String>,
    /// Calls whose results may still follow: the message's number and the call id.
    open: Vec<(usize, String)>,
    last: Option<Metadata>,
    /// The message count stated by the last closing line at its stated offset, and the actual count there.
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
                if let (Some(stated), true) = (metadata.messages, metadata.at == Some(at)) {
                    self.told = Some((stated, self.count));
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

    /// Marks the open calls as unanswered: no result can follow any more.
    fn close(&mut self) {
        let left = std::mem::take(&mut self.open);
        self.unanswered
            .extend(left.iter().map(|(number, _)| number.to_string()));
    }

    fn judged(mut self, size: u64) -> Examined {
        self.close();
        let mut findings = Vec::new();
        let mut is_miscounted = false;
        let mut add = |what: &str, places: &[String], then: &str| {
            if !places.is_empty() {
                findings.push(Finding::told(format!("{what} {}; {then}", named(places))));
            }
        };
        add("unreadable line at byte", &self.bad, "skipped");
        add(
            "tool result without its call: message",
            &self.orphans,
            "not sent",
        );
        add(
            "tool call without its result: message",
            &self.unanswered,
            "sent as interrupted",
        );
        if size > 0 && !self.has_first {
            let what = "the first line is not metadata: other releases do not list the session";
            findings.push(Finding::told(what));
        }
        if let Some((stated, actual)) = self.told.filter(|(stated, actual)| stated != actual) {
            let what = format!("the closing line counts {stated} messages, but there are {actual}");
            findings.push(Finding::cured(what, "recounted"));
            is_miscounted = true;
        }
        if let Some(last) = &self.last {
            if last.last_consolidated > self.count {
                let (pointer, count) = (last.last_consolidated, self.count);
                let what = format!("{pointer} of {count} messages are marked as consolidated");
                findings.push(Finding::cured(what, "reset to 0, so that all are sent"));
                is_miscounted = true;
            }
            let mut kept = last.kept();
            let before = kept.clone();
            kept.cut(self.count);
            if kept != before {
                let what = "the metadata refers to messages that do not exist";
                findings.push(Finding::cured(what, "limited to those that do"));
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

/// Joins the first places, and the number of the others.
fn named(places: &[String]) -> String {
    let first = places[..places.len().min(NAMED)].join(", ");
    match places.len() - places.len().min(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
