//! Our own paths that no tool of a run may read or change. They are resolved when they are first used.

use crate::ops::context::Context;
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_os::deferred::Deferred;
use nanobot_os::paths::Paths;
use nanobot_os::symlinks::{PathResolver, trace_links};
use nanobot_store::memory;
use std::path::{Path, PathBuf};

/// Hidden files and directories in our own directory, outside the workspace. They are hidden even if a parent directory is
/// granted.
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
    "notify.json",
    "pairing.json",
    "pipes",
    "profiles",
    "prompts",
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

/// The directory of the memory, its files, and the place of the text in older releases.
const MEMORY_FILES: &[&str] =
    &["memory", "memory/MEMORY.md", "memory/HISTORY.md", "memory/history.jsonl", "MEMORY.md"];

/// The protected paths of our own directory and of the workspace, a real path: hidden ones, and read-only ones.
pub(crate) fn protected_paths(
    ctx: &Context,
    workspace: &Path,
) -> (Deferred<Vec<PathBuf>>, Deferred<Vec<PathBuf>>) {
    let (paths, workspace_path) = (ctx.paths.clone(), workspace.to_owned());
    let hidden = Deferred::new(move || {
        let mut real_paths = PathResolver::with_real_path(&workspace_path);
        let [config, own_config] = config_files(&paths);
        let root = real_paths.resolve(&paths.root);
        let protected = PROTECTED_PATHS.iter().map(|name| root.join(name));
        protected
            .chain(["cron", "sessions"].map(|name| workspace_path.join(name)))
            .chain(
                [paths.auth(), config, own_config, paths.system_config.clone()]
                    .map(|path| real_paths.resolve(&path)),
            )
            .collect()
    });
    let (paths, workspace) = (ctx.paths.clone(), workspace.to_owned());
    let read_only = Deferred::new(move || {
        let root = PathResolver::with_real_path(&workspace).resolve(&paths.root);
        let memory = workspace.join("memory");
        let mut read_only: Vec<PathBuf> =
            memory::PROTECTED_NAMES.iter().map(|name| memory.join(name)).collect();
        let own_folders = ["tools", "skills"].map(|name| root.join(name));
        read_only.extend([workspace.join(".git"), workspace.join(".nanobot")]);
        read_only.extend(own_folders);
        // These links lead to hidden files. A run that could replace one could choose another config.
        for path in config_files(&paths).into_iter().chain([paths.root.clone()]) {
            read_only.extend(trace_links(&path).links.into_iter().map(|(link, _)| link));
        }
        read_only
    });
    (hidden, read_only)
}

/// The two files of the config, by the names that the user gave.
fn config_files(paths: &Paths) -> [PathBuf; 2] {
    let config = std::path::absolute(&paths.config).unwrap_or_else(|_| paths.config.clone());
    let own_config = own_file_path(&config);
    [config, own_config]
}

/// The paths of the memory. Each may be granted by name.
pub(crate) fn memory_files(workspace: &Path) -> Vec<PathBuf> {
    MEMORY_FILES.iter().map(|name| workspace.join(name)).collect()
}

/// The files in the workspace that give instructions to later runs.
pub(crate) fn instruction_files(workspace: &Path) -> Vec<PathBuf> {
    INSTRUCTION_FILES.iter().map(|name| workspace.join(name)).collect()
}
