//! Files that are run, or that say what is run, the next time somebody opens a shell, an editor or a repository. No
//! command changes them, and no command makes them, also where it may write.

use std::path::{Path, PathBuf};

/// Beneath any directory that may be written.
pub const NAMES: &[&str] = &[
    // git runs hooks, and much that its config says.
    ".git",
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    // Shells, and what logs in.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".config/fish",
    ".config/nushell",
    ".pam_environment",
    ".ssh",
    ".gnupg",
    ".forward",
    // Sessions of a desktop.
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".xinitrc",
    ".config/autostart",
    ".config/systemd",
    ".config/environment.d",
    ".config/plasma-workspace",
    ".local/share/systemd",
    ".local/share/applications",
    ".local/share/dbus-1",
    // Editors, debuggers and interpreters that read them from the home or from where they stand.
    ".vimrc",
    ".gvimrc",
    ".vim",
    ".config/nvim",
    ".exrc",
    ".emacs",
    ".emacs.d",
    ".config/emacs",
    ".dir-locals.el",
    ".nanorc",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".irbrc",
    ".Rprofile",
    ".screenrc",
    ".tmux.conf",
    ".config/tmux",
    ".gitconfig",
    ".config/git",
    ".config/pip",
    ".cargo/config",
    ".cargo/config.toml",
    // What opens a directory runs these.
    ".envrc",
    ".mise.toml",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".mcp.json",
    // Other agents, and we.
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".nanobot",
];

/// What is kept beneath `root`, a writable place: the names, and the repositories that one there holds within itself.
pub fn kept(root: &Path) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = NAMES.iter().map(|name| root.join(name)).collect();
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
