//! Walks a directory tree for the search tools: skips what `.gitignore` names, hidden files unless they are asked for,
//! and everything closed to tools. It follows no links.
//!
//! A walk works with names, which can be made to lead elsewhere in the meantime. So the callers examine and open the
//! entries through [`super::files::Files`], which checks again by descriptor.

use crate::policy::file_scope::FileScope;
use crate::sys::signal;
use ignore::types::{Types, TypesBuilder};
use ignore::{DirEntry, WalkBuilder};
use std::path::Path;

/// Maximum number of entries examined. The result says if a tree is larger.
pub(super) const MAX_ENTRIES: usize = 100_000;
/// Maximum depth of nested directories.
const MAX_DEPTH: usize = 64;

/// Options of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct WalkOptions {
    /// Includes hidden and ignored files, but never the contents of `.git`.
    pub(super) all: bool,
    pub(super) types: Option<Types>,
}

/// The entries beneath `dir`, sorted by path; at most [`MAX_ENTRIES`]. Ends early if the run is to end; the run
/// then reports that itself.
pub(super) fn entries<'r>(
    file_scope: &'r FileScope,
    dir: &Path,
    options: WalkOptions,
) -> impl Iterator<Item = DirEntry> + use<'r> {
    let WalkOptions { all, types } = options;
    // As in git, ignore files of parent directories count up to the root of the repository, and not outside one.
    let in_repository = dir.ancestors().any(|above| above.join(".git").exists());
    let mut walk = WalkBuilder::new(dir);
    walk.standard_filters(false)
        .hidden(!all)
        .git_ignore(!all)
        .ignore(!all)
        .require_git(false)
        .parents(!all && in_repository)
        .follow_links(false)
        .max_depth(Some(MAX_DEPTH))
        .sort_by_file_path(Path::cmp);
    if let Some(types) = types {
        walk.types(types);
    }
    let closed = file_scope.clone();
    walk.filter_entry(move |entry| entry.file_name() != ".git" && closed.is_visible(entry.path()));
    walk.build()
        .flatten()
        .filter(|entry| entry.depth() > 0 && file_scope.is_visible(entry.path()))
        .take_while(|_| signal::check().is_ok())
        .take(MAX_ENTRIES)
}

/// The file type called `name`, such as `rust` or `py`.
///
/// # Errors
/// Text for the model: there is no such type.
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
