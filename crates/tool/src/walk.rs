//! Walks a directory tree for the search tools. It skips ignored files (`.gitignore`), hidden files unless they are requested, and paths
//! closed to tools. It follows no links.
//!
//! A walk works with names, which can lead elsewhere by the time of an access. So the callers examine and open the
//! entries through [`super::files::Files`], which checks again by descriptor.

use ignore::types::{Types, TypesBuilder};
use ignore::{DirEntry, WalkBuilder};
use nanobot_config::policy::file_scope::FileScope;
use nanobot_os::signal;
use std::path::{Path, PathBuf};

/// Maximum number of entries examined. The result says whether a tree is larger.
pub(super) const MAX_ENTRIES: usize = 100_000;
/// Maximum depth of nested directories.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct WalkOptions {
    /// Includes hidden files, but never the contents of `.git`.
    pub(super) hidden: bool,
    /// Includes ignored files.
    pub(super) ignored: bool,
    /// Ignores what git ignores, and not what `.ignore` hides from searches.
    pub(super) as_git: bool,
    pub(super) types: Option<Types>,
}

/// Maximum number of hidden files that a note names.
const MAX_NAMED_FILES: usize = 3;

/// A note on hidden `files`, which were left out of a search without a result; empty if there are none. `statement` is the predicate of the
/// note.
pub(super) fn hidden_files_note(
    file_scope: &FileScope,
    files: &[PathBuf],
    statement: &str,
) -> String {
    if files.is_empty() {
        return String::new();
    }
    let display_name = |path: &PathBuf| {
        let path = path.strip_prefix(&file_scope.directory).unwrap_or(path);
        format!("`{}`", path.display())
    };
    let names: Vec<String> = files.iter().take(MAX_NAMED_FILES).map(display_name).collect();
    let more = if files.len() > MAX_NAMED_FILES { ", …" } else { "" };
    format!("\n({statement}: {}{more}; `all` includes them)", names.join(", "))
}

/// True if the part of `path` beneath `dir` has a hidden file or directory.
pub(super) fn is_hidden(path: &Path, dir: &Path) -> bool {
    let relative = path.strip_prefix(dir).unwrap_or(path);
    relative.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// The entries beneath `dir`, sorted by path; at most [`MAX_ENTRIES`]. Ends early if the run is to end; the run
/// then reports that itself.
pub(super) fn entries<'r>(
    file_scope: &'r FileScope,
    dir: &Path,
    options: WalkOptions,
) -> impl Iterator<Item = DirEntry> + use<'r> {
    let WalkOptions { hidden, ignored, as_git, types } = options;
    // As in git, ignore files of parent directories apply up to the root of the repository, and not outside a repository.
    let in_repository = dir.ancestors().any(|ancestor| ancestor.join(".git").exists());
    let mut walk = WalkBuilder::new(dir);
    walk.standard_filters(false)
        .hidden(!hidden)
        .git_ignore(!ignored)
        .git_exclude(as_git)
        .ignore(!ignored && !as_git)
        .require_git(false)
        .parents(!ignored && in_repository)
        .follow_links(false)
        .max_depth(Some(MAX_DEPTH))
        .sort_by_file_path(Path::cmp);
    if let Some(types) = types {
        walk.types(types);
    }
    let scope = file_scope.clone();
    walk.filter_entry(move |entry| entry.file_name() != ".git" && scope.is_visible(entry.path()));
    walk.build()
        .flatten()
        .filter(|entry| entry.depth() > 0 && file_scope.is_visible(entry.path()))
        .take_while(|_| signal::check().is_ok())
        .take(MAX_ENTRIES)
}

/// The file type called `name`, such as `rust` or `py`.
///
/// # Errors
/// There is no such type. The error is a text for the model.
pub(super) fn file_types(name: &str) -> Result<Types, String> {
    let mut types = TypesBuilder::new();
    types.add_defaults();
    // Models also name languages by their file extension.
    let name = match name {
        "rs" => "rust",
        "python" => "py",
        "javascript" => "js",
        "typescript" | "tsx" => "ts",
        "jsx" => "js",
        "golang" => "go",
        "markdown" => "md",
        "yml" => "yaml",
        name => name,
    };
    types.select(name);
    types
        .build()
        .map_err(|_| format!("unknown file type `{name}`; use glob instead, as in `*.{name}`"))
}
