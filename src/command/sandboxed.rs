//! The only command available inside the sandbox of an agent's command.

use super::skill;
use crate::cli::CliCommand;
use crate::error::{Exit, fail_with_hint};
use crate::sys::terminal::Terminal;
use anyhow::Result;

/// Prints a file of a built-in skill, if that is the command.
///
/// # Errors
/// Status 77 for every other command.
pub(crate) fn run(command: &CliCommand, terminal: Terminal) -> Result<Exit> {
    if let CliCommand::Skill { command } = command
        && let Some(done) = skill::run_in_sandbox(command, terminal)
    {
        return done;
    }
    Err(fail_with_hint(
        Exit::Refused,
        "nanobot cannot run in the agent's sandbox, which has no network and no access to nanobot's files",
        "the agent's tools: `spawn` to delegate a task, `cron` for reminders, `web_fetch` and the file tools for the rest",
    ))
}
