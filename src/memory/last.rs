//! What the last consolidation came to: also one that left the memory as it was, of which no version tells.

use super::{Cause, Memory, VERSIONS};
use crate::sys::store;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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

impl Memory {
    /// The last consolidation. Before this was written down, the versions knew of those that changed something.
    pub fn last(&self) -> Result<Option<Last>> {
        let text = store::read(&self.last_path())?.unwrap_or_default();
        if let Ok(last) = serde_json::from_slice(&text) {
            return Ok(Some(last));
        }
        let mut versions = self.versions()?.into_iter();
        let last = versions.rfind(|version| version.cause == Cause::Consolidation);
        Ok(last.map(|version| Last {
            time: version.time,
            session: version.session.unwrap_or_default(),
            outcome: match version.aside {
                Some(_) => Outcome::Aside,
                None => Outcome::New,
            },
        }))
    }

    pub(super) fn note_last(&self, session: &str, outcome: Outcome) -> Result<()> {
        let last = Last {
            time: self.clock.now().strftime("%Y-%m-%d %H:%M:%S").to_string(),
            session: session.to_owned(),
            outcome,
        };
        store::create_dir(&self.dir.join(VERSIONS))?;
        let text = serde_json::to_vec(&last).context("write down what was made last")?;
        store::replace(&self.last_path(), &text)
    }

    fn last_path(&self) -> PathBuf {
        self.dir.join(VERSIONS).join("last.json")
    }
}
