//! The `write_file` tool: writes a whole file.

use super::files::Files;
use super::files::change::WrittenFile;
use super::function_tool::FunctionTool;
use super::masked_text::restore_keys;
use super::{CallEffect, ToolError, ToolOutput, make_diff};
use crate::message::{ToolSpec, without_blanks};
use serde_json::Value;
use std::sync::Arc;

/// Builds the `write_file` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let spec = ToolSpec {
        name: "write_file".into(),
        description: "Write a whole file; creates missing directories".into(),
        parameters: const {
            &without_blanks(
                br#"{ "type": "object", "required": ["path", "content"], "properties": {
            "path": { "type": "string", "minLength": 1 },
            "content": { "type": "string" }
        } }"#,
            )
        }
        .into(),
    };
    FunctionTool::new(spec, CallEffect::Writes, move |arguments| write(&files, arguments))
}

fn write(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let old = files.load(text("path")).ok();
    let old = old.as_ref().map(|(old, _)| String::from_utf8_lossy(old));
    let content = &*restore_keys(old.as_deref().unwrap_or_default(), text("content"))?;
    let WrittenFile { path, old_size: before, was_read: was_seen } =
        files.write(text("path"), content.as_bytes())?;
    let (bytes, lines) = (content.len(), content.lines().count());
    let done = if before.is_some() { "replaced" } else { "created" };
    // The model must be able to report that it replaced content it did not know.
    let unread = match before {
        Some(before) if before > 0 && !was_seen => {
            format!(
                "; its previous {before} bytes were not read in this run, and are saved for undo"
            )
        }
        _ => String::new(),
    };
    // If the old content could not be read, the change is unknown.
    let known = old.is_some() || before.is_none();
    let text = format!("{done} {} ({bytes} bytes, {lines} lines{unread})", path.display());
    Ok(ToolOutput {
        diff: known.then(|| make_diff(old.as_deref().unwrap_or_default(), content)).flatten(),
        ..files.add_instructions(text, &path).into()
    })
}
