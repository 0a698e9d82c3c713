//! Copies of sessions: a fork of a session's beginning, or a rename. Both create the new file atomically; message lines
//! are copied byte for byte.

use super::integrity::{end_of_last_line, refuse_newer, side_files};
use super::layout::{SessionStore, already_exists_error};
use super::line::{self, ClosingLine, MetadataLine};
use super::lock::{try_lock, with_retry_hint};
use super::log::SessionLog;
use super::metadata::SessionStats;
use super::{files, tail_reader};
use crate::history::compaction::CompactedHistory;
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, fail};
use nanobot_os::durable_file;
use nanobot_os::file_lock::{self, FileLock};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys in which a newer Python release stores the state of a running turn; not copied.
const RUNNING_TURN_KEYS: [&str; 2] = ["runtime_checkpoint", "pending_user_turn"];

/// Copies the first `at` messages of the session `key`, or all, to the new session `new`. Returns their number.
///
/// # Errors
/// Status 66 if there is no session `key`; 2 if `new` exists or there are fewer than `at` messages.
pub fn fork(store: &SessionStore, key: &str, new: &str, at: Option<usize>) -> Result<usize> {
    copy_messages(store, key, new, at, Some(key))
}

/// Makes the session `key` of the first `at` messages of `old_key`, the key that it was renamed to. It is no fork of that session, but what
/// goes on.
///
/// # Errors
/// The errors of [`fork`].
pub fn continue_renamed(store: &SessionStore, old_key: &str, key: &str, at: usize) -> Result<()> {
    copy_messages(store, old_key, key, Some(at), None).map(drop)
}

fn copy_messages(
    store: &SessionStore,
    key: &str,
    new: &str,
    at: Option<usize>,
    fork_of: Option<&str>,
) -> Result<usize> {
    let (source, file) = files::open(store, key)?;
    let end = end_of_last_line(&file, &source)?;
    let tail = tail_reader::read(&file, &source, end, store.window)?;
    let count = at.unwrap_or(tail.count);
    if count > tail.count {
        let cause = format!("session `{key}` has {} messages", tail.count);
        return Err(fail(Exit::Usage, cause));
    }
    refuse_newer(tail.metadata.is_newer(), &source)?;
    let (path, lock) = lock_new(store, new)?;
    // The offset of the summary in the source is not valid in the copy.
    let summary = tail.summary.filter(|summary| summary.first_sent <= count);
    let mut metadata = truncate_metadata(tail.metadata, count);
    if let Some(fork_of) = fork_of {
        metadata.update_session_metadata(|session_metadata| {
            fork_of.clone_into(&mut session_metadata.fork_of);
        });
    }
    metadata.summary_offset = None;
    let now = store.clock.local_timestamp();
    metadata.key = Some(new.to_owned());
    metadata.created_at = Some(now.clone());
    metadata.updated_at = Some(now);
    let reading = || format!("read `{}`", source.display());
    durable_file::create(&path, &mut |out: &mut dyn Write| {
        let mut out = CountingWriter { out, bytes_written: 0 };
        out.write(line::format_metadata(&metadata, None).as_bytes())?;
        let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, &file);
        reader.rewind().with_context(reading)?;
        let mut reader = reader.take(end);
        let mut text = Vec::new();
        let mut copied = 0;
        while copied < count
            && tail_reader::next_line(&mut reader, &mut text).with_context(reading)? > 0
        {
            if line::is_counted(&text) {
                copied += 1;
                text.push(b'\n');
                out.write(&text)?;
            }
        }
        metadata.message_count = Some(copied);
        metadata.offset = Some(out.bytes_written);
        metadata.summary_offset = if summary.is_some() { metadata.offset } else { None };
        let closing = ClosingLine { turn: "", ending: "forked", summary: summary.as_ref() };
        out.write(line::format_metadata(&metadata, Some(&closing)).as_bytes())
    })?;
    drop(lock);
    Ok(count)
}

/// Locks the new session `key`. Returns its path too, whose directory exists.
///
/// # Errors
/// Status 2 if there is such a session, 75 if it is in use.
pub(super) fn lock_new(store: &SessionStore, key: &str) -> Result<(PathBuf, FileLock)> {
    let path = store.path_for(key)?.path;
    durable_file::create_dir(path.parent().context("the session path has no parent directory")?)?;
    let require_unused =
        || if store.find_path(key)?.exists() { Err(already_exists_error(key)) } else { Ok(()) };
    require_unused()?;
    let lock = try_lock(store, key, &path)?;
    // Check again under the lock: another process may have created the session meanwhile.
    require_unused()?;
    Ok((path, lock))
}

