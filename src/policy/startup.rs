//! Files that are run, or that say what is run, the next time somebody opens a shell, an editor or a repository. Neither
//! commands nor file tools change or make them, also where they may write: who means one grants that very file. Pure.

use std::path::Path;

/// Beneath any directory that may be changed.
pub const NAMES: &[&str] = &[
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

/// Whether what lies at `relative` in a place that may be changed is one of them, or git's own.
pub fn is_kept(relative: &Path) -> bool {
    let of_git = |part: std::path::Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
    relative.components().any(of_git) || NAMES.iter().any(|name| relative.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::is_kept;
    use std::path::Path;

    #[test]
    fn what_is_kept() {
        let check =
            |path: &str, expect: bool| assert_eq!(is_kept(Path::new(path)), expect, "{path}");
        check(".bashrc", true);
        check(".bashrc.d", false);
        check("dotfiles/.bashrc", false);
        check(".vscode/tasks.json", true);
        check(".git/hooks/pre-commit", true);
        check("sub/.git/config", true);
        check(".GIT/config", true);
        check(".gitignore", false);
        check(".github/workflows/ci.yml", false);
        check("src/main.rs", false);
        check("", false);
    }
}
