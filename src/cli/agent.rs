//! `nanobot agent`: one turn.

use crate::options::grants::Grants;
use crate::options::model::ModelOptions;
use crate::options::turn::{
    OutputOptions, PromptOptions, RecordingOptions, ServerFiles, SessionChoice, StdinOptions,
    TurnInput, TurnLimits, UntilOptions,
};
use crate::options::value::typed_text;
use clap::Args;
use nanobot_base::message::user_text::UserText;

/// Run one turn and print the answer
///
/// The message comes from `-m` or the argument, from standard input, or from both; then the piped text follows the message in a
/// marked block. Standard output carries the answer and nothing else. The text of `-m` is your word, also what a shell puts into it,
/// and may name hosts: give text of others by a pipe or `-a`. Of such text the model can send nothing to an address that you did not
/// name. It can still be talked into a job or a change of its notes or memory, which a line on standard error names; `--deny cron
/// --deny notes` forbids them.
#[derive(Args, Clone, Debug, Default)]
pub struct AgentArgs {
    /// The message, as `-m` gives it
    #[arg(value_name = "TEXT", value_parser = typed_text, conflicts_with = "message", hide_short_help = true)]
    pub text: Option<UserText>,
    /// The message, or nothing: for lines that were written for other agents
    #[arg(short = 'p', long, alias = "prompt", value_name = "TEXT", num_args = 0..=1, default_missing_value = "", hide = true,
          value_parser = typed_text, conflicts_with = "message")]
    pub print: Option<UserText>,
    #[command(flatten)]
    pub turn: TurnArgs,
}

/// A turn, whose message may come from a file too
#[derive(Args, Clone, Debug, Default)]
pub struct TurnArgs {
    #[command(flatten)]
    pub input: TurnInput,
    #[command(flatten)]
    pub session: SessionChoice,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub prompt: PromptOptions,
    #[command(flatten)]
    pub model: ModelOptions,
    /// Answer as JSON that matches this schema
    ///
    /// A file, a JSON schema, or a list of fields such as `name, age int, tags str[]`.
    #[arg(long, aliases = ["json-schema", "output-schema"], value_name = "SCHEMA", help_heading = "Output", conflicts_with = "extract")]
    pub schema: Option<String>,
    #[command(flatten)]
    pub grants: Grants,
    #[command(flatten)]
    pub server_files: ServerFiles,
    /// Leave the directory as it is: print the changes as a patch
    ///
    /// File tools and commands work on a private copy of the directory and its repository, without what git ignores. What MCP servers do
    /// and changes of the agent's notes are not part of it, and last; it can make no jobs. Standard
    /// output is a patch for `nanobot apply` or `git apply`, with `--json` the field `patch`; the answer is on standard error. Without
    /// changes, nothing is printed. At most 50,000 files and 512 MiB are copied, to `$TMPDIR` or /tmp.
    #[arg(long, help_heading = "Permissions", hide_short_help = true,
          conflicts_with_all = ["write", "worktree", "schema", "extract", "resume"])]
    pub propose: bool,
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
    pub until: UntilOptions,
    #[command(flatten)]
    pub stdin: StdinOptions,
    #[command(flatten)]
    pub recording: RecordingOptions,
}
