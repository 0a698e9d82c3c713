//! Copies of sessions: a fork of a session's beginning, or a rename. Both create the new file atomically; message lines
//! are copied byte for byte.

use super::integrity::{end_of_last_line, refuse_newer, side_files};
use super::kept::Stats;
use super::line::{self, Closing, Metadata};
use super::lock::{try_lock, with_retry_hint};
use super::log::Log;
use super::place::{Place, already_exists};
use super::{files, tail};
use crate::error::{Exit, fail};
use crate::history::compaction::Compaction;
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Keys in which a newer Python release stores the state of a running turn; not copied.
const RUNNING: [&str; 2] = ["runtime_checkpoint", "pending_user_turn"];

/// Copies the first `at` messages of the session `key`, or all, to the new session `new`. Returns their number.
///
/// # Errors
/// Status 66 if there is no session `key`; 2 if `new` exists or there are fewer than `at` messages.
pub fn fork(place: &Place, key: &str, new: &str, at: Option<usize>) -> Result<usize> {
    let (source, file) = files::open(place, key)?;
    let end = end_of_last_line(&file, &source)?;
    let tail = tail::read(&file, &source, end, place.window)?;
    let count = at.unwrap_or(tail.count);
    if count > tail.count {
        let cause = format!("session `{key}` has {} messages", tail.count);
        return Err(fail(Exit::Usage, cause));
    }
    refuse_newer(tail.metadata.is_newer(), &source)?;
    let (home, _) = place.home_of(new)?;
    store::create_dir(
        home.parent()
            .context("the session path has no parent directory")?,
    )?;
    let is_free = || match place.find(new)?.exists() {
        false => Ok(()),
        true => Err(already_exists(new)),
    };
    is_free()?;
    let lock = try_lock(place, new, &home)?;
    is_free()?;
    // The offset of the summary in the source is not valid in the copy.
    let summary = tail.summary.filter(|summary| summary.from <= count);
    let mut metadata = beginning(tail.metadata, count);
    metadata.summary_at = None;
    let now = place.clock.stamp();
    metadata.key = Some(new.to_owned());
    metadata.created_at = Some(now.clone());
    metadata.updated_at = Some(now);
    let reading = || format!("read `{}`", source.display());
    store::create(&home, &mut |out: &mut dyn Write| {
        let mut out = Counted { out, written: 0 };
        out.put(line::of_metadata(&metadata, None).as_bytes())?;
        let mut reader = BufReader::with_capacity(256 << 10, &file);
        reader.rewind().with_context(reading)?;
        let mut reader = reader.take(end);
        let (mut text, mut copied) = (Vec::new(), 0);
        while copied < count && tail::next_line(&mut reader, &mut text).with_context(reading)? > 0 {
            if line::counts(&text) {
                copied += 1;
                text.push(b'\n');
                out.put(&text)?;
            }
        }
        (metadata.messages, metadata.at) = (Some(copied), Some(out.written));
        metadata.summary_at = metadata.at.filter(|_| summary.is_some());
        let closing = Closing {
            turn: "",
            ending: "forked",
            summary: summary.as_ref(),
        };
        out.put(line::of_metadata(&metadata, Some(&closing)).as_bytes())
    })?;
    drop(lock);
    Ok(count)
}

/// Reduces the metadata of a session to its first `count` messages.
fn beginning(mut metadata: Metadata, count: usize) -> Metadata {
    for key in RUNNING {
        drop(metadata.metadata.remove(key));
    }
    metadata.change(|kept| {
        kept.stats = Stats::default();
        // The original session is consolidated; consolidating the copy too would store the same facts twice.
        kept.left.clear();
        kept.cut(count);
    });
    if metadata.last_consolidated > count {
        // The user forks there to continue from it, so these messages must be sent again.
        metadata.consolidated(0);
    }
    metadata
}

/// Renames the session `key` within its directory. Returns the files in other directories that hold an older session
/// `key`, which a lookup finds from now on.
///
/// # Errors
/// Status 66 if there is no session `key`; 2 if `new` exists; 75 if one of them is in use; 78 if a newer release wrote
/// it.
pub fn rename(place: &Place, key: &str, new: &str) -> Result<Vec<PathBuf>> {
    let (from, _) = files::open(place, key)?;
    let to = place.renamed(&from, new)?;
    let new_lock = try_lock(place, new, &to)?;
    let opened = Log::open(place, key, from.clone(), Duration::ZERO, &mut |_| {});
    let (log, tail) = opened.map_err(with_retry_hint)?;
    // Check again under the locks: another process may have created the file meanwhile.
    place.renamed(&from, new)?;
    let file = File::open(&from).with_context(|| format!("open `{}`", from.display()))?;
    store::with_lock(log.guard.as_ref().unwrap_or(&file), &from, || {
        copy(&log, tail.summary.as_ref(), &file, &to, new)?;
        for aside in side_files(&from)? {
            let name = aside.file_name().unwrap_or_default().to_string_lossy();
            let old = from.file_name().unwrap_or_default().to_string_lossy();
            let rest = name.strip_prefix(&*old).unwrap_or_default();
            let mut name = to.as_os_str().to_owned();
            name.push(rest);
            store::rename_new(&aside, Path::new(&name))?;
        }
        std::fs::remove_file(&from).with_context(|| format!("remove `{}`", from.display()))
    })?;
    log.lock.remove()?;
    drop(new_lock);
    let older = place.find(key)?;
    Ok(if older.exists() {
        vec![older]
    } else {
        Vec::new()
    })
}

/// Copies the file of `log` to `to`: the first line with the new key, all else unchanged, and a closing line, because
/// the offsets in the other lines are no longer valid. The closing line repeats the summary, whose offset has changed
/// too.
fn copy(log: &Log, summary: Option<&Compaction>, file: &File, to: &Path, new: &str) -> Result<()> {
    let reading = || format!("read `{}`", log.path.display());
    let modified = file.metadata().and_then(|about| about.modified());
    let modified = modified.with_context(reading)?;
    let mut metadata = log.metadata.clone();
    metadata.key = Some(new.to_owned());
    store::create(to, &mut |out: &mut dyn Write| {
        let mut out = Counted { out, written: 0 };
        let mut reader = BufReader::with_capacity(256 << 10, file);
        let mut first = Vec::new();
        (&mut reader)
            .take(tail::LINE_LIMIT)
            .read_until(b'\n', &mut first)
            .with_context(reading)?;
        match line::with_key(&first, new) {
            Some(line) => out.put(line.as_bytes())?,
            // A file without its own metadata line gets one that names the key.
            None => {
                out.put(line::of_metadata(&metadata, None).as_bytes())?;
                out.put(&first)?;
            }
        }
        loop {
            let block = reader.fill_buf().with_context(reading)?;
            let length = block.len();
            if length == 0 {
                break;
            }
            out.put(block)?;
            reader.consume(length);
        }
        (metadata.messages, metadata.at) = (Some(log.count), Some(out.written));
        metadata.summary_at = metadata.at.filter(|_| summary.is_some());
        let closing = Closing {
            turn: "",
            ending: "renamed",
            summary,
        };
        out.put(line::of_metadata(&metadata, Some(&closing)).as_bytes())
    })?;
    // A rename does not count as use.
    let written = File::options().append(true).open(to);
    written
        .and_then(|file| file.set_modified(modified))
        .with_context(|| format!("write `{}`", to.display()))
}

/// A writer that counts the bytes written.
struct Counted<'a> {
    out: &'a mut dyn Write,
    written: u64,
}

impl Counted<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).context("write the copy")?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
