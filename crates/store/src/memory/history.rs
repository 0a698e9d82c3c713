//! The history of past conversations, append-only: HISTORY.md, or history.jsonl if a newer release stores it there.

use anyhow::{Context, Result};
use nanobot_os::durable_file;
use nanobot_os::terminal::sanitize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Maximum characters of an entry, as in newer releases. A longer text is no summary.
const MAX_ENTRY_CHARS: usize = 8000;

/// The history files.
#[derive(Clone, Debug)]
pub(super) struct MemoryHistory {
    /// The memory directory.
    pub(super) dir: PathBuf,
}

impl MemoryHistory {
    /// The file to which entries are appended.
    pub(super) fn path(&self) -> PathBuf {
        let rows = self.rows_path();
        if rows.exists() { rows } else { self.dir.join("HISTORY.md") }
    }

    fn rows_path(&self) -> PathBuf {
        self.dir.join("history.jsonl")
    }

    /// Checks that the file can be appended to, as far as possible without writing.
    pub(super) fn check_appendable(&self) -> Result<()> {
        let path = resolve_link(self.path());
        // This call refuses anything but a regular file, and never blocks.
        durable_file::open_existing(&path)?;
        durable_file::open_existing_append(&path).map(drop)
    }

    /// The size of the file in bytes, for [`Self::append`].
    pub(super) fn size(&self) -> Result<u64> {
        match std::fs::metadata(self.path()) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).with_context(|| format!("stat `{}`", self.path().display())),
        }
    }

    /// Appends the `entries` that are missing. `size` is the file's size in bytes before the first attempt, so
    /// that a killed run can be resumed.
    pub(super) fn append(
        &self,
        entries: &[String],
        size: u64,
        timestamp: &str,
        session: &str,
    ) -> Result<()> {
        let path = self.path();
        let is_rows = path == self.rows_path();
        let text = durable_file::read(&path)?.unwrap_or_default();
        // If the file is shorter now, another program has rewritten it, with or without these entries.
        let start = usize::try_from(size).ok().filter(|start| *start <= text.len()).unwrap_or(0);
        let added = &text[start..];
        let path = resolve_link(path);
        let log = durable_file::open_line_log(&path)?;
        let mut offset = 0;
        let mut cursor = is_rows.then(|| last_cursor(&text, &self.dir)).transpose()?;
        for entry in entries {
            let lines = match &mut cursor {
                None => format!("{entry}\n\n"),
                Some(cursor) => {
                    if parse_rows(added).any(|row| row["content"] == entry.as_str()) {
                        continue;
                    }
                    *cursor += 1;
                    let row = json!({ "cursor": *cursor, "timestamp": timestamp, "content": entry, "session_key": session });
                    format!("{row}\n")
                }
            };
            if added[offset..].starts_with(lines.as_bytes()) {
                offset += lines.len();
                continue;
            }
            if memchr::memmem::find(added, lines.as_bytes()).is_some() {
                continue;
            }
            // Remove an entry cut short by a power loss, and the newline that opening the file has added after it.
            let torn = &added[offset..];
            if !torn.is_empty() && lines.as_bytes().starts_with(torn) {
                log.set_len((start + offset) as u64)
                    .with_context(|| format!("truncate `{}`", path.display()))?;
                offset = added.len();
            }
            durable_file::append_to(
                &log,
                &path,
                durable_file::size(&log, &path)?,
                lines.as_bytes(),
            )?;
        }
        durable_file::sync(&log, &path)?;
        if let Some(dir) = path.parent() {
            durable_file::sync_dir(dir)?;
        }
        if let Some(cursor) = cursor {
            durable_file::replace(&self.dir.join(".cursor"), cursor.to_string().as_bytes())?;
        }
        Ok(())
    }
}

/// Resolves a symbolic link, even if its target does not exist yet; returns any other path unchanged. Links are safe to
/// follow, because only the user creates them in this directory.
fn resolve_link(path: PathBuf) -> PathBuf {
    let Ok(target) = std::fs::read_link(&path) else {
        return path;
    };
    let resolved = path.parent().unwrap_or(Path::new("")).join(target);
    std::fs::canonicalize(&path).unwrap_or(resolved)
}

/// The greatest row number, from the rows or from the `.cursor` file of a newer release.
fn last_cursor(text: &[u8], dir: &Path) -> Result<u64> {
    let stored = durable_file::read(&dir.join(".cursor"))?.unwrap_or_default();
    let stored = String::from_utf8_lossy(&stored).trim().parse().unwrap_or(0);
    let cursors = parse_rows(text).filter_map(|row| row["cursor"].as_u64());
    Ok(cursors.max().unwrap_or(0).max(stored))
}

/// Iterates over the valid rows of a history.jsonl.
pub(super) fn parse_rows(text: &[u8]) -> impl Iterator<Item = Value> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(Value::is_object)
}

