//! The event log of `NANOBOT_LOG`: what happened, a JSON line each, for those who were not there. It holds no keys.

use crate::event::Event;
use crate::sys::{secret, store};
use anyhow::Result;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file that many runs may append to.
pub(super) struct Log {
    path: PathBuf,
    file: Option<File>,
}

/// Whether an event is written: pieces are not, what they add up to is.
pub(super) fn takes(event: &Event<'_>) -> bool {
    !matches!(
        event,
        Event::Text { .. } | Event::Reasoning { .. } | Event::ToolOutput { .. }
    )
}

impl Log {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
        }
    }

    pub(super) fn write(&mut self, line: &Value) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(store::open_lines(&self.path)?),
        };
        store::while_locked(file, &self.path, || {
            let size = store::size(file, &self.path)?;
            store::append_to(
                file,
                &self.path,
                size,
                format!("{}\n", secret::hide_json(line)).as_bytes(),
            )
        })
    }
}
