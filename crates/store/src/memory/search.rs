//! Text search in the memory and its history.

use super::{Memory, history};
use crate::embedding_index::IndexedText;
use anyhow::Result;
use nanobot_os::durable_file;
use regex::Regex;
use serde_json::Value;
use std::path::PathBuf;

/// Maximum number of lines that are searched by meaning.
const MAX_LINES_BY_MEANING: usize = 5_000;

/// A matching line.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryMatch {
    pub path: PathBuf,
    /// Line number, from 1.
    pub line: usize,
    pub text: String,
    /// The similarity to the text of a search by meaning, from -1 to 1.
    pub score: Option<f32>,
}

impl IndexedText for MemoryMatch {
    fn text(&self) -> &str {
        &self.text
    }
}

impl Memory {
    /// Returns the lines that match `pattern`: those of the memory, then those of the history, oldest first.
    pub fn search(&self, pattern: &Regex) -> Result<Vec<MemoryMatch>> {
        let mut lines = self.lines()?;
        lines.retain(|line| pattern.is_match(&line.text));
        Ok(lines)
    }

    /// Returns the lines that a search by meaning covers: those of the memory, then the newest of the history.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn lines_by_meaning(&self) -> Result<Vec<MemoryMatch>> {
        let (mut lines, memory) = (self.lines()?, self.path());
        let mut surplus = lines.len().saturating_sub(MAX_LINES_BY_MEANING);
        lines.retain(|line| {
            let is_dropped = surplus > 0 && line.path != memory;
            surplus -= usize::from(is_dropped);
            !is_dropped
        });
        Ok(lines)
    }

    fn lines(&self) -> Result<Vec<MemoryMatch>> {
        let mut lines = Vec::new();
        for path in self.files() {
            let bytes = durable_file::read(&path)?.unwrap_or_default();
            let is_rows = path.extension().is_some_and(|kind| kind == "jsonl");
            for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                let text = if is_rows {
                    row_text(line)
                } else {
                    String::from_utf8_lossy(line).trim_end().to_owned()
                };
                if !text.is_empty() {
                    lines.push(MemoryMatch {
                        path: path.clone(),
                        line: number + 1,
                        text,
                        score: None,
                    });
                }
            }
        }
        Ok(lines)
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
