//! `nanobot repl`: a conversation at a terminal.

use super::grants::Grants;
use super::model_flags::ModelFlags;
use clap::Args;
use std::path::PathBuf;

/// Talk with the agent, line by line
///
/// Each line is a turn of one conversation. The agent may ask before it does what its flags do not grant, and Ctrl-C stops a
/// turn without ending the conversation. `/help` tells the commands. `nanobot agent` without a message does the same on a
/// terminal.
#[derive(Args, Clone, Debug, Default)]
pub struct Repl {
    /// The conversation to go on with
    ///
    /// Without it that is `cli:direct`.
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// Copy the conversation KEY first, and go on with the copy
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub fork: Option<String>,
    /// Start the conversation afresh
    ///
    /// What was said before is kept, but not sent.
    #[arg(long, conflicts_with = "fork")]
    pub new: bool,
    /// Tell more of what is going on
    #[arg(short, long)]
    pub verbose: bool,
    /// Render markdown, which is the default
    #[arg(long, overrides_with = "no_markdown", hide = true)]
    pub markdown: bool,
    /// Print answers as the model wrote them
    #[arg(long, overrides_with = "markdown")]
    pub no_markdown: bool,

    #[command(flatten)]
    pub asking: ModelFlags,
    /// Answer from FILE, not a model; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub replay: Option<PathBuf>,

    #[command(flatten)]
    pub grants: Grants,
    /// Reach no address but loopback
    #[arg(long, help_heading = "What the agent may do", hide_short_help = true)]
    pub offline: bool,
}
