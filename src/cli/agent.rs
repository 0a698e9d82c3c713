//! `nanobot agent`: one turn.

use crate::options::turn::TurnOptions;
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
    pub turn: TurnOptions,
}
