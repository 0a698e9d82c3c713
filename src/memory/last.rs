//! What the last consolidation came to: also one that left the memory as it was, of which no version tells.

use crate::sys::store;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The name of its file.
const FILE: &str = "last.json";

/// The last consolidation that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Local time.
    pub time: String,
    pub session: String,
    pub outcome: Outcome,
}

/// What became of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    New,
    Same,
    /// Its new text is kept aside.
    Aside,
    /// No model made anything of the messages, and the history has them as they are.
    Raw,
}

impl Last {
    pub(super) fn read(dir: &Path) -> Result<Option<Self>> {
        let text = store::read(&dir.join(FILE))?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).ok())
    }

    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        store::create_dir(dir)?;
        let text = serde_json::to_vec(self).context("write down what was made last")?;
        store::replace(&dir.join(FILE), &text)
    }
}
