//! Files that run, or decide what runs, the next time a shell, editor or repository is opened. Commands and file tools
//! neither change nor create them, even in writable directories; granting exactly such a file lifts this. Pure.

use std::ffi::OsStr;
use std::path::Path;

/// Names beneath any writable directory.
pub const STARTUP_FILES: &[&str] = &[
    // Shells and login programs.
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
    // Desktop sessions.
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
    // Editors, debuggers and interpreters that read these from the home or the current directory.
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
    // Run by tools when they enter or open the directory.
    ".envrc",
    ".mise.toml",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".mcp.json",
    // Other agents, and nanobot itself.
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".nanobot",
];

/// Names of files, and of directories, that instruct agents which work in the directory around them.
const INSTRUCTION_FILES: &[&str] = &["AGENTS.md", "CLAUDE.md", "SKILL.md"];
const INSTRUCTION_DIRS: &[&str] = &["skills"];

/// True if `relative`, a path within a directory, instructs agents that work there or beneath.
pub fn is_instruction_file(relative: &Path) -> bool {
    let is_one_of =
        |name: &OsStr, names: &[&str]| names.iter().any(|it| name.eq_ignore_ascii_case(it));
    let mut dirs = relative.parent().into_iter().flat_map(Path::iter);
    relative
        .file_name()
        .is_some_and(|name| is_one_of(name, INSTRUCTION_FILES))
        || dirs.any(|name| is_one_of(name, INSTRUCTION_DIRS))
}

/// True if `relative`, a path within a writable directory, is one of these or belongs to git.
pub fn is_protected(relative: &Path) -> bool {
    let of_git = |part: std::path::Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
    relative.components().any(of_git) || STARTUP_FILES.iter().any(|name| relative.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::{is_instruction_file, is_protected};
    use std::path::Path;

    #[test]
    fn protected_paths() {
        let check =
            |path: &str, expect: bool| assert_eq!(is_protected(Path::new(path)), expect, "{path}");
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

    #[test]
    fn instruction_files() {
        let check = |path: &str, expect: bool| {
            assert_eq!(is_instruction_file(Path::new(path)), expect, "{path}");
        };
        check("AGENTS.md", true);
        check("src/deep/Agents.MD", true);
        check("src/CLAUDE.md", true);
        check("src/skills/x/run.sh", true);
        check("src/Skills/x", true);
        check("src/skills", false);
        check("skills.md", false);
        check("src/agents.rs", false);
        check("", false);
    }
}
