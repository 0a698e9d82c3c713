//! The event log of `NANOBOT_LOG`: one JSON line per event, for later analysis. It contains no secrets.

use anyhow::Result;
use nanobot_base::event::Event;
use nanobot_os::durable_file;
use nanobot_os::file_lock;
use nanobot_os::secret;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A log file to which several runs may append.
pub(super) struct EventLog {
    path: PathBuf,
    file: Option<File>,
}

/// True if an event is logged. Pieces of text are not, since the complete text is.
pub(super) fn is_logged(event: &Event<'_>) -> bool {
    !matches!(event, Event::Text { .. } | Event::Reasoning { .. } | Event::ToolOutput { .. })
}

impl EventLog {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }

    pub(super) fn write(&mut self, line: &Value) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(durable_file::open_line_log(&self.path)?),
        };
        file_lock::with_lock(file, &self.path, || {
            let size = durable_file::size(file, &self.path)?;
            durable_file::append_to(
                file,
                &self.path,
                size,
                format!("{}\n", secret::redact_all_json(line)).as_bytes(),
            )
        })
    }
}
