//! The input history: a file with one entry per line, shared by all concurrent processes.
//!
//! Newlines and backslashes are escaped in `rustyline`'s file format. `rustyline` itself does not write the file, since
//! it would follow links and rewrite the whole file whenever another process has added a line. The Python program's
//! file in the same directory is imported if ours does not exist, and is never changed.

use crate::sys::terminal::harmless;
use crate::sys::{secret, store};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Maximum number of entries kept.
pub(super) const MOST: usize = 10_000;
/// Number of entries in the file above which it is shortened.
const TOO_MANY: usize = MOST + MOST / 5;
const FILE_HEADER: &str = "#V2";
/// The Python program's file, in the same directory.
const OTHERS: &str = "cli_history";

/// The history file and its last entry.
#[derive(Default)]
pub(super) struct History {
    /// `None` if it cannot be used; the history is then kept in memory only.
    path: Option<PathBuf>,
    last: Option<String>,
}

impl History {
    /// Opens the history at `path` and returns its entries, oldest first.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Vec<String>)> {
        if let Some(folder) = path.parent() {
            store::create_dir(folder)?;
        }
        let entries = match store::read(&path)? {
            Some(bytes) => {
                let entries = decoded(&String::from_utf8_lossy(&bytes));
                if entries.len() > TOO_MANY {
                    shorten(&path)?;
                }
                newest(entries)
            }
            None => import(&path)?,
        };
        let last = entries.last().cloned();
        let path = Some(path);
        Ok((Self { path, last }, entries))
    }

    /// True if `text` is to be added. The caller must then append it.
    pub(super) fn takes(&mut self, text: &str) -> bool {
        let takes = is_worth_it(text) && self.last.as_deref() != Some(text);
        if takes {
            self.last = Some(text.to_owned());
        }
        takes
    }

    /// Appends `text`. After a failure, later calls do nothing.
    pub(super) fn append(&mut self, text: &str) -> Result<()> {
        let appended = self
            .path
            .as_deref()
            .map_or(Ok(()), |path| append(path, text));
        if appended.is_err() {
            self.path = None;
        }
        appended
    }
}

fn append(path: &Path, text: &str) -> Result<()> {
    let log = store::open_lines(path)?;
    let what = || format!("lock `{}`", path.display());
    // Released when the file is closed.
    log.lock().with_context(what)?;
    let size = store::size(&log, path)?;
    let mut line = encoded(text);
    if size == 0 {
        line.insert_str(0, &format!("{FILE_HEADER}\n"));
    }
    store::append_to(&log, path, size, line.as_bytes())
}

/// True if an entry may be remembered: it is not blank, does not begin with a space, and contains no key.
fn is_worth_it(text: &str) -> bool {
    !text.trim().is_empty() && !text.starts_with(char::is_whitespace) && secret::hide(text) == text
}

/// Shortens the file to its newest entries. A concurrent writer waits, or appends to the old file, which loses one line
/// at most.
fn shorten(path: &Path) -> Result<()> {
    let Some(log) = store::open_existing(path)? else {
        return Ok(());
    };
    let what = || format!("lock `{}`", path.display());
    File::lock(&log).with_context(what)?;
    let bytes = store::read(path)?.unwrap_or_default();
    write(path, &newest(decoded(&String::from_utf8_lossy(&bytes))))
}

fn write(path: &Path, entries: &[String]) -> Result<()> {
    store::replace_with(path, |out| fill(out, entries))
}

fn fill(out: &mut dyn Write, entries: &[String]) -> Result<()> {
    writeln!(out, "{FILE_HEADER}")?;
    for entry in entries {
        out.write_all(encoded(entry).as_bytes())?;
    }
    Ok(())
}

