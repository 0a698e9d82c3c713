//! `nanobot memory`: memory that outlasts sessions.

use crate::options::value::dollars;
use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum MemoryCommand {
    // A doc comment here would hide that of the argument type.
    Consolidate(ConsolidateArgs),
    /// Print the memory
    Show {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Search the memory and its history for a regular expression
    ///
    /// The exit status is 1 if nothing matches.
    Search {
        /// Regular expression, or with `--meaning` any text
        ///
        /// Start it with `(?i)` to ignore case.
        pattern: String,
        /// Print the ten lines that are closest in meaning, the closest first
        ///
        /// The lines of the memory are sent to the model of `memory.embeddings` of the config once, and the pattern each
        /// time.
        #[arg(long)]
        meaning: bool,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Edit the memory in your editor (`VISUAL`, else `EDITOR`)
    Edit,
    /// Accept content from outside in the memory as your own
    ///
    /// A memory that was written in a conversation with web pages or MCP servers is labelled, and runs begin as if they
    /// had read others' content. Review it with `nanobot memory show` first.
    Accept,
    /// List versions of the memory, newest first
    ///
    /// The cause is `consolidation`, `turn` (a tool of the agent, in this session), `edit`, `undo`, `accept`, or `manual`: an editor
    /// of yours, or another program.
    Log {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print the difference between versions
    ///
    /// Of the last change, since version A, or from A to B.
    Diff {
        /// Version number
        #[arg(value_name = "A")]
        from: Option<u64>,
        /// Version number
        #[arg(value_name = "B")]
        to: Option<u64>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Restore the previous version
    ///
    /// Byte for byte; repeat it to go back further. Applies to MEMORY.md only: the history keeps its paragraphs, and
    /// messages that were consolidated are not consolidated again.
    Undo {
        /// Number of the version to restore instead
        id: Option<u64>,
    },
}

/// Consolidate old messages of sessions into memory
///
/// Sends the old part of a session to the model with the current memory, and writes the reply as a paragraph of
/// HISTORY.md and a new MEMORY.md. Without `-s` and `--all`, consolidates what is due: messages from before `--new`,
/// and sessions that have outgrown their window. Running it again does nothing.
#[derive(Args, Clone, Debug, Default)]
pub struct ConsolidateArgs {
    /// Consolidate this session, due or not; keeps its newest messages
    #[arg(short, long, value_name = "KEY", conflicts_with = "all")]
    pub session: Option<String>,
    /// Consolidate every session, due or not
    #[arg(long)]
    pub all: bool,
    /// Print what would be done; send no request and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Model, or a preset of the config
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Seconds to wait for another run that is changing the memory
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub wait: u64,
    /// Connect to loopback addresses only
    #[arg(long)]
    pub offline: bool,
    /// Do not stream replies, for servers that cannot
    #[arg(long)]
    pub no_stream: bool,
    // Set by `agent`, which starts this command after its answer.
    #[arg(long, hide = true, requires = "session", conflicts_with = "dry_run")]
    pub detached: bool,
    // The context window of the turn's model, and the rest of the turn's limits.
    #[arg(long, hide = true, requires = "detached")]
    pub context: Option<u32>,
    #[arg(long, hide = true, requires = "detached", value_parser = dollars)]
    pub max_cost: Option<f64>,
    #[arg(long, hide = true, requires = "detached")]
    pub max_total_tokens: Option<u64>,
}
