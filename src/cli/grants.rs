//! The flags that grant permissions, which several commands share.

use super::value::trimmed;
use clap::{ArgAction, Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a run may do, from flags
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[command(next_help_heading = "What the agent may do")]
pub struct Grants {
    /// What it may do, by name: plan, accept-edits, …
    ///
    /// default, plan (reads only), accept-edits, auto-approve (edits, and consents to what would be asked; no web tools
    /// unless `--net`), full (no sandbox), or one of your own in ~/.nanobot/profiles. `explore` is for sub-agents alone (the
    /// tool `spawn`).
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Let it change files in the directory, or in PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = ".",
          action = ArgAction::Append)]
    pub write: Vec<PathBuf>,
    /// Let it read PATH too; may be given again
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    pub read: Vec<PathBuf>,
    /// Let it reach the internet, or only HOSTS
    ///
    /// All of it, commands included; or only these HOSTS (`example.org,*.example.org`), commands not included. An address
    /// that is typed here is reached even where it is not public (`127.0.0.1:8000`); a name never is.
    #[arg(long, value_name = "HOSTS", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub net: Option<Vec<String>>,
    /// Let it use a tool that would have to ask
    ///
    /// `TOOL`, or `TOOL(glob)` for some arguments; may be given again.
    #[arg(long, value_name = "RULE", action = ArgAction::Append, hide_short_help = true)]
    pub allow: Vec<String>,
    /// Forbid a tool; stronger than anything else
    ///
    /// `TOOL`, or `TOOL(glob)` for some arguments; may be given again. About commands a glob is a tripwire: `exec(git *)`
    /// does not hold for `/usr/bin/git`.
    #[arg(long, value_name = "RULE", action = ArgAction::Append, hide_short_help = true)]
    pub deny: Vec<String>,
    /// Offer only these tools, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = trimmed, hide_short_help = true)]
    pub tools: Option<Vec<String>>,
    /// Offer no tools
    #[arg(long, conflicts_with = "tools", hide_short_help = true)]
    pub no_tools: bool,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR", hide_short_help = true)]
    pub directory: Option<PathBuf>,
    /// Whether commands are contained
    ///
    /// Where the kernel has no sandbox, `auto` refuses them, and `strict` ends with status 126 at once; `off` runs them
    /// uncontained.
    #[arg(long, value_name = "WHEN", hide_short_help = true)]
    pub sandbox: Option<Sandbox>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    Auto,
    Off,
    Strict,
}
