//! Files that run, or decide what runs, the next time a shell, editor or repository is opened. Commands and file tools
//! neither change nor create them, even in writable directories; granting exactly such a file lifts this. Those that are part of a project
//! have rules of their own. No I/O.

use std::ffi::OsStr;
use std::path::Path;

/// Names at the top of a home and of any writable directory.
const STARTUP_FILES: &[&str] = &[
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
    // Programs that are found by name, and logins.
    ".local/bin",
    ".k5login",
    ".rhosts",
    ".config/direnv",
    ".config/mise",
    ".config/helix",
    ".config/zed",
    ".nanobot",
];

/// Names at the top of a home only: elsewhere they are ordinary parts of a project.
const HOME_FILES: &[&str] = &[
    // Programs that are found by name, and shells.
    "bin",
    ".bashrc.d",
    ".bash_completion",
    ".zsh",
    ".oh-my-zsh",
    ".config/zsh",
    ".config/powershell",
    ".config/elvish",
    ".config/xonsh",
    ".xonshrc",
    ".config/starship.toml",
    // Desktop sessions, and terminals, which start a program.
    ".i3",
    ".config/i3",
    ".config/sway",
    ".config/hypr",
    ".config/niri",
    ".config/river",
    ".config/labwc",
    ".config/bspwm",
    ".config/sxhkd",
    ".config/awesome",
    ".config/qtile",
    ".config/openbox",
    ".config/herbstluftwm",
    ".config/lxsession",
    ".config/waybar",
    ".config/polybar",
    ".config/xmonad",
    ".xmonad",
    ".local/share/gnome-shell",
    ".local/share/plasma",
    ".config/kitty",
    ".config/alacritty",
    ".config/wezterm",
    ".wezterm.lua",
    ".config/foot",
    ".config/ghostty",
    // Editors, interpreters and clients.
    ".config/Code/User",
    ".config/VSCodium/User",
    ".config/Cursor/User",
    ".vscode-server",
    ".config/sublime-text",
    ".config/micro",
    ".config/doom",
    ".doom.d",
    ".spacemacs",
    ".ideavimrc",
    ".ipython",
    ".julia/config",
    ".octaverc",
    ".ghci",
    ".iex.exs",
    ".pryrc",
    ".perldb",
    ".psqlrc",
    ".sqliterc",
    ".curlrc",
    ".wgetrc",
    ".gradle/init.d",
];

/// Names at any depth of a directory: files that tools and agents read when they enter or open the directory around
/// them. They are part of the work as much as they are start-up files, so file tools and commands change them unless the conversation has
/// untrusted content. A name may begin with that of its directory.
const PROJECT_FILES: &[&str] = &[
    "AGENTS.md",
    "AGENTS.override.md",
    "AGENT.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "CRUSH.md",
    "GEMINI.md",
    "QWEN.md",
    "WARP.md",
    "SKILL.md",
    "skills",
    ".augment-guidelines",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules",
    ".goosehints",
    ".rules",
    ".github/agents",
    ".github/chatmodes",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/prompts",
    "rust-toolchain",
    "rust-toolchain.toml",
    ".yarnrc.yml",
    ".npmrc",
    ".ripgreprc",
    ".gitmodules",
];
/// The names among them whose files run programs. MCP servers never change them at the top of a directory.
const RUNNING_PROJECT_FILES: &[&str] = &[
    ".envrc",
    ".config/mise",
    ".config/mise.toml",
    ".mise",
    ".mise.toml",
    ".mise.local.toml",
    "mise.toml",
    "mise.local.toml",
    // Hooks of git: husky, lefthook, pre-commit, overcommit.
    ".husky",
    ".lefthook",
    ".lefthook-local",
    ".lefthook.toml",
    ".lefthook.yaml",
    ".lefthook.yml",
    ".lefthook-local.yaml",
    ".lefthook-local.yml",
    "lefthook.toml",
    "lefthook.yaml",
    "lefthook.yml",
    "lefthook-local.yaml",
    "lefthook-local.yml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".overcommit.yml",
    ".git-hooks",
    ".githooks",
    ".vscode",
    ".idea",
    ".fleet",
    ".run",
    ".helix",
    ".zed",
    ".nvim.lua",
    ".devcontainer",
    ".devcontainer.json",
    ".mcp.json",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".aider.conf.yml",
    ".amazonq",
    ".augment",
    ".continue",
    ".crush",
    ".crush.json",
    "crush.json",
    ".factory",
    ".junie",
    ".kiro",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".openhands",
    ".qwen",
    ".roo",
    ".trae",
    ".vibe",
    ".windsurf",
    ".pnpmfile.cjs",
    ".cargo/config",
    ".cargo/config.toml",
    // Editors, debuggers and interpreters that read these from the current directory.
    ".vimrc",
    ".gvimrc",
    ".exrc",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".nvimrc",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".irbrc",
    ".Rprofile",
];

