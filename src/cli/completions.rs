//! `nanobot completions`: what shells load, and what they ask when TAB is pressed.

use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// Print a shell completion script
///
/// It completes commands, flags, and the names of your sessions, jobs, models, profiles and config keys. Packages
/// install the same scripts.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: CompletionShell,
    // The words that a script passes on when TAB is pressed. The last one is at the cursor.
    #[arg(last = true, hide = true, allow_hyphen_values = true)]
    pub script_arguments: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    #[value(alias = "pwsh")]
    Powershell,
}
