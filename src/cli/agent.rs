//! `nanobot agent`: one turn.

use crate::options::grants::Grants;
use crate::options::model::ModelOptions;
use crate::options::turn::{
    OutputOptions, RecordingOptions, SessionChoice, StdinOptions, TurnInput, TurnLimits,
};
use clap::Args;

/// Run one turn and print the answer
///
/// The message comes from `-m`, from standard input, or from both; then the piped text follows the message in a marked
/// block. Standard output carries the answer and nothing else. The text of `-m` is your word, also what a shell puts into it, and
/// may name hosts: give text of others by a pipe or `-a`.
#[derive(Args, Clone, Debug, Default)]
pub struct AgentArgs {
    #[command(flatten)]
    pub input: TurnInput,
    #[command(flatten)]
    pub session: SessionChoice,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub model: ModelOptions,
    /// Answer as JSON that matches this schema
    ///
    /// A file, a JSON schema, or a list of fields such as `name, age int, tags str[]`.
    #[arg(long, value_name = "SCHEMA", help_heading = "Output")]
    pub schema: Option<String>,
    #[command(flatten)]
    pub grants: Grants,
    /// Work in a git worktree, on a branch of that name
    ///
    /// In ~/.nanobot/worktrees, beside your own files. The branch begins at the current commit, or is continued.
    #[arg(long, value_name = "BRANCH", help_heading = "Permissions", hide_short_help = true)]
    pub worktree: Option<String>,
    /// Remove the worktree after the run
    ///
    /// Its branch stays if it has commits. A worktree with changes that are not committed stays too.
    #[arg(long, requires = "worktree", help_heading = "Permissions", hide_short_help = true)]
    pub remove_worktree: bool,
    #[command(flatten)]
    pub limits: TurnLimits,
    #[command(flatten)]
    pub stdin: StdinOptions,
    #[command(flatten)]
    pub recording: RecordingOptions,
}
