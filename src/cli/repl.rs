//! `nanobot repl`: a session at a terminal.

use crate::options::grants::Grants;
use crate::options::model::ModelOptions;
use crate::options::value::path;
use clap::Args;
use std::path::PathBuf;

/// Chat with the agent at the terminal
///
/// Each line is a turn of one session. The agent may ask for approval of what its flags do not grant, and Esc or
/// Ctrl-C stops a turn without ending the session. `/help` lists the commands. On a terminal, `nanobot agent` without a message does
/// the same.
#[derive(Args, Clone, Debug, Default)]
pub struct ReplArgs {
    /// Session to continue
    ///
    /// Default: `cli:direct`.
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// Continue the session that was used last
    ///
    /// Of those that a person began: not of jobs, chats and filters.
    #[arg(id = "continue", long = "continue", conflicts_with_all = ["session", "fork"])]
    pub last: bool,
    /// Copy session KEY first, and continue the copy
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub fork: Option<String>,
    /// Start the session over
    ///
    /// Earlier messages are kept but not sent.
    #[arg(long, conflicts_with = "fork")]
    pub new: bool,
    /// Print more about what is going on
    #[arg(short, long)]
    pub verbose: bool,
    /// Render markdown (default)
    #[arg(long, overrides_with = "no_markdown", hide = true)]
    pub markdown: bool,
    /// Print answers as raw markdown
    #[arg(long, overrides_with = "markdown")]
    pub no_markdown: bool,

    #[command(flatten)]
    pub model: ModelOptions,
    /// Replay answers from FILE; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Model", value_parser = path())]
    pub replay: Option<PathBuf>,

    #[command(flatten)]
    pub grants: Grants,
    /// Connect to loopback addresses only
    #[arg(long, help_heading = "Permissions", hide_short_help = true)]
    pub offline: bool,
}
