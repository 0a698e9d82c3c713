//! `nanobot completions`: what shells load, and what they ask when TAB is pressed.

use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// Print a script that lets a shell complete commands and names
///
/// Names are those of your conversations, jobs, models, profiles and config keys, looked up when TAB is pressed. Packages
/// carry the same scripts.
#[derive(Args, Clone, Debug)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
    // What a script passes on when TAB is pressed; the last word is the one that is being typed.
    #[arg(last = true, hide = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    #[value(alias = "pwsh")]
    Powershell,
}
