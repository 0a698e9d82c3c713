//! Places beneath a writable one that stay as they are, whatever a command does: git's hooks and what its config says, here
//! and in the repositories that one holds within itself, and the names that the policy gives.

use std::path::{Path, PathBuf};

/// What git runs, or says what it runs.
const GIT: &[&str] = &[
    ".git",
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
];

/// What is kept beneath `root`, a writable place, `names` among it.
pub fn kept(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    let all = GIT.iter().chain(names);
    let mut kept: Vec<PathBuf> = all.map(|name| root.join(name)).collect();
    for inner in [".git/modules", ".git/worktrees"] {
        let entries = std::fs::read_dir(root.join(inner)).into_iter().flatten();
        for entry in entries.flatten() {
            for name in ["hooks", "config", "config.worktree", "commondir", "gitdir"] {
                kept.push(entry.path().join(name));
            }
        }
    }
    kept
}
