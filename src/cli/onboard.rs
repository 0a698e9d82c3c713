//! `nanobot onboard`: the first config and workspace.

use clap::{Args, ValueEnum};

/// Write a config and a workspace; what is there is kept
///
/// On a terminal it asks; with flags, or off a terminal, it does not.
#[derive(Args, Clone, Debug, Default)]
pub struct Onboard {
    /// The provider to use
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The variable that holds its key
    ///
    /// The config names it, and never has the key itself.
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// Read its key from standard input, and keep it in the config
    #[arg(long, conflicts_with = "api_key_env")]
    pub api_key_stdin: bool,
    /// Its address, where it is not the usual one
    #[arg(long, value_name = "URL")]
    pub api_base: Option<String>,
    /// The model to ask
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Where the agent works: the current directory, or always the workspace
    #[arg(long, value_name = "WHERE")]
    pub directory: Option<Directory>,
    /// Ask nothing and take the defaults
    #[arg(short, long)]
    pub yes: bool,
    /// Ask the model to say hello, and tell what that took and cost; a failure is the status
    #[arg(long)]
    pub test: bool,
    /// Write completions to where the shell that `SHELL` names looks for them
    #[arg(long)]
    pub completions: bool,
    /// Let cron look at HEARTBEAT.md every 30 minutes
    #[arg(long)]
    pub heartbeat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Directory {
    Cwd,
    Workspace,
}