/// Formats a model's text as a history entry: escapes control characters, adds the time if missing, and limits its
/// length.
pub fn format_entry(text: &str, timestamp: &str) -> String {
    let text = sanitize(text);
    // An empty line would end the entry for readers that split by paragraphs.
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let text = lines.join("\n");
    let text = text.trim();
    let is_dated =
        text.strip_prefix('[').and_then(|rest| rest.split_once(']')).is_some_and(|(date, _)| {
            date.len() >= 10 && date.starts_with(|digit: char| digit.is_ascii_digit())
        });
    let text = if is_dated { text.to_owned() } else { format!("[{timestamp}] {text}") };
    match text.char_indices().nth(MAX_ENTRY_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryHistory, format_entry};

    fn text(history: &MemoryHistory) -> String {
        std::fs::read_to_string(history.path()).unwrap()
    }

    #[test]
    fn an_entry_has_its_time() {
        let check = |given: &str, expect: &str| assert_eq!(format_entry(given, "NOW"), expect);
        check("[2026-01-02 03:04] Tea.", "[2026-01-02 03:04] Tea.");
        check(" Tea.\n\nAnd cake.\n", "[NOW] Tea.\nAnd cake.");
        check("Tea\0 and \u{1b}[1mcake\r\n.", "[NOW] Tea\\u{0} and \\u{1b}[1mcake\n.");
        check("[draft] Tea.", "[NOW] [draft] Tea.");
        assert_eq!(format_entry(&"é".repeat(9000), "NOW").chars().count(), 8001);
    }

    #[test]
    fn existing_entries_are_not_appended_again() {
        let dir = tempfile::tempdir().unwrap();
        let history = MemoryHistory { dir: dir.path().to_owned() };
        let entries = ["[t] one".to_owned(), "[t] two".to_owned()];
        for _ in 0..2 {
            history.append(&entries, 0, "t", "a:b").unwrap();
        }
        assert_eq!(text(&history), "[t] one\n\n[t] two\n\n");
        // The same text in a later call is a new entry.
        let size = history.size().unwrap();
        history.append(&entries[..1], size, "t", "a:b").unwrap();
        assert_eq!(text(&history), "[t] one\n\n[t] two\n\n[t] one\n\n");
        // An entry that was cut at any position is completed.
        let whole = text(&history);
        for cut in size..=whole.len() as u64 {
            std::fs::write(history.path(), &whole[..cut as usize]).unwrap();
            history.append(&entries[..1], size, "t", "a:b").unwrap();
            assert_eq!(text(&history), whole, "{cut}");
        }
        // Text that another program has written meanwhile is kept.
        std::fs::write(history.path(), "other").unwrap();
        history.append(&entries[..1], 0, "t", "a:b").unwrap();
        assert_eq!(text(&history), "other\n[t] one\n\n");
    }

    #[test]
    fn links_are_followed_and_other_file_types_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let history = MemoryHistory { dir: dir.path().join("memory") };
        std::fs::create_dir(&history.dir).unwrap();
        for (link, target) in
            [("../beside.md", "beside.md"), ("/dev/null/x", ""), ("../far", "far"), (".", "")]
        {
            if target == "far" {
                std::fs::write(dir.path().join(target), "old\n").unwrap();
            }
            std::os::unix::fs::symlink(link, history.path()).unwrap();
            assert_eq!(history.check_appendable().is_ok(), !target.is_empty(), "{link}");
            if !target.is_empty() {
                history.append(&["[t] one".into()], 0, "t", "a:b").unwrap();
                let text = std::fs::read_to_string(dir.path().join(target)).unwrap();
                assert!(text.ends_with("[t] one\n\n"), "{text}");
                assert!(history.path().is_symlink());
            }
            std::fs::remove_file(history.dir.join("HISTORY.md")).unwrap();
        }
    }

    #[test]
    fn newer_releases_get_rows() {
        let dir = tempfile::tempdir().unwrap();
        let history = MemoryHistory { dir: dir.path().to_owned() };
        let row = "{\"cursor\": 7, \"timestamp\": \"t\", \"content\": \"old\"}\nnot a row\n{\"cursor\": 9, \"cont";
        std::fs::write(dir.path().join("history.jsonl"), row).unwrap();
        let size = history.size().unwrap();
        for _ in 0..2 {
            history.append(&["new".into()], size, "2026-01-02 03:04", "a:b").unwrap();
        }
        let last = "\n{\"cursor\":8,\"timestamp\":\"2026-01-02 03:04\",\"content\":\"new\",\"session_key\":\"a:b\"}\n";
        assert_eq!(text(&history), format!("{row}{last}"));
        assert_eq!(std::fs::read(dir.path().join(".cursor")).unwrap(), b"8");
        assert!(!dir.path().join("HISTORY.md").exists());
    }
}