/// The names that commands never change at the top of a writable directory.
pub fn always_protected_from_commands() -> &'static [&'static str] {
    STARTUP_FILES
}

/// The names that commands never change at the top of a home.
pub fn protected_in_home() -> Vec<&'static str> {
    [STARTUP_FILES, RUNNING_PROJECT_FILES, HOME_FILES].concat()
}

/// The names that MCP servers never change at the top of any writable directory.
pub fn protected_from_servers() -> Vec<&'static str> {
    [STARTUP_FILES, RUNNING_PROJECT_FILES].concat()
}

/// The names that are start-up files at any depth of a directory.
pub fn project_files() -> Vec<&'static str> {
    [PROJECT_FILES, RUNNING_PROJECT_FILES].concat()
}

/// True if `relative`, a path within a directory, is read by tools or agents that work there or beneath.
pub fn is_project_file(relative: &Path) -> bool {
    let names = PROJECT_FILES.iter().chain(RUNNING_PROJECT_FILES);
    let parts: Vec<&OsStr> = relative.iter().collect();
    let is_at = |parts: &[&OsStr], name: &str| {
        let mut parts = parts.iter();
        name.split('/')
            .all(|component| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(component)))
    };
    (0..parts.len()).any(|at| names.clone().any(|name| is_at(&parts[at..], name)))
}

/// True if `relative`, a path within a writable directory, is a start-up file or belongs to git.
pub fn is_protected(relative: &Path) -> bool {
    relative.iter().any(|part| part.eq_ignore_ascii_case(".git"))
        || STARTUP_FILES.iter().any(|name| begins_with(relative, Path::new(name)))
}

/// True if `path` is `start` or beneath it, compared without case, because some file systems are.
pub fn begins_with(path: &Path, start: &Path) -> bool {
    let mut parts = path.iter();
    let mut starts = start.iter();
    starts.all(|start| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(start)))
}

#[cfg(test)]
mod tests {
    use super::{is_project_file, is_protected};
    use std::path::Path;

    #[test]
    fn protected_paths() {
        let check =
            |path: &str, expect: bool| assert_eq!(is_protected(Path::new(path)), expect, "{path}");
        check(".bashrc", true);
        check(".bashrc.d", false);
        check("dotfiles/.bashrc", false);
        check(".BashRC", true);
        check(".config/FISH/config.fish", true);
        check(".local/bin/ls", true);
        check(".vscode/tasks.json", false);
        check(".git/hooks/pre-commit", true);
        check("sub/.git/config", true);
        check(".GIT/config", true);
        check(".gitignore", false);
        check(".github/workflows/ci.yml", false);
        check("src/main.rs", false);
        check("", false);
    }

    #[test]
    fn project_files() {
        let check = |path: &str, expect: bool| {
            assert_eq!(is_project_file(Path::new(path)), expect, "{path}");
        };
        check("AGENTS.md", true);
        check("src/deep/Agents.MD", true);
        check("src/CLAUDE.md", true);
        check("src/skills/x/run.sh", true);
        check("src/Skills/x", true);
        check("src/skills", true);
        check("deep/.VSCode/tasks.json", true);
        check("web/.devcontainer.json", true);
        check("rust-toolchain.toml", true);
        check(".github/Copilot-Instructions.md", true);
        check("a/.github/copilot-instructions.md", true);
        check(".github/workflows/ci.yml", false);
        check("copilot-instructions.md", false);
        check("a/.cargo/config.toml", true);
        check(".cargo", false);
        check("config.toml", false);
        check("deep/.vimrc", true);
        check("GEMINI.md", true);
        check("app/.npmrc", true);
        check(".roo/rules/a.md", true);
        check(".husky/pre-commit", true);
        check("web/lefthook.yml", true);
        check(".pre-commit-config.yaml", true);
        check("CLAUDE.local.md", true);
        check(".github/instructions/a.instructions.md", true);
        check(".windsurf/rules/a.md", true);
        check("skills.md", false);
        check("src/agents.rs", false);
        check("", false);
    }
}
