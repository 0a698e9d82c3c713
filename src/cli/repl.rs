//! `nanobot repl`: a conversation at a terminal.

use super::grants::Grants;
use super::value::{dollars, temperature};
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

    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: Option<String>,
    /// How freely the model answers, 0 to 2
    #[arg(long, value_name = "N", value_parser = temperature, help_heading = "Model", hide_short_help = true)]
    pub temperature: Option<f64>,
    /// Limit of one reply, in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model", hide_short_help = true)]
    pub max_tokens: Option<u32>,
    /// How much a reasoning model thinks: low, medium, high or what else it takes
    #[arg(
        long,
        value_name = "LEVEL",
        help_heading = "Model",
        hide_short_help = true
    )]
    pub reasoning_effort: Option<String>,
    /// How often the model may be asked in a turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model", hide_short_help = true)]
    pub max_iterations: Option<u32>,
    /// Stop a turn when it has cost so many US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, help_heading = "Model")]
    pub max_cost: Option<f64>,
    /// Ask for replies in one piece, for servers that cannot stream
    #[arg(long, help_heading = "Model", hide_short_help = true)]
    pub no_stream: bool,
    /// Answer from FILE, not a model; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub replay: Option<PathBuf>,

    #[command(flatten)]
    pub grants: Grants,
    /// Reach no address but loopback
    #[arg(long, help_heading = "What the agent may do", hide_short_help = true)]
    pub offline: bool,
}
