//! The interface to the program's commands, which slash commands run.

use crate::ops::context::Context;
use crate::options::grants::Grants;
use crate::options::turn::TurnOptions;
use anyhow::Result;

/// Runs commands of the program for slash commands. The REPL itself knows none of them.
pub(crate) trait ProgramCommands {
    /// Runs `nanobot ARGUMENTS…` within this conversation.
    fn run(&self, ctx: &Context, arguments: &[&str], options: &TurnOptions) -> Result<()>;
    /// Lists the tools of a turn with these grants.
    fn list_tools(&self, ctx: &Context, grants: &Grants) -> Result<()>;
    /// Prints the requests, the tokens and the cost of the conversation in `session`.
    fn show_cost(&self, ctx: &Context, session: &str) -> Result<()>;
    /// Prints the changes of files by the last turn of the conversation in `session` that made some, or by all of its turns.
    fn show_diff(&self, ctx: &Context, session: &str, of_all_turns: bool) -> Result<()>;
    /// Prints all skills of a turn with these options, or the one called `name`.
    fn show_skills(&self, ctx: &Context, name: &str, options: &TurnOptions) -> Result<()>;
}
