//! `nanobot memory`: what outlasts conversations.

use super::value::dollars;
use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum Memory {
    // The arguments stand apart, since they are many, and what is said of them: here it would hide that.
    Consolidate(Consolidate),
    /// Print what is remembered
    Show,
    /// Find a regular expression in the memory and its history
    ///
    /// The status is 1 when it is nowhere.
    Search {
        /// The regular expression
        ///
        /// `(?i)` before it takes upper and lower case alike.
        pattern: String,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Change the memory with your editor (`VISUAL`, else `EDITOR`)
    Edit,
    /// List the versions of the memory, newest first
    Log {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print what changed
    ///
    /// By the last change, since version A, or from A to B.
    Diff {
        /// The number of a version
        #[arg(value_name = "A")]
        from: Option<u64>,
        /// The number of a version
        #[arg(value_name = "B")]
        to: Option<u64>,
    },
    /// Bring the version before back
    ///
    /// Byte for byte; done again, it brings back the one before that. This is about MEMORY.md alone: the history keeps its paragraphs, and what was consolidated is not consolidated again.
    Undo {
        /// The number of the version to bring back instead
        id: Option<u64>,
    },
}

/// Make memory of what is old in conversations
///
/// The old part of a conversation goes to the model with the memory as it is, and comes back as a paragraph of
/// HISTORY.md and a new MEMORY.md. Without `-s` and `--all` this is done where it is due: what `--new` put behind, and
/// conversations that have outgrown their window. Done again, it does nothing.
#[derive(Args, Clone, Debug, Default)]
pub struct Consolidate {
    /// The conversation to do it for, due or not; its newest messages stay
    #[arg(short, long, value_name = "KEY", conflicts_with = "all")]
    pub session: Option<String>,
    /// Every conversation, due or not
    #[arg(long)]
    pub all: bool,
    /// Tell what would be done; ask no model and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Wait so many seconds for another run that is changing the memory
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub wait: u64,
    /// Reach no address but loopback
    #[arg(long)]
    pub offline: bool,
    /// Ask for the reply in one piece, for servers that cannot stream
    #[arg(long)]
    pub no_stream: bool,
    // What `agent` starts when its answer is out.
    #[arg(long, hide = true, requires = "session", conflicts_with = "dry_run")]
    pub detached: bool,
    // What the turn's model takes in and gives out, and what is left of the turn's limits.
    #[arg(long, hide = true, requires = "detached")]
    pub context: Option<u32>,
    #[arg(long, hide = true, requires = "detached", value_parser = dollars)]
    pub max_cost: Option<f64>,
    #[arg(long, hide = true, requires = "detached")]
    pub max_total_tokens: Option<u64>,
}
