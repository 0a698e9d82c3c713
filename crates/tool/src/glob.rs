//! The `glob` tool: finds files by a pattern of their names, newest first.

use super::arguments::usize_argument;
use super::files::Files;
use super::function_tool::FunctionTool;
use super::walk::{self, MAX_ENTRIES, WalkOptions};
use super::{CallEffect, ToolError, ToolOutput};
use globset::GlobMatcher;
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_config::policy::call_files::split_glob;
use nanobot_config::policy::path_glob;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// Files shown by default.
const DEFAULT_FILES: usize = 200;

/// Maximum number of files shown.
const MAX_FILES: usize = 5_000;

/// Builds the `glob` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["pattern"], "properties": {
        "pattern": { "type": "string" },
        "path": { "type": "string", "description": "default: working directory" },
        "all": { "type": "boolean", "description": "hidden and ignored files too" },
        "head_limit": { "type": "integer" },
        "offset": { "type": "integer" }
    } }"#,
        )
    };
    let description = "Find files by name, as src/**/*.rs or *.{md,txt}; newest first";
    let spec = ToolSpec::new("glob", description, parameters);
    FunctionTool::new(spec, CallEffect::Reads, move |arguments| find(&files, arguments))
}

fn find(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let (raw_path, pattern) = split_glob(arguments);
    let matcher = build_matcher(pattern)?;
    let dir = files.directory(&raw_path)?;
    let includes_all = arguments["all"] == true;
    let names_hidden = names_hidden_files(pattern);
    let search = |hidden: bool| {
        let options =
            WalkOptions { hidden, ignored: includes_all || names_hidden, ..Default::default() };
        let mut entry_count = 0;
        let mut matches: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in walk::entries(&files.file_scope, &dir, options) {
            entry_count += 1;
            let relative = entry.path().strip_prefix(&dir).unwrap_or(entry.path());
            if !matcher.is_match(relative) {
                continue;
            }
            if let Some(metadata) = files.metadata(entry.path())
                && !metadata.is_dir()
            {
                let time = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                matches.push((time, entry.into_path()));
            }
        }
        (matches, entry_count)
    };
    let (mut matches, entry_count) = search(includes_all || names_hidden);
    matches.sort_by(|(time, path), (other, other_path)| {
        other.cmp(time).then_with(|| path.cmp(other_path))
    });
    let directory = &files.file_scope.directory;
    let names = matches
        .iter()
        .map(|(_, path)| path.strip_prefix(directory).unwrap_or(path).display().to_string());
    let names: Vec<String> = names.collect();
    let mut text = page(&names, arguments, DEFAULT_FILES, "files")?;
    if names.is_empty() && !includes_all && !names_hidden {
        let (hidden, _) = search(true);
        let hidden: Vec<PathBuf> = hidden.into_iter().map(|(_, path)| path).collect();
        let scope = &files.file_scope;
        text.push_str(&walk::hidden_files_note(scope, &hidden, "hidden files match"));
    }
    if entry_count >= MAX_ENTRIES {
        text.push_str(&format!(
            "\n(only the first {MAX_ENTRIES} entries below {} were searched)",
            dir.display()
        ));
    }
    Ok(text.into())
}

/// Returns at most `head_limit` lines from `offset` on, with a note on those not shown. `noun` denotes the lines in the note.
///
/// # Errors
/// The offset is beyond the end. The error is a text for the model.
pub(super) fn page(
    lines: &[String],
    arguments: &Value,
    limit: usize,
    noun: &str,
) -> Result<String, String> {
    let offset = usize_argument(arguments, "offset").unwrap_or(0);
    let limit = usize_argument(arguments, "head_limit").unwrap_or(limit).clamp(1, MAX_FILES);
    let total = lines.len();
    if total == 0 {
        return Ok(format!("no {noun} found"));
    }
    if offset >= total {
        return Err(format!("offset {offset} is beyond the end: there are {total} {noun}"));
    }
    let end = offset.saturating_add(limit).min(total);
    let mut text = lines[offset..end].join("\n");
    if end < total {
        text.push_str(&format!(
            "\n({} to {end} of {total} {noun}; continue at offset {end})",
            offset + 1
        ));
    }
    Ok(text)
}

/// True if the pattern itself names hidden files.
pub(super) fn names_hidden_files(pattern: &str) -> bool {
    ["/.", "{.", ",."].iter().any(|start| pattern.contains(start)) || pattern.starts_with('.')
}

