//! The `write_file` tool: writes a whole file.

use super::files::Files;
use super::files::change::WrittenFile;
use super::files::text_file::TextFile;
use super::function_tool::FunctionTool;
use super::masked_text::restore_keys;
use super::{CallEffect, ToolError, ToolOutput, make_diff};
use nanobot_base::message::{ToolSpec, without_blanks};
use serde_json::Value;
use std::sync::Arc;

/// Builds the `write_file` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["path", "content"], "properties": {
        "path": { "type": "string" },
        "content": { "type": "string" }
    } }"#,
        )
    };
    let description = "Write a whole file; creates missing directories";
    let spec = ToolSpec::new("write_file", description, parameters);
    FunctionTool::new(spec, CallEffect::Writes, move |arguments| write(&files, arguments))
}

fn write(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let old = files.load(text("path")).ok().map(|(bytes, _)| bytes).filter(|old| !old.is_empty());
    let old_file = old.as_ref().and_then(|old| TextFile::new(old));
    let content = text("content");
    let (content, notes) = match &old_file {
        Some(file) => file.adapt_content(content),
        None => (content.to_owned(), Vec::new()),
    };
    let old_text = old_file.as_ref().map_or("", |file| file.text.as_str());
    let content = &*restore_keys(old_text, &content)?;
    let bytes = match (&old_file, &old) {
        (Some(file), Some(old)) => file
            .encode(content, old)
            .map_err(|error| format!("`{}`: {error}; nothing was written", text("path")))?,
        _ => content.as_bytes().to_vec(),
    };
    let WrittenFile { path, old_size, was_read } = files.write(text("path"), &bytes)?;
    let (bytes, lines) = (bytes.len(), content.lines().count());
    let verb = if old_size.is_some() { "replaced" } else { "created" };
    // The model must be able to report that it replaced content it did not know.
    let unread_note = match old_size {
        Some(size) if size > 0 && !was_read => {
            format!("; its previous {size} bytes were not read in this run, and are saved for undo")
        }
        _ => String::new(),
    };
    let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
    // If the old content could not be read, the change is unknown.
    let is_old_text_complete = old_file.is_some() || old_size.is_none_or(|size| size == 0);
    let text =
        format!("{verb} {} ({bytes} bytes, {lines} lines{unread_note}{notes})", path.display());
    Ok(ToolOutput {
        diff: is_old_text_complete.then(|| make_diff(old_text, content)).flatten(),
        ..files.add_instructions(text, &path).into()
    })
}
