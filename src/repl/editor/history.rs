//! The input history: a file with one entry per line, shared by all concurrent processes.
//!
//! Newlines and backslashes are escaped in `rustyline`'s file format. `rustyline` itself does not write the file, since
//! it would follow links and rewrite the whole file whenever another process has added a line. The Python program's
//! file in the same directory is imported if ours does not exist, and is never changed.

use anyhow::Result;
use nanobot_os::durable_file;
use nanobot_os::secret;
use nanobot_os::terminal::sanitize;
use parking_lot::Mutex;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of entries kept.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// Number of entries in the file above which it is shortened.
const SHORTEN_ABOVE_ENTRIES: usize = MAX_ENTRIES + MAX_ENTRIES / 5;
const FILE_HEADER: &str = "#V2";
/// The Python program's file, in the same directory.
const PYTHON_FILE_NAME: &str = "cli_history";

/// The history, shared by all that take input.
pub(super) type SharedHistory = Arc<Mutex<InputHistory>>;

/// The history file and its last entry.
#[derive(Debug, Default)]
pub(super) struct InputHistory {
    /// `None` if it cannot be used; the history is then kept in memory only.
    path: Option<PathBuf>,
    last: Option<String>,
    /// Entries that are in the file before their turn has come.
    queued: Vec<String>,
}

impl InputHistory {
    /// Opens the history at `path` and returns its entries, oldest first.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Vec<String>)> {
        if let Some(folder) = path.parent() {
            durable_file::create_dir(folder)?;
        }
        let entries = match durable_file::read(&path)? {
            Some(bytes) => {
                let entries = decode_entries(&String::from_utf8_lossy(&bytes));
                if entries.len() > SHORTEN_ABOVE_ENTRIES {
                    shorten(&path)?;
                }
                newest_entries(entries)
            }
            None => import(&path)?,
        };
        let last = entries.last().cloned();
        let path = Some(path);
        Ok((Self { path, last, queued: Vec::new() }, entries))
    }

    /// True if `text` is to be added. The caller must then append it.
    pub(super) fn accept(&mut self, text: &str) -> bool {
        let is_accepted = may_be_stored(text) && self.last.as_deref() != Some(text);
        if is_accepted {
            self.last = Some(text.to_owned());
        }
        is_accepted
    }

    /// Appends a line that waits for the end of a turn, so that it outlasts a run that ends before. If that fails, it is appended when
    /// its turn has come, which reports the failure.
    pub(super) fn append_queued(&mut self, text: &str) {
        if may_be_stored(text)
            && self.last.as_deref() != Some(text)
            && self.path.as_deref().is_some_and(|path| append(path, text).is_ok())
        {
            self.queued.push(text.to_owned());
        }
    }

    /// Appends `text`. After a failure, later calls do nothing.
    pub(super) fn append(&mut self, text: &str) -> Result<()> {
        if let Some(index) = self.queued.iter().position(|queued| queued == text) {
            self.queued.remove(index);
            return Ok(());
        }
        let result = self.path.as_deref().map_or(Ok(()), |path| append(path, text));
        if result.is_err() {
            self.path = None;
        }
        result
    }
}

fn append(path: &Path, text: &str) -> Result<()> {
    durable_file::with_line_log(path, |log| {
        let size = durable_file::size(log, path)?;
        let mut line = encode_entry(text);
        if size == 0 {
            line.insert_str(0, &format!("{FILE_HEADER}\n"));
        }
        durable_file::append_to(log, path, size, line.as_bytes())
    })
}

/// True if an entry may be remembered: it is not blank, does not begin with a space, and contains no key.
fn may_be_stored(text: &str) -> bool {
    !text.trim().is_empty()
        && !text.starts_with(char::is_whitespace)
        && secret::redact_all(text) == text
}

/// Shortens the file to its newest entries. A writer that waits meanwhile appends to the new file.
fn shorten(path: &Path) -> Result<()> {
    durable_file::with_line_log(path, |_| {
        let bytes = durable_file::read(path)?.unwrap_or_default();
        let entries = newest_entries(decode_entries(&String::from_utf8_lossy(&bytes)));
        durable_file::replace_with(path, |out| write_entries(out, &entries))
    })
}

fn write_entries(out: &mut dyn Write, entries: &[String]) -> Result<()> {
    writeln!(out, "{FILE_HEADER}")?;
    for entry in entries {
        out.write_all(encode_entry(entry).as_bytes())?;
    }
    Ok(())
}

/// Creates the file with the Python program's entries.
fn import(path: &Path) -> Result<Vec<String>> {
    let Some(bytes) = durable_file::read(&path.with_file_name(PYTHON_FILE_NAME))? else {
        return Ok(Vec::new());
    };
    let mut entries = parse_python_entries(&String::from_utf8_lossy(&bytes));
    entries.retain(|entry| may_be_stored(entry));
    let entries = newest_entries(entries);
    match durable_file::create(path, |out| write_entries(out, &entries)) {
        Ok(()) => Ok(entries),
        // Another process created it first.
        Err(_) if path.exists() => Ok(entries),
        Err(error) => Err(error),
    }
}

