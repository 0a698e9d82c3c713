//! Diagnosis and repair of session files. No message is changed: an incomplete last line is moved to a side file as in
//! every turn, wrong counts are corrected by an appended line, and the file mode is restricted to the owner.

use super::integrity::{end_of_last_line, is_newer, stat};
use super::layout::{SessionStore, key_from_name, read_key};
use super::line::{self, ClosingLine, MetadataLine, SessionLine};
use super::lock::{lock_path, try_lock, with_retry_hint};
use super::log::SessionLog;
use super::{files, tail_reader};
use anyhow::{Context, Result};
use nanobot_base::message::{Message, ToolCall};
use nanobot_os::durable_file;
use nanobot_os::entry_mode::EntryMode;
use std::fs::{File, Permissions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A problem in a session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairFinding {
    pub problem: String,
    /// The repair, such as `moved to a side file`; `None` if there is nothing to do, or nothing that is safe to do.
    pub repair: Option<String>,
    /// True if the problem is the file's mode, not its content.
    pub is_file_mode: bool,
    /// True if a part of the session is lost: what it was cannot be read.
    pub is_loss: bool,
}

impl RepairFinding {
    fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), repair: None, is_file_mode: false, is_loss: false }
    }

    fn with_repair(problem: impl Into<String>, repair: impl Into<String>) -> Self {
        Self { repair: Some(repair.into()), ..Self::new(problem) }
    }
}

/// Maximum number of positions listed per kind of problem.
const MAX_LISTED_POSITIONS: usize = 5;

