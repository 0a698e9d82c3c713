//! The user's shell, and the file from which it loads completions.

use super::env::Env;
use super::paths::Paths;
use nanobot_base::shell_quote::quote;
use std::path::{Path, PathBuf};

/// A shell that loads completions from a directory of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserShell {
    Bash,
    Zsh,
    Fish,
}

impl UserShell {
    /// Returns the shell that `SHELL` names.
    pub fn from_env(env: &Env) -> Option<Self> {
        let path = Path::new(env.get("SHELL")?);
        match path.file_name()?.to_str()? {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "fish" => Some(Self::Fish),
            _ => None,
        }
    }

    /// Returns the shell's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }

    /// Returns the file from which it loads completions for this program.
    pub fn completion_path(self, env: &Env, paths: &Paths) -> PathBuf {
        let base_dir = |variable: &str, default: &str| match env.get(variable) {
            Some(folder) if folder.starts_with('/') => PathBuf::from(folder),
            _ => paths.home.join(default),
        };
        let share = || base_dir("XDG_DATA_HOME", ".local/share");
        match self {
            Self::Bash => share().join("bash-completion/completions/nanobot"),
            Self::Zsh => share().join("zsh/site-functions/_nanobot"),
            Self::Fish => {
                base_dir("XDG_CONFIG_HOME", ".config").join("fish/completions/nanobot.fish")
            }
        }
    }

    /// Returns the other requirement for loading them from the file `script`, as a phrase that follows its name.
    pub fn loading_note(self, script: &Path) -> Option<String> {
        match self {
            Self::Bash => {
                Some("start a new shell to load it; requires the package `bash-completion`".into())
            }
            Self::Zsh => script.parent().map(|folder| {
                let folder = quote(&folder.to_string_lossy());
                format!(
                    "start a new shell to load it; requires `fpath+=({folder})` before `compinit` in `.zshrc`"
                )
            }),
            Self::Fish => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UserShell;
    use crate::env::Env;
    use crate::paths::Paths;
    use std::path::Path;

    #[test]
    fn completion_paths_of_shells() {
        let check = |variables: &[(&str, &str)], expect: Option<&str>| {
            let env: Env = variables.iter().copied().chain([("HOME", "/h")]).collect();
            let paths = Paths::resolve(&env, None).unwrap();
            let path = UserShell::from_env(&env).map(|shell| shell.completion_path(&env, &paths));
            assert_eq!(path.as_deref(), expect.map(Path::new));
        };
        check(&[], None);
        check(&[("SHELL", "/bin/dash")], None);
        check(
            &[("SHELL", "/bin/bash")],
            Some("/h/.local/share/bash-completion/completions/nanobot"),
        );
        check(
            &[("SHELL", "/usr/bin/zsh"), ("XDG_DATA_HOME", "/d")],
            Some("/d/zsh/site-functions/_nanobot"),
        );
        check(
            &[("SHELL", "fish"), ("XDG_CONFIG_HOME", "not absolute")],
            Some("/h/.config/fish/completions/nanobot.fish"),
        );
    }

    #[test]
    fn the_note_of_zsh_names_the_folder_of_the_script() {
        let check = |script: &str, expect: &str| {
            let note = UserShell::Zsh.loading_note(Path::new(script)).unwrap();
            assert!(note.contains(expect), "{note}");
        };
        check("/d/zsh/site-functions/_nanobot", " `fpath+=(/d/zsh/site-functions)` before ");
        check("/a b/_nanobot", " `fpath+=('/a b')` before ");
    }
}
