//! Text search in the memory and its history.

use super::{Memory, history};
use anyhow::Result;
use nanobot_os::durable_file;
use regex::Regex;
use serde_json::Value;
use std::path::PathBuf;

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMatch {
    pub path: PathBuf,
    /// Line number, from 1.
    pub line: usize,
    pub text: String,
}

impl Memory {
    /// Returns the lines that match `pattern`: those of the memory, then those of the history, oldest first.
    pub fn search(&self, pattern: &Regex) -> Result<Vec<MemoryMatch>> {
        let mut matches = Vec::new();
        for path in self.files() {
            let bytes = durable_file::read(&path)?.unwrap_or_default();
            let is_rows = path.extension().is_some_and(|kind| kind == "jsonl");
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                let text = if is_rows {
                    row_text(line)
                } else {
                    String::from_utf8_lossy(line).trim_end().to_owned()
                };
                if !text.is_empty() && pattern.is_match(&text) {
                    matches.push(MemoryMatch { path: path.clone(), line: number + 1, text });
                }
            }
        }
        Ok(matches)
    }
}

/// The text of a history.jsonl row; empty if the row is invalid.
fn row_text(line: &[u8]) -> String {
    let row = history::parse_rows(line).next().unwrap_or_default();
    let field = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    match field("content") {
        "" => String::new(),
        content if content.starts_with('[') => content.to_owned(),
        content => format!("[{}] {content}", field("timestamp")),
    }
}