/// Lists the session files of all directories, each with its key.
pub fn list_files(store: &SessionStore) -> Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for dir in store.directories() {
        for path in files::list_logs(dir)? {
            // An unreadable file is reported when it is examined.
            let key = read_key(&path).ok().flatten();
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
pub fn repair(
    store: &SessionStore,
    key: &str,
    path: &Path,
    apply: bool,
) -> Result<Vec<RepairFinding>> {
    if is_newer(path)? {
        let problem = "written by a newer nanobot, read-only for this one";
        return Ok(vec![RepairFinding::new(problem)]);
    }
    let current = store.find_path(key)?;
    if current != path {
        // Opening it as the session `key` would move the file in use over it.
        let problem = if current.exists() {
            format!("not in use: session `{key}` is in `{}`", current.display())
        } else {
            format!(
                "not found by its key: the file of session `{key}` would be `{}`",
                current.display()
            )
        };
        return Ok(vec![RepairFinding::new(problem)]);
    }
    let has_lock_file = lock_path(path).exists();
    let lock = try_lock(store, key, path)?;
    let file = durable_file::open_existing(path)?
        .with_context(|| format!("`{}` no longer exists", path.display()))?;
    let mut findings: Vec<RepairFinding> = check_end(&file, path)?.into_iter().collect();
    let is_torn = !findings.is_empty();
    let mut examination = examine(&file, path)?;
    findings.append(&mut examination.findings);
    if apply && (is_torn || examination.is_miscounted) {
        drop(lock);
        apply_repair(store, key, path, &examination)?;
    } else if has_lock_file {
        drop(lock);
    } else {
        // An examination alone leaves no lock file behind.
        lock.remove()?;
    }
    let mode = stat(&file, path)?.permissions().mode() & 0o777;
    let allowed = EntryMode::of_new(path).file;
    if mode & 0o077 & !allowed != 0 {
        let problem = format!("other users can access the file (mode {mode:04o})");
        let repair = format!("set to {:04o}", mode & allowed);
        findings.push(RepairFinding {
            is_file_mode: true,
            ..RepairFinding::with_repair(problem, repair)
        });
        if apply {
            file.set_permissions(Permissions::from_mode(mode & allowed))
                .with_context(|| format!("change the mode of `{}`", path.display()))?;
        }
    }
    Ok(findings)
}

/// Opens the file as a turn does, which repairs its end, and appends a closing line with the right counts if needed.
fn apply_repair(
    store: &SessionStore,
    key: &str,
    path: &Path,
    examination: &LogExamination,
) -> Result<()> {
    let opened = SessionLog::open(store, key, path.to_owned(), Duration::ZERO, &mut |_| {});
    let (mut log, _) = opened.map_err(with_retry_hint)?;
    if !examination.is_miscounted || log.file.is_none() {
        return Ok(());
    }
    log.count = examination.count;
    let closing = ClosingLine { turn: "", ending: "repaired", summary: None };
    log.write_closing_line(key, &[], &closing, &|metadata, count| {
        if metadata.last_consolidated > count {
            metadata.set_consolidated(0);
        }
        metadata.update_session_metadata(|session_metadata| session_metadata.truncate(count));
    })
}

/// Finds a problem at the end of a file.
fn check_end(file: &File, path: &Path) -> Result<Option<RepairFinding>> {
    let (end, size) = (end_of_last_line(file, path)?, stat(file, path)?.len());
    if end == size {
        return Ok(None);
    }
    let length = size - end;
    let mut last = Vec::new();
    if length <= tail_reader::MAX_LINE_BYTES {
        let mut reader = BufReader::new(file);
        reader
            .seek(SeekFrom::Start(end))
            .and_then(|_| reader.take(length).read_to_end(&mut last))
            .with_context(|| format!("read `{}`", path.display()))?;
    }
    Ok(Some(match line::parse(&last) {
        SessionLine::Invalid => {
            let problem = format!("the last line is incomplete ({length} bytes at byte {end})");
            RepairFinding::with_repair(problem, "moved to a side file")
        }
        _ => RepairFinding::with_repair("the last line has no newline", "ended with one"),
    }))
}

/// The result of reading all lines of a file.
#[derive(Debug, Default)]
struct LogExamination {
    findings: Vec<RepairFinding>,
    count: usize,
    /// True if a closing line with the right counts must be appended.
    is_miscounted: bool,
}

/// State while the lines are read.
#[derive(Debug, Default)]
struct LogExaminer {
    count: usize,
    unreadable: Vec<String>,
    orphans: Vec<String>,
    unanswered: Vec<String>,
    /// Calls whose results may still follow.
    open_calls: Vec<OpenCall>,
    last: Option<MetadataLine>,
    /// The counts at the last closing line that is at its stated offset.
    counts: Option<MessageCounts>,
    has_first_metadata: bool,
}

#[derive(Debug)]
struct OpenCall {
    /// The number of the message with the call.
    message_number: usize,
    id: String,
}

#[derive(Clone, Copy, Debug)]
struct MessageCounts {
    stated: usize,
    actual: usize,
}

fn examine(file: &File, path: &Path) -> Result<LogExamination> {
    let size = end_of_last_line(file, path)?;
    let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, file);
    reader.rewind().with_context(|| format!("read `{}`", path.display()))?;
    let mut reader = reader.take(size);
    let mut examiner = LogExaminer::default();
    let mut text = Vec::new();
    let mut offset = 0;
    loop {
        let length = tail_reader::next_line(&mut reader, &mut text);
        let length = length.with_context(|| format!("read `{}`", path.display()))?;
        if length == 0 {
            break;
        }
        examiner.add_line(&text, offset);
        offset += length;
    }
    Ok(examiner.finish(size))
}

impl LogExaminer {
    fn add_line(&mut self, text: &[u8], offset: u64) {
        match line::parse(text) {
            SessionLine::Message(message) => {
                self.count += 1;
                self.add_message(message.as_ref());
            }
            SessionLine::Metadata(metadata) => {
                self.has_first_metadata |= offset == 0;
                if let Some(stated) = metadata.message_count
                    && metadata.offset == Some(offset)
                {
                    self.counts = Some(MessageCounts { stated, actual: self.count });
                }
                self.last = Some(metadata);
            }
            SessionLine::Invalid if !text.is_empty() => self.unreadable.push(offset.to_string()),
            _ => {}
        }
    }

    fn add_message(&mut self, message: Option<&Message>) {
        if let Some(Message::Tool(result)) = message {
            match self.open_calls.iter().position(|call| call.id == result.call_id) {
                Some(index) => drop(self.open_calls.remove(index)),
                None => self.orphans.push(self.count.to_string()),
            }
            return;
        }
        self.close_calls();
        if let Some(Message::Assistant(reply)) = message {
            let open_call =
                |call: &ToolCall| OpenCall { message_number: self.count, id: call.id.clone() };
            self.open_calls = reply.tool_calls.iter().map(open_call).collect();
        }
    }

    /// Marks the open calls as unanswered: no result can follow any more.
    fn close_calls(&mut self) {
        let open_calls = std::mem::take(&mut self.open_calls);
        self.unanswered.extend(open_calls.iter().map(|call| call.message_number.to_string()));
    }

    fn finish(mut self, size: u64) -> LogExamination {
        self.close_calls();
        let mut findings = Vec::new();
        let mut is_miscounted = false;
        let mut add = |problem: &str, positions: &[String], effect: &str, is_loss: bool| {
            if !positions.is_empty() {
                let positions = join_positions(positions);
                let finding = RepairFinding::new(format!("{problem} {positions}; {effect}"));
                findings.push(RepairFinding { is_loss, ..finding });
            }
        };
        add(
            "unreadable line at byte",
            &self.unreadable,
            "not repaired: it stays, and is skipped",
            true,
        );
        add("tool result without its call: message", &self.orphans, "not sent", false);
        add(
            "tool call without its result: message",
            &self.unanswered,
            "sent as interrupted",
            false,
        );
        if size > 0 && !self.has_first_metadata {
            let problem = "the first line is not metadata: other releases do not list the session";
            findings.push(RepairFinding::new(problem));
        }
        if let Some(MessageCounts { stated, actual }) = self.counts
            && stated != actual
        {
            let problem =
                format!("the closing line counts {stated} messages, but there are {actual}");
            findings.push(RepairFinding::with_repair(problem, "recounted"));
            is_miscounted = true;
        }
        if let Some(last) = &self.last {
            if last.last_consolidated > self.count {
                let pointer = last.last_consolidated;
                let count = self.count;
                let problem = format!("{pointer} of {count} messages are marked as consolidated");
                findings
                    .push(RepairFinding::with_repair(problem, "reset to 0, so that all are sent"));
                is_miscounted = true;
            }
            let session_metadata = last.session_metadata();
            let mut truncated = session_metadata.clone();
            truncated.truncate(self.count);
            if truncated != session_metadata {
                let problem = "the metadata refers to messages that do not exist";
                findings.push(RepairFinding::with_repair(problem, "limited to those that do"));
                is_miscounted = true;
            }
        }
        LogExamination { findings, count: self.count, is_miscounted }
    }
}

/// Joins the first positions, and the number of the others.
fn join_positions(positions: &[String]) -> String {
    let (first, rest) = positions.split_at(positions.len().min(MAX_LISTED_POSITIONS));
    let first = first.join(", ");
    if rest.is_empty() { first } else { format!("{first} and {} more", rest.len()) }
}
