//! The result of the last consolidation, including those that left the memory unchanged and made no version.

use crate::sys::store;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Name of the file.
const FILE: &str = "last.json";

/// The last consolidation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Local time.
    pub time: String,
    pub session: String,
    pub outcome: Outcome,
}

/// The effect of a consolidation on the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    New,
    Same,
    /// The new text was stored aside and is not in force.
    Aside,
    /// No model could summarize the messages; the history has them verbatim.
    Raw,
}

impl Last {
    /// Reads the record from directory `dir`; `None` if it is missing or invalid.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>> {
        let text = store::read(&dir.join(FILE))?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Replaces the record in directory `dir` by an atomic write.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        store::create_dir(dir)?;
        let text =
            serde_json::to_vec(self).context("encode the record of the last consolidation")?;
        store::replace(&dir.join(FILE), &text)
    }
}
