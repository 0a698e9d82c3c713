//! The paths of our own that no tool of a run reads, or none changes. They are found out when they are first used.

use crate::ops::context::Context;
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_os::paths::{PathResolver, Paths};
use nanobot_os::symlinks::trace_links;
use nanobot_os::sync::Deferred;
use nanobot_store::memory;
use std::path::{Path, PathBuf};

/// Files and directories in our own directory, outside the workspace. They are closed even if a directory around them
/// is granted.
const PROTECTED_PATHS: &[&str] = &[
    "auth",
    "channels",
    "commands",
    "cron",
    "git-objects",
    "history",
    "hooks",
    "limits",
    "mcp",
    "pairing.json",
    "pipes",
    "profiles",
    "sessions",
    "tools.jsonl",
    "trust.json",
    "undo",
    "usage.jsonl",
    "usage.under-way",
    "write-locks",
    "written-skills",
];

/// Files in the workspace that give instructions to later runs.
const INSTRUCTION_FILES: &[&str] =
    &["AGENTS.md", "HEARTBEAT.md", "IDENTITY.md", "SOUL.md", "TOOLS.md", "USER.md", "skills"];

/// The protected paths of our own directory and of the workspace, a real path: hidden ones, and read-only ones.
pub(crate) fn protected_paths(
    ctx: &Context,
    workspace: &Path,
) -> (Deferred<Vec<PathBuf>>, Deferred<Vec<PathBuf>>) {
    let (paths, place) = (ctx.paths.clone(), workspace.to_owned());
    let hidden = Deferred::new(move || {
        let mut real_paths = PathResolver::with_real_path(&place);
        let [config, own] = config_files(&paths);
        let root = real_paths.resolve(&paths.root);
        let protected = PROTECTED_PATHS.iter().map(|name| root.join(name));
        protected
            .chain(["cron", "sessions"].map(|name| place.join(name)))
            .chain([paths.auth(), config, own].map(|path| real_paths.resolve(&path)))
            .collect()
    });
    let (paths, place) = (ctx.paths.clone(), workspace.to_owned());
    let read_only = Deferred::new(move || {
        let root = PathResolver::with_real_path(&place).resolve(&paths.root);
        let own = memory::PROTECTED_NAMES.iter().map(|name| place.join("memory").join(name));
        let own = own.chain([place.join(".git"), place.join(".nanobot"), root.join("tools")]);
        // What is hidden is behind these links. Another one in the place of such a link would lead to another config.
        let linked = config_files(&paths).into_iter().chain([paths.root.clone()]);
        own.chain(linked.flat_map(|path| trace_links(&path).links).map(|(link, _)| link)).collect()
    });
    (hidden, read_only)
}

/// The two files of the config, by the names that the user gave.
fn config_files(paths: &Paths) -> [PathBuf; 2] {
    let config = std::path::absolute(&paths.config).unwrap_or_else(|_| paths.config.clone());
    let own = own_file_path(&config);
    [config, own]
}

/// The files in the workspace that give instructions to later runs.
pub(crate) fn instruction_files(workspace: &Path) -> Vec<PathBuf> {
    let names = INSTRUCTION_FILES.iter();
    names.map(|name| workspace.join(name)).collect()
}
