//! What is beneath a directory, as the tools that search see it: without what `.gitignore` names, hidden files only when
//! asked for, no link followed, nothing that is closed to tools.
//!
//! A walk goes by names, and names can be made to lead elsewhere meanwhile; what is shown or opened of its findings goes
//! through [`super::files::Files`], which looks again by descriptor.

use crate::policy::reach::Reach;
use crate::sys::signal;
use ignore::types::{Types, TypesBuilder};
use ignore::{DirEntry, WalkBuilder};
use std::path::Path;

/// Entries that are looked at; a larger tree is said to be one.
pub(super) const LOOKED_AT: usize = 100_000;
/// Directories within each other.
const DEPTH: usize = 64;

/// What a walk takes in.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    /// Hidden files too, and what `.gitignore` names; the inner life of git all the same not.
    pub(super) all: bool,
    pub(super) types: Option<Types>,
}

/// The entries beneath `dir`, sorted by path; at most [`LOOKED_AT`]. Ends early when the run is to end, which then says
/// so itself.
pub(super) fn beneath<'r>(
    reach: &'r Reach,
    dir: &Path,
    terms: Terms,
) -> impl Iterator<Item = DirEntry> + use<'r> {
    let Terms { all, types } = terms;
    // As git has it: files above count up to the top of the repository, and nowhere else.
    let in_repository = dir.ancestors().any(|above| above.join(".git").exists());
    let mut walk = WalkBuilder::new(dir);
    walk.standard_filters(false)
        .hidden(!all)
        .git_ignore(!all)
        .ignore(!all)
        .require_git(false)
        .parents(!all && in_repository)
        .follow_links(false)
        .max_depth(Some(DEPTH))
        .sort_by_file_path(Path::cmp);
    if let Some(types) = types {
        walk.types(types);
    }
    let closed = reach.clone();
    walk.filter_entry(move |entry| entry.file_name() != ".git" && closed.shows(entry.path()));
    walk.build()
        .flatten()
        .filter(|entry| entry.depth() > 0 && reach.shows(entry.path()))
        .take_while(|_| signal::check().is_ok())
        .take(LOOKED_AT)
}

/// The files of a type, such as `rust` or `py`.
///
/// # Errors
/// In words for the model, where there is no such type.
pub(super) fn types(name: &str) -> Result<Types, String> {
    let mut types = TypesBuilder::new();
    types.add_defaults();
    // Models know languages by their endings as well.
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
        .map_err(|_| format!("there is no file type `{name}`; use glob instead, as in `*.{name}`"))
}
