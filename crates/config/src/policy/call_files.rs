//! The files that a call of a file tool is about.

use super::file_scope::FileAccess;
use super::tool_names::{APPLY_PATCH, READ_TOOLS, WRITE_TOOLS};
use nanobot_base::patch::{self, FilePatch};
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

/// A file or directory that a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFile<'a> {
    /// The path as the model wrote it.
    pub path: Cow<'a, str>,
    /// The tool that does the same to this file alone. The user's decisions about that tool apply too.
    pub tool: &'a str,
}

/// The access to files that `tool` needs; `None` if it is not a file tool.
pub fn file_access(tool: &str) -> Option<FileAccess> {
    match tool {
        tool if WRITE_TOOLS.contains(&tool) => Some(FileAccess::Write),
        tool if READ_TOOLS.contains(&tool) => Some(FileAccess::Read),
        _ => None,
    }
}

/// The files that a call is about. Empty if `tool` is not a file tool, or if the call has a patch that cannot be parsed: it changes
/// nothing.
pub fn files_of_call<'a>(tool: &'a str, arguments: &'a Value) -> Vec<CallFile<'a>> {
    let text = |key: &str| arguments[key].as_str();
    if tool == APPLY_PATCH {
        let file_patches = patch::parse(text("patch").unwrap_or_default()).unwrap_or_default();
        return file_patches.iter().flat_map(files_of_file_patch).collect();
    }
    match file_access(tool) {
        Some(_) if tool == "glob" => vec![CallFile { path: split_glob(arguments).0, tool }],
        Some(_) => vec![CallFile { path: text("path").unwrap_or(".").into(), tool }],
        None => Vec::new(),
    }
}

/// Splits the arguments of `glob` into the directory that it searches, and the pattern of the paths in that directory. The pattern
/// that the model wrote may begin with a directory, also with an absolute one.
pub fn split_glob(arguments: &Value) -> (Cow<'_, str>, &str) {
    let (base, pattern) = split_base(arguments["pattern"].as_str().unwrap_or_default());
    let directory = match (arguments["path"].as_str(), base) {
        (None, "") => ".".into(),
        (None, base) => base.into(),
        (Some(path), "") => path.into(),
        (Some(path), base) => Path::new(path).join(base).to_string_lossy().into_owned().into(),
    };
    (directory, pattern)
}

/// Splits a pattern into the directory that it begins with, and the rest.
fn split_base(pattern: &str) -> (&str, &str) {
    let base_end = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern[..base_end].rfind('/') {
        None => ("", pattern),
        Some(0) => ("/", &pattern[1..]),
        Some(slash) => (&pattern[..slash], &pattern[slash + 1..]),
    }
}

fn files_of_file_patch<'a>(file_patch: &FilePatch<'a>) -> Vec<CallFile<'a>> {
    let file = |path: &'a str, tool| CallFile { path: path.into(), tool };
    match *file_patch {
        FilePatch::Add { path, .. } => vec![file(path, "write_file")],
        FilePatch::Delete { path } => vec![file(path, "delete_file")],
        FilePatch::Update { path, new_path: None, .. } => vec![file(path, "edit_file")],
        FilePatch::Update { path, new_path: Some(new_path), .. } => {
            vec![file(path, "edit_file"), file(path, "delete_file"), file(new_path, "write_file")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{files_of_call, split_base};
    use serde_json::{Value, json};

    #[test]
    fn calls_name_their_files() {
        let check = |tool: &str, arguments: Value, expect: &str| {
            let files = files_of_call(tool, &arguments);
            let files: Vec<String> =
                files.iter().map(|file| format!("{} {}", file.tool, file.path)).collect();
            assert_eq!(files.join(", "), expect, "{tool} {arguments}");
        };
        check("read_file", json!({ "path": "a" }), "read_file a");
        check("list_dir", json!({}), "list_dir .");
        check("glob", json!({ "pattern": "*.rs" }), "glob .");
        check("glob", json!({ "pattern": "*.rs", "path": "a" }), "glob a");
        check("glob", json!({ "pattern": "src/*.rs" }), "glob src");
        check("glob", json!({ "pattern": "src/*.rs", "path": "a" }), "glob a/src");
        check("glob", json!({ "pattern": "~/src/*.rs" }), "glob ~/src");
        check("glob", json!({ "pattern": "/etc/*" }), "glob /etc");
        check("glob", json!({ "pattern": "/etc/*", "path": "a" }), "glob /etc");
        check("grep", json!({ "pattern": "/etc/*", "path": "a" }), "grep a");
        check("exec", json!({ "command": "ls", "path": "a" }), "");
        let patch =
            |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch") });
        check(
            "apply_patch",
            patch(
                "*** Add File: a\n*** Delete File: b\n*** Update File: c\n-x\n*** Update File: d\n*** Move to: e\n",
            ),
            "write_file a, delete_file b, edit_file c, edit_file d, delete_file d, write_file e",
        );
        check("apply_patch", patch(""), "");
        check("apply_patch", json!({ "path": "a" }), "");
    }

    #[test]
    fn patterns_begin_with_a_directory() {
        let check = |pattern: &str, base: &str, rest: &str| {
            assert_eq!(split_base(pattern), (base, rest), "{pattern}");
        };
        check("*.rs", "", "*.rs");
        check("src/**/*.rs", "src", "**/*.rs");
        check("src/deep/a.rs", "src/deep", "a.rs");
        check("/etc/*.conf", "/etc", "*.conf");
        check("/*", "/", "*");
        check("../*", "..", "*");
        check("~/x/*", "~/x", "*");
        check("a.rs", "", "a.rs");
    }
}
