//! The interface through which the REPL runs commands of the program.

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
    /// Prints all skills of a turn with these options, or the one called `name`.
    fn show_skills(&self, ctx: &Context, name: &str, options: &TurnOptions) -> Result<()>;
}