/// Builds the matcher for paths relative to a directory. A pattern without a slash matches names at any depth.
///
/// # Errors
/// The pattern is invalid. The error is a text for the model.
pub(super) fn build_matcher(pattern: &str) -> Result<GlobMatcher, String> {
    let full_pattern = match pattern.trim_end_matches('/') {
        "" => "**".to_owned(),
        pattern if pattern.contains('/') => pattern.to_owned(),
        pattern => format!("**/{pattern}"),
    };
    path_glob::compile(&full_pattern, true)
        .map_err(|cause| format!("`{pattern}` is not a valid pattern: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::{build_matcher, tool};
    use crate::{files::tests::files, run_alone};
    use nanobot_base::message::plain_text;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    #[test]
    fn patterns() {
        let check = |pattern: &str, path: &str, expect: bool| {
            let matcher = build_matcher(pattern).unwrap();
            assert_eq!(matcher.is_match(path), expect, "{pattern} {path}");
        };
        check("*.rs", "a.rs", true);
        check("*.rs", "src/deep/a.rs", true);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "src/deep/a.rs", false);
        check("src/**/*.rs", "src/a.rs", true);
        check("src/**/*.rs", "src/deep/a.rs", true);
        check("*.{md,txt}", "a.txt", true);
        check("[ab].c", "b.c", true);
        check("Makefile", "sub/Makefile", true);
        check("", "anything/at/all", true);
        assert!(build_matcher("[").unwrap_err().contains("is not a valid pattern"));
        assert!(build_matcher(&"{".repeat(1000)).unwrap_err().contains("is not a valid pattern"));
        let nested = format!("{}a{}", "{".repeat(250), "}".repeat(250));
        assert!(build_matcher(&nested).unwrap_err().contains("braces"));
    }

    #[test]
    fn listings() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let names = ["old.rs", "src/mid.rs", "src/new.rs", "x.log", ".hid.rs", ".git/a.rs"];
        for (age, name) in names.iter().enumerate() {
            std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.join(name), "x").unwrap();
            let file = std::fs::File::options().write(true).open(dir.join(name));
            let time = start + Duration::from_secs(age as u64);
            file.unwrap().set_modified(time).unwrap();
        }
        std::fs::write(dir.join(".gitignore"), "*.log\n").unwrap();
        std::os::unix::fs::symlink("/etc", dir.join("link")).unwrap();
        let glob = tool(Arc::new(files(&dir, false)));
        let check = |arguments: Value, expect: Result<&str, &str>| {
            let result = run_alone(&glob, &arguments);
            match (result, expect) {
                (Ok(output), Ok(text)) => {
                    assert_eq!(plain_text(&output.parts), text, "{arguments}");
                }
                (Err(error), Err(words)) => {
                    assert!(error.message().contains(words), "{}", error.message());
                }
                (result, _) => panic!("{arguments}: {result:?}"),
            }
        };
        check(json!({ "pattern": "*.rs" }), Ok("src/new.rs\nsrc/mid.rs\nold.rs"));
        check(json!({ "pattern": "src/*" }), Ok("src/new.rs\nsrc/mid.rs"));
        check(json!({ "pattern": "*.rs", "path": "src" }), Ok("src/new.rs\nsrc/mid.rs"));
        check(json!({ "pattern": "*.log" }), Ok("no files found"));
        check(json!({ "pattern": "*.log", "all": true }), Ok("x.log"));
        check(json!({ "pattern": ".h*" }), Ok(".hid.rs"));
        check(json!({ "pattern": "{.h*,x}.rs" }), Ok(".hid.rs"));
        let note = "no files found\n(hidden files match: `.hid.rs`; `all` includes them)";
        check(json!({ "pattern": "h?d.rs" }), Ok("no files found"));
        check(json!({ "pattern": "?hid.rs" }), Ok(note));
        check(json!({ "pattern": ".git/*" }), Ok(".git/a.rs"));
        check(
            json!({ "pattern": "*.rs", "head_limit": 1, "offset": 1 }),
            Ok("src/mid.rs\n(2 to 2 of 3 files; continue at offset 2)"),
        );
        check(json!({ "pattern": "*.rs", "offset": 9 }), Err("beyond the end"));
        check(json!({ "pattern": "/etc/*" }), Err("outside the paths"));
        check(json!({ "pattern": "../*" }), Err("outside"));
        check(json!({ "pattern": "link/*" }), Err("outside the paths"));
        check(json!({ "pattern": "none/*" }), Err("there is no"));
    }
}
