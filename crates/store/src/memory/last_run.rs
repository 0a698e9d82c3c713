//! The result of the last consolidation, including those that left the memory unchanged and made no version.

use anyhow::{Context, Result};
use nanobot_os::durable_file;
use serde::{Deserialize, Serialize};
use std::path::Path;

const FILE_NAME: &str = "last.json";

/// The last consolidation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Local time.
    pub time: String,
    pub session: String,
    pub outcome: ConsolidationOutcome,
}

/// The effect of a consolidation on the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsolidationOutcome {
    New,
    Same,
    /// The new text was stored aside and is not in force.
    Aside,
    /// No model could summarize the messages; the history has them verbatim.
    Raw,
}

impl LastRun {
    /// Reads the record from directory `dir`; `None` if it is missing or invalid.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>> {
        let text = durable_file::read(&dir.join(FILE_NAME))?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Replaces the record in directory `dir` by an atomic write.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        durable_file::create_dir(dir)?;
        let text =
            serde_json::to_vec(self).context("encode the record of the last consolidation")?;
        durable_file::replace(&dir.join(FILE_NAME), &text)
    }
}
