//! Checks before a log is read or appended to: its last line is complete, and no newer release wrote it. An incomplete
//! last line is moved to a file of its own, `.torn-TIME`.

use super::line::{self, SessionLine};
use super::tail_reader;
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::file_lock;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum attempts when other programs keep changing the file.
pub(super) const MAX_ATTEMPTS: u32 = 16;

/// Bytes that are read at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// True if a newer release of this program wrote the file at `path`.
pub(super) fn is_newer(path: &Path) -> Result<bool> {
    let Some(file) = durable_file::open_existing(path)? else {
        return Ok(false);
    };
    let tail = tail_reader::peek(&file, path, end_of_last_line(&file, path)?)?;
    Ok(tail.is_some_and(|tail| tail.metadata.is_newer()))
}

/// Refuses to write to a log that a newer release of this program wrote.
///
/// # Errors
/// Status 78 if `is_newer`.
pub(super) fn refuse_newer(is_newer: bool, path: &Path) -> Result<()> {
    if !is_newer {
        return Ok(());
    }
    let cause = format!(
        "`{}` was written by a newer nanobot and is read-only for this one",
        path.display()
    );
    let hint = "a newer nanobot, or another session with `-s`";
    Err(fail(Exit::Config, cause).with_hint(hint))
}

/// Reads the metadata of an open file; an error names `path`.
pub(super) fn stat(file: &File, path: &Path) -> Result<std::fs::Metadata> {
    file.metadata().with_context(|| format!("stat `{}`", path.display()))
}

/// The offset of the end of the last complete line.
pub(super) fn end_of_last_line(file: &File, path: &Path) -> Result<u64> {
    let mut end = durable_file::size(file, path)?;
    let mut block = vec![0; BLOCK_BYTES];
    while end > 0 {
        let begin = end.saturating_sub(block.len() as u64);
        let part = &mut block[..usize::try_from(end - begin).context("read backwards")?];
        file.read_exact_at(part, begin).with_context(|| format!("read `{}`", path.display()))?;
        if let Some(newline) = memchr::memrchr(b'\n', part) {
            return Ok(begin + newline as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Repairs the end of the log `file`: a complete last line gets its missing newline; an incomplete one is moved to a side
/// file. `guard` is the file to lock for a write to the log.
pub(super) fn repair_end(
    file: &File,
    guard: &File,
    path: &Path,
    clock: &Clock,
    notice: &mut dyn FnMut(&str),
) -> Result<()> {
    // Usually there is nothing to do, and no lock is needed to find out. Check again afterwards: a program that does
    // not use locks may have been writing meanwhile.
    for _ in 0..MAX_ATTEMPTS {
        let size = durable_file::size(file, path)?;
        if durable_file::ends_with_newline(file, path, size)? {
            return Ok(());
        }
        repair_end_once(file, guard, path, clock, notice)?;
    }
    Ok(())
}

fn repair_end_once(
    file: &File,
    guard: &File,
    path: &Path,
    clock: &Clock,
    notice: &mut dyn FnMut(&str),
) -> Result<()> {
    file_lock::with_lock(guard, path, || {
        let (end, size) = (end_of_last_line(file, path)?, durable_file::size(file, path)?);
        let what = || format!("read `{}`", path.display());
        let mut torn = Vec::new();
        if size - end <= tail_reader::MAX_LINE_BYTES {
            torn = vec![0; usize::try_from(size - end).with_context(what)?];
            file.read_exact_at(&mut torn, end).with_context(what)?;
        }
        if size == end {
            return Ok(());
        }
        if !matches!(line::parse(&torn), SessionLine::Invalid) {
            return durable_file::append_to(file, path, size, b"\n");
        }
        let timestamp: String =
            clock.local_timestamp().chars().filter(char::is_ascii_digit).collect();
        let mut torn_path = path.as_os_str().to_owned();
        torn_path.push(format!(".torn-{timestamp}"));
        let torn_path = PathBuf::from(torn_path);
        let side_file = durable_file::open_append(&torn_path)?;
        let mut block = vec![0; BLOCK_BYTES];
        let mut offset = end;
        while offset < size {
            let count = file.read_at(&mut block, offset).with_context(what)?;
            let side_size = durable_file::size(&side_file, &torn_path)?;
            durable_file::append_to(&side_file, &torn_path, side_size, &block[..count])?;
            if count == 0 {
                break;
            }
            offset += count as u64;
        }
        if durable_file::size(file, path)? != size {
            // The file has grown: the line is still being written.
            return Ok(());
        }
        // Sync the torn-line file before the line is removed from the log.
        durable_file::sync(&side_file, &torn_path)?;
        file.set_len(end).with_context(|| format!("truncate `{}`", path.display()))?;
        notice(&format!(
            "the last line of the session was incomplete; it was moved to `{}`",
            torn_path.display()
        ));
        Ok(())
    })
}

/// Lists the torn-line files of a session's file.
pub(super) fn side_files(path: &Path) -> Result<Vec<PathBuf>> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(list_side_files(dir)?.remove(&*name).unwrap_or_default())
}

/// Lists the torn-line files in a directory, by the names of the session files that they belong to.
pub(super) fn list_side_files(dir: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("read `{}`", dir.display()))?;
    let mut side_files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((session, _)) = name.split_once(".torn-") {
            side_files.entry(session.to_owned()).or_default().push(path);
        }
    }
    Ok(side_files)
}