/// Creates the file with the Python program's entries.
fn import(path: &Path) -> Result<Vec<String>> {
    let Some(bytes) = store::read(&path.with_file_name(OTHERS))? else {
        return Ok(Vec::new());
    };
    let mut entries = of_python(&String::from_utf8_lossy(&bytes));
    entries.retain(|entry| is_worth_it(entry));
    let entries = newest(entries);
    match store::create(path, |out| fill(out, &entries)) {
        Ok(()) => Ok(entries),
        // Another process created it first.
        Err(_) if path.exists() => Ok(entries),
        Err(error) => Err(error),
    }
}

/// Returns the newest entries, without consecutive duplicates.
fn newest(mut entries: Vec<String>) -> Vec<String> {
    entries.dedup();
    entries.split_off(entries.len().saturating_sub(MOST))
}

fn encoded(entry: &str) -> String {
    let mut line = entry.replace('\\', "\\\\").replace('\n', "\\n");
    line.push('\n');
    line
}

fn decoded(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| *line != FILE_HEADER);
    lines.map(|line| harmless(&unescaped(line))).collect()
}

fn unescaped(line: &str) -> String {
    let mut entry = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('n') => entry.push('\n'),
                // Other escapes are literal, also in a file edited by hand.
                Some(other) if other != '\\' => entry.extend(['\\', other]),
                _ => entry.push('\\'),
            },
            (letter, false) => entry.push(letter),
        }
    }
    entry
}

/// Parses the Python program's file: each entry is a time stamp line, followed by lines that start with a plus.
fn of_python(text: &str) -> Vec<String> {
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
    entries.iter().map(|entry| harmless(entry)).collect()
}

#[cfg(test)]
mod tests {
    use super::{History, MOST, TOO_MANY, decoded, encoded, of_python};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn entries_survive_their_file() {
        for entry in [
            "plain",
            "two\nlines",
            "back\\slash",
            "\\n",
            "\\\n\\",
            "#V3 x",
        ] {
            assert_eq!(decoded(&encoded(entry)), [entry]);
        }
        assert_eq!(decoded("#V2\na\\tb\nend\\\n\n"), ["a\\tb", "end\\"]);
    }

    #[test]
    fn the_python_programs_file_is_read() {
        let text = "\n# 2026-01-02 03:04:05.000006\n+one\n\n# 2026-01-02 03:04:06.000006\n+two\n+lines\n+\n";
        assert_eq!(of_python(text), ["one", "two\nlines\n"]);
    }

    #[test]
    fn it_is_taken_over_once_and_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("history");
        std::fs::create_dir(&folder).unwrap();
        let theirs = folder.join("cli_history");
        std::fs::write(&theirs, "\n# x\n+hello\n\n# x\n+ secret\n\n# x\n+hello\n").unwrap();
        let ours = folder.join("repl_history");
        let (mut history, entries) = History::open(ours.clone()).unwrap();
        assert_eq!(entries, ["hello"]);
        assert!(history.takes("next"));
        history.append("next").unwrap();
        std::fs::write(&theirs, "\n# x\n+more\n").unwrap();
        let (_, entries) = History::open(ours.clone()).unwrap();
        assert_eq!(entries, ["hello", "next"]);
        let mode = std::fs::metadata(&ours).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn two_at_once_lose_nothing_and_what_is_not_to_be_kept_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("history/repl_history");
        let open = || History::open(path.clone()).unwrap().0;
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
            assert_eq!(both[who].takes(text), kept, "{text}");
            if kept {
                both[who].append(text).unwrap();
            }
        }
        let (_, entries) = History::open(path.clone()).unwrap();
        assert_eq!(entries, ["first", "second\nline", "third"]);
        let folder = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_long_file_is_made_shorter() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("repl_history");
        let lines: String = (0..=TOO_MANY).map(|number| format!("{number}\n")).collect();
        std::fs::write(&path, format!("#V2\n{lines}")).unwrap();
        let (_, entries) = History::open(path.clone()).unwrap();
        assert_eq!(entries.len(), MOST);
        assert_eq!(entries.last().unwrap(), &TOO_MANY.to_string());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), MOST + 1);
    }
}
