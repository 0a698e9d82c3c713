//! The `list_dir` tool: lists a directory, or recursively the files below it that git does not ignore.

use super::arguments::usize_argument;
use super::files::Files;
use super::function_tool::FunctionTool;
use super::{CallEffect, ToolError, ToolOutput};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_os::durable_file::format_size;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Entries shown by default.
const DEFAULT_ENTRIES: usize = 200;
/// Maximum number of entries examined. The result says whether a tree is larger.
const MAX_ENTRIES: usize = 100_000;

/// Builds the `list_dir` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let parameters = const {
        &without_blanks(br#"{ "type": "object", "properties": {
        "path": { "type": "string", "description": "default: working directory" },
        "recursive": { "type": "boolean", "description": "everything below it, except ignored files" },
        "max_entries": { "type": "integer", "maximum": 5000 }
    } }"#)
    };
    let description = "List a directory: names and sizes, directories ending in /";
    let spec = ToolSpec::new("list_dir", description, parameters);
    FunctionTool::new(spec, CallEffect::Reads, move |arguments| list(&files, arguments))
}

fn list(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let raw_path = arguments["path"].as_str().unwrap_or(".");
    let recursive = arguments["recursive"].as_bool().unwrap_or(false);
    let limit = usize_argument(arguments, "max_entries").unwrap_or(DEFAULT_ENTRIES);
    let dir = files.directory(raw_path)?;
    let mut names = walk(files, &dir, recursive);
    names.sort();
    let total = names.len();
    if total == 0 {
        return Ok(format!("({} is empty)", dir.display()).into());
    }
    names.truncate(limit);
    let mut text = names.join("\n");
    if names.len() < total {
        let at_least = if total >= MAX_ENTRIES { "at least " } else { "" };
        text.push_str(&format!(
            "\n({} of {at_least}{total} entries; increase max_entries for more)",
            names.len()
        ));
    }
    Ok(text.into())
}

/// The entries of `dir`. Links are not followed, so the walk stays within the directory.
fn walk(files: &Files, dir: &Path, recursive: bool) -> Vec<String> {
    let mut walk = ignore::WalkBuilder::new(dir);
    walk.standard_filters(false).follow_links(false).max_depth(Some(1));
    if recursive {
        walk.max_depth(Some(32)).hidden(false).parents(false).git_ignore(true).require_git(false);
        let scope = files.file_scope.clone();
        walk.filter_entry(move |entry| {
            entry.file_name() != ".git" && scope.is_visible(entry.path())
        });
    }
    let entries = walk
        .build()
        .flatten()
        .filter(|entry| entry.depth() > 0 && files.file_scope.is_visible(entry.path()));
    // A walk works with names, which can lead elsewhere by then, so each entry is examined again
    // by descriptor.
    let line = |entry: ignore::DirEntry| {
        let metadata = files.metadata(entry.path())?;
        let path = entry.path().strip_prefix(dir).unwrap_or(entry.path());
        let name = escape_name(path);
        let mut line = if metadata.is_dir() {
            format!("{name}/")
        } else if metadata.is_symlink() {
            format!("{name}  link")
        } else {
            format!("{name}  {}", format_size(metadata.len()))
        };
        if path.to_str().is_none() {
            line.push_str("  (not UTF-8: only commands can open it)");
        }
        Some(line)
    };
    entries.take(MAX_ENTRIES).filter_map(line).collect()
}

/// The path as text, in which bytes that are not UTF-8 are written as `\xNN`.
fn escape_name(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        text.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::tool;
    use crate::{files::tests::files, run_alone};
    use nanobot_base::message::plain_text;
    use serde_json::{Value, json};
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Arc;

    #[test]
    fn listings() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let list = tool(Arc::new(files(&dir, false)));
        let run =
            |arguments: Value| run_alone(&list, &arguments).map(|output| plain_text(&output.parts));
        assert_eq!(run(json!({})).unwrap(), format!("({} is empty)", dir.display()));
        for name in ["b.txt", "sub/deep/x", "sub/y.log", ".hidden", ".git/config"] {
            std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.join(name), "12").unwrap();
        }
        std::fs::write(dir.join(".gitignore"), "*.log\n").unwrap();
        std::os::unix::fs::symlink("/etc", dir.join("link")).unwrap();
        assert_eq!(
            run(json!({})).unwrap(),
            ".git/\n.gitignore  6 B\n.hidden  2 B\nb.txt  2 B\nlink  link\nsub/"
        );
        let all = ".gitignore  6 B\n.hidden  2 B\nb.txt  2 B\nlink  link\nsub/\nsub/deep/\nsub/deep/x  2 B";
        assert_eq!(run(json!({ "recursive": true })).unwrap(), all);
        let few = run(json!({ "max_entries": 2 })).unwrap();
        assert_eq!(few, ".git/\n.gitignore  6 B\n(2 of 6 entries; increase max_entries for more)");
        assert!(
            run(json!({ "path": "/etc" })).unwrap_err().message().contains("outside the paths")
        );
        assert!(run(json!({ "path": "link" })).is_err());
        let latin = std::ffi::OsStr::from_bytes(b"sub/deep/caf\xe9");
        std::fs::write(dir.join(latin), "12").unwrap();
        assert_eq!(
            run(json!({ "path": "sub/deep" })).unwrap(),
            "caf\\xe9  2 B  (not UTF-8: only commands can open it)\nx  2 B"
        );
    }
}
