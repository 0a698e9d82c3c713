//! `nanobot onboard`: the first config and workspace.

use clap::{Args, ValueEnum};

/// Create a config and a workspace; existing files are kept
///
/// Asks questions on a terminal; with flags, or without a terminal, it asks nothing. If the provider of `--provider` still lacks
/// its key, the files are written and the status is 78.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct OnboardArgs {
    /// Provider to use
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Environment variable that holds the API key
    ///
    /// The config refers to the variable and does not contain the key.
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// Read the API key from standard input into the config
    #[arg(long, conflicts_with = "api_key_env")]
    pub api_key_stdin: bool,
    /// Base URL, if not the provider's default
    #[arg(long, value_name = "URL")]
    pub api_base: Option<String>,
    /// Model to use
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Working directory: the current one, or always the workspace
    #[arg(long, value_name = "WHERE")]
    pub directory: Option<DirectoryArg>,
    /// Allow all tools of the configured MCP servers
    ///
    /// The Python program allows them. Here each tool that does not claim to be read-only needs a rule in `tools.allow`.
    #[arg(long)]
    pub allow_servers: bool,
    /// Take the defaults without asking
    #[arg(short, long)]
    pub yes: bool,
    /// Send a test request first, and print its latency and cost; if it fails, write nothing
    #[arg(long)]
    pub test: bool,
    /// Install completions for the shell that `SHELL` names
    #[arg(long)]
    pub completions: bool,
    /// Check HEARTBEAT.md every 30 minutes with cron
    #[arg(long)]
    pub heartbeat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectoryArg {
    Cwd,
    Workspace,
}
