//! Tool usage statistics: one line per turn in the append-only file `tools.jsonl`. A line lists the tools called, the
//! skills read, and the tokens per request that describe them to the model, to reveal what costs tokens but is never
//! used. Nothing depends on this file: a lost line only makes a number too small.

use super::{CallPurpose, for_each_line};
use crate::text_form;
use anyhow::{Context, Result};
use jiff::{Timestamp, civil::Date};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest line that is parsed, in bytes; enough for a thousand tools.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Tools and skills used in a turn, and the cost of their descriptions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolUsage {
    /// Number of requests that carried the descriptions.
    pub requests: u32,
    /// Calls per tool name.
    #[serde(default)]
    pub tools: BTreeMap<String, CallCounts>,
    /// Names of the skills that were read, or that the user named.
    #[serde(default)]
    pub skills: BTreeSet<String>,
    /// Estimated tokens per request for tool definitions, by MCP server; the empty name means the built-in tools.
    #[serde(default, rename = "told")]
    pub definition_tokens: BTreeMap<String, u64>,
    /// Estimated tokens per request for the list of skills.
    #[serde(default, rename = "told_of_skills")]
    pub skill_list_tokens: u64,
}

/// Call counts of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    pub count: u32,
    /// Unsuccessful calls, including denied ones and commands that ended with another status than 0.
    #[serde(default)]
    pub failed: u32,
    #[serde(default)]
    pub denied: u32,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolUsageEntry {
    v: u64,
    #[serde(with = "text_form")]
    pub time: Timestamp,
    /// Local date.
    #[serde(with = "text_form")]
    pub day: Date,
    pub session: String,
    pub turn: String,
    #[serde(default)]
    job: Option<String>,
    #[serde(flatten)]
    pub usage: ToolUsage,
}

impl ToolUsageEntry {
    /// Parses a line. `None` if it is invalid, or of a later format.
    fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(|entry: &Self| entry.v == 1)
    }
}

/// The file `tools.jsonl`.
#[derive(Clone, Debug)]
pub struct ToolUsageLog {
    path: PathBuf,
    clock: Clock,
}

impl ToolUsageLog {
    /// Opens the file in the user's data directory `root`.
    pub fn new(root: &Path, clock: &Clock) -> Self {
        Self { path: root.join("tools.jsonl"), clock: clock.clone() }
    }

    /// Appends a line for a turn.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, purpose: &CallPurpose, usage: ToolUsage) -> Result<()> {
        let now = self.clock.now();
        let line = ToolUsageEntry {
            v: 1,
            time: now.timestamp(),
            day: now.date(),
            session: purpose.session.clone(),
            turn: purpose.turn.clone(),
            job: purpose.job.clone(),
            usage,
        };
        let mut text = serde_json::to_string(&line).context("serialize the tool usage")?;
        text.push('\n');
        if let Some(dir) = self.path.parent() {
            durable_file::create_dir(dir)?;
        }
        durable_file::append_line(&self.path, text.as_bytes())
    }

    /// Removes the lines of days before `limit`, and returns their number.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn remove_before(&self, limit: Date) -> Result<usize> {
        if !self.path.exists() {
            return Ok(0);
        }
        durable_file::with_line_log(&self.path, |_| {
            let bytes = durable_file::read(&self.path)?.unwrap_or_default();
            let is_recent =
                |line: &&[u8]| ToolUsageEntry::parse(line).is_none_or(|entry| entry.day >= limit);
            let lines = || bytes.split_inclusive(|byte| *byte == b'\n');
            let recent_lines: Vec<&[u8]> = lines().filter(is_recent).collect();
            let removed = lines().count() - recent_lines.len();
            if removed > 0 {
                durable_file::replace(&self.path, &recent_lines.concat())?;
            }
            Ok(removed)
        })
    }

    /// Passes the entry of each valid line to `each`, oldest first. Returns false if nothing was ever recorded.
    ///
    /// # Errors
    /// The file cannot be read, or the run is being stopped.
    pub fn for_each_entry(&self, each: &mut dyn FnMut(ToolUsageEntry)) -> Result<bool> {
        for_each_line(&self.path, MAX_LINE_BYTES, &mut |line| {
            if let Some(entry) = line.and_then(ToolUsageEntry::parse) {
                each(entry);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{CallCounts, ToolUsage, ToolUsageLog};
    use crate::ledger::CallPurpose;
    use nanobot_os::clock::Clock;
    use nanobot_os::env::Env;
    use nanobot_os::test_hooks;

    #[test]
    fn entries_round_trip_and_torn_lines_are_skipped() {
        let home = tempfile::tempdir().unwrap();
        let env: Env = [(test_hooks::TIME.name(), "2026-11-22T10:00:00Z")].into_iter().collect();
        let tools = ToolUsageLog::new(home.path(), &Clock::from_env(&env).unwrap());
        assert!(!tools.for_each_entry(&mut |_| panic!("there is none")).unwrap());
        let calls = CallCounts { count: 3, failed: 1, denied: 0 };
        let used = ToolUsage {
            requests: 2,
            tools: [("mcp_git_log".to_owned(), calls)].into(),
            skills: ["github".to_owned()].into(),
            definition_tokens: [(String::new(), 900), ("git".to_owned(), 500)].into(),
            skill_list_tokens: 70,
        };
        let purpose = CallPurpose {
            session: "cli:direct".into(),
            turn: "t1".into(),
            ..CallPurpose::default()
        };
        tools.append(&purpose, used.clone()).unwrap();
        let path = home.path().join("tools.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.insert_str(0, "{\"v\":1,\"ti\nnull\n{\"v\":2}\n");
        // The line of a process that was killed.
        text.push_str("{\"v\":1,\"ti");
        std::fs::write(&path, text).unwrap();
        tools.append(&purpose, ToolUsage::default()).unwrap();
        let mut entries = Vec::new();
        assert!(tools.for_each_entry(&mut |entry| entries.push(entry)).unwrap());
        assert_eq!(entries.len(), 2);
        assert_eq!((&entries[0].usage, entries[0].turn.as_str()), (&used, "t1"));
        assert_eq!(entries[1].usage, ToolUsage::default());
    }

    #[test]
    fn old_lines_are_removed_unless_their_format_is_unknown() {
        let home = tempfile::tempdir().unwrap();
        let clock = Clock::Fixed("2026-11-22T10:00:00Z".parse().unwrap());
        let log = ToolUsageLog::new(home.path(), &clock);
        let day = jiff::civil::date(2026, 11, 1);
        assert_eq!(log.remove_before(day).unwrap(), 0);
        let path = home.path().join("tools.jsonl");
        assert!(!path.exists());
        let line = |v: u64, day: &str| {
            format!(
                r#"{{"v":{v},"time":"{day}T00:00:00Z","day":"{day}","session":"s","turn":"t","requests":1}}"#
            )
        };
        let later_format = line(2, "2026-01-01");
        let recent = line(1, "2026-11-02");
        let lines = [line(1, "2026-10-01"), later_format.clone(), recent.clone()];
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        assert_eq!(log.remove_before(day).unwrap(), 1);
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, format!("{later_format}\n{recent}\n"));
    }
}