/// Reduces the metadata of a session to its first `count` messages.
fn truncate_metadata(mut metadata: MetadataLine, count: usize) -> MetadataLine {
    for key in RUNNING_TURN_KEYS {
        drop(metadata.metadata.remove(key));
    }
    metadata.update_session_metadata(|session_metadata| {
        session_metadata.stats = SessionStats::default();
        // The original session is consolidated; consolidating the copy too would store the same facts twice.
        session_metadata.ranges_left_by_new.clear();
        session_metadata.truncate(count);
    });
    if metadata.last_consolidated > count {
        // The user forks there to continue from it, so these messages must be sent again.
        metadata.set_consolidated(0);
    }
    metadata
}

/// Renames the session `key` within its directory. Returns the files in other directories that hold an older session
/// `key`, which a lookup finds from now on.
///
/// # Errors
/// Status 66 if there is no session `key`; 2 if `new` exists; 75 if one of them is in use; 78 if a newer release wrote
/// it.
pub fn rename(store: &SessionStore, key: &str, new: &str) -> Result<Vec<PathBuf>> {
    let (from, _) = files::open(store, key)?;
    let to = store.path_after_rename(&from, new)?;
    let new_lock = try_lock(store, new, &to)?;
    let opened = SessionLog::open(store, key, from.clone(), Duration::ZERO, &mut |_| {});
    let (log, tail) = opened.map_err(with_retry_hint)?;
    // Check again under the locks: another process may have created the file meanwhile.
    store.path_after_rename(&from, new)?;
    let file = File::open(&from).with_context(|| format!("open `{}`", from.display()))?;
    file_lock::with_lock(log.append_lock.as_ref().unwrap_or(&file), &from, || {
        copy_log(&log, tail.summary.as_ref(), &file, &to, new)?;
        let old_name = from.file_name().unwrap_or_default().to_string_lossy();
        for side_file in side_files(&from)? {
            let name = side_file.file_name().unwrap_or_default().to_string_lossy();
            let suffix = name.strip_prefix(&*old_name).unwrap_or_default();
            let mut new_path = to.as_os_str().to_owned();
            new_path.push(suffix);
            durable_file::rename_noreplace(&side_file, Path::new(&new_path))?;
        }
        std::fs::remove_file(&from).with_context(|| format!("remove `{}`", from.display()))
    })?;
    log.lock.remove()?;
    drop(new_lock);
    let older = store.find_path(key)?;
    Ok(if older.exists() { vec![older] } else { Vec::new() })
}

/// Copies the file of `log` to `to`: the first line with the new key, all else unchanged, and a closing line, because
/// the offsets in the other lines are no longer valid. The closing line repeats the summary, whose offset has changed
/// too.
fn copy_log(
    log: &SessionLog,
    summary: Option<&CompactedHistory>,
    file: &File,
    to: &Path,
    new: &str,
) -> Result<()> {
    let reading = || format!("read `{}`", log.path.display());
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let modified = modified.with_context(reading)?;
    let mut metadata = log.metadata.clone();
    metadata.key = Some(new.to_owned());
    durable_file::create(to, &mut |out: &mut dyn Write| {
        let mut out = CountingWriter { out, bytes_written: 0 };
        let mut reader = BufReader::with_capacity(tail_reader::READ_BUFFER_BYTES, file);
        let mut first = Vec::new();
        (&mut reader)
            .take(tail_reader::MAX_LINE_BYTES)
            .read_until(b'\n', &mut first)
            .with_context(reading)?;
        match line::with_key(&first, new) {
            Some(line) => out.write(line.as_bytes())?,
            // A file without its own metadata line gets one that names the key.
            None => {
                out.write(line::format_metadata(&metadata, None).as_bytes())?;
                out.write(&first)?;
            }
        }
        loop {
            let block = reader.fill_buf().with_context(reading)?;
            let length = block.len();
            if length == 0 {
                break;
            }
            out.write(block)?;
            reader.consume(length);
        }
        metadata.message_count = Some(log.count);
        metadata.offset = Some(out.bytes_written);
        metadata.summary_offset = if summary.is_some() { metadata.offset } else { None };
        let closing = ClosingLine { turn: "", ending: "renamed", summary };
        out.write(line::format_metadata(&metadata, Some(&closing)).as_bytes())
    })?;
    // A rename is not a use of the session.
    let written = File::options().append(true).open(to);
    written
        .and_then(|file| file.set_modified(modified))
        .with_context(|| format!("write `{}`", to.display()))
}

/// A writer that counts the bytes written.
pub(super) struct CountingWriter<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) bytes_written: u64,
}

impl CountingWriter<'_> {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).context("write the session")?;
        self.bytes_written += bytes.len() as u64;
        Ok(())
    }
}
