//! `delete_file`: a file, a link, or an empty directory.
//!
//! A tool of its own, and no argument of another: what removes must never be what a forgotten argument does.

use super::files::Files;
use super::{Effect, Failure, Output, Tool, changes};
use crate::message::ToolSpec;
use serde_json::{Value, json};
use std::sync::Arc;

/// Deletes files.
pub struct DeleteFile {
    spec: ToolSpec,
    files: Arc<Files>,
}

impl DeleteFile {
    pub fn new(files: Arc<Files>) -> Self {
        let spec = ToolSpec {
            name: "delete_file".into(),
            description: "Delete a file or an empty directory".into(),
            parameters: json!({ "type": "object", "required": ["path"], "properties": {
                "path": { "type": "string", "minLength": 1 },
            } }),
        };
        Self { spec, files }
    }
}

impl Tool for DeleteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> Effect {
        Effect::Writes
    }

    fn run(&self, arguments: &Value, _: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        let given = arguments["path"].as_str().unwrap_or_default();
        let old = self.files.load(given).ok();
        let path = self.files.remove(given)?;
        let gone = |(old, _): (Vec<u8>, _)| changes(&String::from_utf8_lossy(&old), "");
        Ok(Output {
            changes: old.and_then(gone),
            ..format!("deleted {}", path.display()).into()
        })
    }
}
