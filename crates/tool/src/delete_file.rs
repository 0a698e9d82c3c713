//! The `delete_file` tool: removes a file, a link or an empty directory.
//!
//! It is a separate tool, not an argument of another one, so that a forgotten argument can never delete anything.

use super::files::Files;
use super::function_tool::FunctionTool;
use super::{CallEffect, ToolError, ToolOutput, make_diff};
use nanobot_base::message::{ToolSpec, without_blanks};
use serde_json::Value;
use std::sync::Arc;

/// Builds the `delete_file` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["path"], "properties": {
        "path": { "type": "string" }
    } }"#,
        )
    };
    let description = "Delete a file or an empty directory";
    let spec = ToolSpec::new("delete_file", description, parameters);
    FunctionTool::new(spec, CallEffect::Writes, move |arguments| delete(&files, arguments))
}

fn delete(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let path = arguments["path"].as_str().unwrap_or_default();
    // A link is deleted, not the file that it leads to.
    let is_link = files.file_scope.absolute(path).is_symlink();
    let old = if is_link { None } else { files.load(path).ok() };
    let absolute_path = files.remove(path)?;
    let diff = old.and_then(|(bytes, _)| make_diff(&String::from_utf8_lossy(&bytes), ""));
    Ok(ToolOutput { diff, ..format!("deleted {}", absolute_path.display()).into() })
}

#[cfg(test)]
mod tests {
    use super::tool;
    use crate::files::tests::files;
    use crate::run_alone;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn the_diff_of_a_link_does_not_show_its_target() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::write(dir.join("file"), "one\n").unwrap();
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        let delete_file = tool(Arc::new(files(&dir, true)));
        let diff = |path: &str| run_alone(&delete_file, &json!({ "path": path })).unwrap().diff;
        assert_eq!(diff("link"), None);
        assert!(diff("file").unwrap().contains("-one"));
    }
}