/// Returns the newest entries, without consecutive duplicates.
fn newest_entries(mut entries: Vec<String>) -> Vec<String> {
    entries.dedup();
    entries.split_off(entries.len().saturating_sub(MAX_ENTRIES))
}

fn encode_entry(entry: &str) -> String {
    let mut line = entry.replace('\\', "\\\\").replace('\n', "\\n");
    line.push('\n');
    line
}

fn decode_entries(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| *line != FILE_HEADER);
    lines.map(|line| sanitize(&unescape_entry(line))).collect()
}

fn unescape_entry(line: &str) -> String {
    let mut entry = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            entry.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => entry.push('\n'),
            // Other escapes are literal, also in a file edited by hand.
            Some(other) if other != '\\' => entry.extend(['\\', other]),
            _ => entry.push('\\'),
        }
    }
    entry
}

/// Parses the Python program's file: each entry is a time stamp line, followed by lines that start with a plus.
fn parse_python_entries(text: &str) -> Vec<String> {
    let mut entries = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match (line.strip_prefix('+'), &mut open) {
            (Some(more), Some(entry)) => {
                entry.push('\n');
                entry.push_str(more);
            }
            (Some(first), None) => open = Some(first.to_owned()),
            (None, _) => entries.extend(open.take()),
        }
    }
    entries.extend(open);
    entries.iter().map(|entry| sanitize(entry)).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        InputHistory, MAX_ENTRIES, SHORTEN_ABOVE_ENTRIES, decode_entries, durable_file,
        encode_entry, parse_python_entries, write_entries,
    };
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn entries_survive_their_file() {
        for entry in ["plain", "two\nlines", "back\\slash", "\\n", "\\\n\\", "#V3 x"] {
            assert_eq!(decode_entries(&encode_entry(entry)), [entry]);
        }
        assert_eq!(decode_entries("#V2\na\\tb\nend\\\n\n"), ["a\\tb", "end\\"]);
    }

    #[test]
    fn the_python_programs_file_is_read() {
        let text = "\n# 2026-01-02 03:04:05.000006\n+one\n\n# 2026-01-02 03:04:06.000006\n+two\n+lines\n+\n";
        assert_eq!(parse_python_entries(text), ["one", "two\nlines\n"]);
    }

    #[test]
    fn the_python_file_is_imported_once_and_never_changed() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("history");
        std::fs::create_dir(&folder).unwrap();
        let python_file = folder.join("cli_history");
        std::fs::write(&python_file, "\n# x\n+hello\n\n# x\n+ secret\n\n# x\n+hello\n").unwrap();
        let path = folder.join("repl_history");
        let (mut history, entries) = InputHistory::open(path.clone()).unwrap();
        assert_eq!(entries, ["hello"]);
        assert!(history.accept("next"));
        history.append("next").unwrap();
        std::fs::write(&python_file, "\n# x\n+more\n").unwrap();
        let (_, entries) = InputHistory::open(path.clone()).unwrap();
        assert_eq!(entries, ["hello", "next"]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn concurrent_writers_lose_nothing_and_keys_are_not_stored() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("history/repl_history");
        let open = || InputHistory::open(path.clone()).unwrap().0;
        let mut both = [open(), open()];
        let secret = format!("my key is sk-ant-{}", "api03-abcdefghijklmnop0123456789");
        for (who, text, kept) in [
            (0, "first", true),
            (1, "second\nline", true),
            (0, "first", false),
            (1, " not this", false),
            (1, "", false),
            (0, secret.as_str(), false),
            (0, "third", true),
        ] {
            assert_eq!(both[who].accept(text), kept, "{text}");
            if kept {
                both[who].append(text).unwrap();
            }
        }
        let (_, entries) = InputHistory::open(path.clone()).unwrap();
        assert_eq!(entries, ["first", "second\nline", "third"]);
        let folder = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_writer_that_waits_while_the_file_is_replaced_loses_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("repl_history");
        InputHistory::open(path.clone()).unwrap().0.append("before").unwrap();
        let opened = || {
            let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            targets.filter(|target| *target == path).count()
        };
        std::thread::scope(|scope| {
            durable_file::with_line_log(&path, |_| {
                let mut history =
                    InputHistory { path: Some(path.clone()), ..InputHistory::default() };
                scope.spawn(move || history.append("after").unwrap());
                // The writer has opened the old file.
                while opened() < 2 {
                    std::thread::yield_now();
                }
                durable_file::replace_with(&path, |out| write_entries(out, &["before".into()]))
            })
            .unwrap();
        });
        assert_eq!(InputHistory::open(path.clone()).unwrap().1, ["before", "after"]);
    }

    #[test]
    fn a_long_file_is_shortened() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("repl_history");
        let lines: String =
            (0..=SHORTEN_ABOVE_ENTRIES).map(|number| format!("{number}\n")).collect();
        std::fs::write(&path, format!("#V2\n{lines}")).unwrap();
        let (_, entries) = InputHistory::open(path.clone()).unwrap();
        assert_eq!(entries.len(), MAX_ENTRIES);
        assert_eq!(entries.last().unwrap(), &SHORTEN_ABOVE_ENTRIES.to_string());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), MAX_ENTRIES + 1);
    }
}
